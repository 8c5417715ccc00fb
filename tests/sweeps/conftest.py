"""Databases that do not wait for the disk: a killed process loses nothing by it, only a lost machine does."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import event
from sqlalchemy.engine import Engine

from experiments.forked_workers import quick_workers  # noqa: F401 -- a fixture, as the next
from experiments.read_once import bundled_data_are_read_once  # noqa: F401 -- a fixture for all tests below


@pytest.fixture(autouse=True, scope="session")
def hasty_databases() -> Iterator[None]:
    def hasten(connection: Any, record: Any) -> None:
        if isinstance(connection, sqlite3.Connection):
            connection.execute("PRAGMA synchronous=OFF")

    event.listen(Engine, "connect", hasten)
    yield
    event.remove(Engine, "connect", hasten)


@pytest.fixture(autouse=True, scope="session")
def scripts_are_read_once() -> Iterator[None]:
    """Optuna reads the scripts of its tables' history up to three times whenever it opens a study: they are the same
    for all studies, and take longer than the rest."""
    read, known = ScriptDirectory.from_config, dict[str | None, ScriptDirectory]()

    def read_once(config: Any) -> ScriptDirectory:
        place = config.get_main_option("script_location")
        if place not in known:
            known[place] = read(config)
        return known[place]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ScriptDirectory, "from_config", read_once)
        yield
