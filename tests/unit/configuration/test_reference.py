"""`docs/configuration.md` is what the code says: no key is missing from it and no default can drift."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
from pydantic import BaseModel

from gatepost.configuration import database_schema, directory_schema, hub_schema, manager_schema, policy_schema, schema
from gatepost.configuration.reference import SECTIONS, reference
from gatepost.configuration.settings import FrontEnd, Limits
from gatepost.configuration.tables import Table
from gatepost.directory.settings import TokenIssuer

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"


def _rows(title: str) -> dict[str, list[str]]:
    """The cells of a section's table, by key."""
    section = PAGE.read_text(encoding="utf-8").split(f"`{title}`\n", 1)[1].split("\n#", 1)[0]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in section.splitlines() if "|" in line]
    return {row[0].strip("` "): row for row in cells[2:]}


def test_the_page_is_current() -> None:
    """After a change of the schema: `python -m gatepost.configuration.reference docs/configuration.md`."""
    assert PAGE.read_text(encoding="utf-8") == reference()


def test_every_limit_is_printed_with_its_default() -> None:
    """Read back from the page, independently of what wrote it."""
    rows = _rows("[front_end.limits]")
    assert {name: float(row[2].strip("`")) for name, row in rows.items()} == {
        limit.name: limit.default for limit in fields(Limits)
    }


@pytest.mark.parametrize(
    ("title", "settings"), [("[front_end]", FrontEnd), ("[[front_end.token_issuers]]", TokenIssuer)]
)
def test_defaults_of_settings(title: str, settings: type[object]) -> None:
    """The page's defaults are those of the frozen values that the workers run with."""
    defaults = {field.name: field.default for field in fields(settings)}  # type: ignore[arg-type]
    simple = {
        name: row[2].strip("`") for name, row in _rows(title).items() if isinstance(defaults.get(name), str | int)
    }
    assert simple
    for name, printed in simple.items():
        default = defaults[name]
        assert printed == (str(default).lower() if isinstance(default, bool | int) else f'"{default}"')


def test_every_key_has_its_effect_and_example() -> None:
    """A key without words is a key nobody can use."""
    for title, table in SECTIONS:
        if not title.startswith("["):
            continue
        for name, row in _rows(title).items():
            assert name in table.model_fields
            assert len(row) == 5
            assert all(row), (title, name)


def test_every_table_has_a_section() -> None:
    """None is forgotten when the schema grows."""
    files = {Table, schema.OrganizationFile, schema.FrontEndFile, schema.WholeFile}
    named = (
        *vars(schema).values(),
        *vars(database_schema).values(),
        *vars(manager_schema).values(),
        *vars(hub_schema).values(),
        *vars(directory_schema).values(),
        *vars(policy_schema).values(),
    )
    tables = {value for value in named if isinstance(value, type) and issubclass(value, Table)} - files
    documented: set[type[BaseModel]] = {table for _, table in SECTIONS}
    assert tables == documented
