"""Who may, and what they are told: 401 only for credentials that are missing or judged wrong."""

from __future__ import annotations

import base64

import pytest
from http_harness import PASSWORD, World, basic, get, head_of, response

from gatepost.access.http.basic import read_basic
from gatepost.configuration.settings import Limits
from gatepost.directory.port import DirectoryUnavailable, SignInResult, Verdict
from gatepost.wire.proxy_protocol import ProxyHeader


async def test_without_credentials_the_client_is_asked(world: World) -> None:
    """401 with realm and charset (RFC 7617); the connection stays and no server is touched."""
    client = world.client()
    first, fields, _ = head_of(await client.send(get(user="")))
    assert first == "HTTP/1.1 401 Unauthorized"
    assert fields["www-authenticate"] == 'Basic realm="contoso", charset="UTF-8"'
    assert world.loop.connects == []
    assert (await client.ask(get(), response())).endswith(b"hello")


@pytest.mark.parametrize("at_once", [True, False])
async def test_wrong_credentials_are_answered_late(at_once: bool) -> None:
    """The answer waits for the configured time; another client is served meanwhile."""
    world = World(limits=Limits(refused_sign_in_delay_seconds=2.0))
    world.sign_in.now = at_once
    client, other = world.client(), world.client()
    wrong = get(user="").replace(b"\r\n\r\n", f"\r\n{basic('alice', 'guess')}\r\n\r\n".encode())
    assert await client.send(wrong) == b""
    assert (await other.ask(get(), response())).endswith(b"hello")
    await world.pass_time(1.9)
    assert client.transport.take() == b""
    await world.pass_time(0.2)
    assert client.transport.take().startswith(b"HTTP/1.1 401 ")
    assert world.log.of("http.refused")[0]["user"] == "alice"


async def test_wrong_password_and_unknown_user_look_alike(world: World) -> None:
    """Same octets but for date and ids (field case 71)."""
    answers = []
    for name, password in (("alice", "guess"), ("nobody", "guess")):
        client = world.client()
        await client.send(get(user="").replace(b"\r\n\r\n", f"\r\n{basic(name, password)}\r\n\r\n".encode()))
        await world.pass_time(5)
        first, fields, rest = head_of(client.transport.take())
        del fields["date"], fields["request-id"]
        answers.append((first, fields, rest))
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    ("verdict", "status"),
    [(Verdict.UNAVAILABLE, 503), (Verdict.BUSY, 503), (Verdict.PROTOCOL_NOT_ALLOWED, 403)],
)
async def test_a_fault_never_looks_like_a_wrong_password(world: World, verdict: Verdict, status: int) -> None:
    """Directory down or busy: 503 with Retry-After; a user without this protocol: 403."""
    world.sign_in.verdict = SignInResult(verdict)
    client = world.client()
    early = await client.send(get())
    await world.pass_time(5)
    first, fields, _ = head_of(early + client.transport.take())
    assert first.startswith(f"HTTP/1.1 {status} ")
    assert ("retry-after" in fields) == (status == 503)
    assert "www-authenticate" not in fields


async def test_busy_is_answered_late_and_ends_a_strangers_connection() -> None:
    """Filling the queue of password checks costs a guesser as much time as a wrong password does."""
    world = World(limits=Limits(refused_sign_in_delay_seconds=2.0))
    stranger, known = world.client(), world.client()
    await known.ask(get(), response())
    world.sign_in.verdict = SignInResult(Verdict.BUSY)
    for client in (stranger, known):
        assert await client.send(get()) == b""
    await world.pass_time(1.9)
    assert stranger.transport.take() == b""
    await world.pass_time(0.2)
    for client in (stranger, known):
        assert client.transport.take().startswith(b"HTTP/1.1 503 ")
    lines = world.log.of("http.refused")
    assert [(line["client"], line["status"], line["count"]) for line in lines] == [("192.0.2.7", 503, 1)]
    assert stranger.transport.closed
    assert not known.transport.closed


async def test_the_check_is_told_whose_client_it_is(world: World) -> None:
    """Checks are counted by the client's own address, which a balancer's PROXY header tells."""
    world.sign_in.now = False
    behind = ProxyHeader(source=("198.51.100.7", 1234), destination=("127.0.1.1", 443))
    for proxy in (None, behind):
        await world.client(proxy=proxy).send(get())
    assert world.sign_in.clients == ["192.0.2.7", "198.51.100.7"]


async def test_a_directory_that_raises_is_a_fault(world: World) -> None:
    """`DirectoryUnavailable` from the service is a 503 as well."""

    async def down(*_: object) -> SignInResult:
        raise DirectoryUnavailable("locked")

    world.sign_in.now = False
    world.sign_in.password = down  # type: ignore[method-assign, assignment]
    assert (await world.client().send(get())).startswith(b"HTTP/1.1 503 ")


@pytest.mark.parametrize("status", ["401 Unauthorized", "407 Proxy Authentication Required"])
async def test_a_servers_401_is_a_fault_between_us(world: World, status: str) -> None:
    """The user was judged right here, so the client must not be asked again (field case 76)."""
    client = world.client()
    answer = await client.ask(get(), response(status, 'WWW-Authenticate: Basic realm="x"', "WWW-Authenticate: NTLM"))
    first, fields, _ = head_of(answer)
    assert first.startswith("HTTP/1.1 503 ")
    assert "www-authenticate" not in fields
    assert "retry-after" in fields
    assert world.log.of("http.refused")[0]["reason"] == "the server refused our sign-in"
    assert world.servers[0].closed


async def test_the_check_off_the_loop_is_waited_for(world: World) -> None:
    """A first sign-in takes its time; body and pipelined request wait and lose nothing."""
    world.sign_in.now = False
    client = world.client()
    await client.send(get(method="POST", body=b"12345") + get("/owa/second"))
    assert world.servers[0].written.endswith(b"\r\n\r\n12345")
    await client.serve(response(body=b"one"))
    await client.serve(response(body=b"two"))
    assert client.transport.take().count(b"HTTP/1.1 200") == 2


async def test_a_client_that_leaves_during_the_check(world: World) -> None:
    """Nothing is sent for it, nothing fails."""
    world.sign_in.now = False
    client = world.client()
    client.transport.protocol.data_received(get())
    client.transport.lose()
    await world.settle()
    assert world.loop.connects == []
    assert world.door.sessions() == []


async def test_sign_in_is_checked_for_every_request(world: World) -> None:
    """A password changed in the middle of a connection counts from the next request."""
    client = world.client()
    await client.ask(get(), response())
    world.sign_in.verdict = SignInResult(Verdict.WRONG_CREDENTIALS)
    await client.send(get())
    await world.pass_time(5)
    assert client.transport.take().startswith(b"HTTP/1.1 401 ")


async def test_the_clear_listener_never_asks_for_a_password(world: World) -> None:
    """Every request is sent to https (308), even one with credentials; foreign hosts are not repeated."""
    for host, wanted in (
        ("mail.contoso.com", "mail.contoso.com"),
        ("OUTLOOK.contoso.com:80", "outlook.contoso.com"),
        ("evil.test", "mail.contoso.com"),
    ):
        client = world.client(tls=False)
        request = get("/owa/a?b=%20").replace(b"mail.contoso.com", host.encode())
        first, fields, _ = head_of(await client.send(request))
        assert first == "HTTP/1.1 308 Permanent Redirect"
        assert fields["location"] == f"https://{wanted}/owa/a?b=%20"
        assert not client.transport.closed
    assert world.sign_in.asked == []
    assert world.loop.connects == []


async def test_clear_passwords_only_by_setting() -> None:
    """`allow_clear_passwords` serves on the clear listener; the server is told the truth."""
    world = World(allow_clear_passwords=True)
    client = world.client(tls=False)
    await client.ask(get(), b"")
    assert b"X-Forwarded-Proto: http\r\n" in await client.serve(response())


@pytest.mark.parametrize(
    "password", ["ä€😀", "with:colon", " space ", "%25", '"quoted"', "back\\slash", "tab\there", "#?&+"]
)
def test_odd_passwords_arrive(password: str) -> None:
    """UTF-8, colons and whatever else (field case 61)."""
    value = base64.b64encode(f"alice:{password}".encode())
    assert read_basic(b"Basic " + value) == ("alice", password)
    assert read_basic(b"bAsIc " + value) == ("alice", password)


def test_latin_1_is_understood() -> None:
    """Octets that are no UTF-8 come from older clients."""
    assert read_basic(b"Basic " + base64.b64encode(b"alice:p\xe4ss")) == ("alice", "päss")


@pytest.mark.parametrize(
    "value",
    [None, b"", b"Basic", b"Basic !!!", b"Bearer abc", b"NTLM TlRM", b"Negotiate YII=", b"Basic YWxpY2U=",
     b"Basic OnB3",
     b"Basic " + base64.b64encode(b"alice:a\nb"), b"Basic " + base64.b64encode(b"al\0ice:ab")],
)  # fmt: skip
def test_what_holds_no_credentials(value: bytes | None) -> None:
    """Other schemes, broken base64, no colon, no name, control characters: as if there were none."""
    assert read_basic(value) is None


async def test_no_secret_reaches_the_log() -> None:
    """Neither Authorization nor a password nor a query, in any line."""
    world = World(log_requests=True)
    client = world.client()
    await client.ask(get("/owa/x?token=s3cret"), response())
    await client.send(get("/nowhere?token=s3cret"))
    await client.send(get("/owa/?token=s3cret", user=""))
    client.transport.lose()
    text = repr(world.log.lines)
    assert [name for name, _ in world.log.lines].count("http.request") == 3
    assert "s3cret" not in text
    assert PASSWORD not in text
    assert basic("alice").partition("Basic ")[2] not in text


async def test_strangers_settle_with_their_first_request() -> None:
    """A door with an admission counts a connection as a stranger until a request was signed in."""
    from gatepost.access.admission import Admission

    world = World()
    world.door._admission = Admission(2, 100)
    clients = [world.client(), world.client()]
    third = world.client()
    assert third.transport.take().startswith(b"HTTP/1.1 503 ")
    await clients[0].ask(get(), response())
    fourth = world.client()
    assert (await fourth.ask(get(), response())).endswith(b"hello")
    for client in (*clients, fourth):
        client.transport.lose()
    await world.settle()
    assert (world.door._admission.sessions, world.door._admission.unauthenticated) == (0, 0)


async def test_the_id_of_a_refused_request_is_the_one_in_the_log() -> None:
    """What a user reads out to the help desk must be found."""
    world = World()
    client = world.client()
    for request in (get(user=""), get("/nowhere")):
        _, fields, _ = head_of(await client.send(request))
        assert fields["request-id"] == world.log.of("http.refused")[-1]["request_id"]
    assert len({line["request_id"] for line in world.log.of("http.refused")}) == 2
