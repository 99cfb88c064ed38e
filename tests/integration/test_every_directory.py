"""One suite for every engine: a whole front door before real mailbox servers, by all protocols, with its users there.

Who signs in by name, alias and account; who does not, and what each client is told; databases that move, users who are
changed in the directory, and the directory's end and return.
"""

from __future__ import annotations

import http.client
import imaplib
import poplib
import re
import smtplib
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from urllib.parse import urlencode

import pytest
from activesync import Phone
from directory_backends import AGE_SECONDS, ENGINES, Backend, backend
from directory_contract import PATIENCE_SECONDS
from doors import FrontDoor, Servers, start
from submission_stage import OUTSIDE, message, new_sink, submission_dovecot

from gatepost.directory.port import User
from gatepost.lab.clients import CLIENT_SECONDS, imap
from gatepost.lab.servers.dovecot import Dovecot
from gatepost.lab.servers.process import free_ports
from gatepost.lab.toml_text import Table
from gatepost.organization.model import Protocol
from gatepost.routing.decision import Mailbox

ALICE = User("alice@contoso.com", Mailbox("DB01"))
ALIAS = "alice.a@contoso.com"
BOB = User("bob@contoso.com", Mailbox("DB02"))
"""Signs in first when the directory is back."""
CAROL = User("carol@contoso.com", Mailbox("DB01"), protocols=frozenset({Protocol.IMAP}))
DAVE = User("dave@contoso.com", Mailbox("DB01"), disabled=True)
PASSWORDS = {
    "alice@contoso.com": "apw",
    "bob@contoso.com": "bpw",
    "carol@contoso.com": "cpw",
    "dave@contoso.com": "dpw",
}
WRONG, DENIED, UNAVAILABLE = "wrong", "denied", "unavailable"
_MAILBOX_SERVER = re.compile(rb" on (MBX-\d\d)")
_TOKEN = re.compile(r'name="token" value="([^"]*)"')
OWA, EAS, EWS = "/owa", "/Microsoft-Server-ActiveSync", "/EWS"
GET_FOLDER = (
    b'<s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/"><s:Body><m:GetFolder xmlns:m='
    b'"http://schemas.microsoft.com/exchange/services/2006/messages"/></s:Body></s:Envelope>'
)
MOBILE = "http://schemas.microsoft.com/exchange/autodiscover/mobilesync/responseschema/2006"


@dataclass
class Place:
    """A front door, and the engine's server. Each way in answers the mailbox server's name, or why not."""

    door: FrontDoor
    users: Backend

    def imap(self, name: str, password: str) -> str:
        client = imap(self.door.addresses["imaps"], self.door.client_context)
        try:
            client.login(name, password)
            client.select("INBOX", readonly=True)
            return _server_in(str(client.fetch("1", "(BODY.PEEK[])")).encode())
        except imaplib.IMAP4.error as error:
            return _verdict(str(error), "AUTHENTICATIONFAILED", "AUTHORIZATIONFAILED", "UNAVAILABLE")
        finally:
            client.shutdown()

    def pop3(self, name: str, password: str) -> str:
        address = self.door.addresses["pop3s"]
        client = poplib.POP3_SSL(*address, context=self.door.client_context, timeout=CLIENT_SECONDS)
        try:
            client.user(name)
            client.pass_(password)
            return _server_in(b" ".join(client.retr(1)[1]))
        except poplib.error_proto as error:
            return _verdict(str(error), "[AUTH]", "[SYS/PERM]", "[SYS/TEMP]")
        finally:
            client.close()

    def submission(self, name: str, password: str) -> str:
        host, port = self.door.addresses["submissions"]
        context = self.door.client_context
        seen = len(self._submissions())
        with smtplib.SMTP_SSL(
            host, port, context=context, timeout=CLIENT_SECONDS, source_address=(OUTSIDE, 0)
        ) as client:
            try:
                client.login(name, password)
            except smtplib.SMTPAuthenticationError as error:
                return _verdict(str(error.smtp_code), "535", "525", "454")
            assert client.sendmail(ALICE.name, ["somebody@fabrikam.com"], message("submitted")) == {}
        until(lambda: len(self._submissions()) > seen, "the session's line in the log")
        return self._submissions()[-1]

    def owa(self, name: str, password: str) -> str:
        """By the sign-in page, as a browser fills it in."""
        cookie = self.sign_in_page(name, password)
        return self.owa_by(cookie) if cookie.startswith("__Host-") else cookie

    def sign_in_page(self, name: str, password: str) -> str:
        """The cookie that the sign-in came to, or why not."""
        page = self._web(f"{OWA}/", {"Accept": "text/html"})
        assert page[0] == 302, page
        shown = self._web(page[1]["Location"], {"Accept": "text/html"})
        token = _TOKEN.search(shown[2])
        assert token is not None, shown
        cookies = shown[1].get_all("Set-Cookie", [])
        fields = {"username": name, "password": password, "token": token[1], "destination": f"{OWA}/", "trusted": "0"}
        kept = "; ".join(line.partition(";")[0] for line in cookies)
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Cookie": kept, "Accept": "text/html"}
        status, found, text = self._web(f"{OWA}/auth.owa", headers, urlencode(fields).encode())
        if status != 303:
            return _form_verdict(status, text)
        made = [line.partition(";")[0] for line in found.get_all("Set-Cookie", [])]
        return next(line for line in made if line.startswith("__Host-gatepost="))

    def owa_by(self, cookie: str) -> str:
        """A page by the sign-in cookie."""
        status, found, text = self._web(f"{OWA}/", {"Cookie": cookie})
        return found["X-BEServer"] if status == 200 else _status(status, text)

    def activesync(self, name: str, password: str) -> str:
        """By Basic, as phones do."""
        host, port = self.door.addresses["https"]
        phone = Phone(host, port, name, password, self.door.client_context)
        answer = phone.options()
        if answer.status != 200:
            return _status(answer.status)
        (folder,) = phone.folder_sync().folders()
        assert folder == f"Inbox on {answer.headers['X-BEServer']}"
        return str(answer.headers["X-BEServer"])

    def ews(self, name: str, password: str) -> str:
        status, found, text = self._web(f"{EWS}/Exchange.asmx", basic(name, password), GET_FOLDER)
        return found["X-BEServer"] if status == 200 else _status(status, text)

    def autodiscover(self, name: str, password: str) -> str:
        """The URL for phones."""
        body = (
            f"<Autodiscover><Request><EMailAddress>{ALICE.name}</EMailAddress>"
            f"<AcceptableResponseSchema>{MOBILE}</AcceptableResponseSchema></Request></Autodiscover>"
        ).encode()
        status, _, text = self._web("/Autodiscover/Autodiscover.xml", basic(name, password), body)
        found = re.search(r"<Url>([^<]*)</Url>", text)
        return found[1] if status == 200 and found else _status(status, text)

    def ways(self) -> dict[str, Callable[[str, str], str]]:
        """All of them that end at a mailbox server."""
        found = (self.imap, self.pop3, self.submission, self.owa, self.activesync, self.ews)
        return {way.__name__: way for way in found}

    def everywhere(self, name: str, password: str) -> dict[str, str]:
        """What each way in comes to."""
        return {word: way(name, password) for word, way in self.ways().items()}

    def all_come_to(self, server: str, name: str, password: str) -> None:
        """Waits until each way in has followed; nothing else may be said meanwhile than where it was before."""
        for word, way in self.ways().items():
            until(lambda way=way: way(name, password) == server, f"{name} at {server} by {word}")  # type: ignore[misc]

    def _web(
        self, path: str, headers: dict[str, str] | None = None, body: bytes = b""
    ) -> tuple[int, http.client.HTTPMessage, str]:
        connection = http.client.HTTPSConnection(
            *self.door.addresses["https"], context=self.door.client_context, timeout=CLIENT_SECONDS
        )
        try:
            sent = {"Host": "mail.contoso.com"} | ({"Content-Type": "text/xml; charset=utf-8"} if body else {})
            connection.request("POST" if body else "GET", path, body or None, sent | (headers or {}))
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read().decode()
        finally:
            connection.close()

    def _submissions(self) -> list[str]:
        lines = self.door.process.events("submission.session")
        return [line["server"] for line in lines if line["outcome"] == "signed in"]


def basic(name: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + b64encode(f"{name}:{password}".encode()).decode()}


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait until it is so."""
    deadline = time.monotonic() + 2 * PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"did not happen: {what}"
        time.sleep(0.05)


def _server_in(text: bytes) -> str:
    found = _MAILBOX_SERVER.search(text)
    assert found is not None, text
    return found[1].decode()


def _verdict(text: str, *codes: str) -> str:
    """The word for the code in a refusal's text; the text itself where there is none."""
    words = zip(codes, (WRONG, DENIED, UNAVAILABLE), strict=True)
    return next((word for code, word in words if code in text), text)


def _form_verdict(status: int, text: str) -> str:
    """Of the sign-in page: it comes again with 403 for a wrong password; a notice with 403 is a refusal."""
    return WRONG if status == 403 and "is not right" in text else _status(status, text)


def _status(status: int, text: str = "") -> str:
    return {401: WRONG, 403: DENIED, 503: UNAVAILABLE}.get(status, f"{status} {text}")


@pytest.fixture(scope="module")
def submissions(servers: Servers) -> Iterator[dict[str, Dovecot]]:
    """The submission servers of MBX-01 and MBX-02."""
    with (
        new_sink(servers, "EVERY-sink") as sink,
        submission_dovecot(servers, "EVERY-01", sink) as first,
        submission_dovecot(servers, "EVERY-02", sink) as second,
    ):
        yield {"MBX-01": first, "MBX-02": second}


@pytest.fixture(scope="module", params=ENGINES)
def place(
    request: pytest.FixtureRequest,
    servers: Servers,
    submissions: dict[str, Dovecot],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Place]:
    """The same users in every engine. Each test leaves them as they were."""
    with backend(request.param, servers, tmp_path_factory.mktemp("every"), request) as users:
        for user in (ALICE, BOB, CAROL, DAVE):
            users.put(user, (ALIAS,) if user is ALICE else (), PASSWORDS[user.name])

        def change(front_end: Table, organization: Table) -> None:
            users.configure(front_end)
            front_end["limits"]["refused_sign_in_delay_seconds"] = 0.01
            _add_services(servers, submissions, organization)

        with start(servers, change, users=[]) as door:
            yield Place(door, users)


def _add_services(servers: Servers, submissions: dict[str, Dovecot], organization: Table) -> None:
    tables = organization["servers"]
    front = tables["CAS-01"]
    front["endpoints"]["submissions"] = {"port": free_ports(front["address"], 1)[0]}
    for name, server in submissions.items():
        servers.dovecot(name)  # its web part is at its address
        assert server.submission is not None
        tables[name]["sign_in"] |= {"http": "header", "http_header": "X-Remote-User"}
        tables[name]["endpoints"] |= {
            "https": {"port": servers.mailbox_web(name).port, "tls_name": f"{name.lower()}.contoso.com"},
            "submission": {
                "address": server.address, "port": server.submission.ports.submission, "tls": "clear",
                "client_address": "xclient",
            },
        }  # fmt: skip
    organization["virtual_directories"] = [
        {"server": "CAS-01", "service": path[1:], "path": path, "external_url": f"https://mail.contoso.com{path}"}
        | ({"authentication": ["forms", "basic"]} if path == OWA else {})
        for path in (OWA, EAS, EWS)
    ]


@pytest.mark.parametrize("name", ["alice@contoso.com", ALIAS, "alice", "ALICE@Contoso.com"])
def test_every_protocol_takes_a_user_by_each_name(place: Place, name: str) -> None:
    """Name, further address, account; to the server with the active copy of the user's database."""
    assert place.everywhere(name, "apw") == dict.fromkeys(place.ways(), "MBX-01")
    assert place.autodiscover(name, "apw") == f"https://mail.contoso.com{EAS}"


def test_who_may_not_is_told_in_each_protocols_words(place: Place) -> None:
    """A wrong password, an unknown user and a disabled one are alike (field case 71); a denied protocol is not."""
    all_wrong = dict.fromkeys((*place.ways(), "autodiscover"), WRONG)
    for name, password in (
        ("alice@contoso.com", "bpw"),
        ("nobody@contoso.com", "apw"),
        ("dave@contoso.com", "dpw"),
        ('"alice@contoso.com)(mail=*"', "apw"),
        ("alice'or'1'='1", "apw"),
    ):
        found = place.everywhere(name, password) | {"autodiscover": place.autodiscover(name, password)}
        assert found == all_wrong, name
    carol = place.everywhere("carol@contoso.com", "cpw")
    assert carol.pop("imap") == "MBX-01"
    assert carol == dict.fromkeys(carol, DENIED)


def test_explain_says_where_a_user_is_taken(place: Place) -> None:
    """The same for the command as for a client; a directory elsewhere is not edited here."""
    refused = place.door.command("user", "list", status=None)
    assert ("corp" in refused) is ("directories" in place.door.front_end)
    assert "served by MBX-01" in place.door.command("explain", ALIAS, "--protocol", "imap")


def test_the_check_asks_every_server(place: Place) -> None:
    """What an operator sees of a directory that answers, and of one that is away."""
    said = place.door.command("directory", "check", ALIAS)
    assert f"{ALIAS} is {ALICE.name}, database DB01, protocols " in said
    assert "nobody@contoso.com is nobody's" in place.door.command("directory", "check", "nobody@contoso.com")
    place.users.take_away()
    try:
        assert "no answer: " in place.door.command("directory", "check", ALIAS, status=1)
    finally:
        place.users.bring_back()
    until(lambda: place.imap("erin@contoso.com", "epw") == WRONG, "it answers again")


def test_sessions_follow_a_database_that_moves(place: Place) -> None:
    """Who is signed in is told in the protocol's words; who signs in again comes to the new server (B5)."""
    session = imap(place.door.addresses["imaps"], place.door.client_context)
    session.login("alice@contoso.com", "apw")
    cookie = place.sign_in_page("alice@contoso.com", "apw")
    assert place.owa_by(cookie) == "MBX-01"
    place.door.command("database", "activate", "DB01", "--server", "MBX-02")
    try:
        assert b"BYE" in session.readline()
        session.shutdown()
        assert place.everywhere("alice@contoso.com", "apw") == dict.fromkeys(place.ways(), "MBX-02")
        assert place.owa_by(cookie) == "MBX-02"
    finally:
        place.door.command("database", "activate", "DB01", "--server", "MBX-01")
    place.all_come_to("MBX-01", "alice@contoso.com", "apw")


def test_a_user_who_is_changed_in_the_directory(place: Place) -> None:
    """Another database, another password, an address less, disabled: seen within the age of answers, no restart."""
    name = "alice@contoso.com"
    place.all_come_to("MBX-01", name, "apw")
    place.users.put(replace(ALICE, mailbox=Mailbox("DB02")), (ALIAS,))
    place.all_come_to("MBX-02", name, "apw")
    cookie = place.sign_in_page(name, "apw")
    place.users.put(ALICE, (), "another")
    for word, way in place.ways().items():
        until(lambda way=way: way(name, "apw") == WRONG, f"the old password is wrong by {word}")  # type: ignore[misc]
    assert place.everywhere(name, "another") == dict.fromkeys(place.ways(), "MBX-01")
    until(lambda: place.owa_by(cookie) not in {"MBX-01", "MBX-02"}, "the cookie of the old password is void")
    until(lambda: place.imap(ALIAS, "another") == WRONG, "the address is nobody's")
    place.users.put(replace(ALICE, disabled=True), (ALIAS,))
    until(lambda: place.imap(name, "another") == WRONG, "disabled")
    assert place.everywhere(name, "another") == dict.fromkeys(place.ways(), WRONG)
    place.users.put(ALICE, (ALIAS,), "apw")
    until(lambda: place.imap(ALIAS, "apw") == "MBX-01", "as before")
    place.all_come_to("MBX-01", name, "apw")


def test_the_directory_ends_and_comes_back(place: Place) -> None:
    """Who was seen goes on, by every protocol; who was not hears of a temporary fault and of no wrong password."""
    _see_alice(place)
    place.users.take_away()
    try:
        _outage(place)
    finally:
        place.users.bring_back()
    place.all_come_to("MBX-02", "bob@contoso.com", "bpw")


def test_a_directory_that_hangs_and_goes_on(place: Place) -> None:
    """The same, where connections stay open and nothing is answered."""
    if place.users.freeze is None:
        return  # a file
    _see_alice(place)
    place.users.freeze()
    try:
        _outage(place)
    finally:
        place.users.thaw()
    until(lambda: place.imap("erin@contoso.com", "epw") == WRONG, "it answers again")


def _see_alice(place: Place) -> None:
    assert place.everywhere("alice@contoso.com", "apw") == dict.fromkeys(place.ways(), "MBX-01")
    time.sleep(2 * AGE_SECONDS)  # what was told of her is no longer fresh


def _outage(place: Place) -> None:
    until(lambda: place.imap("erin@contoso.com", "epw") == UNAVAILABLE, "it is away")
    assert place.everywhere("erin@contoso.com", "epw") == dict.fromkeys(place.ways(), UNAVAILABLE)
    assert place.everywhere("alice@contoso.com", "apw") == dict.fromkeys(place.ways(), "MBX-01")
