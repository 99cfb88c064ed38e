"""XCLIENT as Postfix has it: a proxy that is listed tells a server who its client is (SPEC T1)."""

from __future__ import annotations

from ipaddress import AddressValueError, IPv4Address, IPv6Address

from gatepost.organization.names import MAX_LOGIN_NAME
from gatepost.wire.smtp_address import MAX_DOMAIN
from gatepost.wire.smtp_command import decode_xtext, encode_xtext
from gatepost.wire.smtp_server_events import ClientClaim

_NAMES = frozenset({"NAME", "ADDR", "PORT", "PROTO", "HELO", "LOGIN", "DESTADDR", "DESTPORT"})
_UNKNOWN = frozenset({"[UNAVAILABLE]", "[TEMPUNAVAIL]"})


def parse_xclient(argument: bytes) -> ClientClaim:
    """What follows `XCLIENT `. PROTO and the destination are read and not used. Raises ValueError."""
    words = argument.decode("ascii").split()
    if not words:
        raise ValueError("no attribute")
    values: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        name = name.upper()
        if not equals or name not in _NAMES or name in values:
            raise ValueError("a bad attribute")
        text = decode_xtext(value).encode("latin-1").decode("utf-8")
        if not text.isprintable() or len(text) > MAX_LOGIN_NAME:
            raise ValueError("a bad value")
        values[name] = "" if text.upper() in _UNKNOWN else text
    return ClientClaim(
        address=_address(values.get("ADDR", "")),
        port=_port(values.get("PORT", "")),
        name=values.get("NAME", "")[:MAX_DOMAIN],
        helo=values.get("HELO", "")[:MAX_DOMAIN],
        login=values.get("LOGIN", ""),
    )


def encode_xclient(claim: ClientClaim) -> bytes:
    """The whole line for `claim`, with its end; what is not known is left out, the address `[UNAVAILABLE]`."""
    address = f"IPV6:{claim.address}" if ":" in claim.address else claim.address or "[UNAVAILABLE]"
    values = {"NAME": claim.name, "ADDR": address, "PORT": str(claim.port or ""), "HELO": claim.helo}
    values["LOGIN"] = claim.login
    words = [f"{name}={encode_xtext(value.encode().decode('latin-1'))}" for name, value in values.items() if value]
    return f"XCLIENT {' '.join(words)}\r\n".encode("ascii")


def _address(text: str) -> str:
    if not text:
        return ""
    try:
        if text[:5].upper() == "IPV6:" or ":" in text:
            address = IPv6Address(text[5:] if text[:5].upper() == "IPV6:" else text)
            if address.scope_id:
                raise ValueError("a bad address")
            return str(address.ipv4_mapped or address)
        return str(IPv4Address(text))
    except AddressValueError:
        raise ValueError("a bad address") from None


def _port(text: str) -> int:
    if not text:
        return 0
    if not text.isascii() or not text.isdigit() or len(text) > 5 or int(text) > 0xFFFF:
        raise ValueError("a bad port")
    return int(text)
