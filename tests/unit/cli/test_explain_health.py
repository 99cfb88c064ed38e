"""explain says what the running front end knows of a server's health."""

from __future__ import annotations

from gatepost.cli.explain_health import _words
from gatepost.organization.model import Endpoint, Protocol, TlsMode
from gatepost.routing.decision import Target
from gatepost.service.control import ServiceStatus, StatusReply, WorkerStatus

TARGET = Target("MBX-01", Endpoint("https", Protocol.HTTPS, "127.0.0.1", 443, TlsMode.IMPLICIT, "mbx-01"))


def _status(*counters: dict[str, int] | None) -> ServiceStatus:
    workers = [
        WorkerStatus(slot, 100 + slot, "running", None if found is None else StatusReply(1, found, []))
        for slot, found in enumerate(counters)
    ]
    return ServiceStatus("CAS-01", 1, 1, 0, workers)


def test_a_server_is_up_unless_a_worker_says_otherwise() -> None:
    """Another service of it, or another server, is no matter."""
    assert _words(_status({"down.MBX-01.ews": 9, "down.MBX-02.owa": 9}, {}), TARGET, "owa") == "up"


def test_workers_that_found_it_down_are_counted() -> None:
    """Each finds out by itself; one that did not answer is not counted."""
    words = _words(_status({"down.MBX-01.owa": 3}, {"down.MBX-01.owa": 12}, {}, None), TARGET, "owa")
    assert words == "down for 12 s at 2 of 3 workers"


def test_without_an_answer_nothing_is_known() -> None:
    """No worker answered: nothing is claimed."""
    assert _words(_status(None), TARGET, "owa") == ""
