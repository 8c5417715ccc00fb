"""Steps of samplers and optimizers: each as it is called, and by its equations in double precision."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bayeswell import native
from native.formulas import KEY, numbers

Vectors = dict[str, Tensor]

Result = dict[str, Any]

RATE, SCALE, DECAY, KEEP, GAIN, EPS = 0.013, 0.21, 0.03, 0.95, 0.13, 1e-8

BETAS = (0.9, 0.999)


@dataclass(frozen=True)
class Step:
    """``run`` changes vectors in place, or returns what it makes; ``equations`` returns both, in double precision."""

    run: Callable[[Vectors], Result | None]
    equations: Callable[[Vectors], Result]


def step_vectors(size: int, seed: int = 0) -> Vectors:
    """Weights, gradients and all kinds of state, in float32."""
    return {
        "weights": numbers(size, 1 + seed, 0.7, 0.1),
        "grads": numbers(size, 3 + seed, 0.3),
        "means": numbers(size, 4 + seed, 0.2),
        "squares": numbers(size, 7 + seed, 0.4).square(),
        "largest": numbers(size, 8 + seed, 0.4).square(),
        "log_std": numbers(size, 9 + seed, 0.5, -2.0),
        "of_log_std": numbers(size, 10 + seed, 0.01),
        "precision": numbers(size, 11 + seed, 0.8, 0.5).exp(),
        "decay": numbers(size, 12 + seed, 0.1).abs() + 0.01,
    }


def _noise(like: Tensor, key: int | None) -> Tensor:
    return torch.zeros_like(like) if key is None else native.normals(key, len(like)).double()


def _langevin(key: int | None) -> Step:
    def equations(x: Vectors) -> Result:
        return {"weights": x["weights"] - RATE * x["grads"] + SCALE * _noise(x["weights"], key)}

    return Step(lambda x: native.langevin_step(key, x["weights"], x["grads"], RATE, SCALE), equations)


def _hamiltonian(key: int | None, split: bool) -> Step:
    def run(x: Vectors) -> None:
        settings = {"momentum": 0.83, "rate": RATE, "scale": SCALE}
        native.hamiltonian_step(key, x["weights"], x["grads"], x["means"], split=split, **settings)

    def equations(x: Vectors) -> Result:
        kicked, noise = x["means"] - RATE * x["grads"], SCALE * _noise(x["weights"], key)
        velocity = 0.83 * (kicked if split else x["means"]) - (0 if split else RATE) * x["grads"] + noise
        moved = (kicked + velocity) / 2 if split else velocity
        return {"means": velocity, "weights": x["weights"] + moved}

    return Step(run, equations)


def _preconditioned(key: int | None) -> Step:
    def run(x: Vectors) -> None:
        settings = {"keep": KEEP, "gain": GAIN, "correction": 0.4, "damping": 1e-2, "rate": RATE, "scale": SCALE}
        native.preconditioned_step(key, x["weights"], x["grads"], x["squares"], **settings)

    def equations(x: Vectors) -> Result:
        squares = KEEP * x["squares"] + GAIN * x["grads"].square()
        size = 1 / ((squares / 0.4).sqrt() + 1e-2)
        moved = SCALE * size.sqrt() * _noise(x["weights"], key) - RATE * size * x["grads"]
        return {"squares": squares, "weights": x["weights"] + moved}

    return Step(run, equations)


def _bounded(amsbound: bool, bounds: tuple[float, float]) -> Step:
    names = ("weights", "grads", "means", "squares", *(["largest"] if amsbound else []))

    def run(x: Vectors) -> None:
        settings = {"decay": DECAY, "eps": EPS, "floor": bounds[0], "ceiling": bounds[1], "rate": RATE}
        columns = [halves(x[name]) for name in names]
        native.bounded_step(columns, largest=amsbound, betas=BETAS, **settings)

    def equations(x: Vectors) -> Result:
        g = x["grads"] + DECAY * x["weights"]
        means = BETAS[0] * x["means"] + (1 - BETAS[0]) * g
        squares = BETAS[1] * x["squares"] + (1 - BETAS[1]) * g.square()
        top = torch.maximum(x["largest"], squares) if amsbound else squares
        moved = RATE * means / (top.sqrt() + EPS).clamp(*bounds)
        largest = {"largest": top} if amsbound else {}
        return {"means": means, "squares": squares, "weights": x["weights"] - moved, **largest}

    return Step(run, equations)


def _norms(decay: float) -> Step:
    def run(x: Vectors) -> Result:
        columns = [halves(x[name]) for name in ("weights", "grads", "means")]
        return dict(zip("ga", native.gradient_norms(columns, decay=decay, keep=KEEP, gain=GAIN), strict=True))

    def equations(x: Vectors) -> Result:
        g = x["grads"] + decay * x["weights"]
        return {"g": float(g.norm()), "a": float((KEEP * x["means"] + GAIN * g).norm())}

    return Step(run, equations)


def _momentum(momentum: float) -> Step:
    def run(x: Vectors) -> None:
        columns = [halves(x[name]) for name in ("weights", "grads", "means", "log_std")]
        settings = {"decay": DECAY, "keep": KEEP, "gain": GAIN, "shrink": 0.7, "rate": RATE}
        native.momentum_step(columns, momentum=momentum, **settings)

    def equations(x: Vectors) -> Result:
        g = x["grads"] + DECAY * x["weights"]
        buffers = momentum * x["log_std"] + 0.7 * g
        kept = {"log_std": buffers} if momentum else {}
        return {"means": KEEP * x["means"] + GAIN * g, "weights": x["weights"] - RATE * buffers, **kept}

    return Step(run, equations)


def _newton(clip: float, damping: float | None = None) -> Step:
    names = ("weights", "grads", "log_std", "of_log_std", "precision", "means", "decay", "squares")

    def run(x: Vectors) -> None:
        settings = {"ess": 70.0, "rate": 0.05, "gain": 0.1, "correction": 0.4, "clip": clip, "lr": 0.3}
        if damping is None:
            native.newton_step(*(x[name] for name in names), **settings)
        else:
            own = {"gain2": 0.2, "unbias": 1.7, "damping": damping}
            native.newton_step(*(x[name] for name in names), x["largest"], **settings, **own)

    def equations(x: Vectors) -> Result:
        change = 0.05 * (x["decay"] / x["precision"] + 70 * x["of_log_std"] - 1)
        precision = x["precision"] * (1 + change + change.square() / 2)
        means = 0.9 * x["means"] + 0.1 * x["grads"]
        squares = 0.8 * x["largest"] + 0.2 * (x["grads"] - means / 0.4).square()
        below = precision if damping is None else precision + damping * (1.7 * squares).sqrt()
        move = ((means / 0.4 + x["decay"] * x["weights"]) / below).clamp(-clip, clip)
        moved = {"weights": x["weights"] - 0.3 * move * x["squares"], "log_std": -0.5 * (70 * precision).log()}
        kept = {} if damping is None else {"largest": squares}
        return {"precision": precision, "means": means, **moved, **kept}

    return Step(run, equations)


def halves(vector: Tensor) -> list[Tensor]:
    """As several parameters, one of them empty, that lie one after the other."""
    third = len(vector) // 3
    return [vector[:third], vector[third:third], vector[third:]]


STEPS: dict[str, Step] = {
    "langevin_step": _langevin(KEY),
    "langevin_step, no noise": _langevin(None),
    "hamiltonian_step": _hamiltonian(KEY, split=False),
    "hamiltonian_step, split": _hamiltonian(KEY, split=True),
    "hamiltonian_step, no noise": _hamiltonian(None, split=False),
    "hamiltonian_step, split, no noise": _hamiltonian(None, split=True),
    "preconditioned_step": _preconditioned(KEY),
    "preconditioned_step, no noise": _preconditioned(None),
    "bounded_step": _bounded(False, (0.0, math.inf)),
    "bounded_step, closing": _bounded(False, (0.2, 0.3)),
    "bounded_step, amsbound, closing": _bounded(True, (0.2, 0.3)),
    "magnitude": Step(
        lambda x: {"sum": native.magnitude(x["grads"])}, lambda x: {"sum": float(x["grads"].abs().sum())}
    ),
    "magnitude, three": Step(
        lambda x: {"sum": native.magnitude(x["grads"], None, x["means"], x["weights"])},
        lambda x: {"sum": float(sum(x[name].abs().sum() for name in ("grads", "means", "weights")))},
    ),
    "gradient_norms": _norms(0.0),
    "gradient_norms, decay": _norms(DECAY),
    "momentum_step": _momentum(0.83),
    "momentum_step, none": _momentum(0.0),
    "newton_step": _newton(math.inf),
    "newton_step, clipped": _newton(0.2),
    "newton_step, damped": _newton(math.inf, 3.0),
}
