"""A cell of a study: one way to train, at one point of the grid, known by its settings."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..experiments import Experiment
from ..experiments.experiment import slug
from ..experiments.starting import model_sha256
from ..plain import plain

LATER: Mapping[str, Any] = {
    "init": None,
    "std_lr": None,
    "std_rate": None,
    "std_stepper": None,
    "gradient_scale": None,
    "trace": None,
    "trace_steps": None,
    "trace_draws": None,
    "train_size": None,
}
"""Settings of runs and methods that came when results were kept already, with the value that changes nothing.

Where they have it they are no part of a hash: else every result would count as older for a setting it never had.
"""


@dataclass(frozen=True)
class Cell:
    """``label`` as the file has it, ``at`` the point of the grid by dotted path, ``home`` the folder of the file.

    ``measures`` is what the study asks of a finished run besides its scores.
    """

    label: str
    at: Mapping[str, Any]
    experiment: Experiment
    home: Path
    about: str = ""
    measures: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """``vi@temperature=0.1``: the label, and the settings of the grid by their last names."""
        return self.label + ("@" + ",".join(f"{last_name(path)}={shown(value)}" for path, value in self.at.items())
                             if self.at else "")  # fmt: skip

    @property
    def settings(self) -> dict[str, Any]:
        """What was said of the run, without its seed; paths beside the study file as they stand in it.

        The run it starts from (``init``) is known by its model too: made anew, it is another start.
        """
        record = {name: value for name, value in _said(self.experiment.as_json()).items() if name != "seed"}
        if self.experiment.init is not None:
            record["init_sha256"] = model_sha256(self.experiment.init)
        return dict(_relative(record, str(self.home)))

    @property
    def settings_hash(self) -> str:
        """Of what was said, and what is to be measured."""
        return _hash({**self.settings, "measure": dict(self.measures)} if self.measures else self.settings)

    @property
    def parts_hash(self) -> str:
        """Of what the method then consists of: it changes with the package's own defaults."""
        return _hash(_said(plain(self.experiment.method_part, _parts)))

    @property
    def folder(self) -> str:
        """The name of its runs' folders, but for the seed: other settings or other defaults have another one."""
        # What is measured afterwards changes nothing in the run.
        return f"{slug(self.label)[:60]}-{_hash([_hash(self.settings), self.parts_hash])[:10]}"


def last_name(path: str) -> str:
    """``lr`` of ``method.stepper.lr``."""
    return path.rsplit(".", 1)[-1]


def shown(value: Any) -> str:
    """A value of a grid in few letters."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def _said(record: Mapping[str, Any]) -> dict[str, Any]:
    """Without later settings that change nothing."""
    return {name: value for name, value in record.items() if name not in LATER or value != LATER[name]}


def _hash(record: Any) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True, default=repr).encode()).hexdigest()[:16]


def _parts(value: Any) -> Any:
    """A part of a method as its name and fields; anything else by its type."""
    fields = getattr(value, "__dataclass_fields__", None)
    if fields is None:
        return type(value).__name__
    return {"part": type(value).__name__, **{name: plain(getattr(value, name), _parts) for name in fields}}


def _relative(value: Any, home: str) -> Any:
    if isinstance(value, Mapping):
        return {key: _relative(part, home) for key, part in value.items()}
    return value.removeprefix(home).lstrip("/") if isinstance(value, str) and value.startswith(home) else value
