"""`gatepost shell` and the plain commands for the same objects, as an operator runs them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gatepost.cli.main import run
from gatepost.cli.shell import Completer
from gatepost.configuration.saving import held
from gatepost.shell.cmdlets import all_cmdlets

EXAMPLE = Path(__file__).parents[3] / "examples/contoso.toml"
PRINTED = 'set-owavirtualdirectory "owa (default web site)" -RedirectToOptimalOWAServer $false'
LINE = "redirect_to_optimal_owa_server = false"


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A copy of the example."""
    return str(shutil.copy(EXAMPLE, tmp_path / "contoso.toml"))


def test_the_sources_line_against_a_file(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`gatepost shell --organization FILE -c '…'`: nothing is printed, the status is 0, the file has it."""
    assert run(["shell", "--organization", path, "-c", PRINTED]) == 0
    assert capsys.readouterr() == ("", "")
    assert LINE in Path(path).read_text()


def test_the_first_command_that_fails_ends_the_run(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 1, one message, what was before it counts and what is behind it never ran."""
    text = f"{PRINTED}; Set-OwaVirtualDirectory nosuch -ExternalUrl $null; Get-AdSite"
    assert run(["shell", "--organization", path, "-c", text]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith('gatepost: Set-OwaVirtualDirectory: there is no virtual directory "nosuch"')
    assert LINE in Path(path).read_text()


def test_a_text_that_does_not_parse_runs_nothing(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Also what stands before the fault."""
    assert run(["shell", "--organization", path, "-c", f"{PRINTED}; Get-X 'a"]) == 1
    assert "the quote is not closed" in capsys.readouterr().err
    assert LINE not in Path(path).read_text()


def test_output(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A table by default; a list or JSON for all commands by one option."""
    run(["shell", "--organization", path, "-c", "Get-AdSite asia"])
    assert capsys.readouterr().out.splitlines()[1:3] == [
        "Name  InternetFacing  Subnets        Servers",
        "----  --------------  -------        -------",
    ]
    run(["shell", "--organization", path, "--output", "json", "-c", f"Get-AdSite asia; {PRINTED}"])
    assert [site["Name"] for site in json.loads(capsys.readouterr().out)] == ["asia"]
    run(["shell", "--organization", path, "--output", "list", "-c", "Get-AdSite asia"])
    assert "InternetFacing : False" in capsys.readouterr().out


def test_commands_come_by_standard_input_too(path: str) -> None:
    """As a process: a script by a pipe; and nobody can be asked there."""
    command = [sys.executable, "-m", "gatepost", "shell", "--organization", path]
    script = f"# restore nothing\n{PRINTED}\nGet-AdSite |\n  Format-Table Name\nRemove-OwaVirtualDirectory owa\n"
    done = subprocess.run(command, input=script, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "asia" in done.stdout
    assert "Nobody can be asked here: add -Confirm:$false" in done.stderr
    assert LINE in Path(path).read_text()


def test_two_shells_at_once_both_make_their_change(path: str) -> None:
    """The second waits until the first has written, and loses none of it."""
    command = [sys.executable, "-m", "gatepost", "shell", "--organization", path, "-c"]
    texts = [
        f"New-ClientAccessArray -Name A{n} -Fqdn outlook{n}.contoso.com -Site {site}"
        for n, site in enumerate(("usa", "europe"))
    ]
    with held(path):
        running = [subprocess.Popen([*command, text], stderr=subprocess.PIPE) for text in texts]
        with pytest.raises(subprocess.TimeoutExpired):
            running[0].wait(0.5)
    for process in running:
        assert process.communicate(timeout=60)[1] == b""
        assert process.returncode == 0
    written = Path(path).read_text()
    assert all(f"[arrays.A{n}]" in written for n in range(2))


def test_plain_commands_do_the_same(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    """List, set, new, remove; `--json` for programs."""
    of = ["--organization", path]
    assert run(["virtual-directory", "set", "owa", "--no-redirect", *of]) == 0
    assert capsys.readouterr().out == f"changed {path}\n"
    assert LINE in Path(path).read_text()
    assert run(["virtual-directory", "set", "owa", "--redirect", *of]) == 0
    assert Path(path).read_text() == EXAMPLE.read_text()
    url = "https://cas-01.contoso.com/ecp"
    assert run(["virtual-directory", "new", "ecp", "--internal-url", url, "--forms", *of]) == 0
    capsys.readouterr()
    assert run(["virtual-directory", "list", "CAS-01\\ecp", "--json", *of]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["InternalUrl"], found["FormsAuthentication"], found["Service"]) == (url, True, "ecp")
    assert run(["virtual-directory", "set", "ecp", "--internal-url", "", "--what-if", *of]) == 0
    assert f'-internal_url = "{url}"' in capsys.readouterr().out
    assert run(["virtual-directory", "remove", "ecp", "--yes", *of]) == 0
    assert Path(path).read_text() == EXAMPLE.read_text()
    assert run(["array", "new", "USA", "--fqdn", "outlook.contoso.com", "--site", "usa", *of]) == 0
    assert run(["array", "set", "USA", "--fqdn", "mail.contoso.com", *of]) == 0
    capsys.readouterr()
    assert run(["array", "list", *of]) == 0
    assert capsys.readouterr().out.splitlines()[2] == "USA   usa   mail.contoso.com  {CAS-01}"
    assert run(["array", "remove", "USA", "--yes", *of]) == 0
    assert run(["server", "list", "--json", *of]) == 0
    assert [s["Name"] for s in json.loads(capsys.readouterr().out.splitlines()[-1])][:2] == ["CAS-01", "CAS-02"]


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["virtual-directory", "set", "owa"], 2, "say what to change"),
        (["virtual-directory", "set", "nosuch", "--forms"], 1, 'no virtual directory "nosuch"'),
        (["virtual-directory", "set", "owa", "--external-url", "x"], 1, "does not begin with https://"),
        (["array", "new", "X", "--fqdn", "x.contoso.com", "--site", "nosuch"], 1, "no site 'nosuch'"),
        (["array", "set", "X"], 2, "say what to change"),
    ],
)
def test_faults_of_plain_commands(
    path: str, capsys: pytest.CaptureFixture[str], arguments: list[str], status: int, words: str
) -> None:
    """One line, and the statuses of all commands."""
    assert run([*arguments, "--organization", path]) == status
    assert words in capsys.readouterr().err


def test_completion() -> None:
    """Names at the beginning and behind a pipe, parameters behind a name."""
    complete = Completer(all_cmdlets()).candidates
    assert complete("", "set-owa") == ["Set-OwaVirtualDirectory"]
    assert complete("Get-OwaVirtualDirectory | ", "Format-T") == ["Format-Table"]
    assert complete("Get-X; set-owavirtualdirectory owa ", "-red") == ["-RedirectToOptimalOWAServer"]
    assert complete("set-owavirtualdirectory ", "ow") == []
    assert complete("nosuch ", "-x") == []
