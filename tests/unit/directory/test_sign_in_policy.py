"""The policy around a judgement: turns, what is given back, the hook, one line for each decision."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from ipaddress import ip_network
from pathlib import Path

import httpx2
import pytest

from gatepost.directory.policy.hook import PolicyHook
from gatepost.directory.policy.ledger import Ledger, MemoryLedger
from gatepost.directory.policy.penalty import Attempt, Charge
from gatepost.directory.policy.policy import SignInPolicy, TooManySessions
from gatepost.directory.policy.settings import HookSettings, Penalty, PolicySettings, Rule
from gatepost.directory.port import SignInResult, User, Verdict
from gatepost.organization.model import Protocol
from gatepost.routing.outcome import Mailbox
from gatepost.sharedstate import sqlite as shared_state
from gatepost.sharedstate.penalties import open_ledger

ANNA = User("anna@contoso.com", Mailbox("DB01"))
STRANGER = "192.0.2.1"
IMAP = Protocol.IMAP
RIGHT = SignInResult(Verdict.SIGNED_IN, ANNA)
WRONG = SignInResult(Verdict.WRONG_CREDENTIALS, reason="wrong password")
AWAY = SignInResult(Verdict.UNAVAILABLE, reason="the directory is away")


class Stage:
    """A policy whose clock and sleep are the test's."""

    def __init__(self) -> None:
        self.now = 1_000_000.0
        self.slept: list[float] = []
        self.checked: list[tuple[str, float]] = []
        self.gate: asyncio.Event | None = None
        self.make()

    def make(self, settings: PolicySettings | None = None, ledger: Ledger | None = None, **more: object) -> None:
        self.policy = SignInPolicy(
            settings or PolicySettings(), ledger, b"k" * 32, clock=lambda: self.now, sleep=self._sleep, **more
        )  # type: ignore[arg-type]

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        if self.gate is not None:
            await self.gate.wait()
        self.now += seconds

    async def sign_in(
        self, password: str, answer: SignInResult = WRONG, client: str = STRANGER, name: str = ANNA.name
    ) -> SignInResult:
        async def check() -> SignInResult:
            self.checked.append((password, self.now))
            return answer

        return await self.policy.judge(name, name, password, IMAP, client, check)


@pytest.fixture
def stage() -> Stage:
    return Stage()


async def test_wrong_passwords_wait_longer_and_longer(stage: Stage) -> None:
    for guess in range(8):
        assert (await stage.sign_in(f"guess{guess}")).verdict is Verdict.WRONG_CREDENTIALS
    assert stage.slept == [1, 2, 4, 8, 15]


async def test_a_right_password_of_a_penalized_address_gets_in_after_the_delay(stage: Stage) -> None:
    """No stranger can lock a user out."""
    for guess in range(6):
        await stage.sign_in(f"guess{guess}")
    assert (await stage.sign_in("apple", RIGHT)).verdict is Verdict.SIGNED_IN
    assert stage.slept[-1] == 8


async def test_who_signed_in_from_there_before_does_not_wait(stage: Stage) -> None:
    await stage.sign_in("apple", RIGHT)
    for guess in range(6):
        await stage.sign_in(f"guess{guess}", name="otto@contoso.com")
    slept = len(stage.slept)
    assert (await stage.sign_in("apple", RIGHT)).verdict is Verdict.SIGNED_IN
    assert len(stage.slept) == slept


async def test_parallel_guesses_are_told_to_come_back(stage: Stage) -> None:
    """Temporary, never a wrong password: it was not judged."""
    stage.gate = asyncio.Event()
    tasks = [asyncio.ensure_future(stage.sign_in(f"guess{guess}")) for guess in range(50)]
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    while len(done) < 46:
        done, _ = await asyncio.wait(tasks, timeout=0.01)
    stage.gate.set()
    results = await asyncio.gather(*tasks)
    assert [result.verdict for result in results].count(Verdict.BUSY) == 43
    assert len(stage.checked) == 7
    assert stage.policy.refused == 43


async def test_a_fault_is_never_charged(stage: Stage) -> None:
    for guess in range(20):
        assert (await stage.sign_in(f"guess{guess}", AWAY)).verdict is Verdict.UNAVAILABLE
    assert stage.slept == []


async def test_a_check_that_raises_is_never_charged(stage: Stage) -> None:
    async def check() -> SignInResult:
        raise RuntimeError("a bug")

    for guess in range(20):
        with pytest.raises(RuntimeError):
            await stage.policy.judge("anna", ANNA.name, f"guess{guess}", IMAP, STRANGER, check)
    assert stage.slept == []


async def test_a_client_that_leaves_before_its_turn_is_not_charged(stage: Stage) -> None:
    for guess in range(3):
        await stage.sign_in(f"guess{guess}")
    stage.gate = asyncio.Event()
    for guess in range(10):
        task = asyncio.ensure_future(stage.sign_in(f"left{guess}"))
        while not stage.policy.waiting:
            await asyncio.wait([task], timeout=0.001)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert stage.slept == [1] * 10
    assert len(stage.checked) == 3


async def test_trusted_networks_are_spared(stage: Stage) -> None:
    for guess in range(20):
        await stage.sign_in(f"guess{guess}", client="127.0.0.1")
    stage.make(PolicySettings(trusted_networks=(ip_network("10.0.0.0/8"),)))
    for guess in range(20):
        await stage.sign_in(f"guess{guess}", client="10.0.0.1")
    assert stage.slept == []


async def test_a_64_is_one_address(stage: Stage) -> None:
    for guess in range(8):
        await stage.sign_in(f"guess{guess}", client=f"2001:db8::{guess + 1}")
    assert stage.slept == [1, 2, 4, 8, 15]


async def test_not_allowed_is_no_failure(stage: Stage) -> None:
    """The password was right."""
    for guess in range(20):
        await stage.sign_in(f"guess{guess}", SignInResult(Verdict.PROTOCOL_NOT_ALLOWED, ANNA))
    assert stage.slept == []


class AwayLedger(MemoryLedger):
    async def charge(self, attempt: Attempt, penalty: Penalty, now: float) -> Charge | None:
        return None


async def test_while_the_shared_ledger_is_away_each_process_counts_by_itself(stage: Stage) -> None:
    stage.make(ledger=AwayLedger())
    for guess in range(8):
        await stage.sign_in(f"guess{guess}")
    assert stage.slept == [1, 2, 4, 8, 15]
    assert stage.policy.counters()["sign_in.charged_alone"] == 8


async def test_two_workers_share_one_account(stage: Stage, tmp_path: Path) -> None:
    """The file of the shared state: guesses are divided among workers and gain nothing by it."""
    path = str(tmp_path / "shared.sqlite")
    shared_state.prepare(path)
    loop = asyncio.get_running_loop()
    workers = []
    for _ in range(2):
        ledger, writer = open_ledger(path, loop)
        stage.make(ledger=ledger)
        workers.append((stage.policy, writer))
    for guess in range(8):
        stage.policy = workers[guess % 2][0]
        await stage.sign_in(f"guess{guess}")
    assert stage.slept == [1, 2, 4, 8, 15]
    await stage.sign_in("apple", RIGHT, client="192.0.2.7")
    for _, writer in workers:
        writer.close()


async def test_what_is_given_back_is_so_for_all_workers(stage: Stage, tmp_path: Path) -> None:
    path = str(tmp_path / "shared.sqlite")
    shared_state.prepare(path)
    ledger, writer = open_ledger(path, asyncio.get_running_loop())
    stage.make(ledger=ledger)
    for guess in range(20):
        await stage.sign_in(f"guess{guess}", AWAY)
    assert stage.slept == []
    await stage.sign_in("apple", RIGHT)
    charged = await ledger.charge(
        Attempt(b"other!", f"address {STRANGER}/32", f"user {ANNA.name} at {STRANGER}/32"), Penalty(), stage.now
    )
    assert charged is not None
    assert charged.familiar
    writer.close()


async def test_who_leaves_while_being_charged_is_not(tmp_path: Path) -> None:
    path = str(tmp_path / "shared.sqlite")
    shared_state.prepare(path)
    ledger, writer = open_ledger(path, asyncio.get_running_loop())
    for guess in range(6):
        charging = asyncio.ensure_future(ledger.charge(Attempt(bytes([guess] * 6), "address"), Penalty(), 1e6))
        await asyncio.sleep(0)
        charging.cancel()
        await asyncio.gather(charging, return_exceptions=True)
    async with asyncio.timeout(20):
        count = 99
        while count > 2:
            charged = await ledger.charge(Attempt(b"last..", "address"), Penalty(), 1e6)
            count = charged.count if charged is not None else 99
    assert count <= 2
    writer.close()


# --- rules and sessions


def test_rules_and_the_users_own_protocols(stage: Stage) -> None:
    pop3_only = User("otto@contoso.com", Mailbox("DB01"), protocols=frozenset({Protocol.POP3}))
    assert not stage.policy.allows(pop3_only, IMAP, STRANGER)
    stage.make(PolicySettings(rules=(Rule(allow=True),)))
    assert not stage.policy.allows(pop3_only, IMAP, STRANGER), "a rule gives nobody what the directory denies"
    stage.policy.set_settings(PolicySettings(rules=(Rule(allow=False, protocols=frozenset({IMAP})),)))
    assert not stage.policy.allows(ANNA, IMAP, STRANGER)
    assert stage.policy.allows(ANNA, Protocol.HTTPS, STRANGER)


async def test_sessions_of_a_user_and_of_an_address_are_bounded(stage: Stage) -> None:
    stage.make(PolicySettings(sessions_per_user=2, sessions_per_address=3))
    held = [await stage.policy.enter("anna@contoso.com", STRANGER) for _ in range(2)]
    with pytest.raises(TooManySessions, match="user anna"):
        await stage.policy.enter("anna@contoso.com", "192.0.2.9")
    await stage.policy.enter("otto@contoso.com", STRANGER)
    with pytest.raises(TooManySessions, match="address"):
        await stage.policy.enter("emma@contoso.com", STRANGER)
    await stage.policy.enter("emma@contoso.com", "127.0.0.1")
    stage.policy.leave(held[0])
    await stage.policy.enter("anna@contoso.com", STRANGER)
    assert stage.policy.counters()["sign_in.too_many_sessions"] == 2


async def test_without_limits_no_session_is_counted(stage: Stage) -> None:
    assert await stage.policy.enter("anna@contoso.com", STRANGER) == ()


# --- the hook


class Service:
    """A weakforced of this process."""

    def __init__(self) -> None:
        self.status: object = 0
        self.asked: list[tuple[str, dict[str, object]]] = []
        self.fault: Exception | None = None
        self.credentials = ""

    async def answer(self, request: httpx2.Request) -> httpx2.Response:
        if self.fault is not None:
            raise self.fault
        self.credentials = request.headers["authorization"]
        self.asked.append((request.url.query.decode(), json.loads(request.content)))
        return httpx2.Response(200, json={"status": self.status, "msg": "so it is"})


@pytest.fixture
async def service(stage: Stage) -> AsyncIterator[Service]:
    made = Service()
    stage.make(
        hook=PolicyHook(HookSettings("http://127.0.0.1:8084/", "secret", "salt"), httpx2.MockTransport(made.answer))
    )
    yield made
    await stage.policy.close()


def _reports(service: Service) -> list[dict[str, object]]:
    return [body for query, body in service.asked if query == "command=report"]


async def reported(service: Service, count: int) -> list[dict[str, object]]:
    async with asyncio.timeout(10):
        while len(found := _reports(service)) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    return found


async def test_the_hook_is_asked_before_and_told_afterwards(stage: Stage, service: Service) -> None:
    await stage.sign_in("apple", RIGHT)
    report = (await reported(service, 1))[0]
    assert [query for query, _ in service.asked] == ["command=allow", "command=report"]
    asked = service.asked[0][1]
    assert (asked["login"], asked["remote"], asked["protocol"]) == (ANNA.name, STRANGER, "imap")
    assert len(str(asked["pwhash"])) == 3
    assert report["success"] is True
    assert service.credentials.startswith("Basic ")
    assert "apple" not in json.dumps(service.asked)


async def test_the_hook_may_refuse(stage: Stage, service: Service) -> None:
    service.status = -1
    result = await stage.sign_in("apple", RIGHT)
    assert result.verdict is Verdict.BUSY
    assert "so it is" in result.reason
    assert stage.checked == []
    assert (await reported(service, 1))[0]["policy_reject"] is True


async def test_the_hook_may_delay_within_bounds(stage: Stage, service: Service) -> None:
    service.status = 100_000
    await stage.sign_in("apple", RIGHT)
    assert stage.slept == [20.0]


@pytest.mark.parametrize("fault", [httpx2.ConnectError("refused"), httpx2.ReadTimeout("slow")])
async def test_open_while_the_hook_is_away(stage: Stage, service: Service, fault: Exception) -> None:
    service.fault = fault
    assert (await stage.sign_in("apple", RIGHT)).verdict is Verdict.SIGNED_IN


async def test_closed_while_the_hook_is_away(stage: Stage, service: Service) -> None:
    """Temporarily unavailable, not wrong, and nothing is charged."""
    await stage.policy.close()
    settings = HookSettings("http://127.0.0.1:8084/", open_on_failure=False)
    stage.make(hook=PolicyHook(settings, httpx2.MockTransport(service.answer)))
    service.fault = httpx2.ConnectError("refused")
    for guess in range(10):
        assert (await stage.sign_in(f"guess{guess}", RIGHT)).verdict is Verdict.UNAVAILABLE
    assert stage.slept == []
    assert stage.checked == []


async def test_an_answer_that_is_none_is_a_failure(stage: Stage, service: Service) -> None:
    service.status = "perhaps"
    assert (await stage.sign_in("apple", RIGHT)).verdict is Verdict.SIGNED_IN


async def test_what_the_hook_allowed_is_not_asked_for_each_request(stage: Stage, service: Service) -> None:
    assert not stage.policy.answers_from_memory(ANNA.name, IMAP, STRANGER)
    await stage.sign_in("apple", RIGHT)
    assert stage.policy.answers_from_memory(ANNA.name, IMAP, STRANGER)
    assert not stage.policy.answers_from_memory(ANNA.name, IMAP, "192.0.2.2")
    stage.now += 61
    assert not stage.policy.answers_from_memory(ANNA.name, IMAP, STRANGER)


# --- the log


@pytest.fixture
def lines(stage: Stage) -> Callable[[], list[dict[str, object]]]:
    found: list[dict[str, object]] = []

    class Recorder:
        def info(self, event: str, **fields: object) -> None:
            found.append({"event": event, **fields})

    stage.policy._log = Recorder()
    return lambda: found


async def test_one_line_for_each_decision_without_secrets(
    stage: Stage, lines: Callable[[], list[dict[str, object]]]
) -> None:
    for guess in range(5):
        await stage.sign_in(f"guess{guess}")
    await stage.sign_in("guess4")
    await stage.sign_in("apple", RIGHT)
    found = lines()
    assert len(found) == 7
    assert all(line["event"] == "sign_in.decided" and line["user"] == ANNA.name for line in found)
    assert [line["failures"] for line in found] == [1, 2, 3, 4, 5, 5, 5]
    assert found[5]["repeated"] is True
    assert found[4]["password"] == found[5]["password"] != found[3]["password"]
    assert found[4]["waited_seconds"] == 2
    assert "guess" not in json.dumps(found)
    assert "apple" not in json.dumps(found)


async def test_a_name_that_nobody_can_have_is_not_written(
    stage: Stage, lines: Callable[[], list[dict[str, object]]]
) -> None:
    """Some write their password where the name belongs."""

    async def check() -> SignInResult:
        return WRONG

    await stage.policy.judge("my secret password", "", "x", IMAP, STRANGER, check)
    assert "secret" not in json.dumps(lines())
