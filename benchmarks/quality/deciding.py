"""What decides a method's results: its settings with all defaults, and the rules that stand in code in their place.

A rate that fits the run's length is asked for at some lengths. Of a temperature that is found along training, of
samplers that fit their steps, and of what happens at the end (collector, post-hoc part), the code itself counts,
without comments and docstrings. Code that all methods share does not: for that there is ``--again``.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import bayeswell
from bayeswell.methods import Method, find_method, resolve
from bayeswell.priors import PRIORS
from bayeswell.training.settings import described

from . import peers

AUTO = "auto"
_PACKAGE = Path(bayeswell.__file__).parent
_LENGTHS = (100, 1_000, 10_000)
"""Steps at which a rate that fits the run's length is asked for."""
_ADDED_LATER = {
    "method.rest": "trained", "method.prior_weight": None, "method.gradient_scale": None, "method.std_lr": None,
    "method.std_rate": None, "method.std_stepper": None, "std_rate": None, "std_stepper": None,
    "rate.cycle_steps": None,
}  # fmt: skip
"""Settings that the first results were measured without, at the values that leave a method as it was then: they do not
count, or a new setting would make the whole record old. Before one is added, cells are measured again and equal."""
_ADDED_TO_STEPPERS: dict[Any, tuple[str, Any]] = {"sgld": ("momentum", 0.0)}
"""The same of steppers by name."""
_SAME_CODE = {
    "78cd4b8723a2": "1009ccc0db40",  # sgld: momentum, which is 0 in every named method
    "4f2fb0854768": "d2e8537726a6",  # the rate of the step just taken can be asked for
    "18a615c3552b": "5e282cead09d",  # ... and in fitted chains
    "c33dfed0ee46": "bb1208b204bd",  # hwa: steps that draw from its low-rank covariance, which no named method asks for
    "e190f9046952": "90580bd1186e",  # auto in medium and long runs, of which the record had none; short ones as before
}
"""Checksums of files by those of the code before, which gave the same results: also measured again and equal."""


@cache
def checksum(method: str) -> str:
    """Another one if another result has to be expected. Names and texts do not count."""
    if method.startswith(peers.PREFIX):
        return sha(peers.version(method))
    chosen = find_method(method)
    return sha([_settings(chosen), _rules(chosen)])


def sha(value: Any) -> str:
    """Twelve letters for any plain data."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:12]


def _settings(method: Method) -> dict[str, Any]:
    """Every part with the settings that it has by default."""
    parts = described(resolve(method))
    assert isinstance(parts, dict)
    own = parts.pop("method")
    assert isinstance(own, dict)
    del parts["name"]
    if isinstance(parts["prior"], str):
        parts["prior"] = described(PRIORS.resolve(parts["prior"]))
    counts = {key: value for key, value in own.items() if key not in {"name", "summary", "paper"}}
    found = {**parts, "method": counts}
    found["stepper"] = _as_then(found["stepper"])
    for path, neutral in _ADDED_LATER.items():
        *above, last = path.split(".")
        inner: Any = found
        for key in above:
            inner = inner[key]
        if isinstance(inner, dict) and inner.get(last, ...) == neutral:
            del inner[last]
    return found


def _as_then(stepper: Any) -> Any:
    """A stepper without what was added later, where that is at rest."""
    if not isinstance(stepper, dict):
        return stepper
    name, neutral = _ADDED_TO_STEPPERS.get(stepper.get("name"), ("", None))
    return {key: value for key, value in stepper.items() if key != name or value != neutral}


def _rules(method: Method) -> list[Any]:
    parts = resolve(method)
    found: list[Any] = [_as_then(described(parts.planned(parts.stepper, steps))) for steps in _LENGTHS]
    files: list[Path] = []
    if method.temperature == AUTO:
        files += [_PACKAGE / "methods" / "tempering.py"]
    if method.budget is not None:
        files += [_PACKAGE / "methods" / "budget.py"]
    if parts.stepper.samples:
        files += sorted((_PACKAGE / "samplers").glob("*.py"))
    files += [Path(inspect.getfile(type(part))) for part in (parts.collector, parts.post_hoc) if part is not None]
    return [*found, code_of(path for path in files if path.exists())]


def code_of(files: Iterable[Path]) -> list[str]:
    """What files do: their code without comments, layout and docstrings."""
    found = [sha(ast.dump(_without_texts(ast.parse(path.read_text(encoding="utf-8"))))) for path in files]
    return [_SAME_CODE.get(one, one) for one in found]


def _without_texts(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [one for one in body if not _is_text(one)]  # type: ignore[attr-defined]
    return tree


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
