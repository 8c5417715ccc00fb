"""From names to the data, the network and the likelihood of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..datasets import Augmentation, Data, load_data, load_inputs
from ..errors import DataError, SettingError, nearest
from ..likelihoods import LIKELIHOODS
from ..models import build_model, default_model
from ..random import derive_seed
from ..training import WorkerBatches
from .experiment import Experiment
from .scores import score_names


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


def load_problem(experiment: Experiment, *, with_ood: bool = True) -> Problem:
    """Load the data and build the network; weights start as the seed says."""
    data = data_of(experiment)
    _require_metric(experiment, data)
    likelihood = data.likelihood if experiment.likelihood is None else _choice(experiment.likelihood)
    if experiment.augment is not None and len(data.input_shape) != 3:
        raise DataError(f"augment: '{data.name}' has inputs of shape {data.input_shape}; only images are augmented")
    model = (
        {"name": default_model(data.input_shape, data.vocabulary)}
        if experiment.model is None
        else _choice(experiment.model)
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(experiment.seed, "network"))
        net = build_model(model, data.input_shape, _channels(likelihood, data), vocabulary=data.vocabulary)
    ood = load_ood(experiment.ood, data, experiment.seed) if with_ood else None
    return Problem(data, net, model, likelihood, ood)


def data_of(experiment: Experiment) -> Data:
    """The data of an experiment, split and scaled as it says."""
    return load_data(
        _choice(experiment.data), validation=experiment.validation, validation_rule=experiment.validation_rule,
        seed=experiment.seed, standardise=experiment.standardise,
    )  # fmt: skip


def _channels(likelihood: Any, data: Data) -> int:
    """How many numbers the network gives: with noise of its own for each input a mean and a log_std for each target."""
    doubled = getattr(LIKELIHOODS.resolve(likelihood), "noise", None) == "per_input"
    return 2 * data.outputs if doubled else data.outputs


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


def _choice(value: Any) -> dict[str, Any]:
    assert isinstance(value, Mapping)  # Experiment has seen to it
    return dict(value)


def training_data(experiment: Experiment, data: Data) -> tuple[Any, Augmentation | None]:
    """What ``fit`` takes as data and as augmentation: tensors, or the same batches cut by workers."""
    augment = experiment.augmentation
    if experiment.workers == 0:
        return data.train, augment
    size = experiment.batch_size_of(len(data.train[1]))
    return WorkerBatches(*data.train, size, augment, experiment.workers), None
