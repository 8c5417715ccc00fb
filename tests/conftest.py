"""What every test may count on: the same numbers everywhere, and nothing left over from its neighbours."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

# Before anything imports matplotlib: a window is never opened.
os.environ.setdefault("MPLBACKEND", "Agg")

import numpy
import pytest
import torch
from hypothesis import settings

from bayeswell.random import seed_global_generator

SEED = 20_240_607
"""Where torch's, numpy's and Python's global generators stand at the start of every test."""

# One thread: sums are added in one order, so a result does not depend on the number of cores.
torch.set_num_threads(1)

# The same examples in every run: a failure is seen again, and a pass does not depend on the day.
settings.register_profile("bayeswell", derandomize=True, deadline=None, database=None)
settings.load_profile("bayeswell")


@pytest.fixture(autouse=True)
def fresh_start() -> Iterator[None]:
    """Seed the global generators; afterwards put back torch's global switches, whatever the test did."""
    random.seed(SEED)
    numpy.random.seed(SEED)  # noqa: NPY002 -- the legacy generator is what other libraries draw from
    seed_global_generator(SEED)
    dtype, threads = torch.get_default_dtype(), torch.get_num_threads()
    gradients = torch.is_grad_enabled()
    yield
    torch.set_default_dtype(dtype)
    torch.set_num_threads(threads)
    torch.set_grad_enabled(gradients)
