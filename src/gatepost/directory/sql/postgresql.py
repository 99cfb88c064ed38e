"""A connection to PostgreSQL, by psycopg. Everything here blocks, in threads."""

from __future__ import annotations

import math
import os
import socket
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from gatepost.directory.pool import Broken, cut_off
from gatepost.directory.port import DirectoryUnavailable
from gatepost.directory.settings import SqlSettings

LISTEN_SECONDS = 1.0
"""How soon a listener sees that it is to end."""
KEEPALIVE_SECONDS = 30


class PostgresqlSession:
    """See `directory.pool.Session`."""

    def __init__(self, settings: SqlSettings, host: str, port: int) -> None:
        """Connects. Raises `Broken`."""
        try:
            self._connection = _connect(settings, host, port)
        except psycopg.Error as fault:
            raise Broken(f"cannot connect: {one_line(fault)}") from fault
        self._socket: socket.socket | None = socket.socket(fileno=os.dup(self._connection.fileno()))

    def rows(self, query: str, parameters: Mapping[str, str]) -> Sequence[Mapping[str, Any]]:
        """The first two rows. Raises `Broken`, `DirectoryUnavailable`."""
        try:
            with self._connection.cursor(row_factory=dict_row) as cursor:
                # The query is the operator's own text; what comes from outside is bound by the server.
                cursor.execute(query.encode(), parameters)
                return cursor.fetchmany(2)
        except (psycopg.OperationalError, psycopg.InterfaceError) as fault:
            raise Broken(one_line(fault)) from fault
        except psycopg.Error as fault:
            raise DirectoryUnavailable(one_line(fault)) from fault

    def cut(self) -> None:
        """See `Session`."""
        cut_off(self._socket)

    def close(self) -> None:
        """See `Session`."""
        sock, self._socket = self._socket, None
        if sock is not None:
            sock.close()
        with suppress(psycopg.Error):
            self._connection.close()


def listen(
    settings: SqlSettings,
    host: str,
    port: int,
    listening: Callable[[], None],
    told: Callable[[str], None],
    ended: Callable[[], bool],
) -> None:
    """Call `listening` once it is so, then `told` with each notification's text, until `ended`. Raises `Broken`."""
    try:
        with _connect(settings, host, port) as connection:
            connection.execute("SET statement_timeout = 0")
            connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(settings.notify)))
            listening()
            while not ended():
                for notification in connection.notifies(timeout=LISTEN_SECONDS):
                    told(notification.payload)
                    if ended():
                        return
    except psycopg.Error as fault:
        raise Broken(one_line(fault)) from fault


def _connect(settings: SqlSettings, host: str, port: int) -> psycopg.Connection[Any]:
    given: dict[str, Any] = {
        "host": host,
        "port": port,
        "dbname": settings.database,
        "connect_timeout": max(math.ceil(settings.try_seconds), 2),
        "application_name": "gatepost",
        "options": f"-c statement_timeout={int(settings.try_seconds * 1000)}",
        "keepalives_idle": KEEPALIVE_SECONDS,
        "tcp_user_timeout": int(settings.seconds * 1000),
    }
    if settings.user:
        given["user"] = settings.user
    given["password"] = settings.password
    given["passfile"] = "/nonexistent/pgpass"  # what ~/.pgpass says is for others' programs
    if not settings.tls:
        given["sslmode"] = "disable"
        return psycopg.connect(autocommit=True, prepare_threshold=None, **given)
    given["sslmode"] = "verify-full"
    if not settings.ca:
        given["sslrootcert"] = "system"
        return psycopg.connect(autocommit=True, prepare_threshold=None, **given)
    with tempfile.NamedTemporaryFile() as file:  # the library reads certificates from a file only
        file.write(settings.ca)
        file.flush()
        given["sslrootcert"] = file.name
        return psycopg.connect(autocommit=True, prepare_threshold=None, **given)


def one_line(fault: Exception) -> str:
    """One line for the log."""
    return " ".join(str(fault).split())[:300] or type(fault).__name__
