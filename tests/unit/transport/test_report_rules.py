"""Who is told what, and when (RFC 3461, RFC 3464, RFC 5321 section 4.5.5; smtp-facts c.2, rows 20 and 22)."""

from __future__ import annotations

import pytest

from gatepost.organization.transport import TransportSettings
from gatepost.transport.message import Envelope, Notify, Recipient, RecipientState
from gatepost.transport.reports.rules import (
    Action,
    Fate,
    Handover,
    delayed,
    expired,
    next_moment,
    status,
    success,
    tell,
    wanted,
)

RECEIVED = 1_700_000_000.0
HOUR = 3600.0
DELAY = TransportSettings().delay_notification
EXPIRES = RECEIVED + TransportSettings().message_expiration
SUCCESSES = (Fate.RELAYED, Fate.DELIVERED, Fate.EXPANDED)


def message(*recipients: Recipient, sender: str = "alice@contoso.com") -> Envelope:
    return Envelope(sender=sender, recipients=list(recipients), received=RECEIVED, expires=EXPIRES)


@pytest.mark.parametrize(
    ("notify", "told"),
    [
        (Notify.DEFAULT, {Fate.FAILED, Fate.EXPIRED, Fate.DELAYED}),
        (Notify.NEVER, set()),
        (Notify.NEVER | Notify.FAILURE, set()),
        (Notify.FAILURE, {Fate.FAILED, Fate.EXPIRED}),
        (Notify.DELAY, {Fate.DELAYED}),
        (Notify.SUCCESS, set(SUCCESSES)),
        (Notify.SUCCESS | Notify.FAILURE | Notify.DELAY, set(Fate)),
    ],
)
def test_notify_says_who_is_told_what(notify: Notify, told: set[Fate]) -> None:
    assert {fate for fate in Fate if wanted(notify, fate)} == told


def test_success_is_told_only_on_request_and_relayed_where_the_next_hop_has_no_dsn() -> None:
    assert success(Handover.MAILBOX) is Fate.DELIVERED
    assert success(Handover.WITHOUT_DSN) is Fate.RELAYED
    assert success(Handover.WITH_DSN) is None
    unasked, asked = Recipient("a@x"), Recipient("b@x", notify=Notify.SUCCESS)
    decision = tell(message(unasked, asked), [(unasked, Fate.RELAYED), (asked, Fate.RELAYED)])
    assert [(notice.action, [t.recipient.address for t in notice.tellings]) for notice in decision.notices] == [
        (Action.RELAYED, ["b@x"])
    ]


def test_one_report_for_each_action_of_a_moment() -> None:
    everything = Notify.SUCCESS | Notify.FAILURE | Notify.DELAY
    recipients = [Recipient(f"{number}@x", notify=everything) for number in range(7)]
    fates = [
        Fate.RELAYED, Fate.FAILED, Fate.DELIVERED, Fate.EXPIRED, Fate.DELAYED, Fate.EXPANDED, Fate.FAILED,
    ]  # fmt: skip
    decision = tell(message(*recipients), zip(recipients, fates, strict=True))
    assert [(notice.action, [t.recipient.address[0] for t in notice.tellings]) for notice in decision.notices] == [
        (Action.FAILED, ["1", "3", "6"]),
        (Action.DELAYED, ["4"]),
        (Action.EXPANDED, ["5"]),
        (Action.RELAYED, ["0"]),
        (Action.DELIVERED, ["2"]),
    ]
    assert decision.dead == ()


def test_row_22_a_message_without_a_sender_causes_no_report_and_its_failures_are_dead_letters() -> None:
    recipients = [Recipient("a@x", notify=Notify.SUCCESS | Notify.FAILURE), Recipient("b@x"), Recipient("c@x")]
    decision = tell(
        message(*recipients, sender=""),
        [(recipients[0], Fate.FAILED), (recipients[1], Fate.DELAYED), (recipients[2], Fate.EXPIRED)],
    )
    assert decision.notices == ()
    assert [recipient.address for recipient in decision.dead] == ["a@x", "c@x"]


def test_a_message_without_a_sender_has_no_delay_to_be_told() -> None:
    envelope = message(Recipient("a@x"), sender="")
    assert delayed(envelope, RECEIVED + DELAY, DELAY) == []
    assert next_moment(envelope, DELAY) == EXPIRES


def test_delay_is_told_once_for_each_recipient_after_four_hours() -> None:
    told, waiting = Recipient("a@x", delay_told=True), Recipient("b@x", state=RecipientState.UNCERTAIN)
    done, never = Recipient("c@x", state=RecipientState.DELIVERED), Recipient("d@x", notify=Notify.FAILURE)
    envelope = message(told, waiting, done, never)
    assert delayed(envelope, RECEIVED + 4 * HOUR - 1, DELAY) == []
    assert delayed(envelope, RECEIVED + 4 * HOUR, DELAY) == [waiting]
    waiting.delay_told = True
    assert delayed(envelope, RECEIVED + 5 * HOUR, DELAY) == []


def test_the_time_is_over_after_two_days_and_the_failure_is_4_4_7() -> None:
    waiting, uncertain = Recipient("a@x"), Recipient("b@x", state=RecipientState.UNCERTAIN, reply="450 4.2.0 Later")
    envelope = message(
        waiting,
        uncertain,
        Recipient("c@x", state=RecipientState.FAILED),
        Recipient("d@x", state=RecipientState.DROPPED),
    )
    assert expired(envelope, RECEIVED + 48 * HOUR - 1) == []
    over = expired(envelope, RECEIVED + 48 * HOUR)
    assert over == [waiting, uncertain]
    assert delayed(envelope, EXPIRES, DELAY) == []
    (notice,) = tell(envelope, [(recipient, Fate.EXPIRED) for recipient in over]).notices
    assert notice.action is Action.FAILED
    assert [told.status for told in notice.tellings] == ["4.4.7", "4.4.7"]


def test_the_next_moment_at_which_something_is_to_be_told() -> None:
    recipient = Recipient("a@x")
    envelope = message(recipient)
    assert next_moment(envelope, DELAY) == RECEIVED + 4 * HOUR
    recipient.delay_told = True
    assert next_moment(envelope, DELAY) == EXPIRES
    recipient.state = RecipientState.DELIVERED
    assert next_moment(envelope, DELAY) is None
    envelope.recipients = [Recipient("b@x")]
    assert next_moment(envelope, 3 * 24 * HOUR) == EXPIRES


@pytest.mark.parametrize(
    ("reply", "fate", "code"),
    [
        ("550 5.1.1 No such user", Fate.FAILED, "5.1.1"),
        ("550 No such user", Fate.FAILED, "5.0.0"),
        ("554-5.7.1 First line", Fate.FAILED, "5.7.1"),
        ("552 4.2.2 Mailbox full", Fate.FAILED, "5.2.2"),
        ("550", Fate.FAILED, "5.0.0"),
        ("", Fate.FAILED, "5.0.0"),
        ("5.4.6 Loop", Fate.FAILED, "5.4.6"),
        ("450 4.2.0 Greylisted", Fate.DELAYED, "4.2.0"),
        ("550 5.1.1 tried on", Fate.DELAYED, "4.1.1"),
        ("450 later", Fate.DELAYED, "4.0.0"),
        ("Connection refused", Fate.DELAYED, "4.4.0"),
        ("4.4.3 DNS", Fate.DELAYED, "4.4.3"),
        ("", Fate.DELAYED, "4.4.0"),
        ("250 2.1.5 Ok", Fate.DELIVERED, "2.1.5"),
        ("250 Ok 5.1.1", Fate.RELAYED, "2.0.0"),
        ("250 2.0.0 queued", Fate.EXPANDED, "2.0.0"),
        ("550 5.1.1 x", Fate.EXPIRED, "4.4.7"),
        ("550 5.1.1.1 x", Fate.FAILED, "5.0.0"),
        ("5505.1.1", Fate.FAILED, "5.0.0"),
    ],
)
def test_status_codes(reply: str, fate: Fate, code: str) -> None:
    assert status(Recipient("a@x", reply=reply), fate) == code
