"""Whose free times a request asks for; mailbox addresses that requests name; small XML, bounded."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatepost.wire.ews import availability_target, is_availability, may_be_availability
from gatepost.wire.mailbox_address import anchor_mailbox, explicit_logon, mailbox_address
from gatepost.wire.xml_reading import MAX_DEPTH, MAX_ELEMENTS, MAX_XML, BadXml, read_xml

ACTION = b'"http://schemas.microsoft.com/exchange/services/2006/messages/GetUserAvailability"'


def request(*addresses: str, prefixes: tuple[str, str, str] = ("soap", "m", "t"), head: str = "") -> str:
    """A GetUserAvailability request for mailboxes."""
    s, m, t = (f"{prefix}:" if prefix else "" for prefix in prefixes)
    names = (f"xmlns{':' if p else ''}{p}" for p in prefixes)
    spaces = ("http://schemas.xmlsoap.org/soap/envelope/", "urn:messages", "urn:types")
    declared = " ".join(f'{n}="{u}"' for n, u in zip(names, spaces, strict=True)) if len(set(prefixes)) == 3 else ""
    data = "".join(
        f"<{t}MailboxData><{t}Email><{t}Name/><{t}Address> {a}\n</{t}Address></{t}Email></{t}MailboxData>"
        for a in addresses
    )
    return (
        f"{head}<{s}Envelope {declared}><{s}Header><{t}Address>no@contoso.com</{t}Address></{s}Header><{s}Body>"
        f"<{m}GetUserAvailabilityRequest><{t}TimeZone/><{m}MailboxDataArray>{data}</{m}MailboxDataArray>"
        f"</{m}GetUserAvailabilityRequest></{s}Body></{s}Envelope>"
    )


def test_two_consecutive_availability_requests_may_go_to_different_servers() -> None:
    """The source's sentence: the target is the request's, so two requests of one client can have two."""
    assert availability_target(request("bob@contoso.com").encode()) == "bob@contoso.com"
    assert availability_target(request("carol@contoso.com", "bob@contoso.com").encode()) == "carol@contoso.com"


@pytest.mark.parametrize("prefixes", [("soap", "m", "t"), ("s", "a", "b"), ("", "", "")])
@pytest.mark.parametrize(
    ("encoding", "head"),
    [
        ("utf-8", ""),
        ("utf-8-sig", ""),
        ("utf-8", '<?xml version="1.0" encoding="UTF-8"?>'),
        ("utf-16", ""),
        ("utf-16", '<?xml version="1.0" encoding="utf-16"?>'),
    ],
)
def test_prefixes_and_encodings_may_be_any(prefixes: tuple[str, str, str], encoding: str, head: str) -> None:
    """Namespaces under any prefix; UTF-8 and UTF-16 by their byte order marks."""
    body = request("bob@contoso.com", prefixes=prefixes, head=head).encode(encoding)
    assert availability_target(body) == "bob@contoso.com"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"hello",
        b"<Envelope/>",
        b"<a><Body><FindItem><x/></FindItem></Body></a>",
        request().encode(),
        request("https://evil.example/@contoso.com").encode(),
        request("bob").encode(),
        b'<!DOCTYPE a [<!ENTITY b "bob@contoso.com">]>' + request("&b;").encode(),
        b'<!DOCTYPE a SYSTEM "file:///etc/passwd">' + request("bob@contoso.com").encode(),
        b'<?xml version="1.0" encoding="utf-7"?>' + request("bob@contoso.com").encode(),
        request("bob@contoso.com").encode()[:200],
    ],
)
def test_anything_else_has_no_target(body: bytes) -> None:
    """Other operations, broken documents, entities, addresses that are none."""
    assert availability_target(body) is None


def test_what_comes_after_the_bound_is_not_needed() -> None:
    """A long request is looked at as far as the bound; the first mailbox is at its head."""
    body = request("bob@contoso.com", *["carol@contoso.com"] * 10_000).encode()
    assert len(body) > MAX_XML
    assert availability_target(body) == "bob@contoso.com"
    assert availability_target(b"<a>" + b" " * MAX_XML + body) is None


@given(st.binary(max_size=200), st.integers(0, 400))
def test_no_document_raises(noise: bytes, place: int) -> None:
    """Noise alone, and noise within a request."""
    body = request("bob@contoso.com").encode()
    for data in (noise, body[:place] + noise + body[place:]):
        found = availability_target(data)
        assert found is None or mailbox_address(found) == found


@pytest.mark.parametrize(
    "body",
    [
        b"<a>" * (MAX_DEPTH + 1),
        b"<a>" + b"<b/>" * (MAX_ELEMENTS + 1) + b"</a>",
        b'<!DOCTYPE l [<!ENTITY l "' + b"l" * 1000 + b'"><!ENTITY m "' + b"&l;" * 1000 + b'">]><l>' + b"&m;" * 1000,
        b"<a " + b" ".join(b'b%d=""' % n for n in range(20_000)) + b"/>" + b"</a>",
        b"<" + b"a" * MAX_XML,
        b"<a><![CDATA[" + b"]" * MAX_XML,
        b"<a>" + b"&lt;" * (MAX_XML // 4),
    ],
)
def test_work_is_bounded(body: bytes) -> None:
    """Depth, elements, attributes, entities, endless tokens: refused in well under a second."""
    started = time.process_time()
    try:
        read_xml(body, lambda path, text: False)
    except BadXml:
        assert time.process_time() - started < 0.5
    else:
        assert len(body) >= MAX_XML


def test_a_request_says_that_it_asks_for_free_times() -> None:
    """`SOAPAction` with or without quotes, SOAP 1.2's parameter; other operations do not."""
    assert is_availability(ACTION, b"text/xml; charset=utf-8")
    assert is_availability(ACTION.strip(b'"').lower(), b"")
    assert is_availability(b"", b'application/soap+xml; action=%b; charset="utf-8"' % ACTION)
    assert not is_availability(ACTION.replace(b"GetUserAvailability", b"FindItem"), b"text/xml")
    assert not is_availability(b"", b"text/xml")


def test_a_short_request_without_action_may_ask_for_free_times() -> None:
    """Clients that send no `SOAPAction`: their small requests are worth a look, large ones are not."""
    assert may_be_availability(b"", b"text/xml; charset=utf-8", 900)
    assert may_be_availability(b'""', b"text/xml", 900)
    assert may_be_availability(ACTION, b"text/xml", None)
    assert not may_be_availability(b"", b"text/xml", None)
    assert not may_be_availability(b"", b"text/xml", MAX_XML + 1)
    assert not may_be_availability(b'"urn:FindItem"', b"text/xml", 900)
    assert not may_be_availability(b"", b"application/json", 900)


@pytest.mark.parametrize(
    "text",
    ["alice@contoso.com", "o'neill+x@a.b.contoso.com", "SystemMailbox{1f05a927-0}@contoso.com", "ä@bücher.example"],
)
def test_addresses(text: str) -> None:
    """Plain addresses, by themselves, as an anchor, in a path."""
    assert mailbox_address(f" {text} ") == text
    assert anchor_mailbox(text.encode()) == text
    assert anchor_mailbox(b" SMTP:" + text.encode()) == text
    assert explicit_logon(f"/owa/{text}/?x") == text
    assert explicit_logon(f"/ecp/{text}") == text


@pytest.mark.parametrize(
    "text",
    [
        "", "alice", "@contoso.com", "alice@", "a@b@contoso.com", "alice@mbx-01", "alice@10.0.0.1", "alice@[10.0.0.1]",
        "https://mbx-01.contoso.com", "a@mbx-01.contoso.com:444", "a@mbx-01.contoso.com/owa", "a@contoso.com#",
        "Server~mbx-01.contoso.com~1941962754", "a b@contoso.com", "a\x00@contoso.com", "a/b@contoso.com", "a%2F@b.com",
        "a#@b.com", '"a"@contoso.com', "a" * 65 + "@contoso.com", "a@" + "b." * 160 + "com", "a@-b.com", "a@b..com",
        "OID:1f05a927@contoso.com/", "a\u2028@contoso.com", "a@\u2028.com", "a@.com.",
    ],
)  # fmt: skip
def test_a_hint_names_a_mailbox_and_never_a_host(text: str) -> None:
    """What has a host, a port, a path, spaces or no sense is no address (the rule from CVE-2021-26855)."""
    assert mailbox_address(text) is None
    assert anchor_mailbox(text.encode()) is None


@given(st.binary(max_size=400))
def test_no_value_raises(value: bytes) -> None:
    """An anchor is None or an address."""
    found = anchor_mailbox(value)
    assert found is None or found.count("@") == 1
    assert explicit_logon(value.decode("utf-8", "replace")) is None or b"@" in value


def test_paths_without_explicit_logon() -> None:
    """The second segment only."""
    for path in ("/owa", "/owa/", "/owa/x/alice@contoso.com", "/alice@contoso.com", "owa/alice@contoso.com", ""):
        assert explicit_logon(path) is None
