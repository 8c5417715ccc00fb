"""A comparison of several seeds shows its curves as one line a method, with test curves named as such."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bayeswell.report.figures import pictures_of
from bayeswell.report.reading import RunRecord
from bayeswell.report.rows import MethodRow, Table


def epochs(shift: float) -> list[dict[str, Any]]:
    rows = ({"epoch": epoch, "nll": 2.0 / (epoch + 1) + shift} for epoch in range(3))
    return [row | {"validation.nll": row["nll"] + 0.1, "test.nll": row["nll"] + 0.2} for row in rows]


def table(seeds: int) -> Table:
    rows = [
        MethodRow(
            label, [RunRecord(Path(f"{label}-{seed}"), label, epochs=epochs(0.3 * seed)) for seed in range(seeds)]
        )
        for label in ("map", "bbb")
    ]
    return Table("digits", rows)


def test_several_seeds_are_one_line_with_a_band() -> None:
    found = {picture.key: picture for picture in pictures_of(table(3), "t0").together}
    picture = found["t0-seed-curves"]
    # The last values are 2/3 + 0, 0.3, 0.6: mean 0.9667, std 0.3.
    assert "map (3 runs): Training NLL 0.967 ± 0.3, Validation NLL 1.07 ± 0.3, Test set NLL 1.17 ± 0.3" in picture.alt
    assert picture.title == "Training, mean and std over seeds"
    assert "Test set: NLL" in picture.svg
    assert "test set (dotted)" in found["t0-training-curves"].svg


def test_one_seed_needs_no_such_picture() -> None:
    assert "t0-seed-curves" not in {picture.key for picture in pictures_of(table(1), "t0").together}


def test_a_run_without_epochs_is_left_out() -> None:
    some = table(3)
    some.rows[0].runs[1].epochs = []
    found = {picture.key: picture for picture in pictures_of(some, "t0").together}
    assert "map (2 runs)" in found["t0-seed-curves"].alt
