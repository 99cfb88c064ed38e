"""`gatepost organization import-ad` against a real domain controller."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from ad_kit import SERVICE, Administrator, Domain
from click.testing import CliRunner, Result
from doors import Servers

from gatepost.cli.main import command as gatepost
from gatepost.configuration.load import load_organization
from gatepost.lab.servers.pki import CertificateAuthority
from gatepost.organization.model import AuthenticationMethod, DatabaseCopy, Organization, Role, Version

OLD_SITE = ("--site", "EX-OLD=usa")


def run(domain: Domain, file: Path, *arguments: str, ca: Path | None = None, name: str = SERVICE) -> Result:
    command = [
        "organization", "import-ad", "--organization", str(file), "--ldap", domain.server.url,
        "--ca", str(ca or domain.ca), "--bind-name", name, "--bind-password-file", str(domain.secret), *arguments,
    ]  # fmt: skip
    return CliRunner().invoke(gatepost, command)


def organization_of(file: Path) -> Organization:
    loaded = load_organization(str(file))
    assert not loaded.errors, loaded.findings
    assert loaded.organization is not None
    return loaded.organization


@pytest.fixture
def imported(domain: Domain, tmp_path: Path) -> Path:
    """A file that was made by an import."""
    file = tmp_path / "organization.toml"
    done = run(domain, file, *OLD_SITE, "--yes")
    assert done.exit_code == 0, done.output
    assert f"changed {file}" in done.output
    return file


@pytest.fixture
def administrator(domain: Domain) -> Iterator[Administrator]:
    with Administrator(domain) as found:
        yield found


def test_sites_with_subnets_links_and_costs(imported: Path) -> None:
    """Exchange's cost wins for mail, Active Directory's stays for everything else."""
    found = organization_of(imported)
    assert found.name == "Contoso"
    assert {"usa", "europe", "asia"} < set(found.sites)
    assert [str(net) for net in found.sites["asia"].subnets] == ["10.2.7.0/24", "fd00:3::/32"]
    assert [found.sites[name].hub_site for name in ("usa", "europe", "asia")] == [True, False, False]
    assert [found.sites[name].internet_facing for name in ("usa", "europe")] == [True, False]
    links = {name: (set(link.sites), link.cost, link.mail_cost) for name, link in found.site_links.items()}
    assert links == {"usa-europe": ({"usa", "europe"}, 10, 5), "europe-asia": ({"europe", "asia"}, 40, 40)}


@pytest.mark.parametrize(
    ("address", "site"),
    [("10.1.2.3", "usa"), ("10.2.6.1", "europe"), ("10.2.7.1", "asia"), ("fd00:3::9", "asia"), ("10.9.0.1", None)],
)
def test_a_client_is_in_the_site_of_the_longest_subnet(imported: Path, address: str, site: str | None) -> None:
    found = organization_of(imported).site_of_address(address)
    assert (found.name if found else None) == site


def test_servers_with_versions_roles_and_sites(imported: Path) -> None:
    servers = organization_of(imported).servers
    mailbox, door, hub = Role.MAILBOX, Role.CLIENT_ACCESS, Role.HUB_TRANSPORT
    assert {name: (s.site, s.version, s.roles) for name, s in servers.items()} == {
        "EX-CAS-01": ("usa", Version.V2010, {door, hub}),
        "EX-CAS-02": ("europe", Version.V2010, {door, hub}),
        "EX-MBX-01": ("usa", Version.V2010, {mailbox}),
        "EX-MBX-02": ("europe", Version.V2010, {mailbox}),
        "EX-16": ("asia", Version.MODERN, {mailbox}),
        "EX-07": ("asia", Version.V2007, {door, mailbox, hub}),
        "EX-OLD": ("usa", Version.V2003, {mailbox}),
    }
    assert servers["EX-MBX-01"].fqdn == "ex-mbx-01.contoso.com"


def test_databases_with_copies_by_preference(imported: Path) -> None:
    databases = organization_of(imported).databases
    assert databases["DB01"].copies == (DatabaseCopy("EX-MBX-01", 1), DatabaseCopy("EX-MBX-02", 2))
    assert databases["DB02"].copies == (DatabaseCopy("EX-MBX-02", 1), DatabaseCopy("EX-MBX-01", 2))
    assert databases["Mailbox Database 07"].copies == (DatabaseCopy("EX-07", 1),)


def test_virtual_directories_with_urls_and_methods(imported: Path) -> None:
    found = {d.path: d for d in organization_of(imported).directories_by_server["EX-CAS-01"]}
    owa = found["/owa"]
    assert (owa.internal_url, owa.external_url) == (
        "https://ex-cas-01.contoso.com/owa",
        "https://mail.contoso.com/owa",
    )
    assert owa.authentication == {AuthenticationMethod.BASIC, AuthenticationMethod.FORMS}
    assert found["/EWS"].authentication == {AuthenticationMethod.INTEGRATED}
    assert {"/exchange", "/AS"} < set(found), "of the standard set, what Active Directory does not have"
    assert "/PowerShell" not in found


def test_what_has_no_place_in_the_file_is_named(domain: Domain, tmp_path: Path) -> None:
    text = run(domain, tmp_path / "new.toml", "--dry-run").output
    for words in (
        "subnet 10.9.0.0/16: it is in no site",
        "server EX-2000: its version is 6.0",
        "server EX-OLD: its site is not known; say it with --site EX-OLD=SITE",
        "virtual directories PowerShell: 3 of them",
        "DAG-01: EX-MBX-01, EX-MBX-02",
    ):
        assert f"not mapped: {words}" in text


def test_a_dry_run_shows_the_change_and_makes_none(domain: Domain, tmp_path: Path) -> None:
    file = tmp_path / "new.toml"
    done = run(domain, file, "--dry-run")
    assert done.exit_code == 0
    assert "+[servers.EX-16]" in done.output
    assert not file.exists()


def test_without_a_terminal_nothing_is_written_unless_it_is_said(domain: Domain, tmp_path: Path) -> None:
    file = tmp_path / "new.toml"
    done = run(domain, file)
    assert done.exit_code == 1
    assert "nothing was changed: add --yes" in done.output
    assert not file.exists()


def test_the_second_import_changes_nothing(domain: Domain, imported: Path) -> None:
    before = imported.read_bytes()
    done = run(domain, imported, "--yes")
    assert done.exit_code == 0
    assert "nothing to change" in done.output
    assert imported.read_bytes() == before


def test_what_the_operator_has_added_stays(domain: Domain, imported: Path, administrator: Administrator) -> None:
    """Comments, keys, subnets, servers and copies of the file's own, while what changes in Active Directory follows."""
    text = imported.read_text().replace('["10.1.0.0/16"]', '["10.1.0.0/16", "192.0.2.0/24"]  # the fair')
    text = text.replace("[servers.EX-16]", '[servers.MBX-01]\nsite = "usa"\nroles = ["mailbox"]\n\n[servers.EX-16]')
    text = text.replace('fqdn = "ex-16.contoso.com"', 'fqdn = "ex-16.contoso.com"\naddress = "10.3.0.16"')
    text = text.replace(
        'copies = [{ server = "EX-16", preference = 1 }]',
        'copies = [{ server = "EX-16", preference = 1 }, { server = "MBX-01", preference = 2 }]',
    )
    imported.write_text(text)
    link, subnet = domain.entries.link("europe-asia"), domain.entries.subnet("10.2.7.0/24")
    owa = domain.entries.directory("EX-CAS-02", "owa")
    administrator.replace(link, "cost", "55")
    administrator.replace(subnet, "siteObject", domain.entries.site("usa"))
    administrator.replace(owa, "msExchInternalHostName", "https://owa.contoso.com/owa")
    try:
        done = run(domain, imported, "--yes")
    finally:
        administrator.replace(link, "cost", "40")
        administrator.replace(subnet, "siteObject", domain.entries.site("asia"))
        administrator.replace(owa, "msExchInternalHostName", "https://ex-cas-02.contoso.com/owa")
    assert done.exit_code == 0, done.output
    found = organization_of(imported)
    assert found.site_links["europe-asia"].cost == 55
    assert [str(net) for net in found.sites["usa"].subnets] == ["10.1.0.0/16", "192.0.2.0/24", "10.2.7.0/24"]
    assert [str(net) for net in found.sites["asia"].subnets] == ["fd00:3::/32"]
    assert found.databases["DB16"].copies == (DatabaseCopy("EX-16", 1), DatabaseCopy("MBX-01", 2))
    assert found.servers["EX-16"].address == "10.3.0.16"
    urls = {d.path: d.internal_url for d in found.directories_by_server["EX-CAS-02"]}
    assert urls["/owa"] == "https://owa.contoso.com/owa"
    assert "# the fair" in imported.read_text()
    assert "only in the file, kept: server MBX-01" in done.output
    assert "only in the file, kept: subnets of site usa: 192.0.2.0/24" in done.output


def test_two_databases_of_one_name_are_refused(domain: Domain, imported: Path, administrator: Administrator) -> None:
    """Users are placed by that name. Nothing is written, and the operator may leave both out."""
    before = imported.read_bytes()
    group = f"CN=First Storage Group,CN=InformationStore,{domain.entries.server('EX-07')}"
    second = f"CN=db01,{group}"
    owner = domain.entries.server("EX-07").encode()
    administrator.add(second, {"objectClass": [b"msExchPrivateMDB"], "msExchOwningServer": [owner]})
    try:
        done = run(domain, imported, "--yes")
        left_out = run(domain, imported, "--leave-out", "DB01", "--yes")
    finally:
        administrator.delete(second)
    assert done.exit_code == 1
    assert "there are two databases called" in done.output
    assert "First Storage Group" in done.output
    assert left_out.exit_code == 0, left_out.output
    assert "database DB01: left out, as you said" in left_out.output
    assert imported.read_bytes() == before


def test_the_sites_alone(domain: Domain, tmp_path: Path) -> None:
    file = tmp_path / "sites.toml"
    done = run(domain, file, "--only-sites", "--yes")
    assert done.exit_code == 0, done.output
    found = organization_of(file)
    assert "usa" in found.sites
    assert not found.servers


def test_who_cannot_be_believed_is_not_asked(domain: Domain, servers: Servers, tmp_path: Path) -> None:
    """A controller with a certificate of somebody else, and an account that it does not know."""
    stranger = CertificateAuthority.create(servers.scratch / "import-stranger").certificate
    for done in (
        run(domain, tmp_path / "new.toml", ca=stranger),
        run(domain, tmp_path / "new.toml", name="nobody@contoso.com"),
    ):
        assert done.exit_code != 0
        assert "no domain controller answers" in str(done.exception) + done.output
