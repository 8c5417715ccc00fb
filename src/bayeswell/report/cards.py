"""A card for each row: what the method is, what it cost, and whether its posterior may be believed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..diagnostics import std_movement
from ..errors import BayeswellError
from .alarms import alarms_of, notes_of
from .numbers import number, shown
from .reading import RunRecord, mapping
from .rows import MethodRow

_HEAD = frozenset({"name", "summary", "paper"})


@dataclass(frozen=True)
class Card:
    """What is known of a method as it was run. ``facts`` and ``parts`` are names with texts."""

    label: str
    method: str
    summary: str
    paper: str
    facts: list[tuple[str, str]]
    parts: list[tuple[str, str]]
    changed: str
    trust: str
    warnings: list[str]
    notes: list[str]
    truncation: list[dict[str, str]]


def card_of(row: MethodRow, worse: str = "") -> Card:
    """The card of a row, from its first inspected run; ``worse`` says that it is worse than ordinary training."""
    run = row.first
    method = mapping(run.config.get("method"))
    parts = [(str(key), text_of(value)) for key, value in method.items() if key not in _HEAD and value is not None]
    settings = {key: value for key, value in mapping(run.experiment.get("method")).items() if key != "name"}
    return Card(
        label=row.label, method=run.method, summary=str(method.get("summary", "")), paper=str(method.get("paper", "")),
        facts=_facts(row), parts=parts, changed=text_of(settings) if settings else "", trust=_trust(run),
        warnings=alarms_of(row, worse), notes=notes_of(run), truncation=_truncation(run),
    )  # fmt: skip


def _facts(row: MethodRow) -> list[tuple[str, str]]:
    run = row.first
    cost, count = mapping(run.result.get("cost")), number(run.result.get("parameters"))
    found: list[tuple[str, str | None]] = [
        ("network", f"{run.model}, {count:,.0f} weights" if count is not None else run.model),
        ("seeds", ", ".join(str(one.seed) for one in row.runs if one.seed is not None)),
        ("epochs", text_of(run.config.get("epochs"))),
        ("batch size", text_of(run.config.get("batch_size"))),
        ("cost of a step", _passes(cost.get("per_step"), "forward passes (ordinary training: 3)")),
        ("cost in all", _passes(cost.get("total"), "forward passes of a batch")),
        ("numbers kept", None if row.kept is None else f"{row.kept:,.0f} by the posterior"),
        ("training time", None if row.seconds is None else f"{row.seconds:.1f} s a run"),
        ("prediction", _prediction(run)),
        ("stds", _movement(run)),
        _bound(run),
        ("calibration", text_of(mapping(run.result.get("calibration")).get("text"))),
        ("stopped early", text_of(run.result.get("stopped") or None)),
    ]
    return [(name, value) for name, value in found if value]


def _prediction(run: RunRecord) -> str | None:
    """How it predicts, and from how many draws."""
    how, draws = run.result.get("prediction"), number(run.result.get("draws"))
    if not isinstance(how, str) or draws is None:
        return None
    return f"{how}, {draws:,.0f} draw{'' if draws == 1 else 's'}"


def _truncation(run: RunRecord) -> list[dict[str, str]]:
    rows = mapping(run.plot_record("truncation")).get("rows")
    return [
        {
            "rank": "all" if row.get("rank") is None else text_of(row.get("rank")),
            "elbo": shown(number(row.get("negative_elbo"))),
            "nll": shown(number(row.get("nll"))),
            "name": text_of(row.get("score_name")),
            "score": shown(number(row.get("score"))),
        }
        for row in (rows if isinstance(rows, list) else [])
        if isinstance(row, Mapping)
    ]


def _passes(value: Any, unit: str) -> str | None:
    found = number(value)
    return None if found is None else f"{found:,.4g} {unit}" if found < 1e4 else f"{found:,.0f} {unit}"


def _movement(run: RunRecord) -> str | None:
    """Whether the stds still moved at the end."""
    rows = [row for row in run.epochs if row.get("member", 0) == 0]
    ratios = [number(row.get("std_ratio")) for row in rows]
    rates = [number(row.get("lr.stds")) for row in rows]
    known = [ratio for ratio in ratios if ratio is not None and ratio > 0]
    if not known or len(known) < len(rows):
        return None
    try:
        found = std_movement(known, [rate for rate in rates if rate is not None] if None not in rates else ())
    except BayeswellError:
        return None
    if found.slope is None:
        return None
    state = "have arrived" if found.converged else "still move"
    return f"{state}: {found.slope:+.3f} nats an epoch at the end"


def _trust(run: RunRecord) -> str:
    """A line on k-hat or the chains."""
    record = mapping(run.plot_record("trust"))
    pareto, chains = mapping(record.get("pareto")), mapping(run.result.get("chains"))
    lines = []
    if pareto:
        k_hat, limit = number(pareto.get("k_hat")), number(pareto.get("limit"))
        lines.append(f"k-hat {'none' if k_hat is None else f'{k_hat:.2f}'} (good up to {limit or 0.7:.2f})")
    if chains:
        r_hat, ess = number(chains.get("r_hat")), number(chains.get("ess"))
        count = text_of(chains.get("chains"))
        several = "1 chain" if count == "1" else f"{count} chains"
        lines.append(f"R-hat {_digits(r_hat)}, {_digits(ess)} effective draws of {several}")
    whole = mapping(run.result.get("trust"))
    elsewhere = mapping(whole.get("chains_elsewhere"))
    if elsewhere:
        lines.append(f"away from the training inputs R-hat {_digits(number(elsewhere.get('r_hat')))}")
    members = mapping(whole.get("members"))
    if members:
        apart = [_digits(number(members.get(name))) for name in ("at_training", "elsewhere")]
        lines.append(f"members disagree by {apart[0]} at training inputs, by {apart[1]} away from them")
    return "; ".join(lines)


def _bound(run: RunRecord) -> tuple[str, str | None]:
    """What the final posterior's bound is called, and its value."""
    record = mapping(run.result.get("elbo"))
    value, error, at_one = (number(record.get(name)) for name in ("elbo", "error", "elbo_at_one"))
    name = "log joint" if record.get("kind") == "log joint" else "ELBO"
    if value is None or error is None or at_one is None:
        return name, None
    return (
        name,
        f"{value:,.0f} ± {error:,.0f} nats at temperature {text_of(record.get('temperature'))}, {at_one:,.0f} at 1",
    )


def _digits(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3g}"


def text_of(value: Any) -> str:
    """Settings as people write them: ``adam(lr=0.003)``."""
    if isinstance(value, Mapping):
        inner = ", ".join(f"{key}={text_of(part)}" for key, part in value.items() if key != "name")
        name = text_of(value["name"]) if "name" in value else ""
        return f"{name}({inner})" if name and inner else name or inner
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(text_of, value))}]"
    if value is None:
        return ""
    return f"{value:g}" if isinstance(value, float) else str(value)
