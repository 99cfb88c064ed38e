"""SCRAM-SHA-256: the RFC's own example, what is refused, bindings, and SASLprep."""

from __future__ import annotations

import base64
import hmac
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatepost.wire.sasl import BadSaslMessage
from gatepost.wire.saslprep import NotPrepared, saslprep
from gatepost.wire.scram import MAX_MESSAGE, PLAIN_NAME, PLUS_NAME, Keys, ScramServer, make_keys

FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CHALLENGE = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
FINAL = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
VERIFIER = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
KEYS = make_keys(b"pencil", SALT, 4096)
BINDINGS = {"tls-unique": b"finished", "tls-server-end-point": b"certificate"}


def _server(mechanism: str = PLAIN_NAME, *, offers_plus: bool = False) -> ScramServer:
    return ScramServer(mechanism, BINDINGS, NONCE, offers_plus=offers_plus)


def _proof(keys_of: bytes, spoken: bytes) -> bytes:
    """As a client makes it, read from RFC 5802 section 3 once more."""
    import hashlib

    salted = hashlib.pbkdf2_hmac("sha256", keys_of, SALT, 4096)
    client_key = hmac.new(salted, b"Client Key", sha256).digest()
    signature = hmac.new(sha256(client_key).digest(), spoken, sha256).digest()
    return bytes(a ^ b for a, b in zip(client_key, signature, strict=True))


def _final(server: ScramServer, header: bytes, bound: bytes = b"", password: bytes = b"pencil") -> bytes:
    """The client's last message to a server that has been told `header` and then FIRST's rest."""
    bare = FIRST.removeprefix(b"n,,")
    said = b"c=" + base64.b64encode(header + bound) + b",r=rOprNGfwEbeRWgbNEkqO" + server.nonce.encode()
    proof = _proof(password, b",".join((bare, server.challenge(KEYS), said)))
    return said + b",p=" + base64.b64encode(proof)


def test_the_example_of_rfc_7677() -> None:
    server = _server()
    first = server.first(FIRST)
    assert (first.name, first.authorization_id, first.flag) == ("user", "", "n")
    assert server.challenge(KEYS) == CHALLENGE
    server.final(FINAL)
    assert server.is_right(KEYS)
    assert server.verifier(KEYS) == VERIFIER


def test_another_password_is_not_right() -> None:
    server = _server()
    server.first(FIRST)
    server.final(_final(server, b"n,,", password=b"pencils"))
    assert not server.is_right(KEYS)
    assert not server.is_right(Keys(4096, SALT, bytes(32), bytes(32)))


@pytest.mark.parametrize(
    ("written", "name", "authorization"),
    [
        (b"n,,n=a=2Cb=3Dc,r=x", "a,b=c", ""),
        (b"n,a=other=2C,n=user,r=x", "user", "other,"),
        ("n,,n=ü,r=x".encode(), "ü", ""),
        (b"y,,n=user,r=x,e=whatever", "user", ""),
    ],
)
def test_names_as_they_are_written(written: bytes, name: str, authorization: str) -> None:
    first = _server().first(written)
    assert (first.name, first.authorization_id) == (name, authorization)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n",
        b"n,",
        b"n,,",
        b"n,,n=user",
        b"n,,r=x,n=user",
        b"n,,n=,r=x",
        b"n,,n=user,r=",
        b"n,,n=user,r=a b",
        b"n,,n=user,r=\xc3\xa9",
        b"n,,n=user,r=" + b"x" * 257,
        b"n,,m=ext,n=user,r=x",
        b"n,,n=user,r=x,m=ext",
        b"n,,n=user,r=x,,",
        b"n,,n=us=er,r=x",
        b"n,,n=us=2cer,r=x",
        b"n,,n=us\0er,r=x",
        b"n,,n=\xff,r=x",
        b"n=,,n=user,r=x",
        b"p,,n=user,r=x",
        b"x,,n=user,r=x",
        b"n,other,n=user,r=x",
        b"n,,n=" + b"u" * MAX_MESSAGE + b",r=x",
    ],
)
def test_first_messages_that_are_none(message: bytes) -> None:
    with pytest.raises(BadSaslMessage):
        _server().first(message)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"c=biws",
        FINAL.partition(b",p=")[0],
        FINAL.replace(b"c=biws", b"c=eSws"),
        FINAL.replace(b"c=biws", b"c=%%%"),
        FINAL.replace(b"rOpr", b"rOpq"),
        FINAL.replace(b"hNlF$k0", b"hNlF$k1"),
        FINAL.replace(b",p=", b",m=x,p="),
        FINAL[:-4],
        FINAL + b"AAAA",
        FINAL + b",e=x",
        b"r" + FINAL[1:],
        b"x" * (MAX_MESSAGE + 1),
    ],
)
def test_last_messages_that_do_not_belong(message: bytes) -> None:
    server = _server()
    server.first(FIRST)
    server.challenge(KEYS)
    with pytest.raises(BadSaslMessage):
        server.final(message)


@pytest.mark.parametrize("kind", BINDINGS)
def test_a_channel_is_bound(kind: str) -> None:
    header = f"p={kind},,".encode()
    server = _server(PLUS_NAME, offers_plus=True)
    server.first(header + FIRST.removeprefix(b"n,,"))
    server.final(_final(server, header, BINDINGS[kind]))
    assert server.is_right(KEYS)


def test_a_channel_of_another_is_refused() -> None:
    """Somebody in between has a certificate, and a channel, of their own."""
    header = b"p=tls-server-end-point,,"
    server = _server(PLUS_NAME, offers_plus=True)
    server.first(header + FIRST.removeprefix(b"n,,"))
    with pytest.raises(BadSaslMessage, match="do not match"):
        server.final(_final(server, header, b"another certificate"))


@pytest.mark.parametrize(
    ("mechanism", "flag", "offers_plus"),
    [
        (PLUS_NAME, b"n", True),
        (PLUS_NAME, b"y", True),
        (PLUS_NAME, b"p=tls-exporter", True),
        (PLAIN_NAME, b"p=tls-unique", True),
        (PLAIN_NAME, b"y", True),
    ],
)
def test_a_binding_that_does_not_fit(mechanism: str, flag: bytes, offers_plus: bool) -> None:
    """The last one is a client that can bind, and was not told by whoever is in between that we can (section 6)."""
    with pytest.raises(BadSaslMessage):
        _server(mechanism, offers_plus=offers_plus).first(flag + b",,n=user,r=x")


def test_who_can_bind_where_we_cannot_is_let_in() -> None:
    assert _server().first(b"y,,n=user,r=x").flag == "y"
    assert _server(offers_plus=True).first(b"n,,n=user,r=x").flag == "n"


@given(st.binary(max_size=64))
def test_nothing_but_its_own_fault_is_raised(data: bytes) -> None:
    for message in (data, b"n,," + data, b"n,,n=user,r=" + data):
        server = _server()
        try:
            server.first(message)
            server.challenge(KEYS)
            server.final(data)
        except BadSaslMessage:
            continue


@pytest.mark.parametrize(
    ("text", "prepared"),
    [("I\u00adX", "IX"), ("user", "user"), ("USER", "USER"), ("\u00aa", "a"), ("\u2168", "IX"), ("a\u00a0b", "a b")],
)
def test_saslprep_as_rfc_4013_has_it(text: str, prepared: str) -> None:
    assert saslprep(text) == prepared


@pytest.mark.parametrize("text", ["\u0007", "\u0627\u0031", "a\u0627", "\ue000", "\ufffd"])
def test_what_saslprep_prohibits(text: str) -> None:
    with pytest.raises(NotPrepared):
        saslprep(text)
