"""Mailbox servers that take their users' submissions themselves and hand them all to one server, in place of hubs."""

from __future__ import annotations

from collections.abc import Iterable

from gatepost.lab import figure
from gatepost.lab.servers.ports import SubmissionPorts
from gatepost.lab.servers.process import free_ports
from gatepost.lab.toml_text import Table


def choose_ports(ports: figure.Ports, servers: Iterable[str]) -> None:
    """Free ports: at the front ends among `servers` for submissions by TLS, at the mailbox servers for all forms."""
    for server in servers:
        if server in figure.FRONT_ENDS:
            _, address = figure.FRONT_ENDS[server]
            ports.front[server]["submissions"] = free_ports(address, 1)[0]
        elif server in ports.mail:
            _, address = figure.MAILBOX_SERVERS[server]
            ports.submission[server] = SubmissionPorts.free(address)


def with_endpoints(tables: Table, ports: figure.Ports) -> Table:
    """The organization whose mailbox servers take submissions at these ports."""
    servers = {name: dict(table) for name, table in tables["servers"].items()}
    for name in ports.submission.keys() & servers.keys():
        endpoint = {"port": ports.submission[name].submission, "tls": "clear", "client_address": "xclient"}
        servers[name]["endpoints"] = servers[name]["endpoints"] | {"submission": endpoint}
    return tables | {"servers": servers}
