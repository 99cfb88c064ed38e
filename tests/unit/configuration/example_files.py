"""The examples as a test loads them: with every file that they name, and with changes of their text."""

from __future__ import annotations

from pathlib import Path

from configuration_samples import NOW, authority, chain, leaf

from gatepost.configuration.load import Loaded, load

EXAMPLES = Path(__file__).parents[3] / "examples"
NAMES = (
    "mail.example.com", "www.contoso.com", "www.usa.contoso.com", "www.europe.contoso.com", "cas.branch.contoso.com",
    "cas-02.contoso.com", "cas-03.contoso.com",
)  # fmt: skip
"""What the front ends' certificate stands for."""


def example(name: str) -> str:
    """An example's text."""
    return (EXAMPLES / name).read_text()


def load_example(name: str, server: str | None = None, text: str | None = None) -> Loaded:
    """Load an example, or `text` in its place."""
    front = leaf(*NAMES)

    def read(path: str) -> bytes:
        if path.endswith(".toml"):
            return text.encode() if text is not None else Path(path).read_bytes()
        contents = {
            "ca.crt": authority().cert_pem.bytes(),
            "master": b"secret\n",
            ".crt": chain(front),
            ".key": front.private_key_pem.bytes(),
        }
        return next(content for end, content in contents.items() if path.endswith(end))

    return load(str(EXAMPLES / name), read, server, now=NOW)
