"""SCRAM at the sign-in: right and wrong proofs, decoys, the policy, faults; and PLAIN against the same keys."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import replace

import argon2
import pytest
from few_users import FewUsers
from scram_client import ScramClient

from gatepost.configuration.settings import FrontEnd
from gatepost.directory import passwords, scram_keys
from gatepost.directory.kerberos_port import Challenge
from gatepost.directory.open import use_other_ways
from gatepost.directory.passwords import BadPasswordHash
from gatepost.directory.policy.ledger import MemoryLedger
from gatepost.directory.policy.policy import SignInPolicy
from gatepost.directory.policy.settings import PolicySettings, Rule
from gatepost.directory.port import SignInResult, User, Verdict
from gatepost.directory.schemes import stored_hash
from gatepost.directory.scram import ScramExchange
from gatepost.directory.settings import ScramSettings
from gatepost.directory.sign_in import SignInService
from gatepost.organization.model import Protocol
from gatepost.routing.decision import Mailbox

CHEAP = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
HASH = scram_keys.make_hash("pencil", 4096)
ANNA = User("anna@contoso.com", Mailbox("DB01"), HASH)
OTTO = User("otto@contoso.com", Mailbox("DB01"), CHEAP.hash("pencil"))
GONE = User("gone@contoso.com", Mailbox("DB01"), HASH, disabled=True)
POPS = User("pops@contoso.com", Mailbox("DB01"), HASH, protocols=frozenset({Protocol.POP3}))
IMAP = Protocol.IMAP
CLIENT = "192.0.2.1"
DUMMY = passwords.make_dummy_hash(CHEAP)


class Bench:
    """A sign-in with SCRAM."""

    def __init__(self) -> None:
        self.directory = FewUsers(ANNA, OTTO, GONE, POPS, sales=ANNA)
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
        self.service.scram = ScramSettings(frozenset({IMAP}), 4096)

    def begin(self, mechanism: str = "SCRAM-SHA-256", **bindings: bytes) -> ScramExchange:
        kinds = {kind.replace("_", "-"): octets for kind, octets in bindings.items()}
        return self.service.begin_scram(mechanism, IMAP, CLIENT, kinds, offers_plus=bool(kinds))

    async def sign_in(self, name: str, password: str = "pencil") -> SignInResult:
        client, exchange = ScramClient(name, password), self.begin()
        outcome = await exchange.step(client.first())
        assert isinstance(outcome, Challenge)
        outcome = await exchange.step(client.last(outcome.token))
        if isinstance(outcome, Challenge):
            assert client.believes(outcome.token)
            outcome = await exchange.step(b"")
        assert isinstance(outcome, SignInResult)
        return outcome

    async def challenge(self, name: str) -> tuple[bytes, int]:
        client = ScramClient(name, "")
        outcome = await self.begin().step(client.first())
        assert isinstance(outcome, Challenge)
        client.last(outcome.token)
        return client.salt, client.iterations

    def count(self) -> int:
        account = self.ledger._accounts.get(f"address {CLIENT}/32")
        return account.count if account is not None else 0


async def _no_time(seconds: float) -> None:
    """A penalty's wait."""


@pytest.fixture
async def bench() -> Iterator[Bench]:  # type: ignore[misc]
    made = Bench()
    yield made
    made.service.close()


async def test_a_right_proof_signs_in_and_costs_nothing(bench: Bench) -> None:
    for name in ("anna@contoso.com", "Anna", "sales"):
        result = await bench.sign_in(name)
        assert (result.verdict, result.user) == (Verdict.SIGNED_IN, ANNA)
    assert bench.count() == 0


@pytest.mark.parametrize(
    ("name", "password", "reason"),
    [
        ("anna", "pencils", "wrong password"),
        ("nobody", "pencil", "unknown user"),
        ("gone", "pencil", "disabled"),
        ("otto", "pencil", "has no SCRAM keys"),
        ("a b", "pencil", "no possible name: a space or control character"),
    ],
)
async def test_everything_else_is_wrong_alike_and_the_log_knows_why(
    bench: Bench, name: str, password: str, reason: str
) -> None:
    result = await bench.sign_in(name, password)
    assert (result.verdict, result.reason) == (Verdict.WRONG_CREDENTIALS, reason)
    assert bench.count() == 1


async def test_each_wrong_proof_is_charged(bench: Bench) -> None:
    """Whether two were made of one wrong password cannot be told."""
    for _ in range(2):
        assert (await bench.sign_in("anna", "wrong")).verdict is Verdict.WRONG_CREDENTIALS
    assert bench.count() == 2
    assert (await bench.sign_in("anna")).verdict is Verdict.SIGNED_IN
    assert bench.count() == 2, "what is right takes its own charge off, no other"


async def test_who_only_asks_for_a_challenge_is_charged_nothing(bench: Bench) -> None:
    for _ in range(20):
        await bench.challenge("anna")
    assert bench.count() == 0


async def test_nobody_is_told_which_users_there_are(bench: Bench) -> None:
    """A decoy looks like what a user has, is the same each time, and another one for another name."""
    real = await bench.challenge("anna")
    decoys = [await bench.challenge(name) for name in ("nobody", "Nobody@contoso.com", "someone", "otto", "gone")]
    assert decoys[0] == decoys[1]
    assert len({salt for salt, _ in [real, *decoys]}) == 5
    assert {(len(salt), iterations) for salt, iterations in [real, *decoys]} == {(16, 4096)}


async def test_decoys_are_the_same_at_all_front_ends_with_one_certificate(bench: Bench) -> None:
    import trustme

    other = Bench()
    certificate = trustme.CA().issue_cert("mail.contoso.com")
    front_end = FrontEnd(
        "CAS-01", "", "", private_key=certificate.private_key_pem.bytes(), scram=ScramSettings(frozenset({IMAP}), 4096)
    )
    assert await bench.challenge("nobody") != await other.challenge("nobody")
    for each in (bench, other):
        use_other_ways(each.service, front_end)
    assert await bench.challenge("nobody") == await other.challenge("nobody")
    other.service.close()


async def test_protocols_and_rules_bind_it(bench: Bench) -> None:
    assert (await bench.sign_in("pops")).verdict is Verdict.PROTOCOL_NOT_ALLOWED
    rule = Rule(allow=False, protocols=frozenset({IMAP}))
    bench.policy.set_settings(PolicySettings(trusted_networks=(), main_passwords=(rule,)))
    assert (await bench.sign_in("anna")).verdict is Verdict.WRONG_CREDENTIALS


async def test_faults_never_look_like_a_wrong_password(bench: Bench) -> None:
    client, exchange = ScramClient("anna", "pencil"), bench.begin()
    outcome = await exchange.step(client.first())
    assert isinstance(outcome, Challenge)
    bench.directory.down = True
    outcome = await exchange.step(client.last(outcome.token))
    assert isinstance(outcome, SignInResult)
    assert outcome.verdict is Verdict.UNAVAILABLE
    outcome = await bench.begin().step(client.first())
    assert isinstance(outcome, SignInResult)
    assert outcome.verdict is Verdict.UNAVAILABLE
    assert bench.count() == 0


async def test_a_user_who_is_changed_meanwhile_comes_again(bench: Bench) -> None:
    client, exchange = ScramClient("anna", "pencil"), bench.begin()
    outcome = await exchange.step(client.first())
    assert isinstance(outcome, Challenge)
    bench.directory.users[ANNA.name] = replace(ANNA, password_hash=scram_keys.make_hash("other", 4096))
    outcome = await exchange.step(client.last(outcome.token))
    assert isinstance(outcome, SignInResult)
    assert outcome.verdict is Verdict.UNAVAILABLE


async def test_an_exchange_that_is_none_is_refused_without_a_charge(bench: Bench) -> None:
    for message in (b"", b"hello", b"p=tls-unique,,n=anna,r=x"):
        outcome = await bench.begin().step(message)
        assert isinstance(outcome, SignInResult)
        assert outcome.reason.startswith("SCRAM: ")
    assert bench.count() == 0


async def test_a_last_word_too_many(bench: Bench) -> None:
    client, exchange = ScramClient("anna", "pencil"), bench.begin()
    first = await exchange.step(client.first())
    assert isinstance(first, Challenge)
    assert isinstance(await exchange.step(client.last(first.token)), Challenge)
    outcome = await exchange.step(b"more")
    assert isinstance(outcome, SignInResult)
    assert outcome.verdict is Verdict.WRONG_CREDENTIALS


async def test_a_bound_channel(bench: Bench) -> None:
    client = ScramClient("anna", "pencil", b"p=tls-unique,,", b"ours")
    exchange = bench.begin("SCRAM-SHA-256-PLUS", tls_unique=b"ours")
    first = await exchange.step(client.first())
    assert isinstance(first, Challenge)
    assert isinstance(await exchange.step(client.last(first.token)), Challenge)
    between = ScramClient("anna", "pencil", b"p=tls-unique,,", b"of somebody in between")
    exchange = bench.begin("SCRAM-SHA-256-PLUS", tls_unique=b"ours")
    first = await exchange.step(between.first())
    assert isinstance(first, Challenge)
    outcome = await exchange.step(between.last(first.token))
    assert isinstance(outcome, SignInResult)
    assert outcome.reason == "SCRAM: the channel bindings do not match"


async def test_it_says_who_wants_to_act_as_whom(bench: Bench) -> None:
    exchange = bench.begin()
    await exchange.step(b"n,a=other,n=anna,r=x")
    assert (exchange.credentials.authentication_id, exchange.credentials.authorization_id) == ("anna", "other")
    assert exchange.credentials.password == ""


async def test_plain_goes_on_beside_it(bench: Bench) -> None:
    assert (await bench.service.password("anna", "pencil", IMAP, CLIENT)).verdict is Verdict.SIGNED_IN
    assert (await bench.service.password("anna", "pencils", IMAP, CLIENT)).verdict is Verdict.WRONG_CREDENTIALS
    known = bench.service.password_now("anna", "pencil", IMAP, CLIENT)
    assert known is not None


def test_a_password_is_prepared() -> None:
    """Whether a client says `é` in one character or two, or another space, is the same to SASLprep."""
    stored = scram_keys.make_hash("caf\u00e9\u00a0x", 4096)
    assert passwords.check(stored, ("cafe\u0301 x".encode(),))
    assert not passwords.check(stored, (b"cafe x",))
    odd = scram_keys.make_hash("a\ue000", 4096)
    assert passwords.check(odd, ("a\ue000".encode(),)), "what SASLprep prohibits is taken as it is"


def test_stores_spell_keys_in_several_ways() -> None:
    """Dovecot's, in any case, and PostgreSQL's (RFC 5803)."""
    fields = HASH.removeprefix(scram_keys.MARK)
    assert stored_hash(HASH, allow_plain=False) == HASH
    assert stored_hash("{scram-sha-256}" + fields, allow_plain=False) == HASH
    iterations, salt, stored, server = fields.split(",")
    assert stored_hash(f"SCRAM-SHA-256${iterations}:{salt}${stored}:{server}", allow_plain=False) == HASH


SALT, KEY = base64.b64encode(bytes(16)).decode(), base64.b64encode(bytes(32)).decode()


@pytest.mark.parametrize(
    "fields",
    [
        "", f"4096,{SALT},{KEY}", f"4095,{SALT},{KEY},{KEY}", f"1000001,{SALT},{KEY},{KEY}", f"x,{SALT},{KEY},{KEY}",
        f"99999999999,{SALT},{KEY},{KEY}", f"4096,AAAA,{KEY},{KEY}", f"4096,{SALT},{SALT},{KEY}",
        f"4096,{SALT},{KEY},%%%", f"-4096,{SALT},{KEY},{KEY}",
    ],
)  # fmt: skip
def test_keys_that_cannot_be_used(fields: str) -> None:
    """What is broken, too weak, or so costly that it would hold up clients and workers."""
    for check in (scram_keys.read_keys, passwords.require_usable_hash):
        with pytest.raises(BadPasswordHash):
            check(scram_keys.MARK + fields)
    with pytest.raises(BadPasswordHash):
        stored_hash(scram_keys.MARK + fields, allow_plain=False)


def test_dovecot_reads_what_is_made_and_the_other_way_round() -> None:
    import shutil
    import subprocess

    if shutil.which("doveadm") is None:
        pytest.skip("apt-get install dovecot-core")
    made = subprocess.run(
        ["doveadm", "-O", "pw", "-s", "SCRAM-SHA-256", "-p", "pencil"], capture_output=True, text=True, check=True
    ).stdout.strip()
    assert passwords.check(stored_hash(made, allow_plain=False), (b"pencil",))
    verified = subprocess.run(
        ["doveadm", "-O", "pw", "-t", HASH, "-p", "pencil"], capture_output=True, text=True, check=False
    )
    assert "verified" in verified.stdout, verified.stderr
