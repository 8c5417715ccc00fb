"""Training that goes wrong says so, in words that help."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import bayeswell as bw
from bayeswell.errors import DivergenceError, NetworkError

X = torch.randn(200, 4, generator=bw.make_generator(0))
Y = (X[:, 0] > 0).long() + (X[:, 1] > 0.5).long()


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 20), nn.ReLU(), nn.Linear(20, 3))


@pytest.mark.parametrize("method", ["bbb", "k-tied", "flipout", "auto"])
def test_a_rate_of_a_million_has_diverged(method: str) -> None:
    with pytest.raises(DivergenceError, match=r"step 1: training has diverged: .* lower the learning rate"):
        bw.fit(network(), (X, Y), method, lr=1e6, epochs=2, progress=False)


ONE_STEP: dict[str, Any] = {"lr": 1e30, "epochs": 1, "batch_size": 200, "progress": False}


def test_so_has_one_whose_last_step_was_the_fatal_one() -> None:
    """No further step is there to fail: validation, a post-hoc part or the verdict meet what is left."""
    with pytest.raises(
        DivergenceError, match=r"after step 0: training has diverged: .*lower the learning rate"
    ) as caught:
        bw.fit(network(), (X, Y), "map", validation=(X, Y), **ONE_STEP)
    assert isinstance(caught.value.model, bw.BayesianModule)
    with pytest.raises(DivergenceError, match=r"after step 0: training has diverged: laplace"):
        bw.fit(network(), (X, Y), "laplace", **ONE_STEP)
    with pytest.warns(bw.VerdictWarning, match="training has diverged: NLL nan .*lower lr"):
        bw.fit(network(), (X, Y), "map", **ONE_STEP)


def test_a_network_that_was_so_from_the_start_is_not_said_to_have_diverged() -> None:
    net = network()
    with torch.no_grad():
        net.get_parameter("2.bias").fill_(1e38)
        net.get_parameter("2.weight").fill_(1e38)
    with pytest.raises(NetworkError, match="NaN or inf"):
        bw.fit(net, (X, Y), "laplace", epochs=0, temperature=1.0, progress=False)


@pytest.mark.filterwarnings("ignore::bayeswell.VerdictWarning")
def test_averages_of_steps_that_are_too_long_are_told_apart_from_good_ones() -> None:
    """SWAG's spread is that of the path: at a rate that ruins it many times the prior's."""
    ruined = bw.fit(network(), (X, Y), "swag", lr=1e4, epochs=8, progress=False)
    assert ruined.std_ratio > 40
    lines = [line for line in ruined.trust.warnings if "times those of the prior" in line]
    assert lines == [
        f"its stds are {ruined.std_ratio:.3g} times those of the prior: more is unknown than before training; lower lr"
    ]
    good = bw.fit(network(), (X, Y), "swag", epochs=8, progress=False)
    assert good.std_ratio < 1
    assert not any("times those of the prior" in line for line in good.trust.warnings)


@pytest.mark.parametrize("kind", ["classes", "numbers"])
def test_a_run_that_is_no_better_than_a_constant_says_so(kind: str) -> None:
    """Targets that have nothing to do with the inputs, and a rate at which nothing is learned."""
    data, likelihood = (X, Y), "categorical"
    net = network()
    if kind == "numbers":
        data, likelihood = (X, X[:, 0] * 2 + 1), "gaussian"
        net = nn.Sequential(nn.Linear(4, 20), nn.ReLU(), nn.Linear(20, 1))
    with pytest.warns(bw.VerdictWarning, match="it has learned nothing.*a prediction that ignores the inputs"):
        bw.fit(net, data, "map", likelihood, lr=1e-6, epochs=3, progress=False)
