"""From `[[front_end.token_issuers]]` to `directory.settings.TokenIssuer`, with the faults that need the files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gatepost.configuration.document import Document
from gatepost.configuration.files import Files, Named
from gatepost.configuration.token_schema import TokenIssuerTable
from gatepost.directory.settings import TokenIssuer, TokenMethod
from gatepost.organization.addresses import is_loopback, parse_http_url
from gatepost.organization.faults import Path, error, quoted, unknown, warning
from gatepost.organization.model import CLIENT_PROTOCOLS, Finding

WHO = "front end"
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signatures by key pairs only: with a shared-secret algorithm the public key would be the secret."""
_PATH: Path = ("front_end", "token_issuers")


def build_token_issuers(
    document: Document, tables: Sequence[TokenIssuerTable], files: Files
) -> tuple[TokenIssuer, ...]:
    """The issuers as far as they can be built."""
    for finding in _judge_all(tables):
        files.findings.add(document, finding)
    return tuple(_Builder(document, (*_PATH, index), table, files).build() for index, table in enumerate(tables))


def _judge_all(tables: Sequence[TokenIssuerTable]) -> Iterator[Finding]:
    seen: set[str] = set()
    asked = 0
    for index, table in enumerate(tables):
        here: Path = (*_PATH, index)
        if table.issuer in seen:
            message = f"the issuer {quoted(table.issuer)} is there twice"
            yield error((*here, "issuer"), WHO, message, "make one entry of the two: audiences is a list")
        seen.add(table.issuer)
        asked += table.method is TokenMethod.INTROSPECTION
        if table.method is TokenMethod.INTROSPECTION and asked == 2:
            message = "tokens that do not name their issuer are shown to the first with introspection alone"
            yield warning((*here, "method"), WHO, message, "put the one that issues such tokens first")


class _Builder:
    """Builds one issuer."""

    def __init__(self, document: Document, path: Path, table: TokenIssuerTable, files: Files) -> None:
        self._document = document
        self._path = path
        self._table = table
        self._files = files

    def build(self) -> TokenIssuer:
        table = self._table
        for finding in (*self._judge(), *self._judge_uris(), *self._judge_scopes()):
            self._files.findings.add(self._document, finding)
        return TokenIssuer(
            issuer=table.issuer,
            audiences=tuple(table.audiences),
            method=table.method,
            key=self._key(),
            jwks_uri=table.jwks_uri,
            introspection_uri=table.introspection_uri,
            client_id=table.client_id,
            client_secret=self._secret(),
            ca=self._ca(),
            algorithms=tuple(table.algorithms),
            user_claim=table.user_claim,
            domains=tuple(domain.lower() for domain in table.domains),
            token_types=tuple(table.token_types),
            scopes=tuple(table.scopes),
            protocol_scopes=tuple((name, tuple(scopes)) for name, scopes in table.protocol_scopes.items()),
            keys_seconds=table.keys_seconds,
            outage_seconds=table.outage_seconds,
            introspection_seconds=table.introspection_seconds,
            seconds=table.seconds,
        )

    def _judge(self) -> Iterator[Finding]:
        path, table = self._path, self._table
        for index, algorithm in enumerate(table.algorithms):
            if algorithm not in ALGORITHMS:
                here = (*path, "algorithms", index)
                yield unknown(here, WHO, "signature algorithm", "algorithms", algorithm, ALGORITHMS)
        if not table.algorithms:
            yield error((*path, "algorithms"), WHO, "no signature algorithm", 'for example ["ES256"]')
        for key in ("issuer", "user_claim"):
            if not getattr(table, key):
                yield error((*path, key), WHO, f"{key} of the token issuer is empty", "fill it in")
        by_keys = table.method is TokenMethod.KEYS
        if by_keys and not table.audiences:
            message = "no audience: tokens that the issuer made for anybody else would do here"
            yield error((*path, "audiences"), WHO, message, 'for example ["mail"]')
        idle = ("introspection_uri", "client_id", "client_secret_file") if by_keys else ("key", "jwks_uri")
        for key in idle:
            if getattr(table, key):
                other = "introspection" if by_keys else "keys"
                message = f'{key} does nothing with method = "{table.method.value}"'
                yield error((*path, key), WHO, message, f'leave it away, or set method = "{other}"')
        if table.key and table.jwks_uri:
            message = "both key and jwks_uri: which of them counts?"
            yield error((*path, "jwks_uri"), WHO, message, "leave one of them away")
        if not by_keys and not table.client_id:
            message = "no client_id: an issuer that answers anybody tells everybody of tokens (RFC 7662 section 4)"
            yield warning((*path, "client_id"), WHO, message, "register a client there")

    def _judge_uris(self) -> Iterator[Finding]:
        table = self._table
        by_metadata = not (table.key or table.jwks_uri or table.introspection_uri)
        for key in ("jwks_uri", "introspection_uri", *(("issuer",) if by_metadata else ())):
            text = getattr(table, key)
            if not text:
                continue
            try:
                url = parse_http_url(text)
            except ValueError as fault:
                remedy = "write it like https://id.contoso.com"
                yield error((*self._path, key), WHO, f"the {key} {quoted(text)} {fault}", remedy)
                continue
            if url.scheme == "http" and not is_loopback(url.host):
                message = f"the {key} {quoted(text)} is in clear text and on another machine"
                yield error((*self._path, key), WHO, message, "use https")

    def _judge_scopes(self) -> Iterator[Finding]:
        protocols = [protocol.value for protocol in CLIENT_PROTOCOLS]
        for name in self._table.protocol_scopes:
            if name not in protocols:
                here = (*self._path, "protocol_scopes", name)
                yield unknown(here, WHO, "protocol", "protocols", name, protocols)

    def _key(self) -> bytes:
        table = self._table
        if not table.key:
            return b""
        named = Named(self._document, (*self._path, "key"), table.key, WHO, "the token key")
        pem = self._files.public_key(named)
        if pem is None:
            return b""
        from gatepost.directory.tokens.key_set import BadKeys, key_set_of_pem  # its library is for those who need it

        try:
            fitting = any(key_set_of_pem(pem).fitting("", algorithm) for algorithm in table.algorithms)
            fault = "" if fitting or not table.algorithms else "fits none of the algorithms"
        except BadKeys as bad:
            fault = str(bad)
        if fault:
            message = f"the token key {table.key}: {fault}"
            self._files.findings.add(self._document, error(named.key, WHO, message, "give the issuer's key"))
        return pem

    def _secret(self) -> str:
        file = self._table.client_secret_file
        if not file:
            return ""
        named = Named(self._document, (*self._path, "client_secret_file"), file, WHO, "the client's secret")
        return self._files.password(named) or ""

    def _ca(self) -> bytes:
        file = self._table.ca
        if not file:
            return b""
        found = self._files.certificates(Named(self._document, (*self._path, "ca"), file, WHO, "the authorities' file"))
        return found[0] if found else b""
