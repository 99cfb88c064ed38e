"""Cookies of users who have signed in by the form, sealed as a front end with the stage's key seals them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from gatepost.access.http.affinity_cookie import AffinityCookie
from gatepost.access.http.forms.session import Sessions
from gatepost.configuration.settings import Forms
from gatepost.directory.port import User
from gatepost.routing.outcome import Mailbox
from gatepost.wire.http_cookies import SIGN_IN


def cookie_fields(
    key: Path, names: Iterable[str], password: str, password_hash: str, *, service: str = "", server: str = ""
) -> str:
    """A Cookie field a line, for each of the users `names`, good for hours.

    With `server` it also holds the cookie by which the user stays with that server for `service`.
    """
    sessions, affinity = Sessions(key.read_bytes(), Forms()), AffinityCookie(key.read_bytes())
    now = time.time()
    lines = []
    for name in names:
        value = sessions.begin(User(name, Mailbox(), password_hash), password, now, private=True)
        field = f"{SIGN_IN.decode()}={value.decode()}"
        if server:
            line = affinity.line(b"", name, service, server, now).decode()
            field += "; " + line.removeprefix("Set-Cookie: ").partition(";")[0]
        lines.append(field + "\n")
    return "".join(lines)
