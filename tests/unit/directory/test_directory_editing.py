"""Changes of the directory: whole or not at all, and each refusal by its name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gatepost.directory.editing import (
    AddressTaken,
    BadUser,
    DirectoryEditor,
    DirectoryError,
    Entry,
    UnknownUser,
    UserExists,
)
from gatepost.directory.port import User
from gatepost.organization.model import Protocol
from gatepost.routing.decision import Mailbox


def user(name: str, database: str = "DB01") -> User:
    return User(f"{name}@contoso.com", Mailbox(database))


@pytest.fixture
def editor(tmp_path: Path) -> Iterator[DirectoryEditor]:
    with DirectoryEditor(str(tmp_path / "directory.sqlite")) as editor:
        editor.add(Entry(user("anna"), ("sales@contoso.com", "a@contoso.com")))
        yield editor


def names(editor: DirectoryEditor, database: str | None = None) -> list[str]:
    return [entry.user.name.split("@")[0] for entry in editor.entries(database)]


def test_what_was_added_is_there(editor: DirectoryEditor) -> None:
    found = editor.get("anna@contoso.com")
    assert found.user == user("anna")
    assert found.addresses == ("a@contoso.com", "sales@contoso.com")
    assert found.changed > 1_700_000_000
    assert editor.resolve("sales@contoso.com") == found


def test_a_name_is_there_once(editor: DirectoryEditor) -> None:
    with pytest.raises(UserExists):
        editor.add(Entry(user("anna")))


@pytest.mark.parametrize(
    "entry",
    [
        Entry(user("sales")),
        Entry(user("otto"), ("sales@contoso.com",)),
        Entry(user("otto"), ("anna@contoso.com",)),
        Entry(user("otto"), ("free@contoso.com", "a@contoso.com")),
    ],
)
def test_an_address_belongs_to_one_user(editor: DirectoryEditor, entry: Entry) -> None:
    """Whether it is a name or a further address, on either side; a refused user leaves no trace."""
    with pytest.raises(AddressTaken, match=r"belongs to anna@contoso\.com"):
        editor.add(entry)
    assert names(editor) == ["anna"]
    with pytest.raises(UnknownUser):
        editor.resolve("free@contoso.com")


def test_own_name_among_the_addresses_is_no_conflict(editor: DirectoryEditor) -> None:
    editor.add(Entry(user("otto"), ("otto@contoso.com", "o@contoso.com", "o@contoso.com")))
    assert editor.get("otto@contoso.com").addresses == ("o@contoso.com",)


@pytest.mark.parametrize(
    "bad",
    [
        Entry(User("Anna@contoso.com", Mailbox("DB01"))),
        Entry(User("two words@contoso.com", Mailbox("DB01"))),
        Entry(User("", Mailbox("DB01"))),
        Entry(user("otto"), ("UPPER@contoso.com",)),
        Entry(User("otto@contoso.com", Mailbox())),
        Entry(User("otto@contoso.com", Mailbox("DB01", "OLD-01"))),
        Entry(replace(user("otto"), login_at_server="otto\r\nx LOGOUT")),
    ],
)
def test_what_cannot_be_is_refused(editor: DirectoryEditor, bad: Entry) -> None:
    with pytest.raises(BadUser):
        editor.add(bad)
    assert names(editor) == ["anna"]


def test_a_change_sees_and_replaces_the_whole_user(editor: DirectoryEditor) -> None:
    def edit(entry: Entry) -> Entry:
        assert entry.addresses == ("a@contoso.com", "sales@contoso.com")
        changed = replace(entry.user, protocols=frozenset({Protocol.POP3}), disabled=True)
        return replace(entry, user=changed, addresses=("b@contoso.com",))

    editor.change("anna@contoso.com", edit)
    found = editor.get("anna@contoso.com")
    assert found.user.disabled
    assert found.user.protocols == {Protocol.POP3}
    assert found.addresses == ("b@contoso.com",)
    with pytest.raises(UnknownUser):
        editor.resolve("a@contoso.com")


def test_a_refused_change_leaves_the_user_as_it_was(editor: DirectoryEditor) -> None:
    editor.add(Entry(user("otto")))
    before = editor.get("otto@contoso.com")
    with pytest.raises(AddressTaken):
        editor.change("otto@contoso.com", lambda e: replace(e, addresses=("a@contoso.com",)))
    with pytest.raises(ZeroDivisionError):
        editor.change("otto@contoso.com", lambda e: replace(e, changed=1 // 0))
    assert editor.get("otto@contoso.com") == before


def test_remove_frees_name_and_addresses(editor: DirectoryEditor) -> None:
    editor.remove("anna@contoso.com")
    editor.add(Entry(user("sales"), ("anna@contoso.com",)))
    assert names(editor) == ["sales"]


def test_an_unknown_user_cannot_be_changed_or_removed(editor: DirectoryEditor) -> None:
    with pytest.raises(UnknownUser):
        editor.change("nobody@contoso.com", lambda e: e)
    with pytest.raises(UnknownUser):
        editor.remove("nobody@contoso.com")
    with pytest.raises(UnknownUser):
        editor.remove("sales@contoso.com")  # an address is not the name


def test_listed_by_name_and_by_database(editor: DirectoryEditor) -> None:
    editor.add(Entry(user("zoe", "DB02")))
    editor.add(Entry(user("bert", "DB02")))
    assert names(editor) == ["anna", "bert", "zoe"]
    assert names(editor, "DB02") == ["bert", "zoe"]
    assert names(editor, "DB03") == []


def test_many_are_added_without_the_refused_ones(editor: DirectoryEditor) -> None:
    refused: list[int] = []

    def refuse(number: int, error: DirectoryError) -> bool:
        refused.append(number)
        return True

    entries = [Entry(user("b")), Entry(user("c"), ("a@contoso.com",)), Entry(user("b")), Entry(user("d"))]
    assert editor.add_all(entries, refuse) == 2
    assert refused == [1, 2]
    assert names(editor) == ["anna", "b", "d"]


def test_many_are_none_when_one_is_refused(editor: DirectoryEditor) -> None:
    with pytest.raises(UserExists):
        editor.add_all([Entry(user("b")), Entry(user("anna"))], lambda number, error: False)
    assert names(editor) == ["anna"]


def test_many_are_none_when_the_source_fails(editor: DirectoryEditor) -> None:
    def source() -> Iterator[Entry]:
        yield Entry(user("b"))
        raise OSError("the file ended early")

    with pytest.raises(OSError, match="ended early"):
        editor.add_all(source(), lambda number, error: True)
    assert names(editor) == ["anna"]


OPERATIONS = st.lists(
    st.tuples(st.sampled_from("acr"), st.integers(0, 3), st.lists(st.integers(0, 5), max_size=3)), max_size=12
)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(OPERATIONS)
def test_an_address_never_has_two_users(
    tmp_path_factory: pytest.TempPathFactory, operations: list[tuple[str, int, list[int]]]
) -> None:
    """Against a plain model: whatever is done, each address resolves to the user who got it first and still has it."""
    model: dict[str, set[str]] = {}
    with DirectoryEditor(str(tmp_path_factory.mktemp("d") / "f")) as editor:
        for operation, name_number, numbers in operations:
            name = f"n{name_number}"
            wanted = {name, *(f"n{n}" for n in numbers)}
            others = set().union(*(held for owner, held in model.items() if owner != name)) if model else set()
            entry = Entry(User(name, Mailbox("DB01")), tuple(sorted(wanted)))
            possible = (name in model) != (operation == "a") and (operation == "r" or not wanted & others)
            try:
                if operation == "a":
                    editor.add(entry)
                elif operation == "c":
                    editor.change(name, lambda _, entry=entry: entry)  # type: ignore[misc]
                else:
                    editor.remove(name)
                assert possible
                model.pop(name, None)
                if operation != "r":
                    model[name] = wanted
            except DirectoryError:
                assert not possible
        for owner, held in model.items():
            for address in held:
                assert editor.resolve(address).user.name == owner
        assert [e.user.name for e in editor.entries()] == sorted(model)
