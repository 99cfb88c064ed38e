"""SASLprep (RFC 4013): the one form of a password that SCRAM's keys are made of. By Unicode 3.2, as it says."""

from __future__ import annotations

import stringprep
import unicodedata

_PROHIBITED = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
)
"""RFC 4013 section 2.3."""


class NotPrepared(ValueError):
    """The text holds what SASLprep prohibits."""


def saslprep(text: str) -> str:
    """`text` in its prepared form. Code points that Unicode 3.2 lacks stay (a query, RFC 3454 section 7).

    Raises `NotPrepared`.
    """
    if text.isascii():
        if any(c < " " or c == "\x7f" for c in text):
            raise NotPrepared("a control character")
        return text
    mapped = "".join(" " if stringprep.in_table_c12(c) else c for c in text if not stringprep.in_table_b1(c))
    found = unicodedata.ucd_3_2_0.normalize("NFKC", mapped)
    if any(prohibited(c) for c in found for prohibited in _PROHIBITED):
        raise NotPrepared("a prohibited character")
    if any(map(stringprep.in_table_d1, found)):
        # RFC 3454 section 6: no left-to-right character among those from right to left, which begin and end it.
        ends = stringprep.in_table_d1(found[0]) and stringprep.in_table_d1(found[-1])
        if not ends or any(map(stringprep.in_table_d2, found)):
            raise NotPrepared("characters of both directions")
    return found
