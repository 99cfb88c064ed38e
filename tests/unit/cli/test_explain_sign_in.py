"""What `explain` says of Kerberos: which of two front ends knows the other how, and who wants tickets."""

from __future__ import annotations

import pytest

from gatepost.cli.explain_sign_in import sign_in_words
from gatepost.organization.model import (
    ClientAddress,
    Endpoint,
    HttpSignIn,
    Organization,
    Protocol,
    Role,
    Server,
    SignIn,
    SignInForm,
    TlsMode,
    Version,
)
from gatepost.routing.decision import Target

OWN, OTHER = "CAS-01$@AD.X", "CAS-02$@AD.Y"


def _words(server: Server, protocol: Protocol, *, peer: bool = False, own: str = "", by: str = "none") -> str:
    front = Server("CAS-01", "usa", "cas-01.x", "127.0.0.1", Version.MODERN, frozenset(), kerberos_principal=own)
    organization = Organization("x", servers={server.name: server, front.name: front})
    endpoint = Endpoint("e", protocol, "127.0.0.2", 1, TlsMode.IMPLICIT, "cas-02.x", ClientAddress(by))
    return sign_in_words(organization, "CAS-01", protocol, Target(server.name, endpoint, None, peer=peer))


def _peer(principal: str) -> Server:
    roles = frozenset({Role.CLIENT_ACCESS})
    return Server("CAS-02", "asia", "cas-02.x", "127.0.0.2", Version.MODERN, roles, kerberos_principal=principal)


@pytest.mark.parametrize(
    ("own", "other", "expected"),
    [
        (OWN, OTHER, f"by Kerberos, as {OWN} to HTTP/cas-02.x@AD.Y"),
        (OWN, "", "by the peer certificate, since CAS-02 has no kerberos_principal"),
        ("", OTHER, "by the peer certificate, since CAS-01 has no kerberos_principal"),
        ("", "", ""),
    ],
)
def test_between_front_ends(own: str, other: str, expected: str) -> None:
    assert _words(_peer(other), Protocol.HTTPS, peer=True, own=own) == expected


def _mailbox(sign_in: SignIn) -> Server:
    roles = frozenset({Role.MAILBOX})
    return Server("MBX-01", "usa", "mbx-01.x", "127.0.0.2", Version.MODERN, roles, sign_in=sign_in)


def test_mailbox_servers_that_want_tickets() -> None:
    both = SignIn(form=SignInForm.KERBEROS, http=HttpSignIn.KERBEROS, kerberos_host="mail.x@AD.Y")
    told = "by Kerberos, with a ticket of the user for"
    assert _words(_mailbox(both), Protocol.POP3) == f"{told} pop/mail.x@AD.Y"
    assert _words(_mailbox(both), Protocol.HTTPS) == f"{told} HTTP/mail.x@AD.Y"
    assert _words(_mailbox(SignIn(form=SignInForm.KERBEROS)), Protocol.IMAP) == f"{told} imap/mbx-01.x"
    assert _words(_mailbox(SignIn(form=SignInForm.KERBEROS)), Protocol.HTTPS) == ""
    assert _words(_mailbox(SignIn()), Protocol.IMAP) == ""
    assert _words(_mailbox(both), Protocol.SUBMISSION, by="xclient-login") == ""
