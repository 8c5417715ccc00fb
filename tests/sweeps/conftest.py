"""Databases that do not wait for the disk: a killed process loses nothing by it, only a lost machine does."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine


@pytest.fixture(autouse=True, scope="session")
def hasty_databases() -> Iterator[None]:
    def hasten(connection: Any, record: Any) -> None:
        if isinstance(connection, sqlite3.Connection):
            connection.execute("PRAGMA synchronous=OFF")

    event.listen(Engine, "connect", hasten)
    yield
    event.remove(Engine, "connect", hasten)
