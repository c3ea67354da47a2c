"""What plug-ins import is `phoenix.plugin`: the papers' package keeps to it, and nothing of the product needs that package."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from phoenix import plugin
from phoenix.cli import simulate
from phoenix.cli.__main__ import main
from phoenix.plugin import policies, simulation
from phoenix.simulate import experiments
from services.runtime import plugins
from tests.support.plugins import install, packages
from tests.unit.frame_source import ROOT, imports, module, sources, tree

OURS = ("schemas", "services", "phoenix", "tests", "benchmarks")
PUBLIC = ("phoenix.plugin", "phoenix.plugin.policies", "phoenix.plugin.simulation")
# What the papers' package imports beside it, and why that is no part of the interface.
EXCEPTIONS = {
    (
        "phoenix_papers.thiao.product",
        name,
    ): "it drives the batch core by hand, as no plug-in should: the hosts are the thesis's"
    for name in (
        "phoenix.simulate.journal",
        "services.domain.custody.rules",
        "services.executor.core.overcommit",
        "services.scheduler.core.batch.core",
    )
}
DECLARED = ("msgspec", "matplotlib")


def foreign(importer: str, source: ast.AST) -> list[str]:
    """Modules of ours that it imports and that are not public."""
    found = [node.module or "" for node in ast.walk(source) if isinstance(node, ast.ImportFrom) and not node.level]
    found += [alias.name for node in ast.walk(source) if isinstance(node, ast.Import) for alias in node.names]
    ours = (name for name in found if name.split(".")[0] in OURS and name not in PUBLIC)
    return [name for name in ours if (importer, name) not in EXCEPTIONS]


def test_the_papers_package_imports_what_is_public() -> None:
    wrong = {module(path): bad for path in sources("phoenix_papers") if (bad := foreign(module(path), tree(path)))}
    assert wrong == {}


def test_the_exceptions_are_needed() -> None:
    taken = {(module(path), name) for path in sources("phoenix_papers") for name in imports(tree(path))}
    assert [pair for pair in EXCEPTIONS if pair not in taken] == []


def test_beside_it_there_is_the_standard_library_and_what_is_declared() -> None:
    tops = {name.split(".")[0] for path in sources("phoenix_papers") for name in imports(tree(path)) if name}
    assert tops - {*OURS, "phoenix_papers", *DECLARED} <= sys.stdlib_module_names
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert all(any(one.startswith(name) for one in dependencies) for name in DECLARED)


@pytest.mark.parametrize(
    "code", ["import services", "from schemas.config import Leases", "from phoenix.simulate import swf"]
)
def test_this_test_sees_a_wrong_import(code: str) -> None:
    assert foreign("phoenix_papers.region", ast.parse(code)) != []


def test_nothing_of_the_product_imports_the_papers_package() -> None:
    product = sources("schemas", "services", "phoenix")
    wrong = {str(path) for path in product for name in imports(tree(path)) if name.split(".")[0] == "phoenix_papers"}
    assert wrong == set()


@pytest.mark.parametrize("public", [plugin, policies, simulation], ids=lambda public: public.__name__)
def test_what_is_promised_is_there_and_nothing_else_is(public: object) -> None:
    promised = vars(public)["__all__"]
    assert len(promised) == len(set(promised))
    imported = {
        alias.asname or alias.name
        for node in ast.parse(Path(vars(public)["__file__"]).read_text()).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert set(promised) == imported


def test_what_is_installed_is_what_is_declared() -> None:
    """Otherwise these tests would be about another version's entry points: `make setup`."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    for group, points in declared.items():
        installed = importlib.metadata.entry_points(group=group)
        found = {one.name: one.value for one in installed if one.dist and one.dist.name == "phoenix-cloud"}
        assert found == points


def test_each_of_its_entry_points_can_be_loaded_and_has_its_module() -> None:
    kinds = tuple(plugins.GROUPS)
    mine = [one for one in plugins.installed(kinds) if one.distribution == "phoenix-cloud"]
    assert {one.kind for one in mine} >= {"experiment"}
    for one in mine:
        loaded = plugins.load(one)
        if one.kind == "experiment":
            found = importlib.import_module(loaded.policy.module)
            assert all(hasattr(found, name) for name in ("HELP", "add_arguments", "run"))


NIGHTS = """from phoenix.plugin import Experiment

API = {version}
HELP = "what a cluster does at night"
NIGHTS = Experiment(HELP, "acme_nights")


def add_arguments(parser):
    parser.add_argument("--moon", action="store_true")


def run(args):
    print("moonlit" if args.moon else "dark")
    return 0
"""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Path]:
    """For packages; which experiments there are is asked anew, before and after."""
    experiments.experiments.cache_clear()
    with packages(tmp_path / "site") as where:
        yield where
    experiments.experiments.cache_clear()


def test_an_experiment_of_another_package_is_run_by_its_name(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install(site, "nights", NIGHTS.format(version=1), kind="experiment", target="NIGHTS")
    assert main(["simulate", "nights", "--moon"]) == 0
    assert capsys.readouterr().out == "moonlit\n"
    assert "  nights               what a cluster does at night" in simulate.help_text()


def test_one_for_another_version_is_refused_and_says_so(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install(site, "nights", NIGHTS.format(version=2), kind="experiment", target="NIGHTS")
    assert main(["simulate", "nights"]) == 2
    said = capsys.readouterr().err
    assert (
        "experiment 'nights' is of acme-nights 1.2, and acme_nights was written for version 2 of phoenix.plugin" in said
    )
    assert "nights" not in simulate.help_text()
    assert "svmsched" in simulate.help_text()
