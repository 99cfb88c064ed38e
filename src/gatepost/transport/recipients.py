"""Recipients' mailboxes: who an address belongs to, asked of the directory (SPEC T3)."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from gatepost.directory.port import Directory, DirectoryUnavailable, NotAsked
from gatepost.organization.names import BadLoginName, canonical_login_name
from gatepost.routing.decision import Mailbox

DELIMITER = "+"
"""Parts an address's detail from its mailbox (RFC 5233): `alice+lists@contoso.com` is Alice's."""

ROUNDS = 4
"""An address is asked for with its detail and without, in each of several directories."""


@dataclass(frozen=True, slots=True)
class FoundMailbox:
    """A recipient's mailbox, and the address by which its server knows it, the detail kept."""

    mailbox: Mailbox
    deliver_to: str


class Recipients:
    """Finds mailboxes. Look-ups answer at once (see `Directory.find`)."""

    def __init__(self, directory: Directory, default_domain: str = "") -> None:
        self._directory = directory
        self.default_domain = default_domain
        """The domain of `Postmaster` alone (RFC 5321, section 4.5.1)."""

    def find(self, address: str) -> FoundMailbox | None:
        """The mailbox of an envelope address; None when nobody has it.

        Raises `DirectoryUnavailable`; `NotAsked` where the directory is elsewhere and must be asked first (`ask`).
        """
        found = self._find(address)
        if found is not None:
            return found
        local, at, domain = address.rpartition("@")
        name, delimiter, detail = local.partition(DELIMITER)
        if not at or not delimiter or not name:
            return None
        found = self._find(f"{name}@{domain}")
        if found is None:
            return None
        local, at, domain = found.deliver_to.rpartition("@")
        return FoundMailbox(found.mailbox, f"{local}{DELIMITER}{detail}{at}{domain}" if at else found.deliver_to)

    async def find_by_asking(self, address: str) -> FoundMailbox | None:
        """As `find`, and waits for a directory that is elsewhere. Raises `DirectoryUnavailable`."""
        for _ in range(ROUNDS):
            try:
                return self.find(address)
            except NotAsked as unknown:
                await self._directory.ask(unknown.name)
        return self.find(address)

    async def ask(self, name: str) -> None:
        """Wait until the directory has told of `name`, or cannot. Never raises."""
        with suppress(DirectoryUnavailable):
            await self._directory.ask(name)

    def _find(self, address: str) -> FoundMailbox | None:
        if "@" not in address and address.casefold() != "postmaster":
            return None
        try:
            user = self._directory.find(canonical_login_name(address, self.default_domain))
        except BadLoginName:
            return None
        if user is None:
            return None
        login = user.server_login
        return FoundMailbox(user.mailbox, login if "@" in login else address)
