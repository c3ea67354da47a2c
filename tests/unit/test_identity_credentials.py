"""Credentials on disk and who they belong to."""

from __future__ import annotations

import stat
import threading
from pathlib import Path

import msgspec
import nkeys
import pytest

from services.runtime.broker import credentials, permissions
from services.runtime.broker.credentials import CredentialsError
from services.runtime.callers.identity import Identities, Identity
from services.runtime.config.file import loads
from services.runtime.config.tables import Config
from tests.integration.nats_process import CLOUD


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return loads(CLOUD, base=tmp_path)


def token(config: Config, user: str) -> str:
    return credentials.token_file(config, user).read_text()


def snapshot(config: Config) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in config.nats.credentials_dir.iterdir()}


def test_everybody_gets_a_key_and_people_a_token(config: Config) -> None:
    changes = credentials.ensure(config)
    expected = {f"{u}.{kind}" for u in ("ann", "bob", "lb", "root") for kind in ("nk", "token")}
    expected |= {f"service-{p}.nk" for p in (*config.processes(), "admin", "watch")}
    assert set(changes.created) == expected | {"guest.key"}
    assert set(snapshot(config)) == expected | {"guest.key", "tokens.json"}


def test_only_the_owner_can_read_them(config: Config) -> None:
    config.nats.credentials_dir.mkdir(parents=True, mode=0o755)
    credentials.ensure(config)
    assert stat.S_IMODE(config.nats.credentials_dir.stat().st_mode) == 0o700
    for path in (*config.nats.credentials_dir.iterdir(), config.guest_key_file):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path.name


def test_a_file_that_others_could_read_is_closed_to_them(config: Config) -> None:
    credentials.ensure(config)
    credentials.seed_file(config, "ann").chmod(0o644)
    credentials.ensure(config)
    assert stat.S_IMODE(credentials.seed_file(config, "ann").stat().st_mode) == 0o600


def test_existing_credentials_are_kept(config: Config) -> None:
    credentials.ensure(config)
    before = snapshot(config)
    assert credentials.ensure(config) == credentials.Changes()
    assert snapshot(config) == before


def test_a_deleted_credential_is_replaced_by_another(config: Config) -> None:
    credentials.ensure(config)
    old = token(config, "ann")
    credentials.token_file(config, "ann").unlink()
    assert credentials.ensure(config).created == ("ann.token",)
    identities = Identities.load(config)
    assert identities.by_token(old) is None
    assert identities.by_token(token(config, "ann")) == Identity("ann", "hpc", "user")


def test_who_is_gone_from_the_configuration_loses_everything(config: Config, tmp_path: Path) -> None:
    credentials.ensure(config)
    (config.nats.credentials_dir / "notes.txt").write_text("kept")
    bobs = token(config, "bob")
    without = loads(
        CLOUD.replace('[[user]]\nname = "bob"\ndepartment = "hpc"\n', "")
        .replace('[[department]]\nname = "web"\nkind = "web"\n', "")
        .replace('[[user]]\nname = "lb"\ndepartment = "web"\n', ""),
        base=tmp_path,
    )
    revoked = credentials.ensure(without).revoked
    assert set(revoked) == {"bob.nk", "bob.token", "lb.nk", "lb.token", "service-scheduler.web.nk"}
    assert Identities.load(without).by_token(bobs) is None
    assert (config.nats.credentials_dir / "notes.txt").exists()
    assert "bob" not in credentials.public_keys(without)


def test_creators_at_the_same_time_agree(config: Config) -> None:
    threads = [threading.Thread(target=credentials.ensure, args=(config,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    identities = Identities.load(config)
    for user in ("ann", "bob", "lb", "root"):
        identity = identities.by_token(token(config, user))
        assert identity is not None
        assert identity.user == user
    assert not [n for n in snapshot(config) if n.startswith(".")]


def test_the_tokens_file_holds_no_token(config: Config) -> None:
    credentials.ensure(config)
    text = credentials.tokens_file(config).read_text()
    assert token(config, "ann") not in text
    assert sorted(msgspec.json.decode(text, type=dict[str, str]).values()) == ["ann", "bob", "lb", "root"]


def test_public_keys_belong_to_the_seeds(config: Config) -> None:
    credentials.ensure(config)
    keys = credentials.public_keys(config)
    assert set(keys) == {*permissions.table(config.cloud), permissions.WATCH}
    assert all(k.startswith("U") and len(k) == 56 for k in keys.values())
    assert len(set(keys.values())) == len(keys)
    seed = credentials.seed_file(config, "ann").read_bytes()
    assert nkeys.from_seed(bytearray(seed)).public_key.decode() == keys["ann"]


def test_a_missing_or_damaged_key_is_told_with_its_path(config: Config) -> None:
    credentials.ensure(config)
    path = credentials.seed_file(config, "ann")
    path.write_text("garbage!")
    with pytest.raises(CredentialsError, match=r"ann\.nk: not an nkey seed"):
        credentials.public_keys(config)
    path.unlink()
    with pytest.raises(CredentialsError, match=r"ann\.nk: No such file"):
        credentials.public_keys(config)
    with pytest.raises(CredentialsError, match=r"no readable key of 'ann'"):
        credentials.user_options(config, "ann")
    with pytest.raises(CredentialsError, match="there is no user 'zoe'"):
        credentials.user_options(config, "zoe")


def test_connection_options_name_key_and_inbox(config: Config) -> None:
    credentials.ensure(config)
    assert credentials.user_options(config, "root")["inbox_prefix"] == "_INBOX_operators.root"
    options = credentials.service_options(config, "scheduler.hpc")
    assert options["inbox_prefix"] == "_INBOX_service.scheduler.hpc"
    assert options["nkeys_seed"].endswith("service-scheduler.hpc.nk")


def test_roles_come_from_the_configuration_of_the_moment(config: Config, tmp_path: Path) -> None:
    credentials.ensure(config)
    identities = Identities.load(config)
    assert identities.by_user("ann", config.cloud) == Identity("ann", "hpc", "user")
    promoted = loads(CLOUD.replace('name = "ann"', 'name = "ann"\nrole = "manager"'), base=tmp_path).cloud
    assert identities.by_token(token(config, "ann"), promoted) == Identity("ann", "hpc", "manager")
    identities.cloud = promoted
    assert identities.by_token(token(config, "ann")) == Identity("ann", "hpc", "manager")
    assert identities.by_user("zoe", config.cloud) is None
    assert identities.by_token("") is None


def test_new_tokens_are_seen_after_a_reload(config: Config, tmp_path: Path) -> None:
    credentials.ensure(config)
    identities = Identities.load(config)
    assert not identities.reload_if_changed()
    more = loads(CLOUD + '[[user]]\nname = "eve"\ndepartment = "hpc"\n', base=tmp_path)
    credentials.ensure(more)
    eves = token(more, "eve")
    assert identities.by_token(eves, more.cloud) is None
    assert identities.reload_if_changed()
    assert identities.by_token(eves, more.cloud) == Identity("eve", "hpc", "user")


def test_without_tokens_nobody_is_known(config: Config) -> None:
    assert Identities.load(config).by_token("anything") is None
