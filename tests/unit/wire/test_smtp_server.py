"""The dialogue of a receive connector: order, extensions, permissions, limits (SPEC T1; smtp-facts c.1, c.2)."""

from __future__ import annotations

import base64

import pytest
from smtp_play import STORED, Play, connector

from gatepost.organization.transport import PermissionGroup, ReceiveAuthentication
from gatepost.transport.message import Notify
from gatepost.wire.events import Refusal, Send
from gatepost.wire.smtp_reply import Reply
from gatepost.wire.smtp_server_events import ClientClaim, Store, Wait
from gatepost.wire.smtp_xclient import encode_xclient

BASIC = frozenset({ReceiveAuthentication.TLS, ReceiveAuthentication.BASIC})


def plain(user: str, password: str, authorization: str = "") -> str:
    return base64.b64encode(f"{authorization}\0{user}\0{password}".encode()).decode()


# --- greeting and extensions


def test_a_whole_message() -> None:
    play = Play()
    assert play.heard() == ["220 hub.example ESMTP"]
    play.begin("a@x.ours", "b@x.ours")
    assert play.lines("DATA") == ["354 Start mail input; end with <CRLF>.<CRLF>"]
    assert play.lines("Subject: a", "", "..dot", ".") == ["250 2.6.0 Queued"]
    assert play.contents == [b"Subject: a\r\n\r\n.dot\r\n"]
    assert [r.address for r in play.stored[0].recipients] == ["a@x.ours", "b@x.ours"]
    assert play.lines("QUIT") == ["221 2.0.0 Closing the connection"]
    assert play.closed == "quit"
    assert not play.session.lingers


def test_extensions_in_clear_and_within_tls() -> None:
    play = Play(connector(max_message_size=1000, max_recipients=7))
    play.heard()
    clear = play.lines("EHLO client.example")
    assert clear[0] == "250-hub.example Hello"
    assert {line[4:] for line in clear[1:]} == {
        "SIZE 1000", "PIPELINING", "DSN", "ENHANCEDSTATUSCODES", "STARTTLS", "8BITMIME", "CHUNKING", "SMTPUTF8",
        "LIMITS RCPTMAX=7",
    }  # fmt: skip
    play.lines("STARTTLS")
    assert play.starts_tls
    play.run(play.session.tls_started())
    within = {line[4:] for line in play.lines("EHLO client.example")[1:]}
    assert "STARTTLS" not in within
    assert {"AUTH PLAIN LOGIN", "REQUIRETLS"} <= within


def test_helo_has_no_extensions() -> None:
    play = Play()
    play.heard()
    assert play.lines("HELO client.example") == ["250 hub.example Hello"]
    assert not play.session.esmtp


def test_the_banner_of_a_connector() -> None:
    assert Play(connector(banner="mail.example at your service")).heard() == ["220 mail.example at your service"]
    assert Play(connector(fqdn="mail.example")).heard() == ["220 mail.example ESMTP"]


def test_who_speaks_before_the_greeting_is_refused() -> None:
    play = Play(greet=False)
    assert play.codes(b"EHLO client.example\r\nMAIL FROM:<a@b.example>\r\n") == ["554 5.5.1"]
    assert play.closed


@pytest.mark.parametrize("name", ["", "<x>", "a\tb", "x;y"])
def test_a_bad_name_at_ehlo_is_refused(name: str) -> None:
    play = Play()
    play.heard()
    assert play.codes(f"EHLO {name}\r\nMAIL FROM:<a@b.example>\r\n".encode()) == ["501 5.5.4", "503 5.5.1"]


# --- order of commands


def test_out_of_order() -> None:
    play = Play()
    play.heard()
    assert play.codes(b"MAIL FROM:<a@b.example>\r\nRCPT TO:<a@x.ours>\r\nDATA\r\n") == ["503 5.5.1"] * 3
    play = Play()
    play.begin("a@x.ours")
    assert play.codes(b"MAIL FROM:<a@b.example>\r\nSTARTTLS\r\n") == ["503 5.5.1"] * 2
    assert play.lines("DATA")[0].startswith("354")


def test_data_without_a_valid_recipient() -> None:
    play = Play()
    play.lines("EHLO c.example")
    assert play.codes(b"MAIL FROM:<a@b.example>\r\nRCPT TO:<unknown@x.ours>\r\nDATA\r\n.\r\n")[1:] == [
        "550 5.1.1",
        "554 5.5.1",
        "500 5.5.2",
    ]


def test_rset_and_ehlo_forget_the_message() -> None:
    for command in (b"RSET\r\n", b"EHLO c.example\r\n"):
        play = Play()
        play.begin("a@x.ours")
        assert play.codes(command + b"DATA\r\n")[-1] == "503 5.5.1"
        assert play.judge.forgotten == 1


def test_small_commands() -> None:
    play = Play()
    play.heard()
    assert play.codes(b"NOOP x\r\nVRFY a\r\nEXPN a\r\nHELP\r\nRSET\r\nTURN\r\nWHAT\r\n") == [
        "250 2.0.0", "252 2.5.2", "502 5.5.1", "214 2.0.0", "250 2.0.0", "502 5.5.1", "500 5.5.1",
    ]  # fmt: skip


def test_arguments_where_none_is_allowed() -> None:
    play = Play()
    play.begin("a@x.ours")
    assert play.codes(b"DATA now\r\nQUIT now\r\nRSET x\r\nSTARTTLS x\r\n") == ["501 5.5.4"] * 4


def test_a_browser_is_turned_away_at_its_first_word() -> None:
    play = Play()
    play.heard()
    assert play.codes(b"POST / HTTP/1.1\r\nEHLO a\r\nMAIL FROM:<a@b.example>\r\n") == ["554 5.5.1"]
    assert play.closed


# --- pipelining


def test_pipelined_commands_are_answered_in_order_by_one_write() -> None:
    play = Play()
    play.heard()
    play.events.clear()
    play.say(b"EHLO c.example\r\nMAIL FROM:<a@b.example>\r\nRCPT TO:<a@x.ours>\r\nRCPT TO:<unknown@x.ours>\r\nDATA\r\n")
    assert len([event for event in play.events if isinstance(event, Send)]) == 1


def test_what_is_sent_ahead_waits_while_the_message_is_stored() -> None:
    play = Play()
    play.auto = False
    play.begin("a@x.ours")
    play.lines("DATA")
    assert play.lines("x", ".", "MAIL FROM:<c@d.example>", "RCPT TO:<b@x.ours>") == []
    assert isinstance(play.events[-1], Store)
    assert play.session.buffered > 0
    play.run(play.session.stored(STORED))
    assert play.heard() == ["250 2.6.0 Queued", "250 2.1.0 Sender OK", "250 2.1.5 Recipient OK"]


def test_recipients_of_a_refused_message_are_no_errors_of_the_client() -> None:
    play = Play(connector(max_protocol_errors=2))
    play.lines("EHLO c.example")
    play.judge.refuse_mail = Reply(452, "Insufficient system resources", "4.3.1")
    sent = b"MAIL FROM:<a@b.example>\r\n" + b"RCPT TO:<a@x.ours>\r\n" * 50 + b"DATA\r\n"
    assert play.codes(sent) == ["452 4.3.1", *["503 5.5.1"] * 51]
    assert not play.closed


# --- sizes (smtp-facts c.2, case 19)


def test_a_size_over_the_limit_is_refused_at_mail() -> None:
    play = Play(connector(max_message_size=1000))
    play.lines("EHLO c.example")
    assert play.codes(b"MAIL FROM:<a@b.example> SIZE=1001\r\nMAIL FROM:<a@b.example> SIZE=1000\r\n") == [
        "552 5.3.4",
        "250 2.1.0",
    ]


def test_content_over_the_limit_is_swallowed_and_refused() -> None:
    play = Play(connector(max_message_size=1000))
    play.begin("a@x.ours")
    play.lines("DATA")
    assert play.lines("x" * 990, "y" * 20, ".", "NOOP") == ["552 5.3.4 The message is too large", "250 2.0.0 OK"]
    assert play.stored == []
    assert play.judge.forgotten == 1


def test_a_header_over_the_limit_is_refused() -> None:
    play = Play(connector(max_header_size=100))
    play.begin("a@x.ours")
    play.lines("DATA")
    assert play.lines(*["X: " + "y" * 30] * 4, "", "text", ".")[0].startswith("552 5.3.4")
    play.begin("a@x.ours")
    play.lines("DATA")
    assert play.lines("X: y", "", *["text" * 20] * 10, ".")[0].startswith("250")


def test_no_resources_at_data_are_temporary() -> None:
    play = Play()
    play.begin("a@x.ours")
    play.judge.refuse_content = Reply(452, "Insufficient system resources", "4.3.1")
    assert play.codes(b"DATA\r\n") == ["452 4.3.1"]
    assert play.judge.forgotten == 1


# --- recipients (smtp-facts c.1, case 12)


def test_recipients_over_the_limit_are_refused_for_the_moment() -> None:
    play = Play(connector(max_recipients=100))
    play.begin(*(f"r{n}@x.ours" for n in range(100)))
    assert play.codes(b"RCPT TO:<one@x.ours>\r\nDATA\r\n") == ["452 4.5.3", "354 Start"]
    play.lines("text", ".")
    assert len(play.stored[0].recipients) == 100


def test_a_mixture_of_recipients() -> None:
    play = Play()
    play.lines("EHLO c.example", "MAIL FROM:<a@b.example>")
    sent = b"".join(b"RCPT TO:<%s@x.ours>\r\n" % name for name in (b"a", b"unknown", b"later", b"b"))
    assert play.codes(sent) == ["250 2.1.5", "550 5.1.1", "451 4.3.0", "250 2.1.5"]
    play.lines("DATA", "x", ".")
    assert [r.address for r in play.stored[0].recipients] == ["a@x.ours", "b@x.ours"]


# --- extensions' parameters


def test_parameters_reach_the_judge() -> None:
    play = Play()
    play.lines(
        "EHLO c.example",
        "MAIL FROM:<a@b.example> BODY=8BITMIME RET=HDRS ENVID=QQ SIZE=9",
        "RCPT TO:<a@x.ours> NOTIFY=SUCCESS,FAILURE ORCPT=rfc822;z@x.ours",
        "DATA",
    )
    play.lines("x", ".")
    message = play.stored[0]
    assert (message.mail.body, message.mail.returns, message.mail.envelope_id) == ("8BITMIME", "HDRS", "QQ")
    assert message.recipients[0].notify == Notify.SUCCESS | Notify.FAILURE
    assert message.recipients[0].original == "rfc822;z@x.ours"


def test_the_null_sender_is_always_taken() -> None:
    play = Play()
    play.begin("a@x.ours", sender="")
    play.lines("DATA", "x", ".")
    assert play.stored[0].mail.sender == ""


def test_smtputf8_counts_for_the_whole_message() -> None:
    play = Play()
    play.lines("EHLO c.example")
    ascii_only = "MAIL FROM:<a@b.example>\r\nRCPT TO:<ä@x.ours>\r\nRSET\r\n"
    assert play.codes(ascii_only.encode()) == ["250 2.1.0", "553 5.6.7", "250 2.0.0"]
    with_it = "MAIL FROM:<ö@b.example> SMTPUTF8\r\nRCPT TO:<ä@x.ours>\r\n"
    assert play.codes(with_it.encode()) == ["250 2.1.0", "250 2.1.5"]


def test_content_beyond_ascii_is_told_whatever_body_said() -> None:
    play = Play()
    play.begin("a@x.ours")
    play.lines("DATA")
    play.say("Grüße\r\n.\r\n".encode())
    play.begin("a@x.ours")
    play.lines("DATA", "plain", ".")
    assert play.eight_bit == [True, False]


def test_requiretls_only_within_tls() -> None:
    play = Play()
    play.lines("EHLO c.example")
    assert play.codes(b"MAIL FROM:<a@b.example> REQUIRETLS\r\n") == ["530 5.7.10"]
    play = Play(tls=True)
    play.lines("EHLO c.example", "MAIL FROM:<a@b.example> REQUIRETLS", "RCPT TO:<a@x.ours>", "DATA")
    play.lines("x", ".")
    assert play.stored[0].mail.require_tls


# --- STARTTLS (smtp-facts c.1, case 6)


def test_what_is_injected_after_starttls_ends_the_session() -> None:
    play = Play()
    play.lines("EHLO c.example")
    assert play.codes(b"STARTTLS\r\nMAIL FROM:<evil@x.example>\r\n") == ["554 5.5.1"]
    assert play.closed == "octets after STARTTLS"
    assert not play.starts_tls


def test_what_comes_before_the_handshake_ends_the_session() -> None:
    play = Play()
    play.lines("EHLO c.example", "STARTTLS")
    assert play.say(b"MAIL FROM:<evil@x.example>\r\n") == []
    assert play.closed == "octets after STARTTLS"


def test_starttls_forgets_what_was_said() -> None:
    play = Play()
    play.lines("EHLO c.example", "STARTTLS")
    play.run(play.session.tls_started())
    assert play.codes(b"MAIL FROM:<a@b.example>\r\nSTARTTLS\r\n") == ["503 5.5.1", "502 5.5.1"]
    assert play.session.name == ""


def test_where_tls_is_required() -> None:
    play = Play(connector(require_tls=True))
    play.heard()
    assert play.codes(b"EHLO c.example\r\nMAIL FROM:<a@b.example>\r\nNOOP\r\nAUTH PLAIN\r\n") == [
        "250 LIMITS", "530 5.7.0", "250 2.0.0", "530 5.7.0",
    ]  # fmt: skip
    assert play.lines("STARTTLS")[0].startswith("220")


def test_without_a_certificate_starttls_is_not_there() -> None:
    play = Play(starttls=False)
    assert "250-STARTTLS" not in play.lines("EHLO c.example")
    assert play.codes(b"STARTTLS\r\n") == ["502 5.5.1"]


# --- sign-in


def test_plain_and_login() -> None:
    for lines in (
        ["AUTH PLAIN " + plain("anna@x.ours", "secret")],
        ["AUTH PLAIN", plain("anna@x.ours", "secret")],
        ["AUTH LOGIN", base64.b64encode(b"anna@x.ours").decode(), base64.b64encode(b"secret").decode()],
        ["auth login " + base64.b64encode(b"anna@x.ours").decode(), base64.b64encode(b"secret").decode()],
    ):
        play = Play(tls=True)
        play.lines("EHLO c.example")
        answers = [play.lines(line) for line in lines]
        assert [a[0][:3] for a in answers] == ["334"] * (len(lines) - 1) + ["235"]
        assert play.session.user == "anna@x.ours"
        assert play.sign_ins == [("anna@x.ours", "secret")]
        assert play.codes(b"AUTH PLAIN\r\n") == ["503 5.5.1"]


def test_no_password_is_taken_in_clear() -> None:
    play = Play()
    answer = play.lines("EHLO c.example")
    assert not any("AUTH" in line for line in answer)
    assert play.codes(f"AUTH PLAIN {plain('anna@x.ours', 'secret')}\r\n".encode()) == ["538 5.7.11"]
    assert play.sign_ins == []


def test_basic_alone_takes_passwords_in_clear() -> None:
    play = Play(connector(authentication=BASIC))
    assert "250-AUTH PLAIN LOGIN" in play.lines("EHLO c.example")


def test_sign_in_is_only_offered_to_those_it_helps() -> None:
    play = Play(connector(permission_groups=frozenset({PermissionGroup.ANONYMOUS})), tls=True)
    assert not any("AUTH" in line for line in play.lines("EHLO c.example"))
    assert play.codes(b"AUTH PLAIN\r\n") == ["502 5.5.1"]


@pytest.mark.parametrize("response", ["*", "not base64!", base64.b64encode(b"no NUL").decode(), "="])
def test_bad_responses(response: str) -> None:
    play = Play(tls=True)
    play.lines("EHLO c.example", "AUTH PLAIN")
    assert play.codes(response.encode() + b"\r\nNOOP\r\n") == ["501 5.5.2", "250 2.0.0"]
    assert play.sign_ins == []


def test_failed_sign_ins_end_the_session() -> None:
    play = Play(connector(max_logon_failures=3), tls=True)
    play.lines("EHLO c.example")
    wrong = f"AUTH PLAIN {plain('anna@x.ours', 'wrong')}\r\n".encode()
    assert play.codes(wrong) == ["535 5.7.8"]
    assert play.codes(wrong) == ["535 5.7.8"]
    assert play.codes(wrong + b"EHLO c.example\r\n") == ["535 5.7.8", "421 4.7.0"]
    assert play.closed


def test_a_directory_that_is_down_never_looks_like_a_wrong_password() -> None:
    play = Play(tls=True)
    play.lines("EHLO c.example")
    play.users = {}
    play.session.receive(f"AUTH PLAIN {plain('anna@x.ours', 'secret')}\r\n".encode())
    play.run(play.session.refuse(Refusal.UNAVAILABLE))
    assert play.heard() == ["454 4.7.0 Temporary authentication failure"]


def test_nobody_speaks_for_another() -> None:
    play = Play(tls=True)
    play.lines("EHLO c.example")
    assert play.codes(f"AUTH PLAIN {plain('anna@x.ours', 'secret', 'boss@x.ours')}\r\n".encode()) == ["535 5.7.8"]
    assert play.sign_ins == []


# --- permissions


def test_strangers_send_to_the_organization_only() -> None:
    play = Play()
    play.lines("EHLO c.example", "MAIL FROM:<a@b.example>")
    assert play.codes(b"RCPT TO:<a@far.example>\r\nRCPT TO:<a@x.ours>\r\n") == ["550 5.7.1", "250 2.1.5"]


def test_users_relay() -> None:
    play = Play(tls=True)
    play.lines("EHLO c.example", f"AUTH PLAIN {plain('anna@x.ours', 'secret')}", "MAIL FROM:<anna@x.ours>")
    assert play.codes(b"RCPT TO:<a@far.example>\r\n") == ["250 2.1.5"]


def test_servers_of_the_organization_relay_and_are_trusted() -> None:
    play = Play(tls=True, server="HUB-02")
    assert play.session.trusted
    play.lines("EHLO hub-02.example", "MAIL FROM:<a@b.example>")
    assert play.codes(b"RCPT TO:<a@far.example>\r\n") == ["250 2.1.5"]


def test_a_server_is_a_stranger_where_servers_are_not_known() -> None:
    """T1: the connector behind a balancer is without server-to-server authentication."""
    play = Play(connector(authentication=BASIC), tls=True, server="HUB-02")
    assert not play.session.trusted


def test_an_externally_secured_network_is_trusted() -> None:
    secured = connector(authentication=frozenset({ReceiveAuthentication.EXTERNALLY_SECURED}))
    assert Play(secured).session.trusted


def test_where_strangers_may_not_send() -> None:
    users = connector(permission_groups=frozenset({PermissionGroup.USERS}))
    play = Play(users, tls=True)
    play.lines("EHLO c.example")
    assert play.codes(b"MAIL FROM:<a@b.example>\r\n") == ["530 5.7.0"]
    nobody = connector(permission_groups=frozenset({PermissionGroup.SERVERS}))
    play = Play(nobody)
    play.lines("EHLO c.example")
    assert play.codes(b"MAIL FROM:<a@b.example>\r\n") == ["550 5.7.1"]


def test_partners_send_to_the_organization_only() -> None:
    partners = connector(permission_groups=frozenset({PermissionGroup.PARTNERS}))
    play = Play(partners, tls=True, partner=True)
    play.lines("EHLO c.example", "MAIL FROM:<a@b.example>")
    assert play.codes(b"RCPT TO:<a@x.ours>\r\nRCPT TO:<a@far.example>\r\n") == ["250 2.1.5", "550 5.7.1"]


# --- tarpit and limits


def test_refusals_to_strangers_are_slow() -> None:
    play = Play(connector(tarpit_seconds=5.0))
    play.auto = False
    play.lines("EHLO c.example", "MAIL FROM:<a@b.example>")
    assert play.lines("RCPT TO:<unknown@x.ours>", "NOOP") == []
    assert play.waits == [5.0]
    play.run(play.session.waited())
    assert play.heard() == ["550 5.1.1 No such mailbox", "250 2.0.0 OK"]


def test_answers_before_a_wait_go_out_before_it() -> None:
    play = Play(connector(tarpit_seconds=5.0))
    play.auto = False
    play.lines("EHLO c.example")
    assert play.lines("MAIL FROM:<a@b.example>", "RCPT TO:<unknown@x.ours>") == ["250 2.1.0 Sender OK"]
    assert isinstance(play.events[-1], Wait)


def test_users_and_servers_do_not_wait() -> None:
    play = Play(connector(tarpit_seconds=5.0), tls=True, server="HUB-02")
    play.begin("a@x.ours")
    play.codes(b"RCPT TO:<unknown@x.ours>\r\n")
    assert play.waits == []


def test_back_pressure_delays_mail() -> None:
    play = Play()
    play.judge.wait = 10.0
    play.begin("a@x.ours")
    assert play.waits == [10.0]
    trusted = Play(tls=True, server="HUB-02")
    trusted.judge.wait = 10.0
    trusted.begin("a@x.ours")
    assert trusted.waits == []


def test_too_many_errors_end_the_session() -> None:
    play = Play(connector(max_protocol_errors=5))
    play.heard()
    assert play.codes(b"WHAT\r\n" * 10) == ["500 5.5.1"] * 5 + ["421 4.7.0"]
    assert play.closed == "too many errors"


def test_a_stored_message_forgives_errors() -> None:
    play = Play(connector(max_protocol_errors=3))
    for _ in range(3):
        play.codes(b"WHAT\r\nWHAT\r\n")
        play.begin("a@x.ours")
        play.lines("DATA", "x", ".")
    assert len(play.stored) == 3
    assert not play.closed


def test_idle_commands_are_bounded() -> None:
    play = Play(connector(max_recipients=10))
    play.heard()
    assert play.codes(b"NOOP\r\n" * 200)[-1] == "421 4.7.0"
    assert play.closed


@pytest.mark.parametrize("size", [4096, 5000])
def test_a_command_line_too_long_ends_the_session(size: int) -> None:
    play = Play()
    play.heard()
    assert play.codes(b"NOOP " + b"x" * (size - 5)) == ["500 5.5.2"]
    assert play.closed


def test_bad_addresses_are_the_messages_fault_not_the_clients() -> None:
    play = Play(connector(max_protocol_errors=2))
    play.lines("EHLO c.example", "MAIL FROM:<a@b.example>")
    assert play.codes(b"RCPT TO:<a..b@x.ours>\r\n" * 5 + b"RCPT TO:<a@x.ours>\r\n") == ["501 5.1.3"] * 5 + ["250 2.1.5"]


def test_mail_that_loops_is_refused() -> None:
    play = Play(connector(max_hop_count=3))
    for hops, code in ((3, "250"), (4, "554 5.4.6")):
        play.begin("a@x.ours")
        play.lines("DATA")
        assert play.lines(*["Received: from a"] * hops, "Subject: s", "", "Received: not a hop", ".")[0].startswith(
            code
        )


def test_a_line_too_long_is_refused_and_the_session_goes_on() -> None:
    play = Play()
    play.begin("a@x.ours")
    play.lines("DATA")
    assert play.codes(b"x" * 70000 + b"\r\n.\r\nNOOP\r\n") == ["550 5.6.0", "250 2.0.0"]
    assert play.stored == []


def test_nul_in_content_ends_the_session() -> None:
    play = Play()
    play.begin("a@x.ours")
    play.lines("DATA")
    assert play.lines("a\0b", ".", "NOOP") == [
        "550 5.6.0 The message has NUL characters, or lines that do not end in CR LF"
    ]
    assert play.closed


# --- XCLIENT (smtp-facts c.2, case 26)


def test_xclient_of_a_listed_peer() -> None:
    play = Play(xclient=True)
    assert any("XCLIENT NAME ADDR" in line for line in play.lines("EHLO front.example"))
    claim = ClientClaim("2001:db8::1", 4711, "client.example", "c l.example", "anna@x.ours")
    assert play.say(encode_xclient(claim)) == []
    assert play.claims[0].claim == claim
    assert play.claims[0].rest == b""
    assert play.say(b"NOOP\r\n") == []


def test_who_is_introduced_as_signed_in_relays() -> None:
    play = Play(claim=ClientClaim("192.0.2.9", login="anna@x.ours"))
    play.lines("EHLO c.example", "MAIL FROM:<anna@x.ours>")
    assert play.codes(b"RCPT TO:<a@far.example>\r\n") == ["250 2.1.5"]


def test_xclient_of_others_is_refused() -> None:
    play = Play()
    play.heard()
    assert play.codes(b"XCLIENT ADDR=127.0.0.1\r\n") == ["502 5.5.1"]


@pytest.mark.parametrize(
    "argument",
    ["", "ADDR", "ADDR=x", "ADDR=1.2.3.4 ADDR=1.2.3.4", "PORT=70000", "LOGIN=a+0Ab", "ODD=1", "ADDR=fe80::1%eth0"],
)
def test_bad_xclient(argument: str) -> None:
    play = Play(xclient=True)
    play.heard()
    assert play.codes(f"XCLIENT {argument}\r\n".encode()) == ["501 5.5.4"]


# --- the end


def test_a_stop_between_messages_is_a_421_at_once() -> None:
    play = Play()
    play.heard()
    play.run(play.session.stop())
    assert play.heard() == ["421 4.3.2 Service is shutting down, try again later"]
    assert play.closed


def test_a_stop_lets_a_message_finish() -> None:
    play = Play()
    play.begin("a@x.ours")
    play.lines("DATA")
    play.run(play.session.stop())
    assert not play.closed
    assert play.lines("x", ".", "MAIL FROM:<a@b.example>") == [
        "250 2.6.0 Queued",
        "421 4.3.2 Service is shutting down, try again later",
    ]
    assert len(play.stored) == 1


def test_a_timeout_within_content_forgets_the_message() -> None:
    play = Play()
    play.begin("a@x.ours")
    play.lines("DATA", "x")
    play.run(play.session.time_out())
    assert play.heard() == ["421 4.4.2 Connection timed out"]
    assert play.judge.forgotten == 1


def test_a_lost_connection_forgets_the_message() -> None:
    play = Play()
    play.begin("a@x.ours")
    play.session.lost()
    assert play.judge.forgotten == 1
    assert play.session.receive(b"DATA\r\n") == []


def test_a_421_of_the_intake_ends_the_session() -> None:
    play = Play()
    play.reply = Reply(421, "Later", "4.3.2")
    play.begin("a@x.ours")
    play.lines("DATA")
    assert play.lines("x", ".", "NOOP") == ["421 4.3.2 Later"]
    assert play.closed
