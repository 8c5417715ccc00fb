"""Each step of a sampler, exactly: its equations, groups, closures, and a state that goes on bit for bit."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from bayeswell.errors import FileError
from bayeswell.random import make_generator
from bayeswell.samplers import SGLD, Sampler
from samplers.chains import PARTS, each_part, random_gradients, take

# Each step, exactly.


@each_part
def test_twelve_steps_against_the_equations(name: str) -> None:
    part, size, steps = PARTS[name], 7, 12
    weights = nn.Parameter(torch.tensor([0.3, -0.2], dtype=torch.float64))
    sampler = part.build([weights], size, make_generator(22), steps)
    noise, gradients = make_generator(22), random_gradients(steps, (2,))
    w, v, average = (np.array(x, dtype=float) for x in ([0.3, -0.2], [0, 0], [0, 0]))
    for t, [grad] in enumerate(gradients):
        take(sampler, [weights], [[grad]])
        g = grad.numpy()
        place = t % 6 / 6
        draws_noise = name != "cyclical_sgld" or place >= 0.3
        xi = torch.randn(2, dtype=torch.float64, generator=noise).numpy() if draws_noise else np.zeros(2)
        if name == "sgld":
            lr = 0.3 * 3.0**0.6 * (3.0 + t) ** -0.6  # a (b + t)^-gamma
            w = w - lr * g + math.sqrt(2 * lr * 1.4 / size) * xi
        elif name == "sghmc euler":
            lr = 0.2 * (1 + t / 5.0) ** -0.8
            v = 0.7 * v - lr * g + math.sqrt(2 * 0.3 * lr * 1.4 / size) * xi
            w = w + v
        elif name == "sghmc baoab":
            lr = 0.2 * (1 + t / 5.0) ** -0.8
            v = v - lr * g  # B B
            w = w + v / 2  # A
            v = 0.7 * v + math.sqrt((1 - 0.7**2) * lr * 1.4 / size) * xi  # O
            w = w + v / 2  # A
        elif name == "psgld":
            lr = 0.1 * (1 + t / 4.0) ** -0.7
            if t < 6:
                average = 0.8 * average + 0.2 * g**2
            scale = 1 / (0.1 + np.sqrt(average / (1 - 0.8 ** min(t + 1, 6))))
            w = w - lr * scale * g + np.sqrt(2 * lr * 1.4 * scale / size) * xi
        else:
            lr = 0.1 * (math.cos(math.pi * place) + 1)
            w = w - lr * g + math.sqrt(2 * lr * 1.4 / size) * xi
        np.testing.assert_allclose(weights.detach().numpy(), w, rtol=1e-12, err_msg=f"step {t}")


@each_part
def test_groups_without_noise_take_plain_steps(name: str) -> None:
    """They take the steps of temperature 0, draw nothing, and leave the noise of the other group as it is."""
    part, gradients = PARTS[name], random_gradients(8, (3,), (2, 2))

    def finish(groups: Callable[[nn.Parameter, nn.Parameter], list[dict[str, Any]]]) -> list[Tensor]:
        params = [nn.Parameter(torch.full(s, 0.5, dtype=torch.float64)) for s in ((3,), (2, 2))]
        sampler = part.build(groups(*params), 11, make_generator(23), 8)
        take(sampler, params, gradients)
        return [param.detach() for param in params]

    mixed = finish(lambda a, b: [{"params": [b], "noise": False, "lr": 0.05}, {"params": [a]}])
    cold = finish(lambda a, b: [{"params": [b], "temperature": 0.0, "lr": 0.05}, {"params": [a]}])
    assert torch.equal(mixed[0], cold[0])
    assert torch.equal(mixed[1], cold[1])
    alone = finish(lambda a, b: [{"params": [a]}])
    assert torch.equal(mixed[0], alone[0])
    if name == "sgld":
        plain = 0.5 - sum(0.05 * (1 + t / 3.0) ** -0.6 * row[1] for t, row in enumerate(gradients))
        torch.testing.assert_close(mixed[1], plain, rtol=1e-12, atol=0)


def test_schedulers_of_torch_change_the_rate() -> None:
    weights = nn.Parameter(torch.zeros(2))
    sampler = SGLD(lr=0.3, gamma=1.0, b=4.0).build([weights], 5, make_generator(1))
    scheduler = torch.optim.lr_scheduler.StepLR(sampler, step_size=1, gamma=0.5)
    assert sampler.learning_rates() == [0.3]
    take(sampler, [weights], [[torch.ones(2)]])
    scheduler.step()
    assert sampler.learning_rates() == [pytest.approx(0.15 / 1.25)]


def test_a_closure_is_called_with_gradients_on() -> None:
    weights = nn.Parameter(torch.tensor([0.4]))
    sampler = SGLD(lr=0.1, temperature=0.0).build([weights], 5, make_generator(1))

    def closure() -> float:
        sampler.zero_grad()
        loss = weights.square().sum()
        loss.backward()
        return float(loss.detach())

    assert sampler.step(closure) == pytest.approx(0.16)
    assert float(weights.detach()) == pytest.approx(0.32)


def test_parameters_without_gradient_stay() -> None:
    moved, still, empty = (nn.Parameter(torch.zeros(n)) for n in (2, 3, 0))
    sampler = SGLD().build([moved, still, empty], 5, make_generator(1))
    moved.grad, empty.grad = torch.ones(2), torch.zeros(0)
    sampler.step()
    assert torch.equal(still.detach(), torch.zeros(3))
    assert bool((moved.detach() != 0).all())


# State.


@each_part
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_resumed_chain_goes_on_bit_for_bit(name: str, dtype: torch.dtype) -> None:
    part = PARTS[name]
    gradients = [[g.to(dtype) for g in row] for row in random_gradients(10, (4,), (2, 3))]

    def begin(seed: int) -> tuple[Sampler, list[nn.Parameter]]:
        params = [nn.Parameter(torch.zeros(s, dtype=dtype)) for s in ((4,), (2, 3))]
        groups = [{"params": params[:1]}, {"params": params[1:], "lr": 0.02}]
        return part.build(groups, 9, make_generator(seed), 10), params

    whole, params = begin(31)
    take(whole, params, gradients[:4])
    saved = copy.deepcopy((whole.state_dict(), [param.detach() for param in params]))
    twin, twin_params = copy.deepcopy((whole, params))  # a copy of the live optimizer is whole too
    take(whole, params, gradients[4:])
    resumed, others = begin(99)
    with torch.no_grad():
        for param, value in zip(others, saved[1], strict=True):
            param.copy_(value)
    assert saved[0]["generator"].dtype == torch.uint8
    resumed.load_state_dict(saved[0])
    for again, again_params in ((resumed, others), (twin, twin_params)):
        assert again.steps == 4
        take(again, again_params, gradients[4:])
        for param, other in zip(params, again_params, strict=True):
            assert torch.equal(param, other)
        assert all(
            torch.equal(whole.state[p][key], again.state[q][key])
            for p, q in zip(params, again_params, strict=True)
            for key in whole.state[p]
        )
        assert torch.equal(whole.generator.get_state(), again.generator.get_state())


def test_the_state_of_another_optimizer_is_refused() -> None:
    weights = nn.Parameter(torch.zeros(2))
    sampler = SGLD().build([weights], 5, make_generator(1))
    with pytest.raises(FileError, match=r"no 'step'.*sampler"):
        sampler.load_state_dict(torch.optim.SGD([weights], lr=0.1).state_dict())
