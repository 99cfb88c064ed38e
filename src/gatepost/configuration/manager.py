"""From `[front_end.manager]` to `ManagerSettings`, with the faults that need the organization or the files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields

from gatepost.configuration.document import Document
from gatepost.configuration.files import Files, Named
from gatepost.configuration.manager_schema import CanaryTable, HooksTable, HookTable, ManagerTable
from gatepost.configuration.manager_settings import Canary, HookKind, HookSettings, ManagerSettings
from gatepost.organization.addresses import is_loopback, parse_http_url
from gatepost.organization.faults import Path, error, unknown, warning
from gatepost.organization.model import MAILBOX_PROTOCOLS, Finding, Organization, Protocol, Role, SignInForm

WHO = "front end"
PLACEHOLDERS = ("database", "source", "target", "server", "epoch", "term", "kind")
"""What a hook's words may hold in braces."""
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_PATH: Path = ("front_end", "manager")
_PLAIN = frozenset(ManagerTable.model_fields) - {"services", "canaries", "hooks", "server_hooks"}


def build_manager(
    document: Document, table: ManagerTable | None, files: Files, organization: Organization | None
) -> ManagerSettings | None:
    """The manager's settings; None when the front end runs none. Faults are findings."""
    return _Build(document, table, files, organization).settings() if table is not None else None


@dataclass(frozen=True)
class _Build:
    document: Document
    table: ManagerTable
    files: Files
    organization: Organization | None

    def settings(self) -> ManagerSettings:
        """The settings as far as they can be built."""
        for finding in (*self._judge(), *self._judge_servers()):
            self._add(finding)
        table = self.table
        plain = {f.name: getattr(table, f.name) for f in fields(ManagerSettings) if f.name in _PLAIN}
        return ManagerSettings(
            **plain,
            services=tuple(table.services),
            canaries={name: self._canary(name, canary) for name, canary in table.canaries.items()},
            hooks=self._hooks(table.hooks, (*_PATH, "hooks")),
            server_hooks={
                name: self._hooks(hooks, (*_PATH, "server_hooks", name)) for name, hooks in table.server_hooks.items()
            },
        )

    def _add(self, finding: Finding) -> None:
        self.files.findings.add(self.document, finding)

    def _judge(self) -> Iterator[Finding]:
        table = self.table
        if table.failed_seconds < 2 * table.probe_seconds:
            message = f"failed_seconds is {table.failed_seconds:g}: one slow answer would fail a server"
            remedy = f"make it {2 * table.probe_seconds:g} or more, twice probe_seconds"
            yield error((*_PATH, "failed_seconds"), WHO, message, remedy)
        for index, service in enumerate(table.services):
            if service not in MAILBOX_PROTOCOLS:
                yield unknown((*_PATH, "services", index), WHO, "service", "services", service, MAILBOX_PROTOCOLS)
        for name in table.canaries:
            if name not in {Protocol.IMAP.value, Protocol.POP3.value}:
                protocols = (Protocol.IMAP.value, Protocol.POP3.value)
                yield unknown((*_PATH, "canaries", name), WHO, "protocol of a canary", "protocols", name, protocols)

    def _judge_servers(self) -> Iterator[Finding]:
        """What concerns single servers; nothing without an organization."""
        if self.organization is None:
            return
        servers = self.organization.servers
        for name in self.table.server_hooks:
            if name not in servers:
                yield unknown((*_PATH, "server_hooks", name), WHO, "server", "servers", name, servers)
        for protocol, canary in self.table.canaries.items():
            own = [
                s.name
                for s in servers.values()
                if Role.MAILBOX in s.roles
                and s.sign_in.form is SignInForm.USER
                and any(e.protocol.value == protocol for e in s.endpoints)
            ]
            if own and not canary.password_file:
                message = f"{own[0]} takes the user's own credentials, and the canary of {protocol} has no password"
                yield error((*_PATH, "canaries", protocol), WHO, message, 'add password_file = "secrets/canary"')

    def _canary(self, protocol: str, table: CanaryTable) -> Canary:
        key: Path = (*_PATH, "canaries", protocol)
        if not table.user or any(c in table.user for c in "\r\n\0"):
            message = f"the canary of {protocol} has no name that could sign in"
            self._add(error((*key, "user"), WHO, message, 'for example user = "canary@contoso.com"'))
        password = None
        if table.password_file:
            named = Named(self.document, (*key, "password_file"), table.password_file, WHO, "the canary's password")
            password = self.files.password(named)
        return Canary(table.user, password or "")

    def _hooks(self, table: HooksTable, key: Path) -> dict[HookKind, HookSettings]:
        found: dict[HookKind, HookSettings] = {}
        for kind in HookKind:
            hook: HookTable | None = getattr(table, kind.value)
            if hook is None:
                continue
            for finding in _judge_hook(hook, (*key, kind.value), kind):
                self._add(finding)
            found[kind] = HookSettings(tuple(hook.command), hook.url, hook.seconds)
        return found


def _judge_hook(hook: HookTable, key: Path, kind: HookKind) -> Iterator[Finding]:
    what = f"the {kind} hook"
    if bool(hook.command) == bool(hook.url):
        message = f"{what} has both a command and a url" if hook.command else f"{what} has no command and no url"
        yield error(key, WHO, message, 'give it one: command = ["/usr/local/sbin/…"] or url = "https://…"')
        return
    if hook.url:
        yield from _judge_url(hook.url, (*key, "url"), what)
        return
    if not hook.command[0].startswith("/"):
        message = f"{what} does not name its program by its whole path"
        yield error((*key, "command", 0), WHO, message, f'for example "/usr/local/sbin/{hook.command[0] or kind}"')
    for index, word in enumerate(hook.command):
        for name in _PLACEHOLDER.findall(word):
            if name not in PLACEHOLDERS:
                yield unknown((*key, "command", index), WHO, "placeholder", "placeholders", name, PLACEHOLDERS)
        if "\0" in word:
            yield error((*key, "command", index), WHO, f"{what} holds a NUL", "remove it")
    if len(hook.command) == 1 and kind is not HookKind.LAG:
        message = f"{what} is not told which database it is for"
        yield warning((*key, "command"), WHO, message, 'add "{database}", and "{epoch}" to refuse late calls')


def _judge_url(url: str, key: Path, what: str) -> Iterator[Finding]:
    try:
        parsed = parse_http_url(url)
    except ValueError as fault:
        yield error(key, WHO, f"the url of {what} {fault}", 'for example "https://storage.contoso.com/promote"')
        return
    if parsed.scheme != "https" and not is_loopback(parsed.host):
        message = f"{what} would be posted in clear to {parsed.host}"
        yield error(key, WHO, message, "give an https URL; http only on this machine")
