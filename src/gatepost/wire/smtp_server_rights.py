"""What a client of a receive connector may do (SPEC T1, exchange-facts 4.9)."""

from __future__ import annotations

from dataclasses import dataclass

from gatepost.organization.transport import PermissionGroup, ReceiveAuthentication, ReceiveConnector

MECHANISMS = ("PLAIN", "LOGIN")
BEARER = ("XOAUTH2", "OAUTHBEARER")
KERBEROS = ("GSSAPI",)
SCRAM = ("SCRAM-SHA-256",)


@dataclass(frozen=True, slots=True)
class Rights:
    """The permission groups' rights that count here."""

    trusted: bool = False
    """A server of the organization: no tarpit, no limit of errors."""
    relay: bool = False
    """Any recipient; else those of the organization only."""
    submit: bool = False
    """MAIL at all."""
    certified: bool = False
    """Trusted for its certificate, not for its network."""


def rights_of(connector: ReceiveConnector, *, user: bool, server: bool, partner: bool) -> Rights:
    """The rights of a client that has signed in (`user`), or whose certificate was verified (`server`, `partner`).

    The network of an externally secured connector stands for a server's certificate.
    """
    groups, how = connector.permission_groups, connector.authentication
    certified = server and ReceiveAuthentication.SERVERS in how and PermissionGroup.SERVERS in groups
    secured = ReceiveAuthentication.EXTERNALLY_SECURED in how and PermissionGroup.SERVERS in groups
    trusted = certified or secured
    relay = trusted or (user and PermissionGroup.USERS in groups)
    partner = partner and PermissionGroup.PARTNERS in groups
    return Rights(trusted, relay, relay or partner or PermissionGroup.ANONYMOUS in groups, certified)


def mechanisms(
    connector: ReceiveConnector, *, tls: bool, kerberos: bool, tokens: bool = False, scram: bool = False
) -> tuple[str, ...]:
    """What AUTH offers, within TLS or without; `kerberos`: tickets can be judged, `tokens`: bearer tokens.

    `scram`: that is wanted where passwords are taken.
    """
    found: tuple[str, ...] = MECHANISMS if takes_passwords(connector, tls=tls) else ()
    if found and scram:
        found += SCRAM
    if found and tls and tokens:  # who has read a token has what it opens: never in clear (RFC 6750 section 5.3)
        found += BEARER
    tickets = ReceiveAuthentication.KERBEROS in connector.authentication
    if tls and kerberos and tickets and PermissionGroup.USERS in connector.permission_groups:
        found += KERBEROS
    return found


def takes_passwords(connector: ReceiveConnector, *, tls: bool) -> bool:
    """Whether AUTH PLAIN and LOGIN are offered, within TLS or without."""
    how = connector.authentication
    if PermissionGroup.USERS not in connector.permission_groups:
        return False
    if ReceiveAuthentication.BASIC_REQUIRE_TLS in how:
        return tls
    return ReceiveAuthentication.BASIC in how
