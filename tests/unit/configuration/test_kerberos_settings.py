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
