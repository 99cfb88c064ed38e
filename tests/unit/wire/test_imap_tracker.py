"""The boundary tracker: what it knows of a session, and that no split and no short cut changes it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_tracker import SlowTracker

from gatepost.wire import imap_tracker
from gatepost.wire.imap_session import MAX_ENABLED, ImapSession
from gatepost.wire.imap_tracker import MAX_COMMAND, MAX_OPEN, Boundary, ImapTracker

Step = tuple[str, bytes]
"""Who says it, `C` or `S`, and what."""

SELECT_ANSWER = (
    b"* FLAGS (\\Answered \\Seen)\r\n* OK [PERMANENTFLAGS (\\Answered \\*)] Flags permitted.\r\n* 3 EXISTS\r\n"
    b"* 0 RECENT\r\n* OK [UIDVALIDITY 17] UIDs valid\r\n* OK [UIDNEXT 9] Predicted next UID\r\n"
    b"* OK [HIGHESTMODSEQ 99] Highest\r\n"
)


def play(steps: list[Step], tracker: ImapTracker | None = None) -> ImapTracker:
    """Feed whole steps."""
    tracker = tracker or ImapTracker()
    for who, data in steps:
        (tracker.client if who == "C" else tracker.server)(data)
    return tracker


def exchange(*lines: bytes) -> list[Step]:
    """`C: …` and `S: …` lines."""
    return [(line[:1].decode(), line[3:]) for line in lines]


def select(name: bytes = b"INBOX", answer: bytes = SELECT_ANSWER) -> list[Step]:
    return [("C", b"s SELECT " + name + b"\r\n"), ("S", answer + b"s OK [READ-WRITE] Done\r\n")]


def answer(tracker: ImapTracker) -> tuple[Boundary, str, ImapSession | None]:
    """Everything that may be asked, as `SlowTracker.answer` says it."""
    if tracker.boundary is Boundary.LOST:
        return Boundary.LOST, "lost", None
    return tracker.boundary, tracker.obstacle, tracker.session


# --- boundaries


def test_a_session_begins_between_commands() -> None:
    tracker = ImapTracker()
    assert (tracker.boundary, tracker.obstacle, tracker.session) == (Boundary.BETWEEN, "", ImapSession())


@pytest.mark.parametrize("line", [b"a NOOP\r\n", b"a noop\r\n", b"a CHECK\n", b'a LIST "" *\r\n', b"a.1 NOOP\r\n"])
def test_a_command_is_under_way_until_its_tagged_answer(line: bytes) -> None:
    """One line each way, with and without the short cut."""
    tracker = play([("C", line)])
    assert tracker.boundary is Boundary.BUSY
    tag = line.split()[0]
    tracker.server(b"* 4 EXISTS\r\n")
    assert tracker.boundary is Boundary.BUSY
    tracker.server(tag + b"x OK another's\r\n")
    assert tracker.boundary is Boundary.BUSY
    tracker.server(tag + b" OK done\r\n")
    assert tracker.boundary is Boundary.BETWEEN


def test_half_a_line_of_either_side_is_no_boundary() -> None:
    tracker = play([("C", b"a NO")])
    assert tracker.boundary is Boundary.BUSY
    play(exchange(b"C: OP\r\n", b"S: a OK done\r\n* 5 EX"), tracker)
    assert tracker.boundary is Boundary.BUSY
    tracker.server(b"ISTS\r\n")
    assert tracker.boundary is Boundary.BETWEEN


def test_idle_is_a_boundary_from_its_continuation_to_done() -> None:
    tracker = play(exchange(b"C: i7 IDLE\r\n"))
    assert tracker.boundary is Boundary.BUSY
    tracker.server(b"+ idling\r\n* 5 EXISTS\r\n")
    assert tracker.boundary is Boundary.IDLING
    assert tracker.session.idle_tag == b"i7"
    tracker.client(b"DO")
    assert tracker.boundary is Boundary.BUSY
    tracker.client(b"NE\r\n")
    assert tracker.boundary is Boundary.BUSY
    tracker.server(b"i7 OK Idle completed.\r\n")
    assert (tracker.boundary, tracker.session.idle_tag) == (Boundary.BETWEEN, None)


def test_done_may_be_sent_ahead_of_the_continuation() -> None:
    tracker = play(exchange(b"C: i IDLE\r\nDONE\r\nb NOOP\r\n", b"S: + idling\r\ni OK\r\n"))
    assert tracker.boundary is Boundary.BUSY
    tracker.server(b"b OK\r\n")
    assert tracker.boundary is Boundary.BETWEEN


def test_an_idle_that_is_refused_is_over() -> None:
    tracker = play(exchange(b"C: i IDLE\r\n", b"S: i BAD no\r\n"))
    assert tracker.boundary is Boundary.BETWEEN
    assert play(exchange(b"C: i IDLE\r\nDONE\r\n", b"S: i BAD no\r\n")).boundary is Boundary.LOST


@pytest.mark.parametrize("how", [b"{11}", b"{11+}", b"~{11}", b"~{11+}"])
def test_a_clients_literal_is_not_read_as_commands(how: bytes) -> None:
    """What it holds looks like a command and its end, and is neither."""
    tracker = play([("C", b"a APPEND x " + how + b"\r\n")])
    if b"+" not in how:
        assert tracker.boundary is Boundary.BUSY
        tracker.server(b"+ go on\r\n")
    tracker.client(b"b NOOP\r\n")
    tracker.client(b"\r\n")
    assert tracker.boundary is Boundary.BUSY
    tracker.client(b"\n")
    assert tracker.boundary is Boundary.BUSY
    tracker.client(b"\r\n")
    tracker.server(b"a OK done\r\n")
    assert tracker.boundary is Boundary.BETWEEN


def test_a_refused_literal_is_not_waited_for() -> None:
    tracker = play(exchange(b"C: a APPEND x {99}\r\n", b"S: a NO [TOOBIG] no\r\n"))
    assert tracker.boundary is Boundary.BETWEEN
    assert play(exchange(b"C: b NOOP\r\n", b"S: b OK\r\n"), tracker).boundary is Boundary.BETWEEN


def test_a_servers_literal_is_not_read_as_answers() -> None:
    """A message may hold the very line that would end the command."""
    trap = b"a OK FETCH completed\r\n"
    tracker = play(exchange(b"C: a FETCH 1:2 BODY[]\r\n"))
    tracker.server(b"* 1 FETCH (BODY[] {%d}\r\n" % len(trap) + trap)
    assert tracker.boundary is Boundary.BUSY
    tracker.server(b" UID 4)\r\n* 2 FETCH (BODY[] {%d}\r\n" % (2 * len(trap)) + trap)
    tracker.server(trap)
    assert tracker.boundary is Boundary.BUSY
    tracker.server(b")\r\na OK done\r\n")
    assert tracker.boundary is Boundary.BETWEEN


@pytest.mark.parametrize("line", [b"* OK look {5}\r\n", b"* NO {5}\r\n", b"zz OK {5}\r\n", b"+ {5}\r\n"])
def test_a_text_for_people_announces_nothing(line: bytes) -> None:
    tracker = play([("C", b"a FETCH 1 FLAGS\r\n"), ("S", line + b"a OK look {7}\r\n")])
    assert tracker.boundary is Boundary.BETWEEN


def test_commands_sent_ahead_all_count() -> None:
    tracker = play(exchange(b"C: a NOOP\r\nb NOOP\r\nc NOOP\r\n", b"S: b OK\r\na OK\r\n"))
    assert tracker.boundary is Boundary.BUSY
    tracker.server(b"c NO\r\n")
    assert tracker.boundary is Boundary.BETWEEN


@pytest.mark.parametrize(
    "steps",
    [
        exchange(b"C: a COMPRESS DEFLATE\r\n"),
        exchange(b"C: a STARTTLS\r\n"),
        exchange(b"C: \r\n"),
        exchange(b"C: a\r\n"),
        exchange(b"C: * NOOP\r\n"),
        exchange(b"C: a NOOP\r\na NOOP\r\n"),
        exchange(b"C: a IDLE\r\n", b"S: + \r\n", b"C: b NOOP\r\n"),
        exchange(b"C: a APPEND x {5}\r\nhello"),
        exchange(b"C: a APPEND x {5+}\r\nhe", b"S: a NO [OVERQUOTA]\r\n"),
        exchange(b'C: a APPEND "x {5+}\r\n'),
        exchange(b"C: a APPEND x {12345678901+}\r\n"),
        exchange(b"C: a NOOP\r\n", b"S: a WHAT\r\n"),
        exchange(b"C: a UID FETCH 1 (FLAGS)\r\n", b"S: a WHAT\r\na OK x\r\n"),
        exchange(b"C: a UID FETCH 1 (FLAGS)\r\n", b"S: * 1 RECENT\r\na WHAT\r\na OK x\r\n"),
        exchange(b"C: a FETCH 1 BODY[]\r\n", b"S: * 1 FETCH (BODY[] {12345678901}\r\n"),
        [("C", b"a SEARCH " + b"x" * MAX_COMMAND + b"\r\n")],
        [("C", b"".join(b"t%d NOOP\r\n" % n for n in range(MAX_OPEN + 1)))],
    ],
)
def test_what_cannot_be_followed_is_lost_for_good(steps: list[Step]) -> None:
    """And it holds nothing any more."""
    tracker = play(steps)
    assert tracker.boundary is Boundary.LOST
    assert tracker.obstacle
    play(exchange(b"C: z NOOP\r\n", b"S: z OK\r\n"), tracker)
    assert tracker.boundary is Boundary.LOST


@pytest.mark.parametrize(
    ("pieces", "takes"),
    [
        ([], True),
        ([("c", b"a NOOP\r\n")], True),
        ([("c", b"a NOOP\r\n"), ("s", b"* 3 EX")], False),
        ([("c", b"a FETCH 1 BODY[]\r\n"), ("s", b"* 1 FETCH (BODY[] {9}\r\nhalf")], False),
        ([("c", b"a FETCH 1 BODY[]\r\n"), ("s", b"* 1 FETCH (BODY[] {9}\r\nhalf of it)\r\n")], True),
        ([("c", b"a IDLE\r\n"), ("s", b"+ idling\r\n")], True),
        ([("c", b"a IDLE\r\n"), ("s", b"+ idling\r\n"), ("s", b"* BYE Shutting down\r\n")], False),
        ([("s", b"* b"), ("s", b"ye\r\n")], False),
        ([("c", b"a LOGOUT\r\n")], False),
        ([("c", b"a LOGOUT\r\n"), ("s", b"a OK\r\n")], False),
        ([("c", b"a COMPRESS DEFLATE\r\n"), ("s", b"a OK\r\n")], False),
    ],
)
def test_last_words_are_said_where_they_are_a_line(pieces: list[tuple[str, bytes]], *, takes: bool) -> None:
    """Of a server that goes without a word; none within an answer, and no second goodbye."""
    tracker = ImapTracker()
    for who, data in pieces:
        (tracker.client if who == "c" else tracker.server)(data)
    assert tracker.takes_last_words is takes


def test_nothing_is_held_of_literals_and_long_lines() -> None:
    """A search's answer in one line of a megabyte, a message of a megabyte, an upload: none of it stays."""
    tracker = play(exchange(b"C: a SEARCH ALL\r\n"))
    for chunk in (b"* SEARCH", *([b" 1234567" * 1024] * 128)):
        tracker.server(chunk)
    tracker.server(b"\r\n* 1 FETCH (BODY[] {1048576}\r\n")
    tracker.server(b"x" * 1048575)
    held = sum(len(getattr(tracker, name)) for name in ("_head", "_tail", "_client_held"))
    assert held <= imap_tracker.MAX_HEAD + 32
    play(exchange(b"S: x)\r\na OK\r\n", b"C: b APPEND x {1048576+}\r\n"), tracker)
    tracker.client(b"y" * 1048576)
    assert len(tracker._client_held) == 0
    play(exchange(b"C: \r\n", b"S: b OK\r\n"), tracker)
    assert tracker.boundary is Boundary.BETWEEN


# --- the session


def test_the_selected_mailbox_is_known_as_the_server_told_it() -> None:
    selected = play(select(b'"Sent & done"')).session.selected
    assert selected is not None
    assert (selected.name, selected.read_only, selected.examine) == (b'"Sent & done"', False, False)
    assert (selected.uid_validity, selected.uid_next, selected.exists, selected.highest_modseq) == (17, 9, 3, 99)
    assert (selected.flags, selected.permanent_flags) == (b"FLAGS (\\Answered \\Seen)", b"(\\Answered \\*)")


@pytest.mark.parametrize(
    ("command", "code", "expected"),
    [
        (b"EXAMINE", b"READ-ONLY", (True, True)),
        (b"SELECT", b"READ-ONLY", (False, True)),
        (b"SELECT", b"X", (False, False)),
    ],
)
def test_reading_only(command: bytes, code: bytes, expected: tuple[bool, bool]) -> None:
    tracker = play([("C", b"s " + command + b" a\r\n"), ("S", SELECT_ANSWER + b"s OK [" + code + b"] Done\r\n")])
    selected = tracker.session.selected
    assert selected is not None
    assert (selected.examine, selected.read_only) == expected


@pytest.mark.parametrize("word", [b"CLOSE", b"UNSELECT"])
def test_a_closed_mailbox_is_not_selected(word: bytes) -> None:
    tracker = play([*select(), *exchange(b"C: c " + word + b"\r\n", b"S: c OK\r\n")])
    assert (tracker.session.selected, tracker.obstacle) == (None, "")


def test_a_refused_select_leaves_no_mailbox_and_one_not_understood_an_open_question() -> None:
    tracker = play([*select(), *exchange(b"C: c SELECT x\r\n", b"S: c NO\r\n")])
    assert (tracker.session.selected, tracker.obstacle) == (None, "")
    tracker = play([*select(), *exchange(b"C: c SELECT x\r\n", b"S: c BAD\r\n")])
    assert "which mailbox" in tracker.obstacle
    assert play(select(), tracker).obstacle == ""


def test_nothing_of_the_mailbox_before_is_taken_for_the_next_one() -> None:
    """Answers of a server that says little, [CLOSED], and commands that were sent ahead."""
    tracker = play([*select(), *select(b"other", b"* 1 EXISTS\r\n")])
    assert "which mailbox" in tracker.obstacle
    other = SELECT_ANSWER.replace(b"17", b"18")
    tracker = play([*select(), *select(b"other", b"* OK [UIDVALIDITY 1] old\r\n* OK [CLOSED] x\r\n" + other)])
    assert tracker.session.selected is not None
    assert tracker.session.selected.uid_validity == 18
    ahead = exchange(b"C: a SELECT a\r\nb SELECT b\r\n", b"S: " + SELECT_ANSWER + b"a OK x\r\n* 1 EXISTS\r\nb OK x\r\n")
    assert "which mailbox" in play(ahead).obstacle


def test_another_answer_in_between_changes_nothing_of_what_was_told_of_the_mailbox() -> None:
    """A command that is answered before an older SELECT."""
    tracker = play([("C", b"s SELECT a\r\nb NOOP\r\n"), ("S", SELECT_ANSWER + b"b OK x\r\ns OK x\r\n")])
    assert tracker.session.selected is not None
    assert tracker.session.selected.uid_validity == 17


@pytest.mark.parametrize("name", [b"{5}\r\n", b"{5+}\r\n"])
def test_a_name_in_a_literal_is_not_kept(name: bytes) -> None:
    tracker = play([("C", b"s SELECT " + name), ("S", b"+ go\r\n"), ("C", b"INBOX\r\n")])
    tracker.server(SELECT_ANSWER + b"s OK done\r\n")
    assert tracker.boundary is Boundary.BETWEEN
    assert "which mailbox" in tracker.obstacle


def test_what_was_enabled_is_known_and_bounded() -> None:
    tracker = play(exchange(b"C: e ENABLE qresync UTF8=ACCEPT\r\n", b"S: * ENABLED qresync UTF8=ACCEPT\r\ne OK\r\n"))
    assert tracker.session == ImapSession(None, (b"QRESYNC", b"UTF8=ACCEPT"), condstore=True)
    assert tracker.session.qresync
    many = b" ".join(b"X%d" % n for n in range(MAX_ENABLED + 1))
    tracker = play(exchange(b"C: e ENABLE x\r\n", b"S: * ENABLED " + many + b"\r\ne OK\r\n"))
    assert tracker.obstacle
    assert len(tracker.session.enabled) == MAX_ENABLED
    assert play(exchange(b"C: e ENABLE UIDONLY\r\n", b"S: * ENABLED UIDONLY\r\ne OK\r\n")).obstacle


def test_an_enabled_line_that_nobody_asked_for_means_nothing() -> None:
    assert play(exchange(b"C: e NOOP\r\n", b"S: * ENABLED QRESYNC\r\ne OK\r\n")).session == ImapSession()


@pytest.mark.parametrize(
    "command",
    [
        b"SELECT x (CONDSTORE)", b"STATUS x (HIGHESTMODSEQ)", b"FETCH 1 (FLAGS modseq)",
        b"UID FETCH 1:* (FLAGS) (CHANGEDSINCE 1)", b"STORE 1 (UNCHANGEDSINCE 5) FLAGS x", b"SEARCH MODSEQ 5",
    ],
)  # fmt: skip
def test_commands_that_make_modification_sequences_told(command: bytes) -> None:
    """RFC 7162 section 3.1."""
    for answered in (b"a OK\r\n", b"a OK x\r\n"):
        assert play([("C", b"a " + command + b"\r\n"), ("S", answered)]).session.condstore


@pytest.mark.parametrize(
    ("command", "status", "stands"),
    [
        (b"NOTIFY SET (SELECTED (MessageNew))", b"OK", True),
        (b"NOTIFY SET (SELECTED (MessageNew))", b"NO", False),
        (b"XAPPLEPUSHSERVICE x", b"OK", True),
        (b"LANGUAGE de", b"OK", True),
        (b"UID SEARCH RETURN (SAVE) ALL", b"OK", True),
        (b"SEARCH RETURN (UPDATE) ALL", b"OK", True),
        (b"SEARCH SUBJECT save", b"OK", False),
        (b"LOGOUT", b"OK", True),
        (b"STORE 1 +FLAGS (\\Deleted)", b"OK", False),
        (b"SELECT x (ANNOTATE)", b"OK", True),
    ],
)
def test_what_a_server_would_not_know_stands_in_the_way(command: bytes, status: bytes, *, stands: bool) -> None:
    tracker = play([("C", b"a " + command + b"\r\n"), ("S", SELECT_ANSWER + b"a " + status + b" x\r\n")])
    assert tracker.boundary is Boundary.BETWEEN
    assert bool(tracker.obstacle) is stands


def test_a_saved_search_is_gone_with_the_next_mailbox() -> None:
    tracker = play([*select(), *exchange(b"C: a SEARCH RETURN (SAVE) ALL\r\n", b"S: a OK\r\n")])
    assert "saved" in tracker.obstacle
    assert play(select(), tracker).obstacle == ""


# --- every split, and the slow reading

TRANSCRIPT = [
    *exchange(b"C: 1 CAPABILITY\r\n", b"S: * CAPABILITY IMAP4rev1 IDLE\r\n1 OK done\r\n"),
    *exchange(b"C: 2 ENABLE QRESYNC\r\n", b"S: * ENABLED QRESYNC\r\n2 OK done\r\n"),
    *select(b'"a \\"b"'),
    *exchange(b"C: 3 UID FETCH 1:* (FLAGS BODY.PEEK[])\r\n"),
    ("S", b"* 1 FETCH (UID 4 FLAGS () BODY[] {20}\r\n3 OK not the end}\r\n\n)\r\n* 2 FETCH (BODY[] {3}\r\n3 O)\r\n"),
    ("S", b'* 3 FETCH (BODY[HEADER.FIELDS ({2}\r\nTo)] "x}" BINARY[1] ~{0}\r\n)\r\n* OK see {9}\r\n3 OK [X] done\r\n'),
    *exchange(b"C: 4 APPEND x {6}\r\n", b"S: + go\r\n", b"C: a\r\nb\r\n {3+}\r\nxyz\r\n", b"S: 4 OK done\r\n"),
    *exchange(b"C: i IDLE\r\n", b"S: + idling\r\n", b"S: * 4 EXISTS\r\n* 1 EXPUNGE\r\n"),
]  # fmt: skip


def test_every_split_in_two_of_a_transcript_comes_to_the_same() -> None:
    """And the end is what it should be."""
    whole = play(TRANSCRIPT)
    assert whole.boundary is Boundary.IDLING
    assert whole.session.idle_tag == b"i"
    for index, (who, data) in enumerate(TRANSCRIPT):
        before = play(TRANSCRIPT[:index])
        expected = answer(play(TRANSCRIPT[: index + 1]))
        assert answer(before) == answer(play(TRANSCRIPT[:index]))
        for at in range(len(data) + 1):
            split = play([*TRANSCRIPT[:index], (who, data[:at]), (who, data[at:])])
            assert answer(split) == expected, data[:at]
    bytewise = play([(who, bytes([value])) for who, data in TRANSCRIPT for value in data])
    assert answer(bytewise) == answer(whole)


TAGS = st.sampled_from([b"a", b"b", b"a1", b"A001", b"7", b"1.2", b"*", b"+", b"F"])
CLIENT_LINES = st.one_of(
    st.tuples(
        TAGS,
        st.sampled_from(
            [
                b"NOOP\r\n", b"noop\n", b"FETCH 1 (FLAGS)\r\n", b"SELECT INBOX\r\n", b'EXAMINE "x y"\r\n', b"CLOSE\r\n",
                b"IDLE\r\n", b"APPEND x {3}\r\n", b"APPEND x {3+}\r\n", b"APPEND x ~{0+}\r\n", b"ENABLE CONDSTORE\r\n",
                b"LOGOUT\r\n", b"NOTIFY NONE\r\n", b"COMPRESS DEFLATE\r\n", b"SEARCH RETURN (SAVE) ALL\r\n", b"\r\n",
                b'LIST "" {2}\r\n', b'LIST "a {2}\r\n', b"SELECT {3}\r\n", b"UID FETCH 1:* (MODSEQ)\r\n",
            ]
        ),
    ).map(lambda pair: pair[0] + b" " + pair[1]),
    st.sampled_from([b"DONE\r\n", b"done\n", b"abc", b"\r\n", b"{", b"3}\r\n", b"a", b"x\n"]),
)  # fmt: skip
SERVER_LINES = st.one_of(
    st.tuples(TAGS, st.sampled_from([b"OK", b"NO", b"BAD", b"OK [READ-ONLY]", b"ok [CLOSED] {3}", b"X"])).map(
        lambda pair: pair[0] + b" " + pair[1] + b" done\r\n"
    ),
    st.sampled_from(
        [
            b"+ go\r\n", b"+\n", b"* 3 EXISTS\r\n", b"* OK [UIDVALIDITY 5] x\r\n", b"* OK [CLOSED] x\r\n",
            b"* FLAGS (\\Seen)\r\n", b"* ENABLED QRESYNC\r\n", b"* 1 FETCH (FLAGS ())\r\n",
            b"a OK xx\r\n", b"a OK x}\r\n", b")\r\n", b"* 2 FETCH (UID 3 BODY[] {4}\r\n", b" BODY[2] ~{3}\r\n",
            b"* LIST () \"/\" {1}\r\n", b"{2}\r\n", b" {2}\r\n", b"\r\n", b"\n", b"* OKAY {2}\r\n", b"* ok {2}\r\n",
            b"* SEARCH" + b" 1" * 30, b" {99999999999}\r\n", b"a OK", b"a", b"*", b"x" * 40, b"abc", b"}\r\n",
            b"* 1 FETCH (BODY[] {8}\r\n", b"* BYE {3}\r\n", b"\r", b" {4}\r",
        ]
    ),
)  # fmt: skip
STEPS = st.lists(
    st.one_of(
        st.lists(CLIENT_LINES, min_size=1, max_size=3).map(lambda parts: ("C", b"".join(parts))),
        st.lists(SERVER_LINES, min_size=1, max_size=6).map(lambda parts: ("S", b"".join(parts))),
    ),
    max_size=12,
)


@settings(max_examples=400, deadline=None)
@given(STEPS, st.data())
def test_any_session_in_any_pieces_is_read_as_the_slow_reading_does(steps: list[Step], data: st.DataObject) -> None:
    """Sense and nonsense of both sides, in random pieces: the same answers after every step."""
    tracker, slow = ImapTracker(), SlowTracker()
    for who, text in steps:
        (slow.client if who == "C" else slow.server)(text)
        cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=4), label="cuts"))
        for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
            (tracker.client if who == "C" else tracker.server)(text[begin:end])
        assert answer(tracker) == slow.answer()


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 40), st.booleans()), min_size=1, max_size=8),
    st.lists(st.integers(1, 60), min_size=1, max_size=30),
    st.sampled_from([b"a", b"F", b"1", b")"]),
)
def test_a_download_of_messages_in_any_pieces_ends_with_its_answer(
    messages: list[tuple[int, bool]], pieces: list[int], fill: bytes
) -> None:
    """Literals of all lengths, full of what looks like the answer."""
    answer_line = b"a OK done\r\n"
    text = b"".join(
        b"* %d FETCH (UID %d BODY[] %s{%d}\r\n%s)\r\n"
        % (n, n, b"~" if binary else b"", size, (answer_line * 9)[:size] if binary else fill * size)
        for n, (size, binary) in enumerate(messages, 1)
    )
    tracker = play([("C", b"a UID FETCH 1:* (BODY.PEEK[])\r\n")])
    at = 0
    while at < len(text):
        size = pieces[at % len(pieces)]
        tracker.server(text[at : at + size])
        at += size
        assert tracker.boundary is Boundary.BUSY
    tracker.server(answer_line)
    assert tracker.boundary is Boundary.BETWEEN
