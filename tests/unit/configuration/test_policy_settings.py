"""`[front_end.sign_in_policy]`: its defaults, what it becomes, and the faults that are found in it."""

from __future__ import annotations

from ipaddress import ip_network

import pytest
from configuration_samples import FRONT_END, ORGANIZATION, load_text

from gatepost.directory.policy.settings import HookSettings, PolicySettings, Rule
from gatepost.organization.model import Protocol

HERE = "[front_end.sign_in_policy]\n"


def policy(text: str, more: dict[str, bytes] | None = None) -> tuple[PolicySettings, list[str]]:
    loaded = load_text(FRONT_END + text + "\n" + ORGANIZATION, more)
    ours = [str(f) for f in loaded.findings if f.finding.path[:2] == ("front_end", "sign_in_policy")]
    return (loaded.configuration.front_end.policy if loaded.configuration else PolicySettings(penalty=None)), ours


def test_without_the_table_wrong_passwords_cost() -> None:
    assert policy("") == (PolicySettings(), [])


def test_the_penalty_can_be_left_away() -> None:
    assert policy(HERE + "penalty = false") == (PolicySettings(penalty=None), [])


def test_rules_in_their_order() -> None:
    found, findings = policy(
        '[[front_end.sign_in_policy.rules]]\naccess = "allow"\nnetworks = ["10.0.0.0/8"]\n'
        '[[front_end.sign_in_policy.rules]]\naccess = "deny"\nprotocols = ["imap"]\ngroups = ["Contractors"]\n'
        'users = ["Anna@Contoso.com", "@Fabrikam.com"]\n'
    )
    assert findings == []
    assert found.rules == (
        Rule(allow=True, networks=(ip_network("10.0.0.0/8"),)),
        Rule(
            allow=False,
            protocols=frozenset({Protocol.IMAP}),
            users=frozenset({"anna@contoso.com", "@fabrikam.com"}),
            groups=frozenset({"contractors"}),
        ),
    )


def test_the_hooks_secrets_are_read_and_never_shown() -> None:
    found, findings = policy(
        '[front_end.sign_in_policy.hook]\nurl = "https://wforce.contoso.com:8084/"\non_failure = "closed"\n'
        'password_file = "secrets/wforce"\nnonce_file = "secrets/nonce"\n',
        {"etc/secrets/wforce": b"hunter2\n", "etc/secrets/nonce": b"pepper\n"},
    )
    assert findings == []
    assert found.hook == HookSettings("https://wforce.contoso.com:8084/", "hunter2", "pepper", open_on_failure=False)
    assert "hunter2" not in repr(found)
    assert "pepper" not in repr(found)


FAULTS = [
    (HERE + "longest_wait_seconds = 5.0", "whoever is delayed most is never let in"),
    (HERE + "free_failures = 0", '"free_failures" is out of range'),
    (HERE + 'trusted_networks = ["here"]', "subnet"),
    ('[[front_end.sign_in_policy.rules]]\naccess = "perhaps"', "perhaps"),
    ('[[front_end.sign_in_policy.rules]]\naccess = "deny"\nprotocols = ["smtp"]', "smtp"),
    ('[[front_end.sign_in_policy.rules]]\naccess = "deny"\nusers = ["anna"]', "it has no domain"),
    (
        '[[front_end.sign_in_policy.rules]]\naccess = "deny"\n[[front_end.sign_in_policy.rules]]\naccess = "allow"',
        "those after it have no effect",
    ),
    ('[front_end.sign_in_policy.hook]\nurl = "http://192.0.2.1/"', "in clear text and on another machine"),
    ('[front_end.sign_in_policy.hook]\nurl = "wforce"', "does not begin with https://"),
]


@pytest.mark.parametrize(("text", "words"), FAULTS)
def test_faults_are_found(text: str, words: str) -> None:
    loaded = load_text(FRONT_END + text + "\n" + ORGANIZATION)
    assert any(words in str(finding) for finding in loaded.findings), [str(f) for f in loaded.findings]
