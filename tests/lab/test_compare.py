"""Comparisons: pairing, statistics, folders and failures."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from bayeswell.core.errors import SettingError
from bayeswell.lab.compare import ComparedRun, Comparison, compare
from bayeswell.lab.measure import RunRecord
from bayeswell.methods import find_method
from bayeswell.metrics import Estimate

FAST: dict[str, Any] = {"epochs": 1, "draws": 4, "threads": 1, "progress": False}


def comparison(values: dict[str, list[float]], score: str = "nll", **changes: Any) -> Comparison:
    """A comparison on one problem with these values of a score for seeds 0, 1, ...; None is a failed run."""
    runs = []
    for method, own in values.items():
        for seed, value in enumerate(own):
            record = None
            if value is not None:
                cost = {"relative": 2.0, "seconds": 1.0}
                record = RunRecord({}, "wine", "classes", method, seed, {score: Estimate(value, 0.1)}, cost)
            runs.append(ComparedRun("wine", method, seed, None, record, "" if record else "it failed"))
    return Comparison(tuple(runs), **changes)


def test_differences_equal_a_paired_t_test() -> None:
    rng = np.random.default_rng(0)
    base = rng.normal(size=6)
    other = base + 0.3 + 0.1 * rng.normal(size=6)
    found = comparison({"map": list(base), "bbb": list(other)}).differences().loc[("wine", "bbb", "nll")]
    expected = stats.ttest_rel(other, base)
    assert found["difference"] == pytest.approx((other - base).mean())
    assert found["se"] == pytest.approx((other - base).std(ddof=1) / math.sqrt(6))
    assert found["p_value"] == pytest.approx(expected.pvalue, rel=1e-6)
    interval = expected.confidence_interval(0.95)
    assert (found["low"], found["high"]) == pytest.approx((interval.low, interval.high), rel=1e-6)
    assert found["better"] is False


def test_higher_is_better_for_accuracy() -> None:
    found = comparison({"map": [0.5, 0.51, 0.49], "bbb": [0.9, 0.91, 0.89]}, "accuracy")
    assert found.differences().loc[("wine", "bbb", "accuracy"), "better"] is True
    assert found.best("accuracy") == {"wine": ["bbb"]}


def test_pairs_are_the_seeds_that_both_have() -> None:
    found = comparison({"map": [1.0, 2.0, 3.0], "bbb": [1.5, None, 3.5]})  # type: ignore[list-item]
    row = found.differences().loc[("wine", "bbb", "nll")]
    assert (row["difference"], row["pairs"]) == (0.5, 2)
    assert found.table(["nll"]).loc[("wine", "bbb"), "failed"] == 1
    assert "failed: wine, bbb, seed 1: it failed" in found.text()


def test_one_seed_gives_no_significance() -> None:
    found = comparison({"map": [1.0], "bbb": [9.0]})
    row = found.differences().loc[("wine", "bbb", "nll")]
    assert row["better"] is None
    assert math.isnan(row["p_value"])
    assert found.best() == {"wine": ["map", "bbb"]}


def test_table_has_means_over_seeds() -> None:
    row = comparison({"map": [1.0, 2.0, 6.0]}).table().loc[("wine", "map")]
    assert row["nll"] == pytest.approx(3.0)
    assert row["nll_se"] == pytest.approx(np.std([1.0, 2.0, 6.0], ddof=1) / math.sqrt(3))
    assert (row["cost"], row["runs"]) == (2.0, 3)


def test_first_method_is_the_reference_if_map_is_missing() -> None:
    found = comparison({"bbb": [1.0, 1.0], "swag": [2.0, 2.1]})
    assert list(found.paired()["wine"]) == ["swag"]
    with pytest.raises(SettingError, match="reference 'vl'"):
        found.differences("vl")


def test_text_fits_the_width() -> None:
    text = comparison({"map": [1.0, 1.1], "a" * 30: [2.0, 2.1]}).text(60)
    assert max(map(len, text.splitlines()[:4])) <= 60


def test_runs_are_paired_saved_and_not_run_again(tmp_path: Path) -> None:
    def run() -> Comparison:
        return compare(["map", "bbb"], ["wine"], seeds=2, folder=tmp_path, **FAST)

    first = run()
    times = [path.stat().st_mtime_ns for path in sorted(tmp_path.rglob("result.json"))]
    again, loaded = run(), Comparison.load(tmp_path)
    assert len(times) == 4
    assert times == [path.stat().st_mtime_ns for path in sorted(tmp_path.rglob("result.json"))]
    assert first.text() == again.text() == loaded.text()


def test_memory_folder_and_workers_agree(tmp_path: Path) -> None:
    here = compare("map", "wine", seeds=2, **FAST)
    with joblib.parallel_config("threading", n_jobs=1):
        there = compare("map", "wine", seeds=2, folder=tmp_path / "a", **FAST)
    here.save(tmp_path / "b")
    saved = Comparison.load(tmp_path / "b")
    for other in (there, saved):
        assert other.values("wine", "map", "nll") == here.values("wine", "map", "nll")


@pytest.mark.slow
def test_processes_give_the_same_numbers() -> None:
    here = compare(["map", "bbb"], "wine", seeds=2, **FAST)
    there = compare(["map", "bbb"], "wine", seeds=2, workers=2, **FAST)
    assert here.text() == there.text()


def test_a_failed_run_does_not_stop_the_others(tmp_path: Path) -> None:
    methods = {"map": {}, "broken": {"method": "map", "lr": 1e30, "optimizer": "sgd"}}
    found = compare(methods, "diabetes", seeds=1, folder=tmp_path, **FAST)
    assert [run.method for run in found.failed] == ["broken"]
    assert "\n" not in found.failed[0].error
    assert found.records("diabetes", "map")
    assert Comparison.load(tmp_path).failed[0].error == found.failed[0].error


def test_bad_settings_are_refused_before_any_run(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="method 'bad'"):
        compare({"map": {}, "bad": {"method": "bbb", "temperature": -1}}, "wine", folder=tmp_path / "x", **FAST)
    assert not (tmp_path / "x").exists()
    with pytest.raises(SettingError, match="seeds"):
        compare("map", "wine", seeds=[1, 1], **FAST)


def test_labels_have_settings_of_their_own() -> None:
    found = compare({"a": {"method": "k-tied", "rank": 1}, "b": find_method("map")}, "wine", seeds=1, **FAST)
    assert not found.failed
    (record,) = found.records("wine", "a").values()
    assert (record.method, record.label) == ("k-tied", "a")
    assert record.settings["settings"] == {"posterior": {"rank": 1}}


def test_folds_test_every_example_once() -> None:
    found = compare("map", "wine", seeds=1, folds=4, **FAST)
    assert sum(record.cost["test"] for record in found.finished) == 178
    assert list(found.records("wine", "map")) == [(0, f"{part}/4") for part in range(1, 5)]


def test_own_networks_and_arrays() -> None:
    x = torch.randn(80, 2, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] > 0).long()

    def net(outputs: int, width: int = 3) -> nn.Module:
        return nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, outputs))

    found = compare("map", {"mine": (net, (x[:60], y[:60]), (x[60:], y[60:]))}, seeds=2, **FAST)
    assert not found.failed
    assert {record.problem for record in found.finished} == {"mine"}
    assert {record.cost["test"] for record in found.finished} == {20}
    # The seeds start at different weights.
    assert len(set(found.values("mine", "map", "nll").values())) == 2


def test_unknown_problems_are_refused_before_any_run(tmp_path: Path) -> None:
    for problems in ("digit", {"own": "digit"}, {"own": (nn.Linear(64, 10), "digit")}):
        with pytest.raises(SettingError, match="did you mean 'digits'"):
            compare(["map"], problems, folder=tmp_path / "runs", **FAST)
    assert not (tmp_path / "runs").exists()


def test_a_pair_of_arrays_is_one_problem() -> None:
    x, y = torch.randn(40, 2), torch.arange(40) % 2
    found = compare(["map"], (x, y), seeds=1, **FAST)
    assert [(run.problem, run.error) for run in found.runs] == [("data", "")]
    with pytest.raises(SettingError, match=r"a problem is a Tensor; give arrays as \{name: \(x, y\)\}"):
        compare(["map"], [x, y], **FAST)
