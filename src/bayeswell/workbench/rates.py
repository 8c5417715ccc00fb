"""``bayeswell.lr_range``: a learning rate for a network and data of one's own."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import FileError
from ..experiments import load_problem
from ..plots import plot_rate_range
from ..training import RateRange, rate_range
from .frames import to_frame
from .problem import problem_of


@dataclass(frozen=True)
class LearningRates(RateRange):
    """The rates that were tried, with a table and a picture of them."""

    @property
    def table(self) -> list[dict[str, float]]:
        """One row a rate: the smoothed objective at it, in nats per example."""
        return [{"lr": lr, "objective": one} for lr, one in zip(self.rates, self.objectives, strict=True)]

    def to_frame(self) -> Any:
        """The table as a pandas data frame."""
        return to_frame(self.table)

    def plot(self, path: str | os.PathLike[str]) -> Path:
        """Draw the picture into a file; where it is."""
        figure: Any = plot_rate_range(self).figure
        try:
            figure.savefig(os.fspath(path), dpi=120)
        except (OSError, ValueError) as error:
            raise FileError(f"cannot write {os.fspath(path)!r}: {getattr(error, 'strerror', None) or error}") from error
        return Path(path)


def lr_range(
    net: Any,
    data: Any,
    method: Any = "bbb",
    likelihood: Any = None,
    *,
    lowest: float = 1e-5,
    highest: float | None = None,
    steps: int = 100,
    seed: int = 0,
    model_settings: Mapping[str, Any] | None = None,
    **settings: Any,
) -> LearningRates:
    """Raise the learning rate step by step and see where the objective falls and where it breaks (``rate_range``).

    ``net``, ``data``, ``likelihood`` and ``settings`` as in ``compare``; nothing is held out for a test.
    """
    own = not isinstance(data, str | Path | Mapping)
    experiment, given = problem_of(net, data, likelihood, data if own else None, model_settings, settings)
    problem = load_problem(experiment.changed({"method": method, "seed": seed}), given, with_ood=False)
    found = rate_range(
        problem.net, problem.data.train, experiment.changed({"method": method}).method_part, problem.likelihood,
        lowest=lowest, highest=highest, steps=steps, batch_size=experiment.batch_size, seed=seed,
        where=experiment.where,
    )  # fmt: skip
    return LearningRates(**{one.name: getattr(found, one.name) for one in dataclasses.fields(found)})
