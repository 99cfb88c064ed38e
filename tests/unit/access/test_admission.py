"""How many strangers may be at the door (field case 103)."""

from __future__ import annotations

import pytest

from gatepost.access.admission import Admission


@pytest.mark.parametrize(
    "addresses",
    [["192.0.2.7"] * 3, ["::ffff:192.0.2.7", "192.0.2.7", "192.0.2.7"], [f"2001:db8:1:2:{n}::1" for n in range(3)]],
    ids=["one host", "one host, mapped", "one IPv6 /64"],
)
def test_a_subscriber_is_one_address(addresses: list[str]) -> None:
    """Whoever has a /64 has as many addresses as they like, and still the connections of one."""
    admission = Admission(2, 100)
    assert [admission.arrive(address) for address in addresses] == [True, True, False]
    assert admission.arrive("2001:db8:1:3::1")
    admission.leave(addresses[0], settled=False)
    assert admission.arrive(addresses[2])
    for address in addresses[1:]:
        admission.settle(address)
        admission.leave(address, settled=True)
    admission.leave("2001:db8:1:3::1", settled=False)
    assert (admission.sessions, admission.unauthenticated) == (0, 0)


def test_all_together_are_bounded_too() -> None:
    """Who has signed in counts among all, and among strangers no more."""
    admission = Admission(2, 3)
    assert [admission.arrive(f"192.0.2.{n}") for n in range(4)] == [True, True, True, False]
    admission.settle("192.0.2.0")
    assert (admission.arrive("192.0.2.9"), admission.unauthenticated) == (False, 2)
