"""`phoenix simulate thiao`: the thesis's findings on few seeds, and the model against sums done by hand."""

from __future__ import annotations

import argparse
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phoenix_papers.thiao import experiment as thiao
from phoenix_papers.thiao import product, rules
from phoenix_papers.thiao.rules import IDEAL, MEASURED, Costs, Run

SEEDS = range(1, 6)


@cache
def runs() -> tuple[list[Run], list[Run]]:
    return thiao.simulated(SEEDS, MEASURED, workers=2), thiao.simulated(SEEDS, IDEAL, ("all",), workers=2)


@pytest.mark.parametrize("place", range(6))
def test_targets_b1_to_b6_are_met(place: int) -> None:
    found = thiao.targets(*runs())
    assert [each.id for each in found] == ["B1", "B2", "B3", "B4", "B5", "B6"]
    assert found[place].met, found[place]


def test_each_seed_has_the_thirty_three_batches_of_the_thesis() -> None:
    for seed in SEEDS:
        mine = [(run.mode, run.vms_per_host) for run in runs()[0] if run.seed == seed]
        assert mine == [("all", vms) for vms in range(17)] + [("incremental", vms) for vms in range(1, 17)]
    assert all(run.ratio_to_base == 1.0 for run in runs()[0] if not run.vms_per_host)


def test_a_target_that_is_missed_says_so() -> None:
    """As if each VM took a core for itself: run times rise at once, and the floor is higher."""
    dear = Costs(guest_cores=1.0)
    found = {each.id: each.met for each in thiao.targets(thiao.simulated((1,), dear, workers=1), runs()[1])}
    assert not found["B4"]
    assert not found["B5"]
    assert not found["B3"]


def test_lengths_are_the_seeds_and_the_order_is_the_runs() -> None:
    works = rules.works_s(3)
    assert len(works) == 107
    assert all(1200 <= each <= 2400 for each in works)
    assert works == rules.works_s(3) != rules.works_s(4)
    orders = [rules.shuffled(works, 3, name) for name in ("base", "all/1", "all/2")]
    assert all(sorted(order) == sorted(works) for order in orders)
    assert len({tuple(order) for order in orders}) == 3


def test_jobs_share_cores_by_hand() -> None:
    """One host's share of a small batch: 4 hosts with 16 VMs have 68 nodes, and 40 equal jobs start 10 on each host, all at
    once.  Ten jobs on eight cores run at 0.8 of their speed."""
    batch = rules._Batch([800.0] * 40, 9, "all", IDEAL)
    assert batch.run() == pytest.approx(1000.0)
    assert batch.runtimes_s == pytest.approx([1000.0] * 40)


def test_a_guest_takes_its_part_of_the_cores() -> None:
    """Eight jobs and seven guests want 8.35 cores of 8."""
    batch = rules._Batch([800.0] * 32, 7, "all", Costs(overhead=0.0, boot_s=0.0))
    assert batch.run() == pytest.approx(800 * 8.35 / 8)


def test_who_wakes_a_vm_waits_for_it_and_clones_share_the_file_server() -> None:
    costs = Costs(overhead=0.0, guest_cores=0.0, boot_s=90.0, clone_s=10.0)
    batch = rules._Batch([1000.0] * 8, 1, "incremental", costs)
    assert batch.run() == pytest.approx(240 + 90 + 40 + 1000)
    assert sorted(batch.runtimes_s) == pytest.approx([1000.0] * 4 + [1130.0] * 4)


def test_nobody_wakes_a_vm_for_nothing() -> None:
    batch = rules._Batch([1000.0] * 4, 16, "incremental", MEASURED)
    assert batch.run() == pytest.approx(1000.0)
    assert not any(host.besides for host in batch.hosts)


@given(
    st.lists(st.integers(10, 5000), min_size=1, max_size=60),
    st.integers(0, 16),
    st.sampled_from(rules.MODES),
    st.sampled_from([MEASURED, IDEAL]),
)
def test_every_job_ends_once_and_no_core_does_more_than_a_cores_work(
    works: list[int], vms: int, mode: Any, costs: Costs
) -> None:
    batch = rules._Batch([float(each) for each in works], vms, mode, costs)
    makespan_s = batch.run()
    assert len(batch.runtimes_s) == len(works)
    assert not batch.queue
    assert makespan_s >= max(*works, sum(works) / (rules.HOSTS * min(rules.HOST_CORES, vms + 1))) - 1e-3
    assert sum(batch.runtimes_s) >= sum(works) - 1e-3
    again = rules._Batch([float(each) for each in works], vms, mode, costs)
    assert again.run() == makespan_s


def test_the_document_holds_every_run_and_the_plots_are_made(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    given: dict[str, Any] = {"seeds": 1, "clone_s": 0.0, "workers": 1, "plots": tmp_path}
    assert thiao.run(argparse.Namespace(**given, json=True)) == 0
    document = json.loads(capsys.readouterr().out)
    assert len(document["runs"]) == 33
    assert {"vms_per_host", "mode", "seed", "makespan_s", "ratio_to_base"} <= set(document["runs"][0])
    assert len(document["overcommit"]) == sum(map(len, product.RATIOS.values()))
    assert [target["id"] for target in document["targets"]] == ["B1", "B2", "B3", "B4", "B5", "B6"]
    assert {file.name for file in tmp_path.iterdir()} == {"thiao.svg", "thiao.png"}


def test_the_tables_say_what_their_columns_mean() -> None:
    text = thiao.told(*runs(), overcommitted())
    assert thiao.LEGEND in text
    for head in ("VMS", "ALL", "IDEAL", "INCREMENTAL", "THESIS", "RATIO", "OF-NONE", "STRETCH", "USED", "MEMORY"):
        assert f"{head}:" in thiao.LEGEND or f"{head}, " in thiao.LEGEND, head
        assert head in text.replace(thiao.LEGEND, "")
    assert text.count("  met") == 6


# ------------------------------------------------------------------------------------------------------- the product's rule


@cache
def overcommitted() -> list[product.Run]:
    return thiao.by_rule((1, 2), workers=2)


@pytest.mark.parametrize("ask", product.RATIOS)
def test_overcommit_shortens_the_batch_and_slows_hardly_anybody_down(ask: product.Ask) -> None:
    for seed in (1, 2):
        mine = [run for run in overcommitted() if run.ask == ask and run.seed == seed]
        assert [run.ratio for run in mine] == list(product.RATIOS[ask])
        spans = [run.makespan_s for run in mine]
        assert spans == sorted(spans, reverse=True)
        assert mine[0].makespan_to_none == 1.0
        assert mine[-1].makespan_to_none < 0.62
        assert all(run.stretch < 1.03 for run in mine)


def test_memory_is_a_hard_limit_and_is_reached() -> None:
    most = {run.ratio: run.memory_most_mb for run in overcommitted() if run.ask == "partial" and run.seed == 1}
    assert max(most.values()) <= product.HOST_MB
    assert most[4.0] > product.HOST_MB - 1024
    memory = [max(1, job.memory_mb) for job in product.wishes("partial", 1)]
    assert sorted(set(memory)) == [1024, 2048, 4096, 8192]


def test_a_host_that_is_used_above_the_threshold_gets_no_more_than_its_cores() -> None:
    """Two whole-node jobs a host that use four of eight cores each, offered eightfold: eight at once while nobody knows better,
    then none until fewer than half of the cores are in use."""
    busy = [product.Wish(1000.0 + 10 * number, rules.HOST_CORES, 1024, 4.0) for number in range(64)]
    site = product._Site(busy, product.Overcommit(ratio=8.0), IDEAL)
    seen: list[int] = []
    hear = site._hear

    def counted(fact: Any, meta: Any) -> None:
        hear(fact, meta)
        if type(fact).__name__ == "UnitPlaced":
            seen.append(len(site.journal.custody.state.hosts[fact.hosts[0]].units))

    site.journal.readers[1] = counted
    site.run()
    assert max(seen[:32]) == 8
    plain = product._Site(busy, product.Overcommit(), IDEAL)
    assert plain.run() > site.now
    assert len(site.stretches) == len(plain.stretches) == 64
    assert max(plain.stretches) == pytest.approx(1.0)
