"""The commands that make runs and pages again, ready for a shell."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from ..experiments import Experiment
from .reading import RunRecord, mapping

_NAMED = ("method", "data", "model", "likelihood", "ood")
_FLAGS = {"standardise": ("--standardise", "--raw"), "diagnose": ("--diagnose", "--no-diagnose")}
_FILES = ("csv", "npz", "images")


def train_command(run: RunRecord) -> str | None:
    """What trains the same run again, in a folder of the same name; None where names do not tell it all."""
    given = run.experiment
    if not given:
        return None
    augment = given.get("augment")
    if augment is not None and not isinstance(augment, Mapping):
        return None
    words = ["bayeswell", "train", *_words(given), "--out", f"runs/{run.name}"]
    command = " ".join(map(shlex.quote, words))
    return f"{command}  # and augment = {json.dumps(augment)} in a file for --config" if augment else command


def report_command(paths: list[str]) -> str:
    """What makes the page again."""
    return " ".join(map(shlex.quote, ["bayeswell", "report", *paths]))


def _words(given: Mapping[str, Any]) -> Iterator[str]:
    for name in _NAMED:
        choice = mapping(given.get(name))
        if choice:
            yield from _choice(name, choice)
    default = Experiment()
    for name, value in given.items():
        if name in _NAMED or value is None or value == getattr(default, name, None):
            continue
        option = f"--{name.replace('_', '-')}"
        if name == "augment":
            yield option
        elif name in _FLAGS:
            yield _FLAGS[name][0 if value else 1]
        else:
            yield from (option, str(value))


def _choice(name: str, choice: Mapping[str, Any]) -> Iterator[str]:
    settings = {key: value for key, value in choice.items() if key != "name"}
    chosen = str(choice.get("name", ""))
    if name in ("data", "ood") and chosen in _FILES and "path" in settings:
        chosen = str(settings.pop("path"))  # the kind of a file follows from its name
    yield from (f"--{name}", chosen)
    option = "--set" if name == "method" else f"--{name}-set"
    for path, value in _leaves(settings):
        yield from (option, f"{path}={_value(value)}")


def _leaves(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            inner = dict(value)
            if "name" in inner:
                yield f"{prefix}{key}", inner.pop("name")
            yield from _leaves(inner, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
