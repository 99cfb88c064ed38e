"""What a server gets of a client's request, and what it never gets."""

from __future__ import annotations

import pytest
from http_harness import (
    HEADER_SIGN_IN,
    PASSWORD,
    World,
    basic,
    directories,
    get,
    head_of,
    mailbox_server,
    response,
)

from gatepost.wire.proxy_protocol import ProxyHeader


async def test_a_request_reaches_the_server_of_its_user(world: World) -> None:
    """Decision per request: two users on one connection reach their own servers (C1, B5)."""
    client = world.client()
    answer = await client.ask(get(user="alice"), response())
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"\r\n\r\nhello")
    await client.ask(get(user="bob"), response())
    assert [c[:2] for c in world.loop.connects] == [("127.0.2.1", 443), ("127.0.2.2", 443)]
    assert world.loop.connects[0][2] == "mbx-1.contoso.com"


async def test_the_head_for_the_server_is_ours(world: World) -> None:
    """Host is the internal URL's; the client is told of in Forwarded and its older forms; a request id is set."""
    client = world.client()
    await client.send(get("/owa/x?q=%41&b=c%20d", "Accept: */*"))
    first, fields, rest = head_of(world.servers[0].take())
    assert first == "GET /owa/x?q=%41&b=c%20d HTTP/1.1"
    assert fields["host"] == "mbx-1.contoso.com"
    assert fields["accept"] == "*/*"
    assert fields["forwarded"] == 'for=192.0.2.7;host="mail.contoso.com";proto=https'
    assert (fields["x-forwarded-for"], fields["x-forwarded-proto"]) == ("192.0.2.7", "https")
    assert fields["x-forwarded-host"] == "mail.contoso.com"
    assert fields["x-request-id"] == fields["request-id"] != ""
    assert fields["via"] == "1.1 CAS-01"
    assert fields["authorization"] == basic("alice").partition(": ")[2]
    assert rest == b""


async def test_an_ipv6_client_is_quoted_in_forwarded(world: World) -> None:
    """RFC 7239 section 6: IPv6 in brackets, quoted. The PROXY header's word counts."""
    header = ProxyHeader(source=("2001:db8::7", 5), destination=("2001:db8::1", 443), tls=True)
    client = world.client(tls=False, proxy=header)
    await client.send(get())
    _, fields, _ = head_of(world.servers[0].take())
    assert fields["forwarded"] == 'for="[2001:db8::7]";host="mail.contoso.com";proto=https'
    assert fields["x-forwarded-for"] == "2001:db8::7"


@pytest.mark.parametrize(
    "line",
    [
        "Forwarded: for=1.2.3.4",
        "X-Forwarded-For: 1.2.3.4",
        "X-Forwarded-Server: evil",
        "X_Forwarded_For: 1.2.3.4",
        "X-Real-IP: 1.2.3.4",
        "X-Remote-User: bob",
        "x-remote-USER: bob",
        "X_Remote_User: bob",
        "X-Remote_User: bob",
        "X-Proxied-User: bob",
        "X-Original-URL: /ecp",
        "X-Rewrite-URL: /ecp",
        "Proxy: http://evil",
        "X-FEServer: evil",
        "X-BEServer: evil",
        "X-BackEndCookie: evil",
        "X-BackEnd-Server: evil",
        "X-CommonAccessToken: evil",
        "x-webobjects-remote-user: bob",
        "Keep-Alive: timeout=1000",
        "TE: trailers",
        "Trailer: X-Sum",
        "Proxy-Authorization: Basic evil",
        "Proxy-Connection: keep-alive",
        "Upgrade: h2c",
        "HTTP2-Settings: AAMAAABk",
        "X-Request-Id: chosen",
        "request-id: chosen",
    ],
)
async def test_what_a_client_may_not_say_is_removed(line: str) -> None:
    """Hop-by-hop fields and those a server would believe never pass (C14); the rest of the request does."""
    servers = [mailbox_server("MBX-1", sign_in=HEADER_SIGN_IN), mailbox_server("MBX-2")]
    servers[1] = mailbox_server(
        "MBX-2", sign_in=type(HEADER_SIGN_IN)(http=HEADER_SIGN_IN.http, http_header="X-Proxied-User")
    )
    world = World(servers)
    client = world.client()
    await client.send(get("/owa/", line, "X-Harmless: yes"))
    sent = world.servers[0].take()
    value = line.partition(": ")[2].encode()
    own = {b"Forwarded": b"for=192.0.2.7", b"X-Forwarded-For": b"192.0.2.7"}
    for sent_line in sent.split(b"\r\n"):
        name, _, sent_value = sent_line.partition(b": ")
        if name.lower().replace(b"_", b"-") == line.partition(":")[0].lower().replace("_", "-").encode():
            assert value not in sent_value
            assert name in {*own, b"X-Remote-User", b"X-Request-Id", b"request-id"}
    assert b"X-Harmless: yes" in sent
    assert sent.count(b"X-Remote-User: alice\r\n") == 1


async def test_fields_that_connection_names_are_removed(world: World) -> None:
    """RFC 9110 section 7.6.1, and the trick does not remove what we set ourselves."""
    client = world.client()
    await client.send(get("/owa/", "X-Mine: 1", "X-Yours: 2", "Connection: keep-alive, x-mine, X-Forwarded-For, Host"))
    _, fields, _ = head_of(world.servers[0].take())
    assert "x-mine" not in fields
    assert "connection" not in fields
    assert (fields["x-yours"], fields["x-forwarded-for"], fields["host"]) == ("2", "192.0.2.7", "mbx-1.contoso.com")


@pytest.mark.parametrize(
    "line",
    [
        "Cookie: X-BackEndCookie=MBX-2; X-BackEndOverrideCookie=mbx-2.contoso.com~1941996295; ServerId=MBX-2",
        "X-BEServer: MBX-2",
        "X-TargetBEServer: MBX-2",
        "X-Forwarded-Host: mbx-2.contoso.com",
        "X-Host: mbx-2.contoso.com",
        "X-AnchorMailbox: bob",
        "X-PreferServerAffinity: true",
        "Referer: https://mbx-2.contoso.com/",
    ],
)
async def test_no_header_or_cookie_chooses_the_host(world: World, line: str) -> None:
    """Only the user's mailbox decides (C14, field case 118)."""
    client = world.client()
    await client.send(get("/owa/", line))
    assert [c[0] for c in world.loop.connects] == ["127.0.2.1"]
    _, fields, _ = head_of(world.servers[0].take())
    assert fields["host"] == "mbx-1.contoso.com"


async def test_an_absolute_target_does_not_choose_the_host(world: World) -> None:
    """The absolute form is taken when it names the same authority, and goes on in origin form."""
    client = world.client()
    await client.send(get("https://mail.contoso.com/owa/a?b"))
    first, fields, _ = head_of(world.servers[0].take())
    assert first == "GET /owa/a?b HTTP/1.1"
    assert fields["host"] == "mbx-1.contoso.com"
    other = world.client()
    answer = await other.send(get("https://mbx-2.contoso.com/owa/"))
    assert answer.startswith(b"HTTP/1.1 400 ")


async def test_a_trusted_header_replaces_the_password() -> None:
    """With the header form the server gets the user's name there, as UTF-8, and never the password."""
    world = World([mailbox_server("MBX-1", sign_in=HEADER_SIGN_IN), mailbox_server("MBX-2")])
    world.sign_in.logins["alice"] = "älice"
    client = world.client()
    await client.send(get())
    sent = world.servers[0].take()
    assert b"\r\nX-Remote-User: \xc3\xa4lice\r\n" in sent
    assert b"uthorization" not in sent
    assert PASSWORD.encode() not in sent


async def test_a_name_that_would_break_a_header_is_refused() -> None:
    """A directory that holds a line break in a name injects nothing (field case 60)."""
    world = World([mailbox_server("MBX-1", sign_in=HEADER_SIGN_IN), mailbox_server("MBX-2")])
    world.sign_in.logins["alice"] = "alice\r\nX-Admin: 1"
    client = world.client()
    answer = await client.send(get())
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert world.servers == []


async def test_a_trusted_header_needs_tls() -> None:
    """Over a clear endpoint that is not loopback the header form is refused, nothing is sent."""
    server = mailbox_server("MBX-1", sign_in=HEADER_SIGN_IN)
    clear = type(server.endpoints[0])(
        "http", server.endpoints[0].protocol, "198.51.100.1", 80, type(server.endpoints[0].tls)("clear"), "mbx-1"
    )
    virtual = [type(d)(d.server, d.service, d.path, f"http://mbx-1{d.path}") for d in directories("MBX-1", "/owa")]
    world = World([mailbox_server("MBX-1", sign_in=HEADER_SIGN_IN, endpoints=(clear,))], virtual)
    client = world.client()
    answer = await client.send(get())
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert world.loop.connects == []
    assert "TLS" in world.log.of("http.refused")[0]["reason"]


async def test_basic_carries_the_servers_own_name_for_the_user(world: World) -> None:
    """An alias signs in; the server is given the name it knows."""
    world.sign_in.logins["alice"] = "alice@contoso.com"
    client = world.client()
    await client.send(get())
    assert basic("alice@contoso.com").encode() in world.servers[0].take()


async def test_prefixes_are_mapped_and_the_query_is_byte_exact() -> None:
    """A virtual directory whose internal URL has another path (nginx's proxy_pass with a URI)."""
    virtual = [
        type(d)(d.server, d.service, d.path, "https://mbx-1.contoso.com:8443/app/v1")
        for d in directories("MBX-1", "/owa")
    ]
    world = World([mailbox_server("MBX-1")], virtual)
    client = world.client()
    await client.send(get("/OWA/folder%20x/%7Ea?x=%2F..%2f&y=%zz"))
    first, fields, _ = head_of(world.servers[0].take())
    assert first == "GET /app/v1/folder%20x/~a?x=%2F..%2f&y=%zz HTTP/1.1"
    assert fields["host"] == "mbx-1.contoso.com:8443"


async def test_redirects_of_the_server_lead_back_here() -> None:
    """Location and Content-Location that name the server's own URLs are the client's again; others stay."""
    virtual = [
        type(d)(d.server, d.service, d.path, "https://mbx-1.contoso.com/app") for d in directories("MBX-1", "/owa")
    ]
    world = World([mailbox_server("MBX-1")], virtual)
    cases = {
        "https://mbx-1.contoso.com/app/in": "https://mail.contoso.com/owa/in",
        "http://MBX-1.contoso.com:443/app?x=/app": "https://mail.contoso.com/owa?x=/app",
        "/app/login": "/owa/login",
        "/other": "/other",
        "https://mbx-1.contoso.com/ecp": "https://mail.contoso.com/ecp",
        "https://mbx-1.contoso.com.evil.test/app": "https://mbx-1.contoso.com.evil.test/app",
        "//evil.test/app": "//evil.test/app",
        "https://elsewhere.test/": "https://elsewhere.test/",
    }
    client = world.client()
    for url, wanted in cases.items():
        answer = await client.ask(
            get(), response("302 Found", f"Location: {url}", f"Content-Location: {url}", body=b"")
        )
        _, fields, _ = head_of(answer)
        assert (fields["location"], fields["content-location"]) == (wanted, wanted)


async def test_dav_move_reaches_the_same_server() -> None:
    """Destination (RFC 4918) is mapped to the server's URL; one outside the directory is refused with 502."""
    virtual = [
        type(d)(d.server, d.service, d.path, "https://mbx-1.contoso.com/calendars")
        for d in directories("MBX-1", "/dav")
    ]
    world = World([mailbox_server("MBX-1")], virtual)
    client = world.client()
    line = "Destination: https://mail.contoso.com/dav/alice/b.ics"
    condition = "If: <https://mail.contoso.com/dav/alice/b.ics> (<opaquelocktoken:1>)"
    await client.ask(get("/dav/alice/a.ics", line, condition, method="MOVE"), b"")
    first, fields, _ = head_of(await client.serve(response("201 Created", body=b"")))
    assert first == "MOVE /calendars/alice/a.ics HTTP/1.1"
    assert fields["destination"] == "https://mbx-1.contoso.com/calendars/alice/b.ics"
    assert fields["if"] == "<https://mbx-1.contoso.com/calendars/alice/b.ics> (<opaquelocktoken:1>)"
    client.transport.take()
    for elsewhere in ("https://evil.test/dav/x", "https://mail.contoso.com/owa/x", "https://mail.contoso.com/dav/../x"):
        answer = await client.send(get("/dav/alice/a.ics", f"Destination: {elsewhere}", method="COPY"))
        assert answer.startswith(b"HTTP/1.1 502 ")
        assert world.servers[0].take() == b""


async def test_a_request_that_comes_back_is_refused(world: World) -> None:
    """A loop between front ends ends at the second visit (C11); another hop in Via is no loop."""
    client = world.client()
    assert (await client.send(get("/owa/", "Via: 1.1 other, 1.1 CAS-01 (gatepost)"))).startswith(b"HTTP/1.1 508 ")
    await client.send(get("/owa/", "Via: 1.1 other"))
    assert b"Via: 1.1 other\r\nVia: 1.1 CAS-01\r\n" in world.servers[0].take()


async def test_responses_say_who_served(world: World) -> None:
    """X-FEServer, X-BEServer and request-id are ours, once, whatever the server says (C14)."""
    client = world.client()
    await client.send(get())
    _, sent, _ = head_of(world.servers[0].written)
    answer = await client.ask(
        b"", response("200 OK", "X-FEServer: x", "X-BEServer: y", "request-id: z", "Set-Cookie: a=b")
    )
    assert answer.lower().count(b"x-feserver") == answer.lower().count(b"x-beserver") == 1
    _, fields, _ = head_of(answer)
    assert (fields["x-feserver"], fields["x-beserver"]) == ("CAS-01", "MBX-1")
    assert fields["request-id"] == sent["request-id"]
    assert fields["set-cookie"] == "a=b"


async def test_hop_by_hop_fields_of_a_response_are_removed(world: World) -> None:
    """Those that Connection lists, too; Proxy-Authenticate of a server stays out of it."""
    client = world.client()
    lines = ("Connection: keep-alive, X-Internal", "Keep-Alive: timeout=5", "X-Internal: 1", "Trailer: X", "X-Kept: 1")
    _, fields, _ = head_of(await client.ask(get(), response("200 OK", *lines)))
    assert "x-internal" not in fields
    assert "keep-alive" not in fields
    assert "connection" not in fields
    assert "trailer" not in fields
    assert fields["x-kept"] == "1"
