"""Targets that are no labels, under the default likelihood: the line names the likelihood they are for, first."""

from __future__ import annotations

import traceback

import pytest
import torch
from torch import Tensor, nn

import bayeswell as bw

pytestmark = pytest.mark.filterwarnings("ignore::bayeswell.BayeswellWarning")
X = torch.linspace(-1, 1, 60).reshape(20, 3)
REAL = X.sum(1) * 0.37


def _refused(outputs: int, targets: Tensor) -> bw.DataError:
    with pytest.raises(bw.DataError) as caught:
        bw.fit(nn.Linear(3, outputs), (X, targets), epochs=10, progress=False)
    return caught.value


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("targets", [REAL, REAL[:, None], REAL.round() * 3], ids=["S", "S1", "whole"])
def test_real_targets_are_sent_to_gaussian(outputs: int, targets: Tensor) -> None:
    said = str(_refused(outputs, targets))
    assert "likelihood='gaussian'" in said
    assert "bernoulli" not in said
    assert "\n" not in said


def test_zeros_and_ones_may_be_bernoulli() -> None:
    assert "likelihood='bernoulli'" in str(_refused(1, (REAL > 0).float()))


def test_the_remedy_works() -> None:
    bw.fit(nn.Linear(3, 1), (X, REAL), "map", likelihood="gaussian", epochs=1, progress=False)


def test_one_traceback() -> None:
    shown = "".join(traceback.format_exception(_refused(1, REAL)))
    assert shown.count("Traceback (most recent call last)") == 1
