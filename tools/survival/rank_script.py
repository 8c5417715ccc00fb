"""What each of two ranks runs: started by ``ranks``, and by Fabric for the other one."""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path

import torch
from torch import nn

import bayeswell as bw


class Slowly(bw.Callback):
    """Leaves time to be killed in."""

    def after_step(self, run: bw.Run) -> None:
        time.sleep(0.03)


def main(folder: Path, timeout: float) -> int:
    """Begin the run, or go on with it."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    x = torch.randn(53, 4, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(4, 12), nn.Tanh(), nn.Linear(12, 3))
    try:
        bw.fit(
            net, (x, x[:, :3].argmax(1)), "bbb", epochs=12, batch_size=9, seed=3, progress=False, callbacks=[Slowly()],
            devices=bw.Devices(accelerator="cpu", devices=2, timeout=timeout),
            folder=bw.RunFolder(folder, resume=True, checkpoint_steps=4),
        )  # fmt: skip
    except bw.BayeswellError as error:
        print(f"bayeswell: {error}", file=sys.stderr)
        return int(getattr(error, "exit_code", 1))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), float(sys.argv[2])))
