"""-ELBO in training step by step, and scores on other data at the same steps (k-tied, figure 7)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ..errors import require_count
from ..training.looks import NOTHING_TO_LOOK_AT, Looks
from ..training.run import Callback, Run
from ..training.streams import own_global_stream
from ..training.verdicts.elbo import bound_per_datum, has_bound

_NUMBERS = 5
"""Of ``Run.sums``: total, kl, nll, score, examples."""


class StepTrace(Callback):
    """A row of ``rows`` after every ``every`` steps of the first member, and after its last one.

    ``total``, ``nll``, ``kl`` and the running score (accuracy, or rmse) are means over the ``steps`` steps up to and
    with ``step`` (counted from 1) of what these saw, as those of an epoch are over its steps. Of posteriors with a
    density ``minus_elbo`` is nll + KL / N and ``minus_elbo_tempered`` nll + T KL / N, in nats per datum: unlike
    ``total``, without the weight that a schedule gives to the KL. With ``looks``, ``validation.nll`` and kin
    (``test.nll`` and kin) are scores of the model after these steps.
    """

    def __init__(self, every: int, looks: Looks = NOTHING_TO_LOOK_AT) -> None:
        require_count("step trace", "every", every)
        self.every, self.looks = every, looks
        self.rows: list[dict[str, float]] = []
        self._sums, self._seen, self._steps = [0.0] * _NUMBERS, [0.0] * _NUMBERS, 0

    def after_step(self, run: Run) -> None:
        if run.member:
            return
        self._steps += 1
        epoch_ends = run.batch == run.batches.count
        due = run.step % self.every == 0 or run.step == run.total_steps
        if epoch_ends or due:  # the sums of the run begin anew with each epoch
            now = list(run.fold())
            self._sums = [kept + new - old for kept, new, old in zip(self._sums, now, self._seen, strict=True)]
            self._seen = [0.0] * _NUMBERS if epoch_ends else now
        if due:
            self.rows.append({"step": run.step, "steps": self._steps, **self._means(run), **self._looked(run)})
            self._sums, self._steps = [0.0] * _NUMBERS, 0

    def _means(self, run: Run) -> dict[str, float]:
        total, kl, nll, score, examples = run.engine.summed(torch.tensor(self._sums, dtype=torch.float64)).tolist()
        steps = self._steps * run.engine.ranks
        means = {"total": total / steps, "nll": nll / examples if examples else 0.0, "kl": kl / steps}
        if run.score_name is not None and examples:
            means[run.score_name] = (score / examples) ** (0.5 if run.score_name == "rmse" else 1.0)
        if has_bound(run.assembly.model):
            bound = bound_per_datum(means["nll"], means["kl"], run.batches.examples, run.assembly.temperature)
            means |= {name: value for name, value in bound.items() if name != "expected_nll"}
        return means

    def _looked(self, run: Run) -> dict[str, float]:
        with own_global_stream():  # in the middle of an epoch, which goes on as if nobody had looked
            found = {"validation": self.looks.at_validation(run), "test": self.looks.at_test(run, averaged=False)}
        return {f"{of}.{name}": value for of, scores in found.items() for name, value in scores.items()}

    def state_dict(self) -> dict[str, Any]:
        """The rows so far, and what has been seen since the last."""
        return {
            "rows": [dict(row) for row in self.rows],
            "sums": list(self._sums),
            "seen": list(self._seen),
            "steps": self._steps,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The inverse of ``state_dict``."""
        self.rows = [dict(row) for row in state["rows"]]
        self._sums, self._seen, self._steps = list(state["sums"]), list(state["seen"]), state["steps"]
