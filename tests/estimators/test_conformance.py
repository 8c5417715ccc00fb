"""What every posterior owes to every estimator on every kind of layer. The lists come from the registries.

Statistical checks: each compares at a false-failure rate of 1e-6 and each case makes at most four of them; with
about 300 cases the whole file fails correct code less than once in 800 seeds (and the seeds are fixed).
10,000 passes show a variance off by 19 % (noise x 0.9) with near certainty; that is itself tested below.
"""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

import bayeswell as bw
from bayeswell.types import Step
from nets import (
    ESTIMATOR_CHOICES,
    ESTIMATOR_DEFAULTS,
    LAYERS,
    POSTERIOR_CHOICES,
    Choice,
    classifier_on,
    covariance_of,
    generic,
    label,
    layer_op,
    lift,
    make,
    pairs,
    passes,
    randomise,
)
from truths.moments import OutputMoments, output_moments_general
from truths.statistics import assert_covariance_close, assert_mean_close, assert_variance_close

PASSES = 10_000

JOINT = "one weight draw serves the whole batch"
PER_EXAMPLE = "one weight draw an example, uncorrelated between examples but for the shared bias"
MARGINAL = "each output its own noise: independent over examples, units and positions"
NO_NOISE = "the network at the posterior mean"
UNSTATED = "mean and variance of each output are right; nothing is said of covariances"

LAWS = {
    "weight_sampling": JOINT,
    "flipout": PER_EXAMPLE,
    "local_reparameterization": MARGINAL,
    "variational_laplace": NO_NOISE,
}
"""The law of one stochastic pass. An estimator without an entry is held to UNSTATED."""

PAIRS = list(pairs(POSTERIOR_CHOICES, ESTIMATOR_DEFAULTS))
DETAILED_PAIRS = list(pairs(POSTERIOR_CHOICES, ESTIMATOR_CHOICES))


def ids(pair_list: list[tuple[Choice, Choice]]) -> list[str]:
    return [f"{label(posterior)}+{label(estimator)}" for posterior, estimator in pair_list]


each_pair = pytest.mark.parametrize(("posterior", "estimator"), PAIRS, ids=ids(PAIRS))
each_detailed_pair = pytest.mark.parametrize(("posterior", "estimator"), DETAILED_PAIRS, ids=ids(DETAILED_PAIRS))
each_layer = pytest.mark.parametrize("kind", LAYERS)


# ---------------------------------------------------------------------------------------------------------
# Outputs of one stochastic pass.


def exact_moments(model: bw.BayesianModule, layer: nn.Module, x: Tensor, covariance: Tensor) -> OutputMoments:
    """Moments of a lifted single layer, from torch's own forward of the layer that was not lifted."""
    means = model.layout.unflatten(model.posterior.mean_vector().detach())
    return output_moments_general(layer_op(layer), x, means["weight"], covariance, means.get("bias"))


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


def lifted_layer(kind: str, posterior: Choice, estimator: Choice) -> tuple[bw.BayesianModule, nn.Module, Tensor]:
    torch.manual_seed(21)
    layer = LAYERS[kind].make().double()
    return generic(layer, posterior, estimator=estimator), layer, LAYERS[kind].inputs()


def moments_of(
    kind: str, posterior: Choice, estimator: Choice
) -> tuple[bw.BayesianModule, Tensor, OutputMoments, OutputMoments]:
    model, layer, x = lifted_layer(kind, posterior, estimator)
    covariance = covariance_of(model.posterior)
    truth = exact_moments(model, layer, x, covariance)
    without_weight = covariance.clone()
    without_weight[model.layout.slices["weight"]] = 0
    without_weight[:, model.layout.slices["weight"]] = 0
    return model, x, truth, exact_moments(model, layer, x, without_weight)


@each_layer
@each_pair
def test_moments_of_one_pass(kind: str, posterior: Choice, estimator: Choice) -> None:
    model, x, truth, bias_only = moments_of(kind, posterior, estimator)
    law = LAWS.get(estimator["name"], UNSTATED)
    if law == NO_NOISE or not truth.covariance.any():
        samples = passes(model, x, 3, seed=31)
        torch.testing.assert_close(samples, truth.mean.expand_as(samples), rtol=1e-12, atol=1e-12)
        return
    check_law(law, passes(model, x, PASSES, seed=31), truth, bias_only)


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
    samples = passes(model, x, PASSES, seed=32)
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
    short = passes(model, x, PASSES, seed=31)
    monkeypatch.undo()
    with pytest.raises(AssertionError, match="variance is off at"):
        check_law(LAWS.get(estimator["name"], UNSTATED), short, truth, bias_only)


@pytest.mark.parametrize(
    ("posterior", "estimator"), list(pairs([{"name": "mean_field"}], ESTIMATOR_DEFAULTS)), ids=lambda c: label(c)
)
def test_passes_in_a_plain_loop_have_the_same_law(posterior: Choice, estimator: Choice) -> None:
    """``passes`` runs the library under vmap; here it is called as a user calls it."""
    model, x, truth, bias_only = moments_of("conv1d", posterior, estimator)
    torch.manual_seed(33)
    with torch.no_grad():
        samples = torch.stack([model(x) for _ in range(3000)])
    if LAWS.get(estimator["name"]) == NO_NOISE:
        torch.testing.assert_close(samples, truth.mean.expand_as(samples), rtol=1e-12, atol=1e-12)
    else:
        check_law(LAWS.get(estimator["name"], UNSTATED), samples, truth, bias_only)


# ---------------------------------------------------------------------------------------------------------
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


# ---------------------------------------------------------------------------------------------------------
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


def objective_of(
    model: bw.BayesianModule, x: Tensor, likelihood: Any, targets: Tensor, divergence: str
) -> Callable[[], Tensor]:
    """The loss as a function of the parameters alone: the same noise at every call."""
    elbo = bw.ELBO(likelihood, 23, divergence=divergence, temperature=0.7)

    def total() -> Tensor:
        return elbo(model, x, targets, generator=bw.make_generator(41)).total

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
    with torch.no_grad():
        for sign in (1, -2, 1):  # there, to the other side, and back
            for parameter, part in zip(parameters, direction, strict=True):
                parameter.add_(sign * step * part)
            values.append(float(total()))
    return (values[0] - values[1]) / (2 * step)


def check_directions(total: Callable[[], Tensor], parameters: list[nn.Parameter], count: int = 1) -> None:
    gradients = gradient_of(total, parameters)
    generator = torch.Generator().manual_seed(42)
    for _ in range(count):
        direction = [torch.randn(p.shape, generator=generator, dtype=p.dtype) for p in parameters]
        slope = float(sum((g * d).sum() for g, d in zip(gradients, direction, strict=True)))
        assert difference(total, parameters, direction) == pytest.approx(slope, rel=1e-6, abs=1e-7)


def divergences_for(posterior: Choice, estimator: Choice) -> list[str]:
    """Those whose gradient is the derivative of their value, and that go with the pair."""
    found = []
    for divergence in ("analytic", "monte_carlo"):
        model = lift(nn.Linear(3, 2), posterior, estimator=estimator)
        try:
            bw.ELBO("categorical", 5, divergence=divergence)(model, torch.ones(2, 3), torch.tensor([0, 1]))
        except bw.CompositionError:
            continue
        found.append(divergence)
    assert found
    return found


@each_layer
@each_detailed_pair
def test_gradients_on_every_layer(kind: str, posterior: Choice, estimator: Choice) -> None:
    """A random direction through all parameters together; single coordinates follow on a smaller network."""
    torch.manual_seed(22)
    model = generic(classifier_on(LAYERS[kind]), posterior, estimator=estimator)
    x = LAYERS[kind].inputs()
    targets = torch.arange(len(x)) % 3
    total = objective_of(model, x, FixedLabels(), targets, "analytic")
    check_directions(total, list(model.parameters()))


@each_detailed_pair
def test_gradients_coordinate_by_coordinate(posterior: Choice, estimator: Choice) -> None:
    torch.manual_seed(23)
    net = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2))
    net[2].bias.requires_grad_(False)  # so that a deterministic tensor is on the path
    x = LAYERS["linear"].inputs()[:, :2]
    for divergence in divergences_for(posterior, estimator):
        model = generic(net, posterior, estimator=estimator)
        model.net[2].bias.requires_grad_(True)
        total = objective_of(model, x, FixedLabels(), torch.tensor([0, 1, 1]), divergence)
        parameters = list(model.parameters())
        gradients = gradient_of(total, parameters)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            for place in range(parameter.numel()):
                unit = torch.zeros(parameter.numel(), dtype=parameter.dtype)
                unit[place] = 1
                slope = difference(total, [parameter], [unit.view(parameter.shape)])
                assert slope == pytest.approx(float(gradient.flatten()[place]), rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("noise", ["known", "learned", "per_input"])
@each_detailed_pair
def test_gradients_with_gaussian_targets(posterior: Choice, estimator: Choice, noise: str) -> None:
    """The noise std of the likelihood is among the parameters."""
    torch.manual_seed(24)
    settings = {} if noise == "per_input" else {"std": 0.6}
    likelihood = FixedTargets(noise, **settings).double()
    model = generic(nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 2)), posterior, estimator=estimator)
    x = LAYERS["linear"].inputs()
    targets = torch.linspace(-1, 1.5, 3 if noise == "per_input" else 6, dtype=torch.float64).view(3, -1)
    total = objective_of(model, x, likelihood, targets, "analytic")
    check_directions(total, [*model.parameters(), *likelihood.parameters()])


SAMPLING_PAIRS = [pair for pair in DETAILED_PAIRS if "monte_carlo" in divergences_for(*pair)]


@pytest.mark.parametrize(("posterior", "estimator"), SAMPLING_PAIRS, ids=ids(SAMPLING_PAIRS))
def test_sampled_divergences_have_one_value_and_their_own_gradients(posterior: Choice, estimator: Choice) -> None:
    """With l = log q(w) - log p(w) at the same draws w: total = path + d log q, score = l d log q (w held)."""
    torch.manual_seed(25)
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


# ---------------------------------------------------------------------------------------------------------
# State, seeds, dtypes, copies.

DTYPES = [torch.float32, torch.float64]
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=["float32", "float64"])


def observed(model: bw.BayesianModule, x: Tensor, seed: int) -> dict[str, Tensor]:
    """All that comes out of a model at one seed: draws, a stochastic pass, loss and the mean network."""
    found = {f"draw {name}": value for name, value in model.draw(bw.make_generator(seed)).items()}
    model.train()
    torch.manual_seed(seed)
    found["pass"] = model(x).detach()
    terms = bw.ELBO("categorical", 23)(model, x, torch.arange(5) % 3, generator=bw.make_generator(seed))
    found["total"], found["kl"] = terms.total.detach(), terms.kl
    model.eval()
    found["mean network"] = model(x).detach()
    return found


def same(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    assert first.keys() == second.keys()
    return all(torch.equal(first[name], second[name]) for name in first)


def trained_state(posterior: Choice, estimator: Choice, dtype: torch.dtype) -> tuple[bw.BayesianModule, Tensor]:
    """A lifted network with buffers and deterministic parameters, far from where it started."""
    net, x = make("normalised")
    model = lift(net.to(dtype), posterior, estimator=estimator)
    randomise(model)
    model(x.to(dtype))  # moves the running statistics
    return model, x.to(dtype)


@each_dtype
@each_pair
def test_state_goes_through_a_file_and_into_another_network(
    posterior: Choice, estimator: Choice, dtype: torch.dtype
) -> None:
    model, x = trained_state(posterior, estimator, dtype)
    state = safetensors.torch.load(safetensors.torch.save(model.state_dict()))
    other_net, _ = make("normalised", seed=99)
    other = lift(other_net.to(dtype), posterior, prior={"name": "normal", "std": 0.9}, estimator=estimator)
    assert not same(observed(copy.deepcopy(model), x, 51), observed(copy.deepcopy(other), x, 51))
    missing, unexpected = other.load_state_dict(state)
    assert not missing
    assert not unexpected
    first, second = observed(model, x, 51), observed(other, x, 51)
    assert same(first, second)
    assert all(value.dtype == dtype for value in first.values())


@each_dtype
@each_pair
def test_seeds(posterior: Choice, estimator: Choice, dtype: torch.dtype) -> None:
    model, x = trained_state(posterior, estimator, dtype)
    model.net.batch_norm.momentum = 0.0  # so that one observation does not change the next
    first = observed(model, x, 52)
    assert same(first, observed(model, x, 52))
    other = observed(model, x, 54)
    moved = {name for name in first if not torch.equal(first[name], other[name])}
    expected = {name for name in first if name.startswith("draw")} | {"pass", "total"}
    if posterior["name"] == "delta":
        expected = set()
    elif LAWS.get(estimator["name"]) == NO_NOISE:
        expected -= {"pass"}
    assert moved == expected


@each_detailed_pair
def test_an_explicit_generator_is_the_only_one_used(posterior: Choice, estimator: Choice) -> None:
    net, x = make("mlp")
    model = lift(net, posterior, estimator=estimator)
    generator = bw.make_generator(54)
    before, own = torch.get_rng_state(), generator.get_state()
    bw.ELBO("categorical", 23)(model, x, torch.arange(5) % 3, generator=generator)
    model.draw(generator)
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(own, generator.get_state()) == (posterior["name"] == "delta")


@each_pair
def test_float32_agrees_with_float64(posterior: Choice, estimator: Choice) -> None:
    """The same parameters in both: what does not depend on noise is equal to float32's precision."""
    single, x = trained_state(posterior, estimator, torch.float32)
    single.net.batch_norm.momentum = 0.0
    double = copy.deepcopy(single).double()
    values = [observed(model, data, 55) for model, data in ((single, x), (double, x.double()))]
    for name in ("kl", "mean network"):
        torch.testing.assert_close(values[0][name].double(), values[1][name], rtol=2e-5, atol=2e-5)
    noise = torch.randn(2, single.posterior.noise_size, dtype=torch.float64)
    drawn = [single.posterior.sample(noise.float()).double(), double.posterior.sample(noise)]
    torch.testing.assert_close(drawn[0], drawn[1], rtol=2e-5, atol=2e-5)


@each_pair
def test_a_copy_is_whole_and_apart(posterior: Choice, estimator: Choice) -> None:
    model, x = trained_state(posterior, estimator, torch.float64)
    model.net.batch_norm.momentum = 0.0
    before = observed(model, x, 56)
    twin = copy.deepcopy(model)
    assert same(before, observed(twin, x, 56))
    randomise(twin, seed=57)
    twin.net.convolution.padding = (0, 0)  # the copy's layers, not the original's, are what it runs
    assert twin.layout.size == model.layout.size
    after = observed(twin, x, 56)
    assert not torch.equal(after["pass"], before["pass"])
    twin.train()
    with torch.no_grad():
        shapes = []
        twin.net.convolution.register_forward_hook(lambda _m, _i, out: shapes.append(out.shape[2:]))
        twin(x)
    assert shapes == [(2, 2)]
    assert same(before, observed(model, x, 56))


# ---------------------------------------------------------------------------------------------------------
# Every combination works or is refused with a way out.

AXES = {
    "posterior": list(bw.POSTERIORS),
    "estimator": list(bw.ESTIMATORS),
    "prior": list(bw.PRIORS),
    "divergence": list(bw.DIVERGENCES),
}


Parts = dict[str, str | None]


def step(parts: Parts) -> str:
    """Train one step with these parts: the refusal, or '' if every parameter got a finite gradient and moved."""
    torch.manual_seed(61)
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.LayerNorm(3), nn.Linear(3, 3))
    x, y = torch.randn(4, 3), torch.tensor([0, 2, 1, 1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bw.BayeswellWarning)
        try:
            model = bw.bayesian(net, parts["posterior"], parts["prior"], parts["estimator"])
            terms = bw.ELBO("categorical", 23, divergence=parts["divergence"])(model, x, y)
        except bw.CompositionError as refusal:
            return str(refusal)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    terms.total.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert bool(parameter.grad.isfinite().all()), name
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    moved = [not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True)]
    dead = [name for (name, _), changed in zip(model.named_parameters(), moved, strict=True) if not changed]
    assert not dead, f"no step for {dead}"
    return ""


def remedies(parts: Parts, refusal: str) -> list[Parts]:
    """The combinations that a refusal offers: "use estimator 'a' or 'b', or posterior 'c'"."""
    _, _, remedy = refusal.partition("use ")
    offered: dict[str, list[str | None]] = {axis: [parts[axis]] for axis in parts}
    axis = ""
    for kind, name in re.findall(r"(?:(posterior|estimator|prior|divergence) )?'(\w+)'", remedy):
        axis = kind or axis
        assert name in AXES.get(axis, []), f"'{name}' is no {axis or 'part'}: {refusal}"
        offered[axis].append(name)
    return [dict(zip(parts, choice, strict=True)) for choice in product(*offered.values())][1:]


def has_way_out(parts: Parts, rounds: int = 3) -> bool:
    """Whether following the remedies ends in parts that train; a second fault may come to light on the way."""
    refusal = step(parts)
    if not refusal:
        return True
    return rounds > 0 and any(has_way_out(way, rounds - 1) for way in remedies(parts, refusal) if way != parts)


@pytest.mark.parametrize("posterior", AXES["posterior"])
@pytest.mark.parametrize("estimator", AXES["estimator"])
def test_every_combination_trains_or_is_refused_with_a_remedy_that_works(posterior: str, estimator: str) -> None:
    for prior, divergence in product(AXES["prior"], [None, *AXES["divergence"]]):
        parts = {"posterior": posterior, "estimator": estimator, "prior": prior, "divergence": divergence}
        refusal = step(parts)
        if not refusal:
            continue
        assert "\n" not in refusal
        fault, _, remedy = refusal.partition("use ")
        # Where no divergence is chosen, the objective takes one of two.
        chosen = [posterior, estimator, prior, *([divergence] if divergence else ["analytic", "monte_carlo"])]
        assert sum(f"'{name}'" in fault for name in chosen) >= 2, f"{parts}: {refusal}"
        if fault.startswith("estimator"):
            assert f"'{estimator}'" not in remedy, f"what does not work is offered as the remedy: {refusal}"
        assert has_way_out(parts), f"{parts}: no way out in: {refusal}"


@pytest.mark.parametrize("prior", AXES["prior"])
@pytest.mark.parametrize("posterior", AXES["posterior"])
def test_some_divergence_is_found_where_none_is_chosen(posterior: str, prior: str) -> None:
    """With weight sampling every prior works: log p(w) is known at each draw, and exact for a single point."""
    refusal = step({"posterior": posterior, "estimator": "weight_sampling", "prior": prior, "divergence": None})
    assert not refusal or refusal.startswith("estimator"), refusal


def test_the_known_illegal_pairs_are_refused() -> None:
    """The list that this test would miss if every part declared that it can do everything."""
    for estimator in ("flipout", "local_reparameterization", "variational_laplace"):
        for posterior in ("low_rank", "matrix_normal", "full", "delta"):
            refusal = step({"posterior": posterior, "estimator": estimator, "prior": "normal", "divergence": None})
            assert f"'{estimator}'" in refusal
            assert f"'{posterior}'" in refusal
    for divergence in ("monte_carlo", "path_derivative", "score_function"):
        for estimator in ("local_reparameterization", "variational_laplace"):
            refusal = step(
                {"posterior": "mean_field", "estimator": estimator, "prior": "normal", "divergence": divergence}
            )
            assert f"'{divergence}'" in refusal
            assert f"'{estimator}'" in refusal


def test_a_refused_combination_leaves_the_network_as_it_was() -> None:
    net, _ = make("normalised")
    before = {name: value.clone() for name, value in net.state_dict().items()}
    state = torch.get_rng_state()
    with pytest.raises(bw.CompositionError):
        bw.bayesian(net, "full", estimator="flipout")
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
    assert torch.equal(state, torch.get_rng_state())


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

    4000 passes of 3 examples: false-failure rate 1e-6 for each of the two comparisons.
    """
    from truths.statistics import assert_covariance_close

    model = bw.bayesian(nn.Linear(4, 1, bias=False).double(), bw.MeanField(initial_std=0.5), estimator="flipout")
    with torch.no_grad():
        model.posterior.mean.zero_()
    x = torch.ones(5, 3, 4, dtype=torch.float64) if time_first else torch.ones(3, 5, 4, dtype=torch.float64)
    generator, passes = bw.make_generator(0), []
    with torch.no_grad():
        for _ in range(4000):
            weights = model.posterior.sample(model.estimator.noise(model, Step(None, generator=generator)))[0]
            out = model.estimator.forward(model, weights, Step(x, torch.zeros(3), generator=generator))[..., 0]
            passes.append(out.mean(0 if time_first else 1))
    assert_covariance_close(torch.stack(passes), torch.eye(3, dtype=torch.float64), law="any")
