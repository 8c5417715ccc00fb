"""Search over settings with Optuna: its samplers, its storages, its retries."""

from __future__ import annotations

import math
import os
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import joblib
import optuna
import pandas
from optuna.storages import BaseStorage, JournalStorage, RDBStorage, RetryHeartbeatStaleTrialCallback
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import FrozenTrial, Trial, TrialState

from ..core.errors import BayeswellError, SettingError, check_choice, check_integer
from ..metrics import find_score
from ..training import Callback
from ..training.callbacks import wants_progress
from .compare import split_problem
from .overrides import with_settings
from .runs import train
from .settings import Code, RunSettings
from .terminal import WIDTH, one_line, table_text

JOURNAL = "sweep.journal"
SAMPLERS = ("tpe", "random", "grid")
VALIDATION = 0.2
HEARTBEAT, RETRIES = 60, 3
"""Seconds between signs of life of a trial on a database, and how often a killed one is tried again."""
_DISTRIBUTIONS = ("log", "linear", "int")
Space = Mapping[str, Sequence[Any]]


@dataclass(frozen=True, eq=False, repr=False)
class Sweep:
    """Finished trials of a sweep; ``study`` is Optuna's.

    Args:
        study: with its trials, parameters and values.
        score: that was optimized, on validation data.
    """

    study: optuna.Study
    score: str

    @property
    def trials(self) -> list[FrozenTrial]:
        """Completed trials, the best first."""
        done = self.study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        sign = find_score(self.score).sign
        return sorted(done, key=lambda trial: sign * (math.inf if trial.value is None else trial.value))

    @property
    def best(self) -> dict[str, Any]:
        """The settings of the best trial."""
        if not self.trials:
            raise SettingError("no trial of the sweep has completed")
        return dict(self.trials[0].params)

    def table(self) -> pandas.DataFrame:
        """Return a row for each trial: number, state, score, seconds, settings and the error of a failed one."""
        rows = [
            {
                "trial": trial.number,
                "state": trial.state.name.lower(),
                self.score: trial.value,
                "seconds": trial.duration.total_seconds() if trial.duration else math.nan,
                **trial.params,
                "error": trial.user_attrs.get("error", ""),
            }
            for trial in self.study.get_trials(deepcopy=False)
        ]
        return pandas.DataFrame(rows)

    def text(self, width: int = WIDTH, most: int = 10) -> str:
        """Return the best trials as a table."""
        best = self.trials[:most]
        names = list(dict.fromkeys(name for trial in best for name in trial.params))
        rows = [
            [str(trial.number), f"{trial.value:.4g}", *(_shown(trial.params.get(name)) for name in names)]
            for trial in best
        ]
        every = self.study.get_trials(deepcopy=False)
        counts = Counter(trial.state.name.lower() for trial in every)
        title = f"sweep of {len(every)} trials: {', '.join(f'{count} {state}' for state, count in counts.items())}"
        heading = f"validation {find_score(self.score).heading}"
        errors = {trial.number: trial.user_attrs["error"] for trial in every if "error" in trial.user_attrs}
        failed = [f"failed: trial {number}: {error}" for number, error in errors.items()]
        return "\n".join([table_text(["trial", heading, *names], rows, width, title=title), *failed])

    def to_json(self) -> dict[str, Any]:
        return {"score": self.score, "best": self.best, "trials": self.table().to_dict("records")}

    def __repr__(self) -> str:
        return self.text()


def sweep(
    space: Space,
    problem: Any = "digits",
    method: str = "auto",
    *,
    trials: int = 20,
    score: str = "nll",
    sampler: str = "tpe",
    prune: bool = False,
    name: str = "sweep",
    folder: str | os.PathLike[str] | None = None,
    storage: str | None = None,
    workers: int = 1,
    progress: bool | None = None,
    **settings: Any,
) -> Sweep:
    """Search for the settings with the best score on validation data; test data are not used.

    Run again with the same folder or storage, from any number of processes and machines, it adds to the same sweep. On
    a database, trials of killed processes are tried again; in a journal file another trial replaces them.

    Args:
        space: settings and their values: ``["log", 1e-4, 1e-1]``, ``["linear", 0, 1]``, ``["int", 1, 8]``, or a list of
            choices. Names as in ``with_settings``, such as "lr", "rank", "posterior.rank", "epochs".
        problem: data, or a network with data, as in ``compare``.
        method: its name.
        trials: finished trials in all, of all processes.
        score: key of a score, on validation data.
        sampler: "tpe", "random" or "grid" (all combinations of lists of choices).
        prune: stop trials whose validation NLL is worse than the median of the others at the same epoch.
        name: of the study in the storage.
        folder: of the journal file and of the run of each trial; None: in memory.
        storage: URL of a database, such as postgresql://HOST/NAME, for several machines.
        workers: processes of this machine.
        progress: a line on stderr for each trial; None: if it is a terminal.
        settings: of all runs, as in ``compare``: ``epochs``, ``seed`` (also of the sampler), ``validation`` (0.2), ...
    """
    if not find_score(score).sign:
        raise SettingError(f"score {score!r} has no better or worse; choose another")
    base = with_settings(RunSettings(method=method, validation=VALIDATION), settings)
    net, data = split_problem(problem)
    if isinstance(data, str | Mapping | Code):
        base, data = base.changed(data=data), None
    check_choice("sweep", "sampler", sampler, SAMPLERS)
    check_integer("sweep", "trials", trials)
    check_integer("sweep", "workers", workers)
    _check_space(space, base, sampler)
    with tempfile.TemporaryDirectory() as temporary:
        url = storage or str(Path(temporary if folder is None else folder) / JOURNAL)
        search = _Search(
            space, base, data, net, score, sampler, prune, name, url, folder, wants_progress(progress), trials
        )
        study = search.study(base.seed)
        seed = base.seed + len(study.get_trials(deepcopy=False))  # A sweep that continues draws other settings.
        calls = (joblib.delayed(search.run)(one) for one in range(seed, seed + workers))
        joblib.Parallel(n_jobs=workers if workers > 1 else None)(calls)
        if folder is None and storage is None:
            found = study.get_trials()
            study = optuna.create_study(study_name=name, direction=study.direction)
            study.add_trials(found)
    return Sweep(study, score)


@dataclass(frozen=True)
class _Search:
    """Everything that a process needs to train trials."""

    space: Space
    base: RunSettings
    data: Any
    net: Any
    score: str
    sampler: str
    prune: bool
    name: str
    url: str
    folder: str | os.PathLike[str] | None
    progress: bool
    trials: int

    def study(self, seed: int) -> optuna.Study:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        makers: dict[str, Any] = {
            "tpe": optuna.samplers.TPESampler,
            "random": optuna.samplers.RandomSampler,
            "grid": partial(optuna.samplers.GridSampler, dict(self.space)),
        }
        return optuna.create_study(
            storage=_storage(self.url),
            study_name=self.name,
            sampler=makers[self.sampler](seed=seed),
            pruner=optuna.pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=1),
            direction="minimize" if find_score(self.score).sign > 0 else "maximize",
            load_if_exists=True,
        )

    def run(self, seed: int) -> None:
        study = self.study(seed)

        def is_done() -> bool:
            trials = study.get_trials(deepcopy=False)
            return sum(trial.state.is_finished() for trial in trials) >= self.trials

        if not is_done():
            study.optimize(self, catch=(BayeswellError,), callbacks=[lambda *_: study.stop() if is_done() else None])

    def __call__(self, trial: Trial) -> float:
        changes = {key: _suggest(trial, key, values) for key, values in self.space.items()}
        settings = with_settings(self.base, changes)
        if self.folder is not None:
            settings = settings.changed(folder=str(Path(self.folder) / "trials" / f"{trial.number:05d}"))
        callbacks = [_Pruner(trial)] if self.prune else []
        try:
            record = train(settings, data=self.data, net=self.net, callbacks=callbacks, resume=self.folder is not None)
        except BayeswellError as error:
            trial.set_user_attr("error", one_line(str(error)))
            raise
        value = record.validation[self.score].value
        if self.progress:
            shown = ", ".join(f"{key} {_shown(one)}" for key, one in changes.items())
            line = f"{trial.number + 1}/{self.trials} {self.score} {value:.4g}: {shown}"
            sys.stderr.write(line[: WIDTH - 1] + "\n")
        return value


class _Pruner(Callback):
    """Report the validation NLL of each epoch, and end a trial that is worse than the median."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial

    def after_epoch(self, run: Any, record: Any) -> None:
        if run.member == 0 and "nll" in record.validation:
            self.trial.report(record.validation["nll"], record.epoch)
            if self.trial.should_prune():
                raise optuna.TrialPruned


def _storage(url: str) -> BaseStorage:
    if "://" not in url:
        Path(url).parent.mkdir(parents=True, exist_ok=True)
        return JournalStorage(JournalFileBackend(url, lock_obj=JournalFileOpenLock(url)))
    with warnings.catch_warnings():  # Before any thread is started: Optuna calls its heartbeats experimental.
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        retry = RetryHeartbeatStaleTrialCallback(max_retry=RETRIES)
        return RDBStorage(url, heartbeat_interval=HEARTBEAT, heartbeat_stale_trial_callback=retry)


def _check_space(space: Space, base: RunSettings, sampler: str) -> None:
    if not space:
        raise SettingError("sweep: `space` is empty; give such as {'lr': ['log', 1e-4, 1e-1]}")
    for key, values in space.items():
        if isinstance(values, str) or not isinstance(values, Sequence) or not values:
            raise SettingError(f"sweep: '{key}' = {values!r}; give a list of choices, or ['log', low, high]")
        is_range = values[0] in _DISTRIBUTIONS
        if is_range and (len(values) != 3 or not values[1] < values[2]):
            raise SettingError(f"sweep: '{key}' = {list(values)}; write ['{values[0]}', low, high]")
        if is_range and sampler == "grid":
            raise SettingError(f"sampler 'grid' needs a list of choices for '{key}', got {list(values)}")
        _ = with_settings(base, {key: values[is_range]}).method_part


def _suggest(trial: Trial, key: str, values: Sequence[Any]) -> Any:
    if values[0] not in _DISTRIBUTIONS:
        return trial.suggest_categorical(key, list(values))
    kind, low, high = values
    if kind == "int":
        return trial.suggest_int(key, low, high)
    return trial.suggest_float(key, low, high, log=kind == "log")


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
