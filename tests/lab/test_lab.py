"""Names of the lab."""

from __future__ import annotations

import importlib
from types import ModuleType

import pytest

from bayeswell import lab


@pytest.mark.parametrize("name", lab.__all__)
def test_every_name_is_found(name: str) -> None:
    assert not isinstance(getattr(lab, name), ModuleType)


def test_functions_stay_functions_when_their_modules_are_imported() -> None:
    for name in ("compare", "sweep"):
        module = importlib.import_module(f"bayeswell.lab.{name}")
        assert getattr(lab, name) is getattr(module, name)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'compar'"):
        _ = lab.compar
