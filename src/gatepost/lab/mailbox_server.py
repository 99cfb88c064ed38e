"""The lab's own mailbox server, for machines without Dovecot: IMAP and POP3 by Twisted's mail servers, and LMTP.

Each mailbox has one message, and what is delivered, until the process ends.

A process of its own: `python -m gatepost.lab.mailbox_server --name MBX-01 …`, with the accounts as JSON on standard
input. It knows enough to show the front door at work (sign-in by master user, SELECT, FETCH, STAT, RETR), in clear on
loopback only. Twisted is an extra (`gatepost[lab]`): the front door itself never needs it.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
from email.parser import BytesHeaderParser
from typing import Any

from twisted.cred import checkers, credentials, error, portal
from twisted.internet import defer, protocol, reactor
from twisted.mail import imap4, pop3
from zope.interface import implementer

from gatepost.lab.greeting import greeting_message
from gatepost.lab.mailbox_lmtp import LmtpFactory

SEPARATOR = b"*"
UID_VALIDITY = 1


@implementer(checkers.ICredentialsChecker)
class Passwords:
    """`user` with their own password, or `user*master` with the master's; domains are cut off."""

    credentialInterfaces = (credentials.IUsernamePassword,)

    def __init__(self, accounts: dict[str, str], master: str, master_password: str) -> None:
        self._accounts = accounts
        self._master = (master, master_password)

    def requestAvatarId(self, given: Any) -> defer.Deferred[bytes]:
        """The plain name of the user who may enter."""
        name, _, master = given.username.partition(SEPARATOR)
        user = name.partition(b"@")[0].lower()
        expected = self._accounts.get(user.decode())
        if master:
            expected = self._master[1] if expected is not None and master.decode() == self._master[0] else None
        if expected is None or given.password != expected.encode():
            return defer.fail(error.UnauthorizedLogin("wrong name or password"))
        return defer.succeed(user)


@implementer(imap4.IMessage)
class Message:
    """One message without parts. `uid` is its number too: none ever goes."""

    def __init__(self, data: bytes, uid: int) -> None:
        self.data = data
        self._uid = uid
        self.headers = BytesHeaderParser().parsebytes(data)

    def getUID(self) -> int:
        """Its unique id."""
        return self._uid

    def getFlags(self) -> list[str]:
        """None are kept."""
        return []

    def getInternalDate(self) -> str:
        """A fixed day."""
        return "01-Jan-2026 00:00:00 +0000"

    def getHeaders(self, negate: bool, *names: bytes) -> dict[str, str]:
        """The headers named, or all others."""
        wanted = {name.decode().lower() if isinstance(name, bytes) else str(name).lower() for name in names}
        return {k.lower(): v for k, v in self.headers.items() if not wanted or (k.lower() in wanted) != negate}

    def getBodyFile(self) -> io.BytesIO:
        """The text below the headers."""
        return io.BytesIO(self.data.partition(b"\r\n\r\n")[2])

    def getSize(self) -> int:
        """Bytes in all."""
        return len(self.data)

    def isMultipart(self) -> bool:
        """Never."""
        return False

    def getSubPart(self, part: int) -> None:
        """There are none."""
        raise IndexError(part)


@implementer(imap4.IMailbox)
class Inbox:
    """A mailbox that clients do not change."""

    def __init__(self, messages: list[Message]) -> None:
        self._messages = messages

    def getUIDValidity(self) -> int:
        """Always the same."""
        return UID_VALIDITY

    def getUIDNext(self) -> int:
        """After the last message."""
        return len(self._messages) + 1

    def getUID(self, message: int) -> int:
        """Numbers and ids are equal."""
        return message

    def getMessageCount(self) -> int:
        """All that are there."""
        return len(self._messages)

    def getRecentCount(self) -> int:
        """None."""
        return 0

    def getUnseenCount(self) -> int:
        """All of them."""
        return len(self._messages)

    def isWriteable(self) -> bool:
        """No."""
        return False

    def getFlags(self) -> list[str]:
        """The flags a client may see."""
        return [r"\Seen"]

    def getHierarchicalDelimiter(self) -> str:
        """A slash."""
        return "/"

    def requestStatus(self, names: list[str]) -> defer.Deferred[dict[str, int]]:
        """STATUS."""
        return defer.succeed(imap4.statusRequestHelper(self, names))

    def fetch(self, messages: Any, uid: bool) -> list[tuple[int, Message]]:  # noqa: ARG002
        """The messages asked for."""
        messages.last = len(self._messages)
        return [(n, message) for n, message in enumerate(self._messages, 1) if n in messages]

    def addListener(self, listener: Any) -> None:
        """Nothing ever changes."""

    def removeListener(self, listener: Any) -> None:
        """Nothing ever changes."""

    def destroy(self) -> None:
        """Nothing to free."""


@implementer(pop3.IMailbox)
class Drop:
    """The same messages for POP3."""

    def __init__(self, messages: list[Message]) -> None:
        self._messages = list(messages)

    def listMessages(self, index: int | None = None) -> Any:
        """Sizes; ValueError for a message that is not there."""
        if index is None:
            return [message.getSize() for message in self._messages]
        return self._at(index).getSize()

    def getMessage(self, index: int) -> io.BytesIO:
        """The message; ValueError as above."""
        return io.BytesIO(self._at(index).data)

    def getUidl(self, index: int) -> bytes:
        """Its unique id."""
        return str(self._at(index).getUID()).encode()

    def _at(self, index: int) -> Message:
        if not 0 <= index < len(self._messages):
            raise ValueError(index)
        return self._messages[index]

    def deleteMessage(self, index: int) -> None:
        """Accepted and forgotten."""

    def undeleteMessages(self) -> None:
        """Nothing was deleted."""

    def sync(self) -> None:
        """Nothing to write."""


@implementer(portal.IRealm)
class Realm:
    """Gives each user the mailbox of this server."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._mailboxes: dict[str, list[Message]] = {}

    def messages(self, user: str) -> list[Message]:
        """What is in a mailbox."""
        if user not in self._mailboxes:
            self._mailboxes[user] = [Message(greeting_message(user, self._name), 1)]
        return self._mailboxes[user]

    def deliver(self, user: str, content: bytes) -> None:
        """Put a message into a mailbox."""
        found = self.messages(user)
        found.append(Message(content, len(found) + 1))

    def requestAvatar(self, user: bytes, mind: Any, *interfaces: Any) -> tuple[Any, Any, Any]:  # noqa: ARG002
        """An IMAP account or a POP3 drop."""
        messages = self.messages(user.decode())
        if imap4.IAccount in interfaces:
            account = imap4.MemoryAccount(user)
            account.addMailbox("INBOX", Inbox(messages))
            return imap4.IAccount, account, lambda: None
        return pop3.IMailbox, Drop(messages), lambda: None


class ImapFactory(protocol.ServerFactory):
    """IMAP connections."""

    def __init__(self, entrance: portal.Portal) -> None:
        self._entrance = entrance

    def buildProtocol(self, addr: Any) -> protocol.Protocol:  # noqa: ARG002
        """A connection that knows who may enter."""
        made = imap4.IMAP4Server(chal={b"PLAIN": imap4.PLAINCredentials})
        made.portal = self._entrance
        made.factory = self
        return made


class Pop3Factory(protocol.ServerFactory):
    """POP3 connections; the class keeps counts that Twisted asks for."""

    def __init__(self, entrance: portal.Portal) -> None:
        self._entrance = entrance

    def buildProtocol(self, addr: Any) -> protocol.Protocol:  # noqa: ARG002
        """A connection that knows who may enter."""
        made = pop3.POP3()
        made.portal = self._entrance
        made.factory = self
        return made


def main() -> None:
    """Serve until ended."""
    parser = argparse.ArgumentParser(description="The lab's own mailbox server.")
    for option in ("--name", "--address"):
        parser.add_argument(option, required=True)
    for option in ("--imap", "--pop3", "--lmtp"):
        parser.add_argument(option, type=int, required=True)
    given = parser.parse_args()
    known = json.load(sys.stdin)
    passwords = Passwords(known["accounts"], known["master"], known["master_password"])
    realm = Realm(given.name)
    entrance = portal.Portal(realm, [passwords])
    listen = reactor.listenTCP
    listen(given.imap, ImapFactory(entrance), interface=given.address)
    listen(given.pop3, Pop3Factory(entrance), interface=given.address)
    if given.lmtp:
        accounts = known["accounts"]
        listen(given.lmtp, LmtpFactory(given.name, accounts.__contains__, realm.deliver), interface=given.address)
    reactor.run()


if __name__ == "__main__":
    main()
