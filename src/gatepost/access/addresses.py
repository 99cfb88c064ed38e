"""Who is at both ends of a client connection. A PROXY header's word counts where there is one."""

from __future__ import annotations

import asyncio

from gatepost.wire.proxy_protocol import ProxyHeader


def client_address(transport: asyncio.BaseTransport, proxy: ProxyHeader | None) -> tuple[str, int]:
    """The client's address and port."""
    if proxy is not None and not proxy.local and proxy.source is not None:
        return proxy.source
    peer = transport.get_extra_info("peername") or ("", 0)
    return peer[0], peer[1]


def own_address(transport: asyncio.BaseTransport, proxy: ProxyHeader | None) -> tuple[str, int]:
    """The address and port that the client connected to."""
    if proxy is not None and not proxy.local and proxy.destination is not None:
        return proxy.destination
    own = transport.get_extra_info("sockname") or ("", 0)
    return own[0], own[1]
