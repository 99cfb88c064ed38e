"""`gatepost organization import-ad`: what is asked, shown, written and refused. The domain controller is a capture."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result
from exchange_stage import captured, entry, with_more

from gatepost.cli.main import command as gatepost
from gatepost.directory.exchange.reading import CannotRead, Entries
from gatepost.directory.settings import LdapSettings

Run = Callable[..., Result]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[LdapSettings, bool]]:
    """The questions to Active Directory; it answers with the capture, or what was put into `answer`."""
    found: list[tuple[LdapSettings, bool]] = []

    async def read(settings: LdapSettings, *, only_sites: bool = False) -> Entries:
        found.append((settings, only_sites))
        entries = captured()
        return (
            Entries(sites=entries.sites, subnets=entries.subnets, site_links=entries.site_links)
            if only_sites
            else entries
        )

    monkeypatch.setattr("gatepost.directory.exchange.reading.read_directory", read)
    return found


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def command(*arguments: str, **options: Any) -> Result:
        given = ["organization", "import-ad", "--organization", str(tmp_path / "o.toml"), *arguments]
        return CliRunner().invoke(gatepost, given, **options)

    return command


LDAP = ("--ldap", "ldaps://dc-01.contoso.com")


def test_a_new_file_is_made_and_only_when_it_is_wanted(run: Run, asked: list[Any], tmp_path: Path) -> None:
    file = tmp_path / "o.toml"
    shown = run(*LDAP, "--dry-run")
    assert (shown.exit_code, file.exists()) == (0, False)
    assert "+[sites.usa]" in shown.output
    refused = run(*LDAP)
    assert (refused.exit_code, file.exists()) == (1, False)
    assert "nothing was changed: add --yes" in refused.output
    done = run(*LDAP, "--yes")
    assert (done.exit_code, file.exists()) == (0, True)
    assert f"changed {file}" in done.output
    again = run(*LDAP, "--yes")
    assert "nothing to change" in again.output
    assert "changed" not in again.output.replace("nothing to change", "")
    assert len(asked) == 4


def test_whom_and_as_whom_it_asks(run: Run, asked: list[Any], tmp_path: Path) -> None:
    secret, ca = tmp_path / "secret", tmp_path / "ca.crt"
    secret.write_text("geheim\n")
    ca.write_text("PEM")
    account = ("--bind-name", "reader@contoso.com", "--bind-password-file", str(secret), "--ca", str(ca))
    run(*LDAP, "--ldap", "ldap://dc-02.contoso.com", *account, "--dry-run")
    ((settings, only_sites),) = asked
    assert [(s.url, s.starttls, s.ca) for s in settings.servers] == [
        ("ldaps://dc-01.contoso.com", False, b"PEM"),
        ("ldap://dc-02.contoso.com", True, b"PEM"),
    ]
    assert (settings.bind_name, settings.bind_password, only_sites) == ("reader@contoso.com", "geheim", False)


def test_the_sites_alone(run: Run, asked: list[Any]) -> None:
    done = run(*LDAP, "--only-sites", "--dry-run")
    assert done.exit_code == 0
    assert "+[sites.usa]" in done.output
    assert "[servers" not in done.output
    assert asked[0][1] is True


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--ldap", "dc-01"), "write it like ldaps://dc-01.contoso.com"),
        ((*LDAP, "--site", "EX-OLD"), "write it like EX-01=usa"),
        ((*LDAP, "--site", "EX-OLD=mars"), "Active Directory has no such site"),
    ],
)
def test_wrong_options_are_explained(run: Run, asked: list[Any], arguments: tuple[str, ...], words: str) -> None:
    done = run(*arguments, "--dry-run")
    assert done.exit_code != 0
    assert words in done.output


def test_what_can_mean_two_things_is_refused(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def read(*_: Any, **__: Any) -> Entries:
        twin = entry("CN=\x07Fabrikam,CN=Microsoft Exchange,CN=Services")
        return with_more(captured(), "organizations", twin)

    monkeypatch.setattr("gatepost.directory.exchange.reading.read_directory", read)
    done = run(*LDAP, "--yes")
    assert done.exit_code == 1
    assert "several Exchange organizations" in done.output
    assert "\x07" not in done.output, "what a directory says must not move the cursor"
    assert not (tmp_path / "o.toml").exists()


def test_a_forest_without_exchange_says_so(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def read(*_: Any, **__: Any) -> Entries:
        return Entries(sites=captured().sites)

    monkeypatch.setattr("gatepost.directory.exchange.reading.read_directory", read)
    done = run(*LDAP, "--dry-run")
    assert done.exit_code == 1
    assert "--only-sites" in done.output


def test_an_unreachable_controller_is_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def read(*_: Any, **__: Any) -> Entries:
        raise CannotRead("no domain controller answers: ldaps://dc-01.contoso.com: refused")

    monkeypatch.setattr("gatepost.directory.exchange.reading.read_directory", read)
    done = run(*LDAP, "--dry-run")
    assert isinstance(done.exception, OSError), "which the command line prints as one line"


def test_without_a_directory_in_ldap_a_controller_must_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    configuration = SimpleNamespace(front_end=SimpleNamespace(directories=()))
    monkeypatch.setattr("gatepost.cli.organization.load_configuration", lambda _: configuration)
    for more, words in (((), "no directory in LDAP"), (("--directory", "corp"), "no directory corp in LDAP")):
        done = CliRunner().invoke(gatepost, ["organization", "import-ad", "-c", "gatepost.toml", *more, "--dry-run"])
        assert done.exit_code == 1
        assert f"gatepost.toml has {words}: name a domain controller with --ldap" in done.output
