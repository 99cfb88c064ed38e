"""The messages of reports, read back by Python's reader of mail and by a second, plain one."""

from __future__ import annotations

import email
import re
from base64 import b64decode
from collections.abc import AsyncIterator
from email import policy
from email.message import EmailMessage
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gatepost.transport.headers.trace import date
from gatepost.transport.message import BodyType, Envelope, Notify, Recipient
from gatepost.transport.reports.builder import Report, Reporter, build
from gatepost.transport.reports.returned import MAX_HEADER, Original, StrictLines, quoted_printable, read_original
from gatepost.transport.reports.rules import Action, Fate, tell

NOW = 1_700_000_000.0
REPORTER = Reporter("hub-01.contoso.com")
HEADER = b"From: Alice <alice@contoso.com>\r\nSubject: Figures\r\nMessage-ID: <1@contoso.com>\r\n"
EVERYTHING = Notify.SUCCESS | Notify.FAILURE | Notify.DELAY


def message(*recipients: Recipient, **fields: object) -> Envelope:
    values: dict[str, object] = {
        "sender": "alice@contoso.com", "received": NOW - 600, "expires": NOW + 7200, "subject": "Figures",
        "message_id": "<1@contoso.com>", "size": 500,
    }  # fmt: skip
    return Envelope(recipients=list(recipients), **(values | fields))  # type: ignore[arg-type]


async def pieces(content: bytes, size: int = 7) -> AsyncIterator[bytes]:
    for at in range(0, len(content), size):
        yield content[at : at + size]


async def report(envelope: Envelope, *fates: Fate, content: bytes = HEADER + b"\r\nBody\r\n") -> tuple[Report, bytes]:
    """The only report of a moment at which this became of the recipients, and its octets. Checks what all must be."""
    (notice,) = tell(envelope, zip(envelope.recipients, fates, strict=True)).notices
    made = build(
        REPORTER,
        notice,
        envelope,
        await read_original(pieces(content, max(7, len(content) // 50))),
        NOW,
        "<7.rnd@hub-01.contoso.com>",
    )
    octets = b"".join([block async for block in made.chunks()])
    assert made.envelope.sender == ""
    assert [recipient.address for recipient in made.envelope.recipients] == [envelope.sender]
    assert octets.count(b"\n") == octets.count(b"\r\n") == octets.count(b"\r")
    assert b"\0" not in octets
    assert all(len(line) <= 998 for line in octets.split(b"\r\n"))
    if made.envelope.body == BodyType.SEVEN_BIT:
        assert octets.isascii()
    assert octets.partition(b"\r\n\r\n")[0].isascii() or made.envelope.smtputf8
    if made.returned is None:
        assert made.envelope.size == len(octets)
    return made, octets


def parsed(octets: bytes) -> EmailMessage:
    return cast(EmailMessage, email.message_from_bytes(octets, policy=policy.default))


def groups(octets: bytes) -> list[dict[str, str]]:
    """The fields of message/delivery-status as a second, plain reader sees them: of the message, then of recipients."""
    boundary = re.search(rb'boundary="([^"]+)"', octets)
    assert boundary
    part = octets.split(b"\r\n--" + boundary[1])[2]
    head, _, content = part.partition(b"\r\n\r\n")
    if b"base64" in head:
        content = b64decode(content)
    text = content.decode()
    unfolded = re.sub(r"\r\n[ \t]+", " ", text).strip()
    return [dict(line.split(": ", 1) for line in group.split("\r\n")) for group in unfolded.split("\r\n\r\n")]


async def test_a_failure_in_all_its_fields() -> None:
    envelope = message(
        Recipient(
            "bob@example.org", original="rfc822;Bob+2Bx@example.org", reply="550 5.1.1 No such user",
            server="mx.example.org [192.0.2.1]", attempts=1,
        ),
        Recipient("carol@example.net", reply="Connection refused", attempts=9),
        envelope_id="QQ+2B314",
    )  # fmt: skip
    made, octets = await report(envelope, Fate.FAILED, Fate.EXPIRED)
    mail = parsed(octets)
    assert mail.get_content_type() == "multipart/report"
    assert mail.get_param("report-type") == "delivery-status"
    assert mail["From"] == "Mail Delivery System <postmaster@hub-01.contoso.com>"
    assert mail["To"] == "alice@contoso.com"
    assert mail["Subject"] == "Undeliverable: Figures"
    assert mail["Date"] == date(NOW)
    assert mail["Message-ID"] == "<7.rnd@hub-01.contoso.com>"
    assert mail["Auto-Submitted"] == "auto-replied"
    assert mail["In-Reply-To"] == mail["References"] == "<1@contoso.com>"
    assert mail["MIME-Version"] == "1.0"
    assert not mail.defects
    text, fields, header = mail.iter_parts()
    assert [part.get_content_type() for part in mail.iter_parts()] == [
        "text/plain", "message/delivery-status", "text/rfc822-headers",
    ]  # fmt: skip
    said = text.get_content()
    assert "bob@example.org" in said
    assert 'mx.example.org [192.0.2.1] said: "550 5.1.1 No such user"' in said
    assert "tried until its time was over" in said
    assert header.get_payload(decode=True).rstrip() == HEADER.rstrip()
    assert groups(octets) == [
        {"Original-Envelope-Id": "QQ+314", "Reporting-MTA": "dns; hub-01.contoso.com", "Arrival-Date": date(NOW - 600)},
        {
            "Original-Recipient": "rfc822; Bob+x@example.org", "Final-Recipient": "rfc822; bob@example.org",
            "Action": "failed", "Status": "5.1.1", "Remote-MTA": "dns; mx.example.org (192.0.2.1)",
            "Diagnostic-Code": "smtp; 550 5.1.1 No such user", "Last-Attempt-Date": date(NOW),
        },
        {
            "Final-Recipient": "rfc822; carol@example.net", "Action": "failed", "Status": "4.4.7",
            "Diagnostic-Code": "x-gatepost; Connection refused", "Last-Attempt-Date": date(NOW),
        },
    ]  # fmt: skip
    oracle = [dict(group.items()) for group in fields.get_payload() if group.keys()]
    assert [{name: " ".join(str(value).split()) for name, value in group.items()} for group in oracle] == groups(octets)
    assert made.envelope.received == NOW
    assert made.envelope.expires == NOW + 2 * 86400
    assert made.envelope.message_id == "<7.rnd@hub-01.contoso.com>"


async def test_our_own_words_are_no_reply_of_a_server() -> None:
    envelope = message(Recipient("a@x", reply="451 4.4.2 not sent in this session", attempts=1))
    _, octets = await report(envelope, Fate.DELAYED)
    assert groups(octets)[1]["Diagnostic-Code"] == "x-gatepost; 451 4.4.2 not sent in this session"
    assert groups(octets)[1]["Status"] == "4.4.2"
    assert " said:" not in next(parsed(octets).iter_parts()).get_content()


async def test_a_delay_says_how_long_it_will_be_tried() -> None:
    envelope = message(Recipient("bob@example.org", reply="450 4.2.0 Later", server="mx.example.org", attempts=12))
    _, octets = await report(envelope, Fate.DELAYED)
    assert parsed(octets)["Subject"] == "Delayed: Figures"
    _, group = groups(octets)
    assert (group["Action"], group["Status"]) == ("delayed", "4.2.0")
    assert group["Will-Retry-Until"] == date(NOW + 7200)
    text = next(parsed(octets).iter_parts()).get_content()
    assert "do not send it again" in text
    assert date(NOW + 7200) in " ".join(text.split())


@pytest.mark.parametrize(
    ("fate", "title"), [(Fate.RELAYED, "Relayed"), (Fate.DELIVERED, "Delivered"), (Fate.EXPANDED, "Expanded")]
)
async def test_successes(fate: Fate, title: str) -> None:
    envelope = message(Recipient("bob@example.org", notify=EVERYTHING, reply="250 2.1.5 Ok", server="mx", attempts=1))
    _, octets = await report(envelope, fate)
    assert parsed(octets)["Subject"] == f"{title}: Figures"
    _, group = groups(octets)
    assert (group["Action"], group["Status"]) == (title.lower(), "2.1.5")
    assert "Will-Retry-Until" not in group


async def test_no_report_on_a_message_without_a_sender() -> None:
    envelope = message(Recipient("a@x", reply="550 No"))
    (notice,) = tell(envelope, [(envelope.recipients[0], Fate.FAILED)]).notices
    envelope.sender = ""
    with pytest.raises(ValueError, match="no report"):
        build(REPORTER, notice, envelope, Original(HEADER), NOW, "<1@x>")


async def test_row_21_the_header_alone_comes_back_unless_the_sender_asked_for_all() -> None:
    for returns in ("", "HDRS"):
        _, octets = await report(message(Recipient("a@x", reply="550 No"), returns=returns), Fate.FAILED)
        assert b"Body" not in octets
        assert list(parsed(octets).iter_parts())[-1].get_content_type() == "text/rfc822-headers"


async def test_ret_full_gives_all_back() -> None:
    made, octets = await report(message(Recipient("a@x", reply="550 No"), returns="FULL"), Fate.FAILED)
    last = list(parsed(octets).iter_parts())[-1]
    assert last.get_content_type() == "message/rfc822"
    (inner,) = last.get_payload()
    assert inner["Subject"] == "Figures"
    assert inner.get_payload() == "Body\r\n"
    assert made.envelope.body == BodyType.EIGHT_BIT


async def test_ret_full_counts_for_failures_within_the_bound_only() -> None:
    big = message(Recipient("a@x", reply="550 No"), returns="FULL", size=REPORTER.max_returned + 1)
    late = message(Recipient("a@x", reply="450 No"), returns="FULL")
    binary = message(Recipient("a@x", reply="550 No"), returns="FULL", body=BodyType.BINARY)
    for envelope, fate in ((big, Fate.FAILED), (late, Fate.DELAYED), (binary, Fate.FAILED)):
        made, octets = await report(envelope, fate)
        assert made.returned is None
        assert b"Body" not in octets


async def test_ret_full_with_long_lines_and_no_end() -> None:
    content = HEADER + b"\r\n" + b"x" * 5000 + b"\xff"
    envelope = message(Recipient("a@x", reply="550 No"), returns="FULL", body=BodyType.EIGHT_BIT)
    _, octets = await report(envelope, Fate.FAILED, content=content)
    assert octets.endswith(b"\r\n--" + octets.rpartition(b"--=_")[2].join((b"=_", b"")))
    assert b"".join(octets.split(b"\r\n")).count(b"x" * 5000) == 1


async def test_a_header_in_eight_bits_or_with_long_lines_comes_back_in_seven() -> None:
    header = b"From: a@b\r\nSubject: Gr\xc3\xbc\xc3\x9fe\r\nX-Long: " + b"y" * 3000 + b"\r\n"
    made, octets = await report(message(Recipient("a@x", reply="550 No")), Fate.FAILED, content=header + b"\r\n")
    assert made.envelope.body == BodyType.SEVEN_BIT
    last = list(parsed(octets).iter_parts())[-1]
    assert last["Content-Transfer-Encoding"] == "quoted-printable"
    assert last.get_payload(decode=True).rstrip() == header.rstrip()
    assert max(len(line) for line in octets.split(b"\r\n")) <= 78


async def test_a_large_header_comes_back_in_part() -> None:
    header = b"".join(b"X-%d: %s\r\n" % (number, b"z" * 50) for number in range(2000))
    for content in (header + b"\r\nBody\r\n", header, b"\xff" * 100_000):
        envelope = message(Recipient("a@x", reply="550 No"), returns="FULL")
        _, octets = await report(envelope, Fate.FAILED, content=content)
        assert len(octets) < MAX_HEADER + 5000
        assert b"Body" not in octets


async def test_row_21_the_words_of_a_server_are_cleaned_and_folded() -> None:
    reply = "550 5.7.1 " + "long " * 500 + "\r\nFinal-Recipient: rfc822; forged@x\x00 ü"
    envelope = message(Recipient("a@x", reply=reply, server="evil\r\nX: y \x1b", attempts=1), subject="a\r\nBcc: b@c")
    _, octets = await report(envelope, Fate.FAILED)
    assert len(groups(octets)) == 2
    assert groups(octets)[1]["Final-Recipient"] == "rfc822; a@x"
    assert b"forged" not in re.findall(rb"(?m)^Final-Recipient:.*", octets)
    assert "Bcc" not in parsed(octets)
    assert max(len(line) for line in octets.split(b"\r\n")) <= 78


async def test_subjects_beyond_ascii_are_encoded() -> None:
    _, octets = await report(message(Recipient("a@x", reply="550 No"), subject="Grüße " * 20), Fate.FAILED)
    assert octets.isascii()
    assert str(parsed(octets)["Subject"]).startswith("Undeliverable: Grüße Grüße")
    text = next(parsed(octets).iter_parts())
    assert "Subject: Grüße" in text.get_content()
    assert max(len(line) for line in octets.split(b"\r\n")) <= 78


async def test_many_recipients_are_named_in_part_and_listed_whole() -> None:
    envelope = message(*(Recipient(f"user{number}@x.example", reply="550 5.1.1 No") for number in range(200)))
    _, octets = await report(envelope, *[Fate.FAILED] * 200)
    assert len(groups(octets)) == 201
    text = next(parsed(octets).iter_parts()).get_content()
    assert "user49@" in text
    assert "user50@" not in text
    assert "and 150 more" in text


INTERNATIONAL = "From: grüße@contoso.com\r\nSubject: Zürich\r\n".encode()


async def test_international_mail_of_an_ascii_sender_is_reported_in_seven_bits() -> None:
    envelope = message(
        Recipient(
            "bücher@例え.example", original="utf-8;b\\x{FC}cher@x.example", reply="550 5.1.1 Nö", server="mx",
            attempts=1,
        ),
        smtputf8=True, body=BodyType.EIGHT_BIT,
    )  # fmt: skip
    made, octets = await report(envelope, Fate.FAILED, content=INTERNATIONAL + b"\r\nBody\r\n")
    assert not made.envelope.smtputf8
    assert octets.isascii()
    mail = parsed(octets)
    assert mail.get_param("report-type") == "global-delivery-status"
    assert [part.get_content_type() for part in mail.iter_parts()] == [
        "text/plain", "message/global-delivery-status", "message/global-headers",
    ]  # fmt: skip
    _, group = groups(octets)
    assert group["Final-Recipient"] == "utf-8; bücher@例え.example"
    assert group["Original-Recipient"] == "utf-8; bücher@x.example"
    assert group["Diagnostic-Code"] == "smtp; 550 5.1.1 Nö"


async def test_international_mail_of_an_international_sender_is_reported_in_utf_8() -> None:
    envelope = message(
        Recipient("bücher@x.example", reply="550 5.1.1 No"), sender="grüße@contoso.com", smtputf8=True, returns="FULL",
        body=BodyType.EIGHT_BIT,
    )  # fmt: skip
    made, octets = await report(envelope, Fate.FAILED, content=INTERNATIONAL + "\r\nKörper\r\n".encode())
    assert made.envelope.smtputf8
    assert made.envelope.body == BodyType.EIGHT_BIT
    assert "To: <grüße@contoso.com>\r\n".encode() in octets
    assert "Final-Recipient: utf-8; bücher@x.example\r\n".encode() in octets
    assert b"Content-Type: message/global\r\nContent-Transfer-Encoding: 8bit\r\n\r\n" + INTERNATIONAL in octets
    assert "Körper".encode() in octets


async def test_international_mail_given_back_whole_to_an_ascii_sender_is_in_base64() -> None:
    body = "Körper\r\n".encode() * 300
    envelope = message(Recipient("a@x", reply="550 No"), smtputf8=True, returns="FULL", body=BodyType.EIGHT_BIT)
    _, octets = await report(envelope, Fate.FAILED, content=INTERNATIONAL + b"\r\n" + body)
    assert octets.isascii()
    part = octets.split(b"\r\n--=_")[-2]
    assert b"message/global" in part
    assert b64decode(part.partition(b"\r\n\r\n")[2]) == INTERNATIONAL + b"\r\n" + body


async def test_an_international_address_in_mail_without_smtputf8_is_escaped() -> None:
    envelope = message(Recipient("a@x", original="utf-8;b\\x{FC}cher+@x.example", reply="550 5.1.1 No"))
    _, octets = await report(envelope, Fate.FAILED)
    assert octets.isascii()
    assert groups(octets)[1]["Original-Recipient"] == "utf-8; b\\x{FC}cher\\x{2B}@x.example"


@pytest.mark.parametrize("original", ["rfc822;a+ZZ@x", "nothing", "a b;x@y", "rfc822;", ";x", "rfc822;a=b@x"])
async def test_an_orcpt_that_cannot_be_read_is_left_out(original: str) -> None:
    _, octets = await report(message(Recipient("a@x", original=original, reply="550 No")), Fate.FAILED)
    assert "Original-Recipient" not in groups(octets)[1]


@pytest.mark.parametrize(
    ("server", "field"),
    [
        ("mx.example.org", "dns; mx.example.org"),
        ("mx.example.org [2001:db8::1]", "dns; mx.example.org (2001:db8::1)"),
        ("192.0.2.1", "dns; [192.0.2.1]"),
        ("[2001:db8::1]:25", "dns; [2001:db8::1]:25"),
        ("2001:db8::1", "dns; [IPv6:2001:db8::1]"),
    ],
)
async def test_remote_mta(server: str, field: str) -> None:
    _, octets = await report(message(Recipient("a@x", reply="550 No", server=server)), Fate.FAILED)
    assert groups(octets)[1]["Remote-MTA"] == field


@given(
    reply=st.text(max_size=300), server=st.text(max_size=80), original=st.text(max_size=80),
    subject=st.text(max_size=80), address=st.text(max_size=80), identity=st.text(max_size=60),
    sender=st.text("ab@ü \r\n<>\x00", min_size=1, max_size=40),
    header=st.binary(max_size=400), body=st.binary(max_size=400), utf8=st.booleans(), full=st.booleans(),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
async def test_whatever_strangers_said_the_report_is_well_formed(
    reply: str, server: str, original: str, subject: str, address: str, sender: str, identity: str,
    header: bytes, body: bytes, utf8: bool, full: bool,
) -> None:  # fmt: skip
    envelope = message(
        Recipient(address, original=original, reply=reply, server=server, attempts=1), sender=sender,
        subject=subject, envelope_id=identity, smtputf8=utf8, returns="FULL" if full else "", message_id=subject,
        body=BodyType.EIGHT_BIT,
    )  # fmt: skip
    _, octets = await report(envelope, Fate.FAILED, content=header + b"\r\n\r\n" + body)
    mail = email.message_from_bytes(octets)
    assert len(mail.get_payload()) == 3
    assert [name.lower() for name in mail.keys()].count("to") == 1  # noqa: SIM118 - a message, whose keys repeat
    assert set(mail.keys()) <= {
        "From", "To", "Subject", "Date", "Message-ID", "Auto-Submitted", "In-Reply-To", "References", "MIME-Version",
        "Content-Type", "Content-Transfer-Encoding",
    }  # fmt: skip
    assert [group["Action"] for group in groups(octets)[1:]] == [Action.FAILED]


@given(
    content=st.lists(st.sampled_from([b"\r", b"\n", b"\r\n", b"x" * 600, b"y"])), cuts=st.lists(st.integers(0, 5000))
)
def test_strict_lines_are_the_same_for_every_cut(content: list[bytes], cuts: list[int]) -> None:
    octets = b"".join(content)
    whole, pieces_ = StrictLines(), StrictLines()
    once = whole.feed(octets) + whole.finish()
    at, written = 0, b""
    for cut in [*sorted(cuts), len(octets)]:
        written += pieces_.feed(octets[at:cut])
        at = max(at, min(cut, len(octets)))
    assert written + pieces_.finish() == once
    assert once.count(b"\r") == once.count(b"\n") == once.count(b"\r\n")
    assert all(len(line) <= 998 for line in once.split(b"\r\n"))
    assert once == b"" or once.endswith(b"\r\n")


@given(st.lists(st.binary(max_size=200).map(lambda line: line.replace(b"\r", b"").replace(b"\n", b""))))
@settings(max_examples=50, deadline=None)
def test_quoted_printable_is_read_back(lines: list[bytes]) -> None:
    octets = b"\r\n".join(lines)
    encoded = quoted_printable(octets)
    assert all(len(line) <= 76 for line in encoded.split(b"\r\n"))
    mail = email.message_from_bytes(b"Content-Transfer-Encoding: quoted-printable\r\n\r\n" + encoded)
    assert mail.get_payload(decode=True) == octets
