"""DKIM signatures, verified by dkimpy (RFC 6376, RFC 8463) with keys from a table instead of DNS."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import AsyncIterator, Iterator
from functools import cache

import dkim
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from dkim.canonicalization import Relaxed
from hypothesis import given, settings
from hypothesis import strategies as st

from gatepost.transport.dkim.canonical import BodyHash, fields_of, relaxed_field
from gatepost.transport.dkim.keys import DkimKey, DkimKeyFault
from gatepost.transport.dkim.signer import DkimSigner

NOW = 1_700_000_000.0
MESSAGE = (
    b"From: Alice <alice@contoso.com>\r\nTo: bob@example.org\r\nSubject:  two  words\r\n\tand  more \r\n"
    b"Date: Tue, 14 Nov 2023 22:13:20 +0000\r\nMessage-ID: <1@contoso.com>\r\nReceived: x\r\nX-Other: y\r\n"
    b"\r\nHello  there \r\n\r\n \tx\r\n\r\n \r\n"
)


def pem(key: rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


@cache
def keys() -> tuple[DkimKey, DkimKey]:
    """One of each kind, for one domain."""
    rsa_key = DkimKey("contoso.com", "gp1", pem(rsa.generate_private_key(65537, 2048)))
    return rsa_key, DkimKey("contoso.com", "gp2", pem(ed25519.Ed25519PrivateKey.generate()))


@pytest.fixture
def signer() -> Iterator[DkimSigner]:
    made = DkimSigner(keys())
    yield made
    made.close()


async def pieces(content: bytes, size: int) -> AsyncIterator[bytes]:
    for at in range(0, len(content), size):
        yield content[at : at + size]


def verified(message: bytes, index: int = 0) -> bool:
    """What dkimpy says of the signature of that number."""
    records = {f"{key.selector}._domainkey.{key.domain}.".encode(): key.record().encode() for key in keys()}
    try:
        return bool(dkim.DKIM(message).verify(index, dnsfunc=lambda name, timeout=5: records.get(name)))
    except dkim.ValidationError:
        return False


@pytest.mark.parametrize("size", [1, 7, 64, 100_000])
async def test_signatures_of_both_kinds_are_verified_by_dkimpy(signer: DkimSigner, size: int) -> None:
    fields = await signer.sign_message(pieces(MESSAGE, size), NOW)
    assert fields.count(b"DKIM-Signature:") == 2
    assert verified(fields + MESSAGE, 0)
    assert verified(fields + MESSAGE, 1)
    assert all(len(line) <= 78 for line in fields.split(b"\r\n"))
    assert fields.endswith(b"\r\n")


@pytest.mark.parametrize(
    "change",
    [
        (b"Hello", b"Hallo"),
        (b"two", b"three"),
        (b"From: Alice", b"From: Mallory"),
        (b"\r\n\r\nHello", b"\r\nSubject: another\r\n\r\nHello"),
        (b"To: bob", b"From: mallory@evil.example\r\nTo: bob"),
        (b"X-Other: y", b"Reply-To: mallory@evil.example"),
        (b" \tx\r\n", b" \tx\r\nmore\r\n"),
    ],
)
async def test_what_is_changed_or_put_in_afterwards_breaks_it(signer: DkimSigner, change: tuple[bytes, bytes]) -> None:
    fields = await signer.sign_message(pieces(MESSAGE, 100), NOW)
    assert change[0] in MESSAGE
    assert not verified(fields + MESSAGE.replace(*change, 1))


async def test_what_hops_do_to_a_message_does_not_break_it(signer: DkimSigner) -> None:
    fields = await signer.sign_message(pieces(MESSAGE, 100), NOW)
    refolded = MESSAGE.replace(b"two  words\r\n\tand", b"two\r\n words and").replace(b"\r\n\r\n \r\n", b"\r\n")
    assert verified(b"Received: from x\r\n" + fields + refolded)


async def test_fields_that_come_twice_are_signed_from_the_last_one_on(signer: DkimSigner) -> None:
    message = b"To: first@example.org\r\nCc: a@example.org\r\nCc: b@example.org\r\n" + MESSAGE
    fields = await signer.sign_message(pieces(message, 100), NOW)
    assert verified(fields + message, 0)
    assert verified(fields + message, 1)


@pytest.mark.parametrize("body", [b"", b"\r\n", b" \r\n\r\n", b"no end", b"x \r\n" * 5])
async def test_odd_bodies(signer: DkimSigner, body: bytes) -> None:
    message = MESSAGE.partition(b"\r\n\r\n")[0] + b"\r\n\r\n" + body
    assert verified(await signer.sign_message(pieces(message, 50), NOW) + message)


async def test_only_mail_of_a_domain_with_a_key_is_signed(signer: DkimSigner) -> None:
    for sender in (b"alice@sub.contoso.com", b"alice@fabrikam.com", b"nobody"):
        assert await signer.sign_message(pieces(b"From: " + sender + b"\r\n\r\nx\r\n", 9), NOW) == b""
    assert signer.signs_for(b"Alice <alice@CONTOSO.com>") == "contoso.com"


async def test_mail_with_two_authors_fields_or_none_is_not_signed(signer: DkimSigner) -> None:
    two = b"From: alice@contoso.com\r\nFrom: mallory@evil.example\r\n\r\nx\r\n"
    assert await signer.sign_message(pieces(two, 9), NOW) == b""
    assert await signer.sign_message(pieces(b"Subject: x\r\n\r\nx\r\n", 9), NOW) == b""
    assert await signer.sign_message(pieces(b"\r\nFrom: alice@contoso.com\r\n", 9), NOW) == b""


async def test_without_keys_nothing_is_read_or_started() -> None:
    signer = DkimSigner([])
    assert signer.signs_for(b"alice@contoso.com") == ""
    assert await signer.sign_message(pieces(MESSAGE, 100), NOW) == b""
    signer.close()


async def test_the_work_is_done_off_the_loop(signer: DkimSigner, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = set()
    update = BodyHash.update
    monkeypatch.setattr(
        BodyHash, "update", lambda self, block: seen.add(threading.current_thread()) or update(self, block)
    )
    await signer.sign_message(pieces(MESSAGE, 100), NOW)
    assert seen
    assert threading.main_thread() not in seen


def test_keys_that_cannot_sign_are_named() -> None:
    for octets, words in (
        (b"nothing", "no private key"),
        (pem(rsa.generate_private_key(65537, 1024)).replace(b"PRIVATE", b"PUBLIC"), "no private key"),
        (pem(ec.generate_private_key(ec.SECP256R1())), "neither RSA nor Ed25519"),
    ):
        with pytest.raises(DkimKeyFault, match=words) as raised:
            DkimSigner([DkimKey("contoso.com", "gp1", octets)])
        assert "gp1._domainkey.contoso.com" in str(raised.value)
    assert "PRIVATE" not in repr(keys()[0])


WORDS = st.sampled_from([b"\r\n", b" ", b"\t", b"x", b"y ", b" \r\n", b"\r\n\r\n", b"z" * 30])


@given(words=st.lists(WORDS, max_size=40), cuts=st.lists(st.integers(0, 300), max_size=10))
@settings(max_examples=120, deadline=None)
def test_the_hash_of_a_body_is_dkimpys_for_every_cut(words: list[bytes], cuts: list[int]) -> None:
    body = b"".join(words) + b"\r\n"
    canonical = Relaxed.canonicalize_body(body)
    ours = BodyHash()
    at = 0
    for cut in [*sorted(cuts), len(body)]:
        ours.update(body[at:cut])
        at = max(at, min(cut, len(body)))
    assert ours.digest() == hashlib.sha256(canonical).digest()


def test_endless_blanks_take_neither_time_nor_memory() -> None:
    body_hash = BodyHash()
    begun = time.process_time()
    for _ in range(5):
        body_hash.update(b" " * 100_000)
        body_hash.update(b"\r\n" * 100_000)
        assert len(body_hash._tail) < 10
    body_hash.update(b"x")
    assert time.process_time() - begun < 5
    assert body_hash.digest()


@given(st.lists(st.sampled_from([b" ", b"\t", b"a", b"\r\n ", b"\r\n\t"]), max_size=20))
def test_fields_in_relaxed_form_are_dkimpys(parts: list[bytes]) -> None:
    value = b"".join(parts)
    ((name, text),) = Relaxed.canonicalize_headers([(b"SubJect ", value + b"\r\n")])
    assert relaxed_field(b"SubJect ", value) == name + b":" + text.removesuffix(b"\r\n")


def test_the_fields_of_a_header() -> None:
    assert fields_of(b"A: 1\r\n 2\r\nB :x\r\nnothing\r\n\r\nC: d") == [(b"a", b" 1\r\n 2"), (b"b", b"x")]
