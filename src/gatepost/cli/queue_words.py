"""Words that the commands on queues share."""

from __future__ import annotations

from datetime import UTC, datetime


def moment(seconds: float) -> str:
    """A time in seconds since 1970 on this machine's clock face, `-` for none."""
    if not seconds or seconds == float("inf"):
        return "-"
    return datetime.fromtimestamp(seconds, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
