"""SCRAM's keys as stores hold them: `{SCRAM-SHA-256}iterations,salt,stored key,server key`, as Dovecot writes them.

A password against such a hash is checked too, so PLAIN goes on beside SCRAM.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
import secrets

from gatepost.directory.passwords import BadPasswordHash, require_usable_password
from gatepost.directory.settings import SCRAM_ITERATIONS
from gatepost.wire.saslprep import NotPrepared, saslprep
from gatepost.wire.scram import DIGEST_BYTES, Keys, make_keys

MARK = "{SCRAM-SHA-256}"
LEAST_ITERATIONS = 4096
MOST_ITERATIONS = 1_000_000
"""Half a second."""
SALT_BYTES = 16
_SALTS = range(8, 65)
_RFC_5803 = re.compile(r"SCRAM-SHA-256\$([0-9]{1,10}):([^$:,]+)\$([^$:,]+):([^$:,]+)")


def make_hash(password: str, iterations: int = SCRAM_ITERATIONS) -> str:
    """The keys to store for `password`. Raises `passwords.BadPassword`."""
    require_usable_password(password)
    keys = make_keys(prepared(password), secrets.token_bytes(SALT_BYTES), iterations)
    octets = (keys.salt, keys.stored_key, keys.server_key)
    return f"{MARK}{iterations}," + ",".join(base64.b64encode(each).decode() for each in octets)


def prepared(password: str) -> bytes:
    """What keys are made of. What SASLprep prohibits is taken as it is, as clients do that do not prepare."""
    try:
        return saslprep(password).encode()
    except NotPrepared:
        return password.encode("utf-8", "surrogatepass")


def read_keys(stored: str) -> Keys | None:
    """The keys in a stored hash; None in one of another scheme. Raises `BadPasswordHash`."""
    if not stored.startswith(MARK):
        return None
    parts = stored[len(MARK) :].split(",")
    if len(parts) != 4 or not parts[0].isdecimal() or not parts[0].isascii() or len(parts[0]) > 10:
        raise BadPasswordHash("not iterations, salt, stored key and server key")
    iterations = int(parts[0])
    if not LEAST_ITERATIONS <= iterations <= MOST_ITERATIONS:
        raise BadPasswordHash(f"{iterations} iterations: {LEAST_ITERATIONS} to {MOST_ITERATIONS} are taken")
    try:
        salt, stored_key, server_key = (base64.b64decode(part, validate=True) for part in parts[1:])
    except binascii.Error as error:
        raise BadPasswordHash("a part that is not base64") from error
    if len(salt) not in _SALTS or len(stored_key) != DIGEST_BYTES or len(server_key) != DIGEST_BYTES:
        raise BadPasswordHash("a salt or key of another length")
    return Keys(iterations, salt, stored_key, server_key)


def from_rfc_5803(text: str) -> str | None:
    """The stored form of what RFC 5803 and PostgreSQL write (`SCRAM-SHA-256$…:…$…:…`); None for anything else."""
    found = _RFC_5803.fullmatch(text)
    return None if found is None else MARK + ",".join(found.groups())


def check(stored: str, tries: tuple[bytes, ...]) -> bool:
    """Whether one of `tries` (UTF-8) is the password behind the stored keys. Slow. Raises `BadPasswordHash`."""
    keys = read_keys(stored)
    if keys is None:
        raise BadPasswordHash("not SCRAM keys")
    forms = dict.fromkeys(prepared(attempt.decode()) for attempt in tries)
    return any(
        hmac.compare_digest(make_keys(form, keys.salt, keys.iterations).stored_key, keys.stored_key) for form in forms
    )
