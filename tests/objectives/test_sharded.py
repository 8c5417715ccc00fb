"""A posterior in shards (FSDP2): two processes, each with half of the numbers, train what one does, to rounding."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed

SCRIPT = """
import sys
import torch
import torch.distributed as dist
from torch import nn
import bayeswell as bw

rank, ranks, folder, posterior = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
torch.set_num_threads(1)
torch.manual_seed(0)
x = torch.randn(240, 6)
y = x[:, :3].argmax(1)
net = nn.Sequential(nn.Linear(6, 11), nn.Tanh(), nn.Linear(11, 3))
loss = bw.Loss(bw.ELBO("categorical", dataset_size=240, temperature=0.7), bw.bayesian(net, posterior=posterior))
if ranks > 1:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=ranks)
    fully_shard(loss, mesh=init_device_mesh("cpu", (ranks,)))
optimizer = torch.optim.Adam(loss.parameters(), lr=0.02)
for step in range(15):
    rows = torch.arange(step % 6 * 40, step % 6 * 40 + 40).tensor_split(ranks)[rank]
    loss.generator = torch.Generator().manual_seed(step)  # the same draw on every rank
    optimizer.zero_grad()
    loss(x[rows], y[rows]).backward()
    optimizer.step()
whole = {name: value.full_tensor() if ranks > 1 else value for name, value in loss.model.named_parameters()}
held = [value for state in optimizer.state.values() for value in state.values()] + list(loss.parameters())
numbers = sum((value.to_local() if ranks > 1 and value.dim() else value).numel() for value in held)
if rank == 0:
    from safetensors.torch import save_file

    save_file({name: value.detach().contiguous() for name, value in whole.items()}, f"{folder}/{ranks}.safetensors")
print(numbers)
if ranks > 1:
    dist.destroy_process_group()
"""


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch was built without torch.distributed")
def test_two_processes_with_half_of_a_factorised_posterior_each_train_what_one_does(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    (tmp_path / "script.py").write_text(SCRIPT)

    def start(rank: int, ranks: int) -> subprocess.Popen[str]:
        command = [sys.executable, "-W", "ignore", str(tmp_path / "script.py"), str(rank), str(ranks), str(tmp_path)]
        return subprocess.Popen(
            [*command, "mean_field"], stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )

    started = {1: [start(0, 1)], 2: [start(0, 2), start(1, 2)]}
    numbers = {ranks: [int(one.communicate(timeout=240)[0]) for one in group] for ranks, group in started.items()}
    assert all(one.returncode == 0 for group in started.values() for one in group)
    one, two = (load_file(tmp_path / f"{ranks}.safetensors") for ranks in (1, 2))
    assert one.keys() == two.keys() == {"posterior.mean", "posterior.log_std"}
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, rtol=2e-6, atol=2e-6)
    # Parameters and both moments are in halves: what a rank holds between steps.
    assert max(numbers[2]) < 0.55 * numbers[1][0]
