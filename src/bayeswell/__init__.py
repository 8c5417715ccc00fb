"""bayeswell: train any PyTorch network as a Bayesian one, well.

``fit(net, data, method=...)`` does it in one call. In a loop of your own: ``bayesian(net)`` lifts any network, ``ELBO``
is the objective, ``predict`` averages over posterior draws.

The public names stand in ``__init__.pyi``, once, for type checkers, editors and this file. Each is imported when it is
first asked for, so that the command line answers before torch is loaded.
"""

import ast as _ast
import importlib as _importlib
from pathlib import Path as _Path
from typing import Any as _Any


def _names_and_modules() -> dict[str, tuple[str, str]]:
    """Every public name: the module that it comes from, and its name there (empty: it is the module)."""
    found = {}
    stub = _Path(__file__).with_suffix(".pyi")
    for node in _ast.parse(stub.read_text(encoding="utf-8"), filename=str(stub)).body:
        if isinstance(node, _ast.ImportFrom):
            for alias in node.names:
                whole, within = (f".{node.module}", alias.name) if node.module else (f".{alias.name}", "")
                found[alias.asname or alias.name] = (whole, within)
    return found


_PLACES = _names_and_modules()
__all__ = sorted(_PLACES)  # noqa: PLE0605


def __getattr__(name: str) -> _Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'bayeswell' has no attribute '{name}'")
    place, within = _PLACES[name]
    module = _importlib.import_module(place, __name__)
    found = getattr(module, within) if within else module
    globals()[name] = found  # the next time it is simply there
    return found


def __dir__() -> list[str]:
    return __all__.copy()
