"""What every optimizer owes: a state that continues, exact counts, gradients it cannot take refused whole."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bayeswell.errors import NetworkError
from bayeswell.optimizers import (
    OPTIMIZERS,
    AdaBoundOptimizer,
    YellowFinOptimizer,
)
from optimizers.steps import NAMES, assert_equal_states, gradient_sequence, numbers, parameters, run


def as_saved(state: dict[str, Any]) -> dict[str, Any]:
    """A state dict after a file of tensors and one of JSON."""

    def plain(value: Any) -> Any:
        return value.clone() if isinstance(value, Tensor) else json.loads(json.dumps(value))

    states = {key: {name: plain(value) for name, value in one.items()} for key, one in state["state"].items()}
    return {"state": states, "param_groups": plain(state["param_groups"])}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", NAMES)
def test_a_state_dict_continues_bit_for_bit(name: str, dtype: torch.dtype) -> None:
    # Saved after 30 steps, during a schedule, and loaded into an optimizer that was made with other settings.
    gradients = [[1e-3 * g for g in step] for step in gradient_sequence(60, spikes=(10, 40))]
    params = [nn.Parameter(parameter.detach().to(dtype)) for parameter in parameters()]
    part = OPTIMIZERS[name](lr=0.02)
    optimizer = part.build([{"params": params[:1], "lr": 0.07, "name": "a"}, {"params": params[1:], "name": "b"}])
    run(optimizer, params, gradients[:20])
    for group in optimizer.param_groups:
        group["lr"] *= 0.3
    run(optimizer, params, gradients[20:30])
    saved, copies = optimizer.state_dict(), [nn.Parameter(parameter.detach().clone()) for parameter in params]
    kept, as_it_was = as_saved(saved), copy.deepcopy(saved)
    other = OPTIMIZERS[name](lr=0.9, weight_decay=0.5).build([{"params": copies[:1]}, {"params": copies[1:]}])
    other.load_state_dict(kept)
    expected = run(optimizer, params, gradients[30:])
    assert run(other, copies, gradients[30:]) == expected
    assert expected != numbers(parameters())
    # Plain numbers in a state dict taken earlier do not change with later steps.
    assert saved["param_groups"] == as_it_was["param_groups"]
    # An optimizer that was itself copied goes on as well.
    assert_equal_states(copy.deepcopy(other).state_dict(), other.state_dict())


def test_step_counts_are_exact() -> None:
    # float32, in which torch counts, has no odd numbers beyond 2^24.
    parameter = nn.Parameter(torch.ones(2))
    optimizer = AdaBoundOptimizer([parameter])
    run(optimizer, [parameter], [[torch.ones(2)]])
    optimizer.state[parameter]["step"] = 2**24
    optimizer.load_state_dict(as_saved(optimizer.state_dict()))
    run(optimizer, [parameter], [[torch.ones(2)]])
    assert optimizer.state[parameter]["step"] == 2**24 + 1


@pytest.mark.parametrize("make", [AdaBoundOptimizer, YellowFinOptimizer])
def test_sparse_and_complex_gradients_are_refused_before_anything_moves(
    make: Callable[[list[nn.Parameter]], torch.optim.Optimizer],
) -> None:
    first, embedding = nn.Parameter(torch.ones(2)), nn.Embedding(4, 3, sparse=True)
    optimizer = make([first, embedding.weight])
    first.grad = torch.ones(2)
    embedding(torch.tensor([1, 2])).sum().backward()
    with pytest.raises(NetworkError, match=r"the parameter of shape \(4, 3\) has a sparse gradient; only dense"):
        optimizer.step()
    assert torch.equal(first, torch.ones(2))
    assert not optimizer.state
    wave = nn.Parameter(torch.ones(2, dtype=torch.complex64))
    optimizer = make([wave])
    wave.grad = torch.ones_like(wave)
    with pytest.raises(NetworkError, match=r"shape \(2,\) has a complex gradient \(torch.complex64\); only real"):
        optimizer.step()


@pytest.mark.parametrize("name", NAMES)
def test_parameters_without_gradient_and_empty_ones_are_left_alone(name: str) -> None:
    params, empty = parameters(), nn.Parameter(torch.zeros(0, dtype=torch.float64))
    optimizer = OPTIMIZERS[name](lr=0.01).build([{"params": [*params, empty]}])
    before = params[1].detach().clone()
    for step in gradient_sequence(4):
        params[0].grad, params[2].grad, empty.grad = step[0].clone(), step[2].clone(), torch.zeros_like(empty)
        optimizer.step()
    assert torch.equal(params[1], before)
    assert not optimizer.state.get(params[1])
    assert not torch.equal(params[0], parameters()[0])


@pytest.mark.parametrize("name", ["adabound", "yellowfin"])
def test_a_step_without_any_gradient_does_nothing(name: str) -> None:
    params = parameters()
    optimizer = OPTIMIZERS[name]().build([{"params": params}])
    before = copy.deepcopy(optimizer.state_dict())
    optimizer.step()
    assert numbers(params) == numbers(parameters())
    assert_equal_states(optimizer.state_dict(), before)


@pytest.mark.parametrize("make", [AdaBoundOptimizer, YellowFinOptimizer])
def test_the_closure_is_evaluated_with_gradients(
    make: Callable[[list[nn.Parameter]], torch.optim.Optimizer],
) -> None:
    parameter = nn.Parameter(torch.tensor([2.0]))
    optimizer = make([parameter])

    def closure() -> float:
        optimizer.zero_grad()
        loss = parameter.square().sum()
        loss.backward()
        return float(loss.detach())

    assert optimizer.step(closure) == 4.0
    assert parameter.item() < 2.0


@pytest.mark.parametrize("name", NAMES)
def test_torch_schedulers_work(name: str) -> None:
    params = parameters()
    optimizer = OPTIMIZERS[name](lr=0.04).build([{"params": params}])
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    for step in gradient_sequence(5):
        run(optimizer, params, [step])
        scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 0.01
