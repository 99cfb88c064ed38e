"""Real servers and a real front door for the integration tests.

How to use it::

    async def test_a_user_reaches_his_mailbox(front_door, alice):
        host, port = front_door.addresses["imaps"]      # imap imaps pop3 pop3s https http
        context = front_door.client_context             # trusts the lab's CA; certificates carry the IP addresses
        ...
        front_door.process.events("imap.session")       # its log lines; a session's comes when it has ended:
        front_door.process.wait_for_event("imap.session", user="alice@contoso.com")

- `servers` (session): `servers.dovecot("MBX-01")`, `.cyrus()`, `.nginx()`, `.radicale()`, `.sogo()`,
  `.mailbox_web("EX03-01", "2003")` start on first use and live to the end of the run. Each has its own loopback
  address; `.ports`; Dovecot also `.sign_ins()` (`rip`, `user`, …) and `.log_text()`.
  What is not installed skips the test, or fails it when `CI` or `GATEPOST_REQUIRE_SERVERS` is set.
- `front_door` (session): CAS-01 before two Dovecots: MBX-01 is reached in clear with ID/XCLIENT, MBX-02 by implicit TLS
  with PROXY v2; both by master user. Users alice (DB01 on MBX-01), bob (DB02 on MBX-02), passwords `apw`, `bpw`.
  Each INBOX holds one message whose subject names the server.
- `start_front_door` (function): `start_front_door(change=lambda front_end, organization: …, users=[…])` starts another
  one of your own: `change` edits the two tables (of the file format) before they are written. Stopped after the test.
- `sogo` (session): SOGo's webmail, ActiveSync and DAV on the mailboxes of a Dovecot of its own, MBX-04; see
  `lab/servers/sogo.py`, `doors.add_sogo`, and `activesync.py` for a phone.
- `sites` (function): four front ends in three sites before mailbox servers of every version, see `sites.py`; they stay
  between tests, each of which finds them whole.
- `start_balanced` (function): a front end before servers that the test plays itself, see `balanced.py`.
- `browser` (function): fresh headless Chromiums, see `browser.py`.
- `etcd_node`, `etcd_cluster` (session), `own_cluster` (function): etcd with one or three members, see `etcd_kit.py`.
- `scratch_disk`, `tmpfs` (function): a folder on a real disk, a file system of 24 MB (root only).
- Fixtures `cyrus_door`: a front door with carol (DB03 on Cyrus, MBX-03) beside the two others.

A test that stops or moves things takes its own `start_front_door`, never the shared `front_door`.
"""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ad_kit import domain  # noqa: F401 - a fixture
from balanced import start as start_balanced  # noqa: F401 - a fixture
from browser import browser, chromium_home  # noqa: F401 - fixtures
from doors import FrontDoor, Servers, start
from etcd_kit import etcd_cluster, etcd_node, own_cluster, shared_etcd  # noqa: F401 - fixtures
from kerberos_kit import realm  # noqa: F401 - a fixture
from onward_kit import onward  # noqa: F401 - a fixture
from sites import all_sites, sites  # noqa: F401 - fixtures
from sql_kit import mariadb, postgresql  # noqa: F401 - fixtures

from gatepost.lab.servers.gatepost import LabUser
from gatepost.lab.servers.sogo import Sogo
from gatepost.lab.toml_text import Table

Change = Callable[[Table, Table], None]
StartFrontDoor = Callable[..., FrontDoor]

HERE = Path(__file__).parent


LONG = (
    "test_benchmarks.py", "test_service_life.py", "test_manager.py", "test_mail_servers.py", "test_submission.py",
    "test_shadow_proving.py", "test_proving.py", "test_simulated_shadows_at_length.py", "test_lab_tour.py",
)  # fmt: skip
"""Files of minutes: they come first, so that no core waits for the last of them when all else is done."""


@pytest.hookimpl(trylast=True)  # when the order has been drawn
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test in this directory is an integration test."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.integration)
    items.sort(key=lambda item: LONG.index(item.path.name) if item.path.name in LONG else len(LONG))


@pytest.fixture(autouse=True)
def nothing_left_open() -> Iterator[None]:
    """A socket that a test has dropped without closing it is that test's fault, not of whoever is collected with it."""
    yield
    gc.collect()


@pytest.fixture(scope="session")
def scratch() -> Iterator[Path]:
    """A directory with a short path (Unix sockets) that mail processes of other accounts may pass through."""
    path = Path(tempfile.mkdtemp(prefix="gp-"))
    path.chmod(0o711)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
def servers(scratch: Path) -> Iterator[Servers]:
    """All real servers; each starts on first use."""
    found = Servers(scratch)
    yield found
    found.stop()


@pytest.fixture(scope="session")
def sogo(servers: Servers) -> Sogo:
    """A SOGo on MBX-04's mailboxes: a real webmail and ActiveSync server (`activesync.Phone` is its client)."""
    return servers.sogo()


@pytest.fixture(scope="session")
def front_door(servers: Servers) -> Iterator[FrontDoor]:
    """CAS-01 before MBX-01 and MBX-02 (both Dovecot), shared by tests that change nothing."""
    with start(servers) as door:
        yield door


@pytest.fixture(scope="session")
def cyrus_door(servers: Servers) -> Iterator[FrontDoor]:
    """Like `front_door`, and MBX-03 is a Cyrus with carol's mailbox (STARTTLS, sign-in by authorization identity)."""
    with start(servers, cyrus=True) as door:
        yield door


@pytest.fixture
def start_front_door(servers: Servers) -> Iterator[StartFrontDoor]:
    """Start front doors of one's own; they are stopped after the test."""
    running: list[FrontDoor] = []

    def begin(
        change: Change | None = None, users: list[LabUser] | None = None, *, cyrus: bool = False, wait: bool = True
    ) -> FrontDoor:
        running.append(start(servers, change, users, cyrus=cyrus, wait=wait))
        return running[-1]

    yield begin
    for door in running:
        door.stop()


@pytest.fixture
def scratch_disk() -> Iterator[Path]:
    """A folder on a real disk where there is one: the temporary folder may be memory."""
    folder = Path(tempfile.mkdtemp(prefix="gp-spool-", dir="/var/tmp"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def tmpfs(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MB."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root: sudo pytest …")
    folder = tmp_path / "small"
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", folder], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {made.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)
