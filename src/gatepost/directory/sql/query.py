"""The operator's query, and what its rows mean. Nothing here does I/O.

`:name`, `:local` and `:domain` stand where the parts of the name go. They become the driver's own marks once, when the
query is read; the values are bound by the driver at each question and never become part of the text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gatepost.directory.passwords import BadPasswordHash
from gatepost.directory.port import User
from gatepost.directory.schemes import stored_hash
from gatepost.organization.model import CLIENT_PROTOCOLS
from gatepost.organization.names import BadLoginName, canonical_login_name
from gatepost.routing.outcome import Mailbox

COLUMNS = (
    "address", "name", "password", "database", "home_server", "protocols", "denied_protocols", "disabled",
    "login_at_server", "send_as", "groups",
)  # fmt: skip
_MARK = re.compile(r"(?<![:\w]):(name|local|domain)\b")
_YES = frozenset({"1", "t", "true", "y", "yes", "on", "disabled"})
_NO = frozenset({"", "0", "f", "false", "n", "no", "off", "active", "enabled"})


class BadRow(ValueError):
    """The row describes nobody who can sign in or get mail. The message is for the log."""


@dataclass(frozen=True, slots=True)
class Query:
    """A query as drivers take it (`%(name)s`), made by `read_query`."""

    text: str


def read_query(text: str) -> Query:
    """The query for drivers. Raises ValueError where it asks for nobody; the message is for the check."""
    if not _MARK.search(text):
        raise ValueError("does not hold :name, :local or :domain")
    return Query(_MARK.sub(r"%(\1)s", text.replace("%", "%%")).rstrip().rstrip(";"))


def parameters(canonical_name: str) -> dict[str, str] | None:
    """What is bound; None for a name that no database can hold."""
    if "\0" in canonical_name or not canonical_name:
        return None
    try:
        canonical_name.encode()
    except UnicodeEncodeError:
        return None
    local, at, domain = canonical_name.rpartition("@")
    return {"name": canonical_name, "local": local if at else canonical_name, "domain": domain if at else ""}


def user_of(row: Mapping[str, Any], asked: str, *, allow_plain: bool) -> tuple[User, str]:
    """The user in a row whose columns have the names of `COLUMNS`, and what is wrong with it; others are not looked at.

    `asked` is the name where the row has none. Raises `BadRow`. A user whose hash cannot be used, or of whom it is not
    clear whether they are disabled, gets mail and cannot sign in.
    """
    faults: list[str] = []
    found = {str(column).lower(): value for column, value in row.items()}
    address = _text(found, "address")
    if address and address.casefold() != asked.casefold():
        # Databases may hold `ánna` and `anna` for the same text; for us they are two names.
        raise BadRow(f"the row is of {address}, not of {asked}")
    try:
        name = canonical_login_name(_text(found, "name") or asked, "")
    except BadLoginName as fault:
        raise BadRow(f"the row of {asked} has no possible name: {fault}") from fault
    database, home_server = _text(found, "database"), _text(found, "home_server")
    if not database and not home_server:
        if not {"database", "home_server"} & set(found):
            raise BadRow(f"{name} has no database: the query returns no column of that name, nor home_server")
        raise BadRow(f"{name} has no database")
    password_hash = ""
    try:
        password_hash = stored_hash(_text(found, "password"), allow_plain=allow_plain)
    except BadPasswordHash as fault:
        faults.append(f"the password of {name}: {fault}")
    disabled = _is_disabled(found)
    if disabled is None:
        faults.append(f"{name}: disabled is {_text(found, 'disabled')!r}, neither yes nor no")
    allowed, denied = _words(found, "protocols"), _words(found, "denied_protocols")
    user = User(
        name=name,
        mailbox=Mailbox(database) if database else Mailbox(home_server=home_server),
        password_hash=password_hash,
        protocols=frozenset(
            p for p in CLIENT_PROTOCOLS if (not allowed or p.value in allowed) and p.value not in denied
        ),
        disabled=disabled is not False,
        login_at_server=_text(found, "login_at_server"),
        send_as=tuple(sorted(_words(found, "send_as"))),
        groups=frozenset(word.lower() for word in _words(found, "groups")),
    )
    return user, "; ".join(faults)


def _text(row: Mapping[str, Any], column: str) -> str:
    value = row.get(column)
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    return "" if value is None else str(value).strip()


def _words(row: Mapping[str, Any], column: str) -> set[str]:
    value = row.get(column)
    text = " ".join(map(str, value)) if isinstance(value, (list, tuple)) else _text(row, column)
    return set(text.lower().replace(",", " ").split())


def _is_disabled(row: Mapping[str, Any]) -> bool | None:
    """None: the column says neither."""
    text = _text(row, "disabled").lower()
    return True if text in _YES else False if text in _NO else None
