"""The permission table by itself; what a server makes of it is tested in integration/test_permissions_nats.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas import subjects
from services.runtime.broker import accounts, credentials, permissions
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


def test_only_services_answer_and_nobody_publishes_to_an_inbox_but_schedulers_to_those_of_services_that_ask() -> None:
    for name, allowed in TABLE.items():
        inboxes = {s for s in allowed.publish if s.startswith(("_INBOX", "_R_"))}
        if name.startswith("service-scheduler."):
            assert inboxes == {"_R_.>", "_INBOX_asking.>"}
        else:
            assert inboxes == ({"_R_.>"} if name.startswith("service-") and name != "service-admin" else set())


def test_each_credential_is_in_one_account_and_no_department_exports_to_another() -> None:
    cloud = loads(CLOUD).cloud
    found = accounts.accounts(cloud)
    names = [name for account in found for name in account.users]
    assert sorted(names) == sorted([*TABLE, *permissions.system()])
    assert [account.name for account in found] == ["control", "department-hpc", "department-web", "operators", "$SYS"]
    for account in found[1:]:
        assert {one.to for one in account.exports} | {one.of for one in account.imports} <= {"control"}
        assert not account.has_jetstream
    told = {(one.subject, one.to) for one in found[0].exports}
    assert told == {(one.subject, account.name) for account in found[1:] for one in account.imports}


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
