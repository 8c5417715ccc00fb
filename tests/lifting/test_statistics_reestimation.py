"""BatchNorm statistics of a drawn network: a plain pass of torch's own over the same network says what they are."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.data import DataLoader

import bayeswell as bw
from bayeswell.errors import DataError, NetworkError
from bayeswell.lifting import statistics
from bayeswell.lifting.statistics import has_statistics, reestimate
from nets import lift, randomise


class Net(nn.Module):
    """Two batch norms (one without a running mean of its own), dropout, and a layer that counts its passes."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(2, 4, 3, padding=1)
        self.first = nn.BatchNorm2d(4, momentum=0.1)
        self.dropout = nn.Dropout(0.5)
        self.untracked = nn.BatchNorm2d(4, track_running_stats=False)
        self.middle = nn.Linear(4, 5)
        self.second = nn.BatchNorm1d(5, momentum=0.3)
        self.out = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.untracked(self.dropout(torch.tanh(self.first(self.convolution(x)))))
        return self.out(torch.tanh(self.second(self.middle(x.mean((2, 3))))))


def batches(count: int = 4, size: int = 6) -> list[Tensor]:
    generator = torch.Generator().manual_seed(2)
    return [
        torch.randn(size + number, 2, 4, 4, generator=generator) * (1 + number) + 0.7 * number
        for number in range(count)
    ]


def generic_model(posterior: Any = "mean_field") -> bw.BayesianModule:
    torch.manual_seed(6)
    model = lift(Net(), posterior)
    randomise(model.posterior, size=0.2)
    with torch.no_grad():  # training left statistics that fit no draw
        for name, buffer in model.net.named_buffers():
            buffer.add_(3) if name.endswith("tracked") else buffer.add_(torch.rand(buffer.shape))
    return model


def plain_pass(model: bw.BayesianModule, tensors: dict[str, Tensor], data: list[Tensor]) -> nn.Module:
    """The drawn network as an ordinary module, after torch's own cumulative average over the data."""
    net = Net()
    net.load_state_dict({**model.net.state_dict(), **tensors})
    for module in net.modules():
        module.eval()
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d) and module.track_running_stats:
            module.reset_running_stats()
            module.momentum = None
            module.training = True
    with torch.no_grad():
        for x in data:
            net(x)
    return net.eval()


def test_reestimated_statistics_are_those_of_a_plain_pass() -> None:
    model, data = generic_model(), batches()
    tensors = model.draw(bw.make_generator(4))
    found = reestimate(model, tensors, data)
    reference = plain_pass(model, tensors, data)
    buffers = dict(reference.named_buffers())
    assert set(found) == set(tensors) | set(buffers)
    for name, buffer in buffers.items():
        assert torch.equal(found[name], buffer), name
    assert int(found["first.num_batches_tracked"]) == len(data)
    for name, tensor in tensors.items():
        assert found[name] is tensor
    torch.testing.assert_close(model.eval().call(found, data[1]), reference(data[1]))


def test_first_layer_statistics_by_hand() -> None:
    """Means over batches of each batch's mean and unbiased variance; a short last batch counts as much."""
    model, data = generic_model(), batches()
    tensors = model.draw(bw.make_generator(4))
    found = reestimate(model, tensors, data)
    convolution = nn.Conv2d(2, 4, 3, padding=1)
    weights = {"weight": tensors["convolution.weight"], "bias": tensors["convolution.bias"]}
    outputs = [functional_call(convolution, weights, (x,)).double() for x in data]
    means = torch.stack([y.mean((0, 2, 3)) for y in outputs]).mean(0)
    variances = torch.stack([y.transpose(0, 1).flatten(1).var(1) for y in outputs]).mean(0)
    torch.testing.assert_close(found["first.running_mean"].double(), means, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found["first.running_var"].double(), variances, rtol=1e-5, atol=1e-6)


def test_a_pass_with_the_layers_own_momentum_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted bug: an exponential average (momentum 0.1) in place of the cumulative one."""
    model, data = generic_model(), batches()
    tensors = model.draw(bw.make_generator(4))
    careful = statistics._only_statistics

    @contextmanager
    def careless(net: nn.Module, layers: Any) -> Iterator[None]:
        chosen = list(layers)
        with careful(net, chosen):
            for layer in chosen:
                layer.momentum = 0.1
            yield

    monkeypatch.setattr(statistics, "_only_statistics", careless)
    found = reestimate(model, tensors, data)
    for name, buffer in plain_pass(model, tensors, data).named_buffers():
        assert torch.equal(found[name], buffer) == name.endswith("num_batches_tracked"), name


@pytest.mark.parametrize("training", [True, False])
def test_the_model_is_left_as_it_was(training: bool) -> None:
    model, data = generic_model(), batches()
    model.train(training)
    model.net.second.training = not training  # one layer that the user keeps otherwise
    before = copy.deepcopy(model.state_dict())
    modes = [module.training for module in model.modules()]
    tensors = model.draw(bw.make_generator(4))
    kept = {name: tensor.clone() for name, tensor in tensors.items()}
    state = torch.get_rng_state()
    loader = DataLoader(torch.cat(data), batch_size=9, shuffle=True)  # draws from torch's global generator itself
    found = reestimate(model, tensors, loader)
    assert torch.equal(state, torch.get_rng_state())
    assert [module.training for module in model.modules()] == modes
    assert (model.net.first.momentum, model.net.second.momentum) == (0.1, 0.3)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name]), name
    for name, tensor in kept.items():
        assert torch.equal(tensor, tensors[name])
    assert not any(tensor.requires_grad for name, tensor in found.items() if name not in tensors)


def test_the_model_is_left_as_it_was_after_a_failure() -> None:
    model = generic_model().train()
    modes = [module.training for module in model.modules()]
    state = torch.get_rng_state()

    def broken() -> Iterator[Tensor]:
        yield batches()[0]
        raise RuntimeError("the disk is gone")

    with pytest.raises(RuntimeError, match="the disk is gone"):
        reestimate(model, model.draw(bw.make_generator(4)), broken())
    assert [module.training for module in model.modules()] == modes
    assert (model.net.first.momentum, model.net.second.momentum) == (0.1, 0.3)
    assert torch.equal(state, torch.get_rng_state())


def test_dropout_is_off_in_the_pass() -> None:
    """Two passes agree although dropout would differ: the second norm comes after it."""
    model, data = generic_model().train(), batches()
    tensors = model.draw(bw.make_generator(4))
    torch.manual_seed(1)
    first = reestimate(model, tensors, data)
    torch.manual_seed(2)
    second = reestimate(model, tensors, data)
    assert torch.equal(first["second.running_var"], second["second.running_var"])


def test_norms_inside_norms_and_a_norm_that_is_the_network() -> None:
    """A shared norm counts each of its calls, as torch does; a network that is a single norm has bare names."""

    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.norm, self.second = nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 3)
            self.again = self.norm

        def forward(self, x: Tensor) -> Tensor:
            return self.second(self.again(torch.tanh(self.norm(self.first(x)))))

    model = lift(Shared(), "delta")
    data = [torch.randn(7, 3) * 2 + 1 for _ in range(3)]
    found = reestimate(model, model.draw(), data)
    assert int(found["norm.num_batches_tracked"]) == 6
    reference = Shared()
    reference.load_state_dict({**model.net.state_dict(), **{k: v.detach() for k, v in model.draw().items()}})
    reference.norm.reset_running_stats()
    reference.norm.momentum = None
    for x in data:
        reference(x)
    torch.testing.assert_close(found["norm.running_mean"], reference.norm.running_mean)
    model.eval()
    torch.testing.assert_close(model.call(found, data[0]), reference.eval()(data[0]))

    alone = lift(nn.BatchNorm1d(3), "delta", where=["weight", "bias"])
    found = reestimate(alone, alone.draw(), data)
    torch.testing.assert_close(found["running_mean"], torch.stack([x.mean(0) for x in data]).mean(0))


def test_networks_without_statistics_need_no_pass() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.BatchNorm1d(4, track_running_stats=False), nn.Linear(4, 2))
    assert not has_statistics(net)
    assert has_statistics(Net())
    model = lift(net)
    tensors = model.draw(bw.make_generator(1))

    def never() -> Iterator[Tensor]:
        raise AssertionError("no pass is needed")
        yield torch.zeros(1)

    assert reestimate(model, tensors, never()) == tensors


def test_batches_that_cannot_be_used_are_refused() -> None:
    model, data = generic_model(), batches()
    tensors = model.draw(bw.make_generator(4))
    with pytest.raises(DataError, match="from no batches"):
        reestimate(model, tensors, [])
    with pytest.raises(DataError, match="batch 4 has a single value for each channel"):
        reestimate(model, tensors, [*data, data[0][:1]])
    with pytest.raises(NetworkError, match=r"'first\.running_mean' hold NaN or inf"):
        reestimate(model, tensors, [data[0] * float("inf")])
