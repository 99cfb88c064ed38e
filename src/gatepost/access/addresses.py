"""Who is at both ends of a client connection."""

from __future__ import annotations

import asyncio

from gatepost.wire.proxy_protocol import ProxyHeader


def connection_addresses(
    transport: asyncio.BaseTransport, proxy: ProxyHeader | None
) -> tuple[tuple[str, int], tuple[str, int]]:
    """Client's and own address of a connection; a PROXY header's word counts where there is one."""
    if proxy is not None and not proxy.local and proxy.source is not None and proxy.destination is not None:
        return proxy.source, proxy.destination
    peer = transport.get_extra_info("peername") or ("", 0)
    own = transport.get_extra_info("sockname") or ("", 0)
    return (peer[0], peer[1]), (own[0], own[1])
