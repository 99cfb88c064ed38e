"""`gatepost database move`: a planned switchover, in good order (SPEC A2)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from gatepost.activemanager.asking import is_asked
from gatepost.activemanager.seed import seed
from gatepost.activemanager.standing import move_in_words
from gatepost.cli.options import Stores, config_option, open_stores

if TYPE_CHECKING:  # imported on use: `gatepost database list` needs no sockets
    from gatepost.service.asking import Sessions
    from gatepost.service.moving import Target

LEFT = 3
"""Exit status: the database was moved (or the server drained), and not all sessions are off the old server yet."""
SHOWN = 20
"""Sessions named one by one."""

seconds_option = click.option(
    "--seconds",
    type=click.FloatRange(0, 3600),
    default=60.0,
    show_default=True,
    help="How long to wait: for the manager, and then, with --wait, for the last session.",
)
wait_option = click.option("--wait", is_flag=True, help="Return when no session is on the old server any more.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Only say what would be done, and what it touches.")


@dataclass
class Told:
    """What a command says: lines for people, or one object for programs at its end."""

    as_json: bool = False
    facts: dict[str, Any] = field(default_factory=dict)

    def say(self, text: str, **facts: Any) -> None:  # noqa: ANN401 - whatever JSON takes
        """A line; `facts` are for programs."""
        self.facts |= facts
        if not self.as_json:
            click.echo(text)

    def end(self) -> None:
        """Print the object."""
        if self.as_json:
            click.echo(json.dumps(self.facts, ensure_ascii=False))


@click.command("move")
@click.argument("database")
@click.option("--to", "to", metavar="SERVER", help="The server whose copy is activated. Default: the best copy.")
@click.option("--reason", default="", help="For the log and `database status`.")
@dry_run_option
@wait_option
@seconds_option
@click.option("--cancel", is_flag=True, help="End a move that nobody goes on with: sign-ins go on as before.")
@click.option("--json", "as_json", is_flag=True, help="For programs: one object.")
@config_option
def move(
    database: str,
    to: str | None,
    reason: str,
    dry_run: bool,
    wait: bool,
    seconds: float,
    cancel: bool,
    as_json: bool,
    config: str,
) -> int:
    """Move the active copy of DATABASE in good order: sign-ins wait, hooks run, sessions follow.

    The manager makes the move where one runs, else this command does. Exit status 0: moved (with --wait: and nobody is
    on the old server); 1: not moved, one line says why; 3: moved, but with --wait some sessions are still there.
    """
    stores = open_stores(config)
    stores.require_database(database)
    told = Told(as_json, {"database": database})
    if cancel:
        return _cancel(stores, database, told)
    if to is not None:
        stores.require_server(to)
    seed(stores.registry, stores.configuration.organization)
    status = move_one(stores, database, to or "", told, reason=reason, dry_run=dry_run, wait=wait, seconds=seconds)
    told.end()
    return status


def move_one(
    stores: Stores,
    database: str,
    to: str,
    told: Told,
    *,
    reason: str = "",
    dry_run: bool = False,
    wait: bool = False,
    seconds: float = 60.0,
) -> int:
    """One move, told as it goes; the exit status. Raises `click.ClickException`."""
    from gatepost.service import moving

    view = stores.registry.view()
    found = stores.configuration.organization.databases[database]
    active = view.active.get(database)
    source, epoch = (active.server, active.epoch) if active else ("", 0)
    told.say(f"{database} is active on {source or 'no server'}, epoch {epoch}", source=source, epoch_before=epoch)
    if to and to == source:
        told.say(f"{database} is on {to} already: nothing to do", target=to, epoch=epoch, moved=False)
        return _waited(stores, database, source, told, seconds) if wait and not dry_run else 0
    if database in view.moves:
        words = move_in_words(view.moves[database])
        raise click.ClickException(f"a move of {database} is under way {words} (--cancel ends one that is left alone)")
    try:
        target = moving.choose(found, view, to)
    except moving.MoveFailed as fault:
        raise click.ClickException(str(fault)) from fault
    _tell_choice(target, told, chosen=not to)
    tell_sessions(stores, database, source, told)
    told.say(moving.plan_in_words(stores.configuration, view, source, target.server), target=target.server)
    if dry_run:
        told.say("dry run: nothing was changed", moved=False, dry_run=True)
        return 0
    began = time.monotonic()
    try:
        now = moving.move(
            stores.configuration, stores.registry, database, target.server, reason=reason, seconds=seconds, say=told.say
        )
    except moving.MoveFailed as fault:
        raise click.ClickException(str(fault)) from fault
    took = time.monotonic() - began
    places = f"{source or 'nowhere'} (epoch {epoch}) → {now.server} (epoch {now.epoch})"
    told.say(f"{database}: {places}", epoch=now.epoch, moved=True, move_seconds=round(took, 3))
    return _waited(stores, database, source, told, max(0.0, seconds - took)) if wait and source else 0


def _tell_choice(target: Target, told: Told, *, chosen: bool) -> None:
    copies = [{"server": c.server, "usable": c.usable, "reason": c.reason} for c in target.candidates]
    told.facts["copies"] = copies
    if not chosen:
        return
    for candidate in target.candidates:
        word = "chosen" if candidate.server == target.server else "usable" if candidate.usable else "not"
        told.say(f"  {candidate.server}: {word}: {candidate.reason}")


def tell_sessions(stores: Stores, database: str, server: str, told: Told) -> None:
    """Say what is there to be touched: the sessions of `database` (empty: of all) at `server`."""
    from gatepost.service.asking import sessions_at

    found = sessions_at(stores.configuration.front_end, database, server)
    told.facts["sessions"] = {name: reply.protocols for name, reply in found.found.items()}
    told.facts["unreachable"] = dict(found.silent)
    lines = found.lines() or ["no front end runs on this machine"]
    for line in lines:
        told.say(f"sessions at {server}: {line}")


def _waited(stores: Stores, database: str, source: str, told: Told, seconds: float) -> int:
    from gatepost.service.moving import wait_until_off

    front_end = stores.configuration.front_end
    return tell_left(lambda: wait_until_off(front_end, database, source, seconds), source, told)


def tell_left(wait: Callable[[], Sessions], server: str, told: Told) -> int:
    """Wait for the last session, and say who is left; the exit status."""
    began = time.monotonic()
    left = wait()
    took = time.monotonic() - began
    told.facts |= {"left": left.total, "left_sessions": left.entries, "wait_seconds": round(took, 3)}
    if left.total == 0 and left.is_whole:
        told.say(f"no session is at {server} any more, after {took:.1f} s")
        return 0
    told.say(f"after {took:.1f} s sessions are still at {server}: {left.total}")
    for line in left.lines():
        told.say(f"  {line}")
    for entry in left.entries[:SHOWN]:
        who = entry["user"] or ", ".join(entry.get("users", ())) or "-"
        told.say(f"  {entry['session']} {entry['protocol']} {entry['client']} {who}")
    told.say(f"to end them: gatepost sessions kick --server {server}")
    return LEFT


def _cancel(stores: Stores, database: str, told: Told) -> int:
    """End the move that stands in the registry. A manager's own goes on: it is not ours to end."""
    view = stores.registry.view()
    standing = view.moves.get(database)
    if standing is None:
        raise click.ClickException(f"no move of {database} is under way")
    if view.manager is not None and standing.reason.startswith("manager's term") and not is_asked(standing):
        raise click.ClickException(f"the manager {view.manager.holder} goes on with it {move_in_words(standing)}")
    stores.registry.end_move(database)
    told.say(f"{database}: the move {move_in_words(standing)} is ended; it is active on {standing.source}", moved=False)
    told.say(f"its hooks may have demoted {standing.source} or promoted {standing.target}: look at both")
    told.end()
    return 0
