"""Whom a hub asks to hold copies (SPEC S1; exchange-facts 4.4, 2013)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from gatepost.organization.model import (
    Database,
    DatabaseCopy,
    Endpoint,
    Organization,
    Protocol,
    Role,
    Server,
    Site,
    TlsMode,
    Version,
)
from gatepost.organization.transport import ShadowPreference, TransportConfig
from gatepost.transport.shadow.partners import Partners

SMTP = Endpoint("smtp", Protocol.SMTP, "127.0.0.1", 25, TlsMode.STARTTLS, "")
LMTP = Endpoint("lmtp", Protocol.LMTP, "127.0.0.1", 24, TlsMode.STARTTLS, "")


def server(name: str, site: str, *, version: Version = Version.MODERN, role: Role = Role.HUB_TRANSPORT,
           endpoint: Endpoint = SMTP) -> Server:  # fmt: skip
    return Server(name, site, name, name, version, frozenset({role}), (endpoint,))


def organization(*more: Server, **settings: object) -> Organization:
    servers = [server(f"u{i}", "usa") for i in range(1, 5)] + [server(f"e{i}", "europe") for i in range(1, 4)]
    servers += [server("m1", "usa", role=Role.MAILBOX, endpoint=LMTP)]
    servers += [server("m2", "europe", role=Role.MAILBOX, endpoint=LMTP), *more]
    return Organization(
        "o",
        sites={site: Site(site) for site in ("usa", "europe", "asia")},
        servers={each.name: each for each in servers},
        databases={
            "DB1": Database("DB1", (DatabaseCopy("m1", 1),)),
            "DB2": Database("DB2", (DatabaseCopy("m1", 1), DatabaseCopy("m2", 2))),
        },
        transport_config=TransportConfig(**settings),  # type: ignore[arg-type]
    )


def up(_hub: str) -> bool:
    return True


def test_a_copy_is_made_in_the_hubs_own_site_two_hubs_are_tried() -> None:
    found = Partners(organization(), "u1").choose(["DB1"], up)
    assert len(found) == 2
    assert set(found) <= {"u2", "u3", "u4"}


def test_never_ourselves_never_an_old_version_never_a_server_that_is_no_hub() -> None:
    old = server("u9", "usa", version=Version.V2010)
    edge = server("u8", "usa", role=Role.EDGE_TRANSPORT)
    deaf = server("u7", "usa", endpoint=LMTP)
    partners = Partners(organization(old, edge, deaf, max_retries_for_local_site_shadow=99), "u1")
    assert sorted(partners.choose([], up)) == ["u2", "u3", "u4"]


def test_old_hubs_of_a_site_without_others_are_no_partners() -> None:
    partners = Partners(organization(server("a1", "asia"), server("a2", "asia", version=Version.V2010)), "a1")
    assert partners.choose([], up) == []
    assert partners.alone


def test_for_a_database_of_several_sites_another_site_is_preferred() -> None:
    found = Partners(organization(), "u1").choose(["DB2"], up)
    assert {hub[0] for hub in found[:3]} == {"e"}
    assert {hub[0] for hub in found[3:]} == {"u"}
    assert len(found) == 3 + 2


def test_the_numbers_of_hubs_that_are_tried_are_settings() -> None:
    both = {"max_retries_for_remote_site_shadow": 1, "max_retries_for_local_site_shadow": 1}
    found = Partners(organization(**both), "u1").choose(["DB2"], up)
    assert [hub[0] for hub in found] == ["e", "u"]
    none = {"max_retries_for_remote_site_shadow": 0, "max_retries_for_local_site_shadow": 0}
    assert Partners(organization(**none), "u1").choose(["DB2"], up) == []


def test_local_only_stays_in_the_site() -> None:
    setting = {"shadow_message_preference": ShadowPreference.LOCAL_ONLY}
    found = Partners(organization(**setting), "u1").choose(["DB2"], up)
    assert {hub[0] for hub in found} == {"u"}


def test_remote_only_does_without_the_own_site() -> None:
    setting = {"shadow_message_preference": ShadowPreference.REMOTE_ONLY, "max_retries_for_local_site_shadow": 2}
    partners = Partners(organization(**setting), "u1")
    assert {hub[0] for hub in partners.choose(["DB2"], up)} == {"e"}
    assert partners.choose(["DB2"], lambda hub: hub.startswith("u")) == []


@pytest.mark.parametrize("preference", list(ShadowPreference))
def test_the_setting_is_only_for_databases_of_several_sites(preference: ShadowPreference) -> None:
    found = Partners(organization(shadow_message_preference=preference), "u1").choose(["DB1"], up)
    assert {hub[0] for hub in found} == {"u"}


def test_hubs_take_turns() -> None:
    partners = Partners(organization(), "u1")
    first = Counter(partners.choose([], up)[0] for _ in range(300))
    assert first == {"u2": 100, "u3": 100, "u4": 100}


def test_hubs_that_are_down_are_left_out_and_the_others_share_their_turns() -> None:
    partners = Partners(organization(), "u1")
    first = Counter(partners.choose([], lambda hub: hub != "u3")[0] for _ in range(300))
    assert first == {"u2": 150, "u4": 150}
    assert partners.choose([], lambda _hub: False) == []


def test_switched_off_nobody_is_asked() -> None:
    assert Partners(organization(shadow_redundancy_enabled=False), "u1").choose(["DB2"], up) == []


def test_another_organization_counts_from_the_next_copy_on() -> None:
    before = organization()
    partners = Partners(before, "u1")
    partners.configure(replace(before, servers={k: v for k, v in before.servers.items() if k not in {"u2", "u3"}}))
    assert partners.choose([], up) == ["u4"]
    assert not partners.alone


def test_a_hub_that_the_organization_does_not_know_has_no_partners() -> None:
    assert Partners(organization(), "x").choose([], up) == []
