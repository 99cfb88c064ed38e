"""What all tables of the TOML files share: the base class, and defaults that are written once."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

from pydantic import BaseModel, ConfigDict

MAX_SECONDS = 7 * 86400.0
"""A week: a longer wait is a slip of the pen."""
MAX_COUNT = 10_000_000
"""No count of the limits has a use beyond this; larger ones are slips too."""


def default_of(settings: type[Any], name: str) -> Any:  # noqa: ANN401 - defaults are of any type
    """The default of a frozen dataclass's field, so that a default is written once."""
    return next(f.default for f in fields(settings) if f.name == name and f.default is not MISSING)


class Table(BaseModel):
    """A table of the file: unknown keys are faults, and nothing is converted behind the operator's back."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
