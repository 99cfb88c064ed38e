"""`gatepost database move` and `server drain` on a real front end between two real Dovecots, with clients at work."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest
from doors import Servers, start
from manager_kit import MakeStage, make_stage  # noqa: F401 - a fixture
from service_kit import until
from two_homes import MOVES, STAYS, USERS, A, B, Homes, Imap

from gatepost.activemanager.open import open_registry
from gatepost.activemanager.port import RegistryView
from gatepost.configuration.load import load
from gatepost.lab.servers.gatepost import gatepost_command
from gatepost.lab.toml_text import Table
from gatepost.service.operators import ask, socket_path

pytestmark = pytest.mark.integration

PLACES = ["{database}", "{source}", "{target}", "{server}", "{epoch}", "{term}"]


class Hooked(Homes):
    """With hooks that note their calls. `bodies` are Python, by kind; `manages`: the front end runs a manager."""

    def __init__(self, servers: Servers, *, manages: bool) -> None:
        super().__init__(servers)
        self.manages = manages
        self.bodies = {"lag": "print(0)", "demote": "", "promote": "time.sleep(0.5)", "fence": ""}
        self.folder: Path
        self.hooks: Table = {}

    def change(self, front_end: Table, organization: Table) -> None:
        super().change(front_end, organization)
        self.folder = Path(str(front_end["registry"])).parent
        for kind in self.bodies:
            script = self.folder / f"{kind}.py"
            self.hooks[kind] = {"command": [sys.executable, "-I", "-S", str(script), kind, *PLACES]}
        self.write_hooks()
        if self.manages:
            front_end["manager"] = self.manager

    @property
    def manager(self) -> Table:
        return {"services": ["imap"], "probe_seconds": 0.3, "retry_seconds": 1.0, "hooks": self.hooks}

    def write_hooks(self) -> None:
        log = f"import sys, time\nopen({str(self.calls)!r}, 'a').write(' '.join(sys.argv[1:]) + chr(10))\n"
        for kind, body in self.bodies.items():
            (self.folder / f"{kind}.py").write_text(f"{log}{body}\n")

    @property
    def calls(self) -> Path:
        return self.folder / "calls"

    def called(self) -> list[str]:
        """The hooks that ran, and where."""
        text = self.calls.read_text() if self.calls.exists() else ""
        return [f"{line.split()[0]} {line.split()[4]}" for line in text.splitlines() if f" {MOVES} " in line]

    def view(self) -> RegistryView:
        loaded = load(str(self.door.process.configuration)).configuration
        assert loaded is not None
        with closing(open_registry(loaded.front_end)) as registry:
            return registry.view()

    async def command(self, *words: str, status: int | None = 0) -> str:
        return await asyncio.to_thread(self.door.command, *words, status=status)

    async def acts(self) -> None:
        """Wait until the front end's manager acts and has seen both servers well."""

        def ready() -> bool:
            loaded = load(str(self.door.process.configuration)).configuration
            assert loaded is not None
            try:
                manager = ask(socket_path(loaded.front_end)).manager
            except (FileNotFoundError, ConnectionRefusedError):  # not there, or there and not yet answering
                return False
            acts = manager is not None and manager.status is not None and manager.status.acts
            observed = self.view().observed
            return acts and all((name, "imap") in observed and observed[name, "imap"].healthy for name in (A, B))

        await asyncio.to_thread(until, ready, "a manager that acts and has seen both servers well")


@pytest.fixture(params=[False, True], ids=["by the command", "by the manager"])
async def home(servers: Servers, request: pytest.FixtureRequest) -> AsyncIterator[Hooked]:
    """A front end between two servers that share a database's mail; with a manager and without."""
    made = Hooked(servers, manages=request.param)
    try:
        made.door = start(servers, made.change, USERS)
        if made.manages:
            await made.acts()
        yield made
    finally:
        while Imap.everyone:
            Imap.everyone.pop().close()
        await asyncio.sleep(0)
        if hasattr(made, "door"):
            made.door.stop()
        for server in made.servers.values():
            server.stop()


def use_hooks_here(home: Hooked) -> None:
    """Without a running manager the command finds the hooks in its own configuration."""
    if not home.manages:
        home.door.front_end["manager"] = home.manager
        home.door.write()


async def test_move_waits_until_all_sessions_are_off_the_old_server(home: Hooked) -> None:
    """Idle and between commands; who signs in meanwhile waits, and comes to the new server; others notice nothing."""
    use_hooks_here(home)
    idle = [await Imap.sign_in(home.door, "alice") for _ in range(30)]
    await asyncio.gather(*(client.idle() for client in idle[:20]))
    other = await Imap.sign_in(home.door, "bob")
    moving = asyncio.create_task(home.command("database", "move", MOVES, "--wait", "--json"))
    await asyncio.to_thread(until, lambda: f"promote {B}" in home.called(), "the promotion")
    assert MOVES in home.view().moves
    began = time.monotonic()
    parked = await Imap.sign_in(home.door, "carol")
    assert time.monotonic() - began > 0.2, "the promotion takes half a second"
    told = json.loads(await moving)
    assert (told["moved"], told["source"], told["target"], told["epoch"]) == (True, A, B, 2)
    assert told["left"] == 0
    assert told["sessions"] == {"CAS-01": {"imap": 30}}
    assert home.called() == [f"demote {A}", f"lag {B}", f"promote {B}"]
    for client in idle:
        assert (await client.last_words())[-1].startswith(b"* BYE [UNAVAILABLE]")
    assert [e["server"] for e in (await home.sessions("--user", "carol"))["sessions"]] == [B]
    assert b"OK" in await parked.ask("SELECT INBOX")
    assert b"OK" in await other.ask("NOOP")
    assert home.view().active[STAYS].epoch == 1


async def test_a_hook_that_fails_stops_the_move_and_nobody_notices(home: Hooked) -> None:
    """Its output is what the operator reads, wherever it ran; the old server is promoted again."""
    use_hooks_here(home)
    home.bodies["promote"] = f"if sys.argv[5] == {B!r}: sys.exit('the disk is read-only')"
    home.write_hooks()
    client = await Imap.sign_in(home.door, "alice")
    said = await home.command("database", "move", MOVES, status=1)
    assert "the disk is read-only" in said
    assert f"promote of {B}" in said
    assert home.called() == [f"demote {A}", f"lag {B}", f"promote {B}", f"demote {B}", f"promote {A}"]
    view = home.view()
    assert (view.active[MOVES].server, view.active[MOVES].epoch, dict(view.moves)) == (A, 1, {})
    assert b"OK" in await client.ask("NOOP")
    assert b"OK" in await (await Imap.sign_in(home.door, "carol")).ask("SELECT INBOX")
    if home.manages:
        assert f"{B} " in (status := await home.command("database", "status", MOVES, "--no-lag"))
        assert "the last move failed: promote of" in status


@pytest.mark.parametrize("home", [False], indirect=True, ids=["by the command"])
async def test_who_is_left_is_named(home: Hooked) -> None:
    """A client in the middle of an APPEND is let finish: the command says so with status 3, the move stands."""
    client = await Imap.sign_in(home.door, "alice")
    tag = client.say("APPEND INBOX {4000000}")
    assert (await client.line()).startswith(b"+")
    client.writer.write(b"x" * 1000)
    said = await home.command("database", "move", MOVES, "--to", B, "--wait", "--seconds", "4", status=3)
    assert f"sessions are still at {A}: 1" in said
    assert "alice@contoso.com" in said
    assert home.view().active[MOVES].server == B
    client.writer.write(b"x" * 3999000 + b"\r\n")
    assert b" OK" in await client.answer(tag)
    said = await home.command("database", "move", MOVES, "--to", B, "--wait")
    assert f"{MOVES} is on {B} already" in said


async def test_a_server_is_drained_for_maintenance_and_comes_back(home: Hooked) -> None:
    clients = [await Imap.sign_in(home.door, user) for user in ("alice", "carol", "bob")]
    said = await home.command("server", "drain", A, "--wait")
    assert f"no session is at {A} any more" in said
    assert {active.server for active in home.view().active.values() if active.database in {MOVES, STAYS}} == {B}
    assert b"OK" in await clients[2].ask("NOOP"), "bob was never there"
    again = await Imap.sign_in(home.door, "alice")
    assert b"OK" in await again.ask("SELECT INBOX")
    await home.command("server", "resume", A)
    said = await home.command("server", "drain", B, "--wait", "--dry-run")
    assert f"{MOVES}, {STAYS}" in said.replace("DB01, ", "")
    assert "2 imap" in said


@pytest.mark.parametrize("home", [False], indirect=True, ids=["by the command"])
async def test_directors_flush_and_kick(home: Hooked) -> None:
    """Of that server, that user alone; success means that the client's connection is closed."""
    alice, carol, bob = [await Imap.sign_in(home.door, user) for user in ("alice", "carol", "bob")]
    said = await home.command("director", "flush", A)
    assert "2 imap" in said
    assert b"OK" in await alice.ask("NOOP")
    await home.command("director", "kick", "alice")
    assert (await alice.last_words())[-1].startswith(b"* BYE")
    await home.command("director", "flush", A, "--yes")
    assert (await carol.last_words())[-1].startswith(b"* BYE")
    assert b"OK" in await bob.ask("NOOP")


def test_a_manager_elsewhere_is_asked_by_etcd(make_stage: MakeStage, etcd_node: object) -> None:  # noqa: F811
    """No connection leads from the command to the manager but the registry: its answer comes back the same way."""
    stage = make_stage(etcd_node)
    script = stage.folder / "promote.py"
    script.write_text("import sys\nsys.exit('no space left') if sys.argv[1] == 'DB01' else None\n")
    hook = {"command": [sys.executable, "-I", "-S", str(script), "{database}"]}
    stage.manager = {"hooks": {"promote": hook, "demote": {"command": ["/bin/true"]}}}
    stage.begin(2)
    path = stage.folder / "gatepost.toml"
    said = gatepost_command(path, "database", "move", "DB01", status=1)
    assert f"the manager says: promote of {stage.names['B']}: exit status 1: no space left" in said
    assert (stage.active("DB01").epoch, dict(stage.registry.view().moves)) == (1, {})
    gatepost_command(path, "database", "move", "DB02", "--wait")
    stage.wait_active("B", 2, database="DB02")
    assert stage.registry.history("DB02")[-1].holder == stage.registry.view().manager.holder  # type: ignore[union-attr]
