"""Torch's optimizers by name against their formulas; other classes as parts."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from bayeswell.core.errors import SettingError
from bayeswell.core.registry import describe
from bayeswell.optim import (
    OPTIMIZERS,
    SGD,
    AdaBound,
    Adam,
    AdamW,
    AMSBound,
    AMSGrad,
    RAdam,
    TorchOptimizer,
    YellowFin,
)
from bayeswell.optim.torch_optimizers import planned_lr
from optim.steps import Array, build, flat, gradient_sequence, parameters, run


def adam_loop(w: Array, gradients: list[Array], kind: str) -> Array:
    lr, b1, b2, eps = 0.02, 0.8, 0.97, 1e-7
    m, v, largest = (np.zeros_like(w) for _ in range(3))
    rho_inf = 2 / (1 - b2) - 1
    for t, g in enumerate(gradients, start=1):
        if kind == "adamw":
            w = (1 - lr * 0.01) * w
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2
        largest = np.maximum(largest, v)
        mean = m / (1 - b1**t)
        size = np.sqrt((largest if kind == "amsgrad" else v) / (1 - b2**t)) + eps
        if kind != "radam":
            w = w - lr * mean / size
            continue
        rho = rho_inf - 2 * t * b2**t / (1 - b2**t)
        if rho > 5:
            r = (rho - 4) * (rho - 2) * rho_inf / ((rho_inf - 4) * (rho_inf - 2) * rho)
            w = w - lr * mean * math.sqrt(r) * math.sqrt(1 - b2**t) / (np.sqrt(v) + eps)
        else:
            w = w - lr * mean
    return w


def sgd_loop(w: Array, gradients: list[Array]) -> Array:
    buffer = np.zeros_like(w)
    for g in gradients:
        buffer = 0.7 * buffer + g + 0.05 * w
        w = w - 0.003 * buffer
    return w


ADAM = {"lr": 0.02, "betas": [0.8, 0.97], "eps": 1e-7}
CASES: list[tuple[object, Callable[[Array, list[Array]], Array]]] = [
    (Adam(**ADAM), functools.partial(adam_loop, kind="adam")),
    (AMSGrad(**ADAM), functools.partial(adam_loop, kind="amsgrad")),
    (AdamW(**ADAM), functools.partial(adam_loop, kind="adamw")),
    (RAdam(**ADAM), functools.partial(adam_loop, kind="radam")),
    (SGD(lr=0.003, momentum=0.7, weight_decay=0.05), sgd_loop),
]


@pytest.mark.parametrize(("part", "loop"), CASES, ids=lambda case: getattr(case, "name", ""))
@pytest.mark.parametrize("one_vector", [False, True])
def test_agrees_with_its_formula(part: Adam, loop: Callable[[Array, list[Array]], Array], one_vector: bool) -> None:
    """One vector takes torch's fused kernels."""
    params, gradients = parameters(), gradient_sequence(120, spikes=(50,))
    rows = [flat(row) for row in gradients]
    expected = loop(flat(params), rows)
    if one_vector:
        params = [nn.Parameter(torch.from_numpy(flat(params)))]
        gradients = [[torch.from_numpy(row)] for row in rows]
    np.testing.assert_allclose(run(build(part, params), params, gradients), expected, rtol=1e-9)


def test_gradients_laid_out_unlike_their_parameter_are_read_right() -> None:
    """Torch's fused kernels misread them."""
    weights, gradient = torch.randn(4, 3, 5, 5), torch.randn(4, 3, 5, 5)
    first, second = nn.Parameter(weights.clone()), nn.Parameter(weights.clone())
    for parameter, layout in ((first, torch.contiguous_format), (second, torch.channels_last)):
        optimizer = build(Adam(lr=0.1), [parameter])
        for factor in (1.0, 2.0):
            parameter.grad = (factor * gradient).contiguous(memory_format=layout)
            optimizer.step()
    torch.testing.assert_close(second, first)


@pytest.mark.parametrize("part", [Adam(), SGD(), RAdam(), AdaBound(), AMSBound(), YellowFin(), TorchOptimizer("NAdam")])
def test_a_saved_state_resumes_bit_for_bit(part: Adam) -> None:
    gradients, whole, cut, resumed = gradient_sequence(60, spikes=(25,)), parameters(), parameters(), parameters()
    run(build(part, whole), whole, gradients)
    first = build(part, cut)
    run(first, cut, gradients[:30])
    second = build(part, resumed)
    second.load_state_dict(first.state_dict())
    with torch.no_grad():
        for parameter, other in zip(resumed, cut, strict=True):
            parameter.copy_(other)
    run(second, resumed, gradients[30:])
    np.testing.assert_array_equal(flat(resumed), flat(whole))


def test_planned_learning_rate() -> None:
    assert [planned_lr(n) for n in (1, 1600, 6400, 160_000)] == pytest.approx([0.01, 0.01, 0.005, 0.001])
    assert Adam().planned(6400).lr == pytest.approx(0.005)
    assert Adam(lr=0.3).planned(6400).lr == 0.3
    assert build(Adam(), parameters(), total_steps=6400).param_groups[0]["lr"] == pytest.approx(0.005)


def test_classes_and_partials_are_parts() -> None:
    part = OPTIMIZERS.resolve(functools.partial(torch.optim.NAdam, lr=0.07, momentum_decay=1e-3))
    assert describe(part) == {
        "name": "torch", "optimizer": "NAdam", "lr": 0.07, "settings": {"momentum_decay": 1e-3}
    }  # fmt: skip
    again = OPTIMIZERS.resolve(describe(part))
    assert again == part
    assert OPTIMIZERS.resolve(torch.optim.Adagrad).lr == 0.01
    assert OPTIMIZERS.resolve({"name": "amsgrad", "lr": 0.1}) == AMSGrad(lr=0.1)


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ("adamm", "did you mean 'adam'"),
        ({"name": "torch", "optimizer": "NAdamm"}, "did you mean 'NAdam'"),
        (torch.optim.LBFGS, "closure"),
        (functools.partial(torch.optim.NAdam, momentum_decoy=1), "momentum_decay"),
        ({"name": "adam", "lr": -1}, "`lr`"),
        ({"name": "sgd", "momentum": 1.0}, "`momentum`"),
    ],
)
def test_mistakes_are_named(choice: object, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        OPTIMIZERS.resolve(choice)


def test_an_optimizer_with_parameters_is_refused() -> None:
    with pytest.raises(SettingError, match="give the class"):
        OPTIMIZERS.resolve(torch.optim.Adam(parameters()))
