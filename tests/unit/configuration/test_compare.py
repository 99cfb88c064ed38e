"""Front ends of one name must have one key, or a signed-in user is a stranger at the other (SPEC B6)."""

from __future__ import annotations

from datetime import UTC, datetime

from configuration_samples import WHOLE, chain, leaf, load_text, pki

from gatepost.configuration.compare import compare
from gatepost.configuration.settings import Configuration


def _configuration(*names: str) -> Configuration:
    return load_text(WHOLE, pki(*names)).require()


def test_one_name_two_certificates() -> None:
    """The second file's certificate is warned of, with the first file's name."""
    found = list(compare({"a.toml": _configuration(), "b.toml": _configuration("mail.contoso.com", "x.example")}))
    assert [str(finding) for finding in found] == [
        (
            "b.toml: warning: front end: clients know it and the front end of a.toml as mail.contoso.com, "
            "but their certificates differ; give all front ends of one name the same certificate and key"
        )
    ]


def test_one_certificate_is_no_fault() -> None:
    """Nor is one front end alone."""
    assert list(compare({"a.toml": _configuration(), "b.toml": _configuration()})) == []
    assert list(compare({"a.toml": _configuration()})) == []


def test_other_names_may_have_other_certificates() -> None:
    """Each stands for its own name."""
    other = WHOLE.replace("mail.contoso.com", "other.contoso.com")
    there = load_text(other, pki("other.contoso.com")).require()
    assert list(compare({"a.toml": _configuration(), "b.toml": there})) == []


def test_a_renewed_certificate_with_the_same_key_is_no_fault() -> None:
    """It is the key from which the cookie's key is derived."""
    certificate = leaf("mail.contoso.com", not_after=datetime(2027, 3, 1, tzinfo=UTC))
    files = {"etc/pki/front.crt": chain(certificate), "etc/pki/front.key": certificate.private_key_pem.bytes()}
    one, two = load_text(WHOLE, files).require(), load_text(WHOLE, files).require()
    assert list(compare({"a.toml": one, "b.toml": two})) == []
