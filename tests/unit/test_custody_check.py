"""The invariants of the fold can fail: each is broken in turn, in a state where all else holds, and named."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from schemas import facts as f
from schemas.facts import VmAllocated
from schemas.size import Size
from services.domain.custody.check import check
from services.domain.custody.custody import Custody
from services.domain.custody.state import Broken
from tests.unit.test_custody_rules import (
    COMPLETED,
    CORDONED,
    LOST,
    NEXT,
    PARKED,
    RESUMES,
    RUNNING,
    SAVED,
    A,
    E,
    Step,
    allocated,
    bound,
    granted,
    host,
    job,
    placed,
    play,
    reported,
)


def cloud() -> Custody:
    """Job 1 runs on h1 of hpc, with a VM; job 2 waits; h2 is free."""
    vm = (E, VmAllocated(unit="1", attempt=1, rank=0, vm=7, host="h1"))
    return play([*granted(), *host("h2"), job("1"), job("2"), placed("1"), vm])[0]


def _held_but_not_indexed(custody: Custody) -> None:
    del custody.index.held["hpc"]["h1"]


def _indexed_but_not_held(custody: Custody) -> None:
    custody.state.hosts["h1"].state = "free"


def _counts_a_waiting_job(custody: Custody) -> None:
    custody.state.hosts["h1"].units["2"] = None


def _counted_by_nobody(custody: Custody) -> None:
    del custody.state.hosts["h1"].units["1"]


def _counted_on_another_host(custody: Custody) -> None:
    custody.state.units["1"].hosts = ("h2",)


def _of_another_department(custody: Custody) -> None:
    custody.state.units["1"].dept = "bio"


def _cores(custody: Custody) -> None:
    custody.state.hosts["h1"].used = custody.state.hosts["h1"].used.plus(Size(1))


def _memory(custody: Custody) -> None:
    custody.state.hosts["h1"].used = custody.state.hosts["h1"].used.plus(Size(memory_mb=1))


def _exclusive_and_empty(custody: Custody) -> None:
    custody.state.hosts["h2"].exclusive = True


def _open_without_hosts(custody: Custody) -> None:
    custody.state.units["2"].state = "open"


def _final_without_an_end(custody: Custody) -> None:
    custody.state.units["2"].state = "final"


def _open_vms(custody: Custody) -> None:
    custody.state.units["2"].vms_open = 1


def _cancelled_and_pending(custody: Custody) -> None:
    custody.state.units["2"].cancelled = True


def _never_allocated(custody: Custody) -> None:
    custody.state.units["1"].allocated.clear()


def _remembered_as_final(custody: Custody) -> None:
    custody.state.finals["2"] = None


def _remembered_and_unknown(custody: Custody) -> None:
    custody.state.finals["9"] = None


def _broken_and_counted(custody: Custody) -> None:
    custody.state.units["1"].broken = Broken.VM_ENDED


def _given_back_and_counted(custody: Custody) -> None:
    custody.state.hosts["h1"].state = "draining"


def _an_index_of_its_own(custody: Custody) -> None:
    custody.index.vm_ids.clear()


INDEXES = "the indexes differ from the records"


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (_held_but_not_indexed, "host h1 is held but indexed otherwise"),
        (_indexed_but_not_held, "host h1 is free but indexed otherwise"),
        (_counts_a_waiting_job, "host h1 counts 2, which is not live there"),
        (_counted_by_nobody, "1 is live on ['h1'], which do not count it"),
        (_counted_on_another_host, "host h1 counts 1, which is not live there"),
        (_of_another_department, "live attempt 1/1 on host h1, which bio does not hold"),
        (_cores, "host h1 counts 2 cores and 100 MiB used, its live attempts differ"),
        (_memory, "host h1 counts 1 core and 101 MiB used, its live attempts differ"),
        (_exclusive_and_empty, "host h2 is exclusive with 0 live attempts"),
        (_open_without_hosts, "2 is open with hosts ()"),
        (_final_without_an_end, "2 is final with end None"),
        (_open_vms, "2 counts 1 open VMs wrongly"),
        (_cancelled_and_pending, "2 is cancelled and still pending"),
        (_never_allocated, "VM 1/1/0 is open but was never counted as allocated"),
        (_remembered_as_final, "2 is remembered as final but is not"),
        (_remembered_and_unknown, "9 is remembered as final but is not"),
        (_broken_and_counted, "host h1 counts 1, which is not live there"),
        (_given_back_and_counted, "live attempt 1/1 on host h1, which hpc does not hold"),
        (_an_index_of_its_own, INDEXES),
    ],
)
def test_what_does_not_hold_is_named(broken: Callable[[Custody], None], said: str) -> None:
    custody = cloud()
    assert check(custody) == []
    broken(custody)
    assert said in check(custody)
    assert (INDEXES in check(custody)) == (said == INDEXES)  # it is looked at where the records hold


def test_a_final_unit_with_an_open_vm_is_not_remembered_as_final() -> None:
    custody, _ = play([*COMPLETED])
    custody.state.finals["1"] = None
    assert check(custody) == ["1 is remembered as final but is not"]


VIEWS: list[tuple[str, list[Step]]] = [
    ("apart", CORDONED),
    ("parked", PARKED),
    ("saved", SAVED),
    ("known_as", [*RESUMES, bound()]),
    ("was", [*NEXT, bound("2", 1, "h1")]),
    ("open", RUNNING),
    ("occupied", RUNNING),
    ("held", granted()),
    ("by_state", host()),
    ("broken", [*RUNNING, LOST]),
]


@pytest.mark.parametrize(("view", "steps"), VIEWS, ids=[view for view, _ in VIEWS])
def test_each_index_is_looked_at(view: str, steps: list[Step]) -> None:
    custody, _ = play(steps)
    assert check(custody) == []
    getattr(custody.index, view).clear()
    assert check(custody) != []


def test_in_which_order_an_index_has_grown_does_not_matter() -> None:
    cordons = [(A, f.HostCordoned(host=name, reason="fan", user="o")) for name in ("h2", "h1")]
    both = [*granted(), job("1"), job("2"), placed("1"), placed("2"), allocated(), bound("2", 1, "h1", vm=8)]
    over = [reported(unit="1"), reported(unit="2")]
    parks = [(A, f.VmParked(unit=unit, attempt=1, rank=0)) for unit in ("2", "1")]
    custody, _ = play([*both, *host("h2"), *over, *parks, *cordons])
    assert (list(custody.index.apart), list(custody.index.parked["h1"])) == (["h2", "h1"], ["2/1/0", "1/1/0"])
    assert check(custody) == []
