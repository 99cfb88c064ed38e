"""Signing in: verdicts, what is remembered and for how long, what strangers can learn or use up."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import argon2
import pytest
from few_users import FewUsers

from gatepost.directory import passwords, sign_in, signed_in
from gatepost.directory.port import (
    DirectoryUnavailable,
    JudgedToken,
    TokenVerifierUnavailable,
    User,
    Verdict,
)
from gatepost.directory.remembered import Remembered, make_memory
from gatepost.directory.sign_in import SignInService
from gatepost.organization.model import Protocol
from gatepost.routing.decision import Mailbox
from gatepost.wire.events import TokenHelp

CHEAP = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
ANNA = User("anna@contoso.com", Mailbox("DB01"), CHEAP.hash("apple"))
OTTO = User("otto@contoso.com", Mailbox("DB01"), CHEAP.hash("apple"), frozenset({Protocol.POP3}))
GONE = User("gone@contoso.com", Mailbox("DB01"), CHEAP.hash("apple"), disabled=True)
NONE = User("none@contoso.com", Mailbox("DB01"))
IMAP, POP3 = Protocol.IMAP, Protocol.POP3
CLIENT = "192.0.2.1"


class FakeVerifier:
    def __init__(self, answers: dict[str, str]) -> None:
        self.answers = answers
        self.fault: Exception | None = None
        self.asked = 0
        self.more: dict[str, Any] = {}

    async def verify(self, token: str, protocol: Protocol) -> JudgedToken:
        self.asked += 1
        if self.fault:
            raise self.fault
        return JudgedToken(self.answers.get(token, ""), **self.more)

    def help(self, protocol: Protocol) -> TokenHelp:
        return TokenHelp("mail")

    def close(self) -> None:
        pass


class Counter:
    """Counts argon2 checks, and can hold them until it is told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.checks: list[tuple[str, tuple[bytes, ...]]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.real = passwords.check
        self.fault: Exception | None = None
        monkeypatch.setattr(passwords, "check", self.check)

    def check(self, password_hash: str, tries: tuple[bytes, ...]) -> bool:
        self.checks.append((password_hash, tries))
        assert self.gate.wait(10)
        if self.fault:
            raise self.fault
        return self.real(password_hash, tries)

    async def reached(self, checks: int) -> None:
        """Wait until so many checks have begun, in their threads."""

        async def begun() -> None:
            while len(self.checks) < checks:  # noqa: ASYNC110 - the checks are in other threads
                await asyncio.sleep(0)

        await asyncio.wait_for(begun(), 10)


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter]:
    counter = Counter(monkeypatch)
    yield counter
    counter.gate.set()


@pytest.fixture
def directory() -> FewUsers:
    return FewUsers(ANNA, OTTO, GONE, NONE, sales=ANNA)


@pytest.fixture
def clock() -> list[float]:
    return [1000.0]


@pytest.fixture
def verifier() -> FakeVerifier:
    return FakeVerifier({"token-anna": "anna@contoso.com", "token-sales": "sales@contoso.com", "token-x": "x@y.z"})


DUMMY = passwords.make_dummy_hash(CHEAP)


@pytest.fixture
def service(directory: FewUsers, verifier: FakeVerifier, clock: list[float]) -> Iterator[SignInService]:
    service = SignInService(
        directory,
        "contoso.com",
        waiting_limit=3,
        per_address=8,
        token_verifier=verifier,
        dummy_hash=DUMMY,
        clock=lambda: clock[0],
        threads=2,
    )
    yield service
    service.close()


@pytest.mark.parametrize(
    "name", ["anna@contoso.com", "ANNA", "Anna@Contoso.COM.", " anna ", "sales", "Sales@contoso.com"]
)
async def test_every_way_to_write_a_name_is_the_same_user(service: SignInService, name: str) -> None:
    """Field case 78."""
    result = await service.password(name, "apple", IMAP, CLIENT)
    assert (result.verdict, result.user) == (Verdict.SIGNED_IN, ANNA)
    assert service.password_now(name, "apple", IMAP) == result


@pytest.mark.parametrize(
    ("name", "password"),
    [
        ("anna", "pear"),
        ("anna", "apple "),
        ("anna", ""),
        ("anna", "a" * 5000),
        ("anna", "\ud800"),
        ("nobody", "apple"),
        ("gone", "apple"),
        ("none", "apple"),
        ("none", ""),
        ("", "apple"),
        ("two words", "apple"),
        ("a" * 1000, "apple"),
        ("anna*master", "apple"),
        ("anna%master", "apple"),
        ("\ud800", "apple"),
    ],
)
async def test_wrong_is_wrong_whatever_is_wrong(
    service: SignInService, counter: Counter, name: str, password: str
) -> None:
    """One verdict without a user, after exactly one check of the same cost, and again the next time (field case 71)."""
    for n in (1, 2):
        assert service.password_now(name, password, IMAP) is None
        result = await service.password(name, password, IMAP, CLIENT)
        assert (result.verdict, result.user) == (Verdict.WRONG_CREDENTIALS, None)
        assert len(counter.checks) == n
        assert counter.checks[-1][0] in (DUMMY, ANNA.password_hash)


async def test_the_number_of_tries_does_not_depend_on_the_user(service: SignInService, counter: Counter) -> None:
    for name in ("anna", "nobody", "gone", "two words"):
        await service.password(name, "cafe\u0301", IMAP, CLIENT)
    assert [len(tries) for _, tries in counter.checks] == [2, 2, 2, 2]


async def test_right_password_but_not_this_protocol(service: SignInService) -> None:
    for _ in range(2):
        result = await service.password("otto", "apple", IMAP, CLIENT)
        assert (result.verdict, result.user) == (Verdict.PROTOCOL_NOT_ALLOWED, OTTO)
    assert (await service.password("otto", "apple", POP3, CLIENT)).verdict is Verdict.SIGNED_IN
    assert (await service.password("otto", "pear", IMAP, CLIENT)).verdict is Verdict.WRONG_CREDENTIALS


async def test_a_success_is_remembered_for_a_while_from_its_last_use(
    service: SignInService, counter: Counter, clock: list[float]
) -> None:
    await service.password("anna", "apple", IMAP, CLIENT)
    clock[0] += sign_in.KNOWN_SECONDS
    assert service.password_now("anna", "apple", POP3) is not None
    for _ in range(2):
        clock[0] += sign_in.SUCCESS_SECONDS - sign_in.KNOWN_SECONDS
        assert service.password_now("anna", "apple", POP3) is None  # the directory is asked first
        assert (await service.password("anna", "apple", POP3, CLIENT)).user == ANNA
    await service.password("sales", "apple", IMAP, CLIENT)  # another way to write the name needs no second check
    assert len(counter.checks) == 1
    clock[0] += sign_in.SUCCESS_SECONDS + 0.1
    assert service.password_now("anna", "apple", IMAP) is None
    assert (await service.password("anna", "apple", IMAP, CLIENT)).verdict is Verdict.SIGNED_IN
    assert len(counter.checks) == 2


async def test_a_success_of_one_worker_is_one_of_all(directory: FewUsers, counter: Counter, clock: list[float]) -> None:
    """They share memory, as the workers of one front end do; a changed password is void in all of them."""
    memory = make_memory(16)
    services = [
        SignInService(
            directory,
            "contoso.com",
            waiting_limit=3,
            per_address=8,
            remembered=Remembered(os.dup(memory)),
            dummy_hash=DUMMY,
            clock=lambda: clock[0],
            threads=1,
        )
        for _ in range(2)
    ]
    os.close(memory)
    for service in services:
        assert (await service.password("anna", "apple", IMAP, CLIENT)).user == ANNA
        assert (await service.password("anna", "pear", IMAP, CLIENT)).verdict is Verdict.WRONG_CREDENTIALS
    assert [checked for checked, _ in counter.checks].count(ANNA.password_hash) == 3
    directory.put("anna@contoso.com", replace(ANNA, password_hash=CHEAP.hash("pear")))
    for service in services:
        assert (await service.password("anna", "apple", IMAP, CLIENT)).verdict is Verdict.WRONG_CREDENTIALS
        service.close()


async def test_whoever_had_a_session_until_now_needs_no_check(
    service: SignInService, counter: Counter, clock: list[float]
) -> None:
    """It may have lasted for days; but a password that was changed meanwhile is checked, and wrong."""
    proof = (await service.password("anna", "apple", IMAP, CLIENT)).proof
    assert service.password_now("anna", "apple", IMAP).proof == proof  # type: ignore[union-attr]
    clock[0] += 3 * 86400
    service.still_right(ANNA.name, proof)
    service.still_right(ANNA.name, b"")  # of a session by a token
    assert (await service.password("anna", "apple", IMAP, CLIENT)).user == ANNA
    assert len(counter.checks) == 1
    service._directory.put("anna@contoso.com", replace(ANNA, password_hash=CHEAP.hash("pear")))  # type: ignore[attr-defined]
    service.still_right(ANNA.name, proof)
    assert (await service.password("anna", "apple", IMAP, CLIENT)).verdict is Verdict.WRONG_CREDENTIALS


async def test_only_that_password_of_that_user_is_remembered(service: SignInService) -> None:
    """Field case 67: no entry ever answers for another user or password."""
    await service.password("anna", "apple", IMAP, CLIENT)
    await service.password("otto", "apple", POP3, CLIENT)
    for name, password in [("anna", "apple1"), ("anna", ""), ("annaa", "pple"), ("gone", "apple"), ("none", "apple")]:
        assert service.password_now(name, password, IMAP) is None
    known = service.password_now("otto", "apple", POP3)
    assert known is not None
    assert known.user == OTTO


async def test_a_changed_password_ends_the_old_one_at_once(service: SignInService, directory: FewUsers) -> None:
    """Field case 68: with the directory's notice, not minutes later."""
    await service.password("anna", "apple", IMAP, CLIENT)
    directory.put(ANNA.name, replace(ANNA, password_hash=CHEAP.hash("pear")))
    assert service.password_now("anna", "apple", IMAP) is None
    assert (await service.password("anna", "apple", IMAP, CLIENT)).verdict is Verdict.WRONG_CREDENTIALS
    assert (await service.password("anna", "pear", IMAP, CLIENT)).verdict is Verdict.SIGNED_IN


@pytest.mark.parametrize("new", [None, replace(ANNA, disabled=True), replace(ANNA, password_hash="")])
async def test_removed_disabled_or_without_password_is_out_at_once(
    service: SignInService, directory: FewUsers, new: User | None
) -> None:
    await service.password("anna", "apple", IMAP, CLIENT)
    directory.put(ANNA.name, new)
    assert service.password_now("anna", "apple", IMAP) is None
    assert (await service.password("anna", "apple", IMAP, CLIENT)).verdict is Verdict.WRONG_CREDENTIALS


async def test_a_moved_mailbox_needs_no_new_check(
    service: SignInService, directory: FewUsers, counter: Counter
) -> None:
    await service.password("anna", "apple", IMAP, CLIENT)
    moved = replace(ANNA, mailbox=Mailbox("DB02"))
    directory.put(ANNA.name, moved)
    assert (await service.password("anna", "apple", IMAP, CLIENT)).user == moved
    assert len(counter.checks) == 1


async def test_a_change_during_the_check_counts(service: SignInService, directory: FewUsers, counter: Counter) -> None:
    """Whoever is disabled while their password is being checked does not get in, now or from memory."""
    counter.gate.clear()
    task = asyncio.create_task(service.password("anna", "apple", IMAP, CLIENT))
    await counter.reached(1)
    directory.put(ANNA.name, replace(ANNA, disabled=True))
    counter.gate.set()
    assert (await task).verdict is Verdict.WRONG_CREDENTIALS
    assert service.password_now("anna", "apple", IMAP) is None


async def test_equal_checks_at_once_are_one(service: SignInService, counter: Counter) -> None:
    """A client that opens twenty connections costs one check; one that leaves does not take the others along."""
    counter.gate.clear()
    tasks = [asyncio.create_task(service.password("anna", "apple", IMAP, CLIENT)) for _ in range(20)]
    await counter.reached(1)
    tasks[0].cancel()
    await asyncio.wait(tasks[:1])
    counter.gate.set()
    results = await asyncio.gather(*tasks[1:])
    assert {result.verdict for result in results} == {Verdict.SIGNED_IN}
    assert len(counter.checks) == 1


async def test_too_many_checks_are_busy(service: SignInService, counter: Counter) -> None:
    """Two run, three wait, the sixth is told to come back; nothing is remembered of that."""
    counter.gate.clear()
    tasks = [asyncio.create_task(service.password("anna", f"guess {n}", IMAP, CLIENT)) for n in range(5)]
    await counter.reached(2)
    assert (await service.password("anna", "apple", IMAP, CLIENT)).verdict is Verdict.BUSY
    assert (await service.password("nobody", "apple", IMAP, CLIENT)).verdict is Verdict.BUSY
    counter.gate.set()
    assert {(await task).verdict for task in tasks} == {Verdict.WRONG_CREDENTIALS}
    assert (await service.password("anna", "apple", IMAP, CLIENT)).verdict is Verdict.SIGNED_IN


async def test_one_address_leaves_room_for_others(directory: FewUsers, counter: Counter) -> None:
    """150 connections that guess from one address: it alone is told to come back, and nobody waits behind it."""
    service = SignInService(directory, "contoso.com", waiting_limit=64, per_address=8, dummy_hash=DUMMY, threads=2)
    counter.gate.clear()
    guesses = [asyncio.create_task(service.password("anna", f"guess {n}", IMAP, "198.51.100.9")) for n in range(150)]
    await counter.reached(2)
    anna = asyncio.create_task(service.password("anna", "apple", IMAP, CLIENT))
    await asyncio.sleep(0)
    counter.gate.set()
    assert (await anna).verdict is Verdict.SIGNED_IN
    verdicts = [(await guess).verdict for guess in guesses]
    assert verdicts.count(Verdict.BUSY) == 142
    assert verdicts.count(Verdict.WRONG_CREDENTIALS) == 8
    # Two checks ran; hers had the first or second turn after them, beside the guesser's.
    assert (b"apple",) in [tries for _, tries in counter.checks][:4]
    service.close()


async def test_a_check_that_hangs_is_busy(service: SignInService, counter: Counter, monkeypatch: Any) -> None:
    monkeypatch.setattr(sign_in, "CHECK_SECONDS", 0.01)
    counter.gate.clear()
    assert (await service.password("anna", "apple", IMAP, CLIENT)).verdict is Verdict.BUSY


async def test_a_check_that_fails_is_not_a_wrong_password(service: SignInService, counter: Counter) -> None:
    counter.fault = passwords.CheckFailed("out of memory")
    assert (await service.password("anna", "apple", IMAP, CLIENT)).verdict is Verdict.UNAVAILABLE
    counter.fault = None
    assert (await service.password("anna", "apple", IMAP, CLIENT)).verdict is Verdict.SIGNED_IN


async def test_after_closing_it_is_busy(service: SignInService) -> None:
    service.close()
    assert (await service.password("anna", "apple", IMAP, CLIENT)).verdict is Verdict.BUSY


async def test_an_outage_never_looks_like_a_wrong_password(service: SignInService, directory: FewUsers) -> None:
    directory.down = True
    for name, password in [("anna", "apple"), ("anna", "pear"), ("nobody", "x")]:
        assert (await service.password(name, password, IMAP, CLIENT)).verdict is Verdict.UNAVAILABLE


async def test_in_an_outage_a_known_success_still_counts_for_an_hour(
    service: SignInService, directory: FewUsers, clock: list[float]
) -> None:
    """Field case 115: last known good, bounded; only with the very password that was right."""
    proof = (await service.password("anna", "apple", IMAP, CLIENT)).proof
    await service.password("otto", "apple", POP3, CLIENT)
    directory.down = True
    clock[0] += signed_in.OUTAGE_SECONDS
    assert service.password_now("anna", "apple", IMAP) is None
    assert (await service.password("anna", "apple", IMAP, CLIENT)).user == ANNA
    assert (await service.password("otto", "apple", IMAP, CLIENT)).verdict is Verdict.PROTOCOL_NOT_ALLOWED
    assert (await service.password("anna", "pear", IMAP, CLIENT)).verdict is Verdict.UNAVAILABLE
    clock[0] += 0.1
    service.still_right(ANNA.name, proof)
    assert (await service.password("anna", "apple", IMAP, CLIENT)).verdict is Verdict.UNAVAILABLE


async def test_memory_is_bounded(service: SignInService, monkeypatch: Any) -> None:
    monkeypatch.setattr(sign_in, "REMEMBERED_NAMES", 3)
    for n in range(8):
        assert (await service.password("anna" + " " * n, "apple", IMAP, CLIENT)).verdict is Verdict.SIGNED_IN
        await service.password(f"stranger {n}", "x", IMAP, CLIENT)
    assert len(service._names) <= 3
    assert service._running == {}


async def test_no_secret_is_kept(service: SignInService) -> None:
    """Nothing reachable from the service is, or holds, the password."""
    secret = "correct horse battery staple"
    service._directory.users["s@contoso.com"] = User("s@contoso.com", Mailbox("DB01"), CHEAP.hash(secret))  # type: ignore[attr-defined]
    assert (await service.password("s", secret, IMAP, CLIENT)).verdict is Verdict.SIGNED_IN
    await service.password("s", secret + "!", IMAP, CLIENT)
    seen: set[int] = set()
    stack: list[object] = [service._names, service._remembered._memory[:], service._running]
    while stack:
        item = stack.pop()
        if id(item) in seen or isinstance(item, type):
            continue
        seen.add(id(item))
        if isinstance(item, str | bytes):
            text = item.encode() if isinstance(item, str) else item
            assert secret.encode() not in text
        if isinstance(item, str | bytes | dict | list | tuple | User) or type(item).__module__.startswith("gatepost"):
            stack.extend(gc.get_referents(item))
    assert len(seen) > 5


async def test_unknown_and_wrong_take_the_same_time(directory: FewUsers) -> None:
    """The least of 15 interleaved sign-ins each, with a cost that dwarfs the rest: a missing dummy check is fiftyfold.

    The least and not the median, since whatever else the machine does only adds to a time.
    """
    hasher = argon2.PasswordHasher(time_cost=2, memory_cost=2048, parallelism=1)
    for name in ("anna", "gone"):
        user = directory.users[f"{name}@contoso.com"]
        directory.users[user.name] = replace(user, password_hash=hasher.hash("apple"))
    service = SignInService(
        directory,
        "contoso.com",
        waiting_limit=3,
        per_address=8,
        dummy_hash=passwords.make_dummy_hash(hasher),
        threads=1,
    )
    names = ("anna", "gone", "none", "nobody", "two words", "anna*master")
    times: dict[str, list[float]] = {name: [] for name in names}
    for n in range(15):
        for name in names:
            begin = time.perf_counter()
            await service.password(name, f"guess {n}", IMAP, CLIENT)
            times[name].append(time.perf_counter() - begin)
    service.close()
    least = {name: min(values) for name, values in times.items()}
    assert max(least.values()) < 3 * min(least.values()), least


async def test_a_token_signs_its_owner_in(service: SignInService) -> None:
    """The claimed name may be any of the owner's, and so may the token's."""
    for name, token in [("anna", "token-anna"), ("", "token-anna"), ("sales", "token-anna"), ("anna", "token-sales")]:
        result = await service.token(name, token, IMAP)
        assert (result.verdict, result.user) == (Verdict.SIGNED_IN, ANNA)


@pytest.mark.parametrize(
    ("name", "token"),
    [
        ("otto", "token-anna"),
        ("nobody", "token-anna"),
        ("anna", "other"),
        ("x@y.z", "token-x"),
        ("two words", "token-anna"),
    ],
)
async def test_a_token_of_another_or_none_is_wrong(service: SignInService, name: str, token: str) -> None:
    result = await service.token(name, token, IMAP)
    assert (result.verdict, result.user) == (Verdict.WRONG_CREDENTIALS, None)


async def test_a_token_does_not_open_what_is_closed(
    service: SignInService, verifier: FakeVerifier, directory: FewUsers
) -> None:
    verifier.answers |= {"token-gone": "gone@contoso.com", "token-otto": "otto@contoso.com"}
    assert (await service.token("", "token-gone", IMAP)).verdict is Verdict.WRONG_CREDENTIALS
    assert (await service.token("", "token-otto", IMAP)).verdict is Verdict.PROTOCOL_NOT_ALLOWED
    verifier.fault = TokenVerifierUnavailable("down")
    assert (await service.token("", "token-anna", IMAP)).verdict is Verdict.UNAVAILABLE
    verifier.fault = None
    directory.down = True
    assert (await service.token("", "token-anna", IMAP)).verdict is Verdict.UNAVAILABLE


async def test_a_good_token_is_remembered_until_it_ends(
    service: SignInService, verifier: FakeVerifier, clock: list[float]
) -> None:
    """By name, token and protocol; five minutes at most, so that withdrawn keys count no longer."""
    verifier.more = {"until": time.time() + 60.0}
    assert service.token_now("", "token-anna", IMAP) is None
    await service.token("", "token-anna", IMAP)
    for _ in range(3):
        assert (await service.token("", "token-anna", IMAP)).user == ANNA
    found = service.token_now("", "token-anna", IMAP)
    assert found is not None
    assert found.verdict is Verdict.SIGNED_IN
    assert service.token_now("", "token-anna", POP3) is None
    assert service.token_now("otto", "token-anna", IMAP) is None
    assert service.token_now("", "token-ann", IMAP) is None
    assert verifier.asked == 1
    clock[0] += 61.0
    assert service.token_now("", "token-anna", IMAP) is None
    verifier.more = {}
    await service.token("", "token-anna", IMAP)
    clock[0] += 301.0
    assert service.token_now("", "token-anna", IMAP) is None
    verifier.more = {"known_until": time.time() + 5.0}
    await service.token("", "token-anna", IMAP)
    clock[0] += 6.0
    assert service.token_now("", "token-anna", IMAP) is None


async def test_a_remembered_token_is_void_when_a_user_changes(
    service: SignInService, verifier: FakeVerifier, directory: FewUsers
) -> None:
    await service.token("", "token-anna", IMAP)
    directory.put("anna@contoso.com", replace(ANNA, disabled=True))
    assert service.token_now("", "token-anna", IMAP) is None
    assert (await service.token("", "token-anna", IMAP)).verdict is Verdict.WRONG_CREDENTIALS


async def test_wrong_tokens_and_outages_are_not_remembered(service: SignInService, verifier: FakeVerifier) -> None:
    verifier.fault = TokenVerifierUnavailable("down")
    assert (await service.token("", "token-anna", IMAP)).verdict is Verdict.UNAVAILABLE
    verifier.fault = None
    assert (await service.token("", "token-anna", IMAP)).verdict is Verdict.SIGNED_IN
    verifier.answers["late"] = ""
    assert (await service.token("", "late", IMAP)).verdict is Verdict.WRONG_CREDENTIALS
    verifier.answers["late"] = ANNA.name
    assert (await service.token("", "late", IMAP)).verdict is Verdict.SIGNED_IN


async def test_a_token_without_the_scope_is_right_but_not_for_this(
    service: SignInService, verifier: FakeVerifier
) -> None:
    verifier.more = {"lacks": "mail.imap"}
    result = await service.token("", "token-anna", IMAP)
    assert (result.verdict, result.lacks) == (Verdict.PROTOCOL_NOT_ALLOWED, "mail.imap")


async def test_questions_about_tokens_are_counted_for_their_address(
    service: SignInService, verifier: FakeVerifier
) -> None:
    """Who shows many at once is busy with them; others are not kept waiting."""
    held = asyncio.Event()

    async def slowly(token: str, protocol: Protocol) -> JudgedToken:
        await held.wait()
        return JudgedToken(ANNA.name)

    verifier.verify = slowly  # type: ignore[method-assign]
    tasks = [asyncio.ensure_future(service.token("", f"t{n}", IMAP, CLIENT)) for n in range(8)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert (await service.token("", "t9", IMAP, CLIENT)).verdict is Verdict.BUSY
    other = asyncio.ensure_future(service.token("", "t9", IMAP, "192.0.2.77"))
    await asyncio.sleep(0)
    held.set()
    assert (await other).verdict is Verdict.SIGNED_IN
    assert {(await task).verdict for task in tasks} == {Verdict.SIGNED_IN}


async def test_without_a_verifier_tokens_are_refused(directory: FewUsers, service: SignInService) -> None:
    assert service.accepts_tokens
    plain = SignInService(directory, "contoso.com", waiting_limit=1, per_address=1, dummy_hash=DUMMY)
    assert not plain.accepts_tokens
    assert (await plain.token("anna", "token-anna", IMAP)).verdict is Verdict.WRONG_CREDENTIALS
    plain.close()


async def test_somebody_can_be_looked_up_without_signing_in(service: SignInService, directory: FewUsers) -> None:
    """By name or alias in any spelling, disabled users too; names that cannot exist are nobody's."""
    assert service.look_up("SALES@Contoso.com.") is ANNA
    assert service.look_up("gone") is GONE
    assert service.look_up("nobody@contoso.com") is None
    assert service.look_up("a b\x00") is None
    directory.down = True
    with pytest.raises(DirectoryUnavailable):
        service.look_up("anna")


def test_a_user_whom_a_peer_has_signed_in_is_let_in_by_name(directory: FewUsers, service: SignInService) -> None:
    """Who may not sign in here himself may not through a peer either; an account without a password may."""
    assert service.user_by_name("anna@contoso.com", IMAP).user == ANNA
    assert service.user_by_name("none@contoso.com", IMAP).verdict is Verdict.SIGNED_IN
    assert service.user_by_name("otto@contoso.com", IMAP).verdict is Verdict.PROTOCOL_NOT_ALLOWED
    for name, reason in (("gone@contoso.com", "disabled"), ("nobody@contoso.com", "unknown user")):
        result = service.user_by_name(name, IMAP)
        assert (result.verdict, result.user, result.reason) == (Verdict.WRONG_CREDENTIALS, None, reason)


def test_a_peers_user_goes_by_the_canonical_name_only(directory: FewUsers, service: SignInService) -> None:
    """What is an alias here may be a user of its own in the directory of the peer."""
    assert service.user_by_name("sales@contoso.com", IMAP).verdict is Verdict.WRONG_CREDENTIALS
    assert service.user_by_name("ANNA@contoso.com", IMAP).verdict is Verdict.WRONG_CREDENTIALS


def test_a_peers_user_is_known_while_the_directory_is_down(
    directory: FewUsers, service: SignInService, clock: list[float]
) -> None:
    """If seen before, for an hour; for others the fault is temporary."""
    service.user_by_name("anna@contoso.com", IMAP)
    directory.down = True
    for seconds in (0.0, signed_in.VOUCHED_SECONDS + 1, signed_in.OUTAGE_SECONDS - 1):
        clock[0] = 1000.0 + seconds
        assert service.user_by_name("anna@contoso.com", IMAP).user == ANNA
    clock[0] += sign_in.SUCCESS_SECONDS + signed_in.OUTAGE_SECONDS
    assert service.user_by_name("anna@contoso.com", IMAP).verdict is Verdict.UNAVAILABLE
    assert service.user_by_name("otto@contoso.com", POP3).verdict is Verdict.UNAVAILABLE


def test_a_peers_user_who_is_disabled_or_removed_is_refused_at_the_next_request(
    directory: FewUsers, service: SignInService
) -> None:
    """What is remembered of a user is forgotten with any change."""
    assert service.user_by_name("anna@contoso.com", IMAP).user == ANNA
    directory.put("anna@contoso.com", replace(ANNA, disabled=True))
    assert service.user_by_name("anna@contoso.com", IMAP).reason == "disabled"
    directory.put("anna@contoso.com", None)
    assert service.user_by_name("anna@contoso.com", IMAP).reason == "unknown user"
