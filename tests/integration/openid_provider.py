"""A small OpenID provider of Authlib, as a process: metadata, keys that change, tokens for passwords, introspection.

`POST /control` (JSON) changes its ways: `keys` (names of published keys), `sign` (the one that signs), `fault`
(`garbage`, `huge`, `slow`, empty). Run as a program it takes address, port, certificate, key, URL, folder.
"""

from __future__ import annotations

import json
import secrets
import ssl
import sys
import time
import urllib.parse
import urllib.request
from base64 import b64encode
from pathlib import Path
from typing import Any

from gatepost.lab.servers.pki import CertificateFiles
from gatepost.lab.servers.process import ServerProcess, free_ports

CLIENT, SECRET = "gatepost", "hush: a secret"
USERS = {"alice": "apw", "bob": "bpw"}
SLOW_SECONDS = 1.0


class OpenIdProvider(ServerProcess):
    """The process, and what a client asks of it."""

    def __init__(self, directory: Path, address: str, certificate: CertificateFiles, authority: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.port = free_ports(address, 1)[0]
        self.issuer = f"https://{address}:{self.port}"
        files = [str(certificate.certificate), str(certificate.private_key)]
        argv = [sys.executable, __file__, address, str(self.port), *files, self.issuer, str(directory)]
        super().__init__("openid", argv, directory, [(address, self.port)])
        self._context = ssl.create_default_context(cafile=str(authority))

    def control(self, **changes: Any) -> None:
        """Change its ways."""
        self._ask("/control", json.dumps(changes).encode(), {"content-type": "application/json"})

    def token(self, user: str, *, scope: str = "mail", audience: str = "mail", opaque: bool = False) -> str:
        """An access token for a user's password."""
        form = {"grant_type": "password", "username": user, "password": USERS[user], "scope": scope}
        body = urllib.parse.urlencode(form | {"audience": audience, "opaque": "1" if opaque else ""}).encode()
        basic = b64encode(f"{CLIENT}:{urllib.parse.quote_plus(SECRET)}".encode()).decode()
        answer = self._ask("/token", body, {"authorization": f"Basic {basic}"})
        return str(json.loads(answer)["access_token"])

    def revoke(self, token: str) -> None:
        """The token is active no longer."""
        self.control(revoke=token)

    def _ask(self, path: str, body: bytes, headers: dict[str, str]) -> bytes:
        request = urllib.request.Request(self.issuer + path, body, headers)
        with urllib.request.urlopen(request, timeout=30, context=self._context) as answer:
            return bytes(answer.read())


def make_app(issuer: str, folder: Path) -> Any:
    """The provider's application; its keys are in `folder`."""
    from authlib.integrations.flask_oauth2 import AuthorizationServer
    from authlib.oauth2.rfc6749 import ClientMixin, grants
    from authlib.oauth2.rfc7662 import IntrospectionEndpoint
    from authlib.oauth2.rfc9068 import JWTBearerTokenGenerator
    from flask import Flask, Response, jsonify, request
    from joserfc import jwt
    from joserfc.jwk import ECKey

    app = Flask("openid")

    def key(name: str) -> Any:
        """Made when it is first asked for, and the same after a restart."""
        file = folder / f"{name}.jwk"
        if not file.exists():
            made = ECKey.generate_key("P-256", {"kid": name, "use": "sig", "alg": "ES256"})
            file.write_text(json.dumps(made.as_dict(private=True)))
        return ECKey.import_key(json.loads(file.read_text()))

    ways: dict[str, Any] = {"keys": ["one"], "sign": "one", "fault": ""}
    active: dict[str, dict[str, Any]] = {}

    class Client(ClientMixin):
        client_id = CLIENT

        def get_client_id(self) -> str:
            return CLIENT

        def get_allowed_scope(self, scope: str) -> str:
            return scope

        def check_client_secret(self, client_secret: str) -> bool:
            return secrets.compare_digest(urllib.parse.unquote_plus(client_secret), SECRET)

        def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
            return method == "client_secret_basic"

        def check_grant_type(self, grant_type: str) -> bool:
            return grant_type == "password"

    class User:
        def __init__(self, name: str) -> None:
            self.name = name

        def get_user_id(self) -> str:
            return self.name

    class PasswordGrant(grants.ResourceOwnerPasswordCredentialsGrant):  # type: ignore[misc]
        TOKEN_ENDPOINT_AUTH_METHODS = ("client_secret_basic",)

        def authenticate_user(self, username: str, password: str) -> User | None:
            return User(username) if USERS.get(username) == password else None

    class AccessTokens(JWTBearerTokenGenerator):  # type: ignore[misc]
        def get_jwks(self) -> Any:
            return key(ways["sign"])

        def get_audiences(self, client: Any, user: Any, scope: Any) -> list[str]:
            return request.form["audience"].split()

        def get_extra_claims(self, client: Any, grant_type: Any, user: Any, scope: Any) -> dict[str, str]:
            return {"email": f"{user.name}@contoso.com"}

        def access_token_generator(self, client: Any, grant_type: Any, user: Any, scope: Any) -> str:
            if not request.form.get("opaque"):
                made = str(super().access_token_generator(client, grant_type, user, scope))
                signing = key(ways["sign"])
                header = {"alg": "ES256", "typ": "at+jwt", "kid": ways["sign"]}
                return str(jwt.encode(header, jwt.decode(made, signing).claims, signing))
            token = secrets.token_urlsafe(24)
            active[token] = {
                "active": True, "iss": issuer, "scope": scope, "exp": int(time.time()) + 600, "token_type": "Bearer",
                "aud": request.form["audience"].split(), "email": f"{user.name}@contoso.com",
            }  # fmt: skip
            return token

    class Introspection(IntrospectionEndpoint):  # type: ignore[misc]
        CLIENT_AUTH_METHODS = ("client_secret_basic",)

        def query_token(self, token: str, token_type_hint: str | None) -> Any:
            return active.get(token)

        def check_permission(self, token: Any, client: Any, request: Any) -> bool:
            return True

        def introspect_token(self, token: dict[str, Any]) -> dict[str, Any]:
            return token

        def create_introspection_payload(self, token: Any) -> dict[str, Any]:
            return {"active": False} if token is None else dict(token)

    server = AuthorizationServer(app, query_client=lambda _: Client(), save_token=lambda token, request: None)
    server.register_grant(PasswordGrant)
    server.register_endpoint(Introspection)
    server.register_token_generator("default", AccessTokens(issuer, alg="ES256"))

    @app.before_request
    def _fault() -> Any:
        if request.path in ("/control", "/token"):
            return None
        if ways["fault"] == "garbage":
            return Response("<html>\xff garbage", content_type="application/json")
        if ways["fault"] == "huge":
            return Response((b" " * 65536 for _ in range(400)), content_type="application/json")
        if ways["fault"] == "slow":
            time.sleep(SLOW_SECONDS)
        return None

    @app.get("/.well-known/openid-configuration")
    def _metadata() -> Any:
        uris = {"jwks_uri": f"{issuer}/jwks", "introspection_endpoint": f"{issuer}/introspect"}
        return jsonify({"issuer": issuer, "token_endpoint": f"{issuer}/token", **uris})

    @app.get("/jwks")
    def _jwks() -> Any:
        return jsonify({"keys": [key(name).as_dict(private=False) for name in ways["keys"]]})

    @app.post("/token")
    def _token() -> Any:
        return server.create_token_response()

    @app.post("/introspect")
    def _introspect() -> Any:
        return server.create_endpoint_response("introspection")

    @app.post("/control")
    def _control() -> Any:
        changes = request.get_json()
        active.pop(changes.pop("revoke", ""), None)
        ways.update(changes)
        return jsonify({})

    return app


def main() -> None:
    """Serve until the end."""
    from werkzeug.serving import make_server

    address, port, certificate, key, issuer, folder = sys.argv[1:]
    make_server(
        address, int(port), make_app(issuer, Path(folder)), threaded=True, ssl_context=(certificate, key)
    ).serve_forever()


if __name__ == "__main__":
    main()
