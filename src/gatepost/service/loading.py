"""Reading the configuration once, as root, so that workers without privileges can build it again.

The supervisor loads through a `Recorder`; what it read goes to the workers, whose `load` reads from that record. Both
sides run the same code on the same bytes, and no worker opens an operator's file.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from gatepost.access.tls import server_context
from gatepost.configuration.load import LocatedFinding, load
from gatepost.configuration.settings import Configuration, FrontEnd

MAX_FILE_BYTES = 8 * 1024 * 1024
"""One file of the configuration. The largest is the organization; a thousand servers are about 300 kB."""


class Invalid(ValueError):
    """The configuration cannot be used. One text a finding in `findings`."""

    def __init__(self, findings: list[str]) -> None:
        super().__init__("\n".join(findings))
        self.findings = findings


def _read(path: str) -> bytes:
    with Path(path).open("rb") as file:
        content = file.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise OSError(f"{path} is larger than {MAX_FILE_BYTES} bytes")
    return content


@dataclass
class Recorder:
    """Reads files and keeps what they held."""

    read: Callable[[str], bytes] = _read
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
    warnings: tuple[str, ...] = ()


def text_of(finding: LocatedFinding) -> str:
    """A finding as one line for people."""
    return str(finding)


def load_and_record(path: str, server: str | None, version: int) -> Record:
    """Loads `path`. Raises `Invalid` with every finding when it has errors."""
    recorder = Recorder()
    loaded = load(path, recorder, server)
    texts = [text_of(finding) for finding in loaded.findings]
    if loaded.configuration is None:
        raise Invalid(texts or [f"{path} cannot be used"])
    return Record(path, server, replace(loaded.configuration, version=version), recorder.files, tuple(texts))


def check_key_pair(front_end: FrontEnd) -> None:
    """Raises `Invalid` when listeners could not use the certificate and private key."""
    try:
        server_context(front_end, "imap")
    except (ssl.SSLError, ValueError) as fault:
        raise Invalid(
            [f"front_end.certificate, private_key: {fault}. Give a PEM chain and the key that belongs to it."]
        ) from fault


def rebuild(path: str, server: str | None, files: Mapping[str, bytes], version: int) -> Configuration:
    """The configuration that `load_and_record` saw. Raises `Invalid`."""

    def read(name: str) -> bytes:
        if name not in files:
            raise FileNotFoundError(f"{name} was not there when the configuration was read")
        return files[name]

    loaded = load(path, read, server)
    if loaded.configuration is None:
        raise Invalid([text_of(finding) for finding in loaded.findings])
    return replace(loaded.configuration, version=version)
