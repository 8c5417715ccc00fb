"""Rows as a pandas data frame."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..extras import needs_extra

if TYPE_CHECKING:
    import pandas


def to_frame(rows: Sequence[dict[str, Any]]) -> pandas.DataFrame:
    """One row for each, one column for each key."""
    with needs_extra("lab", "a data frame"):
        import pandas

    return pandas.DataFrame(list(rows))
