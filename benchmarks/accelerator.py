"""A smoke test for people with an accelerator: is everything the same there, and what does it cost?

    python -m benchmarks.accelerator                 # cuda, xpu or mps if torch finds one, else a rehearsal on the CPU
    python -m benchmarks.accelerator --device cuda --rounds 30

It prints, for each method, how far the gradients of a step and the predictions on the device are from those on the CPU,
how often a step waits for the device (CUDA), and the time of a step over that of ordinary training there.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import bayeswell as bw
from bayeswell.methods import Assembly, assemble

from .nets import NETS, Net, tiny

METHODS = ("map", "bbb", "k-tied", "sgvb-lrt", "flipout", "vl", "low-rank", "ivon", "swag", "mc-dropout")
TOLERANCE = 2e-3
"""Relative, of gradients: devices add in another order, and TF32 is off."""


def main(arguments: list[str] | None = None) -> int:
    """0, or 1 where something differs or fails."""
    options = _parser().parse_args(arguments)
    warnings.simplefilter("ignore")
    torch.backends.cuda.matmul.allow_tf32 = False
    device = torch.device(options.device or _found())
    net = NETS[options.net] if not options.tiny else tiny(NETS[options.net])
    note = " (a rehearsal: no accelerator was asked for or found)" if device.type == "cpu" else ""
    print(f"torch {torch.__version__}, {device}{note}; {net.title or net.name}")
    failed = []
    for name in METHODS:
        try:
            print(f"{name:12} {_line(name, net, device, options.rounds)}", flush=True)
        except Exception as error:  # the next method may work
            failed.append(name)
            print(f"{name:12} FAILED: {type(error).__name__}: {' '.join(str(error).split())[:160]}", flush=True)
    print("all agree" if not failed else f"failed: {', '.join(failed)}")
    return 1 if failed else 0


def _line(name: str, net: Net, device: torch.device, rounds: int) -> str:
    slopes = [_gradients(name, net, place) for place in (torch.device("cpu"), device)]
    worst = max(_difference(here, there) for here, there in zip(*slopes, strict=True))
    if not worst <= TOLERANCE:
        raise ArithmeticError(f"gradients differ by {worst:.2g} of their size (allowed: {TOLERANCE:g})")
    probabilities = _prediction(name, net, device)
    ratio, waits = _timed(name, net, device, rounds)
    waiting = "" if waits is None else f", waits {waits} times a step"
    return f"gradients differ by {worst:.1e}, {probabilities}, a step {ratio:.2f} of an ordinary one{waiting}"


def _assembled(name: str, net: Net, device: torch.device) -> Assembly:
    """The same start on every device: starts are drawn on the CPU."""
    torch.manual_seed(0)
    made = assemble(
        bw.find_method(name), net.build().to(device), "categorical", dataset_size=net.dataset_size,
        batches=net.batches, epochs=100, generator=bw.make_generator(1, device),
    )  # fmt: skip
    made.model.train()
    return made


def _gradients(name: str, net: Net, device: torch.device) -> list[Tensor]:
    """At the posterior's start with stds near zero and no dropout: there noise, which devices draw, is no matter."""
    torch.manual_seed(0)
    made = _assembled(name, net, torch.device("cpu"))
    if made.model.posterior.can_scale_stds:
        made.model.posterior.scale_stds(1e-6)
    for module in made.model.net.modules():
        if hasattr(module, "p"):
            module.p = 0.0
    model, objective = made.model.to(device), made.objective.to(device)
    inputs, targets = next(net.data())
    at, generator = bw.Progress(0), bw.make_generator(2, device)
    objective(model, inputs.to(device), targets.to(device), at=at, generator=generator).total.backward()
    named = [(key, p.grad) for key, p in model.named_parameters() if p.grad is not None]
    return [
        grad.detach().cpu() for key, grad in named if key.rpartition(".")[2] == "mean" or not key.startswith("post")
    ]


def _difference(here: Tensor, there: Tensor) -> float:
    return float((here - there).norm() / here.norm().clamp_min(1e-30))


def _prediction(name: str, net: Net, device: torch.device) -> str:
    """Of 20 draws on the device and on the CPU: apart by chance alone."""
    model, inputs = _assembled(name, net, device).model, net.inputs(64)
    found = [
        bw.predict(model.to(place), inputs, bw.Categorical(), draws=20, generator=bw.make_generator(3, place))
        for place in (device, torch.device("cpu"))
    ]
    apart = (found[0].probabilities.cpu() - found[1].probabilities).abs().mean()
    return f"predictions apart by {float(apart):.1e}"


def _timed(name: str, net: Net, device: torch.device, rounds: int) -> tuple[float, int | None]:
    """A step over an ordinary one, in turns, and how often torch had to wait in it (CUDA only)."""
    inputs, targets = (tensor.to(device) for tensor in next(net.data()))
    plain = net.build().to(device).train()
    adam = torch.optim.Adam(plain.parameters(), 1e-3, fused=device.type in ("cuda", "cpu", "mps", "xpu"))
    made, count = _assembled(name, net, device), itertools.count()
    for part in made.objective.modules():
        if isinstance(part, bw.ELBO):
            part.check = False  # as `fit` does it on an accelerator, which looks one step later
    generator = bw.make_generator(2, device)

    def ordinary() -> None:
        adam.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(plain(inputs), targets).backward()
        adam.step()

    def bayesian() -> None:
        made.optimizer.zero_grad(set_to_none=True)
        at = bw.Progress(next(count))
        made.objective(made.model, inputs, targets, at=at, generator=generator).total.backward()
        made.optimizer.step()

    for _ in range(3):
        ordinary()
        bayesian()
    pairs = [(_seconds(ordinary, device), _seconds(bayesian, device)) for _ in range(rounds)]
    return statistics.median(own / base for base, own in pairs), _waits(bayesian, device)


def _seconds(step: Callable[[], None], device: torch.device) -> float:
    _finish(device)
    began = time.perf_counter()
    step()
    _finish(device)
    return time.perf_counter() - began


def _waits(step: Callable[[], None], device: torch.device) -> int | None:
    """How many operations of a step make the program wait: torch warns of each (CUDA)."""
    if device.type != "cuda":
        return None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            step()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return sum("synchroniz" in str(one.message) for one in caught)


def _finish(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def _found() -> str:
    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return "cpu" if found is None else found.type


def _parser() -> argparse.ArgumentParser:
    form: Any = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accelerator", description=__doc__, formatter_class=form)
    parser.add_argument("--device", help="cuda, cuda:1, xpu, mps or cpu; else what torch finds")
    parser.add_argument("--net", choices=sorted(NETS), default="lenet")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--tiny", action="store_true", help="a network of a few weights: only whether it runs")
    return parser


if __name__ == "__main__":
    sys.exit(main())
