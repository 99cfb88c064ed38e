"""App passwords: their form, where they count, their last use, and that a removed one opens nothing."""

from __future__ import annotations

import asyncio
import os
import string
from collections.abc import Callable, Iterator
from ipaddress import ip_network
from pathlib import Path

import argon2
import pytest
from few_users import FewUsers
from hypothesis import given
from hypothesis import strategies as st

from gatepost.directory import app_password_uses, passwords
from gatepost.directory.app_password_store import AppPasswordEditor, AppPasswords
from gatepost.directory.app_passwords import LETTERS, MAX_PER_USER, AppPassword, make_secret, secret_digest
from gatepost.directory.editing import DirectoryError
from gatepost.directory.policy.ledger import MemoryLedger
from gatepost.directory.policy.policy import SignInPolicy
from gatepost.directory.policy.settings import PolicySettings, Rule
from gatepost.directory.port import User, Verdict
from gatepost.directory.sign_in import SignInService
from gatepost.organization.model import Protocol
from gatepost.routing.decision import Mailbox
from gatepost.store.sqlite import StoreUnavailable

CHEAP = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
ANNA = User("anna@contoso.com", Mailbox("DB01"), CHEAP.hash("apple"))
OTTO = User("otto@contoso.com", Mailbox("DB01"), CHEAP.hash("pear"), protocols=frozenset({Protocol.POP3}))
GONE = User("gone@contoso.com", Mailbox("DB01"), CHEAP.hash("apple"), disabled=True)
IMAP, HTTPS = Protocol.IMAP, Protocol.HTTPS
CLIENT = "192.0.2.1"
DUMMY = passwords.make_dummy_hash(CHEAP)


async def _no_time(seconds: float) -> None:
    """A penalty's wait."""


class Bench:
    """A sign-in with app passwords in a file of its own."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "app-passwords.sqlite")
        self.editor = AppPasswordEditor(self.path, lambda: self.now)
        self.now = 1_000_000.0
        self.directory = FewUsers(ANNA, OTTO, GONE, sales=ANNA)
        self.ledger = MemoryLedger()
        self.policy = SignInPolicy(PolicySettings(trusted_networks=()), self.ledger, sleep=_no_time)
        self.service = SignInService(
            self.directory,
            "contoso.com",
            waiting_limit=8,
            per_address=8,
            dummy_hash=DUMMY,
            threads=2,
            policy=self.policy,
        )
        self.app_passwords = self.reopen()

    def reopen(self) -> AppPasswords:
        loop = asyncio.get_running_loop()
        self.app_passwords = self.service.app_passwords = AppPasswords(self.path, loop, 0.005, lambda: self.now)
        self.app_passwords.start()
        return self.app_passwords

    def now_(
        self, password: str, protocol: Protocol = IMAP, service: str = "", name: str = ANNA.name
    ) -> Verdict | None:
        result = self.service.password_now(name, password, protocol, CLIENT, service)
        return None if result is None else result.verdict

    async def slow(self, password: str, protocol: Protocol = IMAP, service: str = "", name: str = ANNA.name) -> Verdict:
        return (await self.service.password(name, password, protocol, CLIENT, service)).verdict

    def one(self) -> AppPassword:
        return self.editor.list()[0]

    def close(self) -> None:
        self.app_passwords.close()
        self.service.close()
        self.editor.__exit__()


@pytest.fixture
async def bench(tmp_path: Path) -> Iterator[Bench]:  # type: ignore[misc]
    made = Bench(tmp_path)
    yield made
    made.close()


async def _until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - a file changes
            await asyncio.sleep(0.005)


# --- the form


def test_a_secret_has_130_random_bits_in_groups_that_people_can_type() -> None:
    secret = make_secret()
    groups = secret.split("-")
    assert [len(group) for group in groups] == [4] * 7
    assert set("".join(groups)) <= set(LETTERS)
    assert make_secret() != secret


def test_hyphens_spaces_and_case_do_not_matter() -> None:
    secret = make_secret()
    assert secret_digest(secret) is not None
    spelled = {secret, secret.replace("-", ""), secret.replace("-", " "), secret.upper()}
    assert len({secret_digest(each) for each in spelled}) == 1


@given(st.integers(0, 27), st.sampled_from(LETTERS), st.integers(0, 2**32))
def test_a_slip_of_the_keyboard_is_almost_always_none(at: int, letter: str, seed: int) -> None:
    """Two check letters: one slip in 1024 has the form of another secret, and is that of nobody."""
    import random

    secret = make_secret(random.Random(seed).choice).replace("-", "")
    slipped = secret[:at] + letter + secret[at + 1 :]
    assert slipped == secret or secret_digest(slipped) != secret_digest(secret)


@given(st.text(alphabet=string.printable, max_size=40))
def test_what_people_choose_is_none(password: str) -> None:
    assert secret_digest(password) is None


# --- where they count


async def test_it_opens_at_once_without_argon2_and_says_which_it_was(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = bench.editor.add(ANNA.name, "phone")

    def no_hash(*_: object) -> bool:
        raise AssertionError("argon2 was asked")

    monkeypatch.setattr(passwords, "check", no_hash)
    result = bench.service.password_now("anna", secret, IMAP, CLIENT)
    assert result is not None
    assert (result.verdict, result.user) == (Verdict.SIGNED_IN, ANNA)
    assert (result.app_password, result.proof) == (bench.one().id, b"")
    assert bench.now_(secret, name="sales@contoso.com") is Verdict.SIGNED_IN, "an alias will do"
    assert await bench.slow(secret) is Verdict.SIGNED_IN


async def test_it_counts_for_its_protocols_and_services_alone(bench: Bench) -> None:
    secret = bench.editor.add(ANNA.name, "phone", frozenset({"imap", "activesync"}))
    assert bench.now_(secret, IMAP) is Verdict.SIGNED_IN
    assert bench.now_(secret, Protocol.POP3) is Verdict.PROTOCOL_NOT_ALLOWED
    assert bench.now_(secret, HTTPS, "Microsoft-Server-ActiveSync") is Verdict.SIGNED_IN
    assert bench.now_(secret, HTTPS, "ews") is Verdict.PROTOCOL_NOT_ALLOWED
    assert bench.now_(secret, HTTPS) is Verdict.PROTOCOL_NOT_ALLOWED
    everything = bench.editor.add(ANNA.name, "web", frozenset({"https"}))
    assert bench.now_(everything, HTTPS, "ews") is Verdict.SIGNED_IN


async def test_it_counts_from_its_networks_alone(bench: Bench) -> None:
    here = bench.editor.add(ANNA.name, "office", networks=(ip_network("192.0.2.0/24"),))
    elsewhere = bench.editor.add(ANNA.name, "home", networks=(ip_network("198.51.100.0/24"),))
    assert bench.now_(here) is Verdict.SIGNED_IN
    assert bench.now_(elsewhere) is Verdict.PROTOCOL_NOT_ALLOWED


async def test_an_expired_one_is_wrong(bench: Bench) -> None:
    secret = bench.editor.add(ANNA.name, "trip", expires=int(bench.now) + 60)
    assert bench.now_(secret) is Verdict.SIGNED_IN
    bench.now += 60
    assert bench.now_(secret) is None
    assert await bench.slow(secret) is Verdict.WRONG_CREDENTIALS


async def test_another_users_is_wrong_and_a_disabled_user_has_none(bench: Bench) -> None:
    secret = bench.editor.add(ANNA.name, "phone")
    gone = bench.editor.add(GONE.name, "phone")
    assert await bench.slow(secret, Protocol.POP3, name=OTTO.name) is Verdict.WRONG_CREDENTIALS
    assert await bench.slow(secret, name="nobody@contoso.com") is Verdict.WRONG_CREDENTIALS
    assert await bench.slow(gone, name=GONE.name) is Verdict.WRONG_CREDENTIALS


async def test_the_users_own_protocols_bind_it_too(bench: Bench) -> None:
    secret = bench.editor.add(OTTO.name, "phone")
    assert bench.now_(secret, IMAP, name=OTTO.name) is Verdict.PROTOCOL_NOT_ALLOWED
    assert bench.now_(secret, Protocol.POP3, name=OTTO.name) is Verdict.SIGNED_IN


async def test_the_sign_in_page_takes_none(bench: Bench) -> None:
    secret = bench.editor.add(ANNA.name, "phone")
    assert bench.service.password_now(ANNA.name, secret, HTTPS, CLIENT, "owa", page=True) is None
    result = await bench.service.password(ANNA.name, secret, HTTPS, CLIENT, "owa", page=True)
    assert result.verdict is Verdict.WRONG_CREDENTIALS


async def test_the_own_password_goes_on_beside_it(bench: Bench) -> None:
    """And what is remembered of the one is not taken for the other."""
    secret = bench.editor.add(ANNA.name, "phone")
    assert await bench.slow("apple") is Verdict.SIGNED_IN
    assert await bench.slow(secret) is Verdict.SIGNED_IN
    known = bench.service.password_now(ANNA.name, "apple", IMAP, CLIENT)
    assert known is not None
    assert known.app_password == 0


# --- what wrong ones cost


async def test_a_wrong_one_is_one_penalty(bench: Bench) -> None:
    """Distinct wrong ones are charged, the same one again is not."""
    for _ in range(3):
        wrong = make_secret()
        assert await bench.slow(wrong) is Verdict.WRONG_CREDENTIALS
        assert await bench.slow(wrong) is Verdict.WRONG_CREDENTIALS
    assert bench.ledger._accounts[f"address {CLIENT}/32"].count == 3


async def test_a_right_one_does_not_wait_behind_wrong_passwords(bench: Bench) -> None:
    secret = bench.editor.add(ANNA.name, "phone")
    for guess in range(4):
        assert await bench.slow(f"guess {guess}") is Verdict.WRONG_CREDENTIALS
    assert bench.now_(secret) is Verdict.SIGNED_IN


# --- main passwords that do not count


def _only_apps(*words: str, users: frozenset[str] = frozenset()) -> PolicySettings:
    protocols = frozenset(Protocol(word) for word in words if word in {p.value for p in Protocol})
    services = frozenset(words) - protocols
    rule = Rule(allow=False, protocols=protocols, services=frozenset(services), users=users)
    return PolicySettings(trusted_networks=(), main_passwords=(rule,))


async def test_where_main_passwords_do_not_count_a_right_one_is_answered_like_a_wrong_one(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not even looked at, so nobody finds out there."""
    secret = bench.editor.add(ANNA.name, "phone")
    assert await bench.slow("apple") is Verdict.SIGNED_IN
    bench.policy.set_settings(_only_apps("imap", "activesync"))
    checked: list[str] = []
    real = passwords.check

    def check(stored: str, tries: tuple[bytes, ...]) -> bool:
        checked.append(stored)
        return real(stored, tries)

    monkeypatch.setattr(passwords, "check", check)
    assert await bench.slow("apple") is Verdict.WRONG_CREDENTIALS
    assert await bench.slow("wrong") is Verdict.WRONG_CREDENTIALS
    assert checked == [DUMMY, DUMMY]
    assert bench.now_(secret) is Verdict.SIGNED_IN
    assert await bench.slow("apple", Protocol.POP3) is Verdict.SIGNED_IN
    assert await bench.slow("apple", HTTPS, "microsoft-server-activesync") is Verdict.WRONG_CREDENTIALS
    assert await bench.slow("apple", HTTPS, "owa") is Verdict.SIGNED_IN


async def test_also_while_the_directory_is_down(bench: Bench) -> None:
    assert await bench.slow("apple") is Verdict.SIGNED_IN
    bench.policy.set_settings(_only_apps("imap"))
    bench.directory.down = True
    assert await bench.slow("apple") is Verdict.UNAVAILABLE


async def test_for_those_users_alone_whom_the_rule_names(bench: Bench) -> None:
    bench.policy.set_settings(_only_apps("imap", users=frozenset({OTTO.name})))
    assert await bench.slow("apple") is Verdict.SIGNED_IN


# --- faults


async def test_a_file_that_is_away_never_looks_like_a_wrong_password(bench: Bench) -> None:
    secret = bench.editor.add(ANNA.name, "phone")
    bench.app_passwords.close()
    bench.editor.__exit__()
    os.rename(bench.path, bench.path + ".away")
    bench.reopen()
    assert bench.now_(secret) is None
    assert await bench.slow(secret) is Verdict.UNAVAILABLE
    assert await bench.slow("apple") is Verdict.SIGNED_IN, "what has not the form is not asked for there"
    os.rename(bench.path + ".away", bench.path)
    await _until(lambda: bench.now_(secret) is Verdict.SIGNED_IN)
    bench.editor = AppPasswordEditor(bench.path, lambda: bench.now)


async def test_while_the_directory_is_down_it_is_unavailable(bench: Bench) -> None:
    secret = bench.editor.add(ANNA.name, "phone")
    bench.directory.down = True
    assert await bench.slow(secret) is Verdict.UNAVAILABLE


# --- removal


async def test_a_removed_one_opens_nothing_from_that_moment_on(bench: Bench) -> None:
    secret = bench.editor.add(ANNA.name, "phone")
    assert bench.now_(secret) is Verdict.SIGNED_IN
    assert bench.editor.remove(ANNA.name, "phone") == 1
    assert bench.now_(secret) is None
    assert await bench.slow(secret) is Verdict.WRONG_CREDENTIALS


async def test_whoever_follows_is_told_of_removals_and_of_nothing_else(bench: Bench) -> None:
    told: list[bool] = []
    bench.editor.add(ANNA.name, "phone")
    number = bench.one().id
    bench.app_passwords.on_removed(lambda: told.append(bench.app_passwords.is_there(number)))
    bench.editor.add(ANNA.name, "tablet")
    bench.app_passwords.uses.note(number, "imap", CLIENT)
    bench.editor.remove(ANNA.name, "phone")
    await _until(lambda: told)
    assert told == [False]
    bench.editor.add(ANNA.name, "phone")
    assert bench.editor.list(ANNA.name)[0].id > number, "no number is used again"


# --- the last use


async def test_the_last_use_is_written_later_and_together(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_password_uses, "WRITE_SECONDS", 0.01)
    secret = bench.editor.add(ANNA.name, "phone")
    bench.now_(secret, HTTPS, "microsoft-server-activesync")
    assert bench.one().used == 0, "never within the sign-in itself"
    await _until(lambda: bench.one().used)
    found = bench.one()
    assert (found.used, found.used_word, found.used_address) == (1_000_000, "activesync", CLIENT)


async def test_a_worker_that_ends_writes_what_it_has_noted(bench: Bench) -> None:
    secret = bench.editor.add(ANNA.name, "phone")
    bench.now_(secret)
    bench.app_passwords.close()
    assert bench.one().used_word == "imap"
    bench.reopen()


async def test_a_later_use_is_not_overwritten_by_an_earlier_one(bench: Bench) -> None:
    secret = bench.editor.add(ANNA.name, "phone")
    bench.now_(secret)
    first = bench.app_passwords
    bench.now += 100
    second = bench.reopen()
    bench.now_(secret, Protocol.POP3)
    second.close()
    first.close()
    assert (bench.one().used, bench.one().used_word) == (1_000_100, "pop3")
    bench.reopen()


async def test_uses_that_cannot_be_written_wait(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_password_uses, "WRITE_SECONDS", 0.01)
    secret = bench.editor.add(ANNA.name, "phone")
    real = app_password_uses._commit
    failures: list[int] = []

    def commit(*arguments: object) -> None:
        if len(failures) < 2:
            failures.append(1)
            raise StoreUnavailable("the disk is full")
        real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(app_password_uses, "_commit", commit)
    bench.now_(secret)
    await _until(lambda: bench.one().used)
    assert len(failures) == 2


# --- what commands may store


async def test_names_are_unique_for_a_user_and_bounded(bench: Bench) -> None:
    bench.editor.add(ANNA.name, "phone")
    bench.editor.add(OTTO.name, "phone")
    for name in ("phone", "", " ", "x" * 65, "line\nbreak"):
        with pytest.raises(DirectoryError):
            bench.editor.add(ANNA.name, name)
    with pytest.raises(DirectoryError, match="expired already"):
        bench.editor.add(ANNA.name, "old", expires=1)
    for number in range(MAX_PER_USER - 1):
        bench.editor.add(ANNA.name, f"n{number}")
    with pytest.raises(DirectoryError, match="already"):
        bench.editor.add(ANNA.name, "one more")
    assert bench.editor.remove(ANNA.name, None) == MAX_PER_USER
    assert [each.user for each in bench.editor.list()] == [OTTO.name]


async def test_no_secret_is_in_the_file(bench: Bench) -> None:
    secret = bench.editor.add(ANNA.name, "phone")
    data = b"".join(path.read_bytes() for path in Path(bench.path).parent.iterdir())
    assert secret.encode() not in data
    assert secret.replace("-", "").encode() not in data
