"""Front ends of one name must have one key, or a signed-in user is a stranger at the other (SPEC B6)."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
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
    found = list(compare({"a.toml": _configuration(), "b.toml": there}))
    assert [located.finding.message for located in found] == [
        "its organization is not that of a.toml: server CAS-01 differs in fqdn"
    ]


def _different(text: str) -> list[str]:
    """What the second of two files is told."""
    files = {"a.toml": _configuration(), "b.toml": load_text(text, pki()).require()}
    found = list(compare(files))
    assert all(located.file == "b.toml" and not located.is_error for located in found)
    return [located.finding.message for located in found]


@pytest.mark.parametrize(
    ("old", "new", "difference"),
    [
        ('name = "contoso"', 'name = "Contoso"', "name differs"),
        ('["contoso.com"]', '["contoso.com", "fabrikam.com"]', "accepted_domains differs"),
        ("https = { port = 8443 }", "https = { port = 9443 }", "server MBX-01 differs in endpoints"),
        ("preference = 3", "preference = 9", "database DB01 differs in copies"),
        ("[sites.usa]", "[sites.asia]\n[sites.usa]", "site asia is only here"),
        ("[databases.DB01]", "[databases.DB02]", "database DB01 is missing"),
        ('master_user = "gatepost"', 'master_user = "other"', "server MBX-01 differs in sign_in"),
    ],
)
def test_the_first_difference_of_one_organization_is_named(old: str, new: str, difference: str) -> None:
    """One finding a file, without values: a master password would be among them."""
    assert WHOLE.count(old) == 1
    assert _different(WHOLE.replace(old, new)) == [f"its organization is not that of a.toml: {difference}"]


def test_what_one_machine_keeps_elsewhere_is_no_difference() -> None:
    """Paths of files; and another order says nothing else."""
    assert _different(WHOLE.replace("version = 2010\n", 'version = 2010\nserver_ca = "pki/ca.crt"\n')) == []
    more = "[sites.asia]\n[sites.europe]\n"
    one, two = (load_text(WHOLE + text, pki()).require() for text in (more, "[sites.europe]\n[sites.asia]\n"))
    assert list(compare({"a.toml": one, "b.toml": two})) == []


def test_other_organizations_are_not_compared() -> None:
    """They share neither servers nor a name that clients know."""
    other = WHOLE.replace('"contoso"', '"fabrikam"').replace("mail.contoso.com", "mail.fabrikam.com")
    other = other.replace("MBX-02", "MBX-09")
    files = {"a.toml": _configuration(), "b.toml": load_text(other, pki("mail.fabrikam.com")).require()}
    assert list(compare(files)) == []


PAGE = """
[[virtual_directories]]
server = "CAS-01"
service = "owa"
path = "/owa"
authentication = ["forms"]
"""


def test_front_ends_of_one_name_show_the_sign_in_page_alike() -> None:
    """A browser would be asked by one and shown a page by the other."""
    files = {"a.toml": _configuration(), "b.toml": load_text(WHOLE + PAGE, pki()).require()}
    said = [located.finding.message for located in compare(files)]
    assert said == [
        (
            "clients know it and the front end of a.toml as mail.contoso.com, "
            "but only this one shows a sign-in page at /owa"
        ),
        "its organization is not that of a.toml: virtual directory /owa of CAS-01 differs in internal_url",
    ]
    (page, _) = compare(dict(reversed(files.items())))
    assert "but only that of b.toml shows a sign-in page at /owa" in str(page)


def test_a_renewed_certificate_with_the_same_key_is_no_fault() -> None:
    """It is the key from which the cookie's key is derived."""
    certificate = leaf("mail.contoso.com", not_after=datetime(2027, 3, 1, tzinfo=UTC))
    files = {"etc/pki/front.crt": chain(certificate), "etc/pki/front.key": certificate.private_key_pem.bytes()}
    one, two = load_text(WHOLE, files).require(), load_text(WHOLE, files).require()
    assert list(compare({"a.toml": one, "b.toml": two})) == []
