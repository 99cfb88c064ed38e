"""dnsmasq as the name server of a test: a real resolver's answers for records that the test gives it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from gatepost.lab.servers.process import ServerProcess, require_program

PACKAGES = ("dnsmasq-base",)


class Dnsmasq(ServerProcess):
    """One dnsmasq without upstream servers: what it does not know does not exist."""

    def __init__(
        self,
        directory: Path,
        address: str,
        port: int,
        *,
        hosts: Mapping[str, Sequence[str]],
        exchangers: Sequence[tuple[str, int, str]] = (),
        lines: Sequence[str] = (),
        ttl: int = 60,
        name: str = "dnsmasq",
    ) -> None:
        """`hosts` are addresses by name, `exchangers` MX records (domain, preference, host), `lines` are more of the
        configuration. Raises `ServerMissing`."""
        program = require_program("dnsmasq", PACKAGES)
        directory.mkdir(parents=True, exist_ok=True)
        file = directory / "dnsmasq.conf"
        argv = [program, "--keep-in-foreground", f"--conf-file={file}", "--log-facility=-"]
        super().__init__(name, argv, directory, [(address, port)])
        self.address = address
        self.port = port
        file.write_text(
            "\n".join(
                (
                    f"port={port}",
                    f"listen-address={address}",
                    "bind-interfaces",
                    "no-resolv",
                    "no-hosts",
                    "no-daemon",
                    f"pid-file={directory / 'dnsmasq.pid'}",
                    f"local-ttl={ttl}",
                    f"neg-ttl={ttl}",
                    "local=/#/",  # nothing is asked of others: unknown names are NXDOMAIN
                    *(f"host-record={host},{','.join(addresses)}" for host, addresses in hosts.items()),
                    *(f"mx-host={domain},{host},{preference}" for domain, preference, host in exchangers),
                    *lines,
                    "",
                )
            )
        )
