"""What the monitor tells of a web department's load, and that nobody tells it."""

from __future__ import annotations

from typing import Any

import msgspec
from prometheus_client import CollectorRegistry, generate_latest

from schemas import facts as f
from schemas import reasons as because
from schemas.config import CloudConfig, Department, WebPolicy
from services.monitor.metrics.collect import ReadModel
from tests.support.closing import closing
from tests.unit.test_custody_rules import Step
from tests.unit.test_monitor_core import ADOPTED, Desk


def observed(start: float, end: float, **fields: Any) -> Step:
    return "scheduler.web", f.LoadObserved(dept="web", start=start, end=end, samples=1, **fields)


def wants(instances: int, code: because.Kind) -> Step:
    return "scheduler.web", f.DemandChanged(dept="web", hosts=1, instances=instances, reason=code())


def view(desk: Desk) -> tuple[Any, ...]:
    found = desk.views.department("web")
    return tuple(found[key] for key in ("utilisation", "requests_per_s", "claim", "signal_at"))


def test_load_is_shown_as_it_was_told() -> None:
    desk = Desk().play(ADOPTED, observed(1, 2, utilisation=0.5, claim=3))
    assert view(desk) == (0.5, None, 3, "1970-01-01T00:00:02.000Z")
    desk.play(observed(3, 3, claim=5))  # a moment: claims alone, the load stays
    assert view(desk) == (0.5, None, 5, "1970-01-01T00:00:03.000Z")
    desk.play(observed(3, 4, requests_per_s=400.0))
    assert view(desk) == (None, 400.0, None, "1970-01-01T00:00:04.000Z")
    fresh = Desk().play(ADOPTED, observed(3, 3, claim=5))
    assert view(fresh) == (None, None, 5, "1970-01-01T00:00:03.000Z")


def test_errors_are_shown_as_they_were_observed() -> None:
    def shown(desk: Desk) -> object:
        return desk.views.department("web")["errors_ratio"]

    desk = Desk().play(ADOPTED)
    assert shown(desk) is None
    answers = (f.Answers(release=2, answered=30, errors=30), f.Answers(release=1, answered=90, errors=0))
    desk.play(observed(1, 2, utilisation=0.5, answers=answers, answers_s=1.0))
    assert shown(desk) == 0.25
    desk.play(observed(2, 2, claim=3))
    assert shown(desk) == 0.25
    desk.play(observed(2, 3, utilisation=0.5))  # without errors nothing is told
    assert shown(desk) == 0.0


def test_a_number_that_is_held_for_want_of_a_signal_is_an_alert_until_it_is_not() -> None:
    desk = Desk().play(ADOPTED, observed(0, 1, requests_per_s=400.0, claim=2), wants(2, because.UtilisationHigh))
    registry = CollectorRegistry()
    registry.register(ReadModel(desk.core, desk.views, lambda: 10.0))

    def missing() -> tuple[str | None, str]:
        told = generate_latest(registry).decode()
        assert 'phoenix_web_requests_per_second{department="web"} 400.0' in told
        assert 'phoenix_web_instances_claimed{department="web"} 2.0' in told
        (line,) = [line for line in told.splitlines() if line.startswith("phoenix_web_signal_missing{")]
        return desk.views.department("web")["signal_missing_since"], line.rpartition(" ")[2]

    assert missing() == (None, "0.0")
    desk.play(wants(2, because.SignalMissing))
    since = "1970-01-01T00:00:01.000Z"  # when somebody said it last
    assert missing() == (since, "1.0")
    desk.play(wants(4, because.ScaledByPerson), wants(4, because.SignalMissing))  # another number ends no silence
    assert missing() == (since, "1.0")
    desk.play(wants(4, because.RoomBeside))  # nor do hosts beside them
    assert missing() == (since, "1.0")
    desk.play(wants(2, because.UtilisationSteady))
    assert missing() == (None, "0.0")


def silence(*steps: Step, cloud: CloudConfig | None = None) -> Any:
    adopted = ADOPTED if cloud is None else ("provisioner", msgspec.structs.replace(ADOPTED[1], config=cloud))
    desk = Desk().play(adopted, *steps, wants(2, because.SignalMissing))
    first = desk.views.department("web")["signal_missing_since"]
    desk.play(wants(3, because.ScaledByPerson), wants(3, because.SignalMissing))
    assert desk.views.department("web")["signal_missing_since"] == first
    desk.core.load(desk.core.dump())
    return desk.core.state.loads.silent["web"]


def test_silence_begins_with_the_last_word_of_the_load_as_why_tells_it() -> None:
    assert silence(observed(0, 1, utilisation=0.5), observed(2, 2, claim=3)) == 1.0  # a claim is no load
    assert (
        silence(observed(0, 1, utilisation=0.5), observed(1, 2, requests_per_s=7.0)) == 1.0
    )  # nor a rate without a target
    assert (
        silence(observed(0, 1, utilisation=0.5), observed(1, 2, requests_per_s=7.0, requests_per_instance=5.0)) == 2.0
    )
    counts = CloudConfig(
        name="c", departments=(Department(name="web", kind="web", web=WebPolicy(requests_per_instance=5.0)),)
    )
    assert silence(observed(0, 1, utilisation=0.5), observed(1, 2, requests_per_s=7.0), cloud=counts) == 2.0
    assert silence(observed(0, 9, utilisation=0.5)) == 2.0  # of a clock that is ahead: when it was journaled
    assert silence(observed(2, 2, claim=3)) == 2.0  # nobody ever told load
    assert silence() == 2.0  # nobody ever said anything: when that was missed first


def test_a_department_that_is_gone_misses_no_signal() -> None:
    desk = Desk().play(ADOPTED, observed(0, 1, utilisation=0.5), wants(2, because.SignalMissing))
    desk.play(*closing(desk.core.custody, "web"))
    assert (desk.core.state.loads.silent, desk.core.state.loads.last) == ({}, {})
