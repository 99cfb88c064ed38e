"""`[front_end.scram]`, `[front_end.client_certificates]`, app passwords: what they become, and faults found in them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from configuration_samples import FRONT_END, NOW, ORGANIZATION, load_text
from users_pki import UsersAuthority

from gatepost.configuration.settings import FrontEnd
from gatepost.directory.policy.settings import Rule
from gatepost.directory.settings import CertificateSettings, NameSource, ScramSettings
from gatepost.organization.model import Protocol

USERS, OTHER = UsersAuthority(), UsersAuthority("Others")
PEMS = {"etc/users.crt": USERS.pem, "etc/users.crl": USERS.crl(ends=NOW + timedelta(days=400))}
CERTIFICATES = '[front_end.client_certificates]\nca = "users.crt"\n'


def _load(text: str, files: dict[str, bytes] | None = None) -> tuple[FrontEnd | None, list[str]]:
    loaded = load_text(FRONT_END + text + "\n" + ORGANIZATION, {**PEMS, **(files or {})})
    ways = {"scram", "client_certificates", "sign_in_policy", "app_passwords"}
    found = [str(f) for f in loaded.findings if len(f.finding.path) > 1 and f.finding.path[1] in ways]
    return (loaded.configuration.front_end if loaded.configuration else None), found


def test_without_the_tables_neither_is_there() -> None:
    front_end, findings = _load("")
    assert front_end is not None
    assert (front_end.scram, front_end.client_certificates, findings) == (None, None, [])
    assert front_end.app_passwords.endswith("app-passwords.sqlite"), "beside the registry"


def test_scram_is_for_mail_protocols_where_nothing_else_is_said() -> None:
    front_end, _ = _load("[front_end.scram]")
    assert front_end is not None
    mail = frozenset({Protocol.IMAP, Protocol.POP3, Protocol.SUBMISSION})
    assert front_end.scram == ScramSettings(mail, 100_000)
    front_end, _ = _load('[front_end.scram]\nprotocols = ["imap"]\niterations = 4096')
    assert front_end is not None
    assert front_end.scram == ScramSettings(frozenset({Protocol.IMAP}), 4096)


@pytest.mark.parametrize(
    "text", ["protocols = []", 'protocols = ["https"]', "iterations = 4095", "iterations = 1000001"]
)
def test_scram_that_cannot_be(text: str) -> None:
    front_end, _ = _load("[front_end.scram]\n" + text)
    assert front_end is None


def test_certificates() -> None:
    front_end, _ = _load(CERTIFICATES + 'crl = "users.crl"\noptional = ["imap"]\nnames = ["email"]')
    assert front_end is not None
    assert front_end.client_certificates == CertificateSettings(
        USERS.pem, "etc/users.crl", frozenset({Protocol.IMAP}), frozenset(), (NameSource.EMAIL,)
    )


@pytest.mark.parametrize(
    ("text", "files", "expected"),
    [
        ("", {}, "no client is asked"),
        ('optional = ["imap"]\nrequired = ["imap"]', {}, "in optional and in required"),
        ('optional = ["imap"]\nnames = []', {}, "would be nobody's"),
        ('optional = ["imap"]\ncrl = "missing.crl"', {}, "cannot be read"),
        ('optional = ["imap"]\ncrl = "users.crl"', {"etc/users.crl": b"garbage"}, "the CRL users.crl"),
        ('optional = ["imap"]\ncrl = "users.crl"', {"etc/users.crl": OTHER.crl()}, "signed by none"),
        (
            'optional = ["imap"]\ncrl = "users.crl"',
            {"etc/users.crl": USERS.crl(ends=NOW - timedelta(days=1))},
            "is outdated since",
        ),
        ('optional = ["https"]', {}, "has the authentication certificate"),
        ('optional = ["submission"]', {}, "no endpoint with TLS for submission"),
    ],
)
def test_faults_of_certificates(text: str, files: dict[str, bytes], expected: str) -> None:
    _, findings = _load(CERTIFICATES + text, files)
    assert any(expected in line for line in findings), findings


@pytest.mark.parametrize("table", ['[front_end.scram]\nprotocols = ["imap"]', CERTIFICATES + 'optional = ["imap"]'])
def test_servers_that_want_the_users_password_are_named(table: str) -> None:
    """Nobody knows it after such a sign-in."""
    text = FRONT_END + table + "\n"
    own = ORGANIZATION.replace('form = "master-name"', 'form = "user"')
    for organization, wanted in ((ORGANIZATION, False), (own, True)):
        loaded = load_text(text + organization, PEMS)
        found = any("MBX-01 wants users' own passwords for imap" in str(f) for f in loaded.findings)
        assert found is wanted, [str(f) for f in loaded.findings]


def test_rules_for_main_passwords_know_services() -> None:
    head = "[[front_end.sign_in_policy.main_password_rules]]\n"
    front_end, findings = _load(head + 'access = "deny"\nprotocols = ["imap", "activesync"]\ngroups = ["Two"]')
    assert front_end is not None
    assert findings == []
    assert front_end.policy.main_passwords == (
        Rule(
            allow=False,
            protocols=frozenset({Protocol.IMAP}),
            services=frozenset({"activesync"}),
            groups=frozenset({"two"}),
        ),
    )
    assert front_end.policy.rules == ()
    front_end, _ = _load(head + 'access = "deny"\nprotocols = ["gopher"]')
    assert front_end is None
