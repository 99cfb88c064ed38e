"""Who is asked next, who is out, who comes back, who must wait (SPEC B4, B7); a real front end, see `balanced.py`."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from balanced import MAIL, POISON, SECONDS, WEB, Start
from sites import wait_until

# --- IMAP through the front ends of another site


def test_a_mail_server_that_accepts_and_hangs_is_passed_over_and_leaves_the_rotation(start_balanced: Start) -> None:
    """Field case 113 and B7: the machine answers, its service does not; clients of the others notice nothing."""
    balanced = start_balanced()
    assert balanced.taken_by() == set(MAIL)
    balanced.mail["IMAP-A"].become("hang")
    for client in ("127.0.0.2", "127.0.0.2", "127.0.0.3", "127.0.0.3"):  # each has a turn at IMAP-A
        assert "IMAP-B" in balanced.sign_in(client=client)
    balanced.wait_for("IMAP-A", "server.down")
    assert balanced.changes("IMAP-A")[-1] == ("server.down", "requests")
    began = time.monotonic()
    assert all("IMAP-B" in balanced.sign_in() for _ in range(4))
    assert time.monotonic() - began < 1.0, "it is not even tried"


def test_all_mail_servers_down_and_back(start_balanced: Start) -> None:
    """A temporary fault, never a wrong password; found dead and found back by probes, in real use again."""
    balanced = start_balanced(probe_seconds=0.3)
    assert balanced.sign_in().startswith("a OK ")
    for server in balanced.mail.values():
        server.become("dead")
    answer = balanced.sign_in()
    assert answer.startswith("a NO [UNAVAILABLE]"), answer
    for name in MAIL:
        balanced.wait_for(name, "server.down")
    assert balanced.sign_in().startswith("a NO [UNAVAILABLE]")
    for server in balanced.mail.values():
        server.become("answer")
    for name in MAIL:
        balanced.wait_for(name, "server.up")
    assert balanced.taken_by() == set(MAIL)


def test_with_all_mail_servers_down_the_first_who_answers_is_taken_before_any_probe(start_balanced: Start) -> None:
    """Half open: real sign-ins go on asking."""
    balanced = start_balanced()
    for server in balanced.mail.values():
        server.become("dead")
    for client in ("127.0.0.2", "127.0.0.3"):
        balanced.sign_in(client=client)
    for name in MAIL:
        balanced.wait_for(name, "server.down")
        balanced.mail[name].become("answer")
    assert balanced.sign_in().startswith("a OK ")


# --- the web


def test_one_client_alone_cannot_mark_a_server_down(start_balanced: Start) -> None:
    """Field case 105: servers break off on what one client sends; everybody else stays where they were."""
    balanced = start_balanced()
    _, kept, fields = balanced.get("/owa/", "second@contoso.com", client="127.0.0.7")
    cookie = {"Cookie": fields["Set-Cookie"].partition(";")[0]}
    for _ in range(20):
        assert balanced.get(POISON, client="127.0.0.66")[0] == 503
        status, server, _ = balanced.get("/owa/", "second@contoso.com", client="127.0.0.7", headers=cookie)
        assert (status, server) == (200, kept)
    assert [balanced.changes(name) for name in WEB] == [[], []]


def test_two_clients_can_and_only_for_that_service(start_balanced: Start) -> None:
    """With no success between; Outlook Web App of the same server goes on (B7)."""
    balanced = start_balanced()
    for client in ("127.0.0.66", "127.0.0.67"):
        balanced.get(POISON, client=client)
    for name in WEB:
        balanced.wait_for(name, "server.down")
    downs = [entry["service"] for entry in balanced.process.events("server.down")]
    assert sorted(downs) == ["ews", "ews"]
    assert {balanced.get("/AS/")[1] for _ in range(4)} == set(WEB)


def test_a_dead_web_server_is_passed_over_found_dead_and_taken_back(start_balanced: Start) -> None:
    balanced = start_balanced(probe_seconds=0.3)
    assert {balanced.get("/AS/")[1] for _ in range(4)} == set(WEB)
    balanced.web["WEB-A"].become("dead")
    assert [balanced.get("/AS/")[:2] for _ in range(4)] == [(200, "WEB-B")] * 4
    balanced.wait_for("WEB-A", "server.down")
    balanced.web["WEB-A"].become("answer")
    balanced.wait_for("WEB-A", "server.up")
    assert {balanced.get("/AS/")[1] for _ in range(4)} == set(WEB)


def test_past_the_bound_of_requests_one_waits_briefly_and_hears_that_it_is_busy(start_balanced: Start) -> None:
    """SPEC B4: 503 with Retry-After, after no more than the wait; the request under way is not disturbed."""
    balanced = start_balanced(http_requests=1)
    for server in balanced.web.values():
        server.hold.clear()
    found: list[tuple[int, str, dict[str, str]]] = []
    first = threading.Thread(target=lambda: found.append(balanced.get("/owa/")))
    first.start()
    wait_until(lambda: sum(server.talks for server in balanced.web.values()) == 1, SECONDS, "the first is at a server")
    began = time.monotonic()
    status, _, fields = balanced.get("/owa/", "second@contoso.com")
    assert 1.0 < time.monotonic() - began < 5.0
    assert (status, "Retry-After" in fields) == (503, True)
    for server in balanced.web.values():
        server.hold.set()
    first.join(SECONDS)
    assert found[0][0] == 200


# --- the balancer in front


def test_the_health_page_follows_the_service(start_balanced: Start) -> None:
    """SPEC V2: per service, without a sign-in, in the source system's words; 503 names no host."""
    balanced = start_balanced(probe_seconds=0.3)
    page = lambda service="owa": balanced.get(f"/{service}/healthcheck.htm", "")  # noqa: E731
    assert page()[:2] == (200, "200 OK<br/>cas-01")
    for server in balanced.web.values():
        server.become("dead")
    wait_until(lambda: page("AS")[0] == 503, SECONDS, "503")
    status, text, fields = page("AS")
    assert (status, "Retry-After" in fields) == (503, True)
    assert "web-" not in text.lower()
    for server in balanced.web.values():
        server.become("answer")
    wait_until(lambda: page("AS")[0] == 200, SECONDS, "200 again")


def test_the_health_page_of_a_front_end_without_its_directory_is_503(start_balanced: Start, tmp_path: Path) -> None:
    """Nobody could sign in there: the balancer in front must send them elsewhere."""
    balanced = start_balanced()
    assert balanced.get("/owa/healthcheck.htm", "")[0] == 200
    (tmp_path / "directory.sqlite").rename(tmp_path / "gone")
    wait_until(lambda: balanced.get("/owa/healthcheck.htm", "")[0] == 503, SECONDS, "503")
    (tmp_path / "gone").rename(tmp_path / "directory.sqlite")
    wait_until(lambda: balanced.get("/owa/healthcheck.htm", "")[0] == 200, SECONDS, "200")
