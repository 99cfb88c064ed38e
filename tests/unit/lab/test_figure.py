"""The figure: ports that can be had, and an organization that the check has nothing to say about."""

from __future__ import annotations

from pathlib import Path

import pytest

from gatepost.configuration.files import file_mode
from gatepost.configuration.load import load
from gatepost.lab import figure, hubs
from gatepost.lab.fleet import Fleet, Variant


def test_root_gets_the_standard_ports() -> None:
    """143, 993, 110, 995 and 443, on each front end's own address."""
    ports = figure.choose_ports(root=True, can=lambda _address, _port: True)
    assert ports.front["CAS-02"] == {"imap": 143, "imaps": 993, "pop3": 110, "pop3s": 995, "https": 443, "peer": 444}
    assert ports.notes == []


def test_others_get_high_ports_without_a_word() -> None:
    """1143 and so on are what an ordinary user may have: nothing to complain about."""
    ports = figure.choose_ports(root=False, can=lambda _address, _port: True)
    assert ports.front["CAS-01"]["imap"] == 1143
    assert ports.web["MBX-01"] == 1443
    assert ports.notes == []


def test_a_busy_port_is_replaced_and_named() -> None:
    """The note says whose port, which one, and what is taken instead."""
    ports = figure.choose_ports(root=True, can=lambda address, port: (address, port) != ("127.0.1.1", 993))
    assert ports.front["CAS-01"]["imaps"] == 1993
    assert ports.front["CAS-02"]["imaps"] == 993
    assert ports.notes == ["CAS-01: 127.0.1.1 port 993 is busy or not allowed, 1993 is taken instead"]


def test_when_all_is_busy_any_free_ports_are_taken() -> None:
    """All different on one address; of each machine one line is said."""
    ports = figure.choose_ports(root=True, can=lambda _address, _port: False)
    taken = list(ports.front["CAS-01"].values())
    assert len(set(taken)) == len(taken)
    assert min(taken) > 1023
    assert [note.partition(":")[0] for note in ports.notes] == [*figure.FRONT_ENDS, *hubs.HUBS, *figure.MAILBOX_SERVERS]
    assert ports.notes[0] == (
        "CAS-01: 127.0.1.1 ports 143, 993, 110, 995, 443, 444, 25, 587 are busy or not allowed, "
        f"{', '.join(map(str, taken))} are taken instead"
    )


@pytest.mark.parametrize("builtin", [False, True])
def test_the_organization_has_no_faults(tmp_path: Path, builtin: bool) -> None:
    """What the lab writes is an example for others: no error and no warning, but of two sites without hubs."""
    ports = figure.choose_ports(root=True, can=lambda _address, _port: True)
    fleet = Fleet(tmp_path, ports, builtin=builtin)
    fleet.write_configuration()
    loaded = load(str(fleet.configuration), mode_of=file_mode)
    without_hub = [finding for finding in loaded.findings if "but no hub" in str(finding)]
    assert len(without_hub) == 2
    assert [str(finding) for finding in loaded.findings if finding not in without_hub] == []
    assert loaded.configuration is not None
    assert set(loaded.configuration.organization.servers) == {*figure.FRONT_ENDS, *figure.MAILBOX_SERVERS, *hubs.HUBS}


def test_a_lab_without_hubs_has_nothing_that_leads_to_them(tmp_path: Path) -> None:
    """As the proving has it."""
    ports = figure.choose_ports(root=True, can=lambda _address, _port: True)
    variant = Variant(servers=(*figure.FRONT_ENDS, *figure.MAILBOX_SERVERS))
    fleet = Fleet(tmp_path, ports, builtin=False, variant=variant)
    fleet.write_configuration()
    loaded = load(str(fleet.configuration), mode_of=file_mode)
    assert [str(finding) for finding in loaded.findings] == []
    endpoints = {e.name for server in loaded.require().organization.servers.values() for e in server.endpoints}
    assert endpoints.isdisjoint({"smtp", "submission", "lmtp"})
