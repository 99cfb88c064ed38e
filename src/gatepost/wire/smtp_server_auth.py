"""AUTH of our SMTP server (RFC 4954): who the client is, by a password, a ticket or a token that others judge."""

from __future__ import annotations

from gatepost.wire import smtp_server_replies as replies
from gatepost.wire.events import NO_HELP, Credentials, GssToken, Refusal, SignIn
from gatepost.wire.smtp_server_core import State
from gatepost.wire.smtp_server_mail import SmtpServerMail
from gatepost.wire.smtp_server_sign_in import BadSaslMessage, SaslDialogue


class SmtpServerAuth(SmtpServerMail):
    """See `SmtpServer`, which is made of this."""

    _sasl: SaslDialogue | None = None

    def auth(self, argument: bytes) -> None:
        """AUTH with a mechanism, and perhaps its first response."""
        if not self.esmtp:
            self._error(replies.GREET_FIRST)
        elif self.user or self._in_message:
            self._error(replies.NOT_NOW)
        elif not self._mechanisms:
            possible = not self.tls and self._possible(tls=True)
            self._error(replies.TLS_FOR_SIGN_IN if possible else replies.NOT_HERE)
        else:
            words = argument.split()
            mechanism = words[0].upper().decode("ascii", "replace") if words else ""
            if mechanism not in self._mechanisms or len(words) > 2:
                self._error(replies.UNKNOWN_MECHANISM)
                return
            self._sasl = SaslDialogue(mechanism)
            self._state = State.SASL
            if len(words) == 2:
                self._respond(words[1])
            else:
                self._out.append(self._sasl.challenge)

    def _respond(self, line: bytes) -> None:
        """The client's next line within AUTH."""
        assert self._sasl is not None
        if self._sasl.refused:
            self._sasl = None
            self._state = State.COMMAND
            self._slow(replies.WRONG_CREDENTIALS)
            return
        try:
            credentials = self._sasl.respond(line)
        except BadSaslMessage:
            self._sasl = None
            self._state = State.COMMAND
            self._error(replies.BAD_RESPONSE)
            return
        if credentials is None:
            self._out.append(self._sasl.challenge)
            return
        if isinstance(credentials, GssToken):
            self._park(credentials)
            return
        if not self._sasl.bearer:
            self._sasl = None
        self._state = State.COMMAND
        self._check(credentials)

    def _told_of_token(self, refusal: Refusal) -> bool:
        """Whether the sign-in that is refused was by a token: then a challenge says why, and the client answers it."""
        if self._sasl is None or not self._sasl.bearer:
            return False
        self._out.append(self._sasl.error(refusal, self._token_help or NO_HELP))
        self._state = State.SASL
        return True

    def _check(self, credentials: Credentials) -> None:
        authorization = credentials.authorization_id
        if authorization and authorization.casefold() != credentials.authentication_id.casefold():
            # Nobody here may speak for another.
            self._failures += 1
            self._slow(replies.WRONG_CREDENTIALS)
        else:
            self._park(SignIn(credentials))
