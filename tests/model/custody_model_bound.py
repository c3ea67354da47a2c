"""The custody model with VMs that are bound to one attempt after another (PROTOCOL, X7): saved, moving, waiting for a job.

Theory of operation
  As `custody_model`, whose state it keeps.  What is new is told by two fields of a VM (unit, attempt, host, world, sent, reg):

    world  SAVED: STOPPED, on no host.  AWAY + p: it is bound to `host` and still runs on host p
    reg    1 open · 2 saved (`vm.ended` with "suspended") · 3 open, to be saved or moved · 4 saved and forgotten · 5 parked

  Facts: sus (an attempt is closed and its VMs go on) · vsus (a VM is saved) · bind (`vm.allocated` names a saved or moving VM
  again) · park · take (`vm.allocated` names a parked one).  A job's VMs are saved, fail to be saved, are ended at `kill_by`, lie
  saved while the job is cancelled, move live, fail to move, and wait for the next job; whenever a policy or a fault may choose.

Rules that can be taken out (MUTANTS)
  bind_first       the binding is journaled before the call that makes the VM run
  save_gives_up    `vm.ended(suspended)` is written only when the VM is STOPPED
  leaves_a_host    a host from which a VM moves is not cleared before it was seen elsewhere or gone
  all_or_none      a part of what was saved is worth nothing: without the rest the attempt is broken
  warm_room        a parked VM takes room
  left_behind      a VM that was to leave a host that is lost is ended in the journal (found by b2-move-lost: the host that it
                   was to move to could never be cleared)
  take_is_a_start  X3 before a waiting VM is bound, since no call follows that could wait (found by b2-warm)
  (void_bind and park_held, the preconditions of the fold, are second walls: what the executor decides in its own order, and
  X4, hold without them.  They are kept because they make a story readable and a wrong executor visible.)
  one_leader       X8: no call of an earlier leader arrives after the next one has begun.  Without it a late deploy of a saved VM
                   runs on a host that has changed hands: OpenNebula accepts it, so nothing but X8 stands in between

Run: python -m tests.model.custody_model_bound check [NAME ...] | mutants [NAME ...]
"""

import os
import sys

from tests.model.custody_model import (
    DRAIN,
    GONE,
    HELD_B,
    HOLD,
    LOST,
    NONE,
    RUN,
    Model,
    Violation,
    explore,
)

SAVED, AWAY = 3, 10


def runs_at(v):
    """The host that VM `v` runs on, or None."""
    return v[2] if v[3] == RUN else v[3] - AWAY if v[3] >= AWAY else None


class Bound(Model):
    def __init__(self, saves=1, moves=1, parks=0, unsaved=1, **given):
        super().__init__(**given)
        self.saves, self.moves, self.parks, self.unsaved = saves, moves, parks, unsaved

    # -------------------------------------------------------------------------------------------------------- the fold
    def goes_on(self, vms, u):
        """The unit's VMs that go on."""
        return [v for v in vms if v[0] == u and v[5] in (2, 3)]

    def resumes(self, vms, u):
        return len(self.goes_on(vms, u)) == self.size[u]

    @staticmethod
    def swap(vms, old, new):
        return tuple(sorted(tuple(v for v in vms if v is not old) + (new,)))

    def forget(self, vms, u):
        """The unit does not go on: what is saved is nobody's, what runs is to end."""
        return tuple(sorted(v[:5] + ({2: 4, 3: 1}.get(v[5], v[5]),) if v[0] == u else v for v in vms))

    def apply(self, hosts, units, vms, regs, fact):
        k = fact[0]
        if k == "sus":
            _, u, a = fact
            att, open_, br, dn, ca = units[u]
            if att == a and open_:
                had = [v for v in vms if v[0] == u and v[5] == 1 and v[1] == a and v[3] != HOLD]
                more = self.goes_on(vms, u)
                if len(had) + len(more) == self.size[u] and not br:
                    vms = tuple(sorted(v[:5] + (3,) if v in had else v for v in vms))
                else:
                    vms = self.forget(vms, u)
                units = units[:u] + ((att, (), 0, dn, ca),) + units[u + 1 :]
            return hosts, units, vms, regs
        if k == "vsus":
            for v in vms:
                if v[:3] == fact[1:4] and v[5] == 3:
                    return hosts, units, self.swap(vms, v, v[:5] + (2,)), regs
            return hosts, units, vms, regs
        if k == "left":  # ended in the journal; what may still run on the lost host is the sweep's
            _, u, a, h = fact
            for v in vms:
                if v[:3] == (u, a, h) and v[3] >= AWAY and v[5] in (1, 3):
                    hosts, units, vms, regs = self.gone(hosts, units, vms, regs, ("vend", u, a, h))
                    vms = tuple(sorted(vms + ((u, a, v[3] - AWAY, RUN, 0, 4),)))
            return hosts, units, vms, regs
        if k in ("bind", "take"):
            return hosts, units, self.bound(hosts, units, vms, fact), regs
        if k == "park":
            _, u, a, h = fact
            ours = hosts[h][0] == self.dept[u] or not self.rule("park_held")
            for v in vms:
                if v[:3] == (u, a, h) and v[5] == 1 and units[u][3] == 1 and ours:
                    vms = self.swap(vms, v, v[:5] + (5,))
            return hosts, units, vms, regs
        if k == "vend":
            return self.gone(hosts, units, vms, regs, fact)
        if k == "alloc" and self.goes_on(vms, fact[1]) and self.live(units, fact[1], fact[2]):
            vms = self.forget(vms, fact[1])  # it begins anew all the same
        hosts, units, vms, regs = super().apply(hosts, units, vms, regs, fact)
        if k in ("end", "report", "cancel") and not units[fact[1]][1]:
            att, open_, br, dn, ca = units[fact[1]]
            if k != "end" or att == fact[2]:
                if k == "end" or dn == 1 or ca:
                    vms = self.forget(vms, fact[1])
        return hosts, units, vms, regs

    def bound(self, hosts, units, vms, fact):
        k, u, a, h = fact[:4]
        u_old, a_old, h_old = (u, *fact[4:6]) if k == "bind" else (*fact[4:6], h)
        whole = self.live(units, u, a) and h in units[u][1] and not any(v[:3] == (u, a, h) for v in vms)
        for v in vms:
            if v[:3] != (u_old, a_old, h_old):
                continue
            free = v[5] in (2, 3) and u == u_old if k == "bind" else v[5] == 5 and self.dept[u] == self.dept[u_old]
            if (whole and free) or not self.rule("void_bind"):
                at = runs_at(v)
                world = v[3] if at is None else RUN if at == h else AWAY + at
                return self.swap(vms, v, (u, a, h, world, v[4] if not self.rule("bind_first") else 0, 1))
        return vms

    def gone(self, hosts, units, vms, regs, fact):
        """A VM has ended otherwise than saved."""
        _, u, a, h = fact
        parts = [v for v in vms if v[:3] == (u, a, h)]
        if not parts or parts[0][5] != 3:
            after = super().apply(hosts, units, vms, regs, fact)
            att, open_, br, dn, ca = after[1][u]
            return after if not br else (after[0], after[1], self.forget(after[2], u), after[3])
        vms = tuple(v for v in vms if v is not parts[0])
        if self.rule("all_or_none"):
            vms = self.forget(vms, u)
            att, open_, br, dn, ca = units[u]
            if open_ and not br:  # it was to go on with what is lost
                units = units[:u] + ((att, open_, 1, dn, ca),) + units[u + 1 :]
        return hosts, units, vms, regs

    # -------------------------------------------------------------------------------------------------------- decide
    def admission(self, hosts, units, vms, regs, env):
        for u in range(self.jobs):
            if units[u][3] != 1 and units[u][1]:
                a = units[u][0]
                yield from self.reports(u, a, [v for v in vms if v[0] == u and v[1] == a and runs_at(v) is not None])
            if env[5] and not units[u][3] and not units[u][4]:
                yield (("cancel", u),), 5
            for v in vms if self.parks and self.size[u] == 1 else ():
                waits = v[0] == u and v[5] == 1 and v[3] == RUN and units[u][3] == 1 and v[1] == units[u][0]
                if waits and hosts[v[2]][0] == self.dept[u]:  # never a fact that is void in its own view
                    yield (("park",) + v[:3],), None

    def executor(self, hosts, units, vms, regs, env):
        for h, (c, up) in enumerate(hosts):
            if not up and c != LOST:
                yield (("lost", h),), None
            if up and c in (DRAIN, LOST) and not any(self.keeps(v, h) for v in vms):
                yield (("clear", h),), None
        for u, (a, hs, br, dn, ca) in enumerate(units):
            if not br and hs:
                yield from self.starts(hosts, units, vms, u, a, hs)
        for v in vms:
            if v[3] == GONE and v[5] in (1, 3, 5):
                yield (("vend",) + v[:3],), None
            away = v[3] >= AWAY and v[5] in (1, 3) and not v[4]
            if away and hosts[v[3] - AWAY][0] == LOST and self.rule("left_behind"):
                yield (("left",) + v[:3],), None
            saved = v[3] == SAVED or not self.rule("save_gives_up")
            if saved and v[5] == 3 and (not v[4] or not self.rule("one_leader")):
                yield (("vsus",) + v[:3],), None

    def keeps(self, v, h):
        """VM `v` keeps host `h` from being cleared."""
        at = runs_at(v)
        if not self.rule("leaves_a_host") and v[3] >= AWAY:
            return v[2] == h
        return (v[2] == h and v[5] in (1, 3, 5)) or at == h

    def starts(self, hosts, units, vms, u, a, hs):
        """The VMs of a live attempt: the old ones if it goes on, else a waiting one, else a fresh one."""
        missing = [h for h in hs if not any(v[:3] == (u, a, h) and v[5] == 1 for v in vms)]
        old = self.goes_on(vms, u)
        if old:
            for h in missing[:1]:
                for v in old:
                    if (v[5] == 2 or (v[3] == RUN and self.moves)) and (not v[4] or not self.rule("one_leader")):
                        yield (("bind", u, a, h, v[1], v[2]),), None
            return
        for h in missing:
            waiting = [v for v in vms if v[5] == 5 and v[2] == h and v[3] == RUN and self.dept[v[0]] == self.dept[u]]
            for v in waiting:
                if not self.older(hosts, vms, u, a) or not self.rule("take_is_a_start"):
                    yield (("take", u, a, h, v[0], v[1]),), None
            if not waiting:
                yield (("alloc", u, a, h),), None

    def shed(self, hosts, units, d):
        """As there; and, so that something moves, also an occupied host while another one is idle."""
        mine = [h for h, (c, _) in enumerate(hosts) if c == d]
        busy = self.busy(units)
        if self.moves and d == HELD_B and any(h not in busy for h in mine):
            for h in [h for h in mine if h in busy]:
                moved = [(u, x[0]) for u, x in enumerate(units) if h in x[1] and self.size[u] == 1]
                if moved:
                    yield tuple(("sus", *m) for m in moved) + (("release", h, d),), None
        for envelope, cost in super().shed(hosts, units, d):
            ends = [f for f in envelope if f[0] == "end"]
            if d == HELD_B and self.saves and ends:
                yield tuple(("sus",) + f[1:] if f[0] == "end" else f for f in envelope), cost
            yield envelope, cost

    # -------------------------------------------------------------------------------------------------------- calls
    def calls(self, s, faults):
        hosts, units, vms, regs, parked, zomb, env = s
        base = s[:2] + (tuple(v for v in vms if not self.special(v)),) + s[3:]
        rest = tuple(v for v in vms if self.special(v))
        for label, t in super().calls(base, faults):
            i = next((x for x in zip(base[2], t[2], strict=False) if x[0] != x[1]), None)
            changed = [v for v in t[2] if v not in base[2]]
            if label.startswith("E sends deploy") and changed and not self.has_room(hosts, vms, changed[0]):
                continue
            if i is None and not changed and len(t[2]) == len(base[2]):
                continue
            yield label, t[:2] + (tuple(sorted(t[2] + rest)),) + t[3:]
        for v in rest:
            yield from self.special_calls(s, v, faults)

    @staticmethod
    def special(v):
        return v[3] == SAVED or v[3] >= AWAY or v[5] != 1

    def has_room(self, hosts, vms, v):
        """There is room on `v`'s host beside all that is bound to it or runs on it, and nothing older of the unit is left."""
        others = [o for o in vms if o[:3] != v[:3]]
        taken = any((o[2] == v[2] and o[5] in (1, 3)) or runs_at(o) == v[2] for o in others if o[5] != 5)
        warm = any(o[2] == v[2] and o[5] == 5 for o in others) and self.rule("warm_room")
        return not taken and not warm and not self.older(hosts, vms, v[0], v[1])

    @staticmethod
    def older(hosts, vms, u, a):
        """A VM of an older attempt is open, and a host on which it may be is not lost (X3)."""
        return any(
            o[0] == u
            and o[1] < a
            and o[5] in (1, 3)
            and any(hosts[h][0] != LOST for h in (o[2], runs_at(o)) if h is not None)
            for o in vms
        )

    def special_calls(self, s, v, faults):
        hosts, units, vms, regs, parked, zomb, env = s
        u, a, h, world, sent, reg = v
        name, at = f"{u}/{a}@{h}", runs_at(v)

        def became(world2, sent2=0, env2=env, out=False):
            rest = tuple(o for o in vms if o is not v)
            new = () if out else ((u, a, h, world2, sent2, reg),)
            return (hosts, units, tuple(sorted(rest + new)), regs, parked, zomb, env2)

        live = reg == 1 and self.live(units, u, a)
        busy = sent and self.rule("one_leader")
        if sent and world == SAVED:  # a deploy arrives
            up = hosts[h][1]
            yield f"saved VM {name} {'goes on' if up else 'does not, host down'}", became(RUN if up else GONE)
        if sent and world >= AWAY:  # a migration ends
            yield f"VM {name} has moved", became(RUN if hosts[h][1] and hosts[at][1] else GONE)
            if faults:
                yield f"VM {name} has not moved", became(world)
        if busy:
            return
        if world == SAVED and reg == 1 and live and not sent and hosts[h][0] not in (DRAIN, LOST):
            if self.has_room(hosts, vms, v):
                yield f"E sends deploy of saved {name}", became(SAVED, 1)
        if world == SAVED and not self.rule("bind_first") and reg == 2 and not sent:
            yield f"E sends deploy of unbound {name}", became(SAVED, 1)
        if world >= AWAY and live and not sent and hosts[h][0] not in (DRAIN, LOST) and self.has_room(hosts, vms, v):
            yield f"E sends migrate {name}", became(world, 1)
        if reg == 3 and at is not None and hosts[at][1]:
            yield f"E saves {name}", became(SAVED)
            if faults and self.unsaved and env[4]:
                yield f"{name} cannot be saved", became(GONE, 0, env[:4] + (env[4] - 1,) + env[5:])
        if reg == 4 and not sent and (at is None or hosts[at][1]):
            yield f"E sweeps {name}", became(GONE, out=True)
        ended = not live if reg == 1 else reg in (3, 5)
        gives_way = reg == 5 or hosts[h][0] in (DRAIN, LOST) or (at is not None and hosts[at][0] in (DRAIN, LOST))
        reachable = at is None or hosts[at][1]
        if world != GONE and reachable and ((ended and reg == 1) or (reg == 3 and gives_way) or reg == 5):
            yield f"E terminates {name}", became(GONE)
        if world != GONE and reachable and reg == 1 and live and hosts[h][0] in (DRAIN, LOST):
            yield f"E terminates {name}", became(GONE)
        if at is not None and faults and env[3]:
            yield f"VM {name} dies", became(GONE, 0, env[:3] + (env[3] - 1,) + env[4:])

    def world(self, s):
        for label, t in super().world(s):
            if "rebooted" in label:  # also what had moved, or waited, there
                h = int(label.split()[1])
                dead = tuple(sorted(v[:3] + (GONE, 0, v[5]) if runs_at(v) == h else v for v in t[2]))
                yield label, t[:2] + (dead,) + t[3:]
            else:
                yield label, t

    # -------------------------------------------------------------------------------------------------------- names
    @staticmethod
    def attempts(f, u, latest):
        if f[0] in ("sus", "vsus", "park", "left") and f[1] == u:
            return (f[2],)
        if f[0] == "bind" and f[1] == u:
            return (f[2], f[4])
        if f[0] == "take":
            return ((f[2],) if f[1] == u else ()) + ((f[5],) if f[4] == u else ())
        return Model.attempts(f, u, latest)

    @staticmethod
    def renamed(f, perm, rank):
        k = f[0]
        if k in ("sus", "vsus", "park", "left"):
            return (k, f[1], rank[f[1]][f[2]]) + tuple(perm[h] for h in f[3:])
        if k == "bind":
            return (k, f[1], rank[f[1]][f[2]], perm[f[3]], rank[f[1]][f[4]], perm[f[5]])
        if k == "take":
            return (k, f[1], rank[f[1]][f[2]], perm[f[3]], f[4], rank[f[4]][f[5]])
        return Model.renamed(f, perm, rank)

    @staticmethod
    def where(world, perm):
        return AWAY + perm[world - AWAY] if world >= AWAY else world

    @staticmethod
    def mentions(f, h):
        if f[0] in ("vsus", "park", "take", "left"):
            return f[3] == h
        return h in (f[3], f[5]) if f[0] == "bind" else Model.mentions(f, h)

    # -------------------------------------------------------------------------------------------------------- safety
    def check(self, s):
        hosts, units, vms, regs, parked, zomb, env = s
        super().check(s[:2] + ((),) + s[3:])
        running, live = {}, {}
        for v in vms:
            u, a, h = v[:3]
            at = runs_at(v)
            if at is None or hosts[at][0] == LOST or not hosts[at][1]:
                continue
            if hosts[at][0] not in (self.dept[u], DRAIN):
                raise Violation("a VM runs on a host which its department does not hold")
            if running.setdefault(at, (u, a)) != (u, a):
                raise Violation("two VMs on one host")
            if live.setdefault(u, a) != a:
                raise Violation("two attempts of one job run at once")
        for u, (a, hs, br, dn, ca) in enumerate(units):
            bound = [v for v in vms if v[0] == u and v[1] == a and v[5] == 1]
            fresh = [v for v in bound if v[3] == HOLD]
            if hs and not br and fresh and len(fresh) < len(bound) and any(v[3] == SAVED for v in bound):
                raise Violation("a job goes on with a part of what it saved")

    @staticmethod
    def runs(s, u):
        return s[1][u][1] != () and any(
            v[0] == u and v[1] == s[1][u][0] and runs_at(v) is not None and v[5] == 1 for v in s[2]
        )

    def goal(self, s):
        left = [v for v in s[2] if s[1][v[0]][3] == 1 and v[5] in (2, 3, 4)]
        if any(runs_at(v) is None or s[0][runs_at(v)][1] for v in left):
            return "what a completed job saved is never swept"
        return super().goal(s)


SMALL = dict(NONE, hosts=1, jobs=(1,), web=1, loads=2)
PAIR = dict(NONE, hosts=2, jobs=(1,), web=1, loads=1)
CONFIGS = {
    "b1-suspend": dict(SMALL),
    "b1-suspend-faults": dict(SMALL, die=1, fail=1, cancel=1),
    "b1-suspend-lost": dict(SMALL, down=1),
    "b1-warm": dict(NONE, hosts=1, jobs=(1, 1), web=1, loads=2, parks=1, saves=0, moves=0),
    "b1-warm-lost": dict(NONE, hosts=1, jobs=(1, 1), web=0, loads=0, down=1, die=1, parks=1, stale=3),
    "b2-move": dict(PAIR),
    "b2-move-faults": dict(PAIR, fail=1, die=1, stale=3),
    "b2-move-lost": dict(PAIR, down=1, stale=2),
    "b1-traps": dict(SMALL, traps=1, stale=3),
    "b2-gang": dict(NONE, hosts=2, jobs=(2,), web=1, loads=2, fail=1, stale=2),
    "b2-warm": dict(NONE, hosts=2, jobs=(1, 1), web=1, loads=1, parks=1, stale=2),
}
MUTANTS = {
    "bind_first": dict(SMALL),
    "save_gives_up": dict(SMALL),
    "leaves_a_host": dict(PAIR),
    "all_or_none": dict(NONE, hosts=2, jobs=(2,), web=1, loads=2, fail=1, stale=2),
    "warm_room": dict(NONE, hosts=1, jobs=(1, 1), web=1, loads=2, parks=1, saves=0),
    "one_leader": dict(SMALL, loads=3),
    "left_behind": dict(PAIR, down=1, stale=2),
    "take_is_a_start": dict(NONE, hosts=2, jobs=(1, 1), web=1, loads=1, parks=1, stale=2),
}
if __name__ == "__main__":
    what, names = sys.argv[1], sys.argv[2:]
    table = CONFIGS if what == "check" else MUTANTS
    for name in names or table:
        for off in ((),) if what == "check" else ((), (name,)):
            r = explore(
                Bound(**table[name], off=off), trace=what == "check", seconds=float(os.environ.get("SECONDS_MAX", 1e9))
            )
            print(f"{what:8} {name:38} {'RULE OUT' if off else 'rules in'} {r}", flush=True)
