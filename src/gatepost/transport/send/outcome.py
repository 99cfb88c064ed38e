"""What came of handing a message to a server, and why a connection was not to be had."""

from __future__ import annotations

from dataclasses import dataclass

from gatepost.transport.message import Notify, Recipient, RecipientState
from gatepost.wire.smtp_client_events import Broken, Fate, SessionFault, Verdict
from gatepost.wire.smtp_reply import Reply

RELAYED = "relayed"
DELIVERED = "delivered"

_STATES = {
    Fate.TAKEN: RecipientState.DELIVERED,
    Fate.REFUSED: RecipientState.FAILED,
    Fate.LATER: RecipientState.WAITING,
    Fate.AGAIN: RecipientState.WAITING,
    Fate.UNCERTAIN: RecipientState.UNCERTAIN,
}
_ENHANCED = {SessionFault.PROTOCOL: "4.5.0", SessionFault.TLS: "4.7.0", SessionFault.AUTHENTICATION: "4.7.8"}


class ConnectFailed(Exception):
    """No session: try the next host, then later. Says nothing of any message (field case 44).

    Only `SessionFault.CONNECT` says that the server is down; `error` is then the socket's.
    """

    def __init__(
        self, fault: SessionFault, text: str, *, reply: Reply | None = None, error: OSError | None = None
    ) -> None:
        super().__init__(text)
        self.fault = fault
        self.text = text
        self.reply = reply
        self.error = error


@dataclass(slots=True)
class RecipientOutcome:
    """One recipient's. `reply` is the server's, or ours (`ours`) for what kept the message from it."""

    recipient: Recipient
    state: RecipientState
    reply: Reply
    ours: bool = False
    action: str = ""
    """The report of success that is ours to write since the server will not (RFC 3461, section 5.2): the report's
    action, `relayed` or, after LMTP, `delivered`. Empty: none."""
    token: str = ""
    """What the copy is called that the server has, or may have, as the primary (SPEC S1). Empty: nothing was said."""


@dataclass(slots=True)
class Outcome:
    """A message's: one entry for each recipient, in the order given.

    `broken` says how the session ended, if it did: that is no fault of the message (field case 42).
    """

    recipients: list[RecipientOutcome]
    broken: Broken | None = None


def judged(recipient: Recipient, verdict: Verdict, broken: Broken | None, *, dsn: bool, lmtp: bool) -> RecipientOutcome:
    """A verdict of the wire, with the words for operators and reports. `dsn`: the server offers DSN."""
    state = _STATES[verdict.fate]
    if verdict.reply is None:
        return RecipientOutcome(recipient, state, session_reply(broken, verdict.fate), ours=True)
    if verdict.fate is Fate.UNCERTAIN:
        return RecipientOutcome(recipient, state, verdict.reply)
    action = ""
    if state is RecipientState.DELIVERED and recipient.notify and recipient.notify & Notify.SUCCESS and not dsn:
        action = DELIVERED if lmtp else RELAYED
    return RecipientOutcome(recipient, state, verdict.reply, action=action)


def session_reply(broken: Broken | None, fate: Fate = Fate.LATER) -> Reply:
    """The temporary refusal that a session's end amounts to."""
    if broken is None:
        return Reply(451, "not sent in this session", "4.4.2")
    text = f"no answer after the end of the message: {broken.text}" if fate is Fate.UNCERTAIN else broken.text
    return Reply(451, text, _ENHANCED.get(broken.fault, "4.4.2"))
