"""Imports that wait: public names that are imported when first asked for, and packages whose version alone is needed.

So the command line answers before torch is loaded. A package lists its public names once, in its ``__init__.pyi``, for
type checkers, editors and this module.
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import metadata
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
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


@contextmanager
def version_alone(package: str) -> Iterator[None]:
    """Within the block an import of this package gives its ``__version__`` and loads nothing, unless it is loaded.

    For libraries that load another only to look at its version. Behind the block it is imported as ever; other threads
    see the stand-in, too, while the block lasts.
    """
    try:
        version = None if package in sys.modules else metadata.version(package)
    except metadata.PackageNotFoundError:
        version = None
    if version is None:
        yield
        return
    stand_in: Any = ModuleType(package)
    stand_in.__version__ = version
    stand_in.__spec__ = ModuleSpec(package, None)  # whoever asks whether the package is there is told so
    sys.modules[package] = stand_in
    try:
        yield
    finally:
        if sys.modules.get(package) is stand_in:
            del sys.modules[package]
