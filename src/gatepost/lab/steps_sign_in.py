"""Steps of the tour: who is let in, and to which server."""

from __future__ import annotations

import imaplib
import json
import time
from collections.abc import Callable

from gatepost.lab import figure
from gatepost.lab.clients import CLIENT_SECONDS, MailAnswer, imap, refusal
from gatepost.lab.servers.dovecot import Dovecot
from gatepost.lab.servers.gatepost import run_gatepost
from gatepost.lab.tour import Step, Visit, expect

OUTSIDE = "127.0.9.9"
"""A client's address of its own, to be found in the mailbox server's log."""
SAME_SECONDS = 0.3
"""An unknown user and a wrong password may differ so much in time on a busy machine; the delay is 1 s."""


def steps() -> list[Step]:
    """In the order to take them."""
    return [
        Step("gatepost check", "the organization has no error", _check),
        Step("user1 by IMAP at CAS-01, their own site", "served from MBX-01", _served("CAS-01", "user1", "MBX-01")),
        Step(
            "user1 by IMAP at CAS-02, another site",
            "proxied to MBX-01",
            _served("CAS-02", "user1", "MBX-01"),
        ),
        Step("user3 by IMAP at CAS-02", "proxied to MBX-03 in asia", _served("CAS-02", "user3", "MBX-03")),
        Step("user2 by POP3 at CAS-01", "proxied to MBX-02", lambda v: _at(v.pop3("CAS-01", "user2"), "MBX-02")),
        Step("user1 by IMAP at CAS-03, STARTTLS on the clear port", "proxied to MBX-01", _starttls),
        Step("user3 by POP3 at CAS-03, STLS on the clear port", "served from MBX-03", _stls),
        Step("a password in clear, without TLS", "NO [PRIVACYREQUIRED], and LOGINDISABLED before", _in_clear),
        Step("a wrong password, and a user who does not exist", "the same refusal, after the same time", _same_refusal),
        Step(f"user1 comes from {OUTSIDE}", f"MBX-01's own log says rip={OUTSIDE}", _client_address),
        Step("user1 opens https://…/owa at CAS-02", "the page of MBX-01 says user1, https, the client", _page),
        Step("a program asks for https://…/ews without a password", "401 with a challenge", _challenge),
        Step("user1 claims to be user2 by a header of their own", "the page still says user1", _spoofed),
        Step("user4, whose mailbox is of 2010, at CAS-01", f"refused, naming {figure.ARRAY_NAME}", _old_imap),
        Step("the same by POP3", f"refused, naming {figure.ARRAY_NAME}", _old_pop3),
        Step("user4 at CAS-03, the mailbox's site", "served from EX10-01", _served("CAS-03", "user4", "EX10-01")),
        Step("gatepost explain user1 --from CAS-02", "each step with its rule, ends at MBX-01", _explain),
        Step("gatepost explain user4 --from CAS-01", "refused by rule C9", _explain_old),
    ]


def _at(answer: MailAnswer, server: str) -> str:
    return expect(answer.text, answer.server == server)


def _served(front_end: str, user: str, server: str) -> Callable[[Visit], str]:
    return lambda visit: _at(visit.imap(front_end, user), server)


def _check(visit: Visit) -> str:
    text = run_gatepost("check", str(visit.fleet.configuration), status=None)
    return expect(text.strip(), "no errors" in text)


def _starttls(visit: Visit) -> str:
    return _at(visit.imap("CAS-03", "user1", starttls=True), "MBX-01")


def _stls(visit: Visit) -> str:
    return _at(visit.pop3("CAS-03", "user3", starttls=True), "MBX-03")


def _in_clear(visit: Visit) -> str:
    client = imaplib.IMAP4(*visit.address("CAS-01", "imap"), timeout=CLIENT_SECONDS)
    try:
        client.login("user1@contoso.com", "first-pw")
    except imaplib.IMAP4.error as error:
        refused = refusal(error)
    else:
        refused = "signed in"
    finally:
        client.shutdown()
    return expect(refused, "PRIVACYREQUIRED" in refused and "LOGINDISABLED" in client.capabilities)


def _same_refusal(visit: Visit) -> str:
    def refused(user: str, password: str) -> tuple[str, float]:
        client = imap(visit.address("CAS-01", "imaps"), visit.tls)
        begun = time.monotonic()
        try:
            client.login(user, password)
        except imaplib.IMAP4.error as error:
            return refusal(error), time.monotonic() - begun
        finally:
            client.shutdown()
        return "signed in", 0.0

    wrong, wrong_seconds = refused("user1@contoso.com", "not-it")
    unknown, unknown_seconds = refused("nobody@contoso.com", "not-it")
    came = f"{wrong!r} after {wrong_seconds:.2f} s, {unknown!r} after {unknown_seconds:.2f} s"
    same = wrong == unknown and abs(wrong_seconds - unknown_seconds) < SAME_SECONDS
    return expect(came, same and "AUTHENTICATIONFAILED" in wrong)


def _client_address(visit: Visit) -> str:
    server = visit.fleet.mailbox_servers["MBX-01"]
    if not isinstance(server, Dovecot):
        return "left out: the built-in mailbox server knows nothing of addresses"
    host, port = visit.address("CAS-01", "imaps")
    user = visit.users["user1"]
    client = _BoundImap(host, port, visit)
    client.login(user.name, user.password)
    client.logout()
    last = server.sign_in_with(rip=OUTSIDE) or server.sign_ins()[-1]
    return expect(f"rip={last['rip']} (the connection's own: {last['real_rip']})", last["rip"] == OUTSIDE)


class _BoundImap(imaplib.IMAP4_SSL):
    """A client that connects from `OUTSIDE`."""

    def __init__(self, host: str, port: int, visit: Visit) -> None:
        super().__init__(host, port, ssl_context=visit.tls, timeout=CLIENT_SECONDS)

    def _create_socket(self, timeout: float | None) -> object:
        import socket

        plain = socket.create_connection((self.host, self.port), timeout, (OUTSIDE, 0))
        return self.ssl_context.wrap_socket(plain, server_hostname=self.host)


def _page(visit: Visit) -> str:
    answer = visit.web("CAS-02", "user1")
    facts = answer.facts
    way = facts.get("way", {})
    came = f"{answer.status} {json.dumps(facts) if facts else answer.text[:200]}"
    right = facts.get("user") == "user1@contoso.com" and facts.get("mailbox_server") == "MBX-01"
    return expect(came, right and "https" in json.dumps(way) and "127.0.0.1" in json.dumps(way))


def _challenge(visit: Visit) -> str:
    answer = visit.web("CAS-02", path="/ews")
    challenge = answer.headers.get("www-authenticate", "")
    return expect(f"{answer.status}, WWW-Authenticate: {challenge}", answer.status == 401 and "Basic" in challenge)


def _spoofed(visit: Visit) -> str:
    headers = {figure.USER_HEADER: "user2@contoso.com", "X-Forwarded-For": "198.51.100.1"}
    facts = visit.web("CAS-01", "user1", headers=headers).facts
    believed = "198.51.100.1" in json.dumps(facts)
    return expect(f"user: {facts.get('user')}", facts.get("user") == "user1@contoso.com" and not believed)


def _old_imap(visit: Visit) -> str:
    answer = visit.imap("CAS-01", "user4")
    return expect(answer.text, not answer.server and figure.ARRAY_NAME in answer.text)


def _old_pop3(visit: Visit) -> str:
    answer = visit.pop3("CAS-01", "user4")
    return expect(answer.text, not answer.server and figure.ARRAY_NAME in answer.text)


def _explain(visit: Visit) -> str:
    text = visit.fleet.command("explain", "user1", "--protocol", "imap", "--from", "CAS-02").strip()
    return expect("\n" + _indented(text), "MBX-01" in text and "C10" in text and "C1" in text)


def _explain_old(visit: Visit) -> str:
    text = visit.fleet.command("explain", "user4", "--protocol", "imap", "--from", "CAS-01", status=None).strip()
    return expect("\n" + _indented(text), "C9" in text and figure.ARRAY_NAME in text)


def _indented(text: str) -> str:
    return "\n".join(" " * 14 + line for line in text.splitlines())
