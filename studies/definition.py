"""A study file: cells to train, scales, the numbers that the paper prints, and its claims.

    title = "Path against total derivative (Figure 5.1)"
    [run]                                  # settings of all cells: those of a run and of its method
    data = "cifar10"
    [cells]                                # one way to train each
    total = {divergence = "monte_carlo"}
    path = {divergence = "path_derivative"}
    [grid]                                 # optional: every cell at each of these settings
    temperature = [0.1, 1.0]
    [scales.small]                         # changes of the settings for a size
    seeds = 3
    run = {epochs = 2}
    [printed.path]
    accuracy = 0.66
    [[claims]]
    text = "the path derivative is more accurate"
    rule = {better = "path", than = "total", score = "accuracy"}

The settings of a scale come before those of a cell; ``each = {path = {...}}`` of a scale after them. The tables of the
file ``shared`` lie under those of this one. A table ``[variants.NAME]`` makes a study NAME of its own: its tables are
merged over the others. In a claim, ``each = {k = [2, 3]}`` repeats it with ``{k}`` replaced in every text, and ``only``
lists variants.
"""

from __future__ import annotations

import itertools
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bayeswell.core.errors import SettingError, nearest
from bayeswell.core.random import derive_seed

ROOT = Path(__file__).parent
SCALES = ("smoke", "small", "paper")
PAPERS = {
    "flat_seeking": "Nguyen et al. 2023, Flat seeking Bayesian neural networks",
    "hwa": "HWA: Hyperparameters Weight Averaging in Bayesian Neural Networks",
    "k_tied": "Swiatkowski et al. 2020, The k-tied Normal Distribution",
    "thesis": "Book 2020, Training Bayesian neural networks (thesis)",
    "variational_laplace": "Unlu & Aitchison 2021, Variational Laplace for Bayesian neural networks",
}
"""Titles by folder."""
NAMES = {"nll": "NLL", "ece": "ECE", "ece_20": "ECE", "brier": "Brier score", "negative_elbo": "-ELBO"}
"""Scores as claims write them."""
_SCORE = re.compile(rf"\b({'|'.join(sorted(NAMES, reverse=True))})\b")
RULES = ("rounds_to", "better", "same", "value", "ratio", "trend")
"""A claim is of the first kind that its rule names."""
_KEYS = {
    *("title", "about", "choose", "shared", "variants", "run", "cells", "grid", "random", "measure", "scales"),
    *("printed", "claims", "plots"),
}
SHARED = "shared.toml"
SMOKE = {
    "run": {
        "data": "digits",
        "model": "mlp",
        "model_settings": {"hidden": [8]},
        "epochs": 2,
        "batch_size": 300,
        "draws": 3,
    }
}
"""Scale "smoke" of every study, which its own table changes: it shows only that everything runs."""
Table = dict[str, Any]
Point = tuple[tuple[str, Any], ...]
"""Settings of the grid by dotted path."""


@dataclass(frozen=True)
class Cell:
    """One way to train at one point of the grid.

    Args:
        label: name in the file.
        at: the point of the grid.
        settings: of ``bayeswell.compare``, for a run and its method.
        measure: what is measured after training besides the scores.
    """

    label: str
    at: Point
    settings: Table
    measure: Table = field(default_factory=dict)

    @property
    def name(self) -> str:
        point = ",".join(f"{path.rpartition('.')[2]}={shown(value)}" for path, value in self.at)
        return f"{self.label}@{point}" if point else self.label


@dataclass(frozen=True)
class Scale:
    """One size of a study."""

    name: str
    seeds: int
    cells: tuple[Cell, ...]
    about: str = ""


@dataclass(frozen=True)
class Claim:
    """A claim of the paper.

    Args:
        text: the claim in one line.
        rule: what decides on it; see ``verdicts``.
        where: it stands in the paper.
        headline: whether the paper is known for it.
        not_run: why results below the scale "paper" give no verdict; "" if they do.
        controls: comparisons of our own that show what a result means.
        means: of a control, what follows if it holds.
    """

    text: str
    rule: Table = field(default_factory=dict)
    where: str = ""
    headline: bool = False
    not_run: str = ""
    controls: tuple[Claim, ...] = ()
    means: str = ""

    @property
    def kind(self) -> str:
        return next((kind for kind in RULES if kind in self.rule), "")


@dataclass(frozen=True)
class Study:
    """A study file, or one variant of it."""

    name: str
    folder: Path
    title: str
    about: str
    scales: Mapping[str, Scale]
    claims: tuple[Claim, ...]
    printed: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    plots: tuple[Table, ...] = ()
    choose: str = ""

    @property
    def paper(self) -> str:
        return PAPERS.get(self.folder.name, self.folder.name)

    @property
    def results(self) -> Path:
        return self.folder / "results" / f"{self.name}.jsonl"

    @property
    def labels(self) -> list[str]:
        return list(dict.fromkeys(cell.label for scale in self.scales.values() for cell in scale.cells))


def read_studies(folder: Path = ROOT) -> list[Study]:
    """Return the studies of all files in a folder and the folders in it."""
    files = [file for file in sorted([*folder.glob("*.toml"), *folder.glob("*/*.toml")]) if file.name != SHARED]
    return [study for file in files for study in read_study(file)]


def read_study(file: Path) -> list[Study]:
    """Return the study of a file, or one for each of its variants."""
    table = tomllib.loads(file.read_text(encoding="utf-8"))
    for key in table.keys() - _KEYS:
        raise SettingError(f"{file}: unknown key '{key}'; {nearest(key, sorted(_KEYS))}")
    if "shared" in table:
        table = merged(tomllib.loads((file.parent / table.pop("shared")).read_text(encoding="utf-8")), table)
    variants = table.pop("variants", {})
    if not variants:
        return [_study(file, file.stem, table)]
    return [_study(file, name, merged(table, own)) for name, own in variants.items()]


def _study(file: Path, name: str, table: Table) -> Study:
    sizes = {**table["scales"], "smoke": merged(SMOKE, table["scales"].get("smoke", {}))}
    scales = {scale: _scale(table, scale, own) for scale, own in sizes.items()}
    claims = tuple(claim for record in table.get("claims", []) for claim in _claims(record, name))
    found = Study(
        name=name,
        folder=file.parent,
        title=table["title"],
        about=table.get("about", "").strip(),
        scales=scales,
        claims=claims,
        printed=table.get("printed", {}),
        plots=tuple(table.get("plots", ())),
        choose=table.get("choose", ""),
    )
    _check(file, found)
    return found


def _check(file: Path, study: Study) -> None:
    for name in study.scales.keys() - set(SCALES):
        raise SettingError(f"{file}: no scale '{name}'; {nearest(name, SCALES)}")
    for claim in [*study.claims, *(control for one in study.claims for control in one.controls)]:
        if claim.rule and not claim.kind:
            raise SettingError(f"{file}: claim {claim.text!r} needs one of {', '.join(RULES)}")
        for key in ("better", "than", "value", "ratio", "to", "of", "same"):
            labels = claim.rule.get(key, [])
            for label in [labels] if isinstance(labels, str) else labels:
                if label not in study.labels:
                    raise SettingError(
                        f"{file}: claim {claim.text!r}: no cell '{label}'; {nearest(label, study.labels)}"
                    )


def _scale(table: Table, name: str, own: Table) -> Scale:
    cells = own.get("cells", list(table["cells"]))
    found = [cell for label in cells for cell in _cells(table, own, label)]
    return Scale(name, own.get("seeds", 1), tuple(found), own.get("about", "").strip())


def _cells(table: Table, scale: Table, label: str) -> Iterator[Cell]:
    own = dict(table["cells"][label])
    grid = own.pop("grid", table.get("grid", {}))
    spreads = own.pop("random", table.get("random", {}))
    grid = {path: scale.get("grid", {}).get(path, values) for path, values in grid.items()}
    measure = {**table.get("measure", {}), **own.pop("measure", {}), **scale.get("measure", {})}
    settings = table.get("run", {})
    for layer in (scale.get("run", {}), own, scale.get("each", {}).get(label, {})):
        settings = merged(settings, layer)
    points = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    if spreads:
        drawn = random_points(label, spreads, scale.get("points", 1))
        points = [{**point, **more} for point in points for more in drawn]
    for point in points:
        at = settings
        for path, value in point.items():
            at = merged(at, nested(path, value))
        yield Cell(label, tuple(point.items()), at, measure)


def random_points(label: str, spreads: Mapping[str, Table], count: int) -> list[Table]:
    """Return settings drawn at random: the random search of Book 2020, Table 5.2.

    ``{near = [v, ...]}`` takes one of the values v, each as likely, and draws N(v, v/2) until the result is above 0 and
    below ``below``; v = 0 stays 0. ``{from = a, to = b}`` is uniform, with ``log = true`` in the logarithm. More points
    leave the first ones as they are.
    """
    return [
        {path: draw_setting(spread, derive_seed(0, "study", label, path, number)) for path, spread in spreads.items()}
        for number in range(count)
    ]


def draw_setting(spread: Mapping[str, Any], seed: int) -> float:
    """Return one value of a spread; see ``random_points``."""
    generator = np.random.Generator(np.random.PCG64(seed))
    if "near" not in spread:
        low, high = spread["from"], spread["to"]
        log = spread.get("log", False)
        value = generator.uniform(*np.log([low, high])) if log else generator.uniform(low, high)
        return _short(np.exp(value) if log else value)
    middle = float(spread["near"][generator.integers(len(spread["near"]))])
    while middle > 0:
        value = _short(generator.normal(middle, middle / 2))
        if 0 < value < spread.get("below", np.inf):
            return value
    return 0.0


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def _claims(record: Table, variant: str) -> Iterator[Claim]:
    record = dict(record)
    only, each = record.pop("only", None), record.pop("each", {})
    if only is not None and variant not in only:
        return
    for values in itertools.product(*each.values()):
        words = dict(zip(each, values, strict=True))
        yield _claim(_filled(record, words) if words else record)


def _claim(record: Table) -> Claim:
    controls = tuple(_claim(one) for one in record.get("controls", []))
    rule = dict(record.get("rule", {}))
    for key in ("at", "than_at"):
        if key in rule:
            rule[key] = _flat(rule[key])
    text = _SCORE.sub(lambda found: NAMES[found[0]], record["text"])
    return Claim(**{**record, "text": text, "rule": rule, "controls": controls})


def _filled(value: Any, words: Mapping[str, Any]) -> Any:
    if isinstance(value, str):
        for name, word in words.items():
            value = value.replace(f"{{{name}}}", str(word))
        return value
    if isinstance(value, Mapping):
        return {key: _filled(one, words) for key, one in value.items()}
    return [_filled(one, words) for one in value] if isinstance(value, Sequence) else value


def _flat(table: Mapping[str, Any], before: str = "") -> Table:
    """Return nested tables by dotted path."""
    found: Table = {}
    for key, value in table.items():
        path = f"{before}.{key}" if before else key
        found |= _flat(value, path) if isinstance(value, Mapping) else {path: value}
    return found


def nested(path: str, value: Any) -> Table:
    """Return the table {a: {b: value}} of the path "a.b"."""
    for name in reversed(path.split(".")):
        value = {name: value}
    return dict(value)


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> Table:
    """Return ``base`` with the values of ``over``, table by table.

    Another model, or a part with another name, takes none of the old settings.
    """
    found = {key: value for key, value in base.items() if key != "model_settings" or "model" not in over}
    for key, value in over.items():
        old = found.get(key)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            same = value.get("name", old.get("name")) == old.get("name")
            found[key] = merged(old, value) if same else value
        else:
            found[key] = value
    return found


def shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, int | float) else str(value)
