"""`[front_end.kerberos]`: the keytab is looked into before a client needs it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from configuration_samples import WHOLE, lines_of, load_text
from hypothesis import given
from hypothesis import strategies as st

from gatepost.configuration import kerberos
from gatepost.configuration.files import this_machine
from gatepost.configuration.keytab import BadKeytab, keytab_principals

ALL = ("HTTP/mail.contoso.com", "imap/mail.contoso.com", "pop/mail.contoso.com", "smtp/mail.contoso.com")
TABLE = '[front_end.kerberos]\nkeytab = "mail.keytab"\nrealms = { "AD.CONTOSO.COM" = "contoso.com" }\n'


@pytest.fixture(autouse=True)
def _library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it is installed is not what these tests are about."""
    monkeypatch.setattr(kerberos, "find_spec", lambda _: object())


def keytab(*names: str, realm: str = "AD.CONTOSO.COM") -> bytes:
    """A keytab with a key of each name, and a hole."""
    found = b"\x05\x02" + (-8).to_bytes(4, "big", signed=True) + b"\0" * 8
    for name in names:
        parts = name.split("/")
        words = b"".join(len(word).to_bytes(2, "big") + word.encode() for word in (realm, *parts))
        entry = len(parts).to_bytes(2, "big") + words + b"\0\0\0\1\0\0\0\0\3\0\x12\0\x20" + b"k" * 32
        found += len(entry).to_bytes(4, "big") + entry
    return found


def _faults(more: str = "", data: bytes = keytab(*ALL), table: str = TABLE) -> list[str]:
    return [
        line for line in lines_of(load_text(WHOLE + table + more, {"etc/mail.keytab": data})) if "expire" not in line
    ]


def test_the_settings_with_the_names_of_the_keytab() -> None:
    data = keytab(*ALL, "host/mail.contoso.com", "HTTP/mail.contoso.com")
    loaded = load_text(WHOLE + TABLE + 'netbios_domains = { "Contoso" = "contoso.com" }\n', {"etc/mail.keytab": data})
    settings = loaded.require().front_end.kerberos
    assert settings is not None
    assert settings.service_principals == ALL
    assert settings.realms == (("AD.CONTOSO.COM", "contoso.com"),)
    assert settings.netbios_domains == (("CONTOSO", "contoso.com"),)
    assert settings.keytab.endswith("etc/mail.keytab")


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ('service_principals = ["HTTP/other.contoso.com"]\n', "has no key of HTTP/other.contoso.com"),
        ('service_principals = ["mail.contoso.com"]\n', "no service principal of a mail protocol"),
        ('service_principals = ["ldap/mail.contoso.com"]\n', "no service principal of a mail protocol"),
        ('service_principals = ["HTTP/mail.contoso.com@AD.CONTOSO.COM"]\n', "no service principal of a mail protocol"),
        ('netbios_domains = { "CONTOSO" = "" }\n', "CONTOSO has no domain"),
    ],
)
def test_faults_of_names(more: str, expected: str) -> None:
    assert any(expected in line for line in _faults(more)), _faults(more)


@pytest.mark.parametrize(
    ("realms", "expected"),
    [
        ("{}", "no realm"),
        ('{ "ad.contoso.com" = "contoso.com" }', "not in capitals"),
        ('{ "AD.X" = "" }', "has no domain"),
    ],
)
def test_faults_of_realms(realms: str, expected: str) -> None:
    table = TABLE.replace('{ "AD.CONTOSO.COM" = "contoso.com" }', realms)
    assert any(expected in line for line in _faults(table=table))


@pytest.mark.parametrize(
    ("data", "expected"),
    [(b"hello", "not a keytab"), (keytab("host/mail.contoso.com"), "has no key of"), (keytab(*ALL)[:60], "cut off")],
)
def test_faults_of_the_keytab(data: bytes, expected: str) -> None:
    assert any(expected in line for line in _faults(data=data)), _faults(data=data)


def test_names_that_clients_use_and_the_keytab_has_not() -> None:
    """A client makes the principal of the name that it connects to."""
    found = _faults(data=keytab("imap/elsewhere.contoso.com"))
    assert any("no key for imap/" in line for line in found), found
    assert not any(
        "no key for" in line
        for line in _faults(data=keytab(*ALL, *(f"imap/{n}" for n in ("cas-01", "mail.contoso.com"))))
    )


def test_a_missing_library_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kerberos, "find_spec", lambda _: None)
    assert any("pip install gatepost[kerberos]" in line for line in _faults())


@given(st.binary(max_size=120))
def test_noise_is_no_keytab(noise: bytes) -> None:
    for data in (noise, b"\x05\x02" + noise):
        try:
            keytab_principals(data)
        except BadKeytab:
            continue


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, which may give files away")
def test_who_may_read_a_file(tmp_path: Path) -> None:
    path = tmp_path / "keytab"
    path.write_bytes(b"x")
    may_read = this_machine().may_read
    path.chmod(stat.S_IRUSR)
    assert may_read("root", str(path))
    assert not may_read("nobody", str(path))
    path.chmod(stat.S_IRUSR | stat.S_IROTH)
    assert may_read("nobody", str(path))
    os.chown(path, 65534, 0)
    path.chmod(stat.S_IRUSR)
    assert may_read("nobody", str(path))


# --- tickets that are asked for

SIGN_IN = "[servers.MBX-01.sign_in]"
DELEGATION = 'delegation_principal = "svc-mail@AD.CONTOSO.COM"\n'


def _whole(sign_in: str = "", principal: str = "", table: str = TABLE) -> str:
    """The sample whose MBX-01 has another sign-in, and whose CAS-01 an account."""
    text = WHOLE + table
    if sign_in:
        before, _, after = text.partition(SIGN_IN)
        assert after
        text = f"{before}{SIGN_IN}\n{sign_in}\n" + after[after.index("\n[") :]
    if principal:
        text = text.replace("[servers.CAS-01]\n", f'[servers.CAS-01]\nkerberos_principal = "{principal}"\n')
    return text


def _told(text: str, data: bytes) -> str:
    return "\n".join(lines_of(load_text(text, {"etc/mail.keytab": data})))


def test_an_account_for_users_tickets_needs_its_key() -> None:
    text = _whole('form = "kerberos"', table=TABLE + DELEGATION)
    assert "no key of svc-mail@AD.CONTOSO.COM: no tickets could be asked for as it" in _told(text, keytab(*ALL))
    loaded = load_text(text, {"etc/mail.keytab": keytab(*ALL, "svc-mail")})
    settings = loaded.require().front_end.kerberos
    assert settings is not None
    assert settings.asks
    assert loaded.require().organization.servers["MBX-01"].sign_in.delegates


@pytest.mark.parametrize("way", ['form = "kerberos"', 'http = "kerberos"'])
def test_servers_that_want_tickets_and_nobody_who_could_ask(way: str) -> None:
    assert "MBX-01 wants tickets of users, and no account is named" in _told(_whole(way), keytab(*ALL))
    without = _told(_whole(way, table=""), keytab(*ALL))
    assert "MBX-01 wants tickets of users, and there is no [front_end.kerberos]" in without


def test_an_account_between_front_ends_needs_its_key() -> None:
    text = _whole(principal="CAS-01$@AD.CONTOSO.COM")
    assert "no key of CAS-01$@AD.CONTOSO.COM" in _told(text, keytab(*ALL))
    assert "CAS-01$" not in _told(text, keytab(*ALL, "CAS-01$", "HTTP/cas-01.contoso.com"))
    without = _told(_whole(principal="CAS-01$@AD.CONTOSO.COM", table=""), b"")
    assert "CAS-01 has a kerberos_principal, and there is no [front_end.kerberos]" in without


def test_an_account_without_a_realm_is_none() -> None:
    assert '"CAS-01$" is no account of a realm' in _told(_whole(principal="CAS-01$"), keytab(*ALL))


def test_a_host_that_is_none() -> None:
    text = _whole('form = "kerberos"\nkerberos_host = "imap/x"', table=TABLE + DELEGATION)
    assert "is no host of a service principal" in _told(text, keytab(*ALL, "svc-mail"))
