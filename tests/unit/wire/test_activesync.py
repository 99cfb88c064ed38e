"""Which devices follow 451, and what identifies a device."""

from __future__ import annotations

import base64
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatepost.wire.activesync import MAX_DEVICE_ID, device_key, follows_451


@pytest.mark.parametrize(
    ("version", "follows"),
    [
        (b"2.0", False), (b"2.5", False), (b"12.0", False), (b" 12.0 ", False), (b"12.1", True), (b"14.0", True),
        (b"14.1", True), (b"16.1", True), (b"120.0", True),
        (None, True), (b"", True), (b"twelve", True), (b"12", True), (b"-1.0", True), (b"12.1.1", True),
    ],
)  # fmt: skip
def test_devices_before_12_1_cannot_follow_451(version: bytes | None, *, follows: bool) -> None:
    """They are proxied (field case 121); a version that is missing or says nothing counts as a new one."""
    assert follows_451(version) is follows


def short_query(device: bytes, *, version: int = 121) -> bytes:
    """The binary structure of MS-ASHTTP 2.2.1.1.1.1: version, command, locale, device id, policy key, device type."""
    data = bytes((version, 0)) + b"\x09\x04" + bytes((len(device),)) + device + b"\x04\x01\x02\x03\x04" + b"\x02WP"
    return base64.b64encode(data)


@pytest.mark.parametrize(
    "query",
    [
        b"?Cmd=Sync&User=alice&DeviceId=v140Device&DeviceType=SmartPhone",
        b"Cmd=Sync&deviceid=V140DEVICE",
        b"?" + short_query(b"v140Device"),
        short_query(b"v140Device").rstrip(b"="),
        quote(short_query(b"v140Device")).encode(),
        short_query(b"v140Device").translate(bytes.maketrans(b"+/", b"-_")),
    ],
)
def test_a_device_is_the_same_in_both_forms_of_the_query(query: bytes) -> None:
    """Plain and base64, with and without padding and escapes."""
    assert device_key("alice@contoso.com", query) == "alice@contoso.com v140device"


def test_the_specifications_example() -> None:
    """MS-ASHTTP 4.1.1's kind of query: a device id of octets that are no letters."""
    raw = bytes.fromhex("00ff10aa")
    assert device_key("alice", short_query(raw)) == "alice 00ff10aa"


@pytest.mark.parametrize(
    "query", [b"", b"?", b"?Cmd=Options", b"?DeviceId=", b"abc", b"%%%", b"?" + short_query(b"x" * 40)[:12], b"AAAA"]
)
def test_without_a_device_the_user_is_the_key(query: bytes) -> None:
    """Nothing, an empty id, a structure that is cut short."""
    assert device_key("alice", query) == "alice"


@given(st.binary(max_size=500))
def test_keys_are_bounded_and_stay_the_users(query: bytes) -> None:
    """Whatever the query: the user's name, at most one space, a short word of letters and digits."""
    name, _, device = device_key("alice", query).partition(" ")
    assert name == "alice"
    assert len(device) <= MAX_DEVICE_ID
    assert device == "" or (device.isascii() and device.isalnum())
