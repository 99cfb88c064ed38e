"""`[[front_end.token_issuers]]`: what is built, and every fault named with its key."""

from __future__ import annotations

import pytest
from configuration_samples import WHOLE, lines_of, load_text
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from gatepost.directory.settings import TokenMethod
from gatepost.organization.model import SignInForm
from gatepost.peers.login_token import make_key

KEY = generate_private_key(SECP256R1()).public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
TOKEN = """
[[front_end.token_issuers]]
issuer = "https://id.example"
audiences = ["mail"]
key = "jwt.pem"
"""
ASKED = """
[[front_end.token_issuers]]
issuer = "https://other.example"
method = "introspection"
client_id = "us"
client_secret_file = "secret"
domains = ["Contoso.com"]
scopes = ["mail"]
protocol_scopes = { imap = ["mail.imap"] }
"""


def test_issuers() -> None:
    """The key and the secret are read; the defaults are those of the settings."""
    files = {"etc/jwt.pem": KEY, "etc/secret": b"hush\n"}
    first, second = load_text(WHOLE + TOKEN + ASKED, files).require().front_end.token_issuers
    assert (first.key, first.issuer, first.audiences) == (KEY, "https://id.example", ("mail",))
    assert (first.user_claim, first.algorithms) == ("email", ("RS256", "ES256", "EdDSA"))
    assert (second.method, second.client_secret, second.domains) == (
        TokenMethod.INTROSPECTION, "hush", ("contoso.com",),
    )  # fmt: skip
    assert second.needed("imap") == ("mail", "mail.imap")
    assert second.needed("pop3") == ("mail",)
    assert "hush" not in repr(second)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("audiences", 'algorithms = ["HS256", "ES256"]\naudiences', 'signature algorithm "HS256" does not exist'),
        ("audiences", "algorithms = []\naudiences", "front end: no signature algorithm"),
        ("audiences", 'algorithms = ["RS256"]\naudiences', "the token key jwt.pem: fits none of the algorithms"),
        ('["mail"]', "[]", "front end: no audience"),
        ('"https://id.example"', '""', "front end: issuer of the token issuer is empty"),
        ('"https://id.example"', '"https://id.example"\nuser_claim = ""', "user_claim of the token issuer is empty"),
        ('key = "jwt.pem"', 'jwks_uri = "http://id.example/keys"', "is in clear text and on another machine"),
        ('key = "jwt.pem"', 'jwks_uri = "id.example/keys"', 'the jwks_uri "id.example/keys"'),
        ('key = "jwt.pem"', 'key = "jwt.pem"\njwks_uri = "https://id.example/k"', "both key and jwks_uri"),
        ('key = "jwt.pem"\n', 'key = "jwt.pem"\nclient_id = "us"\n', 'client_id does nothing with method = "keys"'),
        ('"https://id.example"', '"id"', ""),
        ('key = "jwt.pem"', "", ""),
        ('"https://id.example"\n', '"http://id.example"\njwks_uri = ""\n', ""),
        ('key = "jwt.pem"', 'protocol_scopes = { imp = ["x"] }', 'protocol "imp" does not exist'),
        ('key = "jwt.pem"', 'method = "asking"', 'unknown word "asking"'),
        ('key = "jwt.pem"', 'method = "introspection"', "no client_id"),
        ("audiences", 'method = "introspection"\nclient_id = "x"\naudiences', "key does nothing"),
    ],
)  # fmt: skip
def test_faults(before: str, after: str, expected: str) -> None:
    """A shared-secret algorithm is refused above all: the public key would be the secret. No text: no fault."""
    found = lines_of(load_text(WHOLE + TOKEN.replace(before, after, 1), {"etc/jwt.pem": KEY}))
    assert len(found) == (1 if expected else 0), found
    assert not expected or expected in found[0]


def test_an_issuer_that_is_found_by_its_metadata_needs_an_address() -> None:
    """By its name alone nobody could ask it."""
    text = TOKEN.replace('key = "jwt.pem"', "").replace("https://id.example", "id")
    found = lines_of(load_text(WHOLE + text))
    assert len(found) == 1
    assert 'the issuer "id"' in found[0]


def test_a_key_that_is_none() -> None:
    found = lines_of(load_text(WHOLE + TOKEN, {"etc/jwt.pem": b"none"}))
    assert len(found) == 1
    assert "the token key jwt.pem holds no public key in PEM form" in found[0]


def test_an_issuer_is_there_once_and_opaque_tokens_go_to_one() -> None:
    asked = ASKED.replace("client_secret_file", "#")
    found = lines_of(load_text(WHOLE + TOKEN + TOKEN, {"etc/jwt.pem": KEY}))
    assert "is there twice" in found[0]
    found = lines_of(load_text(WHOLE + asked + asked.replace("other", "third")))
    assert len(found) == 1
    assert "shown to the first" in found[0]


ASSERTION = 'form = "assertion"\nassertion_key_file = "assertion.key"\nmaster_user = '


def test_the_key_that_signs_users_in_at_a_server() -> None:
    """It is read with the server, and is in no text."""
    text = WHOLE.replace('form = "master-name"\nmaster_user = ', ASSERTION, 1)
    assert text != WHOLE
    pem = make_key()
    organization = load_text(text, {"etc/assertion.key": pem}).require().organization
    sign_in = organization.servers["MBX-01"].sign_in
    assert (sign_in.form, sign_in.assertion_key) == (SignInForm.ASSERTION, pem)
    assert "PRIVATE" not in repr(organization)
    for content in (b"rubbish", KEY):
        found = lines_of(load_text(text, {"etc/assertion.key": content}))
        assert len(found) == 1
        assert "the assertion key assertion.key is no private key" in found[0]
    assert (
        "needs a key to sign with" in lines_of(load_text(text.replace('assertion_key_file = "assertion.key"', "")))[0]
    )
