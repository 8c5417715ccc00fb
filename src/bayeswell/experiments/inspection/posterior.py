"""What the posterior of a run looks like from inside, as far as it is affordable."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ...datasets import Data
from ...diagnostics import (
    layer_report,
    loss_line,
    loss_plane,
    pareto_report,
    sharpness,
    spectra,
    truncation_table,
    trust,
)
from ...errors import BayeswellError, SettingError
from ...lifting import BayesianModule
from ...methods.assembly import assemble
from ...metrics import negative_elbo
from ...predictive import expected_nll
from ...predictive.predictor import Predictor
from ...random import derive_seed, make_generator
from ...training import batch_count
from ...training.streams import Streams
from ...types import LOG_PROB, WITHOUT_CENTRE
from ..experiment import Experiment
from ..given import NOTHING, Given
from ..problem import load_problem
from ..scores import BATCH
from .knobs import USUAL, Knobs

EXAMPLES = 500
"""Training examples that losses are measured on."""
LARGE = 200_000
"""Networks with more weights wait for ``full``."""
PASSES = 400
_WORK = 2e10
"""Weights x examples x draws that k-hat may cost without ``full``."""
SIDE = 32
_VALUES = 20

Measure = Callable[[], dict[str, Any]]


def posterior_records(
    experiment: Experiment,
    predictor: Predictor,
    data: Data,
    temperature: float,
    *,
    full: bool,
    knobs: Knobs = USUAL,
    given: Given = NOTHING,
) -> dict[str, Measure]:
    """What to measure, by name; each gives records by the names of their plots."""
    model, likelihood = predictor.model, predictor.likelihood
    some = some_training_examples(data, EXAMPLES)
    weights = model.layout.size
    large = weights > LARGE and not full

    def around() -> dict[str, Tensor] | None:
        """A bank of networks, or a mixture, has no centre: its first network stands for it."""
        return model.draw(make_generator(0)) if model.posterior_part.provides & WITHOUT_CENTRE else None

    def affordable(measure: Measure) -> Measure:
        return (lambda: _too_large(weights)) if large else measure

    found: dict[str, Measure] = {
        **without_data(model, knobs),
        "spectra": lambda: {"spectra": _spectra(lambda: model_before_training(experiment, given), model, knobs)},
        "elbo": lambda: _elbo(model, likelihood, data),
        "loss_line": lambda: {"loss_line": loss_line(model, likelihood, some, around=around(), batch_size=BATCH)},
        "loss_plane": affordable(
            lambda: {"loss_plane": loss_plane(model, likelihood, some, around=around(), batch_size=BATCH)}
        ),
        "sharpness": affordable(
            lambda: {
                "sharpness": sharpness(model, likelihood, some, rho=knobs.rho, draws=3, steps=10, batch_size=BATCH)
            }
        ),
    }
    if LOG_PROB in model.posterior_part.provides:
        found["trust"] = lambda: {"trust": _trust(predictor, data, temperature, full=full)}
    if full or knobs.ranks:
        found["truncation"] = lambda: _truncation(model, likelihood, data, knobs.ranks or (1, 2, 3))
    return found


def without_data(model: BayesianModule, knobs: Knobs = USUAL) -> dict[str, Measure]:
    """What the posterior says of itself."""
    return {
        "layers": lambda: {"layers": layer_report(model, draws=100).as_json()},
        "spectra": lambda: {"spectra": _spectra(None, model, knobs)},
        "std_heat_maps": lambda: {"std_heat_maps": _heat_map(model, knobs)},
    }


def _too_large(weights: int) -> dict[str, Any]:
    raise SettingError(f"takes long for {weights:,} weights; `bayeswell report --full` measures it")


def some_training_examples(data: Data, count: int) -> tuple[Tensor, Tensor]:
    """So many of them, evenly spread."""
    inputs, targets = data.train
    chosen = torch.linspace(0, len(targets) - 1, min(count, len(targets))).round().long()
    return inputs[chosen], targets[chosen]


def _spectra(begin: Callable[[], BayesianModule] | None, model: BayesianModule, knobs: Knobs) -> list[dict[str, Any]]:
    """Before training, as far as the run can be begun again, and after it."""
    after = spectra(model, most=_VALUES)
    if not any(layer.stds for layer in after.layers):
        raise SettingError("the posterior has no stds")
    knobs.require_known([layer.layer for layer in after.layers])
    try:
        found = [] if begin is None else [spectra(begin(), most=_VALUES, step=0)]
    except BayeswellError:
        found = []
    chosen = [replace(one, layers=tuple(layer for layer in one.layers if knobs.shows(layer.layer)))
              for one in (*found, after)]  # fmt: skip
    return [one.as_json() for one in chosen]


def model_before_training(experiment: Experiment, given: Given) -> BayesianModule:
    """The first member as it was before its first step."""
    problem = load_problem(experiment, given, with_ood=False)
    size = len(problem.data.train[1])
    with torch.random.fork_rng(devices=[]):
        streams = Streams(derive_seed(experiment.seed, "member", 0), 0, torch.device("cpu"))
        streams.begin()
        batches = batch_count(size, experiment.batch_size_of(size))
        assembly = assemble(
            experiment.method_part, problem.net, problem.likelihood, dataset_size=size, batches=batches,
            epochs=experiment.epochs, where=experiment.where, generator=streams.stepper,
        )  # fmt: skip
    return assembly.model


@torch.no_grad()
def _heat_map(model: BayesianModule, knobs: Knobs) -> dict[str, Any]:
    """The stds of the largest dense layer, or else of the largest matrix, and their best approximations of rank 1, 2.

    The approximations are of the whole matrix; a large one is shown by the means of its blocks.
    """
    matrices = [site for site in model.layout.sites if site.matrix_shape is not None]
    knobs.require_known([site.name for site in matrices])
    matrices = [site for site in matrices if knobs.shows(site.name)]
    dense = [site for site in matrices if len(site.shape) == 2]
    if not matrices:
        raise SettingError("the network has no Bayesian weight matrix")
    site = max(dense or matrices, key=lambda one: one.size)
    stds = model.posterior.std_vector().double()[model.layout.slices[site.name]].view(site.shape)
    matrix = site.to_matrix(stds).cpu()
    if not float(matrix.max()) > 0:
        raise SettingError("the posterior has no stds")
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    cut = {str(k): (left[:, :k] * values[:k]) @ right[:k] for k in (1, 2) if k <= len(values)}
    return {
        "layer": site.name,
        "rows": matrix.shape[0],
        "columns": matrix.shape[1],
        "stds": _blocks(matrix).tolist(),
        "approximations": {rank: _blocks(one).tolist() for rank, one in cut.items()},
    }


def _blocks(matrix: Tensor) -> Tensor:
    rows, columns = (min(SIDE, length) for length in matrix.shape)
    return torch.nn.functional.adaptive_avg_pool2d(matrix[None], (rows, columns))[0]


def _elbo(model: BayesianModule, likelihood: Any, data: Data) -> dict[str, Any]:
    """-ELBO in nats per training example, in the targets' units, at temperature 1; some examples stand for all."""
    report = layer_report(model, draws=100)
    if report.kl is None or report.kl_by == "point":
        raise SettingError("the posterior has no density")
    inputs, targets = some_training_examples(data, 4 * EXAMPLES)
    nll = expected_nll(model, inputs, targets, likelihood, draws=20, batch_size=BATCH, seed=0)
    size, scale = len(data.train[1]), data.scaling.target_scale
    if scale is not None:  # in the units of the targets, as the NLL of the test set is
        nll = nll + float(scale.double().log().sum())
    return {"metrics": {"negative_elbo": negative_elbo(nll, report.kl, size), "kl_per_example": report.kl / size}}


def _trust(predictor: Predictor, data: Data, temperature: float, *, full: bool) -> dict[str, Any]:
    """k-hat against the posterior that the run aimed at, at its own temperature."""
    model = predictor.model
    if not full and PASSES * model.layout.size * len(data.train[1]) > _WORK:
        _too_large(model.layout.size)
    found = pareto_report(
        model, predictor.likelihood, data.train, draws=PASSES, temperature=temperature, batch_size=BATCH
    )
    return trust(pareto=found).as_json()


def _truncation(model: BayesianModule, likelihood: Any, data: Data, ranks: tuple[int, ...]) -> dict[str, Any]:
    table = truncation_table(model, likelihood, data.test, len(data.train[1]), ranks=ranks)
    return {"truncation": table.as_json()}
