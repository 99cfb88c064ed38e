"""Cmdlets for connectors, hubs, accepted domains, sites and links, on examples/mail-two-sites.toml."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest
from shell_stage import EXAMPLES, Operator, Stage

from gatepost.shell.cmdlets import all_cmdlets
from gatepost.shell.errors import ShellError
from gatepost.shell.session import Session

EXAMPLE = EXAMPLES / "mail-two-sites.toml"
HUB_02 = '[receive_connectors."Default HUB-02"]'


@pytest.fixture
def mail(tmp_path: Path) -> Stage:
    """A shell on a copy of the example, alone."""
    path = tmp_path / "mail.toml"
    shutil.copy(EXAMPLE, path)
    operator = Operator()
    return Stage(path, Session(str(path), operator, alone=True), operator)


def tables(stage: Stage, kind: str) -> dict[str, Any]:
    """The file's tables of one kind."""
    found: dict[str, Any] = tomllib.loads(stage.text).get(kind, {})
    return found


# Receive connectors


def test_the_standard_connectors_of_a_hub_are_shown(mail: Stage) -> None:
    """Port 25 for servers and users, 587 and 465 for users; an edge has one, for everybody."""
    shown = {str(thing.get("Name")): thing for thing in mail.run("Get-ReceiveConnector -Server HUB-02")}
    assert list(shown) == ["Default HUB-02", "Client HUB-02"]
    default, client = shown["Default HUB-02"], shown["Client HUB-02"]
    assert default.get("Bindings") == ("10.1.0.22:25",)
    assert default.get("PermissionGroups") == ("ExchangeUsers", "ExchangeServers")
    assert default.get("AuthMechanism") == ("Tls", "BasicAuth", "BasicAuthRequireTLS", "ExchangeServer")
    assert default.get("RemoteIPRanges") == ("0.0.0.0/0", "::/0")
    assert default.get("MaxMessageSize") == "36 MB (37,748,736 bytes)"
    assert (client.get("Bindings"), client.get("ImplicitTlsBindings")) == (("10.1.0.22:587",), ("10.1.0.22:465",))
    assert client.get("PermissionGroups") == ("ExchangeUsers",)
    assert mail.values("Get-ReceiveConnector -Server EDGE-01", "PermissionGroups") == [
        ("AnonymousUsers", "ExchangeServers", "Partners")
    ]


def test_setting_a_standard_connector_writes_all_of_its_server_out(mail: Stage) -> None:
    """From then on only what is listed counts, so nothing may be lost."""
    before = mail.session.organization
    mail.run("Set-ReceiveConnector 'HUB-02\\default hub-02' -MaxMessageSize 50MB -RemoteIPRanges 10.0.0.0/8,fd00::/8")
    written = tables(mail, "receive_connectors")
    assert written["Default HUB-02"]["max_message_size"] == "50MB"
    assert written["Default HUB-02"]["remote_ranges"] == ["10.0.0.0/8", "fd00::/8"]
    after = mail.session.organization
    assert after.receive_connectors["Client HUB-02"] == before.receive_connectors["Client HUB-02"]
    assert after.receive_connectors["Default HUB-02"].max_message_size == 50 * 1024**2
    mail.run("Set-ReceiveConnector 'Default HUB-02' -MaxMessageSize '50 MB (52,428,800 bytes)'")
    assert mail.operator.warned[-1] == "no setting of Default HUB-02 was changed: it is so already"


def test_the_rights_of_a_connector_that_are_a_choice(mail: Stage) -> None:
    """As in the source system, by the pipeline too; the rest follows from the groups."""
    own_domains = r"'NT AUTHORITY\ANONYMOUS LOGON' -ExtendedRights ms-Exch-SMTP-Accept-Authoritative-Domain-Sender"
    edge = "Get-ReceiveConnector -Server EDGE-01"
    (found,) = mail.run(f"{edge} | Get-ADPermission")
    assert found.get("ExtendedRights") == "ms-Exch-SMTP-Accept-Authoritative-Domain-Sender"
    mail.run(f"{edge} | Remove-ADPermission -User {own_domains} -Confirm:$false")
    assert mail.run(f"{edge} | Get-ADPermission") == []
    (table,) = (t for t in tables(mail, "receive_connectors").values() if t["server"] == "EDGE-01")
    assert table["accept_authoritative_domain_sender"] is False
    mail.run(f"{edge} | Add-ADPermission -User {own_domains}")
    assert len(mail.run(f"{edge} | Get-ADPermission")) == 1
    mail.run(
        r"Add-ADPermission 'HUB-02\Client HUB-02' -User ExchangeUsers -ExtendedRights MS-Exch-SMTP-Accept-Any-Sender"
    )
    assert tables(mail, "receive_connectors")["Client HUB-02"]["accept_any_sender"] is True
    assert not mail.session.organization.receive_connectors["Default HUB-02"].accept_any_sender
    mail.run("Set-ReceiveConnector 'Client HUB-02' -CheckFromField $false")
    assert mail.values("Get-ReceiveConnector 'Client HUB-02'", "CheckFromField") == [False]
    with pytest.raises(ShellError, match="that right is no choice here"):
        mail.run(
            "Add-ADPermission 'Client HUB-02' -User ExchangeUsers -ExtendedRights ms-Exch-SMTP-Accept-Any-Recipient"
        )


def test_each_usage_has_its_defaults(mail: Stage) -> None:
    """exchange-facts 4.9, by parameter and by switch."""
    expected = {
        "Client": ("0.0.0.0:587", ("ExchangeUsers",), ("Tls", "BasicAuth", "BasicAuthRequireTLS")),
        "Internal": ("0.0.0.0:25", ("ExchangeServers",), ("Tls", "ExchangeServer")),
        "Internet": ("0.0.0.0:25", ("AnonymousUsers",), ("Tls",)),
        "Partner": ("0.0.0.0:25", ("Partners",), ("Tls",)),
        "Custom": ("0.0.0.0:25", (), ("Tls",)),
    }
    for number, (usage, (binding, groups, methods)) in enumerate(expected.items()):
        ranges = f"-RemoteIPRanges 10.9.{number}.0/24"
        (made,) = mail.run(f"New-ReceiveConnector 'By {usage}' -Server HUB-03 -Usage {usage.lower()} {ranges} -WhatIf")
        assert made.get("Bindings") == (binding, f"[::]:{binding[8:]}")
        assert (made.get("PermissionGroups"), made.get("AuthMechanism")) == (groups, methods)
    (made,) = mail.run("New-ReceiveConnector Relay -Server HUB-03 -Internet -Bindings 10.1.0.23:2525")
    assert made.get("Identity") == "HUB-03\\Relay"
    assert set(tables(mail, "receive_connectors")) >= {"Default HUB-03", "Client HUB-03", "Relay"}
    with pytest.raises(ShellError, match="one usage only"):
        mail.run("New-ReceiveConnector Two -Server HUB-03 -Client -Internal")


def test_lists_of_a_connector_are_added_to_and_taken_from(mail: Stage) -> None:
    """What is compared is what is meant, however it is written."""
    mail.run("Set-ReceiveConnector 'Printers HUB-01' -RemoteIPRanges @{Add='10.1.41.1-10.1.41.9'}")
    mail.run("Set-ReceiveConnector 'Printers HUB-01' -RemoteIPRanges @{Remove='10.1.40.0-10.1.40.255'}")
    assert mail.values("Get-ReceiveConnector 'Printers HUB-01'", "RemoteIPRanges") == [("10.1.41.1-10.1.41.9",)]
    mail.run("Set-ReceiveConnector 'Client HUB-01' -Bindings @{Add='10.1.0.21:2587'} -ImplicitTlsBindings $null")
    written = tables(mail, "receive_connectors")["Client HUB-01"]
    assert written["bindings"] == ["10.1.0.21:587", "10.1.0.21:2587"]
    assert written["implicit_tls_bindings"] == []


def test_words_may_stand_in_one_text(mail: Stage) -> None:
    """As the source system's enumerations: 'Tls, BasicAuth', and None."""
    mail.run("Set-ReceiveConnector 'Printers HUB-01' -PermissionGroups 'anonymoususers, Partners' -AuthMechanism Tls")
    written = tables(mail, "receive_connectors")["Printers HUB-01"]
    assert written["permission_groups"] == ["anonymous", "partners"]
    mail.run("Set-ReceiveConnector 'Printers HUB-01' -PermissionGroups None")
    assert tables(mail, "receive_connectors")["Printers HUB-01"]["permission_groups"] == []
    with pytest.raises(ShellError, match=r"-AuthMechanism takes Tls, BasicAuth, .* not 'Ntlm'"):
        mail.run("Set-ReceiveConnector 'Printers HUB-01' -AuthMechanism Ntlm")
    mail.run("Set-ReceiveConnector 'Printers HUB-01' -AuthMechanism 'Tls, Integrated'")
    assert tables(mail, "receive_connectors")["Printers HUB-01"]["authentication"] == ["tls", "kerberos"]


def test_plain_settings_of_a_connector(mail: Stage) -> None:
    """Numbers, spans, flags; the one that the source system has the other way round; `$null` is the default."""
    mail.run(
        "Set-ReceiveConnector 'Printers HUB-01' -TarpitInterval 00:00:00 -MaxRecipientsPerMessage 5 -RequireTLS $true "
        "-BareLinefeedRejectionEnabled $false -Fqdn print.contoso.com -MaxMessageSize $null"
    )
    (shown,) = mail.run("Get-ReceiveConnector 'Printers HUB-01'")
    names = ("TarpitInterval", "MaxRecipientsPerMessage", "RequireTLS", "BareLinefeedRejectionEnabled", "Fqdn")
    assert [shown.get(name) for name in names] == ["00:00:00", 5, True, False, "print.contoso.com"]
    assert "max_message_size" not in tables(mail, "receive_connectors")["Printers HUB-01"]


def test_a_servers_last_connector_is_not_removed(mail: Stage) -> None:
    """None would mean the standard ones."""
    mail.run("Remove-ReceiveConnector 'Client HUB-02' -Confirm:$false")
    assert mail.values("Get-ReceiveConnector -Server HUB-02", "Name") == ["Default HUB-02"]
    with pytest.raises(ShellError, match="only receive connector that the file lists for HUB-02"):
        mail.run("Remove-ReceiveConnector 'Default HUB-02' -Confirm:$false")


def test_a_connector_that_contradicts_another_is_refused(mail: Stage) -> None:
    """The whole is checked before anything is written."""
    before = mail.text
    with pytest.raises(ShellError, match="for the same clients as connector Default HUB-01"):
        mail.run("New-ReceiveConnector Twin -Server HUB-01 -Internal -Bindings 10.1.0.21:25")
    with pytest.raises(ShellError, match="is a receive connector of HUB-01, not of HUB-02"):
        mail.run("Set-ReceiveConnector 'HUB-02\\Default HUB-01' -Enabled $false")
    assert mail.text == before


# Send connectors


def test_a_send_connector_from_beginning_to_end(mail: Stage) -> None:
    """New, get, set, remove; the file keeps its other lines."""
    before = mail.text
    mail.run(
        "New-SendConnector 'To partner' -AddressSpaces 'SMTP:*.partner.com;5','partner.com' "
        "-SourceTransportServers hub-01,HUB-02.contoso.com -RequireTLS $true "
        "-SmartHosts '[10.0.0.1]:2525',relay.partner.com"
    )
    assert tables(mail, "send_connectors")["To partner"] == {
        "address_spaces": ["*.partner.com;5", "partner.com"],
        "source_servers": ["HUB-01", "HUB-02"],
        "smart_hosts": ["[10.0.0.1]:2525", "relay.partner.com"],
        "tls": "encrypted",
    }
    (shown,) = mail.run("Get-SendConnector 'to PARTNER'")
    assert shown.get("AddressSpaces") == ("SMTP:*.partner.com;5", "SMTP:partner.com;1")
    assert (shown.get("DNSRoutingEnabled"), shown.get("TlsAuthLevel")) == (False, "EncryptionOnly")
    mail.run("Set-SendConnector 'To partner' -DNSRoutingEnabled $true -AddressSpaces @{Remove='SMTP:partner.com;1'}")
    written = tables(mail, "send_connectors")["To partner"]
    assert ("smart_hosts" in written, written["address_spaces"]) == (False, ["*.partner.com;5"])
    mail.run("Get-SendConnector 'To partner' | Remove-SendConnector -Confirm:$false")
    assert mail.text == before


@pytest.mark.parametrize(
    ("parameters", "tls"),
    [
        ("-RequireTLS $true", "encrypted"),
        ("-TlsAuthLevel EncryptionOnly", "encrypted"),
        ("-TlsAuthLevel CertificateValidation", "verified"),
        ("-TlsAuthLevel DomainValidation -TlsDomain mail.example.com -RequireTLS $true", "verified"),
        ("-IgnoreSTARTTLS $true", "none"),
        ("-IgnoreSTARTTLS $false", None),
        ("-RequireTLS $false", "opportunistic"),
    ],
)
def test_what_the_three_parameters_for_tls_mean(mail: Stage, parameters: str, tls: str | None) -> None:
    """RequireTLS, IgnoreSTARTTLS and TlsAuthLevel are one setting here."""
    mail.run(f"Set-SendConnector 'To Internet' {parameters}")
    assert tables(mail, "send_connectors")["To Internet"].get("tls", "opportunistic") == (tls or "opportunistic")


def test_parameters_that_contradict_each_other(mail: Stage) -> None:
    """Refused before the file is touched."""
    for parameters, words in (
        ("-IgnoreSTARTTLS $true -RequireTLS $true", "does not go with"),
        ("-TlsAuthLevel EncryptionOnly -RequireTLS $false", "does not go with"),
        ("-DNSRoutingEnabled $true -SmartHosts relay.x.com", "either"),
        ("-DNSRoutingEnabled $false", "needs -SmartHosts"),
        ("-AddressSpaces *contoso.com", r"\*\.contoso\.com means the domain and all below it"),
        ("-MaxMessageSize big", "not a size"),
        ("-SourceTransportServers HUB-1", "there is no server 'HUB-1'; did you mean"),
    ):
        with pytest.raises(ShellError, match=words):
            mail.run(f"Set-SendConnector 'To Internet' {parameters}")
    assert mail.text == EXAMPLE.read_text()
    with pytest.raises(ShellError, match="-SourceTransportServers is needed"):
        mail.run("New-SendConnector X -AddressSpaces x.com")


def test_an_internal_connector_has_no_limit(mail: Stage) -> None:
    """exchange-facts 4.10."""
    mail.run("New-SendConnector In -Usage Internal -AddressSpaces x.com -SourceTransportServers HUB-01")
    assert mail.values("Get-SendConnector In", "MaxMessageSize") == ["Unlimited"]


# Hubs and edges


def test_the_retry_settings_by_cmdlet(mail: Stage) -> None:
    """QueueGlitchRetryInterval and Count beside the others, by either name of the cmdlet; the file has them."""
    mail.run("Set-TransportServer HUB-02 -QueueGlitchRetryCount 3 -QueueGlitchRetryInterval 00:02:00")
    mail.run("Set-TransportService hub-02.contoso.com -OutboundConnectionFailureRetryInterval 1.00:00:00")
    assert tables(mail, "servers")["HUB-02"]["transport"] == {
        "queue_glitch_retry_count": 3,
        "queue_glitch_retry_interval": "00:02:00",
        "outbound_connection_failure_retry_interval": "1.00:00:00",
    }
    settings = mail.session.organization.servers["HUB-02"].transport
    assert (settings.queue_glitch_retry_count, settings.queue_glitch_retry_interval) == (3, 120.0)
    assert settings.outbound_connection_failure_retry_interval == 86_400.0
    mail.run("Set-TransportServer HUB-02 -QueueGlitchRetryCount $null")
    assert mail.values("Get-TransportService HUB-02", "QueueGlitchRetryCount") == [4]


def test_an_edge_waits_longer_by_itself(mail: Stage) -> None:
    """10 and 30 minutes in place of 5 and 10 (SPEC T6)."""
    names = ("TransientFailureRetryInterval", "OutboundConnectionFailureRetryInterval", "QueueGlitchRetryInterval")
    shown = {str(thing.get("Name")): [thing.get(name) for name in names] for thing in mail.run("Get-TransportServer")}
    assert shown["HUB-01"] == ["00:05:00", "00:10:00", "00:01:00"]
    assert shown["EDGE-01"] == ["00:10:00", "00:30:00", "00:01:00"]
    assert len(shown) == 7


def test_settings_out_of_range_are_refused(mail: Stage) -> None:
    """As the source system's ranges say."""
    for parameters in (
        "-QueueGlitchRetryCount 16",
        "-TransientFailureRetryInterval 13:00:00",
        "-MessageExpirationTimeout 91.00:00:00",
        "-ConnectivityLogMaxFileSize 300MB",
    ):
        with pytest.raises(ShellError, match="The change is refused"):
            mail.run(f"Set-TransportServer HUB-02 {parameters}")
    with pytest.raises(ShellError, match="MBX-01 is no hub and no edge"):
        mail.run("Set-TransportServer MBX-01 -QueueGlitchRetryCount 1")


# Accepted domains


def test_accepted_domains(mail: Stage) -> None:
    """New, kinds, the default, remove."""
    assert mail.values("Get-AcceptedDomain", "DomainType") == ["Authoritative", "InternalRelay", "ExternalRelay"]
    mail.run("New-AcceptedDomain -Name Tailspin -DomainName tailspin.com -DomainType ExternalRelay")
    mail.run("Set-AcceptedDomain TAILSPIN.com -DomainType Authoritative -MakeDefault $true")
    mail.run("Set-AcceptedDomain fabrikam.com -DomainType ExternalRelay")
    organization = tables(mail, "organization")
    assert organization["accepted_domains"] == ["tailspin.com", "contoso.com", "fabrikam.com", "lists.contoso.com"]
    assert organization["accepted_domain_kinds"] == {
        "fabrikam.com": "external-relay",
        "lists.contoso.com": "external-relay",
    }
    mail.run("Remove-AcceptedDomain tailspin.com -Confirm:$false; Remove-AcceptedDomain fabrikam.com -Confirm:$false")
    assert mail.values("Get-AcceptedDomain", "Name") == ["contoso.com", "lists.contoso.com"]
    with pytest.raises(ShellError, match="already"):
        mail.run("New-AcceptedDomain Contoso.com")
    with pytest.raises(ShellError, match=r"no accepted domain 'x\.com'"):
        mail.run("Set-AcceptedDomain x.com -DomainType InternalRelay")


# Sites and links


def test_hub_sites_and_costs_of_links(mail: Stage) -> None:
    """HubSiteEnabled, ExchangeCost, MaxMessageSize, and back."""
    mail.run("Set-AdSite europe -HubSiteEnabled $true; Set-AdSiteLink usa-europe -ExchangeCost 50 -MaxMessageSize 10MB")
    assert mail.values("Get-AdSite", "HubSiteEnabled") == [False, True]
    (link,) = mail.run("Get-AdSiteLink")
    assert (link.get("Cost"), link.get("ExchangeCost"), link.get("MaxMessageSize")) == (
        10, 50, "10 MB (10,485,760 bytes)",
    )  # fmt: skip
    organization = mail.session.organization
    assert organization.site_links["usa-europe"].mail_cost == 50
    mail.run("Set-AdSite europe -HubSiteEnabled $false; Set-AdSiteLink usa-europe -ExchangeCost $null")
    assert "hub_site" not in tables(mail, "sites")["europe"]
    assert mail.session.organization.site_links["usa-europe"].mail_cost == 10
    with pytest.raises(ShellError, match="there is no site link 'x'"):
        mail.run("Set-AdSiteLink x -ExchangeCost 1")
    with pytest.raises(ShellError, match="say what to change"):
        mail.run("Set-AdSiteLink usa-europe")


def test_comments_and_order_stay(mail: Stage) -> None:
    """Each change alters its own lines only."""
    mail.run("Set-TransportServer EDGE-01 -MaxOutboundConnections 500; Set-SendConnector 'To lists' -Enabled $false")
    before, after = EXAMPLE.read_text().splitlines(), mail.text.splitlines()
    assert [line for line in after if line not in before] == ["max_outbound_connections = 500", "enabled = false"]
    assert [line for line in before if line not in after] == []


def test_every_parameter_is_described() -> None:
    """`Get-Help` has a line for each."""
    for name in all_cmdlets().names:
        if any(word in name for word in ("Connector", "Transport", "AcceptedDomain", "AdSite")):
            assert all(parameter.help for parameter in all_cmdlets().find(name).parameters), name
