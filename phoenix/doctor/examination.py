"""The whole examination, in the order in which one thing makes the next one useless."""

from __future__ import annotations

import time
from typing import Any, Final
from urllib.parse import urlsplit

from phoenix.doctor import checks
from phoenix.doctor.dry_run import dry_run
from phoenix.doctor.endpoint import IPC, Endpoint, Trouble, is_loopback, speaks_zeromq
from phoenix.doctor.findings import Finding, ok, warn, worst
from phoenix.doctor.requirements import Wanted
from services.executor.core.call_errors import Failure

# of a call that does nothing, with as many at once as the cloud makes; a real oned needs 10 to 60 ms
SLOW_S: Final = 1.0


def examine(endpoint: Endpoint, wanted: Wanted, dry: bool) -> list[Finding]:
    """Findings; the last ones are missing where an earlier one makes them pointless."""
    found: list[Finding] = []
    try:
        _examine(endpoint, wanted, dry, found)
    except (
        ValueError,
        TypeError,
        AttributeError,
    ) as error:  # as the executor takes them: no number where one should be
        why = f"the answer cannot be read: {type(error).__name__}: {error}"
        found.append(endpoint.trouble("reachable", Trouble(Failure.MALFORMED, why)))
    return found


def _examine(endpoint: Endpoint, wanted: Wanted, dry: bool, found: list[Finding]) -> None:
    try:
        told = str(endpoint.ask(lambda one: one.system.version()))
    except Trouble as trouble:
        check = "credentials" if trouble.failure.value == "login" else "reachable"
        found.append(endpoint.trouble(check, trouble))
        return
    found += [ok("reachable", f"{endpoint.url} answers, and knows {endpoint.user}"), *checks.version(told)]
    user = _ask(endpoint, found, "rights", lambda one: one.user.info(-1, False))
    rules = _ask(endpoint, [], "rights", lambda one: one.acl.info())
    if user is not None:
        found += [*checks.token(user, endpoint.secret, time.time()), *checks.rights(user, rules)]
    pool = _ask(endpoint, found, "hosts", lambda one: one.hostpool.info())
    found += [] if pool is None else checks.hosts(pool, wanted)
    stores = _ask(endpoint, found, "datastores", lambda one: one.datastorepool.info())
    found += [] if stores is None else checks.datastores(stores, pool, wanted)
    found += _quotas(endpoint, user)
    found += _configuration(endpoint, wanted)
    found += _speed(endpoint, wanted)
    images = _ask(endpoint, [], "template", lambda one: one.imagepool.info(-2, -1, -1))
    networks = _ask(endpoint, [], "template", lambda one: one.vnpool.info(-2, -1, -1))
    of_template = checks.template(wanted, images, networks, endpoint.user)
    found += of_template
    if dry and worst(of_template) != "fail":
        found += dry_run(endpoint, wanted, None if pool is None else checks.roomiest(pool, wanted))


def _ask(endpoint: Endpoint, found: list[Finding], check: str, call: Any) -> Any | None:
    """An answer; None after adding why there is none."""
    try:
        return endpoint.tree(call)
    except Trouble as trouble:
        found.append(endpoint.trouble(check, trouble))
        return None


def _quotas(endpoint: Endpoint, user: Any | None) -> list[Finding]:
    if user is None:
        return []
    found = checks.quotas(user, "user")
    group = int(user.findtext("GID") or -1)
    owner = _ask(endpoint, [], "quotas", lambda one: one.group.info(group, False))
    return found if owner is None else [*found, *checks.quotas(owner, "group")]


def _configuration(endpoint: Endpoint, wanted: Wanted) -> list[Finding]:
    try:
        tree = endpoint.tree(lambda one: one.system.config())
    except Trouble:
        advice = "only the group oneadmin may: look at MAX_CONN, SCHED_MAD and HM_MAD in oned.conf yourself"
        return [
            warn("oned.conf", "this user may not read oned's configuration", advice),
            *_events(endpoint, wanted, "", 0),
        ]
    return [*checks.configuration(tree, wanted), *_events(endpoint, wanted, *checks.publisher(tree))]


def _events(endpoint: Endpoint, wanted: Wanted, bound: str, port: int) -> list[Finding]:
    """The hook manager's publisher: without it the cloud polls, which costs calls and up to poll_s of delay."""
    host = urlsplit(endpoint.url).hostname or "127.0.0.1"
    if wanted.events.startswith(IPC):
        return [_published(wanted.events, speaks_zeromq(wanted.events))]
    if wanted.events:
        host, _, number = wanted.events.rpartition(":")
        port = int(number) if number.isdigit() else 0
    elif bound and is_loopback(bound) and not is_loopback(host):
        advice = f"HM_MAD in oned.conf: arguments -b with an address that this machine reaches, now {bound}"
        return [warn("events", "state changes are published to the front end alone; the cloud polls", advice)]
    if not port:
        return [warn("events", "where state changes are published is not known; the cloud polls", "--events HOST:PORT")]
    return [_published(f"{host}:{port}", speaks_zeromq(host.strip("[]"), port))]


def _published(at: str, why: str) -> Finding:
    """`why` there is no event stream; empty if there is."""
    if not why:
        return ok("events", f"state changes are published at {at}")
    advice = "HM_MAD in oned.conf (-p port, -b address), and the firewall between; without it the cloud polls"
    return warn("events", f"no event stream at {at}: {why}", advice)


def _speed(endpoint: Endpoint, wanted: Wanted) -> list[Finding]:
    try:
        took = endpoint.parallel(wanted.concurrency)
    except Trouble as trouble:
        return [endpoint.trouble("speed", trouble)]
    says = f"{wanted.concurrency} calls at once: {took[len(took) // 2] * 1000:.0f} ms, the slowest {took[-1] * 1000:.0f} ms"
    if took[-1] < SLOW_S:
        return [ok("speed", says)]
    return [warn("speed", says, "MAX_CONN of oned.conf, other clients of it, or a busy front end; lower concurrency")]
