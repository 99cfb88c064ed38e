"""Header work on the way in: what is read, added and taken out, and that no cut of the input matters."""

from __future__ import annotations

import email
import time
from email import policy as email_policy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gatepost.transport.headers import kinds
from gatepost.transport.headers.filter import (
    BARE_LINE_END,
    MAX_OWN_HOPS,
    TOO_LARGE,
    TOO_MANY_HOPS,
    HeaderFilter,
    HeaderPolicy,
)
from gatepost.transport.headers.trace import trace_token

RECEIVED = b"Received: from a by b; Tue, 14 Nov 2023 22:13:20 +0000\r\n"
NOW = 1_700_000_000.0
TOKEN = trace_token("Contoso", "HUB-01")
OURS = b"Received: from x by hub-01.contoso.com (Gatepost " + TOKEN + b")\r\n\twith ESMTP id 1; date\r\n"


def run(
    content: bytes, policy: HeaderPolicy | None = None, cuts: list[int] | None = None
) -> tuple[bytes, HeaderFilter]:
    """What comes out when the content is cut at these places."""
    header = HeaderFilter(policy or HeaderPolicy(), RECEIVED, NOW, "<new@hub-01.contoso.com>")
    at = 0
    written = []
    for cut in [*sorted(cuts or []), len(content)]:
        written.append(header.feed(content[at:cut]))
        at = max(at, cut)
    written.append(header.finish())
    return b"".join(written), header


def test_a_received_field_is_put_before_the_header_and_the_rest_is_as_it_was() -> None:
    content = b"From: a@b\r\nSubject: x\r\n y\r\nX-Other: \xff\r\n\r\nbody\r\n\r\n.. more\r\n"
    written, header = run(content)
    assert written == RECEIVED + content
    assert header.done
    assert header.refusal is None
    assert not header.facts.is_ascii


def test_facts_of_the_header_are_read() -> None:
    written, header = run(
        b"Received: from a\r\n\tby b\r\nFROM : Anna <anna@contoso.com>\r\nsubject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\r\n"
        b" =?utf-8?b?IQ==?=\r\nReceived: from c\r\nMessage-Id:\r\n <1@contoso.com>\r\nDate: today\r\n\r\nSubject: n\r\n"
    )
    facts = header.facts
    assert (facts.hops, facts.own_hops) == (2, 0)
    assert facts.message_id == "<1@contoso.com>"
    assert facts.subject == "Grüße!"
    assert facts.from_field == b"Anna <anna@contoso.com>"
    assert (facts.from_fields, facts.has_date, facts.has_message_id, facts.is_ascii) == (1, True, True, True)
    assert facts.size == written.index(b"\r\n\r\n") + 2 - len(RECEIVED)


def test_a_submission_gets_message_id_and_date_and_loses_bcc() -> None:
    policy = HeaderPolicy(submission=True)
    written, header = run(b"From: a@b\r\nBcc: c@d,\r\n e@f\r\nResent-Bcc: g@h\r\n\r\nx\r\n", policy)
    assert written == (
        RECEIVED + b"Message-ID: <new@hub-01.contoso.com>\r\nDate: Tue, 14 Nov 2023 22:13:20 +0000\r\n"
        b"From: a@b\r\n\r\nx\r\n"
    )
    assert header.facts.message_id == "<new@hub-01.contoso.com>"
    assert not header.facts.has_message_id
    assert header.facts.removed == 2


def test_a_submission_that_has_them_keeps_its_own() -> None:
    content = b"From: a@b\r\nMessage-ID: <1@b>\r\nDate: today\r\n\r\nx\r\n"
    assert run(content, HeaderPolicy(submission=True))[0] == RECEIVED + content


def test_relayed_mail_gets_neither_and_keeps_bcc() -> None:
    content = b"From: a@b\r\nBcc: c@d\r\n\r\nx\r\n"
    assert run(content)[0] == RECEIVED + content


def test_return_path_never_comes_in() -> None:
    for policy in (HeaderPolicy(), HeaderPolicy(trusted=True), HeaderPolicy(submission=True)):
        assert (
            b"return-path" not in run(b"Return-Path: <a@b>\r\nreturn-path: x\r\n y\r\nA: b\r\n\r\n", policy)[0].lower()
        )


@pytest.mark.parametrize(
    "name",
    [
        b"X-MS-Exchange-Organization-SCL",
        b"x-ms-exchange-organization-authas",
        b"X-MS-Exchange-Forest-RulesExecuted",
        b"X-Gatepost-Loop",
        b"X-MS-Exchange-Organization-SCL ",
        b"X-MS-Exchange-Organization-SCL\t",
    ],
)
def test_the_header_firewall_takes_out_what_strangers_must_not_say(name: bytes) -> None:
    content = b"From: a@b\r\n" + name + b": 1\r\n folded\r\nX-MS-Exchange-Other: stays\r\n\r\nX-Gatepost-A: body\r\n"
    kept = b"From: a@b\r\nX-MS-Exchange-Other: stays\r\n\r\nX-Gatepost-A: body\r\n"
    assert run(content)[0] == RECEIVED + kept
    assert run(content, HeaderPolicy(submission=True))[0].endswith(kept)
    assert run(content, HeaderPolicy(trusted=True))[0] == RECEIVED + content


def test_a_header_with_nothing_left_is_still_followed_by_its_empty_line() -> None:
    assert run(b"Return-Path: <a@b>\r\n\r\nx\r\n")[0] == RECEIVED + b"\r\nx\r\n"


def test_a_line_that_is_no_field_begins_the_body() -> None:
    written, header = run(b"From: a@b\r\nno field here\r\nX-Gatepost-A: is body now\r\n\r\nmore\r\n")
    assert written == RECEIVED + b"From: a@b\r\n\r\nno field here\r\nX-Gatepost-A: is body now\r\n\r\nmore\r\n"
    assert header.facts.size == len(b"From: a@b\r\n")
    parsed = email.message_from_bytes(written, policy=email_policy.SMTP)
    assert "X-Gatepost-A" not in parsed


@pytest.mark.parametrize("name", [b"", b"a b", b"\xc3\xa9", b"a\x01", b"x" * 201])
def test_names_that_are_none_end_the_header(name: bytes) -> None:
    assert run(name + b": x\r\n\r\n")[0] == RECEIVED + b"\r\n" + name + b": x\r\n\r\n"


@pytest.mark.parametrize("content", [b"\r\nFrom: body\r\n", b" folded onto nothing\r\n\r\n", b"just text\r\n"])
def test_a_message_without_a_header(content: bytes) -> None:
    written, header = run(content)
    assert written.startswith(RECEIVED + b"\r\n")
    assert written.endswith(content.removeprefix(b"\r\n"))
    assert header.facts.size == 0
    assert header.facts.from_fields == 0


def test_a_message_without_a_body_or_without_anything() -> None:
    assert run(b"From: a@b\r\n")[0] == RECEIVED + b"From: a@b\r\n\r\n"
    assert run(b"")[0] == RECEIVED + b"\r\n"


def test_the_envelope_line_of_a_mailbox_file_is_dropped() -> None:
    assert run(b"From a@b Mon Jan  1 00:00:00 2024\r\nSubject: x\r\n\r\n")[0] == RECEIVED + b"Subject: x\r\n\r\n"


def test_bare_line_ends_in_the_header_are_refused() -> None:
    for content in (b"A: b\nX-Gatepost-A: c\r\n\r\n", b"A: b\rc\r\n\r\n", b"A: b\r\r\n\r\n"):
        written, header = run(content)
        assert header.refusal is BARE_LINE_END
        assert written == b""


def test_the_header_is_bounded() -> None:
    policy = HeaderPolicy(max_size=100)
    fits = b"A: " + b"x" * 95 + b"\r\n\r\n"
    assert len(fits) == 102
    assert run(fits + b"y" * 1000, policy)[1].refusal is None
    written, header = run(b"A: " + b"x" * 96 + b"\r\n\r\n" + b"y" * 1000, policy)
    assert header.refusal is TOO_LARGE
    assert written == b""


def test_a_header_that_never_ends_is_not_kept_in_memory() -> None:
    header = HeaderFilter(HeaderPolicy(max_size=1000), RECEIVED, NOW)
    for _ in range(100):
        assert header.feed(b"A: bcd\r\n" * 10) == b""
    assert header.refusal is TOO_LARGE
    assert header.finish() == b""
    assert len(header._held) == 0


def test_more_received_fields_than_the_hop_count_are_a_loop() -> None:
    hops = HeaderPolicy(max_hops=30)
    assert run(b"Received: x\r\n" * 30 + b"\r\n", hops)[1].refusal is None
    assert run(b"Received: x\r\n" * 31 + b"\r\n", hops)[1].refusal is TOO_MANY_HOPS
    assert TOO_MANY_HOPS.permanent


def test_a_loop_through_this_hub_is_seen_earlier() -> None:
    policy = HeaderPolicy(token=TOKEN)
    other = OURS.replace(TOKEN, trace_token("Contoso", "HUB-02"))
    assert run(OURS * MAX_OWN_HOPS + other * 50 + b"\r\n", policy)[1].refusal is None
    _, header = run(OURS * (MAX_OWN_HOPS + 1) + b"\r\n", policy)
    assert header.refusal is TOO_MANY_HOPS
    assert header.facts.own_hops == MAX_OWN_HOPS + 1


def test_the_token_counts_in_received_fields_only() -> None:
    content = b"Subject: " + TOKEN + b"\r\n" + b"X: " + TOKEN + b"\r\n\r\n"
    assert run(content, HeaderPolicy(token=TOKEN))[1].facts.own_hops == 0


def test_a_shadow_resubmission_is_no_loop() -> None:
    policy = HeaderPolicy(token=TOKEN, resubmission=True, trusted=True)
    assert run(OURS * (MAX_OWN_HOPS + 3) + b"\r\n", policy)[1].refusal is None
    assert run(OURS * 101 + b"\r\n", policy)[1].refusal is TOO_MANY_HOPS


def test_strangers_cannot_make_the_table_of_names_grow() -> None:
    content = b"".join(b"X-%d: y\r\n" % number for number in range(3 * kinds.MAX_REMEMBERED)) + b"\r\n"
    run(content)
    assert len(kinds.remembered) <= kinds.MAX_REMEMBERED


@pytest.mark.parametrize(
    "piece",
    [
        b"X-Gatepost-A:\r\nB:\r\n",
        b"Subject:\r\n",
        OURS[:60] + b"\r\n",
        b"From: x\r\n y\r\n",
        b"A: b\r\n ",
        b"a:\r\n",
        b"=?a?q?",
    ],
)
def test_no_header_within_the_bound_takes_long(piece: bytes) -> None:
    content = b"A: " + b"\r\n" + piece * (250_000 // len(piece)) + b"\r\n\r\n"
    begun = time.process_time()
    run(content, HeaderPolicy(token=TOKEN, submission=True))
    assert time.process_time() - begun < 1


def test_texts_kept_of_a_header_are_bounded_and_safe() -> None:
    _, header = run(b"Subject: " + b"\x1b[31m" * 500 + b"\r\nMessage-ID: <" + b"\x07" * 2000 + b">\r\n\r\n")
    assert len(header.facts.subject) <= 256
    assert header.facts.subject.isprintable()
    assert len(header.facts.message_id) <= 512
    assert header.facts.message_id.isprintable()


LINES = st.sampled_from([
    b"From: a@b\r\n", b"Received: x\r\n", b"\r\n", b" folded\r\n", b"\tz\r\n", b"Bcc: q\r\n", b"Return-Path: <>\r\n",
    b"no field\r\n",
    b"X-Gatepost-A: 1\r\n", b"Subject: s\r\n", b"From x\r\n", b"A:" + b"b" * 40 + b"\r\n", b"\n", b"\r", OURS, b"c",
])  # fmt: skip


@given(
    lines=st.lists(LINES, max_size=14),
    cuts=st.lists(st.integers(0, 400), max_size=12),
    submission=st.booleans(),
    size=st.sampled_from([20, 60, 100, 1000]),
)
@settings(max_examples=150, deadline=None)
def test_every_cut_of_the_input_gives_the_same(
    lines: list[bytes], cuts: list[int], submission: bool, size: int
) -> None:
    content = b"".join(lines)
    policy = HeaderPolicy(max_size=size, max_hops=3, submission=submission, token=TOKEN)
    whole, first = run(content, policy)
    pieces, second = run(content, policy, [cut for cut in cuts if cut <= len(content)])
    bytewise, third = run(content, policy, list(range(len(content))))
    assert whole == pieces == bytewise
    assert first.refusal is second.refusal is third.refusal
    assert first.facts == second.facts == third.facts


@given(lines=st.lists(LINES.filter(lambda line: line not in (b"\n", b"\r", b"c")), max_size=14))
@settings(max_examples=80, deadline=None)
def test_whatever_comes_what_goes_out_has_no_field_that_must_not(lines: list[bytes]) -> None:
    """Python's reader of mail is the oracle, and it reads lines that are none in its own way."""
    written, _ = run(b"".join(lines), HeaderPolicy(submission=True))
    parsed = email.message_from_bytes(written)
    assert "Return-Path" not in parsed
    assert "Bcc" not in parsed
    assert not [name for name in parsed if name.lower().startswith("x-gatepost-")]
    assert parsed["Message-ID"]
    assert parsed["Date"]
