"""Calls of Bayesian networks against plain networks with the same weights."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

from bayeswell.core.errors import CompositionError, NetworkError, SettingError
from bayeswell.core.protocols import NoMean
from bayeswell.nn import BayesianModule, bayesian, plain_attention, trained_params
from bayeswell.posteriors import Empirical, MeanField
from bayeswell.priors import Normal, build_prior
from networks import NETWORKS, Recurrent, make


def drawn(model: BayesianModule, seed: int = 1) -> dict[str, Tensor]:
    return next(iter(model.posterior.draws(1, torch.Generator().manual_seed(seed))))


def with_weights(net: nn.Module, weights: dict[str, Tensor]) -> nn.Module:
    plain = copy.deepcopy(net)
    with torch.no_grad():
        for name, value in weights.items():
            plain.get_parameter(name).copy_(value)
    return plain


def wide(net: nn.Module, **settings: Any) -> BayesianModule:
    return bayesian(net, MeanField(initial_std=0.1), **settings).eval()


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("with_gradient", [True, False])
def test_call_equals_the_plain_network_bit_for_bit(name: str, with_gradient: bool) -> None:
    net, inputs = make(name)
    model = wide(net)
    with torch.set_grad_enabled(with_gradient):
        for seed in range(3):
            weights = drawn(model, seed)
            # Kernels round differently where a weight does not begin at a multiple of 64 bytes, so both get the views.
            assert torch.equal(model.call(weights, inputs), functional_call(copy.deepcopy(net), weights, (inputs,)))
            torch.testing.assert_close(model.call(weights, inputs), with_weights(net, weights)(inputs))
        torch.testing.assert_close(model(inputs), net(inputs))


@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_are_those_of_the_plain_network(name: str) -> None:
    net, inputs = make(name)
    model, labels = wide(net), torch.tensor([0, 2, 1, 1, 0])
    weights = drawn(model)
    flat = model.layout.flatten(weights).requires_grad_()
    F.cross_entropy(model.call(model.layout.unflatten(flat), inputs), labels).backward()
    plain = with_weights(net, weights)
    F.cross_entropy(plain(inputs), labels).backward()
    expected = {key: parameter.grad for key, parameter in plain.named_parameters() if parameter.grad is not None}
    torch.testing.assert_close(flat.grad, model.layout.flatten(expected))


@pytest.mark.parametrize("name", ["mlp", "cnn", "transformer", "tied"])
def test_vmap_of_grad_gives_gradients_by_example(name: str) -> None:
    net, inputs = make(name)
    model, labels = wide(net), torch.tensor([0, 2, 1, 1, 0])
    flat = model.posterior.mean.detach()

    def loss(flat: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(model.call(model.layout.unflatten(flat), x[None]), y[None])

    with plain_attention():
        found = vmap(grad(loss), (None, 0, 0))(flat, inputs, labels)
    for index in range(5):
        weights = flat.clone().requires_grad_()
        loss(weights, inputs[index], labels[index]).backward()
        torch.testing.assert_close(found[index], weights.grad, rtol=1e-4, atol=1e-6)


def test_vmap_over_draws() -> None:
    net, inputs = make("cnn")
    model = wide(net)
    flat = torch.stack([model.layout.flatten(drawn(model, seed)) for seed in range(3)])
    outputs = vmap(lambda w: model.call(model.layout.unflatten(w), inputs))(flat)
    for w, output in zip(flat, outputs, strict=True):
        torch.testing.assert_close(output, model.call(model.layout.unflatten(w), inputs), rtol=1e-4, atol=1e-5)


def test_given_network_is_not_changed() -> None:
    net, inputs = make("normalized")
    before = copy.deepcopy(net.state_dict())
    model = wide(net).train()
    F.cross_entropy(model(inputs), torch.zeros(5, dtype=torch.long)).backward()
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert all(parameter.grad is None for parameter in net.parameters())


def test_training_mode_draws_and_evaluation_mode_does_not() -> None:
    net, inputs = make("mlp")
    model = wide(net)
    assert torch.equal(model(inputs), model(inputs))
    model.train()
    assert not torch.equal(model(inputs), model(inputs))


def test_inputs_by_position_and_by_name() -> None:
    class TwoInputs(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right = nn.Linear(4, 3), nn.Linear(2, 3)

        def forward(self, left: Tensor, right: Tensor, gain: float = 1.0) -> Tensor:
            return self.left(left) + gain * self.right(right)

    net, left, right = TwoInputs(), torch.randn(5, 4), torch.randn(5, 2)
    model, weights = wide(net), None
    weights = drawn(model)
    truth = with_weights(net, weights)(left, right, gain=0.3)
    assert torch.equal(model.call(weights, (left, right, 0.3)), truth)
    assert torch.equal(model.call(weights, {"right": right, "gain": 0.3, "left": left}), truth)
    assert torch.equal(model(left, gain=0.3, right=right), net(left, right, 0.3))


class DividesInPlace(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x /= 2.0
        return self.layer(x)


class NoisyInTraining(DividesInPlace):
    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            x += 1
        return self.layer(x)


IN_PLACE: list[Callable[[], nn.Module]] = [
    DividesInPlace,
    NoisyInTraining,
    lambda: nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 3)),
    lambda: nn.Sequential(nn.Flatten(), nn.Dropout(0.5, inplace=True), nn.Linear(4, 3)),
]


@pytest.mark.parametrize("network", IN_PLACE)
def test_networks_that_write_into_their_inputs(network: Callable[[], nn.Module]) -> None:
    net, x = network(), torch.randn(5, 4)
    before, model = x.clone(), wide(net)
    truth = net.eval()(x.clone())
    weights = model.layout.unflatten(model.posterior.mean.detach())
    for grad_mode in (torch.no_grad, torch.enable_grad, torch.inference_mode):
        with grad_mode():
            for _ in range(3):
                assert torch.equal(model.call(weights, x), truth)
    model.train()
    for _ in range(3):
        model.call(weights, x)
        model(x)
    assert torch.equal(x, before)


def test_inputs_are_not_copied_where_the_network_only_reads() -> None:
    seen: list[int] = []
    net = nn.Sequential(nn.Identity(), nn.Linear(4, 3))
    net[0].register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].data_ptr()))
    model, x = wide(net), torch.randn(5, 4)
    for _ in range(3):
        model(x)
    assert seen[1:] == [x.data_ptr()] * 2


def test_threads_do_not_see_each_others_weights() -> None:
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Softplus(), nn.Flatten(), nn.Linear(144, 3))
    first = wide(net)
    second = first.with_posterior(copy.deepcopy(first.posterior))
    tasks = [(model, drawn(model, seed), torch.randn(6, 1, 8, 8)) for seed in range(4) for model in (first, second)]
    truths = [model.call(weights, x) for model, weights, x in tasks]
    wrong: list[int] = []

    def work(index: int) -> None:
        model, weights, x = tasks[index]
        wrong.extend(index for _ in range(25) if not torch.equal(model.call(weights, x), truths[index]))

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(tasks))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_copies_and_pickles_compute_the_same() -> None:
    for name in ("lstm", "cnn", "tied"):
        net, inputs = make(name)
        model = wide(net)
        expected = model(inputs)
        for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            assert torch.equal(other(inputs), expected)
            with torch.no_grad():
                other.posterior.mean.add_(1)
            assert torch.equal(model(inputs), expected)
            assert not torch.equal(other(inputs), expected)


def test_state_dict_restores_a_model() -> None:
    net, inputs = make("normalized")
    model = wide(net)
    with torch.no_grad():
        model.posterior.mean.normal_()
        model.net.batch_norm.running_mean.normal_()
    again = wide(net)
    again.load_state_dict(model.state_dict())
    assert torch.equal(again(inputs), model(inputs))


def test_models_of_one_network_share_it() -> None:
    net, inputs = make("normalized")
    model = wide(net)
    other = model.with_posterior(copy.deepcopy(model.posterior)).with_prior(
        build_prior(Normal(0.3), model.layout, model.posterior.mean)
    )
    assert other.net is model.net
    assert not any(module.training for module in model.net.modules())
    assert not other.training
    assert torch.equal(other(inputs), model(inputs))
    torch.testing.assert_close(other.prior.std(), torch.full((model.layout.size,), 0.3))


def test_set_of_networks_is_predicted_by_its_draws() -> None:
    net, inputs = make("mlp")
    model = wide(net, prediction="linearized")
    weights = torch.stack([model.layout.flatten(drawn(model, seed)) for seed in range(3)])
    posterior = Empirical(model.layout, weights)
    bank = model.with_posterior(posterior)
    assert bank.prediction == "sampled"
    with pytest.raises(NoMean):
        bank(inputs)
    with pytest.raises(CompositionError, match="mean network"):
        model.with_posterior(posterior, "mean")


def test_recurrent_layers_keep_no_graph() -> None:
    net, inputs = make("lstm")
    model = wide(net).train()
    model(inputs)
    held = [weight for weight in model.net.cells._flat_weights if isinstance(weight, Tensor)]
    assert not any(weight.grad_fn is not None for weight in held)


@pytest.mark.parametrize("where", ["out", "cells.weight_*"])
def test_recurrent_layers_with_some_deterministic_weights(where: str) -> None:
    for cell in (nn.LSTM, nn.GRU, nn.RNN):
        net, inputs = Recurrent(cell).eval(), torch.randint(0, 11, (5, 4))
        model = wide(net, where=where)
        for seed in range(3):
            weights = drawn(model, seed)
            torch.testing.assert_close(model.call(weights, inputs), with_weights(net, weights)(inputs))
        assert model.double()(inputs).dtype == torch.float64


def test_embedding_keeps_its_padding_row() -> None:
    net = nn.Sequential(nn.Embedding(6, 4, padding_idx=2), nn.Flatten(), nn.Linear(12, 3))
    with torch.no_grad():
        net[0].weight[2] = torch.tensor([0.1, 0.2, 0.3, 0.4])
    model, tokens = wide(net), torch.tensor([[0, 2, 2], [1, 3, 2]])
    weights = drawn(model)
    kept = {**weights, "0.weight": weights["0.weight"].clone()}
    kept["0.weight"][2] = net[0].weight[2].detach()
    assert not torch.equal(weights["0.weight"][2], kept["0.weight"][2])
    assert torch.equal(model.call(weights, tokens), with_weights(net, kept)(tokens))
    flat = model.posterior.mean
    (gradient,) = torch.autograd.grad(model.call(model.layout.unflatten(flat), tokens).sum(), flat)
    assert not gradient[8:12].any()


def test_embedding_with_max_norm_does_not_change_the_posterior() -> None:
    net = nn.Sequential(nn.Embedding(6, 4, max_norm=0.5), nn.Flatten(), nn.Linear(12, 3))
    model = wide(net)
    before = model.posterior.mean.detach().clone()
    model(torch.randint(0, 6, (5, 3)))
    assert torch.equal(model.posterior.mean, before)
    assert "max_norm" in model.selection.deterministic["0.weight"]


def test_other_parameters_are_trained_or_frozen() -> None:
    net, inputs = make("normalized")
    trained, frozen = wide(net, where="out"), wide(net, where="out", other_params="frozen").train()
    assert set(trained_params(trained.net)) == {n for n, _ in net.named_parameters() if not n.startswith("out")}
    assert not trained_params(frozen.net)
    before = copy.deepcopy(frozen.net.state_dict())
    frozen(inputs)
    assert all(torch.equal(value, before[name]) for name, value in frozen.net.state_dict().items())
    assert not frozen.net.batch_norm.training


def test_other_tensors_may_be_replaced_for_a_call() -> None:
    net, inputs = make("normalized")
    model = wide(net)
    extra = {"batch_norm.running_mean": torch.randn(4), "batch_norm.weight": torch.rand(4)}
    weights = drawn(model)
    truth = functional_call(net, {**weights, **extra}, (inputs,))
    assert torch.equal(model.call({**weights, **extra}, inputs), truth)
    assert torch.equal(model.call(weights, inputs), with_weights(net, weights)(inputs))


def test_std_ratio_and_description() -> None:
    model = bayesian(make("tied")[0], MeanField(initial_std=0.2), Normal(0.5))
    assert model.std_ratio() == pytest.approx(0.4)
    described = model.describe()
    assert described.rows[0].name == "embedding.weight"
    assert "decoder.weight" in described.rows[0].note
    assert described.bayesian_weights == 12 + 20
    assert "0.5" in str(described)
    assert "32 Bayesian weights, posterior=mean_field, prior=normal" in repr(model)


def test_start_is_in_the_middle_of_the_prior() -> None:
    """Uniform with the prior's std: bounds, mean and variance (5 standard errors: failure rate below 1e-6)."""
    net = nn.Linear(100, 100)
    model = bayesian(net, "delta", Normal(0.3), init="prior", generator=torch.Generator().manual_seed(3))
    mean, bound = model.posterior.mean.detach(), 0.3 * 3**0.5
    size = len(mean)
    assert float(mean.abs().max()) <= bound
    assert abs(float(mean.mean())) < 5 * 0.3 / size**0.5
    assert float(mean.square().mean()) == pytest.approx(0.09, abs=5 * 0.09 * (0.8 / size) ** 0.5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_compiled_bound_equals_the_plain_one() -> None:
    net, inputs = make("mlp")
    model, noise = wide(net), torch.randn(1, 51)

    def bound(noise: Tensor) -> Tensor:
        weights, kl = model.posterior.rsample_and_kl(noise, model.prior)
        assert weights is not None
        return model.call(model.layout.unflatten(weights[0]), inputs).square().sum() + kl

    compiled = torch.compile(bound, fullgraph=True)
    torch.testing.assert_close(compiled(noise), bound(noise))
    found = torch.autograd.grad(compiled(noise), list(model.posterior.parameters()))
    torch.testing.assert_close(found, torch.autograd.grad(bound(noise), list(model.posterior.parameters())))


@pytest.mark.parametrize("init", ["network", "reinit", "prior"])
@pytest.mark.parametrize("posterior", ["mean_field", "k_tied", "low_rank"])
def test_starts_are_reproducible(init: str, posterior: str) -> None:
    net = make("cnn")[0]
    models = []
    for noise in range(2):
        torch.manual_seed(noise)
        models.append(bayesian(net, posterior, init=init, generator=torch.Generator().manual_seed(5)))
    for one, other in zip(*[model.state_dict().values() for model in models], strict=True):
        assert torch.equal(one, other)


class Locked(nn.Linear):
    def __init__(self) -> None:
        super().__init__(2, 2)
        self.guard = threading.Lock()


def test_networks_that_cannot_be_used_are_refused() -> None:
    with pytest.raises(NetworkError, match="cannot be copied"):
        bayesian(Locked())
    with pytest.raises(NetworkError, match="already"):
        bayesian(bayesian(nn.Linear(2, 2)))
    with pytest.raises(NetworkError, match=r"nn\.Module"):
        bayesian(nn.functional.relu)  # type: ignore[arg-type]
    with pytest.raises(NetworkError, match="dtype"):
        bayesian(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double()))
    broken = nn.Linear(2, 2)
    nn.init.constant_(broken.weight, float("nan"))
    with pytest.raises(NetworkError, match="NaN"):
        bayesian(broken)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_scripted_networks_are_refused() -> None:
    with pytest.raises(NetworkError, match=r"torch\.jit"):
        bayesian(torch.jit.trace(nn.Linear(2, 2), torch.zeros(1, 2)))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"init": "redrawn"}, "init"),
        ({"other_params": "fixed"}, "other_params"),
        ({"prediction": "linear"}, "prediction"),
        ({"output": nn.Linear(2, 2)}, "output"),
        ({"output": 3}, "output"),
        ({"posterior": "meanfield"}, "posterior"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        bayesian(nn.Linear(2, 2), **settings)
