"""Several draws of adapters in one pass are the draws one by one, and networks that mix examples are run one by one."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import bayeswell as bw
from bayeswell.lifting.tiled import MOST_ROWS, Tiled


class Adapted(nn.Module):
    """A frozen layer with an adapter; ``bias`` gives B one."""

    def __init__(self, bias: bool = False) -> None:
        super().__init__()
        self.base = nn.Linear(4, 5).requires_grad_(False)
        self.lora_A, self.lora_B = nn.Linear(4, 2, bias=False), nn.Linear(2, 5, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.base(x) + 2 * self.lora_B(self.lora_A(x)))


class Mixes(nn.Module):
    """Its outputs depend on the other examples of the batch."""

    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(0, keepdim=True)


class KnowsItsShape(nn.Module):
    """It takes three examples and no others."""

    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(3, 5)


def lifted(*behind: nn.Module, bias: bool = False) -> bw.BayesianModule:
    model = bw.bayesian(nn.Sequential(Adapted(bias), *behind), where="lora").eval()
    with torch.no_grad():
        model.posterior.set_stds(torch.full((model.layout.size,), 0.5))
    return model


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(3, 4), (3, 6, 4)])
def test_each_network_gets_its_own_outputs(shape: tuple[int, ...], bias: bool) -> None:
    model, inputs = lifted(bias=bias), torch.randn(shape)
    networks = list(model.draws(7, bw.make_generator(1)))
    stack = model.stack()
    assert isinstance(stack, Tiled)
    assert stack.takes(inputs)
    calls: list[int] = []
    model.net[0].base.register_forward_hook(lambda _, given, __: calls.append(len(given[0])))  # type: ignore[index]
    with torch.no_grad():
        found = list(stack.outputs(networks, inputs))
    assert calls == [7 * 3, 3]  # all at once, and once more the first to compare with
    with torch.no_grad():
        expected = [model.call(network, inputs) for network in networks]
    assert len(found) == 7
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)
    assert not torch.allclose(expected[0], expected[1], atol=1e-2)


@pytest.mark.parametrize("behind", [Mixes(), KnowsItsShape()], ids=lambda module: type(module).__name__)
def test_a_network_that_is_not_one_of_single_examples_is_run_draw_by_draw(behind: nn.Module) -> None:
    model, inputs = lifted(behind), torch.randn(3, 4)
    networks = list(model.draws(4, bw.make_generator(1)))
    stack = model.stack()
    assert stack is not None
    with torch.no_grad():
        for one, other in zip(stack.outputs(networks, inputs), [model.call(n, inputs) for n in networks], strict=True):
            assert torch.equal(one, other)


def test_many_rows_are_run_draw_by_draw_and_other_networks_are_not_tiled() -> None:
    stack = lifted().stack()
    assert stack is not None
    assert not stack.takes(torch.randn(MOST_ROWS // 2 + 1, 4))
    assert stack.takes({"input_ids": torch.zeros(2, 8, dtype=torch.long)})
    assert bw.bayesian(nn.Linear(2, 2)).stack() is None
    tables = bw.bayesian(nn.Sequential(nn.ParameterDict({"lora_A": nn.Parameter(torch.zeros(2, 2))})), where="lora")
    assert tables.stack() is None
