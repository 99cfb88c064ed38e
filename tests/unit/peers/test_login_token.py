"""Tokens by which a server signs a user in on our word: who, where, for a minute, and by which key."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import jwt
import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat

from gatepost.cli.assertion_key import command
from gatepost.organization.model import Role, Server, SignIn, SignInForm, Version
from gatepost.peers.login_token import LoginSigner, audience_of, login_token, make_key

PEM = make_key()
SERVER = Server(
    "MBX-01", "usa", "mbx-01.contoso.com", "127.0.0.1", Version.MODERN, frozenset({Role.MAILBOX}),
    sign_in=SignIn(form=SignInForm.ASSERTION, assertion_key=PEM),
)  # fmt: skip


def _read(token: str, audience: str, pem: bytes = PEM) -> dict[str, object]:
    return dict(jwt.decode(token, LoginSigner(pem).public_pem, algorithms=["ES256"], audience=audience))


def test_a_token_names_the_user_the_server_and_its_end() -> None:
    now = time.time()
    claims = _read(login_token(SERVER, "alice"), "mbx-01.contoso.com")
    assert (claims["iss"], claims["sub"], claims["aud"]) == ("gatepost", "alice", "mbx-01.contoso.com")
    end = claims["exp"]
    assert isinstance(end, int)
    assert now < end <= time.time() + 60
    assert set(claims) == {"iss", "sub", "aud", "exp", "jti"}
    assert jwt.get_unverified_header(login_token(SERVER, "alice"))["kid"] == LoginSigner(PEM).kid


def test_no_two_tokens_are_alike() -> None:
    assert len({_read(login_token(SERVER, "a"), SERVER.fqdn)["jti"] for _ in range(50)}) == 50


def test_a_token_is_for_one_server_and_for_a_minute() -> None:
    with pytest.raises(jwt.InvalidAudienceError):
        _read(login_token(SERVER, "alice"), "mbx-02.contoso.com")
    with pytest.raises(jwt.ExpiredSignatureError):
        _read(LoginSigner(PEM).token("alice", "x", time.time() - 61), "x")
    other = replace(SERVER, sign_in=replace(SERVER.sign_in, token_audience="store"))
    assert audience_of(other) == "store"


@pytest.mark.parametrize(
    "pem",
    [
        b"",
        b"rubbish",
        rsa.generate_private_key(65537, 2048).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        ec.generate_private_key(ec.SECP384R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        ec.generate_private_key(ec.SECP256R1()).private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x")
        ),
    ],
)
def test_what_is_no_key_is_said(pem: bytes) -> None:
    with pytest.raises(ValueError, match=r"^is no "):
        LoginSigner(pem)


def test_the_command_makes_and_publishes_keys(tmp_path: Path) -> None:
    """A key that is there stays; two published keys lie side by side under their names."""
    runner, keys = CliRunner(), tmp_path / "keys"
    for name in ("one", "two"):
        file = tmp_path / name
        assert runner.invoke(command, ["make", str(file)]).exit_code == 0
        assert file.stat().st_mode & 0o777 == 0o600
        assert runner.invoke(command, ["make", str(file)]).exit_code == 1
        done = runner.invoke(command, ["export", str(file), str(keys)])
        assert done.exit_code == 0
        signer = LoginSigner(file.read_bytes())
        assert (keys / "default" / "ES256" / signer.kid).read_bytes() == signer.public_pem
    assert done.output.count("Also there: ") == 1
    done = runner.invoke(command, ["jwks", str(tmp_path / "one"), str(tmp_path / "two")])
    found = json.loads(done.output)["keys"]
    assert [key["kid"] for key in found] == [LoginSigner((tmp_path / name).read_bytes()).kid for name in ("one", "two")]
    assert all("d" not in key for key in found)


def test_the_command_names_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "rubbish").write_text("rubbish")
    for words in (["export", "rubbish", "keys"], ["export", "none", "keys"], ["jwks", "rubbish"], ["make", "no/way"]):
        done = CliRunner().invoke(command, [words[0], *(str(tmp_path / word) for word in words[1:])])
        assert done.exit_code == 1
        assert str(tmp_path / words[1]) in done.output
