"""The IMAP machine towards mailbox servers, told as dialogues, for every way to cut the server's words into packets."""

from __future__ import annotations

import base64
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from imap_play import b64, split_evenly

from gatepost.wire.events import BackEvent, BackSignIn, ClientFacts, Failed, FailureKind, Send, SignedIn, StartTls
from gatepost.wire.imap_back import MAX_BYTES, MAX_LINE, MAX_LINES, ImapBack

LOGIN = BackSignIn("LOGIN", "bob", password="secret")
PLAIN = BackSignIn("PLAIN", "gatepost", password="secret", authorization_id="bob")
XOAUTH2 = BackSignIn("XOAUTH2", "bob", token="t0ken")
OAUTHBEARER = BackSignIn("OAUTHBEARER", "bob", token="t0ken")
CLIENT = ClientFacts("2001:db8::7", 4711, "198.51.100.1", 993, tls=True, session="s-1")

GREETING = "* OK [CAPABILITY IMAP4rev1 SASL-IR ID AUTH=PLAIN] ready"
BARE = "* OK ready"
IN = "gate1 OK [CAPABILITY IMAP4rev1 IDLE ID] Logged in"
ID_COMMAND = (
    'ID ("x-originating-ip" "2001:db8::7" "x-originating-port" "4711" "x-connected-ip" "198.51.100.1"'
    ' "x-connected-port" "993" "x-session-id" "s-1" "x-proxy-ttl" "4")'
)
PLAIN_MESSAGE = b64("bob\0gatepost\0secret").decode()
BEARER_MESSAGE = b64("n,a=bob,\x01auth=Bearer t0ken\x01\x01").decode()
XOAUTH2_MESSAGE = b64("user=bob\x01auth=Bearer t0ken\x01\x01").decode()
LATER = b"IMAP4rev1 IDLE ID"

# A dialogue: what the server says (S), then what we are to have said (C) before it speaks again. "TLS": the handshake.
Dialogue = tuple[BackSignIn, list[str], SignedIn | Failed]

DIALOGUES: dict[str, Dialogue] = {
    "login": (
        LOGIN,
        [f"S {GREETING}", 'C gate1 LOGIN "bob" "secret"', f"S {IN}"],
        SignedIn(b"Logged in", LATER),
    ),
    "login with quotes": (
        replace(LOGIN, user='b"o\\b', password=" {5+} % "),
        [f"S {BARE}", 'C gate1 LOGIN "b\\"o\\\\b" " {5+} % "', f"S {IN}"],
        SignedIn(b"Logged in", LATER),
    ),
    "beyond ASCII goes by SASL, with initial response where known": (
        replace(LOGIN, password="ü"),
        [f"S {GREETING}", f"C gate1 AUTHENTICATE PLAIN {b64(chr(0) + 'bob' + chr(0) + 'ü').decode()}", f"S {IN}"],
        SignedIn(b"Logged in", LATER),
    ),
    "beyond ASCII by challenge": (
        replace(LOGIN, password="ü"),
        [
            f"S {BARE}",
            "C gate1 AUTHENTICATE PLAIN",
            "S +",
            f"C {b64(chr(0) + 'bob' + chr(0) + 'ü').decode()}",
            f"S {IN}",
        ],
        SignedIn(b"Logged in", LATER),
    ),
    "where LOGIN is disabled": (
        LOGIN,
        [
            "S * OK [CAPABILITY IMAP4rev1 LOGINDISABLED AUTH=PLAIN] ready",
            "C gate1 AUTHENTICATE PLAIN",
            "S + ",
            f"C {b64(chr(0) + 'bob' + chr(0) + 'secret').decode()}",
            f"S {IN}",
        ],
        SignedIn(b"Logged in", LATER),
    ),
    "where nothing is allowed without TLS": (
        LOGIN,
        ["S * OK [CAPABILITY IMAP4rev1 STARTTLS LOGINDISABLED] ready"],
        Failed(FailureKind.PROTOCOL, "the server takes no sign-in without TLS"),
    ),
    "plain with authorization identity": (
        PLAIN,
        [f"S {GREETING}", f"C gate1 AUTHENTICATE PLAIN {PLAIN_MESSAGE}", f"S {IN}"],
        SignedIn(b"Logged in", LATER),
    ),
    "plain by challenge": (
        PLAIN,
        [f"S {BARE}", "C gate1 AUTHENTICATE PLAIN", "S + go on", f"C {PLAIN_MESSAGE}", f"S {IN}"],
        SignedIn(b"Logged in", LATER),
    ),
    "a challenge too many": (
        PLAIN,
        [f"S {BARE}", "C gate1 AUTHENTICATE PLAIN", "S +", f"C {PLAIN_MESSAGE}", "S +"],
        Failed(FailureKind.PROTOCOL, "unexpected continuation"),
    ),
    "a token": (
        OAUTHBEARER,
        [f"S {GREETING}", f"C gate1 AUTHENTICATE OAUTHBEARER {BEARER_MESSAGE}", f"S {IN}"],
        SignedIn(b"Logged in", LATER),
    ),
    "a refused token": (
        OAUTHBEARER,
        [
            f"S {GREETING}",
            f"C gate1 AUTHENTICATE OAUTHBEARER {BEARER_MESSAGE}",
            "S + eyJzdGF0dXMiOiI0MDEifQ==",
            "C AQ==",
            "S gate1 NO [AUTHENTICATIONFAILED] no",
        ],
        Failed(FailureKind.REFUSED, "NO: AUTHENTICATIONFAILED no"),
    ),
    "a refused token by challenge": (
        XOAUTH2,
        [
            f"S {BARE}",
            "C gate1 AUTHENTICATE XOAUTH2",
            "S +",
            f"C {XOAUTH2_MESSAGE}",
            "S + eyJzdGF0dXMiOiI0MDEifQ==",
            "C ",
            "S gate1 NO no",
        ],
        Failed(FailureKind.REFUSED, "NO: no"),
    ),
    "the client's address": (
        replace(LOGIN, client=CLIENT),
        [
            f"S {BARE}",
            f"C gate1 {ID_COMMAND}",
            'S * ID ("name" {7+}',
            "S Do vecot)",
            "S gate1 OK thanks",
            'C gate2 LOGIN "bob" "secret"',
            "S gate2 OK [CAPABILITY IMAP4rev1] in",
        ],
        SignedIn(b"in", b"IMAP4rev1"),
    ),
    "the client's address is refused": (
        replace(LOGIN, client=CLIENT),
        [
            f"S {BARE}",
            f"C gate1 {ID_COMMAND}",
            "S gate1 BAD what",
            'C gate2 LOGIN "bob" "secret"',
            "S gate2 OK [CAPABILITY IMAP4rev1] in",
        ],
        SignedIn(b"in", b"IMAP4rev1"),
    ),
    "pipelined": (
        replace(LOGIN, client=CLIENT, pipelined=True),
        [
            f"S {BARE}",
            f"C gate1 {ID_COMMAND}",
            'C gate2 LOGIN "bob" "secret"',
            "S * CAPABILITY OLD",
            "S gate1 NO never mind",
            "S * CAPABILITY IMAP4rev1 NEW",
            "S gate2 OK in",
        ],
        SignedIn(b"in", b"IMAP4rev1 NEW"),
    ),
    "pipelined with the client's own ID": (
        replace(LOGIN, pipelined=True, client_id=(("name", "Mail"), ("X-Originating-IP", "6.6.6.6"), ("os", "Lïnux"))),
        [
            f"S {GREETING}",
            'C gate1 LOGIN "bob" "secret"',
            'C gate2 ID ("name" "Mail" "os" "L?nux")',
            f"S {IN}",
            "S * ID NIL",
            "S gate2 OK done",
        ],
        SignedIn(b"Logged in", LATER),
    ),
    "the client's own ID in lock-step": (
        replace(LOGIN, client_id=(("name", "Mail"),)),
        [
            f"S {GREETING}",
            'C gate1 LOGIN "bob" "secret"',
            f"S {IN}",
            'C gate2 ID ("name" "Mail")',
            "S gate2 BAD no",
        ],
        SignedIn(b"Logged in", LATER),
    ),
    "the client's own ID where the server has no ID": (
        replace(LOGIN, client_id=(("name", "Mail"),)),
        [f"S {GREETING}", 'C gate1 LOGIN "bob" "secret"', "S gate1 OK [CAPABILITY IMAP4rev1] in"],
        SignedIn(b"in", b"IMAP4rev1"),
    ),
    "only fields that proxies use": (
        replace(LOGIN, client_id=(("x-originating-ip", "6.6.6.6"),)),
        [f"S {GREETING}", 'C gate1 LOGIN "bob" "secret"', f"S {IN}"],
        SignedIn(b"Logged in", LATER),
    ),
    "capabilities must be asked for": (
        LOGIN,
        [
            f"S {GREETING}",
            'C gate1 LOGIN "bob" "secret"',
            "S gate1 OK in",
            "C gate2 CAPABILITY",
            "S * CAPABILITY IMAP4rev1 X]Y",
            "S gate2 OK done",
        ],
        SignedIn(b"in", b"IMAP4rev1"),
    ),
    "capabilities asked for in vain": (
        LOGIN,
        [f"S {GREETING}", 'C gate1 LOGIN "bob" "secret"', "S gate1 OK", "C gate2 CAPABILITY", "S gate2 NO"],
        SignedIn(b"Signed in"),
    ),
    "alerts reach the client": (
        LOGIN,
        [
            "S * OK [ALERT] Maintenance at noon",
            'C gate1 LOGIN "bob" "secret"',
            "S * OK [UNSEEN 3] no alert",
            "S * NO [alert] Quota is ne\x07ar\u202e\x9b",
            "S * CAPABILITY IMAP4rev1",
            "S gate1 OK [ALERT] in",
        ],
        SignedIn(
            b"in",
            b"IMAP4rev1",
            untagged=b"* OK [ALERT] Maintenance at noon\r\n* OK [ALERT] Quota is ne?ar??\r\n* OK [ALERT] in\r\n",
        ),
    ),
    "starttls": (
        replace(LOGIN, starttls=True),
        [
            "S * OK [ALERT] said in clear",
            "C gate1 STARTTLS",
            "S * CAPABILITY SASL-IR LOGINDISABLED",
            "S gate1 OK begin",
            "TLS",
            'C gate2 LOGIN "bob" "secret"',
            "S gate2 OK [CAPABILITY IMAP4rev1] in",
        ],
        SignedIn(b"in", b"IMAP4rev1"),
    ),
    "starttls is not offered": (
        replace(LOGIN, starttls=True),
        [f"S {GREETING}"],
        Failed(FailureKind.PROTOCOL, "TLS is required but not offered"),
    ),
    "starttls is refused": (
        replace(LOGIN, starttls=True),
        [f"S {BARE}", "C gate1 STARTTLS", "S gate1 NO not today"],
        Failed(FailureKind.PROTOCOL, "NO to STARTTLS: not today"),
    ),
    "starttls is unknown": (
        replace(LOGIN, starttls=True),
        [f"S {BARE}", "C gate1 STARTTLS", "S gate1 BAD what"],
        Failed(FailureKind.PROTOCOL, "BAD to starttls: what"),
    ),
    "refused": (
        LOGIN,
        [f"S {BARE}", 'C gate1 LOGIN "bob" "secret"', "S gate1 NO [AUTHENTICATIONFAILED] Nope\x1b"],
        Failed(FailureKind.REFUSED, "NO: AUTHENTICATIONFAILED Nope?"),
    ),
    "unavailable": (
        LOGIN,
        [f"S {BARE}", 'C gate1 LOGIN "bob" "secret"', "S gate1 no [unavailable] later"],
        Failed(FailureKind.UNAVAILABLE, "NO: unavailable later"),
    ),
    "in use": (
        LOGIN,
        [f"S {BARE}", 'C gate1 LOGIN "bob" "secret"', "S gate1 NO [INUSE] locked"],
        Failed(FailureKind.IN_USE, "NO: INUSE locked"),
    ),
    "limit": (
        LOGIN,
        [f"S {BARE}", 'C gate1 LOGIN "bob" "secret"', "S gate1 NO [LIMIT] enough"],
        Failed(FailureKind.LIMIT, "NO: LIMIT enough"),
    ),
    "not understood": (
        LOGIN,
        [f"S {BARE}", 'C gate1 LOGIN "bob" "secret"', "S gate1 BAD what"],
        Failed(FailureKind.PROTOCOL, "BAD to sign-in: what"),
    ),
    "bye instead of a greeting": (LOGIN, ["S * BYE full"], Failed(FailureKind.UNAVAILABLE, "BYE: full")),
    "bye in the middle": (
        LOGIN,
        [f"S {BARE}", 'C gate1 LOGIN "bob" "secret"', "S * BYE shutting down"],
        Failed(FailureKind.UNAVAILABLE, "BYE: shutting down"),
    ),
    "preauth": (
        LOGIN,
        ["S * PREAUTH hello"],
        Failed(FailureKind.PROTOCOL, "unexpected greeting: * PREAUTH hello"),
    ),
    "another protocol": (
        LOGIN,
        ["S 220 mail ESMTP"],
        Failed(FailureKind.PROTOCOL, "unexpected greeting: 220 mail ESMTP"),
    ),
    "an answer to nothing": (
        LOGIN,
        [f"S {BARE}", 'C gate1 LOGIN "bob" "secret"', "S gate2 OK in"],
        Failed(FailureKind.PROTOCOL, "unexpected line: gate2 OK in"),
    ),
    "an answer that is none": (
        LOGIN,
        [f"S {BARE}", 'C gate1 LOGIN "bob" "secret"', "S gate1 OKAY in"],
        Failed(FailureKind.PROTOCOL, "unexpected line: gate1 OKAY in"),
    ),
}


def play(sign_in: BackSignIn, dialogue: list[str], *sizes: int, rest: bytes = b"") -> tuple[list[str], list[BackEvent]]:
    """Have a machine hold the dialogue; what it said turn by turn, in the dialogue's form, and its last events."""
    machine = ImapBack(sign_in)
    assert machine.connected() == []
    held: list[str] = []
    last: list[BackEvent] = []

    def take(events: list[BackEvent]) -> None:
        for event in events:
            if isinstance(event, Send):
                assert event.data.endswith(b"\r\n")
                held.extend(f"C {line}" for line in event.data.decode()[:-2].split("\r\n"))
            elif isinstance(event, StartTls):
                held.append("TLS")
            else:
                last.append(event)

    for i, turn in enumerate(dialogue):
        if turn.startswith("S "):
            held.append(turn)
            data = turn[2:].encode() + b"\r\n"
            if i == len(dialogue) - 1:
                data += rest
            for piece in split_evenly(data, *(sizes or (len(data),))):
                take(machine.receive(piece))
        elif turn == "TLS":
            take(machine.tls_started())
    return held, last


every_dialogue = pytest.mark.parametrize("name", DIALOGUES)


@every_dialogue
@pytest.mark.parametrize("sizes", [(), (1,), (2,), (3, 1, 5)], ids=["whole", "bytes", "pairs", "mixed"])
def test_dialogue(name: str, sizes: tuple[int, ...]) -> None:
    """Each dialogue is held as told, however the server's lines are cut."""
    sign_in, dialogue, outcome = DIALOGUES[name]
    held, last = play(sign_in, dialogue, *sizes)
    assert held == dialogue
    assert last == [outcome]


@every_dialogue
def test_cut_at_every_byte(name: str) -> None:
    """Each of the server's lines cut in two at any place makes no difference."""
    sign_in, dialogue, outcome = DIALOGUES[name]
    for at in range(1, max(len(turn) for turn in dialogue)):
        assert play(sign_in, dialogue, at, 1000) == (dialogue, [outcome]), at


@pytest.mark.parametrize("name", [n for n, d in DIALOGUES.items() if isinstance(d[2], SignedIn)])
def test_rest_belongs_to_the_client(name: str) -> None:
    """Bytes in the same packet as the last answer are given back as they came."""
    sign_in, dialogue, outcome = DIALOGUES[name]
    assert isinstance(outcome, SignedIn)
    rest = b"* BYE \0\xff{5}\r\ngate1 half a li"
    assert play(sign_in, dialogue, rest=rest)[1] == [replace(outcome, rest=rest)]


def server_talk() -> st.SearchStrategy[bytes]:
    """Lines a server may say, right and wrong, in any order."""
    lines = [GREETING, BARE, IN, "gate1 OK", "gate2 OK", "gate1 NO x", "gate2 BAD", "+", "+ x", "* CAPABILITY A B",
             "gate3 OK", "* ID NIL", '* ID ("a" {3}', "xyz)",
             "* OK [ALERT] x", "* BYE", "* {9999999}", "\0", ""]  # fmt: skip
    return st.lists(st.sampled_from(lines), max_size=12).map(lambda said: "\r\n".join([BARE, *said, ""]).encode())


@given(server_talk(), st.lists(st.integers(1, 20), min_size=1, max_size=5), st.booleans())
@settings(max_examples=400, deadline=None)
def test_any_split_of_any_talk(said: bytes, sizes: list[int], pipelined: bool) -> None:
    """Whatever a server says at once, the outcome does not depend on the packets."""
    sign_in = replace(LOGIN, client=CLIENT, client_id=(("name", "Mail"),), pipelined=pipelined)

    def outcome(pieces: list[bytes]) -> tuple[bytes, list[BackEvent]]:
        machine = ImapBack(sign_in)
        written, others = bytearray(), list[BackEvent]()
        for i, piece in enumerate(pieces):
            for event in machine.receive(piece):
                if isinstance(event, Send):
                    written += event.data
                elif isinstance(event, SignedIn):
                    # What was not received yet would be relayed as it comes.
                    others.append(replace(event, rest=event.rest + b"".join(pieces[i + 1 :])))
                else:
                    others.append(event)
        return bytes(written), others

    assert outcome(split_evenly(said, *sizes)) == outcome([said])


@given(st.binary(max_size=400))
@settings(max_examples=300, deadline=None)
def test_noise(said: bytes) -> None:
    """Noise from a server ends in at most one verdict, and its text is printable and short."""
    machine = ImapBack(LOGIN)
    events = machine.receive(b"* OK ready\r\n" + said)
    verdicts = [e for e in events if isinstance(e, Failed | SignedIn)]
    assert len(verdicts) <= 1
    for verdict in verdicts:
        assert not isinstance(verdict, Failed) or (verdict.text.isprintable() and len(verdict.text) <= 200)
        assert machine.receive(b"* BYE\r\n") == []


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (b"x" * (MAX_LINE + 2), "line too long"),
        (b"* OK ready\r\n" + b"* " + b"x" * MAX_LINE, "line too long"),
        (b"* OK ready\r\n" + b"* STATUS\r\n" * MAX_LINES, "too many lines"),
        (
            b"* OK ready\r\n" + (b"* X " + b"x" * 8000 + b"\r\n") * (MAX_BYTES // MAX_LINE + 1),
            "too many bytes",
        ),
        (b"* OK ready\r\n" + (b"* X {4096}\r\n" + b"x" * 4096 + b"\r\n") * (MAX_BYTES // 4096 + 1), "too many bytes"),
        (b"* OK ready\r\n* ID {4097}\r\n", "literal too large"),
        (b"* OK ready\r\n* ID {99999999999999999999}\r\n", "literal too large"),
        (b"* OK ready\r\n* ID {5+}\r\nabc\r\n {9999}\r\n", "literal too large"),
        (b"* OK re\0ady\r\n", "invalid character in a line"),
        (b"* OK ready\r\n* OK a\rb\r\n", "invalid character in a line"),
    ],
)
def test_hostile_servers(said: bytes, text: str) -> None:
    """Every bound on what a server may say holds, whole and in small pieces (field case 59)."""
    for pieces in ([said], split_evenly(said, 61)):
        machine = ImapBack(LOGIN)
        events = [event for piece in pieces for event in machine.receive(piece)]
        assert events[-1] == Failed(FailureKind.PROTOCOL, text)
        assert [type(e) for e in events].count(Failed) == 1


@pytest.mark.parametrize("together", [True, False])
def test_bytes_behind_starttls(together: bool) -> None:
    """Words that came in clear behind the answer to STARTTLS end the attempt (field cases 79, 80)."""
    machine = ImapBack(replace(LOGIN, starttls=True))
    machine.receive(b"* OK ready\r\n")
    if together:
        events = machine.receive(b"gate1 OK go\r\n* OK injected\r\n")
    else:
        assert machine.receive(b"gate1 OK go\r\n") == [StartTls()]
        events = machine.receive(b"* OK injected\r\n")
    assert [type(e) for e in events] == [Failed]
    assert machine.tls_started() == []


@pytest.mark.parametrize("sign_in", [LOGIN, PLAIN, XOAUTH2, replace(LOGIN, password='x"y\\z')])
@pytest.mark.parametrize("form", ["secret", "sent"])
def test_secrets_repeated_by_a_server_reach_no_log(sign_in: BackSignIn, form: str) -> None:
    """A server that repeats our secret, or the line we sent, has its text withheld."""
    machine = ImapBack(sign_in)
    (sent,) = machine.receive(GREETING.encode() + b"\r\n")
    assert isinstance(sent, Send)
    secret = (sign_in.token or sign_in.password).encode()
    repeated = secret.swapcase() if form == "secret" else sent.data.strip()
    assert machine.receive(b"gate1 NO you said " + repeated + b"\r\n") == [
        Failed(FailureKind.REFUSED, "NO: (withheld: it repeats a secret)")
    ]


@pytest.mark.parametrize("field", ["user", "password", "authorization_id"])
@pytest.mark.parametrize("character", "\r\n\0")
def test_control_characters_never_reach_a_server(field: str, character: str) -> None:
    """Credentials that could end our line are not sent at all (field case 60)."""
    machine = ImapBack(replace(PLAIN, **{field: f"a{character}b"}))  # type: ignore[arg-type]
    (event,) = machine.receive(GREETING.encode() + b"\r\n")
    assert event == Failed(FailureKind.PROTOCOL, "a control character in the credentials")


@pytest.mark.parametrize("sign_in", [replace(PLAIN, password="p" * 600), replace(LOGIN, password="p" * 1000)])
def test_long_credentials_take_the_challenge_form(sign_in: BackSignIn) -> None:
    """No command line passes 512 bytes with an initial response, 1000 with LOGIN (field case 53)."""
    machine = ImapBack(sign_in)
    assert machine.receive(GREETING.encode() + b"\r\n") == [Send(b"gate1 AUTHENTICATE PLAIN\r\n")]
    (answer,) = machine.receive(b"+ \r\n")
    assert isinstance(answer, Send)
    assert base64.b64decode(answer.data).endswith(b"\0" + sign_in.password.encode())


def test_state_names_follow_the_dialogue() -> None:
    """Logs can say what was being waited for."""
    machine = ImapBack(replace(LOGIN, starttls=True, client=CLIENT))
    names = [machine.state_name]
    for said in (b"* OK x\r\n", b"gate1 OK x\r\n"):
        machine.receive(said)
        names.append(machine.state_name)
    machine.tls_started()
    names.append(machine.state_name)
    for said in (b"gate2 OK x\r\n", b"gate3 OK x\r\n"):
        machine.receive(said)
        names.append(machine.state_name)
    assert names == ["greeting", "starttls", "starttls", "id", "sign-in", "capability"]
