"""KL and std ratios by layer, and whether the stds have arrived."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from torch import nn

import bayeswell as bw
from bayeswell.diagnostics import StdTrace, layer_report, std_movement
from bayeswell.persistence import pack_state, unpack_state
from bayeswell.posteriors import Empirical, EmpiricalPosterior
from diagnostics.problems import lifted

FAMILIES = ["mean_field", {"name": "mean_field", "parameter": "rho"}, {"name": "k_tied", "rank": 2},
            {"name": "low_rank", "rank": 3}, "matrix_normal", "full", "delta"]  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES, ids=str)
@pytest.mark.parametrize("prior", [{"name": "normal", "std": 0.7}, {"0.*": "kaiming", "*": "laplace"}], ids=str)
def test_the_layers_and_the_correlation_make_the_models_kl(family: object, prior: object) -> None:
    model = lifted(family, prior=prior)
    report = layer_report(model)
    truth = float(model.posterior.sample_and_kl(None, model.prior)[1].detach())
    assert report.kl == pytest.approx(truth, rel=1e-10)
    assert sum(row.kl for row in report.layers) + report.correlation == pytest.approx(truth, rel=1e-10)
    if model.posterior_part.name in ("low_rank", "matrix_normal", "full"):
        assert report.correlation > 0.01
    else:
        assert report.correlation == 0
    json.dumps(report.as_json(), allow_nan=False)


def test_each_layer_by_hand() -> None:
    model = lifted(prior={"0.*": {"name": "normal", "std": 0.5}, "*": {"name": "normal", "std": 1.7}})
    means, stds = (vector.detach().numpy() for vector in (model.posterior.mean_vector(), model.posterior.std_vector()))
    report = layer_report(model)
    assert [row.layer for row in report.layers] == ["0.weight", "0.bias", "2.weight", "2.bias"]
    for row in report.layers:
        prior = 0.5 if row.layer.startswith("0") else 1.7
        part = model.layout.slices[row.layer]
        m, s = means[part], stds[part]
        kl = np.sum(np.log(prior / s) + (s**2 + m**2) / (2 * prior**2) - 0.5)
        assert row.kl == pytest.approx(kl, rel=1e-10)
        assert row.kl_per_weight == pytest.approx(kl / len(m), rel=1e-10)
        ratios = [np.mean(s / prior), np.median(s / prior), np.min(s / prior), np.max(s / prior)]
        found = [row.std_ratio_mean, row.std_ratio_median, row.std_ratio_min, row.std_ratio_max]
        assert found == pytest.approx(ratios, rel=1e-10)


def test_a_prior_without_a_closed_form_is_drawn() -> None:
    mixture = {"name": "scale_mixture", "wide_std": 1.1, "narrow_std": 0.05, "wide_share": 0.4}
    model = lifted(net=nn.Linear(1, 1, bias=False), prior=mixture)
    mean, std = (float(v.detach()) for v in (model.posterior.mean_vector()[0], model.posterior.std_vector()[0]))
    grid = np.linspace(-12, 12, 200_001)
    density = np.exp(-0.5 * grid**2) / math.sqrt(2 * math.pi)
    points = mean + std * grid
    both = [np.exp(-0.5 * (points / s) ** 2) / (s * math.sqrt(2 * math.pi)) for s in (1.1, 0.05)]
    log_prior = np.log(0.4 * both[0] + 0.6 * both[1])
    step = grid[1] - grid[0]
    expected = np.sum(density * log_prior) * step
    spread = math.sqrt(np.sum(density * (log_prior - expected) ** 2) * step)
    entropy = math.log(std) + 0.5 * math.log(2 * math.pi * math.e)
    report = layer_report(model, draws=4000, seed=2)
    assert report.kl_by == "monte_carlo"
    assert abs(report.kl - (-entropy - expected)) < 5 * spread / math.sqrt(4000)  # fails once in 1.7 million


def test_a_bank_has_widths_but_no_kl() -> None:
    model = lifted()
    weights = 0.3 * torch.randn(6, model.layout.size, dtype=torch.float64)
    bank = model.with_posterior(Empirical(6), EmpiricalPosterior(model.layout, weights))
    report = layer_report(bank)
    assert (report.kl, report.correlation, report.kl_by, report.layers[0].kl) == (None, None, "none", None)
    expected = weights[:, :15].numpy().std(0).mean() / 0.8
    assert report.layers[0].std_ratio_mean == pytest.approx(expected, rel=1e-10)


def test_the_slope_of_a_line_is_its_slope() -> None:
    found = std_movement([0.02 * math.exp(0.13 * epoch) for epoch in range(9)], last=4)
    assert found.slope == pytest.approx(0.13, rel=1e-9)
    assert found.slope_error == pytest.approx(0, abs=1e-9)
    assert found.moved == pytest.approx(8 * 0.13, rel=1e-9)
    assert (found.epochs, found.last, found.converged) == (9, 4, False)


def test_slope_and_error_are_those_of_least_squares() -> None:
    logs = -2 + 0.004 * np.arange(12) + 0.02 * np.random.default_rng(3).standard_normal(12)
    (slope, _), covariance = np.polyfit(np.arange(7), logs[-7:], 1, cov=True)
    found = std_movement(list(np.exp(logs)), last=7, tolerance=abs(slope) * 1.01)
    assert found.slope == pytest.approx(slope, rel=1e-8)
    assert found.slope_error == pytest.approx(math.sqrt(covariance[0, 0]), rel=1e-8)
    assert found.converged
    assert not std_movement(list(np.exp(logs)), last=7, tolerance=abs(slope) * 0.99).converged


def test_a_rate_that_falls_to_nothing_is_no_convergence() -> None:
    logs = [-3 + 0.2 * min(epoch, 6) for epoch in range(10)]
    ratios = [math.exp(value) for value in logs]
    assert std_movement(ratios, last=3).converged
    braked = std_movement(ratios, [1.0] * 7 + [0.09, 0.02, 0.0], last=3)
    assert (braked.braked, braked.last, braked.converged) == (3, 3, False)
    assert braked.slope == pytest.approx(0.2, rel=1e-9)
    assert std_movement(ratios, [1.0] * 7 + [0.11, 0.2, 0.3], last=3).braked == 0
    with pytest.raises(bw.DataError, match="2 rates for 10 epochs"):
        std_movement(ratios, [1.0, 1.0])


def test_two_epochs_say_nothing_and_bad_ratios_are_refused() -> None:
    assert std_movement([0.1, 0.2]).converged is None
    for bad in ([], [0.1, 0.0], [0.1, math.nan]):
        with pytest.raises(bw.DataError, match="std ratios"):
            std_movement(bad)
    with pytest.raises(bw.SettingError, match="last = 2"):
        std_movement([0.1, 0.2, 0.3], last=2)


def test_the_trace_follows_each_layer() -> None:
    class Copy(bw.Callback):
        logs: list[np.ndarray] = []  # noqa: RUF012 -- one run alone writes to it

        def after_epoch(self, run: bw.Run, record: bw.EpochRecord) -> None:
            model = run.assembly.model
            ratio = model.posterior.std_vector() / model.prior.std_vector()
            self.logs.append(ratio.detach().log().numpy())

    trace, copy = StdTrace(), Copy()
    inputs = torch.randn(40, 3, dtype=torch.float64)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    bw.fit(net, (inputs, (inputs[:, 0] > 0).long()), "bbb", epochs=4, batch_size=10, callbacks=[trace, copy],
           stepper={"name": "adam", "lr": 0.02}, std_multiplier=40.0, temperature=1.0, progress=False)  # fmt: skip
    path = trace.paths[0].layers["2.weight"]
    assert path[0] == pytest.approx(math.exp(-3), rel=1e-6)
    assert path[1:] == pytest.approx([float(np.exp(logs[16:24].mean())) for logs in copy.logs], rel=1e-9)
    layers = {found.layer: found for found in trace.movement(last=3)}
    # Cosine: the rate at the end of the last of four epochs is below a tenth of the first's.
    assert layers["2.weight"].braked == 1
    assert layers["2.weight"].slope == pytest.approx(np.polyfit(range(3), np.log(path[-4:-1]), 1)[0], rel=1e-8)
    again = StdTrace()
    again.load_state_dict(unpack_state(*pack_state(trace.state_dict())))
    assert again.paths == trace.paths
    with pytest.raises(bw.SettingError, match="member = 4"):
        trace.movement(member=4)
