"""Each family against its own definition, and all of them against the multivariate normal that they are."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import Laplace, MultivariateNormal
from torch.func import functional_call, grad, vmap

from bayeswell.core.errors import SettingError
from bayeswell.core.layout import Layout, Site
from bayeswell.core.protocols import Posterior, Prior
from bayeswell.core.registry import describe
from bayeswell.posteriors import POSTERIORS, Full, FullPosterior, MatrixNormal, MeanField, SharedStd, cholesky_params
from helpers import assert_mean_close, kl_gaussian
from posteriors.families import DENSE, LAYOUT, a_prior, covariance_of, generic, label, normal, start

PRIORS: dict[str, Any] = {
    "normal": {"name": "normal", "std": 0.6},
    "kaiming": {"name": "kaiming"},
    "laplace": {"name": "laplace"},
    "mixed": {"conv.*": {"name": "normal", "std": 0.9}, "up.weight": {"name": "laplace"}, "*": "kaiming"},
}
each_density = pytest.mark.parametrize("choice", DENSE, ids=label)


def exact(posterior: Posterior) -> MultivariateNormal:
    return MultivariateNormal(posterior.mean.detach(), covariance_of(posterior))


@each_density
def test_std_and_covariance_are_those_of_the_draws(choice: dict[str, Any]) -> None:
    q = generic(choice)
    dense, parts, std = covariance_of(q), q.covariance(), q.std().detach()
    torch.testing.assert_close(std, dense.diagonal().sqrt(), rtol=1e-10, atol=0)
    assert float(std.max() / std.min()) > 1.2 or choice.get("by") == "all", "generic stds differ"
    assert parts is not None
    total = parts.variances.diag()
    total = total if parts.factor is None else total + parts.factor @ parts.factor.T
    for name, (rows, columns) in parts.matrices.items():
        site = next(site for site in LAYOUT.sites if site.name == name)
        units = torch.eye(site.size, dtype=torch.float64).view(-1, *site.shape)
        images = site.from_matrix(rows @ site.to_matrix(units) @ columns.T).reshape(site.size, -1)
        part = LAYOUT.slices[name]
        total[part, part] += images.T @ images
    torch.testing.assert_close(total, dense, rtol=1e-10, atol=1e-12)


@each_density
def test_log_density_and_entropy_are_those_of_the_multivariate_normal(choice: dict[str, Any]) -> None:
    q, truth = generic(choice), exact(generic(choice))
    points = q.rsample(normal(5, q.noise_size, seed=3)).detach()
    points = torch.cat([points, points[:2] + 0.3 * normal(2, LAYOUT.size, seed=4)])  # also where q is small
    torch.testing.assert_close(q(points), truth.log_prob(points), rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(q.entropy(), truth.entropy(), rtol=1e-9, atol=1e-9)


def expected_log_laplace(mean: Tensor, std: Tensor, scale: Tensor) -> Tensor:
    """E[log p(w)] of each weight: 100 nodes of Gauss and Legendre on each side of the kink, within 12 stds."""
    nodes, node_weights = (torch.from_numpy(a) for a in np.polynomial.legendre.leggauss(100))
    kink = (-mean / std).clamp(-12, 12)
    total = torch.zeros_like(mean)
    for low, high in ((torch.full_like(kink, -12), kink), (kink, torch.full_like(kink, 12))):
        z = (low + high) / 2 + (high - low) / 2 * nodes[:, None]
        density = (-0.5 * z.square()).exp() / math.sqrt(2 * math.pi)
        values = Laplace(0.0, scale).log_prob(mean + std * z) * density
        total += (high - low) / 2 * (node_weights @ values)
    return total


@pytest.mark.parametrize("prior_name", PRIORS)
@each_density
def test_kl_matches_closed_form_and_quadrature(choice: dict[str, Any], prior_name: str) -> None:
    """-H[q] of the multivariate normal, minus E_q[log p] weight by weight."""
    prior = a_prior(PRIORS[prior_name])
    q = generic(choice, prior)
    truth = exact(q)
    mean, std, prior_std = truth.mean, truth.covariance_matrix.diagonal().sqrt(), prior.std()
    log_normal = -0.5 * (mean.square() + std.square()) / prior_std**2 - prior_std.log() - 0.5 * math.log(2 * math.pi)
    log_laplace = expected_log_laplace(mean, std, prior_std / math.sqrt(2))
    laplace = {"laplace": [site.name for site in LAYOUT.sites], "mixed": ["up.weight"]}.get(prior_name, [])
    mask = torch.cat([torch.full((site.size,), site.name in laplace) for site in LAYOUT.sites])
    expected = torch.where(mask, log_laplace, log_normal).sum()
    kl = q.rsample_and_kl(None, prior)[1].item()
    assert kl == pytest.approx(float(-truth.entropy() - expected), rel=1e-8)
    if not laplace:
        covariance = prior_std.square().diag()
        assert kl == pytest.approx(kl_gaussian(mean, truth.covariance_matrix, 0 * mean, covariance), rel=1e-9)


@pytest.mark.parametrize("prior_name", ["normal", "laplace"])
@each_density
def test_monte_carlo_kl_agrees(choice: dict[str, Any], prior_name: str) -> None:
    """20,000 draws of log q - log p; rate 1e-6 a case."""
    prior = a_prior(PRIORS[prior_name])
    q = generic(choice, prior)
    with torch.no_grad():
        draws = q.rsample(normal(20_000, q.noise_size, seed=5))
        assert_mean_close(q(draws) - prior.log_prob(draws), q.rsample_and_kl(None, prior)[1])


@pytest.mark.parametrize("prior_name", PRIORS)
@pytest.mark.parametrize("draws", [None, 1, 3])
@each_density
def test_one_pass_has_the_gradients_of_its_definition(
    choice: dict[str, Any], prior_name: str, draws: int | None
) -> None:
    prior = a_prior(PRIORS[prior_name])
    q = generic(choice, prior)
    parameters = list(q.parameters())
    noise = None if draws is None else normal(draws, q.noise_size, seed=6)
    upstream = normal(draws or 1, LAYOUT.size, seed=7)

    def gradients(weights: Tensor | None, kl: Tensor) -> tuple[Tensor, ...]:
        total = 0.37 * kl + (0 if weights is None else (upstream * weights.sin()).sum())
        return torch.autograd.grad(total, parameters)

    found = q.rsample_and_kl(noise, prior)
    kl = -q.entropy() - prior.expected_log_prob(q.mean, q.std())
    expected = (None if noise is None else q.rsample(noise), kl)
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(gradients(*found), gradients(*expected), rtol=1e-9, atol=1e-9)


@each_density
def test_functional_call_has_per_draw_gradients(choice: dict[str, Any]) -> None:
    """vmap of grad of log q through functional_call equals autograd, draw by draw."""
    q = generic(choice)
    parameters = {name: value.detach() for name, value in q.named_parameters()}
    points = q.rsample(normal(3, q.noise_size, seed=8)).detach()

    def log_q(values: dict[str, Tensor], point: Tensor) -> Tensor:
        return functional_call(q, values, (point[None],))[0]

    found = vmap(grad(log_q), (None, 0))(parameters, points)
    for row in range(3):
        expected = torch.autograd.grad(q(points)[row], list(q.parameters()))
        for one, other in zip(found.values(), expected, strict=True):
            torch.testing.assert_close(one[row], other, rtol=1e-9, atol=1e-9)


@each_density
def test_gradients_of_draw_and_kl_under_transforms(choice: dict[str, Any]) -> None:
    """torch.func.grad, and second derivatives by double backward, of the one-pass formula."""
    prior = a_prior()
    q = generic(choice, prior)
    noise = normal(2, q.noise_size, seed=9)
    parameters = {name: value.detach() for name, value in q.named_parameters()}

    class Loss(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q = q

        def forward(self) -> Tensor:
            weights, kl = self.q.rsample_and_kl(noise, prior)
            return weights.sin().sum() + kl

    loss = Loss()
    eager = torch.autograd.grad(loss(), list(q.parameters()), create_graph=True)
    transformed = grad(lambda values: functional_call(loss, {f"q.{k}": v for k, v in values.items()}, ()))(parameters)
    torch.testing.assert_close(tuple(transformed.values()), eager, rtol=1e-9, atol=1e-9)
    direction = [normal(*slope.shape, seed=11) for slope in eager]
    product = torch.autograd.grad(eager, list(q.parameters()), direction)
    step, ends = 1e-5, []
    for sign in (1, -1):
        moved = {n: p + sign * step * d for (n, p), d in zip(parameters.items(), direction, strict=True)}
        ends.append(grad(lambda v: functional_call(loss, {f"q.{k}": x for k, x in v.items()}, ()))(moved))
    for one, up, down in zip(product, ends[0].values(), ends[1].values(), strict=True):
        torch.testing.assert_close(one, (up - down) / (2 * step), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["mean_field", "k_tied", "low_rank", "matrix_normal"])
def test_full_graph_compilation(name: str) -> None:
    prior, q = a_prior(), generic({"name": name})
    noise = normal(2, q.noise_size, seed=16)
    compiled = torch.compile(lambda: q.rsample_and_kl(noise, prior), fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(), q.rsample_and_kl(noise, prior))


@each_density
def test_draws_are_rsample_of_the_same_noise(choice: dict[str, Any]) -> None:
    q = generic(choice)
    generator = torch.Generator().manual_seed(12)
    drawn = list(q.draws(2, torch.Generator().manual_seed(12)))
    for tensors in drawn:
        noise = torch.randn(1, q.noise_size, generator=generator, dtype=torch.float64)
        torch.testing.assert_close(LAYOUT.flatten(tensors), q.rsample(noise)[0].detach())
        assert not tensors["conv.weight"].requires_grad
    assert drawn[0]["conv.bias"].data_ptr() != drawn[1]["conv.bias"].data_ptr()


@each_density
def test_state_and_description_rebuild_the_posterior(choice: dict[str, Any]) -> None:
    q = generic(choice)
    part = POSTERIORS.resolve(describe(q.part))
    copy = part.build(LAYOUT, a_prior(), torch.zeros(LAYOUT.size, dtype=torch.float64), None)
    copy.load_state_dict(q.state_dict())
    points = normal(2, LAYOUT.size, seed=13)
    assert part == q.part
    assert torch.equal(copy(points), q(points))


# Definitions from the parameters.


@pytest.mark.parametrize(
    ("parameter", "transform"), [("log_std", math.exp), ("rho", lambda rho: math.log(1 + math.exp(rho)))]
)
def test_mean_field_stds(parameter: str, transform: Any) -> None:
    q = generic({"name": "mean_field", "parameter": parameter})
    truth = [transform(float(value)) for value in getattr(q, parameter).detach()]
    np.testing.assert_allclose(q.std().detach(), truth, rtol=1e-12)


def test_low_rank_covariance_is_diagonal_plus_outer_products() -> None:
    q = generic({"name": "low_rank", "rank": 3})
    std, directions = q.log_std.detach().exp(), q.directions.detach()
    factor = std[:, None] * directions.T / math.sqrt(43)
    torch.testing.assert_close(covariance_of(q), std.square().diag() + factor @ factor.T, rtol=1e-10, atol=1e-12)


def test_matrix_normal_covariance_is_a_kronecker_product() -> None:
    """Cov(W_ij, W_kl) = (A A')_ik (B B')_jl within a matrix, nothing between sites."""
    q = generic({"name": "matrix_normal"})
    dense = covariance_of(q)
    rows, columns = (factor @ factor.T for factor in q.scales[2].factors())
    part = LAYOUT.slices["dense.weight"]
    torch.testing.assert_close(dense[part, part], torch.kron(rows, columns).detach(), rtol=1e-10, atol=1e-12)
    outside = dense[part].clone()
    outside[:, part] = 0
    assert not outside.any()


def test_full_covariance_can_hold_any_matrix() -> None:
    a = normal(43, 43, seed=14)
    target = a @ a.T + torch.eye(43, dtype=torch.float64)
    q = start("full")
    assert isinstance(q, FullPosterior)
    with torch.no_grad():
        log_diagonal, lower = cholesky_params(torch.linalg.cholesky(target))
        q.log_diagonal.copy_(log_diagonal)
        q.lower.copy_(lower)
    torch.testing.assert_close(covariance_of(q), target)


@pytest.mark.parametrize(("by", "owners"), [("layer", "001122"), ("tensor", "012345"), ("all", "000000")])
def test_shared_stds_by_owner(by: str, owners: str) -> None:
    q = start(SharedStd(by=by))
    count = len(set(owners))
    assert q.shared_log_std.shape == (count,)
    with torch.no_grad():
        q.shared_log_std.copy_(torch.arange(count) * 0.3 - 2)
    for site, owner in zip(LAYOUT.sites, owners, strict=True):
        truth = torch.full((site.size,), math.exp(0.3 * int(owner) - 2), dtype=torch.float64)
        torch.testing.assert_close(q.std()[LAYOUT.slices[site.name]], truth)


def test_delta_is_one_point_and_its_divergence_is_minus_log_prior() -> None:
    prior = a_prior("laplace")
    q = start("delta", prior)
    weights, divergence = q.rsample_and_kl(torch.zeros(3, 0), prior)
    assert torch.equal(weights, q.mean.expand(3, -1))
    assert not q.std().any()
    torch.testing.assert_close(divergence, -Laplace(0.0, prior.std() / math.sqrt(2)).log_prob(q.mean).sum())
    assert torch.equal(LAYOUT.flatten(next(iter(q.draws(1, None)))), q.mean)


# Start.


@pytest.mark.parametrize("choice", [{"name": "delta"}, *DENSE], ids=label)
def test_mean_starts_where_it_is_given(choice: dict[str, Any]) -> None:
    assert torch.equal(start(choice).mean, 0.5 * normal(43, seed=1))


@pytest.mark.parametrize("initial_std", [None, 0.07])
@pytest.mark.parametrize(
    "choice", [choice for choice in DENSE if choice["name"] not in ("k_tied", "low_rank", "shared_std")], ids=label
)
def test_stds_start_at_exp_minus_3_prior_stds_or_as_given(choice: dict[str, Any], initial_std: float | None) -> None:
    prior = a_prior("kaiming")
    truth = prior.std() * math.exp(-3) if initial_std is None else torch.full((43,), initial_std, dtype=torch.float64)
    torch.testing.assert_close(start({**choice, "initial_std": initial_std}, prior).std().detach(), truth)


def test_shared_stds_start_at_the_geometric_mean() -> None:
    prior = a_prior("kaiming")
    logs = start("mean_field", prior).log_std.detach()
    assert float(start(SharedStd(by="all"), prior).shared_log_std.detach()) == pytest.approx(float(logs.mean()))


def test_low_rank_columns_start_as_wide_as_the_diagonal() -> None:
    """Random columns of norm 1 in units of the stds; over P weights the standard error is 1 / sqrt(2 P), rate 1e-6."""
    layout = Layout((Site(("weight",), (50, 60), "Linear", 60, 50),))
    q = start({"name": "low_rank", "rank": 5}, layout=layout)
    norms = (q.factor() / q.log_std.exp()[:, None]).detach().norm(dim=0)
    assert float((norms - 1).abs().max()) < 5.3 / math.sqrt(2 * 3000)


def test_starts_are_those_of_their_generator() -> None:
    prior, mean = a_prior(), torch.zeros(43, dtype=torch.float64)
    for name in ("k_tied", "low_rank"):
        starts = []
        for seed in (3, 3, 4):
            torch.manual_seed(seed * 100 + len(starts))
            q = POSTERIORS.resolve(name).build(LAYOUT, prior, mean, torch.Generator().manual_seed(seed))
            starts.append(q.std().detach())
        assert torch.equal(starts[0], starts[1])
        assert not torch.equal(starts[0], starts[2])


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"name": "mean_field", "initial_std": 0.0}, "initial_std"),
        ({"name": "mean_field", "parameter": "sigma"}, "parameter"),
        ({"name": "k_tied", "rank": 0}, "rank"),
        ({"name": "k_tied", "init_noise": -0.1}, "init_noise"),
        ({"name": "low_rank", "rank": 1.5}, "rank"),
        ({"name": "shared_std", "by": "row"}, "by"),
        ({"name": "mean_fild"}, "mean_field"),
    ],
)
def test_impossible_settings(choice: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        POSTERIORS.resolve(choice)


@pytest.mark.parametrize("part", [Full(max_weights=42), MatrixNormal(max_side=5), POSTERIORS.resolve("low_rank")])
def test_networks_that_are_too_large_or_too_small(part: Any) -> None:
    layout = Layout((Site(("weight",), (1,), "Linear", 1, 1),)) if part.name == "low_rank" else LAYOUT
    with pytest.raises(SettingError, match=part.name):
        start(describe(part), layout=layout)


# Extreme values.


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_softplus_form_holds_stds_over_sixty_decades(dtype: torch.dtype) -> None:
    stds = torch.logspace(-30, 4, 43, dtype=torch.float64)
    q = start(MeanField(parameter="rho"), dtype=dtype)
    from bayeswell.posteriors import set_std

    set_std(q, stds.to(dtype))
    accuracy = 1e-4 if dtype == torch.float32 else 1e-12
    np.testing.assert_allclose(q.std().detach(), stds, rtol=accuracy)
    (slope,) = torch.autograd.grad(q.entropy(), q.rho)
    assert bool(slope.isfinite().all())
    np.testing.assert_allclose(slope[:20], torch.ones(20), rtol=1e-3)


@each_density
def test_tiny_stds_in_float32_have_finite_kl_and_gradients(choice: dict[str, Any]) -> None:
    """The square of 1e-25 is zero in float32; nothing may divide by it."""
    prior: Prior = a_prior(dtype=torch.float32)
    q = start({**choice, "initial_std": 1e-25}, prior, dtype=torch.float32)
    weights, kl = q.rsample_and_kl(torch.randn(1, q.noise_size), prior)
    (kl + weights.sum()).backward()
    truth = 43 * (math.log(0.6 / 1e-25) - 0.5) + float(q.mean.detach().square().sum()) / (2 * 0.36)
    assert float(kl.detach()) == pytest.approx(truth, rel=0.02)
    assert all(bool(parameter.grad.isfinite().all()) for parameter in q.parameters())


@pytest.mark.parametrize(
    "choice", [{"name": "mean_field"}, {"name": "k_tied", "rank": 2}, {"name": "low_rank"}], ids=label
)
def test_float32_runs_as_double_precision(choice: dict[str, Any]) -> None:
    """The compiled formulas on a network of several chunks, against autograd in float64."""
    layout = Layout((Site(("weight",), (300, 130), "Linear", 130, 300), Site(("bias",), (300,), "Linear", 130, 300)))
    results = []
    for dtype in (torch.float32, torch.float64):
        prior = a_prior("kaiming", layout, dtype)
        q = start(choice, a_prior("kaiming", layout, torch.float32), layout, torch.float32).to(dtype)
        noise = normal(2, q.noise_size, seed=15, dtype=torch.float32).to(dtype)
        weights, kl = q.rsample_and_kl(noise, prior)
        slopes = torch.autograd.grad(weights.sin().sum() + kl, list(q.parameters()))
        results.append([weights.detach(), kl.detach(), *slopes])
    for found, truth in zip(*results, strict=True):
        torch.testing.assert_close(found.double(), truth, rtol=1e-4, atol=1e-5 * float(truth.abs().max()))
