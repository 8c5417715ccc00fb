"""``predict`` and ``evaluate`` on real targets and counts: intervals, which networks, and a likelihood's own NLL."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bayeswell.cli import main
from bayeswell.experiments import evaluate, load_model
from bayeswell.experiments.setting import PREDICTIONS
from bayeswell.predictive import RealPrediction, predictive_nll
from bayeswell.types import PREDICTIONS as KNOWN

pytestmark = pytest.mark.filterwarnings("ignore::bayeswell.errors.BayeswellWarning")


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


@pytest.fixture(scope="module")
def counts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on counts, and the file they come from."""
    folder = tmp_path_factory.mktemp("counts")
    generator = np.random.default_rng(1)
    x = generator.normal(size=150)
    lines = ["a,y", *(f"{a},{k}" for a, k in zip(x, generator.poisson(np.exp(1 + 0.5 * x)), strict=True))]
    (folder / "t.csv").write_text("\n".join(lines), encoding="utf-8")
    options = ["--data", str(folder / "t.csv"), "--data-set", "task=regression", "--raw", "--likelihood", "poisson"]
    small = ["--model", "mlp", "--model-set", "hidden=[6]", "--epochs", "5", "--draws", "30", "-q"]
    assert (
        main(["train", "-m", "deep-ensemble", "--set", "members=3", *options, *small, "--out", str(folder / "run")])
        == 0
    )
    (folder / "new.csv").write_text("a\n-1\n0\n2\n", encoding="utf-8")
    return folder


def test_counts_are_measured_as_counts_and_an_ensemble_of_three_says_three(bayeswell: Any, counts: Path) -> None:
    record = json.loads(bayeswell("evaluate", counts / "run", "--draws", "30", "--json").out)
    whole = json.loads((counts / "run" / "result.json").read_text())
    assert (record["draws"], record["prediction"]) == (3, "sampled") == (whole["draws"], whole["prediction"])
    assert record["test"] == whole["test"]
    own = evaluate(counts / "run", {"name": str(counts / "t.csv"), "test_share": 1}, draws=30)
    with open(counts / "t.csv", encoding="utf-8") as file:
        table = np.array([[float(cell) for cell in row] for row in list(csv.reader(file))[1:]])
    x, y = torch.tensor(table[:, :1]).float(), torch.tensor(table[:, 1:])
    predictor = load_model(counts / "run")
    losses = predictive_nll(predictor.model, x, y, "poisson", draws=30, seed=0)
    assert own["test"]["values"]["nll"] == pytest.approx(float(losses.mean()), rel=1e-5)
    said = bayeswell("evaluate", counts / "run")
    assert "3 draws, prediction sampled" in said.out
    assert "90 % covered" in said.out


def test_intervals_and_quantiles_are_columns(bayeswell: Any, counts: Path) -> None:
    new = counts / "new.csv"
    found = rows(bayeswell("predict", counts / "run", "-i", new, "--draws", "30").out)
    assert list(found[0]) == ["mean", "std", "epistemic_std", "aleatoric_std", "lower", "upper"]
    prediction = load_model(counts / "run").predict(torch.tensor([[-1.0], [0.0], [2.0]]), draws=30)
    assert isinstance(prediction, RealPrediction)
    lower, upper = prediction.interval(0.9)
    assert [float(row["upper"]) for row in found] == upper.flatten().tolist()
    assert [float(row["lower"]) for row in found] == lower.flatten().tolist()
    options = ["--interval", "0", "--quantiles", "0.1,0.75", "--nats", "--threads", "1"]
    found = rows(bayeswell("predict", counts / "run", "-i", new, *options).out)
    assert list(found[0])[4:] == ["q_0.1", "q_0.75", "entropy", "epistemic", "aleatoric"]
    assert [float(row["q_0.75"]) for row in found] == prediction.quantile(0.75).flatten().tolist()
    total = [float(row["epistemic"]) + float(row["aleatoric"]) for row in found]
    assert total == pytest.approx([float(row["entropy"]) for row in found], rel=1e-5)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--interval", "1.5"], "--interval 1.5: it must lie between 0 and 1"),
        (["--quantiles", "0.1,1"], "--quantiles 1: it must lie between 0 and 1"),
        (["--quantiles", "0.1;0.9"], "--quantiles 0.1;0.9: numbers with commas"),
        (["--prediction", "mean"], "bank of networks"),
        (["--prediction", "maen"], "did you mean 'mean'"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(bayeswell: Any, counts: Path, options: list[str], words: str) -> None:
    said = bayeswell("predict", counts / "run", "-i", counts / "new.csv", *options)
    assert said.code == 2
    assert words in " ".join(said.err.split())


def test_the_mean_network_from_training_on(bayeswell: Any, tmp_path: Path) -> None:
    small = ["--data", "gap", "--model", "mlp", "--model-set", "hidden=[6]", "--epochs", "2", "-q", "--out"]
    said = bayeswell("train", "-m", "bbb", "--prediction", "mean", *small, tmp_path / "run")
    assert said.code == 0
    assert "1 draw (mean)" in said.out
    record = json.loads((tmp_path / "run" / "result.json").read_text())
    assert (record["draws"], record["prediction"]) == (1, "mean")
    drawn = json.loads(bayeswell("evaluate", tmp_path / "run", "--prediction", "sampled", "--draws", "7", "--json").out)
    assert (drawn["draws"], drawn["prediction"]) == (7, "sampled")
    refused = bayeswell("train", "-m", "deep-ensemble", "--prediction", "mean", *small, tmp_path / "other")
    assert refused.code == 2
    assert "prediction = 'mean' needs one centre" in " ".join(refused.err.split())
    wrong = bayeswell("train", "-m", "bbb", "--prediction", "means", *small, tmp_path / "other")
    assert "did you mean 'mean'" in " ".join(wrong.err.split())


def test_the_words_are_those_of_the_library() -> None:
    assert PREDICTIONS == KNOWN
