"""LOGIN in its usual form, whole in one piece, read by one expression: in a third of the general way's time."""

from __future__ import annotations

import re

from gatepost.wire.events import Credentials
from gatepost.wire.imap_command import MAX_COMMAND, TAG
from gatepost.wire.imap_syntax import ATOM

_WORD = rb'(?:"([^"\\\x00\r\n]*)"|(' + ATOM + rb"))"
_PLAIN_LOGIN = re.compile(rb"(" + TAG + rb") [Ll][Oo][Gg][Ii][Nn] " + _WORD + rb" " + _WORD + rb" *\r?\n")
"""Without IGNORECASE, which would slow every character class."""


def plain_login(data: bytes) -> tuple[bytes, Credentials, int] | None:
    """Tag, credentials and the end of a LOGIN that `data` begins with.

    None where it begins with anything else, also one that the general way alone can read or say what is wrong with.
    """
    found = _PLAIN_LOGIN.match(data)
    if found is None or found.end() > MAX_COMMAND:
        return None
    tag, quoted_user, user, quoted_password, password = found.groups()
    try:
        credentials = Credentials(
            "LOGIN",
            (quoted_user if user is None else user).decode(),
            password=(quoted_password if password is None else password).decode(),
        )
    except UnicodeDecodeError:
        return None
    return tag, credentials, found.end()
