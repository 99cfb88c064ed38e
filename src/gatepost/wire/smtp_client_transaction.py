"""One mail transaction as a client sees it: which reply belongs to whom, and what becomes of each recipient.

    MAIL ─► RCPT… ─► DATA ─► content ─► end ──► idle
      │       │       │                  one reply, with LMTP one for each accepted recipient
      └───────┴───────┴─► RSET ─► idle   nobody accepted, or the message refused

Pipelined, DATA has been said before it is known whether anybody is accepted: its refusal is then no news, and its 354
is answered by an empty content (RFC 2920, section 3.1).
"""

from __future__ import annotations

from collections.abc import Sequence

from gatepost.wire.events import Send
from gatepost.wire.smtp_client_events import Broken, Fate, Finished, SendContent, SessionFault, Step, Verdict
from gatepost.wire.smtp_reply import Reply

SEND_CONTENT = SendContent()
RSET = b"RSET\r\n"
DATA = b"DATA\r\n"
EMPTY = b".\r\n"
_LATER = Verdict(Fate.LATER)


def too_many(reply: Reply) -> bool:
    """Whether a refusal of RCPT means the number of recipients: 452, and 552 of old (RFC 5321, section 4.5.3.1.10)."""
    if reply.enhanced:
        return reply.enhanced.endswith(".5.3")
    return reply.code == 452 or (reply.code == 552 and "recipients" in reply.text.lower())


class Transaction:
    """One transaction. `reply` takes the server's replies in turn."""

    __slots__ = ("_accepted", "_answered", "_chunked", "_lmtp", "_mail", "_pipelined", "_recipients", "_verdicts")

    def __init__(self, mail: bytes, recipients: Sequence[bytes], lmtp: bool, chunked: bool, pipelined: bool) -> None:
        self._mail = mail
        self._recipients = recipients
        self._lmtp = lmtp
        self._chunked = chunked
        self._pipelined = pipelined
        self._verdicts: list[Verdict | None] = []
        """One for each recipient that RCPT has been answered for; None: accepted, nothing more is known."""
        self._accepted: list[int] = []
        """Places of the accepted recipients, in the order in which LMTP answers for them."""
        self._answered = 0
        """Replies that LMTP has given after the content."""

    @property
    def all_accepted(self) -> bool:
        """Whether the server takes the message for everybody, as far as it has said."""
        return len(self._accepted) == len(self._recipients)

    def opening(self) -> bytes:
        """What to send first."""
        if not self._pipelined:
            return self._mail
        return b"".join((self._mail, *self._recipients, b"" if self._chunked else DATA))

    def reply(self, step: Step, reply: Reply) -> tuple[Step, Send | SendContent | Broken | Finished | None]:
        """The server's reply while the client waits at `step`: where it waits now, and what is to be done."""
        if step is Step.RECIPIENT:
            return self._recipient(reply)
        if step is Step.END:
            return self._ended(reply)
        if step is Step.DATA:
            return self._data(reply)
        if step is Step.MAIL:
            return self._mailed(reply)
        if step is Step.RESET:
            return self._reset(reply)
        if step is Step.CHUNK:
            return self._chunk(reply)
        if step is Step.CONTENT:
            return step, self._too_early(reply)
        return (step, _misfit(reply)) if 300 <= reply.code < 400 else self._clear()

    def cut(self, broken: Broken, at: Step) -> Finished:
        """The session is broken while the client waited `at`: what that makes of everybody."""
        reply = broken.reply if broken.reply is not None and not broken.reply.positive else None
        later = Verdict(Fate.LATER, reply)
        rest = Verdict(Fate.UNCERTAIN, reply) if at is Step.END else later
        verdicts = [verdict or rest for verdict in self._verdicts]
        return Finished(verdicts + [later] * (len(self._recipients) - len(verdicts)), broken)

    # Replies

    def _mailed(self, reply: Reply) -> tuple[Step, Send | Broken | None]:
        if 300 <= reply.code < 400:
            return Step.MAIL, _misfit(reply)
        if not reply.positive:
            self._verdicts = [_refusal(reply)] * len(self._recipients)
            if not self._pipelined:
                return self._clear()
        return Step.RECIPIENT, None if self._pipelined else Send(self._recipients[0])

    def _recipient(self, reply: Reply) -> tuple[Step, Send | SendContent | Broken | None]:
        if 300 <= reply.code < 400:
            return Step.RECIPIENT, _misfit(reply)
        total = len(self._recipients)
        if len(self._verdicts) == total:  # MAIL was refused: these replies say nothing new, but must be counted
            self._answered += 1
            done = self._answered == total
        else:
            self._judge(reply)
            done = len(self._verdicts) == total
        if not done:
            return Step.RECIPIENT, None if self._pipelined else Send(self._recipients[len(self._verdicts)])
        self._answered = 0
        if self._chunked:
            return (Step.CONTENT, SEND_CONTENT) if self._accepted else self._clear()
        if self._pipelined:
            return Step.DATA, None
        return (Step.DATA, Send(DATA)) if self._accepted else self._clear()

    def _judge(self, reply: Reply) -> None:
        if reply.positive:
            self._accepted.append(len(self._verdicts))
            self._verdicts.append(None)
        elif self._accepted and too_many(reply):
            self._verdicts.append(Verdict(Fate.AGAIN, reply))
        else:
            self._verdicts.append(_refusal(reply))

    def _data(self, reply: Reply) -> tuple[Step, Send | SendContent | Broken]:
        if reply.code == 354:
            if self._accepted:
                return Step.CONTENT, SEND_CONTENT
            if self._lmtp:  # how many replies would follow the dot is nowhere written
                return Step.DATA, _misfit(reply)
            return Step.EMPTY_END, Send(EMPTY)
        if reply.positive:
            return Step.DATA, _misfit(reply)
        self._settle(_refusal(reply))
        return self._clear()

    def _chunk(self, reply: Reply) -> tuple[Step, Send | SendContent | Broken]:
        if reply.positive:
            return (Step.CONTENT, SEND_CONTENT) if reply.code < 300 else (Step.CHUNK, _misfit(reply))
        self._settle(_refusal(reply))
        return self._clear()

    def _ended(self, reply: Reply) -> tuple[Step, Broken | Finished | None]:
        if 300 <= reply.code < 400:
            return Step.END, _misfit(reply)
        verdict = Verdict(Fate.TAKEN, reply) if reply.positive else _refusal(reply)
        if not self._lmtp:
            self._settle(verdict)
            return Step.IDLE, self._finished()
        self._verdicts[self._accepted[self._answered]] = verdict
        self._answered += 1
        if self._answered < len(self._accepted):
            return Step.END, None
        return Step.IDLE, self._finished()

    def _too_early(self, reply: Reply) -> Broken:
        """The server answers while the content is still being sent: no more can be sent in this session.

        A refusal counts. With LMTP it says nothing of the other recipients, so none is refused for good by it.
        """
        if not reply.positive:
            verdict = _refusal(reply)
            self._settle(Verdict(Fate.LATER, reply) if self._lmtp else verdict)
        else:
            self._settle(Verdict(Fate.UNCERTAIN, reply))
        return Broken(SessionFault.PROTOCOL, f"{reply} before the content's end", reply)

    def _reset(self, reply: Reply) -> tuple[Step, Broken | Finished]:
        if not 200 <= reply.code < 300:
            return Step.RESET, Broken(SessionFault.PROTOCOL, f"RSET is answered by {reply}", reply)
        return Step.IDLE, self._finished()

    # What follows from them

    def _settle(self, verdict: Verdict) -> None:
        for place in self._accepted:
            self._verdicts[place] = verdict

    def _clear(self) -> tuple[Step, Send]:
        """Everybody is settled, but the server may still have a transaction: reused only after RSET (field case 52)."""
        return Step.RESET, Send(RSET)

    def _finished(self) -> Finished:
        return Finished([verdict or _LATER for verdict in self._verdicts])


def _refusal(reply: Reply) -> Verdict:
    return Verdict(Fate.REFUSED if reply.permanent else Fate.LATER, reply)


def _misfit(reply: Reply) -> Broken:
    return Broken(SessionFault.PROTOCOL, f"{reply} does not answer what was said", reply)
