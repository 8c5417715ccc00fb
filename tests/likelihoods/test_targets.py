"""Targets and outputs that ``check`` refuses or warns about, in one line."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from torch import Tensor

from bayeswell.core.errors import DataError, DataWarning, SettingError
from bayeswell.core.protocols import Likelihood
from bayeswell.likelihoods import (
    LIKELIHOODS,
    Bernoulli,
    Categorical,
    Gaussian,
    NextToken,
    Poisson,
)

LOGITS = torch.tensor([[0.3, -1.2, 0.8], [1.1, 0.2, -0.4]])
COLUMN = LOGITS[:, 0]


@pytest.mark.parametrize(
    ("likelihood", "targets", "outputs", "message"),
    [
        (Categorical(), torch.tensor([0.5, 1.0]), LOGITS, "real numbers.*integers from 0 to 2"),
        (Categorical(), torch.tensor([0, 3]), LOGITS, "target 3 at index 1.*0 to 2"),
        (Categorical(), torch.tensor([-100, 1]), LOGITS, "ignore_index=-100"),
        (Categorical(), torch.eye(3, dtype=torch.long)[:2], LOGITS, "argmax"),
        (Categorical(), torch.tensor([0, 1, 2]), LOGITS, "shape"),
        (Categorical(), torch.tensor([0, 1]), COLUMN, "bernoulli"),
        (Categorical(), torch.zeros(2, 4, dtype=torch.long), torch.zeros(2, 3, 4), "class_axis"),
        (Categorical(class_weights=(1, 2)), torch.tensor([0, 1]), LOGITS, "3 classes"),
        (Categorical(), torch.zeros(0, dtype=torch.long), LOGITS, "no examples"),
        (Bernoulli(), torch.tensor([0.0, 2.0]), COLUMN, "target 2 at index 1.*0 or 1"),
        (Bernoulli(), torch.tensor([0.0, math.nan]), COLUMN, "nan at index 1"),
        (Gaussian(), torch.tensor([1.0, math.nan]), COLUMN, "nan at index 1.*finite"),
        (Gaussian(), torch.tensor([1.0, 1e300], dtype=torch.float64), COLUMN, "finite.*float32"),
        (Gaussian(), torch.tensor([True, False]), COLUMN, "torch.bool.*bernoulli"),
        (Gaussian(), torch.tensor([1j, 2j]), COLUMN, "complex"),
        (Gaussian("per_input"), torch.zeros(2, 1), LOGITS, "even last axis"),
        (Gaussian("per_output", outputs=2), torch.zeros(2, 3), LOGITS, "2 outputs.*has 3"),
        (Poisson(), torch.tensor([1.0, 2.5]), COLUMN, "target 2.5 at index 1"),
        (Poisson(), torch.tensor([1, -1]), COLUMN, "target -1 at index 1"),
        (NextToken(), torch.tensor([0, 1]), LOGITS, "S, T, K"),
    ],
)
def test_wrong_targets_are_refused(likelihood: Likelihood, targets: Tensor, outputs: Tensor, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        likelihood.check(targets, outputs)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"name": "categorical", "class_weights": [1.0, -2.0]}, "class_weights"),
        ({"name": "categorical", "class_weights": [0, 0]}, "class_weights"),
        ({"name": "categorical", "temperature": 0}, "temperature.*above 0"),
        ({"name": "categorical", "class_axis": 0}, "class_axis"),
        ({"name": "bernoulli", "class_weights": [1, 1, 1]}, "two numbers"),
        ({"name": "gaussian", "noise": "lernt"}, "noise.*lernt"),
        ({"name": "gaussian", "std": 0}, "std.*above 0"),
        ({"name": "gaussian", "std": [1, 2]}, "per_output"),
        ({"name": "gaussian", "std": 1e-30}, "learned"),
        ({"name": "gaussian", "noise": "per_output"}, "number of outputs"),
        ({"name": "gaussian", "noise": "per_input", "std": 2}, "unused"),
        ({"name": "next_token", "ignore_index": None}, "ignore_index"),
        ({"name": "gauss"}, "gaussian"),
        (torch.distributions.Poisson, "does not depend on outputs"),
    ],
)
def test_wrong_settings_are_refused(choice: object, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        LIKELIHOODS.resolve(choice)


def test_softmax_and_sigmoid_outputs_are_noticed() -> None:
    labels = torch.arange(32) % 3
    logits = torch.randn(32, 3)
    with pytest.warns(DataWarning, match="softmax"):
        Categorical().check(labels, logits.softmax(-1))
    with pytest.warns(DataWarning, match="sigmoid"):
        Bernoulli().check((logits > 1).float(), logits.sigmoid())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for right in (logits, logits.log_softmax(-1), logits.abs()):
            Categorical().check(labels, right)
        Bernoulli().check((logits > 1).float(), logits)
        Bernoulli().check((logits > 1).float(), logits.abs())


def test_large_counts_need_no_memory() -> None:
    Poisson().check(torch.tensor([10**9, 3]), COLUMN)
    assert bool(Poisson().nll(COLUMN, torch.tensor([10**9, 3])).isfinite().all())
