"""Why: every decision carries one reason, a struct of its own with its words beside it (`base`).

    from schemas import reasons as because

    f.HostGranted(host="node-2", dept="hpc", reason=because.IdleToBatch(department="hpc", held=1))

There is no "unknown" here: a decision whose reason cannot be named is a bug.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

# `because.NAME` is how reasons are written: all of them, by area
from schemas.reasons.base import AnyReason as AnyReason
from schemas.reasons.base import fields as fields
from schemas.reasons.base import tag as tag
from schemas.reasons.base import tags as tags
from schemas.reasons.ends import *
from schemas.reasons.ends import EndReason
from schemas.reasons.hosts import *
from schemas.reasons.hosts import HostReason
from schemas.reasons.instances import *
from schemas.reasons.instances import InstanceReason
from schemas.reasons.newer import Newer as Newer
from schemas.reasons.starts import *
from schemas.reasons.starts import StartReason
from schemas.reasons.waits import *
from schemas.reasons.waits import WaitReason
from schemas.reasons.web import *
from schemas.reasons.web import WebReason

Union: TypeAlias = HostReason | StartReason | EndReason | WaitReason | WebReason | InstanceReason | Newer
REASONS: Final[tuple[type[AnyReason], ...]] = Union.__args__
BY_CODE: Final[dict[str, type[AnyReason]]] = {tag(cls): cls for cls in REASONS}

Kind: TypeAlias = type[AnyReason]

if TYPE_CHECKING:
    Reason: TypeAlias = AnyReason  # its words are methods; no code distinguishes a hundred types
else:
    Reason = Union  # as it is read
