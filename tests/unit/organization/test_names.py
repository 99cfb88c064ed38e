"""Login names come to one form, whatever way a client writes them."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gatepost.organization import names
from gatepost.organization.names import MAX_LOGIN_NAME, BadLoginName, canonical_login_name


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("anna", "anna@contoso.com"),
        ("Anna@Contoso.COM", "anna@contoso.com"),
        ("anna@contoso.com.", "anna@contoso.com"),
        (" anna ", "anna@contoso.com"),
        ("ANNA@sub.contoso.com", "anna@sub.contoso.com"),
        ("ａｎｎａ", "anna@contoso.com"),  # full-width letters, as a Japanese keyboard writes them
        ("STRASSE@contoso.com", "strasse@contoso.com"),
        ("straße@contoso.com", "strasse@contoso.com"),
        ("e\u0301va", "\u00e9va@contoso.com"),
        ('"a@b"@contoso.com', '"a@b"@contoso.com'),
    ],
)
def test_a_name_has_one_form(written: str, canonical: str) -> None:
    """Case, width, composition, a missing domain and a final dot make no other user."""
    assert canonical_login_name(written, "Contoso.com") == canonical


def test_without_a_default_domain_a_bare_name_stays_bare() -> None:
    """Nothing is appended where there is nothing to append."""
    assert canonical_login_name("Anna", "") == "anna"


@pytest.mark.parametrize(
    "written",
    [
        "",
        "   ",
        "an na",
        "an\tna",
        "anna\r\nDELE 1",
        "anna\0",
        "@contoso.com",
        "anna@",
        "anna@.",
        "an\u00a0na",
        "a\u200bb",
    ],
)
def test_names_that_no_directory_can_hold_are_refused(written: str) -> None:
    """Spaces, control and format characters and empty parts are no names."""
    with pytest.raises(BadLoginName):
        canonical_login_name(written, "contoso.com")


def test_the_longest_name_is_bounded() -> None:
    """A name of the longest length passes; one more character does not."""
    longest = "a" * (MAX_LOGIN_NAME - 2) + "@b"
    assert canonical_login_name(longest, "") == longest
    with pytest.raises(BadLoginName):
        canonical_login_name("a" + longest, "")


@example("\u0391\u0308\u0345")  # alpha with diaeresis and iota below: composes after folding only
@given(st.text(max_size=40))
def test_the_canonical_form_is_its_own(name: str) -> None:
    """A second pass changes nothing: look-ups and limits can never disagree on who it is."""
    try:
        once = canonical_login_name(name, "contoso.com")
    except BadLoginName:
        return
    assert canonical_login_name(once, "contoso.com") == once


@pytest.mark.parametrize("name", ["u" * 400, "\u0344" * 6000 + "\u0316" * 5900])
def test_a_name_that_is_too_long_is_not_even_folded(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Ordering thousands of combining marks takes seconds: the bound comes first."""
    monkeypatch.setattr(names, "_fold", lambda _: pytest.fail("folded"))
    with pytest.raises(BadLoginName):
        canonical_login_name(name, "contoso.com")
