"""``prediction="mean"``: the network with the posterior's means put in by hand, and nothing epistemic."""

from __future__ import annotations

import copy
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayeswell as bw
from bayeswell.errors import CompositionError, SettingError
from bayeswell.likelihoods import Categorical, Gaussian
from bayeswell.predictive import expected_nll, predict, predictive_nll
from bayeswell.predictive.evaluate import nll_matrix
from bayeswell.random import make_generator
from nets import generic

POSTERIORS = ["mean_field", {"name": "k_tied", "rank": 2}, {"name": "low_rank", "rank": 2}, "matrix_normal", "full"]


def network(outputs: int = 2) -> nn.Sequential:
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, outputs))


def inputs(count: int = 6) -> Tensor:
    return torch.randn(count, 3, generator=make_generator(11), dtype=torch.float64)


def with_means(model: bw.BayesianModule, net: nn.Module) -> nn.Module:
    """The plain network, its parameters set by name from the flat mean."""
    plain = copy.deepcopy(net).double().eval()
    flat, at = model.posterior.mean_vector().detach(), 0
    for site in model.layout.sites:
        size = torch.Size(site.shape).numel()
        plain.get_parameter(site.name).data = flat[at : at + size].view(site.shape).clone()
        at += size
    return plain


@pytest.mark.parametrize("posterior", POSTERIORS, ids=str)
def test_it_is_the_network_with_the_means_put_in(posterior: Any) -> None:
    net = network()
    model, x = generic(net, posterior), inputs()
    expected = with_means(model, net)(x)
    found = predict(model, x, Gaussian("known", 0.3), draws=50, seed=0, prediction="mean")
    torch.testing.assert_close(found.mean, expected)
    assert found.draws == 1
    assert bool((found.epistemic_variance == 0).all())
    torch.testing.assert_close(found.aleatoric_variance, torch.full_like(found.mean, 0.09))
    classes = predict(model, x, Categorical(), prediction="mean", batch_size=4)
    torch.testing.assert_close(classes.probabilities, expected.softmax(-1))
    assert float(classes.mutual_information.max()) == 0
    # Draws of this posterior say something else.
    drawn = predict(model, x, Gaussian("known", 0.3), draws=50, seed=0)
    assert float((drawn.mean - found.mean).abs().max()) > 1e-3


def test_its_losses_are_those_of_that_network() -> None:
    net = network()
    model, x = generic(net, "mean_field"), inputs()
    y = torch.randn(6, 2, generator=make_generator(5), dtype=torch.float64)
    likelihood = Gaussian("known", 0.4)
    each = likelihood.nll(with_means(model, net)(x), y).detach()
    torch.testing.assert_close(predictive_nll(model, x, y, likelihood, draws=9, prediction="mean"), each)
    assert expected_nll(model, x, y, likelihood, draws=9, prediction="mean") == pytest.approx(float(each.mean()))


def test_a_model_may_say_so_of_itself_and_its_elbo_is_still_drawn(tmp_path: Path) -> None:
    data = (inputs(40).float(), inputs(40).float()[:, :2])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = bw.fit(network(), data, "bbb", "gaussian", epochs=3, prediction="mean", validation=data)
    assert result.model.prediction == "mean"
    found = result.predict(data[0], draws=20)
    assert isinstance(found, bw.RealPrediction)
    assert found.draws == 1
    result.save(tmp_path / "model")
    again = bw.load(tmp_path / "model").predict(data[0])
    assert isinstance(again, bw.RealPrediction)
    assert torch.equal(again.mean, found.mean)
    assert result.elbo is not None
    assert result.elbo.draws > 1
    losses = nll_matrix(result.model, *data, result.likelihood, draws=5)
    assert float(losses.std(0).mean()) > 0


def test_a_mixture_has_a_mean_network_for_each_component() -> None:
    data = (inputs(40).float(), inputs(40).float()[:, :2])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = bw.fit(network(), data, "bbb", "gaussian", epochs=2, members=3)
    found = result.predict(data[0], draws=100, prediction="mean")
    assert isinstance(found, bw.RealPrediction)
    assert found.draws == 3
    centres = list(result.model.posterior.centres())
    each = torch.stack([result.model.eval().call(weights, data[0]) for weights in centres]).double()
    torch.testing.assert_close(found.mean, each.mean(0).float())
    torch.testing.assert_close(found.epistemic_variance, each.var(0, correction=0).float())


def test_mc_dropout_has_its_network_without_dropout() -> None:
    net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 2))
    data = (inputs(40).float(), inputs(40).float()[:, :2])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = bw.fit(net, data, "mc-dropout", "gaussian", epochs=2)
    found = result.predict(data[0], prediction="mean")
    assert isinstance(found, bw.RealPrediction)
    assert found.draws == 1
    with torch.no_grad():
        torch.testing.assert_close(found.mean, result.model.eval()(data[0]))


def test_a_bank_has_none_and_says_what_to_do() -> None:
    data = (inputs(40).float(), inputs(40).float()[:, :2])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = bw.fit(network(), data, "deep-ensemble", "gaussian", epochs=2, members=3)
    assert result.predict(data[0], draws=100).draws == 3
    with pytest.raises(SettingError, match="bank of networks.*use prediction = 'sampled'"):
        result.predict(data[0], prediction="mean")
    with pytest.raises(CompositionError, match="prediction = 'mean' needs one centre"):
        bw.fit(network(), data, "deep-ensemble", "gaussian", epochs=2, prediction="mean")
    with pytest.raises(SettingError, match="did you mean 'mean'"):
        result.predict(data[0], prediction="means")


def test_a_model_without_a_mean_network_is_refused() -> None:
    class Foreign(nn.Module):
        def draws(self, count: int, generator: Any) -> Any:
            yield from [{}] * count

        def call(self, weights: Any, x: Tensor) -> Tensor:
            return x

    with pytest.raises(SettingError, match="'mean' needs a model that knows its mean network, which Foreign"):
        predict(Foreign(), inputs(), Gaussian(), prediction="mean")
