"""Importing users from CSV: checked line by line, stored in one transaction."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TextIO

import click

from gatepost.cli.options import SHOWN_FAULTS, Stores, UnknownName
from gatepost.directory.editing import DirectoryError, Entry
from gatepost.directory.passwords import (
    BadPassword,
    BadPasswordHash,
    make_hash,
    require_usable_hash,
    require_usable_password,
)
from gatepost.directory.port import User
from gatepost.directory.scram_keys import make_hash as make_scram_hash
from gatepost.directory.settings import ScramSettings
from gatepost.organization.model import CLIENT_PROTOCOLS, Protocol
from gatepost.routing.decision import Mailbox

COLUMNS = (
    "name",
    "addresses",
    "database",
    "home_server",
    "protocols",
    "password",
    "password_hash",
    "disabled",
    "login_at_server",
    "send_as",
)

_OTHER_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}
"""What spreadsheets write where the comma is the decimal sign, and others."""

_YES_NO = {"": False, "no": False, "false": False, "0": False, "yes": True, "true": True, "1": True}


class _NothingStored(Exception):
    """Ends the transaction without a change: a dry run, or a fault in an all-or-nothing import."""


class _BadLine(DirectoryError):
    """A line that does not describe a user."""


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    entry: Entry
    password: str = field(default="", repr=False)


class _Faults:
    """The faulty lines: all are counted, the first are kept to be shown."""

    def __init__(self) -> None:
        self.count = 0
        self._shown: list[tuple[int, str]] = []

    def add(self, line: int, text: str) -> None:
        self.count += 1
        if len(self._shown) < SHOWN_FAULTS:
            self._shown.append((line, text))

    def show(self) -> None:
        for line, text in sorted(self._shown):
            click.echo(f"line {line}: {text}", err=True)
        if self.count > len(self._shown):
            click.echo(f"and {self.count - len(self._shown)} more", err=True)


def run_import(stores: Stores, file: TextIO, *, dry_run: bool, skip_faulty: bool) -> None:
    """Import the users in `file`; prints what was done and every fault with its line.

    Raises `click.ClickException` when there are faults and they are not to be skipped: then nothing was imported.
    """
    faults = _Faults()
    reader = csv.DictReader(file, strict=True)
    plain = "password" in _columns(reader)
    domains: set[str] = set()
    lines = _noting_domains(_parse(stores, reader, faults), domains)

    def keep() -> bool:
        return not dry_run and (skip_faulty or not faults.count)

    if plain:
        # Hashing takes 25 ms each: only after everything else was found good, and not while others wait to write.
        tried = list(lines)
        refused, added = _store(stores, tried, faults, keep=lambda: False)
        if keep():
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                hashed = list(
                    pool.map(
                        partial(_hashed, scram=stores.configuration.front_end.scram),
                        (line for line in tried if line.number not in refused),
                    )
                )
            _, added = _store(stores, hashed, faults, keep=keep)
    else:
        _, added = _store(stores, lines, faults, keep=keep)
    faults.show()
    if faults.count and not skip_faulty:
        raise click.ClickException(f"nothing was imported, faults: {faults.count}")
    stores.warn_of_foreign_domains(f"@{domain}" for domain in domains)
    skipped = f", faulty lines skipped: {faults.count}" if faults.count else ""
    click.echo(f"users {'that would be ' if dry_run else ''}imported: {added}{skipped}")


def _noting_domains(lines: Iterable[_Line], domains: set[str]) -> Iterator[_Line]:
    """`lines`, whose names' and addresses' domains are added to `domains` as they pass."""
    for line in lines:
        domains.update(name.partition("@")[2] for name in (line.entry.user.name, *line.entry.addresses))
        yield line


def _store(
    stores: Stores, lines: Iterable[_Line], faults: _Faults, *, keep: Callable[[], bool]
) -> tuple[set[int], int]:
    """Add the users in one transaction, kept if `keep()` says so at its end.

    Answers the numbers of the lines that were refused, and how many users were added.
    """
    refused: set[int] = set()
    numbers = [0, 0]  # lines seen, the present one's number

    def entries() -> Iterator[Entry]:
        for line in lines:
            numbers[:] = numbers[0] + 1, line.number
            yield line.entry
        if not keep():
            raise _NothingStored

    def refuse(_: int, error: DirectoryError) -> bool:
        refused.add(numbers[1])
        faults.add(numbers[1], str(error))
        return True

    with stores.editor() as editor, suppress(_NothingStored):
        editor.add_all(entries(), refuse)
    return refused, numbers[0] - len(refused)


def _columns(reader: csv.DictReader[str]) -> Sequence[str]:
    """The columns that the first line names. Raises `click.ClickException`."""
    with _file_faults(reader):
        columns = reader.fieldnames or ()
    unknown = [column for column in columns if column not in COLUMNS]
    if len(columns) == 1 and (other := next((c for c in _OTHER_SEPARATORS if c in columns[0]), None)):
        text = f"line 1: the columns are separated by {_OTHER_SEPARATORS[other]}; separate them with commas"
        raise click.ClickException(text)
    if unknown:
        raise click.ClickException(f"line 1: unknown column {unknown[0]!r}; known are {', '.join(COLUMNS)}")
    if "name" not in columns:
        raise click.ClickException("line 1 must name the columns; there is no column `name`")
    if len(set(columns)) != len(columns):
        raise click.ClickException("line 1 names a column twice")
    return columns


def _parse(stores: Stores, reader: csv.DictReader[str], faults: _Faults) -> Iterator[_Line]:
    """The users of the file as it is read. Raises `click.ClickException` for a file that is no CSV."""
    with _file_faults(reader):
        for row in reader:
            try:
                yield _line(stores, reader.line_num, row)
            except UnknownName as error:
                faults.add(reader.line_num, error.message)
            except (DirectoryError, BadPassword, BadPasswordHash) as error:
                faults.add(reader.line_num, str(error))


@contextmanager
def _file_faults(reader: csv.DictReader[str]) -> Iterator[None]:
    try:
        yield
    except csv.Error as error:
        raise click.ClickException(f"line {reader.line_num}: not CSV: {error}") from error
    except UnicodeDecodeError as error:
        raise click.ClickException(f"after line {reader.line_num}: not UTF-8") from error


def _line(stores: Stores, number: int, row: dict[str, str | None]) -> _Line:
    if None in row or None in row.values():
        raise _BadLine("not as many fields as columns")
    values = {column: (row.get(column) or "").strip() for column in COLUMNS}
    password = row.get("password") or ""  # to the byte: spaces may belong to it
    database, home_server = values["database"], values["home_server"]
    if bool(database) == bool(home_server):
        raise _BadLine("either `database` or `home_server` must be given")
    if password and values["password_hash"]:
        raise _BadLine("`password` and `password_hash` are both given")
    if password:
        require_usable_password(password)
    if values["password_hash"]:
        require_usable_hash(values["password_hash"])
    mailbox = (
        Mailbox(database=stores.require_database(database))
        if database
        else Mailbox(home_server=stores.require_server(home_server))
    )
    if values["disabled"].lower() not in _YES_NO:
        raise _BadLine(f"`disabled` is yes or no, not {values['disabled']!r}")
    user = User(
        stores.canonical(values["name"]),
        mailbox,
        values["password_hash"],
        _protocols(values["protocols"]),
        _YES_NO[values["disabled"].lower()],
        values["login_at_server"],
        tuple(map(stores.grant, values["send_as"].split())),
    )
    return _Line(number, Entry(user, tuple(map(stores.canonical, values["addresses"].split()))), password)


def _protocols(words: str) -> frozenset[Protocol]:
    known = {protocol.value: protocol for protocol in CLIENT_PROTOCOLS}
    try:
        return frozenset(known[word.lower()] for word in words.split()) or frozenset(CLIENT_PROTOCOLS)
    except KeyError as error:
        raise _BadLine(f"protocols are {', '.join(known)}: {error} is not one of them") from error


def _hashed(line: _Line, scram: ScramSettings | None) -> _Line:
    if not line.password:
        return line
    found = make_hash(line.password) if scram is None else make_scram_hash(line.password, scram.iterations)
    user = replace(line.entry.user, password_hash=found)
    return _Line(line.number, replace(line.entry, user=user))
