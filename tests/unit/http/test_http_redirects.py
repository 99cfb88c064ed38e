"""Clients that are sent elsewhere: the page, 302, 451, and that nothing of the client's gets out of the link."""

from __future__ import annotations

from html.parser import HTMLParser
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatepost.access.http.answers import Answer, answer
from gatepost.access.http.redirects import deep_link, redirect
from gatepost.routing.outcome import Redirect, RedirectForm
from gatepost.wire.http_head import HeadFault
from gatepost.wire.http_path import read_path

USA = Redirect("https://www.usa.contoso.com/OWA", prefix="/owa")


class Page(HTMLParser):
    """Tags with their attributes, and the text."""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(answer.body.decode())
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    @property
    def links(self) -> list[str | None]:
        return [attributes.get("href") for tag, attributes in self.tags if tag == "a"]


def asked(decision: Redirect, path: bytes = b"/owa", query: bytes = b"", method: bytes = b"GET") -> Answer:
    leg: Any = SimpleNamespace(reader=SimpleNamespace(method=method))
    return redirect(leg, decision, path, query)


def test_a_web_page_contains_a_link_to_the_correct_client_access_server() -> None:
    """The source: "they'll see a Web page that contains a link to the correct Client Access server"."""
    got = asked(USA, b"/owa/", b"")
    assert (got.status, got.content_type) == (200, b"text/html; charset=utf-8")
    page = Page(got)
    assert page.links == ["https://www.usa.contoso.com/OWA/"]
    assert "https://www.usa.contoso.com/OWA" in page.text
    assert "from now on" in page.text
    assert ("html", {"lang": "en"}) in page.tags


def test_they_are_not_redirected_automatically() -> None:
    """The source: no script, no refresh by element or field, no Location."""
    got = asked(USA)
    tags = Page(got).tags
    assert not [tag for tag, _ in tags if tag in {"script", "iframe", "form", "object", "embed"}]
    assert not [a for tag, a in tags if tag == "meta" and "http-equiv" in a]
    assert not [name for _, a in tags for name in a if name.startswith("on")]
    low = got.fields.lower()
    assert b"location:" not in low
    assert b"refresh:" not in low
    assert b"default-src 'none'" in low


@pytest.mark.parametrize(
    ("path", "query", "link"),
    [
        (b"/owa", b"", b"https://www.usa.contoso.com/OWA"),
        (b"/OwA/", b"", b"https://www.usa.contoso.com/OWA/"),
        (b"/owa/?ae=Item&t=IPM.Note", b"", b"https://www.usa.contoso.com/OWA/?ae=Item&t=IPM.Note"),
        (b"/owa/shared@contoso.com/", b"?a=b%20c&d", b"https://www.usa.contoso.com/OWA/shared@contoso.com/?a=b%20c&d"),
        (b"/owa/a%2Fb%C3%A9", b"", b"https://www.usa.contoso.com/OWA/a%2Fb%C3%A9"),
        (b"/owa", b"?x='\"<>`|", b"https://www.usa.contoso.com/OWA?x=%27%22%3C%3E%60%7C"),
        (b"/owa2/x", b"?y", b"https://www.usa.contoso.com/OWA"),
    ],
)
def test_deep_links_are_kept(path: bytes, query: bytes, link: bytes) -> None:
    """Path and query follow the other site's address, still encoded; the prefix is whole segments, in any case."""
    assert deep_link(USA, path, query) == link
    assert Page(asked(USA, path, query)).links == [link.decode()]


@pytest.mark.parametrize("method", [b"POST", b"PUT", b"DELETE"])
def test_a_request_that_changes_something_is_not_taken_for_done(method: bytes) -> None:
    """The page is shown, but with a status that no script takes for success."""
    got = asked(USA, method=method)
    assert got.status == 403
    assert "has not been carried out" in Page(got).text
    assert asked(USA, method=b"HEAD").status == 200


def test_a_silent_redirect_and_another_path_of_our_own() -> None:
    """302, with the rest of the path: `/exchange` of a newer mailbox leads to `/owa`."""
    silent = asked(Redirect("https://www.usa.contoso.com/OWA", form=RedirectForm.SILENT, prefix="/owa"), b"/owa/x")
    assert silent == (302, b"Location: https://www.usa.contoso.com/OWA/x\r\n", b"text/plain; charset=utf-8", b"")
    own = asked(Redirect("/owa", form=RedirectForm.OWN_PATH, prefix="/exchange"), b"/Exchange/alice", b"?a=1")
    assert (own.status, own.fields) == (302, b"Location: /owa/alice?a=1\r\n")


@pytest.mark.parametrize("path", [b"/exchange//evil.example", b"/exchange///evil.example/", b"/exchange"])
def test_another_path_of_our_own_never_names_a_host(path: bytes) -> None:
    """`//evil.example` would be a host to a browser."""
    link = deep_link(Redirect("/", form=RedirectForm.OWN_PATH, prefix="/exchange"), path, b"")
    assert urlsplit(link).netloc == b""
    assert link.startswith(b"/")


def test_an_http_error_code_451_is_returned_with_the_external_url() -> None:
    """The source's sentence, in the form of MS-ASHTTP 2.2.2.1.2 and 4.2: address, `private`, no body."""
    url = "https://mail.contoso.com/Microsoft-Server-ActiveSync"
    got = asked(Redirect(url, form=RedirectForm.DEVICE), b"/Microsoft-Server-ActiveSync", b"?Cmd=Sync", b"POST")
    head = answer(got.status, got.body, fields=got.fields, content_type=got.content_type)
    assert head.startswith(b"HTTP/1.1 451 Redirect\r\n")
    assert b"\r\nX-MS-Location: https://mail.contoso.com/Microsoft-Server-ActiveSync\r\n" in head
    assert head.count(b"Cache-Control:") == 1
    assert b"\r\nCache-Control: private\r\n" in head
    assert b"\r\nContent-Length: 0\r\n" in head
    assert head.endswith(b"\r\n\r\n")


@given(st.binary(max_size=80), st.binary(max_size=80), st.sampled_from(list(RedirectForm)))
def test_nothing_of_the_request_gets_out_of_the_link(rest: bytes, query: bytes, form: RedirectForm) -> None:
    """Whatever bytes path and query hold: one link to the organization's host, no other tag, no other header line."""
    plain = Page(asked(USA))
    path, query = b"/owa/" + rest, b"?" + query if query else b""
    got = asked(Redirect("https://www.usa.contoso.com/OWA", form=form, prefix="/owa"), path, query)
    if form is RedirectForm.PAGE:
        page = Page(got)
        assert [tag for tag, _ in page.tags] == [tag for tag, _ in plain.tags]
        assert page.text == plain.text
        (link,) = page.links
        assert link is not None
        assert urlsplit(link).netloc == "www.usa.contoso.com"
    else:
        _, _, value = got.fields.split(b"\r\n")[0].partition(b": ")
        assert got.fields.count(b"\r\n") == (2 if form is RedirectForm.DEVICE else 1)
        assert urlsplit(value).netloc == b"www.usa.contoso.com"
        assert all(32 < c < 127 for c in value)


@given(st.binary(max_size=60))
def test_our_own_path_stays_ours(rest: bytes) -> None:
    """For every path that is read at all, an own path leads to this host."""
    try:
        path, query, _ = read_path(b"/exchange/" + rest.replace(b" ", b""))
    except HeadFault:
        return
    link = deep_link(Redirect("/owa", form=RedirectForm.OWN_PATH, prefix="/exchange"), path, query)
    assert link.startswith(b"/owa")
    assert all(32 < c < 127 for c in link)
