"""What a client sees before the hand-over, told as transcripts, for every way to cut them into packets."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from imap_play import BEARER_BOB, BOB, CAPABILITIES, PASSWORDS, WELCOME, XOAUTH2_BOB, b64, clear, front, let_in, play

from gatepost.wire.events import Close, Credentials, FrontEvent, Refusal, StartTls
from gatepost.wire.imap_command import MAX_COMMAND, MAX_TAG
from gatepost.wire.imap_front import ImapFront

UNKNOWN = b" BAD Unknown command, or not possible before signing in\r\n"

# name: (machine, what the client says, what is written, other events, bytes left over)
Transcript = tuple[Callable[[], ImapFront], bytes, bytes, list[object], bytes]

TRANSCRIPTS: dict[str, Transcript] = {
    "capability over TLS": (
        front,
        b"a1 CAPABILITY\r\n",
        b"* CAPABILITY " + CAPABILITIES + PASSWORDS + b"\r\na1 OK Capabilities listed\r\n",
        [],
        b"",
    ),
    "capability in clear": (
        clear,
        b"a1 capability\r\n",
        b"* CAPABILITY " + CAPABILITIES + b" STARTTLS LOGINDISABLED\r\na1 OK Capabilities listed\r\n",
        [],
        b"",
    ),
    "capability in clear where that is allowed, without tokens": (
        lambda: clear(clear_passwords=True, bearer=False, starttls=False),
        b"a1 CAPABILITY\r\n",
        b"* CAPABILITY " + CAPABILITIES + b" AUTH=PLAIN AUTH=LOGIN\r\na1 OK Capabilities listed\r\n",
        [],
        b"",
    ),
    "noop and a line end without CR": (
        front,
        b"x NOOP\nY nOOp \r\n",
        b"x OK Nothing done\r\nY OK Nothing done\r\n",
        [],
        b"",
    ),
    "logout": (
        front,
        b"a LOGOUT\r\nb NOOP\r\n",
        b"* BYE Signing out\r\na OK Signed out\r\n",
        [Close("logout")],
        b"",
    ),
    "login with atoms": (front, b"a LOGIN bob secret\r\n", b"a" + WELCOME, [BOB], b""),
    "login in lower case with trailing space": (front, b"a login bob secret \r\n", b"a" + WELCOME, [BOB], b""),
    "login quoted": (front, b'a LOGIN "bob" "secret"\r\n', b"a" + WELCOME, [BOB], b""),
    "login quoted and atom": (front, b'a LOGIN "bob" secret\r\n', b"a" + WELCOME, [BOB], b""),
    "login with synchronising literals": (
        front,
        b"a LOGIN {3}\r\nbob {6}\r\nsecret\r\n",
        b"+ OK\r\n+ OK\r\na" + WELCOME,
        [BOB],
        b"",
    ),
    "login with non-synchronising literals": (
        front,
        b"a LOGIN {3+}\r\nbob {6+}\r\nsecret\r\n",
        b"a" + WELCOME,
        [BOB],
        b"",
    ),
    "login atom, then literal": (front, b"a LOGIN bob {6}\r\nsecret\r\n", b"+ OK\r\na" + WELCOME, [BOB], b""),
    "login literal, then quoted": (front, b'a LOGIN {3+}\r\nbob "secret"\r\n', b"a" + WELCOME, [BOB], b""),
    "login quoted, then literal": (front, b'a LOGIN "bob" {6+}\r\nsecret\r\n', b"a" + WELCOME, [BOB], b""),
    "escapes only in quoted strings": (
        front,
        b'a LOGIN "b\\\\o\\"b" {4+}\r\n\\\\\\"\r\n',
        b"a" + WELCOME,
        [Credentials("LOGIN", 'b\\o"b', password='\\\\\\"')],
        b"",
    ),
    "a literal that looks like a command": (
        front,
        b"a LOGIN bob {10+}\r\nx LOGOUT {\r\n",
        b"a" + WELCOME,
        [Credentials("LOGIN", "bob", password="x LOGOUT {")],
        b"",
    ),
    "a quoted password that looks like a literal": (
        front,
        b'a LOGIN bob "{5+}"\r\n',
        b"a" + WELCOME,
        [Credentials("LOGIN", "bob", password="{5+}")],
        b"",
    ),
    "an empty password is judged, not misread": (
        front,
        b'a LOGIN bob ""\r\nb LOGIN bob {0}\r\n\r\n',
        (
            b"a NO [AUTHENTICATIONFAILED] Wrong user name or password.\r\n+ OK\r\n"
            b"b NO [AUTHENTICATIONFAILED] Wrong user name or password.\r\n"
        ),
        [Credentials("LOGIN", "bob"), Credentials("LOGIN", "bob")],
        b"",
    ),
    "UTF-8 in atom, quoted and literal": (
        front,
        'a LOGIN jürgen "🔑"\r\n'.encode(),
        b"a" + WELCOME,
        [Credentials("LOGIN", "jürgen", password="🔑")],
        b"",
    ),
    "Latin-1 is refused": (front, b"a LOGIN bob \xfc\r\n", b"a BAD not UTF-8\r\n", [], b""),
    "a line end inside a password": (
        front,
        b"a LOGIN bob {4+}\r\n1\r\n2\r\nb LOGIN bob {3}\r\n1\x002\r\n",
        b"a BAD a control character\r\n+ OK\r\nb BAD a control character\r\n",
        [],
        b"",
    ),
    "NUL and lone CR in a line": (
        front,
        b"a LOGIN bob se\0cret\r\nb LOGIN bob se\rcret\r\nc NOOP\r\r\n",
        b"a BAD Invalid character\r\nb BAD Invalid character\r\nc BAD Invalid character\r\n",
        [],
        b"",
    ),
    "too few and too many arguments": (
        front,
        b"a LOGIN bob\r\nb LOGIN\r\nc LOGIN bob x y\r\nd NOOP x\r\ne AUTHENTICATE\r\nf ID\r\n",
        (
            b"a BAD Missing argument\r\nb BAD Missing argument\r\nc BAD Too many arguments\r\n"
            b"d BAD Too many arguments\r\ne BAD Missing argument\r\nf BAD Missing argument\r\n"
        ),
        [],
        b"",
    ),
    "an unfinished string": (
        front,
        b'a LOGIN "bob {3}\r\nb LOGIN bob "x\r\n',
        b"a BAD Invalid quoted string\r\nb BAD Invalid quoted string\r\n",
        [],
        b"",
    ),
    "what belongs to later states": (
        front,
        b"a SELECT INBOX\r\nb ENABLE IMAP4rev2\r\n",
        b"a" + UNKNOWN + b"b" + UNKNOWN,
        [],
        b"",
    ),
    "the literal of a command we refuse": (
        front,
        b"a APPEND x {30+}\r\nb LOGIN bob secret\r\nb LOGOUT\r\n\r\nc APPEND x {5}\r\nd NOOP\r\n",
        b"a" + UNKNOWN + b"c" + UNKNOWN + b"d OK Nothing done\r\n",
        [],
        b"",
    ),
    "tags": (
        front,
        b"\r\n+ NOOP\r\nA.1-]x: NOOP\r\na\r\n(b NOOP\r\n"
        + b"t" * MAX_TAG
        + b" NOOP\r\n"
        + b"t" * (MAX_TAG + 1)
        + b" NOOP\r\n",
        b"".join(
            (
                (b"*" + UNKNOWN) * 2,
                b"A.1-]x: OK Nothing done\r\n",
                b"a" + UNKNOWN,
                b"*" + UNKNOWN,
                b"t" * MAX_TAG + b" OK Nothing done\r\n",
                b"*" + UNKNOWN,
            )
        ),
        [],
        b"",
    ),
    "literal counts that are no counts": (
        front,
        b"a LOGIN {-3}\r\nb LOGIN {+3}\r\nc LOGIN {3 }\r\nd LOGIN {}\r\ne LOGIN {0x3}\r\n",
        b"".join(b"%c BAD Invalid argument\r\n" % c for c in b"abcde"),
        [],
        b"",
    ),
    "a large literal that waits": (
        front,
        b"a LOGIN {8193}\r\nb LOGIN {99999999999999999999}\r\nc NOOP\r\n",
        b"a BAD Literal too large\r\nb BAD Literal too large\r\nc OK Nothing done\r\n",
        [],
        b"",
    ),
    "a large literal that does not wait": (
        front,
        b"a LOGIN {8193+}\r\nb LOGIN bob secret\r\n",
        b"a BAD Literal too large\r\n",
        [Close("literal too large")],
        b"",
    ),
    "a signed count with its bytes behind it": (
        front,
        b"a LOGIN {-3+}\r\nb LOGIN bob secret\r\n",
        b"a BAD Literal too large\r\n",
        [Close("literal too large")],
        b"",
    ),
    "id": (
        front,
        b'a ID NIL\r\nb ID ("name" "Mail" "version" NIL {2}\r\nos {6+}\r\nDebian)\r\n',
        b'* ID ("name" "Gatepost")\r\na OK ID noted\r\n+ OK\r\n* ID ("name" "Gatepost")\r\nb OK ID noted\r\n',
        [],
        b"",
    ),
    "authenticate plain": (
        front,
        b"a AUTHENTICATE PLAIN\r\n" + b64("\0bob\0secret") + b"\r\n",
        b"+ \r\na" + WELCOME,
        [Credentials("PLAIN", "bob", password="secret")],
        b"",
    ),
    "authenticate plain with initial response and authorization identity": (
        front,
        b"a authenticate plain " + b64("ann\0bob\0secret") + b"\r\n",
        b"a" + WELCOME,
        [Credentials("PLAIN", "bob", "ann", password="secret")],
        b"",
    ),
    "authenticate login": (
        front,
        b"a AUTHENTICATE LOGIN\r\n" + b64("bob") + b"\r\n" + b64("secret") + b"\r\n",
        b"+ VXNlcm5hbWU6\r\n+ UGFzc3dvcmQ6\r\na" + WELCOME,
        [BOB],
        b"",
    ),
    "authenticate login with the name at once": (
        front,
        b"a AUTHENTICATE LOGIN " + b64("bob") + b"\r\n" + b64("secret") + b"\r\n",
        b"+ UGFzc3dvcmQ6\r\na" + WELCOME,
        [BOB],
        b"",
    ),
    "authenticate login with an empty initial response": (
        front,
        b"a AUTHENTICATE LOGIN =\r\n" + b64("bob") + b"\r\n" + b64("secret") + b"\r\n",
        b"+ VXNlcm5hbWU6\r\n+ UGFzc3dvcmQ6\r\na" + WELCOME,
        [BOB],
        b"",
    ),
    "authenticate with tokens": (
        front,
        b"a AUTHENTICATE XOAUTH2 " + b64(XOAUTH2_BOB) + b"\r\n",
        b"a" + WELCOME,
        [Credentials("XOAUTH2", "bob", token="t0ken")],
        b"",
    ),
    "authenticate with tokens by challenge": (
        front,
        b"a AUTHENTICATE OAUTHBEARER\r\n" + b64(BEARER_BOB) + b"\r\n",
        b"+ \r\na" + WELCOME,
        [Credentials("OAUTHBEARER", "bob", token="t0ken")],
        b"",
    ),
    "bad responses": (
        front,
        b"a AUTHENTICATE PLAIN =\r\nb AUTHENTICATE PLAIN\r\nno base64\r\nc AUTHENTICATE LOGIN\r\n"
        + b64(b"\xff")
        + b"\r\nd AUTHENTICATE PLAIN "
        + b64("\0b\rob\0secret")
        + b"\r\n",
        (
            b"a BAD not a PLAIN message\r\n+ \r\nb BAD not base64\r\n+ VXNlcm5hbWU6\r\nc BAD not UTF-8\r\n"
            b"d BAD a control character\r\n"
        ),
        [],
        b"",
    ),
    "aborts": (
        front,
        b"a AUTHENTICATE PLAIN\r\n*\r\nb AUTHENTICATE LOGIN\r\n" + b64("bob") + b"\r\n*\r\nc NOOP\r\n",
        (
            b"+ \r\na BAD Authentication aborted\r\n+ VXNlcm5hbWU6\r\n+ UGFzc3dvcmQ6\r\n"
            b"b BAD Authentication aborted\r\nc OK Nothing done\r\n"
        ),
        [],
        b"",
    ),
    "unknown mechanism": (
        lambda: front(bearer=False),
        b"a AUTHENTICATE GSSAPI\r\nb AUTHENTICATE XOAUTH2 " + b64(XOAUTH2_BOB) + b"\r\n",
        b"a NO Unsupported mechanism\r\nb NO Unsupported mechanism\r\n",
        [],
        b"",
    ),
    "no password in clear": (
        clear,
        b"a LOGIN bob secret\r\nb LOGIN {3}\r\nc LOGIN {3+}\r\nbob {6+}\r\nsecret\r\nd AUTHENTICATE PLAIN\r\n"
        b"e AUTHENTICATE PLAIN " + b64("\0bob\0secret") + b"\r\n",
        b"".join(b"%c NO [PRIVACYREQUIRED] TLS is needed to sign in\r\n" % c for c in b"abcde"),
        [],
        b"",
    ),
    "in clear where that is allowed": (
        lambda: clear(clear_passwords=True),
        b"a LOGIN bob secret\r\n",
        b"a" + WELCOME,
        [BOB],
        b"",
    ),
    "starttls": (
        clear,
        b'a ID ("name" "x")\r\nb STARTTLS\r\nc LOGIN bob secret\r\n',
        b'* ID ("name" "Gatepost")\r\na OK ID noted\r\nb OK Begin TLS now\r\n',
        [StartTls()],
        b"",
    ),
    "starttls where it cannot be": (front, b"a STARTTLS\r\n", b"a BAD TLS is on already\r\n", [], b""),
    "starttls where it is not offered": (
        lambda: clear(starttls=False),
        b"a STARTTLS\r\n",
        b"a BAD TLS is not available\r\n",
        [],
        b"",
    ),
    "pipelined behind the sign-in": (
        front,
        b"a LOGIN bob secret\r\nb SELECT INBOX\r\nc FETCH 1 (\r",
        b"a" + WELCOME,
        [BOB],
        b"b SELECT INBOX\r\nc FETCH 1 (\r",
    ),
    "pipelined behind a wrong password": (
        front,
        b"a LOGIN bob wrong\r\nb NOOP\r\nc LOGIN bob {6}\r\nsecret\r\nd LIST\r\n",
        b"a NO [AUTHENTICATIONFAILED] Wrong user name or password.\r\nb OK Nothing done\r\n+ OK\r\nc" + WELCOME,
        [Credentials("LOGIN", "bob", password="wrong"), BOB],
        b"d LIST\r\n",
    ),
    "too many wrong passwords": (
        front,
        b"a LOGIN bob 1\r\nb LOGIN bob 2\r\nc LOGIN bob 3\r\nd LOGIN bob secret\r\n",
        b"".join(b"%c NO [AUTHENTICATIONFAILED] Wrong user name or password.\r\n" % c for c in b"abc")
        + b"* BYE Too many failed sign-ins\r\n",
        [Credentials("LOGIN", "bob", password=p) for p in "123"] + [Close("too many failed sign-ins")],
        b"",
    ),
    "too many bad commands": (
        lambda: front(bad_commands=2),
        b"a X\r\nb X\r\nc NOOP\r\n",
        b"a" + UNKNOWN + b"b" + UNKNOWN + b"* BYE Too many bad commands\r\n",
        [Close("too many bad commands")],
        b"",
    ),
    "a browser": (
        front,
        b"POST / HTTP/1.1\r\nHost: mail\r\n\r\na LOGIN bob secret\r\n",
        b"POST" + UNKNOWN + b"* BYE Too many bad commands\r\n",
        [Close("too many bad commands")],
        b"",
    ),
    "an endless line": (
        front,
        b"a LOGIN bob " + b"x" * MAX_COMMAND,
        b"a BAD Command too long\r\n",
        [Close("command too long")],
        b"",
    ),
    "an endless response": (
        front,
        b"a AUTHENTICATE PLAIN\r\n" + b"x" * 30000,
        b"+ \r\na BAD Response too long\r\n",
        [Close("response too long")],
        b"",
    ),
}


def judge(machine: ImapFront, credentials: Credentials) -> list[FrontEvent]:
    """The right password is `secret`; every token is right; the odd ones above too, but the empty one."""
    if credentials.token or credentials.password not in ("wrong", "1", "2", "3", ""):
        return let_in(machine, credentials)
    return machine.refuse(Refusal.WRONG_CREDENTIALS)


every_transcript = pytest.mark.parametrize("name", TRANSCRIPTS)


@every_transcript
def test_transcript(name: str) -> None:
    """The whole input in one piece is answered as the transcript says."""
    machine, said, written, events, rest = TRANSCRIPTS[name]
    assert play(machine(), [said], judge) == (written, events, rest)


@every_transcript
def test_split_at_every_byte(name: str) -> None:
    """Byte by byte, and cut in two at any place, the outcome is the same."""
    machine, said, *expected = TRANSCRIPTS[name]
    assert play(machine(), [said[i : i + 1] for i in range(len(said))], judge) == tuple(expected)
    for at in range(1, len(said), 1 if len(said) < 2000 else 997):
        assert play(machine(), [said[:at], said[at:]], judge) == tuple(expected), at


@every_transcript
def test_late_judgement(name: str) -> None:
    """What comes while a sign-in is judged is kept and used afterwards."""
    machine, said, *expected = TRANSCRIPTS[name]
    pieces = [said[i : i + 7] for i in range(0, len(said), 7)]
    if sum(isinstance(e, Credentials) for e in expected[1]) <= 1:  # type: ignore[attr-defined]
        assert play(machine(), pieces, judge, late=True) == tuple(expected)
