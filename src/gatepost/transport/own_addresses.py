"""The addresses of this machine's interfaces: who listens at 0.0.0.0 or [::] is reached by all of them.

Asked of the kernel in two old ways that need no more rights than a transport has: an `ioctl` and a file of `/proc`.
"""

from __future__ import annotations

import array
import fcntl
import socket
import struct
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

_SIOCGIFCONF = 0x8912
_ENTRY = 40 if struct.calcsize("P") == 8 else 32
"""Octets of a `struct ifreq`; the address follows 16 of the name, 2 of the family and 2 of a port."""
MOST = 4096
"""IPv4 addresses that are looked at."""
_IPV6 = Path("/proc/net/if_inet6")


def interface_addresses() -> frozenset[str]:
    """All of them, as text. What cannot be found out is left out."""
    found: set[str] = set()
    with suppress(OSError):
        found |= _ipv4()
    with suppress(OSError, ValueError):
        found |= ipv6_addresses(_IPV6.read_text())
    return frozenset(found)


def _ipv4() -> set[str]:
    room = array.array("B", bytes(MOST * _ENTRY))
    where, _ = room.buffer_info()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        answer = fcntl.ioctl(sock, _SIOCGIFCONF, struct.pack("iP", len(room), where))
    length = struct.unpack("iP", answer)[0]
    entries = room.tobytes()[:length]
    return {str(IPv4Address(entries[at + 20 : at + 24])) for at in range(0, len(entries) - _ENTRY + 1, _ENTRY)}


def ipv6_addresses(text: str) -> set[str]:
    """The addresses in the lines of `/proc/net/if_inet6`, each of which begins with one in 32 digits."""
    return {str(IPv6Address(int(line.split()[0], 16))) for line in text.splitlines() if line.strip()}
