"""The files of bundled data, with which most runs begin, are read once: as text they take longer than many a run."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

import pytest
from torch import Tensor

from bayeswell.datasets import bundled


@pytest.fixture(autouse=True, scope="session")
def bundled_data_are_read_once() -> Iterator[None]:
    """Everybody gets a copy."""
    read = functools.cache(bundled._numbers)

    def copied(file: Path, delimiter: str | None, skip: int = 0) -> Tensor:
        return read(file, delimiter, skip).clone()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bundled, "_numbers", copied)
        yield
