"""Names of the calls in OpenAPI: `submit_job`, `get_jobs`, `get_job`.  Generated clients call their functions so, and the page
of the interface shows calls in the groups that are named here.

Rules
  1. A request has the words of its kind: `job.submit` is `submit_job`.  Other calls, and lists, have their method and the words
     of its path, in the singular before a name in braces: `GET /v1/jobs/{job}/files` is `get_job_files`.
  2. Guests' calls leave out what all of them begin with: `get_guest_boot`.
  3. A call's group is the first word of its path.
"""

from __future__ import annotations

import re
from typing import Final

_GUEST: Final = re.compile(r"^/v1/guest/\{unit\}/\{attempt\}/\{rank\}")
# Group -> what its calls are for; in the order in which they are shown.
GROUPS: Final = {
    "jobs": "Submit and steer jobs; their states, output and files; when they start.",
    "why": "Why something is as it is, and how it came to be so.",
    "leases": "Machines for a time.",
    "departments": "Departments: their instances, scale and releases.",
    "instances": "Instances of web departments.",
    "signals": "Signals of load.",
    "hosts": "Hosts, and how operators take them out of use.",
    "events": "What happens, as it happens.",
    "usage": "Who held and used how much, and at which prices.",
    "cloud": "The cloud as a whole: overview, lending, audit, journal.",
    "page": "What the page shows, and its sessions.",
    "guest": "Calls of a VM's guest, or of its job.",
    "about": "This document, and health.",
}
_GROUP_OF: Final = {  # first words that are no groups
    "whatif": "jobs",
    "queue": "jobs",
    "starts": "jobs",
    "story": "why",
    "billable": "usage",
    "prices": "usage",
    "store": "usage",
    "overview": "cloud",
    "summary": "cloud",
    "lending": "cloud",
    "audit": "cloud",
    "record": "cloud",
    "picture": "page",
    "timeline": "page",
    "stream": "page",
    "session": "page",
    "openapi.json": "about",
    "healthz": "about",
}


def operation_id(method: str, path: str, kind: str = "") -> str:
    """`kind`: of the request that the call is, or empty."""
    noun, _, verb = kind.partition(".")
    if verb and verb != "list":
        return f"{verb}_{noun}"
    return "_".join([method.lower(), *_words(path)])


def group(path: str) -> str:
    """A key of `GROUPS`."""
    first = _segments(path)[0]
    return _GROUP_OF.get(first, first)


def _words(path: str) -> list[str]:
    """Rules 1 and 2."""
    segments = _segments(_GUEST.sub("/v1/guest", path))
    return [
        re.sub(r"\W", "_", word.removesuffix("s") if following.startswith("{") else word)
        for word, following in zip(segments, [*segments[1:], ""], strict=True)
        if not word.startswith("{")
    ]


def _segments(path: str) -> list[str]:
    return [part for part in path.removeprefix("/v1").split("/") if part]
