"""A sound file becomes frozen values with their defaults; a faulty one becomes findings with lines, all at once."""

from __future__ import annotations

from ipaddress import ip_network

import pytest
from configuration_samples import FRONT_END, NOW, ORGANIZATION, PATH, WHOLE, line_of, lines_of, load_text, pki

from gatepost.configuration.load import ConfigurationError, load
from gatepost.configuration.settings import Configuration, Limits
from gatepost.organization.model import (
    ClientAddress,
    DatabaseCopy,
    Endpoint,
    Protocol,
    Role,
    SignIn,
    SignInForm,
    TlsMode,
    Version,
)


def _sound(text: str = WHOLE, **options: str) -> Configuration:
    loaded = load_text(text, **options)
    assert lines_of(loaded) == []
    return loaded.require()


def test_defaults_are_filled_in() -> None:
    """Names, addresses, ports and TLS modes that the file leaves out."""
    organization = _sound().organization
    front = organization.servers["CAS-01"]
    assert front.roles == {Role.CLIENT_ACCESS}
    assert front.version is Version.MODERN
    assert front.endpoints == (
        Endpoint("imap", Protocol.IMAP, "127.0.1.1", 143, TlsMode.STARTTLS, "mail.contoso.com"),
        Endpoint("imaps", Protocol.IMAP, "127.0.1.1", 10993, TlsMode.IMPLICIT, "mail.contoso.com"),
        Endpoint("https", Protocol.HTTPS, "127.0.1.1", 443, TlsMode.IMPLICIT, "mail.contoso.com"),
    )
    mailbox = organization.servers["MBX-01"]
    assert (mailbox.fqdn, mailbox.address) == ("mbx-01", "mbx-01")
    assert mailbox.endpoints[0] == Endpoint(
        "imap", Protocol.IMAP, "127.0.2.1", 143, TlsMode.CLEAR, "mbx-01", ClientAddress.ID
    )
    assert organization.sites["usa"].subnets == (ip_network("10.1.0.0/16"),)
    assert organization.servers["MBX-02"].version is Version.V2010


def test_copies_come_in_order_of_preference() -> None:
    """Whatever their order in the file."""
    assert _sound().organization.databases["DB01"].copies == (DatabaseCopy("MBX-01", 3), DatabaseCopy("MBX-02", 7))


def test_without_preferences_the_order_of_the_file_is_the_preference() -> None:
    """The first copy is the first choice."""
    text = WHOLE.replace(", preference = 7", "").replace(", preference = 3", "")
    assert _sound(text).organization.databases["DB01"].copies == (DatabaseCopy("MBX-02", 1), DatabaseCopy("MBX-01", 2))


def test_the_master_password_is_the_files_line() -> None:
    """Without its line end, with the spaces inside."""
    assert _sound().organization.servers["MBX-01"].sign_in == SignIn(
        SignInForm.MASTER_NAME, "gatepost", "hush hush", "*"
    )


def test_the_front_end_gets_contents_and_paths_from_where_the_file_is() -> None:
    """Contents are read, stores are paths beside the file, absolute paths stay."""
    front_end = _sound().front_end
    files = pki()
    assert front_end.server == "CAS-01"
    assert front_end.directory == "etc/state/directory.sqlite"
    assert front_end.registry == "/var/lib/gatepost/registry.sqlite"
    assert front_end.certificate == files["etc/pki/front.crt"]
    assert front_end.private_key == files["etc/pki/front.key"]
    assert front_end.server_ca == files["etc/pki/ca.crt"]
    assert front_end.limits == Limits()
    assert front_end.log_file == ""
    assert front_end.token_issuers == ()


def test_settings_of_the_front_end() -> None:
    """What is written replaces the defaults."""
    more = 'workers = 3\nuser = "mail"\nproxy_protocol_from = ["10.0.0.0/8", "2001:db8::1"]\nlog_file = "log"\n'
    text = WHOLE.replace("server_ca", f"{more}server_ca", 1) + "[front_end.limits]\nconnect_seconds = 2\nsessions = 5\n"
    front_end = _sound(text).front_end
    assert (front_end.workers, front_end.user, front_end.log_file) == (3, "mail", "etc/log")
    assert front_end.proxy_protocol_from == (ip_network("10.0.0.0/8"), ip_network("2001:db8::1/128"))
    assert front_end.limits == Limits(connect_seconds=2, sessions=5)


def test_a_server_may_have_an_authority_of_its_own() -> None:
    """Its certificates are checked with that one only."""
    text = WHOLE.replace('roles = ["mailbox"]\n', 'roles = ["mailbox"]\nserver_ca = "pki/ca.crt"\n', 1)
    assert _sound(text).front_end.server_ca_by_server == {"MBX-01": pki()["etc/pki/ca.crt"]}


def test_the_option_server_overrides_the_file() -> None:
    """One file can serve several front ends."""
    text = WHOLE.replace('server = "CAS-01"', 'server = "nobody"', 1)
    assert _sound(text, server="CAS-01").server.name == "CAS-01"
    assert lines_of(load_text(WHOLE, server="CAS-9")) == [
        (
            '2: front end: server "CAS-9" of the option --server does not exist; did you mean "CAS-01"? '
            "Servers are: CAS-01, MBX-01, MBX-02"
        )
    ]


def test_two_files() -> None:
    """The organization's own paths are beside the organization's file."""
    front = FRONT_END.replace("server =", 'organization = "shared/contoso.toml"\nserver =', 1)
    files = {"etc/shared/contoso.toml": ORGANIZATION.encode(), "etc/shared/secrets/mbx-01": b"other"}
    loaded = load_text(front, files)
    assert lines_of(loaded) == []
    assert loaded.require().organization.servers["MBX-01"].sign_in.master_password == "other"
    assert loaded.require().front_end.directory == "etc/state/directory.sqlite"


def test_the_second_file_may_be_another_front_ends_whole_file() -> None:
    """Its own front end is passed over."""
    front = FRONT_END.replace("server =", 'organization = "cas-02.toml"\nserver =', 1)
    other = WHOLE.replace('server = "CAS-01"', 'server = "CAS-02"', 1)
    assert load_text(front, {"etc/cas-02.toml": other.encode()}).require().server.name == "CAS-01"


def test_faults_of_both_files_are_reported_each_with_its_file() -> None:
    """Nothing stops at the first file."""
    front = FRONT_END.replace("server =", 'organization = "org.toml"\nworkers = "two"\nserver =', 1)
    organization = ORGANIZATION.replace('site = "usa"', 'site = "usaa"', 1)
    loaded = load_text(front, {"etc/org.toml": organization.encode()})
    assert [str(finding) for finding in loaded.findings] == [
        'etc/gatepost.toml:3: front end: "workers" must be a whole number; for example workers = 2',
        'etc/org.toml:10: server CAS-01: site "usaa" does not exist; did you mean "usa"? Sites are: usa',
    ]


def test_a_missing_second_file_is_reported_where_it_is_named() -> None:
    """That is the line to correct."""
    loaded = load_text(FRONT_END.replace("server =", 'organization = "org.toml"\nserver =', 1))
    assert lines_of(loaded) == [
        "2: the file etc/org.toml: cannot be read: No such file or directory; correct its path or its permissions"
    ]


def test_tables_of_the_organization_in_the_wrong_file() -> None:
    """With the organization elsewhere, this file's tables would be ignored in silence."""
    text = WHOLE.replace("server =", 'organization = "org.toml"\nserver =', 1)
    loaded = load_text(text, {"etc/org.toml": ORGANIZATION.encode(), "etc/secrets/mbx-01": b"x"})
    line = line_of(text, "[sites.usa]")
    message = 'table "sites" is in this file, but front_end.organization names org.toml; move it to org.toml'
    assert f"{line}: the file: {message}" in lines_of(loaded)
    assert loaded.errors == 4


def test_an_organization_alone() -> None:
    """Is a fault for whoever needs a front end, and none for the check."""
    assert lines_of(load_text(ORGANIZATION)) == [' front end: "front_end" is missing; add [front_end]']
    loaded = load_text(ORGANIZATION, front_end_required=False)
    assert lines_of(loaded) == []
    assert loaded.organization is not None
    assert loaded.configuration is None
    with pytest.raises(ConfigurationError):
        loaded.require()


def test_all_faults_are_reported_in_one_go() -> None:
    """Shape, words, ranges, references and files, sorted by line, and none twice."""
    text = (
        WHOLE.replace("imap = {}", "imap = { port = 0 }\nimpas = {}", 1)
        .replace('roles = ["mailbox"]', 'roles = ["mailbix"]', 1)
        .replace("internet_facing = true", 'internet_facing = "yes"', 1)
        .replace('"MBX-02", preference', '"MBX-2", preference', 1)
        .replace('server_ca = "pki/ca.crt"', 'server_ca = "pki/cb.crt"', 1)
    )
    loaded = load_text(text)
    assert loaded.configuration is None
    assert lines_of(loaded) == [
        (
            "7: front end: the authorities' file etc/pki/cb.crt cannot be read: No such file or directory; "
            "put the file there, or correct its path or permissions"
        ),
        (
            f'{line_of(text, "internet_facing")}: site usa: "internet_facing" must be true or false; '
            "for example internet_facing = true"
        ),
        f'{line_of(text, "port = 0")}: server CAS-01: "port" is out of range; make it 1 or more',
        (
            f'{line_of(text, "impas")}: server CAS-01: unknown key "impas"; did you mean "imaps"? '
            "Keys here are: imap, imaps, pop3, pop3s, https, http, peer, smtp, lmtp, "
            "submission, submissions"
        ),
        (
            f'{line_of(text, "mailbix")}: server MBX-01: entry 1 of "roles" has the unknown word "mailbix"; '
            'did you mean "mailbox"? Words are: client-access, mailbox, hub-transport, edge-transport'
        ),
        (
            f'{line_of(text, "MBX-2")}: database DB01: server "MBX-2" does not exist; did you mean "MBX-02"? '
            "Servers are: CAS-01, MBX-01, MBX-02"
        ),
    ]


def test_a_lost_table_does_not_make_every_reference_a_fault() -> None:
    """One misspelt table name is one finding."""
    text = WHOLE.replace("[sites.usa]", "[site.usa]")
    assert [line.partition(";")[0] for line in lines_of(load_text(text))] == [
        f'{line_of(text, "[site.usa]")}: the file: unknown key "site"'
    ]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ('server = "CAS-01"', 'server = "MBX-01"', "2: front end: server MBX-01 is not a client access server"),
        ('server = "CAS-01"\n', "", "1: front end: no server is named"),
        ('directory = "state/directory.sqlite"\n', "", '1: front end: "directory" is missing'),
        ('"state/directory.sqlite"', '""', "3: front end: directory is empty"),
        (
            '"state/directory.sqlite"',
            '"/var/lib/gatepost/registry.sqlite"',
            "4: front end: directory and registry are the same file",
        ),
        ('certificate = "pki/front.crt"\nprivate_key = "pki/front.key"\n', "",
         "1: front end: no certificate, but TLS at the endpoint imap, imaps, https"),
        ("imap = {}\nimaps = { port = 10993 }\nhttps = {}\n", "",
         "2: front end: server CAS-01 has no endpoints, so there is nothing to listen on"),
    ],
)  # fmt: skip
def test_faults_of_the_front_end(before: str, after: str, expected: str) -> None:
    """Each is one finding at its line."""
    assert before in WHOLE
    found = lines_of(load_text(WHOLE.replace(before, after, 1)))
    assert [line.partition(";")[0] for line in found] == [expected]


def test_idle_limits_under_half_an_hour_are_warned_of() -> None:
    """Mail clients may be silent that long; it still runs."""
    loaded = load_text(WHOLE + "[front_end.limits]\nidle_seconds = 600\n")
    assert loaded.configuration is not None
    assert lines_of(loaded) == [
        (
            f"{WHOLE.count(chr(10)) + 2}: warning: front end: idle_seconds is 600, but clients may be silent for "
            "30 minutes: sessions will be cut; make it 1800 or more"
        )
    ]


def test_a_clear_front_end_needs_no_certificate() -> None:
    """Where every endpoint says `clear`."""
    text = WHOLE.replace('certificate = "pki/front.crt"\nprivate_key = "pki/front.key"\n', "")
    text = text.replace("imap = {}\nimaps = { port = 10993 }\nhttps = {}", 'imap = { tls = "clear" }')
    assert _sound(text).front_end.certificate == b""


def test_a_sign_in_page_needs_a_certificate() -> None:
    """Also where a balancer ends TLS: the cookie is sealed with the private key (SPEC B6)."""
    text = WHOLE.replace('certificate = "pki/front.crt"\nprivate_key = "pki/front.key"\n', "")
    text = text.replace("imap = {}\nimaps = { port = 10993 }\nhttps = {}", 'http = { tls = "clear" }')
    text += '[[virtual_directories]]\nserver = "CAS-01"\nservice = "owa"\npath = "/owa"\nauthentication = ["forms"]\n'
    found = [line.partition(";")[0] for line in lines_of(load_text(text))]
    assert "1: front end: no certificate, but a sign-in page at /owa: its private key seals the cookies" in found


def test_reading_from_a_disk(tmp_path: object) -> None:
    """What is no regular file is a finding and not a wait."""
    found = load(str(tmp_path), now=NOW).findings
    assert len(found) == 1
    assert "cannot be read" in found[0].finding.message
    assert "cannot be read" in load("/dev/zero", now=NOW).findings[0].finding.message
    assert "cannot be read" in load("a\0b", now=NOW).findings[0].finding.message


def test_the_error_of_require_has_every_finding() -> None:
    """So that a service can print them all."""
    with pytest.raises(ConfigurationError, match="site") as caught:
        load_text(WHOLE.replace('site = "usa"', 'site = "x"')).require()
    assert len(caught.value.findings) == 3
    assert str(caught.value).count("\n") == 2


def test_control_characters_of_a_file_never_reach_the_terminal() -> None:
    """A key may hold an escape sequence; the finding shows it escaped."""
    found = str(load_text(WHOLE + '[sites."\\u001b[2J\\n"]\n"a\\u202eb" = 1\n').findings[0])
    assert found.isprintable()
    assert "\\x1b[2J" in found
    assert PATH in found
