"""A whole hub whose users are elsewhere: recipients, aliases, submission; the directory ends and comes back."""

from __future__ import annotations

import smtplib
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
from directory_backends import AGE_SECONDS, Backend, backend
from doors import Servers
from transport_stage import Hub, TransportStage, mail, until

from gatepost.directory.port import User
from gatepost.lab.toml_text import Table
from gatepost.routing.decision import Mailbox

ALICE = User("alice@contoso.com", Mailbox("DB01"))
ALIAS = "sales@contoso.com"
BOB = User("bob@contoso.com", Mailbox("DB02"))
CAROL = User("carol@contoso.com", Mailbox("DB01"))
"""Nobody asks for her before the directory is away."""
NOBODY = "nobody@contoso.com"


@dataclass
class Place:
    """HUB-01 before MBX-01 and MBX-02, and the engine's server."""

    stage: TransportStage
    users: Backend

    @property
    def hub(self) -> Hub:
        return self.stage.hubs["HUB-01"]

    def rcpt(self, recipient: str) -> int:
        """The code that a stranger's RCPT gets."""
        with self.stage.client("HUB-01") as client:
            client.ehlo()
            client.mail("stranger@fabrikam.com")
            return client.rcpt(recipient)[0]

    def sign_in(self, name: str, password: str) -> smtplib.SMTP:
        """A client of the submission port that has signed in. Raises `smtplib.SMTPAuthenticationError`."""
        client = self.stage.client("HUB-01", "submission")
        try:
            client.starttls(context=ssl.create_default_context(cafile=str(self.stage.servers.authority.certificate)))
            client.login(name, password)
        except BaseException:
            client.close()
            raise
        return client

    def refusal(self, name: str, password: str) -> int:
        """The code of a sign-in that fails."""
        with pytest.raises(smtplib.SMTPAuthenticationError) as refused:
            self.sign_in(name, password)
        return refused.value.smtp_code


@pytest.fixture(scope="module", params=["ldap", "postgresql"])
def place(
    request: pytest.FixtureRequest, servers: Servers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    """The same users in each engine. Each test leaves them as they were."""
    with backend(request.param, servers, tmp_path_factory.mktemp("hub"), request) as users:
        for user, password in ((ALICE, "apw"), (BOB, "bpw"), (CAROL, "cpw")):
            users.put(user, (ALIAS,) if user is ALICE else (), password)
        settings: Table = {}
        users.configure(settings)
        mailboxes = {"MBX-01": "usa", "MBX-02": "usa"}
        with TransportStage(servers, {"HUB-01": "usa"}, mailboxes, settings=settings) as stage:
            stage.start()
            yield Place(stage, users)


def test_recipients_are_looked_up(place: Place) -> None:
    """By name and by alias, to the server of their database; who is nobody is refused at RCPT."""
    refused = place.stage.send("HUB-01", "Alice@contoso.com", BOB.name, NOBODY, subject="found")
    assert {name: code for name, (code, _) in refused.items()} == {NOBODY: 550}
    place.stage.send("HUB-01", ALIAS, subject="by alias")
    place.stage.arrived("MBX-01", "alice", "found")
    place.stage.arrived("MBX-02", "bob", "found")
    place.stage.arrived("MBX-01", "alice", "by alias")
    assert place.rcpt("x'or'1'='1@contoso.com") == 550
    assert place.rcpt("*@contoso.com") == 550


def test_users_sign_in_to_submit(place: Place) -> None:
    """As themselves and by their further addresses, and as nobody else."""
    with place.sign_in("alice", "apw") as client:
        for sender in (ALICE.name, ALIAS):
            client.sendmail(sender, [BOB.name], mail(f"from {sender}", sender))
        assert client.mail(BOB.name)[0] in {550, 553}
    for sender in (ALICE.name, ALIAS):
        place.stage.arrived("MBX-02", "bob", f"from {sender}")
    assert place.refusal("alice", "bpw") == 535
    assert place.refusal("nobody", "apw") == 535


def test_a_user_who_is_moved_in_the_directory(place: Place) -> None:
    """The next message goes where the mailbox is now."""
    place.users.put(replace(BOB, mailbox=Mailbox("DB01")))

    def at_the_new_server() -> bool:
        place.stage.send("HUB-01", BOB.name, subject="moved")
        return place.stage.has("MBX-01", "bob", "moved") > 0

    until(at_the_new_server, "mail follows")
    place.users.put(BOB)

    def back() -> bool:
        place.stage.send("HUB-01", BOB.name, subject="moved back")
        return place.stage.has("MBX-02", "bob", "moved back") > 0

    until(back, "mail follows back")


def test_the_directory_is_away_and_back(place: Place) -> None:
    """Who is known gets mail and submits; for who is not it is 451 and 454, at no moment 550 or 535."""
    place.stage.send("HUB-01", ALICE.name, subject="before")
    with place.sign_in("alice", "apw"):
        pass
    time.sleep(2 * AGE_SECONDS)  # what was told of her is no longer fresh
    place.users.take_away()
    try:
        assert place.rcpt(CAROL.name) == 451
        assert place.rcpt(NOBODY) in {451, 550}  # that they were nobody a moment ago may be known
        place.stage.send("HUB-01", ALICE.name, subject="meanwhile")
        place.stage.arrived("MBX-01", "alice", "meanwhile")
        with place.sign_in("alice", "apw") as client:
            client.sendmail(ALICE.name, [ALICE.name], mail("submitted meanwhile", ALICE.name))
        place.stage.arrived("MBX-01", "alice", "submitted meanwhile")
        assert place.refusal("carol", "cpw") == 454
    finally:
        place.users.bring_back()
    until(lambda: place.rcpt(CAROL.name) == 250, "the directory is back, and nobody notices")
    assert place.rcpt(NOBODY) == 550
    with place.sign_in("carol", "cpw"):
        pass


def test_mail_waits_for_the_directory_over_a_restart(place: Place) -> None:
    """A message on disk whose recipient cannot be looked up is kept, and delivered when the directory is back."""
    place.stage.mailboxes["MBX-02"].stop()
    place.stage.send("HUB-01", BOB.name, subject="waits")
    place.hub.kill()
    place.users.take_away()
    try:
        place.stage.start()
        until(lambda: "directory.unavailable" in _events(place), "the hub misses the directory")
        assert place.rcpt(BOB.name) == 451
        assert place.stage.has("MBX-02", "bob", "waits") == 0
    finally:
        place.users.bring_back()
    until(lambda: "DB02" in place.hub.queues(), "it is routed")
    place.hub.command("queue", "retry", "DB02")  # its server was known to be down
    place.stage.arrived("MBX-02", "bob", "waits")


def _events(place: Place) -> set[str]:
    return {line["event"] for line in place.hub.events()}
