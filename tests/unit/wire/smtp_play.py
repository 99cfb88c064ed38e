"""An SMTP session of a receive connector without a network: what is stored, what is said, what is asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from dataclasses import replace as changed
from ipaddress import ip_address
from typing import Any

from gatepost.organization.transport import (
    Binding,
    PermissionGroup,
    ReceiveAuthentication,
    ReceiveConnector,
)
from gatepost.wire.events import Close, Refusal, Send, SignIn, StartTls
from gatepost.wire.smtp_command import MailCommand, RcptCommand
from gatepost.wire.smtp_reply import Reply
from gatepost.wire.smtp_server import SmtpServer
from gatepost.wire.smtp_server_events import Impersonate, ServerEvent, Store, Wait

CONNECTOR = ReceiveConnector(
    "Default HUB-01",
    "HUB-01",
    (Binding(ip_address("127.0.0.1"), 25),),
    permission_groups=frozenset({PermissionGroup.ANONYMOUS, PermissionGroup.USERS, PermissionGroup.SERVERS}),
    authentication=frozenset(
        {
            ReceiveAuthentication.TLS,
            ReceiveAuthentication.BASIC,
            ReceiveAuthentication.BASIC_REQUIRE_TLS,
            ReceiveAuthentication.SERVERS,
        }
    ),
    tarpit_seconds=0.0,
)
STORED = Reply(250, "Queued", "2.6.0")


def connector(**changes: Any) -> ReceiveConnector:
    return changed(CONNECTOR, **changes)


@dataclass
class Message:
    mail: MailCommand
    recipients: list[RcptCommand] = field(default_factory=list)
    content: bytes = b""


class Recorder:
    """A `Judge`: everybody at `.ours` is of the organization, `unknown@…` is refused, `later@…` for the moment."""

    def __init__(self) -> None:
        self.open: Message | None = None
        self.forgotten = 0
        self.refuse_mail: Reply | None = None
        self.refuse_content: Reply | None = None
        self.wait = 0.0

    def mail(self, command: MailCommand) -> Reply | None:
        if self.refuse_mail is None:
            assert self.open is None
            self.open = Message(command)
        return self.refuse_mail

    def mail_wait(self) -> float:
        return self.wait

    def is_ours(self, address: str) -> bool:
        return address.endswith(".ours")

    def recipient(self, command: RcptCommand) -> Reply | None:
        assert self.open is not None
        if command.address.startswith("unknown@"):
            return Reply(550, "No such mailbox", "5.1.1")
        if command.address.startswith("later@"):
            return Reply(451, "Later", "4.3.0")
        self.open.recipients.append(command)
        return None

    def content_begins(self) -> Reply | None:
        assert self.open is not None
        assert not self.open.content
        return self.refuse_content

    def content(self, data: bytes) -> None:
        assert data
        assert self.open is not None
        self.open.content += data

    def forget(self) -> None:
        self.forgotten += 1
        self.open = None


class Play:
    """A session and its driver: everything asked is answered at once, as the attributes say."""

    def __init__(self, wanted: ReceiveConnector = CONNECTOR, *, greet: bool = True, **how: Any) -> None:
        self.judge = Recorder()
        self.session = SmtpServer(wanted, "hub.example", self.judge, **{"starttls": True, "sign_in": True, **how})
        self.stored: list[Message] = []
        self.sizes: list[int] = []
        self.eight_bit: list[bool] = []
        self.waits: list[float] = []
        self.sign_ins: list[tuple[str, str]] = []
        self.closed = ""
        self.starts_tls = False
        self.claims: list[Impersonate] = []
        self.users = {"anna@x.ours": "secret"}
        self.reply = STORED
        self.auto = True
        self._said = b""
        self.events: list[ServerEvent] = []
        if greet:
            self.run(self.session.greet())

    def say(self, data: bytes) -> list[str]:
        """Send; the lines of the answer."""
        self.run(self.session.receive(data))
        return self.heard()

    def lines(self, *lines: str) -> list[str]:
        return self.say("".join(f"{line}\r\n" for line in lines).encode())

    def heard(self) -> list[str]:
        said, self._said = self._said, b""
        assert said == b"" or said.endswith(b"\r\n")
        return said.decode("ascii").split("\r\n")[:-1]

    def codes(self, data: bytes) -> list[str]:
        """Code and enhanced code of each reply's last line."""
        return [" ".join(line.split()[:2]) for line in self.say(data) if line[3] == " "]

    def run(self, events: Sequence[ServerEvent]) -> None:
        waiting = list(events)
        while waiting:
            event = waiting.pop(0)
            self.events.append(event)
            assert not self.closed
            if isinstance(event, Send):
                self._said += event.data
            elif isinstance(event, Store):
                assert self.judge.open is not None
                message, self.judge.open = self.judge.open, None
                assert event.size == len(message.content)
                self.eight_bit.append(event.eight_bit)
                if self.reply.positive:
                    self.stored.append(message)
                if self.auto:
                    waiting += self.session.stored(self.reply)
            elif isinstance(event, Wait):
                self.waits.append(event.seconds)
                if self.auto:
                    waiting += self.session.waited()
            elif isinstance(event, SignIn):
                who = event.credentials
                self.sign_ins.append((who.authentication_id, who.password))
                good = self.users.get(who.authentication_id) == who.password
                if good:
                    waiting += self.session.signed_in(who.authentication_id)
                else:
                    waiting += self.session.refuse(Refusal.WRONG_CREDENTIALS)
            elif isinstance(event, StartTls):
                self.starts_tls = True
            elif isinstance(event, Close):
                self.closed = event.reason
            else:
                self.claims.append(event)

    def begin(self, *recipients: str, sender: str = "s@far.example") -> None:
        """EHLO, MAIL and RCPTs that are taken."""
        self.heard()
        lines = ["EHLO client.example", f"MAIL FROM:<{sender}>", *(f"RCPT TO:<{r}>" for r in recipients)]
        answers = self.lines(*lines)
        assert all(answer.startswith("250") for answer in answers), answers

    @property
    def contents(self) -> list[bytes]:
        return [message.content for message in self.stored]
