"""A lifted network prints the network that was given."""

from __future__ import annotations

import torch
from torch import nn

import bayeswell as bw


def test_layers_keep_their_bias_and_the_parts_are_named() -> None:
    net = nn.Sequential(
        nn.Linear(3, 4), nn.Conv2d(1, 2, 3, bias=False), nn.LSTM(3, 4), nn.Embedding(5, 2, padding_idx=0)
    )
    model = bw.bayesian(net, posterior={"name": "k_tied", "rank": 2}, prior="normal", estimator="flipout")
    lines = repr(model).splitlines()
    assert lines[0] == "BayesianModule("
    assert lines[1] == f"  posterior=k_tied, prior=normal, estimator=flipout, Bayesian weights={model.layout.size}"
    given = repr(net).splitlines()
    assert [line.removeprefix("  ") for line in lines[2:-1]] == [f"(net): {given[0]}", *given[1:]]
    assert lines[-1] == ")"
    assert model.net[0].weight is None, "printing leaves the slots empty"
    assert torch.equal(model.eval().net[3].get_buffer("padding_row"), net[3].weight[0])
