"""The process that workers are forked from, with what runs and sweeps import, whichever test comes first."""

from __future__ import annotations

import functools
import multiprocessing
from multiprocessing import forkserver

import pytest

MODULES = (
    "bayeswell.experiments.side_by_side", "bayeswell.workbench", "bayeswell.sweeps.worker", "alembic.command",
    "optuna.storages._rdb.models", "optuna.samplers", "psycopg", "sqlalchemy.dialects.postgresql",
    "sqlalchemy.dialects.sqlite",
)  # fmt: skip
"""What is not installed is left out."""


@functools.cache
def prepare() -> None:
    """Start it once for all tests of this process.

    What a pool of workers would have it import counts only until it has begun; the workers of later pools, which need
    other modules, would each import them again.
    """
    if "forkserver" in multiprocessing.get_all_start_methods():
        forkserver._forkserver._stop()  # type: ignore[attr-defined] # one that another test has begun
        forkserver.set_forkserver_preload(list(MODULES))
        forkserver.ensure_running()


@pytest.fixture(scope="session")
def quick_workers() -> None:
    """For tests that start workers: each begins with its imports done."""
    prepare()
