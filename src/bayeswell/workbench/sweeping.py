"""``bayeswell.sweep``: a search for settings on a network and data of one's own."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..experiments import Experiment
from .frames import to_frame
from .problem import place_for, problem_of
from .sweep_files import keep_result, sweep_record
from .trials import SCORES, HeldOutScore, judgeable, shared_by_trials

if TYPE_CHECKING:
    from ..sweeps import SweepResult


@dataclass(frozen=True)
class Sweep:
    """What a search has found; every trial is a run in ``folder/trials``."""

    folder: Path
    metric: str
    result: SweepResult = field(repr=False)
    function: HeldOutScore = field(repr=False)

    @property
    def best(self) -> dict[str, Any]:
        """The settings of the best trial; empty if none ended."""
        return {} if self.result.best is None else dict(self.result.best.settings)

    @property
    def experiment(self) -> Experiment | None:
        """The run with the best settings in it."""
        return None if self.result.best is None else self.function.changed(self.best)

    @property
    def table(self) -> list[dict[str, Any]]:
        """One row a trial that ended, best first: its number, score (and error over seeds), settings and seconds."""
        several = self.function.seeds > 1
        return [
            {"trial": trial.number, self.metric: trial.value,
             **({f"{self.metric}_error_over_seeds": trial.error} if several else {}),
             **trial.settings, "seconds": trial.seconds}
            for trial in self.result.ranked()
        ]  # fmt: skip

    @property
    def bands(self) -> dict[str, Any] | None:
        """Median and quartiles over all trials of the score of each epoch, for ``plots.plot_trial_bands``."""
        from ..sweeps.bands import bands_of

        return bands_of(self.result, self.folder, f"validation.{self.metric}")

    def success_rate(self, threshold: float) -> float | None:
        """Share of the trials whose score is at least as good as this; those that failed are not."""
        return self.result.success_rate(threshold)

    def to_frame(self) -> Any:
        """The table as a pandas data frame."""
        return to_frame(self.table)


def sweep(
    net: Any,
    data: Any,
    space: Mapping[str, Any] | Iterable[str],
    *,
    method: Any = "auto",
    likelihood: Any = None,
    test: Any = 0.25,
    trials: int | None = None,
    metric: str = "nll",
    sampler: str = "tpe",
    seed: int = 0,
    seeds: int = 1,
    sampler_seed: int = 0,
    workers: int = 1,
    attempts: int = 5,
    folder: str | os.PathLike[str] | None = None,
    storage: str | None = None,
    study: str | None = None,
    model_settings: Mapping[str, Any] | None = None,
    class_names: Sequence[str] | None = None,
    name: str = "own data",
    **settings: Any,
) -> Sweep:
    """Search for good settings, judged by held-out training data (``validation``, a tenth unless said otherwise).

    ``space``: what to vary, ``{"stepper.lr": "1e-4:1e-1:log", "model.width": "16:256", "temperature": "0.1,1"}``;
    settings of a run by their names, those of the network behind ``model.``, all others are the method's. ``trials`` is
    20 unless said otherwise, with ``sampler="grid"`` every combination once. With ``seeds`` above 1 a trial is so many
    runs, of the seeds from ``seed`` on, and its score their mean. Called again with the same folder it goes on.
    ``storage`` is the address of a database, ``study`` the sweep's name there (the folder's): with PostgreSQL the same
    call on several machines, each with a folder of its own, is one sweep. Other arguments as in ``compare`` and
    ``bayeswell sweep --help``.
    """
    from ..sweeps import parse_space, run_sweep
    from ..sweeps.space import check_space

    experiment, given = problem_of(
        net, data, likelihood, test, model_settings, settings, class_names=class_names, name=name
    )
    ranges = check_space(space) if isinstance(space, Mapping) else parse_space(space)
    chosen = judgeable(experiment.changed({"method": method, "seed": seed}), metric, ranges, given)
    shared = shared_by_trials(chosen, metric, seeds)
    function = HeldOutScore(**shared, threads=None, given=given)
    place = place_for(folder, "sweep")
    result = run_sweep(
        function, ranges, place, trials=trials, sampler=sampler, seed=sampler_seed, direction=SCORES[metric],
        workers=workers, attempts=attempts, settings=shared, storage=storage, name=study,
    )  # fmt: skip
    found = Sweep(place, metric, result, function)
    keep_result(sweep_record(result, metric, place), place)
    return found
