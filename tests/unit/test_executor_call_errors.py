"""What goes wrong with OpenNebula: every recorded refusal has a name, every name one outcome, and the docs say the same."""

from __future__ import annotations

import gzip
import http.client
import json
import re
import ssl
from collections import Counter
from pathlib import Path
from typing import Any

import pyone
import pytest

from services.executor.core.call_errors import RULES, Failure, pause_s
from services.executor.core.calls import Outcome
from services.executor.edge.circuit_breaker import FADES_S, TELL_AFTER_S, TELL_AGAIN_S, Endpoint
from services.executor.opennebula.client import _EXCEPTIONS, _decode
from services.executor.opennebula.errors import Faulted, Unreachable, failure_of, unreachable
from services.executor.opennebula.template import TemplateError

ROOT = Path(__file__).resolve().parents[2]
RECORDED = ROOT / "tests/conformance/recordings/calls.jsonl.gz"
NAMED = {
    "003_auth_bad_password": Failure.LOGIN,
    "006_auth_empty_session": Failure.LOGIN,
    "010_unknown_method": Failure.REQUEST,
    "012_wrong_type_string_for_int": Failure.REQUEST,
    "026_deploy_nonexistent_vm": Failure.GONE,
    "168_vm_deploy_bad_host": Failure.GONE,
    "121_vm_allocate_vcpu_zero": Failure.TEMPLATE,
    "122_vm_allocate_long_name": Failure.TEMPLATE,
    "149_vmpool_info_bad_filter": Failure.REQUEST,
    "164_vm_deploy_again": Failure.STATE,
    "170_vm_deploy_image_ds": Failure.OTHER,
    "172_vm_deploy_big_enforce": Failure.CAPACITY,
    "174_vm_deploy_bigmem_enforce": Failure.CAPACITY,
    "180_vm_deploy_offline_host": Failure.STATE,
    "344_migrate_enforce_full": Failure.CAPACITY,
    "538_vm_allocate_bad_image": Failure.TEMPLATE,
    "572_alice_action_other": Failure.PERMISSION,
    "575_alice_vm_allocate": Failure.PERMISSION,
    "577_bob_restricted": Failure.TEMPLATE,
    "580_bob_allocate_over_vms": Failure.QUOTA,
    "582_bob_allocate_over_cpu": Failure.QUOTA,
    "583_bob_allocate_over_mem": Failure.QUOTA,
}


def recorded() -> dict[str, dict[str, Any]]:
    with gzip.open(RECORDED, "rt") as lines:
        cases = (json.loads(line) for line in lines)
        return {case["case"]: case for case in cases if case["response_ok"] is False}


def raised(case: dict[str, Any]) -> Exception:
    code, words = case["error_code"], case["response_body"]
    return Faulted(words, code) if code < 0 else _EXCEPTIONS.get(code, pyone.OneException)(words)


def test_every_recorded_refusal_has_the_name_that_is_expected() -> None:
    cases = recorded()
    assert {name: failure_of(raised(cases[name])) for name in NAMED} == NAMED
    names = Counter(failure_of(raised(case)) for case in cases.values())
    assert not names.keys() & {f for f, rule in RULES.items() if rule.outcome is Outcome.UNSURE}, "they did not happen"


def test_every_failure_has_a_rule_and_what_is_not_sure_is_never_taken_for_refused() -> None:
    assert set(RULES) == set(Failure)
    for failure, rule in RULES.items():
        assert 0 < rule.first_s < rule.most_s <= 30.0
        assert rule.away == (rule.outcome in (Outcome.UNSURE, Outcome.DENIED)), failure
        assert pause_s(failure, 1) == rule.first_s
        assert pause_s(failure, 50) == rule.most_s
    assert pause_s(None, 50) == 5.0


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (ConnectionRefusedError(111, "Connection refused"), Failure.REFUSED),
        (OSError(113, "No route to host"), Failure.REFUSED),
        (TimeoutError("timed out"), Failure.TIMEOUT),
        (ConnectionResetError(104, "reset"), Failure.BROKEN),
        (http.client.RemoteDisconnected("closed"), Failure.BROKEN),
        (http.client.IncompleteRead(b"x", 10), Failure.MALFORMED),
        (http.client.BadStatusLine("SSH-2.0"), Failure.MALFORMED),
        (ssl.SSLError("wrong version number"), Failure.TLS),
    ],
)
def test_an_error_of_the_transport_has_a_name(error: Exception, failure: Failure) -> None:
    assert failure_of(unreachable(error)) is failure


def test_faults_tell_whether_they_were_understood() -> None:
    with pytest.raises(Faulted) as refused:
        _decode(recorded_answer("010_unknown_method"))
    assert failure_of(refused.value) is Failure.REQUEST
    with pytest.raises(Faulted) as unknown:
        _decode(recorded_answer("010_unknown_method").replace(b"-506", b"-500"))
    assert failure_of(unknown.value) is Failure.FAULT
    assert failure_of(TemplateError("x")) is Failure.TEMPLATE
    assert failure_of(pyone.OneException("of no kind")) is Failure.OTHER
    with pytest.raises(Unreachable):
        _decode(b"<html><body>Not Found</body></html>")


def recorded_answer(name: str) -> bytes:
    return str(recorded()[name]["response_raw_xml"]).encode()


def test_the_docs_have_the_same_table() -> None:
    text = (ROOT / "docs/reference/opennebula-calls.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| .* \| ([\w, ]+) \| ([\d.]+) to ([\d.]+) s \|$", text, re.MULTILINE)
    told = {kind: (outcome, float(first), float(most)) for kind, outcome, first, most in rows}
    assert told == {
        failure.value: (rule.outcome.value + (", away" if rule.away else ""), rule.first_s, rule.most_s)
        for failure, rule in RULES.items()
    }


# ------------------------------------------------------------------------------------------------------------ the endpoint


class Log:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def warning(self, event: str, **_: object) -> None:
        self.lines.append(event)

    info = warning


class Time:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Time:
    return Time()


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def endpoint(clock: Time, log: Log) -> Endpoint:
    made = Endpoint("http://one:2633/RPC2", Path("/etc/phoenix/one_auth"), log, clock, lambda: 1000.0 + clock.now)  # type: ignore[arg-type]
    made.user = "oneadmin"
    return made


def test_it_is_down_from_the_first_failure_to_the_first_answer(endpoint: Endpoint, clock: Time, log: Log) -> None:
    pauses = []
    for _ in range(8):
        endpoint.failed(Failure.REFUSED, "vm.deploy", "Connection refused")
        pauses.append(endpoint.paused_s())
        clock.now += 1.0
    assert pauses == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0])
    assert endpoint.down_since == 1100.0
    assert endpoint.counts[Failure.REFUSED] == 8
    assert [line[:45] for line in log.lines] == ["nothing accepts connections at http://one:263"]
    endpoint.answered("vmpool.info")
    assert (endpoint.down, endpoint.down_since, endpoint.paused_s()) == (None, 0.0, 0.0)
    assert log.lines[1:] == ["OpenNebula answers again"]


def test_a_refusal_is_an_answer(endpoint: Endpoint) -> None:
    endpoint.failed(Failure.TIMEOUT, "vm.deploy", "timed out")
    endpoint.failed(Failure.CAPACITY, "vm.deploy", "does not fit")
    assert endpoint.down is None
    assert endpoint.paused_s() == 0.0


def test_the_log_is_told_once_a_minute_and_people_only_of_what_lasts(endpoint: Endpoint, clock: Time, log: Log) -> None:
    endpoint.failed(Failure.LOGIN, "vmpool.info", "User couldn't be authenticated")
    assert endpoint.ailing() == []
    for _ in range(int(2 * TELL_AGAIN_S)):
        clock.now += 1.0
        endpoint.failed(Failure.LOGIN, "vmpool.info", "User couldn't be authenticated")
    assert len(log.lines) == 3
    [sentence] = endpoint.ailing()
    assert sentence.startswith(
        "OpenNebula at http://one:2633/RPC2 refuses the login of oneadmin: check [opennebula] auth_file"
    )
    assert endpoint.paused_s() == 30.0
    endpoint.retry_now()
    assert endpoint.paused_s() == 0.0


def test_a_quota_hinders_until_the_same_call_succeeds(endpoint: Endpoint, clock: Time) -> None:
    words = "[one.vm.allocate] User [3] : user [3] limit of 2 reached for VMS quota in VM."
    endpoint.failed(Failure.QUOTA, "vm.allocate", words)
    clock.now += TELL_AFTER_S
    [sentence] = endpoint.ailing()
    assert sentence.startswith(f"OpenNebula's quota for oneadmin is used up: {words}.  Raise it")
    assert endpoint.down is None
    endpoint.answered("vm.deploy")
    assert endpoint.ailing() != []
    clock.now += FADES_S
    assert endpoint.ailing() == [], "nobody has met it for so long"
    endpoint.failed(Failure.QUOTA, "vm.allocate", words)
    clock.now += TELL_AFTER_S
    assert endpoint.ailing() != []
    endpoint.answered("vm.allocate")
    assert endpoint.ailing() == []
