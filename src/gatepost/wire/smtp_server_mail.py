"""MAIL, RCPT, DATA and BDAT as our SMTP server takes them (RFC 5321, 3030, 1870, 6531, 8689, 9422)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from gatepost.wire import smtp_server_replies as replies
from gatepost.wire.smtp_command import BadCommand, MailCommand, RcptCommand, parse_mail, parse_rcpt
from gatepost.wire.smtp_server_content import ChunkContent, Content, DataContent
from gatepost.wire.smtp_server_core import SmtpServerCore, State
from gatepost.wire.smtp_server_events import Asking, LookUp, Store

MAX_CHUNK_DIGITS = 20
MAX_SWALLOWED = 16 * 1024 * 1024
"""Octets of chunks that are read though nothing comes of them: clients do not stop at a refusal (RFC 3030, section
4.2). A chunk with which it would be more ends the session, whose driver drops as much again and then cuts it off."""


class SmtpServerMail(SmtpServerCore):
    """The commands that make a message."""

    _chunk_left = 0
    _chunk_last = False
    _chunk_refusal = b""
    """Why the chunk under way is swallowed."""
    _asked: Callable[[], None] | None = None
    """What is to be done when it has been looked up."""

    def mail(self, argument: bytes) -> None:
        """MAIL."""
        if not self.name:
            self._error(replies.GREET_FIRST)
        elif self._in_message:
            self._error(replies.NESTED_MAIL)
        elif not self._rights.submit:
            possible = self._possible(tls=self.tls or self._starttls)
            self._slow(replies.SIGN_IN_REQUIRED if possible else replies.NO_PERMISSION)
        else:
            self._begin(argument)

    def _begin(self, argument: bytes) -> None:
        try:
            command = parse_mail(argument, shadow=self._offers_shadow)
        except BadCommand as bad:
            self._error(bad.reply.encode())
            return
        if command.size is not None and command.size > self._connector.max_message_size:
            self._out.append(replies.TOO_LARGE)
            return
        if command.require_tls and not self.tls:
            self._error(replies.TLS_FOR_MESSAGE)
            return
        self._judge_sender(command)

    def _judge_sender(self, command: MailCommand) -> None:
        refused = self._judge.mail(command)
        if isinstance(refused, Asking):
            self._asked = partial(self._judge_sender, command)
            self._park(LookUp(refused.name))
            return
        if refused is None:
            self._reset()
            self._in_message = True
            self._utf8 = command.smtputf8
        answer = replies.SENDER_OK if refused is None else refused.encode()
        seconds = 0.0 if self._rights.trusted else self._judge.mail_wait()
        if seconds > 0:
            self._wait(seconds, answer)
        elif refused is not None and refused.permanent:
            self._slow(answer)
        else:
            self._out.append(answer)

    def rcpt(self, argument: bytes) -> None:
        """RCPT."""
        if not self._in_message or self._content is not None or self._chunks_failed:
            self._spend(replies.NOT_NOW if self._in_message else replies.NO_MAIL)
            return
        try:
            command = parse_rcpt(argument, utf8=self._utf8)
        except BadCommand as bad:
            self._refused_recipients += 1
            # A bad address is the message's, and there may be several; a bad parameter is the client's own fault.
            (self._error if bad.reply.enhanced.startswith("5.5") else self._slow)(bad.reply.encode())
            return
        if self._recipients >= self._connector.max_recipients:
            # Temporary, so that the client sends the rest in another message (RFC 5321, section 4.5.3.1.10).
            self._refused_recipients += 1
            self._out.append(replies.TOO_MANY_RECIPIENTS)
            return
        if not self._rights.relay and not self._judge.is_ours(command.address):
            self._refused_recipients += 1
            self._slow(replies.NO_RELAY)
            return
        self._judge_recipient(command)

    def _judge_recipient(self, command: RcptCommand) -> None:
        refused = self._judge.recipient(command)
        if isinstance(refused, Asking):
            self._asked = partial(self._judge_recipient, command)
            self._park(LookUp(refused.name))
            return
        if refused is None:
            self._recipients += 1
            self._out.append(replies.RECIPIENT_OK)
            return
        self._refused_recipients += 1
        if refused.permanent:
            self._slow(refused.encode())
        else:
            self._out.append(refused.encode())

    def data(self, argument: bytes) -> None:
        """DATA."""
        if argument:
            self._error(replies.NO_ARGUMENT)
        elif not self._in_message:
            self._spend(replies.NO_MAIL)
        elif self._content is not None or self._chunks_failed:
            self._spend(replies.NOT_NOW)
        elif not self._recipients:
            self._spend(replies.NO_RECIPIENTS)
        else:
            refused = self._judge.content_begins()
            if refused is not None:
                self._give_up()
                self._out.append(refused.encode())
                return
            self._content = DataContent(self._connector)
            self._state = State.DATA
            self._out.append(replies.GO_AHEAD)

    def _read_data(self) -> None:
        content = self._content
        assert isinstance(content, DataContent)
        data = self._buffer[self._at :] if self._at else self._buffer
        self._buffer, self._at = b"", 0
        piece = content.feed(data)
        if content.ambiguous:
            # At once: one that means LF `.` LF as the end would wait for the answer for ever.
            self._end(replies.AMBIGUOUS_CONTENT, "a bare CR or LF, or a NUL, in the message")
            return
        if piece:
            self._judge.content(piece)
        if content.ended:
            self._buffer = content.rest
            self._end_of_content(content)

    def bdat(self, argument: bytes) -> None:
        """BDAT: a chunk of the content follows, whatever is answered."""
        words = argument.split()
        size = words[0] if words else b""
        last = len(words) == 2 and words[1].upper() == b"LAST"
        if not size.isdigit() or len(size) > MAX_CHUNK_DIGITS or len(words) > 2 or (len(words) == 2 and not last):
            # How much of what follows is content cannot be known: nothing after it may be taken for commands.
            self._end(replies.BAD_CHUNK, "a bad BDAT")
            return
        self._chunk_left = int(size)
        self._chunk_last = last
        self._chunk_refusal = b""
        self._state = State.CHUNK
        if not self._in_message:
            self._chunk_refusal = replies.NO_MAIL
        elif self._chunks_failed:
            self._chunk_refusal = replies.NOT_NOW
        elif not self._recipients:
            self._chunk_refusal = replies.NO_RECIPIENTS
        elif self._content is None:
            refused = self._judge.content_begins()
            if refused is None:
                self._content = ChunkContent(self._connector)
            else:
                self._chunk_refusal = refused.encode()
        self._bound_swallowing()

    def _bound_swallowing(self) -> None:
        """End the session where more would be read in vain than is worth while; the reply does not wait for it."""
        content = self._content
        if content is not None and content.size + self._chunk_left > self._connector.max_message_size:
            refusal = replies.TOO_LARGE
        elif self._chunk_refusal:
            refusal = self._chunk_refusal
        else:
            return
        self._swallowed += self._chunk_left
        if self._swallowed > MAX_SWALLOWED:
            self._end(refusal, "a chunk too large")

    def _read_chunk(self) -> bool:
        """Take what is there of a chunk; False while some of it is missing."""
        data = self._buffer[self._at : self._at + self._chunk_left]
        self._at += len(data)
        self._chunk_left -= len(data)
        content = self._content if not self._chunk_refusal else None
        if content is not None and data:
            piece = content.feed(data)
            if piece:
                self._judge.content(piece)
        if self._chunk_left:
            return False
        self._state = State.COMMAND
        self._end_of_chunk(content)
        return True

    def _end_of_chunk(self, content: Content | None) -> None:
        if content is None:
            # The octets have been swallowed, whatever they were, and the message with them (RFC 3030, section 2).
            self._fail_chunk(self._chunk_refusal)
        elif self._chunk_last:
            assert isinstance(content, ChunkContent)
            piece = content.finish()
            if piece:
                self._judge.content(piece)
            self._end_of_content(content)
        elif content.refusal is not None:
            self._fail_chunk(content.refusal)
        else:
            self._out.append(replies.OK)

    def _fail_chunk(self, answer: bytes) -> None:
        begun = self._in_message
        self._give_up()
        self._spend(answer)
        if begun and not self._chunk_last and self._state is not State.CLOSED:
            self._chunks_failed = self._in_message = True

    def _end_of_content(self, content: Content) -> None:
        self._state = State.COMMAND
        refusal = content.refusal
        if refusal is None:
            self._park(Store(content.size, content.eight_bit))
            return
        self._give_up()
        self._out.append(refusal)
