"""What a run may be told, declared once.

A field of ``RunSettings`` is a setting. Its name is the argument of ``Experiment``, the key in a TOML file and in
``config.json``, and (with dashes) the option of every command that trains; its default, what the help says of it and
what it may be stand beside it. A new setting is one field here, and the line that uses it. Nothing here imports torch:
the command line reads it before it knows what is asked for.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from .setting import Setting, count, examples, fold_of, path_text, switch, way_to_predict, what_to_trace, whole

Choice = str | Mapping[str, Any]
"""A name, or ``{"name": ..., setting: value}``."""

WHAT, HOW, MEASURE, RUN = "What to train", "How to train", "What to measure", "The run"
"""Under which heading the help lists a setting."""


@dataclass(frozen=True)
class RunSettings:
    """Everything that decides a run, by name, as plain data: what to train, how, and what to measure.

    ``method``, ``data``, ``model``, ``likelihood`` and ``ood`` (a data set outside the distribution) are names or
    tables ``{"name": ..., setting: value}``; parts of a method are tables in its table. A model or data that are code
    or objects are given beside the settings (``Given``), which only name them. ``augment`` is
    ``{"pad": 4, "flip": true}``.
    """

    method: Annotated[
        Choice,
        Setting(
            WHAT,
            "Which method: see `bayeswell methods`.",
            short="-m",
            settings="A setting of the method: temperature=1, lr=0.01, posterior.rank=3, stepper=sgd. May be repeated.",
        ),
    ] = "auto"
    data: Annotated[
        Choice,
        Setting(
            WHAT,
            "A data set (`bayeswell data`), or the path of a .csv or .npz file or folder of pictures.",
            short="-d",
            settings="A setting of the data: split=3, target=price, header=false.",
        ),
    ] = "digits"
    model: Annotated[
        Choice | None,
        Setting(
            WHAT,
            "Which network (`bayeswell models`), or one of your own: file.py:Net, package.module:Net.",
            short="-n",
            shown="one that suits the data",
            settings="A setting of the model: width=8, hidden=[100,100], activation=silu.",
            unnamed="auto",
        ),
    ] = None
    likelihood: Annotated[
        Choice | None,
        Setting(
            WHAT,
            "Which likelihood.",
            shown="that of the data",
            settings="A setting of the likelihood.",
            unnamed="auto",
        ),
    ] = None
    where: Annotated[
        str | Sequence[str],
        Setting(WHAT, "What is Bayesian: all, last_layer, or names of layers: 'fc*,head'.", metavar="WHERE"),
    ] = "all"
    init: Annotated[
        str | None,
        Setting(
            WHAT,
            "A finished run from whose weights this one starts: the means of its posterior.",
            shown="weights drawn by the seed",
            metavar="RUN",
            check=path_text,
        ),
    ] = None
    epochs: Annotated[int, Setting(HOW, "Passes over the data.", short="-e", check=whole(0))] = 20
    batch_size: Annotated[
        int | None,
        Setting(HOW, "Examples in a step.", short="-b", shown="100, or a fiftieth of fewer data", check=count),
    ] = None
    seed: Annotated[int, Setting(HOW, "Decides starts, order, noise and dropout.", short="-s", check=whole(0))] = 0
    validation: Annotated[
        float | None,
        Setting(
            HOW, "Hold out so many training examples, or (below 1) such a share of them.", shown="none", check=examples
        ),
    ] = None
    validation_rule: Annotated[
        str, Setting(HOW, "Held out: drawn by the seed, or the last of the training set (last).")
    ] = "seed"
    train_size: Annotated[
        float | None,
        Setting(
            HOW,
            "Train on so many of the other examples only, or (below 1) such a share of them, drawn by the seed.",
            shown="all",
            check=examples,
        ),
    ] = None
    fold: Annotated[
        str | None,
        Setting(
            HOW,
            "Test on one part of all examples and train on the others: 2/5 is the second of five.",
            shown="the test set",
            metavar="I/K",
            check=fold_of,
        ),
    ] = None
    early_stopping: Annotated[
        int | None,
        Setting(
            HOW,
            "Stop after so many epochs without a better validation score, and keep the best weights.",
            shown="off",
            metavar="EPOCHS",
        ),
    ] = None
    early_stopping_metric: Annotated[str, Setting(HOW, "Which score: nll, accuracy, ece, brier or rmse.")] = "nll"
    standardise: Annotated[
        bool,
        Setting(HOW, "Scale inputs and real targets by the training data.", shown="on", off="--raw", check=switch),
    ] = True
    augment: Annotated[
        Mapping[str, Any] | None,
        Setting(HOW, "Shift images by up to 4 pixels and mirror them.", shown="off", off="--no-augment"),
    ] = None
    calibrate: Annotated[
        bool,
        Setting(
            HOW,
            "Choose a scale of the stds and a temperature on held-out training data (5 folds of fewer than 5,000).",
            shown="off",
            off="--no-calibrate",
            check=switch,
        ),
    ] = False
    accumulate: Annotated[
        int,
        Setting(HOW, "Cut each batch into so many pieces: the same step in less memory.", check=count),
    ] = 1
    workers: Annotated[int, Setting(HOW, "Processes that read the data.", shown="0: none", check=whole(0, 256))] = 0
    accelerator: Annotated[str, Setting(HOW, "auto, cpu, cuda or mps.")] = "auto"
    devices: Annotated[int, Setting(HOW, "How many devices share each step.", check=count)] = 1
    precision: Annotated[str, Setting(HOW, "32, bf16-mixed or 16-mixed.")] = "32"
    ood: Annotated[
        Choice | None,
        Setting(
            MEASURE,
            "Data outside the distribution (noise, corrupted, notmnist, ...): AUROC by entropy.",
            shown="none",
            settings="A setting of it: severity=5.",
        ),
    ] = None
    draws: Annotated[int, Setting(MEASURE, "Networks drawn for a prediction.", check=count)] = 100
    prediction: Annotated[
        str | None,
        Setting(
            MEASURE,
            "sampled (networks), linearised, or mean (the network at the posterior's mean).",
            shown="as the method says",
            check=way_to_predict,
        ),
    ] = None
    trace: Annotated[
        str | None,
        Setting(
            MEASURE,
            "test: scores on the test set after every epoch, for the record alone; nothing is chosen by them.",
            shown="off",
            metavar="test",
            check=what_to_trace,
        ),
    ] = None
    trace_steps: Annotated[
        int | None,
        Setting(
            MEASURE,
            "A record every so many steps: -ELBO in training, scores on validation data, with trace on test data.",
            shown="off",
            metavar="STEPS",
            check=count,
        ),
    ] = None
    trace_draws: Annotated[
        int | None,
        Setting(MEASURE, "Networks drawn for each look of these two.", shown="10", metavar="DRAWS", check=count),
    ] = None
    diagnose: Annotated[
        bool,
        Setting(
            RUN,
            "Keep the signal-to-noise of gradients, the stds and the rates along training, for the report.",
            shown="off",
            off="--no-diagnose",
            check=switch,
        ),
    ] = False


def _read() -> dict[str, Setting]:
    hints = typing.get_type_hints(RunSettings, include_extras=True)
    found = {}
    for field in dataclasses.fields(RunSettings):
        hint, said = typing.get_args(hints[field.name])
        kind = bool if said.off else str if said.settings else _plain_type(hint)
        found[field.name] = dataclasses.replace(said, name=field.name, kind=kind, default=field.default)
    return found


def _plain_type(hint: Any) -> type:
    """``int`` of ``int | None``."""
    kinds: list[type] = [part for part in typing.get_args(hint) if part is not types.NoneType] or [hint]
    return kinds[0]  # a sequence of texts is typed as one


SETTINGS: Mapping[str, Setting] = _read()
"""Every setting of a run by its name, in the order in which the help lists them."""
