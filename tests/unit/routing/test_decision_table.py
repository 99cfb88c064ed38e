"""Every line of the decision table, by the code and by the oracle."""

from __future__ import annotations

import pytest
from decision_table import cases
from oracle import expected
from worlds import Facts, decided, word

CASES = cases()


@pytest.mark.parametrize(("facts", "outcome"), [(f, o) for _, f, o in CASES], ids=[name for name, _, _ in CASES])
def test_the_table(facts: Facts, outcome: str) -> None:
    """C1 to C12: the outcome of the line."""
    assert word(decided(facts)) == outcome
    assert expected(facts)[0] == outcome


def test_the_table_has_no_line_twice_and_is_long_enough() -> None:
    """150 cases at least, each of its own."""
    assert len({facts for _, facts, _ in CASES}) == len(CASES) >= 150
