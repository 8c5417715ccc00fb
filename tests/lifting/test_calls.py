"""How layers are called: twice, not at all, by name, within another call, and what is refused."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import bayeswell as bw
from bayeswell.types import Step
from lifting.lifted import LABELS, each_estimator, train
from nets import (
    LAYERS,
    generic,
    layer_op,
    lift,
    passes,
)
from truths.moments import output_moments_general
from truths.statistics import assert_covariance_close, assert_mean_close


def test_weights_read_past_their_layer_are_refused_by_local_reparameterization() -> None:
    class Reads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.out = nn.Linear(4, 4), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.out(F.linear(x, self.layer.weight, self.layer.bias))

    model = lift(Reads(), estimator="local_reparameterization")
    with pytest.raises(bw.NetworkError, match=r"\['layer'\] are read outside .* use estimator") as caught:
        model(torch.randn(5, 4))
    assert "\n" not in str(caught.value)
    for remedy in ("flipout", "weight_sampling"):
        assert f"'{remedy}'" in str(caught.value)
        assert bool(lift(Reads(), estimator=remedy)(torch.randn(5, 4)).isfinite().all())


def test_weights_read_past_a_layer_that_is_also_called_are_refused_too() -> None:
    class Reads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.out = nn.Linear(4, 4), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.out(self.layer(x) + x @ self.layer.weight)

    model = lift(Reads(), estimator="local_reparameterization")
    with pytest.raises(bw.NetworkError, match="read outside"):
        model(torch.randn(5, 4))


class Sums(nn.Module):
    """Calls a layer, and reads its weight besides."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        total = self.layer.weight.sum().expand(len(x), 1)
        return torch.cat([self.layer(x).tanh(), total], 1)


def test_flipout_gives_the_draw_and_its_gradient_to_whoever_reads_a_weight() -> None:
    model = generic(Sums(), estimator="flipout")
    x, upstream = torch.randn(5, 3, dtype=torch.float64), torch.randn(5, 3, dtype=torch.float64)
    noise = model.estimator.noise(model, Step(None, generator=bw.make_generator(61)))
    mean, log_std = model.posterior.parameters()

    def outputs() -> Tensor:
        return model.estimator.forward(
            model, model.posterior.sample(noise)[0], Step(x, generator=bw.make_generator(62))
        )

    # What is read: sum of m + s eps over the six weights (the biases come last).
    read = outputs()[:, 2]
    weights, scaled = slice(0, 6), log_std.exp() * noise[0]
    torch.testing.assert_close(read, (mean + scaled)[weights].sum().expand(5), rtol=1e-12, atol=0)
    of_mean, of_log_std = torch.autograd.grad(read[0], (mean, log_std))
    inside = torch.zeros_like(mean).index_fill(0, torch.arange(6), 1.0)
    torch.testing.assert_close(of_mean, inside, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(of_log_std, inside * scaled.detach(), rtol=1e-12, atol=1e-12)

    # Both uses together, with the same noise and signs: finite differences of every number.
    found = torch.autograd.grad((outputs() * upstream).sum(), (mean, log_std))
    with torch.no_grad():
        for parameter, slopes in zip((mean, log_std), found, strict=True):
            for i, slope in enumerate(slopes):
                values = []
                for move in (1e-6, -2e-6):
                    parameter[i] += move
                    values.append(float((outputs() * upstream).sum()))
                parameter[i] += 1e-6
                assert float(slope) == pytest.approx((values[0] - values[1]) / 2e-6, rel=1e-6, abs=1e-7)


@each_estimator
def test_inputs_may_be_given_by_their_name(estimator: str) -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.dense = nn.Conv1d(1, 2, 2), nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.dense(input=self.conv(input=x[:, None]).flatten(1))

    train(lift(Named(), estimator=estimator), torch.randn(5, 4), steps=1)


class Skips(nn.Module):
    """Stochastic depth: a block may be left out of a pass."""

    def __init__(self) -> None:
        super().__init__()
        self.block, self.out = nn.Linear(4, 4), nn.Linear(4, 3)
        self.skip = True

    def forward(self, x: Tensor) -> Tensor:
        return self.out(x if self.skip else x + self.block(x))


@each_estimator
def test_a_layer_may_be_left_out_of_a_pass(estimator: str) -> None:
    model = lift(Skips(), estimator=estimator)
    train(model, torch.randn(5, 4), steps=1)
    model.net.skip = False
    train(model, torch.randn(5, 4), steps=1)


def test_nan_inputs_are_not_mistaken_for_weights_read_past_a_layer() -> None:
    model = lift(Skips(), estimator="local_reparameterization")
    x = torch.randn(5, 4)
    x[1, 2] = math.nan
    with pytest.raises(bw.DataError, match="NaN or inf in the inputs"):
        bw.ELBO("categorical", 9)(model, x, LABELS)


class CallsTwice(nn.Module):
    """One layer, called twice in a pass."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.layer(x), self.layer(x)


@pytest.mark.parametrize("estimator", ["flipout", "weight_sampling"])
def test_a_layer_called_twice_has_one_weight_in_a_pass(estimator: str) -> None:
    """Flipout: the same signs for an example in both calls, new signs in the next pass."""
    model = lift(CallsTwice(), estimator=estimator)
    x = torch.randn(5, 4)
    one, two = model(x)
    assert torch.equal(one, two)
    other, _ = model(x)
    assert not torch.equal(one, other)


def test_flipout_signs_differ_between_examples_and_passes_but_not_between_positions() -> None:
    """Equal inputs tell: output signs alone would leave each unit with one distance from its mean."""
    model = generic(nn.Linear(4, 3, bias=False), estimator="flipout")
    noise = model.estimator.noise(model, Step(None, generator=bw.make_generator(94)))
    weights = model.posterior.sample(noise)[0].detach()
    x = torch.randn(1, 1, 4, dtype=torch.float64).expand(8, 6, 4)
    with torch.no_grad():
        first = model.estimator.forward(model, weights, Step(x, generator=bw.make_generator(95)))
        same = model.estimator.forward(model, weights, Step(x, generator=bw.make_generator(95)))
        fresh = model.estimator.forward(model, weights, Step(x, generator=bw.make_generator(96)))
    assert torch.equal(first, same)
    assert not torch.equal(first, fresh)
    torch.testing.assert_close(first, first[:, :1].expand_as(first))
    means = x[0, 0] @ model.layout.unflatten(model.posterior.mean_vector().detach())["weight"].T
    offsets = (first[:, 0] - means).T
    for unit in offsets:
        distances = {round(float(value), 9) for value in unit.abs()}
        assert len(distances) > 2, "signs of the inputs"
    signs = {tuple(column) for column in (offsets > 0).T.tolist()}
    assert len(signs) > 2, "signs of the outputs"


@pytest.mark.parametrize("kind", ["linear", "conv1d"])
def test_unbatched_inputs_are_one_example(kind: str) -> None:
    """(features,) and (channels, length) without a batch axis: the exact law of one weight draw."""
    layer, x = LAYERS[kind].make().double(), LAYERS[kind].inputs()[0]
    model = generic(layer, estimator="flipout")
    means = model.layout.unflatten(model.posterior.mean_vector().detach())
    covariance = model.posterior.std_vector().detach().square().diag()
    truth = output_moments_general(layer_op(layer), x, means["weight"], covariance, means["bias"])
    samples = passes(model, x, 10_000, seed=98)
    assert_mean_close(samples, truth.mean)
    assert_covariance_close(samples, truth.covariance)


@each_estimator
def test_an_error_in_the_network_leaves_nothing_replaced(estimator: str) -> None:
    class Fails(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.fail = nn.Linear(4, 3), True

        def forward(self, x: Tensor) -> Tensor:
            x = self.layer(x)
            if self.fail:
                raise KeyError("from inside")
            return x

    model = lift(Fails(), estimator=estimator)
    enabled = torch.backends.mha.get_fastpath_enabled()
    keys = list(model.state_dict())
    with pytest.raises(KeyError, match="from inside"):
        model(torch.randn(5, 4))
    assert "forward" not in vars(model.net.layer)
    assert torch.backends.mha.get_fastpath_enabled() == enabled
    assert list(model.state_dict()) == keys
    model.net.fail = False
    train(model, torch.randn(5, 4))
