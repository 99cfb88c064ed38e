"""Kerberos principals and the users they stand for: a realm is believed for the domain that it is configured for.

alice@AD.EXAMPLE.COM                    realm AD.EXAMPLE.COM stands for example.com ──► alice@example.com
alice\\@example.com@AD.EXAMPLE.COM       enterprise name, Active Directory's UPN (RFC 6806) ──► alice@example.com
EXAMPLE\\alice                           as a client may write it beside its ticket ──► alice@example.com
"""

from __future__ import annotations

from collections.abc import Mapping

from gatepost.organization.names import MAX_LOGIN_NAME, BadLoginName, canonical_login_name


class NoUser(ValueError):
    """The principal stands for no user here. The message is for the log."""


def split_principal(principal: str) -> tuple[list[str], str]:
    """Components and realm of `a/b@REALM`; a backslash takes `@`, `/` and itself literally. Raises `NoUser`."""
    parts, realm, escaped = [""], None, False
    for character in principal:
        if escaped:
            escaped = False
        elif character == "\\":
            escaped = True
            continue
        elif character == "/" and realm is None:
            parts.append("")
            continue
        elif character == "@":
            if realm is not None:
                raise NoUser("a principal with two realms")
            realm = ""
            continue
        if realm is None:
            parts[-1] += character
        else:
            realm += character
    if escaped or not realm or not all(parts):
        raise NoUser("a principal that cannot be read")
    return parts, realm


def login_name(principal: str, realms: Mapping[str, str]) -> str:
    """The canonical login name of `principal`. `realms`: the domain that each realm stands for. Raises `NoUser`.

    A realm speaks for its own names only: whoever runs another one could otherwise be anybody here.
    """
    if len(principal) > 2 * MAX_LOGIN_NAME:
        raise NoUser("a principal that is too long")
    parts, realm = split_principal(principal)
    domain = realms.get(realm)
    if domain is None:
        raise NoUser(f"realm {realm} is not one of ours")
    if len(parts) != 1:
        raise NoUser("the principal of a service")
    local, at, own = parts[0].rpartition("@")
    if at and own.casefold() not in (domain.casefold(), realm.casefold()):
        raise NoUser(f"realm {realm} does not speak for {own}")
    try:
        return canonical_login_name(f"{local if at else parts[0]}@{domain}", "")
    except BadLoginName as error:
        raise NoUser(f"no possible name: {error}") from error


def user_principal(name: str, domains: Mapping[str, str]) -> str:
    """The principal of the user with this canonical name. `domains`: the realm of each domain. Raises `NoUser`."""
    local, at, domain = name.rpartition("@")
    realm = domains.get(domain.casefold())
    if not at or realm is None:
        raise NoUser(f"no realm stands for {domain or 'a name without a domain'}")
    return "".join(f"\\{c}" if c in "\\/@" else c for c in local) + f"@{realm}"


def authorization_name(written: str, principal: str, domains: Mapping[str, str]) -> str:
    """An authorization identity in the form that other mechanisms have; empty: the principal itself.

    `domains`: the domain behind each NetBIOS name, upper case. Raises `NoUser`.
    """
    if not written or written.casefold() == principal.casefold():
        return ""
    short, backslash, user = written.partition("\\")
    if not backslash:
        return written
    domain = domains.get(short.upper())
    if domain is None or not user or "@" in user:
        raise NoUser("an unknown domain in the authorization identity")
    return f"{user}@{domain}"
