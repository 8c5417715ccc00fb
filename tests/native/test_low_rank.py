"""Diagonal plus low-rank Gaussian weights: the compiled formulas, and the function that they are the slopes of."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayeswell as bw
from bayeswell import native
from bayeswell.posteriors import LowRankPosterior
from bayeswell.posteriors.joint_pass import joint_draws_and_kl
from bayeswell.posteriors.one_pass import GaussianPrior
from native.formulas import CONSTANT, KEY, PRIORS, ROUNDING, assert_near, each_prior, needs_library, numbers, spread
from native.low_rank import low_rank_inputs
from nets import lift

SIZES = (1, 127, 257, 16_385, 40_000)


def definition(
    mean: Tensor, log_std: Tensor, loading: Tensor, noise: Tensor | None, columns: Tensor | None, h: Tensor,
    centre: Tensor | float = 0.0,
) -> tuple[Tensor | None, Tensor, Tensor]:  # fmt: skip
    """Draws, the KL without its constant, and the sum of the absolute values of its terms."""
    std = log_std.exp()
    draws = None
    if noise is not None and columns is not None:
        draws = mean + std * (noise + columns @ loading.T)
    square = h * ((mean - centre).square() + std.square() * (1 + loading.square().sum(-1))) / 2
    log_det = torch.logdet(torch.eye(loading.shape[1], dtype=mean.dtype) + loading.T @ loading)
    return draws, (square - log_std).sum() - log_det / 2, (square + log_std.abs()).sum().detach()


@needs_library
@pytest.mark.parametrize("of", ["weights", "kl", "both", "kl without noise"])
@pytest.mark.parametrize("rank", [1, 2, 5])
@pytest.mark.usefixtures("each_library")
def test_compiled_draw_and_kl_and_their_slopes(rank: int, of: str) -> None:
    for prior in PRIORS:
        for size in SIZES:
            check_compiled(size, rank, prior, of)


def check_compiled(size: int, rank: int, prior: str, of: str) -> None:
    """Against the definition in double precision, differentiated by torch."""
    given = low_rank_inputs(size, rank, prior, drawn=of != "kl without noise")
    h = spread(given[-1]).double()
    g = numbers(size, 3, 0.3, 0.05) if of in ("weights", "both") else None
    of_kl = None if of == "weights" else torch.tensor(-0.37)
    weights, kl, gram = native.low_rank_draw_and_kl(*given)
    m, log_s, loading = (tensor.double().requires_grad_() for tensor in given[:3])
    noise, columns = (None if tensor is None else tensor.double() for tensor in given[3:5])
    products = loading.detach().T @ loading.detach()
    torch.testing.assert_close(gram, products, rtol=1e-6, atol=1e-6 * size * 0.2)
    inverse = torch.linalg.inv(torch.eye(rank, dtype=torch.float64) + products)
    found = native.low_rank_slopes(*given, inverse.float(), g, of_kl)

    draw, value, scale = definition(m, log_s, loading, noise, columns, h)
    half_log_det = torch.logdet(torch.eye(rank, dtype=torch.float64) + products) / 2
    assert kl - float(half_log_det) == pytest.approx(float(value.detach()), abs=ROUNDING * float(scale))
    total = m.new_zeros(()) if of_kl is None else of_kl.double() * value
    if weights is not None and draw is not None:
        s = log_s.detach().exp()
        terms = noise.abs() + loading.detach().abs() @ columns.abs()
        assert_near(weights, draw.detach(), m.detach().abs() + s * terms)
        total = total if g is None else total + (draw * g.double()).sum()
    for one, other in zip(found, torch.autograd.grad(total, (m, log_s, loading)), strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=3e-6)


@needs_library
@pytest.mark.parametrize("rank", [1, 2, 4, 7, 21])
@pytest.mark.usefixtures("each_library")
def test_compiled_draws(rank: int) -> None:
    """m + s (noise + L c) in double precision; a group, one of it alone, and in the memory of an earlier group."""
    for size in SIZES:
        mean, log_std, loading, *_ = low_rank_inputs(size, rank, CONSTANT)
        keys, columns = torch.tensor([KEY - 2**64, 12, -5]), numbers(3 * rank, 9, 1.1).view(3, rank)
        noise = torch.stack([native.normals(int(key) % 2**64, size) for key in keys]).double()
        std = log_std.exp()
        drawn = native.low_rank_fresh_draws(keys, mean, std, loading, columns)
        expected = mean.double() + std.double() * (noise + columns.double() @ loading.double().T)
        terms = noise.abs() + columns.double().abs() @ loading.double().abs().T
        assert_near(drawn, expected, mean.double().abs() + std.double() * terms)
        alone = native.low_rank_fresh_draws(keys[1:2], mean, std, loading, columns[1:2])
        assert torch.equal(alone[0], drawn[1])
        expected = drawn[1:].clone()
        again = native.low_rank_fresh_draws(keys[1:], mean, std, loading, columns[1:], drawn)
        assert torch.equal(again, expected)
        assert again.data_ptr() == drawn.data_ptr()


def stand_in(prior: str, size: int, centre: Tensor | None) -> tuple[Any, GaussianPrior | None, Tensor]:
    """A Gaussian prior in double precision, what the compiled formulas take of it, and its precisions."""
    precision = low_rank_inputs(size, 1, prior)[-1]
    known = GaussianPrior(native.Precision(precision.values.double(), precision.ends))
    each = spread(known.precision)
    return SimpleNamespace(inverse_variance=each, centre=centre), known if centre is None else None, each


@each_prior
@pytest.mark.parametrize("draws", [0, 1, 3])
@pytest.mark.parametrize("centred", [True, False])
def test_first_and_second_derivatives(prior: str, draws: int, centred: bool) -> None:
    size, rank = 7, 2
    given = low_rank_inputs(size, rank, prior, drawn=False)[:3]
    mean, log_std, loading = (tensor.double().requires_grad_() for tensor in given)
    whole = numbers(draws * (size + rank), 2).double().view(draws, size + rank) if draws else None
    noise, columns = (None, None) if whole is None else whole.split([size, rank], 1)
    centre = None if centred else numbers(size, 10, 0.4, -0.2).double()
    chosen, known, h = stand_in(prior, size, centre)

    def run(*state: Tensor) -> tuple[Tensor, ...]:
        weights, kl = joint_draws_and_kl(*state, whole, chosen, known, CONSTANT.double())
        return (kl,) if weights is None else (weights, kl)

    state = (mean, log_std, loading)
    draw, value, _ = definition(*state, noise, columns, h, 0.0 if centre is None else centre)
    expected = [value + CONSTANT.double()] if draw is None else [draw, value + CONSTANT.double()]
    for one, other in zip(run(*state), expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
    assert torch.autograd.gradcheck(run, state)
    # Those of second order against torch's own of the definition, which is far nearer than finite differences come: one
    # direction shows any number that is wrong. Along some, finite differences too, also where nothing comes from above.
    assert torch.autograd.gradgradcheck(run, state, fast_mode=True)
    upstream = [numbers(one.numel(), 20 + i).double().view_as(one).requires_grad_() for i, one in enumerate(expected)]
    results = []
    for outputs in (run(*state), expected):
        first = torch.autograd.grad(outputs, state, upstream, create_graph=True)
        along = sum((slope * numbers(slope.numel(), 30 + i).view_as(slope)).sum() for i, slope in enumerate(first))
        results.append(torch.autograd.grad(along, (*state, *upstream)))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("compiled", [pytest.param(True, marks=needs_library), False])
@pytest.mark.parametrize("where", range(3))
def test_what_is_not_finite_gives_a_divergence_that_is_not(where: int, compiled: bool) -> None:
    """No error in the middle: the objective looks at the loss and says that training has diverged."""
    size = 300
    mean, log_std, loading, noise, columns, precision = low_rank_inputs(size, 2, "stretches")
    assert noise is not None
    assert columns is not None
    state = [tensor.clone() for tensor in (mean, log_std, loading)]
    state[where].view(-1)[100] = math.nan
    known = GaussianPrior(precision)
    prior: Any = SimpleNamespace(inverse_variance=known.inverse_variance, centre=None)
    for tensor in state:
        tensor.requires_grad_()
    given = (*state, torch.cat([noise, columns])[None], prior, known, CONSTANT)
    if compiled:
        weights, kl = joint_draws_and_kl(*given)
    else:
        with native.disabled():
            weights, kl = joint_draws_and_kl(*given)
    assert weights is not None
    assert int(weights.isnan().sum()) == 1
    assert bool(kl.isnan())
    grads = torch.autograd.grad((weights, kl), state, (noise[None], torch.tensor(0.4)))
    assert bool(grads[where].isnan().any())


@needs_library
@pytest.mark.parametrize("prior", ["kaiming", {"name": "normal", "std": 0.7, "centre": "network"}, "laplace"])
@pytest.mark.usefixtures("each_library")
def test_noise_by_its_key_is_the_same_noise(prior: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole step, and a gradient that is differentiated: with the key alone, and with all numbers in memory."""
    torch.manual_seed(5)
    net = nn.Sequential(nn.Linear(97, 350), nn.Tanh(), nn.Linear(350, 3))
    model = lift(net, {"name": "low_rank", "rank": 3, "initial_std": 0.05}, prior=prior, estimator="weight_sampling")
    x, y = torch.randn(8, 97), torch.arange(8) % 3
    found = []
    for least in (0, 1 << 40):
        monkeypatch.setattr(LowRankPosterior, "keys_from", least)
        terms = bw.ELBO("categorical", 800)(model, x, y, generator=bw.make_generator(4))
        grads = torch.autograd.grad(terms.total, list(model.posterior.parameters()), create_graph=True)
        again = torch.autograd.grad(sum(grad.square().sum() for grad in grads), list(model.posterior.parameters()))
        found.append([terms.nll, terms.kl, *grads, *again])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
