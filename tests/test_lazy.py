"""A package whose version alone is looked at is not loaded for that, and is there for whoever wants all of it."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from importlib import metadata
from pathlib import Path

import pytest

from bayeswell.lazy import version_alone

NAME = "made_up_package"


@pytest.fixture(name="installed")
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package of version 3.1 that notes when it is loaded."""
    (tmp_path / NAME).mkdir()
    (tmp_path / NAME / "__init__.py").write_text("__version__ = '3.1'\nloaded = True\n")
    about = tmp_path / f"{NAME}-3.1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {NAME}\nVersion: 3.1\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, NAME, raising=False)


@pytest.mark.usefixtures("installed")
def test_within_the_block_there_is_the_version_and_behind_it_everything() -> None:
    with version_alone(NAME):
        found = importlib.import_module(NAME)
        assert found.__version__ == metadata.version(NAME) == "3.1"
        assert not hasattr(found, "loaded")
        assert importlib.util.find_spec(NAME) is not None
    assert NAME not in sys.modules
    assert importlib.import_module(NAME).loaded
    with version_alone(NAME):  # what is loaded stays as it is
        assert importlib.import_module(NAME).loaded
    assert sys.modules[NAME].loaded
    del sys.modules[NAME]


@pytest.mark.usefixtures("installed")
def test_an_error_within_the_block_leaves_nothing_behind() -> None:
    with pytest.raises(ZeroDivisionError), version_alone(NAME):
        print(1 / 0)
    assert NAME not in sys.modules


def test_what_is_not_installed_is_missing_as_ever() -> None:
    with version_alone("nothing_of_that_name"), pytest.raises(ModuleNotFoundError):
        importlib.import_module("nothing_of_that_name")
