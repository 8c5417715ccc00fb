"""The median of any number of values."""

from __future__ import annotations

from torch import Tensor


def median(values: Tensor) -> float:
    """The middle value, or the mean of the two middle ones (torch's median takes the lower one)."""
    ordered = values.reshape(-1).sort().values
    return float(0.5 * (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]))
