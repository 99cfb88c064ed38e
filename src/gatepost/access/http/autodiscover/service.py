"""Autodiscover: what a signed-in client is told of a mailbox, and what anybody is told of this front end (SPEC C8)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from gatepost.access import tasks
from gatepost.access.http.answers import RETRY_AFTER
from gatepost.access.http.autodiscover import documents
from gatepost.access.http.autodiscover.documents import Account
from gatepost.access.http.autodiscover.urls import Service, Urls, elsewhere, own_answer, urls_for
from gatepost.access.http.collected import Collected, Held
from gatepost.configuration.settings import Configuration
from gatepost.directory.port import DirectoryUnavailable, NotAsked, User
from gatepost.organization.model import Server, Site
from gatepost.routing.outcome import Mailbox
from gatepost.wire.autodiscover import MAX_BODY, PlainRequest, Schema, read_plain, read_settings
from gatepost.wire.mailbox_address import mailbox_address
from gatepost.wire.xml_reading import BadXml

if TYPE_CHECKING:
    from gatepost.access.http.client_leg import HttpClientLeg
    from gatepost.access.http.door import HttpDoor

PLAIN = "/autodiscover/autodiscover.xml"
SOAP = "/autodiscover/autodiscover.svc"
JSON = "/autodiscover/autodiscover.json"
JSON_V1 = JSON + "/v1.0/"
"""Followed by an address."""
MAX_PARAMETERS = 32
"""Parameters of a JSON request's query; it has three."""
MAX_REMEMBERED = 10_000
"""Sets of addresses that are kept: mailbox servers times sites of clients. Cleared when full."""

_XML_TYPE = b"text/xml; charset=utf-8"
_JSON_TYPE = b"application/json"
_JSON_PROTOCOLS = {"activesync": ("ActiveSync", Service.ACTIVESYNC), "ews": ("Ews", Service.EWS)}
_AUTODISCOVER_V1 = "autodiscoverv1"
_SUPPORTED = "ActiveSync, AutodiscoverV1, Ews"


def concerns(route: str) -> bool:
    """Whether a path is one of Autodiscover's."""
    return route[:14].lower() == "/autodiscover/"


class Autodiscover:
    """Answers Autodiscover requests of a door's clients.

    What is remembered are the addresses for each mailbox server and site of a client, until the configuration changes.
    """

    __slots__ = ("_configuration", "_door", "_remembered")

    def __init__(self, door: HttpDoor) -> None:
        self._door = door
        self._configuration: Configuration | None = None
        self._remembered: dict[tuple[str, str], Urls] = {}

    # --- for the front

    def is_ours(self, user: User, route: str) -> bool:
        """Whether a signed-in user's request is answered here, not by the user's mailbox server."""
        if not concerns(route):
            return False
        server = self._server_of(user.mailbox)
        return server is None or own_answer(self._door.configuration.organization, server.name)

    def collect(self, leg: HttpClientLeg, user: User, route: str, query: bytes) -> None:
        """Wait for the request's body, then answer."""
        Collected(leg, MAX_BODY, lambda body: self.answer(leg, user, route, query, body), user.name).start()

    def public(self, leg: HttpClientLeg, route: str, query: bytes) -> bool:
        """Answer the JSON form, which clients ask without signing in; False: it is another path.

        What it says is this front end's and the same for every address: nobody learns who has a mailbox here.
        """
        path = route.rstrip("/").lower()
        if path != JSON and not path.startswith(JSON_V1):
            return False
        protocol = self._wanted(query)
        if protocol is None:
            self._json(leg, 400, "MandatoryParameterMissing", "The parameter Protocol is missing.")
            return True
        urls = self._urls(None, None)
        known = _JSON_PROTOCOLS.get(protocol.lower())
        if protocol.lower() == _AUTODISCOVER_V1:
            body = documents.json_found("AutodiscoverV1", urls.origin + PLAIN)
            leg.answer(200, body, content_type=_JSON_TYPE)
        elif known is None:
            message = f"The protocol is not one of those that are supported: {_SUPPORTED}."
            self._json(leg, 400, "InvalidProtocol", message)
        elif known[1] not in urls.external:
            self._json(leg, 404, "ProtocolNotSupported", f"{known[0]} is not offered here.")
        else:
            leg.answer(200, documents.json_found(known[0], urls.external[known[1]]), content_type=_JSON_TYPE)
        return True

    def answer(self, leg: HttpClientLeg, user: User, route: str, query: bytes, body: bytes) -> None:
        """Answer a signed-in user's request, whose body is `body`."""
        path = route.rstrip("/").lower()
        method = leg.reader.method
        try:
            if path == PLAIN and method in {b"GET", b"HEAD", b"POST"}:
                leg.answer(200, self._plain(leg, user, body), content_type=_XML_TYPE)
            elif path == SOAP and method == b"POST":
                self._soap(leg, user, body)
            elif path in {PLAIN, SOAP}:
                leg.answer(405, fields=b"Allow: POST\r\n" if path == SOAP else b"Allow: GET, HEAD, POST\r\n")
            elif not self.public(leg, route, query):
                leg.answer(404)
        except NotAsked as unknown:
            held = Held(leg, user.name)
            tasks.start(self._answer_later(held, unknown.name, user, route, query, body), f"{leg.session} look-up")
        except DirectoryUnavailable as fault:
            leg.door.refused(leg, 503, str(fault))
            leg.answer(503, fields=RETRY_AFTER)

    async def _answer_later(self, held: Held, name: str, user: User, route: str, query: bytes, body: bytes) -> None:
        """The directory is elsewhere and did not yet tell of a mailbox that is asked about."""
        await self._door.sign_in.learn(name)
        if not held.over:
            held.leg.exchange = None
            self.answer(held.leg, user, route, query, body)

    # --- the forms

    def _plain(self, leg: HttpClientLeg, user: User, body: bytes) -> bytes:
        """Plain XML. Without a body (GET) it is the user's own settings, for Outlook."""
        try:
            request = read_plain(body) if body else PlainRequest(user.name, Schema.OUTLOOK)
        except BadXml:
            return _plain_error(documents.INVALID_REQUEST)
        if request.schema is None:
            return _plain_error(documents.NO_PROVIDER)
        found = self._owner(user, request.address)
        if found is None:
            return _plain_error(documents.UNKNOWN_ADDRESS)
        server = self._server_of(found.mailbox)
        if request.schema is Schema.OUTLOOK:
            url = self._elsewhere(server)
            if url is not None:
                return documents.outlook_redirect(url)
            return documents.outlook(self._account(leg, found, request.address, server))
        account = self._account(leg, found, request.address, server)
        return documents.mobile_sync(account) or documents.mobile_sync_error(account, "ActiveSync is not offered here.")

    def _soap(self, leg: HttpClientLeg, user: User, body: bytes) -> None:
        try:
            request = read_settings(body)
        except BadXml as fault:
            leg.answer(500, documents.fault(f"The request is not understood: {fault}"), content_type=_XML_TYPE)
            return
        answers = [self._soap_user(leg, user, address, request.settings) for address in request.addresses]
        leg.answer(200, documents.user_settings(answers, request.message_id), content_type=_XML_TYPE)

    def _soap_user(self, leg: HttpClientLeg, user: User, text: str, settings: tuple[str, ...]) -> str:
        address = mailbox_address(text)
        found = self._owner(user, address)
        if found is None:
            return documents.user_error("InvalidUser", "The email address can't be found.")
        server = self._server_of(found.mailbox)
        url = self._elsewhere(server)
        if url is not None:
            return documents.user_redirect(url.removesuffix(".xml") + ".svc")
        return documents.user_response(self._account(leg, found, address, server), settings)

    # --- facts

    def _owner(self, user: User, address: str | None) -> User | None:
        """Whose mailbox is asked for: the user's own, or another of the organization. Raises `DirectoryUnavailable`."""
        if address is None:
            return None
        return user if address == user.name else self._door.sign_in.look_up(address)

    def _server_of(self, mailbox: Mailbox) -> Server | None:
        """The mailbox's server, for its site and kind: with no active copy, that of the copy that comes first.

        Settings do not wait for a database.
        """
        organization = self._door.configuration.organization
        name = mailbox.home_server
        if mailbox.database is not None:
            active = self._door.router.view.active.get(mailbox.database)
            database = organization.databases.get(mailbox.database)
            name = active.server if active is not None else database.copies[0].server if database is not None else None
        return organization.servers.get(name) if name is not None else None

    def _elsewhere(self, server: Server | None) -> str | None:
        configuration = self._door.configuration
        return None if server is None else elsewhere(configuration.organization, configuration.server, server)

    def _account(self, leg: HttpClientLeg, owner: User, address: str | None, server: Server | None) -> Account:
        return Account(address or owner.name, owner.name, self._urls(server, self._site_of(leg)))

    def _urls(self, server: Server | None, site: Site | None) -> Urls:
        configuration = self._door.configuration
        if configuration is not self._configuration or len(self._remembered) >= MAX_REMEMBERED:
            self._configuration = configuration
            self._remembered.clear()
        key = (server.name if server is not None else "", site.name if site is not None else "")
        found = self._remembered.get(key)
        if found is None:
            found = urls_for(configuration.organization, configuration.server, server, site)
            self._remembered[key] = found
        return found

    def _site_of(self, leg: HttpClientLeg) -> Site | None:
        try:
            return self._door.configuration.organization.site_of_address(leg.address[0].partition("%")[0])
        except ValueError:
            return None

    @staticmethod
    def _wanted(query: bytes) -> str | None:
        """The protocol that a JSON request asks for."""
        try:
            parameters = parse_qsl(query[1:].decode("ascii", "replace"), max_num_fields=MAX_PARAMETERS)
        except ValueError:
            return None
        return next((value for name, value in parameters if name.lower() == "protocol"), None)

    @staticmethod
    def _json(leg: HttpClientLeg, status: int, code: str, message: str) -> None:
        leg.answer(status, documents.json_error(code, message), content_type=_JSON_TYPE)


def _plain_error(error: tuple[int, str]) -> bytes:
    return documents.plain_error(error, datetime.now(UTC).strftime("%H:%M:%S.%f"))
