"""Small networks whose posterior is known: the problems, and the long NUTS runs that stand for the truth.

Each problem is a tanh network with a normal prior and data made from a seed. Its reference, kept in
``tests/references``, holds the problem itself, what 10,000 nearly independent draws of its posterior at temperature 1
say of the function at test inputs, and how far these draws can be trusted. The standard is posteriordb's definition of
a reference posterior, asked of function values instead of weights: 10 chains, R-hat < 1.01, no divergent
transition, E-FMI > 0.2, lag-1 autocorrelation below 0.05 after thinning. A run that misses it is not written.

Reading a reference needs numpy alone; making one needs the extra ``references`` (numpyro) and some minutes:

    python tools/make_references.py [regression] [classification]
"""

from __future__ import annotations

import importlib
import json
import math
import platform
import sys
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


PROBLEMS = {"regression": regression, "classification": classification}


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
    jax, numpyro = _load("jax"), _load("numpyro")
    dist, infer = numpyro.distributions, numpyro.infer
    numpyro.enable_x64()
    jnp = jax.numpy
    inputs, targets = jnp.asarray(problem.train_inputs), jnp.asarray(problem.train_targets)
    size = sum(math.prod(shape) for shape in problem.shapes.values())
    scale = jnp.asarray(np.concatenate([np.full(math.prod(shape), problem.prior_stds[name])
                                        for name, shape in problem.shapes.items()]))  # fmt: skip

    def network(weights: Any, points: Any) -> Any:
        values, start = points, 0
        for layer, (inside, outside) in enumerate(zip(problem.widths, problem.widths[1:], strict=False)):
            matrix = weights[start : start + inside * outside].reshape(outside, inside)
            start += inside * outside
            bias = weights[start : start + outside]
            start += outside
            values = (jnp.tanh(values) if layer else values) @ matrix.T + bias
        return values

    def model() -> None:
        white = numpyro.sample("white", dist.Normal(jnp.zeros(size), 1.0).to_event(1))
        outputs = network(scale * white, inputs)
        if problem.likelihood["name"] == "gaussian":
            numpyro.sample("y", dist.Normal(outputs, problem.likelihood["std"]).to_event(2), obs=targets)
        else:
            numpyro.sample("y", dist.Categorical(logits=outputs).to_event(1), obs=targets)

    kernel = infer.NUTS(model, target_accept_prob=0.9, init_strategy=infer.init_to_sample)
    mcmc = infer.MCMC(kernel, num_warmup=warm_up, num_samples=draws, num_chains=chains, chain_method="sequential",
                      progress_bar=False)  # fmt: skip
    mcmc.run(jax.random.PRNGKey(seed), extra_fields=("diverging", "energy", "num_steps"))
    fields = mcmc.get_extra_fields(group_by_chain=True)
    white = mcmc.get_samples(group_by_chain=True)["white"][:, thinning - 1 :: thinning]

    points = jnp.asarray(problem.test_inputs)

    def quantity(one: Any) -> Any:
        outputs = network(scale * one, points)
        return outputs[:, 0] if problem.likelihood["name"] == "gaussian" else jax.nn.softmax(outputs)

    values = np.asarray(jax.lax.map(jax.jit(jax.vmap(quantity)), white))
    probes = white[:PROBES, -1]
    densities = [infer.util.log_density(model, (), {}, {"white": one})[0] - jnp.log(scale).sum() for one in probes]
    diagnose = numpyro.diagnostics
    size_of = np.asarray(diagnose.effective_sample_size(values))
    std = values.std((0, 1), ddof=1)
    hats = rank_r_hat(values, diagnose.split_gelman_rubin, jax.scipy.special.ndtri)
    kept = values.shape[0] * values.shape[1]
    # Numpyro's estimate may exceed the number of draws; such luck is not relied on.
    ess = np.minimum(size_of, kept)
    energy = np.asarray(fields["energy"])
    run = {
        "sampler": "NUTS, diagonal mass matrix, target acceptance 0.9, started at draws of the prior",
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
        "divergences": int(np.asarray(fields["diverging"]).sum()),
        "min_e_fmi": float((np.square(np.diff(energy, axis=1)).mean(1) / energy.var(1)).min()),
        "mean_leapfrog_steps": float(np.asarray(fields["num_steps"]).mean()),
        "versions": {name: _load(name).__version__ for name in ("numpyro", "jax", "jaxlib", "numpy")}
        | {"python": platform.python_version()},
    }
    return Reference(
        problem, run, values.mean((0, 1)), std, std / np.sqrt(ess), hats, ess, values.mean(1), values.var(1, ddof=1),
        np.asarray(scale * probes), np.asarray(jnp.stack([network(scale * one, points) for one in probes])),
        np.asarray(jnp.stack(densities)),
    )  # fmt: skip


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


def rank_r_hat(values: Array, split_r_hat: Any, normal_quantile: Any) -> Array:
    """The larger of the split R-hats of normal scores of the draws and of their distance from the median."""
    distance = np.abs(values - np.median(values, (0, 1)))
    hats = [np.asarray(split_r_hat(_scores(each, normal_quantile))) for each in (values, distance)]
    worst: Array = np.maximum(*hats)
    return worst


def _scores(values: Array, normal_quantile: Any) -> Array:
    """Normal scores over all chains; draws of a continuous quantity have no ties."""
    flat = values.reshape(-1, *values.shape[2:])
    ranks = flat.argsort(0).argsort(0) + 1
    return np.asarray(normal_quantile((ranks - 0.375) / (len(flat) + 0.25))).reshape(values.shape)


def lag_1(values: Array) -> Array:
    """The autocorrelation of neighbouring draws (chains, draws, ...), chains together."""
    centred = values - values.mean((0, 1))
    found: Array = (centred[:, 1:] * centred[:, :-1]).mean((0, 1)) / centred.var((0, 1))
    return found


def _load(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        sys.exit(f"make_references: {error}; references are made with numpyro: pip install 'bayeswell[references]'")


def main(names: list[str]) -> int:
    """Make the named references, or all; 1 if one of them is not good enough to be kept."""
    wrong = 0
    for name in names or list(PROBLEMS):
        if name not in PROBLEMS:
            sys.exit(f"make_references: there is no problem '{name}'; allowed: {', '.join(PROBLEMS)}")
        found = sample(PROBLEMS[name](), seed=1, chains=10, warm_up=1000, draws=2000, thinning=2)
        print(name, json.dumps(found.run, indent=2), flush=True)
        if bad := faults(found.run):
            wrong = 1
            print(f"{name}: not written: {'; '.join(bad)}")
        else:
            write_reference(found)
    return wrong


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
