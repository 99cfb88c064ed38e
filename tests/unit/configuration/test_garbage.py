"""Whatever a file holds, loading answers with findings and raises nothing."""

from __future__ import annotations

import copy
import tomllib
from typing import Any

from configuration_samples import WHOLE, load_text
from hypothesis import given, settings
from hypothesis import strategies as st

from gatepost.configuration.load import Loaded

EXAMPLE = (
    WHOLE
    + """
[[virtual_directories]]
server = "CAS-01"
service = "owa"
internal_url = "https://mail.contoso.com/owa"
external_url = "https://www.contoso.com/owa"
[site_links.l]
sites = ["usa", "usa"]
[arrays.a]
site = "usa"
fqdn = "outlook.contoso.com"
members = ["CAS-01"]
[front_end.limits]
sessions = 4
[[front_end.token_issuers]]
key = "jwt.pem"
issuer = "i"
audiences = ["a"]
"""
)
LINES = EXAMPLE.splitlines(keepends=True)
VALUES = (
    *("5", "-1", "1e400", "nan", "true", "2026-06-01", "9" * 30),
    *('""', '"x"', '"\\u0000"', '"https://["', '"é"', '"' + "x" * 3000 + '"'),
    *("[]", "{}", "[[]]", "[{}]", "[1, [2]]", "{ a = { b = [] } }"),
)


def _judge(text: str | bytes) -> Loaded:
    """Load; findings are printable lines, and there is a configuration exactly when none is an error."""
    loaded = load_text(text)
    assert (loaded.configuration is None) is (loaded.errors > 0)
    for finding in loaded.findings:
        assert str(finding).isprintable()
        assert finding.finding.message
        assert finding.finding.remedy
        assert "pydantic" not in str(finding)
        assert 0 <= finding.line <= len(text.splitlines()) + 1
    return loaded


@given(st.binary(max_size=200))
def test_bytes(content: bytes) -> None:
    """No bytes at all are a configuration."""
    assert _judge(content).errors


@given(st.text(alphabet="[]{}=.,\"'\n# _abfront", max_size=120))
def test_what_looks_like_toml(text: str) -> None:
    """Brackets, quotes and dots in any order."""
    assert _judge(text).errors


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_spoilt_lines(data: st.DataObject) -> None:
    """A sound file with a few lines lost, doubled, swapped, cut short, or given another value."""
    lines = list(LINES)
    for _ in range(data.draw(st.integers(1, 4))):
        index = data.draw(st.integers(0, len(lines) - 1))
        line = lines[index]
        match data.draw(st.sampled_from(["lose", "double", "swap", "cut", "value", "value", "key"])):
            case "lose":
                lines[index] = "\n"
            case "double":
                lines.insert(index, line)
            case "swap":
                other = data.draw(st.integers(0, len(lines) - 1))
                lines[index], lines[other] = lines[other], line
            case "cut":
                lines[index] = line[: data.draw(st.integers(0, len(line)))]
            case "value" if "=" in line:
                lines[index] = f"{line.partition('=')[0]}= {data.draw(st.sampled_from(VALUES))}\n"
            case _:
                lines[index] = line.replace("e", "x", 1)
    _judge("".join(lines))


def _paths(value: Any, base: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [base, *(path for key, inner in items for path in _paths(inner, (*base, key)))]


DATA = tomllib.loads(EXAMPLE)
ODD = st.sampled_from([None, 5, "x", [], {}, [[]], [{}], {"a": {}}, True, 1.5, [5, {}]])


def _write(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case dict():
            return "{" + ", ".join(f'"{key}" = {_write(inner)}' for key, inner in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(_write, value)) + "]"
        case str():
            return '"' + value + '"'
        case _:
            return str(value)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(_paths(DATA)[1:]), ODD), min_size=1, max_size=4))
def test_spoilt_values(changes: list[tuple[tuple[Any, ...], Any]]) -> None:
    """A sound file with values of other shapes anywhere (None: the key is lost), always valid TOML."""
    data: Any = tomllib.loads(EXAMPLE)
    for path, odd in changes:
        holder = data
        for key in path[:-1]:
            keys = holder if isinstance(holder, dict) else range(len(holder)) if isinstance(holder, list) else ()
            holder = holder[key] if key in keys else None
        if isinstance(holder, dict):
            holder.pop(path[-1], None)
            if odd is not None:
                holder[path[-1]] = copy.deepcopy(odd)
        elif isinstance(holder, list) and path[-1] in range(len(holder)) and odd is not None:
            holder[path[-1]] = copy.deepcopy(odd)
    text = "".join(f'"{key}" = {_write(value)}\n' for key, value in data.items())
    _judge(text)
