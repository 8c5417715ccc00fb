"""Held-out data find the scale and widening that made them, leave a calibrated model alone, and are kept with it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayeswell as bw
from bayeswell.errors import CompositionError, DataError
from bayeswell.posteriors import EmpiricalPosterior
from bayeswell.predictive import predictive_nll
from bayeswell.predictive.calibration import HeldOut, find_calibration
from bayeswell.types import LINEARISED, LOGITS, NOISE

FEATURES = 3


def _linear(outputs: int, posterior: Any = "delta", **settings: Any) -> bw.BayesianModule:
    torch.manual_seed(0)
    net = nn.Linear(FEATURES, outputs, bias=False).double()
    nn.init.normal_(net.weight, std=1.2)
    return bw.bayesian(net, posterior, **settings)


def _logits(seed: int, count: int, model: bw.BayesianModule) -> tuple[Tensor, Tensor]:
    x = torch.randn(count, FEATURES, dtype=torch.float64, generator=bw.make_generator(seed))
    with torch.no_grad():
        return x, model.eval()(x)


def _labels(logits: Tensor, seed: int) -> Tensor:
    return torch.multinomial(logits.softmax(-1), 1, generator=bw.make_generator(seed))[:, 0]


def test_the_temperature_of_the_labels_is_found() -> None:
    """Labels at temperature 2.2; the estimate's std is 1 / sqrt(n Fisher information of log T); fails 1 in 1e4."""
    model, true, count = _linear(4), 2.2, 3000
    x, logits = _logits(1, count, model)
    y = _labels(logits / true, 2)
    found = bw.Predictor(model, bw.Categorical()).calibrate(x, y)
    assert found.calibration is not None
    scaled = logits / true
    p = scaled.softmax(-1)
    variance = (p * scaled.square()).sum(-1) - (p * scaled).sum(-1).square()
    error = 1 / math.sqrt(float(variance.sum()))
    grid = math.log(2) / 32  # how fine the search is
    assert abs(math.log(found.calibration.widening / true)) < 4 * error + grid
    assert found.calibration.std_scale == 1
    assert found.calibration.widens == LOGITS
    # What it says of the NLL is so.
    before, after = (
        predictive_nll(one.model, x, y, one.likelihood) for one in (bw.Predictor(model, bw.Categorical()), found)
    )
    assert found.calibration.nll_before == pytest.approx(float(before.mean()))
    assert found.calibration.nll_after == pytest.approx(float(after.mean()))
    assert found.calibration.gain_error == pytest.approx(float((before - after).std() / math.sqrt(count)))
    assert found.calibration.examples == count


@pytest.mark.parametrize("prediction", ["sampled", LINEARISED])
def test_the_scale_of_the_stds_is_found(prediction: str) -> None:
    """y ~ N(x'm, c^2 x'Sx + noise^2) with c = 1.6: only stds 1.6 times as large explain residuals that grow with x."""
    true, noise, count = 1.6, 0.3, 600
    model = _linear(1, bw.Full(initial_std=0.5), prediction=prediction)
    x, mean = _logits(3, count, model)
    epistemic = 0.25 * x.square().sum(-1, keepdim=True)
    variance = true**2 * epistemic + noise**2
    y = mean + variance.sqrt() * torch.randn(mean.shape, dtype=torch.float64, generator=bw.make_generator(4))
    likelihood = bw.Gaussian("known", noise)
    found = bw.Predictor(model, likelihood).calibrate(x, y, draws=100, batch_size=350)
    assert found.calibration is not None
    information = float((2 * true * epistemic / variance).square().sum() / 2)
    # The search is fine to 0.05 here, and 100 draws in place of all shift it about as much.
    assert abs(found.calibration.std_scale - true) < 4 / math.sqrt(information) + 0.1
    assert found.calibration.widening == 1
    assert found.calibration.widens == NOISE
    stds = found.model.posterior.std_vector() / model.posterior.std_vector()
    torch.testing.assert_close(stds, torch.full_like(stds, found.calibration.std_scale))


def test_the_noise_is_found_with_the_mean_network_alone() -> None:
    """Stds that explain nothing go towards 0, and the noise to what it was."""
    model = _linear(1, bw.MeanField(initial_std=0.8))
    x, mean = _logits(5, 1500, model)
    y = mean + 0.2 * torch.randn(mean.shape, dtype=torch.float64, generator=bw.make_generator(6))
    found = bw.Predictor(model, bw.Gaussian("learned", 0.5)).calibrate(x, y, draws=60)
    assert found.calibration is not None
    assert found.calibration.std_scale < 0.1
    assert found.calibration.widening == pytest.approx(0.4, rel=4 / math.sqrt(2 * 1500) + math.log(2) / 32)


def test_a_calibrated_model_is_hardly_ever_changed_and_hardly_ever_hurt() -> None:
    """Labels from the model itself: 60 sets of 150. A change has chance < 0.15 (4 std: 20), and costs < 2 / n."""
    model = _linear(3)
    far_logits = _logits(7, 20_000, model)[1]
    entropy = -(far_logits.softmax(-1) * far_logits.log_softmax(-1)).sum(-1).mean()
    changes, costs = 0, []
    for seed in range(60):
        x, logits = _logits(100 + seed, 150, model)
        found = find_calibration([HeldOut(model, bw.Categorical(), x, _labels(logits, 200 + seed))])
        changes += found.changes
        scaled = (far_logits / found.widening).log_softmax(-1)
        costs.append(float(-(far_logits.softmax(-1) * scaled).sum(-1).mean() - entropy))
    assert changes <= 20
    assert 0 <= sum(costs) / len(costs) < 2 / 150


def test_a_dozen_examples_without_a_mistake_do_not_make_it_certain() -> None:
    model = _linear(3)
    x, logits = _logits(8, 14, model)
    found = find_calibration([HeldOut(model, bw.Categorical(), x, logits.argmax(-1))])
    assert found.widening > 0.3  # without the prior the best would be 1/8, the end of the grid


def test_folds_are_asked_together() -> None:
    """Two models with temperatures 1 and 4 of their own: one number between them, and all examples counted."""
    model = _linear(4)
    x, logits = _logits(9, 800, model)
    held_out = [HeldOut(model, bw.Categorical(), x, _labels(logits / true, 10)) for true in (1.0, 4.0)]
    found = find_calibration(held_out)
    assert (found.examples, found.folds) == (1600, 2)
    alone = [find_calibration([one]).widening for one in held_out]
    assert alone[0] < found.widening < alone[1]
    assert found.nll_before == pytest.approx(sum(find_calibration([one]).nll_before for one in held_out) / 2)


def test_weights_count_as_repetitions() -> None:
    model = _linear(3)
    x, logits = _logits(11, 300, model)
    y = _labels(logits / 2.5, 12)
    weights = torch.arange(300) % 3
    repeated = torch.repeat_interleave(torch.arange(300), weights)
    weighted = find_calibration([HeldOut(model, bw.Categorical(), x, y, weights)])
    twice = find_calibration([HeldOut(model, bw.Categorical(), x[repeated], y[repeated])])
    assert weighted.widening == twice.widening
    assert weighted.nll_after == pytest.approx(twice.nll_after)


def test_a_bank_has_no_stds_to_scale() -> None:
    model = _linear(3)
    members = torch.stack([model.posterior.mean_vector().detach() * factor for factor in (2.0, 3.0, 2.5)])
    bank = model.with_posterior(bw.POSTERIORS.resolve("empirical"), EmpiricalPosterior(model.layout, members))
    x, logits = _logits(13, 500, model)
    found = bw.Predictor(bank, bw.Categorical()).calibrate(x, _labels(logits, 14))
    assert found.calibration is not None
    assert found.calibration.std_scale == 1
    assert found.calibration.widening > 1.5
    with pytest.raises(CompositionError, match="nothing to choose"):
        bw.Predictor(bank, bw.Poisson()).calibrate(x, torch.ones(500, 3))


def test_it_is_a_part_of_the_saved_model(tmp_path: Path) -> None:
    model = _linear(3, bw.MeanField(initial_std=0.9))
    x, logits = _logits(15, 400, model)
    found = bw.Predictor(model, bw.Categorical()).calibrate(x, _labels(2 * logits, 16), draws=30)
    assert found.calibration is not None
    assert found.calibration.changes
    found.save(tmp_path / "model")
    loaded = bw.load(tmp_path / "model")
    assert loaded.calibration == found.calibration
    both = [one.predict(x, draws=20, seed=3) for one in (found, loaded)]
    assert all(isinstance(one, bw.ClassPrediction) for one in both)
    assert torch.equal(both[0].probabilities, both[1].probabilities)  # type: ignore[union-attr]
    # A second time: a scale of 0 stays (the mean network), and the temperature is found anew from 1.
    again = loaded.calibrate(x, _labels(2 * logits, 16), draws=30)
    assert again.calibration is not None
    assert again.calibration.std_scale == found.calibration.std_scale == 0
    assert again.calibration.nll_after == pytest.approx(found.calibration.nll_after, abs=0.005)
    assert "held-out examples" in str(found.calibration)


def test_too_few_examples_are_refused() -> None:
    model = _linear(3)
    x, logits = _logits(17, 9, model)
    with pytest.raises(DataError, match="9 held-out examples; at least 10"):
        bw.Predictor(model, bw.Categorical()).calibrate(x, logits.argmax(-1))
    with pytest.raises(DataError, match="weights"):
        bw.Predictor(model, bw.Categorical()).calibrate(*_doubled(x, logits), weights=torch.ones(5))


def _doubled(x: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
    return torch.cat([x, x]), torch.cat([logits, logits]).argmax(-1)
