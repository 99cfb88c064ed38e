"""Reading the configuration once, as root, so that workers without privileges can build it again.

The supervisor loads through a `Recorder`; what it read goes to the workers, whose `load` reads from that record. Both
sides run the same code on the same bytes, and no worker opens an operator's file.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from gatepost.access.tls import server_context
from gatepost.configuration.document import read_file
from gatepost.configuration.files import file_mode
from gatepost.configuration.load import load
from gatepost.configuration.settings import Configuration, FrontEnd
from gatepost.service.control import Configured


class Invalid(ValueError):
    """The configuration cannot be used. One text a finding in `findings`."""

    def __init__(self, findings: list[str]) -> None:
        super().__init__("\n".join(findings))
        self.findings = findings


@dataclass
class Recorder:
    """Reads files and keeps what they held."""

    read: Callable[[str], bytes] = read_file
    files: dict[str, bytes] = field(default_factory=dict, repr=False)

    def __call__(self, path: str) -> bytes:
        """The content of `path`. Raises OSError."""
        self.files[path] = content = self.read(path)
        return content


@dataclass(frozen=True)
class Record:
    """A valid configuration with everything that is needed to build it again elsewhere."""

    path: str
    server: str | None
    configuration: Configuration
    files: dict[str, bytes] = field(repr=False)
    loaded_at: float
    """Seconds since the epoch. Certificates are judged as of then, or a worker could not restart once one expires."""
    warnings: tuple[str, ...] = ()


def _date(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def load_and_record(path: str, server: str | None, version: int) -> Record:
    """Loads `path`. Raises `Invalid` with every finding when it has errors."""
    recorder = Recorder()
    loaded_at = time.time()
    loaded = load(path, recorder, server, now=_date(loaded_at), mode_of=file_mode)
    texts = [str(finding) for finding in loaded.findings]
    if loaded.configuration is None:
        raise Invalid(texts or [f"{path} cannot be used"])
    return Record(path, server, replace(loaded.configuration, version=version), recorder.files, loaded_at, tuple(texts))


def check_key_pair(front_end: FrontEnd) -> None:
    """Raises `Invalid` when listeners could not use the certificate and private key."""
    try:
        server_context(front_end, "imap")
    except (ssl.SSLError, ValueError) as fault:
        raise Invalid(
            [f"front_end.certificate, private_key: {fault}. Give a PEM chain and the key that belongs to it."]
        ) from fault


def rebuild(message: Configured) -> Configuration:
    """The configuration that `load_and_record` saw. Raises `Invalid`."""

    def read(name: str) -> bytes:
        if name not in message.files:
            raise FileNotFoundError(f"{name} was not there when the configuration was read")
        return message.files[name]

    loaded = load(message.path, read, message.server, now=_date(message.loaded_at))
    if loaded.configuration is None:
        raise Invalid([str(finding) for finding in loaded.findings])
    return replace(loaded.configuration, version=message.version)
