"""Several draws in a step: each has its own worst neighbour, by closed form and one draw at a time."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayeswell as bw
from bayeswell.estimators import Flipout, LocalReparameterization, WeightSampling
from bayeswell.gradients import Sharpness, SharpObjective, ShiftedModel
from bayeswell.types import Step

RHO = 0.37


class Weight(nn.Module):
    """A network whose output is its weight."""

    def __init__(self, start: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(start.clone())

    def forward(self, x: Tensor) -> Tensor:
        return self.weight.expand(len(x), -1)


class Quadratic(nn.Module):
    """nll = 1/2 sum_i c_i w_i^2."""

    name = "quadratic"

    def __init__(self, curvature: Tensor) -> None:
        super().__init__()
        self.curvature = curvature

    def check(self, targets: Tensor, outputs: Tensor) -> None:
        pass

    def nll(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return 0.5 * (self.curvature * outputs.square()).sum(-1)


def quadratic_in_one_weight(draws: int, antithetic: bool) -> tuple[Any, Any]:
    start = torch.tensor([0.3], dtype=torch.float64)
    estimator = WeightSampling(draws, antithetic=antithetic)
    model = bw.bayesian(Weight(start), bw.MeanField(initial_std=0.8), "normal", estimator)
    objective = bw.ELBO("categorical", 10, temperature=0.0)
    objective.likelihood = Quadratic(torch.tensor([2.7], dtype=torch.float64))
    return model, objective


@pytest.mark.parametrize("antithetic", [False, True])
def test_the_mean_over_draws_is_the_expected_maximum_of_a_quadratic_in_one_weight(antithetic: bool) -> None:
    """E[max over |e| <= rho of c (w + e)^2 / 2 - c w^2 / 2] = c rho E|w| + c rho^2 / 2, |w| folded normal.

    One shared neighbour would move all draws to the same side: about c rho |m| instead of c rho E|w|.
    """
    draws = 820 if antithetic else 410
    model, objective = quadratic_in_one_weight(draws, antithetic)
    losses = [
        float(kind(model, torch.zeros(1, 1), torch.zeros(1), generator=bw.make_generator(3)).nll)
        for kind in (Sharpness(RHO).wrap(objective), objective)
    ]
    c, m, s = 2.7, 0.3, 0.8
    folded = s * math.sqrt(2 / math.pi) * math.exp(-(m**2) / (2 * s**2)) + m * math.erf(m / (s * math.sqrt(2)))
    std = c * RHO * math.sqrt(m**2 + s**2 - folded**2)
    # Six standard errors, of the pairs at their largest: fails by chance less than once in 10^8.
    tolerance = 6 * std / math.sqrt(draws / 2 if antithetic else draws)
    assert c * RHO * (folded - m) > 2.5 * tolerance
    assert losses[0] - losses[1] == pytest.approx(c * RHO * folded + c * RHO**2 / 2, abs=tolerance)


def network() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)).double()


def batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(8)
    return torch.randn(12, 5, generator=generator, dtype=torch.float64), torch.arange(12) % 3


@pytest.mark.parametrize("norm", ["paper", "exact"])
@pytest.mark.parametrize("geometry", ["identity", "mean_over_std"])
@pytest.mark.parametrize("antithetic", [False, True])
def test_four_draws_equal_four_draws_taken_one_by_one(antithetic: bool, geometry: str, norm: str) -> None:
    """By hand: gradient at draw d, its neighbour, the loss there; the mean over d and its gradient."""
    model = bw.bayesian(network(), bw.MeanField(initial_std=0.4), estimator=WeightSampling(4, antithetic=antithetic))
    inputs, targets = batch()
    sharpness, objective = Sharpness(RHO, geometry, norm), bw.ELBO("categorical", 30, temperature=1.3)
    terms = sharpness.wrap(objective)(model, inputs, targets, generator=bw.make_generator(6))
    found = torch.autograd.grad(terms.total, list(model.posterior.parameters()))

    noise = model.estimator.noise(model, Step(inputs, targets, generator=bw.make_generator(6)))
    assert noise is not None
    likelihood = objective.likelihood

    def nll(weights: Tensor) -> Tensor:
        return likelihood.nll(model.call(model.layout.unflatten(weights), inputs), targets).mean()

    losses, offsets = [], []
    for drawn in model.posterior.sample(noise):
        start = drawn.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(nll(start), start)
        offsets.append(sharpness.ascent(gradient, model.posterior))
        losses.append(nll(drawn + offsets[-1]))
    assert min(float((offsets[0] - other).norm()) for other in offsets[1:]) > 0.05 * RHO
    kl = model.posterior.sample_and_kl(None, model.prior)[1]
    expected_nll = torch.stack(losses).mean()
    expected = torch.autograd.grad(expected_nll + 1.3 * kl / 30, list(model.posterior.parameters()))
    assert float(terms.nll) == pytest.approx(float(expected_nll.detach()), rel=1e-12)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-13)


ESTIMATORS = [WeightSampling, Flipout, LocalReparameterization]


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda kind: kind.name)
def test_passes_equal_passes_taken_one_by_one(estimator: Any) -> None:
    """Pass d at the model moved by e_d, e_d from pass d alone: with the same noise and signs, in their order."""
    model = bw.bayesian(network(), bw.MeanField(initial_std=0.4), estimator=estimator(draws=3))
    inputs, targets = batch()
    sharpness, objective = Sharpness(RHO), bw.ELBO("categorical", 30, temperature=0.0)
    terms = sharpness.wrap(objective)(model, inputs, targets, generator=bw.make_generator(6))
    found = torch.autograd.grad(terms.total, list(model.posterior.parameters()))

    def losses_at(offsets: list[Tensor]) -> Tensor:
        generator = bw.make_generator(6)
        step = Step(inputs, targets, objective.likelihood, generator)
        noise = model.estimator.noise(model, step)
        losses = []
        for d, offset in enumerate(offsets):
            drawn = None if noise is None else model.posterior.sample(noise)[d] + offset
            losses.append(step.nll(model.estimator.forward(ShiftedModel(model, offset), drawn, step)))
        return torch.stack(losses)

    starts = [torch.zeros(model.layout.size, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    gradients = torch.autograd.grad(losses_at(starts).sum(), starts)
    offsets = [RHO * gradient / gradient.norm() for gradient in gradients]
    assert float((offsets[0] - offsets[1]).norm()) > 0.05 * RHO
    losses = losses_at(offsets)
    expected = torch.autograd.grad(losses.mean(), list(model.posterior.parameters()))
    assert float(terms.nll) == pytest.approx(float(losses.mean().detach()), rel=1e-12)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("divergence", ["analytic", "monte_carlo", "path_derivative", "score_function"])
def test_the_divergence_of_several_draws_is_not_perturbed(divergence: str) -> None:
    model = bw.bayesian(network(), bw.MeanField(initial_std=0.4), estimator=WeightSampling(3))
    inputs, targets = batch()
    objective = bw.ELBO("categorical", 7, divergence=divergence)
    plain = objective(model, inputs, targets, generator=bw.make_generator(2))
    sharp = Sharpness(0.5).wrap(objective)(model, inputs, targets, generator=bw.make_generator(2))
    assert float(sharp.kl) == pytest.approx(float(plain.kl), rel=1e-12)
    assert float(sharp.nll) > float(plain.nll) + 1e-3


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda kind: kind.name)
def test_rho_zero_is_the_base_method_bit_for_bit_with_several_draws(estimator: Any) -> None:
    model = bw.bayesian(network(), bw.MeanField(initial_std=0.4), estimator=estimator(draws=4))
    inputs, targets = batch()
    objective = bw.ELBO("categorical", 30)
    gradients = []
    for kind in (objective, Sharpness(0.0).wrap(objective)):
        one = copy.deepcopy(model)
        kind(one, inputs, targets, generator=bw.make_generator(6)).total.backward()
        gradients.append([p.grad for p in one.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


def test_an_estimator_from_outside_that_cannot_be_split_shares_one_neighbour() -> None:
    class Both:
        """The mean of two draws, by no ``forward`` of single draws: all of an estimator but ``passes``."""

        name, paper = "both", ""
        needs = provides = frozenset({"weight sample"}) & WeightSampling.provides
        likelihood_needs: frozenset[str] = frozenset()
        cost = 6.0

        def noise(self, model: Any, step: Step) -> Tensor:
            return WeightSampling(2).noise(model, step)  # type: ignore[return-value]

        def expected_nll(self, model: Any, weights: Tensor | None, step: Step) -> Any:
            return WeightSampling(2).expected_nll(model, weights, step)

    model = bw.bayesian(network(), bw.MeanField(initial_std=0.4), estimator=WeightSampling(2))
    inputs, targets = batch()
    sharp = Sharpness(RHO).wrap(bw.ELBO("categorical", 30))
    assert isinstance(sharp, SharpObjective)
    step = Step(inputs, targets, generator=bw.make_generator(6))
    assert sharp._worst_neighbour(model, step).shape == (2, model.layout.size)
    object.__setattr__(model, "estimator", Both())
    shared = sharp._worst_neighbour(model, step)
    assert shared.shape == (model.layout.size,)
    assert float(shared.norm()) == pytest.approx(RHO, rel=1e-9)
