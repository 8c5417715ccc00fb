"""Drawn networks with channels last predict what the others do, to rounding, and only where nothing can go wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayeswell as bw
from bayeswell.lifting import laid_out
from bayeswell.lifting.laid_out import ChannelsLast
from native.formulas import needs_library
from side_by_side import in_threads

POSTERIORS = ("mean_field", "k_tied", {"name": "low_rank", "rank": 2}, "delta")


class Residual(nn.Module):
    """As the zoo's networks: code of the package, which keeps layouts, around torch's layers."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.path = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.path(x)


Residual.__module__ = "bayeswell.models.made_up"


def network(dense: bool = False, channels: int = 3) -> nn.Module:
    torch.manual_seed(1)
    body = [
        nn.Conv2d(channels, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(),
        Residual(nn.Conv2d(64, 64, 3, padding=1, bias=False), nn.GroupNorm(4, 64), nn.Tanh(), nn.Conv2d(64, 64, 1)),
        nn.Conv2d(64, 66, (2, 3), stride=2), nn.Conv2d(66, 66, 3, groups=6),
    ]  # fmt: skip
    head = [nn.Conv2d(66, 3, 1)] if dense else [nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(66 * 4, 3)]
    net = nn.Sequential(*body, *head)
    net(torch.randn(20, channels, 9, 8))  # statistics of its own
    return net.eval()


@pytest.fixture(autouse=True)
def _eight_images_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the processor."""
    monkeypatch.setattr(laid_out, "LEAST_EXAMPLES", 8)
    monkeypatch.setattr(laid_out, "MOST_WEIGHTS", None)


def lifted(net: nn.Module, posterior: Any = "mean_field", **settings: Any) -> bw.BayesianModule:
    with torch.random.fork_rng():
        torch.manual_seed(5)
        settings = {"posterior": posterior, **settings}
        if posterior in ("mean_field", "k_tied"):
            settings["posterior"] = {"name": posterior, "initial_std": 0.05}
        return bw.bayesian(net, **settings).eval()


@pytest.fixture(name="used")
def _used(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A number for each network that was laid out."""
    found: list[int] = []
    networks = ChannelsLast.networks

    def counted(own: ChannelsLast, *given: Any) -> Iterator[Any]:
        for tensors in networks(own, *given):
            found.append(len(found))
            yield tensors

    monkeypatch.setattr(ChannelsLast, "networks", counted)
    return found


def predicted(model: bw.BayesianModule, x: Tensor, likelihood: Any = "categorical", **settings: Any) -> Any:
    return bw.predict(model, x, likelihood, draws=5, generator=bw.make_generator(3), **settings)


@pytest.mark.parametrize("posterior", POSTERIORS, ids=str)
def test_predictions_are_the_same(posterior: Any, used: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = lifted(network(), posterior), torch.randn(11, 3, 9, 8)
    before = x.clone()
    found = predicted(model, x, batch_size=4, keep_samples=True)
    assert len(used) == (1 if posterior == "delta" else 5), "once a draw, whatever the number of batches"
    assert torch.equal(x, before)
    assert x.is_contiguous()
    laid_out_before = len(used)
    monkeypatch.setattr(laid_out, "LEAST_EXAMPLES", 100)
    expected = predicted(model, x, batch_size=4, keep_samples=True)
    assert len(used) == laid_out_before
    torch.testing.assert_close(found.samples, expected.samples, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found.epistemic, expected.epistemic, rtol=1e-3, atol=1e-5)


def test_a_kernel_of_another_draw_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the kernels of the first draw are kept for all, where kernels are copied."""
    model, x = lifted(network(), {"name": "low_rank", "rank": 2}), torch.randn(11, 3, 9, 8)
    right = predicted(model, x, keep_samples=True).samples
    monkeypatch.setattr(torch.Tensor, "copy_", lambda own, other: own)
    wrong = predicted(model, x, keep_samples=True).samples
    monkeypatch.undo()
    assert torch.equal(right[0], wrong[0])
    assert not torch.allclose(right[1], wrong[1], rtol=1e-2, atol=1e-3)


@needs_library
@pytest.mark.parametrize("posterior", ["mean_field", "k_tied"])
def test_independent_weights_are_drawn_in_that_order(posterior: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is copied, and the draws are those of the same generator in the usual order, to the bit."""
    model = lifted(network(), posterior)
    found = model.find_layout(torch.randn(9, 3, 9, 8), 9)
    assert found is not None
    monkeypatch.setattr(torch.Tensor, "clone", None)
    networks = zip(found.networks(3, bw.make_generator(3)), model.draws(3, bw.make_generator(3)), strict=True)
    for mine, theirs in networks:
        assert mine.keys() == theirs.keys()
        for name, tensor in theirs.items():
            assert torch.equal(mine[name], tensor), name
            wide = tensor.dim() == 4 and tensor.shape[1] >= 64 and tensor.shape[2:].numel() > 1
            assert mine[name].is_contiguous(memory_format=torch.channels_last) >= wide, name


def test_draws_of_ones_own_are_asked(used: list[int]) -> None:
    model, x = lifted(network()), torch.randn(9, 3, 9, 8)
    drawn = list(model.draws(5, bw.make_generator(8)))
    expected = predicted(model, x, keep_samples=True).samples
    model.draws = lambda count, generator=None: iter(drawn[:count])  # type: ignore[method-assign]
    found = predicted(model, x, keep_samples=True).samples
    assert len(used) == 10
    assert not torch.allclose(found, expected, rtol=1e-2, atol=1e-3)
    torch.testing.assert_close(found[0], model.call(drawn[0], x).detach().softmax(-1), rtol=1e-4, atol=1e-5)


def test_outputs_that_are_images(used: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = lifted(network(dense=True)), torch.randn(9, 3, 9, 8)
    found = predicted(model, x, bw.Gaussian(std=0.3), keep_samples=True)
    assert used
    monkeypatch.setattr(laid_out, "LEAST_EXAMPLES", 100)
    expected = predicted(model, x, bw.Gaussian(std=0.3), keep_samples=True)
    torch.testing.assert_close(found.samples, expected.samples, rtol=1e-4, atol=1e-5)


def layouts_of_convolutions(model: bw.BayesianModule, run: Callable[[], Any]) -> list[tuple[bool, bool]]:
    """Whether inputs and weights of each convolution had channels last, in its order."""
    seen: list[tuple[bool, bool]] = []
    original = nn.functional.conv2d

    def noted(x: Tensor, weight: Tensor, *given: Any) -> Tensor:
        lie = (not tensor.is_contiguous() for tensor in (x, weight))
        seen.append((next(lie), next(lie)))
        return original(x, weight, *given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nn.functional, "conv2d", noted)
        run()
    return seen


@pytest.mark.parametrize("posterior", ["mean_field", {"name": "low_rank", "rank": 2}], ids=str)
def test_large_kernels_stay_as_they_are(posterior: Any, used: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Between 66 x 64 x 2 x 3 and 64 x 64 x 3 x 3 weights: images are turned for the larger kernel and come back."""
    monkeypatch.setattr(laid_out, "MOST_WEIGHTS", 30_000)
    model, x = lifted(network(), posterior), torch.randn(11, 3, 9, 8)
    found = predicted(model, x, keep_samples=True)
    assert len(used) == 5
    lie = layouts_of_convolutions(model, lambda: bw.predict(model, x, "categorical", draws=1))
    assert lie[1] == (False, False), "the large one"
    assert lie[3] == (True, True), "the one that is laid out"
    assert not any(module._forward_pre_hooks for module in model.net.modules())
    monkeypatch.setattr(laid_out, "LEAST_EXAMPLES", 100)
    expected = predicted(model, x, keep_samples=True)
    torch.testing.assert_close(found.samples, expected.samples, rtol=1e-4, atol=1e-5)
    monkeypatch.setattr(laid_out, "LEAST_EXAMPLES", 8)
    monkeypatch.setattr(laid_out, "MOST_WEIGHTS", 10_000)
    predicted(model, x)
    assert len(used) == 6, "nothing is left to be laid out"


def test_large_kernels_in_several_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that predict with one model take turns: the hook of one is never there for another's pass."""
    monkeypatch.setattr(laid_out, "MOST_WEIGHTS", 30_000)
    model, x = lifted(network()), torch.randn(11, 3, 9, 8)
    alone = predicted(model, x, keep_samples=True).samples
    found = in_threads([lambda: [predicted(model, x, keep_samples=True).samples for _ in range(4)]] * 4)
    assert all(torch.equal(one, alone) for several in found for one in several)
    assert not any(module._forward_pre_hooks for module in model.net.modules())


def test_hooks_go_with_an_error(used: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(laid_out, "MOST_WEIGHTS", 30_000)
    model = lifted(network())
    with pytest.raises(bw.BayeswellError):
        predicted(model, torch.randn(11, 5, 9, 8))
    assert not any(module._forward_pre_hooks for module in model.net.modules())


@pytest.mark.parametrize("lie", ["grey", "channels last already"])
def test_images_of_which_nothing_has_to_be_laid_out(lie: str, used: list[int]) -> None:
    x = torch.randn(9, 3, 9, 8)
    x = x[:, :1].contiguous() if lie == "grey" else x.contiguous(memory_format=torch.channels_last)
    predicted(lifted(network(channels=x.shape[1])), x)
    assert len(used) == 5


class Viewing(nn.Module):
    """Somebody's own code, which fails where channels are last."""

    def forward(self, x: Tensor) -> Tensor:
        return x.view(len(x), -1)[:, :3]


def with_forward_put_there() -> nn.Module:
    net = network()
    net[2].forward = lambda x: x.view(len(x), -1).relu().view(x.shape)  # type: ignore[index, union-attr]
    return net


@pytest.mark.parametrize(
    ("net", "settings", "images", "dtype"),
    [
        (lambda: nn.Sequential(nn.Conv2d(3, 64, 3), nn.Conv2d(64, 64, 3), Viewing()), {}, 9, torch.float32),
        (with_forward_put_there, {}, 9, torch.float32),
        (network, {"where": "last_layer"}, 9, torch.float32),
        (lambda: network(dense=True), {"output": lambda found: found.view(len(found), -1)[:, :3]}, 9, torch.float32),
        (network, {}, 7, torch.float32),
        (network, {}, 9, torch.float64),
        (lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3), nn.Flatten()), {}, 9, torch.float32),
    ],
    ids=["own code", "own forward", "kernels that are not drawn", "own output", "few images", "float64", "narrow"],
)
def test_what_may_not_gain_is_run_as_ever(
    net: Any, settings: dict[str, Any], images: int, dtype: torch.dtype, used: list[int]
) -> None:
    model = lifted(net().to(dtype), **settings)
    x = torch.randn(images, 3, 9, 8, dtype=dtype)
    assert predicted(model, x).probabilities.isfinite().all()
    assert not used


def test_a_call_of_ones_own_is_left_alone(used: list[int]) -> None:
    model, x = lifted(network()), torch.randn(9, 3, 9, 8)
    call = model.call
    model.call = lambda weights, inputs: call(weights, inputs.view(9, 3, 9, 8))  # type: ignore[method-assign]
    predicted(model, x)
    assert not used
