"""Make a trained network Bayesian afterwards: Laplace, a Bayesian last layer, or fine-tuning around its weights.

A small convolutional network with BatchNorm learns 100 handwritten digits in plain torch. AUROC says how well the
entropy of the prediction separates digits from shuffled pixels (0.5: not at all, 1: perfectly).
"""

from __future__ import annotations

import os

import torch
from torch import nn

import bayeswell as bw
from bayeswell.lab.data import load_data
from bayeswell.metrics import auroc

SMOKE = bool(os.environ.get("BAYESWELL_SMOKE"))
EPOCHS, TUNING, DRAWS = (2, 2, 5) if SMOKE else (30, 10, 50)


def train_plainly(x: torch.Tensor, y: torch.Tensor) -> nn.Module:
    """Return a network from an ordinary training loop."""
    net = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip
    optimizer = torch.optim.Adam(net.parameters(), 1e-2)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(y)).split(50):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(x[rows]), y[rows]).backward()
            optimizer.step()
    return net.eval()


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    digits = load_data("digits", train_size=100)
    data, (x_test, y_test) = digits.train, digits.test
    shuffled = x_test.flatten()[torch.randperm(x_test.numel())].view_as(x_test)

    net = train_plainly(*data)
    tuning = {"epochs": TUNING, "progress": False}
    around = {"name": "normal", "std": 0.05, "center": "network"}
    ways = {
        "as it is": lambda: bw.fit(net, data, "map", epochs=0, progress=False),
        "Laplace, no retraining": lambda: bw.laplace(net, data),
        "last layer, rest frozen": lambda: bw.fit(
            net, data, "bbb", where="last_layer", other_params="frozen", **tuning
        ),
        "fine-tuned around it": lambda: bw.fit(net, data, "bbb", prior=around, init="network", **tuning),
    }
    print(f"{'':24} {'accuracy':>16} {'NLL':>16} {'AUROC':>6}")
    for name, way in ways.items():
        result = way()
        scores = result.evaluate(x_test, y_test, draws=DRAWS)
        shown = [f"{scores[key].value:.3f} ± {scores[key].se:.3f}" for key in ("accuracy", "nll")]
        separation = auroc(scores.predicted.entropy, result.predict(shuffled, draws=DRAWS).entropy)
        print(f"{name:24} {shown[0]:>16} {shown[1]:>16} {float(separation):6.3f}", flush=True)


if __name__ == "__main__":
    main()
