"""A connection to MariaDB or MySQL, by PyMySQL. Everything here blocks, in threads."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import pymysql
from pymysql.connections import Connection
from pymysql.cursors import DictCursor

from gatepost.directory.pool import Broken, cut_off
from gatepost.directory.port import DirectoryUnavailable
from gatepost.directory.settings import SqlSettings

_LOST = (
    1040, 1042, 1043, 1053, 1077, 1079, 1080, 1129, 1152, 1153, 1154, 1155, 1156, 1157, 1158, 1159, 1160, 1161, 1203,
    1205, 1226, 2002, 2003, 2006, 2013, 2014, 2026, 2027,
)  # fmt: skip
"""Codes of a server that cannot serve now, or of a connection that is lost (MariaDB's and the client's numbers)."""


class _Connection(Connection):
    """Text is sent as its octets in hexadecimal: nothing in it can be anything but text, whatever the server's mode."""

    def escape(self, obj: object, mapping: object = None) -> Any:  # noqa: ANN401 - the library's signature
        if isinstance(obj, str):
            return f"_utf8mb4 X'{obj.encode().hex()}'"
        return super().escape(obj, mapping)


class MariadbSession:
    """See `directory.pool.Session`."""

    def __init__(self, settings: SqlSettings, host: str, port: int) -> None:
        """Connects. Raises `Broken`."""
        context = None
        if settings.tls:
            context = ssl.create_default_context(cadata=settings.ca.decode() if settings.ca else None)
        try:
            self._connection = _Connection(
                host=host,
                port=port,
                user=settings.user,
                password=settings.password,
                database=settings.database,
                charset="utf8mb4",
                autocommit=True,
                connect_timeout=settings.try_seconds,
                read_timeout=settings.try_seconds,
                write_timeout=settings.try_seconds,
                ssl=context,
                ssl_disabled=not settings.tls,
                cursorclass=DictCursor,
                local_infile=False,
            )
        except (pymysql.Error, OSError) as fault:
            raise Broken(f"cannot connect: {one_line(fault)}") from fault
        except Exception as fault:
            raise Broken(f"no database answers: {type(fault).__name__}") from fault

    def rows(self, query: str, parameters: Mapping[str, str]) -> Sequence[Mapping[str, Any]]:
        """The first two rows. Raises `Broken`, `DirectoryUnavailable`."""
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(query, parameters)
                return list(cursor.fetchmany(2))
        except pymysql.Error as fault:
            if _is_lost(fault):
                raise Broken(one_line(fault)) from fault
            raise DirectoryUnavailable(one_line(fault)) from fault
        except (OSError, EOFError) as fault:
            raise Broken(one_line(fault)) from fault
        except Exception as fault:
            raise Broken(f"no answer of a database: {type(fault).__name__}") from fault

    def cut(self) -> None:
        """See `Session`."""
        cut_off(getattr(self._connection, "_sock", None))

    def close(self) -> None:
        """See `Session`."""
        with suppress(pymysql.Error, OSError):
            self._connection.close()


def _is_lost(fault: pymysql.Error) -> bool:
    code = fault.args[0] if fault.args else 0
    return code in _LOST or isinstance(fault, pymysql.InterfaceError) or (code == 0 and not isinstance(code, str))


def one_line(fault: Exception) -> str:
    """One line for the log."""
    return " ".join(str(fault).split())[:300] or type(fault).__name__
