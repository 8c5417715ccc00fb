"""The goals of speed, and their comparison with a record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Record = dict[str, dict[str, Any]]
LEAST_MARGIN, MOST_MARGIN = 0.03, 0.10
"""A goal is met up to two standard errors, between these margins."""


@dataclass(frozen=True)
class Goal:
    """A ratio that should be at most ``limit``."""

    title: str
    part: str
    case: str
    limit: float


GOALS = (
    Goal("mean-field step, LeNet-5", "step/lenet", "bbb", 1.15),
    Goal("mean-field step, MLP", "step/mlp", "bbb", 1.45),
    Goal("mean-field step, transformer", "step/transformer", "bbb", 1.1),
    Goal("2-tied step, LeNet-5", "step/lenet", "k-tied", 1.2),
    Goal("2-tied step, MLP", "step/mlp", "k-tied", 1.75),
    Goal("variational Laplace step, LeNet-5", "step/lenet", "vl", 2.6),
    Goal("variational Laplace step, MLP", "step/mlp", "vl", 3.2),
    Goal("30 draws, LeNet-5", "predict/lenet", "bbb", 0.5),
    Goal("30 draws, MLP", "predict/mlp", "bbb", 1.2),
    Goal("30 linearized draws, LeNet-5", "predict/lenet", "vl", 1.5),
    Goal("30 linearized draws, MLP", "predict/mlp", "vl", 1.5),
    Goal("fit over a bare loop, LeNet-5", "loop/lenet", "fit", 1.1),
    Goal("fit over a bare loop, MLP", "loop/mlp", "fit", 1.1),
)
MEAN_FIELD = ("ivon", "torchbnn", "bayesian-torch", "torchbayesian", "blitz", "posteriors vi")
PEER_GOALS = (
    *(("bbb", f"{group}/{net}", MEAN_FIELD) for group in ("step", "predict") for net in ("lenet", "mlp")),
    *(("sgld", f"step/{net}", ("posteriors sgld",)) for net in ("lenet", "mlp")),
    *(("flipout", f"step/{net}", ("bayesian-torch flipout",)) for net in ("lenet", "mlp")),
    *(("laplace", f"predict/{net}", ("laplace-torch last layer",)) for net in ("lenet", "mlp")),
)
"""Our case should not be slower than the fastest of these libraries in the same run."""


@dataclass(frozen=True)
class Verdict:
    """One goal with the measured ratio."""

    title: str
    limit: float
    measured: float | None
    margin: float = LEAST_MARGIN

    @property
    def word(self) -> str:
        if self.measured is None:
            return "not measured"
        if self.measured <= self.limit:
            return "met"
        return "met within noise" if self.measured <= self.limit * (1 + self.margin) else "missed"

    def __str__(self) -> str:
        measured = "-" if self.measured is None else f"{self.measured:.2f}"
        return f"{self.title:60} {measured:>6} of {self.limit:.2f}  {self.word}"


def ratio(record: Record, part: str, case: str) -> tuple[float, float] | None:
    found = record.get(part, {}).get("ratios", {}).get(case)
    return None if found is None else (found[0], found[1])


def margin(*errors: float) -> float:
    return min(MOST_MARGIN, max(LEAST_MARGIN, 2 * max(errors)))


def verdicts(record: Record) -> list[Verdict]:
    """Return the goals and the comparisons with other libraries."""
    found = []
    for goal in GOALS:
        own = ratio(record, goal.part, goal.case)
        measured, error = (None, 0.0) if own is None else own
        found.append(Verdict(goal.title, goal.limit, measured, margin(error / goal.limit)))
    for case, part, names in PEER_GOALS:
        own = ratio(record, part, case)
        others = {name: other for name in names if (other := ratio(record, part, f"peer: {name}")) is not None}
        if not others:
            found.append(Verdict(f"{case}, {part}, beside other libraries", 0.0, None))
            continue
        best = min(others, key=lambda name: others[name][0])
        limit, error = others[best]
        measured, own_error = (None, 0.0) if own is None else own
        noise = margin((error**2 + own_error**2) ** 0.5 / limit)
        found.append(Verdict(f"{case}, {part}, beside {best}", limit, measured, noise))
    return found
