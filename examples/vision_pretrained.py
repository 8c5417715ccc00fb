"""A network that was trained the ordinary way, made Bayesian afterwards: three ways, a few lines each.

A small convolutional network with BatchNorm learns handwritten digits (scikit-learn's, 8 x 8 pixels) in plain torch.
Then: a Laplace approximation without any training, a Bayesian last layer on the frozen rest, and fine-tuning with a
prior around the given weights. On noise images, which show no digit, a network should be unsure: AUROC tells how well
the entropy of its prediction tells noise from digits (0.5: not at all, 1: always).
"""

from __future__ import annotations

import os
import warnings

import torch
from sklearn.datasets import load_digits
from torch import nn

import bayeswell as bw
from bayeswell.metrics import accuracy, auroc, nll

SMOKE = bool(os.environ.get("BAYESWELL_SMOKE"))
EPOCHS, TUNING, DRAWS = (2, 2, 5) if SMOKE else (30, 10, 50)


def ordinary_training(x: torch.Tensor, y: torch.Tensor) -> nn.Module:
    """What people have: a network from a training that knows nothing of Bayes."""
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
    """Train, make it Bayesian, print the table."""
    warnings.simplefilter("ignore" if SMOKE else "default", bw.BayeswellWarning)  # short runs say that they are short
    torch.manual_seed(0)
    torch.set_num_threads(1)
    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images).float().view(-1, 1, 8, 8) / 16, torch.tensor(labels)
    order = torch.randperm(len(y))
    train, held_out, test = order[:100], order[100:300], order[-700:]
    data = x[train], y[train]
    noise = x[test].flatten()[torch.randperm(x[test].numel())].view(-1, 1, 8, 8)  # the same pixels in random places

    net = ordinary_training(*data)
    around = {"name": "normal", "std": 0.05, "centre": "network"}
    ways = {
        "as it is": lambda: bw.fit(net, data, "map", epochs=0),
        "laplace, no training": lambda: bw.laplace(net, data, held_out=(x[held_out], y[held_out])),
        "last layer, rest frozen": lambda: bw.fit(
            net, data, "bbb", where="last_layer", rest="frozen", epochs=TUNING, progress=False
        ),
        "fine-tuned around it": lambda: bw.fit(
            net, data, "bbb", prior=around, means="network", epochs=TUNING, progress=False
        ),
    }  # fmt: skip
    print(f"{'':24} {'accuracy':>9} {'NLL':>7} {'AUROC':>7} {'entropy: digits':>16} {'noise':>7}")
    for name, way in ways.items():
        result = way()
        digits, nonsense = (result.predict(some, draws=DRAWS) for some in (x[test], noise))
        assert isinstance(digits, bw.ClassPrediction)
        assert isinstance(nonsense, bw.ClassPrediction)
        p, told = digits.probabilities, auroc(digits.entropy, nonsense.entropy)
        print(
            f"{name:24} {100 * accuracy(p, y[test]):8.2f}% {nll(p, y[test]):7.3f} {told:7.3f} "
            f"{float(digits.entropy.mean()):16.3f} {float(nonsense.entropy.mean()):7.3f}"
        )


if __name__ == "__main__":
    main()
