"""Every key, table and array entry is found on its line, however TOML allows to write it."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatepost.configuration.lines import Lines

TEXT = """\
name = "a"
[servers."MBX 01".endpoints]
imap = { port = 1,
  tls = "clear" }
dotted.key.here = 1 # comment
[servers."MBX 01"]
site = [
  "usa", # one
  "asia",
]
[[directories]]
path = "/a"
[[directories]]
path = "/b"
[directories.inner]
x = 1
['quoted "key"']
"esc\\u0061ped" = '''
two lines'''
after = 1
"""
INLINE = TEXT.replace("port = 1,\n  tls", "port = 1, tls")


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("name",), 1),
        (("servers", "MBX 01", "endpoints"), 2),
        (("servers",), 2),
        (("servers", "MBX 01", "endpoints", "imap"), 3),
        (("servers", "MBX 01", "endpoints", "imap", "tls"), 3),
        (("servers", "MBX 01", "endpoints", "dotted", "key", "here"), 4),
        (("servers", "MBX 01", "site"), 6),
        (("servers", "MBX 01", "site", 0), 7),
        (("servers", "MBX 01", "site", 1), 8),
        (("directories", 0), 10),
        (("directories", 0, "path"), 11),
        (("directories", 1), 12),
        (("directories", 1, "path"), 13),
        (("directories", 1, "inner", "x"), 15),
        (('quoted "key"',), 16),
        (('quoted "key"', "escaped"), 17),
        (('quoted "key"', "after"), 19),
        (("servers", "MBX 01", "missing"), 2),
        (("directories", 7, "path"), 10),
        (("nothing",), 0),
        ((), 0),
    ],
)
def test_places(path: tuple[str | int, ...], line: int) -> None:
    """A place that is not in the file is the nearest one around it; 0 when there is none."""
    tomllib.loads(INLINE)
    assert Lines(INLINE.encode()).of(path) == line


@given(st.binary(max_size=80) | st.text(alphabet="[]{}=.,\"'\n# ab1", max_size=80).map(str.encode))
def test_no_text_makes_it_raise(content: bytes) -> None:
    """Lines only serve messages: whatever the bytes are, they are never a fault of their own."""
    assert Lines(content).of(("a", 0, "b")) >= 0


_KEYS = st.text(alphabet='ab."[ é\\', min_size=1, max_size=3)
_VALUES = st.recursive(
    st.integers(0, 9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3),
    max_leaves=8,
)


def _write(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_quote(key)} = {_write(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[\n" + "".join(f"{_write(inner)},\n" for inner in value) + "]"
    return str(value)


def _quote(key: str) -> str:
    return '"' + key.replace("\\", "\\\\").replace('"', '\\"') + '"'


@given(st.dictionaries(_KEYS, _VALUES, min_size=1, max_size=4))
def test_every_top_level_key_is_found_where_it_was_written(data: dict[str, Any]) -> None:
    """Whatever stands between them."""
    text, expected = "", {}
    for key, value in data.items():
        expected[key] = text.count("\n") + 1
        text += f"{_quote(key)} = {_write(value)}\n"
    lines = Lines(text.encode())
    assert tomllib.loads(text) == data
    assert {key: lines.of((key,)) for key in data} == expected
