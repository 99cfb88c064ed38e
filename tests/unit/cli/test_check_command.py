"""`gatepost check`: one finding a line, a summary, and an exit status for scripts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from configuration_samples import FRONT_END as SAMPLE_FRONT_END
from configuration_samples import ORGANIZATION, line_of, pki
from configuration_samples import WHOLE as SAMPLE
from hub_stage import FILE

from gatepost.cli.check import command
from gatepost.cli.main import run
from gatepost.directory.editing import DirectoryEditor, Entry
from gatepost.directory.port import User
from gatepost.routing.decision import Mailbox


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the files that the sample names."""
    for path, content in pki().items():
        file = tmp_path / Path(path).relative_to("etc")
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(content)
        file.chmod(0o600)
    (tmp_path / "state").mkdir()
    return tmp_path


WHOLE, FRONT_END = (
    text.replace("/var/lib/gatepost/registry.sqlite", "state/registry.sqlite") for text in (SAMPLE, SAMPLE_FRONT_END)
)


def _check(folder: Path, text: str, *options: str) -> Result:
    (folder / "gatepost.toml").write_text(text)
    return CliRunner().invoke(command, [str(folder / "gatepost.toml"), *options])


def test_a_clean_file(folder: Path) -> None:
    """Status 0, and a line that says so."""
    result = _check(folder, WHOLE)
    assert result.exit_code == 0
    assert result.output == f"{folder}/gatepost.toml: no errors, no warnings\n"


def test_errors_come_first_and_give_status_1(folder: Path) -> None:
    """With file and line in front, as editors and scripts read them."""
    (folder / "pki/front.key").chmod(0o644)
    text = WHOLE.replace('server = "MBX-02"', 'server = "MBX-2"')
    line = line_of(text, '"MBX-2"')
    result = _check(folder, text)
    lines = result.output.splitlines()
    assert result.exit_code == 1
    assert lines[0].startswith(f"{folder}/gatepost.toml:{line}: database DB01: server")
    assert lines[1].startswith(f"{folder}/gatepost.toml:6: warning: front end: the private key")
    assert lines[2] == f"{folder}/gatepost.toml: 1 error, 1 warning"
    assert len(lines) == 3


def test_warnings_alone_give_status_0_unless_strict(folder: Path) -> None:
    """They do not keep Gatepost from running."""
    text = WHOLE.replace('  { server = "MBX-01", preference = 3 },\n', "")
    assert _check(folder, text).exit_code == 0
    strict = _check(folder, text, "--strict")
    assert strict.exit_code == 1
    assert "no errors, 1 warning" in strict.output
    assert _check(folder, WHOLE, "--strict").exit_code == 0


def test_what_this_machine_does_not_have_is_a_warning(folder: Path) -> None:
    """The workers' account, and the folders of stores and log: each once, with what to do."""
    text = WHOLE.replace("state/directory", "stores/directory").replace(
        "registry =", 'user = "nobody-of-this-name"\nlog_file = "log/gatepost.log"\nregistry =', 1
    )
    (folder / "stores").touch()  # a file is no folder
    result = _check(folder, text)
    assert result.exit_code == 0
    name = f"{folder}/gatepost.toml"
    wanted = {
        "user =": 'there is no account "nobody-of-this-name" on this machine; create it: useradd --system '
        "nobody-of-this-name",
        "directory =": f"the folder {folder}/stores of directory does not exist; create it; it must belong to "
        "nobody-of-this-name",
        "log_file =": f"the folder {folder}/log of log_file does not exist; create it; it must belong to "
        "nobody-of-this-name",
    }
    lines = [f"{name}:{line_of(text, key)}: warning: front end: {words}" for key, words in wanted.items()]
    assert sorted(result.output.splitlines()) == sorted([*lines, f"{name}: no errors, 3 warnings"])


def test_json_for_programs(folder: Path) -> None:
    """The same findings with their parts."""
    result = _check(folder, WHOLE.replace('name = "contoso"', 'name = ""'), "--json")
    assert result.exit_code == 1
    assert json.loads(result.output) == {
        "errors": 1,
        "warnings": 0,
        "findings": [
            {
                "severity": "error",
                "file": f"{folder}/gatepost.toml",
                "line": 10,
                "path": ["organization", "name"],
                "object": "organization",
                "message": "the name is empty",
                "remedy": "give it a name",
            }
        ],
    }


def test_an_organization_alone_can_be_checked(folder: Path) -> None:
    """The summary says that there was no front end to judge."""
    result = _check(folder, ORGANIZATION)
    assert result.exit_code == 0
    assert "no errors, no warnings (an organization alone: there is no [front_end])" in result.output


def test_several_front_ends_are_compared_and_shared_findings_said_once(folder: Path) -> None:
    """Both files have the same organization; its one warning is one line."""
    (folder / "org.toml").write_text(ORGANIZATION.replace('  { server = "MBX-02", preference = 7 },\n', ""))
    other = pki("mail.contoso.com", "b.example")
    (folder / "pki/b.crt").write_bytes(other["etc/pki/front.crt"])
    (folder / "pki/b.key").write_bytes(other["etc/pki/front.key"])
    (folder / "pki/b.key").chmod(0o600)
    front = FRONT_END.replace("server =", 'organization = "org.toml"\nserver =', 1)
    (folder / "a.toml").write_text(front)
    (folder / "b.toml").write_text(front.replace("pki/front", "pki/b"))
    result = CliRunner().invoke(command, [str(folder / "a.toml"), str(folder / "b.toml")])
    assert result.exit_code == 0
    assert result.output.count("has one copy only") == 1
    assert result.output.count("their certificates differ") == 1
    assert result.output.endswith("2 files: no errors, 2 warnings\n")


def test_a_missing_file_is_a_finding(tmp_path: Path) -> None:
    """Status 1, with the system's reason."""
    result = CliRunner().invoke(command, [str(tmp_path / "none.toml")])
    assert result.exit_code == 1
    assert "cannot be read: No such file or directory" in result.output


@pytest.mark.parametrize("arguments", [[], ["--wrong", "x"], ["a", "b", "--server", "C"]])
def test_wrong_usage_gives_status_2(arguments: list[str]) -> None:
    """So that a script can tell it from faults."""
    assert CliRunner().invoke(command, arguments).exit_code == 2


def test_the_status_goes_through_the_main_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`gatepost check` answers what the command alone does."""
    (folder / "gatepost.toml").write_text(WHOLE)
    assert run(["check", str(folder / "gatepost.toml")]) == 0
    assert run(["check", str(folder / "gatepost.toml"), "--server", "nobody"]) == 1
    assert 'server "nobody" of the option --server does not exist' in capsys.readouterr().out


def test_a_hub_without_a_postmaster(tmp_path: Path) -> None:
    """RFC 5321, section 4.5.1: said when the directory is there; one address does for all domains."""
    (tmp_path / "spool").mkdir()
    file = tmp_path / "hub.toml"
    text = FILE.format(folder=tmp_path, port=2525, mailbox_port=2424, outside_port=2526, hub="", protocol="lmtp")
    file.write_text(
        text.replace('accepted_domains = ["contoso.com"]', 'accepted_domains = ["contoso.com", "b.example"]')
    )

    def said() -> str:
        return "\n".join(
            line for line in CliRunner().invoke(command, [str(file)]).output.splitlines() if "postmaster" in line
        )

    assert said() == ""
    user = User("anna@contoso.com", Mailbox("DB01"))
    with DirectoryEditor(str(tmp_path / "directory.sqlite")) as editor:
        editor.add(Entry(user))
    assert said() == (
        f"{file}: warning: organization: nobody has the address postmaster at contoso.com, b.example: mail to it, and "
        "answers to reports, go back; let somebody have it: gatepost user set NAME --add-address postmaster@contoso.com"
    )
    with DirectoryEditor(str(tmp_path / "directory.sqlite")) as editor:
        editor.change(user.name, lambda entry: Entry(entry.user, ("postmaster@b.example",)))
    assert "postmaster at contoso.com:" in said()
    with DirectoryEditor(str(tmp_path / "directory.sqlite")) as editor:
        editor.change(user.name, lambda entry: Entry(entry.user, ("postmaster@contoso.com",)))
    assert said() == ""
