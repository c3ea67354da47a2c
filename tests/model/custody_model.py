"""Exhaustive explicit-state model of the custody protocol (docs/protocol.md), with one or two batch departments.

With two, the targets are those of the product itself (`services.provisioner.core.policies.phoenix.targets`), so the model checks
the very function that runs: idle hosts move between batch departments, occupied ones do not.

Theory of operation
  One journal, writers A(dmission) P(rovisioner) E(xecutor) B(atch scheduler) W(eb scheduler) C (a second batch scheduler).  The state is the fold of
  the whole journal (`hosts, units, vms, regs`) plus the real world (VMs in OpenNebula, hosts up or down, web load).
  A service decides on ANY prefix that contains its own last append.  That is modelled by splitting a decision in two
  steps: `decide` (the envelope is computed from the fold at that moment and parked) and `append` (any number of other
  writers' appends later).  Every arbitrarily stale view, slow replica, crash and restart is such a schedule: a crash
  before the append is a decision never taken, a restart is a view further back, and a decision on a prefix of length p is
  the same as one taken when the journal had length p and appended later.  A stale leader is a second parked envelope of
  the same writer; the fence drops it when the first is appended.
  OpenNebula calls are issued on one view and arrive any time later (flag `sent`): a deposed executor's late call.  Of a VM that
  runs the same flag says that its guest has sent SIGTERM, and that its script may end with 0 because of that (`traps`).
  All policy choices (which host, which victim, when a deadline fires) are nondeterministic.

Run: python custody_model.py check CONFIG | mutants [NAME ...] | list       (see CONFIGS, MUTANTS at the end)
"""

import os
import sys
import time
from itertools import combinations

from services.provisioner.core.policies.phoenix import Claim, targets

FREE, HELD_B, HELD_W, DRAIN, LOST, HELD_C = range(6)
HELD = (HELD_B, HELD_W, HELD_C)
QUOTA = {HELD_B: 1, HELD_W: 2, HELD_C: 3}  # place of a department's quota in the registers
HOLD, RUN, GONE = range(3)  # a VM in OpenNebula; HOLD = allocated, on no host yet
A, P, E, B, W, C = range(6)
WORLD = ("HOLD", "RUN", "GONE", "SAVED")
WRITER, NAME = "APEBWC", ("free", "heldB", "heldW", "drain", "LOST", "heldC")


class Violation(Exception):
    pass


class Model:
    def __init__(
        self,
        hosts=3,
        jobs=(1, 2),
        web=2,
        guarantee=0,
        loads=2,
        down=1,
        die=1,
        fail=1,
        cancel=1,
        zombie=0,
        stale=6,
        heal_without=(),
        off=(),
        load0=0,
        jobs_c=(),
        share=True,
        hours=0,
        floor=0,
        traps=0,
    ):
        self.n, self.jobs, self.web, self.guarantee, self.off = (
            hosts,
            len(jobs) + len(jobs_c),
            web,
            guarantee,
            frozenset(off),
        )
        self.two, self.share = bool(jobs_c), share
        self.size = tuple(jobs) + tuple(jobs_c) + (1,) * web
        self.dept = (HELD_B,) * len(jobs) + (HELD_C,) * len(jobs_c) + (HELD_W,) * web
        self.budget, self.dead, self.heal_without = (
            (loads, down, die, fail, cancel, zombie),
            frozenset(),
            frozenset(heal_without),
        )
        self.load0, self.stale, self.pool = load0, stale, {}
        self.hours, self.floors = hours, (guarantee, floor)  # the guarantee changes so often, from one to the other
        self.traps = traps  # so many scripts trap SIGTERM

    def rule(self, name):
        return name not in self.off

    # state: hosts ((custody, up)..), units ((attempt, hosts, broken, done, cancelled)..), vms sorted ((unit, attempt, host,
    #        world, sent, journaled)..), regs (want_w, quota_b, quota_w, quota_c, want_b, want_c), parked (envelope per writer), zombie (writer, envelope), env
    def initial(self):
        return (
            ((FREE, 1),) * self.n,
            ((0, (), 0, 0, 0),) * len(self.size),
            (),
            (0,) * 6,
            ((),) * 6,
            (),
            (self.load0,) + self.budget + (self.hours, self.guarantee, self.traps),
        )

    # ------------------------------------------------------------------ the shared fold
    @staticmethod
    def held(hosts, d):
        return sum(1 for c, _ in hosts if c == d)

    def breaks(self, units, h):
        """A host leaves its department: every open attempt on it is broken, for every reader, for ever."""
        if not self.rule("latch"):
            return units
        return tuple((a, hs, 1 if h in hs else br, dn, ca) for a, hs, br, dn, ca in units)

    def put(self, hosts, h, c):
        return hosts[:h] + ((c, hosts[h][1]),) + hosts[h + 1 :]

    def apply(self, hosts, units, vms, regs, fact):
        k = fact[0]
        if k == "grant":
            _, h, d = fact
            if hosts[h][0] == FREE or not self.rule("void_grant"):
                if hosts[h][0] in HELD and hosts[h][0] != d:
                    raise Violation("host with two holders")
                hosts = self.put(hosts, h, d)
        elif k == "quota":
            regs = regs[:1] + fact[1:] + regs[4:]
        elif k == "want":
            regs = fact[1:] + regs[1:]
        elif k == "batch_want":
            place = 4 if fact[1] == HELD_B else 5
            regs = regs[:place] + fact[2:] + regs[place + 1 :]
        elif k == "release":
            _, h, d = fact
            if hosts[h][0] == d or not self.rule("void_release"):
                if hosts[h][0] != d and hosts[h][0] in HELD:
                    raise Violation("a department gave away another one's host")
                if hosts[h][0] != LOST:
                    hosts, units = self.put(hosts, h, DRAIN), self.breaks(units, h)
        elif k == "revoke":
            _, h, d = fact
            q = regs[QUOTA[d]]
            if (hosts[h][0] == d or not self.rule("void_revoke_holder")) and (
                self.held(hosts, d) > q or not self.rule("void_revoke_count")
            ):
                if hosts[h][0] == d and self.held(hosts, d) <= q:
                    raise Violation("seized below the quota")
                hosts, units = self.put(hosts, h, DRAIN), self.breaks(units, h)
        elif k == "lost":
            hosts, units = self.put(hosts, fact[1], LOST), self.breaks(units, fact[1])
        elif k == "clear":
            if hosts[fact[1]][0] in (DRAIN, LOST):
                hosts = self.put(hosts, fact[1], FREE)
        elif k == "place":
            _, u, a, hs = fact
            att, open_, br, dn, ca = units[u]
            ok_hosts = all(hosts[h][0] == self.dept[u] for h in hs) or not self.rule("void_place_host")
            ok_unit = not open_ and dn != 1 and (not ca or not self.rule("void_place_cancelled")) and a == att + 1
            if ok_unit and ok_hosts:
                if ca:
                    raise Violation("a job cancelled while pending was placed")
                if dn:
                    raise Violation("a completed job runs again")
                units = units[:u] + ((a, hs, 0, 0, ca),) + units[u + 1 :]
        elif k == "end":
            _, u, a = fact
            att, open_, br, dn, ca = units[u]
            if att == a and (open_ or (dn and not self.rule("void_end_after_report"))):
                units = units[:u] + ((att, (), 0, 2 if dn else 0, ca),) + units[u + 1 :]  # 2: completed, then undone
        elif k == "report":
            _, u, a, terminated = fact
            att, open_, br, dn, ca = units[u]
            if terminated and self.rule("void_terminated"):
                return hosts, units, vms, regs
            if (att == a or not self.rule("void_report_attempt")) and (open_ or not self.rule("void_report_closed")):
                if open_ and att != a:
                    raise Violation("report of an older attempt ended a newer one")
                if terminated:
                    raise Violation("a job that was stopped half-way counts as completed")
                units = units[:u] + ((att, (), 0, 1, ca),) + units[u + 1 :]
        elif k == "cancel":
            att, open_, br, dn, ca = units[fact[1]]
            units = units[: fact[1]] + ((att, open_, br, dn, 1),) + units[fact[1] + 1 :]
        elif k == "alloc":
            _, u, a, h = fact
            if not any(v[:3] == (u, a, h) for v in vms):
                vms = tuple(sorted(vms + ((u, a, h, HOLD, 0, 1),)))
            elif not self.rule("journal_before_deploy"):
                vms = tuple(sorted(v[:5] + (1,) if v[:3] == (u, a, h) else v for v in vms))
        elif k == "vend":
            _, u, a, h = fact
            vms = tuple(v for v in vms if v[:3] != (u, a, h))
            att, open_, br, dn, ca = units[u]
            if att == a and open_ and self.rule("end_breaks_attempt"):
                units = units[:u] + ((att, open_, 1, dn, ca),) + units[u + 1 :]
        return hosts, units, vms, regs

    # ------------------------------------------------------------------ decide, per writer: all envelopes a policy may choose
    def live(self, units, u, a):
        att, open_, br, _, ca = units[u]
        return att == a and open_ != () and not br

    def decide(self, w, s):
        hosts, units, vms, regs, parked, _, env = s
        if w == C:
            return self.batch(hosts, units, vms, regs, env, HELD_C) if self.two else ()
        return (self.admission, self.provisioner, self.executor, self.batch, self.webdept)[w](
            hosts, units, vms, regs, env
        )

    def admission(self, hosts, units, vms, regs, env):
        for u in range(self.jobs):  # a guest whose ranks all run may report success
            if units[u][3] != 1:
                a = units[u][0]  # answered "gone" at the door unless that attempt is open there
                if units[u][1] or not self.rule("void_report_closed"):
                    yield from self.reports(u, a, [v for v in vms if v[0] == u and v[1] == a and v[3] == RUN])
            if env[5] and not units[u][3] and not units[u][4]:
                yield (("cancel", u),), 5

    def reports(self, u, a, running):
        """Rank 0, which any of the VMs may be, tells whether its guest had sent SIGTERM when its script ended with 0."""
        if len(running) == self.size[u]:
            for terminated in sorted({v[3] == RUN and v[4] for v in running}):
                yield (("report", u, a, terminated),), None

    def targets(self, hosts, units, regs, guarantee):
        """Quotas of B, W and C."""
        alive = sum(1 for c, _ in hosts if c != LOST)
        if self.two:
            busy = self.busy(units) if self.share else set(range(self.n))  # mutant: no host is ever idle
            claims = [Claim(name="w", web=True, demand=regs[0])]
            for name, d, want, floor in (("b", HELD_B, regs[4], guarantee), ("c", HELD_C, regs[5], 0)):
                mine = [h for h, (c, _) in enumerate(hosts) if c == d]
                claims.append(
                    Claim(
                        name=name,
                        web=False,
                        demand=want,
                        held=len(mine),
                        guarantee=floor,
                        occupied=sum(h in busy for h in mine),
                    )
                )
            quota = targets(claims, alive)
            return quota["b"], quota["w"], quota["c"]
        web = min(regs[0], max(0, alive - guarantee))
        return alive - web, web, 0

    def provisioner(self, hosts, units, vms, regs, env):
        qb, qw, qc = self.targets(hosts, units, regs, env[8])  # the hours are the provisioner's own clock
        if (qb, qw, qc) != regs[1:4]:
            yield (("quota", qb, qw, qc),), None
            return
        hb, hw, hc = (self.held(hosts, d) for d in (HELD_B, HELD_W, HELD_C))
        grantable = (FREE,) if self.rule("grant_after_clear") else (FREE, DRAIN)
        for h, (c, _) in enumerate(hosts):
            if c in grantable and hw < qw:
                yield (("grant", h, HELD_W),), None
            elif c in grantable and hb < qb:
                yield (("grant", h, HELD_B),), None
            elif c in grantable and hc < qc:
                yield (("grant", h, HELD_C),), None
            elif self.rule("seize") and (
                (c == HELD_B and hb > qb) or (c == HELD_W and hw > qw) or (c == HELD_C and hc > qc)
            ):
                yield (("revoke", h, c),), None  # the deadline may fire at any moment

    def executor(self, hosts, units, vms, regs, env):
        for h, (c, up) in enumerate(hosts):
            if not up and c != LOST:
                yield (("lost", h),), None
            careful = self.rule("clear_when_empty") and (c != LOST or self.rule("sweep_before_join"))
            if up and c in (DRAIN, LOST) and not (careful and any(v[2] == h and (v[5] or v[3] == RUN) for v in vms)):
                yield (("clear", h),), None
        for u, (a, hs, br, dn, ca) in enumerate(units):
            for h in () if br else hs:
                if not any(v[:3] == (u, a, h) and v[5] for v in vms):
                    yield (("alloc", u, a, h),), None
        for v in vms:
            if v[3] == GONE and v[5]:
                yield (("vend",) + v[:3],), None

    def busy(self, units):
        """A broken attempt occupies nothing: its scheduler may be dead and never close it (found by 2-dead-batch)."""
        return {h for a, hs, br, *_ in units for h in hs if not br or not self.rule("broken_frees")}

    def shed(self, hosts, units, d):
        """Release one host: idle ones first, else close what runs on it, in one envelope."""
        mine = [h for h, (c, _) in enumerate(hosts) if c == d]
        busy = self.busy(units)
        for h in [h for h in mine if h not in busy] or mine:
            yield tuple(("end", u, x[0]) for u, x in enumerate(units) if h in x[1]) + (("release", h, d),), None

    def place(self, hosts, units, u, d):
        a, hs, br, dn, ca = units[u]
        if not hs and dn != 1 and not ca:
            busy = self.busy(units)
            room = [h for h, (c, _) in enumerate(hosts) if c == d and h not in busy]
            for chosen in combinations(room, self.size[u]):
                yield (("place", u, a + 1, chosen),), None

    def batch(self, hosts, units, vms, regs, env, d=HELD_B):
        mine = [u for u in range(self.jobs) if self.dept[u] == d]
        if self.two:
            want = min(
                self.n, sum(self.size[u] for u in mine if units[u][3] != 1 and not (units[u][4] and not units[u][1]))
            )
            if want != regs[4 if d == HELD_B else 5]:
                yield (("batch_want", d, want),), None
        for u in mine:
            a, hs, br, dn, ca = units[u]
            if hs and (br or ca):
                yield (("end", u, a),), None
        if self.held(hosts, d) > regs[QUOTA[d]]:
            yield from self.shed(hosts, units, d)
            return
        for u in mine:
            yield from self.place(hosts, units, u, d)

    def webdept(self, hosts, units, vms, regs, env):
        if regs[0] != env[0]:
            yield (("want", env[0]),), None
        need = min(regs[0], regs[2])
        for u in range(self.jobs, len(units)):
            a, hs, br, dn, ca = units[u]
            if hs and (br or u - self.jobs >= need):
                yield (("end", u, a),), None
        if self.held(hosts, HELD_W) > need:
            yield from self.shed(hosts, units, HELD_W)
            return
        for u in range(self.jobs, min(self.jobs + need, len(units))):
            yield from self.place(hosts, units, u, HELD_W)

    # ------------------------------------------------------------------ steps
    def successors(self, s, faults=True, seize=True):
        hosts, units, vms, regs, parked, zomb, env = s
        for w in range(6):  # append what is parked
            if parked[w]:
                yield f"append {WRITER[w]} {parked[w]}", self.append(s, w, parked[w], False)
        if zomb:
            yield f"append stale leader {WRITER[zomb[0]]} {zomb[1]}", self.append(s, zomb[0], zomb[1], True)
        yield from self.calls(s, faults)
        full = sum(map(bool, parked)) >= self.stale  # bound on decisions in flight (6 = none)
        for w in () if full else range(6):  # decide: one envelope outstanding per writer
            if not parked[w] and w not in self.dead:
                for envelope, cost in self.decide(w, s):
                    if cost is not None and not faults or not seize and envelope[0][0] == "revoke":
                        continue
                    e2 = env if cost is None else env[:cost] + (env[cost] - 1,) + env[cost + 1 :]
                    sent = vms
                    if (
                        envelope[0][0] == "alloc"
                        and not self.rule("journal_before_deploy")
                        and not any(v[:3] == envelope[0][1:] for v in vms)
                    ):
                        sent = tuple(sorted(vms + (envelope[0][1:] + (HOLD, 1, 0),)))
                    yield (
                        f"decide {WRITER[w]} {envelope}",
                        (hosts, units, sent, regs, parked[:w] + (envelope,) + parked[w + 1 :], zomb, e2),
                    )
        if faults:
            yield from self.world(s)

    def append(self, s, w, envelope, stale):
        hosts, units, vms, regs, parked, zomb, env = s
        for fact in envelope:
            hosts, units, vms, regs = self.apply(hosts, units, vms, regs, fact)
        fence = self.rule("fence")  # whoever of two leaders comes second is refused
        if not stale or fence:
            parked = parked[:w] + ((),) + parked[w + 1 :]
        if stale or (zomb and zomb[0] == w and fence):
            zomb = ()
        return hosts, units, vms, regs, parked, zomb, env

    def calls(self, s, faults):
        hosts, units, vms, regs, parked, zomb, env = s
        for i, (u, a, h, world, sent, reg) in enumerate(vms):

            def became(world2, sent2, env2=env):
                return (
                    hosts,
                    units,
                    tuple(sorted(vms[:i] + ((u, a, h, world2, sent2, reg),) + vms[i + 1 :])),
                    regs,
                    parked,
                    zomb,
                    env2,
                )

            live = self.live(units, u, a)
            if world == HOLD and sent:  # a deploy call arrives, however late
                if hosts[h][1]:
                    if units[u][3] and hosts[h][0] != LOST:
                        raise Violation("a completed job's VM starts again")
                    yield f"VM {u}/{a}@{h} runs", became(RUN, 0)
                    if faults and env[4]:
                        yield f"start of {u}/{a}@{h} fails", became(GONE, 0, env[:4] + (env[4] - 1,) + env[5:])
                else:
                    yield f"start of {u}/{a}@{h} fails, host down", became(GONE, 0)
            if world == HOLD and not sent and live and reg:
                room = not any(v[2] == h and v[:3] != (u, a, h) for v in vms) or not self.rule("room")
                older = any(v[0] == u and v[1] < a and hosts[v[2]][0] != LOST for v in vms) and self.rule("older_gone")
                if room and not older:
                    yield f"E sends deploy {u}/{a}@{h}", became(HOLD, 1)
            ended = not live or (hosts[h][0] in (DRAIN, LOST))
            if world != GONE and ended and reg and (hosts[h][1] or world == HOLD):
                yield f"E terminates {u}/{a}@{h}", became(GONE, 0)
                if world == RUN and not sent and faults and env[9]:
                    trapped = env[:9] + (env[9] - 1,)
                    yield f"E terminates {u}/{a}@{h}, which traps SIGTERM", became(RUN, 1, trapped)
            if world == GONE and live and reg and not self.rule("one_vm_per_attempt"):
                yield f"E restarts {u}/{a}@{h}", became(HOLD, 1)
            if world == RUN and faults and env[3]:
                yield f"VM {u}/{a}@{h} dies", became(GONE, 0, env[:3] + (env[3] - 1,) + env[4:])

    def world(self, s):
        hosts, units, vms, regs, parked, zomb, env = s
        if env[1]:
            for load in range(self.web + 1):
                if load != env[0]:
                    yield f"load {load}", s[:6] + ((load, env[1] - 1) + env[2:],)
        if env[7]:  # a window opens or closes
            other = self.floors[env[8] == self.floors[0]]
            yield f"hours: guarantee {other}", s[:6] + (env[:7] + (env[7] - 1, other) + env[9:],)
        for h, (c, up) in enumerate(hosts):
            h2 = hosts[:h] + ((c, 1 - up),) + hosts[h + 1 :]
            if up and env[2]:
                yield f"host {h} down", (h2, units, vms, regs, parked, zomb, env[:2] + (env[2] - 1,) + env[3:])
            if not up:
                yield f"host {h} up, VMs survived", (h2,) + s[1:]
                if any(v[2] == h and v[3] == RUN for v in vms):
                    dead = tuple(sorted(v[:3] + (GONE, 0, v[5]) if v[2] == h and v[3] == RUN else v for v in vms))
                    yield f"host {h} up, rebooted", (h2, units, dead) + s[3:]
        if env[6] and not zomb:
            for w in range(6):
                if parked[w]:
                    yield (
                        f"{WRITER[w]} deposed with an envelope in hand",
                        (
                            hosts,
                            units,
                            vms,
                            regs,
                            parked[:w] + ((),) + parked[w + 1 :],
                            (w, parked[w]),
                            env[:6] + (env[6] - 1,) + env[7:],
                        ),
                    )

    # ------------------------------------------------------------------ canonical form: hosts are alike, attempts are ordinals
    def canonical(self, s):
        hosts, units, vms, regs, parked, zomb, env = s
        envs, keys, rank = parked + (zomb[1] if zomb else (),), [], []
        for h in range(self.n):
            keys.append(
                (
                    hosts[h],
                    tuple(u for u, v in enumerate(units) if h in v[1]),
                    tuple(v[:2] + v[3:] for v in vms if v[2] == h),
                    tuple((i, f[0]) for i, e in enumerate(envs) for f in e if self.mentions(f, h)),
                    h,
                )
            )
        perm = [0] * self.n
        for new, key in enumerate(sorted(keys)):
            perm[key[-1]] = new
        for u, x in enumerate(units):
            seen = {v[1] for v in vms if v[0] == u} | {x[0]}
            for e in envs:
                for f in e:
                    seen.update(self.attempts(f, u, x[0]))
            rank.append({a: i for i, a in enumerate(sorted(seen))})
            rank[u][x[0] + 1] = rank[u][x[0]] + 1

        def fact(f):
            return self.renamed(f, perm, rank)

        share = self.pool.setdefault
        new = (
            tuple(hosts[key[-1]] for key in sorted(keys)),
            tuple(
                (rank[u][a], tuple(sorted(perm[h] for h in hs)), br, dn, ca)
                for u, (a, hs, br, dn, ca) in enumerate(units)
            ),
            tuple(sorted((v[0], rank[v[0]][v[1]], perm[v[2]], self.where(v[3], perm)) + v[4:] for v in vms)),
            regs,
            tuple(tuple(map(fact, e)) for e in parked),
            (zomb[0], tuple(map(fact, zomb[1]))) if zomb else (),
            env,
        )
        return tuple(share(x, x) for x in new)

    @staticmethod
    def attempts(f, u, latest):
        """Attempts of unit `u` that fact `f` names."""
        if f[0] in ("alloc", "vend", "end", "report") and f[1] == u:
            return (f[2],)
        if f[0] == "place" and f[1] == u and f[2] <= latest:
            return (f[2] - 1, f[2])
        return ()

    @staticmethod
    def renamed(f, perm, rank):
        """The fact with hosts and attempts by their canonical names."""
        k = f[0]
        if k in ("grant", "release", "revoke", "lost", "clear"):
            return (k, perm[f[1]]) + f[2:]
        if k == "place":
            return (k, f[1], rank[f[1]][f[2]], tuple(sorted(perm[h] for h in f[3])))
        if k == "report":
            return (k, f[1], rank[f[1]][f[2]]) + f[3:]
        if k in ("alloc", "vend", "end"):
            return (k, f[1], rank[f[1]][f[2]]) + tuple(perm[h] for h in f[3:])
        return f

    @staticmethod
    def where(world, perm):  # noqa: ARG004
        return world

    @staticmethod
    def mentions(f, h):
        return (
            f[1] == h
            if f[0] in ("grant", "release", "revoke", "lost", "clear")
            else h in f[3]
            if f[0] == "place"
            else f[3] == h
            if f[0] in ("alloc", "vend")
            else False
        )

    # ------------------------------------------------------------------ safety
    def check(self, s):
        hosts, units, vms, regs, parked, zomb, env = s
        busy = {}
        for u, (a, hs, br, dn, ca) in enumerate(units):
            if dn and hs:
                raise Violation("a completed job is placed again")
            for h in hs:
                if not br and hosts[h][0] != self.dept[u]:
                    raise Violation("a live attempt on a host its department does not hold")
                if not br and busy.setdefault(h, u) != u:
                    raise Violation("two live attempts on one host")
        running, live = {}, {}
        for u, a, h, world, sent, reg in vms:
            custody, up = hosts[h]
            if world == RUN and custody != LOST and up:
                if custody not in (self.dept[u], DRAIN):
                    raise Violation("a VM runs on a host which its department does not hold")
                if running.setdefault(h, (u, a)) != (u, a):
                    raise Violation("two VMs on one host")
                if live.setdefault(u, a) != a:
                    raise Violation("two attempts of one job run at once")

    # ------------------------------------------------------------------ liveness: heal, run a fair schedule, look where it rests
    def goal(self, s):
        """What a healed, quiescent cloud must look like; returns what is wrong or None."""
        hosts, units, vms, regs, parked, zomb, env = s
        alive = sum(1 for c, up in hosts if up)
        web = min(env[0], alive - min(env[8], alive))
        if any(c == DRAIN for c, _ in hosts) or any((c == LOST) == up for c, up in hosts):
            return "a host neither usable nor lost"
        if self.held(hosts, HELD_W) != web or sum(1 for u in range(self.jobs, len(units)) if self.runs(s, u)) != web:
            return "web demand not met"
        if B in self.heal_without:  # batch scheduler dead for ever: only the web promise must hold
            return None
        if self.held(hosts, HELD_B) + self.held(hosts, HELD_C) != alive - web:
            return "an idle host did not go to batch"
        for u in range(self.jobs):
            if not units[u][3] and not units[u][4] and self.size[u] <= alive - web:
                return f"job {u} starves"
            if units[u][1]:
                return f"job {u} never ends"

    @staticmethod
    def runs(s, u):
        return s[1][u][1] != () and any(v[0] == u and v[1] == s[1][u][0] and v[3] == RUN for v in s[2])

    def settle(self, s, known):
        """Deterministic fair schedule without new faults from s; True if it comes to rest in a goal."""
        path, mark = [], {}
        while s not in known:
            if s in mark:
                return "livelock", path[0]
            mark[s] = len(path)
            path.append(s)
            steps = list(self.successors(s, faults=False, seize=B in self.heal_without))
            steps = [x for x in steps if not x[0].startswith("decide A")] or steps  # guests finish last
            if not steps:
                why = self.goal(s)
                if why:
                    return why, path[0]
                break
            s = self.canonical(steps[0][1])
        known.update(path)
        return None


def show(m, s):
    hosts, units, vms, regs, parked, zomb, env = s
    print(
        "   hosts",
        " ".join(f"{NAME[c]}{'' if up else '(down)'}" for c, up in hosts),
        "| wantW,qB,qW,qC,wantB,wantC",
        regs,
        "| load",
        env[0],
    )
    print(
        "   units",
        [
            f"{u}:{a}@{hs}{' broken' * br}{' done' * dn}{' cancelled' * ca}"
            for u, (a, hs, br, dn, ca) in enumerate(units)
        ],
    )
    print(
        "   vms  ",
        [
            f"{v[0]}/{v[1]}@{v[2]} {WORLD[v[3]] if v[3] < len(WORLD) else f'runs at {v[3] - 10}'}{' sent' * v[4]} reg {v[5]}"
            for v in vms
        ],
        "parked",
        [p for p in parked if p],
        zomb,
    )


def explore(m, trace=True, seconds=1e9):
    start, t0 = m.canonical(m.initial()), time.time()
    seen, frontier, depth, edges, problem, last = {start: None}, [start], 0, 0, None, None
    try:
        while frontier and not problem:
            following = []
            for s in frontier:
                last = s
                for label, raw in m.successors(s):
                    edges += 1
                    t = m.canonical(raw)
                    if t not in seen:
                        seen[t], last = (s, label) if trace else None, t
                        m.check(t)
                        following.append(t)
                if time.time() - t0 > seconds:
                    problem = "LIMIT"
                    break
            frontier, depth = following, depth + 1
    except Violation as v:
        problem = f"UNSAFE: {v}"
    safe_s = time.time() - t0
    if problem in (None, "LIMIT"):
        known, m.dead = set(), m.heal_without
        for s in seen:
            bad = m.settle(s, known)
            if bad:
                problem, last = f"NOT LIVE: {bad[0]}", bad[1]
                break
    if trace and problem not in (None, "LIMIT"):
        story, s = [], last
        while seen.get(s):
            story.append((seen[s][1], s))
            s = seen[s][0]
        for label, s in reversed(story):
            print(" *", label)
            show(m, s)
    return dict(
        states=len(seen),
        edges=edges,
        depth=depth,
        result=problem or "ok",
        safety_s=round(safe_s, 1),
        all_s=round(time.time() - t0, 1),
    )


NONE = dict(loads=0, down=0, die=0, fail=0, cancel=0)
ONE, TWO = (dict(NONE, hosts=n, jobs=(1,), web=1, loads=1) for n in (1, 2))
CONFIGS = {  # every name: all interleavings within these bounds
    "1-all": dict(hosts=1, jobs=(1,), web=1, loads=2, down=1, die=1, fail=1, cancel=1),
    "1-stale-leader": dict(hosts=1, jobs=(1,), web=1, loads=2, down=0, die=1, fail=0, cancel=0, zombie=1),
    "2-spike": dict(NONE, hosts=2, jobs=(1, 2), web=2, loads=2),
    "2-guarantee": dict(NONE, hosts=2, jobs=(1, 2), web=2, loads=2, guarantee=1),
    "1-hours": dict(NONE, hosts=1, jobs=(1,), web=1, load0=1, hours=2, floor=1),
    "2-hours": dict(NONE, hosts=2, jobs=(1,), web=2, load0=2, hours=2, floor=1, stale=3),
    "2-two-batch-hours": dict(NONE, hosts=2, jobs=(1,), jobs_c=(1,), web=1, loads=1, hours=1, floor=1, stale=2),
    "2-lost": dict(NONE, hosts=2, jobs=(1,), web=1, loads=1, down=1),
    "2-lost-gang": dict(NONE, hosts=2, jobs=(2,), web=0, loads=0, down=1, die=1),
    "2-cancel-die": dict(NONE, hosts=2, jobs=(2,), web=1, loads=1, die=1, cancel=1, stale=3),
    "2-dead-batch": dict(NONE, hosts=2, jobs=(1,), web=1, loads=1, die=0, heal_without=(B,)),
    "2-stale-leader": dict(NONE, hosts=2, jobs=(1,), web=1, loads=1, zombie=1, stale=3),
    "3-spike": dict(NONE, hosts=3, jobs=(1, 2), web=2, loads=1, stale=2),
    "2-two-batch": dict(NONE, hosts=2, jobs=(1,), jobs_c=(2,), web=0),
    "2-two-batch-spike": dict(NONE, hosts=2, jobs=(1,), jobs_c=(2,), web=1, loads=1, stale=2),
    "2-two-batch-lost": dict(NONE, hosts=2, jobs=(1,), jobs_c=(1,), web=0, down=1, stale=2),
    "2-two-batch-cancel": dict(NONE, hosts=2, jobs=(1,), jobs_c=(2,), web=0, cancel=1, stale=3),
    "2-two-batch-guarantee": dict(NONE, hosts=2, jobs=(1,), jobs_c=(1,), web=2, loads=1, guarantee=1, stale=2),
    "3-two-batch": dict(NONE, hosts=3, jobs=(1, 1), jobs_c=(3,), web=0, stale=2),
    "3-lost": dict(NONE, hosts=3, jobs=(1, 2), web=1, loads=1, down=1, stale=2),
    "1-traps": dict(NONE, hosts=1, jobs=(1,), web=1, loads=2, down=1, cancel=1, traps=1, stale=2),
    "2-traps": dict(NONE, hosts=2, jobs=(1,), web=1, loads=1, traps=2, stale=3),
    "2-traps-gang": dict(NONE, hosts=2, jobs=(2,), web=1, loads=2, traps=2, stale=3),
}
MUTANTS = {  # rule removed -> smallest world expected to show it
    "void_place_host": ONE,
    "void_place_cancelled": dict(ONE, loads=0, cancel=1),
    "void_grant": dict(ONE, down=1),
    "void_release": ONE,
    "void_revoke_holder": TWO,
    "void_revoke_count": dict(TWO, jobs=()),
    "latch": ONE,
    "void_end_after_report": dict(ONE, die=1),
    "void_report_attempt": dict(ONE, loads=0, die=1),
    "void_report_closed": dict(ONE, loads=2, die=1, cancel=1),
    "void_terminated": dict(ONE, traps=1),
    "grant_after_clear": ONE,
    "clear_when_empty": ONE,
    "sweep_before_join": dict(ONE, down=1, web=1),
    "one_vm_per_attempt": dict(ONE, loads=0, die=1),
    "room": dict(ONE, jobs=(1, 1), loads=0, die=0, cancel=1),
    "older_gone": dict(TWO, loads=2),
    "journal_before_deploy": dict(ONE, zombie=1),
    "end_breaks_attempt": dict(ONE, loads=0, die=1),
    "fence": dict(ONE, loads=2, zombie=1),
    "seize": dict(ONE, heal_without=(B,)),
    "broken_frees": dict(TWO, heal_without=(B,)),
    "void_grant+grant_after_clear": ONE,
    "void_revoke_holder+void_revoke_count": dict(TWO, down=1),
}
if __name__ == "__main__":
    what, names = sys.argv[1], sys.argv[2:]
    table = CONFIGS if what == "check" else MUTANTS
    for name in names or table:
        for off in ((),) if what == "check" else ((), tuple(name.split("+"))):
            r = explore(
                Model(**table[name], off=off), trace=what == "check", seconds=float(os.environ.get("SECONDS_MAX", 1e9))
            )
            print(f"{what:8} {name:38} {'RULE OUT' if off else 'rules in'} {r}", flush=True)
