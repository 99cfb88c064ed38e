"""Headless Chromium for the integration tests, by Playwright's synchronous interface.

How to use it, in a plain `def` test (never `async def`)::

    def test_a_user_signs_in(browser, front_door):
        address, port = front_door.addresses["https"]
        context = browser.context(hosts={"mail.contoso.com": f"{address}:{port}"})
        page = context.new_page()
        page.goto("https://mail.contoso.com/owa/")      # the map says where, so addresses need no port
        page.get_by_label("Password").fill("apw")

Each context is a Chromium of its own (half a second): the map of host names belongs to a process. A host that is not in
the map is not found, so nothing leaves this machine. Loopback addresses work as they are.

While a test has a context open, an event loop counts as running in its thread: `asyncio.run` fails there until
`browser.close()`, which the fixture calls at the end of the test. That is why Playwright does not live longer than one
test: the next asynchronous one could not start.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
from doors import missing
from playwright.sync_api import BrowserContext, Playwright, sync_playwright

from gatepost.lab.servers.process import ServerMissing, require_program

PACKAGES = ("chromium",)
PHONE = (360, 640)
"""The viewport of a small phone."""
ACTION_SECONDS = 15.0
"""For each step of a page: milliseconds, or the machine is busy."""
LAUNCH_SECONDS = 60.0
"""For Chromium to start: half a second, or the machine is busy."""
LOOPBACK = "127.*"

ARGUMENTS = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


class Browsers:
    """Makes browsers with nothing remembered. `close` ends all of them."""

    def __init__(self, program: str, home: Path) -> None:
        """`home` is what Chromium takes for the user's home directory."""
        self._program = program
        self._home = home
        self._playwright: Playwright | None = None

    def context(
        self,
        hosts: Mapping[str, str] | None = None,
        *,
        ca_errors_ignored: bool = True,
        viewport: tuple[int, int] | None = None,
        javascript: bool = True,
        locale: str = "en-US",
    ) -> BrowserContext:
        """A fresh Chromium: no cookies, no cache.

        `hosts` maps a name, or `*.contoso.com`, to `address` or `address:port`. With `ca_errors_ignored` every
        certificate is good (the lab's authority is in no store). `viewport` is width and height in CSS pixels;
        `PHONE` makes it a touch screen too. `javascript=False` is a browser whose scripts are switched off.
        """
        if self._playwright is None:
            self._playwright = sync_playwright().start()
        chromium = self._playwright.chromium.launch(
            executable_path=self._program,
            args=[*ARGUMENTS, f"--host-resolver-rules={resolver_rules(hosts or {})}"],
            chromium_sandbox=os.geteuid() != 0,  # it refuses to run as root with its sandbox
            env={**os.environ, "HOME": str(self._home)},
            timeout=LAUNCH_SECONDS * 1000,
        )
        width, height = viewport or (1280, 720)
        context = chromium.new_context(
            ignore_https_errors=ca_errors_ignored,
            viewport={"width": width, "height": height},
            is_mobile=viewport == PHONE,
            has_touch=viewport == PHONE,
            java_script_enabled=javascript,
            locale=locale,
        )
        context.set_default_timeout(ACTION_SECONDS * 1000)
        return context

    def close(self) -> None:
        """End every browser, and Playwright's event loop in this thread."""
        if self._playwright is not None:
            self._playwright.stop()
            self._playwright = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def resolver_rules(hosts: Mapping[str, str]) -> str:
    """Chromium's `--host-resolver-rules`: these names, loopback addresses, and no other name."""
    rules = [f"MAP {name} {target}" for name, target in hosts.items()]
    return ", ".join([*rules, "MAP * ~NOTFOUND", f"EXCLUDE {LOOPBACK}", "EXCLUDE localhost"])


@pytest.fixture(scope="session")
def chromium_home(scratch: Path) -> tuple[str, Path]:
    """Where Chromium is, and a home directory for it. Without it the test is skipped, or fails where it is required."""
    try:
        program = require_program("chromium", PACKAGES)
    except ServerMissing as error:
        missing(error)
    home = scratch / "browser"
    home.mkdir(exist_ok=True)
    return program, home


@pytest.fixture
def browser(chromium_home: tuple[str, Path]) -> Iterator[Browsers]:
    """Browsers for one test."""
    with Browsers(*chromium_home) as made:
        yield made
