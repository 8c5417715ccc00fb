"""Measurement of a trained model, once, and its record ``result.json``.

``result.json`` of a run folder is written last: a run with it is finished. Its keys:

- ``settings``: of the run; ``problem``, ``task`` ("classes" or "real"), ``method``, ``label`` (of the method in a
  comparison), ``seed``, ``fold`` ("1/5", or None), ``likelihood``, ``class_names`` (or None), ``plan`` (one line about
  members, or "");
- ``scores``: ``{key: {"value", "se"}}`` on the test data, keys of ``metrics.SCORES``, se over the examples or None;
- ``baseline``: ``{key: value}`` of a constant prediction, which knows the training targets alone: ``nll`` and
  ``accuracy`` or ``rmse``, on the test data;
- ``validation``: the same as ``scores`` on the validation data, empty without;
- ``ood``: ``{set: {key: {"value", "se"}}}`` for each OOD set, keys that begin with ``ood_``;
- ``cost``: ``passes`` (forward passes over the training data, of all members), ``relative`` (to ordinary training of as
  many epochs), ``seconds`` (training), ``measure_seconds``, ``parameters`` (of the network), ``train``, ``test``
  (examples), ``draws``, ``threads``;
- ``posterior``: ``name``, ``num_variational_params``, ``std_ratio`` (None without stds), ``temperature``,
  ``prediction``, and ``layers``: a list of ``{"name", "size", "std", "prior_std", "mean_abs"}`` (means over a site);
- ``calibration``: ``{"std_scale", "temperature", ...}`` or None;
- ``checks``: a list of ``{"name", "ok", "message", "value"}``;
- ``elbo``: ``{"elbo", "error", "nll", "kl", "is_bound", ...}`` or None;
- ``history``: a list of the epochs of all members, ``{"member", "epoch", "step", "total", "nll", "kl", "seconds",
  "temperature", "std_ratio", "lr.means", ..., "validation.nll", ...}``;
- ``versions``: of bayeswell, torch and python; ``files``: SHA-256 of the other files; ``sha256``: of the rest.

``per_example.safetensors`` has (S,) tensors on the test data: each score that is a mean over examples by its key
(``nll``, ``accuracy``, ``brier``, ``crps``, ...) and ``target``. Classes also have ``probabilities`` (S, K), ``label``
(predicted), ``confidence``, ``entropy`` and ``epistemic`` (nats), and for each OOD set ``ood.SET.confidence``,
``.entropy``, ``.epistemic``. Real targets have ``mean``, ``std``, ``epistemic_std``, ``lower_90``, ``upper_90`` and
``pit`` (where the likelihood has them), and for an OOD set ``ood.SET.mean``, ``.std``, ``.epistemic_std``. Inputs of at
most two columns are kept as ``inputs`` (S, 1 or 2) and ``ood.SET.inputs``; with real targets also ``train.inputs`` and
``train.target``.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import os
import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from ..core.errors import FileError, Unsupported
from ..core.protocols import EMPIRICAL, POINT
from ..methods.budget import ORDINARY
from ..metrics import Estimate
from ..metrics.scores import measure as scores_of_arrays
from ..nn import BayesianModule
from ..prediction import ClassPrediction, Evaluation, RealPrediction, predict
from ..tables import CLASSES
from ..training import Result
from ..version import __version__
from .data import DataSet
from .files import check_seal, read_json, sealed, to_jsonable, write_json, write_whole
from .settings import RunSettings

RESULT, SETTINGS, EXAMPLES = "result.json", "settings.json", "per_example.safetensors"
DRAWS, BATCH = 100, 1000
MOST_COLUMNS = 2
Arrays = dict[str, Tensor]


@dataclass(frozen=True, eq=False, repr=False)
class RunRecord:
    """The record of a finished run; the module describes its fields."""

    settings: Mapping[str, Any]
    problem: str
    task: str
    method: str
    seed: int
    scores: Mapping[str, Estimate]
    cost: Mapping[str, Any]
    label: str = ""
    fold: str | None = None
    likelihood: str = ""
    class_names: tuple[str, ...] | None = None
    plan: str = ""
    baseline: Mapping[str, float] = field(default_factory=dict)
    validation: Mapping[str, Estimate] = field(default_factory=dict)
    ood: Mapping[str, Mapping[str, Estimate]] = field(default_factory=dict)
    posterior: Mapping[str, Any] = field(default_factory=dict)
    calibration: Mapping[str, Any] | None = None
    checks: tuple[Mapping[str, Any], ...] = ()
    elbo: Mapping[str, Any] | None = None
    history: tuple[Mapping[str, Any], ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    per_example: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """True if no check after training failed."""
        return all(check["ok"] is not False for check in self.checks)

    def all_scores(self) -> dict[str, Estimate]:
        """Scores on the test data, then those of each OOD set; of several sets as ``ood_auroc_entropy.SET``."""
        found = dict(self.scores)
        for name, scores in self.ood.items():
            ending = "" if len(self.ood) == 1 else f".{name}"
            found |= {f"{key}{ending}": value for key, value in scores.items()}
        return found

    def to_json(self) -> dict[str, Any]:
        """Return the record as in ``result.json``; numbers that are not finite become null."""
        names = [field.name for field in dataclasses.fields(self) if field.name != "per_example"]
        return {name: to_jsonable(getattr(self, name)) for name in names}

    @classmethod
    def from_json(cls, document: Mapping[str, Any], per_example: Mapping[str, Tensor] | None = None) -> RunRecord:
        """Return the record of ``to_json``."""
        known = {field.name for field in dataclasses.fields(cls)}
        values = {name: value for name, value in document.items() if name in known}
        for name in ("scores", "validation"):
            values[name] = _estimates(values[name])
        values["ood"] = {name: _estimates(scores) for name, scores in values["ood"].items()}
        for name in ("checks", "history"):
            values[name] = tuple(values[name])
        names = values["class_names"]
        values["class_names"] = None if names is None else tuple(names)
        return cls(**values, per_example=per_example or {})

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write ``per_example.safetensors``, then ``result.json``, each whole or not at all."""
        place = Path(folder)
        write_whole(place / EXAMPLES, save_tensors({name: one.contiguous() for name, one in self.per_example.items()}))
        write_json(place / RESULT, sealed({**self.to_json(), "files": _checksums(place)}))

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> RunRecord:
        """Return the record of a finished run; FileError if there is none, or if it has changed."""
        place = Path(folder)
        document = read_json(place / RESULT)
        try:
            check_seal(document, place / RESULT)
            content = (place / EXAMPLES).read_bytes()
            if hashlib.sha256(content).hexdigest() != document["files"][EXAMPLES]:
                raise FileError(f"{place / EXAMPLES} does not have the checksum of {RESULT}")
            return cls.from_json(document, load_tensors(content))
        except (OSError, KeyError, TypeError, ValueError, SafetensorError) as error:
            if isinstance(error, FileError):
                raise
            raise FileError(f"{place / RESULT} cannot be read: it is damaged or of another version") from error

    @classmethod
    def check(cls, folder: str | os.PathLike[str]) -> None:
        """Refuse a finished run of which any file has changed."""
        place = Path(folder)
        cls.load(place)
        found = _checksums(place)
        for name, checksum in read_json(place / RESULT)["files"].items():
            if found.get(name) != checksum:
                raise FileError(f"{place / name} {'has changed' if name in found else 'is missing'} since the run")

    def __repr__(self) -> str:
        lines = [f"{self.problem}, {self.label}, seed {self.seed}"]
        lines += [f"  {key:<22} {value}" for key, value in self.all_scores().items()]
        return "\n".join(lines)


def measure(result: Result, data: DataSet, settings: RunSettings, *, seconds: float, label: str = "") -> RunRecord:
    """Return every score of a trained model on its test, validation and OOD data.

    Args:
        result: of ``fit``.
        data: it was trained on.
        settings: of the run.
        seconds: of training.
        label: of the method in a comparison; "": its name.
    """
    began = time.perf_counter()
    counts: dict[str, Any] = {"draws": settings.draws, "batch_size": BATCH}
    tested = data.evaluate(result, **counts)
    held_out = {} if data.validation is None else data.evaluate(result, "validation", **counts)
    outside = {
        name: data.prepared.restore(predict(result.model, inputs, result.likelihood, **counts))
        for name, inputs in data.ood.items()
    }
    examples = example_arrays(tested, _raw_targets(data, data.test[1]))
    examples |= {f"ood.{name}.{key}": part for name, found in outside.items() for key, part in _arrays(found).items()}
    examples |= _places(data)
    method = "" if result.method is None else result.method.name
    spent = time.perf_counter() - began
    cost = _cost(result, data, seconds, settings.epochs) | {"draws": tested.draws, "measure_seconds": spent}
    return RunRecord(
        settings=settings.to_dict(),
        problem=data.name,
        task=data.task,
        method=method,
        label=label or method,
        seed=result.seed,
        fold=settings.fold,
        likelihood=tested.likelihood,
        class_names=None if data.class_names is None else tuple(data.class_names),
        plan=result.plan,
        scores=dict(tested),
        baseline=baseline_scores(data),
        validation=dict(held_out),
        ood={name: ood_scores(tested, found) for name, found in outside.items()},
        cost=cost,
        posterior=posterior_summary(result),
        calibration=None if result.calibration is None else dataclasses.asdict(result.calibration),
        checks=tuple(dataclasses.asdict(check) for check in result.checks),
        elbo=_elbo(result, data.preparation.nll_shift),
        history=tuple(
            {"member": member, **epoch.values()}
            for member, history in enumerate(result.histories)
            for epoch in history.epochs
        ),
        versions={"bayeswell": __version__, "torch": torch.__version__, "python": platform.python_version()},
        per_example=examples,
    )


def ood_scores(tested: Evaluation, outside: ClassPrediction | RealPrediction) -> dict[str, Estimate]:
    """Return the scores of detecting OOD inputs; none for real targets."""
    inside = tested.predicted
    if not isinstance(inside, ClassPrediction) or not isinstance(outside, ClassPrediction):
        return {}
    names = ("probabilities", "mutual_information")
    arrays = {name: getattr(inside, name).cpu() for name in names}
    arrays |= {f"ood_{name}": getattr(outside, name).cpu() for name in names}
    return {key: value for key, value in scores_of_arrays(arrays).items() if key.startswith("ood_")}


def example_arrays(tested: Evaluation, targets: Tensor) -> Arrays:
    """Return the numbers of each test example for ``per_example.safetensors``; targets are in the user's units."""
    arrays = {key: values.cpu() for key, values in tested.per_example.items()}
    arrays["target"] = _flat(targets)
    predicted = tested.predicted
    if predicted is None:
        return arrays
    arrays |= _arrays(predicted)
    if isinstance(predicted, RealPrediction) and predicted.mixture is not None:
        places = targets.double().reshape(predicted.mean.shape)
        if predicted.mixture.likelihood.supports("cdf"):
            arrays["pit"] = _flat(predicted.mixture.cdf(places).float())
    return arrays


def baseline_scores(data: DataSet) -> dict[str, float]:
    """Return scores of a constant prediction: class frequencies, or a Gaussian with the mean and std of the targets."""
    train, test = (_raw_targets(data, pair[1]) for pair in (data.train, data.test))
    if data.task == CLASSES:
        counts = torch.bincount(train.reshape(-1), minlength=data.outputs).double() + 1
        log_p = (counts / counts.sum()).log()
        hits = (test == counts.argmax()).double()
        return {"nll": float(-log_p[test].mean()), "accuracy": float(hits.mean())}
    mean, std = train.double().mean(0), train.double().std(0, correction=0).clamp_min(1e-12)
    squares = ((test.double() - mean) / std).square()
    nll = 0.5 * squares + std.log() + 0.5 * math.log(2 * math.pi)
    return {"nll": float(nll.sum(-1).mean()), "rmse": float((test.double() - mean).square().mean().sqrt())}


def posterior_summary(result: Result) -> dict[str, Any]:
    """Return name, size and mean stds of the posterior, in all and for each site."""
    model = result.model
    try:
        ratio = None if POINT in model.posterior.provides else model.std_ratio()
    except Unsupported:
        ratio = None
    return {
        "name": model.posterior.part.name,
        "num_variational_params": result.num_variational_params,
        "std_ratio": ratio,
        "temperature": result.temperature,
        "prediction": model.prediction,
        "layers": [] if EMPIRICAL in model.posterior.provides else _layers(model),
    }


@torch.no_grad()
def _layers(model: BayesianModule) -> list[dict[str, Any]]:
    try:
        std, mean = model.posterior.std(), model.posterior.mean
    except (Unsupported, NotImplementedError, ValueError):
        return []
    prior = model.prior.std()
    return [
        {
            "name": name,
            "size": place.stop - place.start,
            "std": float(std[place].mean()),
            "prior_std": float(prior[place].mean()),
            "mean_abs": float(mean[place].abs().mean()),
        }
        for name, place in model.layout.slices.items()
    ]


def _cost(result: Result, data: DataSet, seconds: float, epochs: int) -> dict[str, Any]:
    each = 0.0 if result.method is None else result.method.cost / result.method.members
    passes = each * sum(len(history.epochs) for history in result.histories)
    parameters = sum(p.numel() for p in result.model.net.parameters()) + result.model.layout.size
    return {
        "passes": passes,
        "relative": passes / (ORDINARY * epochs) if epochs else 0.0,
        "seconds": seconds,
        "parameters": parameters,
        "train": len(data.train[1]),
        "test": len(data.test[1]),
        "threads": torch.get_num_threads(),
    }


def _elbo(result: Result, shift: float) -> dict[str, Any] | None:
    found = result.elbo
    if found is None:
        return None
    size = found.dataset_size
    return dataclasses.asdict(found) | {"elbo": found.elbo - size * shift, "nll": found.nll + shift}


def _arrays(predicted: ClassPrediction | RealPrediction) -> Arrays:
    if isinstance(predicted, ClassPrediction):
        return {
            "probabilities": predicted.probabilities.float().cpu().contiguous(),
            "label": predicted.labels.cpu(),
            "confidence": predicted.confidence.float().cpu(),
            "entropy": predicted.entropy.float().cpu(),
            "epistemic": predicted.mutual_information.float().cpu(),
        }
    found = {"mean": predicted.mean, "std": predicted.std, "epistemic_std": predicted.epistemic_std}
    if predicted.mixture is not None:
        found["lower_90"], found["upper_90"] = predicted.interval(0.9)
    return {name: _flat(values.float()) for name, values in found.items()}


def _flat(values: Tensor) -> Tensor:
    return (values[:, 0] if values.dim() == 2 and values.shape[1] == 1 else values).detach().cpu().clone()


def _raw_targets(data: DataSet, targets: Tensor) -> Tensor:
    scaling = data.preparation.target_scaling
    return targets if scaling is None else scaling.restore(targets.double())


def _places(data: DataSet) -> Arrays:
    if len(data.input_shape) != 1 or data.input_shape[0] > MOST_COLUMNS or data.vocabulary is not None:
        return {}
    parts = {"inputs": data.test[0], **{f"ood.{name}.inputs": inputs for name, inputs in data.ood.items()}}
    if data.task == "real":
        parts["train.inputs"] = data.train[0]
    found = {name: data.raw_inputs(inputs).detach().cpu().clone() for name, inputs in parts.items()}
    if data.task == "real":
        found["train.target"] = _flat(_raw_targets(data, data.train[1]))
    return found


def _checksums(place: Path) -> dict[str, str]:
    files = [file for file in place.iterdir() if file.is_file() and not file.name.startswith(".")]
    files += [file for file in [place / "model" / "manifest.json"] if file.exists()]
    digests = {file.relative_to(place).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    return {name: digest for name, digest in sorted(digests.items()) if name != RESULT}


def _estimates(scores: Mapping[str, Mapping[str, Any]]) -> dict[str, Estimate]:
    return {
        key: Estimate(math.nan if found["value"] is None else found["value"], found["se"])
        for key, found in scores.items()
    }
