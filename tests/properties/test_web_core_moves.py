"""The web core whatever happens to its hosts, instances, load and configuration.

W1  What its views say is what custody says, and a core that rests has nothing to say (its `check`, after each envelope).
W2  A restart from the snapshot changes neither bytes, decisions nor wake-up times (asserted by `World` after each envelope).
W3  Nothing that it writes is void when nothing is concurrent.
W4  Left alone, with hosts enough, every wanted instance serves, on hosts that it claims, and no other host is held.
"""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from schemas import facts as f
from schemas.config import CloudConfig
from schemas.custody import RULES
from services.scheduler.web import WebCore
from tests.support.world import World, cloud, web

HOSTS = tuple(f"h{n}" for n in range(1, 7))
KINDS = (
    *(
        "load",
        "load",
        "load",
        "asked",
        "claim",
        "scale",
        "auto",
        "grant",
        "grant",
        "quota",
        "lose",
        "clear",
        "cordon",
        "uncordon",
    ),
    *("rest", "smaller", "vm", "config", "executor", "guests", "foreign", "time", "decide"),
)
STEPS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 7), st.floats(0, 1.2)), min_size=5, max_size=40)
CONFIGS: tuple[CloudConfig, ...] = (
    cloud(web("web", window_s=3, signal_timeout_s=4, boot_timeout_s=9, instances_max=6)),
    cloud(web("web", window_s=3, signal_timeout_s=4, instances_max=9, instances_per_host=3, instances_min=2)),
    cloud(web("web", rule="target-tracking", down_window_s=4, instances_max=9, instances_per_host=2)),
    cloud(web("web", rule="target-tracking", up_window_s=2, down_window_s=3, instances_max=6, instance_cores=3)),
    cloud(
        web(
            rule="target-tracking",
            down_window_s=0,
            instances_max=9,
            turns_per_hour_max=4,
            up_limits=("2 in 5s",),
            down_limits=("50% in 4s",),
            forecast_days=1,
            forecast_ahead_s=60,
            schedule=("daily 00:00-24:00 at least 1", "Mon 13:46-13:47 at least 4"),  # it is Monday, 13:46:40
        )
    ),
)


def site(config: CloudConfig) -> World:
    world = World(config)
    world.hosts(len(HOSTS))
    world.seat("scheduler.web", lambda custody: WebCore(custody, "web"))
    world.executor()
    world.guests(boot_s=0.5)
    world.settle()
    return world


def play(world: World, what: str, number: int, level: float) -> None:
    """One thing that may happen outside; nothing that would be void."""
    name = HOSTS[number % len(HOSTS)]
    host = world.custody.state.hosts[name]
    if what == "load":
        world.now += 1.0
        fact = f.LoadObserved(dept="web", start=world.now - 1, end=world.now, utilisation=level, samples=1)
        world.write("scheduler.web", fact)
    elif what == "asked":
        world.now += 1.0
        asked = {
            "requests_per_s": 50 * number * level,
            "requests_per_instance": 50.0,
            "claim": number if number > 4 else None,
        }
        world.write("scheduler.web", f.LoadObserved(dept="web", start=world.now - 1, end=world.now, samples=1, **asked))
    elif what == "claim":
        claim = f.LoadObserved(dept="web", start=world.now, end=world.now, claim=number, samples=1)
        world.write("scheduler.web", claim)
    elif what == "scale":
        world.write("admission", f.ScaleRequested(dept="web", user="wes", exact=number, until=world.now + 5))
    elif what == "auto":
        world.write("admission", f.ScaleRequested(dept="web", user="wes", minimum=number % 3))
    elif what == "grant" and host.state == "free":
        world.grant("web", name)
    elif what == "quota":
        world.quota("web", number)
    elif what in ("lose", "clear", "cordon", "uncordon", "rest", "smaller", "vm"):
        about_hosts(world, what, name, level)
    elif what == "config":
        adopted = f.ConfigAdopted(cloud="c1", custody_rules=RULES, config=CONFIGS[number % len(CONFIGS)])
        world.write("provisioner", adopted)
    elif what in ("executor", "guests"):
        world.seats[what].paused = not world.seats[what].paused
    elif what == "foreign":
        world.write("scheduler.hpc", f.DemandChanged(dept="hpc", hosts=number))
    elif what == "time":
        world.advance(level * 4)
    else:
        world.settle()


def about_hosts(world: World, what: str, name: str, level: float) -> None:
    host = world.custody.state.hosts[name]
    if what == "lose" and level > 0.8:
        world.lose(name)
    elif what == "clear" and host.state == "lost" and not host.vms:
        world.write("executor", f.HostCleared(host=name))
    elif what == "cordon":
        world.cordon(name)
    elif what == "uncordon":
        world.write("admission", f.HostUncordoned(host=name, reason="repaired", user="root"))
    elif what == "rest":
        world.write("executor", f.HostQuarantined(host=name, until=world.now + 4 * level, reason="failures"))
    elif what == "smaller":
        cores = 2 if level > 0.6 else 4
        world.write("executor", f.HostDescribed(host=name, one_id=host.one_id, cores=cores, memory_mb=8192))
    elif what == "vm" and world.custody.state.vms:
        vm = min(world.custody.state.vms.values(), key=lambda v: v.vm)
        world.write("executor", f.VmEnded(unit=vm.unit, attempt=vm.attempt, rank=vm.rank, why="gone"))


@settings(max_examples=40, deadline=None)
@example(CONFIGS[0], [("scale", 7, 0.0), ("config", 4, 0.0)])  # no signal: it wants the 7 that it had, and there are 6
@given(st.sampled_from(CONFIGS), STEPS)
def test_the_web_core_keeps_its_word_whatever_happens(config: CloudConfig, steps: list[tuple[str, int, float]]) -> None:
    world = site(config)
    for what, number, level in steps:
        play(world, what, number, level)
        world.settle()
    assert world.voids == []  # W3
    heal(world)
    wanted = world.custody.state.demands["web"]
    core = world.seats["scheduler.web"].core
    assert world.custody.held("web") == min(wanted, len(HOSTS))  # W4
    if wanted <= len(HOSTS):
        assert core.state.serving == core.state.target


def heal(world: World) -> None:
    """Whole hosts for whatever is wanted, and time."""
    for seat in world.seats.values():
        seat.paused = False
    world.settle()
    for name in HOSTS:
        host = world.custody.state.hosts[name]
        world.write("admission", f.HostUncordoned(host=name, reason="repaired", user="root"))
        world.write("executor", f.HostDescribed(host=name, one_id=host.one_id, cores=4, memory_mb=8192))
        if host.state == "lost":
            world.write("executor", f.HostCleared(host=name))
    world.write("admission", f.ScaleRequested(dept="web", user="wes"))
    world.advance(120)
    for _ in range(3):  # the claim may change when the hosts are there
        short = world.custody.state.demands["web"] - world.custody.held("web")
        world.quota("web", len(HOSTS))
        if short > 0:
            world.grant("web", *sorted(world.custody.index.by_state["free"])[:short])
        world.advance(40)
