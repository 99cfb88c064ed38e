"""The configuration on its way from the supervisor to its workers.

Workers get finished values, not files: they need no parser (a third of a worker's memory and start-up time), and no
right to read what an operator keeps from them.
"""

from __future__ import annotations

import pickle

from gatepost.configuration.settings import Configuration


def pack(configuration: Configuration) -> bytes:
    """`configuration` as bytes, secrets included: only for the socket pair between a supervisor and its own worker."""
    return pickle.dumps(configuration, pickle.HIGHEST_PROTOCOL)


def unpack(data: bytes) -> Configuration:
    """What `pack` was given. Only for bytes from the supervisor, which started this process."""
    configuration = pickle.loads(data)  # noqa: S301 - never from anyone else, never the other way
    assert isinstance(configuration, Configuration)
    return configuration
