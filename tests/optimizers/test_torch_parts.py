"""Torch's own optimizers as parts: what they compute, what they are given, what is refused."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from bayeswell.errors import SettingError
from bayeswell.optimizers import (
    OPTIMIZERS,
    AdaBound,
    AdaBoundOptimizer,
    Adam,
    RAdam,
    YellowFin,
    YellowFinOptimizer,
)
from bayeswell.registry import settings_of
from optimizers.steps import NAMES, gradient_sequence, numbers, parameters, run


@pytest.mark.parametrize(("beta2", "first"), [(0.999, 6), (0.9, 6), (0.8, 7), (0.75, 8)])
def test_radam_rectifies_from_its_threshold_on(beta2: float, first: int) -> None:
    # torch: rho_t > 5, and below it lr m^ (plain steps on the debiased average).
    w, lr, beta1 = 0.3, 0.02, 0.8
    parameter = nn.Parameter(torch.tensor([w], dtype=torch.float64))
    optimizer = RAdam(lr=lr, betas=(beta1, beta2)).build([{"params": [parameter]}])
    m = v = 0.0
    rectified = []
    rho_inf = 2 / (1 - beta2) - 1
    for t in range(1, 13):
        g = math.sin(3.0 * t) + 0.2
        parameter.grad = torch.tensor([g], dtype=torch.float64)
        optimizer.step()
        m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
        rho = rho_inf - 2 * t * beta2**t / (1 - beta2**t)
        step = lr * m / (1 - beta1**t)
        if rho > 5:
            rectified.append(t)
            step *= math.sqrt((rho - 4) * (rho - 2) * rho_inf / ((rho_inf - 4) * (rho_inf - 2) * rho))
            step *= math.sqrt(1 - beta2**t) / (math.sqrt(v) + 1e-8)
        w -= step
        np.testing.assert_allclose(parameter.item(), w, rtol=1e-10)
    assert rectified[0] == first


def test_amsgrad_debiases_after_the_maximum() -> None:
    params, gradients = parameters(), gradient_sequence(30, spikes=(4,))
    start = numbers(params)
    found = run(OPTIMIZERS.resolve({"name": "amsgrad", "lr": 0.02}).build([{"params": params}]), params, gradients)
    for w, history, end in zip(start, zip(*map(numbers, gradients), strict=True), found, strict=True):
        m = v = v_max = 0.0
        for t, g in enumerate(history, 1):
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            v_max = max(v_max, v)
            w -= 0.02 * m / (1 - 0.9**t) / (math.sqrt(v_max / (1 - 0.999**t)) + 1e-8)
        np.testing.assert_allclose(end, w, rtol=1e-9)


def test_parts_become_the_torch_optimizers_they_name() -> None:
    params = parameters()
    classes = {
        "sgd": torch.optim.SGD, "adam": torch.optim.Adam, "amsgrad": torch.optim.Adam, "adamw": torch.optim.AdamW,
        "radam": torch.optim.RAdam, "adabound": AdaBoundOptimizer, "amsbound": AdaBoundOptimizer,
        "yellowfin": YellowFinOptimizer,
    }  # fmt: skip
    for name in NAMES:
        part = OPTIMIZERS[name](lr=0.037)
        given = [{"params": params[:1], "name": "a"}, {"params": params[1:], "lr": 0.5, "name": "b"}]
        optimizer = part.build(given)
        assert type(optimizer) is classes[name]
        assert [group["lr"] for group in optimizer.param_groups] == [0.037, 0.5]
        assert [group["name"] for group in optimizer.param_groups] == ["a", "b"]
        assert given == [{"params": params[:1], "name": "a"}, {"params": params[1:], "lr": 0.5, "name": "b"}]
        if name in ("sgd", "adam", "amsgrad", "adamw"):
            assert all(group["fused"] is True for group in optimizer.param_groups)
        assert optimizer.param_groups[0].get("amsgrad", False) == (name == "amsgrad")
        assert optimizer.param_groups[0].get("amsbound", False) == (name == "amsbound")
    # A generator of parameters, or a single one, is as good as a list.
    net = nn.Linear(2, 2)
    assert len(Adam().build([{"params": net.parameters()}]).param_groups[0]["params"]) == 2
    assert len(Adam().build([{"params": net.weight}]).param_groups[0]["params"]) == 1


@pytest.mark.parametrize("name", NAMES)
def test_parts_survive_json(name: str) -> None:
    part = OPTIMIZERS[name](lr=0.037, weight_decay=0.2)
    assert OPTIMIZERS.resolve(json.loads(json.dumps(settings_of(part)))) == part
    summary, paper = OPTIMIZERS.summaries()[name]
    assert summary.endswith(".")
    assert paper


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"name": "adam", "lr": 0.0}, r"adam: lr = 0.0; it must be a finite number above 0"),
        ({"name": "adam", "betas": (0.9, 1.0)}, r"adam: betas = 1.0; it must lie in \[0, 1\)"),
        ({"name": "amsgrad", "betas": [0.9]}, r"amsgrad: betas = \[0.9\]; there must be two"),
        ({"name": "sgd", "momentum": -0.1}, r"sgd: momentum = -0.1; it must lie in"),
        ({"name": "sgd", "momentum": 0.0, "nesterov": True}, r"sgd: nesterov = True needs a momentum"),
        ({"name": "adabound", "final_lr": 0}, r"adabound: final_lr = 0; it must be a finite number above 0"),
        ({"name": "amsbound", "gamma": 1.0}, r"amsbound: gamma = 1.0; it must lie in"),
        ({"name": "adabound", "eps": math.nan}, r"adabound: eps = nan; it must be a finite number of at least 0"),
        ({"name": "yellowfin", "window": 0}, r"yellowfin: window = 0; it must be a whole number of at least 1"),
        ({"name": "yellowfin", "beta": 1.0}, r"yellowfin: beta = 1.0; it must lie in"),
        ({"name": "yellowfin", "weight_decay": -1}, r"yellowfin: weight_decay = -1; it must be a finite number"),
        ({"name": "adabond"}, r"unknown optimizer 'adabond'; did you mean 'adabound'\?"),
        ({"name": "adam", "final_lr": 0.1}, r"optimizer 'adam' has no setting 'final_lr'"),
    ],
)
def test_bad_settings_are_refused(choice: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        OPTIMIZERS.resolve(choice)


def test_bad_settings_of_a_group_are_refused() -> None:
    params = parameters()
    with pytest.raises(SettingError, match=r"adabound: lr = -1; "):
        AdaBound().build([{"params": params, "lr": -1}])
    with pytest.raises(SettingError, match=r"yellowfin: beta = 0.5 in one group, 0.999 in another"):
        YellowFin().build([{"params": params[:1]}, {"params": params[1:], "beta": 0.5}])
    optimizer = AdaBoundOptimizer(params[:1])
    with pytest.raises(SettingError, match=r"adabound: gamma = 2"):
        optimizer.add_param_group({"params": params[1:], "gamma": 2})
    assert len(optimizer.param_groups) == 1
