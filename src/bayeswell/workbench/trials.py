"""A trial of a sweep: a run with the trial's settings, judged by held-out data."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ..errors import BayeswellError, SettingError, nearest, require_count
from ..experiments import Experiment, RunFailed, run
from ..experiments.dry_run import dry_run
from ..experiments.evaluating import load_model, scores_of
from ..experiments.given import NOTHING, Given
from ..experiments.problem import data_of
from ..experiments.schema import SETTINGS
from ..experiments.scores import score_names
from ..metrics.estimates import estimate_over_seeds
from ..training import Interrupted

if TYPE_CHECKING:
    from ..sweeps.space import Space

HELD_OUT = 0.1
"""Share of the training data that trials are judged by, unless another is given."""

SCORES = {"nll": "minimize", "accuracy": "maximize", "ece": "minimize", "brier": "minimize", "rmse": "minimize"}
"""What a trial may be judged by, and which way is better."""


@dataclass(frozen=True)
class HeldOutScore:
    """What a sweep wants of a trial: the score on held-out data of the experiment with the trial's settings.

    The run is in the trial's folder: called again, it is resumed, or its model is only measured if it had ended. With
    several ``seeds``, from the experiment's own on, each has a run in a folder of its own within, and the score is the
    mean of theirs with its standard error.
    """

    experiment: Mapping[str, Any]
    metric: str
    threads: int | None
    given: Given = NOTHING
    seeds: int = 1

    def __call__(self, settings: Mapping[str, Any], folder: Path) -> float:
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        experiment = self.changed(settings)
        if self.seeds == 1:
            return self._one(experiment, folder)
        seeds = range(experiment.seed, experiment.seed + self.seeds)
        return estimate_over_seeds([self._one(experiment.changed({"seed": n}), folder / f"seed{n}") for n in seeds])

    def _one(self, experiment: Experiment, folder: Path) -> float:
        """One run and its score."""
        try:
            with warnings.catch_warnings():  # of settings that suit badly: to find those is what the sweep is for
                warnings.simplefilter("ignore")
                run(experiment, folder, resume=True, progress=False, given=self.given)
        except Interrupted as stopped:  # by a signal, its state saved: the trial waits to be gone on with
            raise SystemExit(stopped.exit_code) from stopped
        except RunFailed as failure:
            raise failure.__cause__ or failure from None
        return self.score(experiment, folder)

    def changed(self, settings: Mapping[str, Any]) -> Experiment:
        """The experiment with these settings."""
        return Experiment.from_json(self.experiment).changed({_path(name): value for name, value in settings.items()})

    def score(self, experiment: Experiment, folder: Path) -> float:
        """The final model, as it will be used, on the examples that were held out."""
        held_out = data_of(experiment, self.given)
        assert held_out.validation is not None  # seen to before the sweep began
        as_test = replace(held_out, test=held_out.validation)
        scores = scores_of(load_model(folder, self.given), as_test, None, draws=experiment.draws)
        return float(scores["test"]["values"][self.metric])


def shared_by_trials(experiment: Experiment, metric: str, seeds: int = 1) -> dict[str, Any]:
    """What all trials of a sweep share, as plain data: kept with it, and what ``HeldOutScore`` is made of."""
    require_count("sweep", "seeds", seeds)
    # One seed is not written down: sweeps that were begun before there were several go on.
    return {"experiment": experiment.as_json(), "metric": metric, **({"seeds": seeds} if seeds > 1 else {})}


def _path(name: str) -> str:
    """A setting's place in an experiment: its own settings by their names, all others are the method's, as in --set."""
    return name if name.split(".")[0] in SETTINGS else f"method.{name}"


def judgeable(experiment: Experiment, metric: str, ranges: Space, given: Given = NOTHING) -> Experiment:
    """The experiment with held-out data; refuses, before any work, what no trial could do."""
    from ..sweeps.space import corners

    if metric not in SCORES:
        raise SettingError(f"metric = {metric!r}; {nearest(str(metric), SCORES)}")
    if experiment.validation is None:
        experiment = experiment.changed({"validation": HELD_OUT})
    if not experiment.validation:
        raise SettingError(
            f"validation = {experiment.validation}: trials are judged by held-out data, so hold some out"
        )
    for name in ("validation", "validation_rule", "fold", "draws", "seed", "data", "ood"):
        if any(varied.split(".")[0] == name for varied in ranges):
            raise SettingError(f"space: {name}: trials would be judged by other data; vary what is trained")
    data = data_of(experiment, given)
    for settings in corners(ranges):
        _try(HeldOutScore(experiment.as_json(), metric, None).changed(settings), settings, given)
    allowed = score_names(data)
    if metric not in allowed:
        raise SettingError(f"metric = {metric!r}: '{data.name}' has none; {nearest(metric, allowed)}")
    return experiment


def _try(experiment: Experiment, settings: Mapping[str, Any], given: Given) -> None:
    """Build all that a trial with these settings would train, and let it go again."""
    from ..sweeps.results import settings_in_words

    try:
        dry_run({experiment.method_part.name: experiment}, given)
    except (BayeswellError, TypeError) as error:
        raise SettingError(f"space: at {settings_in_words(settings)}: {error}") from error
