"""Get- and Set-TransportConfig, and MaxAcknowledgementDelay (exchange-facts 4.4, 4.5, 5.4)."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest
from shell_stage import EXAMPLES, Operator, Stage

from gatepost.organization.transport import ShadowPreference, TransportConfig
from gatepost.shell.errors import ShellError
from gatepost.shell.session import Session
from gatepost.shell.transport_config_cmdlets import PREFERENCES


@pytest.fixture
def mail(tmp_path: Path) -> Stage:
    path = tmp_path / "mail.toml"
    shutil.copy(EXAMPLES / "mail-two-sites.toml", path)
    operator = Operator()
    return Stage(path, Session(str(path), operator, alone=True), operator)


def written(stage: Stage) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads(stage.text)["organization"].get("transport", {})
    return found


def test_the_defaults_are_the_source_systems(mail: Stage) -> None:
    """exchange-facts 4.4, 4.5."""
    [shown] = mail.run("Get-TransportConfig")
    assert {name: shown.get(name) for name in (
        "ShadowRedundancyEnabled", "RejectMessageOnShadowFailure", "ShadowMessagePreferenceSetting",
        "MaxRetriesForRemoteSiteShadow", "MaxRetriesForLocalSiteShadow", "ShadowHeartbeatFrequency",
        "ShadowHeartbeatRetryCount", "ShadowResubmitTimeSpan", "ShadowMessageAutoDiscardInterval", "SafetyNetHoldTime",
    )} == {
        "ShadowRedundancyEnabled": True, "RejectMessageOnShadowFailure": False,
        "ShadowMessagePreferenceSetting": "PreferRemote", "MaxRetriesForRemoteSiteShadow": 4,
        "MaxRetriesForLocalSiteShadow": 2, "ShadowHeartbeatFrequency": "00:02:00", "ShadowHeartbeatRetryCount": 0,
        "ShadowResubmitTimeSpan": "03:00:00", "ShadowMessageAutoDiscardInterval": "2.00:00:00",
        "SafetyNetHoldTime": "2.00:00:00",
    }  # fmt: skip


def test_every_setting_can_be_set_and_brought_back(mail: Stage) -> None:
    """With the source system's names; the file has no table when all are defaults."""
    mail.run(
        "Set-TransportConfig -ShadowRedundancyEnabled $false -RejectMessageOnShadowFailure $true "
        "-ShadowMessagePreferenceSetting localonly -MaxRetriesForRemoteSiteShadow 0 -MaxRetriesForLocalSiteShadow 255 "
        "-ShadowHeartbeatFrequency 00:00:10 -ShadowHeartbeatRetryCount 3 -ShadowResubmitTimeSpan 00:01:00 "
        "-ShadowMessageAutoDiscardInterval 90.00:00:00 -ShadowFenceTime 00:00:05 -SafetyNetHoldTime 00:00:15"
    )
    assert mail.session.organization.transport_config == TransportConfig(
        shadow_redundancy_enabled=False,
        reject_message_on_shadow_failure=True,
        shadow_message_preference=ShadowPreference.LOCAL_ONLY,
        max_retries_for_remote_site_shadow=0,
        max_retries_for_local_site_shadow=255,
        shadow_heartbeat_frequency=10.0,
        shadow_heartbeat_retry_count=3,
        shadow_resubmit_time_span=60.0,
        shadow_message_auto_discard_interval=90 * 86400.0,
        shadow_fence_time=5.0,
        safety_net_hold_time=15.0,
    )
    assert written(mail)["shadow_message_preference"] == "local-only"
    mail.run("Set-TransportConfig -ShadowMessagePreferenceSetting $null -SafetyNetHoldTime $null")
    config = mail.session.organization.transport_config
    assert config.shadow_message_preference is ShadowPreference.PREFER_REMOTE
    assert config.safety_net_hold_time == 2 * 86400.0
    assert "safety_net_hold_time" not in written(mail)


def test_the_older_name_of_the_heartbeat(mail: Stage) -> None:
    """exchange-facts 4.4: ShadowHeartbeatTimeoutInterval."""
    mail.run("Set-TransportConfig -ShadowHeartbeatTimeoutInterval 00:15:00 -ShadowHeartbeatRetryCount 12")
    assert written(mail) == {"shadow_heartbeat_frequency": "00:15:00", "shadow_heartbeat_retry_count": 12}


@pytest.mark.parametrize(
    "change",
    [
        "-MaxRetriesForLocalSiteShadow 256",
        "-ShadowHeartbeatFrequency 00:00:00",
        "-ShadowHeartbeatFrequency 1.00:00:01",
        "-ShadowHeartbeatRetryCount 16",
        "-ShadowResubmitTimeSpan 2.00:00:00",
        "-ShadowMessageAutoDiscardInterval 00:00:04",
        "-ShadowMessageAutoDiscardInterval 91.00:00:00",
        "-ShadowMessagePreferenceSetting Somewhere",
        "-SafetyNetHoldTime soon",
        "",
    ],
)
def test_what_is_out_of_range_is_refused(mail: Stage, change: str) -> None:
    """exchange-facts 4.4."""
    before = mail.text
    with pytest.raises(ShellError):
        mail.run(f"Set-TransportConfig {change}")
    assert mail.text == before


def test_what_if_and_what_is_so_already(mail: Stage) -> None:
    before = mail.text
    mail.run("Set-TransportConfig -SafetyNetHoldTime 7.00:00:00 -WhatIf")
    assert mail.text == before
    mail.run("Set-TransportConfig -ShadowRedundancyEnabled $true")
    assert any("it is so already" in text for text in mail.operator.warned)


def test_the_delay_of_an_acknowledgement(mail: Stage) -> None:
    """exchange-facts 4.4: MaxAcknowledgementDelay."""
    assert mail.values("Get-ReceiveConnector 'Default HUB-02'", "MaxAcknowledgementDelay") == ["00:00:30"]
    mail.run("Set-ReceiveConnector 'Default HUB-02' -MaxAcknowledgementDelay 00:00:00")
    assert mail.session.organization.receive_connectors["Default HUB-02"].max_acknowledgement_delay == 0.0


def test_every_word_of_the_file_has_one_of_the_shells() -> None:
    assert set(PREFERENCES.values()) == set(ShadowPreference)
