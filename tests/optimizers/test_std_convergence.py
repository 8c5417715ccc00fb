"""How far a log std can move in a run, and what is said where that is too little."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from bayeswell.errors import SettingError
from bayeswell.optimizers import (
    Adam,
    reachable_log_std,
    stds_out_of_reach,
)


def test_adam_moves_a_log_std_by_the_rate_in_each_step() -> None:
    log_std = nn.Parameter(torch.tensor([-3.0, -3.0], dtype=torch.float64))
    optimizer = Adam(lr=0.02).build([{"params": [log_std]}])
    generator = torch.Generator().manual_seed(1)
    for _ in range(150):
        noise = torch.randn((), generator=generator, dtype=torch.float64)
        log_std.grad = torch.stack([torch.tensor(-0.3, dtype=torch.float64), -0.3 + noise])
        optimizer.step()
    steady, noisy = (log_std.detach() + 3).tolist()
    np.testing.assert_allclose(steady, reachable_log_std(0.02, 150), rtol=1e-5)
    assert noisy < 0.6 * reachable_log_std(0.02, 150)


def test_stds_out_of_reach() -> None:
    # Variational Laplace, section 5.1: 100 epochs of 50,000 / 128 steps at 1e-4 move by 3.9; the way is 3.
    steps = 100 * 50_000 / 128
    line = stds_out_of_reach(math.exp(-3), 1e-4, steps)
    assert line is not None
    assert line.startswith("the stds may not converge: they start at 0.0498 of the prior std, 3 away in log std, and ")
    assert line.endswith(
        "39062.5 steps at rate 0.0001 move them by about 3.91 at most: "
        "multiply the rate of the stds, or the steps, by 1.6"
    )
    assert stds_out_of_reach(math.exp(-3), 1.6e-4, steps) is None
    assert stds_out_of_reach(math.exp(-3), 1e-3, steps) is None  # their remedy: ten times the rate
    # The thesis: std 4.54e-5 under a prior of about 0.1, 50 epochs of 500 steps with stds at 1e-4.
    line = stds_out_of_reach(4.54e-5 / 0.1, 1e-4, 50 * 500)
    assert line is not None
    assert line.startswith("the stds cannot converge: ")
    assert "by about 2.5 at most" in line
    line = stds_out_of_reach(0.1, 0.0, 100)
    assert line is not None
    assert line.endswith("move them by about 0 at most")
    with pytest.raises(SettingError, match="std_ratio = 0; it must be a finite number above 0"):
        stds_out_of_reach(0, 1e-3, 100)
