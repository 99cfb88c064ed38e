"""Faults of shape are said in plain words, with the line, the object and a remedy."""

from __future__ import annotations

import pytest
from configuration_samples import WHOLE, line_of, lines_of, load_text

CASES = {
    "text where a number belongs": (
        "imaps = { port = 10993 }",
        'imaps = { port = "10993" }',
        'server CAS-01: "port" must be a whole number; for example port = 10143',
    ),
    "a fraction where a whole number belongs": (
        "imaps = { port = 10993 }",
        "imaps = { port = 1.5 }",
        'server CAS-01: "port" must be a whole number; for example port = 10143',
    ),
    "a number where text belongs": (
        'fqdn = "mail.contoso.com"',
        "fqdn = 5",
        'server CAS-01: "fqdn" must be text in quotes; for example fqdn = "mbx-01.contoso.com"',
    ),
    "text where true or false belongs": (
        "internet_facing = true",
        'internet_facing = "true"',
        'site usa: "internet_facing" must be true or false; for example internet_facing = true',
    ),
    "text where a list belongs": (
        'accepted_domains = ["contoso.com"]',
        'accepted_domains = "contoso.com"',
        'organization: "accepted_domains" must be a list in brackets; for example accepted_domains = ["contoso.com"]',
    ),
    "a number in a list of texts": (
        'accepted_domains = ["contoso.com"]',
        'accepted_domains = ["contoso.com", 7]',
        ('organization: entry 2 of "accepted_domains" must be text in quotes; '
        'for example accepted_domains = ["contoso.com"]'),
    ),
    "a value where a table belongs": (
        "imap = {}",
        "imap = 143",
        'server CAS-01: "imap" must be a table; for example [servers.CAS-01.endpoints.imap]',
    ),
    "a copy that is no table": (
        '{ server = "MBX-02", preference = 7 }',
        '"MBX-02"',
        ('database DB01: entry 1 of "copies" must be a table; '
        'for example copies = [{ server = "MBX-01", preference = 1 }]'),
    ),
    "a required key left out": (
        '{ server = "MBX-02", preference = 7 }',
        "{ preference = 7 }",
        'database DB01: "server" is missing; add server = "MBX-01"',
    ),
    "a port out of range": (
        "imaps = { port = 10993 }",
        "imaps = { port = 99999 }",
        'server CAS-01: "port" is out of range; make it 65535 or less',
    ),
    "an unknown key": (
        'site = "usa"\nroles = ["client-access"]',
        'site = "usa"\ncolour = "red"\nroles = ["client-access"]',
        ('server CAS-01: unknown key "colour"; '
        "keys here are: site, roles, version, fqdn, address, endpoints, sign_in, server_ca, max_connections, "
            "kerberos_principal, transport"),
    ),
    "a misspelt key": (
        "master_user = ",
        "master_usr = ",
        ('server MBX-01: unknown key "master_usr"; did you mean "master_user"? Keys here are: form, master_user, '
        "master_password_file, separator, assertion_key_file, token_audience, pipelined, http, http_header, "
        "send_epoch, kerberos_host"),
    ),
    "an unknown word": (
        'tls = "clear"',
        'tls = "ssl"',
        'server MBX-01: "tls" has the unknown word "ssl"; words are: starttls, implicit, clear',
    ),
    "no word at all": (
        'tls = "clear"',
        "tls = true",
        'server MBX-01: "tls" is not a word; write one of: starttls, implicit, clear',
    ),
    "a version nobody made": (
        "version = 2010",
        "version = 2013",
        ('server MBX-02: "version" has the unknown word "2013"; '
        'did you mean "2010"? Words are: 2003, 2007, 2010, modern'),
    ),
    "a subnet with bits behind its prefix": (
        '"10.1.0.0/16"',
        '"10.1.0.1/16"',
        'site usa: entry 1 of "subnets" has "10.1.0.1/16", which has bits set behind its prefix; write "10.1.0.0/16"',
    ),
    "no subnet": (
        '"10.1.0.0/16"',
        '"10.1/16"',
        'site usa: entry 1 of "subnets" has "10.1/16", which is not a subnet; write it like "10.0.0.0/8"',
    ),
    "a date where text belongs": (
        'name = "contoso"',
        "name = 2026-06-01",
        'organization: "name" must be text in quotes; for example name = "contoso"',
    ),
}  # fmt: skip


@pytest.mark.parametrize(("before", "after", "expected"), CASES.values(), ids=CASES.keys())
def test_each_fault_in_its_words(before: str, after: str, expected: str) -> None:
    """Exactly one finding, on the line of the fault, in words an operator knows."""
    assert before in WHOLE
    text = WHOLE.replace(before, after, 1)
    shift = 1 if "\ncolour" in after else 0
    assert lines_of(load_text(text)) == [f"{line_of(text, after) + shift}: {expected}"]


LIMITS = {
    "connect_seconds = 0": '"connect_seconds" is out of range; make it more than 0',
    "connect_seconds = nan": '"connect_seconds" must be a finite number; for example connect_seconds = 10',
    "connect_seconds = inf": '"connect_seconds" must be a finite number; for example connect_seconds = 10',
    "connect_seconds = 1e9": '"connect_seconds" is out of range; make it 604800 or less',
    "sessions = 0": '"sessions" is out of range; make it 1 or more',
    "sessions = 99999999999999999999999999": '"sessions" is out of range; make it 10000000 or less',
    "refused_sign_in_delay_seconds = -1": '"refused_sign_in_delay_seconds" is out of range; make it 0 or more',
}


@pytest.mark.parametrize(("written", "expected"), LIMITS.items())
def test_limits_have_bounds(written: str, expected: str) -> None:
    """No limit can be lifted by a slip of the pen."""
    text = f"{WHOLE}[front_end.limits]\n{written}\n"
    assert lines_of(load_text(text)) == [f"{text.count(chr(10))}: front end: {expected}"]


def test_no_delay_is_allowed() -> None:
    """For tests and for networks where nobody guesses."""
    assert load_text(f"{WHOLE}[front_end.limits]\nrefused_sign_in_delay_seconds = 0\n").errors == 0


def test_a_virtual_directory_is_named_by_its_number_and_server() -> None:
    """There is no other name for it while its path is in doubt."""
    text = f'{WHOLE}[[virtual_directories]]\nserver = "MBX-01"\nservice = "x"\ninternal_url = "https://mbx-01:8443/x"\n'
    second = f'{text}[[virtual_directories]]\nserver = "MBX-01"\nservise = "dav"\n'
    found = lines_of(load_text(second))
    assert found[0].startswith(f'{line_of(second, "servise")}: virtual directory 2 of MBX-01: unknown key "servise"')
    assert len(found) == 1


def test_a_misspelt_key_is_one_finding() -> None:
    """Not a second one for the key that is missing because of it, even a required one."""
    found = lines_of(load_text(WHOLE.replace("directory =", "directry =", 1)))
    assert [line.partition(";")[0] for line in found] == ['3: front end: unknown key "directry"']


DEEP = " the file: is nested too deeply; no table of the configuration is nested like that"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = \n", "1: the file: is not valid TOML: Invalid value; correct it at column 5"),
        ("\n\na = [1,", "3: the file: is not valid TOML: Invalid value at its end; complete it"),
        ("[a]\n[a]\n", "2: the file: is not valid TOML: Cannot declare ('a',) twice; correct it at column 3"),
        (b"a = 1\nb = '\xff'\n", "2: the file: is not UTF-8 text; save it as UTF-8"),
        ("a = " + "[" * 9000, DEEP),
        ("a" + ".a" * 9000 + " = 1", DEEP),
    ],
)  # fmt: skip
def test_what_is_no_toml(text: str | bytes, expected: str) -> None:
    """One finding with its line and column."""
    assert lines_of(load_text(text)) == [expected]


def test_a_byte_order_mark_is_no_fault() -> None:
    """Some editors write one."""
    assert lines_of(load_text("\ufeff" + WHOLE)) == []


def test_a_number_of_too_many_digits_is_a_finding() -> None:
    """Python refuses to read it, with an error that is not TOML's."""
    found = lines_of(load_text(f"a = {'9' * 5000}"))
    assert len(found) == 1
    assert "is not valid TOML" in found[0]


def test_a_thousand_faults_are_not_all_printed() -> None:
    """The first ones, and how many more there are."""
    text = WHOLE + "".join(f"[sites.s{number}]\nsubnet = 1\n" for number in range(1000))
    found = lines_of(load_text(text))
    assert sum("unknown key" in line for line in found) == 200
    assert sum("has 800 more faults like these" in line for line in found) == 1
