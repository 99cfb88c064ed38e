"""Bringing a found Exchange organization into a file: what is written, what stays, what is named."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
from exchange_stage import captured
from shell_stage import Operator

from gatepost.directory.exchange.found import Found, FoundDatabase, FoundDirectory, FoundLink, FoundServer, FoundSite
from gatepost.directory.exchange.mapping import found_in
from gatepost.organization.model import AuthenticationMethod, Role, Version
from gatepost.shell.errors import ShellError
from gatepost.shell.importing import Import
from gatepost.shell.session import Session

NEW = '[organization]\nname = "contoso"\n'
MAILBOX = frozenset({Role.MAILBOX})
DOOR = frozenset({Role.CLIENT_ACCESS})
USA = FoundSite("usa", (ip_network("10.1.0.0/16"),))
EX = FoundServer("EX-01", "ex-01.contoso.com", "usa", Version.V2010, MAILBOX)
CAS = FoundServer("EX-02", "ex-02.contoso.com", "usa", Version.V2010, DOOR)
OWA = FoundDirectory("EX-02", "owa", "/owa", "owa (Default Web Site)", "https://ex-02.contoso.com/owa")
SMALL = Found(
    "Contoso", sites={"usa": USA}, servers={"EX-01": EX}, databases={"DB01": FoundDatabase("DB01", (("EX-01", 1),))}
)


class File:
    """An organization's file, and imports into it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "organization.toml"
        self.path.write_text(NEW)
        self.notes: list[str] = []

    def bring(self, found: Found, *, what_if: bool = False) -> str:
        """What is said of the change."""
        operator = Operator()
        session = Session(str(self.path), operator, alone=True)
        running = Import(found)
        with session.statement():
            running.run(session, what_if=what_if)
        self.notes = running.notes
        return "\n".join(operator.said)

    @property
    def data(self) -> dict[str, Any]:
        return tomllib.loads(self.path.read_text())

    def noted(self, words: str) -> bool:
        return any(words in note for note in self.notes)


@pytest.fixture
def file(tmp_path: Path) -> File:
    return File(tmp_path)


def test_the_whole_forest_twice_and_the_second_time_nothing(file: File) -> None:
    found = found_in(captured(), said_sites={"EX-OLD": "usa"})
    file.bring(found)
    before = file.path.read_bytes()
    assert len(file.data["servers"]) == 7
    assert file.bring(found, what_if=True) == ""
    file.bring(found)
    assert file.path.read_bytes() == before


def test_a_what_if_shows_the_lines_and_writes_none(file: File) -> None:
    said = file.bring(SMALL, what_if=True)
    assert "+[servers.EX-01]" in said
    assert file.path.read_text() == NEW


def test_names_are_the_file_s_where_case_alone_differs(file: File) -> None:
    file.path.write_text(
        f'{NEW}\n[sites.USA]\n\n[servers.ex-01]\nsite = "USA"\nroles = ["mailbox"]\nversion = "2010"\n'
    )
    file.bring(SMALL)
    assert file.data["sites"] == {"USA": {"subnets": ["10.1.0.0/16"]}}
    assert list(file.data["servers"]) == ["ex-01"]
    assert file.noted("server ex-01: Active Directory spells it EX-01")
    assert not file.noted("site USA")
    assert file.data["databases"]["DB01"]["copies"] == [{"server": "ex-01", "preference": 1}]


def test_a_server_s_site_version_and_roles_follow_and_the_rest_stays(file: File) -> None:
    file.bring(SMALL)
    text = file.path.read_text().replace(
        'roles = ["mailbox"]', 'roles = ["mailbox", "hub-transport"]  # since May\nmax_connections = 7'
    )
    file.path.write_text(text)
    moved = replace(EX, site="asia", version=Version.MODERN, fqdn="other.contoso.com")
    file.bring(replace(SMALL, sites={"usa": USA, "asia": FoundSite("asia")}, servers={"EX-01": moved}))
    server = file.data["servers"]["EX-01"]
    assert server["site"] == "asia"
    assert "version" not in server
    assert server["roles"] == ["mailbox", "hub-transport"]
    assert (server["max_connections"], server["fqdn"]) == (7, "ex-01.contoso.com")
    assert "# since May" in file.path.read_text()
    assert file.noted("roles of server EX-01: hub-transport")
    assert file.noted("the file calls it ex-01.contoso.com, Active Directory other.contoso.com; kept")


def test_a_role_that_is_missing_is_added(file: File) -> None:
    file.bring(SMALL)
    both = replace(EX, roles=MAILBOX | {Role.HUB_TRANSPORT})
    file.bring(replace(SMALL, servers={"EX-01": both}))
    assert file.data["servers"]["EX-01"]["roles"] == ["mailbox", "hub-transport"]


def test_a_hub_site_is_set_and_taken_back_only_where_exchange_says_so(file: File) -> None:
    for hub, wanted in ((True, True), (None, True), (False, None), (None, None)):
        file.bring(Found(sites={"usa": replace(USA, hub_site=hub)}))
        assert file.data["sites"]["usa"].get("hub_site") == wanted


def test_a_link_s_costs_follow_and_what_is_not_set_stays(file: File) -> None:
    sites = {"usa": USA, "asia": FoundSite("asia")}
    link = FoundLink("l", ("asia", "usa"), 100, 7)
    file.bring(Found(sites=sites, site_links={"l": link}))
    file.path.write_text(file.path.read_text() + 'max_message_size = "10MB"\n')
    file.bring(Found(sites=sites, site_links={"l": replace(link, cost=10, exchange_cost=None)}))
    assert file.data["site_links"]["l"] == {
        "sites": ["asia", "usa"], "cost": 10, "exchange_cost": 7, "max_message_size": "10MB",
    }  # fmt: skip


def test_a_subnet_that_went_to_another_site_leaves_the_first(file: File) -> None:
    """Or the file would have it in two."""
    file.bring(SMALL)
    asia = FoundSite("asia", USA.subnets)
    file.bring(replace(SMALL, sites={"usa": FoundSite("usa"), "asia": asia}))
    assert file.data["sites"] == {"usa": {}, "asia": {"subnets": ["10.1.0.0/16"]}}


def test_copies_follow_those_of_the_file_s_own_servers_stay(file: File) -> None:
    second = replace(EX, name="EX-02", fqdn="ex-02.contoso.com")
    found = replace(SMALL, servers={"EX-01": EX, "EX-02": second})
    file.bring(found)
    text = file.path.read_text().replace(
        '{ server = "EX-01", preference = 1 }',
        '{ server = "EX-01", preference = 1 }, { server = "DC-01", preference = 9 }',
    )
    file.path.write_text(text + '\n[servers.DC-01]\nsite = "usa"\nroles = ["mailbox"]\n')
    copies = FoundDatabase("DB01", (("EX-02", 1), ("EX-01", 2)))
    file.bring(replace(found, databases={"DB01": copies}))
    servers = [copy["server"] for copy in file.data["databases"]["DB01"]["copies"]]
    assert servers == ["EX-02", "EX-01", "DC-01"]
    assert file.noted("copies of database DB01 on DC-01")
    with pytest.raises(ShellError, match="Give it another one"):
        file.bring(replace(found, databases={"DB01": FoundDatabase("DB01", (("EX-02", 9),))}))


# --- virtual directories


def _with(*directories: FoundDirectory, server: FoundServer = CAS) -> Found:
    return Found("Contoso", sites={"usa": USA}, servers={server.name: server}, directories=directories)


def _directory(file: File, path: str = "owa") -> dict[str, Any]:
    (found,) = (entry for entry in file.data["virtual_directories"] if entry["service"] == path)
    return found


def test_a_directory_s_urls_follow_and_the_operator_s_settings_stay(file: File) -> None:
    file.bring(_with(OWA))
    text = file.path.read_text().replace('service = "owa"', 'service = "owa"\nredirect_to_optimal_owa_server = false')
    file.path.write_text(text)
    forms = frozenset({AuthenticationMethod.FORMS})
    file.bring(_with(replace(OWA, internal_url="https://a.contoso.com/owa", authentication=forms)))
    owa = _directory(file)
    assert owa["internal_url"] == "https://a.contoso.com/owa"
    assert owa["authentication"] == ["forms"]
    assert owa["redirect_to_optimal_owa_server"] is False


def test_an_url_that_only_the_file_has_stays(file: File) -> None:
    file.bring(_with(replace(OWA, external_url="https://mail.contoso.com/owa")))
    assert file.data["sites"]["usa"]["internet_facing"] is True
    file.bring(_with(OWA))
    assert _directory(file)["external_url"] == "https://mail.contoso.com/owa"
    assert file.noted("only in the file, kept: external_url of owa (Default Web Site) of EX-02")


def test_a_directory_that_only_the_file_has_stays(file: File) -> None:
    ecp = replace(OWA, service="ecp", path="/ecp", name="ecp (Default Web Site)")
    file.bring(_with(OWA, ecp))
    file.bring(_with(OWA))
    assert _directory(file, "ecp")
    assert file.noted("only in the file, kept: virtual directories of EX-02: /ecp")


def test_of_the_standard_set_comes_what_active_directory_never_has(file: File) -> None:
    """A front end of 2010 has the four old paths and the Availability service without an entry of their own."""
    file.bring(_with(OWA))
    assert {entry["service"] for entry in file.data["virtual_directories"]} == {
        "owa", "AS", "exchange", "public", "exchweb",
    }  # fmt: skip
    exchange = replace(OWA, service="exchange", path="/Exchange", name="Exchange (Default Web Site)")
    other = File(file.path.parent)
    other.bring(_with(OWA, exchange))
    assert sum(entry["service"] == "exchange" for entry in other.data["virtual_directories"]) == 1


def test_a_modern_server_without_an_internal_url_is_reached_by_its_name(file: File) -> None:
    modern = replace(CAS, version=Version.MODERN, roles=MAILBOX)
    file.bring(_with(replace(OWA, internal_url=None), server=modern))
    assert _directory(file)["internal_url"] == "https://ex-02.contoso.com/owa"
    assert file.noted("it has no internal URL; its host name is taken")


def test_a_server_without_an_https_endpoint_gets_no_directories(file: File) -> None:
    file.path.write_text(
        f'{NEW}\n[servers.EX-02]\nsite = "usa"\nroles = ["client-access"]\nversion = "2010"\n\n[sites.usa]\n'
    )
    file.bring(_with(OWA))
    assert "virtual_directories" not in file.data
    assert file.noted("server EX-02: it has no https endpoint")


def test_what_the_check_refuses_is_not_written(file: File) -> None:
    wrong = Found(sites={"usa": USA}, site_links={"l": FoundLink("l", ("usa", "mars"))})
    before = file.path.read_bytes()
    with pytest.raises(ShellError, match="mars"):
        file.bring(wrong)
    assert file.path.read_bytes() == before
