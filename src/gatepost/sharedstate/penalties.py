"""The accounts of wrong passwords in the file of the shared state: all workers of a machine charge the same ones."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import cast

import apsw
import msgspec
import structlog

from gatepost.directory.policy.penalty import (
    FAMILIAR_SECONDS,
    Account,
    Attempt,
    Charge,
    charge,
    joined,
    let_go,
    take_off,
)
from gatepost.directory.policy.settings import Penalty
from gatepost.sharedstate.tables import TIDY_CHANGES, Change, digest, tidy
from gatepost.sharedstate.writer import Writer

ANSWER_SECONDS = 1.0
"""A sign-in waits this long for the file; then its process counts by itself."""
TOUCH_SECONDS = 86400.0
"""How old "last seen" of a user's own address may grow before it is written."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Account).decode
_decode_accounts = msgspec.json.Decoder(dict[str, Account]).decode
_decode_charge = msgspec.json.Decoder(Charge).decode


class SqliteLedger:
    """The `Ledger` in the file that `writer` writes."""

    alone = 0

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._charges = 0

    async def charge(self, attempt: Attempt, penalty: Penalty, now: float) -> Charge | None:
        """See `Ledger`. None also when the file takes longer than `ANSWER_SECONDS`; what is charged then, or for who
        has left meanwhile, is let go of."""
        self._charges += 1
        if self._charges % TIDY_CHANGES == 1:
            self._writer.write_later(tidy(now))
        writing = self._writer.write(charging(attempt, penalty, now))
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                answer = await asyncio.shield(writing)
        except (TimeoutError, asyncio.CancelledError) as end:
            writing.add_done_callback(lambda ended: self._let_go(ended, attempt, now))
            if isinstance(end, TimeoutError):
                return None
            raise
        return None if answer is None else _decode_charge(answer)

    def settle(self, attempt: Attempt, charged: Charge, now: float, *, right: bool) -> None:
        """See `Ledger`."""
        self._writer.write_later(settling(attempt, charged, now, right=right))

    def know(self, pair: str, now: float) -> None:
        """A user has signed in from an address of `Attempt.pair`."""
        self._writer.write_later(knowing(pair, now))

    async def take(self, most: int) -> dict[bytes, Account]:
        """Take so many accounts out of the file, by the digests of their keys; none when it cannot be written."""
        writing = self._writer.write(taking(most))
        try:
            answer = await asyncio.shield(writing)
        except asyncio.CancelledError:
            writing.add_done_callback(self._not_taken)
            raise
        return _decode_taken(answer) if answer else {}

    async def held(self, keys: Sequence[str], *, clear: bool = False) -> dict[str, Account] | None:
        """The accounts that are there of `keys`, and then no more with `clear`; None: the file cannot be written."""
        answer = await self._writer.write(looking(keys, clear=clear))
        return _decode_accounts(answer) if answer is not None else None

    def put_back(self, accounts: Mapping[bytes, Account], until: float) -> None:
        """What `take` answered belongs into the file after all."""
        self._writer.write_later(putting_back(accounts, until))

    def _not_taken(self, ended: asyncio.Future[str | None]) -> None:
        answer = None if ended.cancelled() else ended.result()
        if answer:
            accounts = _decode_taken(answer)
            used = max((account.used for account in accounts.values()), default=0.0)
            self.put_back(accounts, used + Penalty().forget_seconds)

    def _let_go(self, ended: asyncio.Future[str | None], attempt: Attempt, now: float) -> None:
        """Nobody waited for the answer any more."""
        answer = None if ended.cancelled() else ended.result()
        if answer is not None:
            self.settle(attempt, _decode_charge(answer), now, right=False)


def charging(attempt: Attempt, penalty: Penalty, now: float) -> Change:
    """Charges `attempt`; answers the `Charge` as JSON."""

    def change(connection: apsw.Connection, _revision: int) -> str | None:
        accounts = {key: found for key in attempt.keys if (found := _read(connection, key)) is not None}
        familiar = bool(attempt.pair) and _is_familiar(connection, attempt.pair, now)
        changed, charged = charge(accounts, familiar=familiar, attempt=attempt, now=now, penalty=penalty)
        for key, account in changed.items():
            _write(connection, digest(key), account, now + penalty.forget_seconds)
        return msgspec.json.encode(charged).decode()

    return change


def settling(attempt: Attempt, charged: Charge, now: float, *, right: bool) -> Change:
    """Takes the charge off, or lets go of it; the address of a right password is the user's own."""

    def change(connection: apsw.Connection, _revision: int) -> str | None:
        for key in charged.keys:
            account = _read(connection, key)
            if account is not None:
                account = (take_off if right else let_go)(account, attempt.mark)
                connection.execute("UPDATE penalties SET state = ? WHERE key = ?", (_encode(account), digest(key)))
        if right and attempt.pair:
            knowing(attempt.pair, now)(connection, 0)
        return None

    return change


def knowing(pair: str, now: float) -> Change:
    """The address is the user's own."""

    def change(connection: apsw.Connection, _revision: int) -> str | None:
        connection.execute(
            "INSERT INTO familiar VALUES (?1, ?2) ON CONFLICT DO UPDATE SET used = ?2 WHERE used < ?3",
            (digest(pair), int(now), int(now - TOUCH_SECONDS)),
        )
        return None

    return change


def looking(keys: Sequence[str], *, clear: bool) -> Change:
    """Answers accounts as JSON, by key; with `clear` they are removed."""

    def change(connection: apsw.Connection, _revision: int) -> str | None:
        found = {key: account for key in keys if (account := _read(connection, key)) is not None}
        if clear:
            connection.executemany("DELETE FROM penalties WHERE key = ?", [(digest(key),) for key in keys])
        return msgspec.json.encode(found).decode()

    return change


def taking(most: int) -> Change:
    """Takes accounts out; answers them as JSON."""

    def change(connection: apsw.Connection, _revision: int) -> str | None:
        rows = connection.execute("SELECT key, state FROM penalties LIMIT ?", (most,)).fetchall()
        connection.executemany("DELETE FROM penalties WHERE key = ?", [(key,) for key, _ in rows])
        found = {cast(bytes, key).hex(): account for key, state in rows if (account := _decoded(state)) is not None}
        return msgspec.json.encode(found).decode() if rows else ""

    return change


def putting_back(accounts: Mapping[bytes, Account], until: float) -> Change:
    """Joins accounts that were taken out with what is there by now."""

    def change(connection: apsw.Connection, _revision: int) -> str | None:
        for key, account in accounts.items():
            row = connection.execute("SELECT state FROM penalties WHERE key = ?", (key,)).fetchone()
            there = _decoded(row[0]) if row is not None else None
            _write(connection, key, joined(there, account) if there is not None else account, until)
        return None

    return change


def _decode_taken(answer: str) -> dict[bytes, Account]:
    return {bytes.fromhex(key): account for key, account in _decode_accounts(answer).items()}


def _read(connection: apsw.Connection, key: str) -> Account | None:
    row = connection.execute("SELECT state FROM penalties WHERE key = ?", (digest(key),)).fetchone()
    return None if row is None else _decoded(row[0])


def _decoded(state: object) -> Account | None:
    try:
        return _decode(cast(bytes, state))
    except (msgspec.DecodeError, TypeError):
        return None  # of another version, or damaged: it begins anew


def _write(connection: apsw.Connection, key: bytes, account: Account, until: float) -> None:
    connection.execute(
        "INSERT INTO penalties VALUES (?1, ?2, ?3) ON CONFLICT DO UPDATE SET state = ?2, until = ?3",
        (key, _encode(account), int(until) + 1),
    )


def _is_familiar(connection: apsw.Connection, pair: str, now: float) -> bool:
    row = connection.execute("SELECT used FROM familiar WHERE key = ?", (digest(pair),)).fetchone()
    return row is not None and now - int(row[0]) < FAMILIAR_SECONDS


def open_ledger(path: str, loop: asyncio.AbstractEventLoop) -> tuple[SqliteLedger, Writer]:
    """The accounts in the file at `path`, for a process that needs nothing else of it; it closes the writer."""
    log = structlog.get_logger("gatepost")
    writer = Writer(
        path,
        loop,
        faulty=lambda fault: log.error("shared_state.not_written", reason=str(fault)),
        mended=lambda: log.info("shared_state.written_again", path=path),
    )
    return SqliteLedger(writer), writer
