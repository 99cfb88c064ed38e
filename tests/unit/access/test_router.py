"""What a worker's router remembers, and what it must tell apart (SPEC C3, C11)."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice, product
from types import MappingProxyType
from typing import Any

import pytest
from figure import EAS, OWA, figure, with_directory

from gatepost.access import router as module
from gatepost.access.router import Router
from gatepost.activemanager.port import RegistryView
from gatepost.configuration.settings import Configuration, FrontEnd
from gatepost.organization.model import Organization, PathClass, Protocol, VirtualDirectory
from gatepost.routing.decision import ActiveCopy, Cause, Mailbox, Proxy, Redirect, Refuse, Serve

USER_1 = Mailbox("DB01")
VIEW = RegistryView(1, MappingProxyType({f"DB0{n}": ActiveCopy(f"DB0{n}", f"MBX-0{n}", 1) for n in (1, 2, 3)}))


def router(organization: Organization | None = None) -> Router:
    """CAS-02's."""
    return Router(Configuration(organization or figure(), FrontEnd("CAS-02", "", "")), VIEW)


@pytest.fixture
def decided(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that were decided anew."""
    seen: list[str] = []
    decide = module.decide

    def counting(organization: Organization, request: Any, *rest: Any) -> Any:
        seen.append(request.path)
        return decide(organization, request, *rest)

    monkeypatch.setattr(module, "decide", counting)
    return seen


def test_paths_below_one_directory_share_a_decision(decided: list[str]) -> None:
    """The very same object: what hangs on it is shared too."""
    asked = router()
    first = asked.decide(Protocol.HTTPS, USER_1, OWA + "/a")
    assert asked.decide(Protocol.HTTPS, USER_1, OWA + "/b/c") is first
    assert asked.decide(Protocol.HTTPS, Mailbox("DB01"), OWA) is first
    assert decided == [OWA]


def test_other_paths_mailboxes_and_protocols_do_not(decided: list[str]) -> None:
    """Each is a decision of its own."""
    asked = router()
    asked.decide(Protocol.HTTPS, USER_1, OWA)
    asked.decide(Protocol.HTTPS, USER_1, EAS)
    asked.decide(Protocol.HTTPS, Mailbox("DB02"), OWA)
    asked.decide(Protocol.HTTPS, Mailbox(home_server="BE-01"), OWA)
    asked.decide(Protocol.IMAP, USER_1)
    assert len(decided) == 5


def test_a_device_that_cannot_follow_451_never_gets_the_answer_of_one_that_can() -> None:
    """In either order."""
    for order in ((True, False), (False, True)):
        asked = router()
        kinds = {follows: type(asked.decide(Protocol.HTTPS, USER_1, EAS, follows_451=follows)) for follows in order}
        assert kinds == {True: Redirect, False: Proxy}


def test_what_came_from_a_front_end_never_gets_the_answer_of_a_client() -> None:
    """In either order."""
    for order in ((True, False), (False, True)):
        asked = router()
        found = {peer: asked.decide(Protocol.HTTPS, Mailbox("DB03"), OWA, from_peer=peer) for peer in order}
        loop = found[True]
        assert isinstance(loop, Refuse)
        assert loop.cause is Cause.LOOP
        assert isinstance(found[False], Proxy)


def test_longer_virtual_directories_are_told_apart() -> None:
    """Where one directory lies below another, the whole path counts."""
    below = VirtualDirectory("MBX-02", "archive", "/owa/archive", "https://mbx-02.contoso.com/archive")
    organization = figure()
    organization = replace(organization, virtual_directories=(*organization.virtual_directories, below))
    asked = router(organization)
    for path, service in ((OWA, "owa"), (OWA + "/archive/x", "archive"), (OWA + "/archived", "owa")):
        decision = asked.decide(Protocol.HTTPS, Mailbox("DB02"), path)
        assert isinstance(decision, Serve)
        assert decision.target.directory is not None
        assert decision.target.directory.service == service


def test_a_move_and_a_new_configuration_forget_everything() -> None:
    """B5, C6: the next request is decided by the new facts."""
    asked = router()
    assert isinstance(asked.decide(Protocol.HTTPS, USER_1, OWA), Redirect)
    moved = MappingProxyType({**VIEW.active, "DB01": ActiveCopy("DB01", "MBX-02", 2)})
    asked.set_view(RegistryView(2, moved))
    assert isinstance(asked.decide(Protocol.HTTPS, USER_1, OWA), Serve)
    asked.set_view(VIEW)
    disabled = with_directory(figure(), "CAS-02", OWA, redirect_to_optimal_owa_server=False)
    asked.set_configuration(Configuration(disabled, FrontEnd("CAS-02", "", "")))
    assert isinstance(asked.decide(Protocol.HTTPS, USER_1, OWA), Proxy)


def spellings(word: str, number: int) -> list[str]:
    """`word` in upper and lower case, letter by letter."""
    pairs = [(c.lower(), c.upper()) if c.isalpha() else (c,) for c in word]
    return ["".join(letters) for letters in islice(product(*pairs), number)]


def test_the_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory has as many spellings as its letters have cases, and classes as many as there are words."""
    monkeypatch.setattr(module, "MAX_REMEMBERED", 10)
    monkeypatch.setattr(module, "MAX_CLASSES", 10)
    asked = router()
    for number, spelling in enumerate(spellings(EAS, 100)):
        asked.decide(Protocol.HTTPS, USER_1, spelling)
        asked.path_class(f"/{number}")
        assert len(asked._remembered) <= 10
        assert len(asked._classes) <= 10
    assert asked._remembered


def test_what_clients_make_up_is_not_remembered() -> None:
    """Paths that nobody serves, and long ones, would be half a gigabyte of one user's making."""
    asked = router()
    for path in ("/nowhere", "/" + "a" * 8000):
        decision = asked.decide(Protocol.HTTPS, Mailbox("DB02"), path)
        assert isinstance(decision, Refuse)
        assert decision.cause is Cause.NO_VIRTUAL_DIRECTORY
        asked.path_class(path)
    below = VirtualDirectory("MBX-02", "archive", "/owa/archive", "https://mbx-02.contoso.com/archive")
    nested = replace(figure(), virtual_directories=(*figure().virtual_directories, below))
    asked.set_configuration(Configuration(nested, FrontEnd("CAS-02", "", "")))
    assert isinstance(asked.decide(Protocol.HTTPS, Mailbox("DB02"), OWA + "/" + "a" * 8000), Serve)
    assert not asked._remembered


def test_the_class_of_a_path_is_this_front_ends_and_follows_a_new_configuration() -> None:
    """For the form of answers, before anybody has signed in."""
    asked = router()
    assert asked.path_class("/OWA/x") == (PathClass.INTERACTIVE, "owa")
    assert asked.path_class(EAS) == (PathClass.DEVICE, "microsoft-server-activesync")
    assert asked.path_class("/exchange/a") == (PathClass.INTERACTIVE, "exchange")
    assert asked.path_class("/elsewhere") == (PathClass.API, "elsewhere")
    own = VirtualDirectory("CAS-02", "files", "/elsewhere", path_class=PathClass.INTERACTIVE)
    changed = replace(figure(), virtual_directories=(own,))
    asked.set_configuration(Configuration(changed, FrontEnd("CAS-02", "", "")))
    assert asked.path_class("/elsewhere/x") == (PathClass.INTERACTIVE, "files")
