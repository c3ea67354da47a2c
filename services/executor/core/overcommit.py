"""CPU overcommit: how many cores a host offers, by what it really uses (Thiao thesis, 4.2.1).

What it decides: one number.  It must never offer more memory than there is (memory has no such rule: a host that pages is
slower than one that is full), and never more cores on a guess: a host whose utilisation is not known offers what it has.

Rules
  1. Only where configured: with `ratio` 1 a host offers its cores, whatever it uses.
  2. Below the threshold (0.60 of its cores, the thesis' "start a VM only if CPU < 60 % of the node") it offers cores · ratio,
     rounded down; at the threshold and above its cores.
  3. Hysteresis: a host that has stopped to overcommit begins again only `margin` below the threshold.  Else the jobs that
     overcommit lets in would switch it off and on with each measurement.
  4. What runs stays: taking the offer back ends nothing, it only lets nothing more in.
"""

from __future__ import annotations

from typing import Final

import msgspec

BELOW: Final = 0.60  # thesis, 4.2.1; its 3.1 says 0.50 "let's say"
MARGIN: Final = 0.10  # one core of ten: less than one job's start or end moves most hosts by


class Overcommit(msgspec.Struct, frozen=True, kw_only=True):
    """`ratio`: cores offered for each one that is there, at least 1.  `below`, `margin`: shares of the host's real cores."""

    ratio: float = 1.0
    below: float = BELOW
    margin: float = MARGIN


NONE: Final = Overcommit()


def cores_offered(cores: int, utilisation: float, offered_before: int, rule: Overcommit) -> int:
    """What a host of `cores` real cores offers now.

    `utilisation`: the share of its cores in use, 0 to 1; not a number if unknown.  `offered_before`: the last answer for
    this host, 0 if there is none."""
    full = int(cores * rule.ratio)
    if full <= cores:
        return cores
    stopped = 0 < offered_before <= cores
    return full if utilisation < rule.below - (rule.margin if stopped else 0.0) else cores
