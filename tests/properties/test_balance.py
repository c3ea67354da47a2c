"""The balancer (`policies/balance`), whatever the hosts, their use and what runs there.

B1  a move goes from above the band to below it, to a host with room for cores and memory, worth its cost, and empties nobody;
    at most half as many moves as hosts; no host twice; the order of the input changes nothing
B2  pass after pass, with what each machine really uses going along with it, it comes to rest, however wrong the guesses are;
    where guesses are right, no host that was below `high` is ever pushed above it
B3  with power saving there are fewer hosts in use after each pass, and nobody is half emptied
B4  the batch core: moves are never void, respect custody's room, and at unchanged loads nothing moves
"""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import facts as f
from schemas import reasons as because
from schemas.config import Balance
from schemas.size import Size
from services.scheduler.core.policies.balance import FULL_ENOUGH, Load, Machine, Move, cost_s, plan
from tests.support.balancing import busy_cluster, moves, observe

CORES = 16
MEMORY_MB = 32_768
PASSES_MAX = 200

machines = st.tuples(st.integers(1, 8), st.sampled_from([256, 1024, 4096, 16_384]), st.integers(0, 4000))
hosts = st.lists(st.tuples(st.lists(machines, max_size=5), st.floats(0, 1.5), st.integers(0, 2)), max_size=8)
rules = st.builds(
    Balance,
    high=st.sampled_from([0.5, 0.75, 0.9]),
    low=st.sampled_from([0.1, 0.25, 0.4]),
    cost_max_s=st.sampled_from([5.0, 60.0]),
    worth=st.sampled_from([0.0, 10.0]),
    power_saving=st.booleans(),
)


def without(host: Load, machine: Machine) -> Load:
    """The host when the machine has left it."""
    return host._replace(
        utilisation=max(0.0, host.utilisation - host.use(machine)),
        free=host.free.plus(machine.size),
        units=host.units - 1,
        machines=tuple(each for each in host.machines if each.unit != machine.unit),
    )


def loads(drawn: list[tuple[list[tuple[int, int, int]], float, int]]) -> list[Load]:
    """Hosts of 16 cores, with machines that may move and a few that may not."""
    found, number = [], 0
    for place, (given_machines, use, fixed) in enumerate(drawn):
        mine: list[Machine] = []
        cores, memory_mb = CORES - fixed, MEMORY_MB - fixed
        for wanted, size_mb, left_s in given_machines:
            number += 1
            if wanted <= cores and size_mb <= memory_mb:
                mine.append(Machine(str(number), Size(wanted, size_mb), float(left_s)))
                cores, memory_mb = cores - wanted, memory_mb - size_mb
        found.append(
            Load(f"h{place}", use, Size(CORES, MEMORY_MB), Size(cores, memory_mb), len(mine) + fixed, tuple(mine))
        )
    return found


def after(hosts: Iterable[Load], moves: list[Move]) -> dict[str, Load]:
    """As the guesses say."""
    now = {host.name: host for host in hosts}
    for move in moves:
        source = now[move.source]
        machine = next(each for each in source.machines if each.unit == move.unit)
        now[move.target] = now[move.target].beside(machine._replace(moved=machine.moved + 1), source)
        now[move.source] = without(source, machine)
    return now


@given(hosts, rules, st.randoms(use_true_random=False))
def test_each_move_keeps_the_rules(
    drawn: list[tuple[list[tuple[int, int, int]], float, int]], settings: Balance, chance: object
) -> None:
    known = loads(drawn)
    found = plan(known, settings)
    assert len(found) <= len(known) // 2
    before, then = {host.name: host for host in known}, after(known, found)
    hot = [host for host in known if host.utilisation > settings.high]
    for move in found:
        source, target = before[move.source], before[move.target]
        machine = next(each for each in source.machines if each.unit == move.unit)
        assert cost_s(machine, settings) <= settings.cost_max_s
        assert machine.left_s >= settings.worth * cost_s(machine, settings)
        if hot:
            assert source.utilisation > settings.high
            assert target.utilisation < settings.low
            assert then[move.source].units > 0
        else:
            assert settings.power_saving
            assert source.utilisation < settings.low
    if hot:
        touched = [name for move in found for name in (move.source, move.target)]
        assert len(touched) == len(dict.fromkeys(touched))
    for name in dict.fromkeys(move.target for move in found):
        assert then[name].free.cores >= 0
        assert then[name].free.memory_mb >= 0
        assert then[name].utilisation <= min(FULL_ENOUGH, settings.high) + 1e-9
    shuffled = list(known)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    assert plan(shuffled, settings) == found


@given(hosts, rules, st.lists(st.floats(0, 1), min_size=40, max_size=40), st.booleans())
def test_it_comes_to_rest_however_wrong_its_guesses(
    drawn: list[tuple[list[tuple[int, int, int]], float, int]], settings: Balance, truth: list[float], fair: bool
) -> None:
    """`truth`: what each machine really uses of each of its cores; fair: all alike, as is guessed."""
    known = [host for host in loads(drawn) if host.units == len(host.machines)]
    real = {
        m.unit: m.size.cores / CORES * (truth[0] if fair else truth[int(m.unit) % 40])
        for h in known
        for m in h.machines
    }

    def measured(hosts: Iterable[Load]) -> list[Load]:
        return [host._replace(utilisation=sum(real[m.unit] for m in host.machines)) for host in hosts]

    now = measured(known)
    for _ in range(PASSES_MAX):
        found = plan(now, settings)
        if not found:
            break
        then = measured(after(now, found).values())
        if fair:
            crowded = [host.name for host in now if host.utilisation > settings.high]
            assert all(host.utilisation <= settings.high or host.name in crowded for host in then)
        now = then
    assert plan(now, settings) == []
    assert sum(len(host.machines) for host in now) == len(real)


@given(hosts)
def test_power_saving_empties_whole_hosts_and_fills_none(
    drawn: list[tuple[list[tuple[int, int, int]], float, int]],
) -> None:
    settings = Balance(power_saving=True)
    known = [host._replace(utilisation=min(host.utilisation, settings.high)) for host in loads(drawn)]
    found = plan(known, settings)
    before, then = {host.name: host for host in known}, after(known, found)
    assert all(then[move.source].units == 0 < before[move.target].units for move in found)
    in_use = [sum(1 for host in all_.values() if host.units) for all_ in (before, then)]
    assert in_use[1] == in_use[0] - len(dict.fromkeys(move.source for move in found))


steps = st.lists(
    st.tuples(st.sampled_from(["observe", "end", "submit", "settle"]), st.integers(0, 7), st.floats(0, 1)), max_size=12
)


@settings(max_examples=15)  # each settles a whole department several times: 0.2 s
@given(st.lists(st.integers(1, 3), min_size=2, max_size=7), steps, st.booleans())
def test_the_core_moves_within_custodys_room_and_not_again(
    cores: list[int], taken: list[tuple[str, int, float]], saving: bool
) -> None:
    world, jobs = busy_cluster(cores, power_saving=saving)
    for what, place, use in taken:
        running = [job for job in jobs if world.unit(job).live and world.unit(job).began_at is not None]
        if what == "observe":
            observe(world, f"h{place % 4 + 1}", use)
        elif what == "end" and running:
            world.report(running[place % len(running)])
        elif what == "submit":
            jobs.append(world.submit(cores=place % 3 + 1, memory_mb=256))
        world.settle()
        count = len(moves(world))
        world.settle()
        assert len(moves(world)) == count
    assert world.voids == []
    for fact in world.facts(f.AttemptClosed):
        assert type(fact.why) is because.Balanced
