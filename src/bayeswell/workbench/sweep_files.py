"""What a sweep leaves in its folder besides its trials."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..persistence import write_document

if TYPE_CHECKING:
    from ..sweeps import SweepResult

BEST, RESULT = "best.toml", "result.json"


def sweep_record(result: SweepResult, metric: str, folder: Path, threshold: float | None = None) -> dict[str, Any]:
    """The result as plain data, with the learning curves of all trials as one band, and the success rate if asked."""
    from ..sweeps.bands import bands_of

    record = {"metric": metric, **result.record(), "bands": bands_of(result, folder, f"validation.{metric}")}
    if threshold is not None:
        record["success"] = {"threshold": threshold, "rate": result.success_rate(threshold)}
    return record


def keep_result(record: Mapping[str, Any], folder: Path, best: Mapping[str, Any] | None = None) -> None:
    """The result, and the best settings as a file for ``train --config``."""
    from ..sweeps.toml import write_toml

    write_document(folder / RESULT, dict(record))
    if best is not None:
        value = next(trial["value"] for trial in record["trials"] if trial["number"] == record["best"])
        heading = f"The best of {record['complete']} trials: {record['metric']} {value:.6g} on held-out data"
        write_toml(folder / BEST, best, heading)
