"""Writing an organization's file: whole or not at all, one writer at a time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gatepost.configuration import saving
from gatepost.configuration.saving import CannotSave, held

OLD = b"# old\n" * 1000
NEW = b"# new and longer\n" * 5000

KILLED_AT = """
import os, signal, sys
from gatepost.configuration import saving
path, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
owner = {"write": None, "rename": saving.Path}.get(name, os)
def killing(real):
    seen = 0
    def call(*arguments, **options):
        global calls
        calls += 1
        if calls == count:
            os.kill(os.getpid(), signal.SIGKILL)
        result = real(*arguments, **options)
        if calls == -count:
            os.kill(os.getpid(), signal.SIGKILL)
        return result
    return call
calls = 0
with saving.held(path) as file:
    if name == "write":
        real_fdopen = os.fdopen
        def fdopen(*arguments, **options):
            opened = real_fdopen(*arguments, **options)
            class Half:
                def __enter__(self): return self
                def __exit__(self, *_): opened.close()
                def write(self, data):
                    opened.write(data[: len(data) // 2])
                    opened.flush()
                    os.kill(os.getpid(), signal.SIGKILL)
            return Half()
        os.fdopen = fdopen
    else:
        setattr(owner, name, killing(getattr(owner, name)))
    file.replace(open(sys.argv[4], "rb").read())
"""
"""Kills itself at the n-th call of a function that the writing uses, or in the middle of the write."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with the old content."""
    found = tmp_path / "organization.toml"
    found.write_bytes(OLD)
    return found


@pytest.mark.parametrize(
    ("name", "count", "expected"),
    [
        ("open", 1, OLD),
        ("write", 1, OLD),
        ("fchmod", 1, OLD),
        ("fsync", 1, OLD),
        ("rename", 1, OLD),
        ("fsync", 2, NEW),
    ],
)
def test_a_kill_at_any_moment_leaves_the_old_or_the_new_file(
    path: Path, tmp_path: Path, name: str, count: int, expected: bytes
) -> None:
    """SIGKILL before each step; the next writer is not in its way and leaves nothing lying about."""
    (tmp_path / "new").write_bytes(NEW)
    done = subprocess.run(
        [sys.executable, "-c", KILLED_AT, str(path), name, str(count), str(tmp_path / "new")], timeout=60
    )
    assert done.returncode == -signal.SIGKILL
    assert path.read_bytes() == expected
    with held(str(path)) as file:
        file.replace(OLD + NEW)
    assert path.read_bytes() == OLD + NEW
    assert sorted(p.name for p in tmp_path.iterdir()) == ["new", "organization.toml"]


def test_mode_owner_and_attributes_stay(path: Path) -> None:
    """As an operator set them."""
    path.chmod(0o640)
    group = next((g for g in os.getgroups() if g != path.stat().st_gid), path.stat().st_gid)
    if os.geteuid() == 0:
        group = 12345
    os.chown(path, -1, group)
    with held(str(path)) as file:
        file.replace(NEW)
    status = path.stat()
    assert (status.st_mode & 0o7777, status.st_gid) == (0o640, group)


def test_a_second_writer_waits_and_then_says_so(path: Path) -> None:
    """It gives up after its time, having changed nothing; once the first has finished it goes on."""
    with held(str(path)) as first:
        with pytest.raises(CannotSave, match="being changed by another command"), held(str(path), 0.1):
            pass
        first.replace(NEW)
    with held(str(path), 0.1) as second:
        assert second.content == NEW


def test_a_file_that_somebody_else_changed_meanwhile_is_not_overwritten(path: Path) -> None:
    """An editor asks for no lock."""
    with held(str(path)) as file:
        path.write_bytes(b"# by hand\n")
        with pytest.raises(CannotSave, match="changed by somebody else meanwhile"):
            file.replace(NEW)
    assert path.read_bytes() == b"# by hand\n"
    assert list(path.parent.glob(".*")) == []


def test_a_file_that_only_another_account_may_own_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rather than given to whoever runs the command."""

    def forbidden(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    real = os.stat_result
    status = list(path.stat())
    status[4] += 1
    monkeypatch.setattr(saving.Path, "stat", lambda self, **_: real(status))
    monkeypatch.setattr(os, "fchown", forbidden)
    with held(str(path)) as file, pytest.raises(CannotSave, match="belongs to another account"):
        file.replace(NEW)
    monkeypatch.undo()
    assert path.read_bytes() == OLD


def test_a_full_disk_leaves_the_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says that nothing was changed."""

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with held(str(path)) as file, pytest.raises(CannotSave, match=r"No space left on device. It was not changed"):
        file.replace(NEW)
    assert path.read_bytes() == OLD
    assert list(path.parent.glob(".*")) == []


def test_a_link_leads_to_the_file_that_is_changed(path: Path, tmp_path: Path) -> None:
    """The link stays a link."""
    link = tmp_path / "elsewhere" / "gatepost.toml"
    link.parent.mkdir()
    link.symlink_to(path)
    with held(str(link)) as file:
        file.replace(NEW)
    assert link.is_symlink()
    assert path.read_bytes() == NEW
