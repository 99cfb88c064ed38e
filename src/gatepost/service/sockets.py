"""The listening sockets of a front end, owned by the supervisor.

Each address has one SO_REUSEPORT socket a worker slot: the kernel spreads new connections over the slots, and since the
supervisor keeps every socket open, connections that wait for a dead worker wait on for its replacement.

SO_REUSEPORT would also let a second supervisor share the ports without a word. Two things prevent it: a lock file
beside the registry, and a trial bind without SO_REUSEPORT before an address is used for the first time.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from collections.abc import Iterable
from dataclasses import dataclass

from gatepost.organization.model import Endpoint

BACKLOG = 4096
"""Connections that wait for accept on one socket; the kernel's net.core.somaxconn caps it."""


class ListenError(OSError):
    """An endpoint cannot be listened on. The message names the endpoint and the remedy."""


class AlreadyRunning(RuntimeError):
    """Another supervisor holds the lock."""


@dataclass(frozen=True, slots=True)
class Address:
    """One address to bind."""

    family: socket.AddressFamily
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class _Listening:
    """What an endpoint name stands for; a difference means that listeners must be made anew."""

    endpoint: Endpoint
    addresses: tuple[Address, ...]


def addresses_of(endpoint: Endpoint) -> tuple[Address, ...]:
    """Every address that the endpoint's `address` stands for. Raises `ListenError` when it cannot be resolved."""
    try:
        found = socket.getaddrinfo(
            endpoint.address, endpoint.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_NUMERICSERV
        )
    except socket.gaierror as fault:
        raise ListenError(
            f"{_name(endpoint)}: the address does not resolve ({fault.strerror}). Write an IP address of this machine."
        ) from fault
    return tuple(dict.fromkeys(Address(family, str(sockaddr[0]), endpoint.port) for family, _, _, _, sockaddr in found))


def _name(endpoint: Endpoint) -> str:
    host = f"[{endpoint.address}]" if ":" in endpoint.address else endpoint.address
    return f"Endpoint {endpoint.name} ({host}:{endpoint.port})"


def _open(address: Address, *, share: bool) -> socket.socket:
    sock = socket.socket(address.family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if share:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if address.family is socket.AF_INET6:
            # Otherwise "::" would take the IPv4 port as well, and an endpoint on 0.0.0.0 would fail.
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind((address.host, address.port))
    except BaseException:
        sock.close()
        raise
    return sock


_REMEDIES = {
    errno.EADDRINUSE: "Another process has this port: stop it (ss -ltnp shows it) or give the endpoint another port",
    errno.EACCES: "Ports below 1024 need root or CAP_NET_BIND_SERVICE: start as root with front_end.user set, "
    "or use the systemd unit",
    errno.EADDRNOTAVAIL: "No interface of this machine has this address: correct the endpoint's address",
}


def _refusal(endpoint: Endpoint, fault: OSError) -> ListenError:
    remedy = _REMEDIES.get(fault.errno or 0, "Correct the endpoint's address or port")
    return ListenError(f"{_name(endpoint)} cannot be listened on: {os.strerror(fault.errno or 0)}. {remedy}.")


@dataclass(frozen=True, slots=True)
class Change:
    """A prepared change: every socket it needs is open.

    `changed` are the endpoint names to open anew in running workers, `closed` those to close before (the changed ones
    among them).
    """

    listening: dict[str, _Listening]
    sockets: dict[Address, list[socket.socket]]
    changed: tuple[str, ...]
    closed: tuple[str, ...]


NO_CHANGE = Change({}, {}, (), ())
"""What a worker is told that shall keep its listeners; never committed."""


class Listeners:
    """All listening sockets of this front end: address → one socket a slot."""

    def __init__(self) -> None:
        self._listening: dict[str, _Listening] = {}
        self._sockets: dict[Address, list[socket.socket]] = {}

    def prepare(self, endpoints: Iterable[Endpoint], slots: int) -> Change:
        """Opens what is missing for `endpoints` and `slots`. Raises `ListenError`; then nothing has changed."""
        listening = {e.name: _Listening(e, addresses_of(e)) for e in endpoints}
        sockets = {a: self._sockets.get(a, [])[:slots] for item in listening.values() for a in item.addresses}
        opened: list[socket.socket] = []
        try:
            for item in listening.values():
                for address in item.addresses:
                    new = self._open_missing(item.endpoint, address, slots - len(sockets[address]))
                    opened += new
                    sockets[address] = sockets[address] + new
        except ListenError:
            for sock in opened:
                sock.close()
            raise
        before = self._listening
        changed = tuple(name for name, item in listening.items() if before.get(name) != item)
        closed = tuple(name for name, item in before.items() if listening.get(name) != item)
        return Change(listening, sockets, changed, closed)

    def _open_missing(self, endpoint: Endpoint, address: Address, count: int) -> list[socket.socket]:
        opened: list[socket.socket] = []
        try:
            if all(address.port != own.port for own in self._sockets):
                _open(address, share=False).close()
            for _ in range(count):
                opened.append(_open(address, share=True))
                opened[-1].listen(BACKLOG)
        except OSError as fault:
            for sock in opened:
                sock.close()
            raise _refusal(endpoint, fault) from fault
        return opened

    def commit(self, change: Change) -> None:
        """Makes `change` the state and closes this process's sockets that are no longer needed."""
        kept = {id(sock) for sockets in change.sockets.values() for sock in sockets}
        before = self._sockets
        self._listening, self._sockets = change.listening, change.sockets
        for sockets in before.values():
            for sock in sockets:
                if id(sock) not in kept:
                    sock.close()

    def for_slot(self, slot: int, names: Iterable[str] | None = None) -> dict[str, list[socket.socket]]:
        """The sockets of one slot by endpoint name; all names, or those asked for."""
        wanted = self._listening if names is None else names
        return {name: [self._sockets[a][slot] for a in self._listening[name].addresses] for name in wanted}

    def close(self) -> None:
        """Closes all; a worker's own copies stay open."""
        self.commit(Change({}, {}, (), ()))


class InstanceLock:
    """An exclusive lock on a file; it ends with the process, however that ends."""

    def __init__(self, path: str) -> None:
        """Raises `AlreadyRunning` when another process holds it, OSError when the file cannot be made."""
        # The folder may belong to the workers' account: a link planted there must not be followed by root.
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self._descriptor, 32).decode("ascii", "replace").strip()
            os.close(self._descriptor)
            raise AlreadyRunning(
                f"This front end already runs here (process {holder or 'unknown'}, lock {path}). Stop that one first; "
                f"to change its configuration send it SIGHUP."
            ) from None
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Gives the lock up."""
        os.close(self._descriptor)
