"""Is there a NaN or inf?"""

from __future__ import annotations

import math
from collections.abc import Iterable

from torch import Tensor


def all_finite(tensors: Iterable[Tensor]) -> bool:
    """Whether there is no NaN or inf in any of them.

    A sum is finite only if every term is, and takes one pass; finite terms may overflow it, so only where it is not
    finite are the numbers themselves looked at.
    """
    return all(math.isfinite(t.detach().sum().item()) or bool(t.isfinite().all()) for t in tensors)
