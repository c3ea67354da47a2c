"""The shipped alerts: right by promtool and amtool, on metrics that exist, each with cases, a page and a reason."""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

from phoenix.cli import commands, parser
from tests.support.alert_rules import DEPLOY, ROOT, RUNBOOKS, alerts, unknown
from tests.support.prometheus import hastened
from tests.support.tools import tool

SECTIONS = ["What it means", "How to look", "What to do", "What does not help"]
ALERTS = alerts()
EVENTS = frozenset(  # they tell of what has happened; all others of what is so
    (
        "PhoenixReleaseGivenUp",
        "PhoenixJournalGarbage",
        "PhoenixAuditLost",
        "PhoenixConnectionsRefused",
        "PhoenixVoidFacts",
        "PhoenixStoreCutShort",
    )
)


def run(program: str, *words: str | Path, cwd: Path = DEPLOY) -> tuple[int, str]:
    done = subprocess.run([tool(program), *words], cwd=cwd, capture_output=True, text=True, timeout=200, check=False)
    return done.returncode, done.stdout + done.stderr


def cases(file: str) -> list[tuple[str, str]]:
    """(title, text) of every case of a file of tests."""
    parts = re.split(r'^  - name: "(.*)"$', (DEPLOY / "tests" / file).read_text(), flags=re.MULTILINE)
    return list(zip(parts[1::2], parts[2::2], strict=True))


# --------------------------------------------------------------------------------------------------------------- the rules


def test_prometheus_and_alertmanager_take_the_files() -> None:
    code, said = run("promtool", "check", "config", "prometheus.yml")
    assert code == 0, said
    assert f"SUCCESS: {len(list(DEPLOY.glob('rules/*.yml')))} rule files found" in said
    assert [int(n) for n in re.findall(r"SUCCESS: (\d+) rules found", said)] == [
        sum(alert.file == file.name for alert in ALERTS.values()) for file in sorted(DEPLOY.glob("rules/*.yml"))
    ]
    code, said = run("amtool", "check-config", "alertmanager.yml")
    assert code == 0, said


def test_every_case_holds() -> None:
    code, said = run("promtool", "test", "rules", *sorted(DEPLOY.glob("tests/*.yml")))
    assert code == 0, said


def test_every_alert_has_a_case_that_fires_and_one_that_stays_silent() -> None:
    fires, silent = set(), set()
    for file in DEPLOY.glob("tests/*.yml"):
        for title, text in cases(file.name):
            name = title.partition(":")[0]
            assert set(re.findall(r"alertname: (\w+)", text)) == {name}, title
            (fires if "exp_labels" in text else silent).add(name)
            assert ("silent" not in title) == ("exp_labels" in text), title
    assert fires == silent == set(ALERTS)


def _other_numbers(text: str) -> str:
    """Every number with which a rule compares lets a little more through."""

    def other(found: re.Match[str]) -> str:
        sign, number = found[1], float(found[2])
        return f"{sign} {number * 1.4 if sign == '<' else number * 0.7 - 0.4 * (number == 0):g}"

    return re.sub(r"(>=|>|<|==) (\d+(?:\.\d+)?)(?= # seconds|\n|\))", other, text)


def _other_times(text: str) -> str:
    return re.sub(r"^(        for: )(\d+)([sm])$", lambda f: f"{f[1]}{int(f[2]) * 2}{f[3]}", text, flags=re.MULTILINE)


@pytest.mark.parametrize("mutate", [_other_numbers, _other_times])
def test_another_number_in_any_rule_would_be_noticed(mutate: Callable[[str], str], tmp_path: Path) -> None:
    """Each alert alone with its cases, which name no other: the whole file for each case would take three times as long."""
    titled = [case for file in sorted(DEPLOY.glob("tests/*.yml")) for case in cases(file.name)]
    for name, alert in ALERTS.items():
        (tmp_path / f"{name}.rules").write_text(
            f"groups:\n  - name: g\n    rules:\n      - alert: {mutate(alert.text)}"
        )
        own = "".join(f'  - name: "{title}"{text}' for title, text in titled if title.partition(":")[0] == name)
        head = f"rule_files: [{name}.rules]\nevaluation_interval: 15s\ntests:\n"
        (tmp_path / f"{name}.yml").write_text(head + own)
    changed = {name for name, alert in ALERTS.items() if mutate is _other_numbers or alert.lasting}
    changed -= {"PhoenixNotScraped"} if mutate is _other_numbers else set()  # absent: there is no number
    _, said = run("promtool", "test", "rules", *sorted(tmp_path.glob("*.yml")))
    noticed = set(re.findall(r"alertname: (\w+), time", said))
    assert noticed == changed, (
        f"no case of {', '.join(sorted(changed - noticed))} lies at the bound: with another number or time of the rule "
        "all cases still pass (CONTRIBUTING.md, An alert)"
    )


# ------------------------------------------------------------------------------------------------------------ how they are


@pytest.mark.parametrize("alert", ALERTS.values(), ids=ALERTS)
def test_an_alert_is_written_as_the_document_says(alert: object) -> None:
    assert isinstance(alert, tuple)
    name, _, expr, lasting, severity, why, text = alert
    assert re.fullmatch(r"Phoenix[A-Za-z]+", name)
    assert severity in ("critical", "warning")
    assert unknown(expr) == []
    for key in ("summary", "description", "runbook_url"):
        assert re.search(rf"^          {key}: \S", text, flags=re.MULTILINE), key
    assert f"runbook_url: docs/runbooks/{name}.md" in text
    assert lasting or name in EVENTS or "# seconds" in expr, "no `for`: name it in EVENTS above, or mark its time"
    assert why, "the time, or the number, has no reason above it"
    assert not lasting or lasting in why or "as above" in why, "the reason is of another time"


def test_a_level_is_read_over_a_restart() -> None:
    """Rule 1 of docs/reference/alerts.md."""
    for alert in ALERTS.values():
        for bare in re.findall(r"(?<![\w(])phoenix_\w+(?:\{[^}]*\})?(?!\[|[\w{])", alert.expr):
            assert "or up{" in alert.expr, f"{alert.name}: {bare} has no range, and is not of the present"


def test_an_alert_names_nobody_who_said_it() -> None:
    """Rule 3: labels are those of the aggregation; two processes that say the same are one alert."""
    for alert in ALERTS.values():
        kept = {label for labels in re.findall(r" by \(([^)]*)\)", alert.expr) for label in labels.split(", ")}
        assert "cloud" in kept or alert.name == "PhoenixNotScraped", alert.name
        assert "instance" not in kept or "haproxy" in alert.expr, alert.name


def test_what_inhibits_and_what_is_inhibited_exist() -> None:
    text = (DEPLOY / "alertmanager.yml").read_text()
    named = {name for names in re.findall(r'alertname =~? "([^"]+)"', text) for name in names.split("|")}
    assert named <= set(ALERTS)
    assert set(re.findall(r'severity = "(\w+)"', text)) <= {"critical", "warning"}


def test_hastened_changes_times_and_nothing_else() -> None:
    rule = "for: 1m\ngroup_wait: 15s # 10m\nmax_over_time(a[90s]) > 60 # seconds\nb > 20\nrepeat_interval: 4h\n"
    done = "for: 1000ms\ngroup_wait: 250ms # 10m\nmax_over_time(a[1500ms]) > 1 # seconds\nb > 20\nrepeat_interval: 240000ms\n"
    assert hastened(rule, 60) == done


# --------------------------------------------------------------------------------------------------------------- the pages


def test_every_alert_has_its_row_and_its_page() -> None:
    text = (ROOT / "docs" / "reference" / "alerts.md").read_text()
    rows = re.findall(r"^\| \[(\w+)\]\(\.\./runbooks/\1\.md\) \| (\w+) \| ([\w ]+) \| ", text, flags=re.MULTILINE)
    assert {name: (severity, lasting) for name, severity, lasting in rows} == {
        a.name: (a.severity, a.lasting or ("itself" if "# seconds" in a.expr else "at once")) for a in ALERTS.values()
    }
    assert {page.stem for page in RUNBOOKS.glob("*.md")} == set(ALERTS)


@pytest.mark.parametrize("name", ALERTS)
def test_a_page_says_what_it_means_how_to_look_what_to_do_and_what_does_not_help(name: str) -> None:
    text = (RUNBOOKS / f"{name}.md").read_text()
    assert text.startswith(f"# {name}\n\n{ALERTS[name].severity} · [rules/{ALERTS[name].file}](")
    assert re.findall(r"^## (.*)$", text, flags=re.MULTILINE) == SECTIONS
    assert all(part.strip() for part in re.split(r"^## .*$", text, flags=re.MULTILINE)[1:])
    assert unknown(text) == []


def test_every_command_of_a_page_is_one() -> None:
    """As the command line's own parser takes it: names of the README's cloud stand for whatever there is."""
    count = 0
    for page in sorted(RUNBOOKS.glob("*.md")):
        text = page.read_text()
        lines = re.findall(r"^    phoenix (.*)$", text, flags=re.MULTILINE)
        for line in (*lines, *re.findall(r"`phoenix ([^`]*)`", text)):
            words = shlex.split(line, comments=True)
            if words[0] in commands.BY_NAME and len(words) == 1 and line not in lines:
                continue  # the command as such
            module = import_module(f"phoenix.cli.{words[0]}")
            made = parser.make(words[0], module.HELP)
            module.add_arguments(made)
            assert isinstance(made.parse_args(words[1:]), argparse.Namespace), f"{page.name}: {line}"
            verbs = commands.BY_NAME[words[0]].verbs
            assert not verbs or len(words) == 1 or words[1].startswith("-") or words[1] in verbs, f"{page.name}: {line}"
            count += 1
    assert count > len(ALERTS)


def test_every_query_of_a_page_is_one(tmp_path: Path) -> None:
    """As promtool takes it, in the place of a rule."""
    queries = [
        query.split("   #")[0].strip()
        for page in sorted(RUNBOOKS.glob("*.md"))
        for block in re.findall(r"^```promql\n(.*?)^```$", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        for query in block.splitlines()
    ]
    assert len(queries) > len(ALERTS)
    rules = "".join(f"      - {{record: 'q:{n}', expr: '{query}'}}\n" for n, query in enumerate(queries))
    (tmp_path / "queries.yml").write_text(f"groups:\n  - name: pages\n    rules:\n{rules}")
    code, said = run("promtool", "check", "rules", "queries.yml", cwd=tmp_path)
    assert code == 0, said
