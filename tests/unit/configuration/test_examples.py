"""The examples are sound, and say what is missing where their files are not there."""

from __future__ import annotations

from pathlib import Path

import pytest
from configuration_samples import NOW, authority, chain, leaf

from gatepost.configuration.load import Loaded, load
from gatepost.organization.model import Role

EXAMPLES = Path(__file__).parents[3] / "examples"

FINDINGS = {
    "two-dovecots.toml": [
        "warning: database DB01: has one copy only, on mb-1: if that server is lost, nothing takes over",
        "warning: database DB02: has one copy only, on mb-2: if that server is lost, nothing takes over",
    ],
    "contoso.toml": [],
}


def _load(name: str, server: str | None = None) -> Loaded:
    front = leaf("mail.example.com", "www.usa.contoso.com", "www.europe.contoso.com", "cas-03.contoso.com")

    def read(path: str) -> bytes:
        if path.endswith(".toml"):
            return Path(path).read_bytes()
        contents = {
            "ca.crt": authority().cert_pem.bytes(),
            "master": b"secret\n",
            ".crt": chain(front),
            ".key": front.private_key_pem.bytes(),
        }
        return next(content for end, content in contents.items() if path.endswith(end))

    return load(str(EXAMPLES / name), read, server, now=NOW)


@pytest.mark.parametrize(("name", "expected"), FINDINGS.items())
def test_examples_give_the_findings_they_speak_of(name: str, expected: list[str]) -> None:
    """No errors, and only the warnings that their comments explain."""
    loaded = _load(name)
    texts = [str(finding).split(": ", 1)[1].partition(";")[0] for finding in loaded.findings]
    assert texts == expected
    assert loaded.configuration is not None


def test_every_example_is_tested() -> None:
    """A new one needs its line above."""
    assert {path.name for path in EXAMPLES.glob("*.toml")} == FINDINGS.keys()


def test_the_figure_of_the_sources() -> None:
    """Three sites, CAS-01 and CAS-02 Internet-facing and CAS-03 not, a mailbox server and a database in each."""
    organization = _load("contoso.toml").require().organization
    servers = organization.servers
    facing = {name: organization.sites[servers[name].site].internet_facing for name in ("CAS-01", "CAS-02", "CAS-03")}
    assert facing == {"CAS-01": True, "CAS-02": True, "CAS-03": False}
    for number in ("01", "02", "03"):
        assert servers[f"MBX-{number}"].roles == {Role.MAILBOX}
        assert servers[f"MBX-{number}"].site == servers[f"CAS-{number}"].site
        assert organization.databases[f"DB{number}"].copies[0].server == f"MBX-{number}"
    external = {directory.server for directory in organization.virtual_directories if directory.external_url}
    assert external == {"CAS-01", "CAS-02"}


@pytest.mark.parametrize("server", ["CAS-02", "CAS-03"])
def test_the_other_front_ends_run_from_the_same_file(server: str) -> None:
    """By the option `--server`, as the file says."""
    loaded = _load("contoso.toml", server)
    assert loaded.findings == ()
    assert loaded.require().server.name == server


def test_missing_files_are_named_one_by_one() -> None:
    """A reader who has only the example learns what to put where."""
    found = [str(finding) for finding in load(str(EXAMPLES / "two-dovecots.toml"), now=NOW).findings]
    for missing in ("pki/mail.example.com.crt", "pki/mail.example.com.key", "pki/ca.crt", "secrets/master"):
        assert any(f"{missing} cannot be read: No such file or directory" in line for line in found)
