"""The stores are made, and their folders are looked at before the service starts."""

from __future__ import annotations

from pathlib import Path

import pytest
import structlog

from gatepost.configuration.settings import Configuration, FrontEnd
from gatepost.organization.model import Organization
from gatepost.service.stores import UnusableFolder, check_folders, prepare
from gatepost.sharedstate.sqlite import SCHEMA
from gatepost.store.sqlite import Store


def configuration(folder: Path, shared: Path) -> Configuration:
    paths = (str(folder / "directory.sqlite"), str(folder / "registry.sqlite"))
    return Configuration(Organization("contoso"), FrontEnd("CAS-01", *paths, shared_state=str(shared)))


def test_all_three_stores_are_made(tmp_path: Path) -> None:
    shared = tmp_path / "shared.sqlite"
    prepare(configuration(tmp_path, shared), structlog.get_logger())
    assert sorted(path.name for path in tmp_path.glob("*.sqlite")) == [
        "directory.sqlite", "registry.sqlite", "shared.sqlite",
    ]  # fmt: skip
    store = Store(str(shared), SCHEMA)
    store.connection()
    store.close()


def test_a_shared_state_that_cannot_be_made_is_logged_and_stops_nothing(tmp_path: Path) -> None:
    """The directory and the registry are there all the same."""
    with structlog.testing.capture_logs() as lines:
        prepare(configuration(tmp_path, tmp_path / "missing" / "shared.sqlite"), structlog.get_logger())
    assert [line["event"] for line in lines] == ["stores.not_prepared"]
    assert "missing" in lines[0]["reason"]
    assert (tmp_path / "directory.sqlite").exists()
    assert (tmp_path / "registry.sqlite").exists()


def test_a_folder_of_the_shared_state_that_cannot_be_used_stops_the_start(tmp_path: Path) -> None:
    """A missing one, which not even root may use."""
    with pytest.raises(UnusableFolder, match="missing"):
        check_folders(configuration(tmp_path, tmp_path / "missing" / "shared.sqlite"))


def test_open_folders_pass(tmp_path: Path) -> None:
    check_folders(configuration(tmp_path, tmp_path / "shared.sqlite"))
