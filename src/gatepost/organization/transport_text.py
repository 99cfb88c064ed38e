"""The texts of transport: sizes, time spans, bindings, address ranges, address spaces, smart hosts. Pure.

Files and commands write these the same way. Every `read_…` raises ValueError with what is wrong in plain words; every
`…_text` writes what the reader takes.
"""

from __future__ import annotations

import re
from ipaddress import ip_address, ip_network

from gatepost.organization.addresses import is_host_name
from gatepost.organization.transport import Address, AddressRange, AddressSpace, Binding, SmartHost

SMTP_PORT = 25
MAX_PORT = 65535
MAX_SPACE_COST = 100
UNLIMITED = "unlimited"
"""The word for no bound on a size; as a number it is 0."""

_UNITS = {"": 1, "B": 1, "KB": 1024, "MB": 1024**2, "GB": 1024**3}
_SIZE = re.compile(r"([0-9]{1,15})\s*(B|KB|MB|GB|)(?:\s*\([0-9,]+ bytes\))?", re.IGNORECASE | re.ASCII)
_SPAN = re.compile(r"(?:([0-9]{1,4})\.)?([0-9]{1,2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,7}))?", re.ASCII)
_PORT = re.compile(r"[0-9]{1,5}", re.ASCII)
_DAY = 86400


def read_size(text: str) -> int:
    """Bytes of `35MB`, `250 KB`, `1GB`, `65536` or `36 MB (37,748,736 bytes)`; `unlimited` is 0."""
    if text.strip().casefold() == UNLIMITED:
        return 0
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ValueError("is not a size such as 35MB")
    return int(found[1]) * _UNITS[found[2].upper()]


def size_text(size: int) -> str:
    """`35MB`, or in bytes where no unit divides it; 0 is `unlimited`."""
    if size == 0:
        return UNLIMITED
    unit = next(unit for unit in ("GB", "MB", "KB", "B") if size % _UNITS[unit] == 0)
    return f"{size // _UNITS[unit]}{unit}"


def size_shown(size: int) -> str:
    """As the source system's commands show a size: `36 MB (37,748,736 bytes)`."""
    if size == 0:
        return "Unlimited"
    unit = next(unit for unit in ("GB", "MB", "KB", "B") if size % _UNITS[unit] == 0)
    return f"{size // _UNITS[unit]} {unit} ({size:,} bytes)"


def read_span(text: str) -> float:
    """Seconds of `dd.hh:mm:ss`, with or without days and fractions of a second."""
    found = _SPAN.fullmatch(text.strip())
    if found is None or int(found[2]) >= 24 or int(found[3]) >= 60 or int(found[4]) >= 60:
        raise ValueError("is not a time span such as 00:05:00 (hours, minutes, seconds) or 2.00:00:00 (days in front)")
    whole = int(found[1] or 0) * _DAY + int(found[2]) * 3600 + int(found[3]) * 60 + int(found[4])
    return float(f"{whole}.{found[5] or 0}")


def span_text(seconds: float) -> str:
    """`00:05:00`, `2.00:00:00`, `00:00:00.500`."""
    thousandths = round(seconds * 1000)
    whole, part = divmod(thousandths, 1000)
    days, rest = divmod(whole, _DAY)
    front = f"{days}." if days else ""
    end = f".{part:03}" if part else ""
    return f"{front}{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}{end}"


def read_binding(text: str, *, implicit_tls: bool = False) -> Binding:
    """`0.0.0.0:25` or `[::]:25`."""
    host, port = _host_and_port(text)
    try:
        address: Address = ip_address(host)
    except ValueError:
        address = ip_address("::")
        port = None
    if port is None:
        raise ValueError('is not an address with a port, such as "0.0.0.0:25" or "[::]:25"')
    return Binding(address, port, implicit_tls)


def binding_text(binding: Binding) -> str:
    """`0.0.0.0:25`, `[::]:25`."""
    host = f"[{binding.address}]" if binding.address.version == 6 else str(binding.address)
    return f"{host}:{binding.port}"


def read_range(text: str) -> AddressRange:
    """`10.0.0.0/8`, `192.168.1.0-192.168.1.255`, `192.168.1.0-255`, or one address."""
    first, dash, last = (part.strip() for part in text.partition("-"))
    try:
        if not dash:
            network = ip_network(first)
            return AddressRange(network[0], network[-1])
        if _PORT.fullmatch(last) and "." in first:  # the last number alone
            last = f"{first.rpartition('.')[0]}.{last}"
        begin, end = ip_address(first), ip_address(last)
    except ValueError:
        raise ValueError('is not an address range such as "10.0.0.0/8" or "10.0.0.1-10.0.0.9"') from None
    if begin.version != end.version or int(begin) > int(end):
        raise ValueError("is an address range whose end comes before its beginning")
    return AddressRange(begin, end)


def range_text(remote: AddressRange) -> str:
    """A subnet where the range is one, else `first-last`."""
    if remote.first == remote.last:
        return str(remote.first)
    prefix = remote.first.max_prefixlen - (remote.size.bit_length() - 1)
    if remote.size & (remote.size - 1) == 0 and int(remote.first) % remote.size == 0:
        return f"{remote.first}/{prefix}"
    return f"{remote.first}-{remote.last}"


def read_space(text: str) -> AddressSpace:
    """`*`, `*.contoso.com`, `contoso.com`, each with `SMTP:` before and `;cost` behind it if wanted."""
    rest, _, cost = text.strip().partition(";")
    kind, colon, pattern = rest.partition(":")
    if colon and kind.strip().casefold() != "smtp":
        raise ValueError("is an address space of another type than SMTP")
    pattern = (pattern if colon else rest).strip().lower()
    pattern = pattern if pattern == "*." else pattern.removesuffix(".")
    if cost and (not _PORT.fullmatch(cost.strip()) or not 1 <= int(cost) <= MAX_SPACE_COST):
        raise ValueError(f"has a cost that is not a number from 1 to {MAX_SPACE_COST}")
    fault = space_fault(pattern)
    if fault:
        raise ValueError(fault)
    return AddressSpace(pattern, int(cost) if cost else 1)


def space_fault(pattern: str) -> str:
    """What is wrong with an address space's pattern; empty when it is fine."""
    if pattern == "*" or is_host_name(pattern.removeprefix("*.")):
        return ""
    if pattern.startswith("*") and is_host_name(pattern[1:]):
        return f"has a star that no dot follows: *.{pattern[1:]} means the domain and all below it"
    return "is not an address space such as *, *.contoso.com or contoso.com"


def space_text(space: AddressSpace) -> str:
    """`contoso.com`, with its cost where that is not 1."""
    return space.pattern if space.cost == 1 else f"{space.pattern};{space.cost}"


def space_shown(space: AddressSpace) -> str:
    """As the source system shows it: `SMTP:contoso.com;1`."""
    return f"SMTP:{space.pattern};{space.cost}"


def read_smart_host(text: str) -> SmartHost:
    """A host name or an address, in brackets or not, with a port behind a colon if it is not 25."""
    host, port = _host_and_port(text)
    if not (is_host_name(host) or _is_address(host)) or (port is None and _names_port(text)):
        raise ValueError('is not a host such as "relay.contoso.com", "[10.0.0.1]" or "relay.contoso.com:587"')
    return SmartHost(host, SMTP_PORT if port is None else port)


def smart_host_text(host: SmartHost) -> str:
    """`relay.contoso.com`, `[10.0.0.1]`, with the port where it is not 25."""
    name = f"[{host.host}]" if _is_address(host.host) else host.host
    return name if host.port == SMTP_PORT else f"{name}:{host.port}"


def _host_and_port(text: str) -> tuple[str, int | None]:
    """Host without brackets, and the port where one is named."""
    text = text.strip()
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        return (host, _port(rest[1:])) if bracket and rest.startswith(":") else (host if not rest else "", None)
    if text.count(":") == 1:
        host, _, port = text.partition(":")
        return host, _port(port)
    return text, None


def _names_port(text: str) -> bool:
    return "]:" in text or text.count(":") == 1


def _port(text: str) -> int | None:
    return int(text) if _PORT.fullmatch(text) and 1 <= int(text) <= MAX_PORT else None


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
