"""Which user a Kerberos principal stands for, and for which service a ticket is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatepost.directory.kerberos_ticket import ticket_service
from gatepost.directory.principals import NoUser, authorization_name, login_name, split_principal, user_principal
from gatepost.organization.names import BadLoginName, canonical_login_name

REALMS = {"AD.CONTOSO.COM": "contoso.com", "PARTNER.TEST": "partner.test"}
DOMAINS = {"CONTOSO": "contoso.com"}


@pytest.mark.parametrize(
    ("principal", "name"),
    [
        ("alice@AD.CONTOSO.COM", "alice@contoso.com"),
        ("Alice@AD.CONTOSO.COM", "alice@contoso.com"),
        (r"alice\@contoso.com@AD.CONTOSO.COM", "alice@contoso.com"),
        (r"alice\@ad.contoso.com@AD.CONTOSO.COM", "alice@contoso.com"),
        (r"o\\brien@PARTNER.TEST", "o\\brien@partner.test"),
    ],
)
def test_a_principal_stands_for_a_user_of_its_realms_domain(principal: str, name: str) -> None:
    assert login_name(principal, REALMS) == name


@pytest.mark.parametrize(
    ("principal", "reason"),
    [
        ("alice@ELSEWHERE.TEST", "not one of ours"),
        ("alice@ad.contoso.com", "not one of ours"),  # realms are case-sensitive (RFC 4120 section 6.1)
        (r"alice\@contoso.com@PARTNER.TEST", "does not speak for contoso.com"),
        ("host/mail.contoso.com@AD.CONTOSO.COM", "principal of a service"),
        ("@AD.CONTOSO.COM", "cannot be read"),
        ("alice", "cannot be read"),
        ("alice@", "cannot be read"),
        ("a@b@AD.CONTOSO.COM", "two realms"),
        ("alice smith@AD.CONTOSO.COM", "no possible name"),
        ("a" * 700 + "@AD.CONTOSO.COM", "too long"),
    ],
)
def test_other_principals_stand_for_nobody(principal: str, reason: str) -> None:
    with pytest.raises(NoUser, match=reason):
        login_name(principal, REALMS)


@given(st.text(max_size=30))
def test_whatever_a_principal_is_it_is_split_or_refused(text: str) -> None:
    try:
        parts, realm = split_principal(text)
    except NoUser:
        return
    assert parts
    assert realm


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("", ""),
        ("alice@AD.CONTOSO.COM", ""),
        ("alice", "alice"),
        ("alice@contoso.com", "alice@contoso.com"),
        ("CONTOSO\\alice", "alice@contoso.com"),
        ("contoso\\alice", "alice@contoso.com"),
    ],
)
def test_what_a_client_may_write_beside_its_ticket(written: str, name: str) -> None:
    assert authorization_name(written, "alice@AD.CONTOSO.COM", DOMAINS) == name


@pytest.mark.parametrize("written", ["ELSEWHERE\\alice", "CONTOSO\\", "CONTOSO\\alice@partner.test", "\\alice"])
def test_an_unknown_domain_beside_the_ticket(written: str) -> None:
    with pytest.raises(NoUser):
        authorization_name(written, "alice@AD.CONTOSO.COM", DOMAINS)


def _element(tag: int, content: bytes) -> bytes:
    length = len(content)
    size = bytes([length]) if length < 128 else b"\x82" + length.to_bytes(2, "big")
    return bytes([tag]) + size + content


def _ticket(*names: str) -> bytes:
    strings = b"".join(_element(0x1B, name.encode()) for name in names)
    name = _element(0x30, b"\xa0\x03\x02\x01\x03" + _element(0xA1, _element(0x30, strings)))
    realm = _element(0xA1, _element(0x1B, b"AD.CONTOSO.COM"))
    return b"\xa0\x03\x02\x01\x05" + realm + _element(0xA2, name) + b"\xa3\x00"


def test_the_service_that_a_ticket_names() -> None:
    head = b"\x60\x82\x05\x00\xa0\x03\x02\x01\x05\xa1\x03\x02\x01\x0e"
    assert ticket_service(head + _ticket("HTTP", "mail.contoso.com")) == "HTTP/mail.contoso.com"
    assert ticket_service(_ticket("imap", "a" * 150 + ".contoso.com")).startswith("imap/aaa")


@given(st.integers(0, 60))
def test_a_ticket_that_is_cut_off_names_nothing(length: int) -> None:
    whole = _ticket("HTTP", "mail.contoso.com")
    assert ticket_service(whole[: min(length, len(whole) - 5)]) in ("", "HTTP/mail.contoso.com"[:0])


@given(st.binary(max_size=200))
def test_noise_names_no_service(noise: bytes) -> None:
    ticket_service(b"\xa0\x03\x02\x01\x05\xa1\x05\x1b" + noise)


@given(st.text(st.characters(codec="ascii", categories=["L", "N"], include_characters=".-_'\\/+"), min_size=1))
def test_a_users_principal_stands_for_the_user(local: str) -> None:
    """Backwards by the same table, whatever is in the name."""
    try:
        name = canonical_login_name(f"{local}@contoso.com", "")
    except BadLoginName:
        return
    principal = user_principal(name, {"contoso.com": "AD.CONTOSO.COM"})
    assert login_name(principal, {"AD.CONTOSO.COM": "contoso.com"}) == name


@pytest.mark.parametrize("name", ["alice", "alice@elsewhere.com", "@contoso.com.evil"])
def test_who_has_no_realm_has_no_principal(name: str) -> None:
    with pytest.raises(NoUser, match="no realm stands for"):
        user_principal(name, {"contoso.com": "AD.CONTOSO.COM"})
