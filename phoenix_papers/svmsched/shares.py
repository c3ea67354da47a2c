"""What is shared among the services of a department, and what each uses of it (`order`; the arithmetic is
`sharing.service_share`).

Rules
  1. Of all: the hosts that the department holds and may place on now.  What web has taken or has failed is nobody's share.
  2. Only production counts.  An exclusive job uses whole hosts.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from phoenix.plugin.policies import BatchPolicy, Ending, Forecast, Free, Shape, Shares, Situation


def shares_of(policy: BatchPolicy, forecast: Forecast) -> Shares:
    """Rule 1."""
    wholes = forecast.wholes.items()
    return Shares(policy, sum(w.cores * n for w, n in wholes), sum(w.memory_mb * n for w, n in wholes))


def used_by(forecast: Forecast) -> dict[str, tuple[int, int]]:
    """Service -> cores and MiB of its production (rule 2)."""
    used = dict(forecast.used)
    for ending in forecast.exclusive.values():
        cores, memory_mb = used.get(ending.kind.service, (0, 0))
        more = _beyond(ending, forecast)
        used[ending.kind.service] = (cores + more[0], memory_mb + more[1])
    return used


def _beyond(ending: Ending, forecast: Forecast) -> tuple[int, int]:
    """What an exclusive attempt's hosts have beside what its job asked for."""
    wholes = [forecast.held[name] for name in ending.hosts if name in forecast.held]
    shape = ending.shape
    return sum(w.cores - shape.cores for w in wholes), sum(w.memory_mb - shape.memory_mb for w in wholes)


def hosts_wanted(situation: Situation, kinds: Sequence[tuple[int, int]]) -> int:
    """Hosts (of `kinds`: cores and MiB of each) of which each service's share would hold all its production, running and
    waiting.  Too many rather than too few: a job whose share is too small for it would wait for ever while hosts are idle."""
    forecast, queue, policy = situation.forecast(), situation.queue, situation.policy
    wanted = used_by(forecast)
    for key, lane in queue.lanes.items():
        if not key.kind.best_effort:
            cores, memory_mb = wanted.get(key.kind.service, (0, 0))
            more, units = needs(key.shape, forecast.wholes), queue.allowance(lane)
            wanted[key.kind.service] = (cores + units * more[0], memory_mb + units * more[1])
    host = Shares(policy, min((k[0] for k in kinds), default=0), min((k[1] for k in kinds), default=0))
    granted = host.granted
    return max((ceil(host.usage(*much) / granted[name]) for name, much in wanted.items() if name in granted), default=0)


def needs(shape: Shape, wholes: dict[Free, int]) -> tuple[int, int]:
    """Cores and MiB that a unit of `shape` will use; of an exclusive one on the smallest hosts that hold it."""
    cores, memory_mb = shape.cores, shape.memory_mb
    if shape.exclusive:
        smallest = min((whole for whole in wholes if whole.fits(shape)), default=None)
        cores, memory_mb = (smallest.cores, smallest.memory_mb) if smallest else (cores, memory_mb)
    return shape.nodes * cores, shape.nodes * memory_mb
