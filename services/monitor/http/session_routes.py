"""Logging in at the page: a token, or a code that `phoenix dashboard` got for one, for a cookie.

    POST   /v1/session       {"token"} or {"code"}  -> the user, and the cookie
    GET    /v1/session                              -> the user, and where the page is
    DELETE /v1/session                              -> the session is over
    POST   /v1/session/code  (bearer token)         -> {"code", "url"}: for a browser, once, within a minute

Rules
  1. The cookie holds a random id and nothing else; scripts cannot read it, and other sites' pages cannot send it.
  2. It is named after the port: browsers send a host's cookies to all of its ports, and two clouds on one machine must not
     throw out each other's.
  3. A session or code is never made from a session: only who has the token gets another one.  Who logs in again ends the
     session that the browser had.
  4. Logins and attempts to log in are in the audit; what is refused because of too many tries is not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from aiohttp import web

from schemas.answers.page import Login
from schemas.audit import AuditRecord
from schemas.validation import UNREADABLE
from services.monitor.http.access import Access, Fault, json_answer
from services.monitor.http.origin import is_own_page
from services.monitor.http.request_audit import record_of
from services.monitor.http.session_store import KeptSessions
from services.monitor.http.sessions import CODE_S, SESSION_S
from services.runtime.broker.credentials import digest
from services.runtime.callers.identity import Identity
from services.runtime.callers.peers import Peers
from services.runtime.clock import Clock, system_clock
from services.runtime.http.answers import JSON, MSGPACK
from services.runtime.http.body import read_body

BODY_MAX: Final = 4 << 10  # a token has 43 characters


_written: Final = msgspec.json.Decoder(Login)
_packed: Final = msgspec.msgpack.Decoder(Login)


class SessionRoutes:
    """`url`: where people reach the page (`[monitor] url`); `note`: takes what goes to the audit."""

    def __init__(
        self,
        access: Access,
        kept: KeptSessions,
        url: str,
        note: Callable[[AuditRecord], None],
        peers: Peers | None = None,
        clock: Clock = system_clock,
    ) -> None:
        self.access, self.kept, self.url = access, kept, url.rstrip("/")
        self.sessions = kept.sessions
        self.note, self.peers, self.clock = note, peers or Peers(), clock

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/v1/session", self.open),
            web.get("/v1/session", self.show),
            web.delete("/v1/session", self.close),
            web.post("/v1/session/code", self.code),
        ]

    async def open(self, request: web.Request) -> web.Response:
        if request.content_type not in (JSON, MSGPACK) or not is_own_page(request):
            fault = Fault(403, "denied", "a session is opened by the page of this server, with JSON or MessagePack")
            self._tell(request, "session.open", None, fault)
            raise fault
        peer = self.peers.of(request)
        login = await _body(request)
        token = self.sessions.redeem(login.code) if login.code else digest(login.token)
        who = self.access.by_digest(token) if token is not None else None
        if token is None or who is None:
            if (wait_s := self.sessions.wait_s(peer)) > 0:
                text = f"too many failed logins from your address: try again in {wait_s:.1f} s"
                raise Fault(429, "limit", text, retry_after_s=wait_s)
            self.sessions.failed(peer)
            fault = self._wrong(login)
            self._tell(request, "session.open", None, fault)
            raise fault
        self._tell(request, "session.open", who)
        self.sessions.passes.drop(request.cookies.get(self.access.cookie, ""))
        made = self.sessions.passes.make(token, who.user)
        await self.kept.keep()
        answer = json_answer(self._told(who))
        answer.set_cookie(
            self.access.cookie,
            made,
            max_age=int(SESSION_S),
            path="/",
            httponly=True,
            samesite="Strict",
            secure=urlsplit(self.url).scheme == "https",
        )
        return _kept_nowhere(answer)

    async def show(self, request: web.Request) -> web.Response:
        return _kept_nowhere(json_answer(self._told(self.access.who(request))))

    async def close(self, request: web.Request) -> web.Response:
        """The holder of the cookie may end it, also when it is no longer valid."""
        made = request.cookies.get(self.access.cookie)
        if made is not None and is_own_page(request):
            self.sessions.passes.drop(made)
            await self.kept.keep()
        answer = json_answer({"ok": True})
        answer.del_cookie(self.access.cookie, path="/")
        return _kept_nowhere(answer)

    async def code(self, request: web.Request) -> web.Response:
        who, token = self.access.bearer(request)
        made = self.sessions.codes.make(digest(token), who.user)
        self._tell(request, "session.code", who)
        return _kept_nowhere(json_answer({"code": made, "expires_s": CODE_S, "url": self.url}))

    def _wrong(self, login: Login) -> Fault:
        if login.code:
            return Fault(401, "denied", f"the code is used up, or older than {CODE_S:.0f} s: request a new one", "code")
        nobodys = "this token belongs to no user: phoenix status shows where tokens are"
        return Fault(401, "denied", self.access.identities.ended(login.token) or nobodys, "token")

    def _tell(self, request: web.Request, kind: str, who: Identity | None, fault: Fault | None = None) -> None:
        """Rule 4."""
        self.note(record_of(request, who, kind, "page", self.peers.of(request), self.clock(), fault))

    def _told(self, who: Identity) -> dict[str, Any]:
        config = self.access.custody.state.config
        cloud = config.name if config is not None else ""
        return {"user": who.user, "role": who.role, "department": who.department, "cloud": cloud, "url": self.url}


async def _body(request: web.Request) -> Login:
    data = await read_body(request, BODY_MAX)
    try:
        login = _packed.decode(data) if request.content_type == MSGPACK else _written.decode(data)
    except UNREADABLE:
        login = Login()
    if bool(login.token) == bool(login.code):
        raise Fault(400, "invalid", 'the body should be {"token": "…"} or {"code": "…"}')
    return login


def _kept_nowhere(answer: web.Response) -> web.Response:
    answer.headers["Cache-Control"] = "no-store"
    return answer
