"""Every policy is described, and docs/reference/policies.md and scaling.md have the same ones, with the same default."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from phoenix import policies
from phoenix.policies import Described, described
from schemas.config import BatchPolicy, WebPolicy
from services.runtime.plugins import KINDS
from services.scheduler.core.policies import registry

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
TEXT = (REFERENCE / "policies.md").read_text()
SCALING = (REFERENCE / "scaling.md").read_text()
OURS = [policy for policy in described() if policy.package == "phoenix-cloud"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_configuration_names_is_described_and_known(kind: str) -> None:
    names = sorted(policy.name for policy in OURS if policy.kind == kind)
    assert names == sorted(policies.names(kind))  # type: ignore[arg-type]
    tables = {"order": registry.ORDERS, "victims": registry.VICTIMS, "scaling": registry.RULES}
    assert [name for name in names if name not in tables[kind]] == (["multi-factor"] if kind == "order" else [])


@pytest.mark.parametrize("policy", OURS, ids=lambda policy: policy.name)
def test_each_says_in_a_line_what_it_does_and_where_it_is_from(policy: Described) -> None:
    assert 20 < len(policy.about) <= 200
    assert policy.about.endswith((".", '"'))
    assert len(policy.source) > 10, "a paragraph of the module's docstring should begin with Source:"
    assert policy.source not in policy.about


def test_settings_are_those_of_the_configuration() -> None:
    for entry in registry.ENTRIES:
        fields = WebPolicy() if entry.kind == "scaling" else BatchPolicy()
        assert all(hasattr(fields, key) for key in entry.settings)
    shown = {policy.name: {s.key: s.default for s in policy.settings} for policy in OURS}
    assert shown["multi-factor"]["multi_factor.backfill"] == '"easy"'
    assert shown["threshold"] == {"threshold": "0.8", "window_s": "20.0"}
    assert shown["fcfs"] == {}
    assert shown["conservative"] == {"reservations_max": "100"}


@pytest.mark.parametrize("policy", [p for p in OURS if p.kind != "scaling"], ids=lambda policy: policy.name)
def test_the_document_has_a_row_for_each(policy: Described) -> None:
    default = BatchPolicy().order if policy.kind == "order" else BatchPolicy().victims
    word = " (default)" if policy.name == default else ""
    assert f"\n| `{policy.name}`{word} |" in TEXT


def test_the_document_has_each_rule_and_no_policy_that_is_not() -> None:
    for name in policies.names("scaling"):
        assert re.search(rf"^`{name}`", SCALING, re.M)
    for head, kind in (("| `order` |", "order"), ("| `victims` |", "victims")):
        table = TEXT[TEXT.index(head) :].split("\n\n", 1)[0]
        assert sorted(re.findall(r"^\| `([a-z-]+)`", table.split("\n", 2)[2], re.M)) == sorted(policies.names(kind))  # type: ignore[arg-type]
