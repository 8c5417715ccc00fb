"""One small problem that trains in a blink."""

from __future__ import annotations

from typing import Any

import pytest

from bayeswell.experiments import Experiment
from experiments import forked_workers
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


@pytest.fixture(scope="session")
def quick_workers() -> None:
    """For tests that start workers: each begins with its imports done."""
    forked_workers.prepare()
