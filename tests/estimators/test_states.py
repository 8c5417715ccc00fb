"""States, seeds, dtypes and copies of every posterior with every estimator."""

from __future__ import annotations

import copy

import pytest
import safetensors.torch
import torch
from torch import Tensor

import bayeswell as bw
from bayeswell.random import seed_global_generator
from estimators.pairs import LAWS, NO_NOISE, each_detailed_pair, each_pair
from nets import (
    Choice,
    lift,
    make,
    randomise,
)

DTYPES = [torch.float32, torch.float64]

each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=["float32", "float64"])


def observed(model: bw.BayesianModule, x: Tensor, seed: int) -> dict[str, Tensor]:
    """All that comes out of a model at one seed: draws, a stochastic pass, loss and the mean network."""
    found = {f"draw {name}": value for name, value in model.draw(bw.make_generator(seed)).items()}
    model.train()
    seed_global_generator(seed)
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
    model.net.batch_norm.momentum = other.net.batch_norm.momentum = 0.0  # so that looking changes neither
    first = observed(model, x, 51)
    assert not same(first, observed(other, x, 51))
    missing, unexpected = other.load_state_dict(state)
    assert not missing
    assert not unexpected
    assert same(first, observed(other, x, 51))
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
