"""Is variational Laplace with less of its penalty as good? `python benchmarks/lazy_laplace.py`.

LeNet-5 is trained on MNIST (or `--data`) by `vl` and by `vl-lazy` from the same seeds, with the learning rate that each
has by default or with the same one for both (`--lr`). Printed are the test NLL and calibration error of each run, and
the mean difference over the seeds with its standard errors: over the seeds, and of the NLL also over the test examples
(the same for both). Minutes on one thread; the data must be there (BAYESWELL_DATA) or can be downloaded.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
import warnings
from dataclasses import replace

import torch
from torch import Tensor

import bayeswell as bw
from bayeswell.training import measure

METHODS = ("vl", "vl-lazy")


def main() -> None:
    """Train, and print as runs end."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--lr", type=float, help="the learning rate of both")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(options.threads)
    data = bw.datasets.load_data(options.data)
    labels = torch.as_tensor(data.test[1])
    losses: dict[str, list[Tensor]] = {name: [] for name in METHODS}
    errors: dict[str, list[float]] = {name: [] for name in METHODS}
    for seed in range(options.seeds):
        for name in METHODS:
            torch.manual_seed(seed)
            net = bw.build_model("lenet5", data.input_shape, data.outputs)
            began = time.perf_counter()
            chosen = bw.find_method(name)
            if options.lr is not None:
                chosen = replace(chosen, stepper={"name": "adam", "lr": options.lr})
            result = bw.fit(net, data.train, chosen, epochs=options.epochs, batch_size=100, seed=seed, progress=False)
            seconds = time.perf_counter() - began
            found = result.predict(data.test[0], draws=options.draws, batch_size=1000)
            losses[name].append(-found.probabilities.gather(1, labels[:, None]).clamp_min(1e-12).log()[:, 0])
            scores = measure(found, labels)
            errors[name].append(scores["ece"])
            print(
                f"seed {seed} {name:8} NLL {scores['nll']:.4f} ECE {scores['ece']:.4f} "
                f"accuracy {scores['accuracy']:.4f} ({seconds:.0f} s of training)",
                flush=True,
            )
    change = torch.stack(losses["vl-lazy"]).mean(0) - torch.stack(losses["vl"]).mean(0)
    error = float(change.std()) / math.sqrt(len(change))
    print(f"NLL: vl-lazy - vl = {float(change.mean()):+.4f} +- {error:.4f} (over test examples)")
    means = {name: [float(loss.mean()) for loss in losses[name]] for name in METHODS}
    for score, found in (("NLL", means), ("ECE", errors)):
        shifts = [lazy - full for lazy, full in zip(found["vl-lazy"], found["vl"], strict=True)]
        if len(shifts) > 1:
            spread = statistics.stdev(shifts) / math.sqrt(len(shifts))
            print(f"{score}: vl-lazy - vl = {statistics.mean(shifts):+.4f} +- {spread:.4f} (over seeds)")


if __name__ == "__main__":
    main()
