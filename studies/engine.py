"""Runs of studies through ``bayeswell.compare``, with what each study measures of them."""

from __future__ import annotations

import contextlib
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bayeswell.core.errors import BayeswellError
from bayeswell.core.random import make_generator
from bayeswell.lab.compare import compare
from bayeswell.lab.diagnostics import GradientSNR
from bayeswell.lab.overrides import with_settings
from bayeswell.lab.runs import load_problem, load_run, run_settings, train
from bayeswell.lab.settings import RunSettings
from bayeswell.methods import build
from bayeswell.training import Callback

from . import measures
from .definition import ROOT, Cell, Scale, Study
from .results import UNTRAINED, Line, append_lines, line_of, read_lines

WINDOWS = 40
"""Windows of the signal-to-noise ratio along training."""
CODE = "networks.py:"


def run_study(study: Study, scale_name: str, out: Path, *, workers: int = 1) -> list[Line]:
    """Train what has no result yet and return the new lines; those of the scale "smoke" are not kept in the study.

    Args:
        study: to run.
        scale_name: "smoke", "small" or "paper".
        out: folder of the runs.
        workers: runs at a time.
    """
    scale = study.scales[scale_name]
    path = study.results if scale_name != "smoke" else out / study.folder.name / f"{study.name}.jsonl"
    if scale_name == "smoke":
        path.unlink(missing_ok=True)
        shutil.rmtree(out / study.folder.name / study.name / "smoke", ignore_errors=True)
    done = {(line.cell, line.point, line.seed) for line in read_lines(path) if line.scale == scale_name}
    lines: list[Line] = []
    for data, cells in _by_data(scale).items():
        left = [cell for cell in cells for seed in range(scale.seeds) if (cell.label, _point(cell), seed) not in done]
        waiting = list(dict.fromkeys(cell.name for cell in left))
        if waiting:
            chosen = [cell for cell in cells if cell.name in waiting]
            place = out / study.folder.name / study.name / scale_name / data
            lines += _run_cells(study, scale, chosen, place, workers)
            append_lines(path, [line for line in lines if (line.cell, line.point, line.seed) not in done])
            done |= {(line.cell, line.point, line.seed) for line in lines}
    return lines


def _point(cell: Cell) -> Any:
    return Line("", cell.label, dict(cell.at), 0).point


def _by_data(scale: Scale) -> dict[str, list[Cell]]:
    """Return the cells by the name of their data."""
    found: dict[str, list[Cell]] = {}
    for cell in scale.cells:
        data = cell.settings["data"]
        name = data["name"] if isinstance(data, Mapping) else data
        found.setdefault(str(name).rpartition(":")[2], []).append(cell)
    return found


def _run_cells(study: Study, scale: Scale, cells: Sequence[Cell], place: Path, workers: int) -> list[Line]:
    """Train cells on the same data; those with callbacks first, so that ``compare`` finds them finished."""
    settings = {key(cell): compare_settings(cell, study.folder) for cell in cells}
    problem = settings[key(cells[0])]["data"]
    methods = {name: {k: v for k, v in one.items() if k != "data"} for name, one in settings.items()}
    curves: dict[tuple[str, int], dict[str, list[float]]] = {}
    for cell in cells:
        for seed in range(scale.seeds) if callbacks_wanted(cell) else ():
            # ``compare`` meets the error again, and records it.
            with contextlib.suppress(Exception):
                curves[key(cell), seed] = _train_with_curves(cell, problem, methods[key(cell)], seed, place)
    compared = compare(methods, {"data": problem}, seeds=scale.seeds, folder=place, workers=workers, progress=False)
    lines = []
    for run in compared.runs:
        cell = next(cell for cell in cells if key(cell) == run.method)
        error, extra = run.error, {}
        if run.record is not None and cell.measure:
            try:
                extra = measured(cell, place / run.folder)
            except BayeswellError as problem_found:
                error = str(problem_found)
        record = None if error else run.record
        lines.append(line_of(scale.name, cell, run.seed, record, error, extra, curves.get((run.method, run.seed))))
    return lines


def compare_settings(cell: Cell, folder: Path) -> dict[str, Any]:
    """Return the settings of a cell with the paths of its network and data."""
    found = dict(cell.settings)
    for key in ("model", "data"):
        if str(found.get(key, "")).startswith(CODE):
            found[key] = str(ROOT / found[key])
    data = found["data"]
    if isinstance(data, Mapping):
        paths = {key: str(folder / data[key]) for key in ("path", "test_path") if key in data}
        found["data"] = {**data, **paths}
    betas = {key: found.get("optimizer", {}).get(key) for key in ("beta1", "beta2")}
    if any(value is not None for value in betas.values()):
        rest = {key: value for key, value in found["optimizer"].items() if key not in betas}
        found["optimizer"] = {**rest, "betas": (betas["beta1"], betas["beta2"])}
    return found


def settings_of(cell: Cell, folder: Path) -> RunSettings:
    """Return the settings of a cell as those of a run."""
    own = compare_settings(cell, folder)
    base = RunSettings(data=own.pop("data"), method=own.pop("method", "auto"))
    return with_settings(base, own)


def callbacks_wanted(cell: Cell) -> bool:
    return bool(cell.measure.get("signal_to_noise") or cell.measure.get("average"))


def _train_with_curves(
    cell: Cell, problem: Any, method: Mapping[str, Any], seed: int, place: Path
) -> dict[str, list[float]]:
    """Train the run that ``compare`` would train, with callbacks, and return their curves."""
    own = dict(method)
    settings = with_settings(RunSettings(data=problem, method=own.pop("method", "auto"), seed=seed), own)
    settings = settings.changed(folder=str(place / "data" / f"{key(cell)}-seed{seed}"))
    data = load_problem(settings).data
    steps = settings.epochs * -(-len(data.train[1]) // (settings.batch_size or 100))
    average, noise = measures.AverageCurve(*data.train), GradientSNR(every=max(10, steps // WINDOWS))
    callbacks: list[Callback] = [average] if cell.measure.get("average") else []
    callbacks += [noise] if cell.measure.get("signal_to_noise") and steps >= 10 else []
    train(settings, resume=True, callbacks=callbacks, label=key(cell))
    return average.curves | snr_curves(noise, str(cell.measure.get("signal_to_noise", "")))


def key(cell: Cell) -> str:
    """Return the name of a cell in letters that ``compare`` keeps in the names of folders."""
    return re.sub(r"[^A-Za-z0-9._+=-]+", "-", cell.name)


def snr_curves(noise: GradientSNR, layer: str) -> dict[str, list[float]]:
    """Return mean and median over weights of E[g^2] / Var[g] along training, of one layer or all.

    The KL's ramp t / T bounds the ratio of a weight whose likelihood gradient is 0, so dead units dominate the mean.
    """
    curves: dict[str, list[float]] = {}
    for window in noise.windows:
        known = {row.layer for row in window.rows}
        rows = [
            row for row in window.rows if row.layer == (layer if layer in known else "all") and row.ratio is not None
        ]
        for row in rows:
            curves.setdefault(f"snr.{row.group}", []).append(1 + (row.ratio or 0))
            curves.setdefault(f"snr_median.{row.group}", []).append(1 + (row.median or 0))
        if rows:
            curves.setdefault("snr.step", []).append(float(window.step))
    return curves


def measured(cell: Cell, folder: Path) -> dict[str, float]:
    """Return what the study measures of a finished run besides its scores."""
    settings = run_settings(folder)
    settings = settings.changed(
        data=cell_code(cell, "data", settings.data), model=cell_code(cell, "model", settings.model)
    )
    problem = load_problem(settings.changed(folder=None))
    trained = load_run(folder, problem.net)
    wanted, draws, found = cell.measure, min(settings.draws, 100), measures.Scores()
    stds = measures.has_stds(trained.model)
    if wanted.get("ranks") and stds:
        found |= measures.rank_scores(trained, problem.data, wanted["ranks"], wanted.get("examples"), draws)
    if wanted.get("spectra") and stds:
        found |= measures.spectrum_scores(trained.model)
        found |= measures.spectrum_scores(start_of(settings, problem), "start")
    if wanted.get("sharpness"):
        found |= measures.sharpness_scores(trained, problem.data, wanted["sharpness"])
    if wanted.get("corruptions"):
        found |= measures.corruption_scores(trained, problem.data, wanted["corruptions"], draws)
    if wanted.get("predictions"):
        found |= measures.prediction_scores(trained, problem.data, wanted["predictions"], draws)
    return found


def cell_code(cell: Cell, key: str, recorded: Any) -> Any:
    """Return the code that a cell names, which records hold by its name alone."""
    choice = str(cell.settings.get(key, ""))
    return str(ROOT / choice) if choice.startswith(CODE) else recorded


def start_of(settings: RunSettings, problem: Any) -> Any:
    """Return the model as it is before training."""
    likelihood = problem.data.scaled_likelihood(settings.likelihood)
    return build(settings.method_part, problem.net, likelihood, dataset_size=len(problem.data.train[1]), batches=10,
                 epochs=10, generator=make_generator(0)).model  # fmt: skip


def run_untrained(study: Study) -> list[Line]:
    """Count parameters and time steps of the cells that claims name, and keep them with the results."""
    rules = [claim.rule for claim in study.claims]
    counted = {rule["value"] for rule in rules if rule.get("score") == "num_params"}
    timed = {rule[key] for rule in rules if rule.get("score") == "step_ms" for key in ("ratio", "to")}
    cells = {cell.label: cell for cell in reversed(study.scales["paper"].cells)}
    settings = {label: settings_of(cells[label], study.folder) for label in sorted(counted | timed)}
    lines = [
        Line(UNTRAINED, label, {}, 0, {"num_params": float(measures.num_params(settings[label]))})
        for label in sorted(counted)
    ]
    times = measures.step_times({label: settings[label] for label in sorted(timed)}) if timed else {}
    lines += [
        Line(UNTRAINED, label, {"repeat": repeat}, repeat, {"step_ms": value})
        for label, values in times.items()
        for repeat, value in enumerate(values)
    ]
    append_lines(study.results, lines)
    return lines


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
