"""How a user's identity crosses from one front end to another (SPEC C11): a signed assertion, good for a minute.

    {"alg":"ES256","typ":"gatepost-peer+jwt"} . {"iss":…,"aud":…,"sub":…,"rid":…,"jti":…,"iat":…,"exp":…,"pv":1 …}

It is a JWT (RFC 7519, RFC 8725) signed with the key of the front end's peer certificate. The verifier knows that key
from the TLS connection on which the assertion comes: a thief without a peer certificate cannot present it, and to one
with a certificate of its own the key does not fit. The audience keeps a peer from carrying it on to another server, and
each is taken once in a worker. (Workers do not tell each other: only its maker could present it to another one, and the
maker can make a new one as well.)

Between front ends that know each other by Kerberos the same payload is sealed by the context of the ticket that comes
with it (a MIC) instead of signed: only the principal that the ticket is of can have made it, for this one request.

Time is an argument: seconds since 1970.
"""

from __future__ import annotations

import binascii
import json
import math
import re
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from ipaddress import ip_address
from itertools import count
from typing import Any, Final
from typing import Protocol as Port

import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from gatepost.organization.model import Version
from gatepost.organization.names import MAX_LOGIN_NAME
from gatepost.peers.identity import PeerPublicKey

TYPE = "gatepost-peer+jwt"
"""The header's `typ`: no token made for anything else passes for an assertion (RFC 8725 section 3.11)."""
FORM: Final = 1
"""The claim `pv`: the form's version. A later one with the same number may only add claims."""
_SEALED_HEADER = b'{"alg":"GSS-MIC","typ":"gatepost-peer+jwt"}'
"""Of an assertion that no key has signed, but the Kerberos context of the ticket beside it (RFC 4121 section 4.2.6)."""
MAX_ASSERTION = 4096
"""Octets: room for a name of 320 characters beyond ASCII, a long host and all the front ends of one too many hops."""
CLOCK_SKEW = 30.0
"""Seconds that the issuer's clock may be ahead of ours. One that is behind shortens the time it is good for."""
MAX_HOPS = 4
"""Front ends that one request may pass; a request needs two, and a third where a site is reached through another."""
MAX_VIA = 16
"""Names of front ends that are read at all, so that a loop is seen as one."""
MAX_NAME = 128
"""Characters of a server's name in `via`."""
REMEMBERED = 20_000
"""Assertions of one peer that are remembered, about 150 bytes each. When there are more within their time, the oldest
go, and all that were made before them are refused from then on: nothing is ever taken twice."""

_BY_VERSION: tuple[tuple[Version, frozenset[str]], ...] = (
    (Version.MODERN, frozenset({"client", "via"})),
    (Version.V2003, frozenset()),
)
"""What peers understand beyond user, request, audience and expiry; the first entry that is not newer counts."""

_ID = re.compile(r"[0-9A-Za-z._-]{1,64}")
_HOST = re.compile(r"[0-9A-Za-z.:\[\]_-]{1,260}")


class AssertionRefused(Exception):
    """The assertion is not believed. The text is the reason, for the log."""


@dataclass(frozen=True, slots=True)
class Client:
    """The client at the first front end."""

    address: str
    port: int
    tls: bool
    host: str = ""
    """The host that it asked for, with the port where it said one."""


@dataclass(frozen=True, slots=True)
class Claims:
    """What a peer says of one request."""

    issuer: str
    user: str
    """The user's canonical name."""
    request_id: str
    client: Client | None
    """None from a peer that does not say it."""
    via: tuple[str, ...]
    """Front ends that the request has passed, the first one first."""


def features(version: Version) -> frozenset[str]:
    """What a peer of this version understands of `client` and `via`."""
    return next(understood for since, understood in _BY_VERSION if version >= since)


class AssertionSigner:
    """Makes assertions of the front end `front_end` with its peer certificate's key (PEM), good for `seconds`.

    Raises ValueError when the key is none that assertions are signed with.
    """

    def __init__(self, private_key: bytes, front_end: str, seconds: float) -> None:
        key = load_pem_private_key(private_key, password=None)
        if not isinstance(key, Ed25519PrivateKey):  # noqa: SIM102 - for the type checker
            if not isinstance(key, EllipticCurvePrivateKey) or not isinstance(key.curve, SECP256R1):
                raise ValueError("the peer's private key is neither P-256 nor Ed25519")  # noqa: TRY004 - a file's fault
        self._key = key
        self._algorithm = _algorithm(key.public_key())
        self._jws = jwt.PyJWS(algorithms=[self._algorithm])
        self._front_end = front_end
        self._seconds = seconds
        self._prefix = secrets.token_urlsafe(12)
        self._numbers = count(1)

    def sign(self, payload: bytes) -> bytes:
        """The assertion of that `payload`, signed with our key."""
        return self._jws.encode(payload, self._key, algorithm=self._algorithm, headers={"typ": TYPE}).encode()

    def payload(
        self,
        user: str,
        request_id: str,
        audience: str,
        client: Client,
        via: tuple[str, ...],
        now: float,
        version: Version,
    ) -> bytes:
        """What an assertion for one request to `audience` says, in as much as a peer of its `version` understands.

        `via` are the front ends before this one. Each call's is another, also for the same request sent again.
        """
        claims: dict[str, Any] = {
            "iss": self._front_end,
            "aud": audience,
            "sub": user,
            "rid": request_id,
            "jti": f"{self._prefix}.{next(self._numbers):x}",
            "iat": now,
            "exp": now + self._seconds,
            "pv": FORM,
        }
        understood = features(version)
        if "client" in understood:
            claims["cli"] = {"addr": client.address, "port": client.port, "tls": client.tls, "host": client.host}
        if "via" in understood:
            claims["via"] = (*via, self._front_end)
        return msgspec.json.encode(claims)


class Seal(Port):
    """A peer's Kerberos context: only whoever has shown its ticket can seal anything with it."""

    def sealed(self, payload: bytes, seal: bytes) -> bool:
        """Whether `seal` was made for `payload` in this context."""
        ...


def sealed_assertion(payload: bytes, seal: bytes) -> bytes:
    """The assertion of that `payload` with a seal of the Kerberos context whose ticket goes with it."""
    return b".".join(urlsafe_b64encode(part).rstrip(b"=") for part in (_SEALED_HEADER, payload, seal))


class AssertionVerifier:
    """Judges assertions for the front end `front_end`; none is good for longer than `seconds` from when it was made.

    What was taken is remembered until it ends, for each peer by itself, so that no peer can use up another's room.
    """

    def __init__(self, front_end: str, seconds: float) -> None:
        self._front_end = front_end
        self.seconds = seconds
        self._taken: dict[str, _Taken] = {}
        self._jws = jwt.PyJWS(algorithms=["ES256", "EdDSA"])

    def verify(self, value: bytes, peer_name: str, proof: PeerPublicKey | Seal, now: float) -> Claims:
        """What `value` says, presented by the peer `peer_name` whose certificate has that key, or whose ticket came
        with it.

        Raises `AssertionRefused`.
        """
        claims = self._read(value, proof)
        if claims.get("pv") != FORM or type(claims["pv"]) is not int:
            raise AssertionRefused("a form that is not known here")
        if claims.get("iss") != peer_name:
            raise AssertionRefused("made by another front end than the one that presents it")
        if claims.get("aud") != self._front_end:
            raise AssertionRefused("made for another server")
        made, ends = _number(claims, "iat"), _number(claims, "exp")
        if made > now + CLOCK_SKEW:
            raise AssertionRefused("made in the future: compare the clocks")
        if now >= min(ends, made + self.seconds):
            raise AssertionRefused("expired")
        user = claims.get("sub")
        if not isinstance(user, str) or not 0 < len(user) <= MAX_LOGIN_NAME or not user.isprintable():
            raise AssertionRefused("names no user")
        found = Claims(peer_name, user, _id(claims, "rid"), _client(claims.get("cli")), _via(claims.get("via", [])))
        taken = self._taken.setdefault(peer_name, _Taken())
        if not taken.take(_id(claims, "jti"), made, now - self.seconds):
            raise AssertionRefused("taken before")
        return found

    def _read(self, value: bytes, key: PeerPublicKey | Seal) -> dict[str, Any]:
        """The claims, once the signature is seen to be that key's. What the header says chooses nothing."""
        if len(value) > MAX_ASSERTION or value.count(b".") != 2:
            raise AssertionRefused("no assertion")
        if not isinstance(key, PeerPublicKey):
            return _read_sealed(value, key)
        head, _, _ = value.partition(b".")
        algorithm = _algorithm(key)
        try:
            header = _decoded(head)
            if _object(header) != {"alg": algorithm, "typ": TYPE}:
                raise AssertionRefused("its header is not that of an assertion signed with this key")
            return _object(self._jws.decode(value, key, algorithms=[algorithm]))
        except jwt.InvalidSignatureError:
            raise AssertionRefused("not signed with the key of the peer that presents it") from None
        except (jwt.PyJWTError, binascii.Error, ValueError, RecursionError):
            raise AssertionRefused("no assertion") from None


class _Taken:
    """Assertions of one peer that were taken and have not ended yet."""

    __slots__ = ("_made", "_not_before")

    def __init__(self) -> None:
        self._made: dict[str, float] = {}
        """When each was made, in the order in which they came."""
        self._not_before = -math.inf

    def take(self, identifier: str, made: float, ended: float) -> bool:
        """Whether this one has not been taken before, as far as can be known; it is now.

        Those made at `ended` or earlier are good no more.
        """
        known = self._made
        while known:
            oldest = next(iter(known))
            if known[oldest] > ended:
                break
            del known[oldest]
        if identifier in known or made <= self._not_before:
            return False
        if len(known) >= REMEMBERED:
            self._not_before = max(self._not_before, known.pop(next(iter(known))))
            if made <= self._not_before:
                return False
        known[identifier] = made
        return True


def _read_sealed(value: bytes, seal: Seal) -> dict[str, Any]:
    try:
        header, payload, mark = (_decoded(part) for part in value.split(b"."))
        if header != _SEALED_HEADER:
            raise AssertionRefused("its header is not that of a sealed assertion")
        if not seal.sealed(payload, mark):
            raise AssertionRefused("not sealed by whoever has shown the ticket")
        return _object(payload)
    except (binascii.Error, ValueError, RecursionError):
        raise AssertionRefused("no assertion") from None


def _decoded(part: bytes) -> bytes:
    return urlsafe_b64decode(part + b"=" * (-len(part) % 4))


def _algorithm(key: object) -> str:
    return "EdDSA" if isinstance(key, Ed25519PublicKey) else "ES256"


def _object(data: bytes) -> dict[str, Any]:
    """A JSON object in which no name stands twice: two readers could take two values. Raises ValueError."""
    found = json.loads(data, object_pairs_hook=_unique, parse_constant=_no_constant)
    if not isinstance(found, dict):
        raise ValueError("no object")  # noqa: TRY004 - a fault of the data
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice")
    return found


def _no_constant(word: str) -> float:
    raise ValueError(f"{word} is no JSON")


def _number(claims: dict[str, Any], name: str) -> float:
    value = claims.get(name)
    if type(value) is not float and type(value) is not int:
        raise AssertionRefused(f"{name} is no time")
    if not 0 <= value < 1e12:  # also false for what float() could not hold
        raise AssertionRefused(f"{name} is no time")
    return float(value)


def _id(claims: dict[str, Any], name: str) -> str:
    value = claims.get(name)
    if not isinstance(value, str) or _ID.fullmatch(value) is None:
        raise AssertionRefused(f"{name} is no identifier")
    return value


def _client(value: Any) -> Client | None:  # noqa: ANN401 - whatever JSON holds
    if value is None:
        return None
    match value:
        case {"addr": str(address), "port": int(port), "tls": bool(tls), "host": str(host)}:
            good = _is_address(address) and type(port) is int and 0 <= port < 65536
            if good and (not host or _HOST.fullmatch(host)):
                return Client(address, port, tls, host)
    raise AssertionRefused("the client's address cannot be read")


def _is_address(text: str) -> bool:
    """Whether it is an IP address; one with a zone means something on its own machine only."""
    try:
        ip_address(text)
    except ValueError:
        return False
    return "%" not in text


def _via(value: Any) -> tuple[str, ...]:  # noqa: ANN401 - whatever JSON holds
    if not isinstance(value, list) or len(value) > MAX_VIA:
        raise AssertionRefused("via cannot be read")
    if not all(isinstance(name, str) and 0 < len(name) <= MAX_NAME and name.isprintable() for name in value):
        raise AssertionRefused("via cannot be read")
    return tuple(value)
