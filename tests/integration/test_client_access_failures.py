"""Front ends and mailbox servers that die or hang in the middle of things: what clients see, and for how long."""

from __future__ import annotations

import http.client
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from bodies import FIRST_BYTES, STALLED_BYTES
from sites import HEALTH_SECONDS, Sites, wait_until
from sites_figure import ACTIVESYNC, ARRAY, HOMES

from gatepost.lab.clients import WebAnswer

MEGABYTES = 50
GROWTH_KIB = 8 * 1024
"""What a worker may need more for any body: its buffers on both sides, and what the interpreter keeps."""
ANSWER_SECONDS = 5.0
"""For an answer when all candidates are dead: each may take `connect_seconds`, on a busy machine."""
PAGE = {"Accept": "text/html"}


def _peer(answer: WebAnswer) -> str:
    return answer.headers.get("x-calculatedbetarget", "")


def _other(front_end: str) -> str:
    return next(name for name in ARRAY if name != front_end)


class Background:
    """A request in a thread of its own."""

    def __init__(self, ask: Callable[[], WebAnswer]) -> None:
        self._ask = ask
        self.answer: WebAnswer | None = None
        self.fault: Exception | None = None
        self.seconds = 0.0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        began = time.monotonic()
        try:
            self.answer = self._ask()
        except (OSError, http.client.HTTPException) as error:
            self.fault = error
        self.seconds = time.monotonic() - began

    def result(self, seconds: float = 30.0) -> WebAnswer:
        """The answer. Fails when none came."""
        self._thread.join(seconds)
        assert not self._thread.is_alive(), f"no answer within {seconds:g} s"
        assert self.answer is not None, self.fault
        return self.answer


# --- large bodies over two hops


class Memory:
    """The most memory that front ends' workers needed since it was made, over what they had then, in KiB."""

    def __init__(self, sites: Sites, *front_ends: str) -> None:
        self._places = [Path(f"/proc/{pid}") for name in front_ends for pid in sites.workers(name)]
        self._before = {}
        for place in self._places:
            (place / "clear_refs").write_text("5")
            self._before[place] = self._field(place, "VmRSS")

    @staticmethod
    def _field(place: Path, name: str) -> int:
        line = next(line for line in (place / "status").read_text().splitlines() if line.startswith(f"{name}:"))
        return int(line.split()[1])

    def growth(self) -> int:
        """Of the one that grew most."""
        return max(self._field(place, "VmHWM") - self._before[place] for place in self._places)


def _pieces(size: int) -> Iterator[bytes]:
    piece = bytes(64 * 1024)
    for _ in range(size // len(piece)):
        yield piece


@contextmanager
def _asked(sites: Sites, path: str) -> Iterator[http.client.HTTPResponse]:
    """The head of what dave gets at CAS-02; its body has not been read."""
    with closing(sites.connection("CAS-02")) as connection:
        connection.request("GET", path, headers=sites.basic("dave"))
        answer = connection.getresponse()
        assert answer.status == 200
        yield answer


def _read_all(answer: http.client.HTTPResponse) -> int:
    total = 0
    while piece := answer.read(64 * 1024):
        total += len(piece)
    return total


def _upload(sites: Sites, size: int) -> bytes:
    with closing(sites.connection("CAS-02")) as connection:
        headers = sites.basic("dave") | {"Transfer-Encoding": "chunked"}
        connection.request("PUT", "/EWS/upload", _pieces(size), headers, encode_chunked=True)
        answer = connection.getresponse()
        assert answer.status == 200
        return answer.read()


def _download(sites: Sites, size: int) -> tuple[int, str]:
    """How much came, and the request's id."""
    with _asked(sites, f"/EWS/download?size={size}") as answer:
        assert answer.headers["Transfer-Encoding"] == "chunked"
        return _read_all(answer), answer.headers["request-id"]


def test_50_megabytes_up_in_chunks_over_two_hops_cost_no_memory(sites: Sites) -> None:
    """Neither front end keeps the body; all of it arrives."""
    _upload(sites, 4 * 1024 * 1024)
    memory = Memory(sites, "CAS-02", *ARRAY)
    size = MEGABYTES * 1024 * 1024
    assert _upload(sites, size) == b"%d bytes of dave@contoso.com" % size
    assert len(sites.big.requests[-1].front_ends) == 2
    assert memory.growth() < GROWTH_KIB


def test_50_megabytes_down_in_chunks_over_two_hops_cost_no_memory(sites: Sites) -> None:
    """And one id names the request at both front ends and at the server."""
    _download(sites, 4 * 1024 * 1024)
    memory = Memory(sites, "CAS-02", *ARRAY)
    size = MEGABYTES * 1024 * 1024
    total, request_id = _download(sites, size)
    assert total == size
    assert memory.growth() < GROWTH_KIB
    seen = sites.big.requests[-1]
    assert seen.headers["x-request-id"] == request_id
    assert seen.front_ends[0] == "CAS-02"
    for name in seen.front_ends:
        sites.front_ends[name].wait_for_event("http.request", request_id=request_id, user="dave@contoso.com")


def test_a_slow_client_of_a_large_download_costs_no_memory(sites: Sites) -> None:
    """Back-pressure goes through both hops to the server: it sends no faster than the client reads."""
    _download(sites, 4 * 1024 * 1024)
    memory = Memory(sites, "CAS-02", *ARRAY)
    with _asked(sites, f"/EWS/download?size={MEGABYTES * 1024 * 1024}") as answer:
        answer.read(1024)
        time.sleep(1.0)  # nothing is to be waited for: the point is that nothing happens
        assert memory.growth() < GROWTH_KIB


@pytest.mark.parametrize("framing", ["chunked", "length"])
def test_an_upload_that_its_client_breaks_off_never_looks_whole_to_the_server(sites: Sites, framing: str) -> None:
    """No last chunk is made up, and no length is filled."""
    path = f"/EWS/upload?{framing}"
    piece = bytes(100_000)
    with closing(sites.connection("CAS-02")) as connection:
        connection.putrequest("PUT", path)
        fields = sites.basic("dave")
        fields |= {"Transfer-Encoding": "chunked"} if framing == "chunked" else {"Content-Length": "1000000"}
        for name, value in fields.items():
            connection.putheader(name, value)
        connection.endheaders()
        connection.send(b"%x\r\n%b\r\n" % (len(piece), piece) if framing == "chunked" else piece)
        wait_until(lambda: [seen.path for seen in sites.big.requests] == [path], 5.0, "the server reads")
    wait_until(lambda: sites.big.left == [path], 5.0, "the server knows that it is cut")


def test_a_client_that_asks_before_it_sends_its_body_is_invited_over_two_hops(sites: Sites) -> None:
    """`Expect: 100-continue`, as old phones and mail programs send it with large bodies."""
    place = sites.place("CAS-02")
    lines = [f"{name}: {value}" for name, value in (sites.basic("dave") | {"Host": "mail.contoso.com"}).items()]
    head = "\r\n".join(["PUT /EWS/upload HTTP/1.1", *lines, "Content-Length: 5", "Expect: 100-continue", "", ""])
    with (
        socket.create_connection(place, timeout=10.0) as plain,
        sites.context.wrap_socket(plain, server_hostname=place[0]) as secured,
    ):
        secured.sendall(head.encode())
        assert secured.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        secured.sendall(b"12345")
        answer = http.client.HTTPResponse(secured)
        answer.begin()
        assert (answer.status, answer.read()) == (200, b"5 bytes of dave@contoso.com")
        answer.close()


# --- a front end dies


def test_a_peer_killed_in_the_middle_of_a_download_is_a_cut_not_a_success(sites: Sites) -> None:
    """The client knows that it has not got all; the operator finds out why."""
    with _asked(sites, "/owa/stalled") as answer:
        assert answer.headers["Content-Length"] == str(STALLED_BYTES)
        assert len(answer.read(FIRST_BYTES)) == FIRST_BYTES
        sites.kill(answer.headers["X-CalculatedBETarget"])
        with pytest.raises((http.client.IncompleteRead, OSError)):
            answer.read()
    request_id = answer.headers["request-id"]
    line = sites.front_ends["CAS-02"].wait_for_event("http.refused", request_id=request_id)
    assert line["server"] == answer.headers["X-CalculatedBETarget"]


def test_a_chunked_download_cut_by_a_dying_peer_has_no_end_either(sites: Sites) -> None:
    """The last chunk is never made up."""
    with _asked(sites, f"/owa/download?size={MEGABYTES * 1024 * 1024}") as answer:
        assert len(answer.read(64 * 1024)) == 64 * 1024
        sites.kill(answer.headers["X-CalculatedBETarget"])
        with pytest.raises((http.client.IncompleteRead, OSError)):
            _read_all(answer)


def test_a_peer_killed_before_the_response_is_replaced_by_the_next(sites: Sites) -> None:
    """A request that may be repeated goes to the other candidate; its client does not notice."""
    asked = Background(lambda: sites.web("CAS-02", "dave", "/owa/wait"))
    wait_until(lambda: len(sites.big.requests) == 1, 5.0, "the request is at the server")
    first = sites.big.requests[0].front_ends[1]
    sites.kill(first)
    wait_until(lambda: len(sites.big.requests) == 2, 5.0, "it comes again")
    sites.big.release.set()
    answer = asked.result()
    assert (answer.status, _peer(answer)) == (200, _other(first))
    assert sites.big.requests[1].front_ends == ["CAS-02", _other(first)]


def test_what_may_not_be_repeated_is_not(sites: Sites) -> None:
    """A POST may have been carried out: 503, and the server sees it once."""
    asked = Background(lambda: sites.web("CAS-02", "dave", "/owa/wait", PAGE, method="POST", body=b"buy"))
    wait_until(lambda: len(sites.big.requests) == 1, 5.0, "the request is at the server")
    sites.kill(sites.big.requests[0].front_ends[1])
    answer = asked.result()
    assert answer.status == 503
    assert "may not have arrived" in answer.text
    assert len(sites.big.requests) == 1


def test_no_request_fails_while_the_front_ends_of_an_array_are_restarted_one_by_one(sites: Sites) -> None:
    """SIGTERM, start: requests under way are finished, the next ones go to the other one."""
    over = threading.Event()
    came: list[tuple[int, str]] = []

    def ask() -> None:
        while not over.is_set():
            answer = sites.web("CAS-02", "user3")
            came.append((answer.status, _peer(answer)))

    asking = [threading.Thread(target=ask, daemon=True) for _ in range(2)]
    for thread in asking:
        thread.start()
    for name in ARRAY:
        sites.restart(name)
    over.set()
    for thread in asking:
        thread.join(10.0)
        assert not thread.is_alive()
    assert {status for status, _ in came} == {200}
    assert {peer for _, peer in came} == set(ARRAY)


def test_a_dead_peer_is_passed_over_at_once(sites: Sites) -> None:
    """No request fails while one of two is gone, whatever its kind and whoever's turn it is."""
    sites.kill("CAS-03")
    for _ in range(3):
        for path in ("/owa/", "/EWS/x", "/AS/x", f"/{ACTIVESYNC}"):
            answer = sites.web("CAS-02", "user3", path)
            assert (answer.status, _peer(answer)) == (200, "CAS-04")


def test_all_peers_dead_is_503_in_each_clients_form_and_soon(sites: Sites) -> None:
    """Nobody is told that the password is wrong, and nothing names a server."""
    for name in ARRAY:
        sites.kill(name)
    began = time.monotonic()
    page = sites.web("CAS-02", "user3", "/owa/", PAGE)
    phone = sites.phone("CAS-02", "user3", "p1").folder_sync()
    fault = sites.web("CAS-02", "user3", "/EWS/x", {"Accept": "text/xml"}, method="POST", body=b"<x/>")
    times = sites.web("CAS-02", "user3", "/AS/x", {"Accept": "text/xml"}, method="POST", body=b"<x/>")
    assert time.monotonic() - began < ANSWER_SECONDS
    assert [page.status, phone.status, fault.status, times.status] == [503] * 4
    assert "<h1" in page.text
    assert (phone.body, phone.headers["Retry-After"] is not None) == (b"", True)
    for text in (fault.text, times.text):
        assert "ErrorNoRespondingCASInDestinationSite" in text
        assert "BackOffMilliseconds" in text
    for text in (page.text, fault.text, times.text):
        assert "cas-0" not in text.lower()
        assert "127." not in text


# --- a front end hangs


def test_a_hung_peer_costs_one_attempt_then_it_is_out_and_comes_back(sites: Sites) -> None:
    """SIGSTOP: it accepts and says nothing. SIGCONT: it is used again."""
    answer = sites.web("CAS-02", "user3")
    kept, cookies = _peer(answer), "; ".join(f"{name}={value}" for name, value in answer.cookies.items())

    def ask() -> WebAnswer:
        return sites.web("CAS-02", "user3", headers={"Cookie": cookies})

    sites.signal(kept, signal.SIGSTOP)
    asked = [Background(ask).result(HEALTH_SECONDS) for _ in range(3)]
    assert [(answer.status, _peer(answer)) for answer in asked] == [(200, _other(kept))] * 3
    wait_until(lambda: (kept, "owa") in sites.down("CAS-02"), HEALTH_SECONDS, "CAS-02 knows")
    began = time.monotonic()
    assert _peer(ask()) == _other(kept)
    assert time.monotonic() - began < 1.0
    sites.signal(kept, signal.SIGCONT)
    wait_until(lambda: (kept, "owa") not in sites.down("CAS-02"), HEALTH_SECONDS, "CAS-02 knows that it is back")
    assert _peer(ask()) == kept


def test_requests_that_wait_for_a_peer_when_it_hangs_go_to_the_next(sites: Sites) -> None:
    """They were sent before it hung; when two probes have found nobody there the other candidate gets them."""
    asked = Background(lambda: sites.web("CAS-02", "dave", "/owa/wait"))
    wait_until(lambda: len(sites.big.requests) == 1, 5.0, "the request is at the server")
    first = sites.big.requests[0].front_ends[1]
    sites.signal(first, signal.SIGSTOP)
    wait_until(lambda: len(sites.big.requests) == 2, HEALTH_SECONDS, "it comes again")
    sites.big.release.set()
    answer = asked.result()
    assert (answer.status, _peer(answer)) == (200, _other(first))


def test_all_peers_hung_is_503_in_bounded_time(sites: Sites) -> None:
    """Also with connections to both of them at hand, which accept a request and say nothing."""
    assert {_peer(sites.web("CAS-01", "dave")) for _ in range(2)} == set(ARRAY)
    for name in ARRAY:
        sites.signal(name, signal.SIGSTOP)
    answer = Background(lambda: sites.web("CAS-01", "dave", "/owa/", PAGE)).result(HEALTH_SECONDS)
    assert answer.status == 503


# --- a mailbox server hangs


def test_a_web_service_that_hangs_while_tcp_answers_is_out_for_others_and_comes_back(sites: Sites) -> None:
    """B7: health is that of the service. Other users of the front end are served meanwhile."""
    front, server = "CAS-03", HOMES["user4"]
    assert sites.web(front, "user4").status == 200
    sites.webs[server].go_down("hang")
    asked = Background(lambda: sites.web(front, "user4"))
    wait_until(lambda: (server, "owa") in sites.down(front), HEALTH_SECONDS, "the front end knows")
    began = time.monotonic()
    assert sites.web(front, "user3").status == 200
    assert time.monotonic() - began < 1.0
    assert asked.result().status == 503  # told as soon as that was known, not when the server has come back
    sites.webs[server].come_back()
    wait_until(lambda: (server, "owa") not in sites.down(front), HEALTH_SECONDS, "it is back")
    assert sites.web(front, "user4").status == 200
