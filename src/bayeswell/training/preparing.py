"""What ``fit`` was given, as the network takes it: the preparation of data, learned here or kept from before."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from ..errors import DataError, SettingError
from ..lifting import BayesianModule, Saved
from ..likelihoods import LIKELIHOODS
from ..modes import evaluation_mode
from ..nested import taken
from ..random import derive_seed
from ..tables import CLASSES, REAL, Preparation, as_array, as_arrays, is_array, is_frame, target_cells, warn_of_units
from ..types import ClassLikelihood, RealLikelihood
from .beginning import USUAL_LIKELIHOOD
from .examples import dtype_of

_MOST_NAMED = 12
SavedT = TypeVar("SavedT", bound=Saved)


@dataclass(frozen=True)
class Prepared:
    """Arguments of ``fit``, with data as tensors or as they were; ``preparation`` None: nothing was done to them."""

    net: Any
    data: Any
    validation: Any
    trace: Any
    likelihood: Any
    preparation: Preparation | None = None


def prepared(
    net: Any, data: Any, validation: Any, trace: Any, likelihood: Any, standardise: bool, seed: int
) -> Prepared:
    """Learn from the training examples what is done to data, and do it; a trained model does what it has learned."""
    if not isinstance(standardise, bool):
        raise SettingError(f"standardise = {standardise!r}; it must be True or False")
    trained = isinstance(net, Saved | BayesianModule)
    own = net.preparation if isinstance(net, Saved) else None
    if own is not None:
        data, validation = _done(own, data), _done(own, validation, "validation")
        net, likelihood = dataclasses.replace(net, preparation=None), _in_scaled_units(likelihood, own)
        return Prepared(net, data, validation, _done(own, trace, "trace"), likelihood, own)
    if standardise and trained:
        raise SettingError("standardise: the model was trained on numbers as they were; it goes on with such numbers")
    if not isinstance(data, tuple | list) or len(data) not in (2, 3):
        if standardise or is_frame(data):
            what = "standardise takes" if standardise else "a data frame alone has no targets: give"
            raise DataError(
                f"{what} (inputs, targets) as tensors, arrays or data frames, here {type(data).__name__}; a Dataset or "
                "loader scales its examples itself"
            )
        return Prepared(net, data, _plain(validation), _plain(trace), likelihood)
    part = LIKELIHOODS.resolve(_likelihood(net, likelihood))
    found = Preparation.learn(
        _ours(data[0]), data[1], standardise=standardise, kind=_kind(part),
        scale_targets=hasattr(part, "for_scaled_targets"), tokens=_has_embedding(net),
        dtype=_dtype(net),
    ) if _needed(data, standardise) else None  # fmt: skip
    if found is None:
        data, validation, trace = _plain(data), _plain(validation), _plain(trace)
    else:
        if trained:
            _require_as_before(found)
        data, validation = _done(found, data), _done(found, validation, "validation")
        trace = _done(found, trace, "trace")
        likelihood = _in_scaled_units(likelihood, found)
        net = _tried(net, data[0], found, part, seed)
    if not standardise and not trained:
        _warn_of_units(data, found, part)
    return Prepared(net, data, validation, trace, likelihood, found)


def with_preparation(result: SavedT, preparation: Preparation | None) -> SavedT:
    """A result of prepared data as one of the user's: what it was calibrated by is told in the user's units too."""
    if preparation is None:
        return result
    found = None if result.calibration is None else result.calibration.shifted(preparation.nll_shift)
    return dataclasses.replace(result, preparation=preparation, calibration=found)


def _needed(data: Any, standardise: bool) -> bool:
    """Whether there is anything to learn: columns, scales, names of classes."""
    if standardise or is_frame(data[0]):
        return True
    if isinstance(data[1], Mapping | tuple | list) and not _is_list_of_cells(data[1]):
        return False  # of several tensors: refused, or not, where data are put into batches
    cells = target_cells(data[1])
    kind = getattr(cells, "dtype", None)
    named = getattr(kind, "kind", "") in {"O", "b"} or kind == torch.bool
    return (named and cells.ndim == 1) or (is_array(data[1]) and getattr(kind, "kind", "") in {"i", "u"})


def _require_as_before(found: Preparation) -> None:
    if found.columns is not None or found.class_names is not None:
        raise DataError(
            "the model was trained on numbers, not on a table or named classes: give it numbers, or train it anew"
        )


def _done(preparation: Preparation, data: Any, what: str = "data") -> Any:
    """(inputs, targets, weights) as tensors."""
    if data is None:
        return None
    if not isinstance(data, tuple | list) or len(data) not in (2, 3):
        raise DataError(
            f"{what} of type {type(data).__name__}; the model prepares (inputs, targets) as tensors, arrays or tables"
        )
    inputs, targets = preparation.inputs(_ours(data[0])), preparation.targets(data[1])
    return (inputs, targets, *(as_array(part, "weights") for part in data[2:]))


def _is_list_of_cells(targets: Any) -> bool:
    return isinstance(targets, tuple | list) and bool(targets) and isinstance(targets[0], str | Real | None)


def _plain(data: Any) -> Any:
    """Arrays of other libraries as our own; all else as it is."""
    if not isinstance(data, tuple | list) or len(data) not in (2, 3):
        return data
    targets = data[1]
    if is_array(targets) or _is_list_of_cells(targets):
        targets = target_cells(targets)
    return (as_arrays(data[0]), targets, *(as_array(part, "weights") for part in data[2:]))


def _ours(inputs: Any) -> Any:
    """Arrays of other libraries as our own; a data frame as it is."""
    return inputs if is_frame(inputs) else as_arrays(inputs)


def _likelihood(net: Any, likelihood: Any) -> Any:
    if likelihood is not None:
        return likelihood
    return getattr(net, "likelihood", USUAL_LIKELIHOOD) if isinstance(net, Saved) else USUAL_LIKELIHOOD


def _kind(part: Any) -> str | None:
    return CLASSES if isinstance(part, ClassLikelihood) else REAL if isinstance(part, RealLikelihood) else None


def _in_scaled_units(likelihood: Any, preparation: Preparation) -> Any:
    """A likelihood that the user gave in the units of the targets, in those of the scaled ones."""
    scale = preparation.scaling.target_scale
    if likelihood is None or scale is None:
        return likelihood
    part: Any = LIKELIHOODS.resolve(likelihood)
    if not hasattr(part, "for_scaled_targets"):
        return likelihood
    changed = part.for_scaled_targets(scale.flatten().tolist())
    return likelihood if changed is part else changed


def _dtype(net: Any) -> torch.dtype:
    own = dtype_of(net.model if isinstance(net, Saved) else net)
    return own or torch.get_default_dtype()


def _has_embedding(net: Any) -> bool:
    module = net.model if isinstance(net, Saved) else net
    return any(isinstance(part, nn.Embedding | nn.EmbeddingBag) for part in module.modules())


def _tried(net: Any, inputs: Any, preparation: Preparation, part: Any, seed: int) -> Any:
    """The network, after one call with prepared inputs; layers that are lazy (``nn.LazyLinear``) get their shapes.

    What does not fit is refused with the names of the features, before any training.
    """
    if not isinstance(net, nn.Module) or isinstance(net, BayesianModule) or not isinstance(inputs, Tensor):
        return net
    if any(isinstance(parameter, UninitializedParameter) for parameter in net.parameters()):
        net = copy.deepcopy(net)
    device = next((p.device for p in net.parameters()), torch.device("cpu"))
    with torch.random.fork_rng(devices=[]), torch.no_grad(), evaluation_mode(net):
        torch.manual_seed(derive_seed(seed, "lazy"))
        try:
            outputs = net(taken(inputs, slice(2)).to(device))
        except RuntimeError as error:
            features = preparation.features
            if features is None:
                return net  # training says it
            shown = ", ".join(features[:_MOST_NAMED]) + (", ..." if len(features) > _MOST_NAMED else "")
            raise DataError(
                f"the network does not take the {len(features)} features of the table ({shown}): "
                f"{' '.join(str(error).split())[:120]}; begin with nn.Linear({len(features)}, ...) or nn.LazyLinear"
            ) from error
    names = preparation.class_names
    if names is not None and isinstance(outputs, Tensor) and isinstance(part, ClassLikelihood):
        found = part.class_probabilities(outputs).shape[-1]
        if found != len(names):
            shown = ", ".join(names[:_MOST_NAMED])
            raise DataError(f"the network tells {found} classes; the targets have {len(names)}: {shown}")
    return net


def _warn_of_units(data: Any, preparation: Preparation | None, part: Any) -> None:
    inputs, targets = (torch.as_tensor(one) if _is_plain(one) else None for one in data[:2])
    real = targets if hasattr(part, "for_scaled_targets") else None
    warn_of_units(inputs, None if preparation is None else preparation.features, real)


def _is_plain(value: Any) -> bool:
    return isinstance(value, Tensor) or (hasattr(value, "dtype") and value.dtype.kind in "biuf")
