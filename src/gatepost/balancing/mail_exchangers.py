"""What MX records mean (RFC 5321 section 5.1, RFC 7505), and which must not be followed (smtp-facts row 29). Pure.

Names and addresses in DNS are whatever strangers write there: an MX that names the loopback address or a machine of our
network would have us talk to ourselves or knock at doors that only we can reach.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

import idna

from gatepost.organization.addresses import is_host_name, is_ip_address

_TRANSLATED = IPv6Network("64:ff9b::/96")
"""NAT64 (RFC 6052): the last 32 bits are an IPv4 address."""
_IPV6_TAG = "ipv6:"


class BadDomain(ValueError):
    """A recipient's domain that can neither be looked up nor is an address. The text says why."""


@dataclass(frozen=True, slots=True, order=True)
class MailExchanger:
    """One MX record. `host` is in lower case, without the last dot; empty for the null MX."""

    preference: int
    host: str


def a_label(domain: str) -> str:
    """`domain` as DNS has it: lower case, U-labels encoded (UTS 46, non-transitional; row 35). Raises `BadDomain`."""
    name = domain.removesuffix(".")
    try:
        name = name.lower() if name.isascii() else idna.encode(name, uts46=True).decode("ascii")
    except idna.IDNAError as error:
        raise BadDomain(f"{domain!r} is no domain name: {error}") from error
    if not is_host_name(name):
        raise BadDomain(f"{domain!r} is no domain name")
    return name


def literal_address(domain: str) -> str | None:
    """The address in a literal domain, `[192.0.2.1]` or `[IPv6:2001:db8::1]`; None for a name. Raises `BadDomain`."""
    if not domain.startswith("["):
        return None
    text = domain[1:].removesuffix("]")
    tagged = text.lower().startswith(_IPV6_TAG)
    try:
        if not domain.endswith("]"):
            raise ValueError  # noqa: TRY301 - the same fault as below
        return str(IPv6Address(text[len(_IPV6_TAG) :]) if tagged else IPv4Address(text))
    except ValueError:
        raise BadDomain(f"{domain!r} is no address that mail can be sent to") from None


def is_null(exchangers: Sequence[MailExchanger]) -> bool:
    """Whether the domain takes no mail (RFC 7505): the null MX is its only one."""
    return len(exchangers) > 0 and all(not exchanger.host for exchanger in exchangers)


def before_ourselves(exchangers: Iterable[MailExchanger], ours: Collection[str]) -> list[MailExchanger]:
    """The exchangers that are better than every one of the hosts `ours`, best first (row 30).

    Handing the message to an equal or worse one would bring it back.
    """
    listed = sorted(exchanger for exchanger in exchangers if exchanger.host)
    ourselves = min((each.preference for each in listed if each.host in ours), default=None)
    return [each for each in listed if ourselves is None or each.preference < ourselves]


def why_not_name(host: str) -> str:
    """Why an MX record's host must not be looked up; empty when it may be."""
    if is_ip_address(host):
        return "is an address, not a host name"
    if host == "localhost" or host.endswith(".localhost"):
        return "is this machine's own name for itself"
    return "" if is_host_name(host) else "is no host name"


def why_not_address(address: str, *, allow_private: bool) -> str:
    """Why mail for strangers must not be sent to `address`; empty when it may be."""
    found = _embedded(ip_address(address))
    if found.is_unspecified or found.is_multicast:
        return "is no machine's address"
    if allow_private:
        return ""
    if found.is_loopback:
        return "is a loopback address"
    if found.is_link_local:
        return "is a link-local address"
    return "" if found.is_global else "is a private or reserved address"


def _embedded(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """The IPv4 address that an IPv6 one leads to, where it does."""
    if not isinstance(address, IPv6Address):
        return address
    if address in _TRANSLATED:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None) or address
