"""Appending to the journal: fenced, and certain about what became of it (PROTOCOL S1, S2).

What it decides: whether an envelope is stored, not stored, or this writer is deposed.  It must never guess: a lost answer is
resolved by reading the subject's last message from the stream's leader.

Rules
  1. Each append carries `Nats-Expected-Last-Subject-Sequence`: the last message *folded* on the own subject (S1), never a
     number asked from the server.  The server refuses it (10071) if anything else was stored there meanwhile.
  2. No answer, or 10071: read the subject's last message (not direct).
        own message id                  stored: carry on
        the sequence that was expected  not stored: send again, same bytes, same id
        garbage                         someone wrote nonsense on our subject: fold past it, then send again
        an older own envelope           fold past it, then send again
        anything else                   `Deposed`
        nothing, though one was folded  the journal was trimmed against S5: stop, a person must look
  3. The fence is checked before the duplicate check, so the message id alone does not make a retry safe; it names the
     envelope for rule 2.
  4. A full stream is `Full`: not stored, reported as such, tried again later.
  5. So is a broker that answers reads, which find the envelope not stored, and leaves append after append unanswered: that is
     how nats-server behaves when the disk is full (`broker.stores`).  The envelope may still be on its way, so the requester is
     informed that it may happen.  If it is stored later, rule 2 finds an own envelope and folds past it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import nats.errors
from nats.js import JetStreamContext, api
from nats.js.errors import APIError, NoStreamResponseError, NotFoundError
from nats.js.errors import Error as JetStreamError

from schemas.envelope import Garbage, decode
from schemas.subjects import JOURNAL_STREAM, journal
from services.domain.exits import Exit, Stop
from services.runtime.log import Log

ANSWER_TIMEOUT_S: Final = 1.0  # a healthy append takes about a millisecond
PAUSE_S: Final = 0.1  # between two tries while the broker does not answer
# unanswered in a row: two may be lost on the way; a caller is still there (`PROPOSE_TIMEOUT_S`)
SILENT_AFTER: Final = 3
FOLD_TIMEOUT_S: Final = 10.0  # to fold past garbage that is already stored
_FENCED: Final = (10071, 10164)  # wrong last sequence; the same without the number
_FULL: Final = (10077, 10023, 10047)  # store failed (maximum bytes exceeded), insufficient resources, storage exceeded
_LOST: Final = (nats.errors.Error, JetStreamError, TimeoutError, OSError)


class Full(Exception):
    """The journal accepts nothing (rules 4 and 5).  The message is for the requester."""


class Deposed(Exception):
    """Another instance has written on this writer's subject."""


@dataclass(slots=True)
class Parcel:
    """One envelope on its way.  `sent_at`, `known_at`: own clock, for the skew check; `position`: set when folded."""

    id: str
    data: bytes
    sent_at: float = 0.0
    known_at: float | None = None
    position: int | None = None
    attempts: int = 0


class Journal:
    """Appends of one writer.  `expected`: the last folded sequence of the own subject; `wait_for`: folds up to a position;
    `is_own`: whether a message id is one of this process."""

    def __init__(
        self,
        js: JetStreamContext,
        writer: str,
        *,
        expected: Callable[[], int],
        wait_for: Callable[[int, float], Awaitable[None]],
        is_own: Callable[[str], bool],
        clock: Callable[[], float],
        log: Log,
    ) -> None:
        self._js, self._writer, self._subject = js, writer, journal(writer)
        self._expected, self._wait_for, self._is_own = expected, wait_for, is_own
        self._clock, self._log = clock, log
        self._unanswered = 0  # appends in a row

    async def append(self, parcel: Parcel) -> None:
        """Returns when the parcel is stored.  Raises `Full`, `Deposed`, `Stop`; keeps trying while the broker is away."""
        while parcel.position is None:
            if await self._send(parcel) or await self._is_stored(parcel):
                if parcel.known_at is None:
                    parcel.known_at = self._clock()
                return
            if self._unanswered >= SILENT_AFTER:
                raise Full(
                    "the broker answers, but stores nothing (as a rule its disk is full): nothing can be accepted until it "
                    "does. It may still happen: try again with the same request id"
                )

    async def _send(self, parcel: Parcel) -> bool:
        """True if the server said that it is stored; False if that has to be found out."""
        headers = {  # a fresh dict: the library changes it
            api.Header.MSG_ID.value: parcel.id,
            api.Header.EXPECTED_LAST_SUBJECT_SEQUENCE.value: str(self._expected()),
        }
        if parcel.attempts == 0:
            parcel.sent_at = self._clock()
        parcel.attempts += 1
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S * 2):
                await self._js.publish(self._subject, parcel.data, timeout=ANSWER_TIMEOUT_S, headers=headers)
        except APIError as error:
            self._unanswered = 0
            if error.err_code in _FENCED:
                return False
            if error.err_code in _FULL:
                told = error.description or f"error {error.err_code}"
                text = f"the journal is full, nothing can be accepted until it has space again ({told})"
                raise Full(text) from error
            if error.code == 503:  # the stream's leader is changing: whether it was stored must be found out
                await asyncio.sleep(PAUSE_S)
                return False
            raise Stop(Exit.FAILED, f"append to {self._subject}: {error.description} ({error.err_code})") from error
        except nats.errors.MaxPayloadError as error:
            raise Stop(
                Exit.FAILED, f"an envelope of {len(parcel.data)} bytes exceeds the server's max_payload"
            ) from error
        except NoStreamResponseError:
            await asyncio.sleep(PAUSE_S)  # the stream's leader is changing, or the server is starting
            return False
        except _LOST as error:
            self._unanswered += 1
            self._log.warning("append unanswered", id=parcel.id, attempt=parcel.attempts, error=type(error).__name__)
            await asyncio.sleep(PAUSE_S)
            return False
        self._unanswered = 0
        return True

    async def _is_stored(self, parcel: Parcel) -> bool:
        """Rule 2.  Returns False if it must be sent again."""
        while parcel.position is None:
            try:
                async with asyncio.timeout(ANSWER_TIMEOUT_S):
                    last = await self._js.get_last_msg(JOURNAL_STREAM, self._subject, direct=False)
            except NotFoundError:
                return self._nothing_there()
            except _LOST:
                await asyncio.sleep(PAUSE_S)
                continue
            return await self._judge(parcel, last)
        return True

    def _nothing_there(self) -> bool:
        if self._expected() == 0:
            return False
        raise Stop(
            Exit.FAILED,
            f"the journal no longer holds message {self._expected()}, the last one of {self._subject}: it was trimmed too far "
            "(PROTOCOL S5); restore the stream from its archive",
        )

    async def _judge(self, parcel: Parcel, last: api.RawStreamMsg) -> bool:
        found = (last.headers or {}).get(api.Header.MSG_ID.value, "")
        sequence = last.seq or 0
        if found == parcel.id:
            return True
        if sequence == self._expected():
            return False
        if not (self._is_own(found) or self._is_garbage(last.data or b"")):
            raise Deposed(f"message {sequence} of {self._subject} is another instance's ({found or 'no id'})")
        self._log.warning("folding a message of another writer on the own subject", position=sequence)
        await self._wait_for(sequence, FOLD_TIMEOUT_S)
        return parcel.position is not None

    def _is_garbage(self, data: bytes) -> bool:
        try:
            decode(data, self._writer)
        except Garbage:
            return True
        return False
