"""Each family against its own definition, and all of them against the multivariate normal that they are."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.distributions import MultivariateNormal

import bayeswell as bw
from bayeswell.posteriors import Empirical, EmpiricalPosterior
from bayeswell.posteriors.std_forms import log_softplus, softplus_inverse
from bayeswell.priors import lay_out
from bayeswell.random import seed_global_generator
from nets import POSTERIOR_CHOICES, Choice, covariance_of, generic, label, lift, randomise
from truths.arrays import Array, float64
from truths.gaussian import (
    expected_log_density,
    kl_diagonal,
    kl_full,
    log_density_laplace,
    log_density_normal,
)
from truths.statistics import assert_mean_close

# A mixture is the end of members that were trained, and not trained itself: tests/training/test_mixtures_of_members.py.
DENSE = [
    choice for choice in POSTERIOR_CHOICES if {"log_prob", "weight_sample"} <= bw.POSTERIORS.resolve(choice).provides
]
each_density = pytest.mark.parametrize("posterior", DENSE, ids=label)


def mixed_net() -> nn.Module:
    """Kernels, a transposed kernel, a matrix and vectors: 43 weights in 6 sites."""
    seed_global_generator(81)
    return nn.Sequential(nn.Conv1d(2, 3, 2), nn.ConvTranspose1d(3, 2, 2), nn.Flatten(), nn.Linear(6, 2))


def exact(posterior: Any) -> MultivariateNormal:
    """q as torch's multivariate normal, from draws alone."""
    return MultivariateNormal(posterior.mean_vector().detach(), covariance_of(posterior))


@each_density
def test_draws_mean_and_std_agree(posterior: Choice) -> None:
    q = generic(mixed_net(), posterior).posterior
    with torch.no_grad():
        torch.testing.assert_close(q.sample(torch.zeros(1, q.noise_size, dtype=torch.float64))[0], q.mean_vector())
        torch.testing.assert_close(q.std_vector(), covariance_of(q).diagonal().sqrt(), rtol=1e-10, atol=0)
        assert float(q.std_vector().max() / q.std_vector().min()) > 1.5, "generic stds differ"


@each_density
def test_log_density_and_entropy_are_those_of_the_multivariate_normal(posterior: Choice) -> None:
    q = generic(mixed_net(), posterior).posterior
    truth = exact(q)
    points = q.sample(torch.randn(5, q.noise_size, dtype=torch.float64)).detach()
    points = torch.cat([points, points[:2] + 0.3 * torch.randn_like(points[:2])])  # also where q is small
    torch.testing.assert_close(q(points), truth.log_prob(points), rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(q.entropy(), truth.entropy(), rtol=1e-9, atol=1e-9)


# One prior for all, one by layer, another kind, and kinds that alternate. Weights of the mixed net have
# means around 0.5 and stds around 0.2: prior stds near that make every term of the KL count.
PRIORS: dict[str, Any] = {
    "normal": {"name": "normal", "std": 0.6},
    "kaiming": {"name": "kaiming", "a": 0.5},
    "laplace": {"name": "laplace", "scale": 0.4},
    "mixed": {
        "0.*": {"name": "normal", "std": 0.9},
        "1.weight": {"name": "laplace", "scale": 0.3},
        "3.bias": {"name": "laplace", "scale": 1.2},
        "*": {"name": "normal", "std": 0.5},
    },
}


def site_densities(model: bw.BayesianModule) -> dict[str, tuple[str, float]]:
    """(kind, parameter) of the prior of each site, read from its settings and fan-in."""
    found = {}
    for site, settings in zip(model.layout.sites, model.prior.settings(), strict=True):
        if settings["name"] == "kaiming":
            found[site.name] = ("normal", math.sqrt(2 / ((1 + settings["a"] ** 2) * site.fan_in)))
        else:
            found[site.name] = (settings["name"], settings.get("std", settings.get("scale")))
    return found


def analytic_kl(model: bw.BayesianModule) -> float:
    return float(model.posterior.sample_and_kl(None, model.prior)[1].detach())


NODES, NODE_WEIGHTS = np.polynomial.legendre.leggauss(100)


def expected_log_densities(means: Array, stds: Array, log_density: Callable[[Array], Array]) -> Array:
    """E_q[log p] of every weight at once, by 100 nodes on each side of the kink at 0 and within 12 stds.

    The first is compared with adaptive quadrature, which takes two milliseconds a weight.
    """
    kink = np.clip(-means / stds, -12, 12)
    found = np.zeros_like(means)
    for low, high in ((-12, kink), (kink, 12)):
        z = (low + high) / 2 + (high - low) / 2 * NODES[:, None]
        values = log_density(means + stds * z) * np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
        found += (high - low) / 2 * (NODE_WEIGHTS @ values)
    np.testing.assert_allclose(found[:1], expected_log_density(means[:1], stds[:1], log_density), rtol=1e-10)
    return found


@pytest.mark.parametrize("prior", PRIORS)
@each_density
def test_analytic_kl_is_the_exact_one(posterior: Choice, prior: str) -> None:
    """-H[q] of the multivariate normal, minus E_q[log p] by quadrature, weight by weight."""
    model = generic(mixed_net(), posterior, prior=PRIORS[prior])
    q = exact(model.posterior)
    means, stds = float64(q.mean), np.sqrt(np.diag(float64(q.covariance_matrix)))
    expected, priors = 0.0, []
    for name, (kind, parameter) in site_densities(model).items():
        part = model.layout.slices[name]
        density = log_density_normal if kind == "normal" else log_density_laplace

        def log_density(w: Array, density: Any = density, parameter: float = parameter) -> Array:
            return density(w, parameter)

        expected += float(expected_log_densities(means[part], stds[part], log_density).sum())
        priors += [parameter] * model.layout.sizes[list(model.layout.slices).index(name)]
    truth = -float(q.entropy()) - expected
    assert analytic_kl(model) == pytest.approx(truth, rel=1e-9)
    if prior in ("normal", "kaiming"):
        exact_form = kl_full(means, float64(q.covariance_matrix), 0 * means, np.diag(np.square(priors)))
        assert analytic_kl(model) == pytest.approx(exact_form, rel=1e-9)


@each_density
def test_kl_of_every_site_counts(posterior: Choice) -> None:
    """Moving one site's means by d adds sum (2 m d + d^2) / (2 p^2) of that site's prior, and nothing else.

    For independent weights the whole is the sum over layers of the closed form.
    """
    model = generic(mixed_net(), posterior, prior=PRIORS["kaiming"])
    before = analytic_kl(model)
    stds = {name: parameter for name, (_, parameter) in site_densities(model).items()}
    for name, part in model.layout.slices.items():
        mean = model.posterior.mean
        old = mean.detach()[part].clone()
        with torch.no_grad():
            mean[part] += 0.7
        added = float(((old + 0.7).square() - old.square()).sum()) / (2 * stds[name] ** 2)
        assert analytic_kl(model) - before == pytest.approx(added, rel=1e-8), name
        with torch.no_grad():
            mean[part] = old
    if "factorised" in bw.POSTERIORS.resolve(posterior).provides:
        means, spreads = model.posterior.mean_vector().detach(), model.posterior.std_vector().detach()
        pieces = [kl_diagonal(means[p], spreads[p], 0, stds[n]) for n, p in model.layout.slices.items()]
        assert before == pytest.approx(sum(pieces), rel=1e-10)
        assert min(pieces) > 0.01 * before, "each site is a part that would be missed"


@pytest.mark.parametrize("prior", ["normal", "laplace"])
@each_density
def test_monte_carlo_kl_is_the_analytic_one_within_its_error(posterior: Choice, prior: str) -> None:
    """20,000 draws, false failures 1e-6 a case. KL x 2, or a term of the density lost, is far outside."""
    model = generic(mixed_net(), posterior, prior=PRIORS[prior])
    q = model.posterior
    with torch.no_grad():
        draws = q.sample(torch.randn(20_000, q.noise_size, dtype=torch.float64))
        ratios = q(draws) - model.prior.log_prob(draws)
    truth = analytic_kl(model)
    assert float(ratios.std()) / math.sqrt(20_000) < 0.01 * truth, "the check is sharp"
    assert_mean_close(ratios, truth)


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("draws", [None, 1, 3])
@each_density
def test_draw_and_kl_in_one_call_have_the_gradients_of_the_two(
    posterior: Choice, prior: str, draws: int | None
) -> None:
    """The fused form against plain autograd, with upstream gradients of both results."""
    model = generic(mixed_net(), posterior, prior=PRIORS[prior])
    q, parameters = model.posterior, list(model.posterior.parameters())
    noise = None if draws is None else torch.randn(draws, q.noise_size, dtype=torch.float64)
    slope = torch.randn(draws or 1, model.layout.size, dtype=torch.float64)

    def gradients(weights: Tensor | None, kl: Tensor) -> tuple[Tensor, ...]:
        total = 0.37 * kl + (0 if weights is None else (slope * weights.sin()).sum())
        return torch.autograd.grad(total, parameters)

    fused = q.sample_and_kl(noise, model.prior)
    assert (fused[0] is None) == (noise is None)
    plain_kl = -q.entropy() - model.prior.expected_log_prob(q.mean_vector(), q.std_vector())
    plain = (None if noise is None else q.sample(noise), plain_kl)
    if noise is not None:
        torch.testing.assert_close(fused[0], plain[0], rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(fused[1], plain[1], rtol=1e-11, atol=1e-11)
    for name, one, two in zip(dict(q.named_parameters()), gradients(*fused), gradients(*plain), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-10, atol=1e-10, msg=lambda text, name=name: f"{name}: {text}")


def test_a_draw_used_without_the_kl_has_its_gradient_too() -> None:
    model = generic(mixed_net())
    noise = torch.randn(2, model.posterior.noise_size, dtype=torch.float64)
    weights, _ = model.posterior.sample_and_kl(noise, model.prior)
    weights.sum().backward()
    std = model.posterior.std_vector().detach()
    torch.testing.assert_close(model.posterior.mean.grad, torch.full_like(std, 2.0))
    torch.testing.assert_close(model.posterior.log_std.grad, std * noise.sum(0))


# ---------------------------------------------------------------------------------------------------------
# The definition of each family, from its own parameters, entry by entry.


def entry(site: Any, index: tuple[int, ...]) -> tuple[int, int]:
    """Row (output unit) and column (input, kernel place) of a weight, by counting."""
    row = index[site.output_dim]
    column = 0
    for axis, place in enumerate(index):
        if axis != site.output_dim:
            column = column * site.shape[axis] + place
    return row, column


def test_mean_field_stds() -> None:
    for parameter, transform in (("log_std", math.exp), ("rho", lambda r: math.log(1 + math.exp(r)))):
        q = generic(mixed_net(), {"name": "mean_field", "parameter": parameter}).posterior
        truth = [transform(float(value)) for value in getattr(q, parameter).detach()]
        np.testing.assert_allclose(q.std_vector().detach(), truth, rtol=1e-12)


@pytest.mark.parametrize("rank", [1, 2])
def test_k_tied_stds(rank: int) -> None:
    """std_ij = sum_k u_ik v_jk, u = exp(a), v = exp(b): a then b of each matrix, one after the other."""
    q = generic(mixed_net(), {"name": "k_tied", "rank": rank}).posterior
    factors, at, free = float64(q.log_factors), 0, list(float64(q.log_std))
    for site in q.layout.sites:
        stds = q.layout.unflatten(q.std_vector().detach())[site.name]
        if len(site.shape) < 2:
            np.testing.assert_allclose(stds, np.exp([free.pop(0) for _ in range(site.size)]), rtol=1e-12)
            continue
        rows = site.shape[site.output_dim]
        columns = site.size // rows
        left = np.exp(factors[at : at + rows * rank]).reshape(rows, rank)
        at += rows * rank
        right = np.exp(factors[at : at + columns * rank]).reshape(columns, rank)
        at += columns * rank
        for index in np.ndindex(site.shape):
            row, column = entry(site, index)
            assert float(stds[index]) == pytest.approx(float(left[row] @ right[column]), rel=1e-12)
    assert at == len(factors)
    assert not free


def test_k_tied_leaves_matrices_that_are_too_small_or_not_chosen_to_mean_field() -> None:
    net = nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 2), nn.Linear(2, 4))
    model = lift(net, {"name": "k_tied", "rank": 3, "tie": ("0.*", "1.*")})
    kinds = {row.name: row.posterior for row in model.describe().rows}
    assert kinds["0.weight"] == "k_tied(rank=3, 4x5)"
    assert kinds["1.weight"] == "mean_field (rank 3 exceeds its smaller side 2)"
    assert kinds["2.weight"] != kinds["0.weight"]
    assert kinds["2.weight"].startswith("mean_field")
    assert kinds["0.bias"] == "mean_field (not a matrix)"
    assert model.posterior.log_factors.numel() == 3 * (4 + 5)
    assert model.posterior.log_std.numel() == model.layout.size - 20


def test_describe_says_why_a_matrix_is_not_tied() -> None:
    """Rank 3 would not fit it, but the reason is that it was not chosen."""
    net = nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 2))
    model = lift(net, {"name": "k_tied", "rank": 3, "tie": "0.*"})
    rows = {row.name: row.posterior for row in model.describe().rows}
    assert rows["1.weight"] == "mean_field (not chosen by tie)"


def test_low_rank_covariance() -> None:
    q = generic(mixed_net(), {"name": "low_rank", "rank": 3}).posterior
    std = np.exp(float64(q.log_std))
    truth = np.diag(std**2) + (std[:, None] * float64(q.loading)) @ (std[:, None] * float64(q.loading)).T
    np.testing.assert_allclose(covariance_of(q), truth, rtol=1e-10, atol=1e-12)
    assert q.factor.shape == (43, 3)


def test_full_covariance() -> None:
    q = generic(mixed_net(), "full").posterior
    factor = np.exp(float64(q.log_diagonal))[:, None] * (np.tril(float64(q.lower), -1) + np.eye(43))
    np.testing.assert_allclose(covariance_of(q), factor @ factor.T, rtol=1e-10, atol=1e-12)


def test_matrix_normal_covariance() -> None:
    """Cov(W_ij, W_kl) = (A A')_ik (B B')_jl within a matrix, nothing between sites."""
    q = generic(mixed_net(), "matrix_normal").posterior
    found, scales, free = float64(covariance_of(q)), list(q.scales), list(np.exp(float64(q.log_std)))
    for site in q.layout.sites:
        part = q.layout.slices[site.name]
        block = found[part, part].copy()
        outside = found[part].copy()
        outside[:, part] = 0
        assert not outside.any()
        if len(site.shape) < 2:
            truth = np.diag([free.pop(0) ** 2 for _ in range(site.size)])
        else:
            scale = scales.pop(0)
            squares = []
            for side in ("row", "column"):
                diagonal = float64(getattr(scale, f"{side}_log_diagonal"))
                lower = float64(getattr(scale, f"{side}_lower"))
                factor = np.exp(diagonal)[:, None] * (np.tril(lower, -1) + np.eye(len(lower)))
                squares.append(factor @ factor.T)
            places = [entry(site, index) for index in np.ndindex(site.shape)]
            truth = np.array([[squares[0][i, k] * squares[1][j, l] for k, l in places] for i, j in places])
        np.testing.assert_allclose(block, truth, rtol=1e-10, atol=1e-12)
    assert not scales
    assert not free


def test_delta_is_one_point_and_its_divergence_is_minus_log_prior() -> None:
    model = generic(mixed_net(), "delta", prior={"name": "laplace", "scale": 0.4})
    draws, divergence = model.posterior.sample_and_kl(torch.zeros(3, 0, dtype=torch.float64), model.prior)
    weights = model.posterior.mean_vector().detach()
    assert torch.equal(draws.detach(), weights.expand(3, -1))
    assert not model.posterior.std_vector().any()
    truth = -log_density_laplace(weights, 0.4).sum()
    assert float(divergence.detach()) == pytest.approx(truth, rel=1e-12)


def test_empirical_bank_is_drawn_from_in_rounds() -> None:
    model = lift(nn.Linear(3, 2))
    bank = torch.randn(4, model.layout.size)
    offsets = torch.arange(4.0)[:, None].expand(-1, 2)
    posterior = EmpiricalPosterior(model.layout, bank, {"extra": offsets})
    bank_model = model.with_posterior(Empirical(4), posterior)
    drawn = list(bank_model.draws(8, bw.make_generator(82)))
    order = [int(tensors["extra"][0]) for tensors in drawn]
    assert sorted(order[:4]) == sorted(order[4:]) == [0, 1, 2, 3]
    for index, tensors in zip(order, drawn, strict=True):
        assert torch.equal(tensors["weight"].flatten(), bank[index, :6])
        assert torch.equal(tensors["bias"], bank[index, 6:])
    torch.testing.assert_close(posterior.mean_vector(), bank.mean(0))
    torch.testing.assert_close(posterior.std_vector(), bank.var(0, correction=0).sqrt())
    other = [int(t["extra"][0]) for t in bank_model.draws(8, bw.make_generator(84))]
    again = [int(t["extra"][0]) for t in bank_model.draws(8, bw.make_generator(82))]
    assert again == order != other


# ---------------------------------------------------------------------------------------------------------
# Where they start.


@pytest.mark.parametrize("posterior", POSTERIOR_CHOICES, ids=label)
def test_means_start_at_the_network(posterior: Choice) -> None:
    net = mixed_net()
    layout = lift(net).layout
    part = bw.POSTERIORS.resolve(posterior)
    prior = lay_out("normal", layout, like=torch.zeros(1))
    weights = layout.flatten(dict(net.named_parameters()))
    assert torch.equal(part.build(layout, prior, weights).mean_vector(), weights)


def test_means_from_the_prior_are_uniform_with_its_std() -> None:
    """Kaiming-uniform: U(-sqrt(3) s, sqrt(3) s). 12,000 weights; false failures below 2e-6."""
    net = nn.Sequential(nn.Linear(100, 80), nn.Linear(80, 50))
    before = {name: value.clone() for name, value in net.state_dict().items()}
    torch.manual_seed(83)
    model = lift(net, prior={"name": "kaiming", "a": 0.5}, means="prior")
    scaled = (model.posterior.mean_vector() / model.prior.std_vector()).detach()
    assert float(scaled.abs().max()) <= math.sqrt(3) * (1 + 1e-6)
    assert float(scaled.abs().max()) > 0.999 * math.sqrt(3)
    assert_mean_close(scaled, 0.0)
    assert_mean_close(scaled.square(), 1.0)
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
    again = lift(net, prior={"name": "kaiming", "a": 0.5}, means="prior")
    assert not torch.equal(again.posterior.mean_vector(), model.posterior.mean_vector())


@pytest.mark.parametrize("initial_std", [None, 0.07])
def test_stds_start_as_asked(initial_std: float | None) -> None:
    """The given std, or exp(-3) times that of the prior; matrix-normal and tied ones in the mean of a site."""
    prior = {"name": "kaiming", "a": 0.5}
    for name in ("mean_field", "full", "matrix_normal", "low_rank"):
        model = lift(mixed_net().double(), {"name": name, "initial_std": initial_std}, prior=prior)
        truth = model.prior.std_vector() * math.exp(-3)
        if initial_std is not None:
            truth = torch.full_like(truth, initial_std)
        found = model.posterior.std_vector().detach()
        if name == "low_rank":
            found = model.posterior.log_std.detach().exp()
            norms = (model.posterior.factor.detach() / truth[:, None]).norm(dim=0)
            # Random columns of norm 1 in units of the stds: over P weights its standard error is 1 / sqrt(2 P).
            spare = 5 / math.sqrt(2 * model.layout.size)
            assert bool(((norms - 1).abs() < spare).all()), f"columns as long as one std: {norms.tolist()}"
        torch.testing.assert_close(found, truth, rtol=1e-10, atol=0, msg=lambda text, name=name: f"{name}: {text}")
    rho = lift(
        mixed_net().double(),
        {"name": "mean_field", "initial_std": initial_std, "parameter": "rho"},
        prior=prior,
    )
    torch.testing.assert_close(rho.posterior.std_vector().detach(), truth, rtol=1e-10, atol=0)


@pytest.mark.parametrize("rank", [1, 3])
def test_k_tied_starts_with_the_mean_std_of_mean_field(rank: int) -> None:
    """E[std_ij] = s over the random factors: 600 starts, false failures 1e-6.

    With spread 0.5 a forgotten correction of the log-normal's mean would be off by exp(0.25): 28 %.
    """
    model = lift(nn.Linear(15, 20).double(), prior={"name": "kaiming", "a": 0.5})
    part = bw.KTied(rank=rank, spread=0.5)
    target = model.posterior.std_vector().detach()
    starts = torch.stack(
        [
            part.build(model.layout, model.prior, model.posterior.mean_vector()).std_vector().detach() / target
            for _ in range(600)
        ]
    )
    torch.testing.assert_close(starts[:, 300:], torch.ones(600, 20, dtype=torch.float64))  # the bias: no ties
    means = starts[:, :300].mean(1)
    assert float(means.std()) / math.sqrt(600) < 0.01
    assert_mean_close(means, 1.0)


def test_k_tied_components_differ_and_stay_different() -> None:
    """Equal components would get equal gradients forever: a rank-3 posterior that is of rank 1."""
    torch.manual_seed(85)
    model = lift(nn.Linear(6, 5).double(), {"name": "k_tied", "rank": 3})
    factors = model.posterior.log_factors
    bw.ELBO("categorical", 9)(
        model, torch.randn(4, 6, dtype=torch.float64), torch.tensor([0, 1, 2, 3])
    ).total.backward()
    for values in (factors.detach(), factors.grad):
        columns = values[:15].view(5, 3)
        assert float((columns[:, 0] - columns[:, 1]).abs().min()) > 0
        assert float((columns[:, 1] - columns[:, 2]).abs().min()) > 0
    stds = model.posterior.std_vector().detach()[:30].view(5, 6)
    assert int(torch.linalg.matrix_rank(stds, rtol=1e-6)) == 3


def test_parameter_counts_of_the_k_tied_paper() -> None:
    """Table of Swiatkowski et al. 2020 for an MLP 784-400-400-10."""
    net = nn.Sequential(nn.Linear(784, 400), nn.ReLU(), nn.Linear(400, 400), nn.ReLU(), nn.Linear(400, 10))
    choices = {
        956_820: "mean_field",
        481_614: bw.KTied(1),
        484_008: bw.KTied(2),
        486_402: bw.KTied(3),
    }
    for count, posterior in choices.items():
        model = lift(net, posterior)
        assert sum(parameter.numel() for parameter in model.parameters()) == count


# ---------------------------------------------------------------------------------------------------------
# Numbers at the edge.


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_softplus_and_back_over_sixty_decades(dtype: torch.dtype) -> None:
    stds = torch.logspace(-30, 4, 200, dtype=torch.float64)
    rho = softplus_inverse(stds.to(dtype))
    accuracy = 1e-4 if dtype == torch.float32 else 1e-12
    np.testing.assert_allclose(torch.nn.functional.softplus(rho), stds, rtol=accuracy)
    np.testing.assert_allclose(log_softplus(rho), stds.log(), rtol=accuracy, atol=accuracy)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_log_softplus_has_the_right_slope_everywhere(dtype: torch.dtype) -> None:
    """d log softplus(r) / dr = sigmoid(r) / softplus(r): 1 far below zero, never NaN."""
    points = torch.cat([torch.linspace(-200, 60, 521), torch.tensor([-15.0, -14.999, -15.001])]).to(dtype)
    points.requires_grad_(True)
    log_softplus(points).sum().backward()
    exact_points = points.detach().double()
    truth = torch.exp(
        torch.nn.functional.logsigmoid(exact_points)
        - torch.where(exact_points < -30, exact_points, torch.nn.functional.softplus(exact_points).log())
    )
    np.testing.assert_allclose(points.grad, truth, rtol=1e-5 if dtype == torch.float32 else 1e-8)


@each_density
def test_tiny_stds_in_float32_have_finite_kl_and_gradients(posterior: Choice) -> None:
    """Below 1e-19 the square of a float32 std is zero; nothing may divide by it."""
    chosen = dict(posterior)
    chosen["initial_std"] = 1e-8
    model = lift(mixed_net(), chosen)
    terms = bw.ELBO("categorical", 5)(model, torch.ones(2, 2, 3), torch.tensor([0, 1]))
    terms.total.backward()
    truth = float(model.prior.log_std_sum) - model.layout.size * (math.log(1e-8) + 0.5)
    truth += float((model.posterior.mean_vector() ** 2 / model.prior.std_vector() ** 2).sum().detach()) / 2
    assert float(terms.kl) == pytest.approx(truth, rel=0.02)
    assert all(bool(parameter.grad.isfinite().all()) for parameter in model.parameters())


def test_randomised_state_differs_from_the_start() -> None:
    """The checks above are at generic values only if this is so."""
    for posterior in DENSE:
        model = lift(mixed_net(), posterior)
        before = covariance_of(model.posterior).double()
        randomise(model.posterior)
        assert float((covariance_of(model.posterior).double() - before).abs().max()) > 0.1 * float(before.max())


def test_a_bank_whose_rows_are_not_side_by_side() -> None:
    layout = bw.bayesian(nn.Linear(3, 2)).layout
    columns = torch.arange(32.0).view(8, 4)
    bank = EmpiricalPosterior(layout, columns.T)
    for index in range(4):
        torch.testing.assert_close(layout.flatten(bank.member(index)), columns[:, index], rtol=0, atol=0)
