"""`gatepost directory check`: asks every server of every directory of the configuration, and says what it answers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click
import structlog

from gatepost.cli.options import config_option, open_stores
from gatepost.directory.port import DirectoryUnavailable, User

if TYPE_CHECKING:
    from gatepost.configuration.settings import FrontEnd
    from gatepost.directory.settings import DirectorySettings

FAULTY = 1
_NOTED = frozenset({"directory.no_user", "directory.bad_user", "directory.ambiguous"})


@click.group("directory")
def command() -> None:
    """Ask the directories that users are in."""


@command.command("check")
@click.argument("name", default="postmaster")
@config_option
def check(name: str, config: str) -> int:
    """Ask each server of each directory for NAME, and print what it answers and in what time.

    So a wrong password of the service, a wrong base, table or CA is found before anybody signs in. Nothing is taken
    from memory, and no other server answers for one that does not. Exit status 1: one of them did not answer.
    """
    stores = open_stores(config)
    with _notes() as notes:
        return _check(stores.configuration.front_end, stores.canonical(name), notes)


def _check(front_end: FrontEnd, canonical: str, notes: list[str]) -> int:
    domain = canonical.rpartition("@")[2]
    faulty = False
    for directory, server, settings in _servers(front_end):
        if settings.domains and domain not in settings.domains:
            click.echo(f"{directory}: not asked: it has {', '.join(settings.domains)} only")
            continue
        notes.clear()
        began = time.monotonic()
        try:
            user = asyncio.run(_ask(front_end, settings, canonical))
        except (DirectoryUnavailable, ImportError) as fault:
            faulty = True
            click.echo(f"{directory}{server}: no answer: {fault}")
            continue
        took = (time.monotonic() - began) * 1000
        click.echo(f"{directory}{server}: {'; '.join((_said(user, canonical), *notes))}, in {took:.0f} ms")
    return FAULTY if faulty else 0


@contextmanager
def _notes() -> Iterator[list[str]]:
    """What is wrong with a user, as the log would say it; nothing else is logged."""
    notes: list[str] = []

    def note(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        if event["event"] in _NOTED:
            notes.append(str(event["reason"]))
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(processors=[note], wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG))
    try:
        yield notes
    finally:
        structlog.configure(**before)


async def _ask(front_end: FrontEnd, settings: DirectorySettings, name: str) -> User | None:
    from gatepost.directory.open import open_directory

    directory = open_directory(replace(front_end, directories=(settings,)), asyncio.get_running_loop())
    try:
        return await directory.ask(name)
    finally:
        directory.close()
        await directory.wait_closed()


def _servers(front_end: FrontEnd) -> Iterator[tuple[str, str, DirectorySettings]]:
    """Each directory's name, how one of its servers is written, and the directory with this server alone."""
    from gatepost.directory.settings import DirectorySettings

    for each in front_end.directories or (DirectorySettings("file"),):
        if each.ldap is not None:
            for ldap in each.ldap.servers:
                yield each.name, f" {ldap.url}", replace(each, ldap=replace(each.ldap, servers=(ldap,)))
        elif each.sql is not None:
            for host in each.sql.hosts:
                yield each.name, f" {host[0]}:{host[1]}", replace(each, sql=replace(each.sql, hosts=(host,)))
        elif each.http is not None:
            for url in each.http.urls:
                yield each.name, f" {url}", replace(each, http=replace(each.http, urls=(url,)))
        else:
            yield each.name, f" {front_end.directory}", each


def _said(user: User | None, name: str) -> str:
    if user is None:
        return f"{name} is nobody's"
    place = f"database {user.mailbox.database}" if user.mailbox.database else f"server {user.mailbox.home_server}"
    words = [f"{name} is {user.name}", place, "protocols " + " ".join(sorted(each.value for each in user.protocols))]
    if user.disabled:
        words.append("disabled")
    if user.judged_by_directory:
        words.append("the directory judges passwords" + ("" if user.tells_of_password else ", changes are not told"))
    elif not user.password_hash:
        words.append("no usable password")
    return ", ".join(words)
