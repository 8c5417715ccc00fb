"""Draws of noise that is known by its key are those of one pass, their gradients too, and need no vector of noise."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import bayeswell as bw
from bayeswell import native, random
from bayeswell.objectives import elbo
from bayeswell.posteriors import streamed
from bayeswell.random import KeyedNoise, normals_of_key
from nets import lift, randomise

needs_library = pytest.mark.skipif(not native.available(), reason="there are no compiled formulas here")
POSTERIORS = ("mean_field", "k_tied")


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(50, 301), nn.Tanh(), nn.Linear(301, 111), nn.Tanh(), nn.Linear(111, 3))


class Tokens(nn.Module):
    """An embedding, whose output units are its last axis, before the layers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.words, self.rest = nn.Embedding(70, 50), network()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.rest(x + self.words((x[:, 0].abs() * 20).long().clamp(max=69)))
        return found


def gradients(model: Any, least: int, monkeypatch: pytest.MonkeyPatch, temperature: float = 0.7) -> dict[str, Any]:
    """Of one step of the ELBO, where draws of so many weights are of keyed noise."""
    monkeypatch.setattr(elbo, "LEAST_STREAMED", least)
    objective = bw.ELBO("categorical", 200, temperature=temperature)
    inputs, targets = torch.randn(9, 50, generator=bw.make_generator(7)), torch.arange(9) % 3
    model.zero_grad(set_to_none=True)
    terms = objective(model, inputs, targets, generator=bw.make_generator(11))
    terms.total.backward()
    return {"total": terms.total, "kl": terms.kl, **{name: p.grad for name, p in model.named_parameters()}}


@needs_library
def test_an_embedding_is_read_as_its_transpose(monkeypatch: pytest.MonkeyPatch) -> None:
    model = lift(Tokens(), {"name": "k_tied", "initial_std": 0.05})
    randomise(model)
    assert model.posterior.table is not None
    with native.disabled():
        expected = gradients(model, 1 << 40, monkeypatch)
    for least in (1 << 40, 1):
        if least == 1:
            monkeypatch.setattr(random, "normals", lambda key, size: pytest.fail(f"{size} numbers of noise were made"))
        found = gradients(model, least, monkeypatch)
        for name in expected:
            torch.testing.assert_close(found[name], expected[name], rtol=2e-4, atol=1e-6)


@needs_library
@pytest.mark.parametrize("prior", ["kaiming", {"name": "normal", "std": 0.7}], ids=["by site", "scalar"])
@pytest.mark.parametrize("posterior", POSTERIORS)
def test_a_step_is_that_of_one_pass(posterior: str, prior: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = lift(network(), {"name": posterior, "initial_std": 0.05}, prior=prior)
    randomise(model)
    model.train()
    at_once = gradients(model, 1 << 40, monkeypatch)
    monkeypatch.setattr(random, "normals", lambda key, size: pytest.fail(f"{size} numbers of noise were made"))
    by_key = gradients(model, 1, monkeypatch)
    assert at_once.keys() == by_key.keys()
    for name, expected in at_once.items():
        torch.testing.assert_close(
            by_key[name], expected, rtol=2e-6, atol=1e-9, msg=lambda text, n=name: f"{n}: {text}"
        )


@needs_library
def test_the_noise_in_the_gradient_matters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a gradient with the noise of another key is seen by the comparison above."""
    model = lift(network(), {"name": "mean_field", "initial_std": 0.05})
    expected = gradients(model, 1 << 40, monkeypatch)["posterior.log_std"].clone()
    slopes = streamed.native_slopes
    monkeypatch.setattr(streamed, "native_slopes", lambda *given: slopes(*given[:3], given[3] + 1, *given[4:]))
    found = gradients(model, 1, monkeypatch)["posterior.log_std"]
    assert not torch.allclose(found, expected, rtol=2e-6, atol=1e-9)


@pytest.mark.parametrize(("start", "stop"), [(0, 1000), (256, 700), (300, 301), (511, 1400), (1024, 2048)])
def test_blocks_of_noise_are_pieces_of_the_whole(start: int, stop: int) -> None:
    for key in (12345, (1 << 64) - 3):
        whole = normals_of_key(key, 2048)
        torch.testing.assert_close(KeyedNoise(key, 2048).block(start, stop), whole[start:stop], rtol=1e-6, atol=1e-6)
        with native.disabled():
            torch.testing.assert_close(
                KeyedNoise(key, 2048).block(start, stop), whole[start:stop], rtol=1e-5, atol=1e-6
            )


@pytest.mark.parametrize("posterior", POSTERIORS)
def test_without_compiled_formulas_it_is_the_same(posterior: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = lift(network(), {"name": posterior, "initial_std": 0.05})
    expected = gradients(model, 1 << 40, monkeypatch)
    with native.disabled():
        found = gradients(model, 1, monkeypatch)
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("settings", [{"prior": "laplace"}, {"estimator": {"name": "weight_sampling", "draws": 2}}])
def test_what_cannot_be_streamed_is_drawn_at_once(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    model = lift(network(), {"name": "mean_field", "initial_std": 0.05}, **settings)
    expected, found = gradients(model, 1 << 40, monkeypatch), gradients(model, 1, monkeypatch)
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], rtol=0, atol=0)


def test_memory_of_others_is_not_written_to() -> None:
    larger = torch.ones(2, 6)
    vector = streamed.owned(larger[:1])
    vector.zero_()
    assert bool((larger == 1).all())


@needs_library
@pytest.mark.parametrize("posterior", POSTERIORS)
def test_gradients_can_be_differentiated(posterior: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = lift(network(), {"name": posterior, "initial_std": 0.05})
    found = []
    for least in (1 << 40, 1):
        monkeypatch.setattr(elbo, "LEAST_STREAMED", least)
        inputs, targets = torch.randn(9, 50, generator=bw.make_generator(7)), torch.arange(9) % 3
        total = bw.ELBO("categorical", 200)(model, inputs, targets, generator=bw.make_generator(11)).total
        parameters = list(model.posterior.parameters())
        slopes = torch.autograd.grad(total, parameters, create_graph=True)
        found.append(torch.autograd.grad(sum(slope.square().sum() for slope in slopes), parameters))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-7)
