"""The carrying machine: what it says to both servers and to the client, and when it gives up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from imap_mailbox import Believer, Mailbox, ServerSession

from gatepost.wire import imap_carry
from gatepost.wire.imap_carry import (
    Carried,
    CarryEvent,
    GaveUp,
    ImapCarry,
    ToClient,
    ToNew,
    ToOld,
    missing_capabilities,
)
from gatepost.wire.imap_session import ImapSession, Selected
from gatepost.wire.imap_view import MAX_MESSAGES

Split = Callable[[bytes], list[bytes]]


@dataclass
class Play:
    """One carrying between two sessions."""

    old: ServerSession
    new: ServerSession
    session: ImapSession
    client: Believer
    split: Split = lambda data: [data]
    to_client: bytes = b""
    end: Carried | GaveUp | None = None
    before_old: Callable[[bytes], bytes] = field(default=lambda line: b"")
    """What the servers say before they answer a line."""
    before_new: Callable[[bytes], bytes] = field(default=lambda line: b"")

    def run(self) -> Play:
        self.carry = ImapCarry(self.session, b"gp")
        self._do(self.carry.begin())
        return self

    def _do(self, events: list[CarryEvent]) -> None:
        for event in events:
            if isinstance(event, ToClient):
                assert self.end is None
                self.to_client += event.data
                self.client.told(event.data, idling=self.session.idle_tag is not None)
            elif isinstance(event, ToOld | ToNew):
                old = isinstance(event, ToOld)
                server, before = (self.old, self.before_old) if old else (self.new, self.before_new)
                assert event.data.count(b"\n") == 1, "servers may answer commands that are sent ahead in another order"
                said = before(event.data) + server.take(event.data)
                for piece in self.split(said):
                    if self.end is None:
                        self._do(self.carry.old(piece) if old else self.carry.new(piece))
            else:
                assert self.end is None
                self.end = event


def selected(server: ServerSession, name: bytes = b"INBOX", *, examine: bool = False) -> Selected:
    box = server.mailbox
    server.select()
    return Selected(
        name, examine, examine, box.uid_validity, box.uid_next, len(box.messages), b"FLAGS (%s)" % box.keywords, None,
        box.highest,
    )  # fmt: skip


def mailbox(count: int = 3) -> Mailbox:
    box = Mailbox()
    for n in range(count):
        box.add(*([b"\\Seen"] if n % 2 else []))
    return box


def stage(
    box: Mailbox | None = None, *, idling: bool = True, enabled: tuple[bytes, ...] = (), condstore: bool = False
) -> Play:
    """An old server on `box`, whose client knows all of it, and a new one on a copy."""
    box = box or mailbox()
    old = ServerSession(box, recent=True)
    old.condstore, old.qresync = condstore, b"QRESYNC" in enabled
    session = ImapSession(selected(old), enabled, condstore, b"i9" if idling else None)
    if idling:
        old.idling = b"i9"
    return Play(old, ServerSession(box.copy()), session, Believer(old.seen))


def test_an_idle_session_goes_on_idling_at_the_new_server_and_its_client_hears_nothing() -> None:
    play = stage().run()
    assert play.old.got == [b"DONE\r\n", b"gp1 NOOP\r\n", b"gp2 UID FETCH 1:* (UID FLAGS)\r\n"]
    assert play.new.got == [b"gp3 SELECT INBOX\r\n", b"gp4 UID FETCH 1:* (UID FLAGS)\r\n", b"i9 IDLE\r\n"]
    assert play.to_client == b""
    assert isinstance(play.end, Carried)
    assert play.new.take(b"DONE\r\n").startswith(b"i9 OK")


def test_between_commands_nothing_but_the_view_is_taken_over() -> None:
    play = stage(idling=False).run()
    assert isinstance(play.end, Carried)
    assert (play.to_client, play.new.got[-1]) == (b"", b"gp4 UID FETCH 1:* (UID FLAGS)\r\n")


@pytest.mark.parametrize("idling", [True, False])
def test_without_a_mailbox_there_is_little_to_do(*, idling: bool) -> None:
    play = stage(idling=idling)
    play.session = replace(play.session, selected=None)
    play.run()
    assert play.end == Carried(None)
    assert play.new.got == ([b"i9 IDLE\r\n"] if idling else [])


def test_what_was_enabled_is_enabled_first_and_the_mailbox_selected_as_before() -> None:
    play = stage(enabled=(b"UTF8=ACCEPT", b"CONDSTORE"), condstore=True)
    assert play.session.selected is not None
    play.session = replace(
        play.session, selected=replace(play.session.selected, name=b'"a \\"b"', examine=True, read_only=True)
    )
    play.run()
    assert isinstance(play.end, Carried)
    assert play.new.got[:2] == [b"gp3 ENABLE UTF8=ACCEPT CONDSTORE\r\n", b'gp4 EXAMINE "a \\"b" (CONDSTORE)\r\n']


def test_an_empty_mailbox_is_a_view_like_any_other() -> None:
    assert isinstance(stage(mailbox(0)).run().end, Carried)


def test_new_messages_flags_and_expunged_ones_are_told() -> None:
    """In an order that keeps numbers right; keywords that are new are named first of all who use them."""
    play = stage(mailbox(5))
    box = play.new.mailbox
    box.add()
    box.flag(4, b"\\Answered")
    box.expunge(3)
    box.expunge(1)
    box.keywords += b" Later"
    play.run()
    assert isinstance(play.end, Carried)
    assert play.to_client == (
        b"* 4 EXPUNGE\r\n* 2 EXPUNGE\r\n* 4 EXISTS\r\n* 0 RECENT\r\n* 3 FETCH (FLAGS (\\Answered))\r\n"
        b"* FLAGS (\\Answered \\Seen Later)\r\n"
    )
    assert play.client.agrees_with(play.new)


def test_what_the_old_server_has_not_told_yet_is_passed_on() -> None:
    play = stage()
    play.old.mailbox.add()
    play.old.mailbox.expunge(0)
    play.old.mailbox.flag(0, b"\\Flagged")
    play.new = ServerSession(play.old.mailbox.copy())
    play.run()
    assert isinstance(play.end, Carried)
    assert play.to_client == b"* 1 EXPUNGE\r\n* 3 EXISTS\r\n* 1 FETCH (FLAGS (\\Flagged \\Recent))\r\n"
    assert play.client.agrees_with(play.new)


def test_with_qresync_expunged_messages_are_told_by_uid() -> None:
    play = stage(mailbox(6), enabled=(b"QRESYNC",), condstore=True)
    for index in (4, 2, 1):
        play.new.mailbox.expunge(index)
    play.new.mailbox.flag(0, b"\\Seen")
    play.run()
    assert isinstance(play.end, Carried)
    assert play.to_client == b"* VANISHED 2:3,5\r\n* 1 FETCH (UID 1 FLAGS (\\Seen) MODSEQ (11))\r\n"


def test_between_commands_new_messages_may_be_told_but_not_that_some_are_gone() -> None:
    """RFC 9051 section 7.5.1."""
    play = stage(idling=False)
    play.new.mailbox.add()
    play.run()
    assert isinstance(play.end, Carried)
    assert play.to_client == b"* 4 EXISTS\r\n* 0 RECENT\r\n"
    play = stage(idling=False)
    play.new.mailbox.expunge(0)
    assert isinstance(play.run().end, GaveUp)
    play = stage(idling=False)
    play.old.mailbox.expunge(0)
    assert isinstance(play.run().end, GaveUp)


def test_a_mailbox_that_moves_while_it_is_fetched_is_fetched_again() -> None:
    """At both servers; and not for ever."""
    play = stage()
    once = [True]

    def expunge_late(server: ServerSession) -> Callable[[bytes], bytes]:
        def before(line: bytes) -> bytes:
            if b"UID FETCH" in line and once:
                once.clear()
                server.mailbox.expunge(0)
                return server._fetch(1, server.seen[0]) + server.news()
            return b""

        return before

    play.before_new = expunge_late(play.new)
    play.run()
    assert isinstance(play.end, Carried)
    assert sum(b"UID FETCH" in line for line in play.new.got) == 2
    assert play.client.agrees_with(play.new)
    play = stage()
    once.append(True)
    play.before_old = expunge_late(play.old)
    play.run()
    assert isinstance(play.end, GaveUp), "the replica still has what is gone at the old server"
    assert sum(b"UID FETCH" in line for line in play.old.got) == 2
    play = stage()
    play.before_new = lambda line: b"* 9 EXISTS\r\n" if b"UID FETCH" in line else b""
    assert play.run().end == GaveUp("the mailbox does not keep still")


def test_what_the_new_server_says_before_it_idles_reaches_the_client_in_its_place() -> None:
    play = stage()
    play.before_new = lambda line: b"* 4 EXISTS\r\n* 1 EXPUNGE\r\n" if b"IDLE" in line else b""
    play.new.mailbox.flag(0, b"x")
    play.run()
    assert isinstance(play.end, Carried)
    assert play.to_client == b"* 1 FETCH (FLAGS (x))\r\n* 4 EXISTS\r\n* 1 EXPUNGE\r\n"


def test_what_follows_the_last_answer_is_the_clients() -> None:
    """Even half a line: it may be the first half of one."""
    play = stage(idling=False)
    play.split = lambda data: [data + b"* 5 EX"] if b"gp4 OK" in data else [data]
    play.run()
    assert isinstance(play.end, Carried)
    assert play.end.rest == b"* 5 EX"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda play: setattr(play.new.mailbox, "uid_validity", 8), "another UIDVALIDITY"),
        (lambda play: setattr(play.new, "read_only", True), "read-only"),
        (lambda play: setattr(play.new, "refuses", b"SELECT"), "unexpected line"),
        (lambda play: setattr(play.new, "refuses", b"IDLE"), "does not idle"),
        (lambda play: setattr(play.old, "refuses", b"NOOP"), "unexpected line"),
        (lambda play: play.new.mailbox.messages.pop() and setattr(play.new.mailbox, "uid_next", 3), "behind"),
        (lambda play: play.new.mailbox.messages.reverse(), "UIDs do not grow"),
        (lambda play: setattr(play, "before_old", lambda _: b"* BYE down\r\n"), "BYE"),
        (lambda play: setattr(play, "before_new", lambda _: b"* BYE down\r\n"), "BYE"),
        (lambda play: setattr(play, "before_old", lambda _: b"* 1 FETCH (BODY[] {5}\r\n"), "unexpected"),
        (lambda play: setattr(play, "before_old", lambda _: b"+ \r\n"), "unexpected"),
        (lambda play: setattr(play, "before_new", lambda _: b"zz OK\r\n"), "unexpected"),
        (lambda play: setattr(play, "before_new", lambda _: b"* x" * 9000), "too long"),
        (lambda play: setattr(play, "before_new", lambda _: b"* 1 FETCH (UID 1)\r\n"), "cannot be read"),
    ],
)
def test_whatever_does_not_match_ends_it(change: Callable[[Play], object], reason: str) -> None:
    play = stage()
    play.new.mailbox.flag(0, b"new")
    change(play)
    play.run()
    assert isinstance(play.end, GaveUp)
    assert reason in play.end.reason
    assert play.to_client == b""


def test_a_message_that_was_gone_and_is_back_ends_it() -> None:
    """A replica in which somebody's deletion was undone: the client would never look there again."""
    box = mailbox(4)
    replica = box.copy()
    box.expunge(1)
    play = stage(box)
    play.new = ServerSession(replica)
    assert play.run().end == GaveUp("messages are back that were gone")


def test_a_replica_that_would_give_known_uids_to_new_messages_ends_it() -> None:
    """Even where the old server had not told its next UID: the last message that the client knows is not there yet."""
    play = stage(idling=True)
    assert play.session.selected is not None
    play.session = replace(play.session, selected=replace(play.session.selected, uid_next=None))
    play.new.mailbox.messages.pop()
    play.new.mailbox.uid_next = 3
    assert play.run().end == GaveUp("the new server's mailbox is behind")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda box: setattr(box, "highest", 1), "behind"),
        (lambda box: setattr(box.messages[0], "modseq", 1), "behind"),
        (lambda box: setattr(box.messages[0], "flags", frozenset({b"x"})), "one modification sequence"),
    ],
)
def test_modification_sequences_must_fit(change: Callable[[Mailbox], object], reason: str) -> None:
    play = stage(condstore=True)
    change(play.new.mailbox)
    play.run()
    assert isinstance(play.end, GaveUp)
    assert reason in play.end.reason


def test_a_new_server_that_does_not_enable_all_ends_it() -> None:
    play = stage(enabled=(b"CONDSTORE", b"X-OWN"), condstore=True)
    play.new.take = lambda line: b"* ENABLED CONDSTORE\r\ngp3 OK x\r\n"  # type: ignore[method-assign]
    end = play.run().end
    assert isinstance(end, GaveUp)
    assert "enable" in end.reason


def test_a_large_mailbox_is_not_even_begun_and_one_that_grew_is_given_up() -> None:
    play = stage()
    assert play.session.selected is not None
    play.session = replace(play.session, selected=replace(play.session.selected, exists=MAX_MESSAGES + 1))
    play.run()
    assert isinstance(play.end, GaveUp)
    assert play.old.got == []
    play = stage(mailbox(MAX_MESSAGES + 1))
    assert play.session.selected is not None
    play.session = replace(play.session, selected=replace(play.session.selected, exists=5))
    play.run()
    assert play.end == GaveUp("the mailbox has too many messages")


def test_what_a_server_says_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imap_carry, "MAX_BYTES", 1000)
    play = stage()
    play.before_new = lambda _: b"* OK well\r\n" * 1000
    assert play.run().end == GaveUp("a server said too much")


def test_our_tags_are_never_the_clients() -> None:
    play = stage()
    play.session = replace(play.session, idle_tag=b"gp1")
    play.old.idling = b"gp1"
    play.run()
    assert isinstance(play.end, Carried)
    assert play.old.got[1] == b"gpx1 NOOP\r\n"


def test_capabilities_that_a_client_may_have_seen_must_be_there() -> None:
    old = frozenset({b"IMAP4REV1", b"IDLE", b"AUTH=PLAIN", b"STARTTLS", b"COMPRESS=DEFLATE", b"MOVE"})
    assert missing_capabilities(old, frozenset({b"IMAP4REV1", b"IDLE", b"NEW"})) == [b"MOVE"]


CHANGES = st.lists(
    st.tuples(st.sampled_from(["add", "expunge", "flag"]), st.integers(0, 9), st.sampled_from([b"\\Seen", b"a", b"b"])),
    max_size=5,
)


def change(box: Mailbox, changes: list[tuple[str, int, bytes]]) -> None:
    for kind, index, flag in changes:
        if kind == "add":
            box.add(flag)
        elif box.messages and kind == "expunge":
            box.expunge(index % len(box.messages))
        elif box.messages:
            box.flag(index % len(box.messages), flag)


@settings(max_examples=250, deadline=None)
@given(
    st.integers(0, 6), CHANGES, CHANGES, CHANGES, st.booleans(), st.sampled_from(["", "condstore", "qresync"]),
    st.integers(1, 50),
)  # fmt: skip
def test_whatever_happened_meanwhile_the_client_ends_up_right_or_is_told_nothing_wrong(
    count: int, untold: list, meanwhile: list, late: list, idling: bool, mode: str, piece: int
) -> None:
    """Changes the old server had not told, changes at the new one, changes while it is selected; all splits' sizes."""
    enabled = (b"QRESYNC",) if mode == "qresync" else ()
    play = stage(mailbox(count), idling=idling, enabled=enabled, condstore=bool(mode))
    change(play.old.mailbox, untold)
    play.new = ServerSession(play.old.mailbox.copy())
    change(play.new.mailbox, meanwhile)
    play.split = lambda data: [data[at : at + piece] for at in range(0, len(data), piece)]

    def before_idle(line: bytes) -> bytes:
        if b"IDLE" not in line:
            return b""
        change(play.new.mailbox, late)
        return play.new.news()

    play.before_new = before_idle
    play.run()
    gone = any(kind == "expunge" for kind, _, _ in untold + meanwhile)
    if idling or not gone:
        assert isinstance(play.end, Carried), play.end
        assert play.client.agrees_with(play.new)
        if idling:
            assert play.new.take(b"DONE\r\n").startswith(b"i9 OK")
    if isinstance(play.end, Carried):
        assert play.client.agrees_with(play.new)
