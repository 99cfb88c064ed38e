"""A name server for tests that says what it is told to: records with their TTLs, faults, silence, delays.

    with NameServer("127.64.1.9") as names:
        names.add("contoso.com", "MX", "10 mx1.contoso.com.")
        names.add("mx1.contoso.com", "A", "127.64.1.20", ttl=30)
        names.fail("broken.example")                    # SERVFAIL
        names.silence("slow.example")                   # no answer at all
        ... ("127.64.1.9", names.port) ...
        assert names.asked("contoso.com", "MX") == 1

It answers by UDP and TCP on one port, from threads of its own, so tests with and without a loop can use it. A name
without records does not exist (NXDOMAIN); one with records of other types only has no data. Both come with an SOA
record whose negative TTL is `negative_ttl`. CNAMEs are followed within its own records.
"""

from __future__ import annotations

import socketserver
import struct
import threading
import time
from collections import Counter
from contextlib import suppress
from socket import socket
from typing import Self, cast

import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdatatype
import dns.rrset

from gatepost.lab.servers.process import free_ports

NEGATIVE_TTL = 60
_SERVED_SECONDS = 10.0
"""For one client by TCP."""
_MAX_CHAIN = 8
_MAX_TCP = 65535
_MAX_UDP = 512
"""Octets of an answer for who says nothing of its buffer; a longer one comes truncated."""


class NameServer:
    """One name server; see the module. Safe to be changed while it runs."""

    def __init__(self, address: str, port: int = 0) -> None:
        """`port` 0: one that is free."""
        self.address = address
        self.port = port or free_ports(address, 1)[0]
        self.negative_ttl = NEGATIVE_TTL
        self._lock = threading.Lock()
        self._records: dict[tuple[str, str], dns.rrset.RRset] = {}
        self._rcodes: dict[str, dns.rcode.Rcode] = {}
        self._silent: set[str] = set()
        self._truncated: set[str] = set()
        self._delays: dict[str, float] = {}
        self._asked: Counter[tuple[str, str]] = Counter()
        self._servers: list[socketserver.BaseServer] = []

    @property
    def server(self) -> tuple[str, int]:
        """Address and port, as resolvers are told them."""
        return self.address, self.port

    def add(self, name: str, kind: str, *values: str, ttl: int = 300) -> None:
        """Records of `name` in place of those it has of this type; values as in zone files."""
        with self._lock:
            self._records[_key(name), kind] = dns.rrset.from_text(dns.name.from_text(name), ttl, "IN", kind, *values)

    def clear(self) -> None:
        """Forget everything that was said and asked."""
        with self._lock:
            self.negative_ttl = NEGATIVE_TTL
            for kept in (self._records, self._rcodes, self._silent, self._truncated, self._delays, self._asked):
                kept.clear()

    def remove(self, name: str) -> None:
        """All that was said of `name`."""
        with self._lock:
            for key in [key for key in self._records if key[0] == _key(name)]:
                del self._records[key]
            self._rcodes.pop(_key(name), None)
            self._delays.pop(_key(name), None)
            self._silent.discard(_key(name))
            self._truncated.discard(_key(name))

    def fail(self, name: str, rcode: str = "SERVFAIL") -> None:
        """Answer every question for `name` with this code."""
        with self._lock:
            self._rcodes[_key(name)] = dns.rcode.from_text(rcode)

    def silence(self, name: str) -> None:
        """Answer no question for `name`."""
        with self._lock:
            self._silent.add(_key(name))

    def truncate(self, name: str) -> None:
        """Say by UDP that the answer for `name` is too long, so that it is asked for by TCP."""
        with self._lock:
            self._truncated.add(_key(name))

    def delay(self, name: str, seconds: float) -> None:
        """Answer questions for `name` late."""
        with self._lock:
            self._delays[_key(name)] = seconds

    def asked(self, name: str, kind: str) -> int:
        """How often this was asked for."""
        with self._lock:
            return self._asked[_key(name), kind]

    def start(self) -> None:
        """Raises OSError if the port is taken."""
        for kind, handler in ((_Udp, _UdpQuestion), (_Tcp, _TcpQuestion)):
            server = kind((self.address, self.port), handler)
            server.names = self
            self._servers.append(server)
            threading.Thread(target=server.serve_forever, args=(0.02,), name="name server", daemon=True).start()

    def stop(self) -> None:
        """Safe twice."""
        for server in self._servers:
            server.shutdown()
            server.server_close()
        self._servers.clear()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def answer(self, question: bytes, *, tcp: bool) -> bytes | None:
        """The answer to one message; None: nothing is said."""
        query = dns.message.from_wire(question)
        asked = query.question[0]
        name, kind = _key(asked.name.to_text()), dns.rdatatype.to_text(asked.rdtype)
        with self._lock:
            self._asked[name, kind] += 1
            if name in self._silent:
                return None
            delay = self._delays.get(name, 0.0)
        if delay:
            time.sleep(delay)
        response = dns.message.make_response(query, recursion_available=True)
        with self._lock:
            if not tcp and name in self._truncated:
                response.flags |= dns.flags.TC
            elif name in self._rcodes:
                response.set_rcode(self._rcodes[name])
            else:
                self._fill(response, name, kind)
        return response.to_wire(max_size=_MAX_TCP if tcp else query.payload or _MAX_UDP, prefer_truncation=not tcp)

    def _fill(self, response: dns.message.Message, name: str, kind: str) -> None:
        for _ in range(_MAX_CHAIN):
            found = self._records.get((name, kind))
            alias = self._records.get((name, "CNAME"))
            if found is not None or alias is None:
                break
            response.answer.append(alias)
            name = _key(alias[0].to_text())
        if found is not None:
            response.answer.append(found)
            return
        if not any(known == name for known, _ in self._records):
            response.set_rcode(dns.rcode.NXDOMAIN)
        soa = f"ns.invalid. hostmaster.invalid. 1 3600 600 86400 {self.negative_ttl}"
        response.authority.append(dns.rrset.from_text(dns.name.root, self.negative_ttl, "IN", "SOA", soa))


def _key(name: str) -> str:
    return name.lower().rstrip(".")


class _Udp(socketserver.ThreadingUDPServer):
    daemon_threads = True
    block_on_close = False
    names: NameServer


class _Tcp(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    names: NameServer


class _UdpQuestion(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        question, reply = cast("tuple[bytes, socket]", self.request)
        with suppress(dns.exception.DNSException, OSError):
            answer = cast("_Udp", self.server).names.answer(question, tcp=False)
            if answer is not None:
                reply.sendto(answer, self.client_address)


class _TcpQuestion(socketserver.StreamRequestHandler):
    timeout = _SERVED_SECONDS

    def handle(self) -> None:
        with suppress(dns.exception.DNSException, OSError, struct.error):
            (length,) = struct.unpack("!H", self.rfile.read(2))
            answer = cast("_Tcp", self.server).names.answer(self.rfile.read(length), tcp=True)
            if answer is not None:
                self.wfile.write(struct.pack("!H", len(answer)) + answer)
