"""Any network becomes Bayesian without a change to it or its code."""

from __future__ import annotations

import copy
import math
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import bayeswell as bw
from bayeswell.types import Step
from nets import (
    LAYERS,
    NETS,
    Attention,
    Custom,
    Normalised,
    Recurrent,
    Repeated,
    Tied,
    Transformer,
    TwoInputs,
    call,
    doubled,
    generic,
    is_legal,
    layer_op,
    lift,
    make,
    passes,
    randomise,
)
from truths.moments import output_moments_general
from truths.statistics import assert_covariance_close, assert_mean_close

ESTIMATORS = [name for name in bw.ESTIMATORS if is_legal({"name": "mean_field"}, {"name": name})]
LABELS = torch.tensor([0, 2, 1, 1, 0])

each_net = pytest.mark.parametrize("name", NETS)
each_estimator = pytest.mark.parametrize("estimator", ESTIMATORS)


def train(model: bw.BayesianModule, inputs: Any, steps: int = 2) -> None:
    """Some steps of Adam; every gradient must be there and finite."""
    elbo = bw.ELBO("categorical", 23)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    model.train()
    for _ in range(steps):
        optimizer.zero_grad()
        elbo(model, inputs, LABELS).total.backward()
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                assert parameter.grad is not None, name
                assert bool(parameter.grad.isfinite().all()), name
        optimizer.step()


def snapshot(net: nn.Module) -> dict[str, Any]:
    """All that lifting could disturb: values, gradients, the objects themselves, modes and attributes."""
    recurrent = [module for module in net.modules() if isinstance(module, nn.RNNBase)]
    return {
        "values": {name: value.clone() for name, value in net.state_dict().items()},
        "gradients": {name: None if p.grad is None else p.grad.clone() for name, p in net.named_parameters()},
        "objects": [id(p) for p in net.parameters()] + [id(m) for m in net.modules()] + [id(b) for b in net.buffers()],
        "modes": [module.training for module in net.modules()],
        "attributes": [sorted(vars(module)) for module in net.modules()],
        "trainable": [p.requires_grad for p in net.parameters()],
        "flat": [[id(w) for w in module._flat_weights] for module in recurrent],
    }


@each_estimator
@each_net
def test_the_given_network_is_not_changed(name: str, estimator: str) -> None:
    net, inputs = make(name)
    F.cross_entropy(call(net, inputs), LABELS).backward()
    before = snapshot(net)
    model = lift(net, estimator=estimator)
    train(model, inputs)
    model.eval()
    call(model, inputs)
    after = snapshot(net)
    assert before.pop("attributes") == after.pop("attributes")
    torch.testing.assert_close(after, before, rtol=0, atol=0)
    own = {id(parameter) for parameter in net.parameters()}
    assert not any(id(parameter) in own for parameter in model.parameters())
    storages = {parameter.data_ptr() for parameter in net.parameters()}
    assert not any(parameter.data_ptr() in storages for parameter in model.parameters())


def with_tensors(net: nn.Module, tensors: dict[str, Tensor]) -> nn.Module:
    """A copy of the network that holds these values."""
    filled = copy.deepcopy(net)
    with torch.no_grad():
        for name, parameter in filled.named_parameters(remove_duplicate=False):
            if name in tensors:
                parameter.copy_(tensors[name])
    return filled


MODES = {"training": (True, True), "evaluation": (False, True), "evaluation without gradient": (False, False)}


@pytest.mark.parametrize("mode", MODES)
@each_net
def test_a_drawn_network_is_the_network_with_the_drawn_weights(name: str, mode: str) -> None:
    """In evaluation without gradient torch's transformer layer takes its fused path."""
    net, inputs = make(name)
    net, inputs = net.double(), doubled(inputs)
    model = generic(net)
    training, gradient = MODES[mode]
    net.train(training)
    model.train(training)
    with torch.set_grad_enabled(gradient):
        drawn = model.draw(bw.make_generator(91))
        truth = with_tensors(net, drawn)
        first, second = model.call(drawn, inputs), call(truth, inputs)
        torch.testing.assert_close(first, second, rtol=1e-10, atol=1e-10)
        kept = dict(model.net.named_buffers())
        for buffer, value in truth.named_buffers():
            torch.testing.assert_close(kept[buffer], value)
        other = model.call(model.draw(bw.make_generator(92)), inputs)
        assert float((other - first).detach().abs().max()) > 1e-3, "weights that do not matter prove nothing"


@pytest.mark.parametrize("mode", MODES)
@each_net
def test_a_point_posterior_is_the_network_itself(name: str, mode: str) -> None:
    net, inputs = make(name)
    model = lift(net, "delta")
    training, gradient = MODES[mode]
    net.train(training)
    model.train(training)
    with torch.set_grad_enabled(gradient):
        torch.testing.assert_close(call(model, inputs), call(net, inputs), rtol=1e-6, atol=1e-6)


@each_estimator
@each_net
def test_tiny_stds_give_the_networks_own_outputs(name: str, estimator: str) -> None:
    net, inputs = make(name)
    net, inputs = net.double(), doubled(inputs)
    model = lift(net, {"name": "mean_field", "initial_std": 1e-10}, estimator=estimator)
    net.train()
    torch.testing.assert_close(call(model, inputs), call(net, inputs), rtol=1e-7, atol=1e-7)
    net.eval()
    model.eval()
    torch.testing.assert_close(call(model, inputs), call(net, inputs), rtol=1e-7, atol=1e-7)


@each_estimator
@each_net
def test_it_is_an_ordinary_module_after_calls(name: str, estimator: str) -> None:
    """Trained, copied, converted and called again; nothing of a pass stays behind in it."""
    net, inputs = make(name)
    model = lift(net, estimator=estimator)
    keys, described = list(model.state_dict()), str(model.describe())
    train(model, inputs)
    assert list(model.state_dict()) == keys
    assert str(model.describe()) == described
    twin = copy.deepcopy(model).double()
    assert all(value.dtype == torch.float64 for value in twin.state_dict().values() if value.is_floating_point())
    model.eval()
    twin.eval()
    torch.testing.assert_close(call(twin, doubled(inputs)).float(), call(model, inputs), rtol=1e-4, atol=1e-5)
    twin.float().train()
    call(twin, inputs)
    train(twin, inputs, steps=1)


@each_net
def test_describe_lists_every_parameter_once(name: str) -> None:
    net, inputs = make(name)
    first = next(net.parameters())
    for where in ("all", "last_layer", lambda _name, _module, parameter: parameter is not first):
        model = lift(net, where=where)
        call(model, inputs)
        rows = model.describe().rows
        assert sorted(row.name for row in rows) == sorted(name for name, _ in net.named_parameters())
        shapes = {name: tuple(parameter.shape) for name, parameter in net.named_parameters()}
        assert all(row.shape == shapes[row.name] for row in rows)
        total = sum(parameter.numel() for parameter in net.parameters())
        assert model.describe().bayesian_weights == model.layout.size
        assert model.describe().deterministic_weights == total - model.layout.size
        own = sum(p.numel() for p in model.net.parameters())
        assert own == total - model.layout.size, "Bayesian parameters live in the posterior alone"
        for row in rows:
            bayesian = row.name in model.layout.slices
            assert (row.posterior == "deterministic") != bayesian
            assert bayesian or row.note, f"no reason given for {row.name}"
            assert row.name in str(model.describe())


# ---------------------------------------------------------------------------------------------------------
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


# ---------------------------------------------------------------------------------------------------------
# Normalisation, buffers, frozen and shared parameters.


def reasons(model: bw.BayesianModule) -> dict[str, str]:
    return {row.name: row.note for row in model.describe().rows if row.posterior == "deterministic"}


def test_normalisation_is_deterministic_by_default_and_trained() -> None:
    net, inputs = make("normalised")
    model = lift(net)
    found = reasons(model)
    assert sorted(found) == sorted(
        f"{layer}_norm.{part}" for layer in ("batch", "group", "layer") for part in ("weight", "bias")
    )
    assert all("normalisation" in reason for reason in found.values())
    before = model.net.batch_norm.weight.detach().clone()
    train(model, inputs)
    assert not torch.equal(model.net.batch_norm.weight, before)


@pytest.mark.parametrize("kind", [nn.BatchNorm2d, nn.LayerNorm, (nn.GroupNorm, nn.LayerNorm)])
def test_normalisation_is_bayesian_if_asked_for_by_type(kind: Any) -> None:
    net, inputs = make("normalised")
    model = lift(net, where=kind)
    kinds = kind if isinstance(kind, tuple) else (kind,)
    chosen = {
        f"{name}.{part}"
        for name, module in net.named_modules()
        if isinstance(module, kinds)
        for part in ("weight", "bias")
    }
    assert set(model.layout.slices) == chosen
    assert all(reason == "not chosen by where" for reason in reasons(model).values())
    train(model, inputs)
    assert not torch.equal(model(inputs), model(inputs)), "its noise is felt"


def test_running_statistics_move_in_training_only() -> None:
    net, inputs = make("normalised")
    model = lift(net, "delta")
    net(inputs)
    model(inputs)
    torch.testing.assert_close(model.net.batch_norm.running_mean, net.batch_norm.running_mean)
    torch.testing.assert_close(model.net.batch_norm.running_var, net.batch_norm.running_var)
    assert int(model.net.batch_norm.num_batches_tracked) == 1
    before = model.net.batch_norm.running_mean.clone()
    model.eval()
    model(inputs)
    model.call(model.draw(), inputs)
    assert torch.equal(model.net.batch_norm.running_mean, before)


def test_frozen_parameters_stay_as_they_are() -> None:
    net, inputs = make("mlp")
    net[0].weight.requires_grad_(False)
    model = lift(net, where=["0.*", "2"])
    assert reasons(model) == {"0.weight": "frozen (requires_grad=False)"}
    train(model, inputs)
    assert torch.equal(model.net[0].weight, net[0].weight)
    assert not model.net[0].weight.requires_grad


def test_tied_weights_are_one_site_with_the_gradient_of_both_uses() -> None:
    net, inputs = make("tied")
    net = net.double()
    model = generic(net)
    site = model.layout.sites[0]
    assert site.names == ("embedding.weight", "decoder.weight")
    row = model.describe().rows[0]
    assert "decoder.weight" in row.note
    drawn = model.draw(bw.make_generator(93))
    assert drawn["embedding.weight"] is drawn["decoder.weight"]
    truth = with_tensors(net, drawn)
    flat = model.layout.flatten(drawn).requires_grad_(True)
    F.cross_entropy(model.call(model.layout.unflatten(flat), inputs), LABELS).backward()
    F.cross_entropy(truth(inputs), LABELS).backward()
    found = model.layout.unflatten(flat.grad)
    torch.testing.assert_close(found["embedding.weight"], truth.embedding.weight.grad)
    assert truth.embedding.weight.grad is truth.decoder.weight.grad


@pytest.mark.parametrize("estimator", ["flipout", "local_reparameterization"])
def test_shared_weights_fall_back_to_weight_sampling_and_say_so(estimator: str) -> None:
    for name, shared in (("tied", "embedding.weight"), ("repeated module", "first.weight")):
        net, _ = make(name)
        rows = {row.name: row.estimator for row in lift(net, estimator=estimator).describe().rows}
        assert rows[shared] == "weight_sampling (shared by several layers)"
        assert rows["out.weight" if name != "tied" else "middle.weight"].startswith(estimator)


def test_a_weight_shared_between_two_layers_is_one_draw() -> None:
    """Same layer under two names on the same input: under every estimator both give the same output."""

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(4, 3), nn.Linear(4, 3)
            self.two.weight, self.two.bias = self.one.weight, self.one.bias

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return self.one(x), self.two(x)

    for estimator in ESTIMATORS:
        one, two = lift(Twice(), estimator=estimator)(torch.randn(5, 4))
        assert torch.equal(one, two), estimator


def test_inputs_by_position_by_name_and_mixed() -> None:
    net = TwoInputs()
    left, right = torch.randn(5, 4), torch.randn(5, 2)
    model = lift(net, "delta")
    truth = net(left, right, gain=0.3)
    for inputs in ((left, right, 0.3), {"right": right, "gain": 0.3, "left": left}):
        torch.testing.assert_close(call(model, inputs), truth)
        terms = bw.ELBO("categorical", 9)(model, inputs, LABELS)
        torch.testing.assert_close(terms.outputs, truth)
    torch.testing.assert_close(model(left, gain=0.3, right=right), truth)


def test_a_tuple_or_mapping_given_as_one_argument_stays_one() -> None:
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, pair: Any) -> Tensor:
            return self.layer(pair["x"] if isinstance(pair, dict) else pair[0] - pair[1])

    net, x = Pair(), torch.randn(5, 4)
    model = lift(net, "delta")
    torch.testing.assert_close(model((x, x / 3)), net((x, x / 3)))
    torch.testing.assert_close(model({"x": x}), net({"x": x}))


def test_lazy_networks_are_refused_until_they_have_shapes() -> None:
    net = nn.Sequential(nn.LazyLinear(4), nn.Tanh(), nn.Linear(4, 3))
    with pytest.raises(bw.NetworkError, match=r"'0.weight' has no shape yet; run one batch") as caught:
        bw.bayesian(net)
    assert "\n" not in str(caught.value)
    net(torch.randn(2, 5))
    assert lift(net).layout.size == 5 * 4 + 4 + 4 * 3 + 3


def test_deterministic_recurrent_nets_can_be_called_again() -> None:
    """Only the read-out is Bayesian: the cells keep their own parameters from call to call."""
    for cell in (nn.LSTM, nn.GRU, nn.RNN):
        net = Recurrent(cell).eval()
        inputs = torch.randint(0, 11, (5, 4))
        model = lift(net, {"name": "mean_field", "initial_std": 1e-12}, where="out").eval()
        for _ in range(3):
            torch.testing.assert_close(model(inputs), net(inputs))
        train(model, inputs)
        model.double()
        assert model(inputs).dtype == torch.float64


def test_recurrent_nets_with_some_bayesian_weights() -> None:
    net, inputs = make("lstm")
    model = lift(net, where="cells.weight_*")
    train(model, inputs, steps=3)
    assert set(model.layout.slices) == {n for n, _ in net.named_parameters() if n.startswith("cells.weight")}


def test_a_recurrent_net_keeps_no_graph_of_the_last_pass() -> None:
    net, inputs = make("lstm")
    model = lift(net)
    model(inputs)
    held = [weight for weight in model.net.cells._flat_weights if isinstance(weight, Tensor)]
    assert not any(weight.grad_fn is not None for weight in held)


def test_an_embedding_keeps_its_padding() -> None:
    """torch promises of ``padding_idx`` that its row is never updated: noise there would be fed to every gap."""
    net = nn.Sequential(nn.Embedding(6, 4, padding_idx=2), nn.Flatten(), nn.Linear(12, 3))
    model = lift(net)
    tokens = torch.tensor([[0, 2, 2], [1, 3, 2], [2, 2, 2], [4, 5, 0], [1, 2, 2]])
    train(model, tokens, steps=5)
    assert not model.draw()["0.weight"][2].any()
    assert float(model.draw()["0.weight"][1].abs().max()) > 0


def test_an_embedding_that_limits_its_norm_can_be_used() -> None:
    """It renormalises rows in place, which must not reach into the posterior."""
    net = nn.Sequential(nn.Embedding(6, 4, max_norm=0.5), nn.Flatten(), nn.Linear(12, 3))
    model = lift(net)
    before = model.posterior.mean.detach().clone()
    tokens = torch.randint(0, 6, (5, 3))
    model(tokens)
    model.eval()
    model(tokens)
    assert torch.equal(model.posterior.mean, before)


# ---------------------------------------------------------------------------------------------------------
# How layers are called.


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


def contents(net: nn.Module) -> dict[str, Tensor | None]:
    """What stands in the network's slots for parameters."""
    return {
        f"{name}.{local}": tensor
        for name, module in net.named_modules()
        for local, tensor in module._parameters.items()
    }


SLOTTED: dict[str, Any] = {
    "plain": lambda: nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)),
    "shared by two layers": lambda: shared(nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))),
    "one layer twice": lambda: nn.Sequential(layer := nn.Linear(4, 4), nn.Tanh(), layer),
    "parametrised": lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)), nn.Linear(4, 4)),
}


def shared(net: nn.Sequential) -> nn.Sequential:
    """With one weight for its first and its last layer."""
    net[2].weight = net[0].weight
    return net


@pytest.mark.parametrize("kind", SLOTTED)
def test_slots_are_filled_for_the_length_of_a_call(kind: str) -> None:
    """By the given tensors themselves; empty again after a call, a failure and tensors that are missing."""
    net = SLOTTED[kind]()
    model = lift(net)
    x = torch.randn(5, 4)
    weights = {name: torch.randn(p.shape) for name, p in net.named_parameters(remove_duplicate=False)}
    # A shared parameter has one value under all of its names.
    weights = {name: weights[site.name] for site in model.layout.sites for name in site.names}
    expected = torch.func.functional_call(net, {site.name: weights[site.name] for site in model.layout.sites}, (x,))
    during: list[dict[str, Tensor | None]] = []
    hook = model.net[1].register_forward_hook(lambda *_: during.append(contents(model.net)))
    torch.testing.assert_close(model.call(weights, x), expected)
    hook.remove()
    assert all(any(tensor is given for given in weights.values()) for tensor in during[0].values())
    assert during[0]
    assert set(contents(model.net).values()) == {None}

    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        model.call(weights, torch.randn(5, 7))
    assert set(contents(model.net).values()) == {None}
    missing = {name: tensor for name, tensor in weights.items() if name != model.layout.sites[-1].name}
    with pytest.raises(KeyError):
        model.call(missing, x)
    assert set(contents(model.net).values()) == {None}
    torch.testing.assert_close(model.call(weights, x), expected)


@pytest.mark.parametrize("fails", [False, True])
def test_a_call_within_a_call_leaves_the_outer_one_its_weights(fails: bool) -> None:
    """A hook evaluates the same network at other weights, and may fail at it."""
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    model = lift(net)
    outer, inner = ({name: torch.randn(p.shape) for name, p in net.named_parameters()} for _ in range(2))
    x, found = torch.randn(5, 4), []

    def evaluate(*_: Any) -> None:
        if found:
            return
        found.append(torch.zeros(0))
        try:
            found.append(model.call(inner, x[:, :3] if fails else x))
        except RuntimeError:
            assert fails

    hook = model.net[1].register_forward_hook(evaluate)
    torch.testing.assert_close(model.call(outer, x), torch.func.functional_call(net, outer, (x,)))
    hook.remove()
    assert len(found) == 1 + (not fails)
    if not fails:
        torch.testing.assert_close(found[1], torch.func.functional_call(net, inner, (x,)))
    assert set(contents(model.net).values()) == {None}


@each_estimator
def test_hooks_run_as_in_any_network(estimator: str) -> None:
    net = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    seen: list[Tensor] = []
    net[2].register_forward_pre_hook(lambda _module, args: (2 * args[0],))
    net[2].register_forward_hook(lambda _module, _args, output: seen.append(output.detach()))
    model = lift(net, {"name": "mean_field", "initial_std": 1e-10}, estimator=estimator)
    x = torch.randn(5, 4)
    outputs = model(x)
    assert len(seen) == 1
    assert torch.equal(seen[0], outputs)
    torch.testing.assert_close(outputs, net(x), rtol=1e-5, atol=1e-5)


@each_estimator
def test_a_forward_of_the_instance_is_respected_and_kept(estimator: str) -> None:
    """Offloading and tracing tools put their own forward on a layer object."""
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3))
    net[0].forward = lambda x: 3 * x
    model = lift(net, {"name": "mean_field", "initial_std": 1e-10}, estimator=estimator)
    x = torch.randn(5, 4)
    for _ in range(2):
        torch.testing.assert_close(model(x), net(x), rtol=1e-5, atol=1e-5)


class Doubled(nn.Linear):
    """A linear layer that computes something else."""

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight.square(), self.bias)


@each_estimator
def test_subclasses_with_their_own_forward_are_not_taken_for_linear(estimator: str) -> None:
    net = nn.Sequential(Doubled(4, 4), nn.Linear(4, 3))
    model = lift(net, {"name": "mean_field", "initial_std": 1e-10}, estimator=estimator)
    x = torch.randn(5, 4)
    torch.testing.assert_close(model(x), net(x), rtol=1e-5, atol=1e-5)
    rows = {row.name: row.estimator for row in model.describe().rows}
    if estimator in ("flipout", "local_reparameterization"):
        assert rows["0.weight"] == "weight_sampling (Doubled is not linear in it through its own forward)"
        assert rows["1.weight"] == estimator


def test_describe_names_what_each_site_really_gets() -> None:
    net, _ = make("convolutions")
    rows = {row.name: row for row in lift(net, estimator="local_reparameterization").describe().rows}
    assert rows["0.weight"].estimator == "local_reparameterization (approximate: positions independent)"
    assert rows["5.weight"].estimator == "local_reparameterization"
    rows = {row.name: row for row in lift(net, estimator="flipout").describe().rows}
    assert rows["0.weight"].estimator == "flipout"
    assert rows["0.bias"].estimator == "weight_sampling (bias, shared by the batch)"
    lstm, _ = make("lstm")
    rows = {row.name: row for row in lift(lstm, estimator="flipout").describe().rows}
    assert rows["cells.weight_ih_l0"].estimator.startswith("weight_sampling (LSTM")
    assert rows["embedding.weight"].estimator.startswith("weight_sampling (Embedding")
    attention = lift(Attention(), estimator="flipout").describe().rows
    assert all(row.estimator.startswith("weight_sampling") for row in attention if "attention" in row.name)
    laplace = lift(net, estimator={"name": "variational_laplace", "curvature": "fisher_reparameterised"})
    assert {row.estimator for row in laplace.describe().rows} == {"variational_laplace (fisher_reparameterised)"}


def test_cautions_name_the_layers_without_curvature() -> None:
    net = nn.Sequential(nn.Conv1d(2, 2, 2), nn.ReLU(), nn.MaxPool1d(2), nn.Flatten(), nn.Linear(4, 3))
    with pytest.warns(bw.BayeswellWarning, match=r"'1' \(ReLU\), '2' \(MaxPool1d\)"):
        bw.bayesian(net, estimator="variational_laplace")
    with pytest.warns(bw.BayeswellWarning, match="hessian"):
        bw.bayesian(nn.Linear(3, 2), estimator={"name": "variational_laplace", "curvature": "hessian"})
    bw.bayesian(nn.Sequential(nn.Linear(3, 2), nn.Softplus()), estimator="variational_laplace")


# ---------------------------------------------------------------------------------------------------------
# Where.

ALL = ["convolution.weight", "convolution.bias", "out.weight", "out.bias"]
NORMS = [f"{layer}_norm.{part}" for layer in ("batch", "group", "layer") for part in ("weight", "bias")]
WHERE: dict[str, tuple[Any, list[str]]] = {
    "all": ("all", ALL),
    "last layer": ("last_layer", ["out.weight", "out.bias"]),
    "a parameter": ("out.bias", ["out.bias"]),
    "a module": ("convolution", ["convolution.weight", "convolution.bias"]),
    "a pattern": ("*.weight", [name for name in [*ALL, *NORMS] if name.endswith("weight")]),
    "patterns": (["conv*", "out.weight"], ["convolution.weight", "convolution.bias", "out.weight"]),
    "a tuple of patterns": (("out", "group_norm"), ["group_norm.weight", "group_norm.bias", *ALL[2:]]),
    "a set of patterns": ({"out.*"}, ["out.weight", "out.bias"]),
    "a type": (nn.Linear, ["out.weight", "out.bias"]),
    "types": ((nn.Linear, nn.LayerNorm), ["layer_norm.weight", "layer_norm.bias", *ALL[2:]]),
    "a base class": (nn.Module, [*ALL, *NORMS]),
    "a function": (lambda name, module, parameter: parameter.dim() > 1, ["convolution.weight", "out.weight"]),
    "a function of the module": (lambda name, module, _: isinstance(module, nn.Conv2d), ALL[:2]),
}


@pytest.mark.parametrize("form", WHERE)
def test_where(form: str) -> None:
    where, chosen = WHERE[form]
    net, inputs = make("normalised")
    model = lift(net, where=where)
    assert set(model.layout.slices) == set(chosen)
    assert set(reasons(model)) == set(ALL + NORMS) - set(chosen)
    train(model, inputs)


def test_the_function_is_given_the_name_its_module_and_the_parameter() -> None:
    net, _ = make("custom")
    given: list[tuple[str, nn.Module, Tensor]] = []
    lift(net, where=lambda *arguments: given.append(arguments) is None)
    assert [name for name, _, _ in given] == [name for name, _ in net.named_parameters()]
    for name, module, parameter in given:
        assert parameter is net.get_parameter(name)
        assert module is net.get_submodule(name.rpartition(".")[0])


def test_last_layer_looks_past_frozen_and_normalisation_layers() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3), nn.BatchNorm1d(3))
    assert set(lift(net, where="last_layer").layout.slices) == {"1.weight", "1.bias"}
    net[1].requires_grad_(False)
    assert set(lift(net, where="last_layer").layout.slices) == {"0.weight", "0.bias"}


def test_a_shared_parameter_is_found_under_each_of_its_names() -> None:
    for where in ("decoder", "embedding", "decoder.weight"):
        names = {site.names for site in lift(Tied(), where=where).layout.sites}
        assert ("embedding.weight", "decoder.weight") in names


def test_reasons_tell_unchosen_frozen_and_normalisation_apart() -> None:
    net = Normalised()
    net.out.bias.requires_grad_(False)
    net.register_parameter("empty", nn.Parameter(torch.zeros(0, 3)))
    net.register_parameter("phase", nn.Parameter(torch.zeros(2, dtype=torch.complex64)))
    found = reasons(lift(net, where="last_layer"))
    found.update({name: reason for name, reason in reasons(lift(net)).items() if "norm" not in name})
    assert found["out.bias"] == "frozen (requires_grad=False)"
    assert found["batch_norm.weight"].startswith("normalisation layer")
    assert found["empty"] == "empty"
    assert found["phase"].startswith("not a real floating-point")
    assert reasons(lift(net, where="out"))["convolution.weight"] == "not chosen by where"


def test_integer_parameters_do_not_stop_lifting() -> None:
    net, inputs = make("mlp")
    net.register_parameter("count", nn.Parameter(torch.tensor([3]), requires_grad=False))
    model = lift(net)
    assert "count" in reasons(model)
    train(model, inputs)


def test_custom_parameters_are_sites_of_their_own() -> None:
    net = Custom()
    model = lift(net)
    shapes = {site.name: site.shape for site in model.layout.sites}
    assert shapes["scale"] == ()
    assert shapes["matrices.1"] == (4, 4)
    assert shapes["offsets.first"] == (4,)
    assert shapes["block.0.0.weight"] == (4, 4)


def test_a_repeated_module_is_one_pair_of_sites() -> None:
    model = lift(Repeated())
    assert {site.names for site in model.layout.sites if "out" not in site.name} == {
        ("first.weight", "second.weight"),
        ("first.bias", "second.bias"),
    }


def test_the_network_itself_may_be_a_single_layer() -> None:
    model = lift(nn.Linear(4, 3), estimator="local_reparameterization")
    assert set(model.layout.slices) == {"weight", "bias"}
    train(model, torch.randn(5, 4))


# ---------------------------------------------------------------------------------------------------------
# torch.compile.


@pytest.mark.slow
@pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="torch.compile needs a compiler")
@pytest.mark.filterwarnings("ignore")  # of torch's own compiler
@each_estimator
def test_compiled_networks_compute_the_same(estimator: str) -> None:
    net, inputs = make("mlp")
    model = lift(net, estimator=estimator)
    randomise(model)
    compiled = torch.compile(model)
    model.eval()
    torch.testing.assert_close(compiled(inputs), model(inputs), rtol=1e-4, atol=1e-5)
    model.train()
    outputs = compiled(inputs)
    F.cross_entropy(outputs, LABELS).backward()
    assert model.posterior.mean.grad is not None
    assert bool(model.posterior.mean.grad.isfinite().all())
    if estimator != "variational_laplace":
        assert not torch.equal(compiled(inputs), outputs), "noise is drawn anew in every call"


def test_transformers_of_every_order_are_covered() -> None:
    """Both axis orders agree on what they compute, so that the list of networks tests what it says."""
    torch.manual_seed(99)
    first = Transformer()
    second = Transformer(batch_first=False)
    second.load_state_dict(first.state_dict())
    x = torch.randn(5, 3, 4)
    torch.testing.assert_close(first(x), second(x))
