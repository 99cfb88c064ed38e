"""Two front ends that have no file in common, one shared store: who signs out at one is signed out at both."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browsers
from doors import FrontDoor, Servers, missing
from playwright.sync_api import expect
from test_forms_sign_in import HOME, Fleet, context, sign_in

from gatepost.lab.servers.gatepost import Gatepost, write_configuration
from gatepost.lab.servers.process import ServerMissing, free_ports
from gatepost.lab.servers.redis import RedisServer
from gatepost.lab.toml_text import Table

pytestmark = pytest.mark.integration
pytest.importorskip("redis", reason="the client of Redis is not installed")

SEEN_SECONDS = 30.0


class Machines(Fleet):
    """The second has files of its own for all that is shared."""

    def __init__(self, servers: Servers, store: Table) -> None:
        self.store = store
        super().__init__(servers)

    def _change(self, front_end: Table, organization: Table) -> None:
        super()._change(front_end, organization)
        front_end["workers"] = 1
        front_end["shared_store"] = self.store

    def _second(self) -> FrontDoor:
        first = self.first
        directory = self.servers.scratch / f"front-{self.address}"
        own = {"server": "CAS-02", "shared_state": str(directory / "shared.sqlite")}
        front_end = first.front_end | own
        path = write_configuration(directory / "gatepost.toml", front_end, first.organization)
        process = Gatepost("CAS-02", directory, path, {name: (self.address, port) for name, port in self.ports.items()})
        process.start()
        process.wait_ready()
        return FrontDoor(process, front_end, first.organization, first.ca)


@pytest.fixture
def machines(servers: Servers, scratch: Path) -> Iterator[Machines]:
    address = servers.address()
    try:
        redis = RedisServer(scratch / "redis-sign-outs", (address, free_ports(address, 1)[0]))
    except ServerMissing as error:
        missing(error)
    secret = scratch / "secret-sign-outs"
    secret.write_text("a secret that all front ends have")
    secret.chmod(0o600)
    redis.start()
    redis.wait_ready()
    try:
        made = Machines(servers, {"engine": "redis", "url": redis.url, "secret_file": str(secret)})
        yield made
        made.stop()
    finally:
        redis.stop()


def test_who_signs_out_at_one_is_signed_out_at_all(browser: Browsers, machines: Machines) -> None:
    """A copy of the cookie, taken before, is void at the other machine too."""
    page = context(browser, machines, javascript=False).new_page()
    page.goto(HOME)
    sign_in(page)
    expect(page).to_have_title(re.compile("alice@contoso.com on MBX-07"))
    stolen = page.context.cookies()
    machines.switch.to(machines.second)
    page.goto(HOME)
    expect(page).to_have_title(re.compile("alice@contoso.com on MBX-07"))
    machines.switch.to(machines.first)
    page.goto(HOME + "logoff")
    expect(page.get_by_role("heading")).to_have_text("You are signed out")
    thief = context(browser, machines, javascript=False)
    thief.add_cookies(stolen)  # type: ignore[arg-type]
    other = thief.new_page()
    machines.switch.to(machines.second)
    deadline = time.monotonic() + SEEN_SECONDS
    other.goto(HOME)
    while other.title() != "Sign in":
        assert time.monotonic() < deadline, other.title()
        time.sleep(0.2)
        other.goto(HOME)
