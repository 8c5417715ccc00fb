"""Prior densities, their moments and expectations against scipy and quadrature, and the choice by site."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch import Tensor, distributions

from bayeswell.core.errors import CompositionError, SettingError, Unsupported
from bayeswell.core.layout import Layout, Site
from bayeswell.core.protocols import Prior
from bayeswell.posteriors import LowRank, MeanField
from bayeswell.priors import (
    PRIORS,
    DistributionPrior,
    Kaiming,
    LaplacePrior,
    Normal,
    PosteriorPrior,
    ScaleMixture,
    build_prior,
    describe_prior,
)

LAYOUT = Layout(
    (
        Site(("a.weight",), (3, 2), "Linear", fan_in=2, fan_out=3),
        Site(("a.bias",), (3,), "Linear", fan_in=2, fan_out=3),
        Site(("b.weight",), (2, 3, 2), "Conv1d", fan_in=6, fan_out=4),
    )
)
ZEROS = torch.zeros(LAYOUT.size, dtype=torch.float64)
LogDensity = Callable[[Any], Any]


def normal_log_density(std: float) -> LogDensity:
    return stats.norm(0, std).logpdf


def mixture_log_density(w: Any) -> Any:
    return np.logaddexp(math.log(0.3) + stats.norm(0, 1.4).logpdf(w), math.log(0.7) + stats.norm(0, 0.08).logpdf(w))


# Settings of each registered prior, and its log density for a site.
TRUTHS: dict[str, tuple[dict[str, Any], Callable[[Site], LogDensity]]] = {
    "normal": ({"std": 0.7}, lambda site: normal_log_density(0.7)),
    "kaiming": ({"a": 0.3}, lambda site: normal_log_density(math.sqrt(2 / (1.09 * site.fan_in)))),
    "xavier": (
        {"gain": 1.6},
        lambda site: normal_log_density(1.6 * math.sqrt(2 / (site.fan_in + site.fan_out))),
    ),
    "scale_mixture": (
        {"wide_share": 0.3, "wide_std": 1.4, "narrow_std": 0.08},
        lambda site: mixture_log_density,
    ),
    "laplace": ({"scale": 0.6}, lambda site: stats.laplace(0, 0.6).logpdf),
    "distribution": (
        {"distribution": "StudentT", "settings": {"df": 30.0, "scale": 0.7}},
        lambda site: stats.t(30.0, 0, 0.7).logpdf,
    ),
}


def built(choice: Any, like: Tensor = ZEROS) -> Prior:
    return build_prior(choice, LAYOUT, like)


def by_site(values: Tensor) -> list[tuple[Site, Tensor]]:
    return [(site, values[LAYOUT.slices[site.name]]) for site in LAYOUT.sites]


def generic(count: int = 4) -> Tensor:
    return torch.randn(count, LAYOUT.size, generator=torch.Generator().manual_seed(71), dtype=torch.float64)


def expectation(log_density: LogDensity, mean: float, std: float) -> float:
    density = stats.norm(mean, std)
    ends = mean - 12 * std, mean + 12 * std
    value, _ = integrate.quad(lambda w: density.pdf(w) * log_density(w), *ends, points=[0], limit=200)
    return float(value)


def test_every_registered_prior_has_a_truth() -> None:
    assert set(TRUTHS) == set(PRIORS)


@pytest.mark.parametrize("name", TRUTHS)
def test_log_prob_matches_scipy(name: str) -> None:
    settings, density = TRUTHS[name]
    prior, weights = built({"name": name, **settings}), generic()
    truth = [sum(float(density(site)(part).sum()) for site, part in by_site(row)) for row in weights]
    np.testing.assert_allclose(prior.log_prob(weights), truth, rtol=1e-12)


@pytest.mark.parametrize("name", TRUTHS)
def test_expected_log_prob_matches_quadrature(name: str) -> None:
    settings, density = TRUTHS[name]
    prior = built({"name": name, **settings})
    mean, std = generic(2)[0], 0.05 + generic(2)[1].abs()
    if not prior.has_closed_form:
        with pytest.raises(Unsupported):
            prior.expected_log_prob(mean, std)
        return
    truth = sum(
        expectation(density(site), float(m), float(s))
        for (site, means), (_, stds) in zip(by_site(mean), by_site(std), strict=True)
        for m, s in zip(means, stds, strict=True)
    )
    assert float(prior.expected_log_prob(mean, std)) == pytest.approx(truth, rel=1e-8)


@pytest.mark.parametrize("name", TRUTHS)
def test_std_matches_integration(name: str) -> None:
    settings, density = TRUTHS[name]
    for site, stds in by_site(built({"name": name, **settings}).std()):
        log_density = density(site)

        def integrand(w: float, log_density: LogDensity = log_density) -> float:
            return float(w**2 * np.exp(log_density(w)))

        variance, _ = integrate.quad(integrand, -30, 30, points=[-0.3, 0, 0.3], limit=500)
        np.testing.assert_allclose(stds, math.sqrt(variance), rtol=1e-6)


def test_gaussian_terms_give_the_kl_of_torch() -> None:
    like = generic(3)[2]
    prior = built({"a.weight": Normal(0.3, center="network"), "*": "kaiming"}, like)
    mean, std = generic(2)[0], 0.05 + generic(2)[1].abs()
    terms = prior.gaussian
    assert terms is not None
    assert terms.by_site
    inverse = LAYOUT.repeat_by_site(terms.inverse_variances)
    squares = (mean - terms.center).square() + std.square()
    kl = terms.log_std_sum - std.log().sum() + 0.5 * (inverse * squares - 1).sum()
    truth = distributions.kl_divergence(
        distributions.Normal(mean, std), distributions.Normal(prior.center(), prior.std())
    ).sum()
    torch.testing.assert_close(kl, truth)
    entropy = distributions.Normal(mean, std).entropy().sum()
    torch.testing.assert_close(-entropy - prior.expected_log_prob(mean, std), truth)


def test_priors_around_the_network_weights_are_shifted() -> None:
    like, weights = generic(5)[4], generic()
    for name, (settings, _) in TRUTHS.items():
        shifted = built({"name": name, **settings, "center": "network"}, like)
        torch.testing.assert_close(
            shifted.log_prob(weights), built({"name": name, **settings}).log_prob(weights - like)
        )
        torch.testing.assert_close(shifted.center(), like)


def test_scaled_prior_multiplies_stds_and_leaves_the_prior() -> None:
    prior, weights = built("kaiming"), generic()
    before = prior.log_prob(weights)
    scaled = prior.scaled(0.3).scaled(0.5)
    truth = distributions.Normal(ZEROS, 0.15 * prior.std()).log_prob(weights).sum(-1)
    torch.testing.assert_close(scaled.log_prob(weights), truth)
    torch.testing.assert_close(scaled.std(), 0.15 * prior.std())
    assert torch.equal(prior.log_prob(weights), before)
    assert prior.scaled(1.0) is prior
    with pytest.raises(Unsupported):
        built("laplace").scaled(0.5)


def test_scale_mixture_is_finite_far_away_and_pulls_back() -> None:
    weights = torch.full((1, LAYOUT.size), 60.0, requires_grad=True)
    value = build_prior(ScaleMixture(), LAYOUT, ZEROS.float()).log_prob(weights)
    value.sum().backward()
    assert bool(value.isfinite().all())
    torch.testing.assert_close(weights.grad, -weights.detach())


def test_laplace_expectation_has_the_limit_of_no_std() -> None:
    prior, mean = built(LaplacePrior(0.6)), generic(1)[0]
    std = torch.zeros_like(mean, requires_grad=True)
    value = prior.expected_log_prob(mean, std)
    value.backward()
    torch.testing.assert_close(value.detach(), prior.log_prob(mean[None])[0])
    assert bool(std.grad.isfinite().all())


def test_patterns_first_match_wins() -> None:
    prior = built({"*.bias": Normal(0.2), "b.*": LaplacePrior(0.5), "*": "kaiming"})
    stds = [float(values[0]) for _, values in by_site(prior.std())]
    assert stds == pytest.approx([1.0, 0.2, 0.5 * math.sqrt(2)])
    weights = generic()
    truth = (
        distributions.Normal(0, 1.0).log_prob(weights[:, :6]).sum(-1)
        + distributions.Normal(0, 0.2).log_prob(weights[:, 6:9]).sum(-1)
        + distributions.Laplace(0, 0.5).log_prob(weights[:, 9:]).sum(-1)
    )
    torch.testing.assert_close(prior.log_prob(weights), truth)
    assert prior.has_closed_form
    mean, std = weights[0], weights[1].abs()
    pieces = [({"*": part}, index) for index, part in enumerate((Kaiming(), Normal(0.2), LaplacePrior(0.5)))]
    parts = [
        build_prior(choice, Layout((LAYOUT.sites[i],)), ZEROS).expected_log_prob(
            mean[LAYOUT.slices[LAYOUT.sites[i].name]], std[LAYOUT.slices[LAYOUT.sites[i].name]]
        )
        for choice, i in pieces
    ]
    torch.testing.assert_close(prior.expected_log_prob(mean, std), torch.stack(parts).sum())


def test_function_of_the_site() -> None:
    prior = built(lambda site: Normal(1 / site.fan_in))
    assert [float(values[0]) for _, values in by_site(prior.std())] == pytest.approx([0.5, 0.5, 1 / 6])


def test_description_builds_the_prior_again() -> None:
    weights = generic()
    mixed = {"*.bias": LaplacePrior(0.3), "*": Normal(0.2, center="network")}
    for choice in ("xavier", mixed, distributions.Cauchy(0.0, 0.4), distributions.Normal(0.3, 2.0)):
        prior = built(choice, weights[0])
        again = built(describe_prior(prior), weights[0])
        torch.testing.assert_close(again.log_prob(weights), prior.log_prob(weights), rtol=0, atol=0)
        again.load_state_dict(prior.state_dict())


def test_distributions_of_torch_are_priors() -> None:
    weights = generic()
    for made in (distributions.StudentT(5.0, 0.2, 0.6), distributions.Gumbel(0.1, 0.5), distributions.Normal(0.3, 2.0)):
        prior = built(made)
        torch.testing.assert_close(prior.log_prob(weights), made.log_prob(weights).sum(-1), check_dtype=False)
        torch.testing.assert_close(prior.std(), made.stddev.double().expand(LAYOUT.size))
    assert built(distributions.Normal(0.0, 2.0)).has_closed_form
    cauchy = built(distributions.Cauchy(0.0, 0.4)).std()[0]
    assert float(cauchy) == pytest.approx(0.4 * stats.cauchy.ppf(0.75) / stats.norm.ppf(0.75), rel=1e-6)


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ("gaussian", "unknown prior"),
        ({"name": "normal", "std": -1.0}, "`std` must be above 0"),
        ({"name": "normal", "center": "mean"}, "center"),
        ({"name": "scale_mixture", "wide_share": 1.0}, "below 1"),
        ({"zzz.*": "normal"}, "matches no Bayesian parameter"),
        ({"a.*": "normal"}, "no pattern matches 'b.weight'"),
        (distributions.Exponential(1.0), "support"),
        (distributions.Normal(torch.zeros(2), 1.0), "shape"),
    ],
)
def test_wrong_choices_are_refused(choice: Any, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        built(choice)


def test_unknown_distribution_is_refused() -> None:
    with pytest.raises(SettingError, match="StudentT"):
        DistributionPrior("Student")


def test_posterior_as_prior_is_its_density() -> None:
    mean = generic()[0]
    posterior = MeanField().build(LAYOUT, built("kaiming"), mean, None)
    with torch.no_grad():
        posterior.log_std.add_(generic()[1])
    prior, weights = PosteriorPrior(posterior), generic()
    torch.testing.assert_close(prior.log_prob(weights), posterior.log_prob(weights))
    q_mean, q_std = generic()[2], generic()[3].abs()
    truth = distributions.kl_divergence(
        distributions.Normal(q_mean, q_std), distributions.Normal(mean, posterior.std())
    ).sum()
    entropy = distributions.Normal(q_mean, q_std).entropy().sum()
    torch.testing.assert_close(-entropy - prior.expected_log_prob(q_mean, q_std), truth)
    assert not list(prior.parameters())
    torch.testing.assert_close(prior.scaled(2.0).std(), 2 * posterior.std())
    with torch.no_grad():
        posterior.mean.add_(1)
    torch.testing.assert_close(prior.center(), mean)


def test_posterior_with_correlations_as_prior() -> None:
    posterior = LowRank(rank=2).build(LAYOUT, built("kaiming"), generic()[0], torch.Generator().manual_seed(1))
    prior, weights = PosteriorPrior(posterior), generic()
    torch.testing.assert_close(prior.log_prob(weights), posterior.log_prob(weights))
    assert not prior.has_closed_form
    with pytest.raises(Unsupported):
        prior.expected_log_prob(generic()[0], generic()[1].abs())


def test_sequential_bayes_equals_one_update() -> None:
    """For y_i = w_i + N(0, 1): two updates of one example and one update of two give the same posterior."""
    first, second = generic()[:2]
    prior = built(Normal(0.8))
    variance = 1 / (1 / 0.8**2 + 1)
    posterior = MeanField().build(LAYOUT, prior, variance * first, None)
    with torch.no_grad():
        posterior.log_std.fill_(0.5 * math.log(variance))
    learned, weights = PosteriorPrior(posterior), generic()
    sequential = learned.log_prob(weights) - 0.5 * (weights - second).square().sum(-1)
    joint = prior.log_prob(weights) - 0.5 * ((weights - first).square() + (weights - second).square()).sum(-1)
    difference = sequential - joint
    torch.testing.assert_close(difference, difference[:1].expand_as(difference))


def test_prior_of_another_network_is_refused() -> None:
    with pytest.raises(CompositionError, match="other parameters"):
        build_prior(built("normal"), Layout(LAYOUT.sites[:1]), ZEROS[:6])
