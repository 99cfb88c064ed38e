"""Get- and Set-TransportConfig: what all hubs have in common (exchange-facts 4.4, 4.5, 5.4)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from gatepost.configuration.editing import OrganizationText
from gatepost.organization.model import Organization
from gatepost.organization.transport import ShadowPreference
from gatepost.shell.binding import Kind, Parameter
from gatepost.shell.cmdlet import Cmdlet, Invocation, Output
from gatepost.shell.errors import ShellError
from gatepost.shell.settings import Form, Keys, Setting, changed, parameters, properties
from gatepost.shell.things import Cell, Thing

SETTINGS = (
    Setting("ShadowRedundancyEnabled", "shadow_redundancy_enabled", Form.FLAG, "Whether hubs keep shadows."),
    Setting(
        "RejectMessageOnShadowFailure",
        "reject_message_on_shadow_failure",
        Form.FLAG,
        "Whether a message is put off of which no shadow can be made.",
    ),
    Setting(
        "MaxRetriesForRemoteSiteShadow",
        "max_retries_for_remote_site_shadow",
        Form.NUMBER,
        "Hubs of other sites that are tried for a shadow.",
    ),
    Setting(
        "MaxRetriesForLocalSiteShadow",
        "max_retries_for_local_site_shadow",
        Form.NUMBER,
        "Hubs of the own site that are tried for a shadow.",
    ),
    Setting(
        "ShadowHeartbeatFrequency",
        "shadow_heartbeat_frequency",
        Form.SPAN,
        "How often a hub is asked that nothing else was asked of.",
        aliases=("ShadowHeartbeatTimeoutInterval",),
    ),
    Setting(
        "ShadowHeartbeatRetryCount",
        "shadow_heartbeat_retry_count",
        Form.NUMBER,
        "Failed heartbeats until a hub is held dead; 0 leaves it to ShadowResubmitTimeSpan.",
    ),
    Setting(
        "ShadowResubmitTimeSpan",
        "shadow_resubmit_time_span",
        Form.SPAN,
        "How long a hub may be silent before its messages are taken over.",
    ),
    Setting(
        "ShadowMessageAutoDiscardInterval",
        "shadow_message_auto_discard_interval",
        Form.SPAN,
        "How long a discard event is kept that nobody asks for.",
    ),
    Setting("ShadowFenceTime", "shadow_fence_time", Form.SPAN, "How long a hub that starts waits for its shadows."),
    Setting("SafetyNetHoldTime", "safety_net_hold_time", Form.SPAN, "How long copies of delivered messages are kept."),
)
PREFERENCES = {
    "PreferRemote": ShadowPreference.PREFER_REMOTE,
    "LocalOnly": ShadowPreference.LOCAL_ONLY,
    "RemoteOnly": ShadowPreference.REMOTE_ONLY,
}
"""The source system's words for what the file says."""

_PREFERENCE = Parameter(
    "ShadowMessagePreferenceSetting",
    Kind.TEXT,
    "Where shadows are made of mail for databases with copies in several sites.",
    words=tuple(PREFERENCES),
    null=True,
)


def transport_config_cmdlets() -> list[Cmdlet]:
    """The cmdlets."""
    return [
        Cmdlet("Get-TransportConfig", "Show what all hubs have in common.", _get, ()),
        Cmdlet(
            "Set-TransportConfig",
            "Change what all hubs have in common; $null brings a default back.",
            _set,
            (*parameters(SETTINGS), _PREFERENCE),
            changes=True,
        ),
    ]


def _get(invocation: Invocation) -> Iterator[Output]:
    organization = invocation.session.organization
    config = organization.transport_config
    found: dict[str, Cell] = dict(properties(SETTINGS, config))
    found[_PREFERENCE.name] = next(
        word for word, each in PREFERENCES.items() if each is config.shadow_message_preference
    )
    found["Identity"] = organization.name
    columns = ("ShadowRedundancyEnabled", "RejectMessageOnShadowFailure", "ShadowResubmitTimeSpan", "SafetyNetHoldTime")
    yield Thing("TransportConfig", found, columns)


def _set(invocation: Invocation) -> Iterator[Output]:
    session, bound = invocation.session, invocation.bound
    keys: Keys = dict(changed(SETTINGS, bound))
    if _PREFERENCE.name in bound:
        word = bound.text(_PREFERENCE.name)
        keys["shadow_message_preference"] = PREFERENCES[word].value if word else None
    if not keys:
        raise ShellError("say what to change, for example -SafetyNetHoldTime 7.00:00:00")
    name = session.organization.name
    for _ in invocation.change(lambda: [name], lambda name: f"Change the transport settings of {name}?"):
        before = session.organization
        session.edit(partial(_write, keys))
        if session.organization == before:
            session.talk.warn(f"no setting of {name} was changed: it is so already")
    return iter(())


def _write(keys: Keys, text: OrganizationText, _: Organization) -> None:
    text.set_inner_keys(("organization",), "transport", keys)
