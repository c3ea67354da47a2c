"""Rolling updates whatever the releases, the load and the hosts do.

W5  Nobody drains for a roll while that leaves fewer in service than wanted, less `max_unavailable`; no more are placed for it
    than wanted, and `max_surge` (asserted by `Watch` at each fact).
W6  Left alone with hosts enough, a department comes to rest: all that is wanted runs one release, and that one was complete;
    or it has stopped, and says so.  Nobody ends on a release that was given up.
W7  Where nobody fails but bad releases, before they are ready, and nobody scales down or cordons, never fewer are in service
    at any moment than wanted, less `max_unavailable`.
W8  Nothing that the core writes is void when nothing is concurrent.
W9  A roll that ends only if hosts come says so, and by which `max_unavailable` it would go on; with that it ends.
W10 Whatever part of their requests releases answer with 5xx: none is given up for it that is no worse than the one before,
    none stays that plainly is, and W7 and W8 hold.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import facts as f
from schemas import reasons as because
from services.scheduler.core.web.release import before
from services.scheduler.lookahead.why_web import why
from tests.support.releases import CRASH_S, Fates, Users, core, deploy, of_releases, said, scale, serving, site, watch
from tests.support.world import World

HOSTS = tuple(f"h{number}" for number in range(1, 13))
FATES = st.sampled_from(("good", "good", "silent", "ends", "crashes"))
READY_S = CRASH_S + 1  # what crashes does so before
BOUNDS = st.sampled_from(((0, 1), (0, 3), (1, 0), (1, 1), (2, 0), (3, 2)))
WHAT = ("deploy", "deploy", "scale", "time", "time", "vm", "lose", "cordon", "drain", "uncordon")
STEPS = st.lists(st.tuples(st.sampled_from(WHAT), st.integers(0, 8), FATES, BOUNDS), min_size=3, max_size=14)


def play(world: World, fates: Fates, what: str, number: int, fate: str, bounds: tuple[int, int]) -> None:
    if what == "deploy":
        fates[world.custody.state.release_last.get("web", 0) + 1] = fate
        deploy(world, max_unavailable=bounds[0], max_surge=bounds[1])
    elif what == "scale":
        scale(world, number)
    elif what == "vm" and serving(world.custody):
        here = serving(world.custody)
        world.end_vm(here[number % len(here)].id)
    elif what == "lose":
        world.lose(HOSTS[number])
    elif what == "cordon":
        world.cordon(HOSTS[number])
    elif what == "drain":
        world.drain(HOSTS[number], None if number % 2 else 5.0)
    elif what == "uncordon":
        world.write("admission", f.HostUncordoned(host=HOSTS[number], reason="repaired", user="root"))
    world.advance(number / 2 if what == "time" else 0.2)


def heal(world: World) -> None:
    """Whole hosts, and time."""
    for name in HOSTS:
        world.write("admission", f.HostUncordoned(host=name, reason="repaired", user="root"))
        if world.custody.state.hosts[name].state == "lost":
            world.write("executor", f.HostCleared(host=name))
    world.advance(300)


@settings(max_examples=25, deadline=None)
@given(STEPS, st.sampled_from((0.0, READY_S)))
def test_a_roll_keeps_its_terms_whatever_happens(
    steps: list[tuple[str, int, str, tuple[int, int]]], min_ready_s: float
) -> None:
    world, fates = site(instances=4, start_failures_max=3, min_ready_s=min_ready_s)
    for step in steps:
        play(world, fates, *step)
    heal(world)
    assert world.voids == []  # W8
    roll, words = core(world).state.roll, said(world)
    assert roll.stage in ("complete", "stopped")  # W6
    if roll.stage == "complete" and watch(world).target:
        assert of_releases(world) == {roll.wanted: watch(world).target}
        given_up = [number for number, state in words if state in ("rolled_back", "stopped")]
        last = max((index for index, word in enumerate(words) if word == (roll.wanted, "complete")), default=-1)
        assert roll.wanted not in given_up or (roll.wanted, "rolled_back") not in words[last:]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(BOUNDS, FATES, st.integers(1, 12)), min_size=1, max_size=4))
def test_without_faults_no_fewer_serve_than_the_terms_say(deploys: list[tuple[tuple[int, int], str, int]]) -> None:
    world, fates = site(instances=4, start_failures_max=3, min_ready_s=READY_S)
    watch(world).fewest = 4
    for bounds, fate, pause in deploys:
        fates[world.custody.state.release_last.get("web", 0) + 1] = fate
        deploy(world, max_unavailable=bounds[0], max_surge=bounds[1])
        world.advance(pause / 2)
    world.advance(120)
    assert watch(world).fewest >= 4 - max(unavailable for (unavailable, _), _, _ in deploys)  # W7
    assert world.voids == []


@settings(max_examples=25, deadline=None)
@given(st.integers(4, 6), st.integers(0, 3), st.integers(0, 3), BOUNDS)
def test_a_roll_in_want_of_hosts_says_what_helps_and_that_does(
    hosts: int, before: int, meanwhile: int, bounds: tuple[int, int]
) -> None:
    world, _ = site(instances=4, hosts=hosts, min_ready_s=READY_S)
    for name in HOSTS[:before]:
        world.lose(name)
    deploy(world, max_unavailable=bounds[0], max_surge=bounds[1])
    world.advance(1.0)
    for name in HOSTS[before : min(before + meanwhile, hosts - 1)]:
        world.lose(name)
    world.advance(120)
    stuck = [reason for reason in why(core(world), world.now) if type(reason) is because.RollStuck]
    assert (said(world)[-1] == (1, "complete")) is not bool(stuck)  # W9
    if stuck and "helps" in because.fields(stuck[0]):
        deploy(world, max_unavailable=int(because.fields(stuck[0])["helps"]), max_surge=bounds[1])  # type: ignore[arg-type]
        world.advance(120)
        assert said(world)[-1] == (2, "complete")


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(BOUNDS, st.sampled_from((0.0, 0.03, 0.5, 1.0)), st.integers(1, 15)), min_size=1, max_size=4))
def test_what_answers_worse_than_the_one_before_does_not_stay(
    deploys: list[tuple[tuple[int, int], float, int]],
) -> None:
    world, _ = site(instances=4, min_ready_s=READY_S)
    users = Users(world, shares := {0: 0.0})
    watch(world).fewest = 4
    users.ask(5)
    for bounds, share, pause in deploys:
        shares[deploy(world, max_unavailable=bounds[0], max_surge=bounds[1])] = share
        users.ask(pause)
    users.ask(60)
    assert world.voids == []
    assert watch(world).fewest >= 4 - max(unavailable for (unavailable, _), _, _ in deploys)
    for fact in world.facts(f.ReleaseChanged):
        if fact.state == "rolled_back":
            assert type(fact.reason) is because.ReleaseErrors
            assert shares[fact.release] > shares[fact.back_to]
    roll = core(world).state.roll
    assert (roll.stage, of_releases(world)) == ("complete", {roll.wanted: 4})
    back = before(roll)
    if roll.wanted == roll.asked and back is not None and shares[back] < 0.1:
        assert shares[roll.wanted] < 0.1
