"""Times as operators write them: a moment on this machine's clock face, or a span before now."""

from __future__ import annotations

import re
import time
from datetime import datetime

import click

_UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|min|h|d)", re.ASCII)


def read_moment(text: str, now: float | None = None) -> float:
    """`2026-11-30 16:00`, with a zone or in this machine's, or `2h` (before now): seconds since 1970.

    Raises `click.BadParameter`.
    """
    span = _SPAN.fullmatch(text.strip())
    if span is not None:
        return (time.time() if now is None else now) - float(span[1]) * _UNITS[span[2]]
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except ValueError:
        raise click.BadParameter(f'{text!r} is no time: write "2026-11-30 16:00", or 2h for two hours ago') from None
