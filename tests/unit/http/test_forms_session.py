"""The sign-in cookie (SPEC B6): how long it is good, at which front end, and what it never shows."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from hypothesis import given
from hypothesis import strategies as st

from gatepost.access.http.forms.session import AHEAD_SECONDS, PURPOSE, FormsSession, Sessions, needs_password
from gatepost.access.http.sealed import Sealer
from gatepost.configuration.settings import Forms, OtherKey
from gatepost.directory.passwords import generation
from gatepost.directory.port import User
from gatepost.organization.model import (
    Endpoint,
    HttpSignIn,
    Organization,
    Protocol,
    Role,
    Server,
    SignIn,
    TlsMode,
    Version,
)
from gatepost.routing.decision import Mailbox

NOW = datetime(2026, 7, 1, tzinfo=UTC).timestamp()
FORMS = Forms(public_seconds=900.0, private_seconds=28800.0)
ALICE = User("alice@contoso.com", Mailbox("DB01"), "$argon2id$stored")


def key() -> bytes:
    return ec.generate_private_key(ec.SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


KEY, OTHER = key(), key()
SESSIONS = Sessions(KEY, FORMS)


def test_a_signed_in_user_continues_on_another_front_end() -> None:
    """With the same certificate, and without signing in again; with another one not."""
    value = SESSIONS.begin(ALICE, "secret", NOW, private=True)
    session = Sessions(KEY, FORMS).open(value, NOW + 60)
    assert session is not None
    assert (session.user, session.password, session.private) == ("alice@contoso.com", "secret", True)
    assert session.generation == generation(ALICE.password_hash, session.id)
    assert (session.begun, session.renewed) == (NOW, NOW)
    assert Sessions(OTHER, FORMS).open(value, NOW) is None


def test_the_longest_name_and_password_fit_a_cookie() -> None:
    """Browsers keep 4096 octets."""
    value = SESSIONS.begin(replace(ALICE, name="ü" * 254), "ü" * 512, NOW, private=True)
    assert len(value) < 3900
    assert SESSIONS.open(value, NOW) is not None
    with pytest.raises(ValueError, match="no account"):
        SESSIONS.begin(ALICE, "x" * 1025, NOW, private=True)


@pytest.mark.parametrize(("private", "timeout"), [(False, 900.0), (True, 28800.0)])
def test_the_computer_chosen_decides_the_time_out(private: bool, timeout: float) -> None:
    """Each with its own; the last moment is 1.5 times after the last renewal."""
    value = SESSIONS.begin(ALICE, "", NOW, private=private)
    assert SESSIONS.open(value, NOW + 1.5 * timeout - 0.01) is not None
    assert SESSIONS.open(value, NOW + 1.5 * timeout) is None
    late = SESSIONS.read(value, NOW + 100 * timeout)
    assert late is not None, "over, but known as ours: the page says that the time is over"


@given(st.lists(st.floats(min_value=0.1, max_value=1500.0), max_size=12), st.booleans())
def test_real_expiry_is_1_to_1_5_times_the_time_out(pauses: list[float], private: bool) -> None:
    """Whatever the user does before: counted from the last activity that found the sign-in good."""
    sessions = Sessions(KEY, replace(FORMS, private_seconds=600.0))
    timeout = 600.0 if private else 900.0
    now = last = NOW
    value = sessions.begin(ALICE, "", now, private=private)
    for pause in pauses:
        now += pause
        session = sessions.open(value, now)
        if session is None:
            assert now - last >= timeout - 1e-3
            return
        if now >= sessions.renewable_at(session):
            value = sessions.renew(session, now)
        last = now
    assert sessions.open(value, last + timeout - 0.01) is not None
    assert sessions.open(value, last + 1.5 * timeout + 0.01) is None


def test_renewal_keeps_everything_but_the_time() -> None:
    """And the old cookie stays good until its own end: requests cross each other."""
    value = SESSIONS.begin(ALICE, "secret", NOW, private=False)
    session = SESSIONS.open(value, NOW)
    assert session is not None
    assert SESSIONS.renewable_at(session) == NOW + 450
    renewed = SESSIONS.open(SESSIONS.renew(session, NOW + 451), NOW + 451)
    assert renewed == FormsSession(
        session.user, "secret", session.id, session.generation, False, session.begun, NOW + 451
    )
    assert SESSIONS.open(value, NOW + 451) == session


def test_a_clock_that_steps_back_and_one_that_runs_ahead() -> None:
    """Five minutes between two front ends' clocks are borne; a sign-in from the far future is none."""
    value = SESSIONS.begin(ALICE, "", NOW, private=True)
    assert SESSIONS.open(value, NOW - AHEAD_SECONDS) is not None
    assert SESSIONS.open(value, NOW - AHEAD_SECONDS - 1) is None


def test_a_sign_out_is_remembered_until_no_copy_can_be_good() -> None:
    """Also one that a front end whose clock is ahead has just renewed."""
    session = SESSIONS.open(SESSIONS.begin(ALICE, "", NOW, private=False), NOW)
    assert session is not None
    copy = SESSIONS.read(SESSIONS.renew(session, NOW + AHEAD_SECONDS), NOW)
    assert copy is not None
    assert SESSIONS.forgotten_at(session, NOW) >= SESSIONS.over_at(copy)


def test_both_certificates_open_while_they_are_changed() -> None:
    """Old and new until the moment, and then the new one only; renewal moves a sign-in to the new key."""
    until = datetime.fromtimestamp(NOW, UTC) + timedelta(hours=1)
    old = Sessions(KEY, replace(FORMS, also_opens=(OtherKey(OTHER, until),)))
    new = Sessions(OTHER, replace(FORMS, also_opens=(OtherKey(KEY, until),)))
    value = old.begin(ALICE, "", NOW, private=True)
    session = new.open(value, NOW + 3599)
    assert session is not None
    assert old.open(new.begin(ALICE, "", NOW, private=True), NOW + 3599) is not None
    assert new.open(value, NOW + 3600) is None
    assert new.open(new.renew(session, NOW + 3599), NOW + 3600) is not None


def test_what_was_sealed_for_the_same_purpose_in_another_shape() -> None:
    """A later version's cookie, or an earlier one's: a new sign-in, not a fault."""
    sealer = Sealer([KEY], PURPOSE)
    for plain in (b"", b"\x91\x01", b"\x97" + b"\xa1x" * 7, b"\xc1", b"{}"):
        assert SESSIONS.open(sealer.seal(plain), NOW) is None


def test_words_never_show_password_or_id() -> None:
    """Nor the names of what is kept in the session's place."""
    session = SESSIONS.open(SESSIONS.begin(ALICE, "open sesame", NOW, private=True), NOW)
    assert session is not None
    for words in (repr(session), str(session), f"{session}", repr([session]), repr(SESSIONS)):
        assert "sesame" not in words
        assert session.id.hex() not in words
        assert repr(session.id) not in words


def organization(form: HttpSignIn, endpoint: str = "https", role: Role = Role.MAILBOX) -> Organization:
    protocol = Protocol.HTTPS if endpoint == "https" else Protocol.IMAP
    place = Endpoint(endpoint, protocol, "127.0.0.1", 443, TlsMode.IMPLICIT, "mbx-01.contoso.com")
    server = Server(
        "MBX-01", "usa", "mbx-01.contoso.com", "127.0.0.1", Version.MODERN, frozenset({role}), (place,),
        SignIn(http=form),
    )  # fmt: skip
    return Organization("contoso", servers={"MBX-01": server})


def test_passwords_travel_in_cookies_only_where_a_server_needs_them() -> None:
    """A mailbox server over HTTP that wants the user's own credentials."""
    assert needs_password(organization(HttpSignIn.BASIC))
    assert not needs_password(organization(HttpSignIn.HEADER))
    assert not needs_password(organization(HttpSignIn.BASIC, endpoint="imaps"))
    assert not needs_password(organization(HttpSignIn.BASIC, role=Role.CLIENT_ACCESS))
