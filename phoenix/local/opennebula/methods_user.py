"""one.user.*, one.group.* and their quotas."""

from __future__ import annotations

from phoenix.local.opennebula import quotas
from phoenix.local.opennebula.auth import ADMIN, CREATE, MANAGE, USE, Need, hash_password, new_token
from phoenix.local.opennebula.calls import Call, method
from phoenix.local.opennebula.errors import INTERNAL, XML_RPC_API, OneError
from phoenix.local.opennebula.methods_vm import parse_template
from phoenix.local.opennebula.model import Group, User
from phoenix.local.opennebula.render import ids, text, user_core
from phoenix.local.opennebula.seed import new_user
from phoenix.local.opennebula.templates import Template, cdata
from phoenix.local.opennebula.xmlrpc import escape

USERS_GROUP = 1

_USER_DEFAULTS = f"<DEFAULT_USER_QUOTAS>{quotas.DEFAULTS_XML}</DEFAULT_USER_QUOTAS>"
_GROUP_DEFAULTS = f"<DEFAULT_GROUP_QUOTAS>{quotas.DEFAULTS_XML}</DEFAULT_GROUP_QUOTAS>"

# Tokens of one user; the oldest goes first. oned has the same limit.
TOKENS_MAX = 50


def _user_for(call: Call, user_id: int, right: str) -> User:
    user = call.store.user(call.user.id if user_id == -1 else user_id)
    if user.id != call.user.id or right == ADMIN:
        call.one.auth.require(call.user, Need(right, "USER", None, user.id))
    return user


def _user_xml(call: Call, user: User) -> str:
    return user_core(user, call.store.groups[user.groups[0]].name, user is call.user or 0 in call.user.groups)


@method("one.user.info", "i?b")
def user_info(call: Call, user_id: int, decrypt: bool = False) -> str:  # noqa: ARG001 (nothing is encrypted here)
    """A user; -1 is the caller."""
    user = _user_for(call, user_id, USE)
    return escape(f"<USER>{_user_xml(call, user)}{quotas.xml(call, user)}{_USER_DEFAULTS}</USER>")


@method("one.userpool.info")
def user_pool(call: Call) -> str:
    """All users, newest first."""
    parts: list[str] = []
    for user_id, user in sorted(call.store.users.items(), reverse=True):
        if user_id == call.user.id or call.one.auth.allowed(call.user, Need(USE, "USER", None, user_id)):
            parts.append(
                f"<USER>{_user_xml(call, user)}</USER><QUOTAS><ID>{user_id}</ID>{quotas.xml(call, user)}</QUOTAS>"
            )
    return escape(f"<USER_POOL>{''.join(parts)}{_USER_DEFAULTS}</USER_POOL>")


@method("one.user.allocate", "sss?a")
def user_allocate(call: Call, name: str, password: str, driver: str, groups: list[int] | None = None) -> int:
    """A new user; without groups in `users`."""
    call.one.auth.require(call.user, Need(CREATE, "USER"))
    for user in call.store.users.values():
        if user.name == name:
            raise OneError(INTERNAL, f"NAME is already taken by USER {user.id}.")
    if not name:
        raise OneError(INTERNAL, "Invalid NAME, it cannot be empty.")
    if not password:
        raise OneError(INTERNAL, "Invalid password, it cannot be empty.")
    for group in groups or ():
        call.store.group(group)
    return new_user(call.store, name, password, driver or "core", list(groups or [USERS_GROUP])).id


@method("one.user.passwd", "is")
def user_passwd(call: Call, user_id: int, password: str) -> int:
    """Change the password."""
    user = _user_for(call, user_id, MANAGE)
    if not password:
        raise OneError(INTERNAL, "Invalid password, it cannot be empty.")
    user.password = hash_password(password)
    call.one.auth.forget()
    return user.id


@method("one.user.chgrp", "ii")
def user_chgrp(call: Call, user_id: int, group_id: int) -> int:
    """Change the primary group; the old one is left."""
    user, group = _user_for(call, user_id, ADMIN), call.store.group(group_id)
    call.store.groups[user.groups[0]].users.pop(user.id, None)
    user.groups = [group.id, *(old for old in user.groups[1:] if old != group.id)]
    group.users[user.id] = None
    return user.id


@method("one.user.login", "ssi?i")
def user_login(call: Call, name: str, token: str, seconds: int, group_id: int | None = None) -> str:
    """A login token for `seconds` (-1: for ever); 0 seconds revokes `token`, or all."""
    user = next((user for user in call.store.users.values() if user.name == name), None)
    if user is None:
        raise OneError(INTERNAL, f"User {name} does not exist")
    _user_for(call, user.id, MANAGE)
    if group_id == -1:
        raise OneError(XML_RPC_API, "Cannot create a full token with a specific group token")
    if seconds == 0:
        for known in [token] if token else list(user.tokens):
            user.tokens.pop(known, None)
        return ""
    while len(user.tokens) >= TOKENS_MAX:
        del user.tokens[next(iter(user.tokens))]
    token = token or new_token()
    expires = -1 if seconds < 0 else call.one.clock.second() + seconds
    user.tokens[token] = (expires, group_id if group_id is not None else -1)
    return token


@method("one.user.quota", "is")
def user_quota(call: Call, user_id: int, text_: str) -> int:
    """Set limits."""
    user = _user_for(call, user_id, ADMIN)
    quotas.update(user, parse_template(text_, INTERNAL))
    return user.id


def _group_xml(group: Group) -> str:
    return (
        f"<ID>{group.id}</ID><NAME>{text(group.name)}</NAME><TEMPLATE>{group.template.inner_xml()}</TEMPLATE>"
        f"<USERS>{ids(group.users)}</USERS><ADMINS></ADMINS>"
    )


def _rules(group: Group) -> str:
    return f"<VLAN_RULES><ID>{cdata(str(group.id))}</ID></VLAN_RULES>"


@method("one.group.allocate", "s")
def group_allocate(call: Call, name: str) -> int:
    """A new group."""
    call.one.auth.require(call.user, Need(CREATE, "GROUP"))
    for group in call.store.groups.values():
        if group.name == name:
            raise OneError(INTERNAL, f"NAME is already taken by GROUP {group.id}.")
    group = Group(id=call.store.new_id("groups"), name=name, template=Template())
    call.store.groups[group.id] = group
    return group.id


def _group_for(call: Call, group_id: int, right: str) -> Group:
    group = call.store.group(call.user.groups[0] if group_id == -1 else group_id)
    if right != USE or group.id not in call.user.groups:
        call.one.auth.require(call.user, Need(right, "GROUP", None, group.id))
    return group


@method("one.group.info", "i?b")
def group_info(call: Call, group_id: int, decrypt: bool = False) -> str:  # noqa: ARG001 (nothing is encrypted here)
    """A group."""
    group = _group_for(call, group_id, USE)
    return escape(f"<GROUP>{_group_xml(group)}{quotas.xml(call, group)}{_rules(group)}{_GROUP_DEFAULTS}</GROUP>")


@method("one.group.quota", "is")
def group_quota(call: Call, group_id: int, text_: str) -> int:
    """Set limits."""
    group = _group_for(call, group_id, ADMIN)
    quotas.update(group, parse_template(text_, INTERNAL))
    return group.id
