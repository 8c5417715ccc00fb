"""What a trained model says of data: scores as scikit-learn means them, frames, names, and a few lines for a repr."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, log_loss, r2_score
from torch import Tensor, nn
from torch import distributions as td

import bayeswell as bw
from bayeswell.errors import AbsentError, DataError, MissingExtra
from bayeswell.experiments import Experiment, evaluate, load_model, run
from bayeswell.experiments.problem import data_of
from bayeswell.metrics import gaussian_crps, r2, sample_crps
from bayeswell.predictive import predict, predictive_nll
from bayeswell.random import make_generator
from truths.statistics import assert_mean_close

pytestmark = pytest.mark.filterwarnings("ignore::bayeswell.errors.BayeswellWarning")


def numbers(*shape: int, seed: int = 3) -> Tensor:
    return torch.randn(shape, generator=make_generator(seed))


def fitted(outputs: int, targets: Tensor, likelihood: Any, method: str = "bbb", **named: Any) -> bw.Result:
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, outputs))
    return bw.fit(net, (numbers(60, 4), targets), method, likelihood, epochs=3, **named)


@pytest.fixture(scope="module")
def real() -> bw.Result:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fitted(2, numbers(60, 4)[:, :2] + 0.1 * numbers(60, 2, seed=9), "gaussian")


@pytest.fixture(scope="module")
def classes() -> bw.Result:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fitted(3, numbers(60, 4)[:, :3].argmax(1), "categorical")


# ---------------------------------------------------------------------------------------------------------
# Scores


def test_real_numbers_are_scored_by_the_likelihood_and_as_scikit_learn_does(real: bw.Result) -> None:
    x, y = numbers(50, 4, seed=4), numbers(50, 2, seed=5)
    found = real.evaluate(x, y, draws=20, seed=2)
    predicted = real.predict(x, draws=20, seed=2)
    assert isinstance(predicted, bw.RealPrediction)
    losses = predictive_nll(real.model, x, y, real.likelihood, draws=20, seed=2)
    assert found["nll"].value == pytest.approx(float(losses.mean()), rel=1e-6)
    assert found["nll"].error == pytest.approx(float(losses.std()) / 50**0.5, rel=1e-6)
    assert found["r2"].value == pytest.approx(r2_score(y, predicted.mean), rel=1e-5)
    assert real.score(x, y, draws=20, seed=2).value == pytest.approx(found["r2"].value)
    covered = predicted.interval(0.9).contains(y).double()
    assert found["coverage_90"].value == pytest.approx(float(covered.mean()))
    assert found["coverage_90"].error == pytest.approx(float(covered.mean(1).std()) / 50**0.5)
    torch.testing.assert_close(found.by_example["nll"], losses.double())
    # In pieces, and at the mean, it is what ``predict`` says there.
    again = real.evaluate(x, y, draws=20, seed=2, batch_size=7)
    assert again["nll"].value == pytest.approx(found["nll"].value)
    mean = real.evaluate(x, y, prediction="mean")
    assert (mean.draws, mean.prediction) == (1, "mean")
    assert mean["nll"].value == pytest.approx(mean["expected_nll"].value)
    at_mean = predict(real.model, x, real.likelihood, prediction="mean")
    assert mean["rmse"].value == pytest.approx(float((at_mean.mean - y).square().mean().sqrt()), rel=1e-5)


def test_classes_are_scored_as_scikit_learn_does(classes: bw.Result) -> None:
    x, y = numbers(50, 4, seed=4), torch.randint(3, (50,), generator=make_generator(5))
    found = classes.evaluate(x, y.numpy(), draws=20, seed=2)
    predicted = classes.predict(x, draws=20, seed=2)
    assert isinstance(predicted, bw.ClassPrediction)
    assert found["accuracy"].value == pytest.approx(accuracy_score(y, predicted.labels))
    p = predicted.probabilities.double()
    assert found["nll"].value == pytest.approx(log_loss(y, (p / p.sum(1, keepdim=True)).numpy()), rel=1e-5)
    assert found["mutual_information"].value == pytest.approx(float(predicted.epistemic.mean()), rel=1e-4)
    assert classes.score(x, y, draws=20, seed=2) == found["accuracy"]
    with pytest.raises(DataError, match="targets"):
        classes.evaluate(x, y[:4])


def test_ignored_labels_are_left_out() -> None:
    x, y = numbers(60, 4), numbers(60, 4)[:, :3].argmax(1)
    result = fitted(3, y, {"name": "categorical", "ignore_index": -1})
    some = torch.where(torch.arange(60) < 40, y, -1)
    assert result.evaluate(x, some)["nll"].value == pytest.approx(result.evaluate(x[:40], y[:40])["nll"].value)
    assert result.score(x, some).value == pytest.approx(result.score(x[:40], y[:40]).value)
    with pytest.raises(DataError, match="nothing to score"):
        result.score(x, torch.full((60,), -1))


def test_several_labels_and_single_logits_are_scored_by_place() -> None:
    x, y = numbers(60, 4), (numbers(60, 4)[:, :3] > 0).float()
    found = fitted(3, y, "bernoulli")
    hits = (found.predict(x).labels == y).double()  # type: ignore[union-attr]
    assert found.evaluate(x, y)["accuracy"].value == pytest.approx(float(hits.mean()))
    one = fitted(1, y[:, :1], "bernoulli")
    assert one.evaluate(x, y[:, :1])["accuracy"].value == pytest.approx(one.score(x, y[:, 0]).value)


def test_a_likelihood_that_does_not_predict_still_has_its_nll() -> None:
    class OnlyNLL:
        def nll(self, outputs: Tensor, targets: Tensor) -> Tensor:
            return (outputs - targets).abs().sum(1)

    x, y = numbers(60, 4), numbers(60, 1)
    for likelihood in (OnlyNLL(), lambda f: td.RelaxedBernoulli(torch.tensor(0.7), logits=f)):
        result = fitted(1, y.sigmoid(), likelihood)
        found = result.evaluate(x, y.sigmoid(), draws=5)
        assert list(found) == ["nll"]
        assert found.found is None
        with pytest.raises(AbsentError, match="needed to predict"):
            result.score(x, y.sigmoid())


def test_the_command_line_gives_the_same_numbers(tmp_path: Path) -> None:
    experiment = Experiment(data="gap", method="bbb", epochs=2, draws=9)
    record = run(experiment, tmp_path / "run")
    data = data_of(experiment)
    predictor = load_model(tmp_path / "run")
    scale, shift = data.scaling.target_scale, data.scaling.target_shift
    assert scale is not None
    assert shift is not None

    class Units:
        """As ``Saved.preparation`` has it."""

        nll_shift = float(scale.log().sum())

        def inputs(self, x: Any) -> Tensor:
            return data.scaling.inputs(torch.as_tensor(x))

        def targets(self, y: Any) -> Tensor:
            return data.scaling.targets(torch.as_tensor(y))

        def restore(self, found: Any) -> Any:
            return found.rescaled(scale, shift)

    object.__setattr__(predictor, "preparation", Units())
    x, y = data.scaling.raw_inputs(data.test[0].double()), data.scaling.raw_targets(data.test[1].double())
    found = predictor.evaluate(x, y, draws=9)
    measured = evaluate(tmp_path / "run", draws=9)
    assert measured["test"] == record["test"]
    assert (measured["draws"], measured["prediction"]) == (9, "sampled") == (record["draws"], record["prediction"])
    for name, value in measured["test"]["values"].items():
        assert found[name].value == pytest.approx(value, rel=2e-4), name
    assert found.found is not None
    assert float(found.found.mean.mean()) == pytest.approx(float(y.mean()), abs=float(scale))  # type: ignore[union-attr]
    at_mean = evaluate(tmp_path / "run", prediction="mean")
    assert (at_mean["draws"], at_mean["prediction"]) == (1, "mean")


def test_r2_has_scikit_learns_ends_and_a_standard_error_that_repeats() -> None:
    """Over 2,000 repetitions of 100 examples the error that is said is the std that is seen."""
    y = torch.tensor([[1.0, 4.0], [1.0, 6.0], [1.0, 5.0]])
    for guess in (y, y + torch.tensor([0.5, -0.5]), torch.zeros(3, 2)):
        assert r2(guess, y).value == pytest.approx(r2_score(y, guess))
    generator = make_generator(6)
    truth = 2 * torch.randn(2000, 100, generator=generator)
    guess = truth + torch.randn(2000, 100, generator=generator)
    found = [r2(a, b) for a, b in zip(guess, truth, strict=True)]
    values, errors = np.array([float(one) for one in found]), np.array([one.error for one in found])
    # The std of 2,000 numbers is known to 1.6 %; its own bias at 100 examples is a few percent more.
    assert errors.mean() == pytest.approx(values.std(ddof=1), rel=0.1)


def test_the_crps_of_drawn_targets_is_that_of_the_gaussian() -> None:
    """Right on average, also from 5 drawn targets."""
    y, std = torch.linspace(-3, 3, 7).double(), 1.7
    drawn = std * torch.randn(400, 5, 7, generator=make_generator(3)).double()
    each = torch.stack([sample_crps.of_examples(one, y) for one in drawn])
    assert_mean_close(each, gaussian_crps.of_examples(torch.zeros(7), torch.full((7,), std**2), y))


# ---------------------------------------------------------------------------------------------------------
# Frames, names and reprs


def test_frames_have_the_numbers_of_the_prediction(real: bw.Result, classes: bw.Result) -> None:
    x = numbers(5, 4, seed=8)
    found = real.predict(x)
    assert isinstance(found, bw.RealPrediction)
    frame = found.to_frame(interval=0.5)
    assert list(frame.columns) == [
        f"{name}_{place}" for place in (1, 2)
        for name in ("mean", "std", "epistemic_std", "aleatoric_std", "lower", "upper")
    ]  # fmt: skip
    np.testing.assert_allclose(frame["upper_2"], found.quantile(0.75)[:, 1])
    assert list(found.to_frame(interval=None).columns)[-1] == "aleatoric_std_2"
    labels = classes.predict(x)
    assert isinstance(labels, bw.ClassPrediction)
    frame = labels.to_frame()
    assert list(frame.columns) == ["label", "p_0", "p_1", "p_2", "entropy", "epistemic", "aleatoric"]
    np.testing.assert_allclose(frame["p_1"], labels.probabilities[:, 1])
    scores = classes.evaluate(x, labels.labels)
    table = scores.to_frame()
    assert table.loc["nll", "value"] == scores["nll"].value
    assert table.loc["nll", "error"] == scores["nll"].error
    assert json.loads(json.dumps(scores.as_dict()))["nll_error"] == scores["nll"].error


def test_places_are_columns_of_their_own() -> None:
    p = torch.tensor([[[0.1, 0.9], [0.8, 0.2]], [[0.6, 0.4], [0.3, 0.7]], [[0.5, 0.5], [0.2, 0.8]]])
    zero = torch.zeros(3, 2)
    found = bw.ClassPrediction(p, zero, zero, zero, draws=1, class_names=("no", "yes"))
    frame = found.to_frame()
    assert frame["label_2"].tolist() == ["no", "yes", "yes"]
    assert frame["p_yes_1"].tolist() == pytest.approx([0.9, 0.4, 0.5])
    assert found.label_names == [["yes", "no"], ["no", "yes"], ["no", "yes"]]


def test_without_pandas_one_line_says_so(monkeypatch: pytest.MonkeyPatch, classes: bw.Result) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtra, match=r"a DataFrame needs the extra 'lab' \(pandas is not installed\): pip"):
        classes.predict(numbers(5, 4)).to_frame()


def test_names_of_classes_are_told_where_they_are_known() -> None:
    p = torch.tensor([[0.1, 0.9], [0.8, 0.2]])
    zero = torch.zeros(2)
    named = bw.ClassPrediction(p, zero, zero, zero, draws=1, class_names=("cat", "dog"))
    assert named.label_names == ["dog", "cat"]
    bare = bw.ClassPrediction(p, zero, zero, zero, draws=1)
    assert not hasattr(bare, "label_names")


def test_likelihoods_are_taken_by_name_and_by_mapping(classes: bw.Result) -> None:
    x = numbers(5, 4)
    expected = predict(classes.model, x, bw.Categorical(temperature=2.0), seed=1).probabilities
    found = predict(classes.model, x, {"name": "categorical", "temperature": 2.0}, seed=1)
    assert torch.equal(found.probabilities, expected)
    assert not torch.equal(predict(classes.model, x, "categorical", seed=1).probabilities, expected)


def test_what_is_printed_is_short_and_says_what_matters(real: bw.Result, tmp_path: Path) -> None:
    text = repr(real)
    assert len(text) < 700
    assert text.count("\n") <= 6
    for words in ("method 'bbb'", f"temperature {real.temperature:.3g}", "mean_field over 58 weights", "gaussian",
                  "learned std", "prediction: sampled", "trust: "):  # fmt: skip
        assert words in text, words
    real.save(tmp_path / "model")
    again = repr(bw.load(tmp_path / "model"))
    assert again.startswith("Predictor(a Sequential)")
    assert "mean_field over 58 weights" in again
    x = numbers(5, 4)
    assert repr(real.predict(x, draws=7)).startswith("RealPrediction(5 examples of shape (2,), 7 draws)\n  mean std ")
    assert len(repr(real.predict(x))) < 200
    lines = repr(real.evaluate(x, numbers(5, 2), draws=7)).splitlines()
    assert lines[0] == "Evaluation(5 examples, 7 draws, prediction sampled, likelihood gaussian)"
    assert lines[1].split()[0] == "rmse"
    assert "±" in lines[1]


def test_an_ensemble_of_three_says_three() -> None:
    x, y = numbers(60, 4), numbers(60, 1)
    result = fitted(1, y, "gaussian", "deep-ensemble", members=3)
    assert result.evaluate(x, y, draws=100).draws == 3
    assert "3 members" in repr(result)
