"""The experiment file: what is wrong with one is told at once and in place; variants, goals, inputs and the capacity search."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from phoenix.simulate import capacity, experiment, goal, scenarios, sweep
from phoenix.simulate.capacity import Found, ceiling_of, floor_of, most_at_once, search
from phoenix.simulate.engine import run
from phoenix.simulate.experiment import Experiment
from phoenix.simulate.metrics import measure
from phoenix.simulate.scenarios import Inputs, cases
from phoenix.simulate.text_input import InputError
from phoenix.simulate.week import from_monday
from phoenix.simulate.workload import Latencies, Scenario, Work
from schemas.facts import ConfigAdopted, Fact
from services.domain.custody.meta import Meta
from services.domain.scaling import offset_s
from services.domain.windows import calendar
from services.runtime.config.file import ConfigError

ROOT = Path(__file__).resolve().parents[2]
GOOD = """
[experiment]
window = "1d"
[cluster]
sizes = [8, 10]
cores = 4
[[department]]
name = "hpc"
kind = "batch"
jobs = { log = "small.swf" }
[[department]]
name = "web"
kind = "web"
demand = { csv = "web.csv", peak = 4 }
"""
SWF = """; UnixStartTime: 1000000000
1 0 -1 3600 16 -1 -1 16 7200 -1 1 u1 -1 -1 -1 -1 -1 -1
2 60 -1 600 4 -1 -1 4 -1 -1 1 u2 -1 -1 -1 -1 -1 -1
what is this
3 120 -1 60 8 -1 -1 8 60 -1 1 u1 -1 -1 -1 -1 -1 -1
"""
CSV = "time,requests\n0,10\n60,40\n120,20\n180,5\n"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "small.swf").write_text(SWF)
    (tmp_path / "web.csv").write_text(CSV)
    return tmp_path


def loaded(directory: Path, text: str = GOOD) -> Experiment:
    return experiment.loads(text, directory / "site.toml")


def problems(directory: Path, text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        loaded(directory, text)
    return str(caught.value).splitlines()


def scenario(directory: Path, text: str = GOOD, place: int = 0) -> scenarios.Scenario:
    found = loaded(directory, text)
    return Inputs(found).scenario(cases(found)[place])


# -------------------------------------------------------------------------------------------------------------- the file


def test_a_good_file_gives_a_run_for_each_size(directory: Path) -> None:
    found = loaded(directory)
    assert found.name == "site"
    assert found.window_s == 86_400
    assert [case.label for case in cases(found)] == ["8", "10"]


def test_the_example_can_be_simulated() -> None:
    found = experiment.load(ROOT / "deploy" / "experiments" / "site.toml")
    assert [case.label for case in cases(found)][:2] == ["requeue 80", "requeue 100"]
    assert len(cases(found)) == 9
    assert len(found.goal) == 3


def test_every_problem_is_told_at_once_in_the_order_of_the_file_with_line_key_and_what_would_be_right(
    directory: Path,
) -> None:
    text = """
[experiment]
windw = "1d"
[cluster]
hosts = 0
[latencies]
boot_s = -1
[[department]]
name = "hpc"
kind = "batch"
jobs = { log = "missing.swf", jobs = 3 }
[department.batch]
order = "esay"
[[department]]
name = "web"
kind = "web"
load = { csv = "web.csv", capacity = 0 }
[goal]
hpc.mean_wiat_s = "<= 1h"
hcp.mean_wait_s = "<= 1h"
web.shortfall_instance_s = "0"
"""
    told = problems(directory, text)
    assert [line.split(": ")[:2] for line in told] == [
        ["site.toml:3", "experiment.windw"],
        ["site.toml:5", "cluster.hosts"],
        ["site.toml:7", "latencies.boot_s"],
        ["site.toml:11", 'department.jobs.log (of "hpc")'],
        ["site.toml:11", 'department.jobs.jobs (of "hpc")'],
        ["site.toml:13", 'department.batch.order (of "hpc")'],
        ["site.toml:17", 'department.load.capacity (of "web")'],
        ["site.toml:19", "goal.hpc.mean_wiat_s"],
        ["site.toml:20", "goal.hcp.mean_wait_s"],
        ["site.toml:21", "goal.web.shortfall_instance_s"],
    ]
    for number, hint in ((0, "window"), (5, "easy"), (7, "mean_wait_s"), (8, "hpc")):
        assert f'did you mean "{hint}"?' in told[number]


def test_a_mistyped_generator_is_one_problem(directory: Path) -> None:
    text = GOOD.replace('log = "small.swf"', 'generator = "lublim", jobs = 4, processors = 8')
    (told,) = problems(directory, text.replace('window = "1d"', 'window = "1d"\nseeds = [1, 2]'))
    assert 'did you mean "lublin"?' in told


@pytest.mark.parametrize(
    ("was", "instead", "told"),
    [
        ('window = "1d"', 'window = "12"', "experiment.window"),
        ('window = "1d"', 'window = "1d"\nseeds = [1, 1]', "different whole numbers"),
        ('window = "1d"', 'window = "1d"\nseeds = [1, 2]', "no input is generated"),
        ("sizes = [8, 10]", "", "cluster.hosts: missing"),
        ("sizes = [8, 10]", "sizes = { from = 10, to = 8 }", "from should be at most to: 10 is more than 8"),
        ("sizes = [8, 10]", "sizes = { from = 8, to = 10, step = 0 }", "step should be 1 or more"),
        ("sizes = [8, 10]", "sizes = [0]", "should be 1 to 100,000 hosts: 0 is not"),
        ("sizes = [8, 10]", "sizes = []", "at least one"),
        ("sizes = [8, 10]", "sizes = { from = 8, too = 10 }", "cluster.sizes"),
        ("sizes = [8, 10]", "sizes = [8, 8]", "8 is there twice"),
        ("sizes = [8, 10]", "sizes = { from = 1, to = 100000 }", "at most 1000"),
        ("sizes = [8, 10]", "sizes = [8, 10]\nhosts = 8", "beside hosts"),
        ('kind = "web"', 'kind = "web"\nguarantee = 9', "smallest number of hosts that is simulated (8)"),
        ('jobs = { log = "small.swf" }', "", "department.jobs"),
        ('jobs = { log = "small.swf" }', 'demand = { csv = "web.csv", peak = 4 }', 'of kind "batch" has jobs'),
        ('{ log = "small.swf" }', '{ log = "small.swf", generator = "lublin" }', "one of the two"),
        ('{ log = "small.swf" }', '{ generator = "lublin", jobs = 5 }', "department.jobs.processors"),
        ('{ log = "small.swf" }', '{ log = "small.swf", part = ["2d", "1d"] }', "the earlier one first"),
        ("peak = 4 }", "peak = 4 }\nload = { csv = 'web.csv', capacity = 1 }", "beside demand"),
        ("peak = 4 }", "peak = 4, crowd_height = 2 }", "for a generator"),
    ],
)
def test_what_cannot_be_meant_is_refused(directory: Path, was: str, instead: str, told: str) -> None:
    assert GOOD.count(was) == 1
    assert any(told in line for line in problems(directory, GOOD.replace(was, instead)))


def test_a_file_that_is_no_toml_or_is_not_there_is_told_as_such(directory: Path) -> None:
    assert "should be TOML" in problems(directory, "[experiment")[0]
    with pytest.raises(ConfigError, match="cannot be read"):
        experiment.load(directory / "no.toml")


def test_suspending_and_migrating_can_be_simulated_and_lose_nothing(directory: Path) -> None:
    text = GOOD.replace("sizes = [8, 10]", "hosts = 5") + "[department.web]\ndrain_s = 0\n"
    vary = '[[vary]]\nname = "{0}"\nset = {{ hpc.on_reclaim = "{0}" }}\n'
    found = loaded(directory, text + "".join(map(vary.format, ("suspend", "migrate", "requeue"))))
    suspended, migrated, requeued = (measure(run(Inputs(found).scenario(case))).total for case in cases(found))
    assert min(suspended.preempted, migrated.preempted) > 0
    assert suspended.preemption_lost_node_s == migrated.preemption_lost_node_s == 0
    assert requeued.preemption_lost_node_s > 0


# -------------------------------------------------------------------------------------------------------------- variants

VARY = """
[[vary]]
name = "easy"
set = { "hpc.order" = "fcfs", hpc.weight = 2.0, latencies.boot_s = 5, web.demand.peak = 2 }
[[vary]]
name = "alone"
hosts = 30
set = { hpc.batch.requeues_max = 7, policy.notice_s = 1.0 }
"""


def test_a_variant_has_the_values_that_it_sets_and_else_those_of_the_file(directory: Path) -> None:
    found = loaded(directory, GOOD + VARY)
    easy, alone = found.variants
    assert [case.label for case in cases(found)] == ["easy 8", "easy 10", "alone 30"]
    hpc, other = easy.config.departments[0], alone.config.departments[0]
    assert hpc.batch is not None
    assert other.batch is not None
    assert (hpc.batch.order, hpc.weight, easy.latencies.boot_s) == ("fcfs", 2.0, 5)
    assert (other.batch.order, other.batch.requeues_max, alone.latencies.boot_s) == ("first-fit", 7, 0)
    assert (easy.config.policy.notice_s, alone.config.policy.notice_s) == (0.3, 1.0)
    inputs = Inputs(found)
    peaks = [max(n for _, n in inputs.scenario(case).web["web"].demand) for case in cases(found)]
    assert peaks == [2, 2, 4]


def test_what_is_wrong_in_a_variant_is_told_where_the_variant_sets_it(directory: Path) -> None:
    vary = """
[[vary]]
name = "a"
set = { hpc.ordr = "fcfs", hpc.order = "fsfc", web.threshold = 3.0 }
[[vary]]
name = "a"
set = { hpc.name = "other", web.guarantee = 5, web.maximum = 2 }
sizes = "many"
"""
    told = problems(directory, GOOD + vary)
    first = len(GOOD.splitlines()) + 1
    assert [line.split(": ")[:2] for line in told] == [
        [f"site.toml:{first + 3}", "vary.set.hpc.ordr"],
        [f"site.toml:{first + 3}", 'vary.set.hpc.order (of "a")'],
        [f"site.toml:{first + 3}", 'vary.set.web.threshold (of "a")'],
        [f"site.toml:{first + 5}", "vary.name"],
        [f"site.toml:{first + 6}", "vary.set.hpc.name"],
        [f"site.toml:{first + 6}", 'vary.set.web.guarantee (of "a")'],
        [f"site.toml:{first + 7}", 'vary.sizes (of "a")'],
    ]


def test_a_problem_of_the_file_is_not_told_again_for_each_variant(directory: Path) -> None:
    told = problems(directory, GOOD.replace("cores = 4", "cores = 0") + VARY)
    assert len(told) == 1


# ----------------------------------------------------------------------------------------------------------------- inputs


def test_what_a_window_leaves_out_and_what_does_not_fill_it_is_noted(directory: Path) -> None:
    found = loaded(directory, GOOD.replace('"1d"', '"60s"'))
    inputs = Inputs(found)
    for case in cases(found):
        inputs.scenario(case)
    assert "hpc: 1 of 3 jobs would come after the window, and are not submitted" in inputs.notes
    assert not [note for note in inputs.notes if note.startswith("web")]
    inputs = Inputs(found := loaded(directory))
    inputs.scenario(cases(found)[0])
    assert not [note for note in inputs.notes if note.startswith("hpc")]
    ends = "web: its input ends at 4m00s, and the window at 1d00h: the last level holds until then"
    assert ends in inputs.notes


def test_a_log_becomes_jobs_on_hosts_and_what_was_skipped_is_noted(directory: Path) -> None:
    found = loaded(directory)
    inputs = Inputs(found)
    first, second = (inputs.scenario(case) for case in cases(found))
    assert [(work.number, work.nodes, work.submit_s) for work in first.jobs["hpc"]] == [
        (1, 4, 0),
        (2, 1, 60),
        (3, 2, 120),
    ]
    assert first.jobs["hpc"] is second.jobs["hpc"], "read once"
    assert len([note for note in inputs.notes if "1 line skipped" in note and "line 4" in note]) == 1
    assert inputs.started_at == 1_000_000_000
    assert first.web["web"].demand == ((0, 1), (60, 4), (120, 2), (180, 1))


def test_an_input_says_how_long_it_lasts(directory: Path) -> None:
    web = scenario(directory).web["web"]
    assert (web.demand[-1], web.end_s) == ((180, 1), 240)


def test_generated_inputs_depend_on_the_seed_and_on_nothing_else(directory: Path) -> None:
    text = GOOD.replace('{ log = "small.swf" }', '{ generator = "lublin", jobs = 20, processors = 32 }')
    text = text.replace('window = "1d"', 'window = "1d"\nseeds = [1, 2]')
    found = loaded(directory, text)
    made = [Inputs(found).scenario(case).jobs["hpc"] for case in cases(found)]
    assert [case.label for case in cases(found)] == ["8 seed 1", "8 seed 2", "10 seed 1", "10 seed 2"]
    assert made[0] == made[2] != made[1] == made[3]


def test_jobs_of_several_departments_have_different_numbers_in_the_order_of_submission(directory: Path) -> None:
    more = GOOD + '[[department]]\nname = "bio"\nkind = "batch"\njobs = { log = "small.swf" }\n'
    jobs = scenario(directory, more).jobs
    assert [work.number for work in jobs["bio"]] == [1, 3, 5]
    assert [work.number for work in jobs["hpc"]] == [2, 4, 6]


def test_a_load_keeps_as_many_instances_busy_as_its_capacity_says(directory: Path) -> None:
    text = GOOD.replace("demand = {", "load = {").replace("peak = 4", "capacity = 0.25")
    assert [round(busy, 6) for _, busy in scenario(directory, text).web["web"].load] == [
        0.666667,
        2.666667,
        1.333333,
        0.333333,
    ]
    generated = GOOD.replace(
        'demand = { csv = "web.csv", peak = 4 }', 'load = { generator = "daily", peak = 9, days = 1 }'
    )
    assert max(busy for _, busy in scenario(directory, generated).web["web"].load) == pytest.approx(9)


def test_requests_without_a_scale_are_refused_with_the_key_that_is_missing(directory: Path) -> None:
    with pytest.raises(InputError, match=r"peak = .*department \"web\""):
        scenario(directory, GOOD.replace(", peak = 4", ""))
    with pytest.raises(InputError, match="capacity = "):
        scenario(directory, GOOD.replace('demand = { csv = "web.csv", peak = 4 }', 'load = { csv = "web.csv" }'))


@pytest.mark.parametrize("zone", ["UTC", "UTC+14:00", "UTC-12:00"])
def test_generated_load_and_windows_have_the_same_weekend(directory: Path, zone: str) -> None:
    """Time 0 is a Monday: load falls on the sixth day, and that is when the guarantee of Saturday holds."""
    text = GOOD.replace(
        'demand = { csv = "web.csv", peak = 4 }', 'demand = { generator = "daily", peak = 9, days = 7 }'
    )
    shape = ", weekend_share = 0.1, noise = 0, crowds_per_week = 0, night_share = 1.0 }"
    text = text.replace("days = 7 }", "days = 7" + shape).replace('window = "1d"', 'window = "7d"')
    text = text.replace(
        'kind = "batch"', f'kind = "batch"\nwindows = ["Sat,Sun 00:00-24:00 guarantee 7"]\nwindows_zone = "{zone}"'
    )
    known = scenario(directory, text)
    low = [at for at, wanted in known.web["web"].demand if wanted == 1]
    assert 5 * 86_400.0 in low
    found = from_monday(known.config).departments[0]
    opened, ends, ahead_s = calendar(found.windows, found.windows_zone), 6 * 86_400.0, offset_s(zone)
    assert opened.open_at(5 * 86_400.0 - ahead_s - 1) is None
    assert (opened.open_at(5 * 86_400.0 - ahead_s) or ("", 0))[1] == ends - ahead_s
    assert adopted_zone(known) == found.windows_zone


def adopted_zone(known: Scenario) -> str:
    """As the cores of a run have it."""
    zones: list[str] = []

    def watch(fact: Fact, meta: Meta) -> None:
        if isinstance(fact, ConfigAdopted):
            zones.append(fact.config.departments[0].windows_zone)

    run(msgspec.structs.replace(known, window_s=1.0, jobs={}), watch=watch)
    return zones[0]


# ------------------------------------------------------------------------------------------------------------------ goals


def test_a_limit_names_any_number_of_the_metrics(directory: Path) -> None:
    measured = measure(run(scenario(directory)))
    assert goal.value_of(measured, "hpc", "completed") == 3
    assert goal.value_of(measured, "total", "max_turnaround_s") == 3600
    assert goal.value_of(measured, "web", "peak_wanted") == 4
    assert goal.value_of(measured, "web", "peak_held") == 4
    assert goal.value_of(measured, "cloud", "hosts_moved") is not None
    for department, names in goal.known({"hpc": "batch", "web": "web"}).items():
        for name in names:
            goal.value_of(measured, department, name)  # no name that is offered raises


@pytest.mark.parametrize(
    ("name", "text", "bound"),
    [
        ("hpc.mean_wait_s", "<= 1h", 3600.0),
        ("hpc.mean_wait_s", " < 90 ", 90.0),
        ("hpc.useful_utilisation", ">= 0.8", 0.8),
        ("hpc.useful_utilisation", ">= 1h", None),
        ("hpc.mean_wait_s", "= 1", None),
        ("hpc.mean_wait_s", "<= nan", None),
        ("hpc.mean_wait_s", 3600, None),
    ],
)
def test_a_limit_is_a_comparison_with_a_number_or_a_time(name: str, text: object, bound: float | None) -> None:
    found = goal.parse(name, text)
    assert (None if found is None else found.bound) == bound


def test_what_has_no_value_keeps_no_level(directory: Path) -> None:
    measured = measure(run(scenario(directory, GOOD.replace('"1d"', '"5s"'))))
    limit = goal.parse("hpc.mean_wait_s", "<= 100")
    assert limit is not None
    assert goal.value_of(measured, "hpc", "mean_wait_s") is None
    assert not limit.holds(measured)


# ------------------------------------------------------------------------------------------------------------ the search


def searched(keeps: Sequence[int] | range, floor: int, ceiling: int, width: int = 4) -> Found:
    asked: list[int] = []

    def holds(sizes: Sequence[int]) -> list[bool]:
        asked.extend(sizes)
        return [size in keeps for size in sizes]

    found = search(holds, floor, ceiling, width)
    assert len(asked) == len(set(asked)), "a size is probed once"
    assert all(floor <= size <= ceiling for size in asked)
    return found


def test_the_search_finds_the_smallest_size_wherever_it_is_with_few_probes() -> None:
    for ceiling in (1, 2, 3, 7, 40):
        for least in range(1, ceiling + 1):
            for width in (1, 2, 4):
                assert searched(range(least, ceiling + 1), 1, ceiling, width).smallest == least
    found = searched(range(4321, 100_001), 10, 100_000)
    assert found.smallest == 4321
    assert len(found.tried) < 50


def test_a_smaller_size_that_holds_by_chance_is_found_beside_the_border_and_the_larger_failures_are_told() -> None:
    found = searched([*range(100, 201), 97], 1, 200)
    assert found.smallest == 97
    assert {98, 99} <= set(found.failed_above)


def test_a_goal_that_fails_on_the_largest_size_may_hold_on_a_smaller_one() -> None:
    assert searched(range(20, 60), 1, 200).smallest == 20


def test_a_goal_that_cannot_be_kept_has_no_answer() -> None:
    found = searched([], 5, 300)
    assert found.smallest is None
    assert {5, 300} <= set(found.tried)
    assert found.failed_above == ()


def work(number: int, submit_s: float, run_s: float, nodes: int) -> Work:
    return Work(number=number, submit_s=submit_s, run_s=run_s, nodes=nodes)


def test_at_most_so_many_nodes_can_be_in_use_at_once() -> None:
    works = [work(1, 0, 100, 3), work(2, 50, 100, 2), work(3, 100, 10, 4)]
    assert most_at_once(works) == 6  # 2 and 4: what ends at 100 can be used at 100
    assert most_at_once(works, extra_s=1) == 9
    assert most_at_once([]) == 0


def test_the_search_goes_from_the_widest_job_to_where_nothing_waits(directory: Path) -> None:
    given = scenario(directory, GOOD.replace('kind = "web"', 'kind = "web"\nguarantee = 3'))
    assert floor_of(given) == 4 + 3
    assert ceiling_of(given) == (4 + 1 + 2) + 4
    measured = measure(run(scenario(directory, GOOD.replace("sizes = [8, 10]", "hosts = 11"))))
    assert measured.total.wait_s.max == 0
    assert measured.total.preempted == 0


# ----------------------------------------------------------------------------------------------------------------- sweeps


def test_results_come_in_the_order_of_the_runs_from_several_processes() -> None:
    tasks = [sweep.Task(str(n), lambda n=n: n * n) for n in range(20)]  # type: ignore[misc]
    assert sweep.run_all(tasks, workers=3) == [n * n for n in range(20)]
    assert sweep.run_all(tasks, workers=1) == [n * n for n in range(20)]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_that_raises_is_named(workers: int) -> None:
    def broken() -> int:
        raise ValueError("no")

    tasks = [sweep.Task("good", lambda: 1), sweep.Task("easy 150", broken), sweep.Task("other", lambda: 2)]
    with pytest.raises(ValueError, match="no") as caught:
        sweep.run_all(tasks, workers=workers)
    assert caught.value.__notes__ == ["in run easy 150"]


def test_a_run_that_raises_ends_the_others_at_once() -> None:
    def broken() -> int:
        raise ValueError("no")

    tasks = [sweep.Task("for ever", lambda: signal.pause() or 0), sweep.Task("broken", broken)]
    with pytest.raises(ValueError, match="no"):
        sweep.run_all(tasks, workers=2)
    assert not multiprocessing.active_children()


def test_an_interruption_says_what_was_finished() -> None:
    def interrupted() -> int:
        raise KeyboardInterrupt

    tasks = [sweep.Task("a", lambda: 1), sweep.Task("b", interrupted), sweep.Task("c", lambda: 2)]
    with pytest.raises(sweep.Interrupted, match=r"1 of 3 runs were finished \(a\)"):
        sweep.run_all(tasks, workers=1)


def test_latencies_lengthen_what_the_ceiling_counts(directory: Path) -> None:
    given = scenario(directory, GOOD + "[latencies]\nboot_s = 60\n")
    assert given.latencies == Latencies(boot_s=60)
    assert capacity.ceiling_of(given) == 11
