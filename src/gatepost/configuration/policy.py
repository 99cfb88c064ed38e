"""From `[front_end.sign_in_policy]` to `PolicySettings`, with the faults of its values and files."""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import dataclass

from gatepost.configuration.document import Document
from gatepost.configuration.files import Files, Named
from gatepost.configuration.policy_schema import (
    Access,
    MainPasswordRuleTable,
    OnFailure,
    PolicyHookTable,
    PolicyTable,
    RuleTable,
)
from gatepost.directory.policy.rules import SERVICE_WORDS
from gatepost.directory.policy.settings import HookSettings, Penalty, PolicySettings, Rule
from gatepost.organization.addresses import is_loopback, parse_http_url
from gatepost.organization.faults import Path, error, quoted, warning
from gatepost.organization.model import Finding, Protocol
from gatepost.organization.names import BadLoginName, canonical_login_name

WHO = "sign-in policy"
_PATH: Path = ("front_end", "sign_in_policy")


def build_policy(document: Document, table: PolicyTable, files: Files) -> PolicySettings:
    """The settings as far as they can be built. Faults are findings."""
    return _Build(document, table, files).settings()


@dataclass(frozen=True)
class _Build:
    document: Document
    table: PolicyTable
    files: Files

    def settings(self) -> PolicySettings:
        """The settings, with their faults added to the findings."""
        table = self.table
        if table.penalty and table.longest_wait_seconds < table.longest_delay_seconds:
            message = "longest_wait_seconds is below longest_delay_seconds: whoever is delayed most is never let in"
            self._add(error((*_PATH, "longest_wait_seconds"), WHO, message, "make it as long, or longer"))
        penalty = Penalty(
            free_failures=table.free_failures,
            first_delay_seconds=table.first_delay_seconds,
            longest_delay_seconds=table.longest_delay_seconds,
            longest_wait_seconds=table.longest_wait_seconds,
            forget_seconds=table.forget_seconds,
            failures_per_account=table.failures_per_account,
            ipv4_prefix=table.ipv4_prefix,
            ipv6_prefix=table.ipv6_prefix,
        )
        return PolicySettings(
            trusted_networks=tuple(table.trusted_networks),
            penalty=penalty if table.penalty else None,
            sessions_per_user=table.sessions_per_user,
            sessions_per_address=table.sessions_per_address,
            rules=tuple(self._rule("rules", index, rule, table.rules) for index, rule in enumerate(table.rules)),
            main_passwords=tuple(
                self._rule("main_password_rules", index, rule, table.main_password_rules)
                for index, rule in enumerate(table.main_password_rules)
            ),
            hook=self._hook(table.hook) if table.hook is not None else None,
        )

    def _rule(self, key: str, index: int, table: RuleTable | MainPasswordRuleTable, all_of_them: Sized) -> Rule:
        here: Path = (*_PATH, key, index)
        if not (table.protocols or table.users or table.groups or table.networks) and index + 1 < len(all_of_them):
            message = "this rule concerns everybody, so those after it have no effect"
            self._add(warning(here, WHO, message, "make it the last one"))
        return Rule(
            allow=table.access is Access.ALLOW,
            protocols=frozenset(Protocol(word) for word in table.protocols if word not in SERVICE_WORDS),
            services=frozenset(word for word in table.protocols if word in SERVICE_WORDS),
            users=frozenset(self._user((*here, "users", place), text) for place, text in enumerate(table.users)),
            groups=frozenset(group.lower() for group in table.groups),
            networks=tuple(table.networks),
        )

    def _user(self, path: Path, text: str) -> str:
        try:
            if text.startswith("@"):
                return canonical_login_name(f"a{text}", "")[1:]
            canonical = canonical_login_name(text, "")
        except BadLoginName as reason:
            fault = str(reason)
        else:
            if "@" in canonical:
                return canonical
            fault = "it has no domain"
        remedy = 'write it like "anna@contoso.com", or "@contoso.com" for a domain'
        self._add(error(path, WHO, f"{quoted(text)} is no login name: {fault}", remedy))
        return text

    def _hook(self, table: PolicyHookTable) -> HookSettings:
        here: Path = (*_PATH, "hook")
        try:
            url = parse_http_url(table.url)
            if url.scheme == "http" and not is_loopback(url.host):
                message = f"the URL {quoted(table.url)} is in clear text and on another machine"
                self._add(error((*here, "url"), WHO, message, "use https"))
        except ValueError as fault:
            remedy = "write it like https://wforce.contoso.com:8084/"
            self._add(error((*here, "url"), WHO, f"the URL {quoted(table.url)} {fault}", remedy))
        ca = b""
        if table.ca:
            found = self.files.certificates(Named(self.document, (*here, "ca"), table.ca, WHO, "the authorities' file"))
            ca = found[0] if found else b""
        return HookSettings(
            url=table.url,
            password=self._secret("password_file", table.password_file),
            nonce=self._secret("nonce_file", table.nonce_file),
            seconds=table.seconds,
            open_on_failure=table.on_failure is OnFailure.OPEN,
            ca=ca,
        )

    def _secret(self, key: str, file: str) -> str:
        if not file:
            return ""
        return self.files.password(Named(self.document, (*_PATH, "hook", key), file, WHO, "the secret")) or ""

    def _add(self, finding: Finding) -> None:
        self.files.findings.add(self.document, finding)
