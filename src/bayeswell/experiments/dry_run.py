"""Experiments put together without training, or with one step: what cannot work is found before it has cost an hour."""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Mapping
from pathlib import Path

import torch

from ..errors import BayeswellError
from ..methods import assemble
from ..random import make_generator
from ..training import Callback, Run, batch_count
from .experiment import Experiment
from .given import NOTHING, Given
from .problem import Problem, load_problem
from .running import run


def dry_run(experiments: Mapping[str, Experiment], given: Given = NOTHING) -> None:
    """Build all that each experiment would train, and let it go again; the first that is refused is named.

    Data and network are loaded once for experiments that differ in their method alone. Warnings wait for the run.
    """
    problems: dict[str, Problem] = {}
    for label, experiment in experiments.items():
        others = {name: value for name, value in experiment.as_json().items() if name != "method"}
        key = json.dumps(others, sort_keys=True)
        if key not in problems:
            problems = {key: load_problem(experiment, given)}  # one at a time: data may be large
        try:
            _assemble(experiment, problems[key])
        except BayeswellError as error:
            said = str(error)
            raise type(error)(said if said.startswith(f"{label}:") else f"{label}: {said}") from error


def _assemble(experiment: Experiment, problem: Problem) -> None:
    examples = len(problem.data.train[1])
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")
        assemble(
            experiment.method_part, copy.deepcopy(problem.net), problem.likelihood, dataset_size=examples,
            batches=batch_count(examples, experiment.batch_size_of(examples)), epochs=experiment.epochs,
            where=experiment.where, generator=make_generator(0),
        )  # fmt: skip


class _OneStepTaken(Exception):
    """All that was to be shown."""


class _OneStep(Callback):
    def after_step(self, run: Run) -> None:
        raise _OneStepTaken


def take_one_step(experiment: Experiment, folder: Path) -> bool:
    """Whether there is anything to train; one step of it is taken, in a folder that is then of no more use."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            run(experiment, folder, loggers=[_OneStep()], progress=False)
        except _OneStepTaken:
            return True
    return False
