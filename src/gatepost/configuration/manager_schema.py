"""The shape of `[front_end.manager]`. The string under each key is its entry in `docs/configuration.md`."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from gatepost.configuration.manager_settings import HookSettings, ManagerSettings
from gatepost.configuration.tables import MAX_COUNT, MAX_SECONDS, Table, default_of


def _seconds(name: str, example: str, *, least: float = 0.05) -> Any:  # noqa: ANN401 - what a field's default may be
    return Field(default=default_of(ManagerSettings, name), ge=least, le=MAX_SECONDS, examples=[example])


class HookTable(Table):
    """A hook: `command` or `url`. A command's words may hold `{database}`, `{source}`, `{target}`, `{server}` (the one
    that it is about), `{epoch}`, `{term}` and `{kind}`; no shell reads them. It succeeds with status 0, a URL with 200
    to 299. Hooks may be called twice for the same thing and must then succeed. Both numbers only grow (the term, of the
    manager's lease, is 0 when an operator's command calls): storage that remembers them refuses a call that comes late,
    from a manager that stood still."""

    command: list[str] = Field(default=[], examples=['["/usr/local/sbin/promote", "{database}", "{epoch}"]'])
    """The program, by its whole path, and its arguments. It runs as the account in `user`."""
    url: str = Field(default="", examples=['"https://storage.contoso.com/promote"'])
    """An `https` URL, or an `http` one on this machine; the same values are posted to it as JSON."""
    seconds: float = Field(default=default_of(HookSettings, "seconds"), gt=0, le=3600, examples=["30.0"])
    """Longest it may take. A command's whole process group is killed then."""


class HooksTable(Table):
    """What makes a move real at the servers' replicas. Without hooks only the registry changes. A hook that fails stops
    the move with its output."""

    lag: HookTable | None = None
    """Says how far the copy on `{target}` is behind: a number on its first line, in units that the dials count: 0 is
    lossless, 6 good availability, 12 best availability. A second number beside it says for how many seconds it has
    lacked something."""
    fence: HookTable | None = None
    """At a failover: keeps `{source}` from writing, without its help. At a planned move when there is no `demote`."""
    demote: HookTable | None = None
    """At a planned move: has `{source}` give its copy up in good order."""
    promote: HookTable | None = None
    """Makes the copy on `{target}` the one that is written to."""


class CanaryTable(Table):
    """Who signs in when a service is probed, by the form of the server's `sign_in`. Without it probes end after the
    greeting."""

    user: str = Field(examples=['"canary-{server}@contoso.com"'])
    """Its login name at the mailbox servers; `{server}` stands for the server's name in lower case."""
    password_file: str = Field(default="", examples=['"secrets/canary"'])
    """File with its password. Needed where a server's sign-in form is `user`."""


class ManagerTable(Table):
    """The active manager. With this table the front end runs one beside its workers: of all managers of a registry one
    acts, the others stand by."""

    lease_seconds: float = _seconds("lease_seconds", "10.0", least=1.0)
    """For how long a manager may act without reaching the registry; a standby takes over that much after it has
    died."""
    probe_seconds: float = _seconds("probe_seconds", "2.0")
    """Between two probes of a service of a mailbox server."""
    failed_seconds: float = _seconds("failed_seconds", "10.0")
    """From the last good answer of a service until it counts as failed."""
    refused_seconds: float = _seconds("refused_seconds", "3.0")
    """The same where every connection was refused: nothing listens there any more."""
    site_failed_seconds: float = _seconds("site_failed_seconds", "60.0", least=0.0)
    """When all mailbox servers of a site (two or more) do not answer, how long nothing is moved away from there: it is
    more likely the network."""
    failovers_per_hour: int = Field(
        default=default_of(ManagerSettings, "failovers_per_hour"), ge=1, le=MAX_COUNT, examples=["2"]
    )
    """Failovers of one database within an hour."""
    failover_pause_seconds: float = _seconds("failover_pause_seconds", "60.0", least=0.0)
    """Between a failover of a database and its next one; doubled each time within the hour."""
    retry_seconds: float = _seconds("retry_seconds", "10.0")
    """Until a move that came to nothing is tried again; doubled each time, up to five minutes."""
    orphan_seconds: float = _seconds("orphan_seconds", "300.0", least=1.0)
    """A move that a manager or a command began and does not go on with is taken over after this. More than all hooks of
    a move may take."""
    moves_at_once: int = Field(default=default_of(ManagerSettings, "moves_at_once"), ge=1, le=1000, examples=["2"])
    """Moves under way at a time."""
    move_back_seconds: float = _seconds("move_back_seconds", "3600.0", least=0.0)
    """When the copy of first preference has been healthy for so long, the database moves back to it. 0: never."""
    loss_seconds: float = _seconds("loss_seconds", "7200.0", least=1.0)
    """After a failover to a copy that lacks something, hubs deliver again what came in so long before it, unless the
    `lag` hook says since when the copy lacks it."""
    unmeasured_loss_seconds: float = _seconds("unmeasured_loss_seconds", "300.0", least=0.0)
    """The same after every failover to a copy whose lag no hook measures. 0: such copies lack nothing, as with storage
    that both servers share."""
    services: list[str] = Field(default=[], examples=['["imap"]'])
    """Services whose failure fails a copy: `imap`, `pop3`, `https`. Empty: all that its server has."""
    canaries: dict[str, CanaryTable] = {}
    """Who signs in for probes, by protocol, for example `[front_end.manager.canaries.imap]`."""
    hooks: HooksTable = HooksTable()
    server_hooks: dict[str, HooksTable] = {}
    """Hooks of single servers in place of the general ones, for example
    `[front_end.manager.server_hooks.MBX-01.fence]`."""
