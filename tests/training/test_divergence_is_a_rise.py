"""Divergence is said of a loss that rose, not of one that has not come far enough yet."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn

import bayeswell as bw


def told(targets: Tensor, likelihood: str, **settings: object) -> list[str]:
    x = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    outputs = 2 if likelihood == "categorical" else 1
    net = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, outputs))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = bw.fit(net, (x, targets), "map", likelihood, progress=False, **settings)
    return [note.line for note in result.trust.notes if note.about == "baseline"]


def noise() -> Tensor:
    return torch.randn(200, 1, generator=torch.Generator().manual_seed(1))


def test_targets_far_from_zero_are_not_divergence() -> None:
    (line,) = told(50 + noise(), "gaussian", batch_size=32)
    assert "it has learned nothing yet: NLL" in line
    assert "before training" in line
    assert line.endswith("standardise the targets, or train longer")
    assert "diverged" not in line


def test_constant_targets_are_not_divergence() -> None:
    (line,) = told(torch.full((200, 1), 3.0), "gaussian", batch_size=32)
    assert "it has learned nothing yet: NLL" in line
    assert line.endswith("; train longer")  # no scale would make them standard


def test_what_rose_from_the_first_step_on_is_divergence() -> None:
    """The NLL falls from epoch to epoch, and is at the end a million times that of the untrained network."""
    labels = (noise()[:, 0] > 0).long()
    (line,) = told(labels, "categorical", epochs=3, lr=1e6)
    assert line.startswith("training has diverged: NLL")
    assert line.endswith("lower lr")
