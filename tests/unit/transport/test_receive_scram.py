"""SCRAM at a hub's receive connector: its users sign in without their password crossing."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Callable

import pytest
from receive_stage import Client, ReceiveStage, receiving
from scram_client import ScramClient

from gatepost.directory import scram_keys
from gatepost.directory.port import User
from gatepost.directory.settings import ScramSettings
from gatepost.directory.sign_in import SignInService
from gatepost.organization.model import Protocol
from gatepost.routing.decision import Mailbox

ANNA = User("anna@ours.example", Mailbox("DB01"), scram_keys.make_hash("pencil", 4096))


class OnlyAnna:
    """A directory."""

    def find(self, canonical_name: str) -> User | None:
        return ANNA if canonical_name == ANNA.name else None

    async def ask(self, canonical_name: str) -> User | None:
        return self.find(canonical_name)

    async def opens(self, user: User, tries: tuple[bytes, ...]) -> bool:
        raise AssertionError("no user here is judged by the directory")

    def on_change(self, callback: Callable[[], None]) -> None:
        pass


@pytest.fixture
async def stage() -> AsyncIterator[ReceiveStage]:
    """A hub whose users have SCRAM's keys."""
    async with receiving() as opened:
        service = SignInService(OnlyAnna(), "ours.example", waiting_limit=2, per_address=2, threads=1, dummy_hash="x")
        service.scram = ScramSettings(frozenset({Protocol.SUBMISSION}), 4096)
        opened.service.sign_in = service
        yield opened
        service.close()


async def _sign_in(stage: ReceiveStage, scram: ScramClient) -> tuple[Client, str]:
    """A client within TLS, and the answer to its AUTH."""
    client = await stage.client()
    await client.say("EHLO c.example", "STARTTLS")
    await client.start_tls()
    (offered,) = await client.say("EHLO c.example")
    assert "SCRAM-SHA-256" in offered
    assert "PLUS" not in offered
    (answer,) = await client.say(f"AUTH SCRAM-SHA-256 {base64.b64encode(scram.first()).decode()}")
    if answer.startswith("334 "):
        last = scram.last(base64.b64decode(answer[4:]))
        (answer,) = await client.say(base64.b64encode(last).decode())
    if answer.startswith("334 "):
        assert scram.believes(base64.b64decode(answer[4:]))
        (answer,) = await client.say("")
    return client, answer


async def test_a_user_signs_in_and_sends(stage: ReceiveStage) -> None:
    client, answer = await _sign_in(stage, ScramClient("anna", "pencil"))
    assert answer.startswith("235")
    await client.begin("a@far.example", sender="anna@ours.example")
    await client.say("x\r\n.")
    assert stage.intake.taken[0][0].source.user == "anna@ours.example"


@pytest.mark.parametrize(
    "scram", [ScramClient("anna", "wrong"), ScramClient("nobody", "pencil"), ScramClient("anna", "pencil", b"n,a=bob,")]
)
async def test_others_are_refused_alike(stage: ReceiveStage, scram: ScramClient) -> None:
    _, answer = await _sign_in(stage, scram)
    assert answer.startswith("535 5.7.8")
    assert any(call.args == ("receive.sign_in_refused",) for call in stage.log.calls)


async def test_it_is_not_offered_without_the_table(stage: ReceiveStage) -> None:
    assert stage.service.sign_in is not None
    stage.service.sign_in.scram = None
    client = await stage.client()
    await client.say("EHLO c.example", "STARTTLS")
    await client.start_tls()
    (offered,) = await client.say("EHLO c.example")
    assert "SCRAM" not in offered
