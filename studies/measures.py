"""Measurements of the papers besides scores, as plain functions of a trained model."""

from __future__ import annotations

import dataclasses
import math
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from bayeswell.core.errors import Unsupported
from bayeswell.core.layout import Layout, Site
from bayeswell.core.random import derive_seed, make_generator, standard_normal
from bayeswell.lab.data import DataSet
from bayeswell.lab.diagnostics import sharpness
from bayeswell.lab.diagnostics.sharpness import DataLoss
from bayeswell.lab.models import build_model
from bayeswell.lab.settings import RunSettings
from bayeswell.methods import build
from bayeswell.nn import BayesianModule, trained_params
from bayeswell.posteriors import gaussian_posterior, num_variational_params
from bayeswell.prediction import Predictor, expected_nll
from bayeswell.tables import Preparation
from bayeswell.training import Callback, Run
from bayeswell.training.elbo import kl_to_prior
from bayeswell.training.history import EpochRecord
from bayeswell.training.loop import train_step

from .corruptions import FAMILIES, corrupted

BATCH = 1000
EXAMPLES = 500
FLOOR = 1e-3
"""Stds of a truncated matrix stay above this share of its median."""
Scores = dict[str, float]


def matrices(model: BayesianModule) -> Iterator[tuple[Site, slice]]:
    """Yield the weight matrices with both sides above 1, and their places in the flat vector."""
    for site, place in zip(model.layout.sites, model.layout.slices.values(), strict=True):
        if site.matrix_shape is not None and min(site.matrix_shape) > 1:
            yield site, place


def as_matrix(site: Site, values: Tensor) -> Tensor:
    found: Tensor = site.to_matrix(values.detach().double().reshape(site.shape))
    return found


def explained_variance(matrix: Tensor) -> Tensor:
    """Return gamma_k^2 / sum gamma^2 of the singular values, largest first (k-tied, Figure 3); zeros give zeros."""
    squares = torch.linalg.svdvals(matrix.double()).square()
    found: Tensor = squares / squares.sum().clamp_min(torch.finfo(torch.float64).tiny)
    return found


def centered(matrix: Tensor) -> Tensor:
    """Return the matrix about its mean; what is rounding of equal numbers becomes 0."""
    away = matrix - matrix.mean()
    return away if float(away.abs().max()) > 1e-6 * float(matrix.abs().max()) else torch.zeros_like(matrix)


def spectra(model: BayesianModule) -> dict[str, dict[str, Tensor]]:
    """Return the explained variance of stds and means of each matrix, also of stds and log stds about their mean.

    Equal stds have rank 1 already, so the share of the first value alone shows no learned structure.
    """
    std, found = model.posterior.std(), {}
    for site, place in matrices(model):
        stds, means = as_matrix(site, std[place]), as_matrix(site, model.posterior.mean[place])
        tables = {
            "stds": stds,
            "means": means,
            "centered_stds": centered(stds),
            "centered_log_stds": centered(stds.clamp_min(1e-30).log()),
        }
        found[site.name] = {name: explained_variance(table) for name, table in tables.items()}
    return found


def spectrum_scores(model: BayesianModule, before: str = "spectra") -> Scores:
    """Return the share of the first and of the first two singular values, on average over the matrices."""
    every = list(spectra(model).values())
    return {
        f"{before}.{name}.{count}": statistics.mean(float(one[name][:count].sum()) for one in every)
        for name in (every[0] if every else {})
        for count in (1, 2)
    }


def rank_k(matrix: Tensor, rank: int) -> Tensor:
    """Return |A_k| of a matrix of stds, with the floor: its best rank-k approximation may have negative entries."""
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    approximation = (left[:, :rank] * values[:rank]) @ right[:rank]
    found: Tensor = approximation.abs().clamp_min(FLOOR * float(matrix.median()))
    return found


def heat_maps(model: BayesianModule, layer: str, ranks: Sequence[int] = (1, 2, 3)) -> dict[str, Tensor]:
    """Return the stds of one weight matrix as they are and cut to each rank (k-tied, Figure 4)."""
    site, place = next((site, place) for site, place in matrices(model) if site.name == layer)
    whole = as_matrix(site, model.posterior.std()[place])
    return {"full": whole} | {f"rank {rank}": rank_k(whole, rank) for rank in ranks}


def truncated(model: BayesianModule, rank: int) -> BayesianModule:
    """Return a mean-field model whose matrices of stds are cut to rank k; vectors stay as they are."""
    std = model.posterior.std().detach().clone()
    for site, place in matrices(model):
        if rank < min(site.matrix_shape or (0, 0)):
            cut = rank_k(as_matrix(site, std[place]), rank)
            std[place] = site.from_matrix(cut).reshape(-1).to(std.dtype)
    mean = model.posterior.mean.detach()
    return model.with_posterior(gaussian_posterior(model.layout, mean, std.double().square()))


def rank_scores(trained: Predictor, data: DataSet, ranks: Sequence[int], examples: int | None, draws: int) -> Scores:
    """Return scores of the posterior (``whole.``) and of its stds cut to each rank (``rank2.``), with the same draws.

    ``negative_elbo`` is in nats per datum; ``std_error`` is |A - A_k| / |A| over all stds.
    """
    some = first_examples(data, examples)
    whole, found = trained.model.posterior.std().detach(), Scores()
    for rank in (None, *ranks):
        model = trained.model if rank is None else truncated(trained.model, rank)
        scores = some.evaluate(dataclasses.replace(trained, model=model), draws=draws, batch_size=BATCH, seed=0)
        kl = kl_to_prior(model, 0)[0] / len(data.train[1])
        row = {key: scores[key].value for key in ("nll", "accuracy", "brier", "ece") if key in scores}
        row["negative_elbo"] = kl + expected_nll(
            model, *some.test, trained.likelihood, draws, batch_size=BATCH, seed=0, prediction="sampled"
        )
        row["std_error"] = float((model.posterior.std().detach() - whole).norm() / whole.norm())
        name = "whole" if rank is None else f"rank{rank}"
        found |= {f"{name}.{key}": value for key, value in row.items()}
    return found


def first_examples(data: DataSet, count: int | None) -> DataSet:
    return data if count is None else dataclasses.replace(data, test=(data.test[0][:count], data.test[1][:count]))


def sharpness_scores(trained: Predictor, data: DataSet, rho: float) -> Scores:
    """Return the sharpness of three draws on 500 training examples (Nguyen et al., supplement)."""
    some = (data.train[0][:EXAMPLES], data.train[1][:EXAMPLES])
    found = sharpness(trained.model, trained.likelihood, some, rho=rho, draws=3, steps=10, batch_size=BATCH)
    return {f"sharpness.{name}": getattr(found, name).value for name in ("one_step", "ascent", "loss")}


def corruption_scores(trained: Predictor, data: DataSet, images: int, draws: int) -> Scores:
    """Return accuracy, NLL and ECE under corruption, by family and over all (Nguyen et al., Table 5)."""
    some = first_examples(data, images)
    raw = some.raw_inputs(some.test[0])
    by_family: dict[str, list[Scores]] = {}
    for family, names in FAMILIES.items():
        for name in names:
            for severity in range(1, 6):
                inputs = data.preparation.inputs(corrupted(raw, name, severity, seed=severity))
                one = dataclasses.replace(some, test=(inputs, some.test[1]))
                scores = one.evaluate(trained, draws=min(draws, 30), batch_size=BATCH, seed=0)
                by_family.setdefault(family, []).append({key: scores[key].value for key in ("accuracy", "nll", "ece")})
    found = {f".{family}": rows for family, rows in by_family.items()}
    found[""] = [row for rows in by_family.values() for row in rows]
    return {
        f"corrupted{family}.{key}": statistics.mean(row[key] for row in rows)
        for family, rows in found.items()
        for key in rows[0]
    }


def prediction_scores(trained: Predictor, data: DataSet, ways: Sequence[str], draws: int) -> Scores:
    """Return the test scores of each way to predict, such as ``sampled.nll``."""
    found: Scores = {}
    for way in ways:
        scores = data.evaluate(trained, draws=draws, batch_size=BATCH, seed=0, prediction=way)
        found |= {f"{way}.{key}": value.value for key, value in scores.items()}
    return found


def has_stds(model: BayesianModule) -> bool:
    """Return whether the posterior is a Gaussian with stds above 0."""
    try:
        return bool((model.posterior.std() > 0).all()) and bool(model.posterior.mean.numel())
    except (Unsupported, NotImplementedError, AttributeError, ValueError):
        return False


def filter_normalized(layout: Layout, center: Tensor, generator: torch.Generator) -> Tensor:
    """(P,): a random direction whose filters have the norms of the network's own; 0 for vectors (Li et al. 2018)."""
    direction = standard_normal(center.shape, like=center, generator=generator)
    pieces = []
    for site, place in zip(layout.sites, layout.slices.values(), strict=True):
        if site.matrix_shape is None:
            pieces.append(torch.zeros_like(center[place]))
            continue
        drawn, own = (site.to_matrix(vector[place].view(site.shape)) for vector in (direction, center))
        scaled = drawn * own.norm(dim=1, keepdim=True) / drawn.norm(dim=1, keepdim=True)
        pieces.append(site.from_matrix(scaled).reshape(-1))
    return torch.cat(pieces)


def loss_plane(trained: Predictor, inputs: Tensor, targets: Tensor, *, reach: float = 1.0, points: int = 11,
               rows: int | None = None, seed: int = 0) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return distances (points,) and losses (rows, points) around the mean in a plane of two random directions.

    A distance of 1 is as long as the weights of each filter; ``rows = 1`` is a line.
    """
    model, loss = trained.model, DataLoss(trained.model, trained.likelihood, inputs, targets, BATCH)
    generator, center = make_generator(seed), model.posterior.mean.detach()
    first, second = (filter_normalized(model.layout, center, generator) for _ in range(2))
    places = torch.linspace(-reach, reach, points)
    others = places if rows is None else torch.linspace(-reach, reach, rows) if rows > 1 else torch.zeros(1)
    losses = [[loss.with_gradient(center + i * second + j * first, {})[0] for j in places] for i in others]
    return places, torch.tensor(losses)


def loss_line(trained: Predictor, inputs: Tensor, targets: Tensor, **settings: Any) -> tuple[Tensor, Tensor]:
    """Return distances and losses (points,) along a random direction; settings as in ``loss_plane``."""
    places, losses = loss_plane(trained, inputs, targets, rows=1, **settings)
    return places, losses[0]


def robust_region(momentum: float, curvature_min: float, curvature_max: float) -> tuple[float, float]:
    """Return the rates with (1 - sqrt(m))^2 / h <= lr <= (1 + sqrt(m))^2 / h for every curvature h of the range.

    There errors of SGD on a quadratic shrink by sqrt(m) a step (Book 2020, eq. (3.2.1)); empty if the first is larger.
    """
    root = math.sqrt(momentum)
    return (1 - root) ** 2 / curvature_min, (1 + root) ** 2 / curvature_max


class AverageCurve(Callback):
    """NLL of the averaged model on training examples after each epoch (HWA, Figure 1)."""

    def __init__(self, inputs: Tensor, targets: Tensor) -> None:
        self.inputs, self.targets = inputs[:BATCH], targets[:BATCH]
        self.curves: dict[str, list[float]] = {}

    def after_epoch(self, run: Run, record: EpochRecord) -> None:
        averager: Any = run.state.averager
        if run.member or not hasattr(averager, "result") or averager.snapshots < averager.least:
            return
        with torch.no_grad():
            model = run.state.model.with_posterior(averager.result())
            value = expected_nll(model, self.inputs, self.targets, run.state.likelihood, 10, seed=0)
        self.curves.setdefault("average.epoch", []).append(record.epoch + 1.0)
        self.curves.setdefault("average.nll", []).append(value)

    def state_dict(self) -> dict[str, Any]:
        return {"curves": self.curves}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.curves = state["curves"]


SHAPES: dict[str, tuple[tuple[int, ...], int, int | None]] = {
    "mnist": ((1, 28, 28), 10, None),
    "fashion_mnist": ((1, 28, 28), 10, None),
    "cifar10": ((3, 32, 32), 10, None),
    "cifar100": ((3, 32, 32), 100, None),
    "svhn": ((3, 32, 32), 10, None),
    "imdb": ((80,), 2, 20000),
}
"""Shape of an input, classes and vocabulary."""


def stand_in(name: str, count: int) -> DataSet:
    """Return random examples of the shape of a data set, for what needs no training."""
    shape, classes, vocabulary = SHAPES[name]
    generator = make_generator(0)
    inputs = torch.randn(count, *shape, generator=generator)
    if vocabulary is not None:
        inputs = torch.randint(1, vocabulary, (count, *shape), generator=generator)
    targets = torch.arange(count) % classes
    preparation = Preparation.fit(inputs.float(), torch.arange(classes).repeat(count)[:count], standardize=False,
                                  kind="classes")  # fmt: skip
    names = tuple(map(str, range(classes)))
    preparation = dataclasses.replace(preparation, class_names=names)
    return DataSet(name, (inputs, targets), (inputs, targets), preparation, vocabulary=vocabulary)


def new_state(settings: RunSettings) -> tuple[Any, tuple[Tensor, Tensor]]:
    """Return an untrained run with the settings of a cell on random examples, and one batch."""
    name = settings.data["name"] if isinstance(settings.data, Mapping) else str(settings.data)
    data = stand_in(name, settings.batch_size or 100)
    net = build_model(settings.model, data, likelihood=settings.likelihood, **settings.model_settings)
    state = build(
        settings.method_part,
        net,
        data.scaled_likelihood(settings.likelihood),
        dataset_size=50_000,
        batches=400,
        epochs=max(1, settings.epochs),
        generator=make_generator(derive_seed(0, "state")),
    )
    return state, data.train


def num_params(settings: RunSettings) -> int:
    """Return the trained numbers of a cell: those of the posterior, and parameters without one."""
    model = new_state(settings)[0].model
    rest = [one for one in trained_params(model.net).values() if one.requires_grad]
    return num_variational_params(model.posterior) + sum(one.numel() for one in rest)


def step_times(settings: Mapping[str, RunSettings], repeats: int = 5, least: float = 0.1) -> dict[str, list[float]]:
    """Return milliseconds of a training step of several cells, in turn, so that other work slows all of them.

    Each number is that of the fastest step within ``least`` seconds; the first round is left out.
    """
    states = {label: new_state(one) for label, one in settings.items()}
    times: dict[str, list[float]] = {label: [] for label in states}
    for _ in range(repeats + 1):
        for label, (state, batch) in states.items():
            steps: list[float] = []
            while sum(steps) < least:
                began = time.perf_counter()
                train_step(state, batch)
                steps.append(time.perf_counter() - began)
            times[label].append(1000 * min(steps))
    return {label: values[1:] for label, values in times.items()}
