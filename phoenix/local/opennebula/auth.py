"""Callers, and what they may do.

1. A session is `user:password` or `user:token`. Whatever is wrong with it, the answer is the same: it reveals nothing
   about which users exist.
2. Group 0 (oneadmin) may do everything. Others: by ownership bits of the object, then by access rules (ACL).
3. A refusal lists every right that is missing, as OpenNebula words it.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass

from phoenix.local.opennebula.errors import AUTHENTICATION, AUTHORIZATION, OneError
from phoenix.local.opennebula.model import Acl, Owned, User
from phoenix.local.opennebula.store import Clock, Store

USE, MANAGE, ADMIN, CREATE = "USE", "MANAGE", "ADMIN", "CREATE"
_BIT = {USE: 0, MANAGE: 1, ADMIN: 2}

# Drivers whose password this server can check; anything else never authenticates.
_PASSWORD_DRIVERS = ("core",)


def hash_password(password: str) -> str:
    """What `core` stores."""
    return hashlib.sha256(password.encode()).hexdigest()


def new_token() -> str:
    """A login token."""
    return secrets.token_hex(32)


@dataclass(frozen=True, slots=True)
class Need:
    """A right that a call needs: on an object, or (`thing` None) on a kind."""

    right: str
    kind: str
    thing: Owned | None = None
    object_id: int = -1

    def __str__(self) -> str:
        where = f" [{self.object_id}]" if self.object_id >= 0 else ""
        return f"{self.right} {self.kind}{where}"


def need(right: str, kind: str, thing: Owned) -> Need:
    """A right on an owned object."""
    return Need(right, kind, thing, thing.id)


class Auth:
    """Authentication with a cache (a hash per call would be the dearest part of it), and authorisation."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._sessions: dict[str, int] = {}

    def forget(self) -> None:
        """Users or passwords have changed."""
        self._sessions.clear()

    def user(self, session: str) -> User:
        """The caller. Raises `OneError`."""
        known = self._sessions.get(session)
        if known is not None:
            return self._store.users[known]
        user, cacheable = self._authenticate(session)
        if user is None:
            raise OneError(AUTHENTICATION, "User couldn't be authenticated, aborting call.")
        if cacheable:
            self._sessions[session] = user.id
        return user

    def _authenticate(self, session: str) -> tuple[User | None, bool]:
        name, _, secret = session.partition(":")
        user = next((user for user in self._store.users.values() if user.name == name), None)
        if user is None or not user.enabled or not secret:
            return None, False
        if user.auth_driver in _PASSWORD_DRIVERS and hmac.compare_digest(hash_password(secret), user.password):
            return user, True
        for token, (expires, _) in user.tokens.items():
            if hmac.compare_digest(token.encode(), secret.encode()) and (expires < 0 or expires > self._clock.now()):
                return user, False
        return None, False

    def allowed(self, user: User, wanted: Need) -> bool:
        """Whether the user has the right."""
        if 0 in user.groups:
            return True
        thing = wanted.thing
        if thing is not None and wanted.right in _BIT:
            bit = _BIT[wanted.right]
            owner, group, other = thing.perms[0:3], thing.perms[3:6], thing.perms[6:9]
            if (thing.uid == user.id and owner[bit]) or (thing.gid in user.groups and group[bit]) or other[bit]:
                return True
        return any(_grants(rule, user, wanted) for rule in self._store.acls.values())

    def require(self, user: User, *wanted: Need) -> None:
        """Raises `OneError` unless the user has every right."""
        lacking = [str(item) for item in wanted if not self.allowed(user, item)]
        if lacking:
            text = "; ".join(f"Not authorized to perform {item}" for item in lacking)
            raise OneError(AUTHORIZATION, f"User [{user.id}] : {text}.")


def _grants(rule: Acl, user: User, wanted: Need) -> bool:
    who, resources, rights = rule.text.split(" ")[:3]
    kinds, _, which = resources.partition("/")
    if not (who == "*" or who == f"#{user.id}" or (who.startswith("@") and int(who[1:]) in user.groups)):
        return False
    if wanted.kind not in kinds.split("+") or wanted.right not in rights.split("+"):
        return False
    if which == "*":
        return True
    if which.startswith("#"):
        return wanted.object_id == int(which[1:])
    if which.startswith("@") and wanted.thing is not None:
        return wanted.thing.gid == int(which[1:])
    return False


# one.acl.info prints rules as bit masks; the positions are OpenNebula's.
KIND_BIT = {
    "VM": 0x1000000000,
    "HOST": 0x2000000000,
    "NET": 0x4000000000,
    "IMAGE": 0x8000000000,
    "USER": 0x10000000000,
    "TEMPLATE": 0x20000000000,
    "GROUP": 0x40000000000,
    "DATASTORE": 0x100000000000,
    "CLUSTER": 0x200000000000,
    "DOCUMENT": 0x400000000000,
    "ZONE": 0x800000000000,
    "SECGROUP": 0x1000000000000,
    "VDC": 0x2000000000000,
    "VROUTER": 0x4000000000000,
    "MARKETPLACE": 0x8000000000000,
    "MARKETPLACEAPP": 0x10000000000000,
    "VMGROUP": 0x20000000000000,
    "VNTEMPLATE": 0x40000000000000,
    "BACKUPJOB": 0x100000000000000,
}
_RIGHT_BIT = {USE: 1, MANAGE: 2, ADMIN: 4, CREATE: 8}
_ALL, _INDIVIDUAL, _GROUP = 0x400000000, 0x100000000, 0x200000000


def _scope(text: str) -> int:
    if text == "*":
        return _ALL
    return (_INDIVIDUAL if text[0] == "#" else _GROUP) | int(text[1:])


def acl_numbers(rule: Acl) -> tuple[int, int, int, int]:
    """USER, RESOURCE, RIGHTS and ZONE of a rule (printed in hexadecimal)."""
    who, resources, rights, zone = rule.text.split(" ")
    kinds, _, which = resources.partition("/")
    resource = _scope(which)
    for kind in kinds.split("+"):
        resource |= KIND_BIT[kind]
    return _scope(who), resource, sum(_RIGHT_BIT[right] for right in rights.split("+")), _scope(zone)
