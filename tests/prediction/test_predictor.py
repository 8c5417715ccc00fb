from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bayeswell.core.errors import CompositionError, DataError
from bayeswell.core.random import make_generator
from bayeswell.likelihoods import LIKELIHOODS
from bayeswell.nn import bayesian, drawn_dropout
from bayeswell.posteriors import Empirical, Mixture, set_std
from bayeswell.prediction import HeldOut, Predictor, find_calibration, load, predict, with_scaled_std
from bayeswell.tables import Preparation


class Custom(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.tanh(self.first(x)))


def predictor(net: nn.Module, likelihood: Any = "categorical", posterior: str = "mean_field", **more: Any) -> Predictor:
    return Predictor(bayesian(net, posterior), LIKELIHOODS.resolve(likelihood), **more)


def sequential() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))


X = torch.randn(30, 4, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("posterior", ["delta", "mean_field", "k_tied", "low_rank", "matrix_normal", "full"])
def test_loaded_models_predict_the_same(tmp_path: Path, posterior: str) -> None:
    saved = predictor(sequential(), posterior=posterior)
    saved.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert torch.equal(loaded.predict(X).probabilities, saved.predict(X).probabilities)
    assert repr(loaded) == repr(saved)


def test_custom_networks_are_given_again(tmp_path: Path) -> None:
    saved = predictor(Custom(), {"name": "gaussian", "noise": "per_output", "outputs": 3})
    with torch.no_grad():
        saved.likelihood.log_std.normal_()
    saved.save(tmp_path / "model")
    loaded = load(tmp_path / "model", Custom())
    found, own = loaded.predict(X), saved.predict(X)
    assert torch.equal(found.mean, own.mean)
    assert torch.equal(found.std, own.std)


def test_saved_networks_sets_and_masks_predict_the_same(tmp_path: Path) -> None:
    model = bayesian(sequential())
    bank = model.with_posterior(Empirical(model.layout, torch.randn(3, model.layout.size)))
    net = nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.3), nn.Linear(6, 3))
    masked = bayesian(drawn_dropout(net), "delta")
    added = bayesian(drawn_dropout(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)), 0.4), "delta")
    for name, one in (("bank", bank), ("masked", masked), ("added", added)):
        saved = Predictor(one, LIKELIHOODS.resolve("categorical"))
        saved.save(tmp_path / name)
        assert torch.equal(load(tmp_path / name).predict(X).probabilities, saved.predict(X).probabilities)


def test_preparation_and_calibration_are_saved(tmp_path: Path) -> None:
    y = 20 + 3 * torch.randn(30, 1)
    preparation = Preparation.fit(X, y, standardize=True, kind="real")
    net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1))
    saved = predictor(net, "gaussian", preparation=preparation).calibrate(X, y, draws=10)
    saved.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert loaded.calibration == saved.calibration
    torch.testing.assert_close(loaded.predict(X).mean, saved.predict(X).mean, rtol=0, atol=0)
    assert abs(float(saved.predict(X).mean.mean()) - 20) < 5
    assert loaded.evaluate(X, y)["nll"].value == saved.evaluate(X, y)["nll"].value


def logits_model(scale: float) -> tuple[Any, Tensor, Tensor]:
    """A network whose logits are ``scale`` times those of the classes."""
    net = nn.Linear(2, 3)
    with torch.no_grad():
        net.weight.copy_(scale * torch.tensor([[1.0, 0.0], [-1.0, 1.0], [0.0, -1.5]]))
        net.bias.zero_()
    x = 2 * torch.randn(4000, 2, generator=make_generator(0))
    y = torch.multinomial((x @ net.weight.detach().T / scale).softmax(1), 1, generator=make_generator(1)).squeeze(1)
    return bayesian(net, "delta"), x, y


@pytest.mark.parametrize("scale", [3.0, 0.5])
def test_temperature_of_logits_is_recovered(scale: float) -> None:
    model, x, y = logits_model(scale)
    found = find_calibration([HeldOut(model, "categorical", x, y)])
    # The information of 4,000 labels on log t is above 400; and the grid has steps of 4 %.
    assert abs(math.log(found.temperature / scale)) < 0.05 + 5 / math.sqrt(400)
    assert found.nll_after < found.nll_before
    assert found.std_scale == 1


def test_noise_is_recovered_and_the_prediction_uses_it() -> None:
    model = bayesian(nn.Linear(2, 1), "delta")
    x = torch.randn(2000, 2, generator=make_generator(0))
    with torch.no_grad():
        mean = model.call(model.layout.unflatten(model.posterior.mean), x)
    y = mean + 2.5 * torch.randn(2000, 1, generator=make_generator(1))
    given = Predictor(model, LIKELIHOODS.resolve({"name": "gaussian", "noise": "known", "std": 1.0}))
    found = given.calibrate(x, y)
    assert abs(math.log(found.calibration.temperature / 2.5)) < 0.05 + 5 / math.sqrt(2 * 2000)
    assert float(found.predict(x).std[0]) == pytest.approx(found.calibration.temperature)
    again = found.calibrate(x, y)
    assert again.calibration.temperature == pytest.approx(found.calibration.temperature)


def test_scale_of_stds_is_recovered() -> None:
    model = bayesian(nn.Linear(60, 1, bias=False))
    set_std(model.posterior, torch.full((60,), 3.0))
    # Each target depends on one weight, drawn from q with stds three times as small.
    x = torch.eye(60)
    y = x @ model.posterior.mean.detach() + torch.randn(60, generator=make_generator(2))
    likelihood = {"name": "gaussian", "noise": "known", "std": 0.1}
    found = find_calibration([HeldOut(model, likelihood, x, y[:, None])], draws=400)
    variance = (found.std_scale * 3) ** 2 + (0.1 * found.temperature) ** 2
    # The log variance of 60 targets has a standard error of sqrt(2 / 60).
    assert abs(math.log(variance)) < 5 * math.sqrt(2 / 60)


def test_calibrated_models_stay() -> None:
    changed = 0
    for seed in range(10):
        x = torch.randn(300, 2, generator=make_generator(seed))
        net = nn.Linear(2, 3)
        y = torch.multinomial(net(x).softmax(1), 1, generator=make_generator(seed + 50)).squeeze(1)
        changed += find_calibration([HeldOut(bayesian(net, "delta"), "categorical", x, y)]).changes
    # About one in ten should change; more than five of ten has a probability below 0.001.
    assert changed <= 5


def test_cross_fitted_models_share_a_calibration() -> None:
    parts = [logits_model(3.0) for _ in range(2)]
    found = find_calibration([HeldOut(m, "categorical", x[i::2], y[i::2]) for i, (m, x, y) in enumerate(parts)])
    whole = find_calibration([HeldOut(parts[0][0], "categorical", parts[0][1], parts[0][2])])
    assert (found.folds, found.examples) == (2, 4000)
    assert found.temperature == pytest.approx(whole.temperature)


def test_weights_count_examples() -> None:
    model, x, y = logits_model(3.0)
    weights = torch.zeros(4000)
    weights[:1000] = 2.0
    found = find_calibration([HeldOut(model, "categorical", x, y, weights)])
    own = find_calibration([HeldOut(model, "categorical", x[:1000].repeat(2, 1), y[:1000].repeat(2))])
    assert found.nll_before == pytest.approx(own.nll_before)
    assert found.temperature == pytest.approx(own.temperature)


def test_scaled_stds_keep_the_mean() -> None:
    model = bayesian(sequential(), "low_rank")
    for scale in (0.5, 2.0):
        scaled = with_scaled_std(model, scale)
        torch.testing.assert_close(scaled.posterior.std(), scale * model.posterior.std())
        assert torch.equal(scaled.posterior.mean, model.posterior.mean)
    mixed = model.with_posterior(Mixture([model.posterior, with_scaled_std(model, 2.0).posterior]))
    assert with_scaled_std(mixed, 0.0).posterior.num_networks == 2
    assert find_calibration([HeldOut(mixed, "categorical", X, torch.arange(30) % 3)], draws=4).examples == 30
    point = with_scaled_std(model, 0.0)
    assert predict(point, X, "categorical").draws == 1


def test_calibration_needs_something_to_change() -> None:
    model, x, y = logits_model(1.0)
    with pytest.raises(CompositionError, match="no stds to scale"):
        find_calibration([HeldOut(model, "poisson", x, y)])
    with pytest.raises(DataError, match="at least 10"):
        find_calibration([HeldOut(model, "categorical", x[:5], y[:5])])


def test_class_names_come_back() -> None:
    names = ["cat", "dog", "eel"]
    preparation = Preparation(class_names=tuple(names))
    prediction = predictor(sequential(), preparation=preparation).predict(X)
    assert prediction.label_names == [names[k] for k in prediction.labels.tolist()]
    assert list(prediction.frame())[:2] == ["label", "p_cat"]
    assert prediction.frame()["label"].tolist() == prediction.label_names
