"""A network and data of a program as an experiment: settings that name them, and the objects beside."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import DataError, SettingError, nearest
from ..experiments import Experiment
from ..experiments.given import Given, given_network, model_record
from ..experiments.own_data import OwnData, own_data
from ..experiments.schema import SETTINGS
from ..likelihoods import LIKELIHOODS
from ..registry import written

TAKEN = ("data", "model", "likelihood", "method", "seed", "fold")
"""Settings of a run that the functions of this room have arguments of their own for."""


def problem_of(
    net: Any,
    data: Any,
    likelihood: Any,
    test: Any,
    model_settings: Mapping[str, Any] | None,
    settings: Mapping[str, Any],
    *,
    class_names: Any = None,
    name: str = "own data",
) -> tuple[Experiment, Given]:
    """The experiment and what it only names.

    ``data`` may also be the name of a data set or the path of a file, ``net`` the name of one of ``bayeswell.models``.
    Data of a program are taken as they are unless ``standardise`` is set.
    """
    allowed = [key for key in SETTINGS if key not in TAKEN]
    for key in settings:
        if key not in allowed:
            raise SettingError(f"there is no setting '{key}'; {nearest(key, allowed)}")
    chosen = None if likelihood is None else _plain_likelihood(likelihood)
    own: OwnData | None = None
    record: dict[str, Any] = {**settings, "likelihood": chosen}
    if isinstance(data, str | Path) or (isinstance(data, Mapping) and "name" in data):
        record["data"] = str(data) if isinstance(data, Path) else data
    else:
        if data is None:
            raise DataError("data is None; give (inputs, targets), a Dataset, a DataLoader, or the name of a data set")
        own = own_data(data, test, likelihood=chosen, class_names=class_names, name=name)
        record |= {"data": own.record, "standardise": settings.get("standardise", False)}
    network = None
    if isinstance(net, str | Mapping):
        record["model"] = {**({"name": net} if isinstance(net, str) else net), **dict(model_settings or {})}
    else:
        network = given_network(net)
        record["model"] = model_record(network, model_settings)
    return Experiment.from_json(record), Given(network, own)


def _plain_likelihood(likelihood: Any) -> Any:
    """A likelihood as settings name it; an object of a registered class by its name and settings."""
    if isinstance(likelihood, str | Mapping):
        return likelihood
    found = written(LIKELIHOODS, LIKELIHOODS.resolve(likelihood))
    if "name" not in found:
        raise SettingError(
            f"likelihood {type(likelihood).__name__}: comparisons and sweeps keep it by name; bayeswell.register its "
            "class, or use fit"
        )
    return found


def place_for(folder: Any, what: str) -> Path:
    """The folder that was given, or a new temporary one, which stays until the system clears it."""
    return Path(folder) if folder is not None else Path(tempfile.mkdtemp(prefix=f"bayeswell-{what}-"))
