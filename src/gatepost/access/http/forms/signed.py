"""Who is signed in by a cookie, as a connection remembers it, and which sign-ins were ended before their time."""

from __future__ import annotations

from gatepost.access.http.forms.session import FormsSession
from gatepost.access.http.identity import Identity, Way
from gatepost.directory.port import SignInResult, Verdict

MAX_SIGN_OUTS = 100_000
"""Sign-outs that one worker remembers by itself; the oldest go first."""
_UNKNOWN = SignInResult(Verdict.UNAVAILABLE, reason="not looked up")


class Signed:
    """A sign-in that its cookie proves, with what the directory says of its user. Times are seconds since 1970."""

    __slots__ = ("changes", "id", "identity", "look_again", "over", "renewable", "result", "session", "version")

    def __init__(self, session: FormsSession, version: int, over: float, renewable: float) -> None:
        self.session = session
        self.id = session.id.hex()
        self.version = version
        self.over = over
        self.renewable = renewable
        self.result = _UNKNOWN
        self.identity: Identity | None = None
        """Set while `result` says that the user is signed in."""
        self.changes = -1
        self.look_again = 0.0

    def judged(self, result: SignInResult, changes: int, look_again: float) -> None:
        """The directory has said `result` after that many changes of it."""
        if result.user is None or result.verdict is not Verdict.SIGNED_IN:
            self.identity = None
        elif self.identity is None or self.identity.user is not result.user:
            self.identity = Identity(result.user, Way.FORMS, self.session.password)
        self.result = result
        self.changes = changes
        self.look_again = look_again

    def __repr__(self) -> str:
        return f"Signed({self.session!r}, {self.result.verdict.value})"


class SignOuts:
    """Ids of sign-ins that were ended here, each until no copy of its cookie can be good."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}

    def add(self, session_id: str, until: float, now: float) -> None:
        """Remember one; forgets what is over."""
        if len(self._until) >= MAX_SIGN_OUTS:
            self._until = {known: end for known, end in self._until.items() if end > now}
        while len(self._until) >= MAX_SIGN_OUTS:
            del self._until[next(iter(self._until))]
        self._until[session_id] = until

    def holds(self, session_id: str) -> bool:
        """Whether it was ended here."""
        return session_id in self._until
