"""The form that was sent: who showed it, whether the password is right, and where the user goes from there.

take ── whole form ── our token? ── password ──► 303 with the cookie
                          └── no            └──► the page again: wrong (403, after a while), busy, unavailable (503)
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gatepost.access import tasks
from gatepost.access.http.answers import RETRY_AFTER
from gatepost.access.http.collected import Collected, Held
from gatepost.access.http.forms import pages
from gatepost.access.http.forms.form import MAX_FORM, SentForm, home_of, read_form, same_origin
from gatepost.access.http.forms.pages import Reason
from gatepost.directory.port import DirectoryUnavailable, SignInResult, Verdict
from gatepost.organization.model import Protocol, VirtualDirectory
from gatepost.organization.names import MAX_LOGIN_NAME
from gatepost.wire.http_cookies import FORM, SIGN_IN, set_line, take_own
from gatepost.wire.http_fields import passed_value

if TYPE_CHECKING:
    from gatepost.access.http.client_leg import HttpClientLeg
    from gatepost.access.http.forms.flow import FormsFlow


def take(flow: FormsFlow, leg: HttpClientLeg, directory: VirtualDirectory) -> None:
    """Judge the form that the request of `leg` brings."""
    if not same_origin(leg.reader.passed, leg.origin):
        flow.door.refused(leg, 403, "a form of another site")
        text = "This form came from another site. Open the address of your mailbox yourself, and sign in there."
        flow.page(leg, 403, pages.notice_page("Not signed in", text))
        return
    Collected(leg, MAX_FORM, partial(_sent, flow, leg, directory)).start()


def _sent(flow: FormsFlow, leg: HttpClientLeg, directory: VirtualDirectory, body: bytes) -> None:
    form = read_form(passed_value(leg.reader.passed, b"content-type") or b"", body)
    if form is None:
        flow.door.refused(leg, 400, "not a sign-in form")
        leg.answer(400)
        return
    cookie = take_own(leg.reader.kept.get(b"cookie", b""))[1].get(FORM, b"")
    attempt = _Attempt(flow, leg, directory, form)
    if not flow.tokens.accepts(cookie, form.token, flow.clock()):
        attempt.again(Reason.STALE, 403, "a form that was not shown to this browser, or too long ago")
        return
    client, service = leg.address[0], directory.service
    known = flow.door.sign_in.password_now(form.name, form.password, Protocol.HTTPS, client, service, page=True)
    if known is not None:
        attempt.judged(known)
    else:
        tasks.start(attempt.check(), f"{leg.session} sign-in")


class _Attempt:
    """One form, from its arrival to its answer."""

    def __init__(self, flow: FormsFlow, leg: HttpClientLeg, directory: VirtualDirectory, form: SentForm) -> None:
        self._flow = flow
        self._leg = leg
        self._directory = directory
        self._form = form
        self._held = Held(leg, form.name[:MAX_LOGIN_NAME])
        self._started = flow.door.loop.time()

    async def check(self) -> None:
        """Have the password checked, then answer."""
        form, client, service = self._form, self._leg.address[0], self._directory.service
        try:
            result = await self._flow.door.sign_in.password(
                form.name, form.password, Protocol.HTTPS, client, service, page=True
            )
        except DirectoryUnavailable as error:
            result = SignInResult(Verdict.UNAVAILABLE, reason=str(error))
        self.judged(result)

    def judged(self, result: SignInResult) -> None:
        """Answer by the verdict. What is wrong, and what is too much, waits as long as it does everywhere else."""
        if self._held.over:
            return
        verdict, reason = result.verdict, result.reason or result.verdict.value
        if verdict is Verdict.SIGNED_IN and result.user is not None:
            self._signed_in(result)
        elif verdict is Verdict.WRONG_CREDENTIALS:
            self._later(Reason.WRONG, 403, reason)
        elif verdict is Verdict.BUSY:
            self._later(Reason.BUSY, 503, reason)
        elif verdict is Verdict.PROTOCOL_NOT_ALLOWED:
            self._flow.door.refused(self._leg, 403, reason, self._held)
            text = "Your name and password are right, but this account may not use the mailbox in a browser."
            self._flow.page(self._leg, 403, pages.notice_page("Not allowed", text))
        else:
            self.again(Reason.UNAVAILABLE, 503, reason)

    def _signed_in(self, result: SignInResult) -> None:
        flow, leg, form, user = self._flow, self._leg, self._form, result.user
        assert user is not None
        password = form.password if flow.needs_password else ""
        value = flow.sessions.begin(user, password, flow.clock(), private=form.private)
        self._held.user_name = user.name
        leg.count_user(user.name)
        flow.door.log.info(
            "forms.signed_in", session=leg.session, client=leg.address[0], user=user.name, private=form.private
        )
        location = flow.destinations.safe(form.destination, home_of(self._directory)).encode("ascii")
        leg.answer(303, b"", fields=b"Location: %b\r\n%b" % (location, set_line(SIGN_IN, value)))

    def _later(self, reason: Reason, status: int, why: str) -> None:
        door = self._flow.door
        when = self._started + door.limits.refused_sign_in_delay_seconds
        door.loop.call_at(when, self.again, reason, status, why)

    def again(self, reason: Reason, status: int, why: str) -> None:
        """The page once more, with what the user has filled in but the password; `why` is for the log."""
        if self._held.over:
            return
        flow, leg, form = self._flow, self._leg, self._form
        if reason is Reason.BUSY:
            flow.door.busy(leg, why)
        else:
            flow.door.refused(leg, status, why, self._held, judged=reason is not Reason.STALE)
        flow.show(
            leg,
            self._directory,
            form.destination,
            reason,
            status=status,
            fields=RETRY_AFTER if status == 503 else b"",
            name=form.name,
            private=form.private,
            close=reason is Reason.BUSY and not leg.settled,
        )
