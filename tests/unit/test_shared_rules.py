"""Small rules that several services share, as tables: what each says of the cases at its bounds."""

from __future__ import annotations

from typing import Any

import pytest

from schemas import facts, releases, signals
from schemas import facts as f
from schemas import reasons as because
from schemas.config import BatchPolicy, CloudConfig, Department, Policy, User, WebPolicy
from schemas.facts_instances import InstanceReported
from schemas.requests import Malformed
from services.admission.core.rollouts import COMPLETE_MAX, Wanted, configured, follow, lasting
from services.domain import capabilities, leases, observed, readiness, saving
from services.domain.capabilities import ALL
from services.domain.custody.broken import why_broken
from services.domain.custody.checkpoints import counts
from services.domain.custody.state import Broken, Unit
from services.domain.readiness import GUEST, Unready

# --------------------------------------------------------------------------------------------------------------- readiness


def word(state: Any, user: str = "lb", unit: str = "web.1", by: Any = "user", why: str = "") -> InstanceReported:
    return InstanceReported(unit=unit, attempt=1, state=state, user=user, by=by, why=why)


def heard(*words: tuple[float, InstanceReported]) -> readiness.Readiness:
    book: readiness.Readiness = {}
    for at, one in words:
        assert readiness.reported(book, one, at, 8.0)
    return book


def test_the_last_word_of_each_watcher_counts_since_its_first() -> None:
    book = heard(
        (1.0, word("unready", why="503")), (3.0, word("unready", why="500")), (2.0, word("unready", "other", why="x"))
    )
    assert book == {"web.1": {"lb": Unready(1.0, "500"), "other": Unready(2.0, "x")}}
    assert heard((1.0, word("unready")), (2.0, word("ready"))) == {}
    assert heard((1.0, word("unready")), (2.0, word("ready")), (3.0, word("unready"))) == {
        "web.1": {"lb": Unready(3.0, "")}
    }
    assert heard((1.0, word("unready")), (2.0, word("ready", "other"))) == {"web.1": {"lb": Unready(1.0, "")}}
    assert heard((1.0, word("ready"))) == {}


def test_what_is_no_word_on_readiness() -> None:
    book = heard((1.0, word("unready")))
    before = {**book}
    for state in ("drained", "ended"):
        assert not readiness.reported(book, word(state), 2.0, 8.0)
    assert book == before
    readiness.began(book, "web.2")
    assert book == before
    readiness.began(book, "web.1")
    assert book == {}


def test_in_old_journals_any_load_balancer_took_it_back() -> None:
    assert heard((10.0, word("unreachable", "a"))) == {"web.1": {"*": Unready(2.0, "")}}
    assert heard((10.0, word("unreachable", "a")), (11.0, word("reachable", "b"))) == {}


def test_since_when_and_with_which_answer() -> None:
    both = {"b": Unready(3.0, "late"), "c": Unready(1.0, "first"), "a": Unready(1.0, "by name")}
    assert (readiness.since(both), readiness.answer(both)) == (1.0, "by name")
    assert readiness.answer({**both, GUEST: Unready(9.0, "the guest's")}) == "the guest's"
    assert [readiness.watcher(word("ready", by=by)) for by in ("guest", "user")] == [GUEST, "lb"]


# ------------------------------------------------------------------------------------------------------- hosts and machines


@pytest.mark.parametrize(
    ("wish", "needs"),
    [
        ("suspend", [{"suspend", "resume_elsewhere"}]),
        ("migrate", [{"suspend", "resume_elsewhere"}, {"live_migration"}]),
        ("kill", [set()]),
        ("requeue", [set()]),
        ("paint", []),
    ],
)
def test_what_a_wish_on_reclaim_needs(wish: str, needs: list[set[str]]) -> None:
    for number in range(1 << len(ALL)):
        have = tuple(one for bit, one in enumerate(ALL) if number >> bit & 1)
        assert capabilities.can(have, wish) == any(need <= set(have) for need in needs)


def test_how_long_saving_may_take() -> None:
    departments = (
        Department(name="own", kind="batch", batch=BatchPolicy(save_s=0.0)),
        Department(name="hpc", kind="batch", batch=BatchPolicy()),
        Department(name="web", kind="web"),
    )
    config = CloudConfig(name="c", policy=Policy(save_s=7.0), departments=departments)
    assert [saving.save_s(config, dept) for dept in ("own", "hpc", "web", "nobody")] == [0.0, 7.0, 7.0, 7.0]
    assert saving.save_s(None, "own") == Policy().save_s


def placed(**kw: Any) -> f.UnitPlaced:
    return f.UnitPlaced(unit="1", attempt=2, hosts=("h1", "h2"), cores=1, memory_mb=1, **kw)


@pytest.mark.parametrize(
    ("fact", "hosts"),
    [
        (f.HostCleared(host="h1"), ("h1",)),
        (f.HostLost(host="h1", reason="r"), ("h1",)),
        (f.HostRemoved(host="h1"), ("h1",)),
        (f.HostCordoned(host="h1", reason="r", user="o"), ()),
        (placed(), ()),
        (placed(reason=because.Resumes(from_hosts=["h3"])), ()),
        (placed(moved_from=("h3", "h4")), ("h1", "h2", "h3", "h4")),
    ],
)
def test_of_which_hosts_nothing_is_known_any_more(fact: f.Fact, hosts: tuple[str, ...]) -> None:
    assert observed.worthless(fact) == hosts


def test_every_way_of_breaking_has_its_reason() -> None:
    codes = [type(why_broken(broken)) for broken in Broken]
    assert codes == [because.Reclaimed, because.HostTaken, because.LostHost, because.EndedVm, because.NotSaved]


# ------------------------------------------------------------------------------------------------------------------ leases


def batch(order: Any = "leases", **kw: Any) -> Department:
    return Department(name="hpc", kind="batch", batch=BatchPolicy(order=order), **kw)


def test_one_order_of_batch_departments_keeps_times() -> None:
    departments = [
        None,
        batch(),
        batch("first-fit"),
        Department(name="hpc", kind="batch"),
        Department(name="w", kind="web"),
    ]
    assert [leases.keeps_times(department) for department in departments] == [False, True, False, False, False]
    web = Department(name="w", kind="web", batch=BatchPolicy(order="leases"))
    assert not leases.keeps_times(web)
    assert [leases.order_of(one) for one in (batch(), Department(name="hpc", kind="batch"))] == [
        "leases",
        BatchPolicy().order,
    ]


@pytest.mark.parametrize(
    ("guarantee", "maximum", "windows", "certain"),
    [
        (3, None, (), (3, None)),
        (3, 8, (), (3, 8)),
        (3, 8, ("Mon 08:00-18:00 guarantee 2 maximum 9",), (2, 8)),
        (3, 8, ("Mon 08:00-18:00 guarantee 4 maximum 7",), (3, 7)),
        (3, None, ("Mon 08:00-18:00 maximum 0", "Tue 08:00-18:00 guarantee 0"), (0, 0)),
        (3, None, ("Mon 08:00-18:00",), (3, None)),
    ],
)
def test_hosts_that_a_department_is_sure_to_have_and_may_hold_at_any_hour(
    guarantee: int, maximum: int | None, windows: tuple[str, ...], certain: tuple[int, int | None]
) -> None:
    assert leases.certain(batch(guarantee=guarantee, maximum=maximum, windows=windows)) == certain


# ------------------------------------------------------------------------------------------------------------- checkpoints


def unit(attempt: int, state: Any = "open", began_at: float | None = None, name: str = "1") -> Unit:
    return Unit(id=name, dept="hpc", state=state, attempt=attempt, began_at=began_at)


@pytest.mark.parametrize(
    ("of", "attempt", "counted"),
    [
        (None, 1, False),
        (unit(1), 1, True),
        (unit(1, began_at=1.0), 1, True),
        (unit(1, "pending"), 1, True),  # it was requeued: what it had saved last is what it goes on from
        (unit(1, "final"), 1, False),
        (unit(1, name="web.1"), 1, False),
        (unit(0, "pending"), 0, False),
        (unit(2), 1, True),  # until the next attempt has begun
        (unit(2, began_at=1.0), 1, False),
        (unit(2, "pending"), 1, False),
        (unit(3), 1, False),
        (unit(1), 0, False),
        (unit(1), 2, False),
        (unit(1), -1, False),
    ],
)
def test_which_checkpoints_count(of: Unit | None, attempt: int, counted: bool) -> None:
    assert counts(of, attempt) is counted


# ------------------------------------------------------------------------------------------------------------ web, signals


@pytest.mark.parametrize(
    ("balancers", "user", "role", "may"),
    [
        ((), "ann", "user", True),
        (("lb",), "lb", "user", True),
        (("lb",), "ann", "user", False),
        (("lb",), "ann", "manager", True),
        (("lb",), "root", "operator", True),
    ],
)
def test_whose_word_counts(balancers: tuple[str, ...], user: str, role: str, may: bool) -> None:
    policy = WebPolicy(balancers=balancers, instances_max=9, claim_max_user=4)
    assert signals.may_tell(policy, user, role) is may
    assert signals.claim_max(policy, role) == (4 if role == "user" else 9)
    assert signals.balancers_of("web", policy) == f"balancers of web: {', '.join(balancers)}"


def test_signals_of_each_instance_may_be_longer_than_the_others() -> None:
    sizes = {name: signals.bytes_max(name) for name in signals.SIGNALS}
    long, short = signals.SESSIONS_BYTES_MAX, signals.BYTES_MAX
    assert sizes == {"cpu": short, "requests": short, "claim": short, "sessions": long, "answers": long}
    payload = b'{"utilisation": 1}'
    assert signals.decode("cpu", payload.ljust(short)) == signals.decode("cpu", payload)
    with pytest.raises(Malformed, match=f"a signal of {short + 1} bytes; at most {short}"):
        signals.decode("cpu", payload.ljust(short + 1))


def test_what_is_no_signal_is_told_by_its_format_and_field() -> None:
    for payload, content_type, form in ((b"{", "", "JSON"), (b"\xc1", "application/msgpack", "MessagePack")):
        with pytest.raises(Malformed, match=f"not one {form} object"):
            signals.decode("cpu", payload, content_type)
    with pytest.raises(Malformed) as wrong:
        signals.decode("answers", b'{"instances": {"web.1": [1, -1]}}')
    assert wrong.value.field == "instances"


def test_how_many_requests_an_instance_is_given_at_a_time() -> None:
    few, many = releases.CONNECTIONS_BUILT_IN, releases.CONNECTIONS_COMMAND
    asked = [(None, ()), (None, ("serve",)), (0, ("serve",)), (7, ())]
    assert [releases.connections(*one) for one in asked] == [few, many, 0, 7]


@pytest.mark.parametrize(
    ("name", "fits"),
    [
        ("", True),
        ("a b.img", True),
        ("é" * 256, True),
        ("a" * 257, False),
        ('a"', False),
        ("a\\", False),
        ("a\n", False),
        ("\x7f", False),
        ("$NAME", False),
    ],
)
def test_names_of_images(name: str, fits: bool) -> None:
    assert releases.image_fits(name) is fits


@pytest.mark.parametrize(
    ("path", "fits"),
    [
        ("/", True),
        ("/a?b=c&d", True),
        ("/" + "a" * 1023, True),
        ("/" + "a" * 1024, False),
        ("", False),
        ("a", False),
        ("/a b", False),
        ("/a\n", False),
    ],
)
def test_paths_of_health(path: str, fits: bool) -> None:
    assert releases.health_path_fits(path) is fits


def asked(number: int) -> f.ReleaseRequested:
    return f.ReleaseRequested(dept="web", release=number, user="w", content=releases.Release())


def said(number: int, state: Any, back_to: int = 0) -> f.ReleaseChanged:
    reason = because.ReleaseComplete(release=number)
    return f.ReleaseChanged(dept="web", release=number, state=state, back_to=back_to, reason=reason)


@pytest.mark.parametrize(
    ("before", "fact", "after"),
    [
        (Wanted(), asked(1), Wanted(release=1)),
        (Wanted(release=1, complete=(1,)), asked(2), Wanted(release=2, complete=(1,))),
        (Wanted(release=1), said(1, "rolling"), Wanted(release=1)),
        (Wanted(release=2, complete=(1,)), said(2, "complete"), Wanted(release=2, complete=(1, 2))),
        (Wanted(release=2, complete=(1, 2)), said(1, "complete"), Wanted(release=2, complete=(2, 1))),
        (Wanted(release=2, complete=(1, 2)), said(2, "rolled_back", 1), Wanted(release=1, complete=(1,))),
        (Wanted(release=3, complete=(1, 2)), said(2, "rolled_back", 1), Wanted(release=3, complete=(1,))),
        (Wanted(release=1, complete=(1,)), said(1, "rolled_back"), Wanted()),
    ],
)
def test_which_release_is_wanted(before: Wanted, fact: Any, after: Wanted) -> None:
    assert follow(before, fact) == after


def test_the_newest_complete_ones_are_remembered() -> None:
    wanted = Wanted()
    for number in range(1, COMPLETE_MAX + 3):
        wanted = follow(wanted, said(number, "complete"))
    assert wanted.complete == tuple(range(3, COMPLETE_MAX + 3))


def test_what_of_a_configured_release_lasts() -> None:
    policy = WebPolicy(
        image="i", command=("serve", "-v"), environment={"A": "b"}, secrets={"K": "s"}, health_path="/up"
    )
    full = configured(policy)
    assert (full.image, full.command, full.environment, full.secrets, full.health_path) == (
        "i",
        ("serve", "-v"),
        {"A": "b"},
        {"K": "s"},
        "/up",
    )
    assert lasting(full) == releases.Release(health_path="/up", command=("serve",))
    assert lasting(configured(WebPolicy())) == releases.Release()


def test_a_configuration_knows_its_departments_by_name() -> None:
    config = CloudConfig(name="c", departments=(batch(), Department(name="web", kind="web")))
    assert [config.department(name) for name in ("hpc", "web", "nobody")] == [*config.departments, None]
    users = (User(name="ann", department="hpc", role="user"), User(name="bob", department="web", role="manager"))
    known = CloudConfig(name="c", departments=(), users=users)
    assert [known.user(name) for name in ("ann", "bob", "nobody")] == [*users, None]


def test_every_lease_but_best_effort_has_a_time_of_its_own() -> None:
    kinds: tuple[Any, ...] = ("advance", "deadline", "immediate", "best-effort")
    assert [f.Lease(kind=kind).local for kind in kinds] == [True, True, True, False]


def test_a_fact_knows_its_kind() -> None:
    assert facts.kind_of(f.HostCleared(host="h1")) == "host.cleared"


@pytest.mark.parametrize(
    ("fact", "writers"),
    [
        (f.DemandChanged(dept="hpc", hosts=1), ["scheduler.hpc", "scheduler.bio"]),
        (f.JobHeld(job="1", user="a"), ["admission"]),
        (f.LeaderStopped(epoch=1), ["scheduler.hpc", "scheduler.bio", "schedulerx", "admission"]),
    ],
)
def test_who_may_write_what(fact: f.Fact, writers: list[str]) -> None:
    every = ("scheduler.hpc", "scheduler.bio", "schedulerx", "admission")
    assert [who for who in every if type(fact) in facts.written_by(who)] == writers
