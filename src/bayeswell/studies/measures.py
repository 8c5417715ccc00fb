"""What a study may ask of every finished run beyond its scores, and under which names they become scores.

    [measure]
    ranks = [1, 2, 3]                  # stds cut to rank k after training: rank1.minus_elbo, rank1.nll, rank1.accuracy,
                                       # rank1.brier, rank1.ece (or rank1.rmse), rank1.std_error; `whole.` the posterior
                                       # as it is, with the same draws. {of = [1, 2, 3], examples = 2000}: on the first
                                       # 2,000 test examples
    spectra = true                     # spectra.stds.1: share of the first singular value, mean over weight matrices;
                                       # .2: of the first two; spectra.means, .centred_stds, .centred_log_stds;
                                       # start.stds: before training
    signal_to_noise = "2.weight"       # snr.stds, snr.means along training, of a layer (or "all"); needs `diagnose`
    sharpness = 0.05                   # radius: sharpness.one_step, sharpness.ascent (500 training examples, 3 draws)
    corruptions = "all"                # corrupted.ece, corrupted.noise.ece, ... as `evaluate --corruptions`
    predictions = ["sampled", "linearised"]  # the test scores by these predictions: sampled.nll, linearised.nll, ...

What a posterior does not have (stds of a point, say) gives no score, and a claim about it no result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..diagnostics import sharpness, spectra, truncation_table
from ..errors import BayeswellError, SettingError, nearest
from ..experiments import Experiment, load_model, load_problem
from ..experiments.corrupted_scores import ALL, corrupted_scores, names_of
from ..experiments.given import NOTHING
from ..experiments.inspection.posterior import EXAMPLES, model_before_training, some_training_examples
from ..experiments.run_records import RECORDS
from ..experiments.scores import BATCH, evaluation_of
from ..lifting import BayesianModule
from ..nested import taken
from ..persistence import read_document
from ..types import FACTORISED, PREDICTIONS

Scores = dict[str, float]
Curves = dict[str, list[float]]
_TABLES = ("stds", "means", "centred_stds", "centred_log_stds")
_MOST_DRAWS = 100


def read_measures(file: str, table: Mapping[str, Any]) -> dict[str, Any]:
    """The table ``[measure]`` of a study file, checked."""
    if not isinstance(table, Mapping):
        raise SettingError(f"{file}: measure = {table!r:.60}; it must be a table")
    for name in table:
        if name not in _KINDS:
            raise SettingError(f"{file}: measure: nothing is called '{name}'; {nearest(name, _KINDS)}")
    wanted = {name: value for name, value in table.items() if value is not False}
    _check_ranks(file, wanted.get("ranks", [1]))
    radius = wanted.get("sharpness", 1.0)
    if isinstance(radius, bool) or not isinstance(radius, int | float) or not radius > 0:
        raise SettingError(f"{file}: measure: sharpness = {radius!r:.60}; a radius above 0")
    if wanted.get("spectra", True) is not True:
        raise SettingError(f"{file}: measure: spectra = {wanted['spectra']!r:.60}; true or false")
    if not isinstance(wanted.get("signal_to_noise", ""), str):
        raise SettingError(f"{file}: measure: signal_to_noise = {wanted['signal_to_noise']!r:.60}; a layer, or 'all'")
    named = wanted.get("corruptions", ALL)
    if not isinstance(named, str | list) or not all(isinstance(name, str) for name in named):
        raise SettingError(f"{file}: measure: corruptions = {named!r:.60}; names or families of them, or 'all'")
    try:
        names_of(named)
    except SettingError as error:
        raise SettingError(f"{file}: measure: {error}") from error
    ways = wanted.get("predictions", PREDICTIONS)
    if not isinstance(ways, list | tuple) or not ways or not set(map(str, ways)) <= set(PREDICTIONS):
        raise SettingError(f"{file}: measure: predictions = {ways!r:.60}; a list of {', '.join(PREDICTIONS)}")
    return wanted


def _check_ranks(file: str, wanted: Any) -> None:
    ranks, examples = _ranks_and_examples(wanted)
    if not isinstance(ranks, list) or not ranks or not all(type(rank) is int and rank > 0 for rank in ranks):
        raise SettingError(f"{file}: measure: ranks = {wanted!r:.60}; a list of whole numbers of at least 1")
    if isinstance(wanted, Mapping) and not wanted.keys() <= {"of", "examples"}:
        raise SettingError(f"{file}: measure: ranks = {wanted!r:.60}; a list, or a table of 'of' and 'examples'")
    if examples is not None and (type(examples) is not int or examples < 1):
        raise SettingError(
            f"{file}: measure: ranks: examples = {examples!r:.60}; how many test examples, a whole number of at least 1"
        )


def _ranks_and_examples(wanted: Any) -> tuple[Any, Any]:
    return (wanted.get("of"), wanted.get("examples")) if isinstance(wanted, Mapping) else (wanted, None)


def measured(measures: Mapping[str, Any], experiment: Experiment, place: Path) -> tuple[Scores, Curves]:
    """Everything that ``[measure]`` asks for, of the finished run in ``place``."""
    scores: Scores = {}
    curves: Curves = {}
    if not measures:
        return scores, curves
    seen = _Seen(experiment, place)
    for name, setting in measures.items():
        more = _KINDS[name](seen, setting)
        scores |= more[0]
        curves |= more[1]
    return scores, curves


class _Seen:
    """A finished run, loaded again."""

    def __init__(self, experiment: Experiment, place: Path) -> None:
        self.experiment, self.place = experiment, place
        self.predictor = load_model(place)
        self.data = load_problem(experiment, with_ood=False).data
        self.draws = min(experiment.draws, _MOST_DRAWS)

    @property
    def model(self) -> BayesianModule:
        return self.predictor.model


def _ranks(seen: _Seen, wanted: Any) -> tuple[Scores, Curves]:
    if FACTORISED not in seen.model.posterior_part.provides or not _has_stds(seen.model):
        return {}, {}
    ranks, examples = _ranks_and_examples(wanted)
    inputs, targets = seen.data.test
    test = (inputs, targets) if examples is None else (taken(inputs, slice(examples)), targets[:examples])
    table = truncation_table(
        seen.model, seen.predictor.likelihood, test, len(seen.data.train[1]),
        ranks=ranks, draws=seen.draws, batch_size=BATCH,
    )  # fmt: skip
    scores: Scores = {}
    for row in table.rows:
        found = {"minus_elbo": row.negative_elbo, "nll": row.nll, row.score_name: row.score, "std_error": row.std_error}
        found |= {name: value for name, value in (("brier", row.brier), ("ece", row.ece)) if value is not None}
        before = "whole" if row.rank is None else f"rank{row.rank}"
        scores |= {f"{before}.{name}": float(value) for name, value in found.items()}
    return scores, {}


def _spectra(seen: _Seen, _: bool) -> tuple[Scores, Curves]:
    if not _has_stds(seen.model):
        return {}, {}
    scores = _shares("spectra", seen.model)
    return scores | _shares("start", model_before_training(seen.experiment, NOTHING)), {}


def _shares(before: str, model: BayesianModule) -> Scores:
    """What the first and the first two singular values explain, on average over the weight matrices."""
    layers = [layer for layer in spectra(model).layers if min(layer.rows, layer.columns) > 1]
    scores: Scores = {}
    for table in _TABLES:
        found = [getattr(layer, table) for layer in layers if getattr(layer, table)]
        for count in (1, 2):
            if found:
                scores[f"{before}.{table}.{count}"] = sum(sum(values[:count]) for values in found) / len(found)
    return scores


def _has_stds(model: BayesianModule) -> bool:
    try:
        return bool((model.posterior.std_vector() > 0).any())
    except (AttributeError, NotImplementedError, BayeswellError):
        return False


def _signal_to_noise(seen: _Seen, layer: str) -> tuple[Scores, Curves]:
    """E[g^2] / Var[g], the paper's, in windows of ten batches; the median over weights is not ruled by a few."""
    path = seen.place / RECORDS
    windows = read_document(path).get("snr", []) if path.exists() else []
    curves: Curves = {}
    for window in windows:
        rows = [row for row in window["rows"] if row["layer"] == layer and row["second_moment_mean"] is not None]
        for row in rows:
            curves.setdefault(f"snr.{row['group']}", []).append(row["second_moment_mean"])
            curves.setdefault(f"snr_median.{row['group']}", []).append(row["second_moment_median"])
        if rows:
            curves.setdefault("snr.step", []).append(float(window["step"]))
    if windows and not curves:
        known = sorted({row["layer"] for window in windows for row in window["rows"]})
        raise SettingError(f"measure: signal_to_noise: no layer '{layer}'; {nearest(layer, known)}")
    return {}, curves


def _sharpness(seen: _Seen, radius: float) -> tuple[Scores, Curves]:
    some = some_training_examples(seen.data, EXAMPLES)
    found = sharpness(
        seen.model, seen.predictor.likelihood, some, rho=float(radius), draws=3, steps=10, batch_size=BATCH
    )
    return {"sharpness.one_step": found.one_step, "sharpness.ascent": found.ascent, "sharpness.loss": found.loss}, {}


def _corruptions(seen: _Seen, names: Any) -> tuple[Scores, Curves]:
    found = corrupted_scores(seen.predictor, seen.data, names, images=500, draws=min(seen.draws, 30))
    scores = {f"corrupted.{score}": value for score, value in found["mean"].items()}
    for family, values in found["by_family"].items():
        scores |= {f"corrupted.{family}.{score}": value for score, value in values.items()}
    return scores, {}


def _predictions(seen: _Seen, ways: list[str]) -> tuple[Scores, Curves]:
    scores: Scores = {}
    for way in ways:
        try:
            found = evaluation_of(seen.predictor, seen.data, draws=seen.draws, prediction=way)
        except SettingError:  # a bank of networks has no centre: no such score, and the run keeps its others
            continue
        scores |= {f"{way}.{name}": float(value) for name, value in found.items()}
    return scores, {}


_KINDS: Mapping[str, Callable[[_Seen, Any], tuple[Scores, Curves]]] = {
    "ranks": _ranks, "spectra": _spectra, "signal_to_noise": _signal_to_noise, "sharpness": _sharpness,
    "corruptions": _corruptions, "predictions": _predictions,
}  # fmt: skip
