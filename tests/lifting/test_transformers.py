"""Transformers in evaluation mode: the fused path is taken, or the noise kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

from nets import (
    Transformer,
    generic,
    lift,
    make,
)

# Transformers in evaluation mode.


@contextmanager
def counted_fused_calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    calls: list[int] = []
    fused = torch._transformer_encoder_layer_fwd

    def counted(*args: Any) -> Tensor:
        calls.append(1)
        return fused(*args)

    monkeypatch.setattr(torch, "_transformer_encoder_layer_fwd", counted)
    yield calls
    monkeypatch.undo()


def test_the_fused_transformer_path_is_really_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the comparison of drawn networks above would not have met it."""
    net, inputs = make("transformer")
    model = lift(net).eval()
    with counted_fused_calls(monkeypatch) as calls, torch.no_grad():
        model(inputs)
        model.call(model.draw(), inputs)
    assert len(calls) == 2


@pytest.mark.parametrize("estimator", ["flipout", "local_reparameterization"])
def test_layer_estimators_keep_their_noise_where_torch_would_fuse(
    estimator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fused kernel reads weights past the layers. Passes in evaluation mode, as a prediction makes them."""
    net, inputs = make("transformer")
    model = generic(net, estimator=estimator, where=["layer.linear1", "layer.linear2"])
    model.net.eval()
    inputs = inputs.double()
    enabled = torch.backends.mha.get_fastpath_enabled()
    with counted_fused_calls(monkeypatch) as calls, torch.no_grad():
        first, second = model(inputs), model(inputs)
    assert not calls
    assert bool(first.isfinite().all())
    assert float((first - second).abs().max()) > 1e-3
    assert torch.backends.mha.get_fastpath_enabled() == enabled


# torch.compile.


def test_transformers_of_every_order_are_covered() -> None:
    """Both axis orders agree on what they compute, so that the list of networks tests what it says."""
    torch.manual_seed(99)
    first = Transformer()
    second = Transformer(batch_first=False)
    second.load_state_dict(first.state_dict())
    x = torch.randn(5, 3, 4)
    torch.testing.assert_close(first(x), second(x))
