"""Runs with numbers of our choosing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bayeswell.report.reading import RunRecord


def run(
    label: str,
    values: Mapping[str, float],
    *,
    examples: Mapping[str, Sequence[float]] | None = None,
    passes: float = 100.0,
    seed: int = 0,
    errors: Mapping[str, float] | None = None,
    records: Mapping[str, Any] | None = None,
    data: str = "abc",
    result: Mapping[str, Any] | None = None,
) -> RunRecord:
    """A run on digits; ``examples`` is what each of its test examples adds to a score."""
    experiment = {"method": {"name": label}, "data": {"name": "digits"}, "seed": seed}
    config = {"problem": {"experiment": experiment, "data_sha256": data}, "seed": seed}
    test = {"values": dict(values), "standard_errors_over_examples": dict(errors or {})}
    inspection = {"by_example": {name: list(parts) for name, parts in (examples or {}).items()}}
    inspection["records"] = dict(records or {})
    told = {"test": test, "cost": {"total": passes}, **(result or {})}
    return RunRecord(Path(f"runs/{label}-{seed}"), label, config, [], told, inspection)
