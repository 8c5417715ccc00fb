"""For the site's reference: a function that has the name of its module is found under the name users call it by.

``bayeswell.fit`` is the function in ``training/fit.py``. At run time the import in ``training/__init__.py`` gives the
name ``training.fit`` to the function; the reader of sources (griffe), which runs nothing, gives it to the module.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import griffe


class PublicNames(griffe.Extension):
    """Each public name of a package that is also that of a module in it becomes what the package imports under it."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """When everything is read, before names are followed."""
        meant_by = {}
        for package in _packages(pkg):
            for name in map(str, package.exports or ()):
                module, imported = package.members.get(name), package.imports.get(name, "")
                if isinstance(module, griffe.Module) and imported.startswith(f"{pkg.path}."):
                    meant = meant_by[module.path] = pkg[imported.removeprefix(f"{pkg.path}.")]
                    meant.members.update(module.members)  # other names of the module are still found through it
                    package.members[name] = griffe.Alias(name, meant, parent=package)
        for package in _packages(pkg):
            for name, member in package.members.items():
                if isinstance(member, griffe.Alias) and member.target_path in meant_by:
                    package.members[name] = griffe.Alias(name, meant_by[member.target_path], parent=package)


def _packages(module: griffe.Module) -> Iterator[griffe.Module]:
    yield module
    for member in list(module.members.values()):
        if isinstance(member, griffe.Module):
            yield from _packages(member)
