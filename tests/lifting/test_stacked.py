"""Several draws run at once give what one network at a time gives, and only where that is known to be so."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

import bayeswell as bw
from bayeswell.lifting import stacked, with_drawn_dropout
from bayeswell.lifting.stacked import Stack
from bayeswell.native import library
from bayeswell.posteriors import Empirical, EmpiricalPosterior, factorised
from bayeswell.predictive import nll_of_draws
from bayeswell.random import LEAST_COUNTED, make_generator, standard_normal

DRAWS = 7
TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}


def chain(*layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(*layers)


def with_norm() -> nn.Module:
    net = chain(
        nn.Conv2d(2, 6, 3, bias=False), nn.BatchNorm2d(6), nn.SiLU(), nn.Dropout2d(0.3),
        nn.Conv2d(6, 4, 3, stride=2, padding=1), nn.BatchNorm2d(4, affine=False), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Dropout(0.5), nn.Linear(16, 3),
    )  # fmt: skip
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.get_buffer("running_mean").normal_(0.2, 0.5)
            module.get_buffer("running_var").uniform_(0.4, 2.5)
            if module.affine:
                nn.init.normal_(module.weight, 1.3, 0.2)
                nn.init.normal_(module.bias, -0.4, 0.2)
    return net


def grouped() -> nn.Module:
    """Groups of its own within each network, and windows of every kind."""
    act = nn.Tanh()
    return chain(
        nn.ZeroPad2d((1, 0, 2, 1)), nn.Conv2d(2, 6, 3, dilation=2), act, nn.MaxPool2d((3, 2), stride=(1, 2)),
        chain(nn.Conv2d(6, 9, (3, 1), groups=3, padding="same"), act, nn.MaxPool2d(3, stride=2, padding=1)),
        nn.Conv2d(9, 4, 1), nn.AvgPool2d(2), act, nn.Flatten(), nn.Linear(8, 5), nn.ReLU(), nn.Linear(5, 3),
    )  # fmt: skip


def cut_windows() -> nn.Module:
    """Windows that do not fit: left over, or cut by ``ceil_mode``."""
    return chain(
        nn.Conv2d(2, 5, 2), nn.ReLU(), nn.MaxPool2d(2), nn.ReLU(), nn.MaxPool2d(2, ceil_mode=True),
        nn.Conv2d(5, 3, 2), nn.MaxPool2d(2, ceil_mode=True), nn.Flatten(),
    )  # fmt: skip


def repeated() -> nn.Module:
    """A convolution, and a dense layer, that stand in two places; and one that works in place."""
    again, dense = nn.Conv2d(4, 4, 3, padding=1), nn.Linear(256, 256)
    return chain(
        nn.Conv2d(1, 4, 3, padding=1), nn.LeakyReLU(0.3, inplace=True), again, nn.ReLU(), again, nn.Flatten(),
        dense, nn.Tanh(), dense, nn.Linear(256, 3),
    )  # fmt: skip


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, int, int]]] = {
    "repeated": (repeated, (1, 8, 8)),
    "lenet5": (lambda: bw.build_model("lenet5", (1, 28, 28), 3), (1, 28, 28)),
    "lenet_hwa": (lambda: bw.build_model({"name": "lenet_hwa", "width": 3}, (1, 13, 11), 3), (1, 13, 11)),
    "norm": (with_norm, (2, 10, 9)),
    "grouped": (grouped, (2, 12, 12)),
    "cut": (cut_windows, (2, 12, 12)),
}


def lifted(name: str, **settings: Any) -> tuple[bw.BayesianModule, nn.Module, Tensor]:
    """A Bayesian network of generic weights, the network it was made from, and images for it."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(4)
        net = NETWORKS[name][0]()
        model = bw.bayesian(net, **{"posterior": {"name": "mean_field", "initial_std": 0.13}, **settings})
    return model, net.eval(), torch.randn(11, *NETWORKS[name][1], generator=make_generator(5))


def one_by_one(model: bw.BayesianModule, net: nn.Module, x: Tensor, draws: int, seed: int) -> Tensor:
    """(D, S, K) probabilities by torch's own way of calling a network with other weights."""
    model.eval()
    drawn = model.draws(draws, make_generator(seed))
    with torch.no_grad():
        return torch.stack([functional_call(net, dict(tensors), (x,)).softmax(-1) for tensors in drawn])


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many networks each run took at once."""
    counts: list[int] = []
    original = stacked._run

    def noted(layers: Any, images: Tensor, networks: int) -> Any:
        counts.append(networks)
        return original(layers, images, networks)

    monkeypatch.setattr(stacked, "_run", noted)
    return counts


# ------------------------------------------------------------------------------------- the same outputs


@pytest.mark.parametrize("name", NETWORKS)
def test_draws_at_once_are_the_networks_one_by_one(name: str, runs: list[int]) -> None:
    model, net, x = lifted(name)
    found = bw.predict(model.train(), x, bw.Categorical(), draws=DRAWS, seed=6, keep_samples=True)
    assert runs
    assert set(runs) == {DRAWS}
    expected = one_by_one(model, net, x, DRAWS, seed=6)
    assert expected.std(0).max() > 0.01
    torch.testing.assert_close(found.samples, expected, **TOLERANCE)
    torch.testing.assert_close(found.probabilities, expected.mean(0), **TOLERANCE)


@pytest.mark.parametrize("name", NETWORKS)
def test_groups_pieces_and_halves_change_nothing(name: str, runs: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    model, net, x = lifted(name)
    expected = one_by_one(model, net, x, DRAWS, seed=6)
    monkeypatch.setattr(stacked, "MOST_DRAWS", 3)
    monkeypatch.setattr(stacked, "_PIECE", 1)
    found = bw.predict(model, x, bw.Categorical(), draws=DRAWS, seed=6, keep_samples=True)
    # 7 draws in three groups, and for each a look at the first example before all 11, one at a time.
    assert runs == [2] * 12 + [2] * 12 + [3] * 12
    torch.testing.assert_close(found.samples, expected, **TOLERANCE)
    runs.clear()
    monkeypatch.setattr(stacked, "MOST_FEATURES", 1)
    found = bw.predict(model, x, bw.Categorical(), draws=DRAWS, seed=6, batch_size=4, keep_samples=True)
    assert {1, 2, 3} == set(runs)
    torch.testing.assert_close(found.samples, expected, **TOLERANCE)


@pytest.mark.parametrize("where", ["*.weight", "*.bias", "last_layer", "4*"])
def test_parameters_without_a_posterior_are_the_networks_own(where: str, runs: list[int]) -> None:
    model, net, x = lifted("norm", where=where)
    found = bw.predict(model, x, bw.Categorical(), draws=DRAWS, seed=7, keep_samples=True)
    assert set(runs) == {DRAWS}
    torch.testing.assert_close(found.samples, one_by_one(model, net, x, DRAWS, seed=7), **TOLERANCE)


def test_a_bank_and_the_nll_of_draws(runs: list[int]) -> None:
    model, net, x = lifted("cut")
    weights = model.posterior.sample(torch.randn(4, model.posterior.noise_size, generator=make_generator(8)))
    bank = model.with_posterior(Empirical(4), EmpiricalPosterior(model.layout, weights))
    labels = torch.randint(0, 3, (11,), generator=make_generator(9))
    found = nll_of_draws(bank, x, labels, bw.Categorical(), draws=9, batch_size=6, seed=10)
    assert set(runs) == {4}
    expected = -one_by_one(bank, net, x, 4, seed=10)[:, torch.arange(11), labels].log().mean(1)
    torch.testing.assert_close(found.float(), expected, **TOLERANCE)


def test_what_follows_the_images_may_be_anything(runs: list[int]) -> None:
    """Layers behind the flattening are called as ever: hooks see every draw, in order."""
    model, _, x = lifted("grouped")
    seen: list[Tensor] = []
    last = model.net.get_submodule("11")
    last.register_forward_hook(lambda _, inputs, outputs: seen.append(outputs))
    found = bw.predict(model, x, bw.Categorical(), draws=DRAWS, seed=6, keep_samples=True)
    assert set(runs) == {DRAWS}
    torch.testing.assert_close(torch.stack(seen).softmax(-1), found.samples)


def test_images_that_do_not_fit_are_refused_in_the_words_of_the_network() -> None:
    model, _, x = lifted("lenet5")
    for wrong in (x.expand(-1, 2, -1, -1), x[..., :9]):
        with pytest.raises(RuntimeError) as alone:
            model.eval().call(model.draw(make_generator(1)), wrong)
        with pytest.raises(bw.NetworkError) as together:
            bw.predict(model, wrong, bw.Categorical(), draws=3, seed=1)
        assert " ".join(str(alone.value).split())[:100] in str(together.value)


def test_inputs_that_are_not_a_batch_of_images_go_alone(runs: list[int]) -> None:
    model, net, x = lifted("lenet5")
    found = bw.predict(model, (x,), bw.Categorical(), draws=2, seed=6, keep_samples=True)
    assert not runs
    torch.testing.assert_close(found.samples, one_by_one(model, net, x, 2, seed=6), **TOLERANCE)


# ------------------------------------------------------------------------------------ where it is not taken


class Doubled(nn.Conv2d):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


class Own(nn.Module):
    """Code of one's own around known layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = small()

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x if x.mean() > 0 else -x)


def small(*, first: nn.Module | None = None, flatten: nn.Module | None = None) -> nn.Sequential:
    return chain(first or nn.Conv2d(2, 4, 3), nn.ReLU(), flatten or nn.Flatten(), nn.Linear(256, 3))


def hooked(name: str, before: bool = False) -> nn.Module:
    net = chain(small())
    module = net.get_submodule(name)
    if before:
        module.register_forward_pre_hook(lambda _, inputs: (inputs[0] + 0.5,))
    else:
        module.register_forward_hook(lambda _, inputs, outputs: 3 * outputs)
    return net


def patched() -> nn.Module:
    net = small()
    net[1].forward = lambda x: x.clamp_max(0.3)  # type: ignore[method-assign]
    return net


def reparameterised() -> nn.Module:
    return small(first=nn.utils.parametrizations.weight_norm(nn.Conv2d(2, 4, 3)))


ALONE: dict[str, Callable[[], nn.Module]] = {
    "dense": lambda: chain(nn.Flatten(), nn.Linear(200, 3)),
    "residual blocks": lambda: bw.build_model({"name": "resnet18", "width": 2}, (2, 10, 10), 3),
    "code of one's own": Own,
    "a subclass": lambda: small(first=Doubled(2, 4, 3)),
    "reflected edges": lambda: small(first=nn.Conv2d(2, 4, 5, padding=1, padding_mode="reflect")),
    "a first layer with groups": lambda: small(first=nn.Conv2d(2, 4, 3, groups=2)),
    "norm first": lambda: small(first=chain(nn.BatchNorm2d(2), nn.Conv2d(2, 4, 3))),
    "norm by batch": lambda: small(first=chain(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4, track_running_stats=False))),
    "functions across channels": lambda: small(first=chain(nn.Conv2d(2, 4, 3), nn.Softmax(1))),
    "rows kept": lambda: chain(nn.Conv2d(2, 4, 3), nn.Flatten(2), nn.Flatten(), nn.Linear(256, 3)),
    "hook on a layer": lambda: hooked("0.1"),
    "hook before a layer": lambda: hooked("0.0", before=True),
    "hook on a chain": lambda: hooked("0"),
    "hook on the network": lambda: hooked(""),
    "patched": patched,
    "reparameterised": reparameterised,
}  # fmt: skip


@pytest.mark.parametrize("name", ALONE)
def test_other_networks_go_one_by_one(name: str, runs: list[int]) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(4)
        net = ALONE[name]()
        model = bw.bayesian(net, {"name": "mean_field", "initial_std": 0.13})
    x = torch.randn(11, 2, 10, 10, generator=make_generator(5))
    found = bw.predict(model, x, bw.Categorical(), draws=3, seed=6, keep_samples=True)
    assert not runs
    torch.testing.assert_close(found.samples, one_by_one(model, net.eval(), x, 3, seed=6), **TOLERANCE)


def test_drawn_dropout_members_with_statistics_and_large_networks_go_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert bw.bayesian(with_drawn_dropout(small(), 0.2), "delta").eval().stack() is None
    model = lifted("norm")[0].eval()
    assert isinstance(model.stack(), Stack)
    weights = model.posterior.mean_vector()[None].detach()
    extras = {"1.running_mean": torch.zeros(1, 6)}
    bank = EmpiricalPosterior(model.layout, weights, extras)
    assert model.with_posterior(Empirical(1, tuple(extras)), bank).eval().stack() is None
    # In training mode dropout and normalisation do something else.
    assert model.train().stack() is None
    monkeypatch.setattr(stacked, "MOST_WEIGHTS", model.layout.size - 1)
    assert model.eval().stack() is None


def test_a_call_of_ones_own_is_called(runs: list[int]) -> None:
    model, net, x = lifted("lenet5")
    model.call = lambda weights, inputs: functional_call(net, dict(weights), (-inputs,))  # type: ignore[method-assign]
    found = bw.predict(model, x, bw.Categorical(), draws=2, seed=6, keep_samples=True)
    assert not runs
    torch.testing.assert_close(found.samples, one_by_one(model, net, -x, 2, seed=6), **TOLERANCE)


def test_networks_in_memory_do_not_grow_with_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    model, _, x = lifted("cut")
    alive: weakref.WeakSet[Tensor] = weakref.WeakSet()
    most = 0
    original = model.draws

    def watched(count: int, generator: torch.Generator | None = None) -> Iterator[Mapping[str, Tensor]]:
        nonlocal most
        for tensors in original(count, generator):
            alive.add(tensors["0.weight"])
            most = max(most, len(alive))
            yield tensors
            del tensors

    monkeypatch.setattr(model, "draws", watched)
    monkeypatch.setattr(stacked, "MOST_DRAWS", 4)
    bw.predict(model, x, bw.Categorical(), draws=40, seed=6)
    assert most == 4


# ------------------------------------------------------------------------------------------- fresh draws

POSTERIORS = [
    {"name": "mean_field", "initial_std": 0.13},
    {"name": "mean_field", "initial_std": 0.13, "parameter": "rho"},
    {"name": "k_tied", "rank": 2, "initial_std": 0.13},
]


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("width", [20, 300])
@pytest.mark.parametrize("posterior", POSTERIORS, ids=["log_std", "rho", "k_tied"])
def test_fresh_draws_are_the_samples_of_the_same_generator(
    posterior: dict[str, Any], width: int, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library._Switch, "on", library._Switch.on and compiled)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(4)
        q = bw.bayesian(nn.Linear(150, width), posterior).posterior
    assert (q.noise_size >= LEAST_COUNTED) == (width == 300)
    # Five draws, in groups of 2, 2 and 1 where they are compiled.
    monkeypatch.setattr(factorised, "_TOGETHER", 2 * q.noise_size + 1)
    mine, other = make_generator(11), make_generator(11)
    for tensors in list(q.draws(5, mine)):
        noise = standard_normal((1, q.noise_size), like=q.mean_vector(), generator=other)
        expected = q.layout.unflatten(q.sample(noise)[0].detach())
        assert not tensors["weight"].requires_grad
        torch.testing.assert_close(tensors, expected, rtol=1e-5, atol=1e-6)
    # Both went on by the same amount.
    assert torch.equal(mine.get_state(), other.get_state())
