"""The loader: `python -P -m gatepost.service.loading PATH SERVER VERSION`, started by the supervisor only.

It reads and checks the configuration, writes what `handing_over.load` expects to its standard output, and ends.
"""

from __future__ import annotations

import ssl
import sys
from dataclasses import replace
from datetime import UTC, datetime

from gatepost.access.tls import server_context
from gatepost.configuration.files import file_mode
from gatepost.configuration.load import load
from gatepost.configuration.settings import Configuration
from gatepost.organization.model import TlsMode
from gatepost.service.handing_over import Invalid, Loaded, pack


def load_for_service(path: str, server: str | None, version: int) -> Loaded:
    """Loads `path`. Raises `Invalid` with every finding when it has errors."""
    loaded = load(path, server=server, now=datetime.now(UTC), mode_of=file_mode)
    texts = [str(finding) for finding in loaded.findings]
    if loaded.configuration is None:
        warnings = frozenset(str(finding) for finding in loaded.findings if not finding.is_error)
        raise Invalid(texts or [f"{path} cannot be used"], warnings)
    check_key_pair(loaded.configuration)
    return Loaded(replace(loaded.configuration, version=version), tuple(texts))


def check_key_pair(configuration: Configuration) -> None:
    """Raises `Invalid` when listeners could not use the certificate and private key."""
    if all(endpoint.tls is TlsMode.CLEAR for endpoint in configuration.server.endpoints):
        return
    if not configuration.front_end.certificate:
        return  # a hub that offers no TLS; for clients that read mail the check wants one
    try:
        server_context(configuration.front_end, "imap")
    except (ssl.SSLError, ValueError) as fault:
        raise Invalid(
            [f"front_end.certificate, private_key: {fault}. Give a PEM chain and the key that belongs to it."]
        ) from fault


def main() -> None:
    """Writes `Loaded`, or the findings of `Invalid`."""
    path, server, version = sys.argv[1:]
    outcome: Loaded | tuple[list[str], frozenset[str]]
    try:
        outcome = load_for_service(path, server or None, int(version))
    except Invalid as fault:
        outcome = fault.findings, fault.warnings
    sys.stdout.buffer.write(pack(outcome))


if __name__ == "__main__":
    main()
