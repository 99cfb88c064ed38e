"""Reading the configuration, once, with the supervisor's rights; workers get the result (`handing_over`)."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from gatepost.access.tls import server_context
from gatepost.configuration.files import file_mode
from gatepost.configuration.load import load
from gatepost.configuration.settings import Configuration, FrontEnd


class Invalid(ValueError):
    """The configuration cannot be used. One text a finding in `findings`."""

    def __init__(self, findings: list[str]) -> None:
        super().__init__("\n".join(findings))
        self.findings = findings


@dataclass(frozen=True)
class Loaded:
    """A valid configuration with the warnings that came of reading it."""

    configuration: Configuration
    warnings: tuple[str, ...] = ()


def load_for_service(path: str, server: str | None, version: int) -> Loaded:
    """Loads `path`. Raises `Invalid` with every finding when it has errors."""
    loaded = load(path, server=server, now=datetime.now(UTC), mode_of=file_mode)
    texts = [str(finding) for finding in loaded.findings]
    if loaded.configuration is None:
        raise Invalid(texts or [f"{path} cannot be used"])
    return Loaded(replace(loaded.configuration, version=version), tuple(texts))


def check_key_pair(front_end: FrontEnd) -> None:
    """Raises `Invalid` when listeners could not use the certificate and private key."""
    try:
        server_context(front_end, "imap")
    except (ssl.SSLError, ValueError) as fault:
        raise Invalid(
            [f"front_end.certificate, private_key: {fault}. Give a PEM chain and the key that belongs to it."]
        ) from fault
