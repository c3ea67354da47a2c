"""Secrets: which files count, what is told of those that do not, and that a value is shown nowhere."""

from __future__ import annotations

import io
import json
import os
import stat
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from phoenix.cli.__main__ import main
from services.admission.guests.boot import boot_of
from services.admission.guests.boot_text import lines
from services.admission.storage.secrets import TOLD_EVERY_S, Secrets
from services.domain.refusal import Refused
from services.runtime.config import secret_files
from services.runtime.config.file import loads
from services.runtime.config.secret_files import VALUE_MAX_BYTES, SecretError
from tests.support.admission import cloud, fold

VALUE = "correct horse \\ battery\nstaple"
TEXT = """
[cloud]
name = "c"
[[department]]
name = "web"
kind = "web"
[department.web]
secrets = { DB_PASSWORD = "db-password", DB_COPY = "db-password", API = "api-key" }
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    secret_files.write(tmp_path / "secrets", "web", "db-password", f"{VALUE}\n".encode())
    return tmp_path / "secrets"


def test_a_secret_is_a_private_file_whose_last_line_feed_is_not_its_own(place: Path) -> None:
    file = place / "web" / "db-password"
    assert secret_files.read(place, "web", "db-password") == VALUE
    assert [stat.S_IMODE(p.stat().st_mode) for p in (file, file.parent, place)] == [0o600, 0o700, 0o700]
    assert secret_files.values(place, "web", {"A": "db-password", "B": "db-password"}) == {"A": VALUE, "B": VALUE}
    secret_files.write(place, "web", "db-password", b"new")
    assert secret_files.read(place, "web", "db-password") == "new"
    assert secret_files.names(place, "web") == ["db-password"]
    assert (secret_files.remove(place, "web", "db-password"), secret_files.remove(place, "web", "db-password")) == (
        True,
        False,
    )


def test_what_is_missing_is_told_all_at_once_and_by_name(place: Path) -> None:
    with pytest.raises(SecretError) as error:
        secret_files.values(place, "web", {"A": "db-password", "B": "api-key", "C": "other"})
    assert str(error.value) == (
        "secret api-key of web is missing: phoenix secret set web api-key; "
        "secret other of web is missing: phoenix secret set web other"
    )
    [problem] = secret_files.problems(place, loads(TEXT).cloud)
    assert "api-key" in problem
    assert "db-password" not in problem


def test_what_others_could_have_read_or_written_is_no_secret(place: Path, tmp_path: Path) -> None:
    file = place / "web" / "db-password"
    file.chmod(0o640)
    with pytest.raises(SecretError, match=r"open to others \(mode 640\): chmod 600"):
        secret_files.read(place, "web", "db-password")
    file.chmod(0o600)
    if os.geteuid() == 0:
        os.chown(file, 12345, -1)
        with pytest.raises(SecretError, match="belongs to user 12345"):
            secret_files.read(place, "web", "db-password")
    file.unlink()
    (tmp_path / "elsewhere").write_text(VALUE)
    file.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SecretError, match="cannot be read"):
        secret_files.read(place, "web", "db-password")
    file.unlink()
    os.mkfifo(file, 0o600)
    with pytest.raises(SecretError, match="no regular file"):
        secret_files.read(place, "web", "db-password")


@pytest.mark.parametrize(
    ("data", "wrong"),
    [(b"x" * (secret_files.VALUE_MAX_BYTES + 1), "larger than"), (b"a\0b", "NUL"), (b"\xff\xfe", "UTF-8")],
)
def test_what_no_environment_could_hold_is_refused_without_showing_it(tmp_path: Path, data: bytes, wrong: str) -> None:
    with pytest.raises(SecretError, match=wrong):
        secret_files.write(tmp_path, "web", "s", data)
    assert not (tmp_path / "web" / "s").exists()


@pytest.mark.parametrize("name", ["", "../x", "/etc/passwd", "a/b", ".hidden", "UPPER", "x" * 65, "a\n"])
def test_a_name_is_no_path(place: Path, name: str) -> None:
    with pytest.raises(SecretError, match="no name of a secret"):
        secret_files.read(place, "web", name)


class Log:
    """What was logged."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []

    def warning(self, _event: str, **told: Any) -> None:
        self.told.append(told)


def test_a_department_is_no_path(place: Path) -> None:
    for dept in ("..", "web/../web", "", "Web"):
        with pytest.raises(SecretError, match="is no name of a department"):
            secret_files.read(place, dept, "db")
        with pytest.raises(SecretError, match="is no name of a department"):
            secret_files.names(place, dept)


def test_all_secrets_of_an_instance_fit_an_environment(place: Path) -> None:
    """A release may name one secret many times: each boot would cost the door as much."""
    secret_files.write(place, "web", "large", b"x" * VALUE_MAX_BYTES)
    assert len(secret_files.values(place, "web", {f"V{n}": "large" for n in range(15)})) == 15
    with pytest.raises(SecretError, match="an environment holds 1048576"):
        secret_files.values(place, "web", {f"V{n}": "large" for n in range(16)})


async def test_the_door_tells_a_guest_to_come_back_and_says_so_once_in_a_while(place: Path) -> None:
    log, now = Log(), [0.0]
    secrets = Secrets(place, lambda: now[0], log)  # type: ignore[arg-type]
    assert await secrets.of("web.1", "web", {}) == {}
    assert await secrets.of("web.1", "web", {"A": "db-password"}) == {"A": VALUE}
    for _ in range(3):
        with pytest.raises(Refused) as refused:
            await secrets.of("web.1", "web", {"A": "db-password", "B": "api-key"})
        assert refused.value.code == "unavailable"
        assert "api-key" in refused.value.message
        assert VALUE not in refused.value.message
    assert len(log.told) == 1
    now[0] = TOLD_EVERY_S
    with pytest.raises(Refused):
        await secrets.of("web.1", "web", {"B": "api-key"})
    assert len(log.told) == 2


def test_the_boot_document_alone_has_them_apart_from_the_environment() -> None:
    world = fold()
    world.place("web.1", "w1", dept="web")
    unit = world.core.unit("web.1")
    assert unit is not None
    from schemas.releases import Release

    boot = boot_of(cloud(), unit, 0, None, None, release=Release(secrets={"A": "s"}), secrets={"A": VALUE})
    assert boot is not None
    assert boot.secrets == {"A": VALUE}
    assert VALUE not in boot.environment.values()
    assert b"secret=A=correct horse \\\\ battery\\nstaple\n" in lines(boot)
    assert lines(boot).count(b"staple") == 1


def test_the_configuration_names_secrets_and_says_where_they_are(tmp_path: Path) -> None:
    config = loads(TEXT, base=tmp_path)
    assert config.secrets.directory == tmp_path / "data" / "credentials" / "secrets"
    named = loads(f'{TEXT}\n[secrets]\ndirectory = "vault"', base=tmp_path)
    assert named.secrets.directory == tmp_path / "vault"


def phoenix(tmp_path: Path, *words: str) -> int:
    return main([*words, "--data", str(tmp_path)])


class Door(BaseHTTPRequestHandler):
    """Answers which releases there are."""

    def do_GET(self) -> None:
        deployed = {"image": "", "secrets": {"KEY": "api-key", "AGAIN": "api-key"}}
        gone = {"secrets": {"OLD": "old"}}
        rows = [
            {"release": 3, "instances": 0, "content": deployed},
            {"release": 2, "instances": 1, "content": {"secrets": {"OTHER": "other"}}},
            {"release": 1, "instances": 0, "content": gone},
            {"release": 0, "instances": 4, "content": None},
        ]
        body = json.dumps(
            {"wanted": 3, "releases": rows} if self.path == "/v1/departments/web/releases" else {}
        ).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def running(tmp_path: Path) -> Iterator[None]:
    """A cloud that answers."""
    (tmp_path / "phoenix.toml").write_text(f'{TEXT}\n[data]\ndirectory = "."')
    (tmp_path / "olga.token").write_text("token")
    users = [
        {"name": "olga", "department": "operators", "role": "operator", "token_file": str(tmp_path / "olga.token")}
    ]
    (tmp_path / "run").mkdir()
    with HTTPServer(("127.0.0.1", 0), Door) as door:
        about = {"http_url": f"http://127.0.0.1:{door.server_port}", "users": users, "departments": {"web": "web"}}
        (tmp_path / "run" / "cloud.json").write_text(json.dumps(about))
        thread = threading.Thread(target=door.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield
        door.shutdown()
        thread.join()


@pytest.mark.usefixtures("running")
def test_the_list_says_which_releases_of_a_cloud_that_runs_use_a_secret(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("old", "other", "api-key"):
        secret_files.write(tmp_path / "credentials" / "secrets", "web", name, b"x")
    assert phoenix(tmp_path, "secret", "list", "web") == 0
    told = capsys.readouterr()
    assert told.err == ""
    assert told.out.splitlines() == [
        "api-key  $API, $KEY (release 3), $AGAIN (release 3)",
        "db-password  $DB_PASSWORD, $DB_COPY  secret db-password of web is missing: phoenix secret set web db-password",
        "old  neither the configuration nor a release uses it",
        "other  $OTHER (release 2)",
    ]
    assert phoenix(tmp_path, "secret", "list", "web", "--json") == 0
    rows = {row["secret"]: row for row in json.loads(capsys.readouterr().out)["secrets"]}
    assert (rows["other"]["variables"], rows["other"]["releases"], rows["old"]["releases"]) == (
        [],
        {"2": ["OTHER"]},
        {},
    )
    (tmp_path / "value").write_text("y")
    for name, words in (("other", ""), ("old", "neither the configuration nor a release uses it")):
        assert phoenix(tmp_path, "secret", "set", "web", name, "--file", str(tmp_path / "value")) == 0
        said = capsys.readouterr().err
        assert "this is not in the audit: the cloud's broker does not answer" in said
        assert words in said
        assert ("uses it" in said) == bool(words)


def test_what_releases_use_is_not_known_of_a_cloud_that_is_down(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "phoenix.toml").write_text(f'{TEXT}\n[data]\ndirectory = "."\n[secrets]\ndirectory = "{place}"')
    assert phoenix(tmp_path, "secret", "list", "web") == 0
    assert "what its releases use is not known: no cloud is running in" in capsys.readouterr().err


def test_the_command_sets_lists_and_removes_and_never_shows_a_value(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "phoenix.toml").write_text(f'{TEXT}\n[data]\ndirectory = "."')
    stdin = io.TextIOWrapper(io.BytesIO(f"{VALUE}\n".encode()))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert phoenix(tmp_path, "secret", "set", "web", "db-password") == 0
    (tmp_path / "value").write_text("topsecret")
    assert phoenix(tmp_path, "secret", "set", "web", "unused", "--file", str(tmp_path / "value")) == 0
    assert phoenix(tmp_path, "secret", "list", "web") == 0
    told = capsys.readouterr()
    assert "db-password  $DB_PASSWORD, $DB_COPY" in told.out
    assert "api-key  $API  secret api-key of web is missing" in told.out
    assert "unused  the configuration does not use it" in told.out
    assert secret_files.read(tmp_path / "credentials" / "secrets", "web", "db-password") == VALUE
    assert phoenix(tmp_path, "secret", "list", "web", "--json") == 0
    assert phoenix(tmp_path, "secret", "remove", "web", "unused") == 0
    assert phoenix(tmp_path, "secret", "remove", "web", "unused") == 2
    assert phoenix(tmp_path, "secret", "set", "web", "db-password", "the-value-itself") == 2
    assert phoenix(tmp_path, "secret", "set", "shop", "x", "--file", str(tmp_path / "value")) == 2
    said = told.out + told.err + "".join(capsys.readouterr())
    assert "staple" not in said
    assert "topsecret" not in said
