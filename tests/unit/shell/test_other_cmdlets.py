"""Cmdlets for servers, arrays, sites, databases, copies and mailboxes."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from configuration_samples import authority, chain, leaf
from shell_stage import EXAMPLES, Operator, Stage, contoso

from gatepost.activemanager.seed import seed
from gatepost.activemanager.sqlite import SqliteRegistry
from gatepost.directory.editing import DirectoryEditor
from gatepost.shell.errors import ShellError
from gatepost.shell.session import Session

BEFORE = (EXAMPLES / "contoso.toml").read_text()


@pytest.fixture
def service(tmp_path: Path) -> Stage:
    """The example as a front end's configuration, with directory, registry and certificates."""
    stage = contoso(tmp_path)
    (tmp_path / "pki").mkdir()
    (tmp_path / "state").mkdir()
    front = leaf("www.usa.contoso.com", "cas-01.contoso.com")
    (tmp_path / "pki/front.crt").write_bytes(chain(front))
    (tmp_path / "pki/front.key").write_bytes(front.private_key_pem.bytes())
    (tmp_path / "pki/ca.crt").write_bytes(authority().cert_pem.bytes())
    stage.session = Session(str(stage.path), stage.operator)
    with stage.session.statement():
        seed(stage.session.registry, stage.session.organization)
    return stage


def _tables(stage: Stage, kind: str) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = tomllib.loads(stage.text).get(kind, {})
    return found


# Servers, arrays, sites


def test_servers_sites_and_the_organization(stage: Stage) -> None:
    """Looking only."""
    assert stage.values("Get-ClientAccessServer", "Name") == ["CAS-01", "CAS-02", "CAS-03"]
    assert stage.values("Get-ExchangeServer mbx-01.contoso.com", "ServerRole") == [("mailbox",)]
    assert stage.values("Get-AdSite | Where-Object { $_.InternetFacing }", "Name") == ["usa", "europe"]
    assert stage.values("Get-OrganizationConfig", "AcceptedDomains") == [("contoso.com",)]
    with pytest.raises(ShellError, match="MBX-01 is no client-access server"):
        stage.run("Get-ClientAccessServer MBX-01")


def test_a_new_front_end_has_its_internal_urls(stage: Stage) -> None:
    """Adding a server fills them (SPEC O3), unlike adding a directory."""
    stage.run("New-ClientAccessServer CAS-04 -Site asia -Fqdn cas-04.contoso.com -Protocols imaps,https")
    assert _tables(stage, "servers")["CAS-04"] == {
        "site": "asia",
        "roles": ["client-access"],
        "fqdn": "cas-04.contoso.com",
        "endpoints": {"imaps": {}, "https": {}},
    }
    assert stage.values("Get-OwaVirtualDirectory -Server CAS-04", "InternalUrl") == ["https://cas-04.contoso.com/owa"]
    with pytest.raises(ShellError, match="already"):
        stage.run("New-ClientAccessServer cas-04 -Site asia")
    with pytest.raises(ShellError, match="no site 'asai'; did you mean"):
        stage.run("New-ClientAccessServer CAS-05 -Site asai")


def test_a_front_end_is_removed_with_its_directories_and_its_places_in_arrays(stage: Stage) -> None:
    """Other servers' entries stay."""
    stage.run("New-ClientAccessServer CAS-04 -Site usa; New-ClientAccessArray -Fqdn outlook.contoso.com -Site usa")
    assert stage.values("Get-ClientAccessArray", "Members") == [("CAS-01", "CAS-04")]
    stage.run("Remove-ClientAccessServer CAS-01 -Confirm:$false")
    assert "CAS-01" not in _tables(stage, "servers")
    assert {entry["server"] for entry in tomllib.loads(stage.text)["virtual_directories"]} == {"CAS-02"}
    assert stage.values("Get-ClientAccessArray outlook", "Members") == [("CAS-04",)]


def test_a_server_that_is_more_than_a_front_end_is_not_removed(stage: Stage) -> None:
    """Its databases would hang in the air."""
    stage.path.write_text(BEFORE.replace('roles = ["mailbox"]', 'roles = ["mailbox", "client-access"]', 1))
    with pytest.raises(ShellError, match="MBX-01 is more than a front end"):
        stage.run("Remove-ClientAccessServer MBX-01 -Confirm:$false")


def test_setting_a_front_end(stage: Stage) -> None:
    """Site, name, address; a null takes the key away."""
    stage.run("Get-ClientAccessServer CAS-03 | Set-ClientAccessServer -Site EUROPE -Address $null")
    assert _tables(stage, "servers")["CAS-03"]["site"] == "europe"
    assert "address" not in _tables(stage, "servers")["CAS-03"]
    stage.run("Set-ClientAccessServer CAS-03 -Site europe")
    assert stage.operator.warned[-1] == "no setting of CAS-03 was changed: it is so already"


def test_arrays(stage: Stage) -> None:
    """New, set, members added and removed, remove."""
    stage.run("New-ClientAccessArray USA -Fqdn outlook.contoso.com -Site usa -Members CAS-01")
    stage.run(
        "New-ClientAccessServer CAS-04 -Site usa; Set-ClientAccessArray usa -Members @{Add='cas-04'; Remove='CAS-01'}"
    )
    assert _tables(stage, "arrays") == {
        "USA": {"site": "usa", "fqdn": "outlook.contoso.com", "members": ["CAS-04"]},
    }
    with pytest.raises(ShellError, match="'CAS-02' cannot be removed: it is not in the list"):
        stage.run("Set-ClientAccessArray usa -Members @{Remove='CAS-02'}")
    stage.run("Get-ClientAccessArray -Site usa | Remove-ClientAccessArray -Confirm:$false")
    assert _tables(stage, "arrays") == {}
    with pytest.raises(ShellError, match="there are no arrays"):
        stage.run("Get-ClientAccessArray USA")


# Databases and copies


def test_databases_and_copies(stage: Stage) -> None:
    """New, copies with preferences that make room for each other, remove."""
    stage.run("New-MailboxDatabase DB04 -Server MBX-01; Add-MailboxDatabaseCopy DB04 -MailboxServer MBX-02")
    stage.run("Add-MailboxDatabaseCopy DB04 -MailboxServer MBX-03 -ActivationPreference 1")
    assert stage.values("Get-MailboxDatabaseCopy DB04", "Identity") == ["DB04\\MBX-03", "DB04\\MBX-01", "DB04\\MBX-02"]
    stage.run("Set-MailboxDatabaseCopy DB04\\MBX-02 -ActivationPreference 1")
    assert stage.values("Get-MailboxDatabase DB04", "Copies") == [("MBX-02", "MBX-03", "MBX-01")]
    stage.run("Remove-MailboxDatabaseCopy DB04\\MBX-03 -Confirm:$false")
    copies = _tables(stage, "databases")["DB04"]["copies"]
    assert copies == [{"server": "MBX-01", "preference": 3}, {"server": "MBX-02", "preference": 1}]
    stage.run("Set-MailboxDatabase DB04 -Name DB05")
    assert list(_tables(stage, "databases")) == ["DB01", "DB02", "DB03", "DB05"]
    stage.run("Remove-MailboxDatabase db05 -Confirm:$false")
    assert stage.text == BEFORE


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("New-MailboxDatabase db01 -Server MBX-01", "there is a database DB01 already"),
        ("New-MailboxDatabase DB09 -Server CAS-01", "CAS-01 is no mailbox server"),
        ("Add-MailboxDatabaseCopy DB01 -MailboxServer MBX-02", "has a copy of DB01 already"),
        ("Add-MailboxDatabaseCopy DB01 -MailboxServer MBX-03 -ActivationPreference 4", "is from 1 to .*, 3"),
        ("Set-MailboxDatabaseCopy DB01 -ActivationPreference 1", r"DATABASE\\SERVER"),
        ("Set-MailboxDatabaseCopy DB01\\MBX-03 -ActivationPreference 1", "MBX-03 has no copy of DB01"),
        ("Get-MailboxDatabaseCopyStatus", "needs the registry"),
        ("Get-Mailbox", "needs a front end's configuration"),
    ],
)
def test_faults_of_databases(stage: Stage, text: str, words: str) -> None:
    """Each names the object."""
    with pytest.raises(ShellError, match=words):
        stage.run(text)
    assert stage.text == BEFORE


def test_the_active_copy_is_shown_moved_and_kept(service: Stage) -> None:
    """From the registry; the active copy cannot be removed."""
    assert service.values("Get-MailboxDatabaseCopyStatus DB01", "Status") == ["Mounted", "Passive"]
    with pytest.raises(ShellError, match="is the active copy"):
        service.run("Remove-MailboxDatabaseCopy DB01\\MBX-01 -Confirm:$false")
    service.run("Move-ActiveMailboxDatabase DB01 MBX-02 -WhatIf")
    assert service.operator.said == ["What if: DB01 would be active on MBX-02"]
    assert service.values("Move-ActiveMailboxDatabase DB01 -ActivateOnServer MBX-02", "Epoch") == [2]
    assert service.values("Get-MailboxDatabaseCopyStatus | ? { $_.ActiveCopy }", "Identity")[0] == "DB01\\MBX-02"
    service.run("Remove-MailboxDatabaseCopy DB01\\MBX-01 -Confirm:$false")
    assert service.values("Get-MailboxDatabase DB01", "Copies") == [("MBX-02",)]


# Mailboxes


def test_mailboxes(service: Stage) -> None:
    """New, get, set addresses, database and protocols, disable, enable, remove."""
    service.operator.password = "correct horse"
    service.run("New-Mailbox anna -Database DB01 -EmailAddresses sales,info@contoso.com -Password")
    (anna,) = service.run("Get-Mailbox SALES@contoso.com")
    assert anna.get("Identity") == "anna@contoso.com"
    assert anna.get("HasPassword") is True
    service.run("Set-Mailbox anna -Database db02 -EmailAddresses @{Add='smtp:hr'; Remove='info'} -PopEnabled $false")
    (anna,) = service.run("Get-Mailbox -Database DB02")
    assert anna.get("EmailAddresses") == ("hr@contoso.com", "sales@contoso.com")
    assert (anna.get("Database"), anna.get("PopEnabled"), anna.get("ImapEnabled")) == ("DB02", False, True)
    service.run("Disable-Mailbox anna")
    assert service.values("Get-Mailbox anna", "Enabled") == [False]
    service.run("Get-Mailbox | Enable-Mailbox")
    assert service.values("Get-CASMailbox anna", "Name") == ["anna@contoso.com"]
    service.run("Remove-Mailbox anna -Confirm:$false")
    assert service.run("Get-Mailbox") == []
    assert service.text == BEFORE


def test_sending_as_others(service: Stage) -> None:
    """The source's command for one mailbox, and ours for a list with domains."""
    service.run("New-Mailbox anna -Database DB01; New-Mailbox bob -Database DB01 -EmailAddresses robert")
    service.run("Add-ADPermission robert -User ANNA -ExtendedRights 'Send As'")
    assert service.values("Get-Mailbox anna", "SendAs") == [("bob@contoso.com",)]
    (found,) = service.run("Get-Mailbox bob | Get-ADPermission")
    assert (found.get("User"), found.get("ExtendedRights")) == ("anna@contoso.com", "Send As")
    service.run("Add-ADPermission bob -User anna -ExtendedRights Send-As")
    assert service.operator.warned[-1] == "nothing was changed: anna@contoso.com may send as bob@contoso.com already"
    service.run("Remove-ADPermission bob -User anna -ExtendedRights Send-As -WhatIf")
    assert service.operator.said[-1] == "What if: anna@contoso.com may no more send as bob@contoso.com"
    service.run("Set-Mailbox anna -SendAs @{Add='@news.example','all'}")
    service.run("Remove-ADPermission bob -User anna -ExtendedRights Send-As -Confirm:$false")
    assert service.values("Get-Mailbox anna", "SendAs") == [("@news.example", "all@contoso.com")]
    assert service.run("Get-ADPermission bob") == []
    with pytest.raises(ShellError, match="has the right Send As only"):
        service.run("Add-ADPermission bob -User anna -ExtendedRights ms-Exch-SMTP-Accept-Any-Sender")
    with pytest.raises(ShellError, match="-ExtendedRights is needed"):
        service.run("Add-ADPermission bob -User anna")
    with pytest.raises(ShellError, match="-SendAs: @"):
        service.run("Set-Mailbox anna -SendAs @{Add='@'}")


def test_a_mailbox_without_a_password_is_warned_of(service: Stage) -> None:
    """Passwords are never part of a command."""
    service.run("New-Mailbox otto -Database DB01")
    assert service.operator.warned == [
        "otto@contoso.com has no password yet: gatepost user set otto@contoso.com --password"
    ]


def test_what_if_for_mailboxes(service: Stage) -> None:
    """Says each change; the directory stays."""
    service.run("New-Mailbox otto -Database DB01")
    service.run(
        "Set-Mailbox otto -Database DB02 -WhatIf; Remove-Mailbox otto -WhatIf; New-Mailbox x -Database DB01 -wi"
    )
    assert service.operator.said == [
        "What if: Change otto@contoso.com: Database: DB01 → DB02",
        "What if: otto@contoso.com would be removed",
        "What if: x@contoso.com would be added",
    ]
    assert service.values("Get-Mailbox", "Database") == ["DB01"]


def test_more_mailboxes_than_are_shown_are_warned_of(service: Stage) -> None:
    """As in the source system, which shows a thousand."""
    for name in ("a", "b", "c"):
        service.run(f"New-Mailbox {name} -Database DB01")
    service.operator.warned.clear()
    assert len(service.run("Get-Mailbox -ResultSize 2")) == 2
    assert "more than these 2" in service.operator.warned[0]
    assert len(service.run("Get-Mailbox -ResultSize unlimited")) == 3


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Set-Mailbox nobody -Database DB01", "no user has the name or address nobody@contoso.com"),
        ("Set-Mailbox otto -Database DB9", "no database 'DB9'"),
        ("New-Mailbox otto -Database DB01", "otto@contoso.com"),
        ("New-Mailbox x", "say where the mailbox is"),
        ("Set-Mailbox otto -Imap $false -Pop $false -Https $false -Submission $false", "could use no protocol"),
        ("Set-Mailbox otto -EmailAddresses @{Remove='x'}", "cannot be removed"),
        ("New-Mailbox 'a b' -Database DB01", "is no login name"),
        ("Set-Mailbox otto -Password", "nobody can be asked"),
        ("Remove-MailboxDatabase DB01 -Confirm:$false", "DB01 holds mailboxes, such as otto"),
        ("Set-MailboxDatabase DB01 -Name DB09", "cannot be renamed"),
    ],
)
def test_faults_of_mailboxes(service: Stage, text: str, words: str) -> None:
    """Nothing is changed."""
    service.run("New-Mailbox otto -Database DB01")
    with pytest.raises(ShellError, match=words):
        service.run(text)
    assert service.text == BEFORE
    assert service.values("Get-Mailbox", "Database") == ["DB01"]


def test_each_written_statement_counts_up_the_organizations_version(service: Stage, tmp_path: Path) -> None:
    """That is what front ends watch; what changes nothing leaves it."""
    registry = SqliteRegistry(str(tmp_path / "state/registry.sqlite"))
    service.run("Set-OwaVirtualDirectory owa -FormsAuthentication $true; Set-EcpVirtualDirectory CAS-03\\ecp -Forms 1")
    assert registry.view().organization_version == 2
    service.run("Set-OwaVirtualDirectory owa -FormsAuthentication $true")
    service.run("Set-OwaVirtualDirectory owa -FormsAuthentication $false -WhatIf")
    assert registry.view().organization_version == 2


def test_a_registry_that_does_not_answer_is_no_silence(service: Stage, tmp_path: Path) -> None:
    """The file is written, and the operator knows that front ends were not told."""
    (tmp_path / "state/registry.sqlite").write_bytes(b"not a database" * 100)
    with pytest.raises(ShellError, match=r"file was changed, but running front ends could not be told.*SIGHUP"):
        service.run("Set-OwaVirtualDirectory owa -FormsAuthentication $true")
    assert '"forms"' in service.text


def test_a_front_ends_file_that_names_the_organizations_file(tmp_path: Path, service: Stage) -> None:
    """The change is made in the file that holds the tables, also behind a symbolic link."""
    head, _, tables = BEFORE.partition("[organization]")
    real = tmp_path / "elsewhere"
    real.mkdir()
    (real / "shared.toml").write_text(f"[organization]{tables}")
    (tmp_path / "organization.toml").symlink_to(real / "shared.toml")
    service.path.write_text(head.replace('server = "CAS-01"', 'server = "CAS-01"\norganization = "organization.toml"'))
    service.session = Session(str(service.path), Operator())
    service.run("Set-OwaVirtualDirectory owa -FormsAuthentication $true")
    assert '"forms"' in (real / "shared.toml").read_text()
    assert (tmp_path / "organization.toml").is_symlink()
    with DirectoryEditor(str(tmp_path / "state/directory.sqlite")):
        pass
