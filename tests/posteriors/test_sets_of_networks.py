"""Empirical posteriors and mixtures."""

from __future__ import annotations

import math

import pytest
import torch
from torch.distributions import Categorical, MixtureSameFamily, MultivariateNormal

from bayeswell.core.errors import SettingError
from bayeswell.core.protocols import EMPIRICAL, MIXTURE, NoMean, Posterior
from bayeswell.core.registry import describe
from bayeswell.posteriors import POSTERIORS, Empirical, Mixture, WithExtras
from helpers import assert_mean_close
from posteriors.families import LAYOUT, a_prior, generic, normal, start

P = LAYOUT.size


def an_empirical() -> Empirical:
    return Empirical(LAYOUT, normal(4, P, seed=1), {"norm.running_mean": torch.arange(4.0)[:, None].expand(-1, 2)})


def a_mixture() -> Mixture:
    components = [generic({"name": "low_rank", "rank": rank}) for rank in (2, 2, 2)]
    for index, component in enumerate(components):
        component.mean.data += index
    return Mixture(components, {"norm.running_mean": torch.arange(3.0)})


def rebuilt(posterior: WithExtras) -> Posterior:
    """From description and state alone."""
    part = POSTERIORS.resolve(describe(posterior.part))
    copy = part.build(LAYOUT, a_prior(), torch.zeros(P, dtype=torch.float64), None)
    copy.load_state_dict(posterior.state_dict())
    return copy


def test_empirical_draws_in_rounds_with_extra_tensors() -> None:
    q = an_empirical()
    drawn = list(q.draws(10, torch.Generator().manual_seed(3)))
    order = [int(tensors["norm.running_mean"][0]) for tensors in drawn]
    assert len(drawn) == 10
    assert sorted(order[:4]) == sorted(order[4:8]) == [0, 1, 2, 3]
    assert len(set(order[8:])) == 2
    for index, tensors in zip(order, drawn, strict=True):
        assert torch.equal(LAYOUT.flatten(tensors), q.weights[index])
    again = [int(t["norm.running_mean"][0]) for t in q.draws(10, torch.Generator().manual_seed(3))]
    assert again == order


def test_empirical_has_no_mean_and_no_density() -> None:
    q = an_empirical()
    assert q.provides == {EMPIRICAL}
    assert q.num_networks == 4
    torch.testing.assert_close(q.std(), q.weights.var(0, correction=0).sqrt())
    with pytest.raises(NoMean):
        _ = q.mean
    with pytest.raises(NotImplementedError):
        q.log_prob(q.weights)
    with pytest.raises(SettingError, match="at least one"):
        Empirical(LAYOUT, torch.empty(0, P))


def test_empirical_from_networks() -> None:
    q = an_empirical()
    networks = [q.network(index) for index in range(4)]
    listed = Empirical.from_networks(LAYOUT, networks, ["norm.running_mean"])
    assert torch.equal(listed.weights, q.weights)
    assert torch.equal(listed.network(2)["norm.running_mean"], torch.tensor([2.0, 2.0]))


@pytest.mark.parametrize("make", [an_empirical, a_mixture])
def test_state_and_description_rebuild_sets_of_networks(make: type) -> None:
    q = make()
    copy = rebuilt(q)
    assert copy.part == q.part
    for one, other in zip(
        q.draws(5, torch.Generator().manual_seed(4)), copy.draws(5, torch.Generator().manual_seed(4)), strict=True
    ):
        assert one.keys() == other.keys()
        assert all(torch.equal(one[name], other[name]) for name in one)


def test_mixture_density_and_moments_match_torch_distributions() -> None:
    q = a_mixture()
    assert MIXTURE in q.provides
    means = torch.stack([component.mean for component in q.each()])
    covariances = []
    for component in q.each():
        parts = component.covariance()
        covariances.append(parts.variances.diag() + parts.factor @ parts.factor.T)
    truth = MixtureSameFamily(Categorical(torch.ones(3).double()), MultivariateNormal(means, torch.stack(covariances)))
    points = means.detach() + 0.3 * normal(3, P, seed=5)
    torch.testing.assert_close(q(points), truth.log_prob(points), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(q.std(), truth.variance.sqrt(), rtol=1e-9, atol=0)
    with pytest.raises(NoMean):
        _ = q.mean


def test_mixture_draws_have_the_moments_of_the_mixture() -> None:
    """20,000 draws by noise; rate 1e-6."""
    q = a_mixture()
    means = torch.stack([component.mean for component in q.each()])
    draws = q.rsample(normal(20_000, q.noise_size, seed=6)).detach()
    assert_mean_close(draws, means.mean(0))
    assert_mean_close((draws - means.mean(0)).square(), q.std().square())


def test_mixture_draws_from_each_component_with_its_extra_tensors() -> None:
    q = a_mixture()
    drawn = list(q.draws(6, torch.Generator().manual_seed(7)))
    order = [int(tensors["norm.running_mean"]) for tensors in drawn]
    assert sorted(order[:3]) == sorted(order[3:]) == [0, 1, 2]
    centers = list(q.centers())
    for index, tensors in zip(order, drawn, strict=True):
        distances = [float((LAYOUT.flatten(tensors) - LAYOUT.flatten(center)).norm()) for center in centers]
        assert distances.index(min(distances)) == index
        assert min(distances) < math.sqrt(P)


def test_components_may_differ_in_their_noise() -> None:
    """Members that stopped at different epochs have factors of different ranks; 20,000 draws, rate 1e-6."""
    q = Mixture([generic({"name": "low_rank", "rank": 3}), generic({"name": "mean_field"})])
    means = torch.stack([component.mean for component in q.each()])
    draws = q.rsample(normal(20_000, q.noise_size, seed=6)).detach()
    assert_mean_close(draws, means.mean(0))
    assert_mean_close((draws - means.mean(0)).square(), q.std().square())


def test_mixture_needs_its_components() -> None:
    with pytest.raises(SettingError, match="components"):
        POSTERIORS.resolve("mixture")


def test_mixture_of_points_is_refused() -> None:
    with pytest.raises(SettingError, match="mean_field"):
        Mixture([start("delta")])
