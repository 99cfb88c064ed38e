"""The mailbox that a request is about, where that is not the caller's own (field case 127).

Only for signed-in users, and only as a hint for the route: whether they may open it is for its server to say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gatepost.directory.port import DirectoryUnavailable, User
from gatepost.routing.outcome import Mailbox

if TYPE_CHECKING:
    from gatepost.access.http.door import HttpDoor


def mailbox_for(door: HttpDoor, user: User, address: str | None) -> Mailbox:
    """The mailbox at `address`, or the user's own: without an address, for an unknown one, without the directory."""
    if address is None:
        return user.mailbox
    try:
        found = door.sign_in.look_up(address)
    except DirectoryUnavailable:
        return user.mailbox
    return user.mailbox if found is None else found.mailbox
