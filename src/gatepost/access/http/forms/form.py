"""The form that comes back: its fields, the proof that we showed it to this browser, where the user wanted to go."""

from __future__ import annotations

import hmac
import os
from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import parse_qsl, quote

from gatepost.access.http.forms.pages import PRIVATE
from gatepost.access.http.sealed import Sealer
from gatepost.organization.model import VirtualDirectory
from gatepost.organization.names import MAX_LOGIN_NAME
from gatepost.wire.http_fields import passed_value
from gatepost.wire.http_head import HeadFault
from gatepost.wire.http_path import read_path

MAX_FORM = 16384
"""Octets of a form: a destination of `MAX_DESTINATION` and a password of 1024, both percent-encoded."""
MAX_FIELDS = 16
MAX_DESTINATION = 2048
"""Characters of a deep link that is kept over the sign-in; a longer one leads to the directory's own page."""
TOKEN_SECONDS = 12 * 3600.0
"""How long a sign-in page may stay open: a page that was opened in the morning works all day."""
_TOKEN_BYTES = 16
_TYPE = b"application/x-www-form-urlencoded"


class SentForm(NamedTuple):
    """What the user has filled in. Its words never show the password."""

    name: str
    password: str
    destination: str
    token: str
    private: bool

    def __repr__(self) -> str:
        return f"SentForm(name={self.name!r}, private={self.private})"


def read_form(content_type: bytes, body: bytes) -> SentForm | None:
    """The form in `body`, or None when it is none of ours: another type, bad encoding, a field twice, none missing."""
    if content_type.partition(b";")[0].strip().lower() != _TYPE or len(body) > MAX_FORM:
        return None
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict")
    except ValueError:  # UnicodeDecodeError is one
        return None
    fields = dict(pairs)
    if len(fields) != len(pairs) or "username" not in fields or "password" not in fields:
        return None
    return SentForm(
        name=fields["username"].strip()[: MAX_LOGIN_NAME + 1],  # one too long stays one too long
        password=fields["password"],
        destination=fields.get("destination", ""),
        token=fields.get("token", ""),
        private=fields.get("trusted", "") == PRIVATE,
    )


class FormTokens:
    """The token in the page and in a cookie must be the same: no other site can make a browser sign in as someone else.

    Sealed with the time when it was made, so that any front end of the name knows it.
    """

    def __init__(self, sealer: Sealer) -> None:
        self._sealer = sealer

    def make(self, now: float) -> bytes:
        """A new token, good for cookie and page."""
        return self._sealer.seal(int(now).to_bytes(8, "big") + os.urandom(_TOKEN_BYTES))

    def is_good(self, token: bytes, now: float, seconds: float = TOKEN_SECONDS) -> bool:
        """Whether a front end of ours made `token` at most `seconds` ago."""
        plain = self._sealer.open(token, now)
        if plain is None or len(plain) != 8 + _TOKEN_BYTES:
            return False
        return abs(now - int.from_bytes(plain[:8], "big")) <= seconds

    def is_fresh(self, token: bytes, now: float) -> bool:
        """Whether a page shown now can still use `token`: half of its time is left."""
        return self.is_good(token, now, TOKEN_SECONDS / 2)

    def accepts(self, cookie: bytes, sent: str, now: float) -> bool:
        """Whether the form was shown to the browser that has `cookie`."""
        return hmac.compare_digest(cookie, sent.encode("utf-8", "surrogatepass")) and self.is_good(cookie, now)


def same_origin(passed: list[bytes], origin: bytes) -> bool:
    """Whether a request comes from a page of `origin`, as far as the browser says (Origin, Sec-Fetch-Site)."""
    site = passed_value(passed, b"sec-fetch-site")
    told = passed_value(passed, b"origin")
    return site in {None, b"same-origin"} and (told is None or told.lower() == origin.lower())


def is_navigation(method: bytes, passed: list[bytes]) -> bool:
    """Whether a person looks at what comes back: a browser goes to a page, no script or program asks."""
    if method not in {b"GET", b"HEAD"}:
        return False
    mode = passed_value(passed, b"sec-fetch-mode")
    if mode is not None:
        return mode == b"navigate"
    if passed_value(passed, b"x-requested-with") is not None:
        return False
    return b"text/html" in (passed_value(passed, b"accept") or b"").lower()


def home_of(directory: VirtualDirectory) -> str:
    """The path of a virtual directory's own page, as a URL spells it; it ends with a slash."""
    return quote(directory.path.rstrip("/"), safe="/~!$&'()*+,=:@") + "/"


def is_visit(passed: list[bytes]) -> bool:
    """Whether a browser says that its user goes to the page now: it is no picture, no frame, and not fetched ahead."""
    return (
        passed_value(passed, b"sec-fetch-mode") == b"navigate"
        and passed_value(passed, b"sec-fetch-dest") == b"document"
        and passed_value(passed, b"sec-purpose") is None
        and passed_value(passed, b"purpose") is None
    )


class Destinations:
    """Where a user may be sent after the sign-in: paths within virtual directories, never another host."""

    def __init__(self, directories: Iterable[str], own: Iterable[str]) -> None:
        """`directories` are the virtual directories' paths; `own` are case-folded paths of the sign-in itself."""
        self._prefixes = tuple({path.rstrip("/").casefold() + "/" for path in directories})
        self._own = frozenset(own)

    def safe(self, wanted: str, home: str) -> str:
        """`wanted` as a path and query of this front end, or `home` when it is anything else."""
        if not wanted.startswith("/") or len(wanted) > MAX_DESTINATION:
            return home
        if not all("!" <= c <= "~" for c in wanted) or "\\" in wanted or wanted.startswith("//"):
            return home
        try:
            path, query, route = read_path(wanted.encode("ascii"))
        except HeadFault:
            return home
        folded = route.casefold()
        if folded in self._own or not (folded + "/").startswith(self._prefixes):
            return home
        return (path + query).decode("ascii")
