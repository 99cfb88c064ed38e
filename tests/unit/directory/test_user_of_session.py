"""Sign-ins that last (SPEC B6): whether the user is still the one who signed in, and still may."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from gatepost.directory.passwords import generation
from gatepost.directory.port import DirectoryUnavailable, User, Verdict
from gatepost.directory.sign_in import OUTAGE_SECONDS, SignInService
from gatepost.organization.model import Protocol
from gatepost.routing.decision import Mailbox

ANNA = User("anna@contoso.com", Mailbox("DB01"), "$argon2id$one")
KEY = b"k" * 16
GENERATION = generation(ANNA.password_hash, KEY)
HTTPS = Protocol.HTTPS


class Stage:
    """A directory of one user, and a clock."""

    def __init__(self) -> None:
        self.user: User | None = ANNA
        self.down = False
        self.now = 1000.0
        self.callbacks: list[Callable[[], None]] = []
        self.service = SignInService(
            self, "contoso.com", waiting_limit=1, per_address=1, dummy_hash="x", clock=lambda: self.now, threads=1
        )

    async def ask(self, canonical_name: str) -> User | None:
        return self.find(canonical_name)

    async def opens(self, user: User, tries: tuple[bytes, ...]) -> bool:
        raise AssertionError("no user here is judged by the directory")

    def find(self, canonical_name: str) -> User | None:
        if self.down:
            raise DirectoryUnavailable("the file is away")
        return self.user

    def on_change(self, callback: Callable[[], None]) -> None:
        self.callbacks.append(callback)

    def verdict(self, name: str = ANNA.name, digest: bytes = GENERATION) -> Verdict:
        return self.service.user_of_session(name, KEY, digest, HTTPS).verdict


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_the_same_user_goes_on_without_a_password(stage: Stage) -> None:
    """And the answer names them as the directory does now."""
    result = stage.service.user_of_session(ANNA.name, KEY, GENERATION, HTTPS)
    assert (result.verdict, result.user) == (Verdict.SIGNED_IN, ANNA)


@pytest.mark.parametrize(
    ("user", "verdict"),
    [
        (None, Verdict.WRONG_CREDENTIALS),
        (replace(ANNA, disabled=True), Verdict.WRONG_CREDENTIALS),
        (replace(ANNA, password_hash="$argon2id$two"), Verdict.WRONG_CREDENTIALS),
        (replace(ANNA, password_hash=""), Verdict.WRONG_CREDENTIALS),
        (replace(ANNA, name="otto@contoso.com"), Verdict.WRONG_CREDENTIALS),
        (replace(ANNA, protocols=frozenset({Protocol.IMAP})), Verdict.PROTOCOL_NOT_ALLOWED),
        (replace(ANNA, mailbox=Mailbox("DB02")), Verdict.SIGNED_IN),
    ],
    ids=["deleted", "disabled", "password changed", "no password", "the name is another's now", "protocol", "moved"],
)
def test_what_voids_a_sign_in(stage: Stage, user: User | None, verdict: Verdict) -> None:
    """A password change or a disabled user voids it; a moved mailbox does not."""
    assert stage.verdict() is Verdict.SIGNED_IN
    stage.user = user
    assert stage.verdict() is verdict


def test_a_digest_of_another_key_or_none(stage: Stage) -> None:
    """What is in the cookie must be the digest for this very sign-in."""
    for digest in (b"", b"\0" * 16, generation(ANNA.password_hash, b"other" * 4), GENERATION[:8]):
        assert stage.verdict(digest=digest) is Verdict.WRONG_CREDENTIALS


def test_while_the_directory_is_down_what_it_last_said_holds_for_a_while(stage: Stage) -> None:
    """A temporary fault: never a wrong password. Nobody is let in who was not known, or was voided."""
    stage.down = True
    assert stage.verdict() is Verdict.UNAVAILABLE
    stage.down = False
    assert stage.verdict() is Verdict.SIGNED_IN
    stage.down = True
    stage.now += OUTAGE_SECONDS
    assert stage.verdict() is Verdict.SIGNED_IN
    assert stage.verdict(digest=b"\0" * 16) is Verdict.WRONG_CREDENTIALS
    stage.now += 1
    assert stage.verdict() is Verdict.UNAVAILABLE


def test_a_deleted_user_is_not_remembered_through_an_outage(stage: Stage) -> None:
    """The last word counts."""
    assert stage.verdict() is Verdict.SIGNED_IN
    stage.user = None
    assert stage.verdict() is Verdict.WRONG_CREDENTIALS
    stage.down = True
    assert stage.verdict() is Verdict.UNAVAILABLE


def test_changes_of_the_directory_are_counted(stage: Stage) -> None:
    """So that an answer can be kept while nothing has changed."""
    before = stage.service.directory_changes
    for callback in stage.callbacks:
        callback()
    assert stage.service.directory_changes == before + 1
