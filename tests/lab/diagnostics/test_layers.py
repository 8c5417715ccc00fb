from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from bayeswell.core.errors import Unsupported
from bayeswell.lab.diagnostics import layer_summary
from bayeswell.nn import BayesianModule, bayesian
from bayeswell.priors import LaplacePrior, Normal, ScaleMixture


def model(posterior: str = "mean_field", prior: object = "kaiming") -> BayesianModule:
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    found = bayesian(net, posterior, prior, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        for name, parameter in found.posterior.named_parameters():
            if name != "mean":
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    return found


@torch.no_grad()
def total_kl(found: BayesianModule) -> float:
    return float(found.posterior.rsample_and_kl(None, found.prior)[1])


def test_kl_and_ratios_match_closed_forms():
    found = model()
    mean, std, prior = found.posterior.mean.detach(), found.posterior.std().detach(), found.prior.std()
    kl = (prior / std).log() + (std.square() + mean.square()) / (2 * prior.square()) - 0.5
    summary = layer_summary(found)
    for row, place in zip(summary.layers, found.layout.slices.values(), strict=True):
        assert row.kl == pytest.approx(float(kl[place].sum()), rel=1e-5)
        assert row.std_ratio == pytest.approx(float((std / prior)[place].mean()), rel=1e-5)
        assert row.signal_to_noise == pytest.approx(float(mean[place].abs().mean() / std[place].mean()), rel=1e-5)
    assert summary.kl == pytest.approx(total_kl(found), rel=1e-5)
    assert summary.correlation == 0


@pytest.mark.parametrize(
    "prior", [LaplacePrior(0.5), {"0.*": Normal(0.3), "*": LaplacePrior(0.7)}, Normal(0.4, center="network")]
)
def test_layers_add_up_to_the_kl_of_other_priors(prior: object):
    found = model(prior=prior)
    summary = layer_summary(found)
    assert sum(row.kl or 0 for row in summary.layers) == pytest.approx(total_kl(found), rel=1e-5)


def test_a_prior_without_closed_form_is_averaged_over_draws():
    """E[log p] by 100 draws; five standard errors, estimated from 20 seeds."""
    found = model(prior=ScaleMixture())
    kls = torch.tensor([layer_summary(found, seed=seed).kl for seed in range(20)], dtype=torch.float64)
    noise = torch.randn(20_000, found.layout.size, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        weights = found.posterior.rsample(noise)
        ratios = found.posterior.log_prob(weights).double() - found.prior.log_prob(weights).double()
    error = math.hypot(float(kls.std()) / math.sqrt(20), float(ratios.std()) / math.sqrt(len(ratios)))
    assert float(kls.mean()) == pytest.approx(float(ratios.mean()), abs=5 * error)


def test_correlated_weights_add_their_total_correlation():
    found = model("low_rank")
    covariance = found.posterior.covariance()
    assert covariance is not None
    assert covariance.factor is not None
    full = torch.diag(covariance.variances) + covariance.factor @ covariance.factor.T
    correlation = 0.5 * (full.diagonal().log().sum() - torch.logdet(full)).detach()
    summary = layer_summary(found)
    assert summary.correlation == pytest.approx(float(correlation), rel=1e-3)
    assert summary.kl == pytest.approx(sum(row.kl or 0 for row in summary.layers) + float(correlation), rel=1e-4)


def test_a_point_estimate_is_refused():
    with pytest.raises(Unsupported, match="'delta' has no stds"):
        layer_summary(model("delta"))


def test_summary_is_plain_data():
    document = layer_summary(model()).to_json()
    assert [row["name"] for row in document["layers"]] == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert document["layers"][0]["size"] == 12
