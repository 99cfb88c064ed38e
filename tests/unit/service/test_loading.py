"""What the loader says of a configuration that cannot be used."""

from __future__ import annotations

from pathlib import Path

import pytest

from gatepost.service.handing_over import Invalid, load
from gatepost.service.loading import load_for_service

FAULTY = """
[front_end]
server = "CAS-01"
directory = "directory.sqlite"
registry = "registry.sqlite"
[organization]
name = "contoso"
accepted_domains = ["contoso.com"]
[sites.usa]
[servers.CAS-01]
site = "nowhere"
roles = ["client-access"]
endpoints = { imap = { port = 1143, tls = "clear" } }
[servers.MBX-01]
site = "usa"
roles = ["mailbox"]
endpoints = { imap = { tls = "clear", address = "127.0.0.9" } }
[databases.LONE]
copies = [{ server = "MBX-01" }]
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "gatepost.toml"
    path.write_text(FAULTY)
    return str(path)


def _judge(fault: Invalid) -> None:
    assert fault.warnings < set(fault.findings)
    assert all("warning: " in text for text in fault.warnings)
    assert any("LONE" in text for text in fault.warnings)
    assert [text for text in fault.findings if "nowhere" in text and text not in fault.warnings] != []


def test_warnings_are_told_from_what_makes_it_unusable(file: str) -> None:
    with pytest.raises(Invalid) as raised:
        load_for_service(file, None, 1)
    _judge(raised.value)


async def test_the_supervisor_hears_which_are_warnings(file: str) -> None:
    """Through the loader's process."""
    with pytest.raises(Invalid) as raised:
        await load(file, None, 1)
    _judge(raised.value)
