"""Policies of plug-ins in the configuration: a name that is installed is taken, any other is told with what there is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from phoenix.policies import described
from phoenix.simulate.engine import Simulation
from phoenix.simulate.workload import Scenario, Work
from schemas.config import BatchPolicy, CloudConfig, Department, WebPolicy
from schemas.envelope import Envelope, decode, encode
from schemas.facts import ConfigAdopted
from services.domain.exits import Exit, Stop
from services.runtime import plugins
from services.runtime.config.checks import check_cloud
from services.runtime.config.file import ConfigError, loads
from services.runtime.config.text import dump_toml
from services.runtime.log import get_log
from services.scheduler.core.policies import registry
from services.scheduler.edge import plugins as scheduler
from tests.support.plugins import install, order, packages

FILE = """[cloud]
name = "site"
[[department]]
name = "hpc"
kind = "batch"
[department.batch]
order = "sleepy"
[department.batch.options]
patience_s = 5.0
names = ["a", "b"]
"""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Path]:
    with packages(tmp_path / "site") as where:
        yield where


def problems(**batch: object) -> list[str]:
    department = Department(name="hpc", kind="batch", batch=BatchPolicy(**batch))  # type: ignore[arg-type]
    return [problem.line() for problem in check_cloud(CloudConfig(name="site", departments=(department,)))]


def test_an_installed_policy_is_taken_with_its_options(site: Path) -> None:
    install(site, "sleepy", order())
    config = loads(FILE)
    batch = config.cloud.departments[0].batch
    assert batch is not None
    assert (batch.order, batch.options) == ("sleepy", {"patience_s": 5.0, "names": ("a", "b")})
    assert loads(dump_toml(config)).cloud == config.cloud


def test_it_goes_through_the_journal_unchanged(site: Path) -> None:
    install(site, "sleepy", order())
    adopted = ConfigAdopted(cloud="c", custody_rules=1, config=loads(FILE).cloud)
    envelope = Envelope(id="m1", writer="provisioner", epoch=1, at=0.0, facts=(adopted,))
    assert decode(encode(envelope), "provisioner").facts == (adopted,)


def test_a_name_that_nothing_brings_is_told_with_what_there_is(site: Path) -> None:
    install(site, "sleepy", order())
    (line,) = problems(order="sleeepy")
    assert line.startswith('department.batch.order (of "hpc"): "sleeepy": should be one of "first-fit", "fcfs"')
    assert line.endswith('or of the plug-ins that are installed ("sleepy", "svmsched"); did you mean "sleepy"?')
    (line,) = problems(victims="sleepy")
    assert "department.batch.victims" in line
    assert '("combined", "minimum-overhead", "minimum-waiting-time")' in line  # it is an order
    (line,) = problems(order="frist-fit")
    assert line.endswith('did you mean "first-fit"?')


def test_two_packages_with_one_name_are_told(site: Path) -> None:
    install(site, "sleepy", order())
    other = site / "acme_other-3.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-other\nVersion: 3\n")
    (other / "entry_points.txt").write_text("[phoenix_cloud.orders]\nsleepy = acme_sleepy:ORDER\n")
    (line,) = problems(order="sleepy")
    assert line.endswith(
        '"sleepy": is brought by acme-other 3, and cannot be used: acme-sleepy 1.2 brings one of this name as well: '
        "uninstall one of them"
    )


@pytest.mark.parametrize(
    ("name", "where"),
    [("fcfs", "services.scheduler.core.policies.order_fcfs"), ("svmsched", "phoenix_papers.svmsched.order")],
)
def test_nobody_takes_over_the_name_of_one_of_ours(site: Path, name: str, where: str) -> None:
    install(site, name, order())
    assert problems(order=name, services={} if name == "fcfs" else {"a": 1.0}) == []
    ours, theirs = sorted((one for one in described() if one.name == name), key=lambda one: one.problem)
    assert (ours.package, ours.problem) == ("phoenix-cloud", "")
    assert theirs.problem == "this name is taken by a policy that comes with Phoenix Cloud"
    scheduler.load_all(get_log(service="test"))
    assert registry.order(name).plan.__module__ == where


def test_a_package_whose_module_is_not_found_asks_for_a_restart(site: Path) -> None:
    module = install(site, "broken", order())
    (site / f"{module}.py").unlink()
    (problem,) = problems(order="broken")
    assert "ModuleNotFoundError: No module named 'acme_broken'; if it was installed while this runs, restart" in problem


@pytest.mark.parametrize(
    ("source", "target", "told"),
    [
        ("import nothing_of_that_name", "ORDER", "cannot be loaded from acme_broken:ORDER: ModuleNotFoundError"),
        ("x = 1 / 0", "ORDER", "ZeroDivisionError: division by zero"),
        ("", "ORDER", "AttributeError"),
        ("API = 1\nORDER = 7", "ORDER", "should be an Order (phoenix.plugin.policies); acme_broken:ORDER is a int"),
        (
            order().replace("API = 1\n", ""),
            "ORDER",
            "acme_broken does not state which version of phoenix.plugin it was written for: add API = 1",
        ),
        *(
            (
                order().replace("API = 1\n", f"API = {version}\n"),
                "ORDER",
                f"acme_broken was written for version {version} of phoenix.plugin; this is version 1",
            )
            for version in ("0", "2", "True", "'1'")
        ),
        (
            order().replace("(msgspec.Struct, frozen=True)", ""),
            "ORDER",
            "acme_broken.Settings should be a msgspec.Struct",
        ),
    ],
)
def test_what_cannot_be_loaded_is_told(site: Path, source: str, target: str, told: str) -> None:
    install(site, "broken", source, target=target)
    (line,) = problems(order="broken")
    assert "is of acme-broken 1.2, and " in line
    assert told in line


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        ({}, []),
        ({"patience_s": 1, "names": ("x",)}, []),
        (
            {"patiense_s": 1.0},
            ['options.patiense_s (of "hpc"): 1.0: there is no such option; did you mean "patience_s"?'],
        ),
        ({"patience_s": "long"}, ['options.patience_s (of "hpc"): "long": Expected `float`, got `str`']),
        ({"names": (1,)}, ['options.names (of "hpc"): (1,): Expected `str`, got `int`']),
        ({"patience_s": -1.0}, ['options (of "hpc"): these options: patience_s should be 0 or more']),
    ],
)
def test_options_are_judged_by_the_plug_in(site: Path, options: dict[str, object], lines: list[str]) -> None:
    install(site, "sleepy", order())
    assert [line.removeprefix("department.batch.") for line in problems(order="sleepy", options=options)] == lines


def test_options_that_nobody_reads_are_refused() -> None:
    (line,) = problems(options={"patience_s": 1.0})
    assert line.endswith('patience_s (of "hpc"): 1.0: should not be here: no policy that is chosen has options')
    assert problems() == []


def test_options_of_a_wrong_form_are_told_in_the_file() -> None:
    with pytest.raises(ConfigError, match="a table of texts, numbers, true or false, or lists of these"):
        loads(FILE.replace("patience_s = 5.0", "patience_s = { a = 1 }"))


def test_the_names_of_a_web_department_are_checked_too(site: Path) -> None:
    department = Department(name="shop", kind="web", web=WebPolicy(rule="treshold"))
    (problem,) = check_cloud(CloudConfig(name="site", departments=(department,)))
    assert problem.line().startswith('department.web.rule (of "shop"): "treshold": should be one of "threshold"')
    assert problem.right.endswith('did you mean "threshold"?')


# ------------------------------------------------------------------------------------------------------------ deciding


def simulated(name: str) -> dict[str, str]:
    config = CloudConfig(
        name="site", departments=(Department(name="hpc", kind="batch", batch=BatchPolicy(order=name)),)
    )
    work = Work(number=1, submit_s=0.0, run_s=10.0, nodes=1, cores=1, memory_mb=1)
    simulation = Simulation(Scenario(label="x", config=config, hosts=1, jobs={"hpc": (work,)}, window_s=60.0))
    simulation.run()
    return {name: unit.final or unit.state for name, unit in simulation.journal.custody.state.units.items()}


def test_the_simulator_decides_with_it(site: Path) -> None:
    install(site, "sleepy", order())
    install(
        site,
        "eager",
        order("from services.scheduler.core.policies.order_fcfs import plan as p\n    return p(situation)"),
    )
    assert simulated("sleepy") == {"1": "pending"}
    assert simulated("eager") == {"1": "completed"}


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("return situation.no_such_field", "in plan: AttributeError: 'Situation' object has no attribute"),
        ("return None", "plan: it should return a Plan, not None"),
        (
            "from services.scheduler.core.policies.order_fcfs import plan as p\n    return Plan(p(situation).starts * 2)",
            "plan: it starts '1' twice",
        ),
        (
            "from services.scheduler.core.policies.order_fcfs import plan as p\n"
            "    return Plan([s._replace(unit='77') for s in p(situation).starts])",
            "plan: it starts '77', which does not wait",
        ),
        (
            "from services.scheduler.core.policies.order_fcfs import plan as p\n"
            "    return Plan([s._replace(hosts=()) for s in p(situation).starts])",
            "plan: it gives '1' the hosts (): 1 different ones are needed",
        ),
    ],
)
def test_one_that_fails_is_named_with_its_package(site: Path, body: str, told: str) -> None:
    install(site, "sleepy", order(body))
    with pytest.raises(Stop) as stop:
        simulated("sleepy")
    assert stop.value.code is Exit.POLICY
    assert stop.value.why.startswith('order "sleepy" of acme-sleepy 1.2')
    assert told in stop.value.why
    assert stop.value.why.endswith("its author must mend that")


def test_who_decides_with_what_is_not_installed_stops_and_says_what() -> None:
    with pytest.raises(Stop) as stop:
        simulated("sleepy")
    assert stop.value.code is Exit.POLICY
    assert 'names order "sleepy": ' in stop.value.why
    assert "install it where this service runs" in stop.value.why


def test_a_stop_survives_the_way_back_from_a_worker() -> None:
    import pickle

    stop = pickle.loads(pickle.dumps(Stop(Exit.POLICY, "so")))
    assert (stop.code, stop.why) == (Exit.POLICY, "so")


def test_every_plug_in_is_listed_with_what_it_says_of_itself(site: Path) -> None:
    install(site, "sleepy", order())
    install(site, "broken", "import nothing_of_that_name")
    found = {policy.name: policy for policy in described()}
    assert found["sleepy"].about == "Nothing starts: an order for tests."
    assert (found["sleepy"].source, found["sleepy"].origin) == ("this test.", "acme-sleepy 1.2")
    assert [msgspec.structs.astuple(s) for s in found["sleepy"].settings] == [
        ("options.patience_s", "60.0"),
        ("options.names", "[]"),
    ]
    assert "ModuleNotFoundError" in found["broken"].problem


def test_a_name_of_another_form_is_refused(site: Path) -> None:
    install(site, "Sleepy", order())
    (plugin,) = [plugin for plugin in plugins.installed() if plugin.name == "Sleepy"]
    assert "lower-case" in plugins.refused(plugin, [plugin])
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"order": "Sleepy"}, BatchPolicy)
