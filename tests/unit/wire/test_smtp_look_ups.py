"""Recipients that must be asked for elsewhere: the session waits, and its replies keep their order."""

from __future__ import annotations

import pytest
from smtp_play import Play, Recorder

from gatepost.wire.smtp_command import RcptCommand
from gatepost.wire.smtp_reply import Reply
from gatepost.wire.smtp_server_events import Asking, LookUp

LINES = (
    b"EHLO client.example\r\nMAIL FROM:<s@far.example>\r\nRCPT TO:<anna@x.ours>\r\nRCPT TO:<unknown@x.ours>\r\n"
    b"RCPT TO:<later@x.ours>\r\nRCPT TO:<otto@x.ours>\r\nDATA\r\nSubject: x\r\n\r\nhello\r\n.\r\nQUIT\r\n"
)


class AskingRecorder(Recorder):
    """Knows nobody before `known` has them; the name to ask for is the local part alone."""

    def __init__(self) -> None:
        super().__init__()
        self.known: set[str] = set()

    def recipient(self, command: RcptCommand) -> Reply | Asking | None:
        name = command.address.partition("@")[0]
        return super().recipient(command) if name in self.known else Asking(name)


def _play(*, auto: bool = True) -> tuple[Play, AskingRecorder]:
    play = Play(greet=False)
    judge = play.judge = AskingRecorder()
    play.session._judge = judge
    play.auto = auto
    play.run(play.session.greet())
    return play, judge


def _drive(play: Play, judge: AskingRecorder, data: bytes) -> None:
    """Say `data`; what must be asked for is known a moment later."""
    play.run(play.session.receive(data))
    while play.claims:
        event = play.claims.pop()
        assert isinstance(event, LookUp)
        judge.known.add(event.name)
        play.run(play.session.looked_up())


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50, len(LINES)])
def test_any_split_gives_the_same_replies_in_order(size: int) -> None:
    known = Play()
    known.heard()
    wanted = known.codes(LINES)
    play, judge = _play()
    play.heard()
    for at in range(0, len(LINES), size):
        _drive(play, judge, LINES[at : at + size])
    assert [" ".join(line.split()[:2]) for line in play.heard() if line[3] == " "] == wanted
    assert play.contents == known.contents
    assert [r.address for r in play.stored[0].recipients] == ["anna@x.ours", "otto@x.ours"]


def test_nothing_is_said_while_it_is_asked() -> None:
    play, judge = _play()
    play.lines("EHLO client.example", "MAIL FROM:<s@far.example>")
    assert play.lines("RCPT TO:<anna@x.ours>", "RSET") == []
    judge.known.add("anna")
    play.run(play.session.looked_up())
    assert [line[:3] for line in play.heard()] == ["250", "250"]


def test_what_is_not_asked_is_not_answered() -> None:
    """A second word of the driver, or one without a question, changes nothing."""
    play, judge = _play()
    play.lines("EHLO client.example", "MAIL FROM:<s@far.example>", "RCPT TO:<anna@x.ours>")
    judge.known.add("anna")
    play.run(play.session.looked_up())
    play.heard()
    assert play.session.looked_up() == []
    assert play.heard() == []


def test_a_refusal_that_slows_down_comes_after_the_question() -> None:
    play, judge = _play()
    play.lines("EHLO client.example", "MAIL FROM:<s@far.example>")
    _drive(play, judge, b"RCPT TO:<unknown@x.ours>\r\n")
    assert [line[:3] for line in play.heard()] == ["550"]
