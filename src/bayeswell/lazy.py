"""Public names that are imported when first asked for, so that the command line answers before torch is loaded.

A package lists them once, in its ``__init__.pyi``, for type checkers, editors and this module.
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def attach(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """``__getattr__``, ``__dir__`` and ``__all__`` of a package, from the stub beside its ``__init__.py``."""
    places = _names_and_modules(Path(file).with_suffix(".pyi"))
    names = sorted(places)

    def get(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        place, within = places[name]
        module = importlib.import_module(place, package)
        found = getattr(module, within) if within else module
        setattr(sys.modules[package], name, found)  # the next time it is simply there
        return found

    return get, names.copy, names


def _names_and_modules(stub: Path) -> dict[str, tuple[str, str]]:
    """Every public name: the module that it comes from, and its name there (empty: it is the module)."""
    found = {}
    for node in ast.parse(stub.read_text(encoding="utf-8"), filename=str(stub)).body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                whole = "." * node.level + (node.module or alias.name)
                found[alias.asname or alias.name] = (whole, alias.name if node.module else "")
    return found
