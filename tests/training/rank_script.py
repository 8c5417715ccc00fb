"""What one rank does, run after run: started by the tests, and by Fabric for the other ranks."""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import nn

import bayeswell as bw

warnings.simplefilter("ignore")
warnings.filterwarnings("always", "rank . has been silent", bw.BayeswellWarning)
torch.set_num_threads(1)
runs = json.loads(sys.argv[1])
sys.executable = runs[0].get("python", sys.executable)  # what Fabric starts the other rank with
x = torch.randn(53, 4, generator=torch.Generator().manual_seed(0))


class Pause(bw.Callback):
    """Tells which process it is, and waits: long enough to be killed."""

    def __init__(self, folder: Path, rank: int) -> None:
        self.folder, self.rank = folder, rank

    def after_step(self, run: bw.Run) -> None:
        if run.step == 7 and run.engine.rank == self.rank:
            self.folder.with_name(f"{self.folder.name}.rank{self.rank}").write_text(str(os.getpid()))
            time.sleep(60)


def train(settings: dict[str, Any]) -> None:
    """One run; the model that this rank has at its end is saved beside the folder."""
    folder = Path(settings["folder"])
    while "after" in settings and not Path(settings["after"]).exists():
        time.sleep(0.02)
    torch.manual_seed(1)
    norm = [nn.BatchNorm1d(12)] if settings.get("normalised") else []
    net = nn.Sequential(nn.Linear(4, 12), *norm, nn.Tanh(), nn.Linear(12, 3))
    few = {"epochs": 3}
    stopping = {"validation": (x[:20], x[:20, :3].argmax(1)), "early_stopping": 2, "epochs": 60} if norm else few
    result = bw.fit(
        net, (x, x[:, :3].argmax(1)), settings["method"], batch_size=9, seed=3, **stopping, rate="constant",
        accumulate=settings.get("accumulate", 1),
        devices=bw.Devices(accelerator="cpu", devices=settings["ranks"], precision=settings.get("precision", "32"),
                           timeout=settings.get("timeout", 600.0)),
        stepper={"name": "sgd", "lr": 1.0 if norm else 0.1, "momentum": 0.0},
        callbacks=[Pause(folder, settings["pause_rank"])] if "pause_rank" in settings else [],
        folder=bw.RunFolder(folder, resume=True, checkpoint_steps=4),
    )  # fmt: skip
    result.save(folder.with_name(f"{folder.name}.model{os.environ.get('LOCAL_RANK', '0')}"))


try:
    for one in runs:
        if one["ranks"] > 1 or "LOCAL_RANK" not in os.environ:  # else another process has had it, before this began
            train(one)
except bw.BayeswellError as error:
    print(error, file=sys.stderr)
    sys.exit(getattr(error, "exit_code", 1))
assert "torchmetrics" not in sys.modules, "Fabric's start has loaded a package that is not needed"
