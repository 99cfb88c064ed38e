"""The operator's query and what its rows mean."""

from __future__ import annotations

from typing import Any

import pytest

from gatepost.directory.sql.query import BadRow, parameters, read_query, user_of
from gatepost.organization.model import CLIENT_PROTOCOLS, Protocol
from gatepost.routing.decision import Mailbox

ROW = {"name": "anna@contoso.com", "password": "", "database": "DB01"}


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("SELECT 1 WHERE a = :name", "SELECT 1 WHERE a = %(name)s"),
        ("SELECT 1 WHERE a = :local AND b=:domain;", "SELECT 1 WHERE a = %(local)s AND b=%(domain)s"),
        ("SELECT a::name, b LIKE '%x' WHERE c=:name", "SELECT a::name, b LIKE '%%x' WHERE c=%(name)s"),
        ("SELECT :name::text, t.c:names FROM t ", "SELECT %(name)s::text, t.c:names FROM t"),
    ],
)
def test_marks_become_the_drivers_and_nothing_else_changes(text: str, read: str) -> None:
    assert read_query(text).text == read


def test_a_query_for_nobody_is_refused() -> None:
    with pytest.raises(ValueError, match=":name"):
        read_query("SELECT * FROM users")


def test_the_parts_of_a_name_are_bound() -> None:
    assert parameters("a@b@contoso.com") == {"name": "a@b@contoso.com", "local": "a@b", "domain": "contoso.com"}
    assert parameters("anna") == {"name": "anna", "local": "anna", "domain": ""}
    assert parameters("a\0b") is None
    assert parameters("\ud800@contoso.com") is None
    assert parameters("") is None


def _user(**columns: Any) -> Any:
    return user_of(ROW | columns, "asked@contoso.com", allow_plain=False)


def test_columns_are_a_users_fields() -> None:
    user, wrong = _user(protocols="imap, POP3", denied_protocols="pop3", disabled=1, login_at_server="anna", further=7)
    assert wrong == ""
    assert user.name == "anna@contoso.com"
    assert user.mailbox == Mailbox("DB01")
    assert user.protocols == frozenset({Protocol.IMAP})
    assert user.disabled
    assert user.login_at_server == "anna"
    assert user.directory == ""


def test_what_is_not_there_has_a_default() -> None:
    user, _ = user_of({"home_server": b"OLD-01"}, "asked@contoso.com", allow_plain=False)
    assert user.name == "asked@contoso.com"
    assert user.mailbox == Mailbox(home_server="OLD-01")
    assert user.protocols == frozenset(CLIENT_PROTOCOLS)
    assert not user.disabled
    assert user.password_hash == ""


@pytest.mark.parametrize("value", [True, 1, "1", "t", "yes", "Y", b"true", "disabled"])
def test_disabled(value: object) -> None:
    assert _user(disabled=value)[0].disabled


@pytest.mark.parametrize("value", [False, 0, "0", "f", "no", None, "", "active"])
def test_not_disabled(value: object) -> None:
    assert not _user(disabled=value)[0].disabled


def test_who_may_be_disabled_is_and_the_log_says_why() -> None:
    user, wrong = _user(disabled="perhaps")
    assert user.disabled
    assert "perhaps" in wrong


def test_a_hash_that_cannot_be_used_opens_for_nobody_and_mail_still_comes() -> None:
    user, wrong = _user(password="{PLAIN}apw")
    assert user.password_hash == ""
    assert "allow_plain_passwords" in wrong
    assert "apw" not in wrong
    assert user.mailbox == Mailbox("DB01")


def test_a_row_of_another_address_is_not_taken() -> None:
    """Databases may hold two spellings for the same text."""
    assert _user(address="ASKED@contoso.com")[0].name == "anna@contoso.com"
    with pytest.raises(BadRow, match="ásked"):
        _user(address="ásked@contoso.com")


@pytest.mark.parametrize("columns", [{"database": None}, {"database": ""}, {"name": "a b"}])
def test_a_row_that_is_nobodys(columns: dict[str, object]) -> None:
    with pytest.raises(BadRow):
        _user(**columns)
