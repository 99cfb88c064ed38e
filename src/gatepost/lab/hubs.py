"""The hubs of the lab's figure: two in usa, which take mail for all mailboxes and deliver it by LMTP.

    stranger ── CAS-01, port 25 ──┬─► HUB-01   127.0.1.31 ──┬─ LMTP ─► the server with the active copy
    user ────── CAS-01, port 587 ─┴─► HUB-02   127.0.1.32 ──┘

Users' own servers hand their submissions to HUB-02. On loopback all servers have one address, so one connector takes
servers, users and strangers, and believes what XCLIENT says of them: not an example for other places.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Table = dict[str, Any]
HUBS = {"HUB-01": ("usa", "127.0.1.31"), "HUB-02": ("usa", "127.0.1.32")}
HUB_PORTS = {"smtp": 25, "submission": 587}
MAIL_FRONT_ENDS = ("CAS-01",)
"""Front ends that take mail and submissions."""
SUBMISSION_HUB = "HUB-02"
LMTP_PORT = 24
OUTSIDE = "127.0.1.99"
"""The smart host for mail to other domains. Nobody is there, so that one sees what waiting mail looks like."""
_SERVERS = "127.0.0.1"
"""Where the lab's servers come from."""
_COMMON: Table = {"tarpit_seconds": 0, "xclient_from": [_SERVERS], "max_connections_per_source": 1000}


def servers(ports: Mapping[str, Mapping[str, int]], domain: str) -> Table:
    """`[servers]` of the hubs that have ports."""
    return {
        name: {
            "site": HUBS[name][0],
            "roles": ["hub-transport"],
            "fqdn": f"{name.lower()}.{domain}",
            "address": HUBS[name][1],
            "endpoints": {
                "smtp": {"port": found["smtp"], "client_address": "xclient"},
                "submission": {"port": found["submission"]},
            },
        }
        for name, found in ports.items()
    }


def receive_connectors(ports: Mapping[str, Mapping[str, int]]) -> Table:
    """`[receive_connectors]`."""
    tables: Table = {}
    passwords = ["tls", "basic", "basic-require-tls"]
    for name, found in ports.items():
        address = HUBS[name][1]
        tables[f"Default {name}"] = _COMMON | {
            "server": name,
            "bindings": [f"{address}:{found['smtp']}"],
            "permission_groups": ["servers", "users", "anonymous"],
            "authentication": [*passwords, "servers"],
        }
        tables[f"Client {name}"] = _COMMON | {
            "server": name,
            "bindings": [f"{address}:{found['submission']}"],
            "permission_groups": ["users"],
            "authentication": passwords,
        }
    return tables


def send_connectors() -> Table:
    """`[send_connectors]`."""
    return {"To Internet": {"address_spaces": ["*"], "source_servers": list(HUBS), "smart_hosts": [OUTSIDE]}}


def submission_endpoint(ports: Mapping[str, Mapping[str, int]], domain: str) -> Table:
    """Where a mailbox server's users submit: at a hub, which is told who has signed in."""
    return {
        "address": HUBS[SUBMISSION_HUB][1],
        "port": ports[SUBMISSION_HUB]["submission"],
        "tls_name": f"{SUBMISSION_HUB.lower()}.{domain}",
        "client_address": "xclient-login",
    }


def without(tables: Table) -> Table:
    """The organization without hubs, and what leads to them."""
    kept = {name: dict(table) for name, table in tables["servers"].items() if name not in HUBS}
    for table in kept.values():
        table["endpoints"] = {
            name: endpoint
            for name, endpoint in table["endpoints"].items()
            if name not in {"smtp", "submission", "lmtp"}
        }
    rest = {name: table for name, table in tables.items() if name not in {"receive_connectors", "send_connectors"}}
    return rest | {"servers": kept}
