"""What a hub's check says of certificates that are missing (SPEC T1), and that it starts without one."""

from __future__ import annotations

from pathlib import Path

from gatepost.configuration.load import load
from gatepost.service.loading import load_for_service

FILE = """
[front_end]
server = "HUB-01"
directory = "directory.sqlite"
registry = "registry.sqlite"

[front_end.transport]
spool = "spool"

[organization]
name = "contoso"
accepted_domains = ["contoso.com"]

[sites.usa]

[servers.HUB-01]
site = "usa"
roles = ["hub-transport"]
fqdn = "hub-01.contoso.com"
address = "127.0.1.1"
endpoints = { smtp = {}, submission = {} }

[send_connectors.Internet]
address_spaces = ["*"]
source_servers = ["HUB-01"]
"""
OTHER = """
[servers.HUB-02]
site = "usa"
roles = ["hub-transport"]
fqdn = "hub-02.contoso.com"
address = "127.0.1.2"
endpoints = { smtp = {} }
"""


def findings(folder: Path, text: str) -> list[tuple[bool, str]]:
    """Whether an error, and the text, of what is said of certificates."""
    file = folder / "hub.toml"
    file.write_text(text)
    return [(f.is_error, str(f)) for f in load(str(file)).findings if "certificate" in str(f).removeprefix(str(file))]


def test_without_a_certificate_nobody_signs_in(tmp_path: Path) -> None:
    [(is_error, text)] = findings(tmp_path, FILE)
    assert not is_error
    assert "nobody can sign in at Default HUB-01, Client HUB-01" in text


def test_tls_that_is_required_needs_one(tmp_path: Path) -> None:
    [(is_error, text)] = findings(tmp_path, FILE.replace("submission = {}", "submissions = {}"))
    assert is_error
    assert "TLS is required at Client HUB-01" in text


def test_other_hubs_must_know_it(tmp_path: Path) -> None:
    _, (is_error, text) = findings(tmp_path, FILE + OTHER)
    assert not is_error
    assert "HUB-02 and HUB-01 cannot hand each other mail" in text
    assert "gatepost ca issue HUB-01" in text


def test_hubs_that_speak_in_clear_need_none(tmp_path: Path) -> None:
    other = OTHER.replace("smtp = {}", 'smtp = { tls = "clear" }')
    assert len(findings(tmp_path, FILE + other)) == 1


def test_the_service_starts_without_one(tmp_path: Path) -> None:
    file = tmp_path / "hub.toml"
    file.write_text(FILE)
    assert load_for_service(str(file), None, 1).configuration.server.name == "HUB-01"
