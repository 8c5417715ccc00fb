"""Predictions from several threads at once are those of one thread, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayeswell as bw
from bayeswell.lifting import BayesianModule, with_drawn_dropout
from bayeswell.posteriors import Empirical, EmpiricalPosterior
from bayeswell.predictive import nll_of_draws
from side_by_side import in_threads

THREADS = 8
EACH = 8
"""Predictions of each thread: 64 in all. Without the guards most kinds of models go wrong in three runs of four."""

MANY = 25
"""The same where the models are cheap and no other test would see what goes wrong."""


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTM(4, 6, batch_first=True)
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.cell(x)[0][:, -1])
        return out


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.2, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.layer(x).mean(1))
        return out


def _dense() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 3))


def _convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 4, 3), nn.ReLU(), nn.Flatten(),
        nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3),
    )  # fmt: skip


VECTORS, IMAGES, SEQUENCES, WORDS = (9, 5), (6, 1, 10, 10), (6, 5, 4), (6, 5, 8)
LIKELIHOOD = bw.Categorical()


def _trained(model: BayesianModule, shape: tuple[int, ...]) -> BayesianModule:
    """A few steps of training: whatever an estimator leaves behind is there."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    objective = bw.ELBO(LIKELIHOOD, dataset_size=100)
    for _ in range(3):
        optimizer.zero_grad()
        objective(model, torch.randn(shape), torch.randint(0, 3, shape[:1])).total.backward()
        optimizer.step()
    return model


def _bank() -> BayesianModule:
    model = bw.bayesian(_convolutional(), posterior="delta")
    weights = model.posterior.mean_vector().detach() + 0.3 * torch.randn(5, model.layout.size)
    means = torch.randn(5, 4)
    bank = EmpiricalPosterior(model.layout, weights, {"1.running_mean": means})
    return model.with_posterior(Empirical(5, ("1.running_mean",)), bank)


def _lifted(net: nn.Module, **settings: Any) -> BayesianModule:
    return bw.bayesian(net, {"name": "mean_field", "initial_std": 0.3}, **settings)


KINDS: dict[str, tuple[Callable[[], BayesianModule], tuple[int, ...]]] = {
    "sampled": (lambda: _lifted(_dense()), VECTORS),
    "linearised": (lambda: _lifted(_dense(), prediction="linearised"), VECTORS),
    "stacked": (lambda: _lifted(_convolutional()), IMAGES),
    "local reparameterization": (
        lambda: _trained(_lifted(_dense(), estimator="local_reparameterization"), VECTORS),
        VECTORS,
    ),
    "flipout": (lambda: _trained(_lifted(_convolutional(), estimator="flipout"), IMAGES), IMAGES),
    "dropout": (lambda: bw.bayesian(with_drawn_dropout(_dense(), 0.3), posterior="delta"), VECTORS),
    "recurrent": (lambda: _lifted(Recurrent()), SEQUENCES),
    "recurrent, linearised": (lambda: _lifted(Recurrent(), prediction="linearised"), SEQUENCES),
    "attention": (lambda: _lifted(Attention()), WORDS),
    "attention, linearised": (lambda: _lifted(Attention(), prediction="linearised"), WORDS),
    "attention, dropout": (lambda: bw.bayesian(with_drawn_dropout(Attention()), posterior="delta"), WORDS),
    "bank": (_bank, IMAGES),
}


def _predict(model: BayesianModule, inputs: Tensor, seed: int) -> Tensor:
    prediction = bw.predict(model, inputs, LIKELIHOOD, draws=2, seed=seed, keep_samples=True)
    return prediction.samples


@pytest.mark.parametrize(
    ("kind", "training"), [*((kind, False) for kind in KINDS), ("sampled", True), ("stacked", True)]
)
def test_of_one_model(kind: str, training: bool) -> None:
    """64 predictions by 8 threads, each with a seed of its own; the model is left in the mode it had."""
    build, shape = KINDS[kind]
    model, inputs = build().train(training), torch.randn(shape)
    alone = [_predict(model, inputs, seed) for seed in range(THREADS)]
    assert not any(torch.equal(alone[0], other) for other in alone[1:]) or kind == "bank"

    def repeat(seed: int) -> list[Tensor]:
        return [_predict(model, inputs, seed) for _ in range(EACH)]

    found = in_threads([lambda seed=seed: repeat(seed) for seed in range(THREADS)])  # type: ignore[misc]
    wrong = sum(not torch.equal(one, alone[seed]) for seed in range(THREADS) for one in found[seed])
    assert wrong == 0, f"{wrong} of {THREADS * EACH} differ"
    assert all(module.training == training for module in model.modules())


def test_of_different_models_at_once() -> None:
    """Each thread another kind of model: what one of them switches in the whole process disturbs no other."""
    models = {kind: (build(), torch.randn(shape)) for kind, (build, shape) in KINDS.items()}
    alone = {kind: _predict(*given, seed=1) for kind, given in models.items()}
    fast_path = torch.backends.mha.get_fastpath_enabled(), torch.backends.mkldnn.enabled

    def repeat(kind: str) -> int:
        return sum(not torch.equal(_predict(*models[kind], seed=1), alone[kind]) for _ in range(EACH))

    found = in_threads([lambda kind=kind: repeat(kind) for kind in KINDS])  # type: ignore[misc]
    assert dict(zip(KINDS, found, strict=True)) == dict.fromkeys(KINDS, 0)
    assert (torch.backends.mha.get_fastpath_enabled(), torch.backends.mkldnn.enabled) == fast_path


def test_of_models_that_share_a_network() -> None:
    """``with_posterior`` shares the network: two posteriors of it predict at once, and one in training mode trains."""
    first = _lifted(_convolutional())
    weights = first.posterior.mean_vector().detach() + 0.3 * torch.randn(4, first.layout.size)
    second = first.with_posterior(Empirical(4), EmpiricalPosterior(first.layout, weights))
    inputs = torch.randn(IMAGES)
    alone = [_predict(model, inputs, 3) for model in (first, second)]

    def repeat(which: int) -> int:
        model = (first, second)[which]
        return sum(not torch.equal(_predict(model, inputs, 3), alone[which]) for _ in range(MANY))

    assert in_threads([lambda which=index % 2: repeat(which) for index in range(THREADS)]) == [0] * THREADS  # type: ignore[misc]


def test_expected_nll() -> None:
    """The other way to run draws, which shares all of it but the averages."""
    model, inputs, targets = _lifted(_dense()), torch.randn(VECTORS), torch.randint(0, 3, VECTORS[:1])

    def losses(seed: int) -> Tensor:
        return nll_of_draws(model, inputs, targets, LIKELIHOOD, draws=3, seed=seed)

    alone = [losses(seed) for seed in range(THREADS)]
    found = in_threads([lambda seed=seed: [losses(seed) for _ in range(MANY)] for seed in range(THREADS)])  # type: ignore[misc]
    assert all(torch.equal(one, alone[seed]) for seed in range(THREADS) for one in found[seed])
