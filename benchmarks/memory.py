"""Peak memory of a training step, in a process of its own, beyond what the process held before the network was built.

    python -m benchmarks.memory NET CASE

Whatever is loaded at first use (kernels, thread pools, modules) is brought in by the same case on a tiny network, and
the memory that this frees is given back, before the count begins. The peak is the kernel's (VmHWM), so it holds
everything: weights, gradients, optimizer state, activations, temporary tensors; not the examples.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from . import ours, peers
from .nets import NETS, Net, tiny, weights
from .timing import Step, one_line

REPEATED = (ours.PLAIN, "bbb", "low-rank")
"""Cases that a goal is about: measured several times."""
_STEPS = 3
_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"
_ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": "131072"}
"""Larger tensors always go back to the system when they are freed: else peaks depend on the allocator's luck."""


def names(net: str) -> list[str]:
    """The cases whose memory is measured."""
    mine = ("map", *ours.MAIN, ours.CHEAPER_VL, "f-bbb", "low-rank", "ivon") if net in ("lenet", "mlp") else ours.MAIN
    return [ours.PLAIN, *mine, *(peers.PREFIX + peer.name for peer in peers.PEERS if peer.step is not None)]


def measure(net: str, case: str, threads: int, repeats: int = 1) -> dict[str, Any]:
    """Peak bytes beyond the start, each time from a fresh process; or why it failed."""
    peaks = []
    for _ in range(repeats):
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.memory", net, case, str(threads)]
        settings = {**os.environ, **_ALLOCATOR}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=settings)
        found = _last_json(done.stdout)
        if found is None:
            tail = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
            return {"failed": tail[0][:160]}
        if "failed" in found:
            return found
        peaks.append(found["peak_bytes"])
    return {"peak_bytes": peaks}


def deterministic_parts(net: Net) -> dict[str, int]:
    """Bytes of an ordinary step by what they are for: activations are what autograd keeps for the backward pass."""
    model = net.build().train()
    inputs, targets = next(net.data())
    known = {p.untyped_storage().data_ptr() for p in model.parameters()} | {inputs.untyped_storage().data_ptr()}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = nn.functional.cross_entropy(model(inputs), targets)
    loss.backward()
    size = 4 * weights(model)
    return {
        "weights_bytes": size,
        "gradients_bytes": size,
        "adam_state_bytes": 2 * size,
        "activations_bytes": sum(kept.values()),
        "inputs_bytes": inputs.untyped_storage().nbytes(),
    }


def peak_of(build: Callable[[Net], Step], net: Net) -> int:
    """Bytes by which the process grew at most, from before the network to after some steps."""
    rehearsal = build(tiny(net))
    for _ in range(_STEPS):
        rehearsal()
    del rehearsal
    net.data()  # shared and kept: the examples are there before the network is
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    _CLEAR.write_text(_RESET_PEAK, encoding="ascii")
    before = _kilobytes("VmRSS")
    step = build(net)
    for _ in range(_STEPS):
        step()
    return 1024 * (_kilobytes("VmHWM") - before)


def _kilobytes(field: str) -> int:
    line = next(line for line in _STATUS.read_text(encoding="ascii").splitlines() if line.startswith(f"{field}:"))
    return int(line.split()[1])


def _builder(case: str) -> Callable[[Net], Step]:
    if case == ours.PLAIN:
        return lambda net: ours.plain_step(net, fused=True)
    if case.startswith(peers.PREFIX):
        peer = next(peer for peer in peers.PEERS if peers.PREFIX + peer.name == case)
        assert peer.step is not None
        return peer.step
    return lambda net: ours.method_step(case, net)


def _last_json(text: str) -> dict[str, Any] | None:
    lines = [line for line in text.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else None


def main(net: str, case: str, threads: str) -> None:
    """Print the peak as JSON."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(int(threads))
    try:
        found: dict[str, Any] = {"peak_bytes": peak_of(_builder(case), NETS[net])}
    except Exception as error:
        found = {"failed": one_line(error)}
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
