"""What several of the tests here are given."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
import torch

from bayeswell.native import gaussian, library, low_rank, recurrence, updates
from native.formulas import ROOT, machine_runs


@pytest.fixture(scope="module")
def builder() -> ModuleType:
    """What builds the libraries."""
    path = ROOT / "hatch_build.py"
    if not path.is_file():
        pytest.skip("hatch_build.py is not beside the tests")
    spec = importlib.util.spec_from_file_location("hatch_build", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(params=["avx512", "avx2", "default"])
def each_library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Every library that this machine can run, not only the one that it would choose."""
    name: str = request.param
    if name not in machine_runs():
        pytest.skip(f"this machine does not run {name}")
    monkeypatch.setattr(library, "_BY_CAPABILITY", {torch.backends.cpu.get_cpu_capability(): (name,)})
    library._library.cache_clear()
    if library._library() is None:
        library._library.cache_clear()
        pytest.skip(f"kernels-{name}.so was not made")
    yield name
    library._library.cache_clear()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the compiled formulas, as they are called or prepared for many calls."""
    names: list[str] = []

    def noting(original: Callable[..., Any]) -> Callable[..., Any]:
        def noted(name: str, *arguments: Any) -> Any:
            names.append(name)
            return original(name, *arguments)

        return noted

    noted_call = noting(library.call)
    for module in (library, gaussian, low_rank, recurrence, updates):
        monkeypatch.setattr(module, "call", noted_call)
    monkeypatch.setattr(recurrence, "prepared", noting(library.prepared))
    return names
