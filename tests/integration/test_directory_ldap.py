"""Users in a real OpenLDAP: the directory's contract, and what is LDAP's own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from directory_contract import ANNA, OTTO, PATIENCE_SECONDS, DirectoryContract
from doors import Servers
from ldap_kit import Changing, opened, running, settings

from gatepost.directory.cached import CachedDirectory
from gatepost.directory.port import User
from gatepost.lab.servers.slapd import Slapd


class LdapOfATest:
    """See `directory_contract.Engine`."""

    def __init__(self, server: Slapd, directory: CachedDirectory) -> None:
        self.server = server
        self.directory = directory
        self._changing: Changing | None = None

    @property
    def changing(self) -> Changing:
        if self._changing is None:
            self._changing = Changing(self.server)
        return self._changing

    def put(self, user: User, addresses: tuple[str, ...] = ()) -> None:
        self.changing.put(user, addresses)

    def remove(self, name: str) -> None:
        self.changing.remove(name)

    def take_away(self) -> None:
        if self._changing is not None:
            self._changing.close()
            self._changing = None
        self.server.kill()

    def bring_back(self) -> None:
        self.server.start()
        self.server.wait_ready()


@pytest.fixture
async def engine(servers: Servers, tmp_path: Path) -> AsyncIterator[LdapOfATest]:
    with running(servers, tmp_path) as server:
        directory = opened(settings(server, ca=servers.authority.certificate.read_bytes()))
        engine = LdapOfATest(server, directory)
        engine.put(ANNA, ("sales@contoso.com",))
        engine.put(OTTO)
        yield engine
        directory.close()
        await directory.wait_closed()


class TestLdapDirectory(DirectoryContract):
    seen_seconds = PATIENCE_SECONDS
    tells_hashes = False
