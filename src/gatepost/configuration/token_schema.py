"""The shape of `[[front_end.token_issuers]]`. The string under each key is its entry in `docs/configuration.md`."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field

from gatepost.configuration.tables import MAX_SECONDS, Table, default_of
from gatepost.configuration.words import by_value, reader
from gatepost.directory.settings import TokenIssuer, TokenMethod

MethodWord = Annotated[TokenMethod, BeforeValidator(reader(by_value(TokenMethod)))]


class TokenIssuerTable(Table):
    """Whose bearer tokens are taken: OAUTHBEARER and XOAUTH2 for mail, HTTP Bearer at virtual directories with
    `oauth`; see `docs/oauth.md`. Without any, tokens are not offered."""

    issuer: str = Field(examples=['"https://id.contoso.com"'])
    """What the token's `iss` must be, letter for letter."""
    audiences: list[str] = Field(default=[], examples=['["mail"]'])
    """One of these must be in the token's `aud`. Only for `introspection` it may be empty: then any will do."""
    method: MethodWord = Field(default=default_of(TokenIssuer, "method"), examples=['"introspection"'])
    """`keys`: tokens are JWTs, judged here by the issuer's public keys. `introspection`: the issuer is asked about
    each (RFC 7662)."""
    key: str = Field(default="", examples=['"pki/tokens.pem"'])
    """File with the issuer's public key, PEM, where it never changes. Then nothing is fetched."""
    jwks_uri: str = Field(default="", examples=['"https://id.contoso.com/keys"'])
    """Where the issuer's keys are. Empty: the issuer's metadata say so (OpenID Connect Discovery, RFC 8414)."""
    introspection_uri: str = Field(default="", examples=['"https://id.contoso.com/introspect"'])
    """Where the issuer is asked about tokens. Empty: its metadata say so."""
    client_id: str = Field(default="", examples=['"gatepost"'])
    """Whom the issuer knows as the one who asks."""
    client_secret_file: str = Field(default="", examples=['"secrets/oauth-client"'])
    """File with its secret; a line end at its end is dropped."""
    ca: str = Field(default="", examples=['"pki/id-ca.crt"'])
    """File with the certificates that sign the issuer's. Empty: the system's."""
    algorithms: list[str] = Field(default=list(default_of(TokenIssuer, "algorithms")), examples=['["ES256"]'])
    """Signature algorithms that are accepted."""
    token_types: list[str] = Field(default=list(default_of(TokenIssuer, "token_types")), examples=['["at+jwt"]'])
    """What the token's `typ` may be; one without counts as `JWT`. With `at+jwt` alone (RFC 9068) nothing but an access
    token passes."""
    user_claim: str = Field(default=default_of(TokenIssuer, "user_claim"), examples=['"upn"'])
    """The claim that holds the login name."""
    domains: list[str] = Field(default=[], examples=['["contoso.com"]'])
    """Domains whose users this issuer may speak for. Empty: everybody's, which is for your own issuer."""
    scopes: list[str] = Field(default=[], examples=['["mail"]'])
    """Scopes that a token needs for every protocol (`scope` or `scp`)."""
    protocol_scopes: dict[str, list[str]] = Field(
        default={}, examples=['{ imap = ["mail.imap"], https = ["mail.web"] }']
    )
    """Scopes that it needs besides for one protocol: `imap`, `pop3`, `submission`, `https`."""
    keys_seconds: float = Field(
        default=default_of(TokenIssuer, "keys_seconds"), gt=0, le=MAX_SECONDS, examples=["60.0"]
    )
    """How long the keys are taken as they were fetched; a key that is not known is looked for at once besides."""
    outage_seconds: float = Field(
        default=default_of(TokenIssuer, "outage_seconds"), ge=0, le=MAX_SECONDS, examples=["3600.0"]
    )
    """While the keys cannot be fetched: how long they are taken as they were last, after that."""
    introspection_seconds: float = Field(
        default=default_of(TokenIssuer, "introspection_seconds"), ge=0, le=MAX_SECONDS, examples=["10.0"]
    )
    """How long an active token is taken without asking again: so late is it seen that it was revoked."""
    seconds: float = Field(default=default_of(TokenIssuer, "seconds"), gt=0, le=MAX_SECONDS, examples=["2.0"])
    """The longest for one question to the issuer."""
