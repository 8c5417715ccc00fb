"""Small networks whose posterior is known: the problems, and the long NUTS runs that stand for the truth.

Each problem is a tanh network with a normal prior and data made from a seed. Its reference, kept in
``tests/references``, holds the problem itself, what thousands of nearly independent draws of its posterior at
temperature 1 say of the function at test inputs, and how far these draws can be trusted. The standard is
posteriordb's definition of a reference posterior, asked of function values instead of weights: several chains, R-hat
< 1.01, no divergent transition, E-FMI > 0.2, lag-1 autocorrelation below 0.05 after thinning. A run that misses it is
not written.

Reading a reference needs numpy alone; making one needs a C++ compiler (``nuts.cpp`` is the sampler), bayeswell itself
(for R-hat and ESS) and some minutes:

    python tools/make_references.py [regression] [classification] [gap] [wine] [digits]
"""

from __future__ import annotations

import functools
import importlib
import json
import math
import platform
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

FOLDER = Path(__file__).resolve().parents[1] / "tests" / "references"
R_HAT_LIMIT, LAG_1_LIMIT, E_FMI_LIMIT = 1.01, 0.05, 0.2
PROBES = 3


@dataclass(frozen=True)
class Problem:
    """A network of ``widths`` with tanh between its linear layers, its prior and likelihood, and the data.

    ``prior`` and ``likelihood`` are written as ``bayeswell.training.fit`` takes them.
    """

    name: str
    widths: tuple[int, ...]
    prior: Mapping[str, Any]
    likelihood: Mapping[str, Any]
    data_seed: int
    train_inputs: Array
    train_targets: npt.NDArray[Any]
    test_inputs: Array

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The parameters of ``Sequential(Linear, Tanh, Linear, ...)`` in their order."""
        found: dict[str, tuple[int, ...]] = {}
        for layer, (inside, outside) in enumerate(zip(self.widths, self.widths[1:], strict=False)):
            found[f"{2 * layer}.weight"] = (outside, inside)
            found[f"{2 * layer}.bias"] = (outside,)
        return found

    @property
    def prior_stds(self) -> dict[str, float]:
        """The std of the N(0, std^2) prior of each parameter; Kaiming's is sqrt(2 / fan_in), biases included."""
        if self.prior["name"] == "normal":
            return dict.fromkeys(self.shapes, float(self.prior["std"]))
        fans = [fan for fan in self.widths[:-1] for _ in ("weight", "bias")]
        return {name: math.sqrt(2 / fan) for name, fan in zip(self.shapes, fans, strict=True)}


@dataclass(frozen=True)
class Reference:
    """A problem and its answer at the test inputs, the quantities being f(x) (T,) or class probabilities (T, K).

    ``mean`` and ``std`` are over the posterior, ``mcse`` is the Monte Carlo standard error of ``mean``, ``chain_mean``
    and ``chain_variance`` (chains, ...) belong to the chains on their own. ``probe_weights`` (3, P) are draws, with
    ``probe_outputs`` (3, T, outputs) of the network and ``probe_log_joint`` (3,) = log p(y, w), constants included.
    """

    problem: Problem
    run: Mapping[str, Any]
    mean: Array
    std: Array
    mcse: Array
    r_hat: Array
    ess: Array
    chain_mean: Array
    chain_variance: Array
    probe_weights: Array
    probe_outputs: Array
    probe_log_joint: Array


def regression() -> Problem:
    """40 points of a curve on the real line, with a gap between two clusters; 1-50-1."""
    seed, noise_std = 20240, 0.15
    generator = np.random.default_rng(seed)
    inputs = np.sort(np.concatenate([generator.uniform(-2.0, -0.7, 20), generator.uniform(0.5, 2.0, 20)]))[:, None]
    targets = np.sin(2.2 * inputs) + 0.3 * inputs + noise_std * generator.standard_normal(inputs.shape)
    return Problem(
        "regression", (1, 50, 1), {"name": "kaiming"}, {"name": "gaussian", "noise": "known", "std": noise_std},
        seed, _single(inputs), _single(targets), _single(np.linspace(-3.0, 3.0, 61)[:, None]),
    )  # fmt: skip


def classification() -> Problem:
    """60 points in three curved arms on the plane; 2-16-3. Half of the test inputs lie where no data are."""
    seed = 20241
    generator = np.random.default_rng(seed)
    inputs, labels = _arms(generator, 20)
    fresh, _ = _arms(generator, 34)
    anywhere = generator.uniform(-4.0, 4.0, (100, 2))
    return Problem(
        "classification", (2, 16, 3), {"name": "normal", "std": 2.3}, {"name": "categorical"},
        seed, _single(inputs), labels, _single(np.concatenate([fresh[:100], anywhere])),
    )  # fmt: skip


def gap() -> Problem:
    """60 points of a curve with little noise on both sides of a gap; 1-50-1 under N(0, 1): stiff.

    A priori the function has a std of 7, and the data fix it to 0.1: curvatures differ by a factor of 10^5.
    """
    seed, noise_std = 20242, 0.1
    generator = np.random.default_rng(seed)
    inputs = np.sort(np.concatenate([generator.uniform(-1.6, -0.5, 30), generator.uniform(0.6, 1.6, 30)]))[:, None]
    targets = np.sin(3.0 * inputs) - 0.5 * inputs + noise_std * generator.standard_normal(inputs.shape)
    return Problem(
        "gap", (1, 50, 1), {"name": "normal", "std": 1.0}, {"name": "gaussian", "noise": "known", "std": noise_std},
        seed, _single(inputs), _single(targets), _single(np.linspace(-2.4, 2.4, 61)[:, None]),
    )  # fmt: skip


def digits() -> Problem:
    """200 of scikit-learn's 8 x 8 digits; 64-10-10 under N(0, 1). Test inputs are 100 others."""
    seed = 20243
    found = _load("sklearn.datasets").load_digits()
    chosen = np.random.default_rng(seed).permutation(len(found.target))[:300]
    inputs, labels = found.data[chosen] / 16, found.target[chosen].astype(np.int64)
    return Problem(
        "digits", (64, 10, 10), {"name": "normal", "std": 1.0}, {"name": "categorical"},
        seed, inputs[:200], labels[:200], inputs[200:],
    )  # fmt: skip


def wine() -> Problem:
    """120 of scikit-learn's 178 wines, 13 standardised columns; 13-8-3 under N(0, 1). The others test."""
    seed = 20244
    found = _load("sklearn.datasets").load_wine()
    order = np.random.default_rng(seed).permutation(len(found.target))
    train, test = order[:120], order[120:]
    mean, std = found.data[train].mean(0), found.data[train].std(0)
    inputs, labels = _single((found.data - mean) / std), found.target.astype(np.int64)
    return Problem(
        "wine", (13, 8, 3), {"name": "normal", "std": 1.0}, {"name": "categorical"},
        seed, inputs[train], labels[train], inputs[test],
    )  # fmt: skip


PROBLEMS = {"regression": regression, "classification": classification, "gap": gap, "wine": wine}
PLANNED = {"digits": digits}
"""Problems without a reference yet: to be made by this script, and then moved to ``PROBLEMS``."""
RUNS: Mapping[str, Mapping[str, int]] = {
    "regression": {"chains": 10, "warm_up": 1000, "draws": 2000, "thinning": 2},
    "classification": {"chains": 10, "warm_up": 1000, "draws": 2000, "thinning": 2},
    # Trajectories of 1,000 steps. With every draw kept the lag-1 autocorrelation was 0.077.
    "gap": {"chains": 5, "warm_up": 300, "draws": 1000, "thinning": 2},
    # Every third of 600 draws of two chains had a lag-1 autocorrelation of 0.15.
    "wine": {"chains": 10, "warm_up": 1000, "draws": 10_000, "thinning": 10},
    # Every fourth of 2,400 draws of four chains had R-hat 1.004, but a lag-1 autocorrelation of 0.14.
    "digits": {"chains": 4, "warm_up": 250, "draws": 20_000, "thinning": 10},
}
"""How long each run is."""


def _arms(generator: np.random.Generator, each: int) -> tuple[Array, npt.NDArray[np.int64]]:
    """Points along three arms of a spiral, ``each`` of every class, in a random order."""
    labels = generator.permutation(np.repeat(np.arange(3), each))
    along = generator.uniform(0.0, 1.0, len(labels))
    angle, radius = 2 * np.pi * labels / 3 + 1.8 * along, 0.3 + 1.9 * along
    points = np.stack([radius * np.cos(angle), radius * np.sin(angle)], -1)
    return points + 0.3 * generator.standard_normal(points.shape), labels.astype(np.int64)


def _single(values: Array) -> Array:
    """Numbers that are the same in float32 and float64, so that both precisions see one problem."""
    return values.astype(np.float32).astype(np.float64)


# Files


def write_reference(reference: Reference, folder: Path = FOLDER) -> None:
    """``<name>.npz`` for the arrays, ``<name>.json`` for all that is not one."""
    problem = reference.problem
    parts = vars(problem) | vars(reference)
    arrays: dict[str, Any] = {key: value for key, value in parts.items() if isinstance(value, np.ndarray)}
    about = {key: value for key, value in asdict(problem).items() if key not in arrays}
    about |= {"prior_stds": problem.prior_stds, "run": reference.run}
    np.savez_compressed(folder / f"{problem.name}.npz", **arrays)
    (folder / f"{problem.name}.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")


def read_reference(name: str, folder: Path = FOLDER) -> Reference:
    """What ``write_reference`` wrote."""
    about = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    with np.load(folder / f"{name}.npz", allow_pickle=False) as file:
        arrays = {key: file[key] for key in file.files}
    mine = ("train_inputs", "train_targets", "test_inputs")
    problem = Problem(
        about["name"], tuple(about["widths"]), about["prior"], about["likelihood"], about["data_seed"],
        *(arrays.pop(key) for key in mine),
    )  # fmt: skip
    return Reference(problem, about["run"], **arrays)


# NUTS


def sample(problem: Problem, seed: int, chains: int, warm_up: int, draws: int, thinning: int) -> Reference:
    """A long run of NUTS on whitened weights, summed up at the test inputs."""
    scale = np.concatenate([np.full(math.prod(shape), problem.prior_stds[name])
                            for name, shape in problem.shapes.items()])  # fmt: skip
    found = [_chain(problem, scale, seed, chain, warm_up, draws, thinning) for chain in range(chains)]
    white, fields = (np.stack(parts) for parts in zip(*found, strict=True))
    energy, diverging, steps = np.moveaxis(fields, -1, 0)

    def outputs(weights: Array, points: Array) -> Array:
        values, start = points, 0
        for layer, (inside, outside) in enumerate(zip(problem.widths, problem.widths[1:], strict=False)):
            matrix = weights[start : start + inside * outside].reshape(outside, inside)
            start += inside * outside
            values = (np.tanh(values) if layer else values) @ matrix.T + weights[start : start + outside]
            start += outside
        return values

    def quantity(weights: Array) -> Array:
        values = outputs(weights, problem.test_inputs)
        if problem.likelihood["name"] == "gaussian":
            return values[:, 0]
        powers = np.exp(values - values.max(-1, keepdims=True))
        found: Array = powers / powers.sum(-1, keepdims=True)
        return found

    def log_joint(weights: Array) -> float:
        values, targets = outputs(weights, problem.train_inputs), problem.train_targets
        if problem.likelihood["name"] == "gaussian":
            log_likelihood = _log_normal(targets - values, np.float64(problem.likelihood["std"]))
        else:
            shifted = values - values.max(-1, keepdims=True)
            log_likelihood = float((shifted[np.arange(len(targets)), targets] - np.log(np.exp(shifted).sum(-1))).sum())
        return log_likelihood + _log_normal(weights, scale)

    values = np.stack([[quantity(scale * one) for one in chain] for chain in white])
    probes = scale * white[:PROBES, -1]
    std = values.std((0, 1), ddof=1)
    chains_of, torch = _load("bayeswell.metrics.chains"), _load("torch")
    hats: Array = chains_of.r_hat(torch.from_numpy(values)).numpy()
    kept = values.shape[0] * values.shape[1]
    # The estimate may exceed the number of draws; such luck is not relied on.
    ess = np.minimum(chains_of.ess(torch.from_numpy(values), rank_normalised=False).numpy(), kept)
    run = {
        "sampler": "NUTS (tools/nuts.cpp), diagonal mass matrix, target acceptance 0.9, started at draws of the prior",
        "temperature": 1.0,
        "seed": seed,
        "chains": chains,
        "warm_up": warm_up,
        "draws_per_chain": draws,
        "thinning": thinning,
        "kept_draws": kept,
        "max_r_hat": float(hats.max()),
        "min_ess": float(ess.min()),
        "max_abs_lag_1": float(np.abs(lag_1(values)).max()),
        "max_mcse_in_stds": float((1 / np.sqrt(ess)).max()),
        "divergences": int(diverging.sum()),
        "min_e_fmi": float((np.square(np.diff(energy, axis=1)).mean(1) / energy.var(1)).min()),
        "mean_leapfrog_steps": float(steps.mean()),
        "versions": {"numpy": np.__version__, "python": platform.python_version()},
    }
    return Reference(
        problem, run, values.mean((0, 1)), std, std / np.sqrt(ess), hats, ess, values.mean(1), values.var(1, ddof=1),
        probes, np.stack([outputs(one, problem.test_inputs) for one in probes]),
        np.array([log_joint(one) for one in probes]),
    )  # fmt: skip


def _log_normal(values: Array, std: Array | np.float64) -> float:
    """log N(values; 0, std^2), summed."""
    return float((-0.5 * np.square(values / std) - np.log(std) - 0.5 * math.log(2 * math.pi)).sum())


def _chain(
    problem: Problem, scale: Array, seed: int, chain: int, warm_up: int, draws: int, thinning: int
) -> tuple[Array, Array]:
    """One chain of nuts.cpp: whitened weights (kept draws, P), and energy, divergent, leapfrog steps (draws, 3)."""
    known = problem.likelihood["name"] == "gaussian"
    head = [*problem.widths, len(problem.train_targets), seed, chain, warm_up, draws, thinning]
    body = [problem.likelihood["std"] if known else 0.0, problem.train_inputs.T, problem.train_targets.T, scale]
    with tempfile.TemporaryDirectory() as folder:
        asked, told = Path(folder) / "problem", Path(folder) / "draws"
        with asked.open("wb") as file:
            np.array(head, np.int64).tofile(file)
            for part in body:
                np.ascontiguousarray(part, np.float64).tofile(file)
        subprocess.run([_compiled(), asked, told], check=True)
        numbers = np.fromfile(told)
    kept = draws // thinning * len(scale)
    return numbers[:kept].reshape(-1, len(scale)), numbers[kept:].reshape(-1, 3)


@functools.cache
def _compiled() -> Path:
    """tools/nuts.cpp, compiled for this machine."""
    program = Path(tempfile.mkdtemp()) / "nuts"
    flags = ["-std=c++17", "-O3", "-march=native", "-ffast-math"]
    try:
        subprocess.run(["c++", *flags, Path(__file__).parent / "nuts.cpp", "-o", program], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"make_references: {error}; references are made by a C++ program, and need a compiler named c++")
    return program


def faults(run: Mapping[str, Any]) -> list[str]:
    """Where a run misses the definition of a reference posterior; empty if it does not."""
    found = []
    if not run["max_r_hat"] < R_HAT_LIMIT:
        found.append(f"R-hat {run['max_r_hat']:.4f}, must be below {R_HAT_LIMIT}")
    if not run["max_abs_lag_1"] < LAG_1_LIMIT:
        found.append(f"lag-1 autocorrelation {run['max_abs_lag_1']:.3f}, must be below {LAG_1_LIMIT}: thin more")
    if not run["min_e_fmi"] > E_FMI_LIMIT:
        found.append(f"E-FMI {run['min_e_fmi']:.3f}, must be above {E_FMI_LIMIT}")
    if run["divergences"]:
        found.append(f"{run['divergences']} divergent transitions, there must be none")
    return found


def lag_1(values: Array) -> Array:
    """The autocorrelation of neighbouring draws (chains, draws, ...), chains together."""
    centred = values - values.mean((0, 1))
    found: Array = (centred[:, 1:] * centred[:, :-1]).mean((0, 1)) / centred.var((0, 1))
    return found


def _load(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        sys.exit(f"make_references: {error}; install it, or run this with bayeswell's own environment")


def main(names: list[str]) -> int:
    """Make the named references, or all; 1 if one of them is not good enough to be kept."""
    wrong, known = 0, PROBLEMS | PLANNED
    for name in names or list(PROBLEMS):
        if name not in known:
            sys.exit(f"make_references: there is no problem '{name}'; allowed: {', '.join(known)}")
        found = sample(known[name](), seed=1, **RUNS[name])
        print(name, json.dumps(found.run, indent=2), flush=True)
        if bad := faults(found.run):
            wrong = 1
            print(f"{name}: not written: {'; '.join(bad)}")
        else:
            write_reference(found)
    return wrong


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
