"""Access to the monitor's reads, and how a read is refused: what every page of the monitor's HTTP stands on.

Rules
  1. A read needs a bearer token of a user of the cloud, or the cookie of a session (`sessions`).  A department's people see
     their department; operators see everything.
  2. Errors are problems (`schemas.problems`).
  3. A cookie is worth what a browser sends it for: reads (GET), by a page of this server (`origin`).  A token that is shown
     counts alone, whatever the cookie.
  4. What belongs to a department that the caller may not see is answered as if it did not exist, so that no caller learns what
     there is; the audit records it.  Departments are known to all.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

import orjson
from aiohttp import web

from schemas.ids import is_department
from schemas.problems import problem
from services.domain.custody.custody import Custody
from services.domain.refusal import Refused
from services.monitor.history.file import StandsStill
from services.monitor.http.http_error import Fault as Fault
from services.monitor.http.origin import is_own_page
from services.monitor.http.sessions import Sessions
from services.monitor.parts import WRITTEN, Parts, Work, in_parts
from services.runtime.broker.credentials import digest
from services.runtime.callers.identity import Identities, Identity
from services.runtime.http.answers import LEAST_OF_ERRORS, not_routed, problem_answer
from services.runtime.http.body import BodyRefused

COOKIE: Final = "phoenix_session"


class Access:
    """Every handler asks it first.  Its methods raise `Fault`.  `cookie`: its name."""

    def __init__(
        self, custody: Custody, identities: Identities, sessions: Sessions | None = None, cookie: str = COOKIE
    ) -> None:
        self.custody, self.identities = custody, identities
        self.sessions, self.cookie = sessions or Sessions(identities), cookie

    def who(self, request: web.Request) -> Identity:
        if "Authorization" in request.headers or self.cookie not in request.cookies:
            return self.bearer(request)[0]
        self._refresh()
        who = self.sessions.who(request.cookies[self.cookie], self.custody.state.config)
        if who is None:
            raise Fault(401, "denied", "the session is over: log in again")
        if request.method != "GET" or not is_own_page(request):
            raise Fault(403, "denied", "a session is for reading, by the page of this server; else show a bearer token")
        return who

    def asker(self, request: web.Request) -> Identity | None:
        """The owner of the token or cookie, whatever that is worth here; None if it has none."""
        if "Authorization" not in request.headers and self.cookie in request.cookies:
            return self.sessions.who(request.cookies[self.cookie], self.custody.state.config)
        token = request.headers.get("Authorization", "").partition(" ")[2]
        return self.identities.by_digest(digest(token), self.custody.state.config)

    def bearer(self, request: web.Request) -> tuple[Identity, str]:
        """The caller by token alone, and the token."""
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        who = self.by_digest(digest(token)) if scheme.lower() == "bearer" else None
        if who is None:
            needed = "a known bearer token is needed: Authorization: Bearer <token>"
            raise Fault(401, "denied", self.identities.ended(token) or needed)
        return who, token

    def _refresh(self) -> None:
        try:
            self.identities.refresh()
        except Refused as refused:
            raise Fault(503, refused.code, refused.message) from None

    def by_digest(self, token: str) -> Identity | None:
        """The owner of the token of this hash."""
        self._refresh()
        return self.identities.by_digest(token, self.custody.state.config)

    def scope(self, request: web.Request, *, past: bool = False) -> str | None:
        """The department that the caller may see and asks for; None: all of them.  `past`: operators may also name one that is
        not configured any more."""
        who = self.who(request)
        asked = request.query.get("department")
        if past and who.role == "operator" and (asked is None or is_department(asked)):
            return asked
        if asked is not None and self.custody.department(asked) is None:
            raise Fault(404, "unknown", f"there is no department {asked!r}", "department")
        if who.role == "operator":
            return asked
        if asked not in (None, who.department):
            raise Fault(403, "denied", f"{who.user} sees department {who.department!r} only", "department")
        return who.department

    def sees(self, request: web.Request, department: str | None) -> bool:
        """Whether the caller is of `department`, or an operator."""
        who = self.who(request)
        return who.role == "operator" or department == who.department

    def own(self, request: web.Request, department: str) -> None:
        """Refuse a caller who may not see that department, whose existence all may know."""
        if not self.sees(request, department):
            own = self.who(request).department
            raise Fault(403, "denied", f"department {department} is not of department {own!r}")

    def theirs(self, request: web.Request, department: str | None, missing: Fault) -> None:
        """Refuse who may not see what is of that department with `missing`, as what is not there (rule 4)."""
        if not self.sees(request, department):
            missing.hides = f"it is of department {department}"
            raise missing


@web.middleware
async def faults(request: web.Request, handler: Callable[[web.Request], Awaitable[Any]]) -> Any:
    """Rule 2."""
    try:
        return await handler(request)
    except Fault as fault:
        return problem_answer(fault.problem())
    except BodyRefused as refused:
        return problem_answer(refused.problem())
    except StandsStill as told:
        return problem_answer(problem("unavailable", str(told)))
    except web.HTTPException as wrong:
        if wrong.status < LEAST_OF_ERRORS:
            raise
        return not_routed(request, wrong)


async def rows_answer(view: dict[str, Any], key: str) -> web.Response:
    """`view`, whose `key` may have thousands of rows."""
    return web.Response(body=await in_parts(_written(view, key)), content_type="application/json")


def _written(view: dict[str, Any], key: str) -> Parts[bytes]:
    work, rows = Work(), list[bytes]()
    for row in view[key]:
        rows.append(orjson.dumps(row))
        if work.add(WRITTEN):
            yield
    return whole({name: value for name, value in view.items() if name != key}, key, rows)


def whole(view: dict[str, Any], key: str, rows: Iterable[bytes]) -> bytes:
    """`view` as JSON, with rows that are JSON already."""
    return b"%b,%b:[%b]}" % (orjson.dumps(view)[:-1], orjson.dumps(key), b",".join(rows))


def json_answer(value: object) -> web.Response:
    return web.Response(body=orjson.dumps(value), content_type="application/json")
