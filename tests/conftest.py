"""What every test may count on: the same numbers everywhere, and nothing left over from its neighbours."""

from __future__ import annotations

import gc
import multiprocessing
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

# Before anything imports matplotlib: a window is never opened.
os.environ.setdefault("MPLBACKEND", "Agg")

import numpy
import pytest
import torch
from hypothesis import settings

from bayeswell.random import seed_global_generator
from preloaded import EXECUTABLE, Preloaded

SEED = 20_240_607
"""Where torch's, numpy's and Python's global generators stand at the start of every test."""

# One thread: sums are added in one order, so a result does not depend on the number of cores.
torch.set_num_threads(1)

# The same examples in every run: a failure is seen again, and a pass does not depend on the day.
settings.register_profile("bayeswell", derandomize=True, deadline=None, database=None)
settings.load_profile("bayeswell")


LONG_FIRST = (
    "tests/training/test_ranks.py",
    "tests/experiments/test_side_by_side.py",
    "tests/sweeps/test_killed_workers.py",
    "tests/scikit_learn/",
    "tests/report/",
    "tests/tools/test_bit_flips.py",
    "tests/workbench/",
    "tests/training/",
    "tests/methods/",
)
"""A long test that begins last would keep one worker busy while the other has nothing left to do."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files stay whole: what their tests share is made once."""
    count = len(LONG_FIRST)
    ranks = {
        item.nodeid: next((n for n, at in enumerate(LONG_FIRST) if item.nodeid.startswith(at)), count) for item in items
    }
    items.sort(key=lambda item: ranks[item.nodeid])


GARBAGE = 100_000, 50, 100
"""After how many new objects the garbage collector looks. With its own numbers it went again and again through all that
imports and tests had left, which took a tenth of the time of all tests.
"""


def pytest_collection_finish() -> None:
    """What is there before the first test stays until the last: the garbage collector need not go through it."""
    gc.collect()
    gc.freeze()
    gc.enable()


_IN_MEMORY, _ROOM = Path("/dev/shm"), 4 << 30
"""Where folders of tests are, if there is room: thousands of small files are made and removed."""


def pytest_configure(config: pytest.Config) -> None:
    """One process for all workers, from which programs are forked; it imports nothing until one is."""
    gc.disable()  # until all tests are imported: none of that is garbage
    gc.set_threshold(*GARBAGE)
    if not hasattr(config, "workerinput"):
        if _IN_MEMORY.is_dir() and shutil.disk_usage(_IN_MEMORY).free > _ROOM:
            os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_IN_MEMORY))
        python = Preloaded()
        os.environ[EXECUTABLE] = python.command
        config.add_cleanup(python.close)
    multiprocessing.set_executable(os.environ[EXECUTABLE])  # for what is spawned, and for the server of what is forked


@pytest.fixture(autouse=True, scope="session")
def hasty_disks() -> Iterator[None]:
    """Nothing waits for the disk: a killed process loses nothing by it, only a lost machine would."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(autouse=True, scope="session")
def quick_seeds() -> Iterator[None]:
    """``torch.manual_seed`` without the stacks that it notes for accelerators that are not there."""

    def seeded(seed: int) -> torch.Generator:
        seed_global_generator(int(seed))
        return torch.default_generator

    with pytest.MonkeyPatch.context() as patch:
        if not torch.accelerator.is_available():
            patch.setattr(torch, "manual_seed", seeded)
        yield


@pytest.fixture
def no_verdicts() -> Iterator[None]:
    """For tests of what is learned alone: fits say nothing of themselves."""
    from unjudged import unjudged  # not above: it imports all of training, for which the workers would wait

    with unjudged():
        yield


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
