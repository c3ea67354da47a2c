"""Tokens with an end: who holds one is known until then and told afterwards, and the file survives whoever writes it."""

from __future__ import annotations

import json
import stat
import threading
from pathlib import Path

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from phoenix.cli.__main__ import main
from services.domain.exits import Stop
from services.domain.refusal import Refused
from services.monitor.metrics.token_ends import LASTING_S, TokenEnds
from services.runtime import tokens
from services.runtime.broker import credentials
from services.runtime.broker.credentials import CredentialsError
from services.runtime.callers.identity import Identities, Identity
from services.runtime.config.file import loads
from services.runtime.config.tables import Config
from services.runtime.config.text import dump_toml
from services.runtime.tokens import ISSUED_MAX, KEPT_S, TokenError
from tests.integration.nats_process import CLOUD

NOW = 1_800_000_000.0
ANN = Identity("ann", "hpc", "user")


@pytest.fixture
def config(tmp_path: Path) -> Config:
    made = loads(CLOUD, base=tmp_path)
    credentials.ensure(made)
    return made


@pytest.fixture
def path(config: Config) -> Path:
    return credentials.tokens_file(config)


def known(config: Config, now: float) -> Identities:
    return Identities(credentials.tokens_file(config), config.cloud, lambda: now)


def test_a_token_serves_its_user_until_the_moment_of_its_end(config: Config, path: Path) -> None:
    token, entry = tokens.issue(path, "ann", 60, NOW)
    assert entry.ends == NOW + 60
    assert known(config, NOW + 59.9).by_token(token) == ANN
    assert known(config, NOW + 59.9).ended(token) == ""
    assert known(config, NOW + 60).by_token(token) is None
    assert known(config, NOW + 60).ended(token) == (
        "this token of ann ended at 2027-01-15T08:01:00Z: the cloud's operator creates another (phoenix token create)"
    )
    assert known(config, NOW + 60).ended("another") == ""


def test_the_file_holds_no_token_and_is_its_owners(path: Path) -> None:
    token, _ = tokens.issue(path, "ann", 60, NOW)
    assert token not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [p.name for p in path.parent.iterdir() if p.name.startswith(".")] == []


def test_a_file_of_an_older_version_is_read(config: Config, path: Path) -> None:
    path.write_text(json.dumps({tokens.digest("old"): "ann"}))
    assert known(config, NOW).by_token("old") == ANN
    assert known(config, NOW).ended("old") == ""


def test_what_was_issued_stays_when_credentials_are_made_again(config: Config, path: Path, tmp_path: Path) -> None:
    anns, _ = tokens.issue(path, "ann", 1e6, NOW)
    bobs, _ = tokens.issue(path, "bob", 1e6, NOW)
    before = path.read_bytes()
    tokens.keep(path, msgspec.json.decode(before, type=dict[str, object]), {"ann", "bob"}, NOW)  # type: ignore[arg-type]
    assert path.read_bytes() == before
    without = loads(CLOUD.replace('[[user]]\nname = "bob"\ndepartment = "hpc"\n', ""), base=tmp_path)
    credentials.ensure(without)
    assert [entry.user for entry in tokens.issued(path).values()] == ["ann"]
    assert known(config, NOW).by_token(bobs) is None
    assert known(config, NOW).by_token(anns) == ANN


def test_an_end_is_told_for_a_month_and_then_forgotten(path: Path) -> None:
    tokens.issue(path, "ann", 60, NOW)
    tokens.keep(path, {}, {"ann"}, NOW + 60 + KEPT_S - 1)
    assert len(tokens.issued(path)) == 1
    tokens.keep(path, {}, {"ann"}, NOW + 60 + KEPT_S)
    assert tokens.issued(path) == {}


def test_a_revoked_one_is_nobodys_and_the_others_stay(config: Config, path: Path) -> None:
    token, _ = tokens.issue(path, "ann", 60, NOW)
    other, _ = tokens.issue(path, "ann", 60, NOW)
    name = tokens.digest(token)[: tokens.ID_CHARS]
    assert list(tokens.issued(path)).count(name) == 1
    assert tokens.revoke(path, name) is not None
    assert tokens.revoke(path, name) is None
    identities = known(config, NOW)
    assert (identities.by_token(token), identities.ended(token), identities.by_token(other)) == (None, "", ANN)


def test_who_issues_at_the_same_time_loses_nothing(path: Path) -> None:
    threads = [threading.Thread(target=tokens.issue, args=(path, "ann", 60, NOW)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(tokens.issued(path)) == 8


def test_limits(path: Path) -> None:
    for for_s in (59.9, float("nan"), 3651 * 86400.0):
        with pytest.raises(TokenError, match="at least a minute and at most ten years"):
            tokens.issue(path, "ann", for_s, NOW)
    found = {f"{n:064x}": tokens.Issued(user="ann", made=NOW, ends=NOW + 60) for n in range(ISSUED_MAX)}
    with tokens.locked(path.parent):
        tokens.write(path, found)
    with pytest.raises(TokenError, match="ann has 100 tokens"):
        tokens.issue(path, "ann", 60, NOW)
    tokens.issue(path, "ann", 60, NOW + 60)  # those have ended
    tokens.issue(path, "bob", 60, NOW)


def test_a_damaged_file_is_told_with_what_to_do(config: Config, path: Path) -> None:
    path.write_text("{")
    with pytest.raises(TokenError, match=r"tokens\.json: .*; delete it: `phoenix up` creates a new one"):
        tokens.issued(path)
    with pytest.raises(CredentialsError, match="delete it"):
        credentials.ensure(config)
    path.unlink()
    credentials.ensure(config)


@pytest.mark.parametrize("damage", [b"{", b'{"\xff": "ann"}', b'{"a": ' + b"[" * 100_000, b'{"a": 5}'])
def test_a_door_lets_nobody_in_while_the_file_is_damaged_and_the_log_alone_says_which(
    config: Config, path: Path, caplog: pytest.LogCaptureFixture, damage: bytes
) -> None:
    identities, good = known(config, NOW), path.read_bytes()
    path.write_bytes(damage)
    for _ in range(2):
        with pytest.raises(Refused) as refused:
            identities.refresh()
        assert refused.value.code == "unavailable"
        assert path.name not in refused.value.message
    with pytest.raises(Stop, match=r"tokens\.json"):
        Identities.load(config)
    assert [record.levelname for record in caplog.records] == ["ERROR"]  # once, not for each request
    assert str(path) in str(vars(caplog.records[0]))
    path.write_bytes(good)
    assert identities.refresh()
    assert not identities.refresh()


def test_the_first_end_of_each_users_lasting_tokens_is_a_metric_until_it_has_come(config: Config, path: Path) -> None:
    long = LASTING_S + 100
    for user, for_s in (("ann", LASTING_S + 500), ("ann", long), ("bob", LASTING_S), ("bob", LASTING_S - 1)):
        tokens.issue(path, user, for_s, NOW)

    def shown(now: float, user: str) -> float | None:
        registry = CollectorRegistry()
        registry.register(TokenEnds(known(config, now)))
        return registry.get_sample_value("phoenix_token_expiry_timestamp_seconds", {"user": user})

    assert (shown(NOW, "ann"), shown(NOW, "bob"), shown(NOW, "root")) == (NOW + long, NOW + LASTING_S, None)
    assert (shown(NOW + long, "ann"), shown(NOW + LASTING_S, "bob")) == (NOW + LASTING_S + 500, None)


def test_a_damaged_file_takes_no_other_metric_with_it(config: Config, path: Path) -> None:
    tokens.issue(path, "ann", LASTING_S, NOW)
    registry = CollectorRegistry()
    registry.register(TokenEnds(known(config, NOW)))
    path.write_text("{")
    found = registry.get_sample_value("phoenix_token_expiry_timestamp_seconds", {"user": "ann"})
    assert found == NOW + LASTING_S


# ---------------------------------------------------------------------------------------------------------- phoenix token


def phoenix(config: Config, *words: str) -> int:
    file = config.data_dir.parent / "phoenix.toml"
    file.write_text(dump_toml(config))
    return main(["token", *words, "--config", str(file)])


def test_one_is_made_listed_and_revoked(config: Config, capsys: pytest.CaptureFixture[str]) -> None:
    assert phoenix(config, "create", "ann", "--for", "8h") == 0
    made = capsys.readouterr()
    token = made.out.strip()
    assert Identities.load(config).by_token(token) == ANN
    assert token not in made.err
    name = tokens.digest(token)[: tokens.ID_CHARS]
    assert name in made.err
    assert phoenix(config, "list") == 0
    listed = capsys.readouterr().out
    assert (name in listed, token in listed) == (True, False)
    assert phoenix(config, "revoke", name) == 0
    assert Identities.load(config).by_token(token) is None
    capsys.readouterr()
    assert phoenix(config, "list", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"tokens": []}
    assert phoenix(config, "list") == 0
    assert "all that were have been revoked" in capsys.readouterr().out


def test_a_file_is_private_new_and_made_before_the_token(
    config: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "ann.token"
    assert phoenix(config, "create", "ann", "--out", str(file), "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["token"] is None
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert Identities.load(config).by_token(file.read_text()) == ANN
    assert phoenix(config, "create", "ann", "--out", str(file)) == 2
    assert len(tokens.issued(credentials.tokens_file(config))) == 1
    assert phoenix(config, "create", "ann", "--for", "1s", "--out", str(tmp_path / "none")) == 1
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("make", "ann"), "token has no 'make'"),
        (("create",), "whose token?"),
        (("create", "anna"), "there is no user 'anna'"),
        (("create", "ann", "--for", "soon"), "--for: 'soon' is no time"),
        (("create", "ann", "--for", "1s"), "at least a minute"),
        (("list", "ann"), "list takes no name"),
        (("list", "--for", "1d"), "--for goes with create"),
        (("revoke",), "which one?"),
        (("revoke", "abc"), "there is no issued token 'abc'"),
    ],
)
def test_mistakes_are_told(
    config: Config, words: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert phoenix(config, *words) in (1, 2)
    assert told in capsys.readouterr().err
