"""Phones and webmail by real front ends, SOGo being the mailbox server: 451 and where it leads, Ping over two hops."""

from __future__ import annotations

import itertools
import threading
import time

import pytest
from activesync import Phone
from sites import Sites, wait_until
from sites_figure import ACTIVESYNC, ARRAY, HOMES, SOGO

HEARTBEAT = 60
"""Seconds; new mail ends it long before."""
_numbers = itertools.count(1)


def _device() -> str:
    return f"dev{next(_numbers)}x{time.monotonic_ns() % 10**6}"


def _follow(sites: Sites, phone: Phone) -> Phone:
    """The same device where a 451 sends it."""
    answer = phone.options()
    assert answer.status == 451
    url = answer.headers["X-MS-Location"]
    assert url == sites.external_url("CAS-01", ACTIVESYNC)
    address, port = sites.place("CAS-01")
    return phone.at(url, address, port)


def _ping_until_mail(sites: Sites, phone: Phone) -> None:
    """A Ping is held, and ended by new mail; the Sync that follows brings it."""
    folder = phone.folder_sync().folders()["INBOX"]
    phone.sync(folder)
    phone.sync(folder)
    subject = f"pushed to {phone.device}"
    message = f"Subject: {subject}\r\n\r\nNew.\r\n".encode()
    deliver = threading.Timer(1.0, sites.servers.dovecot("MBX-04").deliver, ("alice", message, phone.device))
    began = time.monotonic()
    deliver.start()
    answer = phone.ping(folder, HEARTBEAT)
    deliver.join()
    assert (answer.status, answer.element("Ping:Status")) == (200, "2")
    assert 1.0 <= time.monotonic() - began < HEARTBEAT / 2
    assert subject in [e.content for e in phone.sync(folder).root.all("Email:Subject")]


def test_a_phone_follows_451_to_the_other_front_end_and_is_pushed_to_there(sites: Sites) -> None:
    """C3 with a real ActiveSync server: CAS-02 names CAS-01, which reaches the mailbox in its own site."""
    phone = _follow(sites, sites.phone("CAS-02", "alice", _device()))
    answer = phone.options()
    assert answer.headers["X-BEServer"] == SOGO
    assert "X-CalculatedBETarget" not in answer.headers
    assert answer.headers["MS-ASProtocolVersions"] == "2.5,12.0,12.1,14.0,14.1"
    _ping_until_mail(sites, phone)


def test_a_phone_too_old_for_451_is_proxied_and_pushed_to_over_two_hops(sites: Sites) -> None:
    """Protocol 12.0 at CAS-02: to CAS-01, from there to the server; the Ping is held all the way."""
    phone = sites.phone("CAS-02", "alice", _device(), "12.0")
    answer = phone.options()
    assert (answer.status, answer.headers["X-CalculatedBETarget"], answer.headers["X-BEServer"]) == (
        200, "CAS-01", SOGO,
    )  # fmt: skip
    _ping_until_mail(sites, phone)


def test_a_phone_that_hangs_up_frees_the_ping_at_every_front_end(sites: Sites) -> None:
    """A long poll does not outlive its client, two front ends away either."""
    connection = sites.connection("CAS-02")
    headers = sites.basic("dave") | {"MS-ASProtocolVersion": "14.1", "Content-Type": "application/vnd.ms-sync.wbxml"}
    path = f"/{ACTIVESYNC}/wait?Cmd=Ping&User=dave&DeviceId={_device()}&DeviceType=x"
    connection.request("POST", path, b"", headers)
    wait_until(lambda: len(sites.big.requests) == 1, 5.0, "the Ping is at the server")
    assert len(sites.big.requests[0].front_ends) == 2
    connection.close()
    wait_until(lambda: sites.big.left == [path], 5.0, "nobody waits any more")


def test_a_device_goes_to_the_same_peer_every_time_whichever_front_end_it_comes_to(sites: Sites) -> None:
    """ "if a client is proxied to CAS-02 the first time they connect, they'll be proxied to CAS-02 every time" (B2)."""
    ways = {}
    for device in (_device() for _ in range(4)):
        phones = [sites.phone(name, "user3", device) for name in ("CAS-02", "CAS-01")]
        came = {phone.options().headers["X-CalculatedBETarget"] for phone in phones * 3}
        assert len(came) == 1
        ways[device] = came.pop()
    assert set(ways.values()) <= set(ARRAY)


def test_a_device_moves_when_its_peer_is_down_and_stays_there(sites: Sites) -> None:
    """B2: to the other server of the site; when the first is back nobody is moved again."""
    device = _device()
    phone = sites.phone("CAS-02", "user3", device)
    before = phone.options().headers["X-CalculatedBETarget"]
    sites.kill(before)
    after = [phone.options() for _ in range(2)]
    assert [answer.status for answer in after] == [200, 200]
    other = next(name for name in ARRAY if name != before)
    assert {answer.headers["X-CalculatedBETarget"] for answer in after} == {other}
    sites.mend()
    at_another = sites.phone("CAS-01", "user3", device)
    assert {p.options().headers["X-CalculatedBETarget"] for p in (phone, at_another)} == {other}


def test_a_phone_of_another_user_is_told_nothing_of_the_mailbox(sites: Sites) -> None:
    """A wrong password is 401 before anything of 451, and no server sees it."""
    phone = sites.phone("CAS-02", "alice", _device())
    phone.password = "wrong"
    answer = phone.options()
    assert (answer.status, answer.headers.get("X-MS-Location"), answer.headers.get("X-BEServer")) == (401, None, None)


@pytest.mark.parametrize("front_end", ["CAS-01", "CAS-02"])
def test_webmail_over_one_hop_and_two(sites: Sites, front_end: str) -> None:
    """SOGo's page; its links lead back to the front door, not to the server."""
    path = "/SOGo/"
    cookies: dict[str, str] = {}
    for _ in range(6):
        headers = {"Accept": "text/html", "Cookie": "; ".join(f"{name}={value}" for name, value in cookies.items())}
        answer = sites.web(front_end, "alice", path, headers)
        cookies |= answer.cookies
        assert answer.headers["x-beserver"] == SOGO
        assert answer.headers.get("x-calculatedbetarget") == (None if front_end == "CAS-01" else "CAS-01")
        if answer.status != 302:
            break
        path = answer.headers["location"].removeprefix("https://mail.contoso.com")
        assert path.startswith("/SOGo/")
    assert answer.status == 200
    assert path.startswith("/SOGo/so/alice/")
    assert "ex10-sogo" not in answer.text.lower()


def test_old_versions_answer_phones_in_their_own_words(sites: Sites) -> None:
    """Two hops away: what a server of 2007 offers is not what one of 2010 does."""
    said = {}
    for user in ("user3", "user4"):
        answer = sites.phone("CAS-02", user, _device()).options()
        said[answer.headers["X-BEServer"]] = answer.headers["MS-ASProtocolVersions"]
    assert said == {HOMES["user3"]: "2.0,2.1,2.5,12.0,12.1,14.0,14.1", HOMES["user4"]: "1.0,2.0,2.1,2.5,12.0,12.1"}
