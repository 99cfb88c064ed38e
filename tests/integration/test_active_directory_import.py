"""`gatepost organization import-ad` against a real domain controller."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from ad_kit import SERVICE, SERVICE_PASSWORD, Administrator, Domain
from click.testing import CliRunner, Result

from gatepost.cli.main import command as gatepost
from gatepost.configuration.load import load_organization


def _run(domain: Domain, file: Path, *arguments: str) -> Result:
    command = [
        "organization", "import-ad", "--organization", str(file), "--ldap", domain.server.url, "--ca", str(domain.ca),
        "--bind-name", SERVICE, "--bind-password-file", str(domain.secret), *arguments,
    ]  # fmt: skip
    return CliRunner().invoke(gatepost, command)


@pytest.fixture
def imported(domain: Domain, tmp_path: Path) -> Path:
    """A file that was made by an import."""
    file = tmp_path / "organization.toml"
    done = _run(domain, file, "--site", "EX-OLD=usa", "--yes")
    assert done.exit_code == 0, done.output
    return file


def test_a_new_file_is_an_organization_without_faults(imported: Path) -> None:
    loaded = load_organization(str(imported))
    assert not loaded.errors, loaded.findings
    assert loaded.organization is not None


def test_show(imported: Path, domain: Domain, tmp_path) -> None:
    print(imported.read_text())
    print(_run(domain, tmp_path/"x.toml", "--dry-run").output)
    print(_run(domain, imported, "--dry-run").output)
    assert 0
