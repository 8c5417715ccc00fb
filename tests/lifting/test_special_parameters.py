"""Normalisation, buffers, frozen and shared parameters, recurrent nets and embeddings."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import bayeswell as bw
from lifting.lifted import ESTIMATORS, LABELS, reasons, train, with_tensors
from nets import (
    Recurrent,
    TwoInputs,
    call,
    generic,
    lift,
    make,
)


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
