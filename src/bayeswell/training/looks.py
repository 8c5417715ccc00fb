"""What is measured while a network trains: on held-out data, and on data that only the record shows."""

from __future__ import annotations

from dataclasses import dataclass

from ..lifting import BayesianModule
from .finalize import average_so_far
from .run import Run
from .scores import HeldOutScores
from .streams import own_global_stream

AVERAGE = "average."
"""Before the name of a score of the averaged model (HWA, SWA, SWAG, a bank of draws)."""


@dataclass(frozen=True)
class Looks:
    """``validation`` may be listened to (early stopping, plateaus); ``test`` is written down and nothing else.

    Looking changes nothing: training goes on bit for bit as if nobody had looked.
    """

    validation: HeldOutScores | None = None
    test: HeldOutScores | None = None

    def at_validation(self, run: Run) -> dict[str, float]:
        """Scores of the model of the moment on held-out data, with -ELBO where it has one."""
        return {} if self.validation is None else _with_bound(run, run.assembly.model, self.validation)

    def at_test(self, run: Run, *, averaged: bool = True) -> dict[str, float]:
        """The same on the data of the record, and of the average that training would end with now, if there is one."""
        if self.test is None:
            return {}
        with own_global_stream():
            scores = _with_bound(run, run.assembly.model, self.test)
            average = average_so_far(run) if averaged else None
            if average is not None:
                own = _with_bound(run, average, self.test)
                scores |= {AVERAGE + name: value for name, value in own.items()}
        return scores


NOTHING_TO_LOOK_AT = Looks()


def _with_bound(run: Run, model: BayesianModule, scores: HeldOutScores) -> dict[str, float]:
    parts = run.assembly
    return scores.with_bound(model, parts.likelihood, run.batches.examples, parts.temperature)
