"""Password hashes as other mail systems store them, read and never written: `{SCHEME}hash` (RFC 2307, Dovecot), crypt.

Argon2id is judged in `directory.passwords`; here is all the rest, by libpass and bcrypt. What costs too much to check
is refused, as there.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from collections.abc import Callable
from hashlib import sha1, sha256, sha512
from typing import Any

import bcrypt
from passlib.hash import (
    ldap_pbkdf2_sha256,
    ldap_pbkdf2_sha512,
    ldap_salted_sha1,
    ldap_salted_sha256,
    ldap_salted_sha512,
    md5_crypt,
    sha256_crypt,
    sha512_crypt,
)

from gatepost.directory import passwords, scram_keys
from gatepost.directory.passwords import BadPasswordHash

MAX_BCRYPT_COST = 14
"""About a second; each step doubles it."""
MAX_CRYPT_ROUNDS = 1_000_000
MAX_PBKDF2_ROUNDS = 5_000_000
MAX_HASH_CHARACTERS = 1024
BCRYPT_BYTES = 72
"""Bcrypt looks at no more of a password."""

_SCHEME = re.compile(r"\{([A-Za-z0-9._-]{1,32})\}(.*)", re.DOTALL)
_BARE = {
    "$argon2id$": "ARGON2ID", "$2a$": "BLF-CRYPT", "$2b$": "BLF-CRYPT", "$2y$": "BLF-CRYPT", "$6$": "SHA512-CRYPT",
    "$5$": "SHA256-CRYPT", "$1$": "MD5-CRYPT",
}  # fmt: skip
"""Schemes that show in the hash itself."""
_PLAIN = frozenset({"PLAIN", "CLEAR", "CLEARTEXT"})
_ROUNDS = re.compile(r"\$rounds=([0-9]{1,12})\$")
_PBKDF2_ROUNDS = re.compile(r"([0-9]{1,12})\$")

Check = Callable[[bytes, str], bool]


def _by_libpass(handler: Any) -> Check:  # noqa: ANN401 - libpass is untyped
    return lambda password, stored: bool(handler.verify(password, stored))


def _bcrypt(password: bytes, stored: str) -> bool:
    return bcrypt.checkpw(password[:BCRYPT_BYTES], stored.encode("ascii"))


def _digest(make: Callable[[bytes], Any]) -> Check:
    def check(password: bytes, stored: str) -> bool:
        return hmac.compare_digest(make(password).digest(), base64.b64decode(stored, validate=True))

    return check


def _plain(password: bytes, stored: str) -> bool:
    return hmac.compare_digest(password, stored.encode())


_CHECKS: dict[str, tuple[Check, bool]] = {
    "BLF-CRYPT": (_bcrypt, False),
    "SHA512-CRYPT": (_by_libpass(sha512_crypt), False),
    "SHA256-CRYPT": (_by_libpass(sha256_crypt), False),
    "MD5-CRYPT": (_by_libpass(md5_crypt), False),
    "SSHA": (_by_libpass(ldap_salted_sha1), True),
    "SSHA256": (_by_libpass(ldap_salted_sha256), True),
    "SSHA512": (_by_libpass(ldap_salted_sha512), True),
    "PBKDF2-SHA256": (_by_libpass(ldap_pbkdf2_sha256), True),
    "PBKDF2-SHA512": (_by_libpass(ldap_pbkdf2_sha512), True),
    "SHA": (_digest(sha1), False),
    "SHA256": (_digest(sha256), False),
    "SHA512": (_digest(sha512), False),
    "PLAIN": (_plain, False),
}
"""By scheme: how it is checked, and whether the check wants the scheme before the hash."""


def stored_hash(text: str, *, allow_plain: bool) -> str:
    """`text`, as a directory stores it, in the one form that `passwords.check` takes. Raises `BadPasswordHash`."""
    if not text:
        return ""
    if len(text) > MAX_HASH_CHARACTERS:
        raise BadPasswordHash("longer than any hash")
    text = scram_keys.from_rfc_5803(text) or text
    match = _SCHEME.fullmatch(text)
    scheme, value = (match[1].upper(), match[2]) if match else ("", text)
    if scheme in {"", "CRYPT"}:
        scheme = next((name for mark, name in _BARE.items() if value.startswith(mark)), "")
        if not scheme:
            raise BadPasswordHash("a hash without a scheme: write it like {SSHA512}…")
    if scheme in {"BCRYPT", "ARGON2ID"}:
        scheme = {"BCRYPT": "BLF-CRYPT"}.get(scheme, scheme)
    if scheme == "ARGON2ID":
        passwords.require_usable_hash(value)
        return value
    if scheme == "SCRAM-SHA-256":
        text = scram_keys.MARK + value
        scram_keys.read_keys(text)
        return text
    if scheme in _PLAIN:
        if not allow_plain:
            raise BadPasswordHash("a password stored as it is, which allow_plain_passwords does not allow")
        scheme = "PLAIN"
    if scheme not in _CHECKS:
        raise BadPasswordHash(f"the scheme {{{scheme}}} is not known here")
    _require_bearable(scheme, value)
    return f"{{{scheme}}}{value}"


def check(stored: str, tries: tuple[bytes, ...]) -> bool:
    """Whether one of `tries` opens `stored`, which `stored_hash` has made. Slow. Raises `BadPasswordHash`."""
    match = _SCHEME.fullmatch(stored)
    if match is None or match[1] not in _CHECKS:
        raise BadPasswordHash("the stored hash is not usable")
    opens, with_scheme = _CHECKS[match[1]]
    value = stored if with_scheme else match[2]
    try:
        return any(opens(attempt, value) for attempt in tries if b"\0" not in attempt)
    except (ValueError, TypeError, binascii.Error) as error:
        raise BadPasswordHash(f"the stored hash is not usable: {type(error).__name__}") from error


def _require_bearable(scheme: str, value: str) -> None:
    """Raises `BadPasswordHash` for what would take minutes to check."""
    if scheme == "BLF-CRYPT":
        cost = value[4:6]
        if not cost.isdigit() or int(cost) > MAX_BCRYPT_COST:
            raise BadPasswordHash("this hash costs too much to check")
    found = (_ROUNDS.search(value) if scheme.endswith("-CRYPT") else None) or (
        _PBKDF2_ROUNDS.match(value) if scheme.startswith("PBKDF2") else None
    )
    most = MAX_PBKDF2_ROUNDS if scheme.startswith("PBKDF2") else MAX_CRYPT_ROUNDS
    if found is not None and int(found[1]) > most:
        raise BadPasswordHash("this hash costs too much to check")
