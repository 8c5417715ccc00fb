"""Settings of all tests: one thread, fixed seeds, no windows."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

os.environ.setdefault("MPLBACKEND", "Agg")

import numpy
import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("bayeswell", derandomize=True, deadline=None, database=None)
settings.load_profile("bayeswell")


@pytest.fixture(autouse=True)
def _seeds() -> Iterator[None]:
    random.seed(0)
    numpy.random.seed(0)  # noqa: NPY002  (other libraries read it)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(torch.float32)
