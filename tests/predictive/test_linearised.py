"""Prediction through the linearised network, against Jacobians, closed forms and networks that are linear already."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import jacrev

import bayeswell as bw
from bayeswell.errors import CompositionError, NetworkError, SettingError
from bayeswell.lifting import with_drawn_dropout
from bayeswell.likelihoods import Categorical, Gaussian
from bayeswell.methods import METHODS, find_method, resolve
from bayeswell.posteriors import Empirical, EmpiricalPosterior
from bayeswell.predictive import expected_nll, predict
from bayeswell.random import make_generator
from nets import NETS, call, covariance_of, doubled, generic, lift, make

POSTERIORS = ["mean_field", {"name": "k_tied", "rank": 2}, {"name": "low_rank", "rank": 2}, "matrix_normal", "full"]


def tanh_net(outputs: int = 2) -> nn.Sequential:
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, outputs))


def numbers(*shape: int, seed: int = 11) -> Tensor:
    return torch.randn(shape, generator=make_generator(seed), dtype=torch.float64)


def jacobian(model: bw.BayesianModule, inputs: Any) -> Tensor:
    """(S, K, P) by reverse mode."""
    weights = model.posterior.mean_vector().detach().clone()
    found: Tensor = jacrev(lambda flat: model.call(model.layout.unflatten(flat), inputs))(weights)
    return found


class SigmaDraws(nn.Module):
    """The draws m +- sqrt(n) a_i of a Gaussian with covariance sum a_i a_i': its mean and covariance, exactly."""

    def __init__(self, model: bw.BayesianModule) -> None:
        super().__init__()
        self.model = model

    def draws(self, count: int, generator: torch.Generator | None) -> Iterator[Mapping[str, Tensor]]:
        size = self.model.posterior.noise_size
        assert count == 2 * size
        points = size**0.5 * torch.eye(size, dtype=torch.float64)
        for noise in torch.cat([points, -points]):
            yield self.model.layout.unflatten(self.model.posterior.sample(noise[None])[0])

    def call(self, weights: Mapping[str, Tensor], inputs: Any) -> Any:
        return self.model.call(weights, inputs)

    def centre(self) -> Mapping[str, Tensor]:
        return self.model.centre()


# ---------------------------------------------------------------------------------------------------------
# What it computes


@pytest.mark.parametrize("posterior", POSTERIORS, ids=str)
def test_variance_is_the_closed_form(posterior: Any) -> None:
    """Mean f(x; m) and variance J S J', without any error of Monte Carlo."""
    model, x = generic(tanh_net(), posterior), numbers(6, 3)
    draws = 2 * model.posterior.noise_size
    found = predict(SigmaDraws(model), x, Gaussian("known", 0.3), draws=draws, prediction="linearised")
    slopes, covariance = jacobian(model, x), covariance_of(model.posterior)
    exact = torch.einsum("skp,pq,skq->sk", slopes, covariance, slopes)
    torch.testing.assert_close(found.mean, model.eval()(x).detach(), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(found.epistemic_variance, exact, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(found.aleatoric_variance, torch.full_like(found.mean, 0.09))
    # The same draws through the network itself say something else.
    drawn = predict(SigmaDraws(model), x, Gaussian("known", 0.3), draws=draws, prediction="sampled")
    assert float((drawn.epistemic_variance / exact - 1).abs().max()) > 0.1


@pytest.mark.parametrize("likelihood", [Categorical(), Gaussian("known", 0.3)])
def test_a_network_that_is_linear_in_its_weights_is_left_as_it_is(likelihood: Any) -> None:
    """A last layer on fixed features, however nonlinear these are: same seed, same draws, same numbers."""
    model, x = generic(tanh_net(3), where="last_layer"), numbers(7, 3)
    sampled = predict(model, x, likelihood, draws=9, seed=3, keep_samples=True, prediction="sampled")
    linear = predict(model, x, likelihood, draws=9, seed=3, keep_samples=True, prediction="linearised")
    assert float(sampled.samples.std(0).mean()) > 0.01
    torch.testing.assert_close(linear.samples, sampled.samples, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", [name for name in NETS if name != "weight norm"])
def test_every_network_is_linearised_along_its_draws(name: str) -> None:
    """Each draw: f(m) + d/dt f(m + t (w - m)) at t = 0, by differences in float64."""
    net, inputs = make(name)
    model, inputs = generic(net), doubled(inputs)
    outputs = call(model.eval(), inputs).detach()
    noise = Gaussian("known", 0.3)
    found = predict(model, inputs, noise, draws=2, seed=5, keep_samples=True, prediction="linearised")
    centre = model.posterior.mean_vector().detach()
    step = 1e-4
    for drawn, sample in zip(model.draws(2, make_generator(5)), found.samples, strict=True):
        away = model.layout.flatten(drawn) - centre
        with torch.no_grad():
            ahead, behind = (
                model.call(model.layout.unflatten(centre + sign * step * away), inputs) for sign in (1, -1)
            )
        exact = outputs + (ahead - behind) / (2 * step)
        torch.testing.assert_close(sample, exact, rtol=1e-5, atol=1e-6)
        assert float((sample - outputs).abs().max()) > 1e-3


@pytest.mark.parametrize("batch_size", [1, 4])
def test_batch_size_changes_nothing(batch_size: int) -> None:
    model, x = generic(tanh_net(3)), numbers(7, 3)
    whole, cut = (
        predict(model, x, Categorical(), draws=5, seed=3, batch_size=size, prediction="linearised").probabilities
        for size in (None, batch_size)
    )
    torch.testing.assert_close(cut, whole, rtol=1e-10, atol=1e-12)


def test_drawn_masks_are_kept_while_weights_are_linearised() -> None:
    """Dropout is no small step away from anything: each draw is linearised under its own masks."""
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Dropout(0.4), nn.Linear(4, 2))
    model, x = generic(with_drawn_dropout(net)), numbers(5, 3)
    found = predict(model, x, Gaussian("known", 0.3), draws=3, seed=8, keep_samples=True, prediction="linearised")
    centre = model.eval().posterior.mean_vector().detach()
    for drawn, sample in zip(model.draws(3, make_generator(8)), found.samples, strict=True):
        masks = {name: value for name, value in drawn.items() if name.endswith("seed")}
        assert masks

        def masked(flat: Tensor, masks: Mapping[str, Tensor] = masks) -> Tensor:
            outputs: Tensor = model.call({**model.layout.unflatten(flat), **masks}, x)
            return outputs

        exact = masked(centre) + jacrev(masked)(centre) @ (model.layout.flatten(drawn) - centre)
        torch.testing.assert_close(sample, exact, rtol=1e-9, atol=1e-9)


def test_expected_nll_obeys_too() -> None:
    model, x, y = generic(tanh_net(3)), numbers(7, 3), torch.arange(7) % 3
    settings: dict[str, Any] = {"draws": 6, "seed": 2}
    kept = predict(model, x, Categorical(), keep_samples=True, prediction="linearised", **settings).samples
    exact = -kept[:, torch.arange(7), y].log().mean()
    assert expected_nll(model, x, y, Categorical(), prediction="linearised", **settings) == pytest.approx(float(exact))
    assert expected_nll(model, x, y, Categorical(), **settings) != pytest.approx(float(exact), rel=1e-3)


def test_nothing_is_left_behind() -> None:
    """No gradient, modes and torch's switches as they were, even when the network fails."""
    torch.backends.mha.set_fastpath_enabled(True)
    before = (torch.backends.mkldnn.enabled, torch.backends.cudnn.enabled)
    model, x = lift(make("lstm")[0]), make("lstm")[1]
    found = predict(model.train(), x, Categorical(), draws=2, prediction="linearised")
    assert not found.probabilities.requires_grad
    assert model.training
    with pytest.raises(Exception, match=r".+"):
        predict(model, x.double()[:, :, None], Categorical(), draws=2, prediction="linearised")
    assert (torch.backends.mkldnn.enabled, torch.backends.cudnn.enabled) == before
    assert torch.backends.mha.get_fastpath_enabled()
    assert model.training


# ---------------------------------------------------------------------------------------------------------
# Who decides


def test_the_model_says_how_it_predicts_and_an_argument_overrides() -> None:
    x = numbers(7, 3)
    model = generic(tanh_net(3), prediction="linearised")
    plain = generic(tanh_net(3))
    assert (model.prediction, plain.prediction) == ("linearised", "sampled")

    def says(model: bw.BayesianModule, prediction: str | None) -> Tensor:
        return bw.predict(model, x, Categorical(), draws=5, seed=3, prediction=prediction).probabilities

    assert torch.equal(says(model, None), says(plain, "linearised"))
    assert torch.equal(says(plain, None), says(model, "sampled"))
    assert not torch.allclose(says(model, None), says(plain, None), atol=1e-3)


def test_the_setting_travels_with_the_model(tmp_path: Path) -> None:
    model = bw.bayesian(tanh_net(3), prediction="linearised")
    assert copy.deepcopy(model).prediction == "linearised"
    part = bw.Delta()
    mean = model.posterior.mean_vector().detach()
    assert model.with_posterior(part, part.build(model.layout, model.prior, mean)).prediction == "linearised"
    bw.save(tmp_path / "model", model, "categorical")
    saved = bw.load(tmp_path / "model", tanh_net(3))
    assert saved.model.prediction == "linearised"
    x = numbers(7, 3).float()
    before, after = (bw.predict(m, x, Categorical(), draws=5, seed=3).probabilities for m in (model, saved.model))
    assert torch.equal(before, after)


def test_curvature_methods_predict_as_their_theory_says() -> None:
    assert {name for name, method in METHODS.items() if method.prediction == "linearised"} == {
        "laplace",
        "vl",
        "vl-lazy",
    }
    assert find_method("f-vl").prediction == "linearised"


def test_the_method_decides_for_the_models_that_it_trains() -> None:
    data = (numbers(12, 3).float(), torch.arange(12) % 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bw.BayeswellWarning)
        found = {name: bw.fit(tanh_net(3), data, name, epochs=2).model.prediction for name in ("laplace", "vl", "bbb")}
        asked = bw.fit(tanh_net(3), data, "laplace", epochs=2, prediction="sampled")
    assert found == {"laplace": "linearised", "vl": "linearised", "bbb": "sampled"}
    assert asked.model.prediction == "sampled"


# ---------------------------------------------------------------------------------------------------------
# What cannot work


def bank(model: bw.BayesianModule) -> tuple[Empirical, EmpiricalPosterior]:
    weights = numbers(4, model.layout.size).float()
    return Empirical(4), EmpiricalPosterior(model.layout, weights)


def test_a_bank_of_networks_has_no_centre() -> None:
    model = bw.bayesian(tanh_net(3), prediction="linearised")
    with pytest.warns(
        bw.BayeswellWarning, match=r"a bank of 4 networks, which are drawn; prediction = 'linearised' is"
    ):
        ended = model.with_posterior(*bank(model))
    assert ended.prediction == "sampled"
    with pytest.raises(SettingError, match=r"'empirical' is a bank of networks.*use prediction = 'sampled'"):
        predict(ended, numbers(7, 3).float(), Categorical(), prediction="linearised")


class Rounded(torch.autograd.Function):
    """A derivative in reverse mode only."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.round()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient


class WithRounding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = Rounded.apply(self.layer(x))  # type: ignore[no-untyped-call]
        return found


@pytest.mark.parametrize("net", [WithRounding(), nn.utils.parametrizations.weight_norm(nn.Linear(3, 3))])
def test_an_operation_without_a_forward_derivative_is_one_line(net: nn.Module) -> None:
    model = bw.bayesian(net, prediction="linearised")
    with pytest.raises(NetworkError, match=r"needs derivatives in forward mode.*use prediction = 'sampled'") as caught:
        predict(model, torch.ones(2, 3), Categorical(), draws=2)
    assert "\n" not in str(caught.value)
    assert predict(model, torch.ones(2, 3), Categorical(), draws=2, prediction="sampled").draws == 2


def test_inputs_that_do_not_fit_are_refused_in_one_line() -> None:
    model = bw.bayesian(tanh_net(3), prediction="linearised")
    with pytest.raises(NetworkError, match=r"inputs of shape \(2, 5\).*shapes cannot be multiplied"):
        predict(model, torch.ones(2, 5), Categorical(), draws=2)


class NoCentre(nn.Module):
    def draws(self, count: int, generator: torch.Generator | None) -> Iterator[Mapping[str, Tensor]]:
        return iter([{}] * count)

    def call(self, weights: Mapping[str, Tensor], inputs: Any) -> Any:
        return inputs


@pytest.mark.parametrize(
    ("ask", "kind", "words"),
    [
        (lambda: predict(NoCentre(), torch.ones(2, 3), Categorical(), prediction="linearised"), SettingError,
         ["NoCentre", "centre", "'sampled'"]),
        (lambda: predict(NoCentre(), torch.ones(2, 3), Categorical(), prediction="linearized"), SettingError,
         ["'linearized'", "did you mean 'linearised'"]),
        (lambda: bw.bayesian(tanh_net(), prediction="drawn"), SettingError, ["'drawn'", "sampled", "linearised"]),
        (lambda: find_method("laplace").changed(prediction="sample"), SettingError, ["laplace", "'sample'", "sampled"]),
        (lambda: resolve(find_method("laplace").changed(members=3)), CompositionError,
         ["laplace", "linearised", "members = 3", "'sampled'"]),
        (lambda: resolve(find_method("sgld").changed(prediction="linearised")), CompositionError,
         ["sgld", "linearised", "'bank'", "'sampled'"]),
    ],
)  # fmt: skip
def test_what_cannot_work_is_one_line(ask: Any, kind: type[Exception], words: list[str]) -> None:
    with pytest.raises(kind) as caught:
        ask()
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message
