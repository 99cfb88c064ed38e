"""The bindings of the receive connectors as endpoints, for the supervisor's sockets (SPEC T1)."""

from __future__ import annotations

from gatepost.configuration.settings import Configuration
from gatepost.organization.model import Endpoint, Protocol, TlsMode
from gatepost.organization.transport import binding_name


def bindings(configuration: Configuration) -> list[Endpoint]:
    """Every address and port that this server's connectors are bound to, once each, by a name that stays.

    Several connectors may share one: which of them takes a connection is decided by the client's address. Empty where
    no transport runs.
    """
    if configuration.front_end.transport is None:
        return []
    found: dict[str, Endpoint] = {}
    for connector in configuration.organization.receive_connectors_by_server.get(configuration.front_end.server, ()):
        if connector.enabled:
            for binding in connector.bindings:
                tls = TlsMode.IMPLICIT if binding.implicit_tls else TlsMode.STARTTLS
                name = binding_name(binding)
                found.setdefault(name, Endpoint(name, Protocol.SMTP, str(binding.address), binding.port, tls, ""))
    return list(found.values())
