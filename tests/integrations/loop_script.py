"""One step of SGD on one batch that two processes share: ``loop_script.py kind folder``."""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import bayeswell as bw

EXAMPLES, TEMPERATURE, RATE, RANKS = 8, 0.7, 0.3, 2


def parts(temperature: float = TEMPERATURE) -> tuple[bw.BayesianModule, bw.ELBO, Tensor, Tensor]:
    torch.manual_seed(5)
    net = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 2)).double()
    x = torch.randn(EXAMPLES, 3, dtype=torch.float64)
    model = bw.bayesian(net)
    return model, bw.ELBO("categorical", EXAMPLES, temperature=temperature), x, (x.sum(1) > 0).long()


def loaders(x: Tensor, y: Tensor) -> DataLoader[Any]:
    return DataLoader(TensorDataset(x, y), batch_size=EXAMPLES // RANKS, shuffle=False)


def stepped(temperature: float = TEMPERATURE) -> bw.BayesianModule:
    """The step as one process takes it, without any library."""
    model, objective, x, y = parts(temperature)
    objective(model, x, y, generator=bw.make_generator(1)).total.backward()
    torch.optim.SGD(model.parameters(), RATE).step()
    return model


def described(model: bw.BayesianModule) -> dict[str, list[float]]:
    return {"mean": model.posterior.mean_vector().tolist(), "std": model.posterior.std_vector().tolist()}


def leave(rank: int, model: bw.BayesianModule, **others: Any) -> None:
    (Path(sys.argv[2]) / f"{rank}.json").write_text(json.dumps({**described(model), **others}))


def in_torch() -> None:
    """Both processes of the group are forked from this one, which has imported what they need.

    They end with all they hold: torch may wait for ever where the last to hold a group of processes is taken apart.
    """
    started = []
    for rank in range(RANKS):
        child = os.fork()
        if child:
            started.append(child)
            continue
        status = 1
        try:
            held = in_torch_as(rank)
            status = int(held is None)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    ends = [os.waitpid(child, 0)[1] for child in started]
    sys.exit(any(ends))


def in_torch_as(rank: int) -> nn.Module:
    model, objective, x, y = parts()
    loss = bw.Loss(objective, model)
    loss.generator = bw.make_generator(1)
    meeting = f"file://{sys.argv[2]}/meeting"
    torch.distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=RANKS)
    wrapped = nn.parallel.DistributedDataParallel(loss)
    share = slice(rank * EXAMPLES // RANKS, (rank + 1) * EXAMPLES // RANKS)
    wrapped(x[share], y[share]).backward()
    torch.optim.SGD(model.parameters(), RATE).step()
    leave(rank, model)
    torch.distributed.barrier()
    return wrapped


def in_accelerate() -> None:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    model, objective, x, y = parts()
    loss = bw.Loss(objective, model)
    loss.generator = bw.make_generator(1)
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    wrapped, optimizer, loader = accelerator.prepare(loss, optimizer, loaders(x, y))
    for inputs, targets in loader:
        assert len(targets) == EXAMPLES // RANKS
        accelerator.backward(wrapped(inputs, targets))
        optimizer.step()
    leave(accelerator.process_index, model)
    accelerator.end_training()


def in_lightning() -> None:
    from lightning.pytorch import LightningModule, Trainer

    from bayeswell.integrations.lightning import Collect

    class Module(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model, self.objective, _, _ = parts()

        def training_step(self, batch: Any, index: int) -> Tensor:
            return self.objective(self.model, *batch, generator=bw.make_generator(1)).total

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.model.parameters(), RATE)

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    _, _, x, y = parts()
    module, collect = Module(), Collect("hwa", start=0.0)
    trainer = Trainer(
        accelerator="cpu", devices=RANKS, strategy="ddp", max_epochs=1, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, callbacks=[collect],
    )  # fmt: skip
    trainer.fit(module, loaders(x, y))
    assert collect.model is not None
    leave(trainer.global_rank, module.model, collected=collect.model.posterior.mean_vector().tolist())


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    {"torch": in_torch, "accelerate": in_accelerate, "lightning": in_lightning}[sys.argv[1]]()
