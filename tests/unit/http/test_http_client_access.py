"""What a front end does with its decisions: candidates and affinity, redirects, refusals, whose mailbox is meant."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from http_harness import HEADER_SIGN_IN, Client, World, get, head_of, mailbox_server, response

from gatepost.access.http.door import HttpDoor
from gatepost.access.router import Router
from gatepost.activemanager.port import RegistryView
from gatepost.balancing.first_contacts import MAX_IN_A_DAY
from gatepost.configuration.settings import Configuration, FrontEnd, Limits
from gatepost.directory.port import SignInResult, User, Verdict
from gatepost.organization.model import (
    AuthenticationMethod,
    Endpoint,
    Protocol,
    Role,
    Server,
    Site,
    TlsMode,
    Version,
    VirtualDirectory,
    class_of_service,
)
from gatepost.routing.outcome import Mailbox

KEY = ec.generate_private_key(ec.SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
SERVICES = ("owa", "Microsoft-Server-ActiveSync", "EWS", "AS")
HOMES = {"anna": "EX10-ASIA", "berta": "EX10-EUROPE", "clara": "EX03", "dora": "EX10-USA"}
"""Users and the servers that hold their mailboxes."""


def _server(name: str, site: str, role: Role, version: Version, address: str) -> Server:
    fqdn = f"{name.lower()}.contoso.com"
    endpoint = Endpoint("https", Protocol.HTTPS, address, 443, TlsMode.IMPLICIT, fqdn)
    return Server(name, site, fqdn, fqdn, version, frozenset({role}), (endpoint,), HEADER_SIGN_IN)


def _directory(server: str, service: str, external: str | None = None) -> VirtualDirectory:
    return VirtualDirectory(
        server,
        service,
        f"/{service}",
        f"https://{server.lower()}.contoso.com/{service}",
        external,
        frozenset({AuthenticationMethod.INTEGRATED}),
        path_class=class_of_service(service),
    )


class SharedStateStub:
    """The shared state of one front end, in memory."""

    def __init__(self) -> None:
        self.servers: dict[str, str] = {}
        self.moves: list[tuple[str, str]] = []

    async def first_server(self, key: str, choose: str, now: float, servers: Any = ()) -> str:
        return self.servers.setdefault(key, choose)

    def known_server(self, key: str) -> str | None:
        return self.servers.get(key)

    async def move_server(self, key: str, server: str, now: float) -> None:
        self.servers[key] = server
        self.moves.append((key, server))

    async def sign_out(self, session_id: str, until: float) -> None:
        raise AssertionError

    def is_signed_out(self, session_id: str) -> bool:
        return False


class Sites(World):
    """CAS-01 in usa; asia with CAS-03 and CAS-04, without external URLs; europe with CAS-02, which has some."""

    def __init__(self, limits: Limits | None = None) -> None:
        super().__init__()
        cas, mailbox, old = Role.CLIENT_ACCESS, Role.MAILBOX, Version.V2010
        added = [
            _server("CAS-02", "europe", cas, old, "127.0.3.2"),
            _server("CAS-03", "asia", cas, old, "127.0.3.3"),
            _server("CAS-04", "asia", cas, old, "127.0.3.4"),
            _server("EX10-ASIA", "asia", mailbox, old, "127.0.3.5"),
            _server("EX10-EUROPE", "europe", mailbox, old, "127.0.3.6"),
            _server("EX10-USA", "usa", mailbox, old, "127.0.3.7"),
            _server("EX03", "asia", mailbox, Version.V2003, "127.0.3.8"),
        ]
        virtual = [_directory(name, service) for name in ("CAS-03", "CAS-04", "EX10-USA") for service in SERVICES]
        outside = "https://mail.europe.contoso.com"
        virtual += [_directory("CAS-02", service, f"{outside}/{service}") for service in SERVICES]
        virtual += [_directory("CAS-01", service) for service in SERVICES]
        virtual += [_directory("EX03", "exchange"), _directory("EX03", "Microsoft-Server-ActiveSync")]
        self.organization = replace(
            self.organization,
            sites={name: Site(name) for name in ("usa", "europe", "asia")},
            servers=self.organization.servers | {server.name: server for server in added},
            virtual_directories=tuple(virtual),
        )
        front_end = FrontEnd("CAS-01", "", "", private_key=KEY, limits=limits or Limits())
        self.configuration = Configuration(self.organization, front_end)
        self.users = {name: User(name, Mailbox(home_server=server)) for name, server in HOMES.items()}
        self.state = SharedStateStub()
        sign_in: Any = self.sign_in
        sign_in.password_now = self._signed_in
        sign_in.look_up = lambda name: self.users.get(name.removesuffix("@contoso.com"))
        router: Any = Router(self.configuration, RegistryView())
        loop: Any = self.loop
        self.door = HttpDoor(self.configuration, loop, sign_in, router, self.context, self.log, shared_state=self.state)

    def _signed_in(self, name: str, _password: str, _protocol: Protocol, *_: str) -> SignInResult:
        return SignInResult(Verdict.SIGNED_IN, self.users[name])

    async def ask(self, request: bytes, client: Client | None = None) -> bytes:
        """What `client`, or a new one, gets when the server that `request` comes to answers it."""
        client = client or self.client()
        own = await client.send(request)
        asked = [number for number, server in enumerate(self.servers) if server.written and not server.closed]
        if asked:
            assert len(asked) == 1
            await client.serve(response(), asked[0])
        return own + client.transport.take()

    @property
    def went_to(self) -> list[str]:
        """Names of the servers that were connected to, in order."""
        return [name.partition(".")[0].upper() for _, _, name in self.loop.connects if name is not None]


def _cookie(answer: bytes) -> str:
    """The line by which a browser sends back what `answer` sets; empty without."""
    found = re.search(rb"\r\nSet-Cookie: (__Host-gatepost-server=[^;]+);", answer)
    return f"Cookie: {found[1].decode()}" if found else ""


async def test_outlook_web_app_stays_with_the_server_chosen_first_by_a_cookie_that_names_no_host() -> None:
    """B1: the second browser connection goes where the first went, whoever's turn it is."""
    world = Sites()
    first = await world.ask(get("/owa/", user="anna"))
    cookie = _cookie(first)
    assert cookie
    assert b"cas-0" not in first.partition(b"Set-Cookie")[2].lower().partition(b"\r\n")[0]
    chosen = world.went_to[0]
    for _ in range(4):
        answer = await world.ask(get("/owa/", cookie, user="anna"))
        assert f"X-BEServer: {chosen}".encode() in answer
        assert not _cookie(answer)


async def test_another_users_affinity_cookie_counts_for_nothing() -> None:
    """A stolen or shared cookie does not move its thief; a forged one neither."""
    world = Sites()
    world.users["eve"] = User("eve", Mailbox(home_server="EX10-ASIA"))
    cookie = _cookie(await world.ask(get("/owa/", user="anna")))
    answers = [await world.ask(get("/owa/", cookie, user="eve")) for _ in range(2)]
    assert all(_cookie(answer) for answer in answers)
    forged = "Cookie: __Host-gatepost-server=Q0FTLTA0"
    assert _cookie(await world.ask(get("/owa/", forged, user="anna")))


async def test_if_the_server_is_unavailable_the_user_goes_to_another_and_stays_there() -> None:
    """The source: "If CAS-01 is unavailable, the user will be proxied to CAS-02"; B1: and stays."""
    world = Sites()
    cookie = _cookie(await world.ask(get("/owa/", user="anna")))
    before = world.went_to[0]
    world.door.reload(world.configuration, world.context)  # pooled connections are gone
    world.loop.refuse = [ConnectionRefusedError(111, "refused")]
    moved = await world.ask(get("/owa/", cookie, user="anna"))
    assert world.went_to[1] == before
    assert world.went_to[2] != before
    assert moved.startswith(b"HTTP/1.1 200 ")
    again = await world.ask(get("/owa/", _cookie(moved), user="anna"))
    assert f"X-BEServer: {world.went_to[2]}".encode() in again


async def test_all_servers_down_is_503_in_the_clients_own_form() -> None:
    """Every candidate was tried once; no 401, and a program gets a SOAP fault with its code."""
    world = Sites()
    world.loop.refuse = [ConnectionRefusedError(111, "refused") for _ in range(4)]
    page = await world.ask(get("/owa/", user="anna"))
    assert page.startswith(b"HTTP/1.1 503 ")
    assert b"Retry-After: 10\r\n" in page
    assert b"<h1>" in page
    assert set(world.went_to) == {"CAS-03", "CAS-04"}
    fault = await world.ask(get("/EWS/Exchange.asmx", user="anna"))
    assert b"ErrorNoRespondingCASInDestinationSite" in fault
    assert b"cas-03" not in fault.lower()


async def test_ews_clients_without_cookies_stay_by_their_address() -> None:
    """B1: IP affinity; another front end would choose the same server for this address."""
    world = Sites()
    for number in range(8):
        address = f"192.0.2.{number}"
        ways = set()
        for _ in range(3):
            answer = await world.ask(get("/EWS/Exchange.asmx", user="anna"), world.client(address=address))
            ways.add(re.search(rb"X-BEServer: (\S+)", answer)[1])  # type: ignore[index]
        assert len(ways) == 1
    assert len(set(world.went_to)) == 2


async def test_availability_requests_take_turns() -> None:
    """The source: two consecutive Availability requests of one client can go to different servers (B3)."""
    world = Sites()
    client = world.client()
    answers = [await world.ask(get("/AS", user="anna"), client) for _ in range(2)]
    assert len({re.search(rb"X-BEServer: (\S+)", answer)[1] for answer in answers}) == 2  # type: ignore[index]
    assert not any(_cookie(answer) for answer in answers)


async def test_turns_of_one_service_are_not_those_of_another() -> None:
    """A client that asks for two services by turns does not always come to the same server."""
    world = Sites()
    ways = set()
    for _ in range(4):
        await world.ask(get("/owa/", user="anna"))
        answer = await world.ask(get("/AS", user="anna"))
        ways.add(re.search(rb"X-BEServer: (\S+)", answer)[1])  # type: ignore[index]
    assert len(ways) == 2


async def test_users_of_a_lost_server_are_spread_over_the_others() -> None:
    """B1: another is taken, not one other for all of them."""
    world = Sites()
    server = _server("CAS-05", "asia", Role.CLIENT_ACCESS, Version.V2010, "127.0.3.9")
    organization = replace(
        world.organization,
        servers=world.organization.servers | {server.name: server},
        virtual_directories=(*world.organization.virtual_directories, _directory(server.name, "owa")),
    )
    configuration = Configuration(organization, world.configuration.front_end)
    router: Any = world.door.router
    router.set_configuration(configuration)
    world.door.reload(configuration, world.context)
    answer = await world.ask(get("/owa/", user="anna"))
    cookie, lost = _cookie(answer), re.search(rb"X-BEServer: (\S+)", answer)[1]  # type: ignore[index]
    health: Any = world.door.health
    health.healthy = lambda server, _service: server != lost.decode()
    answers = [await world.ask(get("/owa/", cookie, user="anna")) for _ in range(4)]
    assert len({re.search(rb"X-BEServer: (\S+)", answer)[1] for answer in answers}) == 2  # type: ignore[index]


def _availability(address: str) -> bytes:
    types = "http://schemas.microsoft.com/exchange/services/2006/types"
    return (
        f'<s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/" xmlns:t="{types}"><s:Body>'
        '<GetUserAvailabilityRequest xmlns="http://schemas.microsoft.com/exchange/services/2006/messages">'
        f"<t:MailboxDataArray>".replace("t:MailboxDataArray", "MailboxDataArray")
        + f"<t:MailboxData><t:Email><t:Address>{address}</t:Address></t:Email></t:MailboxData>"
        "</MailboxDataArray></GetUserAvailabilityRequest></s:Body></s:Envelope>"
    ).encode()


async def test_availability_goes_by_the_mailbox_that_is_asked_about() -> None:
    """C8: one client, two requests, two sites; the user who asks stays the same, the body is whole."""
    world = Sites()
    client = world.client()
    for target, server in (("dora@contoso.com", "EX10-USA"), ("anna@contoso.com", "CAS-0")):
        body = _availability(target)
        await client.send(get("/EWS/Exchange.asmx", "Content-Type: text/xml", user="berta", method="POST", body=body))
        got = await client.serve(response())
        assert world.went_to[-1].startswith(server)
        assert got.endswith(body)
        assert f"Content-Length: {len(body)}".encode() in got
        assert b"X-Remote-User: berta\r\n" in got
        client.transport.take()


async def test_a_chunked_availability_request_arrives_with_a_length() -> None:
    """What was collected is sent framed anew; the chunks' frames are gone."""
    world = Sites()
    client = world.client()
    body = _availability("dora@contoso.com")
    head = get(
        "/EWS/Exchange.asmx", 'SOAPAction: "x/GetUserAvailability"', "Transfer-Encoding: chunked", user="berta",
        method="POST",
    )  # fmt: skip
    await client.send(head + b"%x\r\n%b\r\n" % (len(body), body))
    assert world.servers == []
    await client.send(b"0\r\n\r\n")
    got = await client.serve(response())
    assert got.endswith(b"\r\n\r\n" + body)
    assert b"transfer-encoding" not in got.lower()


async def test_an_anchor_mailbox_chooses_a_mailbox_never_a_host() -> None:
    """Field cases 118 and 127: an address of the organization routes; a host, or anything else, changes nothing."""
    world = Sites()
    anchored = get("/EWS/Exchange.asmx", "X-AnchorMailbox: dora@contoso.com", user="anna")
    await world.ask(anchored)
    assert world.went_to[-1] == "EX10-USA"
    for value in ("evil.example.com", "nobody@contoso.com", "http://evil/", "dora@contoso.com@evil", "a" * 5000):
        await world.ask(get("/EWS/Exchange.asmx", f"X-AnchorMailbox: {value}", user="anna"))
        assert world.went_to[-1] in {"CAS-03", "CAS-04"}


async def test_a_shared_mailbox_in_the_path_of_outlook_web_app_is_opened_on_its_own_server() -> None:
    """Explicit logon: `/owa/dora@contoso.com/`."""
    world = Sites()
    await world.ask(get("/owa/dora@contoso.com/", user="anna"))
    assert world.went_to == ["EX10-USA"]


def _sync(version: str = "14.1", device: str = "phone1") -> bytes:
    path = f"/Microsoft-Server-ActiveSync?Cmd=Sync&User=anna&DeviceId={device}&DeviceType=x"
    return get(path, f"MS-ASProtocolVersion: {version}", user="anna", method="POST", body=b"\x03\x01")


async def test_a_device_goes_to_the_same_server_every_time() -> None:
    """The source: proxied to CAS-02 the first time, proxied to CAS-02 every time (B2), from whatever connection."""
    world = Sites()
    for device in ("phone1", "phone2", "phone3", "phone4"):
        ways = set()
        for _ in range(3):
            answer = await world.ask(_sync(device=device))
            ways.add(re.search(rb"X-BEServer: (\S+)", answer)[1])  # type: ignore[index]
        assert len(ways) == 1
        assert world.state.servers[f"anna {device}"].encode() in ways
    assert set(world.state.servers.values()) == {"CAS-03", "CAS-04"}


async def test_a_client_that_makes_up_devices_makes_no_others_be_forgotten() -> None:
    """What its user has too many of share what is remembered for the user; the first ones stay where they are."""
    world = Sites()
    for number in range(MAX_IN_A_DAY + 20):
        await world.ask(_sync(device=f"made{number}"))
    assert len(world.state.servers) == MAX_IN_A_DAY + 1
    assert "anna" in world.state.servers
    first = world.state.servers["anna made0"]
    assert f"X-BEServer: {first}\r".encode() in await world.ask(_sync(device="made0"))


async def test_a_device_moves_when_its_server_is_down_and_every_front_end_learns_it() -> None:
    """B2: if the server is down and the site has another, move."""
    world = Sites()
    await world.ask(_sync())
    first = world.state.servers["anna phone1"]
    world.door.reload(world.configuration, world.context)
    world.loop.refuse = [ConnectionRefusedError(111, "refused")]
    await world.ask(_sync())
    assert world.state.moves == [("anna phone1", world.went_to[-1])]
    assert world.went_to[-1] != first


async def test_a_device_is_told_the_right_url_by_451() -> None:
    """C3; a device of 12.0 does not know 451 and is proxied; one that says nothing is told."""
    world = Sites()
    client = world.client()
    path = "/Microsoft-Server-ActiveSync?Cmd=Sync"
    for lines in ((), ("MS-ASProtocolVersion: 14.1",), ("MS-ASProtocolVersion: 12.1",)):
        first, fields, body = head_of(await client.send(get(path, *lines, user="berta", method="OPTIONS")))
        assert first.startswith("HTTP/1.1 451 ")
        assert fields["x-ms-location"] == "https://mail.europe.contoso.com/Microsoft-Server-ActiveSync"
        assert body == b""
    await world.ask(get(path, "MS-ASProtocolVersion: 12.0", user="berta", method="POST"), client)
    assert world.went_to == ["CAS-02"]


async def test_a_browser_is_shown_the_page_with_its_deep_link() -> None:
    """C5: not automatic; what follows /owa and the query are kept."""
    world = Sites()
    first, fields, body = head_of(await world.client().send(get("/owa/?ae=Item&id=a%2Fb", user="berta")))
    assert first == "HTTP/1.1 200 OK"
    assert "location" not in fields
    assert "refresh" not in fields
    assert b'href="https://mail.europe.contoso.com/owa/?ae=Item&amp;id=a%2Fb"' in body
    assert world.servers == []


async def test_a_2003_mailbox_is_told_to_use_exchange_and_is_served_there() -> None:
    """C7: `/owa` is an error page; `/exchange` goes straight to the 2003 server, past the front ends of its site."""
    world = Sites()
    client = world.client()
    page = await client.send(get("/owa/", user="clara"))
    assert page.startswith(b"HTTP/1.1 403 ")
    assert b"/exchange" in page
    await world.ask(get("/exchange/clara/Inbox/", user="clara"), client)
    assert world.went_to == ["EX03"]


async def test_exchange_leads_to_owa_for_a_newer_mailbox() -> None:
    """C7."""
    world = Sites()
    _, fields, _ = head_of(await world.client().send(get("/Exchange/?x=1", user="anna")))
    assert fields["location"] == "/owa/?x=1"


async def test_a_busy_worker_tells_each_kind_of_client_to_come_back() -> None:
    """B4: over the bound a request waits, users in turn, then 503 with Retry-After; the slot is given on."""
    world = Sites(Limits(http_requests=1))
    holder = world.client()
    await holder.send(get("/owa/", user="dora"))
    assert world.door.slots.used == 1
    waiting = world.client()
    assert await waiting.send(get("/EWS/Exchange.asmx", user="anna")) == b""
    await world.pass_time(3)
    fault = waiting.transport.take()
    assert fault.startswith(b"HTTP/1.1 503 ")
    assert b"ErrorServerBusy" in fault
    assert b"BackOffMilliseconds" in fault
    later = world.client()
    assert await later.send(get("/owa/", user="dora")) == b""
    await holder.serve(response())
    assert world.door.slots.used == 1
    await later.serve(response())
    assert later.transport.take().startswith(b"HTTP/1.1 200 ")
    assert world.door.slots.used == 0


async def test_a_client_that_leaves_gives_its_slot_back() -> None:
    """While it waits for a slot, for a connection, or for the response."""
    world = Sites(Limits(http_requests=1))
    first, second = world.client(), world.client()
    await first.send(get("/owa/", user="dora"))
    await second.send(get("/owa/", user="dora"))
    assert world.door.slots.waiting == 1
    second.transport.lose()
    assert world.door.slots.waiting == 0
    first.transport.lose()
    assert world.door.slots.used == 0


async def test_passwords_do_not_cross_to_a_server_that_is_told_by_header() -> None:
    """The user's Basic credentials end at the front end."""
    world = Sites()
    await world.client().send(get("/owa/", user="anna"))
    assert b"authorization" not in world.servers[0].take().lower()


async def test_a_mailbox_server_that_wants_a_password_gets_the_users() -> None:
    """`http = "basic"`: as before."""
    world = World([mailbox_server("MBX-1"), mailbox_server("MBX-2")])
    await world.client().send(get())
    assert b"Authorization: Basic " in world.servers[0].take()


async def test_a_redirect_to_where_the_client_is_already_is_a_loop() -> None:
    """A wrong external URL: the browser, or the phone, would come back for ever. The log says what to look at."""
    world = Sites()
    for path, name in (("/owa/", b"mail.europe"), ("/Microsoft-Server-ActiveSync?Cmd=Sync", b"MAIL.europe")):
        request = get(path, user="berta").replace(b"Host: mail.", b"Host: %b." % name)
        assert (await world.client().send(request)).startswith(b"HTTP/1.1 508 ")
    assert "external URLs" in world.log.of("http.refused")[0]["reason"]
