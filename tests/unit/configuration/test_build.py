"""What the file leaves out and adding a server would have made (SPEC O3)."""

from __future__ import annotations

import pytest
from configuration_samples import WHOLE, lines_of, load_text

from gatepost.configuration.build import ENDPOINTS, STANDARD_SERVICES
from gatepost.organization.check_servers import TLS_MODES
from gatepost.organization.model import AuthenticationMethod, PathClass, TlsMode, Version, VirtualDirectory

DIRECTORY = '\n[[virtual_directories]]\nserver = "MBX-01"\nservice = "dav"\n'


def _directories(text: str, server: str) -> dict[str, VirtualDirectory]:
    found = load_text(text, front_end_required=False).organization
    assert found is not None
    return {directory.path: directory for directory in found.virtual_directories if directory.server == server}


def test_a_server_without_directories_has_the_standard_set_with_internal_urls() -> None:
    """`https://<fqdn>:<port>/owa` and so on; the port only where it is not 443."""
    mailbox = _directories(WHOLE, "MBX-01")
    assert {path.removeprefix("/") for path in mailbox} == set(STANDARD_SERVICES[Version.MODERN]) - {"Autodiscover"}
    assert "/Autodiscover" in _directories(WHOLE, "CAS-01")
    assert mailbox["/owa"] == VirtualDirectory(
        "MBX-01",
        "owa",
        "/owa",
        "https://mbx-01:8443/owa",
        None,
        frozenset({AuthenticationMethod.INTEGRATED, AuthenticationMethod.BASIC}),
        "owa (Default Web Site)",
        PathClass.INTERACTIVE,
    )
    assert _directories(WHOLE, "CAS-01")["/EWS"].internal_url == "https://mail.contoso.com/EWS"


def test_a_clear_web_server_has_http_urls() -> None:
    """The URL says how it is reached."""
    text = WHOLE.replace("https = { port = 8443 }", 'http = { tls = "clear", address = "127.0.2.1" }')
    assert _directories(text, "MBX-01")["/dav"].internal_url == "http://mbx-01/dav"


def test_servers_without_a_web_endpoint_have_no_directories() -> None:
    """Nothing answers there."""
    assert _directories(WHOLE.replace("https = { port = 8443 }\n", ""), "MBX-01") == {}


@pytest.mark.parametrize(
    ("version", "role", "has"),
    [
        ("2003", "mailbox", "/exchange"),
        ("2010", "client-access", "/ecp"),
        ("2007", "client-access", "/owa"),
        ("2010", "mailbox", None),
        ("modern", "hub-transport", None),
    ],
)
def test_the_set_is_that_of_version_and_role(version: str, role: str, has: str | None) -> None:
    """Mailbox servers of 2007 and 2010 have no web parts; those are on client access servers."""
    text = (
        WHOLE
        + f"""
[servers.OLD]
site = "usa"
version = "{version}"
roles = ["{role}"]
endpoints = {{ https = {{}} }}
"""
    )
    found = _directories(text, "OLD")
    assert bool(found) is bool(has)
    assert has is None or has in found


def test_a_directory_written_by_hand_gets_no_internal_url() -> None:
    """It must be set; on a modern mailbox server that is an error, and the others are not added beside it."""
    loaded = load_text(WHOLE + DIRECTORY)
    assert [line.partition(": ")[2] for line in lines_of(loaded)] == [
        (
            "virtual directory /dav of MBX-01: has no internal URL, so no front end can reach it; "
            'set internal_url = "https://mbx-01:8443/dav"'
        )
    ]
    text = WHOLE + DIRECTORY + 'internal_url = "https://mbx-01:8443/dav"\n'
    assert lines_of(load_text(text)) == []
    assert list(_directories(text, "MBX-01")) == ["/dav"]
    assert "/owa" in _directories(text, "CAS-01")


@pytest.mark.parametrize("path", ["calendars", "/calendars", "/calendars/", "//calendars//"])
def test_paths_are_normalised(path: str) -> None:
    """One leading slash, none at the end."""
    text = WHOLE + DIRECTORY + f'path = "{path}"\ninternal_url = "https://mbx-01:8443/x"\n'
    assert list(_directories(text, "MBX-01")) == ["/calendars"]


def test_the_root_can_be_handed_over() -> None:
    """A web server that does all of HTTP."""
    text = WHOLE + DIRECTORY + 'path = "/"\ninternal_url = "https://mbx-01:8443/"\n'
    assert list(_directories(text, "MBX-01")) == ["/"]


def test_one_path_in_two_cases_is_a_fault() -> None:
    """Clients write it either way."""
    url = 'internal_url = "https://mbx-01:8443/dav"\n'
    found = lines_of(load_text(WHOLE + DIRECTORY + url + DIRECTORY + f'path = "/DAV"\n{url}'))
    assert len(found) == 1
    assert "virtual directory /DAV of MBX-01: the server has this path twice" in found[0]


def test_clear_text_is_never_a_default() -> None:
    """Every default mode is one that the check accepts, and none is clear; `http` has none."""
    assert ENDPOINTS.keys() == TLS_MODES.keys()
    for name, (_, _, mode) in ENDPOINTS.items():
        assert mode is not TlsMode.CLEAR
        assert (mode in TLS_MODES[name]) is (name != "http")
    found = lines_of(load_text(WHOLE.replace("https = { port = 8443 }", "http = {}")))
    assert any("endpoint http is clear text, which must be said" in line for line in found)
