"""Forms sign-in at the front door (SPEC B6): the page, its form, who may post it, what a cookie is worth, sign-out."""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from datetime import UTC, datetime
from html import unescape
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from http_harness import PASSWORD, Client, World, basic, head_of, response

from gatepost.access.http.forms.flow import FormsFlow, is_activity
from gatepost.access.http.forms.form import TOKEN_SECONDS
from gatepost.access.http.forms.session import FormsSession
from gatepost.directory.port import SignInResult, Verdict
from gatepost.organization.model import AuthenticationMethod, HttpSignIn, PathClass, SignIn, VirtualDirectory
from gatepost.wire.http_cookies import AFFINITY, FORM, SIGN_IN

WALL = 1_800_000_000.0
ORIGIN = "https://mail.contoso.com"


def key() -> bytes:
    return ec.generate_private_key(ec.SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


KEY, OTHER = key(), key()


class Shared:
    """The shared state of all front ends."""

    def __init__(self) -> None:
        self.out: dict[str, float] = {}
        self.full = False
        """Nothing can be stored."""

    async def sign_out(self, session_id: str, until: float) -> bool:
        if not self.full:
            self.out[session_id] = until
        return not self.full

    def is_signed_out(self, session_id: str) -> bool:
        return session_id in self.out


class FormsWorld(World):
    """A front door that shows the sign-in page for `/owa` (and takes Basic too for `/both`)."""

    def __init__(self, private_key: bytes = KEY, shared: Shared | None = None, **front_end: Any) -> None:
        super().__init__(private_key=private_key, **front_end)
        self.shift = 0.0
        self.shared = shared or Shared()
        self.use(self.organization)

    def use(self, organization: Any, **front_end: Any) -> None:
        """Take up an organization, with the front end's own directories in it, and settings."""
        own = [
            VirtualDirectory("CAS-01", name, "/" + name, None, authentication=methods, path_class=kind)
            for name, methods, kind in (
                ("owa", frozenset({AuthenticationMethod.FORMS}), PathClass.INTERACTIVE),
                ("both", frozenset({AuthenticationMethod.FORMS, AuthenticationMethod.BASIC}), PathClass.INTERACTIVE),
                ("ews", frozenset({AuthenticationMethod.BASIC}), PathClass.API),
            )
        ]
        rest = [d for d in organization.virtual_directories if d.server != "CAS-01"]
        self.organization = replace(organization, virtual_directories=(*own, *rest))
        changed = replace(self.configuration.front_end, **front_end)
        self.configuration = replace(self.configuration, organization=self.organization, front_end=changed)
        door: Any = self.door
        door.shared_state = self.shared
        door.reload(self.configuration, self.context)
        door.forms = FormsFlow(door, lambda: self.wall)

    @property
    def wall(self) -> float:
        """The clock on the wall."""
        return WALL + self.loop.now + self.shift

    def flow(self) -> FormsFlow:
        door: Any = self.door
        made: FormsFlow = door.forms
        return made


@pytest.fixture
async def world() -> FormsWorld:
    return FormsWorld()


class Browser:
    """A browser without scripts: keeps cookies, follows redirects, fills in forms."""

    def __init__(self, world: FormsWorld, jar: dict[str, str] | None = None) -> None:
        self.world = world
        self.client: Client | None = None
        self.jar: dict[str, str] = jar if jar is not None else {}
        self.status = 0
        self.fields: dict[str, str] = {}
        self.head = ""
        self.text = ""

    async def ask(
        self, path: str, *lines: str, method: str = "GET", form: dict[str, str] | None = None, later: float = 0.0
    ) -> int:
        """One request; the status. `later`: seconds that pass before the answer."""
        if self.client is None or self.client.transport.closed:
            self.client = self.world.client()
        body = urlencode(form).encode() if form is not None else b""
        head = [f"{method} {path} HTTP/1.1", "Host: mail.contoso.com", "Accept: text/html,*/*", *lines]
        if self.jar:
            head.append("Cookie: " + "; ".join(f"{n}={v}" for n, v in self.jar.items()))
        if form is not None:
            head += ["Content-Type: application/x-www-form-urlencoded", f"Content-Length: {len(body)}"]
        got = await self.client.send("\r\n".join([*head, "", ""]).encode() + body)
        got += await self._served()
        if later:
            await self.world.pass_time(later)
            got += self.client.transport.take()
        self._read(got)
        return self.status

    async def _served(self) -> bytes:
        """Have the server that got the request say what it got: user, password, cookies."""
        assert self.client is not None
        for server in self.world.servers:
            if server.written:
                _, fields, _ = head_of(server.take())
                told = base64.b64decode(fields["authorization"].removeprefix("Basic ")).decode()
                server.protocol.data_received(response(body=f"{told} {fields.get('cookie', '')}".encode()))
                await self.world.settle()
        return self.client.transport.take()

    def _read(self, got: bytes) -> None:
        first, self.fields, rest = head_of(got)
        self.head = got.partition(b"\r\n\r\n")[0].decode()
        self.status = int(first.split()[1]) if first else 0
        self.text = rest.decode()
        for line in re.findall(r"^Set-Cookie: (.*?)\r?$", self.head, re.MULTILINE):
            name, _, value = line.partition(";")[0].partition("=")
            if value:
                self.jar[name] = value
            else:
                self.jar.pop(name, None)

    def filled(self, name: str = "alice", password: str = PASSWORD, **changes: str) -> dict[str, str]:
        """The form of the page that is shown, filled in."""
        found = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', self.text)
        fields = {key: unescape(value) for key, value in found}
        return fields | {"username": name, "password": password, "trusted": "0"} | changes

    async def sign_in(self, path: str = "/owa/", name: str = "alice", **changes: str) -> int:
        """From a deep link to the answer to the form."""
        assert await self.ask(path) == 302
        assert await self.ask(self.fields["location"]) == 200
        return await self.post(self.filled(name, **changes))

    async def post(self, form: dict[str, str], *lines: str, later: float = 0.0, path: str = "/owa/auth.owa") -> int:
        return await self.ask(path, f"Origin: {ORIGIN}", *lines, method="POST", form=form, later=later)


@pytest.fixture
async def browser(world: FormsWorld) -> Browser:
    return Browser(world)


# --- signing in


async def test_a_user_is_asked_signs_in_and_is_where_they_wanted(world: FormsWorld, browser: Browser) -> None:
    """The deep link is kept over the page."""
    assert await browser.ask("/owa/?ae=Item&id=a%2Fb", "Sec-Fetch-Mode: navigate") == 302
    address = urlsplit(browser.fields["location"])
    assert address.path == "/owa/auth/logon"
    assert parse_qs(address.query) == {"url": ["/owa/?ae=Item&id=a%2Fb"], "reason": ["0"]}
    assert await browser.ask(browser.fields["location"]) == 200
    assert await browser.post(browser.filled()) == 303
    assert browser.fields["location"] == "/owa/?ae=Item&id=a%2Fb"
    line = next(x for x in browser.head.split("\r\n") if x.startswith("Set-Cookie: __Host-gatepost="))
    assert line.endswith("; Path=/; Secure; HttpOnly; SameSite=Lax")
    assert await browser.ask(browser.fields["location"]) == 200
    assert browser.text == f"alice:{PASSWORD} "
    assert world.log.of("forms.signed_in")[0]["user"] == "alice"
    assert world.sign_in.clients == []


async def test_servers_see_their_own_cookies_and_none_of_ours(browser: Browser) -> None:
    """All of ours stay at the front door, wherever they stand among the others."""
    browser.jar["first"] = "1"
    await browser.sign_in()
    browser.jar |= {AFFINITY.decode(): "x", "last": '"2"'}
    assert await browser.ask("/owa/") == 200
    assert browser.text == f'alice:{PASSWORD} first=1; last="2"'


async def test_basic_is_taken_where_the_directory_says_so(world: FormsWorld) -> None:
    """Beside the page; a directory with the page alone takes none, and looks at no password."""
    client, ask = world.client(), "GET {} HTTP/1.1\r\nHost: mail.contoso.com\r\n{}\r\n\r\n"
    got = await client.send(ask.format("/owa/", basic("alice")).encode())
    assert got.startswith(b"HTTP/1.1 440 ")
    assert world.sign_in.asked == []
    await client.send(ask.format("/both/", basic("alice")).encode())
    assert world.sign_in.asked == [("alice", PASSWORD)]


async def test_a_password_that_takes_its_time(world: FormsWorld, browser: Browser) -> None:
    """The same where the check runs in a thread; it counts for the client's address."""
    world.sign_in.now = False
    assert await browser.sign_in() == 303
    assert world.sign_in.clients == ["192.0.2.7"]


async def test_the_page_asks_nothing_of_a_browser(world: FormsWorld, browser: Browser) -> None:
    """No script, no file; labels; what password managers look for; and the headers of the strict policy."""
    await browser.ask("/owa/auth/logon")
    assert "<script" not in browser.text
    assert "src=" not in browser.text
    assert "style=" not in browser.text
    assert 'autocomplete="username"' in browser.text
    assert 'autocomplete="current-password"' in browser.text
    for label in ("username", "password"):
        assert f'<label for="{label}">' in browser.text
        assert f'id="{label}"' in browser.text
    assert re.findall(r'value="(\d)"( checked)?>', browser.text) == [("0", " checked"), ("4", "")]
    assert "15 minutes" in browser.text
    assert "8 hours" in browser.text
    policy = browser.fields["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert browser.fields["x-frame-options"] == "DENY"
    assert browser.fields["x-content-type-options"] == "nosniff"
    assert browser.fields["referrer-policy"] == "same-origin"
    assert browser.head.count("Cache-Control: no-store") == 1
    assert 'name="viewport"' in browser.text


async def test_wrong_credentials_wait_and_say_so(world: FormsWorld, browser: Browser) -> None:
    """After the same time whatever the check took; the name is kept, the password not; one line in the log."""
    world.sign_in.now = False
    await browser.ask("/owa/auth/logon?url=/owa/x")
    form = browser.filled("alice", "wrong <pw>")
    assert await browser.post(form, later=world.door.limits.refused_sign_in_delay_seconds - 0.1) == 0
    assert browser.client is not None
    await world.pass_time(0.2)
    browser._read(browser.client.transport.take())
    assert browser.status == 403
    assert "name or the password is not right" in browser.text
    assert 'role="alert"' in browser.text
    assert "aria-live" in browser.text
    assert 'value="alice"' in browser.text
    assert "wrong" not in browser.text
    assert SIGN_IN.decode() not in browser.jar
    (line,) = world.log.of("http.refused")
    assert (line["status"], line["user"], line["reason"]) == (403, "alice", "wrong password")
    world.sign_in.now = True
    assert await browser.post(browser.filled()) == 303
    assert browser.fields["location"] == "/owa/x"


@pytest.mark.parametrize(
    ("verdict", "status", "words"),
    [
        (Verdict.UNAVAILABLE, 503, "nothing is wrong with it"),
        (Verdict.BUSY, 503, "Your password was not checked"),
        (Verdict.PROTOCOL_NOT_ALLOWED, 403, "may not use the mailbox in a browser"),
    ],
)
async def test_a_temporary_fault_never_looks_like_a_wrong_password(
    world: FormsWorld, browser: Browser, verdict: Verdict, status: int, words: str
) -> None:
    """503 with the page, or a page that says what it is."""
    world.sign_in.now = False
    world.sign_in.verdict = SignInResult(verdict, reason="why")
    await browser.ask("/owa/auth/logon")
    assert await browser.post(browser.filled(), later=2.0) == status
    assert words in browser.text
    assert "not right" not in browser.text
    assert ("retry-after" in browser.fields) is (status == 503)
    assert SIGN_IN.decode() not in browser.jar


async def test_a_client_that_leaves_while_its_password_is_checked(world: FormsWorld, browser: Browser) -> None:
    """Nothing is written to a closed connection, and nobody is signed in."""
    world.sign_in.now = False
    await browser.ask("/owa/auth/logon")
    form = browser.filled("alice", "wrong")
    assert await browser.post(form) == 0
    assert browser.client is not None
    browser.client.transport.lose()
    await world.pass_time(5.0)
    assert browser.client.transport.take() == b""


# --- who may post the form


async def test_a_form_that_this_browser_was_not_shown(world: FormsWorld, browser: Browser) -> None:
    """Login CSRF: no token, another browser's, one without the cookie. No password is even looked at."""
    await browser.ask("/owa/auth/logon")
    other = Browser(world)
    await other.ask("/owa/auth/logon")
    form = other.filled()
    for token in (form["token"], "", "x", form["token"][:-2]):
        assert await browser.post(form | {"token": token}) == 403
        assert "open for too long" in browser.text
    browser.jar.clear()
    assert await browser.post(browser.filled(token=other.jar[FORM.decode()])) == 403
    assert SIGN_IN.decode() not in browser.jar
    assert world.sign_in.asked == []
    assert await browser.post(browser.filled()) == 303, "the page that is shown instead works"


@pytest.mark.parametrize(
    "line",
    ["Origin: https://evil.example", "Origin: null", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: same-site"],
)
async def test_a_form_of_another_site(world: FormsWorld, browser: Browser, line: str) -> None:
    """By what the browser says of it, token or not; another host of the same domain is another site."""
    await browser.ask("/owa/auth/logon")
    assert await browser.ask("/owa/auth.owa", line, method="POST", form=browser.filled()) == 403
    assert "another site" in browser.text
    assert world.sign_in.asked == []


async def test_a_page_may_stay_open_for_a_day_at_work(world: FormsWorld, browser: Browser) -> None:
    """Then it is shown anew; two windows share one token, so both work."""
    await browser.ask("/owa/auth/logon")
    first = browser.filled()
    await browser.ask("/owa/auth/logon")
    assert browser.filled()["token"] == first["token"]
    assert "set-cookie" not in browser.fields
    world.shift += TOKEN_SECONDS - 1
    assert await browser.post(first) == 303
    world.shift += 2
    assert await browser.post(first) == 403
    assert await browser.post(browser.filled()) == 303


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"username=alice", "application/x-www-form-urlencoded"),
        (b"username=alice&password=x&username=bob", "application/x-www-form-urlencoded"),
        (b"username=%FF&password=x", "application/x-www-form-urlencoded"),
        (b"username=\xff&password=x", "application/x-www-form-urlencoded"),
        (b"username=alice&password=x", "text/plain"),
        (b"username=a&password=b" + b"&x=y" * 40, "application/x-www-form-urlencoded"),
        (b'{"username":"alice","password":"x"}', "application/json"),
    ],
)
async def test_what_is_no_form_of_ours(world: FormsWorld, body: bytes, kind: str) -> None:
    """400, and nothing is checked."""
    head = f"POST /owa/auth.owa HTTP/1.1\r\nHost: mail.contoso.com\r\nContent-Type: {kind}\r\n"
    got = await world.client().send(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    assert got.startswith(b"HTTP/1.1 400 ")
    assert world.sign_in.asked == []


async def test_a_form_that_is_too_large(world: FormsWorld) -> None:
    """413 by its length alone."""
    head = "POST /owa/auth.owa HTTP/1.1\r\nHost: mail.contoso.com\r\nContent-Length: 16385\r\n\r\n"
    assert (await world.client().send(head.encode())).startswith(b"HTTP/1.1 413 ")


async def test_methods_of_our_paths(browser: Browser) -> None:
    """A reload of the form's address leads to the page."""
    assert await browser.ask("/owa/auth.owa") == 302
    assert browser.fields["location"] == "/owa/auth/logon?reason=0"
    assert await browser.ask("/owa/auth.owa", method="PUT") == 405
    assert await browser.ask("/owa/auth/logon", method="DELETE") == 405
    assert await browser.ask("/OWA/Auth/Logon") == 200
    assert await browser.ask("/owa/logoff", method="PUT") == 405


# --- where the user goes


@pytest.mark.parametrize(
    "wanted",
    [
        "//evil.example/", "/\\evil.example", "\\\\evil.example", "https://evil.example/owa/", "https:evil.example",
        "https:/owa/", "javascript:alert(1)", "owa/", "", "/", "/elsewhere/", "/owa/\r\nSet-Cookie: a=b", "/owa/\x00",
        "/owa/\t", "/owa/%0d%0aX: y", "/owa/../evil", "/owa/%2e%2e/x", "/owa/;/..", "/@evil.example", "//owa/",
        "/owa@evil.example", "/owa/auth/logon", "/owa/logoff", "/OWA/LogOff.owa", "/owa/ü", "/owa/#x", "/owaevil/",
        "/owa/" + "x" * 2048, "/owa/%5c%5cevil", "https://mail.contoso.com/owa/x", " /owa/x", "/owa/%",
    ],
)  # fmt: skip
async def test_no_address_leads_elsewhere(browser: Browser, wanted: str) -> None:
    """Open redirects, headers in the address, circles: all lead to the directory's own page."""
    await browser.ask("/owa/auth/logon?" + urlencode({"url": wanted}))
    assert browser.filled()["destination"] == "/owa/"
    assert await browser.post(browser.filled(destination=wanted)) == 303
    assert browser.fields["location"] == "/owa/"
    assert set(browser.fields) == {
        "date", "content-type", "content-length", "cache-control", "x-feserver", "request-id", "location", "set-cookie",
    }  # fmt: skip


@pytest.mark.parametrize("wanted", ["/owa", "/owa/?a=b&c=%20//x@y:z", "/Dav/x;y=z", "/ews/exchange.asmx", "/owa/@x"])
async def test_addresses_within_any_virtual_directory_are_kept(browser: Browser, wanted: str) -> None:
    """Byte for byte."""
    await browser.ask("/owa/auth/logon?" + urlencode({"url": wanted}))
    assert await browser.post(browser.filled()) == 303
    assert browser.fields["location"] == wanted


async def test_what_is_shown_is_escaped(browser: Browser) -> None:
    """Names and addresses come from strangers."""
    evil = '"><script>alert(1)</script>'
    await browser.ask("/owa/auth/logon?" + urlencode({"url": "/owa/?" + evil, "reason": evil}))
    assert evil not in browser.text
    await browser.post(browser.filled(evil, "x"), later=2.0)
    assert browser.status == 403
    assert "<script" not in browser.text


@pytest.mark.parametrize(("reason", "words"), [("3", "nothing happened for a while"), ("1", "signed out")])
async def test_an_address_may_give_a_reason(browser: Browser, reason: str, words: str) -> None:
    """Of those that frighten nobody: it cannot say that a password was wrong."""
    await browser.ask(f"/owa/auth/logon?reason={reason}")
    assert words in browser.text
    for other in ("2", "5", "6", "7", "99", "x", "-1", "٣"):
        await browser.ask("/owa/auth/logon?" + urlencode({"reason": other}))
        assert re.search(r'<p id="said"[^>]*></p>', browser.text)


# --- requests without a cookie


@pytest.mark.parametrize(
    ("lines", "method", "status"),
    [
        (("Sec-Fetch-Mode: navigate",), "GET", 302),
        (("Sec-Fetch-Mode: navigate",), "HEAD", 302),
        ((), "GET", 302),
        (("Sec-Fetch-Mode: cors",), "GET", 440),
        (("Sec-Fetch-Mode: websocket",), "GET", 440),
        (("X-Requested-With: XMLHttpRequest",), "GET", 440),
        (("Sec-Fetch-Mode: navigate",), "POST", 440),
        ((), "PROPFIND", 440),
    ],
)
async def test_pages_are_for_people_and_440_for_scripts(
    browser: Browser, lines: tuple[str, ...], method: str, status: int
) -> None:
    """As the source system: GET goes to the page, everything else gets 440 Login Timeout."""
    assert await browser.ask("/owa/x", *lines, method=method) == status
    if status == 440:
        assert browser.head.startswith("HTTP/1.1 440 Login Timeout")
        assert "www-authenticate" not in browser.fields


async def test_programs_are_asked_for_basic_where_the_directory_takes_it(world: FormsWorld) -> None:
    """A directory with forms and Basic: a browser's scripts get 440 all the same, or a password box would come up."""
    ask = "GET /both/x HTTP/1.1\r\nHost: mail.contoso.com\r\nAccept: application/json\r\n"
    got = await world.client().send(f"{ask}\r\n".encode())
    assert got.startswith(b"HTTP/1.1 401 ")
    assert b"WWW-Authenticate: Basic" in got
    got = await world.client().send(f"{ask}Sec-Fetch-Mode: cors\r\n\r\n".encode())
    assert got.startswith(b"HTTP/1.1 440 ")
    got = await world.client().send(ask.replace("/both", "/owa").encode() + b"\r\n")
    assert got.startswith(b"HTTP/1.1 440 ")


async def test_directories_without_forms_show_no_page(world: FormsWorld, browser: Browser) -> None:
    """And have no paths of ours."""
    assert await browser.ask("/ews/x") == 401
    assert not world.flow().concerns("/ews/auth/logon")
    assert not world.flow().concerns("/owa/auth")
    assert world.flow().concerns("/both/auth/logon")


async def test_a_long_deep_link_is_given_up(browser: Browser) -> None:
    """The page comes all the same."""
    assert await browser.ask("/owa/?" + "x" * 3000) == 302
    assert browser.fields["location"] == "/owa/auth/logon?reason=0"


async def test_in_clear_nobody_is_asked_for_a_password(world: FormsWorld) -> None:
    """403, for the page as for what needs it; a cookie in clear is none."""
    world.door.clear_passwords = True
    browser = Browser(world)
    await browser.sign_in()
    client = world.client(tls=False)
    cookie = f"Cookie: __Host-gatepost={browser.jar[SIGN_IN.decode()]}\r\n"
    for path in ("/owa/", "/owa/auth/logon", "/owa/logoff"):
        got = await client.send(f"GET {path} HTTP/1.1\r\nHost: mail.contoso.com\r\n{cookie}\r\n".encode())
        assert got.startswith(b"HTTP/1.1 403 ")
        assert b"https://" in got


# --- what a cookie is worth


async def test_a_signed_in_user_continues_on_another_front_end(world: FormsWorld, browser: Browser) -> None:
    """SPEC B6: with the same certificate; with another one the user is asked."""
    await browser.sign_in()
    second = Browser(FormsWorld(), browser.jar)
    assert await second.ask("/owa/") == 200
    assert second.text.startswith("alice:")
    third = Browser(FormsWorld(OTHER), browser.jar)
    assert await third.ask("/owa/") == 302


async def test_another_users_cookie_is_that_users(world: FormsWorld, browser: Browser) -> None:
    """Two browsers on one connection: nobody inherits a sign-in."""
    await browser.sign_in()
    bob = Browser(world)
    bob.client = browser.client
    await bob.sign_in(name="bob")
    assert (await bob.ask("/owa/"), bob.text) == (200, f"bob:{PASSWORD} ")
    assert (await browser.ask("/owa/"), browser.text) == (200, f"alice:{PASSWORD} ")
    nobody = Browser(world)
    nobody.client = browser.client
    assert await nobody.ask("/owa/") == 302


async def test_the_cookie_counts_for_browsers_only(browser: Browser) -> None:
    """A program's path takes a password: what a page can have a browser send is not enough there."""
    await browser.sign_in()
    assert await browser.ask("/owa/") == 200
    assert await browser.ask("/ews/Exchange.asmx") == 401
    assert await browser.ask("/dav/", method="PROPFIND") == 401


async def test_forged_and_cut_cookies(world: FormsWorld, browser: Browser) -> None:
    """Each leads to the page, and none to a fault."""
    await browser.sign_in()
    name, good = SIGN_IN.decode(), browser.jar[SIGN_IN.decode()]
    form = browser.jar[FORM.decode()]
    for wrong in (good[:-1], good[1:], good + "A", "", "x", form, good.swapcase(), f"{good}; {name}={good}"):
        browser.jar[name] = wrong
        assert await browser.ask("/owa/") == 302, wrong
    browser.jar[name] = good
    assert await browser.ask("/owa/") == 200


async def test_time_outs_by_the_computer_chosen(world: FormsWorld, browser: Browser) -> None:
    """Public: 15 minutes, 22.5 at most; private: 8 hours. The page then says why."""
    await browser.sign_in()
    world.shift += 1.5 * 900 - 1
    assert world.flow().identity(world.client().leg, browser.jar[SIGN_IN.decode()].encode()) is not None
    world.shift += 1
    assert await browser.ask("/owa/") == 302
    assert browser.fields["location"].endswith("reason=3")
    await browser.ask(browser.fields["location"])
    assert "nothing happened for a while" in browser.text
    assert await browser.post(browser.filled(trusted="4")) == 303
    world.shift += 28800
    assert await browser.ask("/owa/") == 200


async def test_activity_renews_and_asking_for_news_does_not(world: FormsWorld, browser: Browser) -> None:
    """Past half of the time-out; `UA=0` in the query is no activity."""
    await browser.sign_in()
    world.shift += 440
    assert await browser.ask("/owa/") == 200
    assert "set-cookie" not in browser.fields
    world.shift += 20
    assert await browser.ask("/owa/ev.owa2?ns=x&UA=0") == 200
    assert "set-cookie" not in browser.fields
    before = browser.jar[SIGN_IN.decode()]
    assert await browser.ask("/owa/") == 200
    assert browser.jar[SIGN_IN.decode()] != before
    world.shift += 1349
    assert await browser.ask("/owa/") == 200


def test_what_counts_as_activity() -> None:
    """The parameter as such, in any case; nothing that only looks like it."""
    assert not is_activity(b"?UA=0")
    assert not is_activity(b"?a=b&ua=0&c=d")
    for query in (b"", b"?", b"?UA=1", b"?UA=00", b"?XUA=0", b"?a=UA=0", b"?UA", b"?id=0"):
        assert is_activity(query)


@pytest.mark.parametrize("change", ["password", "deleted"])
async def test_a_password_change_or_a_deleted_user_voids_it(world: FormsWorld, browser: Browser, change: str) -> None:
    """On the next request, at every front end."""
    await browser.sign_in()
    world.sign_in.hashes["alice"] = "another"
    if change == "deleted":
        del world.sign_in.databases["alice"]
    assert await browser.ask("/owa/") == 302
    assert browser.fields["location"].endswith("reason=4")


async def test_a_directory_that_is_away_is_503(world: FormsWorld, browser: Browser) -> None:
    """Not the sign-in page: nothing is wrong with the password. A user who may not use HTTP is 403."""
    await browser.sign_in()
    world.sign_in.verdict = SignInResult(Verdict.UNAVAILABLE)
    assert await browser.ask("/owa/") == 503
    world.sign_in.verdict = SignInResult(Verdict.PROTOCOL_NOT_ALLOWED)
    assert await browser.ask("/owa/") == 403
    world.sign_in.verdict = None
    assert await browser.ask("/owa/") == 200


async def test_what_a_connection_remembers_is_asked_again(world: FormsWorld, browser: Browser) -> None:
    """When the time is over, the directory has changed, the settings have, or a minute has passed; else not."""
    await browser.sign_in()
    flow, leg, value = world.flow(), world.client().leg, browser.jar[SIGN_IN.decode()].encode()
    signed = flow.identity(leg, value)
    assert signed is not None
    looks = world.sign_in.looks
    assert flow.still_good(signed, world.wall)
    assert world.sign_in.looks == looks
    world.sign_in.directory_changes += 1
    assert flow.still_good(signed, world.wall)
    assert flow.still_good(signed, world.wall + 61)
    assert world.sign_in.looks == looks + 2
    assert not flow.still_good(signed, world.wall + 1350)
    world.sign_in.directory_changes += 1
    world.sign_in.hashes["alice"] = "another"
    assert not flow.still_good(signed, world.wall)
    assert signed.identity is None
    del world.sign_in.hashes["alice"]
    again = flow.identity(leg, value)
    assert again is not None
    flow.configure()
    assert not flow.still_good(again, world.wall)


async def test_the_password_is_in_the_cookie_only_where_a_server_needs_it(browser: Browser) -> None:
    """With servers that are told the name in a header it is not; a cookie without it is void where it is needed."""
    world = FormsWorld()
    servers = {n: replace(s, sign_in=SignIn(http=HttpSignIn.HEADER)) for n, s in world.organization.servers.items()}
    with_basic = world.organization
    world.use(replace(world.organization, servers=servers))
    named = Browser(world)
    await named.sign_in()
    assert (await session(world, named)).password == ""
    await browser.sign_in()
    assert (await session(world, browser)).password == PASSWORD
    world.use(with_basic)
    assert await named.ask("/owa/") == 302


async def session(world: FormsWorld, browser: Browser) -> FormsSession:
    opened = world.flow().sessions.open(browser.jar[SIGN_IN.decode()].encode(), world.wall)
    assert opened is not None
    return opened


async def test_secrets_are_in_no_log_line_and_no_words(world: FormsWorld, browser: Browser) -> None:
    """Password, cookie, session id and token, right or wrong."""
    await browser.sign_in()
    await browser.ask("/owa/")
    signed = world.flow().identity(world.client().leg, browser.jar[SIGN_IN.decode()].encode())
    await browser.ask("/owa/auth/logon")
    await browser.post(browser.filled("alice", "wr0ng secret"), later=2.0)
    found = await session(world, browser)
    words = repr(world.log.lines) + repr(signed) + repr(signed and signed.identity) + repr(found)
    for secret in (PASSWORD, "wr0ng", found.id.hex(), browser.jar[SIGN_IN.decode()], browser.jar[FORM.decode()]):
        assert secret not in words


# --- signing out

VISIT = ("Sec-Fetch-Site: same-origin", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document")


@pytest.mark.parametrize("path", ["/owa/logoff", "/owa/logoff.owa"])
async def test_signing_out_ends_the_sign_in_everywhere(world: FormsWorld, browser: Browser, path: str) -> None:
    """The cookie goes, and a copy of it is void at every front end until none can be good."""
    await browser.sign_in()
    browser.jar[AFFINITY.decode()] = "x"
    copy = dict(browser.jar)
    assert await browser.ask(path, *VISIT) == 200
    assert "You are signed out" in browser.text
    assert SIGN_IN.decode() not in browser.jar
    assert AFFINITY.decode() not in browser.jar
    assert "Sign in again" in browser.text
    for place in (world, FormsWorld(shared=world.shared)):
        thief = Browser(place, dict(copy))
        assert await thief.ask("/owa/") == 302
        assert thief.fields["location"].endswith("reason=1")
    assert world.shared.out == {next(iter(world.shared.out)): world.wall + 300 + 1.5 * 900}
    assert world.log.of("forms.signed_out")[0]["user"] == "alice"


async def test_a_sign_out_that_other_front_ends_do_not_learn_is_told_to_the_user_and_the_log(
    world: FormsWorld, browser: Browser
) -> None:
    """A full disk: this front end knows it, the page does not say that all is closed."""
    await browser.sign_in()
    copy = dict(browser.jar)
    world.shared.full = True
    assert await browser.ask("/owa/logoff", *VISIT) == 200
    assert "You are signed out" in browser.text
    assert "may stay signed in for up to 28 minutes after their last use" in browser.text
    assert SIGN_IN.decode() not in browser.jar
    (line,) = world.log.of("forms.sign_out_not_shared")
    until = datetime.fromtimestamp(world.wall + 300 + 1.5 * 900, UTC)
    assert (line["user"], line["until"]) == ("alice", until.isoformat(timespec="seconds"))
    assert await Browser(world, dict(copy)).ask("/owa/") == 302, "void here"
    world.shared.full = False
    other = Browser(world)
    await other.sign_in()
    await other.ask("/owa/logoff", *VISIT)
    assert "may stay signed in" not in other.text
    assert len(world.log.of("forms.sign_out_not_shared")) == 1


async def test_a_sign_out_ends_what_connections_remember(world: FormsWorld, browser: Browser) -> None:
    """By the shared state alone, too: it was another front end's."""
    await browser.sign_in()
    signed = world.flow().identity(world.client().leg, browser.jar[SIGN_IN.decode()].encode())
    assert signed is not None
    world.shared.out[signed.id] = world.wall
    assert not world.flow().still_good(signed, world.wall)


@pytest.mark.parametrize(
    "lines",
    [
        (),
        ("Sec-Fetch-Site: cross-site", *VISIT[1:]),
        ("Sec-Fetch-Site: same-site", *VISIT[1:]),
        (VISIT[0], "Sec-Fetch-Mode: no-cors", "Sec-Fetch-Dest: image"),
        (VISIT[0], "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: iframe"),
        (*VISIT, "Sec-Purpose: prefetch;prerender"),
        (*VISIT, "Purpose: prefetch"),
    ],
)
async def test_only_a_visit_signs_out(world: FormsWorld, browser: Browser, lines: tuple[str, ...]) -> None:
    """Another site's link, a picture in a message, a page fetched ahead: a button, which works."""
    await browser.sign_in()
    assert await browser.ask("/owa/logoff", *lines) == 200
    assert "Sign out?" in browser.text
    assert world.shared.out == {}
    assert "set-cookie" not in browser.fields
    assert re.search(r'<form method="post" action="/owa/logoff">', browser.text)
    assert await browser.ask("/owa/logoff", f"Origin: {ORIGIN}", method="POST", form={}) == 200
    assert len(world.shared.out) == 1
    assert SIGN_IN.decode() not in browser.jar


async def test_another_sites_form_signs_nobody_out(world: FormsWorld, browser: Browser) -> None:
    """It says where it is from, or comes without the cookie and says nothing."""
    await browser.sign_in()
    assert await browser.ask("/owa/logoff", "Origin: https://evil.example", method="POST", form={}) == 200
    assert "Sign out?" in browser.text
    stranger = Browser(world)
    assert await stranger.ask("/owa/logoff", method="POST", form={}) == 200
    assert "set-cookie" not in stranger.fields
    assert await browser.ask("/owa/") == 200


async def test_signing_out_without_a_sign_in(world: FormsWorld, browser: Browser) -> None:
    """Nothing to void; the page comes."""
    assert await browser.ask("/owa/logoff", "Sec-Fetch-Site: none", *VISIT[1:]) == 200
    assert "You are signed out" in browser.text
    assert world.shared.out == {}
