"""The examples as a test loads them: with every file that they name, and with changes of their text."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

from configuration_samples import NOW, authority, chain, leaf

from gatepost.configuration.load import Loaded, load
from gatepost.organization.model import Role, Server, Version
from gatepost.peers.ca import Authority, KeyPair, make_authority

EXAMPLES = Path(__file__).parents[3] / "examples"
NAMES = (
    "mail.example.com", "www.contoso.com", "www.usa.contoso.com", "www.europe.contoso.com", "cas.branch.contoso.com",
    "cas-01.contoso.com", "cas-02.contoso.com", "cas-03.contoso.com", "hub-01.example.com",
)  # fmt: skip
"""What the front ends' certificate stands for."""


def example(name: str) -> str:
    """An example's text."""
    return (EXAMPLES / name).read_text()


@cache
def peer_files(server: str, fqdn: str) -> tuple[KeyPair, KeyPair]:
    """The organization's CA, and what it has issued for a front end."""
    organization_ca = make_authority("contoso", NOW)
    made = Server(server, "", fqdn, fqdn, Version.MODERN, frozenset({Role.CLIENT_ACCESS}))
    return organization_ca, Authority.load(organization_ca).issue(made, NOW, 397)


def _front_end(text: str, server: str | None) -> tuple[str, str]:
    """Name and full host name of the front end that the text is loaded for."""
    tables = tomllib.loads(text)
    name = server or tables["front_end"]["server"]
    return name, tables["servers"].get(name, {}).get("fqdn", name.lower())


def load_example(name: str, server: str | None = None, text: str | None = None) -> Loaded:
    """Load an example, or `text` in its place."""
    front = leaf(*NAMES)
    organization_ca, peer = peer_files(*_front_end(example(name) if text is None else text, server))

    def read(path: str) -> bytes:
        if path.endswith(".toml"):
            return text.encode() if text is not None else Path(path).read_bytes()
        contents = {
            "organization-ca.crt": organization_ca.certificate,
            "-peer.crt": peer.certificate,
            "-peer.key": peer.private_key,
            "ca.crt": authority().cert_pem.bytes(),
            "master": b"secret\n",
            ".crt": chain(front),
            ".key": front.private_key_pem.bytes(),
        }
        return next(content for end, content in contents.items() if path.endswith(end))

    return load(str(EXAMPLES / name), read, server, now=NOW)
