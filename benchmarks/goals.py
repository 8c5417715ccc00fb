"""What is to be reached, as data, and whether it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from . import averages, loop_overhead, start, together
from .record import times_of
from .summary import Summary, ratios, relative, summarise

LEAST_MARGIN = 0.03
"""No verdict is finer than this, however quiet the machine."""
MOST_MARGIN = 0.10
"""No noise excuses more than this: measure again on a quieter machine."""

_MEAN_FIELD_PEERS = ("ivon", "torchbnn", "bayesian-torch", "torchbayesian", "blitz", "posteriors vi")


@dataclass(frozen=True)
class Goal:
    """A measured number that should be at most ``limit``.

    ``kind`` says what: "ratio" of a case to another (``over``; None: an ordinary step or plain passes), "overhead" of
    an average on a step, or "memory", the ratio of peaks. ``peers`` are libraries that do the same.
    """

    title: str
    part: str
    case: str
    limit: float
    kind: str = "ratio"
    over: str | None = None
    peers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """A goal with what was measured (None: nothing) and the margin for noise."""

    goal: Goal
    found: Summary | None
    margin: float

    @property
    def met(self) -> bool:
        """Whether the median is within the limit and its margin."""
        return self.found is not None and self.found.median <= self.goal.limit * (1 + self.margin)

    @property
    def word(self) -> str:
        """met, met within noise, short by how much, or not measured."""
        if self.found is None:
            return "not measured"
        if self.found.median <= self.goal.limit:
            return "met"
        beyond = f"{100 * (self.found.median / self.goal.limit - 1):.0f} %"
        return f"met within noise ({beyond} above)" if self.met else f"short by {beyond}"


def _both(title: str, group: str, case: str, lenet: float, mlp: float, **more: Any) -> list[Goal]:
    return [
        Goal(f"{title}, {name}", f"{group}/{net}", case, limit, **more)
        for name, net, limit in (("LeNet-5", "lenet", lenet), ("MLP", "mlp", mlp))
    ]


GOALS = (
    *_both("mean-field step", "step", "bbb", 1.10, 2.0, peers=_MEAN_FIELD_PEERS),
    Goal("2-tied step over mean-field, LeNet-5", "step/lenet", "k-tied", 1.0, over="bbb"),
    Goal("2-tied step, MLP", "step/mlp", "k-tied", 1.8),
    *_both("local reparameterization step", "step", "sgvb-lrt", 2.5, 2.5),
    *_both("flipout step", "step", "flipout", 2.3, 3.0, peers=("bayesian-torch flipout",)),
    *_both("sharpness-aware over its base", "step", "f-bbb", 2.05, 2.05, over="bbb"),
    *_both("variational Laplace step", "step", "vl", 2.7, 2.7),
    *_both("variational Laplace step, cheaper", "step", "vl-lazy", 1.5, 1.7),
    Goal("variational Laplace step, LSTM", "step/lstm", "vl", 5.0),
    Goal("variational Laplace step, cheaper, LSTM", "step/lstm", "vl-lazy", 2.0),
    Goal("variational Laplace step, ResNet-18", "step/resnet", "vl", 2.75),
    Goal("low-rank step, MLP", "step/mlp", "low-rank", 2.5),
    *_both("mean-field in `fit` over a bare loop", "loop", loop_overhead.ENGINE, 1.03, 1.05, over=loop_overhead.BARE),
    *(
        goal
        for name in averages.METHODS
        for goal in _both(f"{name} overhead on a step", "average", name, 0.02, 0.02, kind="overhead")
    ),
    *_both("SGLD step", "step", "sgld", 1.15, 1.6, peers=("posteriors sgld",)),
    *_both("30-draw prediction over 30 plain passes", "predict", "bbb", 0.95, 1.3, peers=_MEAN_FIELD_PEERS),
    Goal("30-draw prediction over 30 plain passes, ResNet-18", "predict/resnet", "bbb", 1.05, peers=_MEAN_FIELD_PEERS),
    Goal("30-draw prediction over 30 plain passes, LSTM", "predict/lstm", "bbb", 1.1, peers=_MEAN_FIELD_PEERS),
    *(
        goal
        for name in ("vl", "laplace")
        for goal in _both(f"30-draw prediction of {name}, linearised, over 30 plain passes", "predict", name, 1.5, 1.5)
    ),
    Goal("30-draw prediction of swag over 30 plain passes, MLP", "predict/mlp", "swag", 1.4),
    *(
        Goal(f"{name} update over fused Adam, {place}", f"update/{part}", name, 1.5)
        for name in ("adabound", "yellowfin")
        for part, place in (("lenet", "LeNet-5"), ("mlp", "MLP"), ("flat", "a vector of 1M"))
    ),
    *_both("peak memory of mean-field over deterministic", "memory", "bbb", 4.0, 4.0, kind="memory"),
    Goal("peak memory of low-rank over deterministic, MLP", "memory/mlp", "low-rank", 3.5, kind="memory"),
    Goal("mean-field step, transformer", "step/transformer", "bbb", 1.10, peers=_MEAN_FIELD_PEERS),
    Goal("2-tied step, transformer", "step/transformer", "k-tied", 1.10),
    Goal("mean-field step, LoRA adapters", "step/lora", "bbb", 1.02),
    *(
        goal
        for net, size in (("50m", "50 million weights"), ("200m", "200 million weights"))
        for goal in (
            Goal(f"mean-field step, {size}", f"large/{net}", "bbb", 1.3),
            Goal(f"peak memory of mean-field, {size}", f"large/{net}", "bbb", 2.2, kind="memory"),
            Goal(f"2-tied step, {size}", f"large/{net}", "k-tied", 1.15),
            Goal(f"peak memory of 2-tied, {size}", f"large/{net}", "k-tied", 1.5, kind="memory"),
        )
    ),
    Goal("mean-field of a compiled network over eager", "compile/transformer", "bbb, compiled", 1.0, over="bbb"),
    Goal("deep ensemble of 5 on 2 cores over one after another", "together/ensemble", together.TOGETHER, 0.6),
    Goal("compare of 8 runs on 2 cores over one after another", "together/comparison", together.TOGETHER, 0.6),
    Goal("`bayeswell train` of one digits epoch over `import torch`", "start/command", start.TRAIN, 1.6),
)


def verdicts(record: Mapping[str, Any]) -> list[Verdict]:
    """All goals, judged by the record."""
    return [judge(goal, values(goal, record)) for goal in GOALS]


def judge(goal: Goal, measured: list[float] | None) -> Verdict:
    """A goal by its measurements; the margin is two standard errors of the median, from 3 to 10 %."""
    if not measured:
        return Verdict(goal, None, LEAST_MARGIN)
    found = summarise(measured)
    noise = 2 * found.error / found.median if found.median > 0 else 0.0
    return Verdict(goal, found, min(max(noise, LEAST_MARGIN), MOST_MARGIN))


def values(goal: Goal, record: Mapping[str, Any]) -> list[float] | None:
    """The measurements of a goal, round by round; None where there are none."""
    part = record["parts"].get(goal.part)
    if part is None:
        return None
    if goal.kind == "memory":
        own, base = part["peaks"].get(goal.case), part["peaks"].get("deterministic")
        return None if own is None or base is None else [one / summarise(base).median for one in own]
    times, reference = times_of(part), part["reference"]
    if goal.kind == "overhead":
        pair = [averages.SNAPSHOT.format(goal.case), averages.OTHER.format(goal.case)]
        if any(name not in times.seconds for name in pair):
            return None
        snapshot, other = (relative(times, name) for name in pair)
        return averages.overhead(snapshot, other, part["batches"])
    over = goal.over or reference
    if goal.case not in times.seconds or over not in times.seconds:
        return None
    return ratios(times, goal.case, over, reference)


def line(verdict: Verdict) -> str:
    """One line for a terminal."""
    goal, found = verdict.goal, verdict.found
    numbers = "" if found is None else f": {found.median:.3g} (standard error {found.error:.2g})"
    return f"{verdict.word:28} {goal.title}{numbers}, goal {goal.limit:g}"
