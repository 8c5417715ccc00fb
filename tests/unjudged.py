"""Training without the verdicts on it, where nobody looks at them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bayeswell.training import member_runs
from bayeswell.training.verdicts.trust import Trust


@contextmanager
def unjudged() -> Iterator[None]:
    """Within the block a fit says nothing of itself: a verdict takes a sixth of a short one, and changes no weight."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(member_runs, "_judged", lambda *ended: (None, Trust()))
        yield
