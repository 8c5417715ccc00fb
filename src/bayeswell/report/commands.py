"""The commands that make runs and pages again, ready for a shell."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from ..experiments.schema import SETTINGS
from ..experiments.setting import Setting
from .reading import RunRecord, mapping

_FILES = ("csv", "npz", "images")


def train_command(run: RunRecord) -> str | None:
    """What trains the same run again, in a folder of the same name; None where names do not tell it all."""
    given = run.experiment
    if not given:
        return None
    if str(mapping(given.get("data")).get("name", "")).startswith(":"):
        return None  # objects of a program
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
    for name, setting in SETTINGS.items():
        value = given.get(name)
        if setting.settings is not None:
            if choice := mapping(value):
                yield from _choice(setting, choice)
        elif value is None or value == setting.default:
            continue
        elif isinstance(value, list):
            yield from (setting.option, ",".join(map(str, value)))
        elif setting.off is not None:
            yield setting.off if value is False else setting.option
        else:
            yield from (setting.option, str(value))


def _choice(setting: Setting, choice: Mapping[str, Any]) -> Iterator[str]:
    settings = {key: value for key, value in choice.items() if key != "name"}
    chosen = str(choice.get("name", ""))
    if setting.name in ("data", "ood") and chosen in _FILES and "path" in settings:
        chosen = str(settings.pop("path"))  # the kind of a file follows from its name
    if ":" in chosen:
        settings.pop("sha256", None)
    yield from (setting.option, chosen)
    for path, value in _leaves(settings):
        yield from (setting.settings_option, f"{path}={_value(value)}")


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
