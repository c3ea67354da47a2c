"""What the journal wants of each open VM, by when, and the room that those take which custody does not count any more.

Theory of operation
  A VM has a reason to run (its attempt is live), or it is *doomed* (it must have left its host by `kill_by`), or *kept*: for
  the next job (lingering, parked), or, doomed as well, for a later attempt of its own (moving, saving).  `lifecycle.TOLD` says
  which event leads where; `_tell` looks it up, and nothing else changes an aim.

Rules
  1. `kill_by`: doomed + kill_s; on a host that is draining or lost: + grace_s (of a contract of its department, else of the
     policy), since a department waits for the host.  A job with a grace of its own has that (`domain.grace`), on any host.
     A parked VM runs nothing: at once.  What is saved or moves has `save_s` (`domain.saving`).  It is never moved later.
  2. One that moves waits for its new place for MOVE_WAIT_S at most, and half of its time: then it is saved.
  3. What is doomed, kept, or has not left the host from which it moves takes room there that custody gives to others (X3).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

import msgspec

from schemas.config import Policy, Warm
from services.domain import grace, saving
from services.domain.custody.custody import Custody
from services.executor.core.lifecycle import Aim, Told, after

MOVE_WAIT_S: Final = 1.0  # for the news of the new place, which comes with the closing or a few ms later
PAUSED: Final = "%starts"  # what VMs wait for while starts are paused: neither a key of custody nor a host
LINGER_S: Final = 2.0  # from the report to the guest's next call: its outputs are sent by then, and it calls at once
_DEFAULT: Final = Policy()  # until a configuration is adopted
_WARM_OFF: Final = Warm()
_KEPT: Final = (Aim.MOVE, Aim.SAVE, Aim.LINGER, Aim.PARK)
_WAITS: Final = (Aim.LINGER, Aim.PARK)


class Room(msgspec.Struct, array_like=True):
    """What one VM takes of its host."""

    cores: int
    memory_mb: int
    exclusive: bool = False
    host: str = ""
    vm: int = -1


class Kept(msgspec.Struct, array_like=True):
    """`until`: for how long one that moves waits for its place, or one that waits for a job (UTC seconds)."""

    aim: Aim
    until: float


class Leaving(msgspec.Struct, array_like=True):
    """A VM that was bound to its attempt while it ran: `rooms` on hosts where it may be still, and when it is ended if it is
    (UTC seconds)."""

    rooms: list[Room]
    by: float


class Paused(msgspec.Struct, array_like=True):
    """Starts are paused since then (UTC seconds), because of this."""

    since: float
    why: str


class LedgerState(msgspec.Struct, kw_only=True):
    """`doomed`: key of an open VM -> when it is ended hard (UTC seconds); `kept`, `leaving`: as above; `rooms`: key of every
    open VM -> its room; `users`: unit -> whose it is, in departments whose warm VMs are their user's; `told`: host -> share of
    its cores in use, as `host.observed` said it last (`utilisation_reports`); `paused`: starts are (`site_fault`);
    `refusals`: unit -> attempt of which it was told that OpenNebula allocates no VM."""

    doomed: dict[str, float] = {}
    kept: dict[str, Kept] = {}
    leaving: dict[str, Leaving] = {}
    rooms: dict[str, Room] = {}
    users: dict[str, str] = {}
    told: dict[str, float] = {}
    paused: Paused | None = None
    refusals: dict[str, int] = {}


class Aims(ABC):
    """`weight`: host -> room taken there that custody does not count (rule 3)."""

    def __init__(self, custody: Custody) -> None:
        self.custody = custody
        self.state = LedgerState()
        self.weight: dict[str, Room] = {}
        self.leavers: dict[str, dict[str, None]] = {}  # host -> keys of VMs that move away from it
        self.away: dict[str, None] = {}  # … of which this leader has seen that they have left
        self.parked: dict[
            str, dict[str, None]
        ] = {}  # department -> keys of VMs that wait for a job, longest waiting first
        self.dirty: dict[str, None] = {}  # keys whose case is to be looked at again

    @property
    def policy(self) -> Policy:
        config = self.custody.state.config
        return config.policy if config is not None else _DEFAULT

    # ----------------------------------------------------------------------------------------------------------- reading

    def aim(self, key: str, now: float) -> Aim:
        """What the journal wants of this VM at this time."""
        kill_by, kept = self.state.doomed.get(key), self.state.kept.get(key)
        if kept is None:
            if kill_by is None:
                return Aim.RUN
            return Aim.END if now < kill_by else after(Aim.END, Told.TIME_UP)
        if kill_by is not None and now >= kill_by:
            return after(Aim.SAVE, Told.TIME_UP)
        aim = kept.aim if now < kept.until else after(kept.aim, Told.TIME_UP)
        return after(aim, Told.TIME_UP) if aim is Aim.END and now >= self.kill_by(key, now) else aim

    def kill_by(self, key: str, now: float) -> float:
        """When it is ended hard (UTC seconds); `now` for one that nothing is known of."""
        kill_by, kept = self.state.doomed.get(key), self.state.kept.get(key)
        if kill_by is None and kept is not None:
            return kept.until + self.policy.kill_s
        return now if kill_by is None else kill_by

    def is_burden(self, key: str) -> bool:
        """It takes room that custody does not count."""
        return key in self.state.doomed or key in self.state.kept

    # ---------------------------------------------------------------------------------------------------------- changing

    def _tell(self, key: str, told: Told) -> None:
        """Something happened to this VM."""
        kept, doomed = self.state.kept.get(key), key in self.state.doomed
        before = kept.aim if kept is not None else Aim.END if doomed else Aim.RUN
        aim = after(before, told)
        if aim is not before:
            self._aim_at(key, aim)
        elif doomed:
            self._hurry(key, aim)

    def _aim_at(self, key: str, aim: Aim) -> None:
        at = self.custody.state.at
        self._weigh(key, -1)
        self._keep(key, None)
        if aim in _WAITS:
            self._keep(key, Kept(aim, at + (LINGER_S if aim is Aim.LINGER else self._idle_s(key))))
        else:
            if aim in _KEPT:
                self._keep(key, Kept(aim, float("inf")))
            self._hurry(key, aim)
        self._weigh(key, 1)
        self.dirty[key] = None

    def _hurry(self, key: str, aim: Aim) -> None:
        """Set `kill_by`, or bring it forward (rule 1)."""
        at, host = self.custody.state.at, self.custody.state.hosts.get(self.custody.state.vms[key].host)
        unit = self.custody.state.units[self.custody.state.vms[key].unit]
        patience_s = grace.of_unit(self.custody, unit)
        if host is not None and host.state not in ("draining", "lost"):  # nobody waits for it
            patience_s = max(self.policy.kill_s, patience_s if unit.grace_s is not None else 0.0)
        if aim in (Aim.SAVE, Aim.MOVE):
            patience_s = self._save_s(key)
        kill_by = at if aim is Aim.KILL else at + patience_s
        known = self.state.doomed.get(key)
        self.state.doomed[key] = kill_by = kill_by if known is None else min(known, kill_by)
        kept = self.state.kept.get(key)
        if kept is not None and kept.aim is Aim.MOVE:
            kept.until = min(kept.until, at + min(MOVE_WAIT_S, max(0.0, kill_by - at) / 2))
        self.dirty[key] = None

    def _keep(self, key: str, kept: Kept | None) -> None:
        before = self.state.kept.pop(key, None)
        dept = self.custody.state.units[self.custody.state.vms[key].unit].dept if before or kept else ""
        if before is not None and before.aim is Aim.PARK:
            del self.parked[dept][key]
        if kept is not None:
            self.state.kept[key] = kept
            if kept.aim is Aim.PARK:
                self.parked.setdefault(dept, {})[key] = None

    # --------------------------------------------------------------------------------------------------------- how long

    def _save_s(self, key: str) -> float:
        state = self.custody.state
        return saving.save_s(state.config, state.units[state.vms[key].unit].dept)

    def _idle_s(self, key: str) -> float:
        state = self.custody.state
        return self.warm(state.units[state.vms[key].unit].dept).idle_s

    def warm(self, dept: str) -> Warm:
        """How the department keeps VMs warm."""
        department = self.custody.department(dept)
        return department.batch.warm if department is not None and department.batch is not None else _WARM_OFF

    # ------------------------------------------------------------------------------------------------------------- room

    def _weigh(self, key: str, sign: int) -> None:
        if self.is_burden(key):
            self._add(self.state.rooms[key], sign)

    def _add(self, room: Room, sign: int) -> None:
        weight = self.weight.setdefault(room.host, Room(0, 0))
        weight.cores += sign * room.cores
        weight.memory_mb += sign * room.memory_mb

    def _leave(self, key: str, leaving: Leaving) -> None:
        """It is to run on its attempt's host, and may be on these still."""
        self.state.leaving[key] = leaving
        for room in leaving.rooms:
            self.leavers.setdefault(room.host, {})[key] = None
            self._add(room, 1)

    def has_left(self, key: str) -> None:
        """This leader has seen that it is not on the hosts any more that it was to leave: they need not wait for the fact."""
        leaving = self.state.leaving.get(key)
        if leaving is not None and key not in self.away:
            self.away[key] = None
            for room in leaving.rooms:
                self._add(room, -1)
                _remove(self.leavers, room.host, key)
                self._left(room.host, key)

    def _arrive(self, key: str) -> Leaving | None:
        """It has started, or is gone, or is another attempt's."""
        self.has_left(key)
        self.away.pop(key, None)
        return self.state.leaving.pop(key, None)

    def forget_what_was_seen(self) -> None:
        """A new leader looks for itself."""
        for key in list(self.away):
            self._leave(key, self.state.leaving[key])
        self.away.clear()

    @abstractmethod
    def _left(self, host: str, key: str) -> None:
        """Somebody may wait for this host, or for this VM to be on it no more."""


def _remove(view: dict[str, dict[str, None]], name: str, key: str) -> None:
    keys = view[name]
    del keys[key]
    if not keys:
        del view[name]
