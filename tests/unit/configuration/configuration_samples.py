"""A sound configuration in one text, its files, and loading from a dictionary instead of a disk."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any

import trustme

from gatepost.configuration.load import Loaded, load

NOW = datetime(2026, 6, 1, tzinfo=UTC)
PATH = "etc/gatepost.toml"

FRONT_END = """\
[front_end]
server = "CAS-01"
directory = "state/directory.sqlite"
registry = "/var/lib/gatepost/registry.sqlite"
certificate = "pki/front.crt"
private_key = "pki/front.key"
server_ca = "pki/ca.crt"

"""

ORGANIZATION = """\
[organization]
name = "contoso"
accepted_domains = ["contoso.com"]

[sites.usa]
subnets = ["10.1.0.0/16"]
internet_facing = true

[servers.CAS-01]
site = "usa"
roles = ["client-access"]
fqdn = "mail.contoso.com"
address = "127.0.1.1"

[servers.CAS-01.endpoints]
imap = {}
imaps = { port = 10993 }
https = {}

[servers.MBX-01]
site = "usa"
roles = ["mailbox"]

[servers.MBX-01.endpoints]
imap = { tls = "clear", client_address = "id", address = "127.0.2.1" }
https = { port = 8443 }

[servers.MBX-01.sign_in]
form = "master-name"
master_user = "gatepost"
master_password_file = "secrets/mbx-01"

[servers.MBX-02]
site = "usa"
roles = ["mailbox"]
version = 2010

[databases.DB01]
copies = [
  { server = "MBX-02", preference = 7 },
  { server = "MBX-01", preference = 3 },
]
"""

WHOLE = FRONT_END + ORGANIZATION


@cache
def authority() -> trustme.CA:
    """One authority for all tests; making a key is slow."""
    return trustme.CA()


@cache
def leaf(*names: str, not_after: datetime | None = None) -> trustme.LeafCert:
    """A certificate for `names`."""
    return authority().issue_cert(*names, not_after=not_after)


def chain(certificate: trustme.LeafCert) -> bytes:
    """The certificate's chain, PEM."""
    return b"".join(blob.bytes() for blob in certificate.cert_chain_pems)


def pki(*names: str) -> dict[str, bytes]:
    """The files that `WHOLE` names, as the loader asks for them."""
    front = leaf(*(names or ("mail.contoso.com",)))
    return {
        "etc/pki/front.crt": chain(front),
        "etc/pki/front.key": front.private_key_pem.bytes(),
        "etc/pki/ca.crt": authority().cert_pem.bytes(),
        "etc/secrets/mbx-01": b"hush hush\n",
    }


def load_text(text: str | bytes, files: Mapping[str, bytes | None] | None = None, **options: Any) -> Loaded:
    """Load `text` as `PATH`; `files` are added to those of `pki`, None takes one away."""
    there: dict[str, bytes | None] = {**pki(), **(files or {})}
    there[PATH] = text.encode() if isinstance(text, str) else text

    def read(path: str) -> bytes:
        content = there.get(path)
        if content is None:
            raise FileNotFoundError(2, "No such file or directory", path)
        return content

    return load(PATH, read, now=NOW, **options)


def lines_of(loaded: Loaded) -> list[str]:
    """The findings as an operator reads them, without the file's path: `3: server …`, or ` server …` without a line."""
    return [str(finding).removeprefix(PATH).removeprefix(":") for finding in loaded.findings]


def line_of(text: str, part: str) -> int:
    """The line of the first occurrence of `part` in `text`."""
    return text[: text.index(part)].count("\n") + 1
