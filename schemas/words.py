"""Words that the sentences of several reasons share.  A number or a name that is not known reads as `?`.

Nothing but the standard library is needed here: the command line says these words too, and loads no schemas for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from signal import Signals
from typing import Final

from schemas.dimensions import DIMENSIONS
from schemas.units import count, some
from schemas.units import span as _span

UNKNOWN: Final = "?"
JOBS_SHOWN: Final = 5

Share = tuple[str, str, str, str]  # department, hosts, rule, weight


def known(value: object) -> str:
    return UNKNOWN if value is None or value == "" else str(value)


def general(value: float | None) -> str:
    """`2`, `2.5`: no more digits than it has."""
    return UNKNOWN if value is None else f"{value:g}"


def percent(fraction: float | None) -> str:
    return UNKNOWN if fraction is None else f"{fraction * 100:.0f} %"


def span(seconds: float | None) -> str:
    return UNKNOWN if seconds is None else _span(seconds)


def iso(time: str | None) -> str:
    """A time as people read it: to the second."""
    if time is None:
        return UNKNOWN
    second, fraction, _ = time.partition(".")
    return f"{second}Z" if fraction else time


def counted(number: int | None, noun: str) -> str:
    """`1 host`, `3 hosts`; none if it is not known."""
    return count(number or 0, noun)


def names(listed: Sequence[object]) -> str:
    return ", ".join(map(str, listed))


def are(number: int | None) -> str:
    return "is" if number == 1 else "are"


def by_word(said: str, authors: Sequence[str]) -> str:
    """Who reported the load, where that is not the usual source."""
    return f"{said} (reported by {names(authors)})" if authors else said


# -------------------------------------------------------------------------------------------------------- starts and work


def saved_work(safe_s: float | None, of: float | None, ago_s: float | None) -> str:
    """What a job has saved by a checkpoint (`of` its work in percent), and when."""
    if safe_s is None:
        return ""
    part = "" if of is None else f" ({of:g} % of it)"
    return f"; its checkpoint of {span(ago_s)} ago keeps {span(safe_s)} of its work{part}"


def refused_a_vm(code: str, why: str) -> str:
    """What OpenNebula said instead of allocating a VM."""
    return f"OpenNebula refused it a VM ({known(code)}): {why}"


def did_not_start(vm: str, refused: str, refused_why: str) -> str:
    """Why no VM of an attempt came to run."""
    if refused_why:
        return refused_a_vm(refused, refused_why)
    return f"its VM did not start: {vm.rstrip('.')}" if vm else "its VMs did not start in time"


def program_ended(exit_code: int | None, signal: int | None, oom: bool, said: str) -> str:
    """What follows `its program`."""
    wrote = f', and wrote last: "{said}"' if said else ""
    if oom:
        return f"was killed because its memory was full{wrote}"
    if signal:
        return f"was killed by {_signal(signal)}{wrote}"
    return f"ended with exit code {known(exit_code)}{wrote}"


def by_code(exit_code: int | None, signal: int | None) -> str:
    """What follows how a job ended: ` with exit code 3`, ` with signal 9 (SIGKILL)`; empty if neither is known."""
    if signal:
        return f" with {_signal(signal)}"
    return "" if exit_code is None else f" with exit code {exit_code}"


def _signal(number: int) -> str:
    try:
        return f"signal {number} ({Signals(number).name})"
    except ValueError:
        return f"signal {number}"


# ----------------------------------------------------------------------------------------------------------------- grace


def claim_waits(seconds: float | None) -> str:
    """What a grace of a job's own (`domain.grace`) costs a claim of its hosts; empty without one."""
    return "" if seconds is None else f"a claim that takes its hosts may wait up to {exact(seconds)} for it"


def have_time_to_save(jobs: Iterable[str]) -> str:
    units = list(dict.fromkeys(jobs))
    who = f"job {units[0]} has" if len(units) == 1 else f"jobs {some(units, JOBS_SHOWN)} have"
    return f"{who} until then to save (--grace)"


def exact(seconds: float | None) -> str:
    return span(seconds) if seconds is None or seconds >= 60 else f"{seconds:g}s"


# ------------------------------------------------------------------------------------------------------- shares of hosts


def by_contract(lender: str, hosts: int, most: int, closed: bool) -> str:
    """What a contract does not lend (`sharing.withheld`)."""
    lends = f"{count(most, 'host')} at most" if most else f"no host{' at this hour' if closed else ''}"
    return f"by contract {lender} lends it {lends}, which keeps {hosts} from it"


def contracts(listed: Sequence[str]) -> list[str]:
    """Of contracts as reasons have them: `lender:hosts:most:closed`."""
    texts = [text.split(":") for text in listed]
    return [by_contract(t[0], int(t[1]), int(t[2]), t[3] == "1") for t in texts if len(t) == 4]


def lenders(listed: Sequence[str]) -> list[str]:
    return [text.split(":")[0] for text in listed]


def shares(
    kept: tuple[object, object, str] | None, others: Sequence[Share], weight: str, withheld: Sequence[str]
) -> str:
    """Why a department may keep fewer hosts than it wants (`sharing.shortage`); empty if it is something else that is short.

    4 of the 16 hosts are kept from web by the guarantees of hpc; news goes first and may keep 6; blog may keep 2 by its
    guarantee; the rest is shared by weight (2 here): mail 2 (weight 1)
    """
    words = [f"{kept[0]} of the {kept[1]} hosts are kept from web by the guarantees of {kept[2]}"] if kept else []
    words += [f"{name} goes first and may keep {hosts}" for name, hosts, rule, _ in others if rule == "priority"]
    words += [f"{name} may keep {hosts} by its guarantee" for name, hosts, rule, _ in others if rule == "guarantee"]
    equals = ", ".join(f"{name} {hosts} (weight {its})" for name, hosts, rule, its in others if rule == "weight")
    words += [f"the rest is shared by weight ({weight} here): {equals}"] if equals else []
    return "; ".join([*words, *withheld])


# ----------------------------------------------------------------------------------------------- instances and requests


def claims(instances: int, by: str) -> str:
    """Who claims the number; a sentence does not begin with a user's name, which would become another one."""
    number = count(instances, "instance")
    return f"{number} {are(instances)} claimed by {by}" if by else f"a signal claims {number}"


def part_of(some_: int | None, all_: int | None) -> str:
    """`100 % of its requests (230 of 230)`."""
    part = 100 * (some_ or 0) / all_ if all_ else 0.0
    digits = 0 if part >= 10 or not part else 1
    return f"{part:.{digits}f} % of its requests ({some_ or 0} of {all_ or 0})"


# ------------------------------------------------------------------------------------------------------- who goes first


def goes_first(jobs: int | None) -> str:
    return f"; {count(jobs, 'job')} {'goes' if jobs == 1 else 'go'} first" if jobs else ""


def behind_reservations(most: int | None) -> str:
    """Of an order that keeps room for many, who is behind the last of them."""
    kept = f"; room is kept for {most} at a time (reservations_max), and it is behind them"
    return "" if most is None else kept


def fits_in(gap_s: float | None) -> str:
    return f"a time limit of at most {span(gap_s)} would let it start now" if gap_s and gap_s >= 1 else ""


def web_may_claim(hosts: int | None) -> str:
    return f"; web may claim {hosts} of the department's hosts before that" if hosts else ""


# --------------------------------------------------------------------------------------------------------------- details

_GLUE: Final = {
    "passed_over": "passed over job",
    "nodes": "nodes",
    **{dimension.field: f"{dimension.plural} on each" for dimension in DIMENSIONS},
}


def with_details(words: str, details: Mapping[str, object]) -> str:
    """What has no sentence of its own stands behind the words, in brackets."""
    told = ", ".join(f"{_GLUE.get(key, key.replace('_', ' '))} {_plain(value)}" for key, value in details.items())
    return f"{words} ({told})" if told else words


def _plain(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return names(value) if isinstance(value, list | tuple) else str(value)
