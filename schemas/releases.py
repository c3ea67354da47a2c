"""What the instances of a web department run: the content of a release.  It holds no secret, only what secrets are called."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from schemas.validation import WORDS

IMAGE_MAX: Final = 256  # characters; names of OpenNebula images have 128 at most
VARIABLE_MAX: Final = 128 << 10  # characters: Linux' MAX_ARG_STRLEN
VARIABLES_MAX: Final = 1000
HEALTH_PATH_MAX: Final = 1024
CONNECTIONS_BUILT_IN: Final = 4  # it works on one request at a time; others wait for the first free instance
CONNECTIONS_COMMAND: Final = 64  # a program with threads or coroutines that wait for a database more than they compute
CONTENT_MAX_BYTES: Final = 64 << 10  # of one release as JSON: it stands in the journal, and in every fold

Variable = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$(?!\n)",
        extra={WORDS: "a name of 1 to 128 letters, digits and '_' only, not beginning with a digit,"},
    ),
]
SecretName = Annotated[
    str,
    Meta(
        pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$(?!\n)",
        extra={
            WORDS: "a name of 1 to 64 small letters, digits, '.', '_' and '-' only, beginning with a letter or digit,"
        },
    ),
]
Text = Annotated[str, Meta(max_length=VARIABLE_MAX)]
MinReady = Annotated[float, Meta(ge=0, le=86_400)]  # seconds; a day, as other times of instances

# A path and a query, of characters that stand for themselves in HTTP and in HAProxy's commands and configuration.
HEALTH_PATH: Final = r"/[A-Za-z0-9/._~%?&=:,@+-]*"
_HEALTH_PATH: Final = re.compile(HEALTH_PATH)
HEALTH_PATH_WORDS: Final = "a path such as /healthz: / first, then letters, digits and / . _ ~ % ? & = : , @ + - only"
# What a template cannot express, or is never meant; and `$`, for which oned puts an attribute of the VM, or of its user, in the
# place of what follows.
IMAGE: Final = r'\x00-\x1f\x7f"\\$'  # characters that it does not have
_IMAGE: Final = re.compile(f"[{IMAGE}]")


def image_fits(name: str) -> bool:
    """True if `name` can be written into a template, and into a fact."""
    return len(name) <= IMAGE_MAX and not _IMAGE.search(name)


def health_path_fits(path: str) -> bool:
    """True if guests and load balancers can ask for it.  It goes into commands to HAProxy, where `;` begins another one."""
    return len(path) <= HEALTH_PATH_MAX and _HEALTH_PATH.fullmatch(path) is not None


class Release(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """What the instances of a web department run.  `image`: what the VM boots: at a site's OpenNebula the name of an image,
    elsewhere a label that the program sees as `PHOENIX_IMAGE`; `command`: program and arguments; empty: the guest's default
    web program; `environment`: environment variables of the program; `secrets`: environment variable -> name of a secret,
    whose value only the guest receives (docs/reference/web.md); `health_path`: path of the health check."""

    image: Annotated[str, Meta(max_length=IMAGE_MAX)] = ""
    command: Annotated[tuple[Text, ...], Meta(max_length=4096)] = ()
    environment: Annotated[dict[Variable, Text], Meta(max_length=VARIABLES_MAX)] = {}
    secrets: Annotated[dict[Variable, SecretName], Meta(max_length=VARIABLES_MAX)] = {}
    health_path: Annotated[str, Meta(max_length=HEALTH_PATH_MAX)] = "/healthz"


def connections(asked: int | None, command: Sequence[str]) -> int:
    """Requests that a load balancer gives an instance at a time, `asked` by its department, or as suits what it runs.  How
    a program of the department's own works is unknown; too low a bound is the worse mistake (docs/howto/haproxy.md)."""
    if asked is not None:
        return asked
    return CONNECTIONS_COMMAND if command else CONNECTIONS_BUILT_IN
