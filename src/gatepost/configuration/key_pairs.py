"""Giving the ssl module a certificate and key that are bytes."""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path


def load_key_pair(context: ssl.SSLContext, chain: bytes, private_key: bytes) -> None:
    """Give `context` its certificate. Raises `ssl.SSLError`.

    The ssl module reads keys only from files. Ours came from the supervisor as bytes, since a worker without
    privileges cannot read the operator's file, so they pass through a private file in memory.
    """
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - the file is private and gone at once
    with (
        tempfile.NamedTemporaryFile(dir=memory, prefix="gatepost-") as certificate,
        tempfile.NamedTemporaryFile(dir=memory, prefix="gatepost-") as key,
    ):
        certificate.write(chain)
        certificate.flush()
        key.write(private_key)
        key.flush()
        context.load_cert_chain(certificate.name, key.name)
