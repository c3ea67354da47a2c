"""The invariants of the fold can fail: each is broken in turn, in a state where all else holds, and named."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from schemas.custody import Custody
from schemas.custody_check import check
from schemas.facts import VmAllocated
from tests.unit.test_custody_rules import E, granted, host, job, placed, play


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
    custody.state.hosts["h1"].cores_used += 1


def _memory(custody: Custody) -> None:
    custody.state.hosts["h1"].memory_used_mb += 1


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


def _an_index_of_its_own(custody: Custody) -> None:
    custody.index.vm_ids.clear()


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (_held_but_not_indexed, "host h1 is held but indexed otherwise"),
        (_indexed_but_not_held, "host h1 is free but indexed otherwise"),
        (_counts_a_waiting_job, "host h1 counts 2, which is not live there"),
        (_counted_by_nobody, "1 is live on ['h1'], which do not count it"),
        (_counted_on_another_host, "host h1 counts 1, which is not live there"),
        (_of_another_department, "live attempt 1/1 on host h1, which bio does not hold"),
        (_cores, "host h1 counts 2 cores used, its live attempts differ"),
        (_memory, "host h1 counts 1 cores used, its live attempts differ"),
        (_exclusive_and_empty, "host h2 is exclusive with 0 live attempts"),
        (_open_without_hosts, "2 is open with hosts ()"),
        (_final_without_an_end, "2 is final with end None"),
        (_open_vms, "2 counts 1 open VMs wrongly"),
        (_cancelled_and_pending, "2 is cancelled and still pending"),
        (_never_allocated, "VM 1/1/0 is open but was never counted as allocated"),
        (_remembered_as_final, "2 is remembered as final but is not"),
        (_an_index_of_its_own, "the indexes differ from the records"),
    ],
)
def test_what_does_not_hold_is_named(broken: Callable[[Custody], None], said: str) -> None:
    custody = cloud()
    assert check(custody) == []
    broken(custody)
    assert said in check(custody)
