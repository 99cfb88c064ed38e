"""Passwords: argon2id hashes, made by commands and checked by workers. Nothing here waits or reads a clock.

**Which bytes.** A password is judged byte for byte as it came, in UTF-8. Where that fails and the password has another
prepared form (RFC 8265 section 4.2: other spaces to U+0020, then NFC), that form is tried second: some systems send
`é` as two characters. Commands store the hash of the prepared form. How many tries there are depends on what the
client sent, never on the user, so time tells nothing about the user.

**Equal work.** An unknown user, a disabled one and one without a password cost a check against a dummy hash of the
default cost. A user whose hash has another cost (imported) takes another time; that is why refusals are sent at a fixed
time after the check began (`refused_sign_in_delay_seconds`), and `gatepost user show` names such users.
"""

from __future__ import annotations

import base64
import secrets
import unicodedata
from hashlib import blake2b

import argon2
from argon2 import exceptions
from argon2.low_level import error_to_str

TIME_COST = 2
MEMORY_KIB = 19456
PARALLELISM = 1
"""Argon2id with 19 MiB, 2 passes, 1 lane: OWASP's first choice for servers, about 25 ms on a present processor."""

MAX_PASSWORD_BYTES = 1024
"""Longer ones are refused everywhere: no person has one, and hashing and carrying them costs."""

MAX_HASH_MEMORY_KIB = 1024 * 1024
MAX_HASH_TIME_COST = 64
MAX_HASH_PARALLELISM = 64
"""An imported hash must not make one check take a worker's memory or minutes."""

MIN_SALT_BYTES = 8
MIN_HASH_BYTES = 12
"""The least that argon2 calls a salt; a shorter hash could be opened by chance."""

_SURROUNDINGS = frozenset(map(error_to_str, (-22, -33)))
"""What argon2 says when it gets no memory or no thread (ARGON2_MEMORY_ALLOCATION_ERROR, ARGON2_THREAD_FAIL)."""

_SCRAM = "{SCRAM-SHA-256}"
"""What keys of SCRAM begin with (`directory.scram_keys`)."""

_HASHER = argon2.PasswordHasher(TIME_COST, MEMORY_KIB, PARALLELISM)


class BadPassword(ValueError):
    """A password that cannot be stored: empty, too long, or with a character that no protocol can carry."""


class BadPasswordHash(ValueError):
    """Not an argon2id hash in PHC string form, or one that is too costly to check."""


class CheckFailed(RuntimeError):
    """The check itself failed (out of memory): the password was not judged."""


_QUICK = tuple(f"{{{scheme}}}" for scheme in ("SSHA", "SSHA256", "SSHA512", "SHA", "SHA256", "SHA512", "PLAIN"))
"""Schemes of one round, as `directory.schemes` stores them."""


def prepared(password: str) -> str:
    """The form of RFC 8265 section 4.2.2 (OpaqueString): spaces are U+0020, characters are composed."""
    spaced = "".join(" " if unicodedata.category(c) == "Zs" else c for c in password)
    return unicodedata.normalize("NFC", spaced)


def attempts(password: str) -> tuple[bytes, ...]:
    """The byte strings to try, in order. Empty when no account can have this password."""
    if len(password) > MAX_PASSWORD_BYTES:  # before the preparation: it takes seconds for many combining marks
        return ()
    try:
        exact = password.encode()
        second = prepared(password).encode()
    except UnicodeEncodeError:
        return ()
    if not exact or len(exact) > MAX_PASSWORD_BYTES or len(second) > MAX_PASSWORD_BYTES:
        return ()
    return (exact,) if exact == second else (exact, second)


def require_usable_password(password: str) -> None:
    """Raises `BadPassword` for a password that nobody could sign in with."""
    if any(c in password for c in "\0\r\n"):
        raise BadPassword("a password cannot hold a line break or NUL: mail protocols cannot carry it")
    if not attempts(password):
        raise BadPassword(f"a password has 1 to {MAX_PASSWORD_BYTES} bytes of UTF-8")


def make_hash(password: str, hasher: argon2.PasswordHasher = _HASHER) -> str:
    """The hash to store for `password`. Raises `BadPassword`."""
    require_usable_password(password)
    return hasher.hash(prepared(password))


def make_dummy_hash(hasher: argon2.PasswordHasher = _HASHER) -> str:
    """A hash that no password opens, of the default cost: what is checked where there is no user."""
    return hasher.hash(secrets.token_bytes(32))


def is_quick(password_hash: str) -> bool:
    """Whether a check takes some microseconds, so that handing it to a thread would cost more than the check."""
    return password_hash.startswith(_QUICK)


def check(password_hash: str, tries: tuple[bytes, ...]) -> bool:
    """Whether one of `tries` opens `password_hash`. Slow; called off the loop.

    Raises `CheckFailed` when it could not be judged, `BadPasswordHash` when the stored hash is not usable.
    """
    if password_hash.startswith(_SCRAM):
        from gatepost.directory import scram_keys  # it imports this module

        return scram_keys.check(password_hash, tries)
    if password_hash.startswith("{"):
        from gatepost.directory import schemes  # its libraries are only for directories that store other hashes

        return schemes.check(password_hash, tries)
    for attempt in tries:
        try:
            _HASHER.verify(password_hash, attempt)
            return True
        except exceptions.VerifyMismatchError:
            continue
        except (exceptions.InvalidHashError, exceptions.VerificationError) as error:
            if str(error) in _SURROUNDINGS:
                raise CheckFailed(str(error)) from error
            raise BadPasswordHash(f"the stored hash is not usable: {error}") from error
    return False


def require_usable_hash(password_hash: str) -> None:
    """Raises `BadPasswordHash` unless `password_hash` is argon2id, or keys of SCRAM, and of bearable cost."""
    if password_hash.startswith(_SCRAM):
        from gatepost.directory import scram_keys  # it imports this module

        scram_keys.read_keys(password_hash)
        return
    try:
        found = argon2.extract_parameters(password_hash)
    except exceptions.InvalidHashError as error:
        raise BadPasswordHash("not an argon2id hash ($argon2id$v=19$m=…,t=…,p=…$salt$hash)") from error
    if found.type is not argon2.Type.ID:
        raise BadPasswordHash("argon2i and argon2d are not accepted, only argon2id")
    if (
        found.memory_cost > MAX_HASH_MEMORY_KIB
        or found.time_cost > MAX_HASH_TIME_COST
        or found.parallelism > MAX_HASH_PARALLELISM
    ):
        raise BadPasswordHash("this hash costs too much to check")
    salt, tag = password_hash.rsplit("$", 2)[1:]
    if _decoded_length(salt) < MIN_SALT_BYTES or _decoded_length(tag) < MIN_HASH_BYTES:
        raise BadPasswordHash("salt or hash is cut short or not base64")


def _decoded_length(text: str) -> int:
    """Bytes in unpadded base64; -1 when it is none."""
    try:
        return len(base64.b64decode(text + "=" * (-len(text) % 4), validate=True))
    except ValueError:
        return -1


def generation(password_hash: str, key: bytes) -> bytes:
    """A digest that changes with the stored hash, and so with the password; with `key` nothing is told by it.

    `key` is random, 16 bytes or more. What was signed in with a password is void when the digest has changed.
    """
    return blake2b(password_hash.encode(), key=key, digest_size=16, person=b"generation").digest()


def is_scram(password_hash: str) -> bool:
    """Whether the stored hash is SCRAM's keys."""
    return password_hash.startswith(_SCRAM)


def has_other_cost(password_hash: str) -> bool:
    """Whether the hash was not made with today's cost, so that the password is best set again.

    Keys of SCRAM are for clients to say.
    """
    return not is_scram(password_hash) and _HASHER.check_needs_rehash(password_hash)
