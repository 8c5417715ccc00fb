"""Prior densities, their moments and expectations, and how they are chosen for each parameter."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch import Tensor, nn

import bayeswell as bw
from bayeswell.priors import PRIORS, FlatPrior, lay_out
from bayeswell.tree import Layout, Site
from nets import lift
from truths.arrays import Array
from truths.gaussian import (
    expected_log_density,
    log_density_laplace,
    log_density_normal,
    log_density_scale_mixture,
)

LAYOUT = Layout(
    (
        Site(("a.weight",), (3, 2), "Linear", fan_in=2, fan_out=3),
        Site(("a.bias",), (3,), "Linear", fan_in=2, fan_out=3),
        Site(("b.weight",), (2, 3, 2), "Conv1d", fan_in=6, fan_out=4),
    )
)
LIKE = torch.zeros(LAYOUT.size, dtype=torch.float64)

# What each registered prior is at generic settings: its log density (by the test's own formula) for a site.
Density = Callable[[Site], Callable[[Any], Array]]
TRUTHS: dict[str, tuple[dict[str, Any], Density]] = {
    "normal": ({"std": 0.7}, lambda site: lambda w: log_density_normal(w, 0.7)),
    "kaiming": (
        {"a": 0.3},
        lambda site: lambda w: log_density_normal(w, math.sqrt(2 / (1.09 * site.fan_in))),
    ),
    "xavier": (
        {"gain": 1.6},
        lambda site: lambda w: log_density_normal(w, 1.6 * math.sqrt(2 / (site.fan_in + site.fan_out))),
    ),
    "scale_mixture": (
        {"wide_share": 0.3, "wide_std": 1.4, "narrow_std": 0.08},
        lambda site: lambda w: log_density_scale_mixture(w, 0.3, 1.4, 0.08),
    ),
    "laplace": ({"scale": 0.6}, lambda site: lambda w: log_density_laplace(w, 0.6)),
    "distribution": (
        {"distribution": "StudentT", "settings": {"df": 30.0, "scale": 0.7}},
        lambda site: lambda w: stats.t.logpdf(w, df=30.0, scale=0.7),
    ),
}


def test_every_registered_prior_has_a_truth() -> None:
    assert set(TRUTHS) == set(PRIORS)


def laid_out(choice: Any) -> FlatPrior:
    return lay_out(choice, LAYOUT, like=LIKE)


def by_site(values: Tensor) -> list[tuple[Site, Tensor]]:
    return [(site, values[LAYOUT.slices[site.name]]) for site in LAYOUT.sites]


def generic_weights(count: int = 4) -> Tensor:
    generator = torch.Generator().manual_seed(71)
    return torch.randn(count, LAYOUT.size, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("name", TRUTHS)
def test_log_density(name: str) -> None:
    settings, density = TRUTHS[name]
    prior = laid_out({"name": name, **settings})
    weights = generic_weights()
    truth = [sum(float(density(site)(part).sum()) for site, part in by_site(row)) for row in weights]
    np.testing.assert_allclose(prior.log_prob(weights), truth, rtol=1e-12)
    assert float(prior.log_prob(weights[0])) == pytest.approx(truth[0], rel=1e-12)


@pytest.mark.parametrize("name", TRUTHS)
def test_expectation_under_a_gaussian_by_quadrature(name: str) -> None:
    settings, density = TRUTHS[name]
    prior = laid_out({"name": name, **settings})
    mean, std = generic_weights(2)[0], 0.05 + generic_weights(2)[1].abs()
    if not prior.analytic:
        with pytest.raises(NotImplementedError):
            prior.expected_log_prob(mean, std)
        return
    truth = sum(
        float(expected_log_density(part, spread, density(site)).sum())
        for (site, part), (_, spread) in zip(by_site(mean), by_site(std), strict=True)
    )
    assert float(prior.expected_log_prob(mean, std)) == pytest.approx(truth, rel=1e-9)


@pytest.mark.parametrize("name", TRUTHS)
def test_std_and_normalisation_by_integration(name: str) -> None:
    settings, density = TRUTHS[name]
    prior = laid_out({"name": name, **settings})
    for site, stds in by_site(prior.std_vector()):
        log_density = density(site)

        def moment(power: int, log_density: Callable[[Any], Array] = log_density) -> float:
            value, _ = integrate.quad(
                lambda w: w**power * float(np.exp(log_density(w))), -30, 30, points=[-0.3, 0, 0.3], limit=500
            )
            return float(value)

        assert moment(0) == pytest.approx(1, abs=1e-7)
        np.testing.assert_allclose(stds, math.sqrt(moment(2)), rtol=1e-6)


@pytest.mark.parametrize("layer", [nn.Linear(5, 3), nn.Conv2d(4, 6, (3, 2)), nn.Conv3d(2, 3, 2)])
def test_kaiming_and_xavier_are_the_stds_of_torch_init(layer: nn.Module) -> None:
    """10^6 draws of torch's initialisers would have these stds; torch states them as gain and fans."""
    fan_in, fan_out = nn.init._calculate_fan_in_and_fan_out(layer.weight)
    gain = nn.init.calculate_gain("leaky_relu", 0.2)
    found = {
        "kaiming": lift(layer, prior={"name": "kaiming", "a": 0.2}).prior.std_vector(),
        "xavier": lift(layer, prior={"name": "xavier", "gain": 1.3}).prior.std_vector(),
    }
    size = layer.weight.numel()
    np.testing.assert_allclose(found["kaiming"][:size], gain / math.sqrt(fan_in), rtol=1e-6)
    np.testing.assert_allclose(found["xavier"][:size], 1.3 * math.sqrt(2 / (fan_in + fan_out)), rtol=1e-6)
    for stds in found.values():
        np.testing.assert_array_equal(stds[size:], stds[0])  # a bias goes with its weight


# ---------------------------------------------------------------------------------------------------------
# Choosing.


def test_first_pattern_that_fits_wins_and_kinds_may_alternate() -> None:
    choices = {
        "b.*": {"name": "normal", "std": 0.3},
        "*.bias": bw.LaplacePrior(0.6),
        "b.weight": {"name": "normal", "std": 99.0},
        "*": {"name": "normal", "std": 1.9},
    }
    prior = laid_out(choices)
    weights = generic_weights()
    densities = {"a.weight": (1.9, None), "a.bias": (None, 0.6), "b.weight": (0.3, None)}
    truth = np.zeros(len(weights))
    for site in LAYOUT.sites:
        part = weights[:, LAYOUT.slices[site.name]]
        std, scale = densities[site.name]
        values = log_density_normal(part, std) if std else log_density_laplace(part, scale or 0)
        truth += values.sum(-1)
    np.testing.assert_allclose(prior.log_prob(weights), truth, rtol=1e-12)
    assert prior.analytic
    assert prior.inverse_variance is None  # not Gaussian throughout
    stds = dict.fromkeys(LAYOUT.slices, 0.0) | {"a.weight": 1.9, "a.bias": math.sqrt(2) * 0.6, "b.weight": 0.3}
    for site, values in by_site(prior.std_vector()):
        np.testing.assert_allclose(values, stds[site.name], rtol=1e-12)
        assert prior.explain(site).endswith(f"(std={stds[site.name]:.3g})")


def test_a_function_of_the_site() -> None:
    prior = laid_out(lambda site: bw.Normal(0.2 * site.fan_in) if "weight" in site.name else "laplace")
    stds = [0.4] * 6 + [math.sqrt(2)] * 3 + [1.2] * 12
    np.testing.assert_allclose(prior.std_vector(), stds, rtol=1e-12)


@pytest.mark.parametrize("name", TRUTHS)
def test_name_mapping_part_and_settings_are_one_choice(name: str) -> None:
    settings, _ = TRUTHS[name]
    weights = generic_weights()
    mapping = {"name": name, **settings}
    first = laid_out(mapping)
    for choice in (PRIORS.resolve(mapping), first.settings()[0], {"*": mapping}, lambda site: mapping):
        assert torch.equal(laid_out(choice).log_prob(weights), first.log_prob(weights))
    assert first.settings() == [mapping] * 3
    default = laid_out(name).log_prob(weights)
    assert torch.equal(default, laid_out(PRIORS[name]()).log_prob(weights))
    assert not torch.equal(default, first.log_prob(weights))


def test_gaussian_summary_is_that_of_the_whole_vector() -> None:
    """What the fused KL uses: 1/s^2 for each weight (one number where all agree) and the sum of log s."""
    one = laid_out({"name": "normal", "std": 0.7})
    assert one.inverse_variance is not None
    assert one.inverse_variance.dim() == 0
    many = laid_out("kaiming")
    for prior in (one, many):
        assert prior.inverse_variance is not None
        assert prior.log_std_sum is not None
        stds = prior.std_vector()
        np.testing.assert_allclose(prior.inverse_variance.expand(LAYOUT.size), stds**-2.0, rtol=1e-12)
        assert float(prior.log_std_sum) == pytest.approx(float(stds.log().sum()), rel=1e-12)


def test_sum_of_logs_is_exact_for_large_networks_in_float32() -> None:
    layout = Layout(tuple(Site((f"w{i}",), (1000, 1000), "Linear", 1000, 1000 + i) for i in range(3)))
    prior = lay_out("xavier", layout, like=torch.zeros(()))
    assert prior.log_std_sum is not None
    truth = sum(1e6 * 0.5 * math.log(2 / (2000 + i)) for i in range(3))
    assert float(prior.log_std_sum) == pytest.approx(truth, rel=3e-7)


# ---------------------------------------------------------------------------------------------------------
# Numbers at the edge.


def test_scale_mixture_is_felt_by_far_weights() -> None:
    """exp of either component underflows there: in plain space the log would be -inf and the gradient NaN."""
    prior = laid_out({"name": "scale_mixture", "wide_std": 0.5, "narrow_std": 0.001, "wide_share": 0.4})
    weights = torch.full((1, LAYOUT.size), 40.0, dtype=torch.float64, requires_grad=True)
    prior.log_prob(weights).sum().backward()
    assert weights.grad is not None
    np.testing.assert_allclose(weights.grad, -40 / 0.25, rtol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("mean", [0.0, 1e-3, -2.5])
def test_laplace_expectation_where_the_std_vanishes(mean: float, dtype: torch.dtype) -> None:
    """E|w| -> |m|, with finite slopes: sign(m) in the mean."""
    density = bw.LaplacePrior.density
    means = torch.tensor([mean], dtype=dtype, requires_grad=True)
    stds = torch.tensor([1e-15], dtype=dtype, requires_grad=True)
    value = density.expected_log_prob(means, stds, torch.tensor(0.6, dtype=dtype))
    assert value.item() == pytest.approx(-abs(mean) / 0.6 - math.log(1.2), rel=1e-6)
    value.sum().backward()
    assert means.grad is not None
    assert stds.grad is not None
    assert means.grad.item() == pytest.approx(-np.sign(mean) / 0.6, rel=1e-6)
    slope = -math.sqrt(2 / math.pi) / 0.6 if mean == 0 else 0.0
    assert stds.grad.item() == pytest.approx(slope, rel=1e-6)


def test_without_a_closed_form_monte_carlo_is_taken_and_said_once() -> None:
    model = lift(nn.Linear(3, 2), prior="scale_mixture")
    elbo = bw.ELBO("categorical", 7)
    batch = (model, torch.ones(2, 3), torch.tensor([0, 1]))
    with pytest.warns(bw.BayeswellWarning, match="closed-form"):
        first = elbo(*batch, generator=bw.make_generator(72))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        second = elbo(*batch, generator=bw.make_generator(72))
    asked_for = bw.ELBO("categorical", 7, divergence="monte_carlo")(*batch, generator=bw.make_generator(72))
    assert torch.equal(first.total, second.total)
    assert torch.equal(first.total, asked_for.total)
