"""One small problem that trains in a blink."""

from __future__ import annotations

from typing import Any

import pytest

from bayeswell.experiments import Experiment
from experiments.forked_workers import quick_workers  # noqa: F401 -- a fixture, as the next
from experiments.read_once import bundled_data_are_read_once  # noqa: F401 -- a fixture for all tests below

SMALL: dict[str, Any] = {
    "method": "map",
    "data": "digits",
    "model": {"name": "mlp", "hidden": [12]},
    "epochs": 2,
    "batch_size": 300,
    "draws": 5,
}


@pytest.fixture
def small() -> Experiment:
    """Five steps an epoch, two epochs."""
    return Experiment(**SMALL)
