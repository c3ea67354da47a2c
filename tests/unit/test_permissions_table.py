"""The permission table by itself; what a server makes of it is tested in integration/test_permissions_nats.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas import subjects
from services.runtime.broker import credentials, permissions
from services.runtime.broker.nats_server import nats_server_config
from services.runtime.config.file import loads
from tests.integration.nats_process import CLOUD


def covers(pattern: str, subject: str) -> bool:
    wanted, tokens = pattern.split("."), subject.split(".")
    for index, token in enumerate(wanted):
        if token == ">":
            return len(tokens) > index
        if index >= len(tokens) or (token != "*" and token != tokens[index]):
            return False
    return len(wanted) == len(tokens)


TABLE = permissions.table(loads(CLOUD).cloud)
JOURNALS = ["admission", "provisioner", "executor", "scheduler.hpc", "scheduler.web"]


def test_every_user_service_and_admin_is_listed() -> None:
    services = {f"service-{p}" for p in (*JOURNALS, "monitor", "admin")}
    assert set(TABLE) == {"ann", "bob", "lb", "root"} | services


def test_each_journal_subject_has_exactly_one_publisher() -> None:
    for writer in JOURNALS:
        subject = subjects.journal(writer)
        owners = [name for name, allowed in TABLE.items() if any(covers(p, subject) for p in allowed.publish)]
        assert owners == [f"service-{writer}"]


def test_only_the_monitor_and_admin_may_purge_the_journal() -> None:
    purge = "$JS.API.STREAM.PURGE.PHOENIX"
    owners = {name for name, allowed in TABLE.items() if any(covers(p, purge) for p in allowed.publish)}
    assert owners == {"service-monitor", "service-admin"}


def test_nobody_in_a_department_touches_the_servers_own_subjects() -> None:
    for name in ("ann", "bob", "lb", "root"):
        assert not [s for s in (*TABLE[name].publish, *TABLE[name].subscribe) if s.startswith("$")]


def test_answers_go_to_configured_departments_only() -> None:
    for name, allowed in TABLE.items():
        inboxes = {s for s in allowed.publish if s.startswith("_INBOX")}
        if name == "service-scheduler.hpc":
            assert inboxes == {"_INBOX_hpc.>", "_INBOX_operators.>"}
        else:
            assert inboxes <= {"_INBOX_hpc.>", "_INBOX_web.>", "_INBOX_operators.>"}


def test_a_process_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="'planner' is no process"):
        permissions.of_service("planner", loads(CLOUD).cloud)


def test_the_servers_configuration_holds_no_secret(tmp_path: Path) -> None:
    config = loads(CLOUD, base=tmp_path)
    credentials.ensure(config)
    text = nats_server_config(config)
    assert 'listen: "127.0.0.1:7422"' in text
    for path in config.nats.credentials_dir.iterdir():
        assert path.read_text().strip() not in text, path.name
    assert text.count("nkey: U") == len(TABLE) + len(permissions.system())
