"""Sealed values (SPEC B6): who can open them, and that nothing else opens."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from hypothesis import given
from hypothesis import strategies as st

from gatepost.access.http.sealed import MAX_PLAIN, Sealer
from gatepost.configuration.settings import OtherKey

NOW = datetime(2026, 7, 1, tzinfo=UTC)


def pem(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


RSA = pem(rsa.generate_private_key(65537, 2048))
EC = pem(ec.generate_private_key(ec.SECP256R1()))
OTHER = pem(ec.generate_private_key(ec.SECP384R1()))
EDWARDS = pem(ed25519.Ed25519PrivateKey.generate())
SEALER = Sealer([EC], b"test")


@pytest.mark.parametrize("key", [RSA, EC, OTHER, EDWARDS], ids=["rsa", "p256", "p384", "ed25519"])
@pytest.mark.parametrize("plain", [b"", b"x", b"\0" * MAX_PLAIN])
def test_any_front_end_with_the_key_opens(key: bytes, plain: bytes) -> None:
    """Two sealers of one key are two front ends of one name."""
    value = Sealer([key], b"test").seal(plain)
    assert Sealer([key], b"test").open(value, 0) == plain
    assert len(value) < 4096 - 100
    assert value.replace(b"-", b"").replace(b"_", b"").isalnum()


def test_another_certificate_opens_nothing() -> None:
    """SPEC B6: another certificate, and the cookie is void."""
    assert Sealer([OTHER], b"test").open(SEALER.seal(b"x"), 0) is None
    assert Sealer([RSA], b"test").open(SEALER.seal(b"x"), 0) is None


def test_another_purpose_opens_nothing() -> None:
    """An affinity cookie is no sign-in."""
    assert Sealer([EC], b"other").open(SEALER.seal(b"x"), 0) is None


def test_how_the_file_spells_the_key_does_not_matter() -> None:
    """One front end's file may be `RSA PRIVATE KEY`, the other's `PRIVATE KEY`."""
    for key in (RSA, EC):
        loaded = load_pem_private_key(key, None)
        old = loaded.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
        assert old != key
        assert Sealer([old], b"test").open(Sealer([key], b"test").seal(b"x"), 0) == b"x"


def test_no_two_values_are_alike() -> None:
    """Equal contents cannot be told from each other."""
    assert len({SEALER.seal(b"the same") for _ in range(100)}) == 100


def test_every_bit_counts() -> None:
    """A flip of any bit of the value as it travels opens nothing."""
    value = SEALER.seal(b"user")
    for place in range(len(value)):
        for bit in range(8):
            changed = value[:place] + bytes((value[place] ^ 1 << bit,)) + value[place + 1 :]
            assert SEALER.open(changed, 0) is None, (place, bit)


def test_a_cut_or_longer_value_opens_nothing() -> None:
    """Nor one with anything before or after it, padding included."""
    value = SEALER.seal(b"user name")
    for size in range(len(value)):
        assert SEALER.open(value[:size], 0) is None
    for wrong in (value + b"A", value + b"=", value + b"==", b"A" + value, value + b"\n", b" " + value, value * 100):
        assert SEALER.open(wrong, 0) is None
    assert SEALER.open(value, 0) == b"user name"


@given(st.binary(max_size=300) | st.from_regex(rb"[A-Za-z0-9_=-]{0,5000}", fullmatch=True))
def test_rubbish_opens_nothing_and_raises_nothing(value: bytes) -> None:
    """Whatever a client sends."""
    assert SEALER.open(value, 0) is None


def test_both_certificates_open_until_the_moment() -> None:
    """Rollover: CAS-01 has the old certificate, CAS-02 the new one; each opens the other's until then, not after."""
    until = NOW + timedelta(days=7)
    old = Sealer([EC], b"test", [OtherKey(RSA, until)])
    new = Sealer([RSA], b"test", [OtherKey(EC, until)])
    before, moment = until.timestamp() - 1, until.timestamp()
    assert new.open(old.seal(b"x"), before) == b"x"
    assert old.open(new.seal(b"x"), before) == b"x"
    assert new.open(old.seal(b"x"), moment) is None
    assert old.open(new.seal(b"x"), moment) is None
    assert new.open(new.seal(b"x"), moment) == b"x"


def test_ones_own_key_does_not_end_because_it_is_listed_too() -> None:
    """One file of settings for all front ends lists both keys."""
    sealer = Sealer([EC], b"test", [OtherKey(EC, NOW), OtherKey(RSA, NOW)])
    assert sealer.open(sealer.seal(b"x"), NOW.timestamp() + 1) == b"x"


def test_all_keys_open_and_the_first_seals() -> None:
    """Several keys without an end."""
    both = Sealer([RSA, EC], b"test")
    assert both.open(SEALER.seal(b"x"), 0) == b"x"
    assert Sealer([RSA], b"test").open(both.seal(b"x"), 0) == b"x"


def test_what_cannot_be_sealed() -> None:
    """No key, no PEM, too much."""
    with pytest.raises(ValueError, match="without a key"):
        Sealer([], b"test")
    with pytest.raises(ValueError):  # noqa: PT011 - the library's words
        Sealer([b"no key"], b"test")
    with pytest.raises(ValueError, match="too long"):
        SEALER.seal(b"x" * (MAX_PLAIN + 1))


def test_keys_are_in_no_repr() -> None:
    """Nor in its attributes' words."""
    assert EC.split(b"\n")[1].decode() not in repr(SEALER) + repr([getattr(SEALER, n) for n in SEALER.__slots__])
