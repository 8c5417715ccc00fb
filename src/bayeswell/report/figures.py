"""Which pictures a page has: all that its runs have data for, each with a title and a text for who cannot see it."""

from __future__ import annotations

import base64
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import BayeswellError
from ..plots import PLOTS, figure_to_svg
from .bands import bands_of
from .numbers import number
from .reading import RunRecord, mapping
from .rows import MethodRow, Table

TOGETHER = (
    "calibration", "interval_coverage", "quantile_calibration", "risk_coverage", "seed_curves", "training_curves",
    "sharpness", "loss_line", "step_times", "snr",
)  # fmt: skip
"""All rows in one picture."""
ALONE = (
    "reliability", "residuals", "entropy", "ood_scores", "regression_band", "momentum_landscape", "beta_landscape",
    "rate_range", "robust_region", "schedules", "std_paths", "layers", "spectra", "std_heat_maps", "loss_plane",
    "examples",
)  # fmt: skip
"""One picture for each row."""
SEEDS = "seed_curves"
"""The one that shows all runs of each row."""
MOST = 36
"""Pictures of single rows on a page; drawing takes most of its time. Which are left out is said."""
_ALL_OF = 2
"""So many rows have all of theirs, the best Bayesian method first; of the others come reliability first, then entropy,
and so on."""
_SHOWN = 1
_ROUNDING = 1e-9
"""Nats below which a mutual information is that of one network with itself."""
_CLASSES = 20
_MANY = 1_000_000
_FAULTS = (BayeswellError, ValueError, TypeError, KeyError, IndexError, AttributeError, ArithmeticError)


@dataclass(frozen=True)
class Picture:
    """One figure of the page: an ``<svg>`` element that the plots room has made."""

    key: str
    title: str
    of: str
    alt: str
    svg: str


@dataclass(frozen=True)
class Pictures:
    """Those of all rows together, those of each row by its label, and a line for each that could not be drawn."""

    together: list[Picture]
    alone: dict[str, list[Picture]]
    notes: list[str]


def pictures_of(
    table: Table, prefix: str, most: int | None = MOST, trial_bands: Mapping[Path, Any] | None = None
) -> Pictures:
    """Draw what the rows of a table have data for, of single rows at most ``most`` (None: all).

    ``prefix`` keeps the ids of several tables apart. ``trial_bands`` are those of sweeps, by their folders.
    """
    notes: list[str] = []

    def draw(name: str, record: Any, key: str, of: str) -> Picture | None:
        plot = PLOTS[name]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # of numbers that are far too large to draw
                alt = plot.describe(record)
                svg = figure_to_svg(_laid_out(plot.draw(record, "auto")), name=f"{prefix}-{key}", alt=alt)
        except _FAULTS as error:
            # Records come from files that anyone may have written: one that cannot be drawn is told of.
            notes.append(f"{of}: no picture '{name}': {' '.join(str(error).split())}")
            return None
        return Picture(f"{prefix}-{key}", plot.title, of, alt, svg)

    def readable(name: str, label: str, record: Any) -> bool:
        """One run's bad record must not take the picture from the others."""
        try:
            PLOTS[name].describe({label: record})
        except _FAULTS as error:
            notes.append(f"{label}: not in the picture '{name}': {' '.join(str(error).split())}")
            return False
        return True

    together = [draw("comparison", table.comparison, "comparison", table.data)] if len(table.rows) > 1 else []
    for index, (folder, record) in enumerate((trial_bands or {}).items()):
        if any(run.path.is_relative_to(folder) for row in table.rows for run in row.runs):
            together.append(draw("trial_bands", record, f"{index}-trial-bands", folder.name))
    bands = dict(list(bands_of(table.rows).items())[:most]) if len(table.rows) > 1 else {}
    for index, record in bands.items():
        together.append(draw("regression_band", record, f"{index}-regression-band", table.rows[index].label))
    for name in TOGETHER:
        records = _over_seeds(table) if name == SEEDS else {row.label: _of_many(name, row.first) for row in table.rows}
        known = {label: record for label, record in records.items() if record and readable(name, label, record)}
        # One run's calibration is shown by its own reliability diagram.
        if known and not (name == "calibration" and len(known) == 1):
            together.append(draw(name, known, name.replace("_", "-"), table.data))
    alone: dict[str, list[Picture]] = {}
    owned = [_own(row, alone=len(table.rows) == 1, beside=index in bands) for index, row in enumerate(table.rows)]
    order = order_of(table)
    chosen = _chosen(owned, order, most)
    for index in order:
        row = table.rows[index]
        wanted = [part for place, part in enumerate(owned[index]) if (index, place) in chosen]
        found = [draw(name, record, f"{index}-{key}", row.label) for name, key, record in wanted]
        alone[row.label] = [picture for picture in found if picture is not None]
    left = sum(map(len, owned)) - len(chosen)
    if left:
        notes.append(
            f"{table.data}: {left} pictures of single rows are left out; --full, or a page of one run, has all"
        )
    return Pictures([picture for picture in together if picture is not None], alone, notes)


def order_of(table: Table) -> list[int]:
    """The places of the rows as their pictures stand: the best Bayesian method (by its NLL) first."""
    found = list(range(len(table.rows)))
    bayesian = [index for index in found if table.rows[index].is_bayesian and "nll" in table.rows[index].cells]
    if not bayesian:
        return found
    best = min(bayesian, key=lambda index: table.rows[index].cells["nll"].mean)
    return [best, *(index for index in found if index != best)]


def _chosen(owned: Sequence[Sequence[Any]], order: Sequence[int], most: int | None) -> set[tuple[int, int]]:
    """(row, place among its pictures) of those that are drawn: rows in turn, but for the first ones, which have all."""
    places = [(index, place) for index, own in enumerate(owned) for place in range(len(own))]
    turn = {index: place for place, index in enumerate(order)}
    places.sort(key=lambda pair: (turn[pair[0]] >= _ALL_OF, pair[1], turn[pair[0]]))
    return set(places[:most])


def _laid_out(figure: Any) -> Any:
    """The figure with its layout done: left to itself, saving would draw everything twice."""
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
        figure.set_layout_engine(None)
    return figure


def _over_seeds(table: Table) -> dict[str, Any]:
    """The epochs of all runs of each row; nothing where no row has several."""
    found = {row.label: [run.epochs for run in row.runs if run.epochs] for row in table.rows}
    return found if any(len(runs) > 1 for runs in found.values()) else {}


def _of_many(name: str, run: RunRecord) -> Any:
    if name == "training_curves":
        return run.epochs
    if name == "calibration":
        return run.plot_record("calibration") or run.plot_record("reliability")
    if name == "step_times":
        spent = mapping(run.result.get("time"))
        seconds, steps = number(spent.get("train_seconds")), number(spent.get("timed_steps"))
        # Steps are counted of every member; a step of an ensemble is one of each.
        members = number(mapping(run.config.get("method")).get("members")) or 1
        return {"seconds": members * seconds / steps} if seconds and steps else None
    return run.plot_record(name)


def _own(row: MethodRow, *, alone: bool, beside: bool) -> Sequence[tuple[str, str, Any]]:
    """(plot, key of its ids, record) of each picture of a row; its band may stand ``beside`` those of other rows."""
    found: list[tuple[str, str, Any]] = []
    for name in ALONE:
        record = row.first.plot_record(name)
        key = name.replace("_", "-")
        if not record or (beside and name == "regression_band") or _says_nothing(name, record):
            continue
        if name == "examples":
            try:
                record = example_record(row.first)
            except _FAULTS as error:
                record = {"examples": f"cannot be read: {error}"}  # which the plot will say
            if record is None:
                continue
        if name == "ood_scores":
            parts = [_expanded(one) for one in (record if isinstance(record, list) else [record])]
            # By maximum probability they look much like those by entropy; a single network has no mutual information.
            wanted = [one for one in parts if alone or one.get("score") != "max_probability"]
            wanted = [one for one in wanted if one.get("score") != "mutual_information" or _differ(one.get("outside"))]
            found += [(name, f"{key}-{place}", one) for place, one in enumerate(wanted)]
            continue
        found.append((name, key, _expanded(record) if name == "entropy" else record))
    return found


def _expanded(record: Any) -> dict[str, Any]:
    """Scores one by one, where the file has the cells of a fine histogram."""
    found = dict(mapping(record))
    for name, cells in found.items():
        values, counts = mapping(cells).get("values"), mapping(cells).get("counts")
        if isinstance(values, list) and isinstance(counts, list):
            pairs = zip(values, counts, strict=False)
            found[name] = [value for value, count in pairs for _ in range(int(min(max(number(count) or 0, 0), _MANY)))]
    return found


def _differ(scores: Any) -> bool:
    return isinstance(scores, list) and any(abs(number(score) or 0.0) > _ROUNDING for score in scores)


def _says_nothing(name: str, record: Any) -> bool:
    """Whether a picture of stds would show nothing but zeros, as of a single network, or the one rank of a vector."""
    if name == "layers":
        rows = mapping(record).get("layers")
        fields = [mapping(row) for row in rows] if isinstance(rows, list) else []
        return bool(fields) and all(
            number(row.get("std_ratio_max", row.get("std_ratio_median"))) == 0 for row in fields
        )
    if name == "std_paths":
        paths = mapping(mapping(record).get("layers")).values()
        return bool(paths) and all(isinstance(path, list) and path and not any(path) for path in paths)
    if name == "std_heat_maps":
        rows = mapping(record).get("stds")
        known = [row for row in rows if isinstance(row, list)] if isinstance(rows, list) else []
        return bool(known) and (len(known) == 1 or all(len(row) == 1 for row in known))
    if name == "spectra" and isinstance(record, list) and record:
        layers = mapping(record[-1]).get("layers")
        values = [mapping(layer).get("stds") for layer in layers] if isinstance(layers, list) else []
        return bool(values) and all(isinstance(one, list) and len(one) < 2 for one in values)
    return False


def example_record(run: RunRecord) -> dict[str, Any] | None:
    """A few of the run's examples as the plot of examples takes them; None for real targets or very many classes."""
    record = mapping(run.plot_record("examples"))
    names = run.class_names
    rows = [row for row in record.get("examples") or [] if isinstance(row, Mapping)]
    if record.get("kind") != "classes":
        return dict(record) if "kind" not in record and record else None  # a program's own
    if not rows or not 0 < len(names) <= _CLASSES:
        return None
    chosen: list[dict[str, Any]] = []
    for kind in dict.fromkeys(str(row.get("kind")) for row in rows):
        chosen += [_example(row) for row in [row for row in rows if row.get("kind") == kind][:_SHOWN]]
    return {"classes": names, "examples": chosen}


def _example(row: Mapping[str, Any]) -> dict[str, Any]:
    example = {name: row[name] for name in ("kind", "probabilities", "label", "entropy") if row.get(name) is not None}
    samples = row.get("samples")
    if isinstance(samples, list):
        example["samples"] = [[value / 1000 for value in draw] for draw in samples]
    image = mapping(row.get("image"))
    if image:
        example["image"] = _pixels(image)
    return example


def _pixels(image: Mapping[str, Any]) -> list[Any]:
    """(C, H, W) between 0 and 1."""
    channels, height, width = (int(size) for size in image["shape"])
    values = [value / 255 for value in base64.b64decode(re.sub(r"\s", "", str(image["pixels"])))]
    if not 0 < channels * height * width == len(values):
        raise ValueError(f"an image has {len(values)} pixels, its shape says {channels} x {height} x {width}")
    rows = [values[start : start + width] for start in range(0, len(values), width)]
    return [rows[channel * height : (channel + 1) * height] for channel in range(channels)]
