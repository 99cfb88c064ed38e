"""Settings of the active manager (SPEC A2, A3): frozen values, units in the names."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class HookKind(StrEnum):
    """What a hook does to a real replica."""

    LAG = "lag"
    """Says how far the target's copy is behind: a number."""
    FENCE = "fence"
    """Keeps a server from writing to its copy, without its help: it may be dead, or only look so."""
    DEMOTE = "demote"
    """Has a server that works give its copy up in good order: nothing is written to it any more."""
    PROMOTE = "promote"
    """Makes the target's copy the one that is written to."""


@dataclass(frozen=True, slots=True)
class HookSettings:
    """A hook: a command (its words, with placeholders, no shell) or a URL that is posted to."""

    command: tuple[str, ...] = ()
    url: str = ""
    seconds: float = 10.0
    """Longest it may take; its whole process group is killed then."""


@dataclass(frozen=True, slots=True)
class Canary:
    """Who signs in for a probe. `{server}` in `user` stands for the mailbox server's name in lower case."""

    user: str
    password: str = field(default="", repr=False)
    """Needed where the server's sign-in form is the user's own credentials."""


@dataclass(frozen=True, slots=True)
class ManagerSettings:
    """The manager's times and bounds."""

    lease_seconds: float = 5.0
    """For how long a manager holds its lease without renewing it; a standby takes over that much after it has died."""
    probe_seconds: float = 1.0
    """Between two probes of a service."""
    failed_seconds: float = 3.0
    """From the last good answer of a service until it counts as failed: detection in all."""
    refused_seconds: float = 1.0
    """The same where every connection since was refused: nothing listens there. Longer than a restart takes."""
    site_failed_seconds: float = 30.0
    """When all mailbox servers of a site (two or more) do not answer, how long nothing is moved from there: it is more
    likely the network. After the first one answers again, the others have twice `failed_seconds`."""
    failovers_per_hour: int = 4
    """Failovers of one database within an hour; each waits longer than the one before."""
    failover_pause_seconds: float = 15.0
    """Between a failover of a database and the next one; doubled each time within the hour."""
    retry_seconds: float = 5.0
    """Until a move that came to nothing is tried again; doubled each time, up to five minutes."""
    orphan_seconds: float = 60.0
    """A move of a manager or command that does not go on is taken over after this."""
    moves_at_once: int = 8
    """Moves under way at a time."""
    move_back_seconds: float = 0.0
    """When the copy of first preference has been healthy for so long the database moves back to it; 0: never."""
    loss_seconds: float = 3600.0
    """How far back mail is delivered again after a failover to a copy with lag, whose hook does not say since when."""
    unmeasured_loss_seconds: float = 0.0
    """The same for copies whose lag no hook measures; 0: they lack nothing."""
    services: tuple[str, ...] = ()
    """Services whose failure fails a copy; empty: all that are probed."""
    canaries: dict[str, Canary] = field(default_factory=dict)
    """By protocol."""
    hooks: dict[HookKind, HookSettings] = field(default_factory=dict)
    server_hooks: dict[str, dict[HookKind, HookSettings]] = field(default_factory=dict)
    """Hooks of single servers, in place of the general ones."""

    def hook(self, kind: HookKind, server: str) -> HookSettings | None:
        """The hook of this kind that concerns `server`; None where there is none."""
        return self.server_hooks.get(server, {}).get(kind, self.hooks.get(kind))
