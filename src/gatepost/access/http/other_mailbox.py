"""The mailbox that a request is about, where that is not the caller's own (field case 127).

Only for signed-in users, and only as a hint for the route: whether they may open it is for its server to say.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gatepost.access import tasks
from gatepost.directory.port import DirectoryUnavailable, NotAsked, User
from gatepost.routing.outcome import Mailbox

if TYPE_CHECKING:
    from gatepost.access.http.door import HttpDoor
    from gatepost.access.http.exchange import Exchange


def with_mailbox(exchange: Exchange, user: User, address: str, then: Callable[[], None]) -> None:
    """Call `then` with the exchange's mailbox set to the one at `address`; later, if the directory must be asked."""
    door = exchange.leg.door
    try:
        exchange.mailbox = mailbox_for(door, user, address)
    except NotAsked as unknown:
        tasks.start(_later(exchange, user, address, then, unknown.name), f"{exchange.leg.session} look-up")
    else:
        then()


async def _later(exchange: Exchange, user: User, address: str, then: Callable[[], None], name: str) -> None:
    door = exchange.leg.door
    await door.sign_in.learn(name)
    if exchange.over:
        return
    try:
        exchange.mailbox = mailbox_for(door, user, address)
    except NotAsked:
        exchange.mailbox = user.mailbox
    then()


def mailbox_for(door: HttpDoor, user: User, address: str | None) -> Mailbox:
    """The mailbox at `address`, or the user's own: without an address, for an unknown one, without the directory.

    Raises `NotAsked`.
    """
    if address is None:
        return user.mailbox
    try:
        found = door.sign_in.look_up(address)
    except NotAsked:
        raise
    except DirectoryUnavailable:
        return user.mailbox
    return user.mailbox if found is None else found.mailbox
