"""IMAP sessions through the door, with real sockets and a scripted mailbox server."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import struct
from dataclasses import replace
from ipaddress import ip_network

import pytest
from stage import AUTHORITY, LIMITS, stage, until

from gatepost.access import listener
from gatepost.access.admission import Admission
from gatepost.access.mail_client import MailClientLeg
from gatepost.directory.port import Verdict
from gatepost.organization.model import ClientAddress, Endpoint, Protocol, SignIn, SignInForm, Site, TlsMode, Version
from gatepost.organization.names import MAX_LOGIN_NAME
from gatepost.relay.relay import Relay
from gatepost.wire.proxy_protocol import encode_v2

LOGIN = b"a LOGIN alice secret-apw\r\n"


async def test_sign_in_reaches_the_active_copy_and_relays() -> None:
    """The tagged answer carries the server's own capabilities; after it every byte passes."""
    async with stage() as s:
        client = await s.connect()
        assert (await client.line()).startswith(b"* OK [CAPABILITY IMAP4rev1")
        answer = await client.tagged(LOGIN)
        assert answer.startswith(b"a OK [CAPABILITY IMAP4rev1 IDLE MBX-01]")
        assert await client.say(b"b NOOP\r\n") == b"b OK done by MBX-01\r\n"
        client.close()
        await until(lambda: s.log_lines("imap.session"))
        line = s.log_lines("imap.session")[0]
        assert (line["outcome"], line["server"], line["user"]) == ("signed in", "MBX-01", "alice@contoso.com")
        assert (line["bytes_in"], line["bytes_out"]) == (8, 21)
        assert s.sign_in.ended == [("alice@contoso.com", b"right")]


async def test_bytes_pipelined_after_the_sign_in_arrive_once_and_after_it() -> None:
    """Field case 35."""
    async with stage() as s:
        client = await s.connect()
        await client.line()
        client.writer.write(LOGIN + b"b SELECT INBOX\r\nc FETCH 1 (FLAGS)\r\n")
        lines = [await client.line() for _ in range(3)]
        assert [line.split()[0] for line in lines] == [b"a", b"b", b"c"]
        got = s.servers["MBX-01"].lines
        assert got[-2:] == [b"b SELECT INBOX\r\n", b"c FETCH 1 (FLAGS)\r\n"]
        assert sum(b"SELECT" in line for line in got) == 1


async def test_wrong_credentials_are_refused_and_the_dialogue_goes_on() -> None:
    """And a name the cache does not know takes the slower way to the same words."""
    async with stage() as s:
        client = await s.connect()
        await client.line()
        first = await client.tagged(b"a LOGIN alice wrong\r\n")
        second = await client.tagged(b"b LOGIN nobody wrong\r\n")
        assert first.startswith(b"a NO [AUTHENTICATIONFAILED]")
        assert second[1:] == first[1:]
        assert (await client.tagged(b"c LOGIN alice secret-apw\r\n")).startswith(b"c OK")


@pytest.mark.parametrize("verdict", [Verdict.UNAVAILABLE, Verdict.BUSY])
async def test_a_directory_that_is_down_never_looks_like_a_wrong_password(verdict: Verdict) -> None:
    """Field case 112."""
    async with stage() as s:
        s.sign_in.verdict = verdict
        client = await s.connect()
        await client.line()
        assert (await client.tagged(LOGIN)).startswith(b"a NO [UNAVAILABLE]")


async def test_busy_is_answered_late_and_ends_a_connection_that_goes_on() -> None:
    """Guessing faster than passwords are checked takes as long as guessing wrong, and ends the same way."""
    async with stage(replace(LIMITS, refused_sign_in_delay_seconds=0.05, sign_in_attempts=2)) as s:
        client = await s.connect()
        s.sign_in.verdict = Verdict.BUSY
        await client.line()
        for tag in (b"a", b"b"):
            begin = s.door.loop.time()
            assert (await client.say(tag + b" LOGIN bob guess\r\n")).startswith(tag + b" NO [UNAVAILABLE] ")
            assert s.door.loop.time() - begin >= 0.049
        assert (await client.rest()).startswith(b"* BYE ")
        assert s.sign_in.clients == ["127.0.0.1"] * 2
        (line,) = s.log_lines("imap.refused")
        assert (line["client"], line["refusal"], line["count"]) == ("127.0.0.1", "busy", 1)


async def test_a_server_that_is_down_is_unavailable_and_both_attempts_are_logged() -> None:
    """Field cases 111 and 114."""
    async with stage() as s:
        with socket.create_server(("127.0.0.1", 0)) as closed:
            port = closed.getsockname()[1]
        mbx = s.configuration.organization.servers["MBX-01"]
        dead = replace(mbx, endpoints=(replace(mbx.endpoints[0], port=port),))
        s.configuration.organization.servers["MBX-01"] = dead
        client = await s.connect()
        await client.line()
        assert (await client.tagged(LOGIN)).startswith(b"a NO [UNAVAILABLE]")
        attempts = s.log_lines("imap.refused")[0]["attempts"]
        assert len(attempts) == 2
        assert all("MBX-01" in attempt for attempt in attempts)


async def test_the_second_attempt_goes_where_the_active_copy_is_now() -> None:
    """The database moves while the first attempt is failing."""
    async with stage() as s:
        s.servers["MBX-01"].greeting = b"* BYE shutting down\r\n"
        client = await s.connect()
        await client.line()
        client.writer.write(LOGIN)
        await until(lambda: s.servers["MBX-01"].connections)
        s.router.set_view(s.view("MBX-02", 2))
        line = await client.line()
        assert b"MBX-02" in line
        assert await client.say(b"b NOOP\r\n") == b"b OK done by MBX-02\r\n"


@pytest.mark.parametrize(
    ("greeting", "answer"),
    [
        (None, b"%s OK never\r\n"),
        (b"* BYE no\r\n", b"%s OK never\r\n"),
        (b"* PREAUTH come in\r\n", b"%s OK never\r\n"),
        (b"garbage\r\n", b"%s OK never\r\n"),
        (b"x" * 100_000, b"%s OK never\r\n"),
        (b"* OK hi\r\n", b"%s NO [AUTHENTICATIONFAILED] wrong password\r\n"),
        (b"* OK hi\r\n", b"%s BAD what\r\n"),
        (b"* OK hi\r\n", b"* flood\r\n" * 5000),
    ],
)
async def test_whatever_a_server_does_wrong_is_unavailable(greeting: bytes | None, answer: bytes) -> None:
    """Silence, BYE, PREAUTH, garbage, floods; and a refusal of credentials that were judged right (field case 76)."""
    async with stage() as s:
        server = s.servers["MBX-01"]
        server.greeting, server.login_answer = greeting, answer
        client = await s.connect()
        await client.line()
        assert (await client.tagged(LOGIN)).startswith(b"a NO [UNAVAILABLE]")
        assert (await client.tagged(b"b NOOP\r\n")).startswith(b"b OK")


async def test_a_sign_in_that_takes_too_long_ends_with_bye() -> None:
    """Field case 103: the deadline is absolute; counts return to zero."""
    async with stage(replace(LIMITS, sign_in_seconds=0.2)) as s:
        client = await s.connect()
        await client.line()
        client.writer.write(b"a NOOP\r\n")
        await client.line()
        assert (await client.rest()).startswith(b"* BYE")
        assert s.admission.sessions == 0
        assert s.log_lines("imap.session")[0]["outcome"] == "no sign-in"


async def test_one_address_may_not_fill_the_door() -> None:
    """Over the limit the client is told and closed; a place is free again when another leaves."""
    async with stage(replace(LIMITS, unauthenticated_per_address=2)) as s:
        port = await s.listen()
        inside = [await s.connect(port), await s.connect(port)]
        for client in inside:
            await client.line()
        turned_away = await s.connect(port)
        assert (await turned_away.rest()).startswith(b"* BYE")
        inside[0].close()
        await until(lambda: s.admission.sessions == 1)
        assert (await (await s.connect(port)).line()).startswith(b"* OK")


async def test_nobody_signs_in_as_somebody_else() -> None:
    """SASL PLAIN with another authorization identity is refused; with one's own it is fine."""
    async with stage() as s:
        client = await s.connect()
        await client.line()
        other = b"a AUTHENTICATE PLAIN Ym9iAGFsaWNlAHNlY3JldC1hcHc=\r\n"  # bob, alice, secret-apw
        assert (await client.tagged(other)).startswith(b"a NO [AUTHENTICATIONFAILED]")


async def test_a_drain_turns_strangers_away_and_ends_sessions_at_the_deadline() -> None:
    """Sessions go on until then, and end with BYE."""
    async with stage() as s:
        port = await s.listen()
        stranger, member = await s.connect(port), await s.connect(port)
        await stranger.line()
        await member.line()
        await member.tagged(LOGIN)
        draining = asyncio.ensure_future(s.door.drain(1.0))
        assert (await stranger.rest()).startswith(b"* BYE")
        assert await member.say(b"b NOOP\r\n") == b"b OK done by MBX-01\r\n"
        assert await member.line() == b"* BYE [UNAVAILABLE] this server is going down\r\n"
        assert await member.rest() == b""
        await draining
        assert s.log_lines("imap.session")[-1]["reason"] == "drained"


async def test_a_drain_ends_as_soon_as_the_last_session_has() -> None:
    """No waiting for a deadline with nobody inside."""
    async with stage() as s:
        client = await s.connect()
        await client.line()
        await client.tagged(LOGIN)
        draining = asyncio.ensure_future(s.door.drain(60))
        await asyncio.sleep(0)
        client.close()
        await asyncio.wait_for(draining, 3)


def tls_client() -> ssl.SSLContext:
    """A client that trusts the test's authority."""
    context = ssl.create_default_context()
    AUTHORITY.configure_trust(context)
    return context


async def test_starttls_then_sign_in() -> None:
    """And what was sent ahead in clear is not taken for a command (field case 79)."""
    async with stage() as s:
        client = await s.connect()
        await client.line()
        client.writer.write(b"a STARTTLS\r\nb LOGIN alice secret-apw\r\n")
        assert (await client.line()).startswith(b"a OK")
        await client.writer.start_tls(tls_client(), server_hostname="front.contoso.com")
        assert (await client.say(b"c NOOP\r\n")).startswith(b"c OK")
        assert (await client.tagged(b"d LOGIN alice secret-apw\r\n")).startswith(b"d OK")
        assert sum(b"LOGIN" in line for line in s.servers["MBX-01"].lines) == 1


async def test_implicit_tls_and_a_new_certificate_without_a_new_listener() -> None:
    """Handshakes after a reload see the new certificate; the session from before goes on."""
    async with stage() as s:
        port = await s.listen(implicit=True)
        client = await s.connect(port, ssl=tls_client(), server_hostname="front.contoso.com")
        await client.line()
        await client.tagged(LOGIN)
        from gatepost.access.tls import server_context

        fresh = AUTHORITY.issue_cert("front.contoso.com", "new.contoso.com")
        front_end = replace(
            s.configuration.front_end,
            certificate=b"".join(p.bytes() for p in fresh.cert_chain_pems),
            private_key=fresh.private_key_pem.bytes(),
        )
        s.tls.replace(server_context(front_end, "imap"))
        second = await s.connect(port, ssl=tls_client(), server_hostname="new.contoso.com")
        assert (await second.line()).startswith(b"* OK")
        assert await client.say(b"b NOOP\r\n") == b"b OK done by MBX-01\r\n"


@pytest.mark.parametrize("implicit", [False, True])
async def test_a_proxy_header_from_a_listed_peer_names_the_client(implicit: bool) -> None:
    """Also in front of implicit TLS; the client's address is in the log and travels on by ID."""
    async with stage(client_address=ClientAddress.ID) as s:
        port = await s.listen(implicit=implicit, trusted=(ip_network("127.0.0.0/8"),))
        sock = socket.create_connection(("127.0.0.1", port))
        sock.sendall(encode_v2(("203.0.113.7", 4711), ("198.51.100.1", 993)))
        sock.setblocking(False)
        tls = {"ssl": tls_client(), "server_hostname": "front.contoso.com"} if implicit else {}
        client = await s.connect(sock=sock, **tls)
        await client.line()
        await client.tagged(LOGIN)
        client.close()
        await until(lambda: s.log_lines("imap.session"))
        assert s.log_lines("imap.session")[0]["client"] == "203.0.113.7"
        identity = next(line for line in s.servers["MBX-01"].lines if b" ID (" in line)
        assert b'"x-originating-ip" "203.0.113.7"' in identity


async def test_a_listed_peer_without_a_header_is_closed() -> None:
    """A balancer that forgot it would make every client look like the balancer."""
    async with stage() as s:
        port = await s.listen(trusted=(ip_network("127.0.0.0/8"),))
        client = await s.connect(port)
        client.writer.write(b"a CAPABILITY\r\n")
        assert await client.rest() == b""
        assert s.log_lines("listener.refused")


async def test_a_header_from_a_stranger_is_just_a_bad_command() -> None:
    """Field case 89: nobody chooses their own address."""
    async with stage() as s:
        port = await s.listen(trusted=(ip_network("192.0.2.0/24"),))
        client = await s.connect(port)
        await client.line()
        assert b"BAD" in await client.say(b"PROXY TCP4 203.0.113.7 198.51.100.1 4711 143\r\n")
        await client.tagged(LOGIN)
        client.close()
        await until(lambda: s.log_lines("imap.session"))
        assert s.log_lines("imap.session")[0]["client"] == "127.0.0.1"


async def test_a_master_user_signs_in_at_the_server() -> None:
    """The user's own password stays here."""
    how = SignIn(SignInForm.MASTER_NAME, "gate", "master-pw", pipelined=True)
    async with stage(sign_in=how) as s:
        client = await s.connect()
        await client.line()
        assert (await client.tagged(LOGIN)).startswith(b"a OK")
        sent = b"".join(s.servers["MBX-01"].lines)
        assert b'LOGIN "alice*gate" "master-pw"' in sent
        assert b"secret-apw" not in sent


async def test_a_server_with_the_wrong_certificate_gets_no_password() -> None:
    """Field cases 83 and 84: name and chain are verified, and it is not tried again."""
    async with stage(tls=TlsMode.IMPLICIT) as s:
        client = await s.connect()
        await client.line()
        assert (await client.tagged(LOGIN)).startswith(b"a OK")
        mbx = s.configuration.organization.servers["MBX-01"]
        other = replace(mbx, endpoints=(replace(mbx.endpoints[0], tls_name="other.contoso.com"),))
        s.configuration.organization.servers["MBX-01"] = other
        s.router.set_view(s.view("MBX-01", 2))
        second = await s.connect()
        await second.line()
        assert (await second.tagged(LOGIN)).startswith(b"a NO [UNAVAILABLE]")
        refused = s.log_lines("imap.refused")[0]
        assert len(refused["attempts"]) == 1
        assert "certificate" in refused["reason"]
        assert s.servers["MBX-01"].connections == 1


async def test_no_secret_reaches_the_log() -> None:
    """Neither the user's password nor the master's, whatever happens."""
    how = SignIn(SignInForm.MASTER_NAME, "gate", "master-pw")
    async with stage(sign_in=how) as s:
        for answer in (b"%s OK in\r\n", b"%s NO secret-apw master-pw\r\n", b"* BYE\r\n"):
            s.servers["MBX-01"].login_answer = answer
            client = await s.connect()
            await client.line()
            await client.tagged(LOGIN)
            await client.tagged(b"b LOGIN alice wrong-guess\r\n")
            client.close()
        await until(lambda: not s.admission.sessions)
        assert len(s.capture.calls) >= 4
        text = repr(s.capture.calls)
        assert not any(secret in text for secret in ("secret-apw", "master-pw", "wrong-guess"))


async def test_a_client_that_leaves_while_its_server_is_being_reached_takes_everything_along() -> None:
    """No task, no connection, no count stays behind."""
    async with stage(replace(LIMITS, server_step_seconds=30)) as s:
        s.servers["MBX-01"].greeting = None
        client = await s.connect()
        await client.line()
        client.writer.write(LOGIN)
        await until(lambda: s.servers["MBX-01"].connections)
        client.writer.transport.abort()
        await until(lambda: s.log_lines("imap.session"))
        assert s.admission.sessions == 0
        assert not s.door.pending


async def test_a_server_that_refuses_the_clients_address_lets_the_user_in_and_the_log_says_so() -> None:
    """Field cases 41 and 91: a courtesy, not a condition."""
    async with stage(client_address=ClientAddress.ID) as s:
        s.servers["MBX-01"].refuses_id = True
        client = await s.connect()
        await client.line()
        assert (await client.tagged(LOGIN)).startswith(b"a OK")
        client.close()
        await until(lambda: s.log_lines("imap.session"))
        assert s.log_lines("imap.session")[0]["notes"] == ["the client's address was refused by ID"]


async def test_a_user_of_another_server_is_sent_there_by_name() -> None:
    """C9: the referral for programs, the name for people."""
    async with stage() as s:
        old = {name: replace(server, site="asia", version=Version.V2010) for name, server in s.servers_of_databases()}
        s.configuration.organization.servers.update(old)
        there = replace(
            s.configuration.organization.servers["CAS-01"], name="CAS-03", site="asia", fqdn="cas-03.contoso.com"
        )
        imap = replace(old["MBX-01"].endpoints[0], tls_name="cas-03.contoso.com")
        s.configuration.organization.servers["CAS-03"] = replace(there, endpoints=(imap,))
        client = await s.connect()
        await client.line()
        answer = await client.tagged(LOGIN)
        assert answer.startswith(b"a NO [REFERRAL imap://")
        assert b"cas-03.contoso.com" in answer.partition(b"]")[2]
        assert s.log_lines("imap.refused")[0]["refusal"] == "other server"


async def test_a_session_is_freed_when_it_ends_without_a_search_for_garbage() -> None:
    """No circle of references is left: memory is free at once, and so are the credentials in it."""
    kinds = ("MailClientLeg", "MailServerLeg", "Relay", "_Leg", "ImapFront", "ImapBack", "Credentials", "BackSignIn")

    def alive() -> dict[str, int]:
        names = [type(o).__name__ for o in gc.get_objects() if type(o).__name__ in kinds]
        return {name: names.count(name) for name in set(names)}

    async with stage() as s:
        gc.collect()
        before = alive()
        gc.disable()
        try:
            for lines in ((LOGIN,), (b"a LOGIN alice wrong\r\n", b"b LOGOUT\r\n"), (LOGIN, b"b NOOP\r\n")):
                client = await s.connect()
                await client.line()
                for line in lines:
                    await client.tagged(line)
                client.close()
            await until(lambda: not s.admission.sessions)
            await asyncio.sleep(0.01)
            assert alive() == before
        finally:
            gc.enable()


async def test_a_thousand_sign_ins_at_once_are_answered_one_by_one() -> None:
    """A refusal that is known at once lets the next one in the same packet in: no recursion, each its answer."""
    async with stage() as s:
        s.sign_in.verdict = Verdict.PROTOCOL_NOT_ALLOWED
        client = await s.connect()
        await client.line()
        client.writer.write(b"".join(b"a%d LOGIN alice secret-apw\r\n" % n for n in range(900)))
        answers = [await client.line() for _ in range(900)]
        assert [answer.split()[0] for answer in answers] == [b"a%d" % n for n in range(900)]
        assert all(b"AUTHORIZATIONFAILED" in answer for answer in answers)


async def test_connections_without_a_sign_in_do_not_fill_the_log() -> None:
    """The first of an address in a second has a line, the others are counted; a refused sign-in has its own."""
    async with stage() as s:
        port = await s.listen()
        for _ in range(20):
            client = await s.connect(port)
            await client.line()
            client.close()
        refused = await s.connect(port)
        await refused.line()
        assert (await refused.tagged(b"a LOGIN alice wrong\r\n")).startswith(b"a NO ")
        refused.close()
        await until(lambda: not s.admission.sessions)
        await until(lambda: sum(line.get("count", 0) for line in s.log_lines("imap.session")) == 20)
        lines = s.log_lines("imap.session")
        assert len(lines) <= 4, "one a second, and that of the refused sign-in"
        assert [line["outcome"] for line in lines if "outcome" in line and line["outcome"] != "no sign-in"] == [
            "refused"
        ]
        counted = [line for line in lines if "session" not in line]
        assert {line["reason"] for line in counted} == {"further connections without a sign-in"}


async def test_a_client_that_vanishes_within_its_handshake_leaves_nothing_and_stops_nothing() -> None:
    """STARTTLS, then a reset: the session is over, and the deadlines of others are still kept."""
    async with stage(replace(LIMITS, sign_in_seconds=1.5)) as s:
        port = await s.listen()
        for _ in range(3):
            client = await s.connect(port)
            await client.line()
            assert (await client.say(b"a STARTTLS\r\n")).startswith(b"a OK")
            client.writer.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )
            client.writer.transport.abort()
        await until(lambda: not s.admission.sessions)
        await until(lambda: sum(line["count"] for line in s.log_lines("imap.session")) == 3)
        silent = await s.connect(port)
        await silent.line()
        assert (await silent.rest()).startswith(b"* BYE")


async def test_a_handshake_that_never_ends_is_ended() -> None:
    """By the sign-in deadline, without a word in clear."""
    async with stage(replace(LIMITS, sign_in_seconds=0.5)) as s:
        client = await s.connect()
        await client.line()
        assert (await client.say(b"a STARTTLS\r\n")).startswith(b"a OK")
        assert await client.rest() == b""
        await until(lambda: not s.admission.sessions)


async def test_a_fault_with_one_session_stops_nobody_elses_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sweep goes on, the fault is reported, its session ended."""
    faults: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
    async with stage(replace(LIMITS, sign_in_seconds=1.5)) as s:
        port = await s.listen()
        broken, sound = await s.connect(port), await s.connect(port)
        await broken.line()
        await sound.line()
        name = next(iter(s.door.pending)).session
        check = MailClientLeg.check_deadline

        def fail(leg: MailClientLeg, now: float) -> None:
            if leg.session == name:
                raise RuntimeError("a bug")
            check(leg, now)

        monkeypatch.setattr(MailClientLeg, "check_deadline", fail)
        ends = sorted([await broken.rest(), await sound.rest()])
        assert ends[0] == b""
        assert ends[1].startswith(b"* BYE")
        assert len(faults) == 1
        await until(lambda: not s.admission.sessions)


@pytest.mark.parametrize("side", ["client", "server"])
async def test_a_side_that_is_lost_as_the_relay_takes_over_ends_it(side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop may have the news ready for the protocol from before the hand-over: here it keeps that protocol."""

    def start(relay: Relay, to_client: bytes, to_server: bytes, *, client_full: bool) -> None:
        relay._client.transport.write(to_client)
        leg = relay._server if side == "client" else relay._client
        leg.transport.set_protocol(leg)
        relay._server.transport.resume_reading()

    monkeypatch.setattr(Relay, "start", start)
    async with stage() as s:
        client = await s.connect()
        await client.line()
        assert (await client.tagged(LOGIN)).startswith(b"a OK")
        if side == "client":
            client.writer.transport.abort()
        else:
            s.servers["MBX-01"].writers[-1].transport.abort()
        await until(lambda: not s.admission.sessions)
        assert s.log_lines("imap.session")[0]["reason"].startswith(side)
        assert (await client.rest()).startswith(b"* BYE [UNAVAILABLE]" if side == "server" else b"")


async def test_what_is_kept_of_a_name_is_bounded() -> None:
    """Sessions are listed and logged; a name of 20 kB must not fill either."""
    async with stage() as s:
        client = await s.connect()
        await client.line()
        assert b"NO" in await client.tagged(b'a LOGIN "%s" x\r\n' % (b"x" * 8000))
        assert len(s.door.sessions()[0]["user"]) <= MAX_LOGIN_NAME
        assert len(repr(s.capture.calls)) < 2000


@pytest.mark.parametrize("leaves", [True, False])
async def test_a_newcomer_too_many_is_looked_at_twice(leaves: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that closes one connection and opens another gets it, though the old one's end is noticed later."""
    monkeypatch.setattr(listener, "SECOND_LOOK_SECONDS", 0.05)
    async with stage(replace(LIMITS, unauthenticated_per_address=1)) as s:
        port = await s.listen(implicit=True)
        arrive = s.admission.arrive
        arrivals: list[bool] = []

        def noted(address: str) -> bool:
            arrivals.append(arrive(address))
            return arrivals[-1]

        monkeypatch.setattr(Admission, "arrive", lambda _admission, address: noted(address))
        assert s.admission.arrive("127.0.0.1")
        connecting = asyncio.create_task(s.connect(port, ssl=tls_client(), server_hostname="front.contoso.com"))
        await until(lambda: len(arrivals) > 1)
        assert arrivals == [True, False, False]
        if leaves:
            s.admission.leave("127.0.0.1", settled=False)
            assert (await (await connecting).line()).startswith(b"* OK")
        else:
            with pytest.raises(ConnectionError):
                await connecting
            assert arrivals == [True, False, False, False]
            s.admission.leave("127.0.0.1", settled=False)


async def test_bursts_of_one_address_that_follow_each_other_get_in() -> None:
    """99 connections, all closed, and 99 more at that very moment: under the limit of 100 nobody is turned away."""
    async with stage(replace(LIMITS, unauthenticated_per_address=100)) as s:
        port, context = await s.listen(implicit=True), tls_client()
        for _ in range(4):
            burst = [s.connect(port, ssl=context, server_hostname="front.contoso.com") for _ in range(99)]
            clients = await asyncio.gather(*burst)
            assert [(await client.line())[:4] for client in clients] == [b"* OK"] * 99
            for client in clients:
                client.close()


async def test_a_connection_is_counted_once_while_the_leg_takes_over() -> None:
    """A family behind one address that opens its limit of TLS connections at once gets them all."""
    async with stage(replace(LIMITS, unauthenticated_per_address=20)) as s:
        port = await s.listen(implicit=True)
        context = tls_client()
        clients = await asyncio.gather(
            *(s.connect(port, ssl=context, server_hostname="front.contoso.com") for _ in range(20))
        )
        assert [(await client.line())[:4] for client in clients] == [b"* OK"] * 20
        assert s.admission.sessions == 20


async def test_a_loop_of_front_ends_ends_after_five() -> None:
    """C11: each believes that the mailbox is reached through the next one, which here is itself again and again."""
    async with stage() as s:
        port = await s.listen()
        organization = s.configuration.organization
        organization.sites["asia"] = Site("asia", through_peer=True)
        for name, server in s.servers_of_databases():
            organization.servers[name] = replace(server, site="asia")
        imap = Endpoint("imap", Protocol.IMAP, "127.0.0.1", port, TlsMode.CLEAR, "front.contoso.com")
        door = organization.servers["CAS-01"]
        organization.servers["CAS-03"] = replace(door, name="CAS-03", site="asia", endpoints=(imap,))
        client = await s.connect(port)
        await client.line()
        assert (await client.tagged(LOGIN)).startswith(b"a NO [UNAVAILABLE]")
        refusals = [line for line in s.log_lines("imap.refused") if line["reason"].startswith("a loop")]
        assert 1 <= len(refusals) <= 16
        # Each of four front ends tries twice at most: 1 + 2 + 4 + 8 + 16 sessions, not without end.
        assert max(int(line["session"].rpartition("-")[2], 16) for line in refusals) <= 31
        assert not any(server.connections for server in s.servers.values())
