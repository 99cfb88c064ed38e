"""By which addresses this machine is reached."""

from __future__ import annotations

import socket

from gatepost.transport.own_addresses import interface_addresses, ipv6_addresses


def test_the_machines_addresses_are_found() -> None:
    found = interface_addresses()
    assert "127.0.0.1" in found
    assert "0.0.0.0" not in found
    for address in found:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        if not address.startswith("fe80"):  # these need the interface beside them
            with socket.socket(family, socket.SOCK_DGRAM) as sock:
                sock.bind((address, 0))


def test_lines_of_the_kernels_list() -> None:
    text = (
        "fe800000000000000a0027fffe4e66a1 02 40 20 80     eth0\n"
        "00000000000000000000000000000001 01 80 10 80       lo\n\n"
    )
    assert ipv6_addresses(text) == {"fe80::a00:27ff:fe4e:66a1", "::1"}
