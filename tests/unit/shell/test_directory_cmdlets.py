"""Cmdlets for virtual directories on an organization's file."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from shell_stage import EXAMPLES, PRINTED, Stage, contoso

from gatepost.configuration.load import load_organization
from gatepost.shell.errors import ShellError

BEFORE = (EXAMPLES / "contoso.toml").read_text()
CAS_01_OWA = "CAS-01\\owa (Default Web Site)"


def _entries(stage: Stage, server: str) -> dict[str, dict[str, object]]:
    entries = tomllib.loads(stage.text)["virtual_directories"]
    return {entry["service"]: entry for entry in entries if entry["server"] == server}


def test_you_can_disable_redirection_using_the_set_owavirtualdirectory_cmdlet(stage: Stage) -> None:
    """The source's line as printed: one line more in the file, of the front end that the file is for."""
    stage.run(PRINTED)
    added = [line for line in stage.text.splitlines() if line not in BEFORE.splitlines()]
    assert added == ["redirect_to_optimal_owa_server = false"]
    assert _entries(stage, "CAS-01")["owa"]["redirect_to_optimal_owa_server"] is False
    assert stage.operator.warned == []


def test_to_restore_redirection_use_the_same_cmdlet_and_change_the_parameter_to_true(stage: Stage) -> None:
    """The file is as before, to the byte."""
    stage.run(PRINTED)
    stage.run(PRINTED.replace("$false", "$true"))
    assert stage.text == BEFORE


def test_a_cmdlet_that_changes_nothing_says_so(stage: Stage) -> None:
    """Twice the same, or what is the default."""
    stage.run(PRINTED.replace("$false", "$true"))
    assert stage.text == BEFORE
    assert stage.operator.warned == [f"no setting of {CAS_01_OWA} was changed: it is so already"]


@pytest.mark.parametrize(
    "identity",
    [
        '"owa (default web site)"',
        "'OWA  (Default  Web Site)'",
        "owa",
        "/owa",
        '"cas-01\\owa (default web site)"',
        "cas-01.contoso.com\\OWA",
    ],
)
def test_identities(stage: Stage, identity: str) -> None:
    """Case and spaces make no difference; without a server it is the front end's own."""
    assert stage.values(f"Get-OwaVirtualDirectory {identity}", "Identity") == [CAS_01_OWA]


def test_the_server_option_says_whose_directory_a_bare_name_is(tmp_path: Path) -> None:
    """As for the other front ends that run from the same file."""
    stage = contoso(tmp_path, "CAS-02")
    stage.run(PRINTED)
    assert _entries(stage, "CAS-02")["owa"]["redirect_to_optimal_owa_server"] is False
    assert "redirect_to_optimal_owa_server" not in _entries(stage, "CAS-01")["owa"]


def test_without_a_front_end_a_name_that_several_servers_have_is_refused(tmp_path: Path) -> None:
    """The message lists them; with the server it works."""
    stage = contoso(tmp_path)
    stage.path.write_text(BEFORE.replace('server = "CAS-01"\ndirectory', "directory"))
    with pytest.raises(ShellError, match=r"may be any of CAS-01\\owa .*CAS-02\\owa"):
        stage.run(PRINTED)
    stage.run('Set-OwaVirtualDirectory "CAS-02\\owa (default web site)" -RedirectToOptimalOWAServer 0')
    assert _entries(stage, "CAS-02")["owa"]["redirect_to_optimal_owa_server"] is False


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Set-OwaVirtualDirectory nosuch -BasicAuthentication $true", 'no virtual directory "nosuch".* on CAS-01'),
        ("Set-OwaVirtualDirectory CAS-09\\owa -ExternalUrl $null", "no server 'CAS-09'; did you mean"),
        ("Set-EcpVirtualDirectory ecp -FormsAuthentication $true", "there are CAS-03.ecp"),
        ("Set-OwaVirtualDirectory owa -ExternalUrl mail.contoso.com", "CAS-01.owa .*-ExternalUrl.*https://"),
        ("Set-OwaVirtualDirectory owa", "say what to change"),
        ("Set-OwaVirtualDirectory -ExternalUrl $null", "-Identity is needed"),
        ("Set-OwaVirtualDirectory owa -WindowsAuthentication $false", "no authentication method would be left"),
        ("Get-Queues", "no command 'Get-Queues' here"),
        ("Get-OwaVirtalDirectory", "Near ones are Get-OwaVirtualDirectory"),
        ("Enable-OwaVirtualDirectory owa", "Set-OwaVirtualDirectory"),
        ("Get-OwaVirtualDirectory | Set-EcpVirtualDirectory -FormsAuthentication $true", "no virtual directory"),
        ("Get-OwaVirtualDirectory | Select-Object Nosuch", "has no property 'Nosuch'; it has Name"),
        ("Get-OwaVirtualDirectory | Format-List | Format-Table", "text already"),
        ("Format-List", "behind a |"),
    ],
)
def test_faults_name_the_object_and_change_nothing(stage: Stage, text: str, words: str) -> None:
    """Bad values, unknown identities, wrong kinds."""
    with pytest.raises(ShellError, match=words):
        stage.run(text)
    assert stage.text == BEFORE


def test_setting_a_directory_of_a_standard_set_writes_out_the_whole_set(stage: Stage) -> None:
    """CAS-03 lists none: with one entry only, the others would be lost. The organization is otherwise the same."""
    before = load_organization(str(stage.path)).organization
    stage.run('Set-OwaVirtualDirectory "CAS-03\\owa (Default Web Site)" -FormsAuthentication $true')
    after = load_organization(str(stage.path)).organization
    assert before is not None
    assert after is not None
    old, new = set(before.virtual_directories), set(after.virtual_directories)
    assert [(d.server, d.service) for d in old - new] == [("CAS-03", "owa")]
    assert [sorted(d.authentication) for d in new - old] == [["basic", "forms", "integrated"]]
    assert stage.text.startswith(BEFORE.rstrip("\n")), "what was there is as it was"


def test_one_statement_changes_all_that_come_by_the_pipeline(stage: Stage) -> None:
    """`Get | Set`, chosen by a comparison."""
    stage.run(
        'Get-OwaVirtualDirectory | Where-Object { $_.Server -like "CAS-*" } | Set-OwaVirtualDirectory -Cross silent'
    )
    types = stage.values("Get-OwaVirtualDirectory | ? { $_.Server -match '^cas' }", "CrossSiteRedirectType")
    assert types == ["Silent", "Silent", "Silent"]
    others = stage.values("Get-OwaVirtualDirectory | ? { $_.Server -like 'MBX*' }", "CrossSiteRedirectType")
    assert set(others) == {"Manual"}


def test_a_pipeline_that_fails_half_way_changes_nothing(stage: Stage) -> None:
    """One statement is one change: the first directory is not written when the second cannot be."""
    with pytest.raises(ShellError, match="no authentication method would be left"):
        # CAS-01's accepts only Integrated; CAS-03's would have Basic left.
        stage.run(
            'Get-OwaVirtualDirectory | ? { $_.Server -in "CAS-03","CAS-01" } | Set-OwaVirtualDirectory -Windows $false'
        )
    assert stage.text == BEFORE


def test_properties_of_all_four_kinds(stage: Stage) -> None:
    """The source system's words, ignoring case; each kind has its own."""
    stage.run(
        'Set-OwaVirtualDirectory owa -InternalUrl "https://cas-01.contoso.com/owa" -ExternalUrl $null '
        "-BasicAuthentication $true -WindowsAuthentication $true -FormsAuthentication $true -Cross Silent;"
        "Set-WebServicesVirtualDirectory EWS -internalnlbbypassurl https://cas-01.contoso.com/EWS;"
        "set-activesyncvirtualdirectory Microsoft-Server-ActiveSync -BasicAuthEnabled $true;"
        "Set-EcpVirtualDirectory CAS-03\\ecp -FormsAuthentication $true"
    )
    (owa,) = stage.run("Get-OwaVirtualDirectory owa")
    assert [owa.get(n) for n in ("externalurl", "BASICAUTHENTICATION", "FormsAuthentication")] == [None, True, True]
    assert "external_url" not in _entries(stage, "CAS-01")["owa"]
    assert _entries(stage, "CAS-01")["owa"]["authentication"] == ["basic", "integrated", "forms"]
    assert stage.values("Get-WebServicesVirtualDirectory EWS", "InternalNLBBypassUrl") == [
        "https://cas-01.contoso.com/EWS"
    ]
    assert stage.values("Get-ActiveSyncVirtualDirectory -Server cas-01", "BasicAuthEnabled") == [True]
    assert stage.values("Get-EcpVirtualDirectory CAS-03\\ecp", "FormsAuthentication") == [True]
    with pytest.raises(ShellError, match="no property"):
        stage.values("Get-EcpVirtualDirectory CAS-03\\ecp", "RedirectToOptimalOWAServer")


def test_a_directory_made_by_hand_gets_no_internal_url(stage: Stage) -> None:
    """The source's note: it must be set by hand; the warning says how, and that line works."""
    stage.run("New-EcpVirtualDirectory -Server CAS-01 -FormsAuthentication $true")
    (warning,) = stage.operator.warned
    assert "has no internal URL" in warning
    assert "internal_url" not in _entries(stage, "CAS-01")["ecp"]
    assert stage.values("Get-EcpVirtualDirectory -Server CAS-01", "InternalUrl") == [None]
    stage.run(warning.partition("is set: ")[2])
    assert stage.values("Get-EcpVirtualDirectory -Server CAS-01", "InternalUrl") == ["https://cas-01.contoso.com/ecp"]


def test_the_four_directories_of_outlook_web_app(stage: Stage) -> None:
    """owa, exchange, public and exchweb are all of the one kind."""
    stage.run('New-OwaVirtualDirectory "exchange (Default Web Site)" -InternalUrl https://cas-01.contoso.com/exchange')
    assert stage.values("Get-OwaVirtualDirectory -Server CAS-01", "Path") == ["/owa", "/exchange"]
    with pytest.raises(ShellError, match="has /exchange already"):
        stage.run("New-OwaVirtualDirectory exchange")
    with pytest.raises(ShellError, match="one of owa, exchange, public, exchweb"):
        stage.run("New-OwaVirtualDirectory dav")


def test_any_path_with_its_class(stage: Stage) -> None:
    """Paths that the source system does not have."""
    stage.run(
        "New-VirtualDirectory wiki -Path /team/wiki -PathClass interactive -InternalUrl https://cas-01.contoso.com/team/wiki"
    )
    assert _entries(stage, "CAS-01")["wiki"]["path_class"] == "interactive"
    assert stage.values("Get-VirtualDirectory /team/wiki", "Name") == ["wiki (Default Web Site)"]


def test_removing_asks(stage: Stage) -> None:
    """As in the source system; nobody there is a no, -Confirm:$false asks nothing."""
    with pytest.raises(ShellError, match="nobody can be asked"):
        stage.run("Remove-OwaVirtualDirectory owa")
    stage.operator.answer = False
    stage.run("Remove-OwaVirtualDirectory owa")
    assert stage.text == BEFORE
    stage.operator.answer = True
    stage.run("Remove-OwaVirtualDirectory owa")
    assert "owa" not in _entries(stage, "CAS-01")
    assert stage.operator.asked == [f"Remove the virtual directory {CAS_01_OWA}?"] * 3
    stage.run("Remove-WebServicesVirtualDirectory EWS -Confirm:$false")
    assert list(_entries(stage, "CAS-01")) == ["Microsoft-Server-ActiveSync"]


def test_the_last_listed_directory_of_a_server_stays(stage: Stage) -> None:
    """Without any, its standard set would count again."""
    with pytest.raises(ShellError, match="standard set would count"):
        stage.run("Get-VirtualDirectory -Server CAS-01 | Remove-VirtualDirectory -Confirm:$false")
    assert stage.text == BEFORE


def test_what_if_shows_the_difference_and_writes_nothing(stage: Stage) -> None:
    """A unified diff; its mode is that of the whole statement."""
    stage.run(PRINTED + " -WhatIf")
    (said,) = stage.operator.said
    assert "+redirect_to_optimal_owa_server = false" in said.splitlines()
    assert stage.text == BEFORE
    stage.run("Remove-OwaVirtualDirectory owa -WhatIf")
    assert stage.operator.asked == []
    assert stage.text == BEFORE


def test_a_change_with_errors_is_refused_with_the_findings(stage: Stage) -> None:
    """The check judges the whole organization as it would be."""
    with pytest.raises(ShellError, match=r"refused, nothing was written, errors: 1(.|\n)*has no internal URL"):
        stage.run("Set-OwaVirtualDirectory MBX-01\\owa -InternalUrl $null")
    assert stage.text == BEFORE


def test_new_warnings_are_shown(stage: Stage) -> None:
    """The source's note on ExternalUrl: clients will fail to connect. What was warned of before is not repeated."""
    stage.run("Set-OwaVirtualDirectory CAS-03\\owa -ExternalUrl https://www.asia.contoso.com/owa")
    assert len(stage.operator.warned) == 1
    assert "clients will fail to connect" in stage.operator.warned[0]
    stage.run("Set-OwaVirtualDirectory CAS-03\\owa -FormsAuthentication $true")
    assert len(stage.operator.warned) == 1


def test_output_as_table_list_and_json(stage: Stage) -> None:
    """The table has a header and dashes, as the source system prints it."""
    chosen = "Get-OwaVirtualDirectory | Where-Object { $_.Server -eq 'cas-01' }"
    assert stage.printed(f"{chosen} | Format-Table server,Redirect*") == (
        "\nServer  RedirectToOptimalOWAServer\n------  --------------------------\nCAS-01  True\n"
    )
    assert stage.printed(f"{chosen} | Format-List Name,ExternalUrl,Path") == (
        "\nName        : owa (Default Web Site)\nExternalUrl : https://www.usa.contoso.com/owa\nPath        : /owa\n"
    )
    one = json.loads(stage.printed(f"{chosen} | Select-Object Server,FormsAuthentication,ExternalUrl | ConvertTo-Json"))
    assert one == {
        "Server": "CAS-01",
        "FormsAuthentication": False,
        "ExternalUrl": "https://www.usa.contoso.com/owa",
    }
    many = json.loads(stage.printed("Get-OwaVirtualDirectory | Select-Object Server -First 2 | ConvertTo-Json"))
    assert many == [{"Server": "CAS-01"}, {"Server": "CAS-02"}]
    assert stage.printed("Get-AdSite usa | Select-Object -ExpandProperty Subnets") == "10.1.0.0/16\n"
    assert json.loads(stage.printed("Get-AdSite usa | ConvertTo-Json -AsArray"))[0]["Subnets"] == ["10.1.0.0/16"]


def test_help(stage: Stage) -> None:
    """Every command has a summary, and every parameter a meaning."""
    for name in stage.values("Get-Command", "Name"):
        text = stage.printed(f"Get-Help {name}")
        assert text.startswith(f"\n{name}: ")
        assert all(len(line.split("  ")) > 1 for line in text.splitlines()[3:]), name
    assert stage.values("Get-Command *-Owa*", "Name") == [
        f"{verb}-OwaVirtualDirectory" for verb in ("Get", "New", "Remove", "Set")
    ]
