"""How a program finds its cloud and its token, and what an address is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from phoenix.client import Client, Denied, Invalid, SyncClient, Unavailable
from phoenix.client.address import parse_url, query, quote
from phoenix.client.where import DATA_DEFAULT, TOKEN_BYTES_MAX, data_dir, find, read_token, token_of

URL = "http://127.0.0.1:7"


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of an embedded cloud that describes itself."""
    for name in ("PHOENIX_URL", "PHOENIX_DATA", "PHOENIX_TOKEN_FILE", "PHOENIX_USER"):
        monkeypatch.delenv(name, raising=False)
    users = []
    for name, department, role in (("ann", "hpc", "user"), ("oscar", "operators", "operator")):
        (tmp_path / f"{name}.token").write_text(f"token-of-{name}\n")
        token = str(tmp_path / f"{name}.token")
        users.append({"name": name, "department": department, "role": role, "token_file": token})
    describe(tmp_path, http_url=URL, users=users, departments={"hpc": "batch"})
    return tmp_path


def describe(data: Path, **about: Any) -> None:
    (data / "run").mkdir(exist_ok=True)
    (data / "run" / "cloud.json").write_text(json.dumps(about))


def used(client: Client) -> str:
    return client._line._headers().get("Authorization", "")


def test_the_embedded_cloud_and_who_calls(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (Client.find(data).url, used(Client.find(data))) == (URL, "Bearer token-of-oscar")
    assert used(Client.find(data, user="ann")) == "Bearer token-of-ann"
    monkeypatch.setenv("PHOENIX_USER", "ann")
    assert used(Client.find(str(data))) == "Bearer token-of-ann"
    assert used(Client.find(data, user="oscar")) == "Bearer token-of-oscar"
    with pytest.raises(Invalid, match="no user 'bob'") as caught:
        Client.find(data, user="bob")
    assert caught.value.hint == "users: ann, oscar"


def test_the_order_of_places(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {"PHOENIX_URL": "http://elsewhere:1", "PHOENIX_TOKEN_FILE": "t", "PHOENIX_DATA": str(data)}
    assert find(data, environ).url == URL
    assert find(None, environ)[0] == "http://elsewhere:1"
    assert find(None, environ).token_file == Path("t")
    assert find(None, {"PHOENIX_DATA": str(data)}).url == URL
    assert data_dir(None, {}) == Path(DATA_DEFAULT)
    monkeypatch.chdir(data.parent)
    with pytest.raises(Unavailable, match="no cloud is running"):
        find(None, {})


def test_a_remote_cloud_knows_its_caller_from_the_token(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHOENIX_URL", "https://cloud.example/base/")
    with pytest.raises(Denied, match="no token"):
        Client.find()
    monkeypatch.setenv("PHOENIX_TOKEN_FILE", str(data / "ann.token"))
    assert (Client.find().url, used(Client.find())) == ("https://cloud.example/base", "Bearer token-of-ann")
    with SyncClient.find() as client:
        assert client.url == "https://cloud.example/base"


@pytest.mark.parametrize(
    ("about", "kind", "words"),
    [
        ({"http_url": "", "users": [], "departments": {}}, Unavailable, "without services"),
        ({"http_url": URL, "users": [{}], "departments": {}}, Unavailable, "damaged"),
        ({"http_url": URL, "users": None, "departments": {}}, Unavailable, "damaged"),
        ({"http_url": URL, "users": [], "departments": {}}, Denied, "no users"),
    ],
)
def test_a_description_of_no_use(data: Path, about: dict[str, Any], kind: type[Exception], words: str) -> None:
    describe(data, **about)
    with pytest.raises(kind, match=words):
        Client.find(data)


def test_a_damaged_description_and_a_file_in_its_place(data: Path) -> None:
    for text in ("[]", "{"):
        (data / "run" / "cloud.json").write_text(text)
        with pytest.raises(Unavailable, match="damaged"):
            find(data)
    with pytest.raises(Invalid, match="no directory"):
        find(data / "ann.token")


def test_without_an_operator_a_user_has_to_be_named(data: Path) -> None:
    describe(data, http_url=URL, users=[], departments={})
    with pytest.raises(Denied):
        token_of(find(data), None)


@pytest.mark.parametrize("content", [b"", b"\n", b"two words", b"a\nb", b"\xff\xfe", b"x" * (TOKEN_BYTES_MAX + 1)])
def test_what_is_no_token_is_refused_and_not_repeated(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "t").write_bytes(content)
    with pytest.raises(Denied, match="this is no token") as caught:
        read_token(tmp_path / "t")
    assert "two words" not in str(caught.value)
    with pytest.raises(Denied, match="cannot read the token"):
        read_token(tmp_path / "missing")


def test_addresses() -> None:
    assert parse_url("http://[::1]:80/base/") == (False, "::1", 80, "base")
    assert parse_url("https://site.example") == (True, "site.example", 443, "")
    for wrong in ("site.example:80", "ftp://x", "http://:80", "http://x:port", "http://x:0", "http://x:65536", ""):
        with pytest.raises(Invalid, match="no address"):
            parse_url(wrong)


def test_a_query_has_what_was_given_and_names_cannot_leave_their_segment() -> None:
    assert query("/p", {"a": None, "b": "", "c": 0, "d": "x&y=1"}) == "/p?c=0&d=x%26y%3D1"
    assert query("/p", {}) == "/p"
    assert quote("../a b?#%ü") == "..%2Fa%20b%3F%23%25%C3%BC"
