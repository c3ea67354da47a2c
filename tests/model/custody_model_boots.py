"""The custody model of one job whose VM may boot again in the middle of an attempt: a person resets it, or OpenNebula makes it
again (`recover --recreate`) or starts it elsewhere without its memory.

Theory of operation
  The journal says which boot an attempt is of (`began`), that a VM is of no use (`failed`), and what the others are: placed,
  closed, ended, reported.  The world is one machine for each attempt, with the number of its boot and what its guest has come
  to.  Calls are decided on the journal as it is, and appended later: a boot's `began` may come into the journal when the next
  boot has begun to ask.  Admission restarts, and forgets what it only remembered.  Every order of events is tried, and every
  state must be able to come to the end: the job is done, and no machine is left.

Rules that can be taken out (MUTANTS)
  one_boot_answered     an attempt that has begun with one boot is no other boot's: else the script runs twice
  boots_in_the_journal  which boot it is stands in the journal: what admission remembers alone is lost with it
  refusal_recorded      who is refused is recorded as failed: a guest that may not power off would wait for ever

Run: python -m tests.model.custody_model_boots check [NAME ...] | mutants [NAME ...]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

BOOTED, FETCHED, RUNS, ENDED, REFUSED = range(5)  # what a guest has come to


class State(NamedTuple):
    """`attempt`: the latest, `live` or not; `began`: its boot by the journal, 0: none; `known`: what admission remembers beside
    that; `boot`, `guest`: of its machine, boot 0: there is none; `asked`: a `began` that is decided, and not yet in the journal;
    `ran`: the boot in which its script has run; `done`: the job is."""

    attempt: int = 1
    live: bool = True
    began: int = 0
    known: int = 0
    boot: int = 1
    guest: int = BOOTED
    asked: int = 0
    ran: int = 0
    done: bool = False
    reboots: int = 2
    restarts: int = 1


class Unsafe(Exception):
    pass


class Boots:
    def __init__(self, reboots: int = 2, restarts: int = 1, attempts: int = 3, off: tuple[str, ...] = ()) -> None:
        self.start = State(reboots=reboots, restarts=restarts)
        self.attempts, self.off = attempts, off

    def rule(self, name: str) -> bool:
        return name not in self.off

    def first(self, s: State) -> int:
        """The boot that the attempt is known to be of."""
        return s.began if self.rule("boots_in_the_journal") else s.known

    def refused(self, s: State) -> State:
        return s._replace(guest=REFUSED, live=s.live and not self.rule("refusal_recorded"))

    def faults(self, s: State) -> Iterator[State]:
        if s.boot and s.reboots:
            yield s._replace(boot=s.boot + 1, guest=BOOTED, reboots=s.reboots - 1)
        if s.restarts:
            yield s._replace(known=0, restarts=s.restarts - 1)

    def steps(self, s: State) -> Iterator[State]:
        if s.boot and s.live:
            yield from self.guest(s)
        if s.asked:  # the envelope comes into the journal, whatever has become of its boot
            yield s._replace(asked=0, began=s.began or s.asked if s.live else s.began)
        if not s.live and s.boot:
            yield s._replace(boot=0, guest=BOOTED)  # the executor has it terminated
        if not s.live and not s.boot and not s.done and not s.asked and s.attempt < self.attempts:
            yield State(attempt=s.attempt + 1, reboots=s.reboots, restarts=s.restarts)

    def guest(self, s: State) -> Iterator[State]:
        if s.guest == BOOTED:  # refused already here, if its boot is known to be another one: that is only sooner
            yield s._replace(guest=FETCHED)
        elif s.guest == FETCHED and s.began:
            own = self.first(s) in (0, s.boot) or not self.rule("one_boot_answered")
            yield self.run(s) if own else self.refused(s)
        elif s.guest == FETCHED and not s.asked:
            yield s._replace(asked=s.boot, known=s.boot)
        elif s.guest == RUNS:
            yield s._replace(guest=ENDED, live=False, done=True)

    @staticmethod
    def run(s: State) -> State:
        if s.ran not in (0, s.boot):
            raise Unsafe(f"attempt {s.attempt} runs in boot {s.ran} and in boot {s.boot}")
        return s._replace(guest=RUNS, ran=s.boot)


def explore(model: Boots) -> dict[str, Any]:
    """Every state, and whether each can come to the end without another fault."""
    seen, todo, before = {model.start: True}, [model.start], dict[State, list[State]]()
    try:
        while todo:
            s = todo.pop()
            for after in model.steps(s):
                before.setdefault(after, []).append(s)
                if after not in seen:
                    seen[after] = True
                    todo.append(after)
            for after in model.faults(s):
                if after not in seen:
                    seen[after] = True
                    todo.append(after)
    except Unsafe as error:
        return {"result": f"UNSAFE: {error}", "states": len(seen)}
    ends = [s for s in seen if s.done and not s.boot or s.attempt == model.attempts and not s.live and not s.boot]
    good = dict.fromkeys(ends)
    while ends:
        for s in before.get(ends.pop(), ()):
            if s not in good:
                good[s] = None
                ends.append(s)
    stuck = [s for s in seen if s not in good]
    return {
        "result": f"NOT LIVE: {stuck[0]}" if stuck else "ok",
        "states": len(seen),
        "done": sum(s.done for s in good),
    }


CONFIGS: dict[str, dict[str, int]] = {
    "r1-twice": {"reboots": 2},
    "r1-often": {"reboots": 4, "restarts": 2, "attempts": 6},
}
MUTANTS = ("one_boot_answered", "boots_in_the_journal", "refusal_recorded")
if __name__ == "__main__":
    what, names = sys.argv[1], sys.argv[2:]
    for name in names or (CONFIGS if what == "check" else MUTANTS):
        for off in ((),) if what == "check" else ((), (name,)):
            found = explore(Boots(**CONFIGS[name if what == "check" else "r1-twice"], off=off))
            print(f"{what:8} {name:38} {'RULE OUT' if off else 'rules in'} {found}", flush=True)
