"""Several draws are averaged; gradients against central differences with common random numbers."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

import bayeswell as bw
from bayeswell.random import seed_global_generator
from bayeswell.types import Step
from estimators.pairs import DETAILED_PAIRS, each_detailed_pair, each_differentiated_pair, each_layer, ids
from nets import (
    LAYERS,
    Choice,
    classifier_on,
    generic,
    lift,
    make,
)

# Several draws.


def negative_log_likelihood(outputs: Tensor, targets: Tensor) -> Tensor:
    return -outputs.log_softmax(1)[torch.arange(len(targets)), targets].mean()


@each_detailed_pair
def test_expected_nll_is_a_mean_over_the_draws(posterior: Choice, estimator: Choice) -> None:
    """Without noise in the weights every draw gives the NLL of the network itself."""
    net, x = make("mlp")
    settings = dict(posterior)
    if posterior["name"] != "delta":
        settings["initial_std"] = 1e-12
    model = lift(net.double(), settings, estimator=estimator)
    targets = torch.arange(5) % 3
    terms = bw.ELBO("categorical", 23)(model, x.double(), targets)
    truth = negative_log_likelihood(net(x.double()), targets)
    torch.testing.assert_close(terms.nll, truth.detach(), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("antithetic", [False, True])
def test_weight_sampling_averages_over_its_own_draws(antithetic: bool) -> None:
    net, x = make("mlp")
    estimator = {"name": "weight_sampling", "draws": 4, "antithetic": antithetic}
    model = generic(net, estimator=estimator)
    targets = torch.arange(5) % 3
    noise = model.estimator.noise(model, Step(None, generator=bw.make_generator(34)))
    assert noise is not None
    weights = model.posterior.sample(noise).detach()
    outputs = [model.call(model.layout.unflatten(row), x.double()) for row in weights]
    truth = torch.stack([negative_log_likelihood(output, targets) for output in outputs]).mean()
    terms = bw.ELBO("categorical", 23)(model, x.double(), targets, generator=bw.make_generator(34))
    torch.testing.assert_close(terms.nll, truth)
    assert len(noise.unique(dim=0)) == 4
    # Pairs +noise, -noise: what is odd in the noise cancels.
    assert bool((noise.sum(0).abs() < 1e-12).all()) == antithetic


# Gradients against central differences with common random numbers.


class FixedLabels(bw.Categorical):
    """Class labels whose sampled targets never change.

    Variational Laplace with ``fisher_labels`` is defined with its sampled targets held fixed. A difference
    quotient must hold them too: sampling them again at moved outputs would measure another function (for
    Gaussian targets one whose slope is not the estimator's gradient). So they are constants here.
    """

    def sample_targets(self, outputs: Tensor, generator: torch.Generator | None) -> Tensor:
        return (2 * torch.arange(len(outputs)) + 1) % outputs.shape[1]


class FixedTargets(bw.Gaussian):
    """Real targets whose sampled values never change: as ``FixedLabels``."""

    def sample_targets(self, outputs: Tensor, generator: torch.Generator | None) -> Tensor:
        mean, _ = self.mean_and_variance(outputs.detach())
        return torch.linspace(-1.4, 1.1, mean.numel(), dtype=mean.dtype).sin().view_as(mean)


NOISE_SEED = 41


def objective_with(likelihood: Any, divergence: str, **settings: Any) -> bw.ELBO:
    return bw.ELBO(likelihood, 23, divergence=divergence, temperature=0.7, **settings)


def objective_of(
    model: bw.BayesianModule, x: Tensor, likelihood: Any, targets: Tensor, divergence: str
) -> Callable[[], Tensor]:
    """The loss as a function of the parameters alone: the same noise at every call."""
    elbo = objective_with(likelihood, divergence)

    def total() -> Tensor:
        return elbo(model, x, targets, generator=bw.make_generator(NOISE_SEED)).total

    return total


def gradient_of(total: Callable[[], Tensor], parameters: list[nn.Parameter]) -> list[Tensor]:
    found = torch.autograd.grad(total(), parameters, allow_unused=True)
    # An empty parameter (no site without ties, say) has no gradient to be wrong.
    assert all(g is not None or p.numel() == 0 for p, g in zip(parameters, found, strict=True))
    return [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, found, strict=True)]


def difference(
    total: Callable[[], Tensor], parameters: list[nn.Parameter], direction: list[Tensor], step: float = 5e-6
) -> float:
    """[f(p + step d) - f(p - step d)] / (2 step); error about step^2 f''' and 1e-16 f / step: below 1e-8."""
    values = []
    places = [parameter.detach().clone() for parameter in parameters]
    with torch.no_grad():
        for side in (step, -step):
            for parameter, place, part in zip(parameters, places, direction, strict=True):
                torch.add(place, part, alpha=side, out=parameter)
            values.append(float(total()))
        for parameter, place in zip(parameters, places, strict=True):
            parameter.copy_(place)
    return (values[0] - values[1]) / (2 * step)


def parts_of(vector: Tensor, parameters: list[nn.Parameter]) -> list[Tensor]:
    """The last axis in pieces, each with the shape of a parameter."""
    pieces = vector.split([p.numel() for p in parameters], dim=-1)
    return [part.view(*vector.shape[:-1], *p.shape) for part, p in zip(pieces, parameters, strict=True)]


def differences(
    model: bw.BayesianModule, x: Tensor, likelihood: Any, targets: Tensor, divergence: str, step: float = 5e-6
) -> Tensor:
    """``difference`` along every coordinate, with the points on both sides of all of them side by side."""
    loss = bw.Loss(objective_with(likelihood, divergence, check=False), model)
    names, parameters = zip(*loss.named_parameters(), strict=True)

    def total(point: Tensor) -> Tensor:
        loss.generator = bw.make_generator(NOISE_SEED)
        value: Tensor = functional_call(loss, dict(zip(names, parts_of(point, parameters), strict=True)), (x, targets))
        return value

    with torch.no_grad():
        at = torch.cat([p.flatten() for p in parameters])
        steps = step * torch.eye(len(at), dtype=at.dtype)
        above, below = (torch.vmap(total, randomness="same")(points) for points in (at + steps, at - steps))
    return (above - below) / (2 * step)


def check_directions(total: Callable[[], Tensor], parameters: list[nn.Parameter], count: int = 1) -> None:
    gradients = gradient_of(total, parameters)
    generator = torch.Generator().manual_seed(42)
    for _ in range(count):
        direction = [torch.randn(p.shape, generator=generator, dtype=p.dtype) for p in parameters]
        slope = float(sum((g * d).sum() for g, d in zip(gradients, direction, strict=True)))
        assert difference(total, parameters, direction) == pytest.approx(slope, rel=1e-6, abs=1e-7)


def goes_with(divergence: str, posterior: Choice, estimator: Choice) -> bool:
    """What the library itself says of the three."""
    model = lift(nn.Linear(3, 2), posterior, estimator=estimator)
    try:
        bw.ELBO("categorical", 5, divergence=divergence)(model, torch.ones(2, 3), torch.tensor([0, 1]))
    except bw.CompositionError:
        return False
    return True


SAMPLING_PAIRS = [pair for pair in DETAILED_PAIRS if goes_with("monte_carlo", *pair)]


def divergences_for(posterior: Choice, estimator: Choice) -> list[str]:
    """Those whose gradient is the derivative of their value, and that go with the pair."""
    found = ["analytic"] if goes_with("analytic", posterior, estimator) else []
    if (posterior, estimator) in SAMPLING_PAIRS:
        found.append("monte_carlo")
    assert found
    return found


@cache
def classifier_of(kind: str) -> nn.Module:
    """Lifting leaves the network as it was: every test of a kind has the same."""
    seed_global_generator(22)
    return classifier_on(LAYERS[kind])


@each_layer
@each_differentiated_pair
def test_gradients_on_every_layer(kind: str, posterior: Choice, estimator: Choice) -> None:
    """A random direction through all parameters together; single coordinates follow on a smaller network."""
    net = classifier_of(kind)
    seed_global_generator(22)
    model = generic(net, posterior, estimator=estimator)
    x = LAYERS[kind].inputs()
    targets = torch.arange(len(x)) % 3
    total = objective_of(model, x, FixedLabels(), targets, "analytic")
    check_directions(total, list(model.parameters()))


@each_differentiated_pair
def test_gradients_coordinate_by_coordinate(posterior: Choice, estimator: Choice) -> None:
    seed_global_generator(23)
    net = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2))
    net[2].bias.requires_grad_(False)  # so that a deterministic tensor is on the path
    x, targets = LAYERS["linear"].inputs()[:, :2], torch.tensor([0, 1, 1])
    for divergence in divergences_for(posterior, estimator):
        model = generic(net, posterior, estimator=estimator)
        model.net[2].bias.requires_grad_(True)
        total = objective_of(model, x, FixedLabels(), targets, divergence)
        parameters = list(model.parameters())
        gradient = torch.cat([part.flatten() for part in gradient_of(total, parameters)])
        if estimator["name"] == "variational_laplace":  # its own derivatives do not go with vmap
            units = torch.eye(len(gradient), dtype=gradient.dtype)
            found = [difference(total, parameters, parts_of(unit, parameters)) for unit in units]
        else:
            found = differences(model, x, FixedLabels(), targets, divergence).tolist()
        assert len(found) > 0
        assert found == pytest.approx(gradient.tolist(), rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("noise", ["known", "learned", "per_input"])
@each_differentiated_pair
def test_gradients_with_gaussian_targets(posterior: Choice, estimator: Choice, noise: str) -> None:
    """The noise std of the likelihood is among the parameters."""
    seed_global_generator(24)
    settings = {} if noise == "per_input" else {"std": 0.6}
    likelihood = FixedTargets(noise, **settings).double()
    model = generic(nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 2)), posterior, estimator=estimator)
    x = LAYERS["linear"].inputs()
    targets = torch.linspace(-1, 1.5, 3 if noise == "per_input" else 6, dtype=torch.float64).view(3, -1)
    total = objective_of(model, x, likelihood, targets, "analytic")
    check_directions(total, [*model.parameters(), *likelihood.parameters()])


@pytest.mark.parametrize(("posterior", "estimator"), SAMPLING_PAIRS, ids=ids(SAMPLING_PAIRS))
def test_sampled_divergences_have_one_value_and_their_own_gradients(posterior: Choice, estimator: Choice) -> None:
    """With l = log q(w) - log p(w) at the same draws w: total = path + d log q, score = l d log q (w held)."""
    seed_global_generator(25)
    model = generic(nn.Linear(3, 2), posterior, estimator=estimator)
    noise = model.estimator.noise(model, Step(None, generator=bw.make_generator(43)))
    parameters = list(model.posterior.parameters())
    values, gradients = {}, {}
    for name in ("monte_carlo", "path_derivative", "score_function"):
        _, value = bw.DIVERGENCES.resolve(name)(model.posterior, model.prior, noise)
        values[name] = value
        gradients[name] = torch.autograd.grad(value, parameters, allow_unused=True, materialize_grads=True)
    fixed = model.posterior.sample(noise).detach()
    log_q = model.posterior(fixed)
    ratio = (log_q - model.prior.log_prob(fixed)).detach()
    score = torch.autograd.grad(log_q.mean(), parameters, retain_graph=True, materialize_grads=True, allow_unused=True)
    weighted = torch.autograd.grad((ratio * log_q).mean(), parameters, materialize_grads=True, allow_unused=True)
    for name, value in values.items():
        torch.testing.assert_close(value, ratio.mean(), msg=name)
    for place in range(len(parameters)):
        total, path = gradients["monte_carlo"][place], gradients["path_derivative"][place]
        torch.testing.assert_close(total, path + score[place])
        torch.testing.assert_close(gradients["score_function"][place], weighted[place])
    assert sum(float(part.abs().sum()) for part in score) > 1e-2, "else the two gradients would be one"
