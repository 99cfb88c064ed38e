"""Whose mailbox a request is about."""

from __future__ import annotations

from unittest.mock import Mock

import pytest
from http_harness import World

from gatepost.access.http.other_mailbox import mailbox_for
from gatepost.directory.port import DirectoryUnavailable, User
from gatepost.routing.outcome import Mailbox

ALICE = User("alice", Mailbox("DB1"))


@pytest.mark.parametrize(
    ("address", "database"),
    [("bob@contoso.com", "DB2"), ("bob", "DB2"), (None, "DB1"), ("nobody@contoso.com", "DB1"), ("alice", "DB1")],
)
async def test_a_known_address_leads_to_its_mailbox(world: World, address: str | None, database: str) -> None:
    """All others, and none, to the caller's own."""
    assert mailbox_for(world.door, ALICE, address) == Mailbox(database)


async def test_without_the_directory_the_callers_own_is_taken(world: World) -> None:
    """A hint never makes a request fail."""
    world.sign_in.look_up = Mock(side_effect=DirectoryUnavailable("down"))  # type: ignore[method-assign]
    assert mailbox_for(world.door, ALICE, "bob@contoso.com") == Mailbox("DB1")
