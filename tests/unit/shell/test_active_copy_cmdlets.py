"""Cmdlets that change the registry: which copy is active, and which may become it."""

from __future__ import annotations

from pathlib import Path

import pytest
from shell_stage import EXAMPLES, Stage
from test_other_cmdlets import service  # noqa: F401 - a fixture

from gatepost.activemanager.port import MANAGER, Move, Observation, RegistryView, ServerWord
from gatepost.shell.errors import ShellError

BEFORE = (EXAMPLES / "contoso.toml").read_text()


def view(stage: Stage) -> RegistryView:
    return stage.session.registry.view()


def test_copy_status_has_the_sources_columns(service: Stage) -> None:  # noqa: F811
    """Name, Status, CopyQueueLength, ActivationPreference: what is known, and nothing made up."""
    (active, passive) = service.run("Get-MailboxDatabaseCopyStatus DB01")
    assert active.columns[:4] == ("Name", "Status", "CopyQueueLength", "ActivationPreference")
    assert (active.get("Name"), active.get("Status"), active.get("CopyQueueLength")) == ("DB01\\MBX-01", "Mounted", 0)
    assert (passive.get("Status"), passive.get("CopyQueueLength")) == ("Passive", None)
    assert passive.get("ActiveDatabaseCopy") == "mbx-01"


def test_copy_status_shows_what_a_manager_sees(service: Stage) -> None:  # noqa: F811
    registry = service.session.registry
    lease = registry.take_lease(MANAGER, "CAS-01/1/a", 60.0)
    assert lease is not None
    registry.observe([Observation("MBX-01", "imap", True, 1.0), Observation("MBX-02", "imap", False, 1.0, "no")], lease)
    assert service.values("Get-MailboxDatabaseCopyStatus DB01", "Status") == ["Mounted", "ServiceDown"]
    assert service.values("Get-MailboxDatabaseCopyStatus DB01\\MBX-02", "ErrorMessage") == ["imap fails (no)"]
    registry.observe([Observation("MBX-02", "imap", True, 2.0)], lease)
    assert service.values("Get-MailboxDatabaseCopyStatus DB01 -Server MBX-02", "Status") == ["Healthy"]
    registry.begin_move(Move("DB01", "MBX-01", "MBX-02", 1, 1.0), lease)
    assert service.values("Get-MailboxDatabaseCopyStatus DB01", "Status") == ["Dismounting", "Mounting"]


def test_lag_is_the_copy_queue(service: Stage, tmp_path: Path) -> None:  # noqa: F811
    script = tmp_path / "lag"
    script.write_text("#!/bin/sh\necho 2.5\n")
    script.chmod(0o755)
    hook = f'[front_end.manager.hooks.lag]\ncommand = ["{script}"]\n[organization]'
    service.path.write_text(service.text.replace("[organization]", f"[front_end.manager]\n{hook}", 1))
    assert service.values("Get-MailboxDatabaseCopyStatus DB01", "CopyQueueLength") == [0, 3]


def test_a_move_without_a_target_takes_the_best_copy(service: Stage) -> None:  # noqa: F811
    (moved,) = service.run("Move-ActiveMailboxDatabase DB01 -MountDialOverride Lossless -Confirm:$false")
    assert {name: moved.get(name) for name in moved.columns} == {
        "Identity": "DB01",
        "ActiveServerAtStart": "MBX-01",
        "ActiveServerAtEnd": "MBX-02",
        "Status": "Succeeded",
    }
    assert service.operator.warned == []


def test_a_dial_that_allows_loss_is_said_to_change_nothing(service: Stage) -> None:  # noqa: F811
    service.run("Move-ActiveMailboxDatabase DB01 -ActivateOnServer MBX-02 -MountDialOverride BestEffort")
    assert service.operator.warned == [
        "a move waits until the copy lacks nothing: -MountDialOverride changes nothing here"
    ]
    assert view(service).active["DB01"].server == "MBX-02"
    with pytest.raises(ShellError, match="takes one of None, Lossless"):
        service.run("Move-ActiveMailboxDatabase DB01 -MountDialOverride Some")


def test_all_databases_of_a_server_are_moved(service: Stage) -> None:  # noqa: F811
    held = [name for name, active in view(service).active.items() if active.server == "MBX-01"]
    assert service.values("Move-ActiveMailboxDatabase -Server MBX-01", "Identity") == held
    assert "MBX-01" not in {active.server for active in view(service).active.values()}


def test_a_suspended_copy_is_not_activated(service: Stage) -> None:  # noqa: F811
    """The source's words; by name it is refused too, until it is resumed."""
    service.run("Suspend-MailboxDatabaseCopy 'DB01\\MBX-02' -ActivationOnly -Confirm:$false")
    assert view(service).blocked == {("DB01", "MBX-02")}
    assert service.values("Get-MailboxDatabaseCopyStatus DB01", "ActivationSuspended") == [False, True]
    with pytest.raises(ShellError, match="the copy is blocked from activation"):
        service.run("Move-ActiveMailboxDatabase DB01")
    service.run("Resume-MailboxDatabaseCopy 'DB01\\MBX-02'")
    assert not view(service).blocked
    assert service.run("Move-ActiveMailboxDatabase DB01")
    assert service.text == BEFORE


def test_suspending_asks_and_says_that_replication_goes_on(service: Stage) -> None:  # noqa: F811
    service.operator.answer = False
    service.run("Suspend-MailboxDatabaseCopy DB01\\MBX-02")
    assert service.operator.asked == ["Keep DB01\\MBX-02 from being activated?"]
    assert service.operator.warned == ["only activation is suspended: replication is the servers' own business"]
    assert not view(service).blocked
    service.run("Suspend-MailboxDatabaseCopy DB01\\MBX-02 -ActivationOnly -WhatIf")
    assert not view(service).blocked


def test_policies_of_a_server(service: Stage) -> None:  # noqa: F811
    service.run("Set-MailboxServer MBX-02 -DatabaseCopyAutoActivationPolicy Blocked")
    assert {server for _, server in view(service).blocked} == {"MBX-02"}
    assert ("DB01", "MBX-02") in view(service).blocked
    service.run("Set-MailboxServer MBX-02 -DatabaseCopyAutoActivationPolicy unrestricted")
    assert not view(service).blocked
    service.run("Set-MailboxServer MBX-02 -DatabaseCopyActivationDisabledAndMoveNow $true")
    assert view(service).words == {"MBX-02": ServerWord.DRAINING}
    service.run("Set-MailboxServer MBX-02 -DatabaseCopyActivationDisabledAndMoveNow $false")
    assert not view(service).words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Set-MailboxServer MBX-02", "say what to change"),
        ("Set-MailboxServer MBX-02 -DatabaseCopyAutoActivationPolicy IntrasiteOnly", "means nothing here"),
        ("Set-MailboxServer CAS-01 -DatabaseCopyAutoActivationPolicy Blocked", "CAS-01 is no mailbox server"),
        ("Suspend-MailboxDatabaseCopy DB01", r"DATABASE\\SERVER"),
        ("Move-ActiveMailboxDatabase DB01 -Server MBX-01", "not both"),
        ("Move-ActiveMailboxDatabase DB01 -ActivateOnServer MBX-03", "MBX-03 has no copy of DB01"),
        ("Set-ServerComponentState MBX-01 -Component HubTransport -State Draining", "takes one of ServerWideOffline"),
    ],
)
def test_faults(service: Stage, text: str, words: str) -> None:  # noqa: F811
    before = view(service)
    with pytest.raises(ShellError, match=words):
        service.run(text)
    assert view(service) == before


@pytest.mark.parametrize(("state", "word"), [("Draining", ServerWord.DRAINING), ("Inactive", ServerWord.MAINTENANCE)])
def test_component_states(service: Stage, state: str, word: ServerWord) -> None:  # noqa: F811
    command = "Set-ServerComponentState MBX-01 -Component ServerWideOffline -Requester Maintenance -State"
    service.run(f"{command} {state}")
    assert view(service).words == {"MBX-01": word}
    assert service.operator.warned == [
        "no manager runs: move the databases yourself (gatepost server drain MBX-01)",
    ]
    assert service.values("Get-ServerComponentState MBX-01", "State") == [state]
    service.run(f"{command} Active")
    assert not view(service).words
    assert set(service.values("Get-ServerComponentState", "State")) == {"Active"}


def test_servers_show_word_and_health(service: Stage) -> None:  # noqa: F811
    service.session.registry.set_word("MBX-02", ServerWord.DRAINING)
    assert service.values("Get-ExchangeServer MBX-02", "State") == ["draining"]
    assert service.values("Get-ExchangeServer CAS-01", "State") == [None]


def test_a_file_alone_has_no_copies_to_move(stage: Stage) -> None:
    for text in ("Move-ActiveMailboxDatabase DB01 MBX-02", "Suspend-MailboxDatabaseCopy DB01\\MBX-02 -Confirm:$false"):
        with pytest.raises(ShellError, match="needs a front end's configuration"):
            stage.run(text)
    assert stage.values("Get-ExchangeServer MBX-02", "State") == ["up"]
