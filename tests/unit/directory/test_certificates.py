"""Clients' certificates: whose one is, revoked, expired, and CRLs that cannot be used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from cryptography import x509
from few_users import FewUsers
from users_pki import DAY, NOW, UPN, Issued, UsersAuthority, email, upn

from gatepost.directory.certificate_sign_in import ExternalExchange
from gatepost.directory.certificates import MAX_CRL, CertificateNotJudged, CertificateRefused, Certificates
from gatepost.directory.policy.policy import SignInPolicy
from gatepost.directory.policy.settings import PolicySettings, Rule
from gatepost.directory.port import SignInResult, User, Verdict
from gatepost.directory.settings import CertificateSettings, NameSource
from gatepost.directory.sign_in import SignInService
from gatepost.organization.model import Protocol
from gatepost.routing.decision import Mailbox

AUTHORITY = UsersAuthority()
OTHER = UsersAuthority("Other users")
ANNA = User("anna@contoso.com", Mailbox("DB01"))
GONE = User("gone@contoso.com", Mailbox("DB01"), disabled=True)
IMAP = Protocol.IMAP
CLIENT = "192.0.2.1"
UPN_FIRST = (NameSource.UPN, NameSource.EMAIL)


def _certificates(crl: Path | None = None, names: tuple[NameSource, ...] = UPN_FIRST) -> Certificates:
    path = "" if crl is None else str(crl)
    return Certificates(CertificateSettings(AUTHORITY.pem + OTHER.pem, path, frozenset({IMAP}), names=names))


@pytest.fixture
def crl(tmp_path: Path) -> Path:
    path = tmp_path / "users.crl"
    path.write_bytes(AUTHORITY.crl())
    return path


# --- names


@pytest.mark.parametrize(
    ("issued", "names", "name"),
    [
        (AUTHORITY.issue(upn("anna@contoso.com"), email("a.b@contoso.com")), UPN_FIRST, "anna@contoso.com"),
        (AUTHORITY.issue(email("a.b@contoso.com"), upn("anna@contoso.com")), UPN_FIRST, "anna@contoso.com"),
        (AUTHORITY.issue(email("a.b@contoso.com")), UPN_FIRST, "a.b@contoso.com"),
        (AUTHORITY.issue(upn("ü" * 70 + "@x.y")), UPN_FIRST, "ü" * 70 + "@x.y"),
        (AUTHORITY.issue(email("a.b@contoso.com"), common_name="anna"), (NameSource.COMMON_NAME,), "anna"),
    ],
)
def test_whose_it_is(issued: Issued, names: tuple[NameSource, ...], name: str) -> None:
    assert _certificates(names=names).name_of(issued.der, NOW) == name


@pytest.mark.parametrize(
    "issued",
    [
        AUTHORITY.issue(),
        AUTHORITY.issue(x509.DNSName("anna.contoso.com")),
        AUTHORITY.issue(x509.OtherName(x509.ObjectIdentifier("1.2.3.4"), b"\x0c\x04anna")),
        AUTHORITY.issue(x509.OtherName(UPN, b"\x16\x04anna")),
        AUTHORITY.issue(x509.OtherName(UPN, b"\x0c\x02\xff\xff")),
        AUTHORITY.issue(x509.OtherName(UPN, b"\x0c\x00")),
    ],
)
def test_without_a_name_where_one_is_looked_for_it_is_nobodys(issued: Issued) -> None:
    """The subject's common name counts only where that is wanted."""
    with pytest.raises(CertificateRefused, match="no name"):
        _certificates().name_of(issued.der, NOW)


# --- time and revocation


@pytest.mark.parametrize(("begins", "ends"), [(NOW - 3 * DAY, NOW - DAY), (NOW + DAY, NOW + 2 * DAY)])
def test_out_of_its_time(begins: object, ends: object) -> None:
    issued = AUTHORITY.issue(upn("anna"), begins=begins, ends=ends)  # type: ignore[arg-type]
    with pytest.raises(CertificateRefused, match="expired"):
        _certificates().name_of(issued.der, NOW)


def test_one_that_expires_while_its_connection_lasts() -> None:
    found, issued = _certificates(), AUTHORITY.issue(upn("anna"))
    assert found.name_of(issued.der, NOW) == "anna"
    with pytest.raises(CertificateRefused, match="expired"):
        found.name_of(issued.der, NOW + 2 * DAY)


def test_a_revoked_one_and_a_crl_that_changes(crl: Path) -> None:
    found, anna, otto = _certificates(crl), AUTHORITY.issue(upn("anna")), AUTHORITY.issue(upn("otto"))
    assert found.name_of(anna.der, NOW) == "anna"
    crl.write_bytes(AUTHORITY.crl(anna))
    os.utime(crl, ns=(1, 1))
    with pytest.raises(CertificateRefused, match="revoked"):
        found.name_of(anna.der, NOW)
    assert found.name_of(otto.der, NOW) == "otto"
    crl.write_bytes(AUTHORITY.crl())
    os.utime(crl, ns=(2, 2))
    assert found.name_of(anna.der, NOW) == "anna"


def test_one_file_with_the_crls_of_several(crl: Path) -> None:
    found, issued = _certificates(crl), OTHER.issue(upn("otto"))
    with pytest.raises(CertificateNotJudged, match="no CRL of"):
        found.name_of(issued.der, NOW)
    crl.write_bytes(AUTHORITY.crl() + OTHER.crl(issued))
    os.utime(crl, ns=(1, 1))
    with pytest.raises(CertificateRefused, match="revoked"):
        found.name_of(issued.der, NOW)


def test_crls_that_cannot_be_used_are_a_fault_of_ours(crl: Path) -> None:
    """Away, garbage, outdated, of somebody else: nobody is told that theirs is wrong, and nobody is let in."""
    issued = AUTHORITY.issue(upn("anna"))
    for number, content in enumerate(
        (None, b"garbage", b"-----BEGIN X509 CRL-----\n", AUTHORITY.crl(ends=NOW - DAY), AUTHORITY.crl(signed_by=OTHER))
    ):
        if content is None:
            crl.unlink()
        else:
            crl.write_bytes(content)
            os.utime(crl, ns=(number, number))
        with pytest.raises(CertificateNotJudged):
            _certificates(crl).name_of(issued.der, NOW)
    crl.write_bytes(AUTHORITY.crl())
    assert _certificates(crl).name_of(issued.der, NOW) == "anna"


def test_what_is_no_certificate() -> None:
    with pytest.raises(CertificateRefused):
        _certificates().name_of(b"\x30\x03garbage", NOW)


# --- the sign-in


def _service(settings: PolicySettings | None = None) -> tuple[SignInService, FewUsers]:
    directory, policy = FewUsers(ANNA, GONE, sales=ANNA), SignInPolicy(settings or PolicySettings())
    service = SignInService(
        directory, "contoso.com", waiting_limit=1, per_address=1, dummy_hash="x", threads=1, policy=policy
    )
    service.certificates, service.utc = _certificates(), lambda: NOW
    return service, directory


async def _judge(service: SignInService, issued: Issued | None, said: bytes = b"") -> SignInResult:
    exchange = ExternalExchange(service, issued.der if issued else b"", IMAP, CLIENT)
    result = await exchange.step(said)
    assert isinstance(result, SignInResult)
    return result


@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        ("anna@contoso.com", Verdict.SIGNED_IN),
        ("Sales", Verdict.SIGNED_IN),
        ("gone", Verdict.WRONG_CREDENTIALS),
        ("nobody", Verdict.WRONG_CREDENTIALS),
        ("a b", Verdict.WRONG_CREDENTIALS),
    ],
)
async def test_the_directory_says_who_that_is(name: str, verdict: Verdict) -> None:
    service, _ = _service()
    assert (await _judge(service, AUTHORITY.issue(upn(name)))).verdict is verdict
    service.close()


async def test_without_a_certificate_there_is_no_external() -> None:
    service, _ = _service()
    assert (await _judge(service, None)).reason == "no certificate"
    assert (await _judge(service, AUTHORITY.issue(upn("anna")), b"\xff")).reason.startswith("EXTERNAL: ")
    service.close()


async def test_faults_are_told_as_faults(tmp_path: Path) -> None:
    service, directory = _service()
    directory.down = True
    assert (await _judge(service, AUTHORITY.issue(upn("anna")))).verdict is Verdict.UNAVAILABLE
    directory.down = False
    service.certificates = _certificates(tmp_path / "missing.crl")
    assert (await _judge(service, AUTHORITY.issue(upn("anna")))).verdict is Verdict.UNAVAILABLE
    service.close()


async def test_rules_for_own_passwords_do_not_concern_it_and_all_others_do() -> None:
    rule = Rule(allow=False, protocols=frozenset({IMAP}))
    service, _ = _service(PolicySettings(main_passwords=(rule,)))
    assert (await _judge(service, AUTHORITY.issue(upn("anna")))).verdict is Verdict.SIGNED_IN
    service.policy.set_settings(PolicySettings(rules=(rule,)))
    assert (await _judge(service, AUTHORITY.issue(upn("anna")))).verdict is Verdict.PROTOCOL_NOT_ALLOWED
    service.close()


# --- what authorities publish, and what stands in files


def _point(**more: bool) -> x509.IssuingDistributionPoint:
    words = ("only_contains_user_certs", "only_contains_ca_certs", "indirect_crl", "only_contains_attribute_certs")
    return x509.IssuingDistributionPoint(None, None, only_some_reasons=None, **dict.fromkeys(words, False) | more)


@pytest.mark.parametrize(
    ("extension", "said"),
    [
        (x509.DeltaCRLIndicator(1), "a delta CRL"),
        (_point(only_contains_ca_certs=True), "not of users' certificates"),
        (_point(only_contains_attribute_certs=True), "not of users' certificates"),
        (_point(indirect_crl=True), "of several authorities"),
        (x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), b"\x05\x00"), "critical extension"),
    ],
)
def test_a_part_of_a_crl_is_not_taken_for_the_whole(crl: Path, extension: x509.ExtensionType, said: str) -> None:
    """RFC 5280 section 5.2: who is revoked in the whole would get in where the part was put in its place."""
    crl.write_bytes(AUTHORITY.crl(extension=extension))
    with pytest.raises(CertificateNotJudged, match=said):
        _certificates(crl).name_of(AUTHORITY.issue(upn("anna")).der, NOW)


def test_a_crl_of_users_certificates_alone_will_do(crl: Path) -> None:
    crl.write_bytes(AUTHORITY.crl(extension=_point(only_contains_user_certs=True)))
    assert _certificates(crl).name_of(AUTHORITY.issue(upn("anna")).der, NOW) == "anna"


def test_a_pipe_in_the_place_of_the_crl_holds_nobody_up(crl: Path) -> None:
    crl.unlink()
    os.mkfifo(crl)
    with pytest.raises(CertificateNotJudged, match="no file"):
        _certificates(crl).name_of(AUTHORITY.issue(upn("anna")).der, NOW)


def test_a_file_that_is_larger_than_any_crl_is_not_read(crl: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_bytes", lambda path: pytest.fail(f"{path} was read"))
    os.truncate(crl, MAX_CRL + 1)
    with pytest.raises(CertificateNotJudged, match="larger than any CRL"):
        _certificates(crl).name_of(AUTHORITY.issue(upn("anna")).der, NOW)


@pytest.mark.parametrize("name", ["3002a300", "3004a5028100"])
def test_names_of_kinds_that_nobody_reads_refuse_the_certificate_alone(name: str) -> None:
    """An x400Address and an ediPartyName: the library has an error of its own for them."""
    issued = AUTHORITY.issue(names_der=bytes.fromhex(name))
    with pytest.raises(CertificateRefused, match="cannot be read"):
        _certificates().name_of(issued.der, NOW)
