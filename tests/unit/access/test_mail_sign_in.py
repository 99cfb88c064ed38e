"""How a user is signed in at a mailbox server: whose credentials, and which tokens go where."""

from __future__ import annotations

import jwt
import pytest

from gatepost.access.mail_sign_in import Introduction, back_sign_in, lacks_password
from gatepost.directory.port import User
from gatepost.organization.model import (
    ClientAddress,
    Endpoint,
    Protocol,
    Role,
    Server,
    SignIn,
    SignInForm,
    TlsMode,
    Version,
)
from gatepost.peers.login_token import make_key
from gatepost.routing.decision import Mailbox
from gatepost.wire.events import BackSignIn, Credentials

USER = User("alice@contoso.com", Mailbox("DB01"), login_at_server="alice")
ENDPOINT = Endpoint("imap", Protocol.IMAP, "127.0.0.1", 143, TlsMode.STARTTLS, "mbx.contoso.com")
TOKEN = Credentials("OAUTHBEARER", "", token="a.b.c", audiences=("mail", "mbx"))
OURS = SignIn(form=SignInForm.ASSERTION, assertion_key=make_key())


def _server(sign_in: SignIn) -> Server:
    return Server(
        "MBX-01", "usa", "mbx.contoso.com", "127.0.0.1", Version.MODERN, frozenset({Role.MAILBOX}), sign_in=sign_in
    )


def _signed_in(sign_in: SignIn, credentials: Credentials) -> BackSignIn:
    return back_sign_in(_server(sign_in), ENDPOINT, USER, credentials, None, Introduction(5, ()))


@pytest.mark.parametrize("credentials", [Credentials("LOGIN", "alice", password="apw"), TOKEN])
def test_by_our_word(credentials: Credentials) -> None:
    """Whatever the client came with; neither password nor token of theirs reaches the server."""
    found = _signed_in(OURS, credentials)
    assert (found.mechanism, found.user, found.password) == ("OAUTHBEARER", "alice", "")
    assert jwt.decode(found.token, options={"verify_signature": False})["sub"] == "alice"
    assert not lacks_password(_server(OURS), ENDPOINT, credentials)


def test_a_token_goes_on_only_where_it_is_meant_for() -> None:
    meant = SignIn(token_audience="mbx")
    found = _signed_in(meant, TOKEN)
    assert (found.mechanism, found.token, found.password) == ("OAUTHBEARER", "a.b.c", "")
    assert not lacks_password(_server(meant), ENDPOINT, TOKEN)
    for sign_in in (SignIn(), SignIn(token_audience="mbx-02")):
        assert _signed_in(sign_in, TOKEN).token == ""
        assert lacks_password(_server(sign_in), ENDPOINT, TOKEN)


def test_who_came_by_a_token_can_be_named_by_xclient() -> None:
    named = Endpoint(
        "submission", Protocol.SUBMISSION, "127.0.0.1", 587, TlsMode.CLEAR, "", ClientAddress.XCLIENT_LOGIN
    )
    assert not lacks_password(_server(SignIn()), named, TOKEN)


def test_a_master_user_sees_no_token() -> None:
    master = SignIn(form=SignInForm.MASTER_NAME, master_user="gp", master_password="mpw")
    found = _signed_in(master, TOKEN)
    assert (found.mechanism, found.user, found.password, found.token) == ("LOGIN", "alice*gp", "mpw", "")
