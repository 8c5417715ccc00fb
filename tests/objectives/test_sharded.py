"""A posterior in shards (FSDP2): two processes, each with half of the numbers, train what one does, to rounding."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import torch
import torch.distributed

from quick_python import QUICK_PYTHON

SCRIPT = """
import os
import sys
import traceback
import warnings

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import bayeswell as bw

folder, posterior = sys.argv[1:]
warnings.simplefilter("ignore")
torch.set_num_threads(1)


def train(rank, ranks):
    torch.manual_seed(0)
    x = torch.randn(240, 6)
    y = x[:, :3].argmax(1)
    net = nn.Sequential(nn.Linear(6, 11), nn.Tanh(), nn.Linear(11, 3))
    loss = bw.Loss(bw.ELBO("categorical", dataset_size=240, temperature=0.7), bw.bayesian(net, posterior=posterior))
    if ranks > 1:
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
        save_file({name: value.detach().contiguous() for name, value in whole.items()}, f"{folder}/{ranks}.safetensors")
    if ranks > 1:
        dist.destroy_process_group()
    with open(f"{folder}/{rank} of {ranks}", "w") as file:
        file.write(str(numbers))


started = []
for rank in range(2):  # each process of the group is forked from this one, which has imported what they need
    child = os.fork()
    if child:
        started.append(child)
        continue
    status = 1
    try:
        train(rank, 2)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)
train(0, 1)
sys.exit(any(os.waitpid(child, 0)[1] for child in started))
"""


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch was built without torch.distributed")
def test_two_processes_with_half_of_a_factorised_posterior_each_train_what_one_does(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    (tmp_path / "script.py").write_text(SCRIPT)
    command = [QUICK_PYTHON, str(tmp_path / "script.py"), str(tmp_path), "mean_field"]
    done = subprocess.run(command, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=240)
    assert done.returncode == 0
    numbers = {ranks: [int((tmp_path / f"{r} of {ranks}").read_text()) for r in range(ranks)] for ranks in (1, 2)}
    one, two = (load_file(tmp_path / f"{ranks}.safetensors") for ranks in (1, 2))
    assert one.keys() == two.keys() == {"posterior.mean", "posterior.log_std"}
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, rtol=2e-6, atol=2e-6)
    # Parameters and both moments are in halves: what a rank holds between steps.
    assert max(numbers[2]) < 0.55 * numbers[1][0]
