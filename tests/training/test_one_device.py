"""One device in the network's own precision needs no Fabric: the same numbers, bit for bit, seconds earlier."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch
from torch import nn

import bayeswell as bw
from bayeswell.training import engine as engines
from bayeswell.training.one_device import OneDevice, can_do_without_fabric

LATE = ("lightning_fabric", "torchmetrics", "transformers", "sklearn", "scipy", "pandas")
SCRIPT = """
import json, sys
import torch, bayeswell as bw
from bayeswell.datasets import digits
at = digits()
net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 4), torch.nn.ReLU(), torch.nn.Linear(4, 10))
result = bw.fit(net, (at.train_inputs, at.train_targets), "bbb", "categorical", epochs=1, progress=False)
result.predict(at.test_inputs[:5], draws=2)
print(json.dumps([name for name in sys.argv[1:] if name in sys.modules]))
"""


def data() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    inputs = torch.randn(60, 3, generator=generator)
    return inputs, (inputs @ torch.tensor([1.0, -2.0, 0.5])).sign().long().clamp(min=0)


def fitted(method: str) -> bw.FitResult:
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 2))
    return bw.fit(net, data(), method, "categorical", epochs=8, batch_size=30, accumulate=2, seed=4, progress=False)


def test_a_fit_on_one_device_imports_neither_fabric_nor_scikit_learn() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT, *LATE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == []


@pytest.mark.filterwarnings("ignore::bayeswell.errors.BayeswellWarning")
@pytest.mark.parametrize("method", ["bbb", "sghmc", "swag", "f-ivon"])
def test_the_same_bits_as_with_fabric(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = fitted(method)
    monkeypatch.setattr(engines, "can_do_without_fabric", lambda *asked: False)
    with_fabric = fitted(method)
    inputs = data()[0]
    ours, theirs = (result.predict(inputs, draws=5, seed=1).probabilities for result in (alone, with_fabric))
    assert torch.equal(ours, theirs)
    assert [one.total for one in alone.histories[0].epochs] == [one.total for one in with_fabric.histories[0].epochs]


def test_when_fabric_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LT_CLI_USED", raising=False)
    assert can_do_without_fabric(1, "auto", "32")
    assert not can_do_without_fabric(2, "auto", "32")
    assert not can_do_without_fabric(1, "ddp", "32")
    assert not can_do_without_fabric(1, "auto", "bf16-mixed")
    monkeypatch.setenv("LT_CLI_USED", "1")  # `fabric run` has started processes: each would train alone
    assert not can_do_without_fabric(1, "auto", "32")


@pytest.mark.parametrize("accelerator", ["cuda", "mps"])
def test_a_device_that_is_not_there_is_refused_in_one_line(accelerator: str) -> None:
    available = torch.cuda.is_available() if accelerator == "cuda" else torch.backends.mps.is_available()
    if available:
        pytest.skip(f"there is a {accelerator} device here")
    with pytest.raises(bw.BayeswellError, match=f"devices: 1 x {accelerator} cannot be used here") as caught:
        engines.Engine(engines.Devices(accelerator))
    assert "\n" not in str(caught.value)


def test_tensors_are_moved_wherever_they_lie() -> None:
    place = OneDevice(torch.device("meta"))
    moved = place.to_device({"a": [torch.ones(2), "text"], "b": (torch.ones(3),)})
    assert moved["a"][0].device.type == moved["b"][0].device.type == "meta"
    assert moved["a"][1] == "text"


def test_processes_of_torchrun_that_each_train_alone_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    monkeypatch.setenv("WORLD_SIZE", "1")
    engines.Engine(engines.Devices("cpu"))  # one process: nothing to say, and a warning would fail the test
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.warns(bw.BayeswellWarning, match="torchrun has started 4 processes: each trains .* devices=4"):
        engines.Engine(engines.Devices("cpu"))
