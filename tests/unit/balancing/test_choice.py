"""Who is tried first: affinity by cookie, client address, first server and turns (SPEC B1 to B3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from gatepost.balancing.affinity import Affinity
from gatepost.balancing.choice import _weight, order, rendezvous

CAS = ["CAS-01", "CAS-02", "CAS-03"]
KEEPING = [Affinity.COOKIE, Affinity.COOKIE_OR_ADDRESS, Affinity.FIRST_SERVER]

names = st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=8, unique=True)
addresses = st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)).map(str)


def first(
    servers: list[str],
    affinity: Affinity,
    *,
    kept: str | None = None,
    address: str = "192.0.2.1",
    user: str = "",
    turn: int = 0,
    down: set[str] | None = None,
) -> str:
    return order(
        servers, affinity, kept=kept, address=address, user=user, turn=turn, healthy=lambda s: s not in (down or set())
    )[0]


def all_up(_server: str) -> bool:
    return True


@given(names, st.sampled_from(Affinity), st.integers(0, 10**9), addresses, st.data())
def test_every_candidate_is_tried_once_and_the_healthy_ones_first(
    servers: list[str], affinity: Affinity, turn: int, address: str, data: st.DataObject
) -> None:
    down = data.draw(st.sets(st.sampled_from(servers)))
    kept = data.draw(st.one_of(st.none(), st.sampled_from(servers), st.just("unknown")))
    found = order(
        servers, affinity, kept=kept, address=address, user="u", turn=turn, healthy=lambda server: server not in down
    )
    assert sorted(found) == sorted(servers)
    assert [server in down for server in found] == sorted(server in down for server in found)
    if kept in servers and kept not in down and affinity in KEEPING:
        assert found[0] == kept


@given(names, st.sampled_from(Affinity), st.integers(0, 100))
def test_health_only_moves_the_dead_back(servers: list[str], affinity: Affinity, turn: int) -> None:
    """So that a server's return brings back what was before."""
    full = order(servers, affinity, kept=None, address="192.0.2.1", user="", turn=turn, healthy=all_up)
    for dead in servers:
        alive: Callable[[str], bool] = lambda server, dead=dead: server != dead  # type: ignore[misc]  # noqa: E731
        found = order(servers, affinity, kept=None, address="192.0.2.1", user="", turn=turn, healthy=alive)
        assert found == [*[server for server in full if server != dead], dead]


def test_no_candidates_no_servers() -> None:
    assert order([], Affinity.COOKIE, kept=None, address="", user="", turn=3, healthy=all_up) == []


def test_with_all_down_one_is_tried() -> None:
    """Half open: whoever is tried and answers brings the server back."""
    assert first(CAS, Affinity.COOKIE, kept="CAS-02", down=set(CAS)) == "CAS-02"
    assert first(CAS, Affinity.ROUND_ROBIN, turn=1, down=set(CAS)) == "CAS-02"


def test_no_affinity_takes_the_servers_as_they_come() -> None:
    assert [first(CAS, Affinity.NONE, kept="CAS-03", turn=turn) for turn in range(3)] == ["CAS-01"] * 3


def test_a_user_stays_with_the_server_chosen_first_even_if_another_has_fewer_connections() -> None:
    """SPEC B1. Turns stand for how busy others are: they make no difference."""
    chosen = first(CAS, Affinity.COOKIE, turn=7)
    assert {first(CAS, Affinity.COOKIE, kept=chosen, turn=turn) for turn in range(20)} == {chosen}


def test_an_unavailable_servers_user_goes_to_another_and_stays_there() -> None:
    """SPEC B1: the cookie then remembers the other one, also when the first is back."""
    other = first(CAS, Affinity.COOKIE, kept="CAS-02", turn=5, down={"CAS-02"})
    assert other != "CAS-02"
    assert first(CAS, Affinity.COOKIE, kept=other, turn=6) == other


def test_first_contacts_go_round() -> None:
    """SPEC B1, B2 and B3: by turn."""
    for affinity in (Affinity.COOKIE, Affinity.FIRST_SERVER, Affinity.ROUND_ROBIN):
        assert [first(CAS, affinity, turn=turn) for turn in range(6)] == CAS * 2


def test_activesync_keeps_its_first_server_and_moves_when_it_is_down() -> None:
    """SPEC B2."""
    assert {first(CAS, Affinity.FIRST_SERVER, kept="CAS-03", turn=turn) for turn in range(9)} == {"CAS-03"}
    assert first(CAS, Affinity.FIRST_SERVER, kept="CAS-03", down={"CAS-03"}) in {"CAS-01", "CAS-02"}


def test_availability_has_no_state_between_two_requests() -> None:
    """SPEC B3."""
    assert [first(CAS, Affinity.ROUND_ROBIN, kept="CAS-01", turn=turn) for turn in range(3)] == CAS


@given(addresses, st.permutations(CAS), st.integers(0, 1000))
def test_a_client_without_cookies_stays_by_its_address_on_every_front_end(
    address: str, servers: list[str], turn: int
) -> None:
    """SPEC B1: the order of the candidates and the front end's own turns play no part."""
    affinity = Affinity.COOKIE_OR_ADDRESS
    assert first(servers, affinity, address=address, turn=turn) == first(CAS, affinity, address=address)


def test_an_ipv6_client_stays_when_it_changes_its_address_within_its_network() -> None:
    found = {
        first(CAS, Affinity.COOKIE_OR_ADDRESS, address=f"2001:db8:0:7::{host:x}", turn=host) for host in range(1, 200)
    }
    assert len(found) == 1


def test_without_an_address_the_user_decides() -> None:
    found = {first(CAS, Affinity.COOKIE_OR_ADDRESS, address="", user=f"user{n}@contoso.com") for n in range(50)}
    assert found == set(CAS)


@given(names, st.lists(st.text(max_size=12), max_size=30))
def test_a_lost_server_moves_only_its_own_keys(servers: list[str], keys: list[str]) -> None:
    """Consistent hashing."""
    for key in keys:
        before = rendezvous(servers, key)
        for lost in servers:
            assert rendezvous([s for s in servers if s != lost], key) == [s for s in before if s != lost]


def test_addresses_are_spread_evenly_and_so_are_those_of_a_lost_server() -> None:
    servers = [f"CAS-{n:02}" for n in range(1, 6)]
    keys = [f"10.{n >> 8}.{n & 255}.7" for n in range(10_000)]
    ranked = [rendezvous(servers, key) for key in keys]
    for count in Counter(found[0] for found in ranked).values():
        assert 1_800 < count < 2_200
    heirs = Counter(found[1] for found in ranked if found[0] == "CAS-03")
    assert set(heirs) == set(servers) - {"CAS-03"}
    assert all(400 < count < 600 for count in heirs.values())


def test_names_and_keys_do_not_run_into_each_other() -> None:
    assert _weight("a", b"bc") != _weight("ab", b"c")
