"""What cannot be averaged is refused before anything changes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from averaging.paths import RESUMABLE, feed, path, put, vector_model
from bayeswell.averaging import AVERAGING, HWA, SWA, SWAG, Bank
from bayeswell.errors import CompositionError, DivergenceError, FileError, SettingError
from bayeswell.types import Collector, Progress
from nets import lift


@pytest.mark.parametrize(
    ("part", "settings", "message"),
    [
        ("swa", {"start": 1.0}, "swa: start = 1.0; it is the fraction of the planned steps .* below 1"),
        ("swa", {"start": -0.1}, "swa: start = -0.1"),
        ("swa", {"start": float("nan")}, "swa: start = nan"),
        ("swag", {"cycle": 0}, "swag: cycle = 0; it must be a whole number of at least 1"),
        ("swag", {"rank": 1}, "swag: rank = 1; .* at least 2"),
        ("swag", {"rank": 2.5}, "swag: rank = 2.5"),
        ("swag", {"scale": 0.0}, "swag: scale = 0.0; it must be a finite number above 0"),
        ("swag_diag", {"scale": -1.0}, "swag_diag: scale = -1.0"),
        ("hwa", {"variance": "mixtur"}, "hwa: variance = 'mixtur'; did you mean 'mixture'"),
        ("hwa", {"covariance": "full"}, "hwa: covariance = 'full'; allowed: diagonal, low_rank"),
        ("hwa", {"feedback": "loop"}, "hwa: feedback = 'loop'; allowed: none, restart, sample"),
        ("hwa", {"columns": 1}, "hwa: columns = 1; .* at least 2"),
        ("hwa", {"variance": "mean", "covariance": "low_rank"}, "low_rank.*variance = 'mean'"),
        ("bank", {"burn_in": -1}, "bank: burn_in = -1; it must be a whole number of steps, 0 or more"),
        ("bank", {"thinning": 0}, "bank: thinning = 0"),
        ("bank", {"max_draws": 0}, "bank: max_draws = 0"),
        ("bank", {"memory_limit": -1}, "bank: memory_limit = -1; it must be a number of bytes, 0 or more"),
        ("swags", {}, "unknown collector 'swags'; did you mean 'swag'"),
    ],
)
def test_settings_that_cannot_work_are_refused(part: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message) as caught:
        AVERAGING.resolve({"name": part, **settings})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (SWA(start=0.9, cycle=20), r"swa: start = 0.9 and cycle = 20 steps give 0 snapshots in 30 steps"),
        (SWAG(cycle=10), r"swag: .* give 1 snapshots in 30 steps, and at least 2 are needed; train longer"),
        (SWAG(start=0, cycle=5, rank=7), r"swag: rank = 7 exceeds the 6 snapshots of the plan .*use at most 6"),
        (HWA(cycle=10), r"hwa: .* at least 2 are needed"),  # on a point the variance is the spread
        (Bank(burn_in=30), r"bank: burn_in = 30 steps, and only 30 are planned; use less than 30"),
        (Bank(burn_in=20, thinning=11), r"bank: thinning = 11 keeps no draw of the 10 steps .* at most 10"),
        (Bank(burn_in=0, thinning=2, max_draws=10), r"would keep 15 draws, more than max_draws = 10; use thinning = 3"),
    ],
)
def test_plans_that_cannot_work_are_refused_before_training(part: Any, message: str) -> None:
    with pytest.raises(SettingError, match=message) as caught:
        part.build(vector_model(3), 30, 10)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("part", "posterior", "message"),
    [
        (HWA(variance="mean"), "delta", "hwa.*posterior 'delta'.*'swa'"),
        (HWA(feedback="sample"), "k_tied", "hwa.feedback='sample'.*posterior 'k_tied'.*'mean_field'"),
        (HWA(feedback="sample"), "delta", "hwa.feedback='sample'.*posterior 'delta'"),
        (HWA(feedback="sample"), "low_rank", "posterior 'low_rank'.*'mean_field' or covariance 'low_rank'"),
        (
            HWA(feedback="sample", covariance="low_rank"),
            "mean_field",
            "feedback='sample', covariance='low_rank'.*posterior 'mean_field' cannot hold; use posterior 'low_rank'",
        ),
        (
            HWA(feedback="sample", covariance="low_rank", columns=5),
            {"name": "low_rank", "rank": 3},
            "posterior 'low_rank' holds 3 of at least 5 columns; use posterior 'low_rank' with rank = 5 or more",
        ),
        (
            HWA(feedback="sample", covariance="low_rank"),
            {"name": "low_rank", "rank": 1},
            "posterior 'low_rank' holds 1 of at least 2 columns",
        ),
        (Bank(), "mean_field", "'bank'.*posterior 'mean_field'.*'delta'"),
    ],
)
def test_parts_that_cannot_work_together_are_refused(part: Any, posterior: Any, message: str) -> None:
    model = lift(nn.Linear(4, 3), posterior)
    with pytest.raises(CompositionError, match=message):
        part.build(model, 400, 10)


@pytest.mark.parametrize("name", RESUMABLE)
def test_no_snapshot_no_result(name: str) -> None:
    part, posterior = RESUMABLE[name]
    model = vector_model(3, posterior)
    collector = part.build(model, 20, 5)
    with pytest.raises(SettingError, match=r"^\w+: (0 snapshots were taken|no draw was kept).*train longer"):
        collector.result()


@pytest.mark.parametrize("name", RESUMABLE)
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_snapshot_that_is_not_finite_is_refused_and_the_others_kept(name: str, value: float) -> None:
    part, posterior = RESUMABLE[name]
    model = vector_model(4, posterior)
    means, stds = path(20, 4)
    collector = part.build(model, 20, 5)
    feed(collector, model, means, None if posterior == "delta" else stds)
    before = collector.state_dict()
    broken = means[0].clone()
    broken[2] = value
    put(model, broken)
    due = 40 if name.startswith("bank") else next(step for step in (40, 41) if collector.timetable.due(Progress(step)))
    with pytest.raises(DivergenceError, match=rf"the weights after step {due} hold NaN or inf"):
        collector.observe(model, Progress(due))
    after = collector.state_dict()
    for key in before:
        assert np.array_equal(before[key], after[key]), key


def test_stds_that_overflow_are_refused_before_anything_changes() -> None:
    model, (means, stds) = vector_model(4, "mean_field"), path(3, 4)
    collector = HWA(start=0, cycle=1).build(model, 3, 3)
    feed(collector, model, means[:2], stds[:2])
    before = collector.state_dict()
    put(model, means[2], torch.full((4,), float("inf")).double())
    with pytest.raises(DivergenceError, match="the stds of the weights after step 2"):
        collector.observe(model, Progress(2, 3))
    after = collector.state_dict()
    assert all(np.array_equal(before[key], after[key]) for key in before)


def test_a_folder_that_cannot_hold_the_draws_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = vector_model(3)
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(FileError, match=re.escape(f"bank: folder = '{blocked}' cannot be made")):
        Bank(folder=str(blocked)).build(model, 10, 5)
    import shutil

    usage = type(shutil.disk_usage(tmp_path))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(1000, 1000, 100))
    with pytest.raises(FileError, match=r"5 draws of 24 bytes do not fit .*100 bytes are free"):
        Bank(folder=str(tmp_path)).build(model, 10, 5)


@pytest.mark.parametrize("name", RESUMABLE)
def test_every_collector_says_where_other_parameters_end(name: str) -> None:
    """None here: all are Bayesian, and a bank keeps them with each draw."""
    part, posterior = RESUMABLE[name]
    model = vector_model(3, posterior)
    collector: Collector = part.build(model, 20, 5)
    assert collector.deterministic() == {}
