"""Methods on handwritten digits: scores, and the entropy on noise images that show no digit.

The digits come with scikit-learn. A uniform guess has entropy log(10) = 2.30 nats, which would be right for noise.
"""

from __future__ import annotations

import os
import time

import torch
from torch import nn

import bayeswell as bw
from bayeswell.lab.data import load_data

SMOKE = bool(os.environ.get("BAYESWELL_SMOKE"))
EPOCHS, DRAWS = (8, 5) if SMOKE else (40, 100)
METHODS = ("map", "bbb", "k-tied", "f-bbb", "swag", "deep-ensemble")


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, 10))


def main() -> None:
    torch.set_num_threads(1)
    data = load_data("digits", ood="noise")
    print(f"{'method':14} {'accuracy':>16} {'NLL':>16} {'entropy: digits':>16} {'noise':>6} {'seconds':>8}")
    for method in METHODS:
        began = time.perf_counter()
        result = bw.fit(network(), data.train, method, epochs=EPOCHS, batch_size=50, progress=False)
        seconds = time.perf_counter() - began
        scores = result.evaluate(*data.test, draws=DRAWS)
        noise = result.predict(data.ood["noise"], draws=DRAWS)
        shown = [f"{scores[key].value:.3f} ± {scores[key].se:.3f}" for key in ("accuracy", "nll")]
        entropies = f"{scores.predicted.entropy.mean():16.3f} {noise.entropy.mean():6.3f}"
        print(f"{method:14} {shown[0]:>16} {shown[1]:>16} {entropies} {seconds:8.1f}", flush=True)


if __name__ == "__main__":
    main()
