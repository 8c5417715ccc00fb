"""Experiments put together without training: what cannot work is found before anything else has cost an hour."""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Mapping

import torch

from ..errors import BayeswellError
from ..methods import assemble
from ..random import make_generator
from ..training import batch_count
from .experiment import Experiment
from .given import NOTHING, Given
from .problem import Problem, load_problem


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
