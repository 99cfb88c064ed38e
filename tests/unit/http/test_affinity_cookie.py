"""Cookie affinity (SPEC B1): the server chosen first, for this user, among those that are offered."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from gatepost.access.http import affinity_cookie
from gatepost.access.http.affinity_cookie import MAX_SERVICES, PURPOSE, AffinityCookie
from gatepost.access.http.sealed import Sealer
from gatepost.configuration.settings import OtherKey

NOW = datetime(2026, 7, 1, tzinfo=UTC).timestamp()
SERVERS = ["CAS-01", "CAS-02", "CAS-03"]
ALICE, BOB = "alice@contoso.com", "bob@contoso.com"


def key() -> bytes:
    return ec.generate_private_key(ec.SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


KEY, OTHER = key(), key()
COOKIE = AffinityCookie(KEY)


def value_of(line: bytes) -> bytes:
    name, _, rest = line.removeprefix(b"Set-Cookie: ").partition(b"=")
    assert name == b"__Host-gatepost-server"
    return rest.partition(b";")[0]


def made(user: str = ALICE, service: str = "owa", server: str = "CAS-02", before: bytes = b"") -> bytes:
    return value_of(COOKIE.line(before, user, service, server, NOW))


@pytest.mark.parametrize("server", SERVERS)
def test_a_user_stays_with_the_server_chosen_first_at_every_front_end(server: str) -> None:
    """Whatever order the servers are offered in."""
    value = made(server=server)
    assert AffinityCookie(KEY).kept(value, ALICE, "owa", SERVERS[::-1], NOW) == server


def test_a_server_that_is_not_offered_is_not_chosen() -> None:
    """C14: a cookie chooses no host; a decision's candidates are all there is."""
    assert COOKIE.kept(made(), ALICE, "owa", ["CAS-01", "CAS-03"], NOW) is None
    assert COOKIE.kept(made(), ALICE, "owa", [], NOW) is None


def test_no_name_of_a_server_is_in_it() -> None:
    """Not even for those who can open it."""
    plain = Sealer([KEY], PURPOSE).open(made(), NOW)
    assert plain is not None
    assert b"CAS" not in plain
    assert b"alice" not in plain


def test_it_counts_for_its_own_user() -> None:
    """Another user's cookie is none, and what follows keeps nothing of it."""
    value = made()
    assert COOKIE.kept(value, BOB, "owa", SERVERS, NOW) is None
    bobs = made(user=BOB, service="ews", server="CAS-01", before=value)
    assert COOKIE.kept(bobs, BOB, "ews", SERVERS, NOW) == "CAS-01"
    assert COOKIE.kept(bobs, BOB, "owa", SERVERS, NOW) is None
    assert COOKIE.kept(bobs, ALICE, "owa", SERVERS, NOW) is None


def test_services_have_servers_of_their_own() -> None:
    """And a new choice for one leaves the others."""
    value = made(service="ews", server="CAS-03", before=made())
    assert COOKIE.kept(value, ALICE, "owa", SERVERS, NOW) == "CAS-02"
    assert COOKIE.kept(value, ALICE, "ews", SERVERS, NOW) == "CAS-03"
    moved = made(server="CAS-01", before=value)
    assert COOKIE.kept(moved, ALICE, "owa", SERVERS, NOW) == "CAS-01"
    assert COOKIE.kept(moved, ALICE, "ews", SERVERS, NOW) == "CAS-03"


def test_it_cannot_grow() -> None:
    """A bound on services; the oldest choice goes."""
    value = b""
    for number in range(MAX_SERVICES + 5):
        value = made(service=f"service-{number}", before=value)
    kept = [n for n in range(MAX_SERVICES + 5) if COOKIE.kept(value, ALICE, f"service-{n}", SERVERS, NOW)]
    assert kept == list(range(5, MAX_SERVICES + 5))
    assert len(value) < 1000


def test_forged_changed_and_foreign_cookies_are_none() -> None:
    """Nothing raises; the next line begins anew."""
    value = made()
    foreign = value_of(AffinityCookie(OTHER).line(b"", ALICE, "owa", "CAS-02", NOW))
    strange = [Sealer([KEY], PURPOSE).seal(plain) for plain in (b"", b"\x93\xc0\xc0\xc0", b"\x93\xc4\x00\xc4\x00\x80")]
    for wrong in (b"", b"x", b"CAS-02", value[:-1], value + b"A", foreign, *strange):
        assert COOKIE.kept(wrong, ALICE, "owa", SERVERS, NOW) is None
        again = made(service="ews", before=wrong)
        assert COOKIE.kept(again, ALICE, "ews", SERVERS, NOW) == "CAS-02"
        assert COOKIE.kept(again, ALICE, "owa", SERVERS, NOW) is None


def test_it_survives_a_change_of_the_certificate() -> None:
    """Until the moment when the old key opens no more."""
    until = datetime.fromtimestamp(NOW, UTC) + timedelta(hours=1)
    new = AffinityCookie(OTHER, [OtherKey(KEY, until)])
    assert new.kept(made(), ALICE, "owa", SERVERS, NOW) == "CAS-02"
    assert new.kept(made(), ALICE, "owa", SERVERS, NOW + 3600) is None


def test_what_is_remembered_of_a_cookie_counts_for_the_same_question_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its user, its service, and among the candidates of the moment; and no more of it than there is room for."""
    cookie, value = AffinityCookie(KEY), made()
    for _ in range(2):
        assert cookie.kept(value, ALICE, "owa", SERVERS, NOW) == "CAS-02"
        assert cookie.kept(value, BOB, "owa", SERVERS, NOW) is None
        assert cookie.kept(value, ALICE, "ecp", SERVERS, NOW) is None
        assert cookie.kept(value, ALICE, "owa", ["CAS-01", "CAS-03"], NOW) is None
    monkeypatch.setattr(affinity_cookie, "MAX_KNOWN", 3)
    for _ in range(10):
        assert cookie.kept(made(), ALICE, "owa", SERVERS, NOW) == "CAS-02"
        assert len(cookie._known) <= 3
