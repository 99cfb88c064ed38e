"""The file's tables of transport: what is read, what need not be written, and faults with their lines."""

from __future__ import annotations

from dataclasses import fields, replace
from ipaddress import ip_address

import pytest
from configuration_samples import line_of
from example_files import example, load_example

from gatepost.configuration.build_transport import default_settings, standard_connectors
from gatepost.configuration.compare_organizations import organizations
from gatepost.configuration.settings import Configuration, FrontEnd
from gatepost.organization.model import Organization, Role
from gatepost.organization.transport import (
    EDGE_SETTINGS,
    HUB_SETTINGS,
    AddressSpace,
    Binding,
    DomainKind,
    PermissionGroup,
    ReceiveAuthentication,
    SmartHost,
    TlsLevel,
    TransportSettings,
)
from gatepost.organization.transport_text import read_range

MAIL = "mail-two-sites.toml"


def organization(**changes: str) -> Organization:
    """The example's, with texts replaced."""
    text = example(MAIL)
    for old, new in changes.items():
        text = text.replace(old, new)
    found = load_example(MAIL, text=text).organization
    assert found is not None
    return found


def findings(old: str, new: str) -> list[str]:
    """Errors of the example with one text replaced, from their lines on."""
    text = example(MAIL)
    assert old in text
    text = text.replace(old, new, 1)
    return [str(finding).split(":", 1)[1] for finding in load_example(MAIL, text=text).findings if finding.is_error]


def test_the_example_says_all_of_a_connector() -> None:
    """Bindings with and without TLS from the first byte, ranges, groups, spaces, hosts, kinds, settings."""
    found = organization()
    client = found.receive_connectors["Client HUB-01"]
    assert client.bindings == (
        Binding(ip_address("10.1.0.21"), 587),
        Binding(ip_address("10.1.0.21"), 465, implicit_tls=True),
    )
    printers = found.receive_connectors["Printers HUB-01"]
    assert printers.remote_ranges == (read_range("10.1.40.0/24"),)
    assert printers.permission_groups == {PermissionGroup.ANONYMOUS}
    assert printers.authentication == {ReceiveAuthentication.TLS}
    assert printers.max_message_size == 10 * 1024**2
    old = found.send_connectors["To old fabrikam"]
    assert (old.address_spaces, old.smart_hosts) == (
        (AddressSpace("fabrikam.com"),),
        (SmartHost("mail.old.fabrikam.com"),),
    )
    assert (old.tls, old.source_servers) == (TlsLevel.VERIFIED, ("HUB-04", "HUB-05", "HUB-06"))
    assert found.domain_kinds == {
        "contoso.com": DomainKind.AUTHORITATIVE,
        "fabrikam.com": DomainKind.INTERNAL_RELAY,
        "lists.contoso.com": DomainKind.EXTERNAL_RELAY,
    }
    assert found.site_links["usa-europe"].max_message_size == 30 * 1024**2
    assert found.servers["EDGE-01"].transport == replace(EDGE_SETTINGS, connectivity_log_enabled=True)
    assert found.servers["HUB-01"].transport == HUB_SETTINGS


def test_a_hub_that_lists_no_connector_has_the_standard_ones() -> None:
    """At its own endpoints; where it lists one, it has only that."""
    found = organization()
    assert {c.name for c in found.receive_connectors_by_server["HUB-02"]} == {"Default HUB-02", "Client HUB-02"}
    assert {c.name for c in found.receive_connectors_by_server["EDGE-01"]} == {
        "Default internal receive connector EDGE-01"
    }
    assert len(found.receive_connectors_by_server["HUB-01"]) == 3
    assert "CAS-01" not in found.receive_connectors_by_server


def test_passwords_are_never_taken_in_clear_by_a_standard_connector() -> None:
    """Whatever offers `basic` requires TLS for it."""
    for connector in organization().receive_connectors.values():
        if ReceiveAuthentication.BASIC in connector.authentication:
            assert ReceiveAuthentication.BASIC_REQUIRE_TLS in connector.authentication


def test_standard_connectors_listen_everywhere_where_the_address_is_a_name() -> None:
    """As in the source system: all addresses, both families."""
    server = organization().servers["HUB-02"]
    named = replace(server, endpoints=tuple(replace(e, address="hub-02.contoso.com") for e in server.endpoints))
    default = standard_connectors(named)[0]
    assert [str(binding.address) for binding in default.bindings] == ["0.0.0.0", "::"]


def test_a_hub_that_is_a_front_end_too_leaves_submission_to_that() -> None:
    """Two cannot listen at one port; port 25 is the hub's."""
    both = replace(organization().servers["HUB-02"], roles=frozenset({Role.HUB_TRANSPORT, Role.CLIENT_ACCESS}))
    assert [connector.name for connector in standard_connectors(both)] == ["Default HUB-02"]


def test_settings_of_hubs_and_edges() -> None:
    """By role (SPEC T6); a server that is both is no edge."""
    assert default_settings({Role.EDGE_TRANSPORT}) == EDGE_SETTINGS
    assert default_settings({Role.EDGE_TRANSPORT, Role.HUB_TRANSPORT}) == HUB_SETTINGS
    assert (EDGE_SETTINGS.transient_failure_retry_interval, HUB_SETTINGS.transient_failure_retry_interval) == (600, 300)
    outbound = "outbound_connection_failure_retry_interval"
    assert (getattr(EDGE_SETTINGS, outbound), getattr(HUB_SETTINGS, outbound)) == (1800, 600)


def test_every_setting_is_a_key_of_the_file() -> None:
    """None of `TransportSettings` is left out, and what is written is what counts."""
    written = {
        field.name: 7 if isinstance(field.default, int) and not isinstance(field.default, bool) else field.default
        for field in fields(TransportSettings)
    }
    written |= {"healthy_server_selector": False, "connectivity_log_enabled": True, "message_expiration": 500_000.0}
    written |= {"queue_glitch_retry_interval": 61.5}
    lines = "\n".join(f"{key} = {str(value).lower()}" for key, value in written.items())
    found = organization(**{"connectivity_log_enabled = true": lines})
    assert found.servers["EDGE-01"].transport == TransportSettings(**written)  # type: ignore[arg-type]


def test_times_and_sizes_are_numbers_or_texts() -> None:
    """Both mean the same."""
    plain = organization(**{'max_message_size = "10MB"': "max_message_size = 10485760"})
    assert plain == organization()
    spans = "connectivity_log_enabled = true\nmessage_retry_interval = {}"
    one, other = (
        organization(**{"connectivity_log_enabled = true": spans.format(value)}) for value in ('"00:10:00"', "600")
    )
    assert one == other


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            'bindings = ["10.1.0.21:587"]', 'bindings = ["10.1.0.21"]',
            ('receive connector Client HUB-01: entry 1 of "bindings" has "10.1.0.21", which is not an address with a '
            'port, such as "0.0.0.0:25" or "[::]:25"; write it like "0.0.0.0:25"'),
        ),
        (
            'remote_ranges = ["10.1.40.0/24"]', 'remote_ranges = ["10.1.40.9-10.1.40.1"]',
            ('receive connector Printers HUB-01: entry 1 of "remote_ranges" has "10.1.40.9-10.1.40.1", which is an '
            'address range whose end comes before its beginning; write it like "10.0.0.0/8"'),
        ),
        (
            'address_spaces = ["*"]', 'address_spaces = ["*contoso.com"]',
            ('send connector To Internet: entry 1 of "address_spaces" has "*contoso.com", which has a star that no dot '
            'follows: *.contoso.com means the domain and all below it; write it like "*.contoso.com;5"'),
        ),
        (
            'permission_groups = ["anonymous"]', 'permission_groups = ["anonymus"]',
            ('receive connector Printers HUB-01: entry 1 of "permission_groups" has the unknown word "anonymus"; did '
            'you mean "anonymous"? Words are: anonymous, users, servers, partners'),
        ),
        (
            'max_message_size = "10MB"', 'max_message_size = "10MX"',
            ('receive connector Printers HUB-01: "max_message_size" has "10MX", which is not a size such as 35MB; '
            'write it like "35MB"'),
        ),
        (
            "connectivity_log_enabled = true", "queue_glitch_retry_count = 16",
            'server EDGE-01: "queue_glitch_retry_count" is out of range; make it 15 or less',
        ),
        (
            'tls = "verified"', 'tsl = "verified"',
            ('send connector To old fabrikam: unknown key "tsl"; keys here are: address_spaces, '
            "source_servers, smart_hosts, port, scoped, enabled, tls, tls_domain, user, password_file, "
            "max_message_size, max_messages_per_connection, inactivity_seconds, fqdn, allow_private"),
        ),
    ],
)  # fmt: skip
def test_faults_of_shape(old: str, new: str, expected: str) -> None:
    """With the line, the object, the fault and the remedy."""
    text = example(MAIL).replace(old, new, 1)
    key = new.partition(" =")[0]
    line = line_of(text, new)
    assert key in text.splitlines()[line - 1]
    (found,) = findings(old, new)
    assert found == f"{line}: {expected}"


def test_a_fault_of_two_connectors_has_its_line() -> None:
    """The check's findings point at the file too."""
    (found,) = findings('remote_ranges = ["10.1.40.0/24"]\n', "")
    line = line_of(example(MAIL).replace('remote_ranges = ["10.1.40.0/24"]\n', ""), 'Printers HUB-01"]')
    assert found.startswith(f"{line}: receive connector Printers HUB-01: is for the same clients as connector Default")


def test_a_relays_password_is_read_from_its_file() -> None:
    """And is in no text of the value."""
    old = 'tls = "verified"'
    found = organization(**{old: f'{old}\nuser = "contoso"\npassword_file = "secrets/master"'})
    connector = found.send_connectors["To old fabrikam"]
    assert connector.password == "secret"
    assert "secret" not in repr(connector)


def test_files_that_differ_in_transport_are_told_apart() -> None:
    """Front ends and hubs of one organization must agree on it."""
    one = organization()

    def difference(other: Organization) -> str:
        front_ends = {
            name: Configuration(each, FrontEnd("CAS-01", "", "")) for name, each in (("a.toml", one), ("b.toml", other))
        }
        return "".join(finding.finding.message for finding in organizations(front_ends)).partition("a.toml: ")[2]

    send, receive = one.send_connectors, one.receive_connectors
    assert difference(one) == ""
    changed = replace(send["To lists"], port=26)
    assert (
        difference(replace(one, send_connectors=send | {"To lists": changed}))
        == "send connector To lists differs in port"
    )
    less = {name: each for name, each in receive.items() if name != "Printers HUB-01"}
    assert difference(replace(one, receive_connectors=less)) == "receive connector Printers HUB-01 is missing"
    assert difference(replace(one, accepted_domain_kinds={})) == "accepted_domain_kinds differs"
    hub = replace(one.servers["HUB-01"], transport=replace(HUB_SETTINGS, poison_threshold=5))
    assert difference(replace(one, servers=one.servers | {"HUB-01": hub})) == "server HUB-01 differs in transport"
