"""Rows as a pandas data frame."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from ..extras import needs_extra


def to_frame(rows: Sequence[dict[str, Any]]) -> Any:
    """A ``pandas.DataFrame``: one row for each, one column for each key."""
    with needs_extra("lab", "a data frame"):
        pandas = importlib.import_module("pandas")
    return pandas.DataFrame(list(rows))
