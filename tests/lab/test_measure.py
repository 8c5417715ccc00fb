"""Records of runs: scores, baselines, files and checksums."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from bayeswell.core.errors import FileError
from bayeswell.lab.data import load_data
from bayeswell.lab.files import read_json, write_json
from bayeswell.lab.measure import RunRecord, baseline_scores
from bayeswell.lab.runs import train
from bayeswell.lab.settings import RunSettings
from bayeswell.metrics import auroc

SETTINGS: dict[str, Any] = {"epochs": 2, "draws": 7, "threads": 1}


@pytest.fixture(scope="module")
def classes() -> RunRecord:
    return train(RunSettings(data="wine", method="bbb", ood="noise", validation=0.2, settings={"prior": "normal"},
                             **SETTINGS))  # fmt: skip


@pytest.fixture(scope="module")
def reals() -> RunRecord:
    return train(RunSettings(data="gap", method="map", **SETTINGS))


def test_scores_are_means_of_the_kept_examples(classes: RunRecord) -> None:
    kept = classes.per_example
    for key in ("nll", "accuracy", "brier"):
        own = kept[key].double()
        assert classes.scores[key].value == pytest.approx(float(own.mean()), rel=1e-6)
        assert classes.scores[key].se == pytest.approx(float(own.std()) / math.sqrt(len(own)), rel=1e-6)
    hit = kept["probabilities"].argmax(1) == kept["target"]
    assert classes.scores["accuracy"].value == pytest.approx(float(hit.double().mean()))


def test_nll_is_that_of_the_averaged_probabilities(classes: RunRecord) -> None:
    kept = classes.per_example
    p = kept["probabilities"].double()[torch.arange(len(kept["target"])), kept["target"]]
    np.testing.assert_allclose(kept["nll"].numpy(), -p.log().numpy(), rtol=1e-4, atol=1e-6)


def test_ood_scores_follow_from_the_kept_entropies(classes: RunRecord) -> None:
    inside, outside = (classes.per_example[name] for name in ("entropy", "ood.noise.entropy"))
    assert classes.ood["noise"]["ood_auroc_entropy"].value == pytest.approx(auroc(inside, outside).value, abs=1e-6)
    assert set(classes.all_scores()) > set(classes.scores)


def test_validation_scores_are_measured(classes: RunRecord) -> None:
    assert {"nll", "accuracy"} <= set(classes.validation)
    assert {epoch["epoch"] for epoch in classes.history} == {0, 1}


def test_real_scores_are_in_the_units_of_the_user(reals: RunRecord) -> None:
    kept, data = reals.per_example, load_data("gap")
    scaling = data.preparation.target_scaling
    assert scaling is not None
    raw = scaling.restore(data.test[1].double())[:, 0]
    torch.testing.assert_close(kept["target"].double(), raw)
    rmse = float((kept["mean"].double() - raw).square().mean().sqrt())
    assert reals.scores["rmse"].value == pytest.approx(rmse, rel=1e-5)
    nll = -stats.norm(kept["mean"], kept["std"]).logpdf(raw)
    assert reals.scores["nll"].value == pytest.approx(float(nll.mean()), rel=1e-4)
    covered = (raw >= kept["lower_90"]) & (raw <= kept["upper_90"])
    assert reals.scores["coverage_90"].value == pytest.approx(float(covered.double().mean()), abs=0.011)


def test_inputs_of_few_columns_are_kept_before_scaling(reals: RunRecord) -> None:
    data = load_data("gap")
    torch.testing.assert_close(reals.per_example["inputs"], data.raw_inputs(data.test[0]))
    assert len(reals.per_example["train.inputs"]) == len(data.train[0])


@pytest.mark.parametrize("name", ["wine", "diabetes"])
def test_baseline_is_the_best_constant_prediction(name: str) -> None:
    data = load_data(name)
    found = baseline_scores(data)
    if name == "wine":
        shares = np.bincount(data.train[1].numpy(), minlength=3) + 1
        expected = -np.log(shares / shares.sum())[data.test[1].numpy()].mean()
    else:
        scaling = data.preparation.target_scaling
        assert scaling is not None
        train, test = (scaling.restore(pair[1].double()).numpy() for pair in (data.train, data.test))
        expected = -stats.norm(train.mean(), train.std()).logpdf(test).mean()
    assert found["nll"] == pytest.approx(float(expected), rel=1e-6)


def test_cost_counts_forward_passes_of_all_members() -> None:
    record = train(RunSettings(data="wine", method="deep-ensemble", settings={"members": 3}, **SETTINGS))
    assert record.cost["passes"] == 3 * 3 * 2
    assert record.cost["relative"] == 3.0
    assert record.cost["draws"] == 3  # an ensemble has no more networks than members


def test_record_survives_a_file(classes: RunRecord, tmp_path: Path) -> None:
    classes.save(tmp_path)
    loaded = RunRecord.load(tmp_path)
    assert loaded.to_json() == classes.to_json()
    assert loaded.per_example.keys() == classes.per_example.keys()
    assert all(torch.equal(loaded.per_example[key], value) for key, value in classes.per_example.items())


@pytest.mark.parametrize("name", ["result.json", "per_example.safetensors"])
def test_a_changed_byte_is_found(classes: RunRecord, tmp_path: Path, name: str) -> None:
    classes.save(tmp_path)
    content = bytearray((tmp_path / name).read_bytes())
    digit = next(place for place in range(len(content) // 2, len(content)) if content[place : place + 1] in b"12345")
    content[digit] += 1
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FileError, match=name):
        RunRecord.load(tmp_path)


def test_numbers_that_are_not_finite_become_null(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"a": math.nan, "b": [math.inf, np.float32(1.5), np.int64(3)]})
    assert read_json(tmp_path / "a.json") == {"a": None, "b": [None, 1.5, 3]}
