"""What a worker gives up before it accepts a connection, and what it takes: open files.

Linux only; the two prctl calls have no other home in the standard library than ctypes.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

_PR_SET_DUMPABLE = 4
_PR_SET_NO_NEW_PRIVS = 38


class PrivilegeError(RuntimeError):
    """The process cannot become what the configuration asks for. The message names the remedy."""


@dataclass(frozen=True, slots=True)
class Account:
    """A system account with all its groups."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]


def account(name: str) -> Account:
    """The account called `name`. Raises `PrivilegeError` when there is none."""
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise PrivilegeError(
            f"There is no system account {name!r}. Create it (useradd --system {name}) or change front_end.user."
        ) from None
    return Account(name, entry.pw_uid, entry.pw_gid, tuple(os.getgrouplist(name, entry.pw_gid)))


def check_can_become(wanted: Account) -> None:
    """Raises `PrivilegeError` when this process may not become `wanted`."""
    if os.geteuid() not in {0, wanted.uid}:
        raise PrivilegeError(
            f"front_end.user is {wanted.name!r}, but this process runs as uid {os.geteuid()} and cannot change to it. "
            f"Start as root or as {wanted.name}, or leave front_end.user empty."
        )


def become(wanted: Account) -> None:
    """Becomes `wanted` for good. Raises `PrivilegeError` when the way back is still open."""
    if os.geteuid() == 0:
        os.setgroups(wanted.groups)
        os.setresgid(wanted.gid, wanted.gid, wanted.gid)
        os.setresuid(wanted.uid, wanted.uid, wanted.uid)
    check_can_become(wanted)
    if wanted.uid == 0:
        return
    try:
        os.setuid(0)
    except PermissionError:
        return
    raise PrivilegeError(f"This process became {wanted.name} but could become root again.")


@contextmanager
def acting_as(wanted: Account) -> Iterator[None]:
    """For a while this process acts as `wanted`, with the way back open; only root does, others just go on."""
    if os.geteuid() != 0:
        yield
        return
    groups, group = os.getgroups(), os.getegid()
    os.setgroups(wanted.groups)
    os.setegid(wanted.gid)
    os.seteuid(wanted.uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(group)
        os.setgroups(groups)


def can_read(wanted: Account, path: str) -> bool:
    """Whether `wanted` may read the file `path`."""
    with acting_as(wanted):
        return os.access(path, os.R_OK, effective_ids=True)


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option})")


def no_new_privileges() -> None:
    """No exec gains privileges any more. Per thread: call before any is started."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def forbid_core_dumps() -> None:
    """No memory image on disk, no tracing by the same account: the process holds passwords and a private key.

    Call it after `become`: a change of the user id sets the flag anew.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _prctl(_PR_SET_DUMPABLE, 0)


def raise_open_files(wanted: int) -> int:
    """Raises the limit of open files towards `wanted` as far as allowed; answers the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= wanted or soft == resource.RLIM_INFINITY:
        return soft
    for new_soft, new_hard in ((wanted, max(wanted, hard)), (min(wanted, hard), hard)):
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (new_soft, new_hard))
            return new_soft
        except (ValueError, OSError):
            # Only root raises the hard limit, and only up to fs.nr_open.
            continue
    return soft
