"""One meaning of the temperature: exp(-(NLL + prior_weight * -log p) / T), whatever the weight is called."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayeswell as bw
from bayeswell.errors import CompositionError, SettingError
from bayeswell.training import fit

X = torch.linspace(-1, 1, 24)[:, None]
DATA = (X, torch.sin(3 * X))
START = {"posterior": {"initial_std": 0.03}}  # else a share of the prior's std
PARTS: dict[str, dict[str, Any]] = {"map": {}, "bbb": START, "ivon": START, "sgld": {"lr": 1e-3}, "laplace": {}}


def trained(method: str, **settings: Any) -> list[Tensor]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(1, 6), nn.Tanh(), nn.Linear(6, 1))
    result = fit(
        net, DATA, method, "gaussian", epochs=4, batch_size=8, seed=1, progress=False, **PARTS[method], **settings
    )
    return [result.predict(X, draws=5).mean, torch.tensor(float(result.temperature))]


@pytest.mark.filterwarnings("ignore::bayeswell.BayeswellWarning")
@pytest.mark.parametrize("method", PARTS)
def test_the_weight_of_the_prior_is_a_prior_of_another_width(method: str) -> None:
    """T times -log p under stds s sqrt(T / weight) is weight times -log p under s, up to a constant."""
    temperature, weight, std = 0.03, 0.4, 0.7
    found = trained(method, temperature=temperature, prior_weight=weight, prior=bw.Normal(std))
    wider = bw.Normal(std * math.sqrt(temperature / weight))
    torch.testing.assert_close(found, trained(method, temperature=temperature, prior=wider), rtol=1e-5, atol=1e-6)
    plain = trained(method, temperature=temperature, prior=bw.Normal(std))
    assert not torch.allclose(found[0], plain[0], atol=1e-4)
    same = trained(method, temperature=temperature, prior_weight=temperature, prior=bw.Normal(std))
    assert torch.equal(same[0], plain[0])


def test_what_has_no_meaning_is_refused_before_training() -> None:
    with pytest.raises(SettingError, match=r"prior_weight = 0\.1 goes with a temperature that is a number"):
        trained("bbb", prior_weight=0.1)
    with pytest.raises(SettingError, match=r"prior_weight = -1\.0; it must be a finite number above 0"):
        trained("bbb", temperature=1.0, prior_weight=-1.0)
    with pytest.raises(CompositionError, match=r"prior_weight = 0\.1 needs a Gaussian prior"):
        trained("bbb", temperature=0.5, prior_weight=0.1, prior=bw.LaplacePrior(0.5))
