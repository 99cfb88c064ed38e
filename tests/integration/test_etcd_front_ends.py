"""Two front ends with one registry in etcd: what one machine's commands change, the other's workers do."""

from __future__ import annotations

import imaplib
import signal
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest
from doors import FrontDoor
from test_mail_servers import imap, subject

from gatepost.activemanager.etcd.registry import EtcdRegistry
from gatepost.configuration.settings import EtcdSettings
from gatepost.lab.servers.etcd import EtcdCluster
from gatepost.lab.toml_text import Table

StartFrontDoor = Callable[..., FrontDoor]
SEEN_SECONDS = 5.0


@pytest.fixture
def pair(start_front_door: StartFrontDoor, own_cluster: EtcdCluster) -> tuple[FrontDoor, FrontDoor]:
    """Each has its own folder for what belongs to its machine alone."""

    def in_etcd(front_end: Table, _: Table) -> None:
        front_end["etcd"] = {"endpoints": list(own_cluster.urls)}

    return start_front_door(in_etcd), start_front_door(in_etcd)


def home(door: FrontDoor) -> str:
    """The mailbox server that alice is taken to."""
    client = imap(door)
    try:
        client.login("alice", "apw")
        return subject(client).partition("on ")[2][:6]
    finally:
        with suppress(OSError):
            client.shutdown()  # also when the session was ended: its end by LOGOUT would leave the socket open


def until_home(door: FrontDoor, server: str) -> None:
    deadline = time.monotonic() + SEEN_SECONDS
    found = ""
    while found != server:
        assert time.monotonic() < deadline, f"alice is still taken to {found}"
        with suppress(imaplib.IMAP4.abort, ConnectionResetError):  # a worker that was being replaced
            found = home(door)


def test_a_move_by_one_machine_is_followed_by_the_other(pair: tuple[FrontDoor, FrontDoor]) -> None:
    first, second = pair
    assert home(first) == home(second) == "MBX-01"
    first.command("database", "activate", "DB01", "--server", "MBX-02")
    until_home(second, "MBX-02")
    until_home(first, "MBX-02")
    assert '"epoch": 2' in second.command("database", "list", "--json")
    for door in pair:
        assert not Path(door.front_end["registry"]).exists(), "the file is not used"


def test_users_sign_in_while_the_cluster_has_no_majority(
    pair: tuple[FrontDoor, FrontDoor], own_cluster: EtcdCluster
) -> None:
    """By the last known answer; commands say that they cannot, and why; then all goes on by itself."""
    first, second = pair
    first.command("database", "activate", "DB01", "--server", "MBX-02")
    until_home(second, "MBX-02")
    for member in own_cluster.members[1:]:
        member.kill()
    assert home(second) == "MBX-02"
    refused = first.command("database", "activate", "DB01", "--server", "MBX-01", status=1)
    assert "etcd has not answered" in refused
    assert "Traceback" not in refused
    own_cluster.start()
    first.command("database", "activate", "DB01", "--server", "MBX-01")
    until_home(second, "MBX-01")


def test_workers_that_start_while_there_is_no_majority_go_on_from_what_was_known(
    pair: tuple[FrontDoor, FrontDoor], own_cluster: EtcdCluster
) -> None:
    """Also of a service that is started then: an operator who restarts things in an outage does not make it worse."""
    first, second = pair
    first.command("database", "activate", "DB01", "--server", "MBX-02")
    until_home(second, "MBX-02")
    known = next(Path(second.front_end["registry"]).parent.glob("registry-known-*.json"))
    until(lambda: '["DB01", "MBX-02", 2]' in known.read_text(), "the move is remembered", 15.0)
    for member in own_cluster.members:
        member.kill()
    second.process.stop()
    second.process.start()
    second.process.wait_ready()
    assert home(second) == "MBX-02"
    own_cluster.start()
    first.command("database", "activate", "DB01", "--server", "MBX-01")
    until_home(second, "MBX-01")


def test_a_reload_follows_to_another_prefix(pair: tuple[FrontDoor, FrontDoor]) -> None:
    """Workers hold the registry that they were started with, so others are started."""
    first, second = pair
    first.command("database", "activate", "DB01", "--server", "MBX-02")
    until_home(second, "MBX-02")
    second.front_end["etcd"]["prefix"] = "/elsewhere"
    second.write()
    second.command("database", "list")
    second.process.signal(signal.SIGHUP)
    until_home(second, "MBX-01")
    assert home(first) == "MBX-02"


def test_a_change_of_the_organization_is_told_to_all_machines(
    pair: tuple[FrontDoor, FrontDoor], own_cluster: EtcdCluster
) -> None:
    """By the number that the shell counts up; each front end reads its file once for it."""
    with closing(EtcdRegistry(EtcdSettings(own_cluster.urls, "/gatepost/contoso"))) as registry:
        for version in (4, 5):
            registry.set_organization_version(version)
            for door in pair:
                until(lambda door=door, version=version: version in seen(door), f"version {version} is followed")
    time.sleep(0.5)
    for door in pair:
        assert seen(door) == [4, 5]
        assert home(door) == "MBX-01"


def seen(door: FrontDoor) -> list[int]:
    """The versions of the organization that the log says were followed."""
    return [event["version"] for event in door.process.events("organization.changed")]


def until(holds: Callable[[], bool], what: str, seconds: float = SEEN_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)
