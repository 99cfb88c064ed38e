"""`[front_end.manager]`: there or not, its defaults, its hooks, and every fault that it can have."""

from __future__ import annotations

import pytest
from configuration_samples import FRONT_END, ORGANIZATION, load_text

from gatepost.configuration.manager_settings import HookKind, HookSettings, ManagerSettings


def manager(text: str, more: dict[str, bytes] | None = None) -> tuple[ManagerSettings | None, list[str]]:
    loaded = load_text(FRONT_END + text + "\n" + ORGANIZATION, more)
    ours = [str(f) for f in loaded.findings if f.finding.path[:2] == ("front_end", "manager")]
    return (loaded.configuration.front_end.manager if loaded.configuration else None), ours


def test_without_the_table_there_is_no_manager() -> None:
    assert manager("") == (None, [])


def test_its_presence_is_enough() -> None:
    assert manager("[front_end.manager]") == (ManagerSettings(), [])


def test_hooks_of_a_server_stand_in_for_the_general_ones() -> None:
    found, findings = manager(
        '[front_end.manager.hooks]\nfence = { command = ["/bin/fence", "{database}", "{source}"] }\n'
        'promote = { url = "https://storage.contoso.com/promote", seconds = 30.0 }\n'
        '[front_end.manager.server_hooks.MBX-01]\nfence = { url = "http://127.0.0.1:8080/fence" }\n'
    )
    assert findings == []
    assert found is not None
    assert found.hook(HookKind.FENCE, "MBX-02") == HookSettings(("/bin/fence", "{database}", "{source}"))
    assert found.hook(HookKind.FENCE, "MBX-01") == HookSettings(url="http://127.0.0.1:8080/fence")
    assert found.hook(HookKind.PROMOTE, "MBX-01") == HookSettings((), "https://storage.contoso.com/promote", 30.0)
    assert found.hook(HookKind.LAG, "MBX-01") is None


def test_the_canarys_password_is_read_and_never_shown() -> None:
    text = '[front_end.manager.canaries.imap]\nuser = "canary-{server}"\npassword_file = "secrets/canary"\n'
    found, _ = manager(text, {"etc/secrets/canary": b"hunter2\n"})
    assert found is not None
    assert found.canaries["imap"].password == "hunter2"
    assert "hunter2" not in repr(found)


FAULTS = [
    ("[front_end.manager]\nfailed_seconds = 1.5", "one slow answer would fail a server"),
    ('[front_end.manager]\nservices = ["smtp"]', 'service "smtp" does not exist'),
    ("[front_end.manager]\nlease_seconds = 0.1", '"lease_seconds" is out of range'),
    ("[front_end.manager]\nfailovers_per_hour = 0", '"failovers_per_hour" is out of range'),
    ('[front_end.manager.canaries.https]\nuser = "c"', 'protocol of a canary "https" does not exist'),
    ('[front_end.manager.canaries.imap]\nuser = ""', "no name that could sign in"),
    ("[front_end.manager.hooks]\nfence = {}", "the fence hook has no command and no url"),
    (
        '[front_end.manager.hooks]\nfence = { command = ["/bin/f"], url = "https://a.contoso.com/" }',
        "the fence hook has both a command and a url",
    ),
    ('[front_end.manager.hooks]\nfence = { command = ["fence", "{database}"] }', "by its whole path"),
    (
        '[front_end.manager.hooks]\nfence = { command = ["/bin/f", "{databse}"] }',
        'placeholder "databse" does not exist',
    ),
    ('[front_end.manager.hooks]\nfence = { command = ["/bin/f"] }', "is not told which database it is for"),
    ('[front_end.manager.hooks]\nfence = { url = "http://storage.contoso.com/" }', "would be posted in clear"),
    ('[front_end.manager.hooks]\nfence = { url = "ftp://storage.contoso.com/" }', "does not begin with https://"),
    (
        '[front_end.manager.server_hooks.MBX-99]\nfence = { command = ["/bin/f", "{database}"] }',
        'server "MBX-99" does not exist',
    ),
]


@pytest.mark.parametrize(("text", "expected"), FAULTS, ids=[fault[1] for fault in FAULTS])
def test_each_fault_is_named_with_its_line(text: str, expected: str) -> None:
    _, findings = manager(text)
    assert [finding for finding in findings if expected in finding], findings
    assert all("gatepost.toml:" in finding for finding in findings)
