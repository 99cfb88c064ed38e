"""How the registry lies in etcd's keys, and the view that they make."""

from __future__ import annotations

import json

import pytest

from gatepost.activemanager.etcd.layout import Found, Layout, key_value, range_end, token_parts, written
from gatepost.activemanager.etcd.picture import BadValue, Picture
from gatepost.activemanager.port import Dial, Happened, HistoryEntry, Lease, Observation, RegistryView, ServerWord
from gatepost.routing.decision import ActiveCopy

LAYOUT = Layout("/gatepost/contoso")


def found(value: object, revision: int = 5, lease: int = 0) -> Found:
    return Found(written(value), revision, revision, lease)


def picture(keys: dict[str, Found]) -> tuple[Picture, list[BadValue]]:
    faults: list[BadValue] = []
    return Picture(LAYOUT, keys, faults.append), faults


def test_without_keys_it_is_empty() -> None:
    made, faults = picture({})
    assert made.view() == RegistryView()
    assert faults == []


def test_each_key_makes_its_part_and_takes_it_away_again() -> None:
    keys = {
        LAYOUT.changed: Found(b"", 2, 9),
        LAYOUT.key("active", "DB/1"): found({"server": "MBX-01", "epoch": 3, "by": "x"}),
        LAYOUT.key("words", "MBX-01"): found("draining"),
        LAYOUT.key("dials", "DB/1"): found("lossless"),
        LAYOUT.key("blocked", "DB/1", "MBX-02"): found(True),
        LAYOUT.key("observed", "MBX-01"): found({"imap": [False, 1.5, "silent"], "pop3": [True, 2, ""]}),
        LAYOUT.key("leases", "manager"): found({"holder": "CAS-01", "term": 4, "seconds": 3.0}, 8, 77),
        LAYOUT.key("leases", "other"): found({"holder": "CAS-02", "term": 1, "seconds": 3.0}),
        LAYOUT.key("organization"): found(6),
    }
    made, faults = picture(keys)
    assert faults == []
    assert made.view() == RegistryView(
        9,
        {"DB/1": ActiveCopy("DB/1", "MBX-01", 3)},
        6,
        {},
        {"MBX-01": ServerWord.DRAINING},
        frozenset({("DB/1", "MBX-02")}),
        {"DB/1": Dial.LOSSLESS},
        {
            ("MBX-01", "imap"): Observation("MBX-01", "imap", False, 1.5, "silent"),
            ("MBX-01", "pop3"): Observation("MBX-01", "pop3", True, 2.0),
        },
        Lease("manager", "CAS-01", 4, 3.0, "77:8"),
    )
    before = made.view()
    for key in keys:
        made.remove(key)
    assert made.view() == RegistryView(9)
    assert before.active, "a view that was given out stays"


def test_a_service_that_is_observed_no_more_is_gone() -> None:
    key = LAYOUT.key("observed", "MBX-01")
    made, _ = picture({key: found({"imap": [True, 1.0, ""], "pop3": [True, 1.0, ""]})})
    made.put(key, found({"imap": [True, 1.0, ""]}))
    assert set(made.view().observed) == {("MBX-01", "imap")}


@pytest.mark.parametrize("kind", ["active", "moves", "words", "dials", "observed", "leases"])
@pytest.mark.parametrize(
    "value", [b"", b"x", b"{}", b"[]", b"7", b"null", b'{"epoch": "x"}', b'{"imap": 1}', b"\xff", b'"sideways"']
)
def test_what_is_no_value_of_ours_is_named_and_passed_over(kind: str, value: bytes) -> None:
    """All others are there all the same."""
    name = "manager" if kind == "leases" else "X"
    good = LAYOUT.key("active", "DB01")
    keys = {LAYOUT.key(kind, name): Found(value, 1, 1), good: found({"server": "MBX-01", "epoch": 1})}
    made, faults = picture(keys)
    assert made.view().active == {"DB01": ActiveCopy("DB01", "MBX-01", 1)}
    if not (kind == "observed" and value == b"{}"):  # of which nothing was observed
        assert [str(fault).split()[2] for fault in faults] == [LAYOUT.key(kind, name)]


def test_keys_of_newer_versions_are_passed_over() -> None:
    made, faults = picture({LAYOUT.key("weather", "X"): Found(b"\xff", 1, 1), LAYOUT.now + "active/a/b": found(1)})
    assert made.view() == RegistryView()
    assert faults == []


@pytest.mark.parametrize("name", ["DB01", "a/b", "a%2Fb", "ü ñ", "..", "~"])
def test_the_history_gives_names_back(name: str) -> None:
    key = LAYOUT.history(Happened.ACTIVATED, name, 12)
    assert key.startswith(LAYOUT.history(Happened.ACTIVATED, name))
    assert key.startswith(LAYOUT.history(Happened.ACTIVATED))
    value = found({"time": 1.5, "server": "MBX-01", "holder": "CAS-01", "term": 2}, 40)
    assert LAYOUT.entry(key, value) == HistoryEntry(40, 1.5, Happened.ACTIVATED, name, "MBX-01", 12, "CAS-01", 2)
    leased = LAYOUT.entry(LAYOUT.history(Happened.LEASED, name, 2), value)
    assert leased == HistoryEntry(40, 1.5, Happened.LEASED, "", name, 0, "CAS-01", 2)


def test_the_history_of_a_database_is_not_that_of_another_with_a_longer_name() -> None:
    assert not LAYOUT.history(Happened.ACTIVATED, "DB011", 1).startswith(LAYOUT.history(Happened.ACTIVATED, "DB01"))


def test_keys_of_the_history_are_in_order() -> None:
    keys = [LAYOUT.history(Happened.ACTIVATED, "DB01", number) for number in (1, 9, 10, 99, 2**62)]
    assert keys == sorted(keys)


def test_a_prefix_ends_before_its_neighbour() -> None:
    assert LAYOUT.now < LAYOUT.key("words", "\U0010ffff") < range_end(LAYOUT.now) < Layout("/gatepost/contoso2").now


@pytest.mark.parametrize("token", ["", "x", "1", "1:", ":1", "1:x", "-1:1", "1:-1", "1:2:3"])
def test_a_token_that_was_never_given_out_is_nobodys(token: str) -> None:
    """No key was ever made at that revision, not even one that does not exist, whose number is 0."""
    assert token_parts(token)[1] < 0


def test_a_key_value_is_read_as_the_gateway_writes_it() -> None:
    """Numbers as texts; what is empty or zero is left out."""
    pair = json.loads('{"key": "L2E=", "create_revision": "5", "mod_revision": "9007199254740993"}')
    assert key_value(pair) == ("/a", Found(b"", 5, 9007199254740993))
