"""The order in which servers are tried for one request (SPEC B1 to B3). Pure: who is healthy is asked of the caller."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b

from gatepost.balancing.affinity import Affinity
from gatepost.organization.addresses import owner_of

_KEEPS = frozenset({Affinity.COOKIE, Affinity.COOKIE_OR_ADDRESS, Affinity.FIRST_SERVER})


def order(
    servers: Sequence[str],
    affinity: Affinity,
    *,
    kept: str | None,
    address: str,
    user: str,
    turn: int,
    healthy: Callable[[str], bool],
) -> list[str]:
    """All of `servers` in the order to try them; empty only when there are none.

    `kept` is the server that a cookie (`COOKIE`, `COOKIE_OR_ADDRESS`) or the shared state (`FIRST_SERVER`) remembers;
    one that is no candidate is ignored. Without it `COOKIE`, `FIRST_SERVER` and `ROUND_ROBIN` go by `turn`, a number
    that the caller counts up; `COOKIE_OR_ADDRESS` goes by the client's `address` (by `user` where there is none), so
    that it finds the same server from every front end. `NONE` takes the servers as they come.

    Servers that are not healthy come last, in the same order: with all of them down the first choice is tried, and its
    success brings it back.
    """
    if len(servers) < 2 or affinity is Affinity.NONE:
        found = list(servers)
    elif affinity is Affinity.COOKIE_OR_ADDRESS:
        found = rendezvous(servers, owner_of(address) if address else user)
    else:
        first = turn % len(servers)
        found = [*servers[first:], *servers[:first]]
    if affinity in _KEEPS and kept is not None and kept in found and found[0] != kept:
        found.remove(kept)
        found.insert(0, kept)
    up = [server for server in found if healthy(server)]
    if len(up) == len(found):
        return found
    down = set(found).difference(up)
    return up + [server for server in found if server in down]


def rendezvous(servers: Sequence[str], key: str) -> list[str]:
    """`servers` by highest random weight for `key`: the same from every front end, whatever order they are given in.

    When a server is taken away or comes back, only the keys that it is the first choice of move (Thaler and
    Ravishankar, "Using name-based mappings to increase hit rates", 1998).
    """
    octets = key.encode("utf-8", "surrogatepass")
    return sorted(servers, key=lambda server: (_weight(server, octets), server), reverse=True)


def _weight(server: str, key: bytes) -> bytes:
    # The name is hashed with its length, so that no pair of server and key can be read as another one.
    name = server.encode("utf-8", "surrogatepass")
    return blake2b(b"%d:%b%b" % (len(name), name, key), digest_size=8).digest()
