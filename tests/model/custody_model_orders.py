"""A model of what stands between the executor's orders and OpenNebula: calls that wait there, ids that come again, ends that take
time.  It has nothing of hosts and departments, which `custody_model` has; each unit wants one VM.

Theory of operation
  OpenNebula works its calls off in the order in which they came (`queue`); a caller may have gone by then.  It gives ids by
  counting, and may be put back to an older copy of its database: then VMs are gone, and ids come again.  Its connections break
  with that, which the executor notices; no call survives.  An end takes a step of the driver, and an order to end that comes
  meanwhile begins it again.
  The executor asks for a VM (`vm.allocate`), journals it when it is answered, deploys it, and ends it when its unit is closed.
  Of a call without an answer it learns by an audit, which sees all VMs as they are then.

Rules that can be taken out (MUTANTS)
  queue_worked_off  an allocation without an answer is not repeated before an audit that was begun after a later call was
                    answered, or when nothing is queued there any more: else a second VM appears behind the audit.  Later is
                    after this time-out, not after an earlier one of the same attempt (found by o2-restored-slow)
  tag_before_order  an order is given only to a VM whose tag was seen to be the attempt's since OpenNebula was away last
  void_again        an allocation whose id is another attempt's in the journal is ended, and repeated at once
  end_once          no second end is ordered while one is under way

Run: python -m tests.model.custody_model_orders check [NAME ...] | mutants [NAME ...]
"""

import os
import sys

from tests.model.custody_model import Model, Violation, explore

HOLD, RUN, ENDING = range(3)
WANT, ASK, UNSURE, OPEN, CLOSED, LEFT = range(6)  # LEFT: its allocation was void, and it is not wanted again


class Orders(Model):
    """state: queue ((kind, tag, id, waited, after)..), vms ((id, tag, world)..), next id, copy (vms, next id), units ((attempt,
    stage, id, proven)..), seen ((id, tag)..), orphans ((id, tag)..), budget (copies, restores, slow calls, closings,
    VMs of others)"""

    def __init__(self, units=2, copies=0, restores=0, slow=0, closings=0, others=0, off=()):
        super().__init__(off=off)
        self.count, self.limits = units, (copies, restores, slow, closings, others)

    def initial(self):
        return (), (), 0, (), ((1, WANT, -1, 0),) * self.count, (), (), self.limits

    def canonical(self, s):
        return s

    # -------------------------------------------------------------------------------------------------------- small things
    @staticmethod
    def put(units, u, unit):
        return (*units[:u], unit, *units[u + 1 :])

    @staticmethod
    def spent(env, place):
        return (*env[:place], env[place] - 1, *env[place + 1 :])

    @staticmethod
    def with_vm(vms, vm, tag, world):
        return tuple(sorted([v for v in vms if v[0] != vm] + ([(vm, tag, world)] if world is not None else [])))

    def unsure(self, units):
        return tuple(u for u, unit in enumerate(units) if unit[1] == UNSURE)

    # -------------------------------------------------------------------------------------------------------- OpenNebula
    def successors(self, s, faults=True, seize=True):  # noqa: ARG002
        yield from self.executor(s)
        queue, vms, following, copy, units, seen, orphans, env = s
        if queue:
            yield f"OpenNebula works off {queue[0]}", self.work(s)
        for vm, tag, world in vms:
            if world == ENDING:
                yield f"VM {vm} is gone", (queue, self.with_vm(vms, vm, tag, None), *s[2:])
        if not faults:
            return
        for i, call in enumerate(queue):
            if call[0] == "allocate" and call[3] and env[2]:
                u = call[1][0]
                rest = (*queue[:i], (*call[:3], 0, call[4]), *queue[i + 1 :])
                rest = tuple((*c[:4], tuple(o for o in c[4] if o != u)) for c in rest)  # they were sent before
                lost = self.put(units, u, (units[u][0], UNSURE, -1, 0))
                yield f"no answer to {call}", (rest, vms, following, copy, lost, seen, orphans, self.spent(env, 2))
        if env[0]:
            yield "a copy", (*s[:3], (vms, following), *s[4:7], self.spent(env, 0))
        if env[1] and copy:
            yield "the copy is restored", self.restored(s)
        if env[4]:
            foreign = self.with_vm(vms, following, (-1, 0), RUN)
            yield "another's VM", (queue, foreign, following + 1, *s[3:7], self.spent(env, 4))
        if env[3]:
            for u, unit in enumerate(units):
                if unit[1] == OPEN:
                    closed = self.put(units, u, (unit[0], CLOSED, *unit[2:]))
                    yield f"{u} is closed", (*s[:4], closed, *s[5:7], self.spent(env, 3))

    def work(self, s):
        queue, vms, following, copy, units, seen, orphans, env = s
        (kind, tag, vm, waited, after), queue = queue[0], queue[1:]
        answered = None
        if kind == "allocate":
            vm, following = following, following + 1
            vms, answered = self.with_vm(vms, vm, tag, HOLD), vm
        else:
            found = next((v for v in vms if v[0] == vm), None)
            if found is not None and found[1] != tag:
                raise Violation(f"{kind} of another attempt's VM")
            if found is not None:
                world = {"deploy": max(found[2], RUN), "end": ENDING if found[2] else None}[kind]
                vms = self.with_vm(vms, vm, tag, world)
        if waited:
            for u in after:
                units = self.put(units, u, (*units[u][:3], 1)) if units[u][1] == UNSURE else units
        if waited and answered is not None:
            units, seen, orphans = self.allocated(units, seen, orphans, tag, answered)
        return queue, vms, following, copy, units, seen, orphans, env

    def restored(self, s):
        queue, _, _, copy, units, _, orphans, env = s
        for call in queue:
            if call[0] == "allocate" and call[3]:
                u = call[1][0]
                units = self.put(units, u, (units[u][0], UNSURE, -1, 1))
        units = tuple((*unit[:3], 1) if unit[1] == UNSURE else unit for unit in units)
        known = () if self.rule("tag_before_order") else s[5]
        return (), copy[0], copy[1], copy, units, known, () if known == () else orphans, self.spent(env, 1)

    # -------------------------------------------------------------------------------------------------------- the executor
    def allocated(self, units, seen, orphans, tag, vm):
        """The answer to an allocation."""
        u = tag[0]
        clash = [o for o, unit in enumerate(units) if o != u and unit[1] in (OPEN, CLOSED) and unit[2] == vm]
        if not clash:
            seen = (*[one for one in seen if one[0] != vm], (vm, tag))
            return self.put(units, u, (tag[1], OPEN, vm, 0)), tuple(sorted(seen)), orphans
        if not self.rule("void_again"):
            return self.put(units, u, (tag[1], LEFT, -1, 0)), seen, orphans
        units = self.put(units, u, (tag[1], WANT, -1, 0))
        for o in clash:  # what the journal has by this id is there no more
            units = self.put(units, o, self.ended(units[o]))
        return units, tuple(one for one in seen if one[0] != vm), (*orphans, (vm, tag))

    @staticmethod
    def ended(unit):
        return (unit[0] + 1, WANT, -1, 0) if unit[1] == OPEN else (unit[0], CLOSED, -1, 0)

    def executor(self, s):
        queue, vms, following, copy, units, seen, orphans, env = s
        there = {vm: (tag, world) for vm, tag, world in vms}
        busy = {call[2] for call in queue if call[3]}

        def sent(kind, tag, vm, units=units, orphans=orphans):
            call = (kind, tag, vm, 1, self.unsure(units))
            return (*queue, call), vms, following, copy, units, seen, orphans, env

        for vm, tag in orphans:
            if vm not in busy:
                if vm in there and there[vm][1] != ENDING:
                    yield f"E ends orphan {vm}", sent("end", tag, vm)
                elif vm not in there:
                    yield f"E forgets orphan {vm}", (*s[:6], tuple(o for o in orphans if o[0] != vm), env)
        for u, (attempt, stage, vm, proven) in enumerate(units):
            tag = (u, attempt)
            if stage == WANT:
                yield f"E allocates {tag}", sent("allocate", tag, -1, self.put(units, u, (attempt, ASK, -1, 0)))
            if stage == UNSURE and (proven or not queue or not self.rule("queue_worked_off")):
                found = next((v for v, (its, _) in there.items() if its == tag), None)
                if found is None:
                    yield f"E audits, {tag} has none", (*s[:4], self.put(units, u, (attempt, WANT, -1, 0)), *s[5:])
                else:
                    after = self.allocated(units, seen, orphans, tag, found)
                    yield f"E audits, {tag} has {found}", (*s[:4], *after, env)
            if stage in (OPEN, CLOSED) and vm >= 0 and vm not in busy:
                yield from self.of_open(s, u, there, sent)
        known = {unit[2] for unit in units if unit[1] in (OPEN, CLOSED)} | {vm for vm, _ in orphans}
        for vm, (tag, _) in there.items():  # X6
            if tag[0] < 0:
                continue
            waits = units[tag[0]][0] == tag[1] and units[tag[0]][1] in (ASK, UNSURE)
            if vm not in known and not waits:
                yield f"E finds stray {vm}", (*s[:6], (*orphans, (vm, tag)), env)

    def of_open(self, s, u, there, sent):
        units, seen = s[4], dict(s[5])
        attempt, stage, vm, _ = units[u]
        tag, (its, world) = (u, attempt), there.get(vm, (None, None))
        if its is None:
            yield f"{tag} is gone", (*s[:4], self.put(units, u, self.ended(units[u])), *s[5:])
        elif seen.get(vm) != tag and self.rule("tag_before_order"):
            if its == tag:
                yield f"E sees the tag of {vm}", (*s[:5], tuple(sorted({**seen, vm: tag}.items())), *s[6:])
            else:
                yield f"{tag} is gone, {vm} is another's", (*s[:4], self.put(units, u, self.ended(units[u])), *s[5:])
        elif stage == OPEN and world == HOLD:
            yield f"E deploys {vm}", sent("deploy", tag, vm)
        elif stage == CLOSED and (world != ENDING or not self.rule("end_once")):
            yield f"E ends {vm}", sent("end", tag, vm)

    # -------------------------------------------------------------------------------------------------------- what must hold
    def check(self, s):
        orphans = {vm for vm, _ in s[6]}
        tags = [tag for vm, tag, world in s[1] if tag[0] >= 0 and world != ENDING and vm not in orphans]
        if len(tags) != len(set(tags)):
            raise Violation("an attempt has a second VM")

    def goal(self, s):
        for u, (attempt, stage, vm, _) in enumerate(s[4]):
            runs = any(v == (vm, (u, attempt), RUN) for v in s[1])
            if stage != CLOSED and not (stage == OPEN and runs):
                return f"unit {u} never runs"
        ours = {unit[2] for unit in s[4] if unit[1] == OPEN}
        return "a VM without an attempt is left" if any(v[0] not in ours and v[1][0] >= 0 for v in s[1]) else None


CONFIGS = {
    "o1-slow": dict(units=1, slow=2, closings=1),
    "o2-slow": dict(units=2, slow=2),
    "o2-restored": dict(units=2, copies=1, restores=1),
    "o2-restored-slow": dict(units=2, copies=1, restores=1, slow=1, closings=1),
    "o1-restored-others": dict(units=1, copies=1, restores=1, closings=1, others=2),
    "o2-restored-others": dict(units=2, copies=1, restores=1, slow=1, closings=1, others=1),
    "o3-restored": dict(units=3, copies=1, restores=1),
}
MUTANTS = {
    "queue_worked_off": dict(units=1, slow=1),
    "tag_before_order": dict(units=1, copies=1, restores=1, closings=1, others=1),
    "void_again": dict(units=2, copies=1, restores=1),
    "end_once": dict(units=1, closings=1),
}
if __name__ == "__main__":
    what, names = sys.argv[1], sys.argv[2:]
    table = CONFIGS if what == "check" else MUTANTS
    for name in names or table:
        for off in ((),) if what == "check" else ((), (name,)):
            limit = float(os.environ.get("SECONDS_MAX", 1e9))
            r = explore(Orders(**table[name], off=off), trace=False, seconds=limit)
            print(f"{what:8} {name:38} {'RULE OUT' if off else 'rules in'} {r}", flush=True)
