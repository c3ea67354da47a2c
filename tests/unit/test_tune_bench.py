"""What is tuned: phoenix-cloud and experiment files with values set, the worlds that are held out, and what a report says."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from phoenix.cli.errors import CliError
from phoenix.search import space
from phoenix.search.trials import Trial
from phoenix.simulate import engine, experiment
from phoenix.simulate.metrics import measure
from phoenix.tune.bench_file import File
from phoenix.tune.goals import HOSTS, Values, parse
from phoenix.tune.report import gains, name_of, verdict
from phoenix.tune.searching import Found, own_on
from phoenix_papers.phoenix_cloud import inputs as phoenix_cloud_inputs
from phoenix_papers.phoenix_cloud import rules as phoenix_cloud_rules
from phoenix_papers.phoenix_cloud import worlds
from phoenix_papers.phoenix_cloud.bench import Cloud
from services.runtime.config.file import ConfigError
from services.scheduler.core.policies import registry
from tests.support.tuning import OWN_JOBS, SITE, written

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def cloud_inputs(tmp_path: Path) -> phoenix_cloud_inputs.Inputs:
    written(tmp_path)
    return phoenix_cloud_inputs.read(tmp_path / "own.swf", tmp_path / "own.csv")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "site.toml").write_text(SITE)
    return tmp_path / "site.toml"


# ---------------------------------------------------------------------------------------------------------- phoenix-cloud


@pytest.mark.parametrize("reading", phoenix_cloud_rules.READINGS)
def test_with_the_papers_settings_it_is_the_papers_run(cloud_inputs: phoenix_cloud_inputs.Inputs, reading: str) -> None:
    works = phoenix_cloud_rules.lay_out(cloud_inputs.jobs, estimates=True)
    theirs = engine.run(phoenix_cloud_rules.dynamic(110, reading, works, cloud_inputs.demand))  # type: ignore[arg-type]
    mine = engine.run(Cloud(cloud_inputs).scenario({HOSTS: 110, "hpc.on_reclaim": reading}, ""))
    assert measure(mine) == measure(theirs)
    assert measure(mine).total.preempted > 0


def test_the_static_run_is_the_papers(cloud_inputs: phoenix_cloud_inputs.Inputs) -> None:
    works = phoenix_cloud_rules.lay_out(cloud_inputs.jobs)
    theirs = measure(engine.run(phoenix_cloud_rules.static(works, cloud_inputs.demand))).total
    mine = Cloud(cloud_inputs).reference("", ["hpc.completed", "web.shortfall_instance_s"])
    assert mine["hpc.completed"] == theirs.completed
    assert mine["hpc.mean_turnaround_s"] == pytest.approx(theirs.turnaround_s.mean)
    assert mine["web.shortfall_instance_s"] == 0


def test_a_setting_is_what_it_is_in_a_vary(cloud_inputs: phoenix_cloud_inputs.Inputs) -> None:
    bench = Cloud(cloud_inputs)
    policy = (
        bench.variant({"hpc.order": "multi-factor", "hpc.multi_factor.weight_size": -20000})[0].departments[0].batch
    )
    assert policy is not None
    assert (policy.order, policy.multi_factor.weight_size, policy.multi_factor.backfill) == (
        "multi-factor",
        -20000,
        "easy",
    )
    assert policy.victims == "smallest-shortest"  # the rest is the paper's
    text = '[axis]\nhpc.order = ["easi"]\nhpc.jobs.load = [0.5]\nhpc.ordr = ["easy"]\ncluster.hosts = [0]\n'
    with pytest.raises(ConfigError) as caught:
        space.loads(text, bench.legal)
    told = str(caught.value).splitlines()
    assert 'space.toml:2: axis.hpc.order: "easi"' in told[0]
    assert 'did you mean "easy"?' in told[0]
    assert "space.toml:3: axis.hpc.jobs.load: 0.5: should be left out: the jobs and the web load" in told[1]
    assert 'did you mean "hpc.order"?' in told[2]
    assert "space.toml:5: axis.cluster.hosts: 0: should be at least 1" in told[3]


def test_the_example_has_every_order_and_all_victims(cloud_inputs: phoenix_cloud_inputs.Inputs) -> None:
    bench = Cloud(cloud_inputs)
    found = space.load(ROOT / "docs" / "examples" / "phoenix-cloud-space.toml", bench.legal)
    axes = {axis.name: set(axis.values()) for axis in found.axes if axis.name in ("hpc.order", "hpc.victims")}
    assert axes == {"hpc.order": {*registry.ORDERS, "multi-factor"}, "hpc.victims": set(registry.VICTIMS)}
    drawn = [space.sample(found, Random(seed)) for seed in range(50)]
    assert [bench.problem(found.with_fixed(point)) for point in drawn] == [None] * 50


def test_services_share_the_jobs_by_user(cloud_inputs: phoenix_cloud_inputs.Inputs) -> None:
    values = {"hpc.order": "svmsched", "hpc.services": {"a": 1, "b": 1}, "hpc.short_s": 1e8}
    bench = Cloud(cloud_inputs)
    assert bench.problem({"hpc.order": "svmsched"}) is not None
    assert bench.problem(values) is None
    assert {work.service for work in bench.scenario(values, "").jobs["hpc"]} == {"a", "b"}
    assert bench.run(values, "", [])["hpc.completed"] == OWN_JOBS


# ------------------------------------------------------------------------------------------------------------- held out


def test_a_log_of_ones_own_offers_as_much_work_in_the_same_window(
    cloud_inputs: phoenix_cloud_inputs.Inputs, tmp_path: Path
) -> None:
    found, notes = worlds.held_out([str(tmp_path / "other.swf"), "seeds=2"], cloud_inputs)
    assert [world.name for world in found] == ["other.swf 1", "other.swf 2", "generated 2"]
    assert notes == []
    first = found[0].works
    assert first[0].submit_s < first[-1].submit_s <= phoenix_cloud_rules.WINDOW_S
    assert first[-1].submit_s > 0.9 * phoenix_cloud_rules.WINDOW_S
    bench = Cloud(cloud_inputs, found)
    assert bench.run({HOSTS: 150}, "other.swf 1", [])["hpc.completed"] == len(first)


def test_a_window_of_a_log_ends_with_the_work_that_is_wanted(cloud_inputs: phoenix_cloud_inputs.Inputs) -> None:
    jobs = cloud_inputs.jobs
    end_s = worlds._end_of(jobs, jobs[10].submit_s, 8, worlds.node_s(jobs[10:20], 8))
    assert [job.number for job in jobs if jobs[10].submit_s <= job.submit_s < end_s] == list(range(11, 21))


@pytest.mark.parametrize("word", ["seeds=", "seeds=a", "seeds=2,2", "seeds=1-1000", "nothing", "kth"])
def test_odd_worlds_are_refused(cloud_inputs: phoenix_cloud_inputs.Inputs, word: str) -> None:
    with pytest.raises(CliError, match=f"--holdout {word}: should be") as caught:
        worlds.held_out([word], cloud_inputs)
    assert caught.value.code == 2


# --------------------------------------------------------------------------------------------------------------- a file


def test_a_trial_of_a_file_is_the_mean_of_its_seeds(file: Path) -> None:
    bench = File(file, ["seeds=7,8"])
    assert bench.worlds == ("seed 7", "seed 8")
    assert [limit.asked for limit in bench.limits] == ["hpc.p95_wait_s <= 2h"]
    one, two = (File(_with(file, f"seeds = [{seed}]")).run({}, "", [])["hpc.mean_wait_s"] or 0 for seed in (1, 2))
    assert bench.run({}, "", [])["hpc.mean_wait_s"] == pytest.approx((one + two) / 2)
    assert one != two
    assert (
        bench.run({}, "seed 7", []) == File(_with(file, "seeds = [7]")).run({}, "", []) != bench.run({}, "seed 8", [])
    )
    assert bench.run({"hpc.order": "shortest-first"}, "", []) != bench.run({}, "", [])
    assert bench.run({HOSTS: 60}, "seed 7", [])["hpc.mean_wait_s"] == 0


def _with(file: Path, seeds: str) -> Path:
    (file.parent / "one.toml").write_text(SITE.replace("seeds = [1, 2]", seeds))
    return file.parent / "one.toml"


def test_another_file_is_a_world_with_its_own_inputs(file: Path) -> None:
    (file.parent / "busy.toml").write_text(SITE.replace("load = 2.0", "load = 9.0"))
    bench = File(file, [str(file.parent / "busy.toml")])
    assert (bench.run({}, "busy.toml", [])["hpc.mean_wait_s"] or 0) > (bench.run({}, "", [])["hpc.mean_wait_s"] or 0)


@pytest.mark.parametrize(
    ("text", "held_out", "told"),
    [
        (SITE + '[[vary]]\nname = "a"\nset = {}\n', [], "has no place in what is tuned"),
        (SITE, ["seeds=2-3"], "is tuned on seed 2"),
        (SITE, ["logs"], "should be .*seeds=11-15"),
        (SITE, ["other.toml"], "its departments are"),
    ],
)
def test_odd_files_are_refused(
    file: Path, text: str, held_out: list[str], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text(text)
    (file.parent / "other.toml").write_text(SITE.replace('name = "hpc"', 'name = "sci"').replace("hpc.p95", "sci.p95"))
    monkeypatch.chdir(file.parent)
    with pytest.raises(CliError, match=told):
        File(file, held_out)


def test_values_that_do_not_go_together_are_a_problem_of_the_point(file: Path) -> None:
    bench = File(file)
    assert bench.problem({"hpc.guarantee": 10, "hpc.maximum": 12}) is None
    assert bench.problem({"hpc.guarantee": 13, "hpc.maximum": 12}) is not None
    assert experiment.load(file).variants[0].departments[0].guarantee == 0


# ---------------------------------------------------------------------------------------------------------------- report

SPACE = space.loads('[axis]\nhpc.order = ["easy", "fcfs"]\nhpc.x = [1000, 2]\nhpc.y = [1]\n', lambda *_: None)


def judged(bench: Cloud, *held_out: tuple[float, float]) -> str:
    """The verdict on a point that is 10 s sooner where it was tuned; of each world: its turnaround, and that of the own
    settings."""
    aims = parse(["min hpc.mean_turnaround_s"], bench.kinds, "")
    trial = Trial(number=1, point={"hpc.order": "easy"}, result={"hpc.mean_turnaround_s": 90.0})
    bench.worlds = tuple(f"w{n}" for n in range(len(held_out)))
    runs: dict[tuple[str, str], Values] = {("{}", own_on("")): {"hpc.mean_turnaround_s": 100.0}}
    for world, (mine, own) in zip(bench.worlds, held_out, strict=True):
        runs[space.key(trial.point), world] = {"hpc.mean_turnaround_s": mine}
        runs["{}", own_on(world)] = {"hpc.mean_turnaround_s": own}
    found = Found(bench, SPACE, aims, [trial], "", {}, runs, {})
    assert gains(found, trial, None)[0].tuned == pytest.approx(0.1)
    return verdict(gains(found, trial, None))


def test_what_generalises_and_what_was_luck(cloud_inputs: phoenix_cloud_inputs.Inputs) -> None:
    bench = Cloud(cloud_inputs)
    sooner, later, same = (50.0, 100.0), (110.0, 100.0), (100.0, 100.0)
    assert judged(bench, sooner, sooner, sooner, later) == "generalises"
    assert judged(bench, sooner, same, same) == "generalises"
    assert judged(bench, sooner, same, same, later) == "luck"
    assert judged(bench, sooner, sooner, later) == "in part"
    assert judged(bench, sooner, sooner, later, later) == "luck"
    assert judged(bench, (99.0, 100.0), (99.0, 100.0), (99.0, 100.0), (900.0, 100.0)) == "in part"
    assert judged(bench, same, same) == "no gain"


def test_a_point_is_called_by_what_could_be_otherwise() -> None:
    assert name_of(SPACE, {"hpc.order": "easy", "hpc.x": 1000, "hpc.y": 1, HOSTS: 9}) == "easy, x 1,000"
