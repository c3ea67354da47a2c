"""Requests on a web department: how many instances, and what they run (`schemas.requests` has the rules)."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from schemas.control_characters import WHAT, has_hidden
from schemas.releases import (
    HEALTH_PATH_MAX,
    HEALTH_PATH_WORDS,
    IMAGE_MAX,
    VARIABLES_MAX,
    MinReady,
    SecretName,
    Text,
    Variable,
    health_path_fits,
    image_fits,
)
from schemas.requests_base import WALLTIME_MAX_S, Count, Message, Request, RequestId


class ScaleSet(Request, frozen=True, kw_only=True):
    """A person sets the number of instances of a web department: give `minimum`, `exact` or `auto`.  `minimum`: at least this
    many instances; `exact`: exactly this many instances; `for_s`: for how long, in seconds; null: until it is changed;
    `auto`: drop what was set, so that the load alone decides."""

    request: RequestId = ""
    minimum: Count | None = None
    exact: Count | None = None
    for_s: Annotated[float, Meta(gt=0, le=WALLTIME_MAX_S)] | None = None
    auto: bool = False


class ReleaseDeploy(Request, frozen=True, kw_only=True):
    """A new release for a web department: its instances are replaced by ones that run it (`docs/howto/deploy.md`).  What is
    null stays as in the release that is wanted now.

    `image`: what the VM boots; `command`: program and arguments; `environment`: environment variables that change; null
    removes one; `secrets`: environment variable -> name of a secret, where that changes; null removes one; `health_path`:
    path of the health check; `configured`: start from the configuration instead of the release that is wanted now; `undo`:
    start from the last complete release before that one; `max_unavailable`: how many instances fewer than are wanted may
    serve meanwhile; null: the department's; `max_surge`: how many more than are wanted may run meanwhile; null: the
    department's; `min_ready_s`: an instance counts as serving after this many seconds; null: the department's."""

    request: RequestId = ""
    image: Annotated[str, Meta(max_length=IMAGE_MAX)] | None = None
    command: Annotated[tuple[Text, ...], Meta(max_length=4096)] | None = None
    environment: Annotated[dict[Variable, Text | None], Meta(max_length=VARIABLES_MAX)] = msgspec.field(
        default_factory=dict
    )
    secrets: Annotated[dict[Variable, SecretName | None], Meta(max_length=VARIABLES_MAX)] = msgspec.field(
        default_factory=dict
    )
    health_path: Annotated[str, Meta(max_length=HEALTH_PATH_MAX)] | None = None
    configured: bool = False
    undo: bool = False
    max_unavailable: Count | None = None
    max_surge: Count | None = None
    min_ready_s: MinReady | None = None


class Deployed(Message, frozen=True, kw_only=True):
    """The release is in the journal.  `release`: its number in the department; `warning`: what its update takes from batch
    departments as things are; empty: nothing; `start_failures_max`: failed starts after which it is given up; 0: never;
    `boot_timeout_s`: time that a start may take, in seconds."""

    release: int
    warning: str = ""
    start_failures_max: int = 0
    boot_timeout_s: float = 0.0


def problem_of_scale(request: ScaleSet) -> tuple[str, str] | None:
    """(field, what would be right), or None."""
    if has_hidden(request.request):
        return "request", f"request must not hold {WHAT}"
    named = [f for f in ("minimum", "exact") if getattr(request, f) is not None]
    if request.auto and named:
        return named[0], f"auto drops every setting: leave {named[0]} out, or auto"
    if len(named) == 2:
        return "exact", "give minimum or exact, not both"
    if not request.auto and not named:
        return "exact", "give exact, minimum, or auto"
    return None


def problem_of_deploy(request: ReleaseDeploy) -> tuple[str, str] | None:
    """(field, what would be right), or None."""
    if request.configured and request.undo:
        return "undo", "give undo or configured, not both"
    if has_hidden(request.request):
        return "request", f"request must not hold {WHAT}"
    if has_hidden(request.image or ""):
        return "image", f"image must not hold {WHAT}"
    if not image_fits(request.image or ""):
        return "image", "image must not hold control characters, quotes, backslashes or $"
    if request.health_path is not None and not health_path_fits(request.health_path):
        return "health_path", f"health_path is {HEALTH_PATH_WORDS}"
    if any("\0" in word for word in request.command or ()):
        return "command", "a word of the command must not hold a NUL character"
    if any("\0" in (value or "") for value in request.environment.values()):
        return "environment", "a value must not hold a NUL character"
    both = [name for name, secret in request.secrets.items() if secret is not None and request.environment.get(name)]
    if both:
        return "secrets", f"{both[0]} is given in environment and in secrets: one of them"
    return None
