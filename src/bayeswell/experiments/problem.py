"""From names to the data, the network and the likelihood of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ..datasets import Augmentation, Data, find_data, load_data, load_inputs
from ..datasets.data import DataPart
from ..errors import DataError, SettingError, nearest
from ..likelihoods import LIKELIHOODS
from ..models import build_model, default_model
from ..random import derive_seed
from ..training import WorkerBatches
from .experiment import BY_THE_DATA, Experiment
from .folds import folded
from .given import NOTHING, Given, needs_code
from .network_code import shown_name
from .scores import score_names
from .starting import start_from


@dataclass(frozen=True)
class Problem:
    """What an experiment is about, in memory."""

    data: Data
    net: nn.Module
    model: Mapping[str, Any]
    likelihood: Any
    ood_inputs: Tensor | None

    @property
    def parameters(self) -> int:
        """How many numbers the network has."""
        return sum(parameter.numel() for parameter in self.net.parameters())


def load_problem(experiment: Experiment, given: Given = NOTHING, *, with_ood: bool = True) -> Problem:
    """Load the data and build the network, or take those that are given.

    Weights start as the seed says, or at those of a finished run (``init``).
    """
    data = data_of(experiment, given)
    _require_metric(experiment, data)
    likelihood = data.likelihood if experiment.likelihood is None else _named(experiment.likelihood, data.likelihood)
    if experiment.augment is not None and len(data.input_shape) != 3:
        raise DataError(f"augment: '{data.name}' has inputs of shape {data.input_shape}; only images are augmented")
    channels = channels_of(likelihood, data)
    if needs_code(experiment.model):
        model = _choice(experiment.model)
        net = given.net(model, seed=experiment.seed, input_shape=data.input_shape, outputs=channels)
        model = {**model, "name": shown_name(model["name"])}
    else:
        model = _named(experiment.model or BY_THE_DATA, default_model(data.input_shape, data.vocabulary))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_seed(experiment.seed, "network"))
            net = build_model(model, data.input_shape, channels, vocabulary=data.vocabulary)
    if experiment.init is not None:
        start_from(experiment.init, net)
    ood = load_ood(experiment.ood, data, experiment.seed) if with_ood else None
    return Problem(data, net, model, likelihood, ood)


def data_of(experiment: Experiment, given: Given = NOTHING) -> Data:
    """The data of an experiment, split and scaled as it says; those of a program must be given."""
    if needs_code(experiment.data):
        if given.data is None:
            raise SettingError(
                f"the data '{shown_name(_choice(experiment.data)['name'])}' are objects of a program and are not kept "
                "with the run: give them again in Python, or measure on a file with --data"
            )
        part: DataPart = given.data
    else:
        part = find_data(_choice(experiment.data))
    return load_data(
        folded(part, experiment.fold), validation=experiment.validation, validation_rule=experiment.validation_rule,
        train_size=experiment.train_size, seed=experiment.seed, standardise=experiment.standardise,
    )  # fmt: skip


class Outlined(Protocol):
    """As much of data as says what a network must give for them."""

    @property
    def name(self) -> str: ...
    @property
    def outputs(self) -> int: ...
    @property
    def class_names(self) -> tuple[str, ...] | None: ...


def channels_of(likelihood: Any, data: Outlined) -> int:
    """How many numbers the network gives: one logit for yes or no, and with noise of its own for each input a mean and
    a log_std for each target.
    """
    part = LIKELIHOODS.resolve(likelihood)
    if part.name == "bernoulli" and data.class_names is not None:
        if len(data.class_names) != 2:
            raise SettingError(
                f"likelihood = 'bernoulli': '{data.name}' has {len(data.class_names)} classes, and it is for two: use "
                "'categorical'"
            )
        return 1
    return 2 * data.outputs if getattr(part, "noise", None) == "per_input" else data.outputs


def _require_metric(experiment: Experiment, data: Data) -> None:
    """Refuse at once what early stopping would miss after the first epoch."""
    scores = score_names(data)
    metric = experiment.early_stopping_metric
    if experiment.early_stopping is not None and metric not in scores:
        raise SettingError(f"early_stopping_metric = {metric!r}; {nearest(str(metric), scores)}")


def load_ood(choice: Any, data: Data, seed: int) -> Tensor | None:
    """Inputs from outside the distribution, for classes only: the entropy of classes is what tells them apart."""
    if choice is None:
        return None
    if data.class_names is None:
        raise SettingError(f"ood: '{data.name}' has real targets; out-of-distribution scores need classes")
    return load_inputs(_choice(choice), like=data, seed=seed)


def _named(choice: Any, by_the_data: str) -> dict[str, Any]:
    """The choice with a name; the one that suits the data where only settings were given."""
    table = {"name": choice} if isinstance(choice, str) else _choice(choice)
    return {**table, "name": by_the_data} if table["name"] == BY_THE_DATA else table


def _choice(value: Any) -> dict[str, Any]:
    assert isinstance(value, Mapping)  # Experiment has seen to it
    return dict(value)


def training_data(experiment: Experiment, data: Data, given: Given = NOTHING) -> tuple[Any, Augmentation | None]:
    """What ``fit`` takes as data and as augmentation: tensors, or the same batches cut by workers.

    A Dataset or DataLoader that was given is trained on as it is.
    """
    augment = experiment.augmentation
    if needs_code(experiment.data) and given.data is not None and given.data.feed is not None:
        for name in ("validation", "train_size", "fold", "workers", "standardise"):
            if getattr(experiment, name):
                raise SettingError(
                    f"{name} = {getattr(experiment, name)!r}: a {type(given.data.feed).__name__} is trained on as it "
                    "is; give (inputs, targets) as tensors or arrays"
                )
        return given.data.feed, augment
    if experiment.workers == 0:
        return data.train, augment
    size = experiment.batch_size_of(len(data.train[1]))
    return WorkerBatches(*data.train, size, augment, experiment.workers), None
