"""Socket errors in the words of the connectivity log: the source system's names and numbers where it has them.

The numbers are those of Winsock, in hexadecimal, since the source's operators look the reason up by them. Pure.
"""

from __future__ import annotations

import errno

_WINSOCK = {
    errno.EACCES: ("AccessDenied", 10013),
    errno.EADDRINUSE: ("AddressAlreadyInUse", 10048),
    errno.EADDRNOTAVAIL: ("AddressNotAvailable", 10049),
    errno.EAFNOSUPPORT: ("AddressFamilyNotSupported", 10047),
    errno.ENETDOWN: ("NetworkDown", 10050),
    errno.ENETUNREACH: ("NetworkUnreachable", 10051),
    errno.ECONNABORTED: ("ConnectionAborted", 10053),
    errno.ECONNRESET: ("ConnectionReset", 10054),
    errno.EPIPE: ("ConnectionReset", 10054),
    errno.ENOBUFS: ("NoBufferSpaceAvailable", 10055),
    errno.ETIMEDOUT: ("TimedOut", 10060),
    errno.ECONNREFUSED: ("ConnectionRefused", 10061),
    errno.EHOSTDOWN: ("HostDown", 10064),
    errno.EHOSTUNREACH: ("HostUnreachable", 10065),
    errno.EMFILE: ("TooManyOpenSockets", 10024),
}

_OURS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL, errno.ECANCELED})


def describe(error: OSError) -> str:
    """`ConnectionRefused:0000274D`; an error that Winsock does not have is `EPROTO:00000047`, by its own number."""
    number = _number(error)
    name, code = _WINSOCK.get(number, (errno.errorcode.get(number, "SocketError"), number))
    return f"{name}:{code:08X}"


def is_ours(error: OSError) -> bool:
    """Whether this machine lacks something (descriptors, memory, local ports), which says nothing of the server."""
    return error.errno in _OURS


def _number(error: OSError) -> int:
    if error.errno is None and isinstance(error, TimeoutError):
        return errno.ETIMEDOUT
    if error.errno is None and isinstance(error, ConnectionRefusedError):
        return errno.ECONNREFUSED
    if error.errno is None and isinstance(error, ConnectionError):
        return errno.ECONNRESET
    return error.errno or 0
