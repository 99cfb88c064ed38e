"""Sockets, lock, notifications, privileges, the worker's bootstrap and the systemd unit."""

from __future__ import annotations

import ctypes
import gc
import os
import shutil
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gatepost.organization.model import Endpoint, Protocol, TlsMode
from gatepost.service import privileges, serving
from gatepost.service.sd_notify import Notifier
from gatepost.service.sockets import AlreadyRunning, InstanceLock, ListenError, Listeners

ADDRESS = "127.0.84.1"
UNIT = Path(__file__).parents[3] / "contrib" / "systemd" / "gatepost.service"


def endpoint(name: str = "imap", port: int = 0, address: str = ADDRESS) -> Endpoint:
    """An endpoint on a free port."""
    if port == 0:
        with socket.create_server((address, 0)) as probe:
            port = probe.getsockname()[1]
    return Endpoint(name, Protocol.IMAP, address, port, TlsMode.STARTTLS, "cas-01")


def test_one_socket_a_slot_and_address() -> None:
    """Each slot has its own listening socket of each address."""
    listeners = Listeners()
    listeners.commit(listeners.prepare([endpoint("imap"), endpoint("imaps")], 3))
    found = [listeners.for_slot(slot) for slot in range(3)]
    assert len({sock.fileno() for names in found for group in names.values() for sock in group}) == 6
    assert all(s.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) for n in found for g in n.values() for s in g)
    listeners.close()


def test_failed_preparation_changes_nothing() -> None:
    """One port that is taken: nothing of the change is done, and its sockets are closed again."""
    listeners = Listeners()
    kept = endpoint("imap")
    listeners.commit(listeners.prepare([kept], 1))
    free = endpoint("pop3")
    with socket.create_server((ADDRESS, 0)) as other:
        taken = endpoint("imaps", other.getsockname()[1])
        with pytest.raises(ListenError, match=rf"imaps \({ADDRESS}:{taken.port}\).*ss -ltnp"):
            listeners.prepare([kept, free, taken], 1)
    assert list(listeners.for_slot(0)) == ["imap"]
    socket.create_server((ADDRESS, free.port)).close()
    listeners.close()


def test_shared_port_is_noticed() -> None:
    """A listener of another front end with SO_REUSEPORT would let us in: it counts as taken."""
    first, second = Listeners(), Listeners()
    shared = endpoint()
    first.commit(first.prepare([shared], 1))
    with pytest.raises(ListenError, match="Another process has this port"):
        second.prepare([shared], 1)
    first.close()


def test_change_keeps_sockets_that_stay() -> None:
    """An endpoint that only changes its TLS mode is opened anew in workers on the socket that is there."""
    listeners = Listeners()
    before = endpoint()
    listeners.commit(listeners.prepare([before], 1))
    sock = listeners.for_slot(0)["imap"][0]
    change = listeners.prepare([replace(before, tls=TlsMode.IMPLICIT), endpoint("pop3")], 2)
    assert (set(change.changed), change.closed) == ({"imap", "pop3"}, ("imap",))
    listeners.commit(change)
    assert listeners.for_slot(0)["imap"][0] is sock
    listeners.commit(listeners.prepare([], 2))
    assert sock.fileno() == -1


def test_addresses_of_both_families_share_a_port() -> None:
    """0.0.0.0 and :: on one port do not collide."""
    first = endpoint(address="0.0.0.0")
    listeners = Listeners()
    listeners.commit(listeners.prepare([first, replace(first, name="imap6", address="::")], 1))
    listeners.close()


@pytest.mark.parametrize(
    ("address", "remedy"), [("192.0.2.1", "No interface of this machine"), ("no.such.host.invalid", "Write an IP")]
)
def test_wrong_addresses_have_a_remedy(address: str, remedy: str) -> None:
    """An address that is not ours, and a name that does not resolve."""
    with pytest.raises(ListenError, match=remedy):
        Listeners().prepare([endpoint(port=1430, address=ADDRESS), endpoint("imaps", 1993, address)], 1)


def test_lock_is_exclusive_and_names_its_holder(tmp_path: Path) -> None:
    """The second holder learns the process id; after a release the lock is free."""
    path = str(tmp_path / "lock")
    lock = InstanceLock(path)
    with pytest.raises(AlreadyRunning, match=f"process {os.getpid()}"):
        InstanceLock(path)
    lock.release()
    InstanceLock(path).release()


def test_lock_follows_no_link(tmp_path: Path) -> None:
    """A link planted in the state folder does not make root write elsewhere."""
    (tmp_path / "lock").symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match="symbolic"):
        InstanceLock(str(tmp_path / "lock"))
    assert not (tmp_path / "victim").exists()


def test_notifications_in_an_abstract_socket() -> None:
    """A name that begins with @ is in the abstract namespace; the variables are taken out of the environment."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("")
        name = manager.getsockname()[1:].decode()
        environment = {"NOTIFY_SOCKET": f"@{name}", "WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getpid())}
        notifier = Notifier(environment)
        notifier.ready("Serving")
        assert manager.recv(1000).decode() == f"READY=1\nMAINPID={os.getpid()}\nSTATUS=Serving"
    assert environment == {}
    assert notifier.watchdog_seconds == 1.5
    notifier.watchdog()  # the manager is gone: no error
    notifier.close()
    notifier.watchdog()


def test_watchdog_of_another_process_is_not_ours() -> None:
    """WATCHDOG_PID of another process, or nonsense, means none."""
    assert Notifier({"WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"}).watchdog_seconds is None
    assert Notifier({"WATCHDOG_USEC": "soon"}).watchdog_seconds is None


def test_unknown_account_has_a_remedy() -> None:
    """The message says how to make it."""
    with pytest.raises(privileges.PrivilegeError, match="useradd --system nobody-of-this-name"):
        privileges.account("nobody-of-this-name")


@pytest.mark.skipif(os.geteuid() != 0, reason="acting as another account needs root")
def test_acting_as_an_account_ends(tmp_path: Path) -> None:
    """Files are made as the account; afterwards the process is root again, groups included."""
    before = (os.geteuid(), os.getegid(), os.getgroups())
    tmp_path.chmod(0o777)
    for folder in tmp_path.parents:
        if folder.name.startswith(("pytest-", "popen-")):  # closed to other accounts
            folder.chmod(0o711)
    account = privileges.account("nobody")
    with privileges.acting_as(account):
        (tmp_path / "made").touch()
    assert (tmp_path / "made").stat().st_uid == account.uid
    assert (os.geteuid(), os.getegid(), os.getgroups()) == before


ALLOCATIONS = """
import ctypes, sys
from gatepost.service.serving import tame_allocator
class Mallinfo2(ctypes.Structure):
    _fields_ = [(n, ctypes.c_size_t) for n in "arena ordblks smblks hblks hblkhd usmblks fsmblks use free top".split()]
libc = ctypes.CDLL(None)
libc.mallinfo2.restype = Mallinfo2
if sys.argv[1] == "tamed":
    tame_allocator()
before = libc.mallinfo2().hblks
block = bytes(3 * 1024 * 1024)
print(libc.mallinfo2().hblks - before)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="needs glibc 2.33 or later")
@pytest.mark.parametrize(("how", "mapped"), [("untamed", "1"), ("tamed", "0")])
def test_allocator_is_tamed(how: str, mapped: str) -> None:
    """Blocks far over the 256 KiB of a TLS read are no longer mapped by system calls of their own.

    3 MiB, since imports happen to raise the threshold a little; that must not be relied on.
    """
    ended = subprocess.run([sys.executable, "-c", ALLOCATIONS, how], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == mapped


def test_collector_looks_at_sessions_only() -> None:
    """What was there at the start is frozen; thresholds are those of the constant."""
    before = gc.get_threshold()
    try:
        serving.tune_collector()
        assert gc.get_freeze_count() > 1000
        assert gc.get_threshold() == serving.GC_THRESHOLDS
    finally:
        gc.set_threshold(*before)  # frozen is what was there at the start of the session, too


def unit_with(tmp_path: Path) -> Path:
    """The unit with a program that exists here."""
    path = tmp_path / "gatepost.service"
    path.write_text(UNIT.read_text().replace("/opt/gatepost/bin/gatepost", "/bin/true"))
    return path


needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="apt-get install systemd")


@needs_systemd
def test_unit_is_valid(tmp_path: Path) -> None:
    """`systemd-analyze verify` has nothing to say."""
    ended = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit_with(tmp_path)], capture_output=True, text=True, timeout=60
    )
    assert (ended.returncode, ended.stderr) == (0, "")


@needs_systemd
def test_unit_is_sandboxed(tmp_path: Path) -> None:
    """`systemd-analyze security` counts an exposure under 3 of 10; it stays root to bind ports and change accounts."""
    command = ["systemd-analyze", "security", "--offline=yes", "--no-pager", "--threshold=30", unit_with(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stdout


def test_unit_fits_the_supervisor() -> None:
    """The settings that the supervisor relies on."""
    lines = UNIT.read_text().splitlines()
    for line in ("Type=notify", "ExecReload=/bin/kill -HUP $MAINPID", "KillMode=mixed", "NoNewPrivileges=yes"):
        assert line in lines
