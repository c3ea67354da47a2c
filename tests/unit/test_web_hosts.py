"""Instances on hosts: who goes, where new ones come, which hosts go back (`scheduler.core.web.hosts`, `.inventory`)."""

from __future__ import annotations

import msgspec
import pytest

from schemas import facts as f
from schemas import reasons as because
from schemas.facts import Disposal
from schemas.size import Size
from services.scheduler.core.state.shape import Shape
from services.scheduler.core.web import hosts as web_hosts
from services.scheduler.core.web.hosts import Picture
from services.scheduler.core.web.inventory import Inventory, too_small
from tests.support.world import World, cloud, web

MEMORY_MB = 1024
SHAPE = Shape(1, Size(1, MEMORY_MB), False)
WHY = because.ScaleDown(instances=1)


class Site:
    """`spec`: hosts by their instances, as ``ssb d -``: two that serve and one that boots, one that drains, an empty host.
    Instances are numbered from 1, hosts are h1, h2, …; a host has room for four."""

    def __init__(self, spec: str, *, most: int = 4, cores: int = 4, memory_mb: int = 4 * MEMORY_MB) -> None:
        self.world = World(cloud(web("web")))
        words = spec.split()
        self.names = self.world.hosts(len(words), cores=cores, memory_mb=memory_mb)
        self.world.grant("web", *self.names)
        number = 0
        for host, word in zip(self.names, words, strict=True):
            for how in word.replace("-", ""):
                number += 1
                self.place(number, host)
                if how in "sd":
                    self.world.begin(f"web.{number}")
                if how == "d":
                    self.drain(number, 100.0 + number)
        self.most = most

    def place(self, number: int, host: str) -> None:
        placed = f.UnitPlaced(unit=f"web.{number}", attempt=1, hosts=(host,), cores=1, memory_mb=MEMORY_MB, reason=WHY)
        self.world.write("scheduler.web", placed)

    def drain(self, number: int, for_s: float) -> None:
        until = self.world.now + for_s
        self.world.write("scheduler.web", f.InstanceDraining(unit=f"web.{number}", attempt=1, until=until, reason=WHY))

    def close(self, number: int) -> None:
        self.world.write(
            "scheduler.web", f.AttemptClosed(unit=f"web.{number}", attempt=1, disposal=Disposal.STOPPED, why=WHY)
        )

    @property
    def held(self) -> Inventory:
        return Inventory.of(self.world.custody, "web", SHAPE, self.most)

    def picture(self, *, gone: str = "", drained: str = "", quiet: str = "") -> Picture:
        def units(numbers: str) -> dict[str, None]:
            return {f"web.{number}": None for number in numbers.split()}

        return Picture(self.held, units(gone), units(drained), {name: i for i, name in enumerate(units(quiet))})


def numbers(names: list[str]) -> str:
    return " ".join(name.removeprefix("web.").removeprefix("h") for name in names)


# ------------------------------------------------------------------------------------------------------------ the picture


@pytest.mark.parametrize(
    ("spec", "gone", "drained", "count", "draining", "idle", "active"),
    [
        ("ssb sd -", "", "", 4, 1, "3", "1 2 3 4"),
        ("ssb sd -", "1", "", 3, 1, "3", "2 3 4"),
        ("ssb sd -", "5", "", 4, 0, "3", "1 2 3 4"),
        ("ssb sd -", "4 5", "", 3, 0, "2 3", "1 2 3"),
        ("ssb sd -", "4", "", 3, 1, "3", "1 2 3"),
        ("ssb sd -", "", "4", 3, 2, "3", "1 2 3"),
        ("ssb sd -", "1", "2 4", 1, 3, "3", "3"),
        ("s", "1", "", 0, 0, "1", ""),
        ("-", "", "", 0, 0, "1", ""),
    ],
)
def test_what_is_gone_is_not_there_and_what_begins_to_drain_does_so_already(
    spec: str, gone: str, drained: str, count: int, draining: int, idle: str, active: str
) -> None:
    seen = Site(spec).picture(gone=gone, drained=drained)
    assert (seen.count, seen.draining, numbers(seen.idle())) == (count, draining, idle)
    assert numbers([unit.id for unit in seen.instances()]) == active
    assert numbers([unit.id for name in seen.held.hosts for unit in seen.on(name)]) == active
    without = (
        Site(spec)
        .picture()
        .without(
            [seen.held.custody.state.units[name] for name in seen.gone],
            [seen.held.custody.state.units[name] for name in seen.drained],
        )
    )
    assert (without.count, without.draining, without.idle()) == (seen.count, seen.draining, seen.idle())


def test_a_host_where_a_vm_is_open_is_not_idle() -> None:
    site = Site("s -")
    site.world.write("executor", f.VmAllocated(unit="web.1", attempt=1, rank=0, vm=7, host=site.names[0]))
    assert not site.held.emptying, "an instance is there"
    assert site.picture(gone="1").idle() == [site.names[1]]
    site.close(1)
    held = site.held
    assert (list(held.idle), list(held.emptying)) == ([site.names[1]], [site.names[0]])
    assert held.vm_ended()
    site.world.write("executor", f.VmEnded(unit="web.1", attempt=1, rank=0, why="x"))
    assert held.vm_ended()
    assert (list(held.idle), list(held.emptying)) == ([site.names[1], site.names[0]], [])
    assert not held.vm_ended()


def test_who_drains_on_a_cordoned_host_takes_no_room_that_others_could_have() -> None:
    site = Site("sd sd")
    site.world.cordon(site.names[0])
    seen = site.picture()
    assert (seen.draining, seen.apart(), seen.leaving()) == (1, 1, [])
    site.world.drain(site.names[0], by_s=None)
    seen = site.picture()
    assert (seen.draining, seen.apart(), numbers([unit.id for unit in seen.leaving()])) == (1, 0, "1")
    assert Site("sd sd").picture().apart() == 0


# -------------------------------------------------------------------------------------------------------------- inventory


def test_a_host_is_held_while_it_is_and_nothing_is_known_of_it_then() -> None:
    site = Site("s - -")
    held, [first, second, third] = site.held, site.names
    assert held.host_changed(first)
    site.world.cordon(second)
    site.world.drain(third)
    site.world.rest(third)
    for name in site.names:
        assert held.host_changed(name)
    assert list(held.cordoned) == [second, third]
    assert (list(held.drained), list(held.quarantined)) == ([third], [third])
    assert (held.serving, held.useful) == (1, 1)
    for name in (second, third):
        site.world.write("scheduler.web", f.HostReleased(host=name))
        assert held.host_changed(name)
        assert not held.host_changed(name)
    assert held.as_data() == site.held.as_data()
    assert [list(names) for names in (held.hosts, held.cordoned, held.drained, held.quarantined, held.idle)] == [
        [first], [], [], [], []
    ]  # fmt: skip
    assert not held.host_changed("nowhere")


def test_what_happens_to_instances_is_followed_as_if_it_were_looked_at_anew() -> None:
    site = Site("sb -")
    held = site.held

    def same() -> None:
        assert held.as_data() == site.held.as_data()

    site.place(3, site.names[1])
    held.placed("web.3")
    same()
    assert (held.carrying, list(held.starting)) == ({site.names[0]: 2, site.names[1]: 1}, ["web.2", "web.3"])
    site.world.begin("web.3")
    held.began("web.3")
    same()
    for until in (50.0, 20.0):
        site.drain(3, until)
        held.drains("web.3")
        same()
    assert (held.where("web.3"), held.carrying) == (site.names[1], {site.names[0]: 2})
    site.close(3)
    held.ended("web.3")
    same()
    site.close(2)
    held.ended("web.2")
    same()
    assert (held.active, held.draining, held.serving) == ({"web.1": site.names[0]}, {}, 1)
    held.placed("web.2")  # not live any more
    same()


@pytest.mark.parametrize(
    ("spec", "cores", "memory_mb", "most", "room"),
    [
        ("-", 4, 4 * MEMORY_MB, 9, 4),
        ("ss", 4, 4 * MEMORY_MB, 9, 2),
        ("ss", 4, 4 * MEMORY_MB, 3, 1),
        ("ss", 4, 4 * MEMORY_MB, 2, 0),
        ("ss", 4, 4 * MEMORY_MB, 1, 0),
        ("ss", 9, 4 * MEMORY_MB - 1, 9, 1),
        ("ss", 9, 3 * MEMORY_MB, 9, 1),
        ("ss", 3, 9 * MEMORY_MB, 9, 1),
        ("ss", 2, 9 * MEMORY_MB, 9, 0),
        ("ss", 9, 2 * MEMORY_MB, 9, 0),
    ],
)
def test_room_is_what_fits_beside_those_that_are_there(
    spec: str, cores: int, memory_mb: int, most: int, room: int
) -> None:
    site = Site(spec, cores=cores, memory_mb=memory_mb, most=most)
    held = site.held
    assert held.room(held.host(site.names[0])) == room
    assert list(held.roomy) == (site.names if room else [])
    assert numbers(web_hosts.places(held, 99, site.world.now)) == " ".join(["1"] * room)


@pytest.mark.parametrize(
    ("cores", "memory_mb", "small"),
    [(1, MEMORY_MB, False), (0, MEMORY_MB, True), (1, MEMORY_MB - 1, True), (9, 9 * MEMORY_MB, False)],
)
def test_a_host_is_too_small_for_less_than_one_instance(cores: int, memory_mb: int, small: bool) -> None:
    site = Site("-")
    host = msgspec.structs.replace(site.world.custody.state.hosts[site.names[0]], size=Size(cores, memory_mb))
    assert too_small(host, SHAPE) is small


def test_without_memory_or_cores_of_their_own_as_many_fit_as_there_may_be() -> None:
    held = Inventory.of(Site("-").world.custody, "web", Shape(1, Size()), 7)
    assert held.room(held.host("h1")) == 7


# ------------------------------------------------------------------------------------------------------------- too many


@pytest.mark.parametrize(
    ("spec", "target", "per_host", "quiet", "goes"),
    [
        # one a host: who boots, the quiet ones, the newest
        ("s s s", 3, 1, "", ""),
        ("s s s", 2, 1, "", "3"),
        ("s b s", 2, 1, "", "2"),
        ("s b s b", 1, 1, "", "4 2 3"),
        ("s s s", 1, 1, "2", "2 3"),
        ("s s s", 1, 1, "2 1", "2 1"),
        ("s s b", 1, 1, "2 3", "3 2"),
        ("s s b", 1, 1, "3 2", "3 2"),
        ("s s s", 1, 1, "3", "3 2"),
        ("s s s d", 1, 1, "4 2", "2 3"),
        # several a host: who boots first, so that a host becomes empty
        ("ss ss s", 4, 2, "", "5"),
        ("ss s ss", 4, 2, "", "3"),
        ("ssb b s", 3, 2, "", "4 3"),
        ("ssb b s", 4, 2, "", "4"),
        ("bb b", 2, 2, "", "3"),
        ("b ssb", 3, 2, "", "1"),
        ("bb b", 1, 2, "", "3 2"),
        ("bb bb", 3, 2, "", "4"),
        ("bb bb", 2, 2, "", "4 3"),
        # then a whole host, if one can be saved: with the fewest, the quiet, the newest
        ("ss ss", 2, 2, "", "4 3"),
        ("ss ss", 2, 2, "1 2", "1 2"),
        ("ss ss ss", 4, 2, "", "6 5"),
        ("sss ss", 3, 3, "", "5 4"),
        ("sss ss s", 4, 3, "", "6 5"),
        ("s ss ss", 3, 4, "", "1 5"),
        # else the quiet ones, wherever they are, then the newest
        ("ss ss", 3, 2, "", "4"),
        ("ss ss", 3, 2, "2", "2"),
        ("ss ss ss", 5, 2, "3 1", "3"),
        ("sss ss s", 3, 3, "", "6 5 4"),
        ("ss ss", 0, 2, "", "4 3 2 1"),
        ("ssd ss", 3, 4, "", "5"),
    ],
)
def test_who_goes_if_there_are_too_many(spec: str, target: int, per_host: int, quiet: str, goes: str) -> None:
    found = web_hosts.surplus(Site(spec).picture(quiet=quiet), target, per_host)
    assert numbers([unit.id for unit in found]) == goes


@pytest.mark.parametrize(
    ("gone", "drained", "target", "goes"),
    [("3", "", 2, ""), ("3", "", 1, "2"), ("", "3", 2, ""), ("", "3", 1, "2"), ("1", "2", 0, "3"), ("1", "2", 1, "")],
)
def test_who_is_gone_or_drains_already_is_not_chosen_again(gone: str, drained: str, target: int, goes: str) -> None:
    seen = Site("s s s").picture(gone=gone, drained=drained)
    assert numbers([unit.id for unit in web_hosts.surplus(seen, target, 1)]) == goes


@pytest.mark.parametrize(
    ("spec", "target", "goes", "short"),
    [
        ("ss ss", 4, "", 2),  # those on the drained host are to be replaced first
        ("ss sss", 4, "2", 1),
        ("ss ssss", 4, "2 1", 0),
        ("ss ssb", 3, "2", 0),
        ("ss ssb", 2, "2 1 5", 0),
        ("ss ssssss", 4, "2 1 8 7", 0),
    ],
)
def test_who_stands_on_a_drained_host_goes_as_others_come_into_service(
    spec: str, target: int, goes: str, short: int
) -> None:
    site = Site(spec, cores=8, memory_mb=8 * MEMORY_MB)
    site.world.drain(site.names[0], by_s=None)
    seen = site.picture()
    found = numbers([unit.id for unit in web_hosts.surplus(seen, target, 8)])
    assert found == goes
    assert web_hosts.shortage(seen, target) == short


def test_who_is_short_needs_so_many_more() -> None:
    seen = Site("sb d").picture()
    assert [web_hosts.shortage(seen, target) for target in (0, 2, 3, 5)] == [0, 0, 1, 3]


# --------------------------------------------------------------------------------------------------------------- too few


def test_new_ones_come_where_most_are_that_has_room_then_by_name() -> None:
    site = Site("s ssss ss - ss")
    assert [numbers(web_hosts.places(site.held, count, site.world.now)) for count in (0, 1, 3, 5, 9, 99)] == [
        "", "3", "3 3 5", "3 3 5 5 1", "3 3 5 5 1 1 1 4 4", "3 3 5 5 1 1 1 4 4 4 4"
    ]  # fmt: skip


def test_of_hosts_alike_the_first_name_is_taken_in_whatever_order_they_came() -> None:
    site = Site("- - -")
    held = Inventory(site.world.custody, "web", SHAPE, 1)
    for name in ("h2", "h3", "h1"):
        held.host_changed(name)
    assert web_hosts.places(held, 9, site.world.now) == ["h1", "h2", "h3"]


def test_none_come_on_a_host_that_is_cordoned_or_in_quarantine_until_that_is_over() -> None:
    site = Site("- - -")
    site.world.cordon(site.names[0])
    site.world.rest(site.names[1], for_s=10.0)
    until = site.world.custody.state.hosts[site.names[1]].quarantine_until
    assert set(web_hosts.places(site.held, 99, until - 0.1)) == {site.names[2]}
    assert set(web_hosts.places(site.held, 99, until)) == {site.names[1], site.names[2]}


# -------------------------------------------------------------------------------------------------------------- given back


@pytest.mark.parametrize(
    ("spec", "claim", "placed", "back"),
    [
        ("s - -", 3, "", ""),
        ("s - -", 2, "", "2"),
        ("s - -", 1, "", "2 3"),
        ("s - -", 0, "", "2 3"),
        ("s - -", 1, "2", "3"),
        ("s - -", 2, "2", "3"),
        ("s s", 0, "", ""),
        ("d -", 1, "", "2"),
    ],
)
def test_idle_hosts_beyond_the_claim_go_back(spec: str, claim: int, placed: str, back: str) -> None:
    site = Site(spec)
    found = web_hosts.not_needed(
        site.picture(), claim, [site.names[int(n) - 1] for n in placed.split()], site.world.now
    )
    assert numbers(found) == back


def test_those_go_first_that_cannot_be_used_and_then_what_is_too_small() -> None:
    site = Site("- - - -")
    site.world.cordon(site.names[2])
    site.world.rest(site.names[3], for_s=10.0)
    until = site.world.custody.state.hosts[site.names[3]].quarantine_until
    for claim, now, back in (
        (9, until - 0.1, "3 4"),
        (9, until, "3"),
        (2, until, "3 1"),
        (3, until, "3"),
        (1, until, "3 1 2"),
    ):
        assert numbers(web_hosts.not_needed(site.picture(), claim, [], now)) == back
    site.world.custody.state.hosts[site.names[1]].size = site.world.custody.state.hosts[site.names[1]].size._replace(
        cores=0
    )
    assert numbers(web_hosts.not_needed(site.picture(), 2, [], until)) == "3 2"


def test_on_notice_idle_hosts_go_then_who_has_the_fewest_has_drained_soonest_is_quiet_or_newest() -> None:
    def order(spec: str, quiet: str = "", count: int = 9) -> str:
        return numbers(web_hosts.on_notice(Site(spec).picture(quiet=quiet), count))

    assert order("ss s - s") == "3 4 2 1"
    assert order("ss s - s", count=2) == "3 4"
    assert order("d - dd s") == "2 1 3 4"
    assert order("dd d s") == "1 2 3"
    assert order("s s s", quiet="2 1") == "2 1 3"
    assert order("s b s") == "2 3 1"
    assert order("- - -") == "1 2 3"
    assert numbers(web_hosts.on_notice(Site("s -").picture(gone="1"), 9)) == "2 1", "what is being closed ends there"


def test_on_notice_a_host_with_an_open_vm_goes_after_an_idle_one_and_a_cordoned_one_not_at_all() -> None:
    site = Site("s - - -")
    site.world.write("executor", f.VmAllocated(unit="web.1", attempt=1, rank=0, vm=7, host=site.names[0]))
    site.close(1)
    site.world.cordon(site.names[2])
    assert numbers(web_hosts.on_notice(site.picture(), 9)) == "2 4 1"


def test_on_notice_what_drains_last_on_a_host_is_what_it_waits_for() -> None:
    site = Site("ss s")
    for number, for_s in ((1, 10.0), (2, 90.0), (3, 50.0)):
        site.drain(number, for_s)
    assert numbers(web_hosts.on_notice(site.picture(), 9)) == "2 1"
    site.drain(2, 20.0)
    assert numbers(web_hosts.on_notice(site.picture(), 9)) == "1 2"


def test_on_notice_the_newest_instance_of_a_host_is_what_makes_it_new() -> None:
    site = Site("- -")
    for number, host in ((1, "h1"), (2, "h2"), (3, "h2"), (4, "h1")):
        site.place(number, host)
        site.world.begin(f"web.{number}")
    assert numbers(web_hosts.on_notice(site.picture(), 9)) == "1 2"


def test_instances_are_in_the_order_of_their_numbers() -> None:
    held = Site("ssss ssss ss s").held
    assert numbers(list(held.active)) == "1 2 3 4 5 6 7 8 9 10 11"
