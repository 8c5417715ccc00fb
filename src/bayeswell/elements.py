"""Settings said over settings, where a part has names for single numbers of its lists (``beta1`` of ``betas``).

Within one table such a number stands beside the list (``registry.known_settings``). Of two tables the later one wins:
a list that it gives is given whole, whatever was said of its numbers before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .registry import AXES


def without_replaced(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """``base`` without the numbers of lists that ``changes`` gives.

    The part is the one that either of them names; where none is named (the method's own is meant) any part counts.
    """
    lists = {key for key, value in changes.items() if isinstance(value, list | tuple)}
    if not lists or not base:
        return dict(base)
    replaced = {
        element
        for part in _parts(changes.get("name", base.get("name")))
        for element, (field, _) in getattr(part, "elements", {}).items()
        if field in lists
    }
    return {key: value for key, value in base.items() if key not in replaced}


def _parts(name: Any) -> list[Any]:
    """The parts of this name, on whatever axis; without one all that there are."""
    if name is None:
        return [registry[each] for registry in AXES.values() for each in registry]
    return [registry[name] for registry in AXES.values() if registry.knows(name)]
