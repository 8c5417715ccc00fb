"""How sure is it? Several ways of training one network on handwritten digits, and noise that shows no digit.

The digits come with scikit-learn, so nothing is downloaded. On noise images (figure 1.1 of Book's thesis) a network
should be unsure: its mean entropy there should be well above that on digits, at best near log(10) = 2.30 nats.
"""

from __future__ import annotations

import os
import time
import warnings

import torch
from torch import nn

import bayeswell as bw
from bayeswell.datasets import digits, noise_like
from bayeswell.metrics import accuracy, ece, nll

SMOKE = bool(os.environ.get("BAYESWELL_SMOKE"))
EPOCHS = 8 if SMOKE else 40
DRAWS = 5 if SMOKE else 100
METHODS = ("map", "bbb", "k-tied", "f-bbb", "swag", "deep-ensemble")


def network() -> nn.Module:
    """A plain PyTorch network that knows nothing of Bayes."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 10)
    )


def main() -> None:
    """Train, evaluate, print the table."""
    # In smoke mode runs are too short for stds to converge, and say so.
    warnings.simplefilter("ignore" if SMOKE else "default", bw.BayeswellWarning)
    torch.set_num_threads(1)  # matrices this small are done before a second thread is awake
    data = digits()
    noise = noise_like(data.test_inputs)
    print(f"{len(data.train_targets)} training digits, {len(data.test_targets)} test digits, {EPOCHS} epochs\n")
    header = f"{'method':14} {'accuracy':>9} {'NLL':>7} {'ECE':>7} {'entropy: digits':>16} {'noise':>7}"
    print(f"{header} {'std/prior':>10} {'cost':>5} {'seconds':>8}")
    for name in METHODS:
        start = time.perf_counter()
        result = bw.fit(network(), (data.train_inputs, data.train_targets), name, epochs=EPOCHS, batch_size=50)
        seconds = time.perf_counter() - start
        found = result.predict(data.test_inputs, draws=DRAWS)
        unsure = result.predict(noise, draws=DRAWS)
        assert isinstance(found, bw.ClassPrediction)
        assert isinstance(unsure, bw.ClassPrediction)
        scores = [score(found.probabilities, data.test_targets) for score in (accuracy, nll, ece)]
        print(
            f"{name:14} {100 * scores[0]:8.2f}% {scores[1]:7.3f} {scores[2]:7.3f} {float(found.entropy.mean()):16.3f}"
            f" {float(unsure.entropy.mean()):7.3f} {result.std_ratio:10.3f} {result.method.cost:5g} {seconds:8.1f}",
            flush=True,
        )
    print(
        "\nNLL and entropies in nats (a uniform guess has entropy 2.303); ECE with 15 bins; std/prior: mean posterior"
        "\nstd over prior std, 0 for a network without uncertainty; cost: forward passes a step (ordinary training: 3)."
    )


if __name__ == "__main__":
    main()
