"""What of all that is known of a run changes a decision (an alarm), and what is only to be understood (a note)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ..training.verdicts.pareto import MOST_WEIGHTS
from .numbers import number
from .reading import RunRecord, mapping
from .rows import MethodRow

_STILL = 0.01
"""Nats that the log of the stds must have moved through training to have been learned."""


def alarms_of(row: MethodRow, worse: str = "") -> list[str]:
    """Each line once: stds that have not moved, chains that disagree, training that diverged or was too short, ...

    ``worse`` says that the method is worse than ordinary training. k-hat is none: see ``notes_of``.
    """
    run = row.first
    trust, chains = mapping(run.result.get("trust")), mapping(run.result.get("chains"))
    lines = [*_texts(mapping(run.plot_record("trust"))), *_texts(chains), *_texts(trust)]
    explained = set(_texts(_pareto(run))) | set(_texts(mapping(trust.get("pareto"))))
    found = [worse, unmoved_stds(run), *(line for line in lines if line not in explained)]
    return list(dict.fromkeys(line for line in found if line))


def notes_of(run: RunRecord) -> list[str]:
    """What a k-hat above its limit says of a network with so many weights; the page explains it once."""
    pareto = _pareto(run)
    k_hat, limit, weights = (
        number(pareto.get("k_hat")),
        number(pareto.get("limit")),
        number(run.result.get("parameters")),
    )
    if k_hat is None or limit is None or k_hat <= limit:
        return []
    head = f"k-hat {k_hat:.3g} (good up to {limit:.2g})"
    if weights is None or weights > MOST_WEIGHTS:
        many = "so many" if weights is None else f"{weights:,.0f}"
        return [f"{head}: no alarm, as every approximation has it with {many} weights."]
    return [f"{head}: its ELBO is no measure of the evidence; how well it predicts is told by the scores."]


def unmoved_stds(run: RunRecord) -> str:
    """A line if stds that were trained are what they were after the first epoch."""
    rows = [row for row in run.epochs if row.get("member", 0) == 0 and (number(row.get("lr.stds")) or 0) > 0]
    ratios = [number(row.get("std_ratio")) for row in rows]
    known = [ratio for ratio in ratios if ratio is not None and ratio > 0]
    if len(known) < 3 or len(known) < len(rows) or abs(math.log(known[-1] / known[0])) >= _STILL:
        return ""
    return (
        f"the stds have not moved: {known[0]:.3g} of the prior's after the first epoch, {known[-1]:.3g} after the "
        "last; they are what they began with, not what was learned. Train longer, or raise the rate of the stds"
    )


def _pareto(run: RunRecord) -> Mapping[str, Any]:
    return mapping(mapping(run.plot_record("trust")).get("pareto"))


def _texts(part: Mapping[str, Any]) -> list[str]:
    found = part.get("warnings")
    return [str(line) for line in found] if isinstance(found, list) else []
