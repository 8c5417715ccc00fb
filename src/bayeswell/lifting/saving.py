"""A lifted network on disk: everything needed to predict again, except code.

The network's structure is saved too if it is a model of ``bayeswell.models`` or made of torch's own layers; a network
of a class of one's own is passed to ``load`` again.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import BayeswellError, FileError, NetworkError, SettingError
from ..estimators import ESTIMATORS
from ..likelihoods import LIKELIHOODS, LikelihoodPart
from ..models import build_network
from ..models.description import MOST_NUMBERS
from ..persistence import JSON, Bundle, read_bundle, write_bundle
from ..plain import fields_of
from ..posteriors import POSTERIORS
from ..priors import PRIORS, FlatPrior, LearnedPrior
from ..priors.centres import ZERO
from ..registry import written
from ..tables import Preparation
from ..types import SAMPLED, Calibration, Posterior, PosteriorPart
from .dropout import dropout_settings, with_drawn_dropout
from .lift import bayesian
from .module import BayesianModule
from .restoring import network_description

_KIND = "bayeswell model"
_FORMAT = 1


@dataclass(frozen=True)
class Saved:
    """What ``load`` brings back. ``calibration`` tells what held-out data have changed of it, if they were asked.

    ``preparation`` is what is done to the user's data before the network sees them, and undone in predictions.
    """

    model: BayesianModule
    likelihood: LikelihoodPart
    calibration: Calibration | None = field(default=None, kw_only=True)
    preparation: Preparation | None = field(default=None, kw_only=True, repr=False)


def save(
    path: str | os.PathLike[str],
    model: BayesianModule,
    likelihood: Any,
    calibration: Calibration | None = None,
    preparation: Preparation | None = None,
) -> None:
    """Write posterior, prior, deterministic parameters, buffers, likelihood and structure to the folder ``path``.

    Tensors go to safetensors, the rest to JSON, with a checksum of every file; the folder is written whole or
    not at all. Parts are written by name and settings: one that has none, or goes by another part's name, is refused. A
    part of one's own that is not registered is written too, and is given to ``load`` again.
    """
    part = LIKELIHOODS.resolve(likelihood)
    if isinstance(model.prior, LearnedPrior):
        priors: Any = {"posterior": written(POSTERIORS, model.prior.part)}
    else:
        priors = _written_priors(model.prior)
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    tensors |= {f"likelihood.{name}": tensor for name, tensor in _state(part).items()}
    record: dict[str, JSON] = {
        "kind": _KIND,
        "format": _FORMAT,
        "torch": torch.__version__,
        "posterior": written(POSTERIORS, model.posterior_part),
        "prior": priors,
        "estimator": written(ESTIMATORS, model.estimator),
        "prediction": model.prediction,
        "likelihood": _written_likelihood(part),
        "dropout": dropout_settings(model.net),
        "deterministic": dict(model.deterministic),
        "sites": [{"names": list(site.names), "shape": list(site.shape)} for site in model.layout.sites],
        "network": network_description(model),
        "network_class": type(model.net).__name__,
    }
    if calibration is not None:
        record["calibration"] = fields_of(calibration)
    if preparation is not None:
        record["preparation"] = preparation.as_json()
    write_bundle(path, tensors, record)


def load(
    path: str | os.PathLike[str],
    net: nn.Module | None = None,
    *,
    device: str | torch.device = "cpu",
    parts: Sequence[Any] = (),
) -> Saved:
    """Bring back what ``save`` wrote.

    A network of a class of one's own is passed as ``net``: it supplies the code and the structure, its weights do not
    matter. ``parts`` are the classes (or functions, objects) of parts of one's own that are not registered. Nothing
    that is loaded is run.
    """
    bundle = read_bundle(path)
    record = bundle.record
    if record.get("kind") != _KIND or record.get("format") != _FORMAT:
        raise FileError(
            f"{os.fspath(path)}: kind {record.get('kind')!r}, format {record.get('format')!r}; "
            f"this version reads {_KIND!r}, format {_FORMAT}"
        )
    chosen = _network(path, bundle) if net is None else net
    try:
        model, likelihood = _rebuild(record, chosen, parts, _numbers(bundle))
        calibration = _calibration(record.get("calibration"))
        preparation = _preparation(record.get("preparation"))
        _fill(model, _under("model.", bundle), f"{os.fspath(path)}: the network given")
        if isinstance(likelihood, nn.Module):
            _fill(likelihood, _under("likelihood.", bundle), f"{os.fspath(path)}: the likelihood")
    except SettingError as error:
        raise FileError(
            f"{os.fspath(path)}: {error}; if it is a part of your own: load(path, parts=[Class]), or bayeswell.register"
        ) from error
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise FileError(f"{os.fspath(path)}: the record does not describe a bayeswell model ({error!r})") from error
    if isinstance(likelihood, nn.Module):
        likelihood.to(device)
    return Saved(model.to(device), likelihood, calibration=calibration, preparation=preparation)


def _network(path: str | os.PathLike[str], bundle: Bundle) -> nn.Module:
    """The network from its description in the file."""
    description = bundle.record.get("network")
    if description is None:
        kind = str(bundle.record.get("network_class", "unknown"))
        raise FileError(
            f"{os.fspath(path)}: the network is of the class {kind!r:.80}, and a file holds no code: pass a network of "
            "the same kind, as bayeswell.load(path, net)"
        )
    # Each weight has at least one number of its own in the file: no file makes more memory needed than it has.
    most = min(MOST_NUMBERS, _numbers(bundle))
    try:
        return build_network(description, most=most)
    except FileError as error:
        raise FileError(f"{os.fspath(path)}: {error}") from error


def _numbers(bundle: Bundle) -> int:
    return sum(tensor.numel() for tensor in bundle.tensors.values())


def _posterior(
    described: Mapping[str, Any], model: BayesianModule, outside: Sequence[Any], held: int
) -> tuple[PosteriorPart, Posterior]:
    """A posterior that is to be filled; refused before it is made if the file cannot fill it."""
    part = POSTERIORS.resolve(_tuples(described), outside)
    needed = int(part.numbers(model.layout)) if hasattr(part, "numbers") else model.layout.size
    if needed > held:
        raise FileError(
            f"posterior {part.name!r} would have at least {needed:,} numbers, the file holds {held:,}: it was altered"
        )
    return part, part.build(model.layout, model.prior, model.posterior.mean_vector().detach())


def _rebuild(
    record: Mapping[str, Any], net: nn.Module, outside: Sequence[Any], held: int
) -> tuple[BayesianModule, LikelihoodPart]:
    sites = record["sites"]
    names = {name for site in sites for name in site["names"]}
    learned = record["prior"] if isinstance(record["prior"], Mapping) else None
    # The prior of a model whose own is an earlier posterior is put in its place below.
    described = record["prior"] if learned is None else [{"name": "normal"}] * len(sites)
    priors = {
        site["names"][0]: PRIORS.resolve(_tuples(prior), outside) for site, prior in zip(sites, described, strict=True)
    }
    shapes = {name: list(parameter.shape) for name, parameter in net.named_parameters(remove_duplicate=False)}
    for site in sites:
        for name in site["names"]:
            if name not in shapes:
                raise NetworkError(f"the saved model has the parameter '{name}', the network given has not")
            if shapes[name] != site["shape"]:
                raise NetworkError(
                    f"parameter '{name}' was saved with shape {site['shape']}, the network given has {shapes[name]}"
                )
    # A posterior that is not trained itself (a bank of draws) cannot be asked of ``bayesian``: first a point, then it.
    model = bayesian(
        net if record["dropout"] is None else with_drawn_dropout(net, **record["dropout"]),
        posterior="delta",
        prior=lambda site: priors[site.name],
        where=lambda name, module, parameter: name in names,
        means="prior",
        prediction=record.get("prediction", SAMPLED),
    )
    model.deterministic = {str(name): str(reason) for name, reason in record["deterministic"].items()}
    part, posterior = _posterior(record["posterior"], model, outside, held)
    estimator = ESTIMATORS.resolve(_tuples(record["estimator"]), outside)
    if learned is not None:
        prior = LearnedPrior(*_posterior(learned["posterior"], model, outside, held))
        model = model.with_parts(model.posterior_part, model.posterior, prior, estimator, model.prediction)
    likelihood = LIKELIHOODS.resolve(_tuples(record["likelihood"]), outside)
    return model.with_posterior(part, posterior, estimator), likelihood


def _written_priors(prior: FlatPrior) -> list[dict[str, Any]]:
    """The choice for every site; the usual centre goes without saying, as in files of older versions."""
    described = (written(PRIORS, part) for part in prior.parts)
    return [{key: value for key, value in own.items() if (key, value) != ("centre", ZERO)} for own in described]


def _written_likelihood(part: LikelihoodPart) -> dict[str, Any]:
    """Its name and settings; a temperature or noise factor of 1 goes without saying, as in files of older versions."""
    usual = {"temperature": 1.0, "noise_factor": 1.0}
    return {key: value for key, value in written(LIKELIHOODS, part).items() if usual.get(key) != value}


def _calibration(record: Mapping[str, Any] | None) -> Calibration | None:
    if record is None:
        return None
    kinds = {one.name: {"str": str, "int": int}.get(str(one.type), float) for one in fields(Calibration)}
    return Calibration(**{name: kind(record[name]) for name, kind in kinds.items()})


def _preparation(record: Mapping[str, Any] | None) -> Preparation | None:
    try:
        return None if record is None else Preparation.from_json(record)
    except ValueError as error:
        raise TypeError(f"preparation: {error}") from error


def _tuples(settings: Mapping[str, Any]) -> dict[str, Any]:
    """JSON knows no tuples; settings that are sequences are tuples."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in settings.items()}


def _state(likelihood: LikelihoodPart) -> dict[str, Tensor]:
    return dict(likelihood.state_dict()) if isinstance(likelihood, nn.Module) else {}


def _under(prefix: str, bundle: Bundle) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in bundle.tensors.items() if name.startswith(prefix)}


def _fill(module: nn.Module, tensors: Mapping[str, Tensor], what: str) -> None:
    """Load a state of exactly these names and shapes."""
    try:
        module.load_state_dict(dict(tensors), strict=True)
    except RuntimeError as error:
        detail = " ".join(str(error).split())
        raise BayeswellError(f"{what} does not fit what was saved: {detail}") from error
