"""Averages of networks: what belongs to them is averaged, saved and loaded too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import bayeswell as bw
from averaging.paths import trained
from bayeswell.averaging import AVERAGING, SWA
from nets import make


def test_polyak_average_of_a_run() -> None:
    net, inputs = make("mlp")
    model, collector, states = trained(net, inputs, "delta", SWA(start=0, cycle=1))
    exact = torch.stack([state["posterior.mean"].double() for state in states]).mean(0)
    part, posterior = collector.result()
    torch.testing.assert_close(posterior.mean_vector().detach(), exact.float(), rtol=1e-6, atol=0)
    ended = model.with_posterior(part, posterior).eval()
    assert torch.equal(ended(inputs), ended(inputs))
    assert not torch.equal(ended(inputs), model.eval()(inputs))


@pytest.mark.parametrize(
    ("part", "posterior"),
    [
        ("swa", "delta"),
        ("swag_diag", "delta"),
        ({"name": "swag", "start": 0.25}, "delta"),
        ("hwa", "mean_field"),
        ({"name": "hwa", "start": 0.25, "covariance": "low_rank"}, "k_tied"),
        ({"name": "hwa", "start": 0.25, "feedback": "restart"}, "full"),
        ({"name": "hwa", "start": 0.25, "feedback": "sample"}, "mean_field"),
        ({"name": "bank", "thinning": 2}, "delta"),
    ],
)
def test_the_result_predicts_saves_and_loads(part: Any, posterior: Any, tmp_path: Path) -> None:
    net, inputs = make("mlp")
    start = {"name": part, "start": 0.25} if part in ("swag_diag", "swa", "hwa") else part
    model, collector, _ = trained(net, inputs, posterior, AVERAGING.resolve(start))
    ended = model.with_posterior(*collector.result())
    predicted = bw.predict(ended, inputs, bw.Categorical(), draws=5, seed=1).probabilities
    torch.testing.assert_close(predicted.sum(1), torch.ones(len(inputs)))
    bw.save(tmp_path / "model", ended, "categorical")
    loaded = bw.load(tmp_path / "model", make("mlp")[0])
    again = bw.predict(loaded.model, inputs, bw.Categorical(), draws=5, seed=1).probabilities
    assert torch.equal(predicted, again)


def test_trained_parameters_without_posterior_are_averaged_too() -> None:
    net, inputs = make("normalised")
    net.out.bias.requires_grad_(False)  # frozen: neither Bayesian nor averaged
    _, collector, states = trained(net, inputs, "delta", SWA(start=0.5, cycle=2))
    averages = collector.deterministic()
    norms = {"batch_norm", "group_norm", "layer_norm"}
    assert set(averages) == {f"{norm}.{kind}" for norm in norms for kind in ("weight", "bias")}
    for name, average in averages.items():
        exact = torch.stack([states[step][f"net.{name}"].double() for step in (7, 9, 11)]).mean(0)
        torch.testing.assert_close(average, exact.float(), rtol=1e-6, atol=1e-9)
        assert not torch.equal(average, states[-1][f"net.{name}"])
