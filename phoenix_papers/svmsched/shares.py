"""What is shared among the services of a department, and what each uses of it (`order`; the arithmetic is
`sharing.service_share`).

Rules
  1. Of all: the hosts that the department holds and may place on now.  What web has taken or has failed is in no share.
  2. Only production counts.  An exclusive job uses whole hosts.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from phoenix.plugin.policies import NOTHING, BatchPolicy, Ending, Forecast, Free, Shape, Shares, Situation, Size, total


def shares_of(policy: BatchPolicy, forecast: Forecast) -> Shares:
    """Rule 1."""
    return Shares(policy, total(whole.size.times(number) for whole, number in forecast.wholes.items()))


def used_by(forecast: Forecast) -> dict[str, Size]:
    """Service -> what its production has (rule 2)."""
    used = dict(forecast.used)
    for ending in forecast.exclusive.values():
        had = used.get(ending.kind.service, NOTHING)
        used[ending.kind.service] = had.plus(_beyond(ending, forecast))
    return used


def _beyond(ending: Ending, forecast: Forecast) -> Size:
    """What an exclusive attempt's hosts have beside what its job asked for."""
    wholes = [forecast.held[name] for name in ending.hosts if name in forecast.held]
    return total(whole.size.minus(ending.shape.size) for whole in wholes)


def hosts_wanted(situation: Situation, kinds: Sequence[Size]) -> int:
    """Hosts (of `kinds`) of which each service's share would hold all its production, running and
    waiting.  Too many rather than too few: a job whose share is too small for it would wait for ever while hosts are idle."""
    forecast, queue, policy = situation.forecast(), situation.queue, situation.policy
    wanted = used_by(forecast)
    for key, lane in queue.lanes.items():
        if not key.kind.best_effort:
            more = needs(key.shape, forecast.wholes).times(queue.allowance(lane))
            wanted[key.kind.service] = wanted.get(key.kind.service, NOTHING).plus(more)
    host = Shares(policy, Size._make(map(min, zip(*kinds, strict=True))) if kinds else NOTHING)
    granted = host.granted
    return max((ceil(host.usage(much) / granted[name]) for name, much in wanted.items() if name in granted), default=0)


def needs(shape: Shape, wholes: dict[Free, int]) -> Size:
    """What a unit of `shape` will use; an exclusive one on the smallest hosts that hold it."""
    if shape.exclusive:
        smallest = min((whole for whole in wholes if whole.fits(shape)), default=None)
        if smallest is not None:
            return smallest.size.times(shape.nodes)
    return shape.all
