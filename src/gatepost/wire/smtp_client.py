"""The client's side of SMTP (RFC 5321) and LMTP (RFC 2033): one session, any number of transactions. Sans-I/O.

    greeting ─► EHLO ─► STARTTLS ─► handshake ─► EHLO ─► AUTH ─► idle ◄────────────────┐
                 └─► HELO                                 transact │                   │
                                          MAIL, RCPT…, DATA ─► content ─► end ─► (RSET)┘

Where the server offers PIPELINING (RFC 2920) a transaction's commands go in one piece, else one at a time; the next
transaction's may go with the end of the content. The server
is not trusted: replies are bounded, one that nobody asked for ends the session. A fault of the session is never one of
the message (field cases 42 and 44): only the answers to MAIL, RCPT, DATA and to the content decide over recipients.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence

from gatepost.wire import sasl
from gatepost.wire.events import Send, StartTls
from gatepost.wire.shadow_words import ShadowHub, encode_hub, parse_hub
from gatepost.wire.smtp_client_events import (
    Broken,
    ChannelOpen,
    ClientEvent,
    ClientSettings,
    Closed,
    Ready,
    SessionFault,
    Step,
    TlsUse,
)
from gatepost.wire.smtp_client_extensions import Extensions, read_extensions
from gatepost.wire.smtp_client_reply import BadReply, ReplyReader
from gatepost.wire.smtp_client_transaction import Transaction
from gatepost.wire.smtp_reply import Reply

READY = Ready()
STARTTLS = StartTls()
CLOSED = Closed()


class SmtpClient:
    """One session. `step` is what it waits for; `extensions` is what the server offers since the last EHLO."""

    __slots__ = ("_following", "_hello", "_mechanism", "_reader", "_responses", "_settings", "_transaction",
                 "extensions", "replies", "secured", "step")  # fmt: skip

    def __init__(self, settings: ClientSettings) -> None:
        """Raises ValueError when the name cannot be said."""
        if not settings.name or not all("!" <= character <= "~" for character in settings.name):
            raise ValueError("a name that cannot be said at EHLO")
        self._settings = settings
        self._reader = ReplyReader()
        self._hello = b"LHLO" if settings.lmtp else b"EHLO"
        self._mechanism = ""
        self._responses: list[bytes] = []
        self._transaction: Transaction | None = None
        self._following: Transaction | None = None
        """One that was begun together with the end of this one's content."""
        self.extensions = Extensions()
        self.replies = 0
        """Whole replies so far: by them one sees that the server is getting on."""
        self.secured = settings.secured
        self.step = Step.GREETING

    @property
    def over(self) -> bool:
        """Nothing more is said or taken."""
        return self.step is Step.OVER

    # From the server

    def receive(self, data: bytes) -> list[ClientEvent]:
        """Take bytes of the server. Once the session is over nothing comes back."""
        if self.over:
            return []
        if self.step is Step.HANDSHAKE:
            return self.broken(SessionFault.TLS, "bytes in clear before the handshake")
        events: list[ClientEvent] = []
        try:
            self._reader.feed(data)
            while not self.over and (reply := self._reader.take()) is not None:
                self.replies += 1
                said = self._reply(reply)
                if self._reader and any(type(event) is Send for event in said):
                    # Whoever answers before he was asked is not in step with us.
                    said = self.broken(SessionFault.PROTOCOL, "a reply that nobody asked for")
                events += said
            if self.step is Step.IDLE and self._reader:
                events += self.broken(SessionFault.PROTOCOL, "a reply that nobody asked for")
        except BadReply as error:
            events += self.broken(SessionFault.PROTOCOL, str(error))
        return events

    def tls_started(self) -> list[ClientEvent]:
        """The handshake that `StartTls` asked for is done: everything known so far is forgotten (RFC 3207, 4.2)."""
        if self.step is not Step.HANDSHAKE:
            return []
        self.secured = True
        self.extensions = Extensions()
        self._reader.clear()
        return self._say_hello()

    def lost(self, text: str = "connection lost") -> list[ClientEvent]:
        """The connection ended."""
        return [] if self.over else self.broken(SessionFault.LOST, text)

    def broken(self, fault: SessionFault, text: str, reply: Reply | None = None) -> list[ClientEvent]:
        """End the session: `Broken`, or what that makes of the transaction's recipients."""
        at = self.step
        self.step = Step.OVER
        self._following = None
        self._reader.clear()
        end = Broken(fault, self._shown(f"{text} ({at.value})"), reply)
        if self._transaction is None:
            return [end]
        transaction, self._transaction = self._transaction, None
        return [transaction.cut(end, at)]

    def _reply(self, reply: Reply) -> list[ClientEvent]:
        step = self.step
        if reply.code == 421 and step is not Step.QUIT:
            return self.broken(SessionFault.BUSY, f"421 {reply.text}", reply)
        if self._transaction is not None:
            return self._transacted(self._transaction, reply)
        if step is Step.GREETING:
            if reply.code != 220:
                return self._no_welcome(reply)
            return self._say_hello()
        if step is Step.HELLO:
            return self._welcomed(reply)
        if step is Step.STARTTLS:
            return self._starttls(reply)
        if step is Step.AUTHENTICATION:
            return self._authenticated(reply)
        if step is Step.QUIT:
            self.step = Step.OVER
            return [CLOSED]
        if step is Step.CHANNEL:
            return self._channel_open(reply)
        return self.broken(SessionFault.PROTOCOL, "a reply that nobody asked for")

    # The opening

    def _say_hello(self) -> list[ClientEvent]:
        self.step = Step.HELLO
        self._reader.whole = True
        return [Send(b"%b %b\r\n" % (self._hello, self._settings.name.encode()))]

    def _welcomed(self, reply: Reply) -> list[ClientEvent]:
        self._reader.whole = False
        if reply.permanent and self._hello == b"EHLO":
            # A server of old (RFC 5321, section 3.2). One that means us says so again.
            self._hello = b"HELO"
            return self._say_hello()
        if reply.code != 250:
            return self._no_welcome(reply)
        if self._hello != b"HELO":
            self.extensions = read_extensions(reply)
        if not self.secured and self._settings.starttls is not TlsUse.NEVER:
            if self.extensions.starttls:
                self.step = Step.STARTTLS
                return [Send(b"STARTTLS\r\n")]
            if self._settings.starttls is TlsUse.REQUIRED:
                return self.broken(SessionFault.TLS, "TLS is required but not offered")
        return self._authenticate()

    def _no_welcome(self, reply: Reply) -> list[ClientEvent]:
        if reply.positive:
            return self.broken(SessionFault.PROTOCOL, f"{reply} where 220 or 250 was due", reply)
        return self.broken(SessionFault.REFUSED, str(reply), reply)

    def _starttls(self, reply: Reply) -> list[ClientEvent]:
        if reply.code != 220:
            if self._settings.starttls is TlsUse.REQUIRED or reply.positive:
                return self.broken(SessionFault.TLS, f"TLS is required but refused: {reply}", reply)
            return self._authenticate()
        if self._reader:
            # Said in clear, by whomever; it would be read as if TLS had protected it (field case 6).
            return self.broken(SessionFault.TLS, "bytes in clear behind the answer to STARTTLS")
        self.step = Step.HANDSHAKE
        return [STARTTLS]

    def _authenticate(self) -> list[ClientEvent]:
        settings = self._settings
        if not settings.user:
            return self._ready()
        if not self.secured:
            return self.broken(SessionFault.AUTHENTICATION, "no TLS: the password is not sent")
        offered = self.extensions.authentication
        user, password = settings.user.encode(), settings.password.encode()
        if "PLAIN" in offered:
            self._mechanism = "PLAIN"
            message = sasl.plain_message(settings.user, settings.password)
            command = b"AUTH PLAIN %b\r\n" % base64.b64encode(message)
        elif "LOGIN" in offered:
            self._mechanism = "LOGIN"
            self._responses = [base64.b64encode(password), base64.b64encode(user)]
            command = b"AUTH LOGIN\r\n"
        else:
            return self.broken(SessionFault.AUTHENTICATION, "neither AUTH PLAIN nor LOGIN is offered")
        self.step = Step.AUTHENTICATION
        return [Send(command)]

    def _authenticated(self, reply: Reply) -> list[ClientEvent]:
        if reply.code == 334 and self._responses:
            return [Send(self._responses.pop() + b"\r\n")]
        if reply.code != 235 or self._responses:
            return self.broken(SessionFault.AUTHENTICATION, f"AUTH {self._mechanism}: {reply}", reply)
        return self._ready()

    def _ready(self) -> list[ClientEvent]:
        self.step = Step.IDLE
        return [READY]

    # Transactions

    def transact(self, mail: bytes, recipients: Sequence[bytes], *, chunked: bool = False) -> bytes:
        """Begin a transaction; returns what to send. `mail` and `recipients` are whole command lines.

        `chunked`: the content will be sent by BDAT, which the server must offer. Raises RuntimeError when the session
        is not idle.
        """
        if self.step is not Step.IDLE or not recipients:
            raise RuntimeError(f"no transaction can begin at {self.step.value}")
        pipelined = self.extensions.pipelining
        self._transaction = Transaction(mail, recipients, self._settings.lmtp, chunked, pipelined)
        self.step = Step.MAIL
        return self._transaction.opening()

    def content_end(self) -> None:
        """The dot that ends the content is being sent with what comes next."""
        assert self._transaction is not None
        self.step = Step.END

    @property
    def may_follow(self) -> bool:
        """Whether `follow` may be called now: the content's end is being sent, and all recipients were accepted."""
        transaction = self._transaction
        return (
            self.step is Step.END
            and self._following is None
            and self.extensions.pipelining
            and transaction is not None
            and transaction.all_accepted
        )

    def follow(self, mail: bytes, recipients: Sequence[bytes]) -> bytes:
        """Begin the next transaction right behind the end of the content (RFC 2920, section 3.1): what to send with it.

        Its replies come after this one's `Finished`. Raises RuntimeError when it may not.
        """
        if not self.may_follow or not recipients:
            raise RuntimeError(f"no transaction can follow at {self.step.value}")
        self._following = Transaction(mail, recipients, self._settings.lmtp, False, True)
        return self._following.opening()

    def chunk(self, size: int, *, last: bool) -> bytes:
        """The command before `size` octets of content."""
        assert self._transaction is not None
        self.step = Step.END if last else Step.CHUNK
        return b"BDAT %d%b\r\n" % (size, b" LAST" if last else b"")

    def quit(self) -> bytes:
        """Say goodbye, when idle; what to send."""
        if self.step is not Step.IDLE:
            raise RuntimeError(f"no QUIT at {self.step.value}")
        self.step = Step.QUIT
        return b"QUIT\r\n"

    def open_channel(self, hub: ShadowHub) -> bytes:
        """Have the session become a shadow channel, when idle; what to send. `hub` is ourselves."""
        if self.step is not Step.IDLE:
            raise RuntimeError(f"no XSHADOW at {self.step.value}")
        self.step = Step.CHANNEL
        return f"XSHADOW {encode_hub(hub)}\r\n".encode("ascii")

    def _channel_open(self, reply: Reply) -> list[ClientEvent]:
        if reply.code != 250:
            return self._no_welcome(reply)
        if self._reader:
            return self.broken(SessionFault.PROTOCOL, "bytes on a channel before anything was asked")
        try:
            hub = parse_hub(reply.text)
        except ValueError:
            return self.broken(SessionFault.PROTOCOL, "XSHADOW is not answered by a name and an identity", reply)
        self.step = Step.OVER
        return [ChannelOpen(hub)]

    def _transacted(self, transaction: Transaction, reply: Reply) -> list[ClientEvent]:
        self.step, event = transaction.reply(self.step, reply)
        if type(event) is Broken:
            at, self.step = self.step, Step.OVER
            self._transaction = self._following = None
            self._reader.clear()
            return [transaction.cut(event, at)]
        if self.step is Step.IDLE:
            self._transaction, self._following = self._following, None
            if self._transaction is not None:
                self.step = Step.MAIL
        return [] if event is None else [event]

    def _shown(self, text: str) -> str:
        """A text for the log. Some servers repeat what they did not like, secrets and all."""
        settings = self._settings
        if settings.password:
            message = sasl.plain_message(settings.user, settings.password)
            encoded = (base64.b64encode(secret).decode() for secret in (message, settings.password.encode()))
            for secret in (*encoded, settings.password):
                text = text.replace(secret, "***")
        return "".join(c if " " <= c <= "~" else "?" for c in text[:400])
