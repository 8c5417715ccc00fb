"""Outputs of one stochastic pass: every posterior with every estimator on every kind of layer has its exact law.

Statistical checks: each compares at a false-failure rate of 1e-6 and each case makes at most four of them; with
about 300 cases the whole file fails correct code less than once in 800 seeds (and the seeds are fixed).
In 5,000 passes a variance that is off by 19 % (noise x 0.9) is off by 9.5 of its standard errors, sqrt(2 / 5000), about
twice what is let pass: it is seen with near certainty, which is itself tested below.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayeswell as bw
from bayeswell.random import seed_global_generator
from bayeswell.types import Step
from estimators.pairs import JOINT, LAWS, MARGINAL, NO_NOISE, PAIRS, PER_EXAMPLE, each_layer, each_pair, ids
from nets import (
    ESTIMATOR_DEFAULTS,
    LAYERS,
    Choice,
    covariance_of,
    generic,
    label,
    layer_op,
    lift,
    pairs,
    passes,
)
from truths.moments import OutputMoments, jacobian, output_moments_general
from truths.statistics import assert_covariance_close, assert_mean_close, assert_variance_close

PASSES = 5_000

UNSTATED = "mean and variance of each output are right; nothing is said of covariances"


# Outputs of one stochastic pass.


@cache
def jacobian_on(kind: str) -> tuple[nn.Module, Tensor]:
    """A layer that was not lifted, and how its outputs follow its weight and bias: the same wherever these are."""
    layer = LAYERS[kind].make().double()
    return layer, jacobian(layer_op(layer), LAYERS[kind].inputs(), layer.weight, layer.bias)


def exact_moments(kind: str, model: bw.BayesianModule, covariance: Tensor) -> OutputMoments:
    """Moments of a lifted single layer, from torch's own forward of the layer that was not lifted."""
    layer, dense = jacobian_on(kind)
    means = model.layout.unflatten(model.posterior.mean_vector().detach())
    x = LAYERS[kind].inputs()
    return output_moments_general(layer_op(layer), x, means["weight"], covariance, means.get("bias"), dense)


def check_law(law: str, samples: Tensor, truth: OutputMoments, bias_only: OutputMoments) -> None:
    assert_mean_close(samples, truth.mean)
    assert_variance_close(samples, truth.variance)
    if law == JOINT:
        assert_covariance_close(samples, truth.covariance)
    elif law == MARGINAL:
        assert_covariance_close(samples, truth.covariance.diagonal().diag())
    elif law == PER_EXAMPLE:
        expected, size = bias_only.covariance.clone(), truth.mean[0].numel()
        for example in range(len(truth.mean)):
            block = slice(example * size, (example + 1) * size)
            expected[block, block] = truth.covariance[block, block]
        # Gaussian within an example, but random signs make the joint law of two examples something else.
        assert_covariance_close(samples[:, 0], truth.example_covariance(0, 0))
        assert_covariance_close(samples, expected, law="any")


def lifted_layer(kind: str, posterior: Choice, estimator: Choice) -> bw.BayesianModule:
    seed_global_generator(21)
    return generic(LAYERS[kind].make(), posterior, estimator=estimator)


@cache
def moments_with(kind: str, **posterior: Any) -> tuple[list[Tensor], OutputMoments, OutputMoments]:
    """The posterior's parameters, the exact moments, and those of the bias alone: the same for every estimator."""
    model = lifted_layer(kind, posterior, {"name": "weight_sampling"})
    covariance = covariance_of(model.posterior)
    truth = exact_moments(kind, model, covariance)
    without_weight = covariance.clone()
    without_weight[model.layout.slices["weight"]] = 0
    without_weight[:, model.layout.slices["weight"]] = 0
    bias_only = exact_moments(kind, model, without_weight)
    return [parameter.detach() for parameter in model.posterior.parameters()], truth, bias_only


def moments_of(
    kind: str, posterior: Choice, estimator: Choice
) -> tuple[bw.BayesianModule, Tensor, OutputMoments, OutputMoments]:
    model = lifted_layer(kind, posterior, estimator)
    parameters, truth, bias_only = moments_with(kind, **posterior)
    assert all(map(torch.equal, model.posterior.parameters(), parameters))
    return model, LAYERS[kind].inputs(), truth, bias_only


def many_passes(model: bw.BayesianModule, x: Tensor, seed: int) -> Tensor:
    """In float32, which is several times faster and whose rounding is nothing beside the standard errors."""
    return passes(model.float(), x.float(), PASSES, seed)


@each_layer
@each_pair
def test_moments_of_one_pass(kind: str, posterior: Choice, estimator: Choice) -> None:
    model, x, truth, bias_only = moments_of(kind, posterior, estimator)
    law = LAWS.get(estimator["name"], UNSTATED)
    if law == NO_NOISE or not truth.covariance.any():
        samples = passes(model, x, 3, seed=31)
        torch.testing.assert_close(samples, truth.mean.expand_as(samples), rtol=1e-12, atol=1e-12)
        return
    check_law(law, many_passes(model, x, seed=31), truth, bias_only)


@pytest.mark.parametrize("kind", [name for name, kind in LAYERS.items() if kind.single_position])
@pytest.mark.parametrize(
    ("posterior", "estimator"),
    [pair for pair in PAIRS if LAWS.get(pair[1]["name"]) == MARGINAL],
    ids=lambda choice: label(choice),
)
def test_independent_outputs_are_exact_where_a_weight_is_used_once(
    kind: str, posterior: Choice, estimator: Choice
) -> None:
    """A dense layer, and a convolution with a single output position: no approximation within an example."""
    model, x, truth, _ = moments_of(kind, posterior, estimator)
    samples = many_passes(model, x, seed=32)
    for example in range(len(x)):
        assert_covariance_close(samples[:, example], truth.example_covariance(example, example))


@each_layer
def test_the_exact_laws_differ_enough_to_be_told_apart(kind: str) -> None:
    """Else zero covariances (between examples, between positions) would be checked against zeros."""
    _, _, truth, bias_only = moments_of(kind, {"name": "mean_field"}, {"name": "weight_sampling"})
    stds = truth.covariance.diagonal().sqrt()
    correlation = truth.covariance / torch.outer(stds, stds)
    size = truth.mean[0].numel()
    shared = bias_only.covariance / torch.outer(stds, stds)
    assert float((correlation - shared)[:size, size : 2 * size].abs().max()) > 0.2
    within = correlation[:size, :size] - torch.eye(size)
    if LAYERS[kind].single_position:
        assert float(within.abs().max()) < 1e-15
    else:
        assert float(within.abs().max()) > 0.3


NOISY_PAIRS = [pair for pair in PAIRS if LAWS.get(pair[1]["name"]) != NO_NOISE and pair[0]["name"] != "delta"]


@pytest.mark.parametrize("kind", ["linear", "conv2d"])
@pytest.mark.parametrize(("posterior", "estimator"), NOISY_PAIRS, ids=ids(NOISY_PAIRS))
def test_noise_that_is_ten_percent_short_is_seen(
    kind: str, posterior: Choice, estimator: Choice, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, x, truth, bias_only = moments_of(kind, posterior, estimator)
    full_noise = torch.randn
    monkeypatch.setattr(torch, "randn", lambda *shape, **how: 0.9 * full_noise(*shape, **how))
    short = many_passes(model, x, seed=31)
    monkeypatch.undo()
    with pytest.raises(AssertionError, match="variance is off at"):
        check_law(LAWS.get(estimator["name"], UNSTATED), short, truth, bias_only)


@pytest.mark.parametrize(
    ("posterior", "estimator"), list(pairs([{"name": "mean_field"}], ESTIMATOR_DEFAULTS)), ids=lambda c: label(c)
)
def test_passes_in_a_plain_loop_have_the_same_law(posterior: Choice, estimator: Choice) -> None:
    """``passes`` runs the library under vmap; here it is called as a user calls it."""
    model, x, truth, bias_only = moments_of("conv1d", posterior, estimator)
    seed_global_generator(33)
    with torch.no_grad():
        samples = torch.stack([model(x) for _ in range(3 if LAWS.get(estimator["name"]) == NO_NOISE else 1500)])
    if LAWS.get(estimator["name"]) == NO_NOISE:
        torch.testing.assert_close(samples, truth.mean.expand_as(samples), rtol=1e-12, atol=1e-12)
    else:
        check_law(LAWS.get(estimator["name"], UNSTATED), samples, truth, bias_only)


# Every combination works or is refused with a way out.


def test_every_parameter_has_a_gradient_even_where_there_is_no_bias() -> None:
    """A parameter without a gradient stops distributed training, which waits for it."""
    for posterior, estimator in PAIRS:
        model = lift(nn.Linear(3, 2, bias=False), posterior, estimator=estimator)
        bw.ELBO("categorical", 5)(model, torch.ones(2, 3), torch.tensor([0, 1])).total.backward()
        lost = [name for name, parameter in model.named_parameters() if parameter.grad is None]
        assert not lost, f"{label(posterior)}: {lost}"


@pytest.mark.parametrize("time_first", [False, True])
def test_flipout_gives_each_example_one_draw_for_its_whole_sequence(time_first: bool) -> None:
    """The mean over T equal steps of a sum of 4 weights of std 0.5 has std 1, and examples are uncorrelated.

    5,000 passes of 3 examples: false-failure rate 1e-6 for each of the two comparisons; a draw for each step would have
    a variance of 0.2.
    """
    model = bw.bayesian(nn.Linear(4, 1, bias=False).double(), bw.MeanField(initial_std=0.5), estimator="flipout")
    with torch.no_grad():
        model.posterior.mean.zero_()
    x = torch.ones(5, 3, 4, dtype=torch.float64) if time_first else torch.ones(3, 5, 4, dtype=torch.float64)
    generator = bw.make_generator(0)

    def one_pass(_: Tensor) -> Tensor:
        weights = model.posterior.sample(model.estimator.noise(model, Step(None, generator=generator)))[0]
        out: Tensor = model.estimator.forward(model, weights, Step(x, torch.zeros(3), generator=generator))[..., 0]
        return out.mean(0 if time_first else 1)

    with torch.no_grad():
        samples = torch.vmap(one_pass, randomness="different")(torch.empty(PASSES))
    assert_covariance_close(samples, torch.eye(3, dtype=torch.float64), law="any")
