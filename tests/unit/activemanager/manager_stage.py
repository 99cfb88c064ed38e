"""A manager's mind on a stage: a small organization, a clock of the test's own, and what it says as short words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from gatepost.activemanager import manager_events as words
from gatepost.activemanager.manager import Manager
from gatepost.activemanager.port import Lease, Move, RegistryView, ServerWord
from gatepost.activemanager.seen import Sight
from gatepost.activemanager.steps import Activate, Begin, End, Fault, Result, Step
from gatepost.configuration.manager_settings import HookKind, HookSettings, ManagerSettings
from gatepost.organization.model import (
    CLIENT_PROTOCOLS,
    Database,
    DatabaseCopy,
    Endpoint,
    Organization,
    Role,
    Server,
    TlsMode,
    Version,
)
from gatepost.routing.decision import ActiveCopy

LEASE = Lease("manager", "M", 3, 5.0)
COMMAND = HookSettings(("/bin/true",))


def organization(databases: dict[str, str], sites: dict[str, str], services: str = "i") -> Organization:
    """`databases` name copies by letters in order of preference, `sites` the site of each; services i(map), p(op3)."""
    endpoints = tuple(
        Endpoint(p.value, p, "127.0.0.1", 1, TlsMode.CLEAR, "") for p in CLIENT_PROTOCOLS if p.value[0] in services
    )
    servers = {
        name: Server(name, site, name, name, Version.MODERN, frozenset({Role.MAILBOX}), endpoints)
        for name, site in sites.items()
    }
    found = {
        name: Database(name, tuple(DatabaseCopy(s, i) for i, s in enumerate(copies, 1)))
        for name, copies in databases.items()
    }
    return Organization("o", servers=servers, databases=found)


class MindStage:
    """The mind, and the world as a test wants it. Time passes by `run`, in ticks of 0.2 s with a probe each second."""

    def __init__(
        self,
        databases: dict[str, str] | None = None,
        sites: dict[str, str] | None = None,
        hooks: Iterable[HookKind] = (),
        services: str = "i",
        counted: tuple[str, ...] = (),
        **settings: Any,
    ) -> None:
        self.sites = sites or {"A": "usa", "B": "usa", "C": "europe"}
        self.organization = organization(databases or {"DB1": "ABC"}, self.sites, services)
        self.settings = ManagerSettings(hooks=dict.fromkeys(hooks, COMMAND), services=counted, **settings)
        self.now = 100.0
        self.mind = Manager("M", self.settings, self.organization, self.now)
        self.outputs: list[words.Output] = []
        self.ill: dict[str, Sight] = {}
        self.ill_services: dict[tuple[str, str], Sight] = {}
        self.renewing = True
        self.view = RegistryView(
            1,
            MappingProxyType({d.name: ActiveCopy(d.name, d.copies[0].server, 1) for d in
                              self.organization.databases.values()}),
            manager=LEASE,
        )  # fmt: skip
        self.results: dict[type[Step] | HookKind, Result] = {}
        """What a step comes to; a hook by its kind. All others are well."""
        self.slow: set[object] = set()
        """Steps that get no answer by themselves."""
        self.open: list[words.Do] = []
        self._probe_at = self.now

    def tell(self, event: words.Input) -> None:
        """Tell the mind, and do what it says."""
        for output in self.mind.handle(event, self.now):
            self.outputs.append(output)
            match output:
                case words.Take(_, _, asked):
                    if self.renewing:
                        self.tell(words.Asked(LEASE, asked))
                case words.Keep(lease, asked):
                    if self.renewing:
                        self.tell(words.Asked(lease, asked))
                case words.Do():
                    self.open.append(output)
        while self.open and not self._is_slow(self.open[0].step):
            do = self.open.pop(0)
            self.answer(do, self.result(do.step))

    def answer(self, do: words.Do, result: Result) -> None:
        """The result of a step; the registry follows it."""
        if result.fault is None:
            self._happened(do.step)
        self.tell(words.Done(do.number, result))

    def result(self, step: Step) -> Result:
        return self.results.get(getattr(step, "kind", type(step)), Result())

    def _is_slow(self, step: Step) -> bool:
        return getattr(step, "kind", type(step)) in self.slow

    def _happened(self, step: Step) -> None:
        view, moves = self.view, dict(self.view.moves)
        if isinstance(step, Begin):
            moves[step.move.database] = step.move
        elif isinstance(step, End | Activate):
            moves.pop(step.database, None)
        if isinstance(step, Activate):
            now = ActiveCopy(step.database, step.target, step.epoch + 1)
            view = replace(view, active=MappingProxyType({**view.active, step.database: now}))
        self.view = replace(view, revision=view.revision + 1, moves=MappingProxyType(moves))
        self.tell(words.Viewed(self.view))

    def change(self, **fields: Any) -> None:
        """The registry's picture is another one."""
        self.view = replace(self.view, revision=self.view.revision + 1, **fields)
        self.tell(words.Viewed(self.view))

    def word(self, server: str, word: ServerWord) -> None:
        self.change(words=MappingProxyType({**self.view.words, server: word}))

    def foreign_move(self, target: str, reason: str = "an operator's") -> Move:
        active = self.view.active["DB1"]
        move = Move("DB1", active.server, target, active.epoch, 0.0, reason)
        self.change(moves=MappingProxyType({"DB1": move}))
        return move

    def begin(self) -> None:
        """Until it acts and has seen all well."""
        self.tell(words.Viewed(self.view))
        self.run(2.0)
        self.outputs.clear()

    def run(self, seconds: float) -> None:
        """Time passes."""
        end = self.now + seconds
        while self.now < end - 1e-9:
            self.now = round(self.now + 0.2, 6)
            if self.now >= self._probe_at:
                self._probe_at = self.now + 1.0
                self.probe()
            self.tell(words.Tick())

    def probe(self) -> None:
        for name, server in self.organization.servers.items():
            for endpoint in server.endpoints:
                service = endpoint.protocol.value
                sight = self.ill_services.get((name, service), self.ill.get(name, Sight.WELL))
                self.tell(words.Probed(name, service, sight, sight.value, self.now - 0.01))

    # What was said

    def steps(self) -> list[str]:
        """The steps asked for, in short."""
        found = []
        for output in self.outputs:
            if isinstance(output, words.Do):
                step = output.step
                name = getattr(step, "kind", type(step).__name__.lower())
                about = getattr(step, "server", "") or getattr(step, "target", "")
                move = step.move if isinstance(step, Begin) else None
                found.append(f"{name} {move.target if move else about}".strip())
        return found

    def logged(self, event: str) -> list[dict[str, Any]]:
        return [o.fields for o in self.outputs if isinstance(o, words.Log) and o.event == event]

    def where(self, database: str = "DB1") -> str:
        active = self.view.active[database]
        return f"{active.server}{active.epoch}"


FAILS = Result(Fault.HOOK, "exit status 1: no")
