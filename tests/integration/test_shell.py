"""A cmdlet reaches running front ends: by the file and the registry, without a signal and without a lost session."""

from __future__ import annotations

import imaplib
import itertools
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import pytest
from doors import FrontDoor
from service_kit import ADDRESS, Line, Service, until

from gatepost.lab.servers.gatepost import CommandFailed, run_gatepost
from gatepost.service.operators import ask

PRINTED = 'set-owavirtualdirectory "owa (default web site)" -RedirectToOptimalOWAServer $false'
"""The source's line."""
_numbers = itertools.count(1)


@pytest.fixture
def make_service(scratch: Path) -> Iterator[Callable[[], Service]]:
    """Front ends that are ended after the test."""
    made: list[Service] = []

    def make() -> Service:
        made.append(Service(scratch / f"followed-{next(_numbers)}", endpoints=("imap", "https")))
        return made[-1]

    yield make
    for service in made:
        service.stop()


def _shell(configuration: Path, text: str) -> str:
    return run_gatepost("shell", "--config", str(configuration), "-c", text)


def test_the_sources_line_reaches_a_running_front_end_within_a_second_and_an_imap_session_stays(
    start_front_door: Callable[..., FrontDoor],
) -> None:
    """`set-owavirtualdirectory` as printed: the configuration's version grows, the session goes on."""
    door = start_front_door()
    host, port = door.addresses["imaps"]
    socket_path = Path(door.front_end["registry"]).parent / "gatepost-CAS-01.sock"
    with imaplib.IMAP4_SSL(host, port, ssl_context=door.client_context) as session:
        session.login("alice", "apw")
        before = ask(socket_path)
        _shell(door.process.configuration, PRINTED)
        until(lambda: ask(socket_path).version > before.version, "the new configuration")
        assert session.select("INBOX")[0] == "OK", "the session is still there"
        after = ask(socket_path)
    # From the moment the file was written to the moment every worker had it.
    reloaded = datetime.fromisoformat(door.process.wait_for_event("configuration.reloaded")["time"])
    took = reloaded.timestamp() - door.process.configuration.stat().st_mtime
    assert took < 1.0, f"{took:.2f} s"
    assert [w.pid for w in after.workers] == [w.pid for w in before.workers]
    assert "redirect_to_optimal_owa_server = false" in door.process.configuration.read_text()
    assert door.process.events("organization.changed")


def test_every_front_end_on_the_registry_follows(make_service: Callable[[], Service]) -> None:
    """Two front ends with one registry and one organization: one cmdlet, two reloads, and no session is dropped."""
    first, second = make_service(), make_service()
    organization = first.folder / "gatepost.toml"
    port = second.ports["imap"]
    first.write(
        broken=f'[servers.CAS-02]\nsite = "usa"\nroles = ["client-access"]\naddress = "{ADDRESS}"\n'
        f"endpoints = {{ imap = {{ port = {port} }} }}\n"
    )
    (second.folder / "gatepost.toml").write_text(
        f'[front_end]\nserver = "CAS-02"\norganization = "{organization}"\nworkers = 1\n'
        f'directory = "{first.folder}/state/directory.sqlite"\nregistry = "{first.folder}/state/registry.sqlite"\n'
        f'certificate = "front.crt"\nprivate_key = "front.key"\nserver_ca = "{second.authority.certificate}"\n'
    )
    first.start()
    second.start()
    lines = [Line(service.ports["imap"]) for service in (first, second)]
    _shell(organization, "New-ClientAccessArray -Name USA -Fqdn outlook.contoso.com -Site usa")
    for service in (first, second):
        service.event("configuration.reloaded")
    assert [line.ask("still here") for line in lines] == ["still here", "still here"]
    # By the file that names the other one: that is the one to change.
    _shell(second.folder / "gatepost.toml", "Set-ClientAccessArray USA -Fqdn mail.contoso.com")
    for service in (first, second):
        service.event("configuration.reloaded", 2)
    assert 'fqdn = "mail.contoso.com"' in organization.read_text()


def test_a_change_that_is_refused_reaches_nobody(make_service: Callable[[], Service]) -> None:
    """The check finds an error: the file stays, the front end does not reload, the status is 1."""
    service = make_service()
    service.start()
    path = service.folder / "gatepost.toml"
    before = path.read_bytes()
    with pytest.raises(CommandFailed, match=r"ended with 1(.|\n)*refused"):
        _shell(path, "Remove-ClientAccessServer CAS-01 -Confirm:$false")
    assert path.read_bytes() == before
    assert service.events("organization.changed") == []
    assert service.status().version == 1
