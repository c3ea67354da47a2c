"""The custody model with a batch department that configurations name, leave out, and name again.

Theory of operation
  As `custody_model`, with two registers more: whether the configuration in force names the department, and whether it is closed.
  The provisioner adopts at any moment.  Admission closes a department that it sees left out: what it has decided on one
  configuration may come after the next one, by which the department is there again.

Rules that can be taken out (MUTANTS)
  void_close_named     a department is not closed while the configuration in force names it: it would stay closed until the next
                       adoption, and what waits there would wait for ever

Run: python -m tests.model.custody_model_departments check [NAME ...] | mutants [NAME ...]
"""

import os
import sys

from tests.model.custody_model import HELD_B, HELD_W, LOST, NONE, Model, explore

NAMED, CLOSED = 6, 7  # places in the registers
ADOPTIONS = 10  # place of the budget in the environment


class Departments(Model):
    def __init__(self, adoptions=2, **given):
        super().__init__(**given)
        self.adoptions = adoptions

    def initial(self):
        start = super().initial()
        return (*start[:3], (*start[3], 1, 0), *start[4:6], (*start[6], self.adoptions))

    def apply(self, hosts, units, vms, regs, fact):
        if fact[0] == "adopt":
            return hosts, units, vms, (*regs[:NAMED], fact[1], 0 if fact[1] else regs[CLOSED])
        if fact[0] == "close":
            if regs[NAMED] and self.rule("void_close_named"):
                return hosts, units, vms, regs
            ended = tuple((a, (), 0, done, cancelled or not done) for a, _, _, done, cancelled in units[: self.jobs])
            return hosts, ended + units[self.jobs :], vms, (*regs[:CLOSED], 1)
        return super().apply(hosts, units, vms, regs, fact)

    def admission(self, hosts, units, vms, regs, env):
        yield from super().admission(hosts, units, vms, regs, env)
        if not regs[NAMED] and not regs[CLOSED]:
            yield (("close",),), None

    def targets(self, hosts, units, regs, guarantee):
        if regs[NAMED]:
            return super().targets(hosts, units, regs, guarantee)
        return 0, min(regs[0], sum(1 for c, _ in hosts if c != LOST)), 0

    def provisioner(self, hosts, units, vms, regs, env):
        if env[ADOPTIONS]:
            yield (("adopt", 1 - regs[NAMED]),), ADOPTIONS
        yield from super().provisioner(hosts, units, vms, regs, env)

    def batch(self, hosts, units, vms, regs, env, d=HELD_B):
        """Nothing is placed in a department that is left out or closed."""
        for envelope, cost in super().batch(hosts, units, vms, regs, env, d):
            if envelope[0][0] != "place" or (regs[NAMED] and not regs[CLOSED]):
                yield envelope, cost

    def goal(self, s):
        hosts, units, _, regs, _, _, env = s
        if regs[NAMED]:
            return "a department that is configured stays closed" if regs[CLOSED] else super().goal(s)
        if self.held(hosts, HELD_B) or any(not u[3] and not u[4] for u in units[: self.jobs]):
            return "a department that is left out keeps a host or a job"
        web = min(env[0], sum(up for _, up in hosts))
        return None if self.held(hosts, HELD_W) == web else "web demand not met"


CONFIGS = {
    "d1-again": dict(NONE, hosts=1, jobs=(1,), web=1, loads=1),
    "d1-thrice": dict(NONE, hosts=1, jobs=(1,), web=0, adoptions=4),
    "d1-again-faults": dict(NONE, hosts=1, jobs=(1,), web=0, down=1, die=1, cancel=1),
    "d2-again": dict(NONE, hosts=2, jobs=(1, 2), web=0, stale=3),
}
MUTANTS = {"void_close_named": dict(NONE, hosts=1, jobs=(1,), web=0)}
if __name__ == "__main__":
    what, names = sys.argv[1], sys.argv[2:]
    table = CONFIGS if what == "check" else MUTANTS
    for name in names or table:
        for off in ((),) if what == "check" else ((), (name,)):
            limit = float(os.environ.get("SECONDS_MAX", 1e9))
            r = explore(Departments(**table[name], off=off), trace=what == "check", seconds=limit)
            print(f"{what:8} {name:38} {'RULE OUT' if off else 'rules in'} {r}", flush=True)
