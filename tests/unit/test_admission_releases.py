"""Releases at the door: who may deploy, what a request makes of what runs, and which number it gets."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from schemas import facts as f
from schemas import reasons as because
from schemas import requests as r
from schemas.config import CloudConfig, Department, User, WebPolicy
from schemas.releases import CONTENT_MAX_BYTES, Release
from services.admission.commands import releases
from services.admission.commands.compose import Caller
from services.domain.custody.meta import Void
from services.domain.refusal import Refused
from tests.support.admission import ANN, MIA, ROOT, WAL, WIM, Fold, fold


def shop(**policy: Any) -> Fold:
    world = Fold()
    web = WebPolicy(image="shop-0", command=("serve",), environment={"A": "0"}, secrets={"KEY": "shop-key"}, **policy)
    users = tuple(User(name=c.user, department=c.department, role=c.role) for c in (WAL, WIM, ROOT))
    world.adopt(CloudConfig(name="t", departments=(Department(name="web", kind="web", web=web),), users=users))
    return world


def ask(world: Fold, caller: Caller = WIM, drafted: tuple[f.Fact, ...] = (), **asked: Any) -> f.ReleaseRequested:
    request = r.decode("release.deploy", msgspec.json.encode(asked))
    return releases.deploy(world.core, caller, "web", request, releases.digest("web", request), drafted)


def deploy(world: Fold, **asked: Any) -> Release:
    fact = ask(world, **asked)
    assert world.put(fact) is None
    return fact.content


def say(world: Fold, release: int, state: Any, back_to: int = 0) -> None:
    told = because.ReleaseComplete(release=release)
    fact = f.ReleaseChanged(dept="web", release=release, state=state, back_to=back_to, reason=told)
    assert world.put(fact, writer="scheduler.web") is None


def refused(world: Fold, caller: Caller = WIM, **asked: Any) -> tuple[str, str | None]:
    with pytest.raises(Refused) as error:
        ask(world, caller, **asked)
    return error.value.code, error.value.field


def test_what_is_not_named_is_as_in_the_release_before() -> None:
    world = shop()
    first = deploy(world, image="shop-1", environment={"B": "1"})
    assert first == Release(
        image="shop-1", command=("serve",), environment={"A": "0", "B": "1"}, secrets={"KEY": "shop-key"}
    )
    second = deploy(world, command=["serve", "-v"], environment={"A": None}, health_path="/up")
    assert second == Release(
        image="shop-1",
        command=("serve", "-v"),
        environment={"B": "1"},
        secrets={"KEY": "shop-key"},
        health_path="/up",
    )
    assert deploy(world) == second  # the same anew: all instances are replaced
    assert deploy(world, configured=True, image="shop-9") == msgspec.structs.replace(
        releases.configured(world.custody.state.config.departments[0].web), image="shop-9"
    )
    assert list(world.custody.state.releases["web"]) == [1, 2, 3, 4]


def test_the_answer_has_when_the_release_is_given_up() -> None:
    world = shop(start_failures_max=2, boot_timeout_s=90.0)
    told = releases.deployed(world.core, "web", 4, "it takes 1 host")
    assert told == r.Deployed(release=4, warning="it takes 1 host", start_failures_max=2, boot_timeout_s=90.0)


def test_a_variable_has_one_source() -> None:
    world = shop()
    moved = deploy(world, environment={"KEY": "plain"}, secrets={"A": "a-key"})
    assert (moved.environment, moved.secrets) == ({"KEY": "plain"}, {"A": "a-key"})
    assert deploy(world, secrets={"A": None}).secrets == {}


def test_after_a_roll_back_the_one_gone_back_to_is_what_is_changed() -> None:
    world = shop()
    deploy(world, image="shop-1")
    say(world, 1, "complete")
    deploy(world, image="shop-2", environment={"BAD": "1"})
    say(world, 2, "rolled_back", back_to=1)
    assert deploy(world, environment={"C": "3"}).image == "shop-1"
    deploy(world, image="shop-4")
    say(world, 3, "rolled_back", back_to=1)  # told late: 4 is what is wanted
    assert ask(world).content.image == "shop-4"


def test_undo_is_the_last_complete_release_before_as_a_new_one() -> None:
    world = shop()
    assert refused(world, undo=True) == ("conflict", "undo")
    deploy(world, image="shop-1")
    assert ask(world, undo=True).content.image == "shop-0"  # the configuration's: nothing else was complete
    say(world, 1, "complete")
    deploy(world, image="shop-2")
    assert ask(world, undo=True).content.image == "shop-1"  # while 2 rolls
    say(world, 2, "complete")
    undone = ask(world, undo=True, environment={"WHY": "undone"})
    assert (undone.release, undone.content.image, undone.content.environment["WHY"]) == (3, "shop-1", "undone")
    world.put(undone)
    say(world, 3, "complete")
    assert ask(world, undo=True).content.image == "shop-2"


def test_numbers_grow_also_within_one_envelope() -> None:
    world = shop()
    first = ask(world, image="one")
    second = ask(world, drafted=(first,), environment={"B": "2"})
    assert (first.release, second.release, second.content.image) == (1, 2, "one")
    assert ask(world, drafted=(first, second), undo=True).content.image == "shop-0"
    world.put(first)
    assert world.put(first) is Void.RELEASE_NOT_NEWER


def test_bounds_are_the_departments_unless_they_are_named() -> None:
    world = shop(max_unavailable=2, max_surge=0, min_ready_s=7.0)
    fact = ask(world)
    assert (fact.max_unavailable, fact.max_surge, fact.min_ready_s, fact.user) == (2, 0, 7.0, "wim")
    fact = ask(world, max_unavailable=0, max_surge=3, min_ready_s=0.0)
    assert (fact.max_unavailable, fact.max_surge, fact.min_ready_s) == (0, 3, 0.0)
    assert refused(world, max_unavailable=0) == ("invalid", "max_surge")


def test_who_may_not() -> None:
    world = fold()
    assert refused(world, WAL) == ("denied", None)
    assert refused(world, ANN) == ("denied", "department")
    assert refused(world, MIA) == ("denied", "department")
    assert ask(world, ROOT).user == "root"


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"image": "a\nb"}, "image"),
        ({"image": 'a"b'}, "image"),
        ({"image": "x" * 257}, "image"),
        ({"health_path": "up"}, "health_path"),
        ({"health_path": "/a b"}, "health_path"),
        ({"health_path": "/up;shutdown"}, "health_path"),  # two commands to HAProxy
        ({"health_path": "/up\n"}, "health_path"),
        ({"health_path": '/"'}, "health_path"),
        ({"health_path": "/$HOME"}, "health_path"),
        ({"health_path": "/\\"}, "health_path"),
        ({"health_path": "/\u00fc"}, "health_path"),
        ({"health_path": "/" * 1025}, "health_path"),
        ({"command": ["a\0b"]}, "command"),
        ({"environment": {"A": "\0"}}, "environment"),
        ({"environment": {"A-B": "1"}}, "environment"),
        ({"secrets": {"A": "No Name"}}, "secrets"),
        ({"environment": {"A": "1"}, "secrets": {"A": "a-key"}}, "secrets"),
        ({"configured": True, "undo": True}, "undo"),
        ({"max_surge": -1}, "max_surge"),
    ],
)
def test_what_no_cloud_could_take_is_named(asked: dict[str, Any], field: str) -> None:
    with pytest.raises(r.Malformed) as error:
        r.decode("release.deploy", msgspec.json.encode(asked))
    assert error.value.field == field


def test_what_the_journal_could_not_hold_is_refused() -> None:
    world = shop()
    assert refused(world, environment={"A": "x" * CONTENT_MAX_BYTES}) == ("invalid", "environment")
    odd = WebPolicy(environment={"A-B": "1"})  # as a file may say it
    world.adopt(CloudConfig(name="t", departments=(Department(name="web", kind="web", web=odd),)))
    assert refused(world, ROOT, configured=True) == ("invalid", None)


def test_a_repeated_request_is_answered_the_same() -> None:
    world = shop()
    world.put(ask(world, image="one", request="r1"))
    answered = world.core.answered("wim", "r1")
    assert answered is not None
    assert (answered.job, answered.digest) == ("1", releases.digest("web", r.ReleaseDeploy(image="one", request="r2")))
    assert answered.digest != releases.digest("web", r.ReleaseDeploy(image="two"))
