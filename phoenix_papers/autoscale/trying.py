"""`--try` of phoenix-autoscale: one more setting of a scaling rule, as words on the command line.

    target=0.7,up=30,down=600                          what is not named is as in the table of the experiment
    target=0.8,turns=6,forecast=3,down-limit=10% in 60s
    rule=threshold,schedule=Mon-Fri 08:00-18:00 at least 6

Rules
  1. A key may stand once; `up-limit`, `down-limit` and `schedule` add an entry each time.
  2. Whether the setting can be is judged by what judges the configuration file.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, Final

from phoenix.plugin.simulation import CloudConfig, Department, WebPolicy, check_cloud
from phoenix_papers.autoscale.rules import LEVEL, SIGNAL_S, Variant, tracking

_KEYS: Final[dict[str, tuple[str, Callable[[str], Any]]]] = {
    "target": ("target", float),
    "up": ("up_window_s", float),
    "down": ("down_window_s", float),
    "tolerance": ("tolerance", float),
    "forecast": ("forecast_days", int),
    "margin": ("forecast_margin", float),
    "ahead": ("forecast_ahead_s", float),
    "turns": ("turns_per_hour_max", int),
    "rule": ("rule", str),
    "threshold": ("threshold", float),
    "window": ("window_s", float),
}
_LISTS: Final = {"up-limit": "up_limits", "down-limit": "down_limits", "schedule": "schedule"}
RULES: Final = ("threshold", "target-tracking")
HELP: Final = "one more setting: target=0.8,up=0,down=300,tolerance=0; see below"


def variant(text: str) -> Variant:
    """Raises argparse.ArgumentTypeError."""
    values: dict[str, Any] = {"rule": "target-tracking", "target": LEVEL, "tolerance": 0.0, "window_s": SIGNAL_S}
    for word in text.split(","):
        key, _, value = (part.strip() for part in word.partition("="))
        if key in _LISTS and value:
            values[_LISTS[key]] = (*values.get(_LISTS[key], ()), value)
        elif key in _KEYS and value:
            name, read = _KEYS[key]
            values[name] = _read(read, value, word)
        else:
            known = ", ".join(f"{name}=…" for name in (*_KEYS, *_LISTS))
            raise argparse.ArgumentTypeError(f"{word!r} should be one of {known}")
    if values["rule"] not in RULES:
        raise argparse.ArgumentTypeError(f"{values['rule']!r} should be one of {', '.join(RULES)}")
    policy = WebPolicy(**values)
    _judge(policy, text)
    return Variant(label(policy), policy)


def _read(read: Callable[[str], Any], value: str, word: str) -> Any:
    try:
        return read(value)
    except ValueError:
        right = "a whole number" if read is int else "a number"
        raise argparse.ArgumentTypeError(f"{word!r} should have {right}") from None


def _judge(policy: WebPolicy, text: str) -> None:
    """Rule 2."""
    cloud = CloudConfig(name="autoscale", departments=(Department(name="web", kind="web", web=policy),))
    for problem in check_cloud(cloud):
        share = ": 0.8 is 80 %" if problem.path[-1] in ("target", "threshold", "tolerance") else ""
        raise argparse.ArgumentTypeError(f"{text!r}: {problem.path[-1]}: {problem.found}: {problem.right}{share}")


def label(policy: WebPolicy) -> str:
    """What differs from the defaults, in a few words."""
    if policy.rule == "threshold":
        words = [f"threshold {policy.threshold:.0%}, {policy.window_s:g} s".replace("%", " %")]
    else:
        words = [tracking(policy.target, policy.up_window_s, policy.down_window_s, policy.tolerance).label]
    words += [f"up {limit}" for limit in policy.up_limits] + [f"down {limit}" for limit in policy.down_limits]
    if policy.forecast_days:
        words.append(f"forecast {policy.forecast_days} d + {policy.forecast_margin:.0%}".replace("%", " %"))
    if policy.turns_per_hour_max:
        words.append(f"turns {policy.turns_per_hour_max}")
    return ", ".join([*words, *policy.schedule])
