"""The examples are sound, and say what is missing where their files are not there."""

from __future__ import annotations

import pytest
from configuration_samples import NOW
from example_files import EXAMPLES, load_example

from gatepost.configuration.load import load
from gatepost.organization.model import AuthenticationMethod, Protocol, Role
from gatepost.routing.decision import ActiveCopy, Mailbox, Proxy, Redirect, Refuse, Request, Serve, decide

FINDINGS = {
    "two-dovecots.toml": [
        "warning: database DB01: has one copy only, on mb-1: if that server is lost, nothing takes over",
        "warning: database DB02: has one copy only, on mb-2: if that server is lost, nothing takes over",
    ],
    "contoso.toml": [],
    "exchange-2010-proxying.toml": [],
    "exchange-2010-redirection.toml": [],
    "exchange-2010-nlb.toml": [],
    "exchange-2010-three-sites.toml": [],
    "mail-two-sites.toml": [],
    "hub.toml": [
        "warning: server HUB-01: is the only hub of site main: nobody there can keep shadows of its mail",
        "warning: database DB01: has one copy only, on MBX-01: if that server is lost, nothing takes over",
    ],
}


@pytest.mark.parametrize(("name", "expected"), FINDINGS.items())
def test_examples_give_the_findings_they_speak_of(name: str, expected: list[str]) -> None:
    """No errors, and only the warnings that their comments explain."""
    loaded = load_example(name)
    texts = [str(finding).split(": ", 1)[1].partition(";")[0] for finding in loaded.findings]
    assert texts == expected
    assert loaded.configuration is not None


def test_every_example_is_tested() -> None:
    """A new one needs its line above."""
    assert {path.name for path in EXAMPLES.glob("*.toml")} == FINDINGS.keys()


def test_the_figure_of_the_sources() -> None:
    """Three sites, CAS-01 and CAS-02 Internet-facing and CAS-03 not, a mailbox server and a database in each."""
    organization = load_example("contoso.toml").require().organization
    servers = organization.servers
    facing = {name: organization.sites[servers[name].site].internet_facing for name in ("CAS-01", "CAS-02", "CAS-03")}
    assert facing == {"CAS-01": True, "CAS-02": True, "CAS-03": False}
    for number in ("01", "02", "03"):
        assert servers[f"MBX-{number}"].roles == {Role.MAILBOX}
        assert servers[f"MBX-{number}"].site == servers[f"CAS-{number}"].site
        assert organization.databases[f"DB{number}"].copies[0].server == f"MBX-{number}"
    external = {directory.server for directory in organization.virtual_directories if directory.external_url}
    assert external == {"CAS-01", "CAS-02"}


@pytest.mark.parametrize(
    ("name", "server"),
    [
        ("contoso.toml", "CAS-02"),
        ("contoso.toml", "CAS-03"),
        ("exchange-2010-proxying.toml", "CAS-02"),
        ("exchange-2010-redirection.toml", "CAS-02"),
        ("exchange-2010-three-sites.toml", "CAS-03"),
        ("exchange-2010-nlb.toml", "CAS-05"),
    ],
)
def test_the_other_front_ends_run_from_the_same_file(name: str, server: str) -> None:
    """By the option `--server`, as the file says."""
    loaded = load_example(name, server)
    assert loaded.findings == ()
    assert loaded.require().server.name == server


def test_missing_files_are_named_one_by_one() -> None:
    """A reader who has only the example learns what to put where."""
    found = [str(finding) for finding in load(str(EXAMPLES / "two-dovecots.toml"), now=NOW).findings]
    for missing in ("pki/mail.example.com.crt", "pki/mail.example.com.key", "pki/ca.crt", "secrets/master"):
        assert any(f"{missing} cannot be read: No such file or directory" in line for line in found)


URLS = {
    "owa": "OWA",
    "Microsoft-Server-ActiveSync": "Microsoft-Server-ActiveSync",
    "EWS": "EWS",
    "AS": "AS",
}


@pytest.mark.parametrize(
    ("name", "external"),
    [
        ("exchange-2010-proxying.toml", {"CAS-01": "www.contoso.com", "CAS-02": None}),
        ("exchange-2010-redirection.toml", {"CAS-01": "www.usa.contoso.com", "CAS-02": "www.europe.contoso.com"}),
        ("exchange-2010-three-sites.toml", {"CAS-01": "www.usa.contoso.com", "CAS-03": None}),
    ],
)
def test_the_sources_tables_of_internal_and_external_urls(name: str, external: dict[str, str | None]) -> None:
    """Every service at the computer's name; external URLs on Internet-facing servers only."""
    organization = load_example(name).require().organization
    for server, host in external.items():
        found = {d.service: d for d in organization.directories_by_server[server]}
        assert found.keys() == URLS.keys()
        for service, word in URLS.items():
            assert found[service].internal_url == f"https://{server.lower()}.contoso.com/{word}"
            assert found[service].external_url == (f"https://{host}/{word}" if host else None)
            assert AuthenticationMethod.INTEGRATED in found[service].authentication


def test_the_sources_two_sites_with_several_servers_each() -> None:
    """CAS-01 and CAS-02 before the Internet; CAS-03, CAS-04 and CAS-05 without one external URL."""
    organization = load_example("exchange-2010-nlb.toml").require().organization
    members = [array.members for array in organization.arrays.values()]
    assert members == [("CAS-01", "CAS-02"), ("CAS-03", "CAS-04", "CAS-05")]
    external = {d.server for d in organization.virtual_directories if d.external_url}
    assert external == {"CAS-01", "CAS-02"}
    for directory in organization.virtual_directories:
        if directory.server.startswith("CAS"):
            assert directory.peer_url is not None
            assert directory.peer_url.startswith(f"https://{directory.server.lower()}.contoso.com/")


ASKED = {
    ("user1", "CAS-01", "/owa"): "Serve MBX-01",
    ("user1", "CAS-02", "/owa"): "Redirect https://www.usa.contoso.com/OWA",
    ("user1", "CAS-02", "/Microsoft-Server-ActiveSync"): (
        "Redirect https://www.usa.contoso.com/Microsoft-Server-ActiveSync"
    ),
    ("user1", "CAS-02", "/EWS"): "Proxy CAS-01",
    ("user2", "CAS-01", "/owa"): "Redirect https://www.europe.contoso.com/OWA",
    ("user3", "CAS-01", "/owa"): "Proxy CAS-03",
    ("user3", "CAS-02", "/Microsoft-Server-ActiveSync"): "Proxy CAS-03",
    ("user3", "CAS-03", "/owa"): "Serve MBX-03",
    ("user4", "CAS-03", "/exchange"): "Proxy BE-01",
    ("user4", "CAS-01", "/exchange"): "Serve BE-01",
    ("user4", "CAS-02", "/owa"): "Refuse old mailbox",
    ("user1", "CAS-02", "/exchange"): "Redirect /owa",
}


@pytest.mark.parametrize(("asked", "outcome"), ASKED.items(), ids=" ".join)
def test_the_figures_users_go_where_its_comments_say(asked: tuple[str, str, str], outcome: str) -> None:
    """exchange-2010-three-sites.toml."""
    user, front_end, path = asked
    organization = load_example("exchange-2010-three-sites.toml").require().organization
    number = user[-1]
    mailbox = Mailbox(home_server="BE-01") if number == "4" else Mailbox(f"DB0{number}")
    active = None if number == "4" else ActiveCopy(f"DB0{number}", f"MBX-0{number}", 1)
    decision = decide(organization, Request(Protocol.HTTPS, front_end, path), mailbox, active)
    match decision:
        case Refuse(cause=cause):
            found = f"Refuse {cause.value}"
        case Redirect(location=location):
            found = f"Redirect {location}"
        case Serve(target=target) | Proxy(target=target):
            found = f"{type(decision).__name__} {target.server}"
    assert found == outcome
