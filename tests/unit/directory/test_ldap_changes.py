"""Which users of a domain controller have changed: what is asked, what is told, and when nobody knows."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from exchange_stage import entry

from gatepost.directory.ldap.changes import MAX_CHANGED, CannotTell, Changes, Mark, mark_of, moved, told
from gatepost.directory.ldap.entries import Entry, choose, question
from gatepost.directory.ldap.mapping import ACTIVE_DIRECTORY
from gatepost.directory.ldap.session import TooMany
from gatepost.directory.pool import Broken
from gatepost.directory.port import DirectoryUnavailable

AD = replace(ACTIVE_DIRECTORY, account_domains=("contoso.com",))
SETTINGS = "CN=NTDS Settings,CN=DC-01"
PATIENCE_SECONDS = 20.0
ANNA = entry(
    "CN=Anna,DC=x",
    userprincipalname="Anna@contoso.com",
    samaccountname="anna.a",
    proxyaddresses=["SMTP:anna@contoso.com", "smtp:sales@contoso.com", "sip:anna@contoso.com", "smtp:", "smtp:a b@c"],
)


class Controller:
    """A domain controller: its mark, and the entries that have changed since a number."""

    def __init__(self, number: int = 100, invocation: bytes = b"one") -> None:
        self.number = number
        self.invocation = invocation
        self.entries: list[Entry] = []
        self.fault: Exception | None = None
        self.asked: list[str] = []
        self.cuts = 0

    def read(self, dn: str, attributes: tuple[str, ...]) -> Entry | None:
        if self.fault is not None:
            raise self.fault
        if not dn:
            return entry("", highestcommittedusn=str(self.number), dsservicename=SETTINGS)
        assert (dn, attributes) == (SETTINGS, ("invocationId",))
        return SETTINGS, {"invocationid": [self.invocation]}

    def pages(self, base: str, question: str, _attributes: Any, most: int, *, deleted: bool = False) -> list[Entry]:
        assert (base, deleted) == ("DC=x", True)
        if self.fault is not None:
            raise self.fault
        self.asked.append(question)
        if len(self.entries) > most:
            raise TooMany("too many")
        return self.entries

    def cut(self) -> None:
        self.cuts += 1

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gatepost.directory.ldap.changes.AGAIN_SECONDS", 0.01)


def _changes(*controllers: Any, seconds: float = 0.01) -> tuple[Changes, list[tuple[str, ...]]]:
    said: list[tuple[str, ...]] = []
    connect: dict[str, Callable[[], Any]] = {str(n): lambda c=c: c for n, c in enumerate(controllers)}
    return Changes("corp", connect, "DC=x", AD, seconds, said.append), said


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


# --- what is told


def test_a_user_s_names_and_reference_are_told() -> None:
    names = ("CN=Anna,DC=x", "anna@contoso.com", "sales@contoso.com", "anna.a@contoso.com")
    assert told(AD, [ANNA]) == names


def test_what_is_left_of_a_deleted_user_makes_everybody_be_asked_for() -> None:
    assert told(AD, [ANNA, entry("CN=Otto\\0ADEL:1,DC=x", isdeleted="TRUE")]) == ("",)


def test_an_account_of_no_domain_is_told_as_it_is() -> None:
    assert told(ACTIVE_DIRECTORY, [entry("CN=a", samaccountname="anna")]) == ("CN=a", "anna")


# --- when the counting begins anew


@pytest.mark.parametrize(
    ("before", "now", "anew"),
    [
        (None, Mark(b"a", 1), True),
        (Mark(b"a", 1), Mark(b"a", 1), False),
        (Mark(b"a", 1), Mark(b"a", 9), False),
        (Mark(b"a", 9), Mark(b"a", 1), True),
        (Mark(b"a", 1), Mark(b"b", 9), True),
    ],
    ids=["the first", "nothing", "changes", "restored", "another controller"],
)
def test_numbers_are_one_controller_s_own(before: Mark | None, now: Mark, *, anew: bool) -> None:
    assert moved(before, now) is anew


def test_the_first_look_makes_all_void_and_the_next_ask_for_higher_numbers() -> None:
    controller = Controller(100)
    changes, said = _changes(controller)
    changes.look(controller)
    assert said == [("",)]
    changes.look(controller)
    assert controller.asked == [], "nothing has changed"
    controller.number = 105
    controller.entries = [ANNA]
    changes.look(controller)
    assert controller.asked == ["(&(uSNChanged>=101)(objectClass=user)(!(objectClass=computer)))"]
    assert said[1:] == [told(AD, [ANNA])]
    controller.number, controller.entries = 107, []
    changes.look(controller)
    assert "uSNChanged>=106" in controller.asked[-1]
    assert len(said) == 2, "what changed was no user"


def test_more_changes_than_one_by_one_make_all_void() -> None:
    controller = Controller(100)
    changes, said = _changes(controller)
    changes.look(controller)
    controller.number, controller.entries = 999, [ANNA] * (MAX_CHANGED + 1)
    changes.look(controller)
    assert said == [("",), ("",)]


def test_a_question_that_failed_is_put_again_from_the_same_number() -> None:
    controller = Controller(100)
    changes, said = _changes(controller)
    changes.look(controller)
    controller.number = 120
    pages = controller.pages

    def fails(*_: Any, **__: Any) -> list[Entry]:
        raise Broken("away")

    controller.pages = fails  # type: ignore[method-assign]
    with pytest.raises(Broken):
        changes.look(controller)
    controller.pages = pages  # type: ignore[method-assign]
    controller.entries = [ANNA]
    changes.look(controller)
    assert "uSNChanged>=101" in controller.asked[-1]
    assert said[-1] == told(AD, [ANNA])


def test_another_controller_and_a_restored_one_make_all_void() -> None:
    first, second = Controller(100), Controller(5000, b"two")
    changes, said = _changes(first, second)
    for controller in (first, second, first):
        changes.look(controller)
    first.number = 90
    changes.look(first)
    assert said == [("",)] * 4
    assert first.asked == second.asked == []


@pytest.mark.parametrize(
    "root", [None, entry(""), entry("", highestcommittedusn="x", dsservicename="y"), entry("", highestcommittedusn="1")]
)
def test_a_server_without_numbers_is_said_to_be_none(root: Entry | None) -> None:
    controller = Controller()
    controller.read = lambda *_: root  # type: ignore[method-assign]
    with pytest.raises(CannotTell, match="no domain controller"):
        mark_of(controller)  # type: ignore[arg-type]


def test_an_account_that_may_not_read_whose_numbers_they_are() -> None:
    controller = Controller()
    controller.invocation = b""
    read = controller.read
    controller.read = lambda dn, wanted: None if dn else read(dn, wanted)  # type: ignore[method-assign]
    with pytest.raises(CannotTell, match="may not read invocationId"):
        mark_of(controller)  # type: ignore[arg-type]


# --- the thread


def test_the_next_controller_is_asked_when_one_fails_and_the_end_is_waited_for() -> None:
    first, second = Controller(10), Controller(20, b"two")
    changes, said = _changes(first, second)
    changes.start()
    _until(lambda: len(said) == 1)
    first.fault = DirectoryUnavailable("garbage")
    _until(lambda: len(said) == 2)
    second.number, second.entries = 21, [ANNA]
    _until(lambda: len(said) == 3)
    assert said == [("",), ("",), told(AD, [ANNA])]
    changes.stop()
    changes.join()
    assert second.cuts <= 1


def test_a_fault_of_any_kind_ends_no_asking() -> None:
    controller = Controller(10)
    controller.fault = ZeroDivisionError("whatever")
    changes, said = _changes(controller)
    changes.start()
    controller.fault = None
    _until(lambda: bool(said))
    changes.stop()
    changes.join()


# --- a mailbox's GUID as a name


def test_a_guid_is_asked_for_by_its_octets() -> None:
    wanted = question(AD, "8bcbbad4-f3de-4d36-8d82-2779fbde431a@contoso.com")
    assert r"(msExchMailboxGuid=\d4\ba\cb\8b\de\f3\36\4d\8d\82\27\79\fb\de\43\1a)" in wanted
    for other in ("anna@contoso.com", "8bcbbad4-f3de-4d36-8d82-2779fbde431a", "8bcbbad4@contoso.com"):
        assert "msExchMailboxGuid" not in question(AD, other)


def test_only_who_has_the_guid_is_taken() -> None:
    guid = "8bcbbad4-f3de-4d36-8d82-2779fbde431a@contoso.com"
    octets = bytes.fromhex("d4bacb8bdef3364d8d822779fbde431a")
    owner: Entry = ("CN=owner", {"msexchmailboxguid": [octets]})
    other: Entry = ("CN=other", {"msexchmailboxguid": [octets[::-1]]})
    assert choose(AD, guid, [other, owner]) == owner
    assert choose(AD, guid, [other]) is None


def test_controllers_that_refuse_are_asked_less_and_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service's account must not be locked by its own questions."""
    monkeypatch.setattr("gatepost.directory.ldap.changes.AGAIN_SECONDS", 1.0)
    controller = Controller()
    controller.fault = Broken("the sign-in was refused")
    changes, said = _changes(controller)
    pauses: list[float] = []

    class Ended(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            pauses.append(timeout or 0.0)
            if len(pauses) == 8:
                controller.fault = None  # it answers once, then goes away again
            elif len(pauses) == 9:
                controller.fault = Broken("away")
            elif len(pauses) == 12:
                self.set()
            return self.is_set()

    changes._ended = Ended()
    changes._run()
    assert pauses[:8] == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    assert pauses[9:11] == [1.0, 2.0], "after it has answered"
    assert said == [("",)]
