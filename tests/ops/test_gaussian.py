"""The Gaussian draw with its KL: against torch.distributions, and compiled against plain."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import Normal, kl_divergence
from torch.func import grad, hessian, jvp, vmap

from bayeswell.ops import available, draw_and_kl, in_transform, plain

SIZES = (3, 297, 0, 39700, 10001)
"""Of sites; within a block, across blocks and chunks, and empty."""


@dataclass(frozen=True)
class Terms:
    inverse_variances: Tensor
    by_site: bool
    log_std_sum: Tensor
    center: Tensor | None


@dataclass(frozen=True)
class Problem:
    mean: Tensor
    std: Tensor
    noise: Tensor | None
    prior_std: Tensor
    terms: Terms
    ends: Tensor
    log_std: bool

    @classmethod
    def make(
        cls,
        *,
        log_std: bool = True,
        by_site: bool = True,
        center: bool = False,
        draws: int | None = 1,
        sizes: tuple[int, ...] = SIZES,
        dtype: torch.dtype = torch.float32,
    ) -> Problem:
        size = sum(sizes)
        prior = torch.rand(len(sizes) if by_site else size, dtype=dtype) + 0.5
        prior_std = prior.repeat_interleave(torch.tensor(sizes)) if by_site else prior
        around = torch.randn(size, dtype=dtype) if center else None
        terms = Terms(prior**-2, by_site, prior_std.double().log().sum().to(dtype), around)
        std = (0.5 * torch.randn(size, dtype=dtype) - 2).exp()
        noise = None if draws is None else torch.randn(draws, size, dtype=dtype)
        ends = torch.tensor(sizes).cumsum(0)
        return cls(torch.randn(size, dtype=dtype), std, noise, prior_std, terms, ends, log_std)

    @property
    def spread(self) -> Tensor:
        return self.std.log() if self.log_std else self.std

    def run(self, mean: Tensor, spread: Tensor) -> tuple[Tensor | None, Tensor]:
        return draw_and_kl(mean, spread, self.noise, self.terms, log_std=self.log_std, ends=self.ends)

    def truth(self, mean: Tensor, spread: Tensor) -> tuple[Tensor | None, Tensor]:
        """By torch.distributions in double precision."""
        std = spread.exp() if self.log_std else spread
        center = torch.zeros_like(mean) if self.terms.center is None else self.terms.center.double()
        weights = None if self.noise is None else mean + std * self.noise.double()
        return weights, kl_divergence(Normal(mean, std), Normal(center, self.prior_std.double())).sum()

    def loss(self, mean: Tensor, spread: Tensor) -> Tensor:
        weights, kl = self.run(mean, spread)
        assert weights is not None
        return weights.sin().sum() + 1.7 * kl


CASES = [
    {"log_std": log_std, "by_site": by_site, "center": center, "draws": draws}
    for log_std in (True, False)
    for by_site, center in ((True, False), (False, True), (True, True))
    for draws in (None, 1, 3)
]


def as_id(case: dict[str, Any]) -> str:
    return "-".join(f"{key}={value}" for key, value in case.items())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", CASES, ids=as_id)
def test_values_and_gradients_match_torch_distributions(case: dict[str, Any], dtype: torch.dtype) -> None:
    """float32 runs compiled, float64 in plain torch."""
    problem = Problem.make(**case, dtype=dtype)
    inputs = [problem.mean.requires_grad_(), problem.spread.detach().requires_grad_()]
    exact = [tensor.detach().double().requires_grad_() for tensor in inputs]
    found, truth = problem.run(*inputs), problem.truth(*exact)
    upstream = [None if problem.noise is None else torch.randn_like(problem.noise), torch.tensor(1.3, dtype=dtype)]
    kept = [i for i in range(2) if found[i] is not None]
    for i in kept:
        torch.testing.assert_close(found[i].double(), truth[i], rtol=2e-6, atol=1e-5)
    for outputs in ([1], kept):
        slopes = torch.autograd.grad([found[i] for i in outputs], inputs, [upstream[i] for i in outputs], True)
        true = torch.autograd.grad([truth[i] for i in outputs], exact, [upstream[i].double() for i in outputs], True)
        for one, other in zip(slopes, true, strict=True):
            torch.testing.assert_close(one.double(), other, rtol=2e-5, atol=2e-5)


def test_draws_alone_have_gradients() -> None:
    problem = Problem.make()
    mean, log_std = problem.mean.requires_grad_(), problem.spread.requires_grad_()
    weights, _ = problem.run(mean, log_std)
    assert weights is not None
    assert problem.noise is not None
    slopes = torch.autograd.grad(weights.sum(), [mean, log_std])
    torch.testing.assert_close(slopes[0], torch.ones_like(mean))
    torch.testing.assert_close(slopes[1], problem.std * problem.noise[0])


def test_noise_of_one_axis_gives_draws_of_one_axis() -> None:
    problem = Problem.make()
    assert problem.noise is not None
    flat = replace(problem, noise=problem.noise[0])
    assert torch.equal(flat.run(problem.mean, problem.spread)[0], problem.run(problem.mean, problem.spread)[0][0])


def test_gradient_of_the_noise() -> None:
    problem = Problem.make()
    noise = problem.noise.requires_grad_()
    weights, _ = problem.run(problem.mean, problem.spread)
    (slope,) = torch.autograd.grad(weights.sum(), noise)
    torch.testing.assert_close(slope[0], problem.std)


@pytest.mark.skipif(not available(), reason="the library is not compiled")
def test_results_do_not_depend_on_the_number_of_threads() -> None:
    problem = Problem.make()
    results = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        mean, spread = problem.mean.clone().requires_grad_(), problem.spread.clone().requires_grad_()
        outputs = problem.run(mean, spread)
        slopes = torch.autograd.grad(outputs, [mean, spread], [problem.noise, torch.ones(())])
        results.append([*outputs, *slopes])
    torch.set_num_threads(1)
    assert all(torch.equal(one, two) for one, two in zip(*results, strict=True))


@pytest.mark.parametrize("log_std", [True, False])
def test_extreme_stds(log_std: bool) -> None:
    """A std of 0 has a finite KL and gradient; what is not finite stays so."""
    problem = Problem.make(log_std=log_std, sizes=(300,))
    for std, finite in ((0.0, not log_std), (1e-37, True), (1e20, False), (float("nan"), False)):
        spread = problem.spread.clone()
        spread[7] = torch.tensor(std).log() if log_std else std
        leaf = spread.requires_grad_()
        kl = problem.run(problem.mean, leaf)[1]
        reference = plain.draw_and_kl(
            problem.mean,
            spread,
            None,
            problem.terms.inverse_variances,
            problem.ends,
            None,
            problem.terms.log_std_sum,
            log_std,
        )[1]
        assert bool(kl.isfinite()) == bool(reference.isfinite()) == finite
        assert bool(torch.autograd.grad(kl, leaf)[0][7].isfinite()) or not finite


def small(**settings: Any) -> Problem:
    return Problem.make(sizes=(3, 4), dtype=torch.float64, center=True, draws=2, **settings)


@pytest.mark.parametrize("log_std", [True, False])
def test_first_and_second_derivatives_match_finite_differences(log_std: bool) -> None:
    problem = small(log_std=log_std)
    inputs = (problem.mean.requires_grad_(), problem.spread.detach().requires_grad_())
    assert torch.autograd.gradcheck(problem.run, inputs)
    assert torch.autograd.gradgradcheck(problem.run, inputs)


def single(problem: Problem) -> Problem:
    """In float32, which runs compiled."""
    terms = Terms(*(x.float() if isinstance(x, Tensor) else x for x in vars(problem.terms).values()))
    return replace(
        problem, mean=problem.mean.float(), std=problem.std.float(), noise=problem.noise.float(), terms=terms
    )


def test_transforms_match_autograd() -> None:
    """torch.func's grad, vmap, jvp and hessian, double backward and batched gradients, in float32."""
    exact = small()
    problem = single(exact)
    mean, spread = problem.mean, problem.spread
    close = {"rtol": 1e-4, "atol": 1e-4}
    exact_grad = grad(exact.loss, (0, 1))(exact.mean, exact.spread)
    for found in (
        grad(problem.loss, (0, 1))(mean, spread),
        [row[0] for row in vmap(grad(problem.loss, (0, 1)), (0, None))(mean[None], spread)],
        torch.autograd.functional.jacobian(problem.loss, (mean, spread)),
    ):
        for one, other in zip(found, exact_grad, strict=True):
            torch.testing.assert_close(one.double(), other, **close)
    exact_hessian = hessian(exact.loss)(exact.mean, exact.spread)
    torch.testing.assert_close(hessian(problem.loss)(mean, spread).double(), exact_hessian, **close)
    for vectorize in (False, True):
        rows = torch.autograd.functional.hessian(problem.loss, (mean, spread), vectorize=vectorize)
        torch.testing.assert_close(rows[0][0].double(), exact_hessian, **close)
    _, slope = jvp(problem.loss, (mean, spread), (mean, spread))
    expected = sum((one * other).sum() for one, other in zip(exact_grad, (exact.mean, exact.spread), strict=True))
    torch.testing.assert_close(slope.double(), expected, **close)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_full_graph_compilation(backend: str) -> None:
    problem = single(small())
    inputs = (problem.mean.requires_grad_(), problem.spread.requires_grad_())
    compiled = torch.compile(problem.loss, fullgraph=True, backend=backend)
    torch.testing.assert_close(compiled(*inputs), problem.loss(*inputs))
    found = torch.autograd.grad(compiled(*inputs), inputs)
    for one, other in zip(found, torch.autograd.grad(problem.loss(*inputs), inputs), strict=True):
        torch.testing.assert_close(one, other)


def test_graph_tracing_and_meta_tensors_see_the_operator() -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    problem = single(small())
    traced = make_fx(lambda m, s: problem.loss(m, s))(problem.mean, problem.spread)
    moved = problem.mean + 1
    torch.testing.assert_close(traced(moved, problem.spread), problem.loss(moved, problem.spread))
    meta = Terms(*(x.to("meta") if isinstance(x, Tensor) else x for x in vars(problem.terms).values()))
    on_meta = replace(problem, noise=problem.noise.to("meta"), terms=meta, ends=problem.ends.to("meta"))
    assert on_meta.run(problem.mean.to("meta"), problem.spread.to("meta"))[0].shape == (2, 7)


def test_learned_prior_has_gradients() -> None:
    problem = small()
    h = problem.terms.inverse_variances.requires_grad_()
    kl = replace(problem, noise=None).run(problem.mean, problem.spread)[1]
    assert torch.autograd.grad(kl, h)[0].shape == h.shape


def test_vectors_that_are_not_contiguous() -> None:
    problem = Problem.make(sizes=(40, 60))
    spaced = torch.stack([problem.mean, problem.mean], 1)[:, 0]
    torch.testing.assert_close(problem.run(spaced, problem.spread), problem.run(problem.mean, problem.spread))


def test_in_transform() -> None:
    assert not in_transform()
    assert vmap(lambda x: x * in_transform())(torch.ones(2)).tolist() == [1, 1]
