"""Host names, URLs and paths are judged as those who will use them judge."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatepost.organization.addresses import (
    HttpUrl,
    is_address,
    is_host_name,
    is_loopback,
    normal_path,
    parse_http_url,
    path_fault,
)


@pytest.mark.parametrize(
    "name", ["mbx-01", "mbx_01.contoso.com", "contoso.com.", "3com.example", "xn--bcher-kva.example"]
)
def test_host_names(name: str) -> None:
    """Labels of letters, digits, hyphens and the underscores of the field."""
    assert is_host_name(name)


@pytest.mark.parametrize(
    "name",
    ["", ".", "-a.example", "a-.example", "a..b", "a b", "a/b", "10.0.0.256", "bücher.example", "a" * 64, "a." * 127],
)
def test_what_is_no_host_name(name: str) -> None:
    """A name that ends in digits only would be taken for an address."""
    assert not is_host_name(name)


def test_addresses_are_ips_or_names() -> None:
    """Both can be connected to."""
    assert is_address("::1")
    assert is_address("10.0.0.1")
    assert is_address("mbx-01")
    assert not is_address("10.0.0.1:143")


def test_only_the_machine_itself_is_loopback() -> None:
    """A name may lead anywhere, whatever it sounds like."""
    assert is_loopback("127.9.9.9")
    assert is_loopback("::1")
    assert is_loopback("LocalHost")
    assert not is_loopback("localhost.contoso.com")
    assert not is_loopback("10.0.0.1")


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("https://Mail.Contoso.com/owa", HttpUrl("https", "mail.contoso.com", 443, "/owa")),
        ("http://127.0.0.1", HttpUrl("http", "127.0.0.1", 80, "")),
        ("https://[2001:db8::1]:8443/", HttpUrl("https", "2001:db8::1", 8443, "/")),
    ],
)
def test_urls_are_taken_apart(text: str, url: HttpUrl) -> None:
    """Ports have their scheme's default; hosts have no case."""
    assert parse_http_url(text) == url


@pytest.mark.parametrize(
    "text",
    ["", "owa", "ftp://a/b", "https://", "https:///owa", "https://a b/", "https://a/\r\nX: y", "https://a/b#", "https://a/b?",
     "https://a:0/", "https://a:/", "https://a:x/", "https://[::1/", "https://u@a/", "https://ä.example/"],
)  # fmt: skip
def test_what_is_no_url_of_a_directory(text: str) -> None:
    """Each is refused with its reason, and with nothing else than ValueError."""
    with pytest.raises(ValueError, match=r"^(has|does not)"):
        parse_http_url(text)


@given(st.text(alphabet="https:/[]@#?%.a1: \\\x00ä", max_size=24))
def test_no_text_makes_a_url_raise_anything_else(text: str) -> None:
    """Any text is a URL or has a fault in words."""
    fault = ""
    try:
        url = parse_http_url(text)
    except ValueError as found:
        fault = str(found)
    assert fault.startswith(("has ", "does not ")) if fault else url.host and 0 < url.port < 65536


@given(st.text(alphabet="/aB", max_size=8))
def test_normal_paths_stay_as_they_are(path: str) -> None:
    """One leading slash, none at the end, and a second pass changes nothing."""
    once = normal_path(path)
    assert once.startswith("/")
    assert once == "/" or not once.endswith("/")
    assert normal_path(once) == once


@pytest.mark.parametrize("path", ["/", "/owa", "/.well-known/caldav", "/Microsoft-Server-ActiveSync", "/~anna"])
def test_sound_paths(path: str) -> None:
    """What servers really have."""
    assert path_fault(path) == ""


@pytest.mark.parametrize("path", ["/a//b", "/a/../b", "/./a", "/a%2fb", "/a b", "/a?b", "/ä", "/a\nb", "/a\\b"])
def test_unsound_paths(path: str) -> None:
    """What could be read in two ways is refused."""
    assert path_fault(path) != ""
