"""The settings of `[front_end.transport]`: what this machine gives the transport; the rest is the organization's."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class DkimSettings:
    """How mail of one domain is signed (RFC 6376). `private_key` is PEM."""

    domain: str
    selector: str
    private_key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class ContentHookSettings:
    """Who is asked about each message that strangers or users send: a command, or an HTTP service such as rspamd."""

    command: tuple[str, ...] = ()
    url: str = ""
    seconds: float = 30.0
    max_bytes: int = 36 * 1024 * 1024
    """Larger messages are not shown to it."""
    unavailable: str = "defer"
    """What becomes of a message when it cannot be asked: `defer` (451) or `accept`."""


@dataclass(frozen=True, slots=True)
class HubSettings:
    """A transport on this machine. Paths are absolute."""

    spool: str
    """Folder of the messages."""
    resolvers: tuple[str, ...] = ()
    """DNS servers, `address` or `address:port`; empty: the system's."""
    connectivity_log: str = ""
    """Folder of the connectivity log."""
    dkim: tuple[DkimSettings, ...] = ()
    content_hook: ContentHookSettings | None = None
    ending_seconds: float = 10.0
    """What messages that are being received or sent are given to end, when the service stops or is replaced."""
