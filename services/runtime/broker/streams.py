"""The broker's side of Phoenix: streams and buckets, created once by the admin, verified by every service at start.

What it decides: whether the streams are what the protocol needs.  It must never change the journal's limits towards losing
a message.

Rules
  1. PHOENIX keeps everything: no age, no count, discard new; full is an error that people see, never a silent loss (S5).
  2. PHOENIX is not read directly: a follower's copy may lag, and decisions need the leader's (NATS.md 3.8).
  3. EVENTS and AUDIT are views: bounded, the oldest goes first.
  4. Leases live in a bucket with a TTL for the bucket, never for the message: an update drops a message's TTL for ever.
  5. A difference that matters stops a service at start with the field named; what is harmless (replicas, metadata) does not.
"""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import Any, Final

from nats.js import JetStreamContext, api
from nats.js.errors import NotFoundError

from schemas import subjects
from services.domain.exits import Exit, Stop
from services.runtime.config.tables import Config

_MIB: Final = 1 << 20
_DAY_S: Final = 86400.0
EVENTS_MAX_AGE_S: Final = 7 * _DAY_S
AUDIT_MAX_AGE_S: Final = 30 * _DAY_S
AUDIT_PER_DEPARTMENT: Final = 10_000  # messages of granted, and of refused requests: none can push out another's
DUPLICATES_S: Final = 120.0  # the server's default; the fence is what is relied on
ADMIN_TIMEOUT_S: Final = 10.0  # creating a file-backed stream takes a few ms; a loaded disk longer

# Shares of the JetStream store (nats.file_max_mb): together below 1, so that no stream can fill the journal's room.
_SHARES: Final = {"journal": 0.45, "events": 0.10, "audit": 0.02, "snapshots": 0.15, "objects": 0.25, "leases": 0.01}

_CHECKED: Final = (
    "subjects",
    "retention",
    "discard",
    "max_msgs",
    "max_age",
    "max_msgs_per_subject",
    "storage",
    "deny_delete",
    "allow_direct",
)


def stream_configs(config: Config) -> tuple[api.StreamConfig, ...]:
    """What must exist, in the order of creation."""
    return (_journal(config), _events(config), _audit(config), _leases(config), *_object_stores(config))


def _bytes(config: Config, share: str) -> int:
    return int(config.nats.file_max_mb * _MIB * _SHARES[share])


def _stream(name: str, *subjects_: str, max_bytes: int, **other: Any) -> api.StreamConfig:
    """What all streams have in common, unless `other` says otherwise: files that refuse when they are full."""
    common: dict[str, Any] = {
        "max_msgs": -1,
        "max_msgs_per_subject": -1,
        "max_age": 0,
        "discard": api.DiscardPolicy.NEW,
        "storage": api.StorageType.FILE,
        "retention": api.RetentionPolicy.LIMITS,
        "duplicate_window": DUPLICATES_S,
        "allow_direct": True,
        "deny_delete": True,
    }
    return api.StreamConfig(name=name, subjects=list(subjects_), max_bytes=max_bytes, **{**common, **other})


def _journal(config: Config) -> api.StreamConfig:
    size = _bytes(config, "journal")
    return _stream(subjects.JOURNAL_STREAM, subjects.JOURNAL_ALL, max_bytes=size, allow_direct=False)


def _view(name: str, subject: str, max_bytes: int, max_age_s: float, per_subject: int) -> api.StreamConfig:
    """One that drops its oldest when it is full."""
    other = {"max_msgs_per_subject": per_subject, "max_age": max_age_s, "discard": api.DiscardPolicy.OLD}
    return _stream(name, subject, max_bytes=max_bytes, **other)


def _events(config: Config) -> api.StreamConfig:
    return _view(subjects.EVENTS_STREAM, subjects.EVENTS_ALL, _bytes(config, "events"), EVENTS_MAX_AGE_S, -1)


def _audit(config: Config) -> api.StreamConfig:
    size = _bytes(config, "audit")
    return _view(subjects.AUDIT_STREAM, subjects.AUDIT_ALL, size, AUDIT_MAX_AGE_S, AUDIT_PER_DEPARTMENT)


def _leases(config: Config) -> api.StreamConfig:
    """The layout of a KV bucket, so that `nats kv` shows it."""
    ttl_s = config.runtime.lease_ttl_s
    return _stream(
        f"KV_{subjects.LEASES}",
        f"$KV.{subjects.LEASES}.>",
        max_bytes=_bytes(config, "leases"),
        max_msgs_per_subject=1,
        max_age=ttl_s,
        duplicate_window=min(DUPLICATES_S, ttl_s),
        allow_direct=False,
        allow_rollup_hdrs=True,
    )


def _object_stores(config: Config) -> tuple[api.StreamConfig, ...]:
    """The layout of object stores, so that `nats object` reads them."""
    rooms = ((subjects.SNAPSHOTS, "snapshots"), (subjects.OBJECTS, "objects"))
    return tuple(_object_store(bucket, _bytes(config, share)) for bucket, share in rooms)


def _object_store(bucket: str, max_bytes: int) -> api.StreamConfig:
    kept = (f"$O.{bucket}.C.>", f"$O.{bucket}.M.>")
    return _stream(f"OBJ_{bucket}", *kept, max_bytes=max_bytes, allow_rollup_hdrs=True, deny_delete=False)


async def ensure_streams(js: JetStreamContext, config: Config) -> list[str]:
    """Create what is missing, and follow the configuration in sizes and the lease TTL; returns the names touched.  Needs the
    admin's rights.  Raises `Stop` if a stream differs in anything else."""
    touched = []
    for wanted in stream_configs(config):
        async with asyncio.timeout(ADMIN_TIMEOUT_S):
            try:
                found = (await js.stream_info(wanted.name or "")).config
            except NotFoundError:
                await js.add_stream(wanted)
                touched.append(wanted.name or "")
                continue
            if _is_resized(wanted, found):
                await js.update_stream(wanted)
                touched.append(wanted.name or "")
    await verify_streams(js, config)
    return touched


def _is_resized(wanted: api.StreamConfig, found: api.StreamConfig) -> bool:
    """True if sizes or ages differ and nothing else that matters does."""
    sized = _plain(wanted.max_bytes) != _plain(found.max_bytes)
    aged = wanted.name != subjects.JOURNAL_STREAM and _plain(wanted.max_age) != _plain(found.max_age)
    return (sized or aged) and not [d for d in differences(wanted, found) if ": max_age " not in d]


async def verify_streams(
    js: JetStreamContext,
    config: Config,
) -> None:
    """Raises `Stop` that names every stream and field that is not as it must be."""
    problems: list[str] = []
    for wanted in stream_configs(config):
        async with asyncio.timeout(ADMIN_TIMEOUT_S):
            try:
                found = (await js.stream_info(wanted.name or "")).config
            except NotFoundError:
                problems.append(
                    f"stream {wanted.name} does not exist: run `phoenix up`, or create the streams as admin"
                )
                continue
        problems += differences(wanted, found)
    if problems:
        raise Stop(Exit.FAILED, "; ".join(problems))


def differences(wanted: api.StreamConfig, found: api.StreamConfig) -> list[str]:
    """Fields of a stream that are not as they must be, as sentences."""
    shown = []
    for field in _CHECKED:
        want, have = _plain(getattr(wanted, field)), _plain(getattr(found, field))
        if want != have:
            shown.append(f"stream {wanted.name}: {field} is {have!r} and must be {want!r}")
    return shown


def _plain(value: object) -> object:
    if isinstance(value, list):
        return sorted(value)
    if value is None or value is False:
        return 0
    if isinstance(value, Enum):
        return str(value.value)
    return float(value) if isinstance(value, int | float) else str(value)
