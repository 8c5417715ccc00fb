"""Names that a test gives to parts are taken back after it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bayeswell.methods import registering  # so that every registry is there
from bayeswell.registry import AXES


@pytest.fixture(autouse=True)
def names_as_before() -> Iterator[None]:
    assert {"prior", "likelihood", "estimator"} <= set(registering.REGISTRIES)
    before = {axis: set(registry) for axis, registry in AXES.items()}
    yield
    for axis, registry in AXES.items():
        for name in set(registry) - before[axis]:
            registry.unregister(registry[name])
