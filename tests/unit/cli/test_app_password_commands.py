"""`gatepost user app-password` as an operator uses it."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import argon2
import pytest

from gatepost.cli.main import run
from gatepost.directory import passwords
from gatepost.directory.app_passwords import secret_digest

CONFIGURATION = """
[front_end]
server = "CAS-01"
directory = "directory.sqlite"
registry = "registry.sqlite"
[organization]
name = "contoso"
accepted_domains = ["contoso.com"]
[sites.usa]
internet_facing = true
[servers.CAS-01]
site = "usa"
roles = ["client-access"]
[servers.CAS-01.endpoints]
imap = { port = 1143, tls = "clear" }
[servers.MBX-01]
site = "usa"
roles = ["mailbox"]
[servers.MBX-01.endpoints]
imap = { tls = "clear" }
[databases.DB01]
copies = [ { server = "MBX-01", preference = 1 } ]
"""
CHEAP = argon2.PasswordHasher(1, 8, 1)
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def gatepost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs one command: status, output, standard error. Anna is there, with an alias."""
    (tmp_path / "gatepost.toml").write_text(CONFIGURATION)
    monkeypatch.setenv("GATEPOST_CONFIG", str(tmp_path / "gatepost.toml"))
    cheap_hash = passwords.make_hash
    monkeypatch.setattr("gatepost.cli.user.make_hash", lambda password: cheap_hash(password, CHEAP))

    def call(*arguments: str, stdin: bytes = b"") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), "utf-8"))
        status = run(arguments)
        out, err = capsys.readouterr()
        return status, out, err

    added = call("user", "add", "Anna", "--database", "DB01", "--address", "sales", "--password-stdin", stdin=b"apple")
    assert added[0] == 0
    return call


def _listed(gatepost: Run, *arguments: str) -> list[dict[str, object]]:
    status, out, _ = gatepost("user", "app-password", "list", *arguments, "--json")
    assert status == 0
    found: list[dict[str, object]] = json.loads(out)
    return found


def test_the_secret_is_shown_once_and_listed_never(gatepost: Run) -> None:
    status, out, err = gatepost(
        "user", "app-password", "add", "sales", "--name", "phone", "--protocols", "imap,activesync",
        "--expires", "2099-01-31", "--networks", "10.0.0.0/8",
    )  # fmt: skip
    assert status == 0
    assert secret_digest(out.strip()) is not None
    assert "phone of anna@contoso.com" in err, "an alias says whose it is"
    (found,) = _listed(gatepost)
    assert found | {"made": ""} == {
        "user": "anna@contoso.com", "name": "phone", "protocols": ["imap", "activesync"], "networks": ["10.0.0.0/8"],
        "made": "", "expires": "2099-02-01T00:00Z", "used": None, "used_protocol": None, "used_address": None,
    }  # fmt: skip
    status, text, _ = gatepost("user", "app-password", "list", "anna")
    assert "never used" in text
    assert out.strip() not in text


def test_removal_by_name_and_of_all(gatepost: Run) -> None:
    for name in ("phone", "tablet", "pc"):
        assert gatepost("user", "app-password", "add", "anna", "--name", name)[0] == 0
    assert gatepost("user", "app-password", "remove", "sales", "--name", "pc")[:2] == (
        0,
        "removed 1 of anna@contoso.com\n",
    )
    status, _, err = gatepost("user", "app-password", "remove", "anna", "--name", "pc")
    assert status == 1
    assert "no app password called 'pc'" in err
    assert gatepost("user", "app-password", "remove", "anna")[0] == 2
    assert gatepost("user", "app-password", "remove", "anna", "--all")[1] == "removed 2 of anna@contoso.com\n"


def test_who_is_removed_leaves_none_behind(gatepost: Run) -> None:
    """Whoever gets the name next must not be opened by them."""
    assert gatepost("user", "app-password", "add", "anna", "--name", "phone")[0] == 0
    assert gatepost("user", "remove", "anna")[0] == 0
    assert _listed(gatepost) == []


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        (("--name", "x", "--protocols", "imap,gopher"), "'gopher' is no protocol or service"),
        (("--name", "x", "--networks", "10.0.0.1/8"), "a network: 10.0.0.1/8"),
        (("--name", "x", "--expires", "tomorrow"), "no day"),
        (("--name", "x", "--expires", "2001-01-01"), "expired already"),
        (("--name", ""), "1 to 64"),
    ],
)
def test_what_cannot_be_made(gatepost: Run, options: tuple[str, ...], fault: str) -> None:
    status, out, err = gatepost("user", "app-password", "add", "anna", *options)
    assert (status, out) == (1, "")
    assert fault in err


def test_nobody_gets_none(gatepost: Run) -> None:
    status, _, err = gatepost("user", "app-password", "add", "nobody", "--name", "phone")
    assert status == 1
    assert "no user has the name" in err
