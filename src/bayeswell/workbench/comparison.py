"""``bayeswell.compare``: several methods on a network and data of one's own, each with several seeds."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import SettingError, nearest
from ..experiments import compare as compare_experiments
from ..experiments import inspect_run
from ..experiments.comparison_table import comparison_rows, write_table
from ..experiments.experiment import slug
from ..experiments.given import Given
from ..experiments.inspection import Knobs
from ..processes import leave_if_imported
from ..report import write_report
from ..report.differences import difference
from ..report.numbers import SCORES
from ..report.reading import read_runs
from ..report.summary import MethodRow, tables_of
from .frames import to_frame
from .problem import place_for, problem_of


@dataclass(frozen=True)
class Comparison:
    """Several methods side by side. ``record`` is that of ``comparison.json`` in ``folder``, where every run is kept.

    Scores are those of test examples; their standard errors are over seeds (or folds) and, of one run, over examples.
    """

    folder: Path
    record: Mapping[str, Any] = field(repr=False)
    given: Given = field(repr=False)

    @property
    def table(self) -> list[dict[str, Any]]:
        """One row a method: means, ``nll_error_over_seeds``, ``nll_error_over_examples``, passes, seconds, ..."""
        return comparison_rows(self.record)

    def to_frame(self) -> Any:
        """The table as a pandas data frame, by method."""
        return to_frame(self.table).set_index("method")

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """The table as a CSV file."""
        write_table(path, self.table)

    def differences(self, base: str | None = None) -> list[dict[str, Any]]:
        """How far each method is from ``base`` (the first), in pairs: the same seed, the same fold.

        One row a method and score: ``difference``, its standard ``error`` and what that is ``over``, and whether it is
        ``told`` apart (only one of twenty equal pairs would be). Of a single run the error is over the same test
        examples, once ``report`` has looked at them.
        """
        rows = self._rows()
        base = base if base is not None else next(iter(rows))
        if base not in rows:
            raise SettingError(f"base = {base!r}; {nearest(str(base), rows)}")
        found = []
        for label, row in rows.items():
            for score in SCORES:
                one = None if label == base else difference(row, rows[base], score.key)
                if one is not None:
                    found.append(
                        {"method": label, "base": base, "score": score.key, "difference": one.value,
                         "error": one.error, "over": one.over, "told": one.told}
                    )  # fmt: skip
        return found

    def report(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        title: str = "",
        full: bool = False,
        told: Callable[[str], None] | None = None,
        **knobs: Any,
    ) -> Path:
        """Write the page, ``report.html`` in the folder unless said otherwise; where it is.

        The first time each run is looked at, which takes some seconds. ``knobs``: bins, ranks, rho, draws, layers.
        """
        chosen = Knobs(**knobs)

        def inspect(run: Path) -> Mapping[str, Any]:
            return inspect_run(run, full=full, knobs=chosen, given=self.given)

        return write_report([self.folder], path, title=title, every_picture=full, inspect=inspect, told=told)

    def _rows(self) -> dict[str, MethodRow]:
        (table,) = tables_of(read_runs([self.folder]).runs)
        return {row.label: row for row in table.rows}

    def __str__(self) -> str:
        return _as_text(self.table)


def compare(
    net: Any,
    data: Any,
    methods: Iterable[Any] | Mapping[str, Any],
    *,
    likelihood: Any = None,
    test: Any = 0.25,
    seeds: int | Sequence[int] = 3,
    folds: int | None = None,
    folder: str | os.PathLike[str] | None = None,
    workers: int = 1,
    progress: bool = False,
    told: Callable[[str, str], None] | None = None,
    model_settings: Mapping[str, Any] | None = None,
    class_names: Sequence[str] | None = None,
    name: str = "own data",
    **settings: Any,
) -> Comparison:
    """Train each method on a network of one's own with each seed, and put what came out side by side.

    Args:
        net: a torch network, with whose weights every run begins; or a class or function that makes one, called anew
            for each seed (with ``model_settings``, and ``input_shape`` and ``outputs`` if it has such arguments); or
            the name of one of ``bayeswell.models``.
        data: ``(inputs, targets)`` as tensors or arrays, a Dataset or a DataLoader; or the name of a data set or file.
        methods: names, tables ``{"name": "k-tied", "posterior": {"rank": 3}}``, or a mapping from labels to them.
        likelihood: None: "categorical" for whole-number targets, else "gaussian".
        test: what to test on, in the forms of ``data``; or which share (or how many) of the data to hold out, always
            the same.
        seeds: how many, from 0 on, or which ones.
        folds: cut all examples into so many parts, each of which tests what the others train.
        folder: where the runs are kept; what is finished there is not trained again. None: a temporary folder.
        workers: runs at a time, each in a process (the network and data must then be importable by another). Inside
            ``with joblib.parallel_config("dask"):`` the workers of that cluster train them instead.
        told: called with the name of each run and how it stands.
        settings: those of a run: ``epochs``, ``batch_size``, ``where``, ``validation``, ``standardise``, ``ood``, ...
    """
    if workers > 1:
        leave_if_imported()
    experiment, given = problem_of(
        net, data, likelihood, test, model_settings, settings, class_names=class_names, name=name
    )
    experiments = {label: experiment.changed({"method": method}) for label, method in _labelled(methods).items()}
    chosen = range(seeds) if isinstance(seeds, int) and not isinstance(seeds, bool) else list(seeds)  # type: ignore[arg-type]
    place = place_for(folder, "compare")
    record = compare_experiments(
        experiments, chosen, place, folds=folds, workers=workers, progress=progress, told=told, given=given
    )
    return Comparison(place, record, given)


def _labelled(methods: Iterable[Any] | Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(methods, Mapping):
        return {slug(str(label)): method for label, method in methods.items()}
    if isinstance(methods, str):
        methods = methods.split(",")
    found: dict[str, Any] = {}
    for method in methods:
        named = method if isinstance(method, str) else method.get("name") if isinstance(method, Mapping) else None
        if not isinstance(named, str):
            raise SettingError(
                f"methods: {method!r:.80}; give names, or tables such as {{'name': 'bbb', 'temperature': 1}}"
            )
        if named.strip() in found:
            raise SettingError(f"methods: '{named}' twice; give a mapping from labels of your own to methods")
        found[named.strip()] = method if isinstance(method, Mapping) else named.strip()
    return found


def _as_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """For a print: the means, and the error over seeds or folds, else over examples."""
    names = [name for name in (rows[0] if rows else {}) if "_error_" not in name and name not in ("runs", "failed")]
    lines = [names]
    for row in rows:
        cells = []
        for name in names:
            value = row[name]
            errors = [row.get(f"{name}_error_over_{over}") for over in ("seeds", "folds", "examples")]
            error = next((one for one in errors if one is not None), None)
            shown = "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
            cells.append(shown if error is None else f"{shown} ±{error:.2g}")
        lines.append(cells)
    widths = [max(len(line[place]) for line in lines) for place in range(len(names))]
    return "\n".join(
        "  ".join(cell.ljust(width) if place == 0 else cell.rjust(width)
                  for place, (cell, width) in enumerate(zip(line, widths, strict=True)))
        for line in lines
    )  # fmt: skip
