"""Web load made up: the cycle of the day and of the week, noise, and flash crowds; requests in each interval.

Its parts are what studies of public web sites agree on; the numbers are this module's own defaults, and all can be set.

  1. Day: a sine between the quietest hour (4:00) and the busiest (16:00), `night_share` of it at the quietest.  Strong cycles
     of day and week: G. Urdaneta, G. Pierre and M. van Steen, Wikipedia workload analysis for decentralized hosting, Computer
     Networks 53(11), 2009; A. Ali-Eldin et al., How will your workload look like in 6 years?, IC2E 2014.
  2. Week: Saturdays and Sundays have `weekend_share` of it; time 0 is midnight before a Monday.
  3. Noise: a factor whose logarithm is normal and fades with `noise_memory_s` (first-order autoregressive): minutes resemble
     their neighbours.
  4. Flash crowds: come at random (`crowds_per_week`, Poisson), rise within `crowd_rise_s`, and fade exponentially with
     `crowd_decay_s`; the top adds `crowd_height` times the busiest hour of the day, within half to one and a half of that.
     Spikes differ much in steepness, size and length: P. Bodík et al., Characterizing, modeling, and generating workload
     spikes for stateful services, SoCC 2010.  The matches in the 1998 World Cup log are an example.
  5. The highest interval has exactly `peak` requests; others are in proportion, rounded to whole requests.

It must never depend on anything but its arguments.  Noise and crowds are drawn from streams of their own: other crowds leave
the days between them in the same shape.
"""

from __future__ import annotations

import math
from typing import Final

import msgspec

from phoenix.simulate.text_input import InputError
from phoenix.simulate.variates import Variates
from phoenix.simulate.workload import Series

DAY_S: Final = 86_400
WEEK_S: Final = 7 * DAY_S
BUSIEST_S: Final = 16 * 3600  # the afternoon, as in the 1998 World Cup log
INTERVALS_MAX: Final = 10_000_000  # 20 years of minutes; a slip in days or interval_s asks for more
CROWD_SPREAD: Final = 0.5  # tops are uniform within this share around crowd_height
FADED: Final = 20.0  # after this many decay times a crowd is a two-billionth of its top: not looked at any more


class _Crowd(msgspec.Struct, frozen=True):
    start_s: float
    top: float
    rise_s: float
    decay_s: float

    def at(self, time_s: float) -> float:
        """What it adds."""
        since_s = time_s - self.start_s
        if since_s < 0:
            return 0.0
        if since_s < self.rise_s:
            return self.top * since_s / self.rise_s
        return self.top * math.exp(-(since_s - self.rise_s) / self.decay_s)

    @property
    def over_s(self) -> float:
        return self.start_s + self.rise_s + FADED * self.decay_s


def generate(
    days: float,
    peak: float,
    seed: int,
    interval_s: float = 60.0,
    *,
    night_share: float = 0.3,
    weekend_share: float = 0.75,
    noise: float = 0.05,
    noise_memory_s: float = 900.0,
    crowds_per_week: float = 1.0,
    crowd_height: float = 1.5,
    crowd_rise_s: float = 300.0,
    crowd_decay_s: float = 3600.0,
) -> Series:
    """Requests in each interval of `days` days.

    `peak`: requests in the highest interval; `noise`: standard deviation of the factor's logarithm (0.05: about 5 %).  Raises
    InputError for values without meaning.
    """
    _check(locals())
    count = round(days * DAY_S / interval_s)
    shape = [_cycle((i + 0.5) * interval_s, night_share, weekend_share) for i in range(count)]
    crowds = _crowds(count * interval_s, crowds_per_week, crowd_height, crowd_rise_s, crowd_decay_s, seed)
    _add(shape, crowds, interval_s)
    memory = math.exp(-interval_s / noise_memory_s) if noise_memory_s > 0 else 0.0
    _shake(shape, noise, memory, Variates(seed, "noise"))
    most = max(shape)
    return Series(
        unit="requests",
        starts=tuple(i * interval_s for i in range(count)),
        values=tuple(float(round(peak * level / most)) for level in shape),
    )


def _check(given: dict[str, float]) -> None:
    """Named as the parameters are, so that the message says which one."""
    for name in ("days", "peak", "interval_s", "crowd_rise_s", "crowd_decay_s"):
        if not 0 < given[name] < math.inf:
            raise InputError(f"{name} must be above 0, not {given[name]:g}")
    for name in ("noise", "noise_memory_s", "crowds_per_week", "crowd_height"):
        if not 0 <= given[name] < math.inf:
            raise InputError(f"{name} must be 0 or more, not {given[name]:g}")
    for name in ("night_share", "weekend_share"):
        if not 0 < given[name] <= 1:
            raise InputError(f"{name} must be above 0 and at most 1, not {given[name]:g}")
    intervals = given["days"] * DAY_S / given["interval_s"]
    if not 2 <= intervals <= INTERVALS_MAX:
        raise InputError(f"that makes {intervals:,.0f} intervals; 2 to {INTERVALS_MAX:,} are possible")


def _cycle(time_s: float, night_share: float, weekend_share: float) -> float:
    """The level without noise and crowds; 1 in the busiest hour of a working day."""
    wave = (1 + math.cos((time_s % DAY_S - BUSIEST_S) / DAY_S * math.tau)) / 2
    weekday = time_s % WEEK_S < 5 * DAY_S
    return (night_share + (1 - night_share) * wave) * (1.0 if weekday else weekend_share)


def _crowds(end_s: float, per_week: float, height: float, rise_s: float, decay_s: float, seed: int) -> list[_Crowd]:
    chance, crowds, at = Variates(seed, "crowds"), [], 0.0
    while per_week > 0 and (at := at + chance.exponential(WEEK_S / per_week)) < end_s:
        top = height * (1 - CROWD_SPREAD + 2 * CROWD_SPREAD * chance.uniform())
        crowds.append(_Crowd(at, top, rise_s, decay_s))
    return crowds


def _add(shape: list[float], crowds: list[_Crowd], interval_s: float) -> None:
    for crowd in crowds:
        for i in range(int(crowd.start_s / interval_s), min(len(shape), math.ceil(crowd.over_s / interval_s))):
            shape[i] += crowd.at((i + 0.5) * interval_s)


def _shake(shape: list[float], noise: float, memory: float, chance: Variates) -> None:
    """First-order autoregressive noise of the same spread at all times."""
    fresh = math.sqrt(1 - memory * memory)
    level = chance.normal()
    for i in range(len(shape)):
        shape[i] *= math.exp(noise * level)
        level = memory * level + fresh * chance.normal()
