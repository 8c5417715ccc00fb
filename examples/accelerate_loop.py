"""A loop of one's own with accelerate: the objective and the network go in as one module, SWAG watches the steps.

``python examples/accelerate_loop.py``, or on several processes ``accelerate launch --cpu --num_processes 2 ...``:
gradients are averaged over them, so that the KL counts once, since N is the size of all data and not of a share.
"""

from __future__ import annotations

import os

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import bayeswell as bw
from bayeswell.datasets import digits, noise_like
from bayeswell.integrations import Collecting
from bayeswell.metrics import accuracy, nll

SMOKE = bool(os.environ.get("BAYESWELL_SMOKE"))
EPOCHS, DRAWS = (2, 5) if SMOKE else (20, 50)


def main() -> None:
    """Train on digits; ask the collected posterior about digits and noise."""
    set_seed(0)
    accelerator = Accelerator(cpu=True)
    data = digits()
    examples = TensorDataset(torch.as_tensor(data.train_inputs), torch.as_tensor(data.train_targets))
    model = bw.bayesian(nn.Sequential(nn.Flatten(), nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, 10)))
    objective = bw.ELBO("categorical", dataset_size=len(examples), temperature=0.1)

    loss, optimizer, loader = accelerator.prepare(
        bw.Loss(objective, model),
        torch.optim.Adam(model.parameters(), 1e-2),
        DataLoader(examples, batch_size=50 // accelerator.num_processes, shuffle=True),
    )
    steps = EPOCHS * len(loader)
    collecting = Collecting(
        loss, {"name": "swag", "start": 0.0 if SMOKE else 0.5}, total_steps=steps, batches=len(loader)
    )
    for epoch in range(EPOCHS):
        for inputs, targets in loader:
            accelerator.backward(loss(inputs, targets))
            optimizer.step()
            optimizer.zero_grad()
            collecting.after_step()
        terms = accelerator.unwrap_model(loss).terms
        if epoch % 5 == 4 or SMOKE:
            accelerator.print(
                f"epoch {epoch + 1}: NLL {float(terms.nll):.3f} of the last batch, KL {float(terms.kl):.0f}"
            )

    result = bw.Predictor(collecting.finished(), objective.likelihood)
    found = result.predict(data.test_inputs, draws=DRAWS)
    unsure = result.predict(noise_like(data.test_inputs), draws=DRAWS)
    assert isinstance(found, bw.ClassPrediction)
    assert isinstance(unsure, bw.ClassPrediction)
    accelerator.print(
        f"SWAG: accuracy {100 * accuracy(found.probabilities, data.test_targets):.2f}%, NLL "
        f"{nll(found.probabilities, data.test_targets):.3f}; epistemic uncertainty {float(found.epistemic.mean()):.3f} "
        f"nats on digits, {float(unsure.epistemic.mean()):.3f} on noise"
    )


if __name__ == "__main__":
    main()
