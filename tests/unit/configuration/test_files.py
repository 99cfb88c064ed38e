"""Certificates, keys and passwords are judged before a listener needs them."""

from __future__ import annotations

import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest
from configuration_samples import NOW, PATH, WHOLE, chain, leaf, line_of, lines_of, load_text, pki
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
)

from gatepost.configuration.files import file_mode
from gatepost.configuration.load import Loaded, load

PASSWORD_FILE = "etc/secrets/mbx-01"


def _locked_key() -> bytes:
    key = generate_private_key(SECP256R1())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x"))


NOT_THERE = "cannot be read: No such file or directory"
NO_CERTIFICATE = "holds no certificate in PEM form"
NO_LINE = "the master password file secrets/mbx-01 does not hold one line of UTF-8 text"
OTHER_KEY = leaf("other.example").private_key_pem.bytes()


@pytest.mark.parametrize(
    ("path", "content", "expected"),
    [
        ("etc/pki/front.crt", None, f"front end: the certificate etc/pki/front.crt {NOT_THERE}"),
        ("etc/pki/front.crt", b"hello", f"front end: the certificate pki/front.crt {NO_CERTIFICATE}"),
        ("etc/pki/front.key", b"hello", "front end: the private key pki/front.key holds no private key in PEM form"),
        ("etc/pki/front.key", OTHER_KEY, "front end: the private key pki/front.key does not belong to the certificate"),
        ("etc/pki/front.key", _locked_key(), "front end: the private key pki/front.key is locked with a passphrase"),
        ("etc/pki/ca.crt", b"\xff\x00", f"front end: the authorities' file pki/ca.crt {NO_CERTIFICATE}"),
        (PASSWORD_FILE, b"", f"server MBX-01: {NO_LINE}"),
        (PASSWORD_FILE, b"a\nb\n", f"server MBX-01: {NO_LINE}"),
        (PASSWORD_FILE, b"a\0b", f"server MBX-01: {NO_LINE}"),
        (PASSWORD_FILE, b"\xff", f"server MBX-01: {NO_LINE}"),
        (PASSWORD_FILE, None, f"server MBX-01: the master password file etc/secrets/mbx-01 {NOT_THERE}"),
    ],
)
def test_unusable_files(path: str, content: bytes | None, expected: str) -> None:
    """One error each, with the reason, at the key that names the file."""
    loaded = load_text(WHOLE, {path: content})
    line = line_of(WHOLE, f'"{path.removeprefix("etc/")}"')
    assert [found.partition(";")[0] for found in lines_of(loaded)] == [f"{line}: {expected}"]
    assert loaded.configuration is None


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (datetime(2027, 1, 2, tzinfo=UTC), "expired on 2027-01-01"),
        (datetime(2026, 12, 24, tzinfo=UTC), "expires on 2027-01-01"),
        (datetime(1999, 1, 1, tzinfo=UTC), "is not valid before 2000-01-01 00:00 UTC"),
        (NOW, None),
    ],
)
def test_the_time_of_a_certificate(now: datetime, expected: str | None) -> None:
    """Warned of, not refused: a reload must not fail for what the running service also has."""
    front = leaf("mail.contoso.com", not_after=datetime(2027, 1, 1, tzinfo=UTC))
    files = {"etc/pki/front.crt": chain(front), "etc/pki/front.key": front.private_key_pem.bytes()}
    loaded = _load_at(now, files)
    found = [line for line in lines_of(loaded) if "pki/front.crt" in line]
    words = f"5: warning: front end: the certificate pki/front.crt {expected}; renew it, then reload"
    assert found == ([words] if expected else [])
    assert loaded.configuration is not None


def _load_at(now: datetime, files: dict[str, bytes]) -> Loaded:
    there = {**pki(), **files, PATH: WHOLE.encode()}
    return load(PATH, there.__getitem__, now=now)


EXTERNAL = """
[[virtual_directories]]
server = "CAS-01"
service = "owa"
internal_url = "https://mail.contoso.com/owa"
external_url = "https://www.contoso.com/owa"
[arrays.outlook]
site = "usa"
fqdn = "outlook.contoso.com"
members = ["CAS-01"]
"""


@pytest.mark.parametrize(
    ("names", "text", "missing"),
    [
        (("mail.contoso.com",), WHOLE, ""),
        (("MAIL.contoso.com", "x.example"), WHOLE, ""),
        (("*.contoso.com",), WHOLE, ""),
        (("*.com",), WHOLE, "mail.contoso.com"),
        (("other.example",), WHOLE, "mail.contoso.com"),
        (("mail.contoso.com",), WHOLE + EXTERNAL, "www.contoso.com, outlook.contoso.com"),
        (("www.contoso.com", "outlook.contoso.com"), WHOLE + EXTERNAL, ""),
    ],
)
def test_the_certificate_stands_for_the_names_that_clients_use(names: tuple[str, ...], text: str, missing: str) -> None:
    """External URLs and arrays, or else the server's own name; a wildcard is for one label."""
    found = lines_of(load_text(text, pki(*names)))
    words = f"5: warning: front end: the certificate does not stand for {missing}: clients will refuse it"
    assert [line.partition(";")[0] for line in found] == ([words] if missing else [])


def test_certificate_and_key_in_one_file() -> None:
    """As some tools write them; a fault of the file is said once."""
    text = WHOLE.replace('private_key = "pki/front.key"\n', "")
    files = pki()
    both = files["etc/pki/front.key"] + files["etc/pki/front.crt"]
    loaded = load_text(text, {"etc/pki/front.crt": both})
    assert lines_of(loaded) == []
    assert loaded.require().front_end.private_key == both
    assert [line.partition(";")[0] for line in lines_of(load_text(text))] == [
        "5: front end: the private key in pki/front.crt holds no private key in PEM form"
    ]
    assert load_text(text, {"etc/pki/front.crt": b""}).errors == 1


@pytest.mark.parametrize(("mode", "warned"), [(0o600, 0), (0o640, 0), (0o644, 2), (0o604, 2)])
def test_secrets_that_every_account_may_read(mode: int, warned: int) -> None:
    """Key and password file are warned of; a group of readers is a choice."""
    found = lines_of(load_text(WHOLE, mode_of=lambda path: mode if "pki/front.crt" not in path else 0o644))
    assert len(found) == warned
    assert all("can be read by every account of this machine; chmod o-rwx" in line for line in found)


def test_the_mode_of_a_real_file(tmp_path: Path) -> None:
    """What the command line passes in."""
    file = tmp_path / "secret"
    file.touch()
    file.chmod(0o640)
    assert stat.S_IMODE(file_mode(str(file))) == 0o640


def test_secrets_are_in_no_finding_and_no_repr() -> None:
    """What is printed or logged never holds them."""
    loaded = load_text(WHOLE.replace('site = "usa"', 'site = "x"'))
    sound = load_text(WHOLE)
    for text in (str(loaded.findings), repr(loaded), repr(sound), str(sound.require())):
        assert "hush" not in text
        assert "PRIVATE KEY" not in text
