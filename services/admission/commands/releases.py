"""Releases: what a web department's instances are to run next.  Pure: from the state and the request to a fact.

Theory of operation
  A request names what changes; the fact names all of it, so that no reader needs another fact to learn what a release runs.
  What is not named is as in the release that is wanted: the newest one requested, or the one gone back to where that was given
  up. This door knows it from `release.requested` and `release.changed`; the contents are custody's.

Rules
  1. Managers and operators deploy.
  2. Numbers grow by one in each department; what is drafted before counts (compose, rule 3).
  3. `configured`: from the present configuration; `undo`: from the last release that was complete before the wanted
     one, else from the configuration, which is release 0.  What is named besides is changed in that.
  4. A variable has one source: naming it in `environment` takes it out of `secrets`, and the other way round.
  5. What is composed must be readable as a fact, and at most CONTENT_MAX_BYTES.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

from schemas import facts as f
from schemas.config import Department, WebPolicy
from schemas.facts import Fact
from schemas.releases import CONTENT_MAX_BYTES, Release
from schemas.requests import Deployed, ReleaseDeploy
from services.admission.commands import compose
from services.admission.commands.compose import Caller
from services.admission.core.admission import DIGEST_MARK, AdmissionCore
from services.admission.core.rollouts import configured
from services.admission.storage.payloads import digest_of
from services.domain.refusal import Refused

V = TypeVar("V")


def digest(dept: str, asked: ReleaseDeploy) -> str:
    """Of all that is asked, its own id left out."""
    return digest_of((dept, *(getattr(asked, x) for x in asked.__struct_fields__ if x != "request")))


def deploy(
    core: AdmissionCore, caller: Caller, dept: str, asked: ReleaseDeploy, digest: str, drafted: Sequence[Fact]
) -> f.ReleaseRequested:
    """The fact of a release.  Raises `Refused`."""
    department = compose.department_for(core, caller, dept, "web")
    if caller.role == "user":
        raise Refused("denied", f"{caller.user} is no manager of {dept}: only managers and operators deploy")
    before = [fact for fact in drafted if isinstance(fact, f.ReleaseRequested) and fact.dept == dept]
    last = before[-1].release if before else core.custody.state.release_last.get(dept, 0)
    policy = department.web or WebPolicy()
    unavailable = policy.max_unavailable if asked.max_unavailable is None else asked.max_unavailable
    surge = policy.max_surge if asked.max_surge is None else asked.max_surge
    if not unavailable and not surge:
        message = "max_surge: with max_unavailable 0 nothing could be replaced: one of them is at least 1"
        raise Refused("invalid", message, "max_surge")
    return f.ReleaseRequested(
        dept=dept,
        release=last + 1,
        user=caller.user,
        content=_checked(_changed(_base(core, department, asked, before), asked)),
        max_unavailable=unavailable,
        max_surge=surge,
        min_ready_s=policy.min_ready_s if asked.min_ready_s is None else asked.min_ready_s,
        request=f"{asked.request}{DIGEST_MARK}{digest}" if asked.request else "",
    )


def deployed(core: AdmissionCore, dept: str, number: int, warning: str = "") -> Deployed:
    """The answer to a deploy, with when its release is given up."""
    department = core.department(dept)
    policy = (None if department is None else department.web) or WebPolicy()
    failures_max, boot_s = policy.start_failures_max, policy.boot_timeout_s
    return Deployed(release=number, warning=warning, start_failures_max=failures_max, boot_timeout_s=boot_s)


def content(core: AdmissionCore, dept: str, number: int) -> Release | None:
    """What a release is; None if it, or the department, is no longer stored."""
    if number:
        known = core.custody.state.releases.get(dept, {}).get(number)
        return None if known is None else known.content
    department = core.department(dept)
    return None if department is None else configured(department.web or WebPolicy())


def _base(
    core: AdmissionCore, department: Department, asked: ReleaseDeploy, before: Sequence[f.ReleaseRequested]
) -> Release:
    """What a request changes (rule 3)."""
    ours, wanted = configured(department.web or WebPolicy()), core.wanted(department.name)
    if asked.configured:
        return ours
    if asked.undo:
        if not before and not wanted.release:
            raise Refused(
                "conflict", f"undo: {department.name} has only ever run what the configuration specifies", "undo"
            )
        now = before[-1].release if before else wanted.release
        number = next((one for one in reversed(wanted.complete) if one != now), 0)
    else:
        number = before[-1].release if before else wanted.release
    if before and number == before[-1].release:
        return before[-1].content
    found = content(core, department.name, number)
    if found is None:
        raise Refused("unknown", f"release {number} of {department.name} is forgotten: begin with --configured", "undo")
    return found


def _changed(base: Release, asked: ReleaseDeploy) -> Release:
    named = {x: getattr(asked, x) for x in ("image", "command", "health_path") if getattr(asked, x) is not None}
    environment = _merged(base.environment, asked.environment, asked.secrets)
    secrets = _merged(base.secrets, asked.secrets, asked.environment)
    return msgspec.structs.replace(base, **named, environment=environment, secrets=secrets)


def _merged(old: Mapping[str, V], new: Mapping[str, V | None], elsewhere: Mapping[str, object]) -> dict[str, V]:
    """Rule 4."""
    kept = {name: value for name, value in old.items() if name not in new and elsewhere.get(name) is None}
    return kept | {name: value for name, value in new.items() if value is not None}


def _checked(content: Release) -> Release:
    """Rule 5.  Raises `Refused`."""
    data = msgspec.json.encode(content)
    if len(data) > CONTENT_MAX_BYTES:
        message = (
            f"the release has {len(data)} bytes as JSON; {CONTENT_MAX_BYTES} are possible: put large things into files"
        )
        raise Refused("invalid", message, "environment")
    try:
        return msgspec.json.decode(data, type=Release)
    except msgspec.ValidationError as error:  # the configuration's texts are freer than a fact's
        raise Refused("invalid", f"the release cannot be written: {error}; check [department.web]") from None
