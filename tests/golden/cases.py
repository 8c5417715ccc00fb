"""The golden cases: eight methods on a regression and a classification, through the public face alone.

Every setting whose default may change is given. A case has one start of the network; the seed of a run decides the
order of the data and the noise of training.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn

import bayeswell as bw

TRAIN, TEST, ROWS, DRAWS = 200, 100, 8, 200
METHODS = ("map", "bbb", "k-tied", "vl", "hwa", "swag", "sghmc", "laplace")
RATES = {"sghmc": 0.003}
"""Learning rates that differ from the 0.01 of the other methods: a sampler's rate multiplies the gradient itself."""


def regression() -> tuple[Tensor, Tensor]:
    """Two inputs, one target with noise of std 0.3."""
    generator = torch.Generator().manual_seed(11)
    x = torch.rand(TRAIN + TEST, 2, generator=generator) * 4 - 2
    noise = 0.3 * torch.randn(len(x), 1, generator=generator)
    return x, 1.5 * torch.sin(1.5 * x[:, :1]) + x[:, 1:] + noise


def classification() -> tuple[Tensor, Tensor]:
    """Two inputs, three classes that are drawn from a softmax of a smooth function of the inputs."""
    generator = torch.Generator().manual_seed(12)
    x = torch.rand(TRAIN + TEST, 2, generator=generator) * 4 - 2
    logits = 3 * torch.stack([x[:, 0], torch.sin(2 * x[:, 1]), x[:, 0] * x[:, 1] - x[:, 0]], dim=1)
    return x, torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1)


PROBLEMS = {"regression": regression, "classification": classification}
LIKELIHOODS = {
    "regression": {"name": "gaussian", "noise": "known", "std": 0.3},
    "classification": "categorical",
}
EPOCHS = 60


def cases() -> dict[str, dict[str, Any]]:
    """The problem, the method and the temperature of each case, by its name."""
    chosen = [(method, 1.0) for method in METHODS] + [(method, "auto") for method in ("bbb", "hwa", "laplace")]
    return {
        f"{problem}/{method}/T={temperature}": {"problem": problem, "method": method, "temperature": temperature}
        for problem in PROBLEMS
        for method, temperature in chosen
    }


def network(outputs: int) -> nn.Module:
    """A tanh network with 16 hidden units, the same at every call."""
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, outputs))


def run(problem: str, method: str, temperature: float | str, seed: int, **others: Any) -> dict[str, list[float]]:
    """Fit and predict once; give the recorded numbers by name. ``others`` replaces settings of the fit."""
    x, y = PROBLEMS[problem]()
    net = network(1 if problem == "regression" else 3)
    settings = {"temperature": temperature, "prior": "kaiming", "lr": RATES.get(method, 0.01), **others}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # verdicts on the length of training are not part of the record
        result = bw.fit(
            net, (x[:TRAIN], y[:TRAIN]), method, LIKELIHOODS[problem], epochs=EPOCHS, batch_size=20, seed=seed,
            progress=False, **settings,
        )  # fmt: skip
    epochs = result.histories[0].epochs
    looked_at = [epochs[0], epochs[len(epochs) // 2], epochs[-1]]
    found = {name: [float(getattr(epoch, name)) for epoch in looked_at] for name in ("total", "nll", "kl")}
    return {**found, **scores(result.predict(x[TRAIN:], draws=DRAWS), y[TRAIN:])}


def scores(prediction: Any, y: Tensor) -> dict[str, list[float]]:
    """Scores of the test rows, and what is predicted for the first of them.

    The nll of a regression is that of a Gaussian with the predictive mean and std. The noise of a regression is known
    and dominates its std, so that ``epistemic`` (a variance; the mutual information of classes) is recorded too.
    """
    epistemic = prediction.epistemic[:ROWS].flatten().tolist()
    if y.is_floating_point():
        mean, std = prediction.mean.double(), prediction.std.double()
        nll = -torch.distributions.Normal(mean, std).log_prob(y.double()).mean()
        rmse = (mean - y).square().mean().sqrt()
        rows = {"mean": mean[:ROWS].flatten().tolist(), "std": std[:ROWS].flatten().tolist()}
        return {"test_nll": [float(nll)], "rmse": [float(rmse)], **rows, "epistemic": epistemic}
    p = prediction.probabilities.double()
    nll = -p.gather(1, y[:, None]).log().mean()
    accuracy = (p.argmax(1) == y).double().mean()
    rows = {"probabilities": p[:ROWS].flatten().tolist(), "epistemic": epistemic}
    return {"test_nll": [float(nll)], "accuracy": [float(accuracy)], **rows}
