"""Password hashes of other systems: read, bounded in cost, and plain ones only where that is allowed."""

from __future__ import annotations

import pytest

from gatepost.directory import passwords
from gatepost.directory.passwords import BadPasswordHash
from gatepost.directory.schemes import stored_hash

# All of them are of the password `gnædis`, made by doveadm pw, mkpasswd, slappasswd or argon2.
PASSWORD = "gnædis".encode()
"""In UTF-8, as clients send it."""


def _made() -> dict[str, str]:
    import base64
    import hashlib

    import bcrypt
    from passlib.hash import (
        ldap_pbkdf2_sha256,
        ldap_salted_sha1,
        ldap_salted_sha256,
        ldap_salted_sha512,
        md5_crypt,
        sha256_crypt,
        sha512_crypt,
    )

    def plain_digest(name: str) -> str:
        return base64.b64encode(hashlib.new(name, PASSWORD).digest()).decode()

    blowfish = bcrypt.hashpw(PASSWORD, bcrypt.gensalt(4)).decode()
    return {
        "SSHA": ldap_salted_sha1.hash(PASSWORD),
        "SSHA256": ldap_salted_sha256.hash(PASSWORD),
        "SSHA512": ldap_salted_sha512.hash(PASSWORD),
        "SHA512-CRYPT": "{SHA512-CRYPT}" + sha512_crypt.using(rounds=1000).hash(PASSWORD),
        "SHA256-CRYPT": "{SHA256-CRYPT}" + sha256_crypt.using(rounds=1000).hash(PASSWORD),
        "CRYPT": "{CRYPT}" + sha512_crypt.using(rounds=1000).hash(PASSWORD),
        "crypt in small letters": "{crypt}" + sha512_crypt.using(rounds=1000).hash(PASSWORD),
        "bare crypt": sha512_crypt.using(rounds=1000).hash(PASSWORD),
        "MD5-CRYPT": "{MD5-CRYPT}" + md5_crypt.hash(PASSWORD),
        "BLF-CRYPT": "{BLF-CRYPT}" + blowfish,
        "bare bcrypt of PHP": blowfish.replace("$2b$", "$2y$"),
        "ARGON2ID": "{ARGON2ID}" + passwords.make_hash(PASSWORD.decode()),
        "bare argon2id": passwords.make_hash(PASSWORD.decode()),
        "PBKDF2-SHA256": ldap_pbkdf2_sha256.using(rounds=1000).hash(PASSWORD),
        "SHA": "{SHA}" + plain_digest("sha1"),
        "SHA256": "{SHA256}" + plain_digest("sha256"),
        "SHA512": "{SHA512}" + plain_digest("sha512"),
    }


MADE = _made()


@pytest.mark.parametrize(("name", "text"), MADE.items(), ids=MADE)  # hashes have salts, and ids must stay
def test_a_known_scheme_opens_for_its_password_only(name: str, text: str) -> None:
    stored = stored_hash(text, allow_plain=False)
    assert passwords.check(stored, (PASSWORD,)), name
    assert passwords.check(stored, (b"other", PASSWORD))
    assert not passwords.check(stored, (b"other", b"Gn\xc3\xa6dis", PASSWORD + b"x", b""))


def test_none_is_nobodys_password() -> None:
    assert stored_hash("", allow_plain=True) == ""


@pytest.mark.parametrize("scheme", ["PLAIN", "CLEAR", "CLEARTEXT", "plain"])
def test_a_plain_password_counts_only_where_that_is_allowed(scheme: str) -> None:
    with pytest.raises(BadPasswordHash, match="allow_plain_passwords"):
        stored_hash(f"{{{scheme}}}apw", allow_plain=False)
    stored = stored_hash(f"{{{scheme}}}apw", allow_plain=True)
    assert passwords.check(stored, (b"apw",))
    assert not passwords.check(stored, (b"Apw",))


@pytest.mark.parametrize(
    "text",
    [
        "apw", "{NTLM}0123", "{SCRAM-SHA-256}4096,x", "{}apw", "$9$x",
        "$argon2i$v=19$m=8,t=1,p=1$c2FsdHNhbHQ$aGFzaGhhc2g",
        "{BLF-CRYPT}$2y$31$abcdefghijklmnopqrstuu", "{SHA512-CRYPT}$6$rounds=999999999$salt$hash", "x" * 2000,
        "{PBKDF2-SHA256}999999999$c2FsdA$aGFzaA",
        "{ARGON2ID}$argon2id$v=19$m=99999999,t=9,p=1$c2FsdHNhbHQ$aGFzaGhhc2hoYXNo",
    ],
)  # fmt: skip
def test_what_is_unknown_or_costs_too_much_is_refused(text: str) -> None:
    with pytest.raises(BadPasswordHash):
        stored_hash(text, allow_plain=False)


@pytest.mark.parametrize(
    "text", ["{SSHA}!!!", "{SSHA512}YWJj", "{SHA512-CRYPT}$6$", "{BLF-CRYPT}$2y$05$short", "{SHA}x", "{MD5-CRYPT}$1$"]
)
def test_a_broken_hash_opens_for_nobody_and_says_so(text: str) -> None:
    stored = stored_hash(text, allow_plain=False)
    with pytest.raises(BadPasswordHash):
        passwords.check(stored, (PASSWORD,))


def test_a_fault_tells_nothing_of_the_hash() -> None:
    with pytest.raises(BadPasswordHash) as raised:
        passwords.check(stored_hash("{SSHA}secret", allow_plain=False), (PASSWORD,))
    assert "secret" not in str(raised.value)
