"""How sure is it? MAP and two Bayesian networks on handwritten digits, and on noise that shows no digit.

Each network is trained by an ordinary PyTorch loop on the digits that come with scikit-learn. On noise images
(figure 1.1 of Book's thesis) a network should be unsure: its mean entropy there should be near log(10) = 2.30 nats.
"""

from __future__ import annotations

import os
import time

import torch
from torch import Tensor, nn

import bayeswell as bw
from bayeswell.datasets import Split, digits, noise_like
from bayeswell.metrics import accuracy, ece, nll

SMOKE = bool(os.environ.get("BAYESWELL_SMOKE"))
EPOCHS = 2 if SMOKE else 150
DRAWS = 5 if SMOKE else 100
METHODS = {"MAP": "delta", "mean-field": "mean_field", "k-tied (rank 2)": "k_tied"}


def network() -> nn.Module:
    """A plain PyTorch network that knows nothing of Bayes."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 10)
    )


def train(data: Split, posterior: str, batch_size: int = 50) -> bw.BayesianModule:
    """Lift the network and minimise the negative ELBO, stds at ten times the rate of the means."""
    torch.manual_seed(0)
    model = bw.bayesian(network(), posterior)
    objective = bw.ELBO("categorical", dataset_size=len(data.train_targets))
    means = [p for name, p in model.named_parameters() if name.endswith("mean")]
    stds = [p for name, p in model.named_parameters() if not name.endswith("mean")]
    groups = [{"params": means, "lr": 1e-3}, {"params": stds, "lr": 1e-2}] if stds else [{"params": means, "lr": 1e-3}]
    optimizer = torch.optim.Adam(groups, fused=True)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(data.train_targets)).split(batch_size):
            optimizer.zero_grad()
            objective(model, data.train_inputs[batch], data.train_targets[batch]).total.backward()
            optimizer.step()
    return model


def entropy_on(model: bw.BayesianModule, inputs: Tensor) -> float:
    """Mean predictive entropy in nats."""
    return float(bw.predict(model, inputs, bw.Categorical(), draws=DRAWS, seed=0).entropy.mean())


def main() -> None:
    """Train, evaluate, print the table."""
    data = digits()
    noise = noise_like(data.test_inputs)
    print(f"{len(data.train_targets)} training digits, {len(data.test_targets)} test digits, {EPOCHS} epochs\n")
    print(f"{'':16} {'accuracy':>9} {'NLL':>7} {'ECE':>7} {'entropy: digits':>16} {'noise':>7} {'seconds':>9}")
    for name, posterior in METHODS.items():
        start = time.perf_counter()
        model = train(data, posterior)
        seconds = time.perf_counter() - start
        found = bw.predict(model, data.test_inputs, bw.Categorical(), draws=DRAWS, seed=0)
        scores = [score(found.probabilities, data.test_targets) for score in (accuracy, nll, ece)]
        print(
            f"{name:16} {100 * scores[0]:8.2f}% {scores[1]:7.3f} {scores[2]:7.3f}"
            f" {float(found.entropy.mean()):16.3f} {entropy_on(model, noise):7.3f} {seconds:9.1f}",
            flush=True,
        )
    print("\nNLL and entropies in nats; ECE with 15 bins; a uniform guess has entropy 2.303.")


if __name__ == "__main__":
    main()
