"""Other people's loops: the KL once over several processes, collectors that see what the optimizer does."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import bayeswell as bw
from bayeswell.averaging import HWA, SWAG
from bayeswell.integrations import Collecting, lifted_in
from quick_python import QUICK_PYTHON

from . import loop_script

EXAMPLES, BATCH = 24, 8


def data() -> tuple[Tensor, Tensor]:
    torch.manual_seed(4)
    x = torch.randn(EXAMPLES, 3)
    return x, (x.sum(1) > 0).long()


def network(norm: bool = False) -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(3, 6), nn.BatchNorm1d(6) if norm else nn.Tanh(), nn.Linear(6, 2))


def trained(collector: Any, epochs: int = 4, norm: bool = False) -> tuple[Collecting, list[Tensor], bw.BayesianModule]:
    """A plain loop; the means after each step, before and without what a collector may do to them."""
    x, y = data()
    model = bw.bayesian(network(norm))
    objective, optimizer = bw.ELBO("categorical", EXAMPLES), torch.optim.Adam(model.parameters(), 0.05)
    batches = EXAMPLES // BATCH
    collecting = Collecting(bw.Loss(objective, model), collector, total_steps=epochs * batches, batches=batches)
    path = []
    for _ in range(epochs):
        for start in range(0, EXAMPLES, BATCH):
            optimizer.zero_grad()
            objective(model, x[start : start + BATCH], y[start : start + BATCH]).total.backward()
            optimizer.step()
            path.append(model.posterior.mean_vector().detach().double().clone())
            collecting.after_step()
    return collecting, path, model


def test_swag_is_fitted_to_the_ends_of_epochs() -> None:
    collecting, path, _ = trained({"name": "swag", "start": 0.5})
    ends = torch.stack(path[2::3][2:])  # two of four epochs are burn-in
    found = collecting.finished()
    torch.testing.assert_close(found.posterior.mean_vector().double(), ends.mean(0), rtol=0, atol=1e-6)
    variance = 0.5 * (ends.var(0, unbiased=False) + (ends[1] - ends.mean(0)).square())
    torch.testing.assert_close(found.posterior.std_vector().double().square(), variance, rtol=1e-3, atol=1e-9)


def test_feedback_reaches_the_network_that_is_trained() -> None:
    _, path, model = trained(HWA(start=0.5, feedback="restart"))
    averaged = torch.stack([path[8], path[11]]).mean(0)  # the second of two snapshots is the last step
    torch.testing.assert_close(model.posterior.mean_vector().detach().double(), averaged, rtol=0, atol=1e-6)
    assert not torch.allclose(path[11], averaged.to(path[11]))


def test_statistics_are_estimated_anew() -> None:
    collecting, _, model = trained(SWAG(start=0.5), norm=True)
    with pytest.raises(bw.DataError, match="BatchNorm statistics, which belong to the weights"):
        collecting.finished()
    x, y = data()
    collecting, _, model = trained(HWA(start=0.5), norm=True)
    last = model.net.get_buffer("1.running_mean").clone()
    found = collecting.finished(DataLoader(TensorDataset(x, y), batch_size=BATCH))
    assert torch.equal(model.net.get_buffer("1.running_mean"), last)  # what was trained stays as it is
    assert not torch.equal(model.net.get_parameter("1.weight"), found.net.get_parameter("1.weight"))
    # Linear in x: the mean of its batches under draws around the averaged weights, and not that of the last iterate.
    expected = found.layout.unflatten(found.posterior.mean_vector())
    mean = x.mean(0) @ expected["0.weight"].T + expected["0.bias"]
    assert bool((found.net.get_buffer("1.running_mean") - mean).abs().max() < 0.3)
    assert not torch.equal(found.net.get_buffer("1.running_mean"), last)


def test_what_was_collected_goes_on_from_its_state() -> None:
    whole, path, model = trained({"name": "swag", "start": 0.5})
    again = Collecting(model, {"name": "swag", "start": 0.5}, total_steps=12, batches=3)
    for weights in path[:9]:
        with torch.no_grad():
            model.posterior.mean_vector().copy_(weights)
        again.after_step()
    third = Collecting(model, {"name": "swag", "start": 0.5}, total_steps=12, batches=3)
    third.load_state_dict(again.state_dict())
    for weights in path[9:]:
        with torch.no_grad():
            model.posterior.mean_vector().copy_(weights)
        third.after_step()
    for name, value in whole.finished().posterior.state_dict().items():
        assert torch.equal(value, third.finished().posterior.state_dict()[name])


def test_a_module_without_a_bayesian_network_is_refused() -> None:
    with pytest.raises(bw.NetworkError, match=r"Linear has no Bayesian network \(bayeswell.bayesian makes one\)"):
        lifted_in(nn.Linear(2, 2))
    two = nn.ModuleList([bw.bayesian(nn.Linear(2, 2)), bw.bayesian(nn.Linear(2, 2))])
    with pytest.raises(bw.NetworkError, match="ModuleList has 2 Bayesian networks; a collector watches one"):
        lifted_in(two)


# Several processes ----------------------------------------------------------------------------------------------------


def run_script(kind: str, folder: Path) -> list[dict[str, Any]]:
    """What each of two processes leaves of ``loop_script.py``."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    drop = ("LOCAL_RANK", "WORLD_SIZE", "NODE_RANK", "MASTER_PORT", "RANK")
    clean = {name: value for name, value in os.environ.items() if name not in drop}
    here = {**clean, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(bw.__file__).parents[1])}
    group = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    ranks: list[dict[str, str]] = [{**group, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(2)]
    if kind != "accelerate":  # it starts its other processes itself
        ranks = [{}]
    python = QUICK_PYTHON if kind == "torch" else sys.executable
    command = [python, str(loop_script.__file__), kind, str(folder)]
    processes = [subprocess.Popen(command, env={**here, **own}, stderr=subprocess.PIPE, text=True) for own in ranks]
    for process in processes:
        _, said = process.communicate(timeout=180)
        assert process.returncode == 0, said
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.parametrize(
    "kind",
    ["torch", pytest.param("lightning", marks=pytest.mark.slow), pytest.param("accelerate", marks=pytest.mark.slow)],
)
def test_two_processes_take_the_step_of_one_with_the_kl_counted_once(kind: str, tmp_path: Path) -> None:
    """SGD at a fixed draw: the step is the gradient. In float64, so that sums in another order agree to 1e-12."""
    pytest.importorskip(kind)
    one, found = loop_script.described(loop_script.stepped()), run_script(kind, tmp_path)
    for process in found:
        for name, values in one.items():
            torch.testing.assert_close(torch.tensor(process[name]), torch.tensor(values), rtol=0, atol=1e-12)
    assert found[0].get("collected") == found[1].get("collected")
    # What the test would see of a KL that counts twice, or half.
    for factor in (0.5, 2.0):
        other = loop_script.described(loop_script.stepped(factor * loop_script.TEMPERATURE))
        assert max(abs(a - b) for a, b in zip(one["mean"], other["mean"], strict=True)) > 1e-3
