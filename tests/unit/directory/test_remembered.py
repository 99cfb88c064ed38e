"""Digests of right passwords in memory that workers share."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from gatepost.directory.remembered import DIGEST_BYTES, VARIABLE, Remembered, make_memory


def digest(number: int, in_set: int = 0) -> bytes:
    """One of many digests that belong into the same few places."""
    return in_set.to_bytes(4, "little") + number.to_bytes(DIGEST_BYTES - 4, "big")


def test_what_is_remembered_has_an_age() -> None:
    remembered = Remembered(sets=4)
    assert remembered.age(digest(1), 50.0) is None
    remembered.remember(digest(1), 50.0)
    assert remembered.age(digest(1), 62.5) == pytest.approx(12.5)
    remembered.remember(digest(1), 62.5)
    assert remembered.age(digest(1), 62.5) == 0.0
    assert remembered.age(digest(2), 62.5) is None


def test_a_full_set_forgets_what_was_right_longest_ago() -> None:
    remembered = Remembered(sets=2)
    for number in range(8):
        remembered.remember(digest(number), 10.0 + number)
    remembered.remember(digest(0), 30.0)
    remembered.remember(digest(8), 31.0)
    known = [number for number in range(9) if remembered.age(digest(number), 40.0) is not None]
    assert known == [0, 2, 3, 4, 5, 6, 7, 8]
    assert remembered.age(digest(1, in_set=1), 40.0) is None


def test_bytes_across_two_places_are_no_digest() -> None:
    """Only what was put there as one counts, whatever else the memory holds."""
    remembered = Remembered(sets=1)
    remembered.remember(digest(1), 1.0)
    remembered.remember(digest(2), 1.0)
    held = remembered._memory[32 : 32 + 48]
    for begin in range(1, 32):
        if begin != 24:
            assert remembered.age(held[begin : begin + DIGEST_BYTES], 2.0) is None


def test_processes_share_it_with_its_key_and_others_do_not() -> None:
    descriptor = make_memory(64)
    ours = Remembered(os.dup(descriptor))
    ours.remember(digest(1), 5.0)
    program = (
        "import os; from gatepost.directory.remembered import Remembered\n"
        "found = Remembered.inherited(os.environ)\n"
        f"assert found.age({digest(1)!r}, 6.0) == 1.0\n"
        f"found.remember({digest(2)!r}, 7.0)\n"
        "print(found.key.hex())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {VARIABLE: str(descriptor)},
        pass_fds=[descriptor],
        capture_output=True,
        text=True,
        check=True,
    )
    os.close(descriptor)
    assert done.stdout.strip() == ours.key.hex()
    assert ours.age(digest(2), 7.0) == 0.0
    alone = Remembered.inherited({})
    assert alone.key != ours.key
    assert alone.age(digest(1), 6.0) is None
