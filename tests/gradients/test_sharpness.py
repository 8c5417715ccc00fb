"""Sharpness against closed forms: quadratics, linear losses, the limit rho -> 0, and what must not change."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor, nn

import bayeswell as bw
from bayeswell.divergences import DIVERGENCES
from bayeswell.gradients import Sharpness, ShiftedModel
from bayeswell.types import Posterior, Step

CURVATURE = 2.7


class Identity(nn.Module):
    """A network whose output is its own weight vector, so that the likelihood is a loss in weight space."""

    def __init__(self, start: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(start.clone())

    def forward(self, x: Tensor) -> Tensor:
        return self.weight.expand(len(x), -1)


class LossAsLikelihood(nn.Module):
    """nll(outputs) = loss(weights): any loss of the weights in the place of a likelihood."""

    name = "loss"

    def __init__(self, loss) -> None:
        super().__init__()
        self.loss = loss

    def check(self, targets: Tensor, outputs: Tensor) -> None:
        pass

    def nll(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return self.loss(outputs)


def quadratic(weights: Tensor) -> Tensor:
    return 0.5 * CURVATURE * weights.square().sum(-1)


def objective_for(loss, **settings) -> bw.ELBO:
    objective = bw.ELBO("categorical", 10, temperature=settings.pop("temperature", 0.0), **settings)
    objective.likelihood = LossAsLikelihood(loss)
    return objective


def point_model(start: Tensor) -> bw.BayesianModule:
    return bw.bayesian(Identity(start), "delta", "normal")


def evaluate(model, objective, seed: int = 0):
    return objective(model, torch.zeros(3, 1), torch.zeros(3), generator=bw.make_generator(seed))


def test_worst_neighbour_of_an_isotropic_quadratic_is_exact() -> None:
    start = torch.tensor([0.6, -1.1, 0.4], dtype=torch.float64)
    rho = 0.23
    terms = evaluate(point_model(start), Sharpness(rho).wrap(objective_for(quadratic)))
    radius = float(start.norm())
    assert float(terms.nll) == pytest.approx(0.5 * CURVATURE * (radius + rho) ** 2, rel=1e-12)
    sharpness = float(terms.nll) - 0.5 * CURVATURE * radius**2
    assert sharpness == pytest.approx(CURVATURE * rho * radius + 0.5 * CURVATURE * rho**2, rel=1e-10)


def test_gradient_is_that_of_the_loss_at_the_worst_neighbour() -> None:
    start = torch.tensor([0.6, -1.1, 0.4], dtype=torch.float64)
    model, rho = point_model(start), 0.23
    evaluate(model, Sharpness(rho).wrap(objective_for(quadratic))).total.backward()
    expected = CURVATURE * (start + rho * start / start.norm())
    torch.testing.assert_close(model.posterior.mean.grad, expected)


def test_a_linear_loss_keeps_its_gradient() -> None:
    slope = torch.tensor([0.3, -0.8], dtype=torch.float64)
    model = point_model(torch.tensor([1.4, 0.2], dtype=torch.float64))
    evaluate(model, Sharpness(0.4).wrap(objective_for(lambda w: w @ slope))).total.backward()
    torch.testing.assert_close(model.posterior.mean.grad, slope)


def test_difference_quotient_tends_to_the_gradient_norm() -> None:
    start = torch.tensor([0.6, -1.1, 0.4], dtype=torch.float64)

    def loss(w: Tensor) -> Tensor:
        return (w.sin() * torch.tensor([1.0, 2.0, 0.5], dtype=w.dtype)).sum(-1).exp()

    gradient = torch.func.grad(loss)(start)
    errors = []
    for rho in (1e-2, 1e-3, 1e-4):
        worst = evaluate(point_model(start), Sharpness(rho).wrap(objective_for(loss))).nll
        errors.append(abs(float((worst - loss(start)) / rho - gradient.norm())))
    # First order in rho: a tenth of the radius, a tenth of the error.
    assert errors[1] < 0.15 * errors[0]
    assert errors[2] < 0.15 * errors[1]


class Marginals(Posterior):
    """Means and stds, which is all that a geometry asks for."""

    def __init__(self, mean: Tensor, std: Tensor | None) -> None:
        super().__init__()
        self.mean, self.std = mean, std

    def mean_vector(self) -> Tensor:
        return self.mean

    def std_vector(self) -> Tensor:
        assert self.std is not None, "asked for stds that are not needed"
        return self.std


@pytest.mark.parametrize("norm", ["paper", "exact"])
def test_the_identity_asks_for_no_stds(norm: str) -> None:
    """They may take as long as the step itself; both norms are then the Euclidean one."""
    gradient = torch.tensor([0.6, -1.1, 0.4], dtype=torch.float64)
    step = Sharpness(0.31, norm=norm).ascent(gradient, Marginals(torch.zeros(3, dtype=torch.float64), None))
    torch.testing.assert_close(step, 0.31 * gradient / gradient.norm(), rtol=1e-12, atol=0)


@pytest.mark.parametrize("norm", ["paper", "exact"])
def test_geometry_and_norm_follow_their_formulas(norm: str) -> None:
    generator = torch.Generator().manual_seed(5)
    gradient, mean = torch.randn(2, 7, generator=generator, dtype=torch.float64)
    std = torch.rand(7, generator=generator, dtype=torch.float64) + 0.1
    rho, scale = 0.31, mean.abs() / std
    step = Sharpness(rho, "mean_over_std", norm).ascent(gradient, Marginals(mean, std))
    cosine = torch.nn.functional.cosine_similarity(step, scale * gradient, dim=0)
    assert float(cosine) == pytest.approx(1, abs=1e-12)
    if norm == "paper":
        assert float(step.norm()) == pytest.approx(rho, rel=1e-12)
    else:
        # On the boundary of the ball, and no other point of it has a larger linear gain.
        assert float((step.square() / scale).sum().sqrt()) == pytest.approx(rho, rel=1e-12)
        others = torch.randn(2000, 7, generator=generator, dtype=torch.float64) * scale.sqrt()
        others = rho * others / (others.square() / scale).sum(-1, keepdim=True).sqrt()
        assert float((others @ gradient).max()) < float(step @ gradient)


def classifier() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Softplus(), nn.Dropout(0.4), nn.Linear(8, 3)).double()


def batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(8)
    return torch.randn(12, 5, generator=generator, dtype=torch.float64), torch.arange(12) % 3


COMBINATIONS = [
    ("delta", "weight_sampling"),
    ("mean_field", "weight_sampling"),
    ("mean_field", "local_reparameterization"),
    ("mean_field", "flipout"),
    ("mean_field", "variational_laplace"),
    ("k_tied", "weight_sampling"),
    ("low_rank", "weight_sampling"),
    ("matrix_normal", "weight_sampling"),
    ("full", "weight_sampling"),
]


def run(model: bw.BayesianModule, objective, seed: int = 4) -> list[Tensor]:
    inputs, targets = batch()
    torch.manual_seed(seed)
    objective(model, inputs, targets, generator=bw.make_generator(seed)).total.backward()
    state = [value.clone() for value in model.net.buffers()]
    return [p.grad.clone() for p in model.parameters()] + state + [torch.get_rng_state()]


@pytest.mark.parametrize(("posterior", "estimator"), COMBINATIONS)
def test_rho_zero_is_the_base_method_bit_for_bit(posterior: str, estimator: str) -> None:
    model = bw.bayesian(classifier(), posterior, estimator=estimator)
    base, sharp = copy.deepcopy(model), copy.deepcopy(model)
    objective = bw.ELBO("categorical", 40)
    for expected, found in zip(run(base, objective), run(sharp, Sharpness(0.0).wrap(objective)), strict=True):
        assert torch.equal(expected, found)


@pytest.mark.parametrize(("posterior", "estimator"), COMBINATIONS)
def test_both_passes_see_the_same_noise_masks_and_statistics(posterior: str, estimator: str) -> None:
    """As rho -> 0 the gradients tend to the base method's: only with equal noise and dropout masks."""
    model = bw.bayesian(classifier(), posterior, estimator=estimator)
    base, sharp = copy.deepcopy(model), copy.deepcopy(model)
    objective = bw.ELBO("categorical", 40)
    for expected, found in zip(run(base, objective), run(sharp, Sharpness(1e-9).wrap(objective)), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("divergence", list(DIVERGENCES))
@pytest.mark.parametrize("posterior", ["mean_field", "low_rank", "full"])
def test_the_divergence_is_not_perturbed(posterior: str, divergence: str) -> None:
    """The gradient is that of NLL(w + e) + KL: compared with the two parts taken one by one."""
    model = bw.bayesian(nn.Linear(5, 3).double(), posterior)
    inputs, targets = batch()
    objective = bw.ELBO("categorical", 7, divergence=divergence, temperature=1.7)
    sharpness = Sharpness(0.5)
    sharp = sharpness.wrap(objective)
    terms = sharp(model, inputs, targets, generator=bw.make_generator(1))
    found = torch.autograd.grad(terms.total, list(model.posterior.parameters()))

    offset = sharp._worst_neighbour(model, Step(inputs, targets, generator=bw.make_generator(1)))
    assert float(offset.norm()) == pytest.approx(0.5, rel=1e-9)
    moved = objective.expected_nll(ShiftedModel(model, offset), inputs, targets, generator=bw.make_generator(1))
    noise = model.estimator.noise(model, Step(None, generator=bw.make_generator(1)))
    _, kl = DIVERGENCES.resolve(divergence)(model.posterior, model.prior, noise)
    expected = torch.autograd.grad(moved + 1.7 * kl / 7, list(model.posterior.parameters()))
    assert float(terms.kl) == pytest.approx(kl.item(), rel=1e-12)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "estimator",
    [
        {"name": "weight_sampling", "draws": 3},
        {"name": "flipout", "draws": 2},
        "local_reparameterization",
        {"name": "variational_laplace", "fraction": 0.5},
    ],
    ids=lambda found: found if isinstance(found, str) else found["name"],
)
def test_a_probe_finds_the_gradient_of_a_shift(estimator) -> None:
    net = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    model = bw.bayesian(net, bw.MeanField(initial_std=0.3), estimator=estimator)
    inputs, targets = batch()
    objective = bw.ELBO("categorical", 7)
    probe = ShiftedModel(model, None)
    found = probe.posterior.slope(objective.expected_nll(probe, inputs, targets, generator=bw.make_generator(1)))
    shift = torch.zeros(model.layout.size, dtype=torch.float64, requires_grad=True)
    nll = objective.expected_nll(ShiftedModel(model, shift), inputs, targets, generator=bw.make_generator(1))
    (expected,) = torch.autograd.grad(nll, shift)
    assert float(expected.norm()) > 1e-3
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-15)


def test_std_gradient_is_noise_times_the_gradient_at_the_worst_neighbour() -> None:
    start = torch.tensor([0.6, -1.1, 0.4], dtype=torch.float64)
    model = bw.bayesian(Identity(start), bw.MeanField(initial_std=0.3), "normal")
    noise = model.estimator.noise(model, Step(None, generator=bw.make_generator(0)))[0]
    evaluate(model, Sharpness(0.2).wrap(objective_for(quadratic))).total.backward()
    drawn = start + 0.3 * noise
    gradient = CURVATURE * (drawn + 0.2 * drawn / drawn.norm())
    torch.testing.assert_close(model.posterior.mean.grad, gradient)
    torch.testing.assert_close(model.posterior.log_std.grad, gradient * 0.3 * noise)


def test_bad_settings_are_refused() -> None:
    with pytest.raises(bw.SettingError, match=r"rho = -0\.1"):
        Sharpness(-0.1)
    with pytest.raises(bw.SettingError, match="did you mean 'mean_over_std'"):
        Sharpness(geometry="mean_over_sd")
    with pytest.raises(bw.SettingError, match="rho"):
        Sharpness(math.nan)
    sharp = Sharpness(0.1, geometry="mean_over_std").wrap(objective_for(quadratic))
    with pytest.raises(bw.CompositionError, match=r"mean_over_std.*'delta'.*identity"):
        evaluate(point_model(torch.ones(2)), sharp)
