"""What the lab writes is TOML that says the same."""

from __future__ import annotations

import tomllib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gatepost.lab.toml_text import toml_text

plain = st.one_of(
    st.booleans(),
    st.integers(-(2**62), 2**62),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x7f"), max_size=12),
)
keys = st.text("abcXYZ019-_. é", min_size=1, max_size=6)
inner = st.dictionaries(keys, st.one_of(plain, st.lists(plain, max_size=3)), max_size=3)
tables = st.recursive(inner, lambda t: st.dictionaries(keys, st.one_of(plain, t), max_size=4), max_leaves=12)


@given(tables)
def test_reading_back_what_was_written_gives_the_same(table: dict[str, Any]) -> None:
    """Any nesting and any text survives."""
    assert tomllib.loads(toml_text(table)) == table


def test_lists_of_tables_survive() -> None:
    """Virtual directories are such a list, copies of a database one inside a table."""
    table = {
        "virtual_directories": [{"server": "MBX-01", "path": "/owa"}, {"server": "MBX-02", "path": "/owa"}],
        "databases": {"DB01": {"copies": [{"server": "MBX-01", "preference": 1}]}},
        "servers": {"MBX-01": {"site": "usa", "endpoints": {"imap": {"port": 143, "tls": "clear"}, "imaps": {}}}},
    }
    assert tomllib.loads(toml_text(table)) == table
