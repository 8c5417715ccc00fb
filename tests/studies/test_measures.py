"""What a study measures of finished runs, against the same measured by hand."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest

import bayeswell as bw
from bayeswell.datasets import load_inputs
from bayeswell.diagnostics import sharpness, truncated
from bayeswell.errors import BayeswellWarning, SettingError
from bayeswell.experiments import load_model, load_problem
from bayeswell.experiments.inspection.posterior import some_training_examples
from bayeswell.metrics import brier, ece, nll, tfp_brier
from bayeswell.predictive import nll_of_draws
from bayeswell.studies import Line, read_results, read_study, run_study
from bayeswell.studies.measures import measured

STUDY = """
title = "Measured"
paper = "A paper, 2020"
scores = ["nll"]
[run]
data = "digits"
model = {name = "mlp", hidden = [12, 8]}
batch_size = 300
epochs = 2
draws = 7
diagnose = true
[cells.vi]
method = {name = "bbb", posterior = {initial_std = 0.1}, prior = {name = "normal", std = 0.1}, temperature = 1}
[cells.point]
method = {name = "map"}
[cells.ensemble]
method = {name = "deep-ensemble", members = 2}
measure = {corruptions = ["contrast"]}
[measure]
ranks = [1, 2]
spectra = true
signal_to_noise = "all"
sharpness = 0.1
corruptions = ["noise", "contrast"]
predictions = ["mean", "linearised"]
[scales.cpu]
"""


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Line]]:
    folder = tmp_path_factory.mktemp("measured")
    (folder / "study.toml").write_text(STUDY)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BayeswellWarning)  # so short a training says that it is
        found = run_study(read_study(folder / "study.toml"), "cpu", folder / "runs", progress=False)
    assert not [line.error for line in found if line.error]
    return folder, {line.cell: line for line in found}


def test_ranks_and_sharpness_are_those_of_the_model_in_the_folder(lines: tuple[Path, dict[str, Line]]) -> None:
    folder, found = lines
    study = read_study(folder / "study.toml")
    cell = study.scale("cpu").cells[0]
    (place,) = (folder / "runs" / "study" / "cpu").glob("vi-*")
    predictor, data = load_model(place), load_problem(cell.experiment, with_ood=False).data
    cut = truncated(predictor.model, 1)
    losses = nll_of_draws(cut, *data.test, predictor.likelihood, draws=7, seed=0)
    kl = float(cut.posterior.sample_and_kl(None, cut.prior)[1].detach()) / len(data.train[1])
    scores = found["vi"].scores
    assert scores["rank1.minus_elbo"] == pytest.approx(float(losses.double().mean()) + kl, rel=1e-5)
    assert scores["whole.minus_elbo"] != pytest.approx(scores["rank1.minus_elbo"], rel=1e-3)
    probabilities = bw.predict(cut, data.test[0], predictor.likelihood, draws=7, seed=0).probabilities
    assert scores["rank1.brier"] == pytest.approx(brier(probabilities, data.test[1]).value, rel=1e-5)
    assert scores["rank1.brier"] - 1 == pytest.approx(tfp_brier(probabilities, data.test[1]).value, rel=1e-5)
    assert scores["rank1.ece"] == pytest.approx(ece(probabilities, data.test[1], bins=15).value, rel=1e-5)
    assert {"whole.brier", "whole.ece", "rank2.brier", "rank2.ece"} <= scores.keys()
    by_hand = sharpness(
        predictor.model, predictor.likelihood, some_training_examples(data, 500), rho=0.1, draws=3, steps=10
    )
    assert scores["sharpness.ascent"] == pytest.approx(by_hand.ascent, rel=1e-4)


def test_one_training_is_scored_by_several_predictions(lines: tuple[Path, dict[str, Line]]) -> None:
    folder, found = lines
    cell = read_study(folder / "study.toml").scale("cpu").cells[0]
    (place,) = (folder / "runs" / "study" / "cpu").glob("vi-*")
    predictor, data = load_model(place), load_problem(cell.experiment, with_ood=False).data
    scores = found["vi"].scores
    for way in ("mean", "linearised"):
        probabilities = predictor.predict(data.test[0], draws=7, seed=0, prediction=way).probabilities
        assert scores[f"{way}.nll"] == pytest.approx(nll(probabilities, data.test[1]).value, rel=1e-5)
    assert len({round(scores[name], 4) for name in ("nll", "mean.nll", "linearised.nll")}) == 3
    assert found["point"].scores["mean.nll"] == pytest.approx(found["point"].scores["nll"], rel=1e-6)
    assert "nll" in found["ensemble"].scores  # it has no centre, and lacks those scores alone
    assert not {"mean.nll", "linearised.nll"} & found["ensemble"].scores.keys()


def test_equal_stds_have_rank_one_before_training(lines: tuple[Path, dict[str, Line]]) -> None:
    scores = lines[1]["vi"].scores
    assert scores["start.stds.1"] == pytest.approx(1, abs=1e-9)
    assert "start.centred_stds.1" not in scores  # nothing is left of equal numbers
    assert 0 < scores["spectra.means.1"] < scores["spectra.means.2"] < 1
    assert scores["spectra.stds.1"] < scores["spectra.stds.2"] <= 1


def test_corrupted_scores_are_means_over_severities_then_over_corruptions(
    lines: tuple[Path, dict[str, Line]],
) -> None:
    folder, found = lines
    cell = read_study(folder / "study.toml").scale("cpu").cells[1]
    (place,) = (folder / "runs" / "study" / "cpu").glob("point-*")
    predictor, data = load_model(place), load_problem(cell.experiment, with_ood=False).data
    names = ("gaussian_noise", "shot_noise", "impulse_noise", "contrast")
    hits = dict.fromkeys(names, 0.0)
    for name in names:
        for severity in range(1, 6):
            inputs = load_inputs({"name": "corrupted", "corruption": name, "severity": severity}, data)
            right = predictor.predict(inputs).probabilities.argmax(-1) == data.test[1]
            hits[name] += float(right.double().mean()) / 5
    scores = found["point"].scores
    assert scores["corrupted.accuracy"] == pytest.approx(sum(hits.values()) / 4)
    assert scores["corrupted.noise.accuracy"] == pytest.approx(sum(hits[name] for name in names[:3]) / 3)
    assert scores["corrupted.digital.accuracy"] == pytest.approx(hits["contrast"])


def test_a_point_has_no_ranks_and_gradients_have_their_curve(lines: tuple[Path, dict[str, Line]]) -> None:
    folder, found = lines
    assert not [name for name in found["point"].scores if name.startswith(("rank", "whole", "spectra"))]
    (place,) = (folder / "runs" / "study" / "cpu").glob("vi-*")
    windows = json.loads((place / "records.json").read_text())["snr"]
    last = next(row for row in windows[-1]["rows"] if (row["group"], row["layer"]) == ("stds", "all"))
    assert found["vi"].scores["snr.stds.last"] == last["second_moment_mean"]


def test_ranks_of_some_test_examples_are_those_of_the_first(
    lines: tuple[Path, dict[str, Line]],
) -> None:
    folder, _ = lines
    cell = read_study(folder / "study.toml").scale("cpu").cells[0]
    (place,) = (folder / "runs" / "study" / "cpu").glob("vi-*")
    scores, _ = measured({"ranks": {"of": [2], "examples": 100}}, cell.experiment, place)
    predictor, data = load_model(place), load_problem(cell.experiment, with_ood=False).data
    first = truncated(predictor.model, 2), data.test[0][:100]
    probabilities = bw.predict(*first, predictor.likelihood, draws=7, seed=0).probabilities
    assert scores["rank2.nll"] == pytest.approx(nll(probabilities, data.test[1][:100]).value, rel=1e-5)
    assert {name.split(".")[0] for name in scores} == {"whole", "rank2"}


def test_what_was_measured_before_is_measured_again_without_training(
    lines: tuple[Path, dict[str, Line]], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = lines
    path = folder / "study.toml"
    path.write_text(STUDY.replace("ranks = [1, 2]", "ranks = [3]"))
    before = {place.name: (place / "result.json").stat().st_mtime_ns for place in folder.glob("runs/study/cpu/*-seed0")}
    study = read_study(path)
    found = run_study(study, "cpu", folder / "runs", progress=False)
    newest = [line for line in found if line.settings_hash == study.scale("cpu").cells[0].settings_hash]
    assert "rank3.nll" in newest[-1].scores
    assert before == {
        place.name: (place / "result.json").stat().st_mtime_ns for place in folder.glob("runs/study/cpu/*-seed0")
    }
    assert len(read_results(study.results)) == 6


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("rank = [1]", "rank"), ("ranks = [0]", "at least 1"), ("ranks = {examples = 5}", "at least 1"),
        ("ranks = {of = [1], examples = 0}", "examples = 0; how many"), ("ranks = {of = [1], draws = 3}", "a table of"),
        ("sharpness = -1", "above 0"),
        ('corruptions = ["fogg"]', "study.toml: measure: .*fog"), ("spectra = 3", "true or false"),
        ("corruptions = true", "names or families"), ("corruptions = [3]", "names or families"),
        ('predictions = ["drawn"]', "a list of sampled, linearised, mean"), ("predictions = 3", "a list of sampled"),
    ],
)  # fmt: skip
def test_a_measure_that_there_is_not_is_refused_before_any_run(tmp_path: Path, line: str, word: str) -> None:
    path = tmp_path / "study.toml"
    path.write_text(STUDY[: STUDY.index("[measure]")] + f"[measure]\n{line}\n[scales.cpu]\n")
    with pytest.raises(SettingError, match=word):
        read_study(path)


@pytest.mark.parametrize("place", ["[cells.vi]", "[scales.cpu]"])
def test_a_measure_that_is_no_table_is_refused(tmp_path: Path, place: str) -> None:
    path = tmp_path / "study.toml"
    path.write_text(STUDY.replace(place, f"{place}\nmeasure = 3"))
    with pytest.raises(SettingError, match="measure = 3; it must be a table"):
        read_study(path)
