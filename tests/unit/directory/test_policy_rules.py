"""Which protocols a user may use from where, and which addresses are one."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from gatepost.directory.policy.rules import allowed, group_of, is_in
from gatepost.directory.policy.settings import LOOPBACK, Rule
from gatepost.organization.model import Protocol

IMAP, POP3, HTTPS = Protocol.IMAP, Protocol.POP3, Protocol.HTTPS
ANNA, NOBODY = "anna@contoso.com", frozenset[str]()
OFFICE = (ip_network("10.0.0.0/8"), ip_network("2001:db8::/32"))


def test_without_rules_everybody_may() -> None:
    assert allowed((), ANNA, NOBODY, IMAP, "192.0.2.1")


def test_the_first_rule_that_concerns_a_sign_in_decides() -> None:
    rules = (Rule(allow=True, networks=OFFICE), Rule(allow=False, protocols=frozenset({IMAP, POP3})))
    assert allowed(rules, ANNA, NOBODY, IMAP, "10.1.2.3")
    assert not allowed(rules, ANNA, NOBODY, IMAP, "192.0.2.1")
    assert allowed(rules, ANNA, NOBODY, HTTPS, "192.0.2.1")


def test_by_user_and_by_domain() -> None:
    rules = (Rule(allow=False, users=frozenset({ANNA, "@fabrikam.com"})),)
    assert not allowed(rules, ANNA, NOBODY, IMAP, "")
    assert not allowed(rules, "otto@fabrikam.com", NOBODY, IMAP, "")
    assert allowed(rules, "otto@sub.fabrikam.com", NOBODY, IMAP, "")
    assert allowed(rules, "otto@contoso.com", NOBODY, IMAP, "")


def test_by_group() -> None:
    rules = (Rule(allow=False, groups=frozenset({"contractors"})),)
    assert not allowed(rules, ANNA, frozenset({"staff", "contractors"}), IMAP, "")
    assert allowed(rules, ANNA, frozenset({"staff"}), IMAP, "")


def test_all_that_a_rule_says_must_hold() -> None:
    rule = Rule(allow=False, protocols=frozenset({POP3}), users=frozenset({ANNA}), networks=OFFICE)
    assert not allowed((rule,), ANNA, NOBODY, POP3, "10.0.0.1")
    assert allowed((rule,), ANNA, NOBODY, POP3, "192.0.2.1")
    assert allowed((rule,), ANNA, NOBODY, IMAP, "10.0.0.1")


@pytest.mark.parametrize(
    ("client", "inside"),
    [
        ("10.9.9.9", True),
        ("::ffff:10.9.9.9", True),
        ("2001:db8::1", True),
        ("fe80::1%eth0", False),
        ("192.0.2.1", False),
        ("", False),
        ("no address", False),
    ],
)
def test_a_client_is_in_a_network(client: str, inside: bool) -> None:
    """An address that is not known is in none."""
    assert is_in(client, OFFICE) is inside


def test_ipv6_is_grouped_by_its_64_and_ipv4_is_not() -> None:
    assert group_of("2001:db8:1:2:3::4", 32, 64) == group_of("2001:db8:1:2:ffff::", 32, 64)
    assert group_of("2001:db8:1:2::", 32, 64) != group_of("2001:db8:1:3::", 32, 64)
    assert group_of("192.0.2.1", 32, 64) != group_of("192.0.2.2", 32, 64)
    assert group_of("192.0.2.1", 24, 64) == group_of("192.0.2.2", 24, 64)
    assert group_of("::ffff:192.0.2.1", 32, 64) == group_of("192.0.2.1", 32, 64)


def test_this_machine_is_trusted_by_default() -> None:
    assert is_in("127.0.0.1", LOOPBACK)
    assert is_in("::1", LOOPBACK)
