"""Passwords to the byte, in a stated order, within bounds."""

from __future__ import annotations

from types import SimpleNamespace

import argon2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatepost.directory import passwords
from gatepost.directory.passwords import BadPassword, BadPasswordHash

CHEAP = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)

COMPOSED, DECOMPOSED = "caf\u00e9", "cafe\u0301"

NASTY = [
    "pass word",
    " leading and trailing ",
    "100%25 & more",
    'back\\slash "quoted"',
    "*%(){}[]",
    "пароль",
    "密码",
    "🔑🔒",
    "\u00a3\u20ac",
    "a" * passwords.MAX_PASSWORD_BYTES,
    "tab\there",
]


@pytest.mark.parametrize("password", NASTY)
def test_nasty_passwords_open_what_they_closed(password: str) -> None:
    """Field case 61: bytes end to end."""
    stored = passwords.make_hash(password, CHEAP)
    assert passwords.check(stored, passwords.attempts(password))
    assert not passwords.check(stored, passwords.attempts(password[:-1] + "!"))


@given(st.text(min_size=1, max_size=40), st.text(min_size=1, max_size=40))
def test_different_prepared_forms_never_open_each_other(one: str, other: str) -> None:
    if any(c in one for c in "\0\r\n") or passwords.prepared(one) == passwords.prepared(other):
        return
    if passwords.attempts(other):
        assert not passwords.check(passwords.make_hash(one, CHEAP), passwords.attempts(other))


@pytest.mark.parametrize(("set_as", "typed"), [(COMPOSED, DECOMPOSED), (DECOMPOSED, COMPOSED), ("a\u00a0b", "a b")])
def test_systems_that_compose_differently_get_in(set_as: str, typed: str) -> None:
    """`é` as one character or as two, a no-break space: the password that was set opens, however it is sent."""
    stored = passwords.make_hash(set_as, CHEAP)
    assert passwords.check(stored, passwords.attempts(set_as))
    assert passwords.check(stored, passwords.attempts(typed))


def test_the_exact_bytes_come_first() -> None:
    """An imported hash may be of any form; that form opens it."""
    assert passwords.attempts(DECOMPOSED) == (DECOMPOSED.encode(), COMPOSED.encode())
    assert passwords.attempts(COMPOSED) == (COMPOSED.encode(),)
    imported = CHEAP.hash(DECOMPOSED)
    assert passwords.check(imported, passwords.attempts(DECOMPOSED))


@pytest.mark.parametrize("password", ["", "a" * (passwords.MAX_PASSWORD_BYTES + 1), "\ud800", "é" * 600])
def test_impossible_passwords_are_not_tried(password: str) -> None:
    assert passwords.attempts(password) == ()
    with pytest.raises(BadPassword):
        passwords.make_hash(password, CHEAP)


@pytest.mark.parametrize("password", ["a\nb", "a\rb", "a\0b"])
def test_passwords_that_no_protocol_carries_are_not_set(password: str) -> None:
    with pytest.raises(BadPassword):
        passwords.make_hash(password, CHEAP)


def test_the_default_cost_is_what_is_stated() -> None:
    stored = passwords.make_hash("secret")
    assert stored.startswith("$argon2id$v=19$m=19456,t=2,p=1$")
    assert not passwords.has_other_cost(stored)
    assert passwords.has_other_cost(passwords.make_hash("secret", CHEAP))
    assert passwords.make_hash("secret") != stored


def test_a_machine_out_of_memory_judges_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> bool:
        raise argon2.exceptions.VerificationError("Memory allocation error")

    monkeypatch.setattr(passwords, "_HASHER", SimpleNamespace(verify=fail))
    with pytest.raises(passwords.CheckFailed):
        passwords.check(CHEAP.hash("x"), (b"x",))


def test_a_dummy_opens_to_nobody() -> None:
    assert not passwords.check(passwords.make_dummy_hash(CHEAP), (b"", b"x"))


@pytest.mark.parametrize(
    "stored",
    [
        "",
        "secret",
        "$2b$12$abcdefghijklmnopqrstuv",
        "$argon2id$v=19$m=8,t=1$c2FsdHNhbHQ$aGFzaA",
        argon2.PasswordHasher(1, 8, 1, type=argon2.Type.I).hash("x", salt=b"one and the same"),
        "$argon2id$v=19$m=4194304,t=1,p=1$c2FsdHNhbHQ$aGFzaGhhc2g",
        "$argon2id$v=19$m=64,t=1000000,p=1$c2FsdHNhbHQ$aGFzaGhhc2g",
        CHEAP.hash("x", salt=b"one and the same")[:-30],
        CHEAP.hash("x", salt=b"one and the same") + "!",
        "$argon2id$v=19$m=8,t=1,p=1$c2E$aGFzaGhhc2hoYXNoaGFzaA",
    ],
)
def test_hashes_that_must_not_be_imported(stored: str) -> None:
    with pytest.raises(BadPasswordHash):
        passwords.require_usable_hash(stored)


def test_a_usable_hash_is_accepted() -> None:
    passwords.require_usable_hash(CHEAP.hash("x"))


@pytest.mark.parametrize("stored", ["nonsense", "$argon2id$nonsense"])
def test_a_broken_stored_hash_is_not_a_wrong_password(stored: str) -> None:
    """The log can say which it was."""
    with pytest.raises(BadPasswordHash):
        passwords.check(stored, (b"x",))
