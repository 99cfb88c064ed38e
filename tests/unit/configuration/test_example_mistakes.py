"""Each mistake that the sources warn of, made in an example's file, is a warning at its line (SPEC O2)."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from configuration_samples import line_of
from example_files import example, load_example

PROXYING = "exchange-2010-proxying.toml"
REDIRECTION = "exchange-2010-redirection.toml"
NLB = "exchange-2010-nlb.toml"
THREE = "exchange-2010-three-sites.toml"
CONTOSO = "contoso.toml"

PEERS = "peer = {}"


@dataclass(frozen=True)
class Mistake:
    """Changes of an example's text, the text whose line the warning names, and words of it.

    Of a key that is missing the line is its table's. `after`: the first `place` behind this text is meant.
    """

    file: str
    changes: dict[str, str]
    place: str
    words: str
    others: tuple[str, ...] = field(default=())
    """Words of further warnings that the same mistake must give."""
    after: str = ""


def directory(server: str, service: str) -> str:
    """The head of a virtual directory's entry."""
    return f'[[virtual_directories]]\nserver = "{server}"\nservice = "{service}"\n'


def entry(file: str, server: str, service: str) -> str:
    """The whole entry as it is in the file."""
    text = example(file)
    start = text.index(directory(server, service))
    return text[start : text.index("\n\n", start) + 1] if "\n\n" in text[start:] else text[start:]


def with_lines(file: str, server: str, service: str, *lines: str) -> dict[str, str]:
    """The entry with more lines."""
    found = entry(file, server, service)
    return {found: found + "".join(f"{line}\n" for line in lines)}


def without(file: str, server: str, service: str, key: str) -> dict[str, str]:
    """The entry without a key."""
    found = entry(file, server, service)
    return {found: "".join(line for line in found.splitlines(True) if not line.startswith(key))}


def server_of(name: str) -> str:
    """The head of a server's table."""
    return f"[servers.{name}]\n"


EXTERNAL = 'external_url = "https://www.branch.contoso.com/'
MISTAKES = {
    "an external URL on a server that is not Internet-facing": Mistake(
        PROXYING,
        with_lines(PROXYING, "CAS-02", "owa", EXTERNAL + 'OWA"'),
        EXTERNAL + 'OWA"',
        "site branch is not Internet-facing: clients will fail to connect",
    ),
    "an external URL on one of several servers that are not Internet-facing": Mistake(
        NLB,
        with_lines(NLB, "CAS-04", "Microsoft-Server-ActiveSync", EXTERNAL + 'Microsoft-Server-ActiveSync"'),
        EXTERNAL,
        "site branch is not Internet-facing: clients will fail to connect",
    ),
    "a new virtual directory without an internal URL": Mistake(
        PROXYING,
        without(PROXYING, "CAS-02", "owa", "internal_url"),
        directory("CAS-02", "owa"),
        "other sites must proxy to it, but it has no internal URL",
    ),
    "a new virtual directory of a mailbox server without an internal URL": Mistake(
        PROXYING,
        without(PROXYING, "MBX-02", "EWS", "internal_url"),
        directory("MBX-02", "EWS"),
        "has no internal URL, so no front end can reach it",
    ),
    "Basic where others must proxy": Mistake(
        PROXYING,
        with_lines(PROXYING, "CAS-02", "EWS", 'authentication = ["basic"]'),
        'authentication = ["basic"]\n',
        "others must proxy to it, but it lacks Integrated authentication",
    ),
    "forms alone where others must proxy": Mistake(
        PROXYING,
        {'authentication = ["forms", "integrated"]': 'authentication = ["forms"]'},
        'authentication = ["forms"]',
        "lacks Integrated authentication",
        ('keep "forms" for browsers and add "integrated"',),
    ),
    "ActiveSync of a 2003 server without Integrated authentication": Mistake(
        THREE,
        {
            "# What the mailbox servers themselves serve.": directory("BE-01", "Microsoft-Server-ActiveSync")
            + 'internal_url = "https://be-01.contoso.com/Microsoft-Server-ActiveSync"\n'
            + 'authentication = ["basic"]\n\n#'
        },
        'authentication = ["basic"]\n\n#',
        "others must proxy to it, but it lacks Integrated authentication",
    ),
    "an internal URL in clear between sites": Mistake(
        PROXYING,
        {
            'internal_url = "https://cas-02.contoso.com/AS"': 'internal_url = "http://cas-02.contoso.com:8080/AS"',
            f'address = "10.2.0.1"\nendpoints = {{ imaps = {{}}, pop3s = {{}}, https = {{}}, {PEERS} }}': (
                'address = "10.2.0.1"\nendpoints = { imaps = {}, pop3s = {}, https = {}, peer = {}, '
                'http = { tls = "clear", port = 8080 } }'
            ),
        },
        'internal_url = "http://cas-02',
        "other sites must proxy to it, but its internal URL is not https",
    ),
    "two Internet-facing servers, one of them not in the array": Mistake(
        NLB,
        {'members = ["CAS-01", "CAS-02"]': 'members = ["CAS-01"]'},
        "[sites.main]",
        "more than one Internet-facing client access server, and not in an array: CAS-02",
    ),
    "an array over two sites": Mistake(
        NLB,
        {'members = ["CAS-01", "CAS-02"]': 'members = [\n"CAS-01", "CAS-02",\n"CAS-03"]'},
        '"CAS-03"]',
        "member CAS-03 is in site branch, the array is in site main",
    ),
    "a site with mailboxes and no client access server": Mistake(
        PROXYING,
        {'[servers.CAS-02]\nsite = "branch"': '[servers.CAS-02]\nsite = "main"'},
        "[sites.branch]",
        "has mailbox servers but no client access server",
        ("more than one Internet-facing client access server",),
    ),
    "a database with one copy": Mistake(
        PROXYING,
        {'copies = [{ server = "MBX-02" }, { server = "MBX-01" }]': 'copies = [{ server = "MBX-02" }]'},
        'copies = [{ server = "MBX-02" }]',
        "has one copy only, on MBX-02",
    ),
    "the array's name as internal URL of Outlook Web App": Mistake(
        NLB,
        {'internal_url = "https://cas-03.contoso.com/OWA"': 'internal_url = "https://cas.branch.contoso.com/OWA"'},
        'internal_url = "https://cas.branch.contoso.com/OWA"',
        "the internal URL is the name of array outlook-branch, but users stay with one machine",
    ),
    "the array's name as internal URL of ActiveSync": Mistake(
        NLB,
        {'"https://cas-04.contoso.com/Microsoft-Server-A': '"https://cas.branch.contoso.com/Microsoft-Server-A'},
        '"https://cas.branch.contoso.com/Microsoft-Server-A',
        "users stay with one machine",
    ),
    "a balanced internal URL of web services without a way around the balancer": Mistake(
        NLB,
        without(NLB, "CAS-05", "EWS", "internal_bypass_url"),
        "internal_url",
        "users stay with one machine",
        ("internal_bypass_url",),
        after=directory("CAS-05", "EWS"),
    ),
    "another server's name as internal URL": Mistake(
        NLB,
        {'internal_url = "https://cas-04.contoso.com/OWA"': 'internal_url = "https://cas-03.contoso.com/OWA"'},
        "internal_url",
        "the internal URL's host is that of CAS-03 too, but users stay with one machine",
        after=directory("CAS-04", "owa"),
    ),
    "no peer endpoint where other sites must proxy": Mistake(
        PROXYING,
        {
            f'address = "10.2.0.1"\nendpoints = {{ imaps = {{}}, pop3s = {{}}, https = {{}}, {PEERS} }}': (
                'address = "10.2.0.1"\nendpoints = { imaps = {}, pop3s = {}, https = {} }'
            )
        },
        "endpoints = { imaps = {}, pop3s = {}, https = {} }",
        "front ends of other sites must proxy to site branch, but CAS-02 has no peer endpoint",
        ("gatepost ca issue CAS-02",),
    ),
    "client access servers that are all newer than another site's": Mistake(
        PROXYING,
        {'[servers.CAS-01]\nsite = "main"\n': '[servers.CAS-01]\nsite = "main"\nversion = "2010"\n'},
        "[sites.branch]",
        "every client access server for its 2010 mailboxes is newer than CAS-01 (2010)",
    ),
    "a client access server that cannot open the mailboxes of its site": Mistake(
        PROXYING,
        {'[servers.CAS-02]\nsite = "branch"\n': '[servers.CAS-02]\nsite = "branch"\nversion = "2007"\n'},
        "[sites.branch]",
        "has 2010 mailboxes, but no client access server that can open them, only CAS-02 (2007)",
        ("every client access server for its 2010 mailboxes is newer than CAS-02 (2007)",),
    ),
    "a mailbox server that wants passwords which do not cross": Mistake(
        PROXYING,
        {
            '"mbx-02.contoso.com"\naddress = "10.2.0.11"\nendpoints = { imaps = {}, pop3s = {}, https = {} }\n'
            'sign_in = { http = "header" }': (
                '"mbx-02.contoso.com"\naddress = "10.2.0.11"\nendpoints = { imaps = {}, pop3s = {}, https = {} }\n'
                'sign_in = { http = "basic" }'
            )
        },
        'sign_in = { http = "basic" }',
        "wants the user's password by HTTP, but what other sites' front ends pass on carries none",
    ),
    "external hosts that differ within a site": Mistake(
        NLB,
        {
            directory("CAS-02", "owa")
            + 'internal_url = "https://cas-02.contoso.com/OWA"\nexternal_url = "https://www.contoso.com/OWA"': (
                directory("CAS-02", "owa")
                + 'internal_url = "https://cas-02.contoso.com/OWA"\nexternal_url = "https://www2.contoso.com/OWA"'
            )
        },
        'external_url = "https://www2.contoso.com/OWA"',
        "its external host is www2.contoso.com, that of CAS-01 in the same site is www.contoso.com",
    ),
    "one external host for two sites": Mistake(
        REDIRECTION,
        {'https://www.europe.contoso.com/OWA"\n': 'https://www.usa.contoso.com/OWA"\n'},
        "external_url",
        "its external host www.usa.contoso.com is that of CAS-01 in site usa too: redirected clients come back",
        after=directory("CAS-02", "owa"),
    ),
    "an external URL in clear": Mistake(
        REDIRECTION,
        {'external_url = "https://www.europe.contoso.com/OWA"': 'external_url = "http://www.europe.contoso.com/OWA"'},
        'external_url = "http://www.europe',
        "is not https: passwords would be sent in clear",
    ),
    "an external URL that devices do not take from 451": Mistake(
        REDIRECTION,
        {'"https://www.europe.contoso.com/Microsoft-Server-ActiveSync"': '"https://www.europe.contoso.com/eas"'},
        '"https://www.europe.contoso.com/eas"',
        "devices take only https://www.europe.contoso.com/Microsoft-Server-ActiveSync",
    ),
    "a site that is reached through a peer which it has not": Mistake(
        CONTOSO,
        {'subnets = ["10.3.0.0/16"]\n': 'subnets = ["10.3.0.0/16"]\nthrough_peer = true\n'},
        "through_peer = true",
        "is reached through a peer only, but no client access server here has a peer endpoint",
    ),
    "a way around the balancer that is no way between front ends": Mistake(
        NLB,
        {'internal_bypass_url = "https://cas-03.contoso.com/EWS"': 'internal_bypass_url = "http://cas-03/EWS"'},
        'internal_bypass_url = "http://cas-03/EWS"',
        "cannot be used between front ends",
    ),
    "a front end whose certificate does not stand for its external name": Mistake(
        PROXYING,
        {'"https://www.contoso.com/': '"https://mail.contoso.com/'},
        'certificate = "pki/front.crt"',
        "the certificate does not stand for mail.contoso.com",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES.keys())
def test_the_mistake_is_a_warning_at_its_line(mistake: Mistake) -> None:
    """And nothing else is said."""
    text = example(mistake.file)
    for old, new in mistake.changes.items():
        assert old in text, old
        text = text.replace(old, new)
    loaded = load_example(mistake.file, text=text)
    assert loaded.configuration is not None, [str(finding) for finding in loaded.findings]
    found = [finding for finding in loaded.findings if mistake.words in str(finding)]
    assert found, [str(finding) for finding in loaded.findings]
    start = text.index(mistake.after)
    line = line_of(text, mistake.after) + line_of(text[start:], mistake.place) - 1
    assert {finding.line for finding in found} == {line}
    for words in mistake.others:
        assert any(words in str(finding) for finding in loaded.findings)
    known = (mistake.words, *mistake.others)
    assert [str(f) for f in loaded.findings if not any(words in str(f) for words in known)] == []
