"""Draws and divergence as one differentiable function: first and second derivatives."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import bayeswell as bw
from bayeswell import native
from bayeswell.posteriors.one_pass import GaussianPrior, draws_and_kl, point_and_kl, variances, weighted_squares
from bayeswell.posteriors.std_forms import AS_IT_IS, FROM_LOG_STD, FROM_RHO, StdForm
from native.formulas import CONSTANT, each_prior, gaussian, needs_library, numbers, spread


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
