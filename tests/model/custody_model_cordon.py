"""The custody model with hosts that people set apart: cordoned, drained with a deadline, and put into use again.

Theory of operation
  As `custody_model`, whose state it keeps.  What is new is told by the second field of a host, which is there (`down` is 0):

    1 in use · 2 cordoned: what runs there stays · 3 drained, before its deadline · 4 drained, and the deadline has passed

  A person chooses at any moment; a deadline passes at any moment.  A cordoned host that is held counts for its holder beside
  the hosts that are divided, so no quota asks for it.  Its holder gives it back when nothing runs there, and at the deadline
  it ends what still does; from then on the host may be seized whatever the quota says.  What was decided before the cordon
  was known, and comes after it, stands: but no placement.

Rules that can be taken out (MUTANTS)
  void_place_cordoned  a placement on a cordoned host is void, however early its scheduler has decided it
  beside_the_quota     the holder's quota counts its cordoned hosts: without it what runs there ends by notice
  seize_spares         a cordoned host is not seized for another department's claim: it would help nobody
  seize_due            a drained host whose deadline has passed is: by quota alone that of a dead scheduler might never come
                       back (found by c2-drain-dead: its holder holds no more than its quota)

Run: python -m tests.model.custody_model_cordon check [NAME ...] | mutants [NAME ...]
"""

import os
import sys

from tests.model.custody_model import (
    DRAIN,
    FREE,
    HELD,
    HELD_B,
    HELD_W,
    LOST,
    NONE,
    QUOTA,
    B,
    Model,
    Violation,
    explore,
)

IN_USE, CORDONED, DRAINED, DUE = 1, 2, 3, 4
CORDONS = 10  # place of the budget in the environment


class Cordon(Model):
    def __init__(self, cordons=1, drains=True, **given):
        super().__init__(**given)
        self.cordons, self.drains = cordons, drains

    def initial(self):
        start = super().initial()
        return start[:6] + (start[6] + (self.cordons,),)

    # -------------------------------------------------------------------------------------------------------- the fold
    def apply(self, hosts, units, vms, regs, fact):
        if fact[0] == "cordon":
            _, h, level = fact
            return hosts[:h] + ((hosts[h][0], level),) + hosts[h + 1 :], units, vms, regs
        if fact[0] == "revoke" and hosts[fact[1]] == (fact[2], DUE):  # valid whatever the quota says
            return self.put(hosts, fact[1], DRAIN), self.breaks(units, fact[1]), vms, regs
        before = units
        void = fact[0] == "place" and any(hosts[h][1] != IN_USE for h in fact[3])
        if void and self.rule("void_place_cordoned"):
            return hosts, units, vms, regs
        if fact[0] == "end" and len(fact) == 4:  # by notice, decided though its host was known to be kept
            attempt, open_, broken, *_ = units[fact[1]]
            if attempt == fact[2] and open_ and not broken:
                raise Violation("what ran on a kept host was ended for a quota")
            fact = fact[:3]
        if fact[0] == "revoke" and len(fact) == 4:  # decided though the host was known to be kept
            if hosts[fact[1]][0] == fact[2] and self.held(hosts, fact[2]) > regs[QUOTA[fact[2]]]:
                raise Violation("a kept host was seized")
            fact = fact[:3]
        hosts, units, vms, regs = super().apply(hosts, units, vms, regs, fact)
        if void and units != before:
            raise Violation("something was placed on a cordoned host")
        return hosts, units, vms, regs

    # -------------------------------------------------------------------------------------------------------- decisions
    def admission(self, hosts, units, vms, regs, env):
        yield from super().admission(hosts, units, vms, regs, env)
        if env[CORDONS]:
            for h, (_, level) in enumerate(hosts):
                for other in (IN_USE, CORDONED, DRAINED) if self.drains else (IN_USE, CORDONED):
                    if other != min(level, DRAINED):
                        yield (("cordon", h, other),), CORDONS

    def apart(self, hosts, d):
        """The cordoned hosts that the department holds."""
        return [h for h, (c, level) in enumerate(hosts) if c == d and level != IN_USE]

    def targets(self, hosts, units, regs, guarantee):
        """What is divided are hosts in use.  Who holds one that is set apart has it beside them; if it uses it, it wants so many
        fewer."""
        usable, busy = sum(1 for c, level in hosts if c != LOST and level == IN_USE), self.busy(units)
        used = {d: sum(h in busy for h in self.apart(hosts, d)) for d in HELD}
        web = min(max(0, regs[0] - used[HELD_W]), max(0, usable - max(0, guarantee - used[HELD_B])))
        beside = {d: len(self.apart(hosts, d)) if self.rule("beside_the_quota") else 0 for d in HELD}
        return usable - web + beside[HELD_B], web + beside[HELD_W], 0

    def provisioner(self, hosts, units, vms, regs, env):
        for envelope, cost in super().provisioner(hosts, units, vms, regs, env):
            kind, h = envelope[0][0], envelope[0][1]
            if kind == "grant" and hosts[h][1] != IN_USE:
                continue
            if kind == "revoke" and hosts[h][1] in (CORDONED, DRAINED):
                if self.rule("seize_spares"):
                    continue
                envelope = ((*envelope[0], True),)
            if kind == "revoke" and hosts[h][1] == DUE:
                continue
            yield envelope, cost
        for h, (c, level) in enumerate(hosts):
            if level == DUE and c in HELD and self.rule("seize_due"):
                yield (("revoke", h, c),), None

    def given_up(self, hosts, units, d):
        """Hosts that go back whatever the quota says: nothing runs there, or the deadline has passed."""
        busy = self.busy(units)
        for h in self.apart(hosts, d):
            if hosts[h][1] == DUE or h not in busy:
                yield tuple(("end", u, x[0]) for u, x in enumerate(units) if h in x[1]) + (("release", h, d),), None

    def shed(self, hosts, units, d):
        """For another one's claim no cordoned host; for web that wants fewer instances, any."""
        apart, busy = self.apart(hosts, d), self.busy(units)
        others = [h for h, (c, _) in enumerate(hosts) if c == d and h not in apart]
        some = [] if self.rule("beside_the_quota") and d == HELD_B else apart
        for h in [h for h in others if h not in busy] or others or some:
            mark = (True,) if h in apart and d == HELD_B else ()
            ends = tuple(("end", u, x[0], *mark) for u, x in enumerate(units) if h in x[1])
            yield (*ends, ("release", h, d)), None

    def place(self, hosts, units, u, d):
        for envelope, cost in super().place(hosts, units, u, d):
            if all(hosts[h][1] == IN_USE for h in envelope[0][3]):
                yield envelope, cost

    def batch(self, hosts, units, vms, regs, env, d=HELD_B):
        given_up = list(self.given_up(hosts, units, d))
        yield from given_up or super().batch(hosts, units, vms, regs, env, d)

    def webdept(self, hosts, units, vms, regs, env):
        given_up = list(self.given_up(hosts, units, HELD_W))
        yield from given_up or super().webdept(hosts, units, vms, regs, env)

    # ------------------------------------------------------------------------------------------------------------ steps
    def calls(self, s, faults):
        yield from super().calls(s, faults)
        for h, (c, level) in enumerate(s[0]):
            if level == DRAINED:
                yield f"the deadline of host {h} passes", (s[0][:h] + ((c, DUE),) + s[0][h + 1 :], *s[1:])

    @staticmethod
    def renamed(f, perm, rank):
        if f[0] == "cordon":
            return ("cordon", perm[f[1]], f[2])
        if f[0] == "end":
            return (*Model.renamed(f[:3], perm, rank), *f[3:])
        return Model.renamed(f, perm, rank)

    @staticmethod
    def mentions(f, h):
        return f[1] == h if f[0] == "cordon" else Model.mentions(f, h)

    def goal(self, s):
        hosts, units, vms, regs, parked, zomb, env = s
        if any(c == DRAIN for c, _ in hosts):
            return "a host that drains for ever"
        usable = sum(1 for _, level in hosts if level == IN_USE)
        busy, given = self.busy(units), HELD[1:] if B in self.heal_without else HELD
        if any(level == DUE and c != FREE for c, level in hosts):
            return "a drained host has not come back by its deadline"
        if any(h not in busy for d in given for h in self.apart(hosts, d)):
            return "an empty cordoned host is still held"
        kept = len(self.apart(hosts, HELD_W))
        web = min(max(0, env[0] - kept), usable - min(env[8], usable))
        if self.held(hosts, HELD_W) != web + kept:
            return "web holds more or less than it should"
        if sum(1 for u in range(self.jobs, len(units)) if self.runs(s, u)) < min(env[0], web + kept):
            return "web demand not met"
        if B in self.heal_without:
            return None
        if self.held(hosts, HELD_B) - len(self.apart(hosts, HELD_B)) != usable - web:
            return "an idle host did not go to batch"
        for u in range(self.jobs):
            if not units[u][3] and not units[u][4] and self.size[u] <= usable - web:
                return f"job {u} starves"
        return None


CONFIGS = {
    "c1-cordon": dict(NONE, hosts=1, jobs=(1,), web=1, loads=2, cordons=2, drains=False),
    "c1-drain": dict(NONE, hosts=1, jobs=(1,), web=1, loads=1, cordons=2),
    "c2-cordon": dict(NONE, hosts=2, jobs=(1,), web=1, loads=1, cordons=2, drains=False, stale=3),
    "c2-drain": dict(NONE, hosts=2, jobs=(1,), web=1, loads=1, cordons=1, stale=3),
    "c2-drain-gang": dict(NONE, hosts=2, jobs=(2,), web=1, loads=1, cordons=1, stale=3),
    "c2-drain-dead": dict(NONE, hosts=2, jobs=(1,), web=1, loads=1, cordons=1, stale=3, heal_without=(B,)),
    "c2-cordon-guarantee": dict(NONE, hosts=2, jobs=(1,), web=2, loads=1, guarantee=1, cordons=1, stale=2),
    "c2-drain-die": dict(NONE, hosts=2, jobs=(1,), web=1, loads=1, die=1, cordons=1, stale=2),
}
MUTANTS = {
    "void_place_cordoned": dict(NONE, hosts=1, jobs=(1,), web=0, cordons=1, drains=False),
    "beside_the_quota": dict(NONE, hosts=1, jobs=(1,), web=0, cordons=1, drains=False),
    "seize_spares": dict(NONE, hosts=2, jobs=(1,), web=1, loads=1, cordons=1, drains=False, stale=2),
    "seize_due": dict(NONE, hosts=1, jobs=(1,), web=0, cordons=1, heal_without=(B,)),
}
if __name__ == "__main__":
    what, names = sys.argv[1], sys.argv[2:]
    table = CONFIGS if what == "check" else MUTANTS
    for name in names or table:
        for off in ((),) if what == "check" else ((), (name,)):
            r = explore(
                Cordon(**table[name], off=off), trace=what == "check", seconds=float(os.environ.get("SECONDS_MAX", 1e9))
            )
            print(f"{what:8} {name:38} {'RULE OUT' if off else 'rules in'} {r}", flush=True)
