"""What the sign-in cookie holds, and how long it is good. Nothing here reads a clock: times are seconds since 1970.

    begun ─── activity ─── renewed ─── T/2: activity renews ─── 1.5 T: over      (T: the time-out, public or private)

A sign-in that nobody uses is over after 1 to 1.5 times the time-out, as in the source system: half of the time-out
passes before activity renews the cookie, and that half is given back at the end.
"""

from __future__ import annotations

import os

import msgspec

from gatepost.access.http.sealed import Sealer
from gatepost.configuration.settings import Forms
from gatepost.directory.passwords import MAX_PASSWORD_BYTES, generation
from gatepost.directory.port import User
from gatepost.organization.model import HttpSignIn, Organization, Protocol, Role

PURPOSE = b"sign-in"
AHEAD_SECONDS = 300.0
"""How far another front end's clock may be ahead of this one's; what was renewed later than that is refused."""
ID_BYTES = 16
RENEW_AFTER = 0.5
OVER_AFTER = 1.5
"""Parts of the time-out, both from the last renewal."""


class FormsSession(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One sign-in. `user` is the canonical name. Its words never show the password or the id."""

    user: str
    password: str
    """Empty where no server needs it."""
    id: bytes
    """Random: what a sign-out names, and the key of `generation`."""
    generation: bytes
    """Keyed digest of the stored password hash: another password, and the sign-in is void."""
    private: bool
    """The user said that the computer is their own."""
    begun: float
    renewed: float

    def __repr__(self) -> str:
        return f"FormsSession(user={self.user!r}, private={self.private}, renewed={self.renewed:.0f})"


class Sessions:
    """Seals and opens sign-in cookies for one front end. Raises ValueError when `private_key` (PEM) cannot be read."""

    def __init__(self, private_key: bytes, settings: Forms) -> None:
        self._sealer = Sealer([private_key], PURPOSE, settings.also_opens)
        self._timeouts = (settings.public_seconds, settings.private_seconds)
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(FormsSession).decode

    def begin(self, user: User, password: str, now: float, *, private: bool) -> bytes:
        """The cookie's value for a user who has just signed in; `password` is empty where no server needs it."""
        if len(password.encode("utf-8", "surrogatepass")) > MAX_PASSWORD_BYTES:
            raise ValueError("a password that no account has")
        key = os.urandom(ID_BYTES)
        made = generation(user.password_hash, key)
        return self._seal(FormsSession(user.name, password, key, made, private, now, now))

    def read(self, value: bytes, now: float) -> FormsSession | None:
        """The sign-in that a front end with a known certificate has sealed, over or not; None for anything else."""
        plain = self._sealer.open(value, now)
        if plain is None:
            return None
        try:
            session = self._decode(plain)
        except msgspec.MsgspecError:  # sealed by another version of this product
            return None
        return session if session.renewed <= now + AHEAD_SECONDS else None

    def open(self, value: bytes, now: float) -> FormsSession | None:
        """The sign-in, if it is good for time and certificate. Whether the user still may is not judged here."""
        session = self.read(value, now)
        return session if session is not None and now < self.over_at(session) else None

    def opens_until(self, value: bytes) -> float:
        """When the certificate that sealed `value`, which must be one that opens, opens nothing any more."""
        return self._sealer.opens_until(value)

    def over_at(self, session: FormsSession) -> float:
        """When the sign-in is over unless it is renewed."""
        return session.renewed + OVER_AFTER * self._timeouts[session.private]

    def renewable_at(self, session: FormsSession) -> float:
        """From when on activity renews it."""
        return session.renewed + RENEW_AFTER * self._timeouts[session.private]

    def forgotten_at(self, session: FormsSession, now: float) -> float:
        """When no copy of its cookie, renewed at `now` at the latest anywhere, can be good any more."""
        return now + AHEAD_SECONDS + OVER_AFTER * self._timeouts[session.private]

    def renew(self, session: FormsSession, now: float) -> bytes:
        """The value of a cookie for the same sign-in, renewed at `now`."""
        return self._seal(msgspec.structs.replace(session, renewed=now))

    def _seal(self, session: FormsSession) -> bytes:
        return self._sealer.seal(self._encode(session))


def needs_password(organization: Organization) -> bool:
    """Whether cookies must carry the password: some mailbox server over HTTP wants the user's own Basic credentials."""
    return any(
        server.sign_in.http is HttpSignIn.BASIC
        for server in organization.servers.values()
        if Role.MAILBOX in server.roles and server.endpoint(Protocol.HTTPS) is not None
    )
