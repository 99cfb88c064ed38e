"""Forms sign-in as the front door uses it: who a cookie speaks for, and what becomes of requests without one.

    <directory>/auth/logon    GET    the sign-in page
    <directory>/auth.owa      POST   its form: judged in `signing_in`
    <directory>/logoff, /logoff.owa  GET, POST   sign-out

for each virtual directory of this front end whose authentication has `forms`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, quote

from gatepost.access import tasks
from gatepost.access.http.answers import challenge
from gatepost.access.http.collected import Collected, Held
from gatepost.access.http.forms import pages, signing_in
from gatepost.access.http.forms.form import (
    MAX_DESTINATION,
    Destinations,
    FormTokens,
    home_of,
    is_navigation,
    is_visit,
    same_origin,
)
from gatepost.access.http.forms.pages import Reason
from gatepost.access.http.forms.session import FormsSession, Sessions, needs_password
from gatepost.access.http.forms.signed import Signed, SignOuts
from gatepost.access.http.pages import PAGE_FIELDS, PAGE_TYPE
from gatepost.access.http.sealed import Sealer
from gatepost.directory.port import Verdict
from gatepost.organization.model import AuthenticationMethod, Protocol, VirtualDirectory
from gatepost.wire.http_cookies import AFFINITY, FORM, SIGN_IN, clear_line, set_line, take_own
from gatepost.wire.http_fields import passed_value
from gatepost.wire.http_head import HeadFault
from gatepost.wire.http_path import read_path

if TYPE_CHECKING:
    from gatepost.access.http.client_leg import HttpClientLeg
    from gatepost.access.http.door import HttpDoor
    from gatepost.sharedstate.port import SharedState

TOKEN_PURPOSE = b"sign-in form"
LOOK_AGAIN_SECONDS = 60.0
"""How long what the directory said of a user is taken for true while it reports no change."""
RENEW_AGAIN_SECONDS = 30.0
"""How long we wait for a renewed cookie to come back before it is renewed once more."""
MAX_KNOWN = 5_000
"""Cookies that need not be opened again, about 1 KiB each: a browser has six connections, a balancer mixes users."""


class FormsFlow:
    """Forms sign-in at one door. `configure` again after each change of the door's configuration.

    For a request with the cookie: `identity`, kept for the connection as long as `still_good`; then `renewal` for the
    response. Without one, or with a void one: `ask`. `clock` tells seconds since 1970.
    """

    def __init__(self, door: HttpDoor, clock: Callable[[], float] = time.time) -> None:
        self.door = door
        self.clock = clock
        self.version = 0
        self._sign_outs = SignOuts()
        self._known: dict[bytes, Signed] = {}
        self._shared = door.shared_state
        self.configure()

    def configure(self) -> None:
        """Use the door's configuration as it is now. Raises ValueError for a private key that cannot be read."""
        configuration = self.door.configuration
        organization, front_end = configuration.organization, configuration.front_end
        own = organization.directories_by_server.get(configuration.server.name, ())
        self.version += 1
        self._known.clear()
        self.settings = front_end.forms
        self.needs_password = needs_password(organization)
        self._own = [(d.path.rstrip("/").casefold() + "/", d) for d in own]
        with_page = [d for d in own if AuthenticationMethod.FORMS in d.authentication and front_end.private_key]
        self._with_page = frozenset(with_page)
        self._paths: dict[str, tuple[Callable[[HttpClientLeg, VirtualDirectory, bytes], None], VirtualDirectory]] = {}
        for directory in with_page:
            path = directory.path.rstrip("/").casefold()
            self._paths[path + "/auth/logon"] = (self._logon, directory)
            self._paths[path + "/auth.owa"] = (self._auth, directory)
            self._paths[path + "/logoff"] = self._paths[path + "/logoff.owa"] = (self._logoff, directory)
        self.destinations = Destinations((d.path for d in organization.virtual_directories), self._paths)
        if with_page:
            key, others = front_end.private_key, front_end.forms.also_opens
            self.sessions = Sessions(key, front_end.forms)
            self.tokens = FormTokens(Sealer([key], TOKEN_PURPOSE, others))

    # --- paths of the sign-in itself

    def concerns(self, route: str) -> bool:
        """Whether `answer` has an answer for this decoded path."""
        return bool(self._paths) and route.casefold() in self._paths

    def answer(self, leg: HttpClientLeg, route: str, query: bytes) -> bool:
        """Answer the request of `leg` if its path is one of ours. `query` begins with its `?`."""
        found = self._paths.get(route.casefold())
        if found is None:
            return False
        act, directory = found
        if not leg.tls:
            self._need_tls(leg)
        else:
            act(leg, directory, query)
        return True

    def _logon(self, leg: HttpClientLeg, directory: VirtualDirectory, query: bytes) -> None:
        if leg.reader.method not in {b"GET", b"HEAD"}:
            leg.answer(405, fields=b"Allow: GET, HEAD\r\n")
            return
        wanted = parse_qs(query[1:].decode("ascii", "replace"))
        code = wanted.get("reason", [""])[0]
        reason = Reason(int(code)) if code in {str(r.value) for r in pages.LINKED} else Reason.ASKED
        self.show(leg, directory, wanted.get("url", [""])[0], reason)

    def _auth(self, leg: HttpClientLeg, directory: VirtualDirectory, _query: bytes) -> None:
        if leg.reader.method == b"POST":
            signing_in.take(self, leg, directory)
        elif leg.reader.method in {b"GET", b"HEAD"}:  # a reload, or a bookmark
            leg.answer(302, b"", fields=b"Location: %b\r\n" % _logon_address(directory, "", Reason.ASKED))
        else:
            leg.answer(405, fields=b"Allow: POST\r\n")

    def _logoff(self, leg: HttpClientLeg, directory: VirtualDirectory, _query: bytes) -> None:
        """Only the user signs out: another site's link is asked back, and so is a picture in a message."""
        method, passed = leg.reader.method, leg.reader.passed
        value = self.cookie_of(leg)
        site = passed_value(passed, b"sec-fetch-site")
        if method == b"GET":
            meant = site in {b"same-origin", b"none"} and is_visit(passed)
        elif method == b"HEAD":
            meant = False
        elif method == b"POST":
            # A form of another site comes without our cookie, or says where it is from.
            told = site is not None or passed_value(passed, b"origin") is not None
            meant = same_origin(passed, leg.origin) and (told or value != b"")
        else:
            leg.answer(405, fields=b"Allow: GET, HEAD, POST\r\n")
            return
        if meant:
            self._sign_out(leg, home_of(directory), value)
        else:
            self.page(leg, 200, pages.confirm_page(home_of(directory) + "logoff"))

    def _sign_out(self, leg: HttpClientLeg, home: str, value: bytes) -> None:
        now = self.clock()
        session = self.sessions.read(value, now) if value else None
        held = Held(leg, session.user if session is not None else "")
        if session is not None:
            self._sign_outs.add(session.id.hex(), self.sessions.forgotten_at(session, now), now)
            self.door.log.info("forms.signed_out", session=leg.session, client=leg.address[0], user=session.user)
            if self._shared is not None:
                tasks.start(self._tell(self._shared, session, leg, home, held), f"{leg.session} sign-out")
                return
        self._signed_out(leg, home)

    async def _tell(
        self, shared: SharedState, session: FormsSession, leg: HttpClientLeg, home: str, held: Collected
    ) -> None:
        """Tell the other front ends, then the user, who must know when they could not be told."""
        now = self.clock()
        until = self.sessions.forgotten_at(session, now)
        stored = await shared.sign_out(session.id.hex(), until)  # bounded, and never raises
        if not stored:
            self.door.log.warning(
                "forms.sign_out_not_shared",
                session=leg.session,
                client=leg.address[0],
                user=session.user,
                until=datetime.fromtimestamp(until, UTC).isoformat(timespec="seconds"),
            )
        if not held.over:
            self._signed_out(leg, home, 0.0 if stored else until - now)

    def _signed_out(self, leg: HttpClientLeg, home: str, open_elsewhere: float = 0.0) -> None:
        self.page(leg, 200, pages.signed_out_page(home, open_elsewhere), clear_line(SIGN_IN) + clear_line(AFFINITY))

    # --- who a cookie speaks for

    @staticmethod
    def cookie_of(leg: HttpClientLeg) -> bytes:
        """The sign-in cookie of the current request, or empty."""
        return take_own(leg.reader.kept.get(b"cookie", b""))[1].get(SIGN_IN, b"")

    def identity(self, leg: HttpClientLeg, value: bytes) -> Signed | None:
        """Whom the cookie's `value` speaks for; None when it is void and the user must sign in.

        The verdict in it may also be `UNAVAILABLE` (503) or `PROTOCOL_NOT_ALLOWED` (403), never a wrong password.
        """
        if not self._paths or not leg.tls:
            return None
        now = self.clock()
        known = self._known.get(value)
        if known is not None and self.still_good(known, now):
            return known
        session = self.sessions.open(value, now)
        if session is None or (self.needs_password and not session.password):
            return None
        over = min(self.sessions.over_at(session), self.sessions.opens_until(value))
        signed = Signed(session, self.version, over, self.sessions.renewable_at(session))
        if self._is_signed_out(signed.id):
            return None
        self._look(signed, now)
        if signed.result.verdict is Verdict.WRONG_CREDENTIALS:
            return None
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        self._known[value] = signed
        return signed

    def still_good(self, signed: Signed, now: float) -> bool:
        """Whether `signed` still lets its user in at `now` (seconds since 1970); if not, ask `identity` again."""
        if now >= signed.over or signed.version != self.version or self._is_signed_out(signed.id):
            return False
        if signed.changes != self.door.sign_in.directory_changes or now >= signed.look_again:
            self._look(signed, now)
        return signed.result.verdict is Verdict.SIGNED_IN

    def why(self, value: bytes) -> Reason:
        """What to tell a user whose cookie `value` (may be empty) is void."""
        if not value or not self._paths:
            return Reason.ASKED
        now = self.clock()
        session = self.sessions.read(value, now)
        if session is None:
            return Reason.ASKED
        if self._is_signed_out(session.id.hex()):
            return Reason.SIGNED_OUT
        return Reason.TIMED_OUT if now >= self.sessions.over_at(session) else Reason.CHANGED

    def renewal(self, signed: Signed, query: bytes, now: float) -> bytes:
        """The Set-Cookie line that the response must carry, mostly none: activity renews a sign-in."""
        if now < signed.renewable or not is_activity(query) or now >= signed.over:
            return b""
        signed.renewable = now + RENEW_AGAIN_SECONDS
        return set_line(SIGN_IN, self.sessions.renew(signed.session, now))

    def _look(self, signed: Signed, now: float) -> None:
        session, service = signed.session, self.door.sign_in
        changes = service.directory_changes
        result = service.user_of_session(session.user, session.id, session.generation, Protocol.HTTPS)
        signed.judged(result, changes, now + LOOK_AGAIN_SECONDS)

    def _is_signed_out(self, session_id: str) -> bool:
        shared = self._shared
        return self._sign_outs.holds(session_id) or (shared is not None and shared.is_signed_out(session_id))

    # --- requests without a good cookie

    def directory_of(self, route: str) -> VirtualDirectory | None:
        """This front end's directory for a decoded path, if it shows browsers the sign-in page."""
        directory = self.own_directory(route) if self._with_page else None
        return directory if directory in self._with_page else None

    def own_directory(self, route: str) -> VirtualDirectory | None:
        """This front end's directory for a decoded path."""
        folded = route.casefold() + "/"
        return next((directory for prefix, directory in self._own if folded.startswith(prefix)), None)

    def ask(self, leg: HttpClientLeg, path: bytes, query: bytes, reason: Reason = Reason.ASKED) -> bool:
        """Have the user sign in; False when the path's directory shows no page, and the request is not answered.

        A person's browser goes to the page and later back to `path` and `query`; scripts get 440, which they know as
        "sign in again"; programs get 401 where the directory takes Basic too; in clear nobody is asked for a password.
        """
        try:
            directory = self.directory_of(read_path(path)[2])
        except HeadFault:
            return False
        if directory is None:
            return False
        if not leg.tls:
            self._need_tls(leg)
        elif is_navigation(leg.reader.method, leg.reader.passed):
            wanted = (path + query).decode("ascii", "replace")
            address = _logon_address(directory, wanted, reason)
            leg.answer(302, b"", fields=b"Location: %b\r\n" % address)
        elif AuthenticationMethod.BASIC in directory.authentication and _is_program(leg):
            self.door.refused(leg, 401, "no credentials")
            leg.answer(401, fields=challenge(self.door.realm))
        else:
            self.door.refused(leg, 440, f"not signed in: {reason.name.lower().replace('_', ' ')}")
            leg.answer(440)
        return True

    def _need_tls(self, leg: HttpClientLeg) -> None:
        self.door.refused(leg, 403, "forms sign-in needs TLS")
        text = "Passwords are not taken on an unprotected connection. Use the address that begins with https://."
        self.page(leg, 403, pages.notice_page("Please use the protected address", text))

    # --- pages

    def show(
        self,
        leg: HttpClientLeg,
        directory: VirtualDirectory,
        wanted: str,
        reason: Reason,
        *,
        status: int = 200,
        fields: bytes = b"",
        name: str = "",
        private: bool = False,
        close: bool = False,
    ) -> None:
        """Show the sign-in page. A browser that has a token with half its time left keeps it, so other windows work."""
        now = self.clock()
        home = home_of(directory)
        token = take_own(leg.reader.kept.get(b"cookie", b""))[1].get(FORM, b"")
        if not self.tokens.is_fresh(token, now):
            token = self.tokens.make(now)
            fields += set_line(FORM, token)
        destination = self.destinations.safe(wanted, home)
        page = pages.sign_in_page(
            home + "auth.owa", destination, token.decode(), self.settings, reason, name=name, private=private
        )
        self.page(leg, status, page, fields, close=close)

    @staticmethod
    def page(leg: HttpClientLeg, status: int, body: bytes, fields: bytes = b"", *, close: bool = False) -> None:
        """Answer with a page."""
        leg.answer(status, body, fields=PAGE_FIELDS + fields, content_type=PAGE_TYPE, close=close)


def is_activity(query: bytes) -> bool:
    """Whether a request is a user's doing: a page that only asks for news says `UA=0` in its query, as the source's."""
    return b"=0" not in query or b"ua=0" not in query[1:].lower().split(b"&")


def _is_program(leg: HttpClientLeg) -> bool:
    """Whether no browser asks: one would show a password box of its own for 401."""
    passed = leg.reader.passed
    return passed_value(passed, b"sec-fetch-mode") is None and passed_value(passed, b"x-requested-with") is None


def _logon_address(directory: VirtualDirectory, wanted: str, reason: Reason) -> bytes:
    url = f"url={quote(wanted, safe='/')}&" if wanted and len(wanted) <= MAX_DESTINATION else ""
    return f"{home_of(directory)}auth/logon?{url}reason={reason.value}".encode("ascii")
