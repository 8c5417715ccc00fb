"""The compiled formulas against the same formulas in double precision, and what happens where they cannot be used."""

from __future__ import annotations

import _ctypes
import ctypes
import importlib.metadata
import importlib.util
import itertools
import json
import math
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import bayeswell as bw
from bayeswell import native
from bayeswell.native import library
from bayeswell.posteriors.one_pass import GaussianPrior, draws_and_kl, point_and_kl, variances, weighted_squares
from bayeswell.posteriors.std_forms import AS_IT_IS, FROM_LOG_STD, FROM_RHO, StdForm
from bayeswell.random import make_generator, normals_of_key
from nets import lift

ROOT = Path(__file__).resolve().parents[1]
needs_library = pytest.mark.skipif(not native.available(), reason="the compiled library is not there, or turned off")

SIZES = (1, 127, 128, 255, 256, 257, 16384, 16385, 40_000)
MANY = 50_051
"""Enough for several threads, and no multiple of anything."""

CONSTANT = torch.tensor(-2.31)
"""What a prior adds to the KL."""

KEY = 0xA4093822299F31D0
KEYS = torch.tensor([KEY - 2**64, -3, 1])
ROUNDING = 1e-6
"""About ten roundings of float32, of the sum of the absolute values of all terms."""
TINY = torch.finfo(torch.float32).tiny

BY_FORM: dict[int, StdForm] = {0: FROM_LOG_STD, 1: AS_IT_IS}
each_form = pytest.mark.parametrize("form", [0, 1], ids=["from_log_std", "as_it_is"])
PRIORS = ("scalar", "vector", "stretches")
each_prior = pytest.mark.parametrize("prior", PRIORS)


def _machine_runs() -> tuple[str, ...]:
    return library._BY_CAPABILITY.get(torch.backends.cpu.get_cpu_capability(), ("default",))


@pytest.fixture(params=["avx512", "avx2", "default"])
def each_library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Every library that this machine can run, not only the one that it would choose."""
    name: str = request.param
    if name not in _machine_runs():
        pytest.skip(f"this machine does not run {name}")
    monkeypatch.setattr(library, "_BY_CAPABILITY", {torch.backends.cpu.get_cpu_capability(): (name,)})
    library._library.cache_clear()
    if library._library() is None:
        library._library.cache_clear()
        pytest.skip(f"kernels-{name}.so was not made")
    yield name
    library._library.cache_clear()


def numbers(size: int, seed: int, scale: float = 1.0, offset: float = 0.0) -> Tensor:
    """Generic float32 numbers, from torch's own generator."""
    return _drawn(size, seed) * scale + offset


@cache
def _drawn(size: int, seed: int) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed))


def states(form: int, size: int) -> Tensor:
    """log stds from -80 to 5, or stds from 1e-6 to 10."""
    share = torch.rand(size, generator=torch.Generator().manual_seed(5))
    return share * 85 - 80 if form == 0 else 10 ** (share * 7 - 6)


LENGTHS = (1, 1, 2, 0, 119, 3, 1, 7, 300, 16_000, 1, 5000)
"""Of stretches with one precision: many in one block, of one weight, of none, and across the borders of chunks."""


def precisions(prior: str, size: int) -> native.Precision:
    """1/1.7^2 for all weights, or one from 0.1 to 30 for each weight, or for each stretch."""
    if prior == "scalar":
        return native.Precision(torch.tensor([1 / 1.7**2]), torch.tensor([size]))
    ends = torch.tensor(LENGTHS * (1 + size // sum(LENGTHS))).cumsum(0)
    ends = torch.cat([ends[ends < size], torch.tensor([size])]) if prior == "stretches" else None
    count = size if ends is None else len(ends)
    return native.Precision(0.1 * 300 ** torch.rand(count, generator=torch.Generator().manual_seed(6)), ends)


def spread(precision: native.Precision) -> Tensor:
    """The precision of each weight."""
    if precision.ends is None:
        return precision.values
    return precision.values.repeat_interleave(precision.ends.diff(prepend=torch.zeros(1, dtype=torch.int64)))


def gaussian(prior: str, size: int, dtype: torch.dtype = torch.float32) -> GaussianPrior:
    """As a prior holds them."""
    precision = precisions(prior, size)
    each = precision.values[0] if prior == "scalar" else spread(precision)
    return GaussianPrior(each.to(dtype), native.Precision(precision.values.to(dtype), precision.ends))


def the_same(value: float, size: int) -> native.Precision:
    """One precision for all weights."""
    return native.Precision(torch.tensor([value]), torch.tensor([size]))


def std_of(form: int, state: Tensor) -> Tensor:
    """By its definition."""
    return state.exp() if form == 0 else state


def assert_near(found: Tensor, expected: Tensor, scale: Tensor, rounding: float = ROUNDING) -> None:
    """Within roundings of the terms that were added up; below the smallest normal number anything near 0 will do."""
    assert found.dtype == torch.float32
    assert found.shape == expected.shape
    errors = (found.double() - expected).abs() - rounding * scale - TINY
    assert float(errors.max()) <= 0, f"number {int(errors.argmax())} is {float(found.flatten()[errors.argmax()]):.9g}"


# ---------------------------------------------------------------------------------------------------------
# Every formula in double precision.


@needs_library
@each_form
@pytest.mark.usefixtures("each_library")
def test_fresh_draws(form: int) -> None:
    for size in SIZES:
        mean, state = numbers(size, 1, 0.7, 0.1), states(form, size)
        noise = torch.stack([native.normals(key, size) for key in (KEY, KEY + 1, 2**64 - 5)]).double()
        std = std_of(form, state.double())
        drawn = native.fresh_draws(form, torch.tensor([KEY - 2**64, KEY + 1 - 2**64, -5]), mean, state)
        assert drawn.shape == (3, size)
        assert_near(drawn, mean.double() + std * noise, mean.double().abs() + (std * noise).abs())


@needs_library
@each_form
@pytest.mark.usefixtures("each_library")
def test_draw_and_kl(form: int) -> None:
    for prior, size, drawn in itertools.product(PRIORS, SIZES, (True, False)):
        check_draw_and_kl(form, prior, size, drawn)


def check_draw_and_kl(form: int, prior: str, size: int, drawn: bool) -> None:
    mean, state, precision = numbers(size, 1, 0.7, 0.1), states(form, size), precisions(prior, size)
    noise = numbers(size, 2)[None] if drawn else None
    weights, kl = native.draw_and_kl(form, mean, state, noise, precision)
    m, s = mean.double(), std_of(form, state.double())
    square = spread(precision).double() * (m.square() + s.square()) / 2
    assert kl == pytest.approx(float((square - s.log()).sum()), abs=ROUNDING * float((square + s.log().abs()).sum()))
    if noise is None:
        assert weights is None
    else:
        offset = s * noise[0].double()
        assert weights is not None
        assert_near(weights, m + offset, m.abs() + offset.abs())


@needs_library
@each_form
@pytest.mark.parametrize("of", ["weights", "kl", "both", "kl without noise"])
@pytest.mark.usefixtures("each_library")
def test_slopes(form: int, of: str) -> None:
    for prior, size in itertools.product(PRIORS, SIZES):
        check_slopes(form, prior, size, of)


def check_slopes(form: int, prior: str, size: int, of: str) -> None:
    """Against torch's own differentiation of the formulas."""
    mean, state, precision = numbers(size, 1, 0.7, 0.1), states(form, size), precisions(prior, size)
    h = spread(precision).double()
    noise = None if of == "kl without noise" else numbers(size, 2)[None]
    of_weights = numbers(size, 3, 0.3, 0.05)[None] if of in ("weights", "both") else None
    of_kl = None if of == "weights" else torch.tensor(-0.37)
    found = native.slopes(form, mean, state, noise, precision, of_weights, of_kl)

    m, start = mean.double().requires_grad_(), state.double().requires_grad_()
    s = std_of(form, start)
    total = m.new_zeros(())
    if of_weights is not None and noise is not None:
        total = total + ((m + s * noise.double()) * of_weights.double()).sum()
    if of_kl is not None:
        total = total + of_kl.double() * (h * (m.square() + s.square()) / 2 - s.log()).sum()
    expected = torch.autograd.grad(total, (m, start))

    with torch.no_grad():
        g = torch.zeros_like(m) if of_weights is None else of_weights[0].double().abs()
        eps = torch.zeros_like(m) if noise is None else noise[0].double().abs()
        c = 0.0 if of_kl is None else abs(float(of_kl))
        slope, log_slope = (s, torch.ones_like(s)) if form == 0 else (torch.ones_like(s), 1 / s)
        assert_near(found[0], expected[0], g + c * h * m.abs())
        assert_near(found[1], expected[1], (g * eps + c * h * s) * slope + c * log_slope)


@needs_library
@each_prior
@pytest.mark.usefixtures("each_library")
def test_half_squares_and_their_slope(prior: str) -> None:
    of_sum = torch.tensor(-0.37)
    for size in SIZES:
        mean, precision, g = numbers(size, 1, 0.7, 0.1), precisions(prior, size), numbers(size, 3, 0.3, 0.05)
        m, h = mean.double(), spread(precision).double()
        assert native.half_squares(mean, precision) == pytest.approx(float((h * m.square()).sum()) / 2, rel=ROUNDING)
        flow = float(of_sum) * h * m
        assert_near(native.half_squares_slope(mean, precision, None, of_sum), flow, flow.abs())
        found = native.half_squares_slope(mean, precision, g, of_sum)
        assert_near(found, g.double() + flow, g.double().abs() + flow.abs())


@needs_library
@each_form
@pytest.mark.usefixtures("each_library")
def test_variance_and_its_slope(form: int) -> None:
    for size in SIZES:
        state, of_variance = states(form, size), numbers(size, 3, 0.3, 0.05)
        start = state.double().requires_grad_()
        variance = std_of(form, start).square()
        (expected,) = torch.autograd.grad(variance, start, of_variance.double())
        assert_near(native.variance(form, state), variance.detach(), variance.detach())
        assert_near(native.variance_slope(form, of_variance, state), expected, expected.abs())


@needs_library
@each_form
@pytest.mark.usefixtures("each_library")
def test_weighted_squares_and_their_slopes(form: int) -> None:
    """Stds from 1e-4 on: the squares of much smaller ones are below float32's numbers."""
    for size in SIZES:
        state, values = states(form, size).clamp_min(-9 if form == 0 else 1e-4), numbers(size, 1, 0.7, 0.1)
        start, v = state.double().requires_grad_(), values.double().requires_grad_()
        total = (std_of(form, start) * v).square().sum()
        assert native.weighted_squares(form, state, values) == pytest.approx(total.item(), rel=ROUNDING)
        expected = torch.autograd.grad(total, (start, v), torch.tensor(-0.37).double())
        for found, slope in zip(
            native.weighted_squares_slopes(form, state, values, torch.tensor(-0.37)), expected, strict=True
        ):
            assert_near(found, slope, slope.abs())


def tied_factors(rows: int, columns: int, rank: int) -> tuple[Tensor, Tensor]:
    """Factors whose products are from about 0.01 to 1."""
    left = numbers(rows * rank, 11, 0.6, -1.3).exp().view(rows, rank)
    return left, numbers(rank * columns, 12, 0.6, -1.3).exp().view(rank, columns)


def as_site(left: Tensor, right: Tensor) -> tuple[Tensor, int, Tensor, None]:
    """One matrix that is tied, as the compiled formulas take it: sites, rank, factors (row by row), log stds."""
    (rows, rank), columns = left.shape, right.shape[1]
    sites = torch.tensor([[0, rows * columns, columns, 0, rows * rank]])
    return sites, rank, torch.cat([left.reshape(-1), right.T.reshape(-1)]), None


def tied_draw_and_kl(left: Tensor, right: Tensor, *others: Any) -> tuple[Tensor | None, float]:
    """For one matrix."""
    return native.tied_draw_and_kl(*as_site(left, right), *others)


def tied_slopes(left: Tensor, right: Tensor, *others: Any) -> tuple[Tensor, Tensor, Tensor]:
    """For one matrix: of the mean, and of the factors."""
    of_mean, of_factors, _ = native.tied_slopes(*as_site(left, right), *others)
    return of_mean, of_factors[: left.numel()].view_as(left), of_factors[left.numel() :].view_as(right.T).T


MATRICES = [(1, 1), (1, 257), (257, 1), (5, 256), (128, 128), (130, 300), (3, 9_000), (16_000, 2), (70, 1)]


@needs_library
@pytest.mark.parametrize("of", ["weights", "kl", "both", "kl without noise"])
@pytest.mark.parametrize("rank", [1, 3])
@pytest.mark.usefixtures("each_library")
def test_tied_draw_and_kl_and_their_slopes(rank: int, of: str) -> None:
    for prior, shape in itertools.product(("scalar", "vector"), MATRICES):
        check_tied(prior, rank, shape, of)


def check_tied(prior: str, rank: int, shape: tuple[int, int], of: str) -> None:
    """Against the product of the factors in double precision, differentiated by torch."""
    rows, columns = shape
    size = rows * columns
    left, right = tied_factors(rows, columns, rank)
    mean, precision = numbers(size, 1, 0.7, 0.1), precisions(prior, size)
    h = spread(precision).double()
    noise = None if of == "kl without noise" else numbers(size, 2)
    of_weights = numbers(size, 3, 0.3, 0.05) if of in ("weights", "both") else None
    of_kl = None if of == "weights" else torch.tensor(-0.37)
    weights, kl = tied_draw_and_kl(left, right, mean, noise, precision)
    of_mean, of_left, of_right = tied_slopes(left, right, mean, noise, precision, of_weights, of_kl)

    m, u, v = (tensor.double().requires_grad_() for tensor in (mean, left, right))
    s = (u @ v).view(-1)
    square = h * (m.square() + s.square()) / 2
    total = m.new_zeros(())
    if weights is not None and noise is not None:
        draw = m + s * noise.double()
        assert_near(weights, draw.detach(), (m.abs() + (draw - m).abs()).detach())
        if of_weights is not None:
            total = total + (draw * of_weights.double()).sum()
    if of_kl is not None:
        total = total + of_kl.double() * (square - s.log()).sum()
    scale = ROUNDING * float((square + s.log().abs()).detach().sum())
    assert kl == pytest.approx(float((square - s.log()).detach().sum()), abs=scale)
    slopes = torch.autograd.grad(total, (m, u, v))

    with torch.no_grad():
        g = torch.zeros_like(m) if of_weights is None else of_weights.double().abs()
        eps = torch.zeros_like(m) if noise is None else noise.double().abs()
        c = 0.0 if of_kl is None else abs(float(of_kl))
        of_std = (g * eps + c * (h * s + 1 / s)).view(rows, columns)
        assert_near(of_mean, slopes[0], g + c * h * m.abs())
        assert_near(of_left, slopes[1], of_std @ v.T, rounding=2 * ROUNDING)
        # Added up row by row in single precision, up to 8,192 rows of a narrow matrix.
        assert_near(of_right, slopes[2], u.T @ of_std, rounding=(2 if rows < 1000 else 30) * ROUNDING)


SIDE_BY_SIDE = [(3, 0), (35, 7), (300, 0), (39_000, 300), (1, 0), (16, 4)]
"""Sizes of sites and their columns (0: not tied)."""


@needs_library
@pytest.mark.parametrize("of", ["weights", "kl", "both", "kl without noise"])
@pytest.mark.parametrize("prior", ["by site", "vector"])
@pytest.mark.usefixtures("each_library")
def test_several_sites_tied_and_not(prior: str, of: str) -> None:
    """Each with its own place for weights, factors and log stds, and with its own precision."""
    rank, rows, at, of_factors, of_free = 2, [], 0, 0, 0
    for size, columns in SIDE_BY_SIDE:
        right = of_factors + size // columns * rank if columns else 0
        rows.append([at, size, columns, of_factors if columns else of_free, right])
        at += size
        of_factors = right + columns * rank if columns else of_factors
        of_free += 0 if columns else size
    ends = torch.tensor([row[0] + row[1] for row in rows])
    h = numbers(len(rows) if prior == "by site" else at, 6, 0.8).exp()
    precision = native.Precision(h, ends if prior == "by site" else None)
    factors, log_std = numbers(of_factors, 11, 0.6, -1.3).exp(), numbers(of_free, 4, 0.5, -2.0)
    mean, noise = numbers(at, 1, 0.7, 0.1), None if of == "kl without noise" else numbers(at, 2)
    g = numbers(at, 3, 0.3, 0.05) if of in ("weights", "both") else None
    c = None if of == "weights" else torch.tensor(-0.37)
    state = (torch.tensor(rows), rank, factors, log_std, mean, noise, precision)
    weights, kl = native.tied_draw_and_kl(*state)
    found = native.tied_slopes(*state, g, c)

    m, f, free = (tensor.double().requires_grad_() for tensor in (mean, factors, log_std))
    stds = []
    for _, size, columns, first, second in rows:
        if columns:
            left, right_factors = f[first:second].view(-1, rank), f[second : second + columns * rank].view(-1, rank)
            stds.append((left @ right_factors.T).view(-1))
        else:
            stds.append(free[first : first + size].exp())
    s = torch.cat(stds)
    terms = spread(precision).double() * (m.square() + s.square()) / 2 - s.log()
    assert kl == pytest.approx(float(terms.detach().sum()), abs=ROUNDING * float(terms.detach().abs().sum()))
    total = m.new_zeros(()) if c is None else c.double() * terms.sum()
    if weights is not None and noise is not None:
        draw = m + s * noise.double()
        assert_near(weights, draw.detach(), m.detach().abs() + (draw - m).detach().abs())
        total = total if g is None else total + (draw * g.double()).sum()
    for one, other in zip(found, torch.autograd.grad(total, (m, f, free)), strict=True):
        assert one is not None
        torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=1e-5)


@needs_library
@pytest.mark.usefixtures("each_library")
def test_tied_factors_that_underflow_or_are_none() -> None:
    """A row of zeros: its stds are 0 and their logarithms have no slope. A NaN shows wherever it has been."""
    rows, columns = 4, 300
    left, right = tied_factors(rows, columns, 2)
    left[1] = 0
    mean, h = numbers(rows * columns, 1), the_same(0.35, rows * columns)
    noise, g, of_kl = numbers(rows * columns, 2), numbers(rows * columns, 3), torch.tensor(0.37)
    weights, kl = tied_draw_and_kl(left, right, mean, noise, h)
    assert weights is not None
    std = (left.double() @ right.double()).clamp_min(TINY)
    expected = float((0.175 * (mean.double().square() + std.view(-1).square()) - std.log().view(-1)).sum())
    assert kl == pytest.approx(expected, rel=1e-6)
    assert torch.equal(weights.view(rows, columns)[1], mean.view(rows, columns)[1])
    _, of_left, of_right = tied_slopes(left, right, mean, noise, h, g, of_kl)
    torch.testing.assert_close(of_left[1], right @ (g * noise).view(rows, columns)[1], rtol=1e-5, atol=1e-5)
    assert bool(of_right.isfinite().all())
    right[1, 290] = math.nan
    weights, kl = tied_draw_and_kl(left, right, mean, noise, h)
    assert weights is not None
    assert math.isnan(kl)
    assert int(weights.isnan().sum()) == rows
    _, of_left, of_right = tied_slopes(left, right, mean, noise, h, g, of_kl)
    assert bool(of_left.isnan().all())
    assert int(of_right.isnan().sum()) == 2


# ---------------------------------------------------------------------------------------------------------
# Steps of samplers and optimizers: each as it is called, and by its equations in double precision.

Vectors = dict[str, Tensor]
Result = dict[str, Any]
RATE, SCALE, DECAY, KEEP, GAIN, EPS = 0.013, 0.21, 0.03, 0.95, 0.13, 1e-8
BETAS = (0.9, 0.999)


@dataclass(frozen=True)
class Step:
    """``run`` changes vectors in place, or returns what it makes; ``equations`` returns both, in double precision."""

    run: Callable[[Vectors], Result | None]
    equations: Callable[[Vectors], Result]


def step_vectors(size: int, seed: int = 0) -> Vectors:
    """Weights, gradients and all kinds of state, in float32."""
    return {
        "weights": numbers(size, 1 + seed, 0.7, 0.1),
        "grads": numbers(size, 3 + seed, 0.3),
        "means": numbers(size, 4 + seed, 0.2),
        "squares": numbers(size, 7 + seed, 0.4).square(),
        "largest": numbers(size, 8 + seed, 0.4).square(),
        "log_std": numbers(size, 9 + seed, 0.5, -2.0),
        "of_log_std": numbers(size, 10 + seed, 0.01),
        "precision": numbers(size, 11 + seed, 0.8, 0.5).exp(),
        "decay": numbers(size, 12 + seed, 0.1).abs() + 0.01,
    }


def _noise(like: Tensor, key: int | None) -> Tensor:
    return torch.zeros_like(like) if key is None else native.normals(key, len(like)).double()


def _langevin(key: int | None) -> Step:
    def equations(x: Vectors) -> Result:
        return {"weights": x["weights"] - RATE * x["grads"] + SCALE * _noise(x["weights"], key)}

    return Step(lambda x: native.langevin_step(key, x["weights"], x["grads"], RATE, SCALE), equations)


def _hamiltonian(key: int | None, split: bool) -> Step:
    def run(x: Vectors) -> None:
        settings = {"momentum": 0.83, "rate": RATE, "scale": SCALE}
        native.hamiltonian_step(key, x["weights"], x["grads"], x["means"], split=split, **settings)

    def equations(x: Vectors) -> Result:
        kicked, noise = x["means"] - RATE * x["grads"], SCALE * _noise(x["weights"], key)
        velocity = 0.83 * (kicked if split else x["means"]) - (0 if split else RATE) * x["grads"] + noise
        moved = (kicked + velocity) / 2 if split else velocity
        return {"means": velocity, "weights": x["weights"] + moved}

    return Step(run, equations)


def _preconditioned(key: int | None) -> Step:
    def run(x: Vectors) -> None:
        settings = {"keep": KEEP, "gain": GAIN, "correction": 0.4, "damping": 1e-2, "rate": RATE, "scale": SCALE}
        native.preconditioned_step(key, x["weights"], x["grads"], x["squares"], **settings)

    def equations(x: Vectors) -> Result:
        squares = KEEP * x["squares"] + GAIN * x["grads"].square()
        size = 1 / ((squares / 0.4).sqrt() + 1e-2)
        moved = SCALE * size.sqrt() * _noise(x["weights"], key) - RATE * size * x["grads"]
        return {"squares": squares, "weights": x["weights"] + moved}

    return Step(run, equations)


def _bounded(amsbound: bool, bounds: tuple[float, float]) -> Step:
    names = ("weights", "grads", "means", "squares", *(["largest"] if amsbound else []))

    def run(x: Vectors) -> None:
        settings = {"decay": DECAY, "eps": EPS, "floor": bounds[0], "ceiling": bounds[1], "rate": RATE}
        columns = [halves(x[name]) for name in names]
        native.bounded_step(*columns[:4], columns[4] if amsbound else None, betas=BETAS, **settings)

    def equations(x: Vectors) -> Result:
        g = x["grads"] + DECAY * x["weights"]
        means = BETAS[0] * x["means"] + (1 - BETAS[0]) * g
        squares = BETAS[1] * x["squares"] + (1 - BETAS[1]) * g.square()
        top = torch.maximum(x["largest"], squares) if amsbound else squares
        moved = RATE * means / (top.sqrt() + EPS).clamp(*bounds)
        largest = {"largest": top} if amsbound else {}
        return {"means": means, "squares": squares, "weights": x["weights"] - moved, **largest}

    return Step(run, equations)


def _norms(decay: float) -> Step:
    def run(x: Vectors) -> Result:
        columns = [halves(x[name]) for name in ("weights", "grads", "means")]
        return dict(zip("ga", native.gradient_norms(*columns, decay=decay, keep=KEEP, gain=GAIN), strict=True))

    def equations(x: Vectors) -> Result:
        g = x["grads"] + decay * x["weights"]
        return {"g": float(g.norm()), "a": float((KEEP * x["means"] + GAIN * g).norm())}

    return Step(run, equations)


def _momentum(momentum: float) -> Step:
    def run(x: Vectors) -> None:
        columns = [halves(x[name]) for name in ("weights", "grads", "means", "log_std")]
        settings = {"decay": DECAY, "keep": KEEP, "gain": GAIN, "shrink": 0.7, "rate": RATE}
        native.momentum_step(*columns, momentum=momentum, **settings)

    def equations(x: Vectors) -> Result:
        g = x["grads"] + DECAY * x["weights"]
        buffers = momentum * x["log_std"] + 0.7 * g
        kept = {"log_std": buffers} if momentum else {}
        return {"means": KEEP * x["means"] + GAIN * g, "weights": x["weights"] - RATE * buffers, **kept}

    return Step(run, equations)


def _newton(clip: float) -> Step:
    names = ("weights", "grads", "log_std", "of_log_std", "precision", "means", "decay", "squares")

    def run(x: Vectors) -> None:
        settings = {"ess": 70.0, "rate": 0.05, "gain": 0.1, "correction": 0.4, "clip": clip, "lr": 0.3}
        native.newton_step(*(x[name] for name in names), **settings)

    def equations(x: Vectors) -> Result:
        change = 0.05 * (x["decay"] / x["precision"] + 70 * x["of_log_std"] - 1)
        precision = x["precision"] * (1 + change + change.square() / 2)
        means = 0.9 * x["means"] + 0.1 * x["grads"]
        move = ((means / 0.4 + x["decay"] * x["weights"]) / precision).clamp(-clip, clip)
        moved = {"weights": x["weights"] - 0.3 * move * x["squares"], "log_std": -0.5 * (70 * precision).log()}
        return {"precision": precision, "means": means, **moved}

    return Step(run, equations)


def halves(vector: Tensor) -> list[Tensor]:
    """As several parameters, one of them empty, that lie one after the other."""
    third = len(vector) // 3
    return [vector[:third], vector[third:third], vector[third:]]


STEPS: dict[str, Step] = {
    "langevin_step": _langevin(KEY),
    "langevin_step, no noise": _langevin(None),
    "hamiltonian_step": _hamiltonian(KEY, split=False),
    "hamiltonian_step, split": _hamiltonian(KEY, split=True),
    "hamiltonian_step, no noise": _hamiltonian(None, split=False),
    "hamiltonian_step, split, no noise": _hamiltonian(None, split=True),
    "preconditioned_step": _preconditioned(KEY),
    "preconditioned_step, no noise": _preconditioned(None),
    "bounded_step": _bounded(False, (0.0, math.inf)),
    "bounded_step, closing": _bounded(False, (0.2, 0.3)),
    "bounded_step, amsbound, closing": _bounded(True, (0.2, 0.3)),
    "magnitude": Step(
        lambda x: {"sum": native.magnitude(x["grads"])}, lambda x: {"sum": float(x["grads"].abs().sum())}
    ),
    "magnitude, three": Step(
        lambda x: {"sum": native.magnitude(x["grads"], None, x["means"], x["weights"])},
        lambda x: {"sum": float(sum(x[name].abs().sum() for name in ("grads", "means", "weights")))},
    ),
    "gradient_norms": _norms(0.0),
    "gradient_norms, decay": _norms(DECAY),
    "momentum_step": _momentum(0.83),
    "momentum_step, none": _momentum(0.0),
    "newton_step": _newton(math.inf),
    "newton_step, clipped": _newton(0.2),
}


@needs_library
@pytest.mark.parametrize("name", STEPS)
@pytest.mark.usefixtures("each_library")
def test_steps(name: str) -> None:
    """What a step changes is as its equations say, and it changes nothing else."""
    for size in SIZES:
        vectors = step_vectors(size)
        doubles = {key: vector.double() for key, vector in vectors.items()}
        expected = STEPS[name].equations(doubles)
        found: Result = {**vectors, **(STEPS[name].run(vectors) or {})}
        for key, value in {**doubles, **expected}.items():
            if isinstance(value, Tensor) and key not in expected:
                assert torch.equal(found[key].double(), value), f"{key} was changed"
            elif isinstance(value, Tensor):
                tolerance = 2 * ROUNDING * float(value.abs().max())
                torch.testing.assert_close(found[key].double(), value, rtol=2 * ROUNDING, atol=tolerance)
            else:
                assert found[key] == pytest.approx(value, rel=2 * ROUNDING, abs=1e-6 * size)


@needs_library
def test_first_steps_keep_all_digits_of_small_differences() -> None:
    """v = (1 - b2) g^2: 1 - 0.999 in single precision would have only five right digits."""
    vectors = step_vectors(300)
    vectors["squares"].zero_()
    g = vectors["grads"].double() + DECAY * vectors["weights"].double()
    STEPS["bounded_step"].run(vectors)
    assert_near(vectors["squares"], 0.001 * g.square(), 0.001 * (vectors["grads"].double().abs() + 0.1).square())


@needs_library
def test_sums_lose_nothing_to_their_length() -> None:
    """A million equal numbers, of which float32 alone would lose a part."""
    values = torch.full((1_000_003,), 0.1)
    assert native.magnitude(values) == pytest.approx(1_000_003 * float(values[0].double()), rel=1e-6)
    zeros = torch.zeros_like(values)
    _, kl = native.draw_and_kl(0, zeros, zeros - 3.3, None, the_same(0.0, len(values)))
    assert kl == pytest.approx(1_000_003 * 3.3, rel=1e-6)


# ---------------------------------------------------------------------------------------------------------
# Every function, called with generic numbers: what they have in common.


def _slopes(size: int) -> tuple[Tensor, Tensor]:
    given = (numbers(size, 2)[None], precisions("stretches", size), numbers(size, 3)[None], torch.tensor(-0.37))
    return native.slopes(0, numbers(size, 1), states(0, size), *given)


def _draw_and_kl(size: int) -> tuple[Any, ...]:
    h = precisions("stretches", size)
    return native.draw_and_kl(1, numbers(size, 1), states(1, size), numbers(size, 2)[None], h)


def _tied(size: int) -> tuple[Tensor, Tensor, Tensor, int]:
    columns = 50
    size -= size % columns
    return *tied_factors(size // columns, columns, 2), numbers(size, 1), size


def _tied_draw_and_kl(size: int) -> tuple[Any, ...]:
    left, right, mean, size = _tied(size)
    return tied_draw_and_kl(left, right, mean, numbers(size, 2), precisions("vector", size))


def _tied_slopes(size: int) -> tuple[Tensor, ...]:
    left, right, mean, size = _tied(size)
    given = (numbers(size, 2), the_same(0.35, size), numbers(size, 3), torch.tensor(-0.37))
    return tied_slopes(left, right, mean, *given)


def _step(name: str, size: int) -> tuple[Any, ...]:
    vectors = step_vectors(size)
    return *(STEPS[name].run(vectors) or {}).values(), *vectors.values()


CALLS: dict[str, Callable[[int], tuple[Any, ...]]] = {
    "normals": lambda size: (native.normals(KEY, size),),
    "fresh_draws": lambda size: (native.fresh_draws(0, KEYS, numbers(size, 1), states(0, size)),),
    "draw_and_kl": _draw_and_kl,
    "slopes": _slopes,
    "half_squares": lambda size: (native.half_squares(numbers(size, 1), precisions("stretches", size)),),
    "half_squares_slope": lambda size: (
        native.half_squares_slope(
            numbers(size, 1), precisions("stretches", size), numbers(size, 3), torch.tensor(-0.37)
        ),
    ),
    "variance": lambda size: (native.variance(0, states(0, size)),),
    "variance_slope": lambda size: (native.variance_slope(0, numbers(size, 3), states(0, size)),),
    "weighted_squares": lambda size: (native.weighted_squares(0, states(0, size), numbers(size, 1)),),
    "weighted_squares_slopes": lambda size: native.weighted_squares_slopes(
        0, states(0, size), numbers(size, 1), torch.tensor(-0.37)
    ),
    "tied_draw_and_kl": _tied_draw_and_kl,
    "tied_slopes": _tied_slopes,
    **{name: partial(_step, name) for name in STEPS},
}
each_call = pytest.mark.parametrize("name", CALLS)


def test_every_function_is_here() -> None:
    assert {name.split(",")[0] for name in CALLS} == set(library._SIGNATURES) - {"version"}


@needs_library
def test_results_do_not_depend_on_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    results = []
    for threads in (1, 2):
        # The compiled formulas ask for it; torch itself stays at one, as two would wait for each other here.
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        results.append({name: call(MANY) for name, call in CALLS.items()})
    monkeypatch.undo()
    for name in CALLS:
        for one, two in zip(results[0][name], results[1][name], strict=True):
            assert torch.equal(one, two) if isinstance(one, Tensor) else one == two, name


@needs_library
@each_call
def test_nothing_at_all_is_computed_of_nothing(name: str) -> None:
    for result in CALLS[name](0):
        assert not bool(result.count_nonzero()) if isinstance(result, Tensor) else result == 0


@needs_library
@pytest.mark.parametrize("size", [1, 255, 257, 2051])
@pytest.mark.usefixtures("each_library")
def test_nothing_is_written_beside_the_vector(size: int) -> None:
    """Vectors that lie within others, at no special address."""
    guard, at = 7.25, 5
    whole = torch.full((size + 300,), guard)

    def untouched() -> bool:
        return bool((whole[:at] == guard).all()) and bool((whole[at + size :] == guard).all())

    mine = whole[at : at + size]
    for step in STEPS.values():
        for changed in ("weights", "means", "squares", "largest", "log_std", "precision"):
            vectors = step_vectors(size)
            mine.copy_(vectors[changed])
            step.run(vectors)
            step.run({**step_vectors(size), changed: mine})
            torch.testing.assert_close(mine, vectors[changed], rtol=1e-6, atol=1e-6)
            assert untouched()
    library.call("normals", size, KEY, mine)
    assert torch.equal(mine, native.normals(KEY, size))
    assert untouched()
    rows = torch.full((4, size + 7), guard)
    library.call("fresh_draws", size, 0, KEYS, 3, numbers(size, 1), states(0, size), rows, size + 7)
    assert torch.equal(rows[:3, :size], native.fresh_draws(0, KEYS, numbers(size, 1), states(0, size)))
    assert bool((rows[:, size:] == guard).all())
    assert bool((rows[3] == guard).all())


# ---------------------------------------------------------------------------------------------------------
# Numbers that are none, and numbers that are too small.


def eager_twin(function: Callable[[], Any]) -> tuple[Any, Any]:
    """With the library, and without."""
    found = function()
    with native.disabled():
        return found, function()


def assert_same_kinds(found: Tensor, expected: Tensor) -> None:
    """NaN where NaN is expected, the same infinity where an infinity is, and finite elsewhere."""
    assert torch.equal(found.isnan(), expected.isnan())
    assert torch.equal(found.isposinf(), expected.isposinf())
    assert torch.equal(found.isneginf(), expected.isneginf())


@needs_library
@each_form
@pytest.mark.parametrize("where", ["mean", "state", "noise", "inverse_variance", "of_weights", "of_kl"])
@pytest.mark.usefixtures("each_library")
def test_what_is_not_finite_comes_out_as_from_torch(form: int, where: str) -> None:
    for bad in (math.nan, math.inf, -math.inf):
        if form == 0 or where != "state" or not bad < 0:  # a standard deviation is not negative
            check_not_finite(form, bad, where)


def check_not_finite(form: int, bad: float, where: str) -> None:
    """In the middle of a vector register, and in the rest at the end."""
    size, places = 257, (100, 256)
    given = {
        "mean": numbers(size, 1),
        "state": numbers(size, 4, 0.5, -2.0) if form == 0 else states(1, size),
        "noise": numbers(size, 2)[None],
        "inverse_variance": precisions("vector", size).values,
        "of_weights": numbers(size, 3)[None],
        "of_kl": torch.tensor(0.37),
    }
    for place in places:
        given[where].view(-1)[place if given[where].numel() > 1 else 0] = bad

    prior = GaussianPrior(given["inverse_variance"], native.Precision(given["inverse_variance"], None))

    def run() -> tuple[Tensor, ...]:
        mean, state = given["mean"].clone().requires_grad_(), given["state"].clone().requires_grad_()
        weights, kl = draws_and_kl(mean, state, given["noise"], prior, CONSTANT, BY_FORM[form])
        assert weights is not None
        grads = torch.autograd.grad((weights, kl), (mean, state), (given["of_weights"], given["of_kl"]))
        return weights.detach(), kl.detach(), *grads

    found, expected = eager_twin(run)
    for which, (one, other) in enumerate(zip(found, expected, strict=True)):
        if which == 1:
            # The KL of an infinite std is infinity here, and torch's is infinity minus infinity.
            assert bool(one.isfinite()) == bool(other.isfinite())
        else:
            assert_same_kinds(one, other)
    assert not all(bool(result.isfinite().all()) for result in found)


@needs_library
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.usefixtures("each_library")
def test_what_is_not_finite_shows_in_sums_and_steps(bad: float) -> None:
    """A gradient that is not finite: so is every sum, and every number made of it, and no other number."""
    for (name, step), place in itertools.product(STEPS.items(), (100, 256)):
        vectors = step_vectors(257)
        vectors["grads"][place] = bad
        before = {key: vector.clone() for key, vector in vectors.items()}
        found: Result = {**vectors, **(step.run(vectors) or {})}
        # An infinite denominator: Adam-like steps may stay finite, a clipped one always; but what they keep is not.
        expected = step.equations({key: vector.double() for key, vector in before.items()})
        for key, value in expected.items():
            if isinstance(value, Tensor):
                assert torch.equal(found[key].isfinite(), value.isfinite()), f"{name}: {key}"
            else:
                assert not math.isfinite(found[key]), f"{name}: {key}"


@needs_library
@pytest.mark.usefixtures("each_library")
def test_stds_that_underflow() -> None:
    """log_std = -200: the std is 0, the draw is the mean, and the KL's slope by log_std is still -1."""
    size, h, c = 257, the_same(0.35, 257), 0.37
    mean, state, noise = numbers(size, 1, 0.7, 0.1), torch.full((size,), -200.0), numbers(size, 2)[None]
    assert torch.equal(native.fresh_draws(0, KEYS, mean, state)[0], mean)
    weights, kl = native.draw_and_kl(0, mean, state, noise, h)
    assert weights is not None
    assert torch.equal(weights, mean[None] if weights.dim() == 2 else mean)
    assert kl == pytest.approx(float((0.35 * mean.double().square() / 2 + 200).sum()), rel=1e-6)
    of_mean, of_state = native.slopes(0, mean, state, noise, h, numbers(size, 3)[None], torch.tensor(c))
    assert torch.equal(of_state, torch.full((size,), -torch.tensor(c)))
    torch.testing.assert_close(of_mean, numbers(size, 3) + c * 0.35 * mean, rtol=1e-6, atol=1e-6)
    assert torch.equal(native.variance(0, state), torch.zeros(size))
    assert torch.equal(native.variance_slope(0, noise[0], state).abs(), torch.zeros(size))


@needs_library
@pytest.mark.usefixtures("each_library")
def test_stds_of_zero_as_they_are() -> None:
    """std = 0: the logarithm stops at the smallest normal number and has no slope there."""
    size, h, c = 257, the_same(0.35, 257), 0.37
    mean, state, noise, g = (
        numbers(size, 1, 0.7, 0.1),
        torch.zeros(size),
        numbers(size, 2)[None],
        numbers(size, 3)[None],
    )
    state[3], state[256] = TINY / 4, 2 * TINY
    weights, kl = native.draw_and_kl(1, mean, state, noise, h)
    assert weights is not None
    assert torch.equal(weights.view(-1), mean)
    logs = 256 * math.log(TINY) + math.log(2 * TINY)
    assert kl == pytest.approx(float((0.35 * mean.double().square() / 2).sum()) - logs, rel=1e-6)
    _, of_state = native.slopes(1, mean, state, noise, h, g, torch.tensor(c))
    torch.testing.assert_close(of_state[:256], (g * noise)[0, :256], rtol=1e-6, atol=0)
    assert float(of_state[256]) == pytest.approx(-c / (2 * TINY), rel=1e-6)


@needs_library
@pytest.mark.usefixtures("each_library")
def test_exponentials_at_their_edges() -> None:
    """exp ends at the edges of float32's normal numbers: 0 below, infinity above."""
    state = torch.tensor(
        [-1e30, -1000.0, -104.0, -87.5, -87.0, -86.9, -1e-8, 0.0, 1e-8, 43.9, 44.1, 87.9, 88.0, 89.0, 1e30]
    )
    ones = torch.ones(15)
    _, std = native.slopes(0, ones, state, ones[None], the_same(1.0, 15), ones[None], None)  # d (m + s) / d log s = s
    expected = state.double().exp().float()
    expected[3] = 0.0  # exp(-87.5) is below the normal numbers
    torch.testing.assert_close(std, expected, rtol=5e-7, atol=0)


# ---------------------------------------------------------------------------------------------------------
# Draws and divergence as one differentiable function.


def formula(
    mean: Tensor, state: Tensor, noise: Tensor | None, prior: GaussianPrior, constant: Tensor, form: StdForm
) -> tuple[Tensor | None, Tensor]:
    """As it stands in the docstring, for torch to differentiate."""
    std = {FROM_LOG_STD: torch.exp, AS_IT_IS: torch.clone, FROM_RHO: F.softplus}[form](state)
    weights = None if noise is None else mean + std * noise
    terms = spread(prior.precision) * (mean.square() + std.square()) / 2 - std.log()
    return weights, constant + terms.sum()


each_std_form = pytest.mark.parametrize(
    "form", [FROM_LOG_STD, FROM_RHO, AS_IT_IS], ids=["from_log_std", "from_rho", "as_it_is"]
)


def doubles(form: StdForm, size: int = 7) -> tuple[Tensor, Tensor]:
    """A mean and a state with stds from about 0.02 to 2."""
    mean = numbers(size, 1, 0.7, 0.1).double()
    std = torch.logspace(-1.7, 0.3, size, dtype=torch.float64)
    state = {FROM_LOG_STD: std.log(), AS_IT_IS: std, FROM_RHO: std.expm1().log()}[form]
    return mean.requires_grad_(), state.requires_grad_()


@each_std_form
@each_prior
@pytest.mark.parametrize("draws", [0, 1, 3])
def test_gradients_of_draws_and_kl(form: StdForm, prior: str, draws: int) -> None:
    mean, state = doubles(form)
    h = gaussian(prior, 7, torch.float64)
    noise = numbers(draws * 7, 2).double().view(draws, 7) if draws else None

    def run(mean: Tensor, state: Tensor) -> tuple[Tensor, ...]:
        weights, kl = draws_and_kl(mean, state, noise, h, CONSTANT.double(), form)
        return (kl,) if weights is None else (weights, kl)

    assert torch.autograd.gradcheck(run, (mean, state))
    # gradcheck compares a function with its own slope; the function itself is compared here.
    for one, other in zip(
        draws_and_kl(mean, state, noise, h, CONSTANT.double(), form),
        formula(mean, state, noise, h, CONSTANT.double(), form),
        strict=True,
    ):
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


@each_std_form
def test_gradients_of_variances(form: StdForm) -> None:
    _, state = doubles(form)
    assert torch.autograd.gradcheck(lambda state: variances(state, form), (state,))
    std = {FROM_LOG_STD: torch.exp, AS_IT_IS: torch.clone, FROM_RHO: F.softplus}[form](state)
    torch.testing.assert_close(variances(state, form), std.square(), rtol=1e-12, atol=0)


@each_std_form
def test_gradients_of_weighted_squares(form: StdForm) -> None:
    values, state = doubles(form)
    assert torch.autograd.gradcheck(lambda state, values: weighted_squares(state, values, form), (state, values))
    std = {FROM_LOG_STD: torch.exp, AS_IT_IS: torch.clone, FROM_RHO: F.softplus}[form](state)
    torch.testing.assert_close(weighted_squares(state, values, form), (std * values).square().sum(), rtol=1e-12, atol=0)


@each_std_form
def test_second_derivatives(form: StdForm) -> None:
    """Of the draws, of the KL alone, of both, of variances and of squares; of a point too."""
    mean, state = doubles(form)
    noise, prior = numbers(7, 2)[None].double(), gaussian("vector", 7, torch.float64)
    constant = CONSTANT.double()

    def drawn(mean: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        weights, kl = draws_and_kl(mean, state, noise, prior, constant, form)
        assert weights is not None
        return weights.pow(3), kl

    check = torch.autograd.gradgradcheck
    assert check(drawn, (mean, state))
    assert check(lambda mean, state: draws_and_kl(mean, state, None, prior, constant, form)[1], (mean, state))
    assert check(lambda mean, state: drawn(mean, state)[0].sum() + drawn(mean, state)[1] ** 2, (mean, state))
    assert check(lambda state: variances(state, form), (state,))
    assert check(lambda state, values: weighted_squares(state, values, form), (state, mean))
    assert check(lambda mean: point_and_kl(mean, prior, constant), (mean,))


@pytest.mark.parametrize("posterior", ["mean_field", "k_tied", "delta"])
@pytest.mark.parametrize("estimator", ["weight_sampling", "flipout", "local_reparameterization"])
def test_second_derivatives_of_the_objective(posterior: str, estimator: str) -> None:
    """In single precision, compiled where that is used, against differences of gradients."""
    if posterior == "delta" and estimator != "weight_sampling":
        pytest.skip("a point has no std")
    torch.manual_seed(3)
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 3))
    model = bw.bayesian(net, posterior, "normal", estimator)
    objective = bw.ELBO("categorical", 5)
    x, y = numbers(15, 1).view(5, 3), torch.tensor([0, 2, 1, 1, 0])
    parameters = list(model.parameters())
    directions = [numbers(p.numel(), 5 + i).view_as(p) for i, p in enumerate(parameters)]

    def slopes(create_graph: bool) -> list[Tensor]:
        total = objective(model, x, y, generator=bw.make_generator(7)).total
        return list(torch.autograd.grad(total, parameters, create_graph=create_graph))

    along = sum((g * d).sum() for g, d in zip(slopes(True), directions, strict=True))
    products = torch.autograd.grad(along, parameters)
    ahead, behind = [], []
    for sign, into in ((1, ahead), (-1, behind)):
        with torch.no_grad():
            for p, d in zip(parameters, directions, strict=True):
                p.add_(d, alpha=sign * 1e-2)
        into += [g.double() for g in slopes(False)]
        with torch.no_grad():
            for p, d in zip(parameters, directions, strict=True):
                p.sub_(d, alpha=sign * 1e-2)
    for product, plus, minus in zip(products, ahead, behind, strict=True):
        torch.testing.assert_close(product.double(), (plus - minus) / 2e-2, rtol=2e-2, atol=2e-2)


@each_std_form
@each_prior
@pytest.mark.parametrize("way", ["native", "eager"])
def test_draws_and_kl_in_single_precision(form: StdForm, prior: str, way: str) -> None:
    """Both ways against torch's differentiation in double precision."""
    if way == "native" and not native.available():
        pytest.skip("the compiled library is not there, or turned off")
    for draws, of in itertools.product([0, 1, 3], ["weights", "kl", "both"]):
        if draws or of != "weights":  # without noise there are no weights
            check_in_single_precision(form, prior, draws, of, way)


def check_in_single_precision(form: StdForm, prior: str, draws: int, of: str, way: str) -> None:
    """One number of draws, and some of the two results used."""
    size = 1000
    mean, start = (tensor.detach().float().requires_grad_() for tensor in doubles(form, size))
    noise = numbers(draws * size, 2).view(draws, size) if draws else None
    upstream = [numbers(draws * size, 3, 0.3).view(draws, size), torch.tensor(0.37)]
    used = {"weights": [0], "kl": [1], "both": [0, 1] if draws else [1]}[of]

    def gradients(function: Callable[..., tuple[Tensor | None, Tensor]], dtype: torch.dtype) -> list[Tensor]:
        inputs = [tensor.detach().to(dtype).requires_grad_() for tensor in (mean, start)]
        given = (None if noise is None else noise.to(dtype), gaussian(prior, size, dtype), CONSTANT.to(dtype))
        results = function(*inputs, *given, form)
        outputs = [result for i in used if (result := results[i]) is not None]
        found = torch.autograd.grad(outputs, inputs, [upstream[i].to(dtype) for i in used])
        return [result.detach() for result in results if result is not None] + list(found)

    expected = gradients(formula, torch.float64)
    if way == "eager":
        with native.disabled():
            found = gradients(draws_and_kl, torch.float32)
    else:
        found = gradients(draws_and_kl, torch.float32)
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        # Relative to the largest: some differences cancel.
        torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=2e-6 * float(other.abs().max().clamp(max=10)))


@needs_library
def test_several_draws_or_another_form_are_left_to_torch(calls: list[str]) -> None:
    h = gaussian("scalar", 9)
    mean, state = torch.zeros(9, requires_grad=True), torch.full((9,), -1.3, requires_grad=True)
    for form, draws, expected in [
        (FROM_LOG_STD, 1, ["draw_and_kl", "slopes"]),
        (FROM_LOG_STD, 2, []),
        (FROM_RHO, 1, []),
    ]:
        calls.clear()
        weights, kl = draws_and_kl(mean, state, numbers(9 * draws, 2).view(draws, 9), h, CONSTANT, form)
        assert weights is not None
        (weights.square().sum() + kl).backward()
        assert calls == expected


@each_prior
@pytest.mark.parametrize("of", ["weights", "kl", "both"])
@pytest.mark.parametrize("way", ["native", "eager", "double"])
def test_point_and_kl(prior: str, of: str, way: str) -> None:
    """The weights of a delta posterior and -log p up to a constant: k + h m^2 / 2, with slopes g + c h m."""
    if way == "native" and not native.available():
        pytest.skip("the compiled library is not there, or turned off")
    size, dtype = 1000, torch.float64 if way == "double" else torch.float32
    mean = numbers(size, 1, 0.7, 0.1).to(dtype).requires_grad_()
    chosen, g, c = gaussian(prior, size, dtype), numbers(size, 3, 0.3, 0.05).to(dtype)[None], torch.tensor(-0.37)

    def run() -> tuple[Tensor, Tensor, Tensor]:
        weights, kl = point_and_kl(mean, chosen, CONSTANT.to(dtype))
        used = {"weights": [(weights, g)], "kl": [(kl, c.to(dtype))], "both": [(weights, g), (kl, c.to(dtype))]}[of]
        outputs, upstream = zip(*used, strict=True)
        return weights.detach(), kl.detach(), torch.autograd.grad(outputs, mean, upstream)[0]

    with native.disabled() if way == "eager" else nullcontext():
        weights, kl, of_mean = run()
    m, h = mean.detach().double(), spread(chosen.precision).double()
    assert torch.equal(weights, mean.detach()[None])
    near = 1e-12 if way == "double" else 1e-6
    assert kl.item() == pytest.approx(CONSTANT.item() + float((h * m.square()).sum()) / 2, rel=near)
    expected = (0 if of == "kl" else g[0].double()) + (0 if of == "weights" else c.double() * h * m)
    torch.testing.assert_close(of_mean.double(), expected, rtol=near, atol=near * float(h.max()))


@needs_library
def test_a_point_is_computed_by_the_compiled_formulas(calls: list[str]) -> None:
    mean = numbers(9, 1).requires_grad_()
    weights, kl = point_and_kl(mean, gaussian("stretches", 9), CONSTANT)
    (weights.square().sum() + kl).backward()
    assert calls == ["half_squares", "half_squares_slope"]


# ---------------------------------------------------------------------------------------------------------
# When it is used, and when not.


class Special(Tensor):
    """A subclass may mean anything by its memory."""


@needs_library
def test_what_is_taken() -> None:
    plain = torch.ones(6)
    assert native.takes(plain)
    assert native.takes(plain, None, nn.Parameter(plain), plain.view(2, 3), torch.tensor(1.0), plain[2:5])
    refused = {
        "double precision": plain.double(),
        "half precision": plain.half(),
        "whole numbers": plain.int(),
        "every other number": plain[::2],
        "a transposed matrix": plain.view(2, 3).T,
        "one number many times": torch.ones(1).expand(6),
        "another device": torch.ones(6, device="meta"),
        "a subclass": plain.as_subclass(Special),
        "sparse": plain.to_sparse(),
        "zeros without memory": torch._efficientzerotensor((6,)),
    }
    if torch.backends.mkldnn.is_available():
        refused["mkldnn's own layout"] = plain.to_mkldnn()
    for what, tensor in refused.items():
        assert not native.takes(tensor), what
        assert not native.takes(plain, tensor), what


@needs_library
def test_nothing_is_taken_inside_transforms() -> None:
    """Neither the transformed vector nor one from outside: a result would be of one row only."""
    outside, answers = torch.ones(3), []

    def function(x: Tensor) -> Tensor:
        answers.extend([native.takes(x), native.takes(outside)])
        return x.square().sum()

    torch.vmap(function)(torch.ones(2, 3))
    torch.func.grad(function)(torch.ones(3))
    torch.func.jvp(function, (torch.ones(3),), (torch.ones(3),))
    torch.func.jacrev(function)(torch.ones(3))
    assert answers
    assert not any(answers)
    assert native.takes(outside)


def test_tables_lie_in_the_memory_of_the_cpu() -> None:
    """Whatever device torch makes tensors on by default: the compiled formulas read them."""
    net = nn.Linear(4, 3)
    with torch.device("meta"):
        model = lift(net, {"name": "k_tied", "rank": 2})
        assert model.layout.ends.tolist() == [12, 15]
    assert model.posterior.table.device.type == "cpu"


@pytest.mark.parametrize("of", ["weights", "kl"])
def test_gradients_in_a_batch(of: str) -> None:
    """``is_grads_batched`` hands several gradients over in one tensor without memory of its own."""
    mean, state, noise = numbers(9, 1).requires_grad_(), numbers(9, 4, 0.5, -2.0).requires_grad_(), numbers(9, 2)[None]
    weights, kl = draws_and_kl(mean, state, noise, gaussian("stretches", 9), CONSTANT, FROM_LOG_STD)
    assert weights is not None
    point, point_kl = point_and_kl(mean, gaussian("stretches", 9), CONSTANT)
    for output, inputs in [
        (weights if of == "weights" else kl, [mean, state]),
        (point if of == "weights" else point_kl, [mean]),
    ]:
        upstream = numbers(3 * output.numel(), 3).view(3, *output.shape)
        found = torch.autograd.grad(output, inputs, upstream, is_grads_batched=True, retain_graph=True)
        for row in range(3):
            expected = torch.autograd.grad(output, inputs, upstream[row], retain_graph=True)
            for one, other in zip(found, expected, strict=True):
                torch.testing.assert_close(one[row], other, rtol=1e-5, atol=1e-6)


@needs_library
def test_disabled_is_for_a_block_and_ends_with_it() -> None:
    plain = torch.ones(6)
    with native.disabled():
        assert not native.available()
        assert not native.takes(plain)
        with native.disabled():
            assert not native.available()
        assert not native.available()
    assert native.available()
    with pytest.raises(KeyError), native.disabled():
        raise KeyError
    assert native.takes(plain)


def test_turned_off_by_the_environment() -> None:
    script = (
        "import torch, bayeswell.native as native, bayeswell.random as random\n"
        "print(native.available(), native.takes(torch.ones(3)), float(random.normals_of_key(5, 300)[7]))"
    )
    environment = {**os.environ, "BAYESWELL_NATIVE": "0", "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    available, takes, number = done.stdout.split()
    assert (available, takes) == ("False", "False")
    with native.disabled():
        assert float(number) == float(normals_of_key(5, 300)[7])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder in which libraries are looked for; the real ones are back afterwards."""
    monkeypatch.setattr(library, "_FOLDER", tmp_path)
    monkeypatch.setattr(library._Switch, "on", True)
    library._library.cache_clear()
    yield tmp_path
    monkeypatch.undo()
    library._library.cache_clear()


def damage_nothing(folder: Path) -> None:
    """No file at all."""


def damage_text(folder: Path) -> None:
    """Files that hold something else."""
    for name in _machine_runs():
        (folder / f"kernels-{name}.so").write_text("This was to be a library.\n" * 400)


def damage_empty(folder: Path) -> None:
    """Files that hold nothing."""
    for name in _machine_runs():
        (folder / f"kernels-{name}.so").touch()


def damage_folders(folder: Path) -> None:
    """Folders instead of files."""
    for name in _machine_runs():
        (folder / f"kernels-{name}.so").mkdir()


def damage_foreign(folder: Path) -> None:
    """A library, but another one."""
    for name in _machine_runs():
        shutil.copy(_ctypes.__file__, folder / f"kernels-{name}.so")


@pytest.mark.parametrize("damage", [damage_nothing, damage_text, damage_empty, damage_folders, damage_foreign])
def test_without_a_library_everything_is_computed_all_the_same(
    damage: Callable[[Path], None], folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """And nothing is said: a warning would be an error here."""
    damage(folder)
    assert not native.available()
    assert not native.takes(torch.ones(3))
    drawn = normals_of_key(KEY, 1000)
    with native.disabled():
        assert torch.equal(drawn, normals_of_key(KEY, 1000))
    mean, state = torch.zeros(9, requires_grad=True), torch.full((9,), -1.3, requires_grad=True)
    _, kl = draws_and_kl(mean, state, None, gaussian("scalar", 9), CONSTANT, FROM_LOG_STD)
    assert kl.item() == pytest.approx(9 * (math.exp(-2.6) / 1.7**2 / 2 + 1.3) + CONSTANT.item(), rel=1e-6)
    assert capfd.readouterr() == ("", "")


@needs_library
def test_a_library_of_another_version_is_not_used(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(library, "version_of", lambda folder: 12345)
    library._library.cache_clear()
    try:
        assert not native.available()
        assert capfd.readouterr() == ("", "")
    finally:
        monkeypatch.undo()
        library._library.cache_clear()
    assert native.available()


@needs_library
def test_where_the_best_library_is_broken_the_next_one_serves(folder: Path) -> None:
    real = Path(native.__file__).parent
    best, *rest = _machine_runs()
    if not rest or not (real / "kernels-default.so").is_file():
        pytest.skip("this machine has one library only")
    (folder / f"kernels-{best}.so").write_text("This was to be a library.\n")
    shutil.copy(real / "kernels-default.so", folder)
    assert native.available()
    found = library._library()
    assert isinstance(found, ctypes.CDLL)
    assert Path(found._name).name == "kernels-default.so"


def test_every_change_of_a_source_is_another_version(tmp_path: Path) -> None:
    for path in [*Path(native.__file__).parent.glob("*.cpp"), *Path(native.__file__).parent.glob("*.h")]:
        shutil.copy(path, tmp_path)
    seen = {library.version_of(tmp_path)}
    assert seen == {library.version_of(Path(native.__file__).parent)}
    for path in sorted(tmp_path.iterdir()):
        path.write_text(path.read_text() + "// changed\n")
        seen.add(library.version_of(tmp_path))
    assert len(seen) == 1 + len(list(tmp_path.iterdir()))


def _installed_from_here() -> bool:
    try:
        origin = importlib.metadata.distribution("bayeswell").read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        return False
    return origin is not None and json.loads(origin).get("url") == ROOT.as_uri()


def test_an_install_with_a_compiler_has_the_library() -> None:
    if os.environ.get("BAYESWELL_NATIVE") == "0":
        pytest.skip("the library is turned off by BAYESWELL_NATIVE")
    if not (shutil.which("g++") or shutil.which("clang++")):
        pytest.skip("there is no C++ compiler")
    if not _installed_from_here() and not list(Path(native.__file__).parent.glob("*.so")):
        pytest.skip("the package was not installed from this tree, nor its library made by hand")
    assert native.available(), "`python hatch_build.py` says why"
    made = {path.name for path in Path(native.__file__).parent.glob("kernels-*.so")}
    assert f"kernels-{_machine_runs()[0]}.so" in made, "the best library for this machine is missing"


# ---------------------------------------------------------------------------------------------------------
# Whole training steps.


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the compiled formulas, as they are called."""
    names: list[str] = []
    call = library.call

    def noted(name: str, *arguments: Any) -> Any:
        names.append(name)
        return call(name, *arguments)

    monkeypatch.setattr(library, "call", noted)
    return names


ONE_PASS = {"draw_and_kl", "slopes"}
POSTERIORS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "mean_field": ({"name": "mean_field"}, ONE_PASS),
    "softplus": ({"name": "mean_field", "parameter": "rho"}, set()),
    "k_tied": ({"name": "k_tied", "rank": 2}, {"tied_draw_and_kl", "tied_slopes"}),
}
POINT: tuple[dict[str, Any], set[str]] = ({"name": "delta"}, {"half_squares", "half_squares_slope"})
ESTIMATORS: dict[str, tuple[dict[str, Any], set[str], bool]] = {
    # ... what of the noise is compiled, and whether there is one draw at most
    "one draw": ({"name": "weight_sampling"}, {"normals"}, True),
    "two draws": ({"name": "weight_sampling", "draws": 2}, {"normals"}, False),
    "local": ({"name": "local_reparameterization"}, set(), True),
    "flipout": ({"name": "flipout"}, {"normals"}, True),
}


each_choice_of_prior = pytest.mark.parametrize(
    "prior", ["kaiming", {"name": "normal", "std": 1.7}], ids=["by site", "scalar"]
)


@needs_library
@pytest.mark.parametrize("posterior", POSTERIORS)
@each_choice_of_prior
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_training_step_has_the_same_gradients(posterior: str, prior: Any, estimator: str, calls: list[str]) -> None:
    (chosen, formulas), (how, of_noise, one) = POSTERIORS[posterior], ESTIMATORS[estimator]
    model = lift(small_network(), {**chosen, "initial_std": 0.03}, prior=prior, estimator=how)
    used = check_training_step(model, calls)
    assert used >= of_noise | (formulas if one else set())


@needs_library
@each_choice_of_prior
@pytest.mark.parametrize("draws", [1, 3])
def test_a_training_step_of_a_point_has_the_same_gradients(prior: Any, draws: int, calls: list[str]) -> None:
    how = {"name": "weight_sampling", "draws": draws}
    model = lift(small_network(), POINT[0], prior=prior, estimator=how)
    assert check_training_step(model, calls) == POINT[1]
    # By hand: kl = sum [m^2 / (2 p^2) + log p + log(2 pi) / 2] = -log p(w).
    mean, std = model.posterior.mean_vector().detach().double(), model.prior.std_vector().double()
    expected = -torch.distributions.Normal(torch.zeros_like(std), std).log_prob(mean).sum()
    noise = torch.zeros(draws, 0)
    weights, kl = model.posterior.sample_and_kl(noise, model.prior)
    assert weights is not None
    assert torch.equal(weights, model.posterior.mean_vector().expand(draws, -1))
    assert kl.item() == pytest.approx(float(expected), rel=1e-6)
    upstream = numbers(draws * len(mean), 3, 0.3).view(draws, -1)
    (found,) = torch.autograd.grad((weights, kl), model.posterior.mean, (upstream, torch.tensor(0.7)))
    torch.testing.assert_close(
        found.double(), upstream.double().sum(0) + 0.7 * mean / std.square(), rtol=1e-5, atol=1e-5
    )


def small_network() -> nn.Module:
    """Layers of several kinds, large enough for noise of the compiled generator."""
    torch.manual_seed(41)
    return nn.Sequential(nn.Conv1d(2, 3, 5), nn.Tanh(), nn.Flatten(), nn.Linear(243, 140), nn.Tanh(), nn.Linear(140, 5))


def check_training_step(model: bw.BayesianModule, calls: list[str]) -> set[str]:
    """The same with the compiled formulas and without; the names of those that were called come back."""
    inputs = numbers(20 * 170, 43).view(20, 2, 85)
    targets = torch.arange(20) % 5
    objective = bw.ELBO("categorical", dataset_size=1000)

    def step() -> dict[str, Tensor]:
        model.zero_grad()
        terms = objective(model, inputs, targets, generator=make_generator(47))
        terms.total.backward()
        found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
        return {**found, "total": terms.total.detach(), "kl": terms.kl}

    calls.clear()
    found, used = step(), set(calls)
    calls.clear()
    with native.disabled():
        eager = step()
    assert calls == []
    assert set(found) == set(eager)
    assert len(found) == 2 + len(list(model.parameters()))
    for name, grad in eager.items():
        scale = float(grad.abs().max())
        assert scale > 0
        torch.testing.assert_close(
            found[name], grad, rtol=1e-5, atol=1e-5 * scale, msg=lambda text, n=name: f"{n}: {text}"
        )
    return used


# ---------------------------------------------------------------------------------------------------------
# The build.


@pytest.fixture(scope="module")
def builder() -> ModuleType:
    path = ROOT / "hatch_build.py"
    if not path.is_file():
        pytest.skip("hatch_build.py is not beside the tests")
    spec = importlib.util.spec_from_file_location("hatch_build", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SOURCES = {
    "one.cpp": 'extern "C" int bayeswell_version() { return 1; }\n',
    "two.cpp": '#include "number.h"\nextern "C" int bayeswell_number() { return NUMBER; }\n',
    "number.h": "#define NUMBER 7\n",
}
needs_compiler = pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="no C++ compiler")


def write_sources(folder: Path) -> None:
    """Several, of which one library is made."""
    for name, text in SOURCES.items():
        (folder / name).write_text(text)


def names_of_libraries(builder: ModuleType) -> list[str]:
    """What is made on a machine like this one."""
    sets = builder.INSTRUCTION_SETS
    return [f"kernels-{name}.so" for name in sets if not sets[name] or platform.machine() in builder.X86]


@pytest.mark.parametrize("compiler", ["", "no-such-compiler"])
def test_without_a_compiler_nothing_is_built(
    builder: ModuleType, compiler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    write_sources(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CXX", compiler)
    assert builder.build(tmp_path) == []
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == "bayeswell: no C++ compiler was found: it will compute by torch's operations alone\n"
    assert {path.name for path in tmp_path.iterdir()} == set(SOURCES)


@needs_compiler
def test_a_source_that_does_not_compile_is_no_error(
    builder: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """One line for each library, and nothing is left behind."""
    monkeypatch.delenv("CXX", raising=False)
    write_sources(tmp_path)
    (tmp_path / "one.cpp").write_text("this is not C++\n")
    assert builder.build(tmp_path) == []
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len(names_of_libraries(builder))
    for line, name in zip(lines, names_of_libraries(builder), strict=True):
        assert line.startswith(f"bayeswell: {name} was not made (")
    assert {path.name for path in tmp_path.iterdir()} == set(SOURCES)


@needs_compiler
def test_a_compiler_without_openmp_builds_all_the_same(
    builder: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """As Apple's: it refuses the option, and is asked again without."""
    real = shutil.which("g++") or shutil.which("clang++")
    picky = tmp_path / "picky"
    picky.write_text(f'#!/bin/sh\nfor given; do case $given in -fopenmp*) exit 1;; esac; done\nexec {real} "$@"\n')
    picky.chmod(0o755)
    write_sources(tmp_path)
    monkeypatch.setenv("CXX", str(picky))
    made = builder.build(tmp_path)
    assert [path.name for path in made] == names_of_libraries(builder)
    assert capsys.readouterr().err == ""
    for path in made:
        made_of_all = ctypes.CDLL(str(path))
        assert (made_of_all.bayeswell_version(), made_of_all.bayeswell_number()) == (1, 7)


@pytest.mark.parametrize("content", [b"", b"neither a program nor a script\n", b"#!/no/such/interpreter\n"])
def test_a_compiler_that_is_no_program_is_no_error(
    builder: ModuleType, content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """It may be executed, says the file system, but it cannot: one line, and nothing is made or left behind."""
    write_sources(tmp_path)
    broken = tmp_path / "broken"
    broken.write_bytes(content)
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    assert builder.build(tmp_path) == []
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = said.err.splitlines()
    assert line.startswith(f"bayeswell: the C++ compiler {broken} does not run (")
    assert line.endswith("): it will compute by torch's operations alone")
    assert {path.name for path in tmp_path.iterdir()} == {"broken", *SOURCES}


@needs_compiler
def test_an_unknown_compiler_gives_way_to_one_that_is_there(
    builder: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_sources(tmp_path)
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert [path.name for path in builder.build(tmp_path)] == names_of_libraries(builder)
