"""Who may send as whom (SPEC T1; the rights Accept-Any-Sender and Accept-Authoritative-Domain-Sender, facts 4.9).

A user sends by the addresses of their mailbox and by what they were granted (`User.send_as`), in the envelope and,
where the connector says so, in `From`. Servers of the organization send as anybody. Who has not signed in may say what
they like, but for the accepted domains where the connector keeps these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from structlog.typing import FilteringBoundLogger

from gatepost.directory.port import Directory, DirectoryUnavailable, NotAsked, User
from gatepost.organization.names import BadLoginName, canonical_login_name
from gatepost.organization.transport import ReceiveConnector
from gatepost.transport.headers.author import author_addresses
from gatepost.transport.headers.filter import MAX_FROM, HeaderFacts
from gatepost.transport.message import Envelope
from gatepost.transport.recipients import DELIMITER
from gatepost.wire.smtp_reply import Reply

NOT_AS_THIS_SENDER = Reply(550, "SMTP; Client does not have permissions to send as this sender", "5.7.60")
NOT_NOW = Reply(451, "The sender cannot be looked up at the moment", "4.3.0")
"""A temporary fault never looks permanent."""


class Senders:
    """Judges senders. `is_ours` tells whether an address is in an accepted domain. Look-ups answer at once."""

    def __init__(self, directory: Directory, is_ours: Callable[[str], bool], log: FilteringBoundLogger) -> None:
        self._directory = directory
        self._is_ours = is_ours
        self._log = log
        self._default_domain = ""
        self._connectors: dict[str, ReceiveConnector] = {}

    def configure(self, connectors: Iterable[ReceiveConnector], default_domain: str) -> None:
        """Use other connectors for what begins later."""
        self._connectors = {connector.name: connector for connector in connectors}
        self._default_domain = default_domain

    def at_mail(self, envelope: Envelope) -> Reply | None:
        """Judge the envelope's sender; a reply refuses. Raises `NotAsked`.

        The null sender is everybody's: notices of what became of a message have no other (RFC 8098, section 3).
        """
        source, sender = envelope.source, envelope.sender
        if source.internal or not sender:
            return None
        connector = self._connectors.get(source.connector)
        if source.user:
            if connector is not None and connector.accept_any_sender:
                return None
            return self._judge(envelope, (sender,), "the envelope's sender")
        if connector is None or connector.takes_own_domains or not self._is_ours(sender):
            return None
        return self._refuse(envelope, sender, "no client that has not signed in sends as the organization")

    def at_header(self, envelope: Envelope, facts: HeaderFacts) -> Reply | None:
        """Judge the `From` field of a user's message; a reply refuses. None claims nothing. Raises `NotAsked`."""
        source = envelope.source
        if source.internal or not source.user or not facts.from_fields:
            return None
        connector = self._connectors.get(source.connector)
        if connector is not None and (connector.accept_any_sender or not connector.check_from_field):
            return None
        addresses = author_addresses(facts.from_field)
        if facts.from_fields > 1 or not addresses or len(facts.from_field) >= MAX_FROM:
            # Mail programs would show one that was not looked at.
            return self._refuse(envelope, "", "From is there twice, or cannot be read")
        return self._judge(envelope, addresses, "From")

    def _judge(self, envelope: Envelope, addresses: Iterable[str], what: str) -> Reply | None:
        try:
            user = self._find(envelope.source.user)
            for address in addresses:
                if user is None or not self._may(user, address):
                    return self._refuse(envelope, address, what)
        except NotAsked:
            raise
        except DirectoryUnavailable:
            return NOT_NOW
        return None

    def _may(self, user: User, address: str) -> bool:
        try:
            canonical = canonical_login_name(address, "")
        except BadLoginName:
            return False
        local, at, domain = canonical.rpartition("@")
        if not at:
            return False
        granted = user.send_as
        if canonical == user.name or canonical in granted or f"@{domain}" in granted:
            return True
        owner = self._find(canonical)
        if owner is None and DELIMITER in local:
            name = f"{local.partition(DELIMITER)[0]}@{domain}"
            if name in granted:
                return True
            owner = self._find(name)
        if owner is None:
            return False
        return owner.name == user.name or any(self._stands_for(word, owner) for word in granted)

    def _stands_for(self, granted: str, owner: User) -> bool:
        """Whether an address that was granted is one of `owner`'s, so that all of the mailbox's are."""
        if granted == owner.name:
            return True
        if granted.startswith("@"):
            return False
        found = self._find(granted)
        return found is not None and found.name == owner.name

    def _find(self, name: str) -> User | None:
        try:
            return self._directory.find(canonical_login_name(name, self._default_domain))
        except BadLoginName:
            return None

    def _refuse(self, envelope: Envelope, address: str, what: str) -> Reply:
        source = envelope.source
        self._log.info(
            "message.sender_refused", user=source.user, address=address, what=what, client=source.address,
            connector=source.connector,
        )  # fmt: skip
        return NOT_AS_THIS_SENDER
