"""Lightning trains a Bayesian network: a module of five lines around the ELBO, and HWA as a callback.

The KL is exact under DDP too: run it on two processes with ``DEVICES=2 python examples/lightning_module.py``. Each has
the mean NLL of its share of the batch plus KL / N, N being the size of all data, and Lightning averages the gradients.
"""

from __future__ import annotations

import logging
import os
import warnings
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import bayeswell as bw
from bayeswell.datasets import digits, noise_like
from bayeswell.integrations.lightning import Collect, progress_of
from bayeswell.metrics import accuracy, nll

SMOKE = bool(os.environ.get("BAYESWELL_SMOKE"))
EPOCHS, DRAWS = (2, 5) if SMOKE else (20, 50)
DEVICES = int(os.environ.get("DEVICES", "1"))


class Bayesian(LightningModule):
    """What bayeswell adds to Lightning: the lifted network, and the objective."""

    def __init__(self, net: nn.Module, examples: int) -> None:
        super().__init__()
        self.model = bw.bayesian(net)
        self.objective = bw.ELBO("categorical", dataset_size=examples, temperature=0.1)

    def training_step(self, batch: Any, index: int) -> Tensor:
        return self.objective(self.model, *batch, at=progress_of(self.trainer)).total

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.model.parameters(), 1e-2)


def main() -> None:
    """Train on digits; ask the last iterate and the collected posterior about digits and noise."""
    warnings.simplefilter("ignore")  # Lightning's advice on workers and its own use of torch
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    seed_everything(0)
    data = digits()
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, 10))
    module = Bayesian(net, len(data.train_targets))
    collected = Collect("hwa", start=0.0 if SMOKE else 0.5)
    trainer = Trainer(
        accelerator="cpu", devices=DEVICES, strategy="ddp" if DEVICES > 1 else "auto", max_epochs=EPOCHS,
        callbacks=[collected], logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False,
    )  # fmt: skip
    examples = TensorDataset(torch.as_tensor(data.train_inputs), torch.as_tensor(data.train_targets))
    trainer.fit(module, DataLoader(examples, batch_size=50 // DEVICES, shuffle=True))
    if not trainer.is_global_zero:
        return
    assert collected.model is not None
    noise = noise_like(data.test_inputs)
    print(f"{'posterior':26} {'accuracy':>9} {'NLL':>7} {'epistemic, digits':>18} {'noise':>7}")
    for name, model in (("mean field, last iterate", module.model), ("HWA, collected", collected.model)):
        found = bw.predict(model, data.test_inputs, bw.Categorical(), draws=DRAWS, seed=0)
        unsure = bw.predict(model, noise, bw.Categorical(), draws=DRAWS, seed=0)
        scores = accuracy(found.probabilities, data.test_targets), nll(found.probabilities, data.test_targets)
        print(
            f"{name:26} {100 * scores[0]:8.2f}% {scores[1]:7.3f} {float(found.epistemic.mean()):18.3f}"
            f" {float(unsure.epistemic.mean()):7.3f}"
        )


if __name__ == "__main__":
    main()
