"""What people and machines see: tables for the one, JSON for the other, both on stdout."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.table import Table

SCORES = (
    ("accuracy", "accuracy"), ("rmse", "RMSE"), ("r2", "R²"), ("nll", "NLL"), ("crps", "CRPS"), ("ece", "ECE"),
    ("brier", "Brier"), ("coverage_50", "50 % covered"), ("coverage_90", "90 % covered"),
    ("coverage_95", "95 % covered"),
    ("auroc", "AUROC"), ("entropy", "entropy"), ("ood_entropy", "OOD entropy"),
)  # fmt: skip
"""Names in a result and in a heading, in the order in which they are shown."""


_WIDE = 240


def one_line(text: str) -> str:
    """A message without line breaks, in which control characters are shown, whatever came in from a file."""
    plain = (letter.isprintable() or letter.isspace() for letter in text)
    shown = (a if kept else a.encode("unicode_escape").decode("ascii") for a, kept in zip(text, plain, strict=True))
    return " ".join("".join(shown).split())


def counted(count: int, thing: str) -> str:
    """So many of a thing: 1 draw, 2 draws."""
    return f"{count:,} {thing}" + ("" if count == 1 else "s")


def show_json(record: Any) -> None:
    """One JSON document."""
    typer.echo(json.dumps(record, indent=2, allow_nan=False))


def show(table: Table, title: str = "", *, narrow: Callable[[], Table] | None = None) -> None:
    """A table, as wide as the terminal; as wide as it needs where there is none.

    ``narrow`` makes one with less in it, for a terminal in which this one does not find room.
    """
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_WIDE)
    elif narrow is not None and Console(width=_WIDE).measure(table).maximum > console.width:
        table = narrow()
    if title:  # not the table's own, which is broken into lines of its width
        typer.echo(one_line(title) + "\n")
    console.print(table)


def new_table(*columns: str, right: Sequence[str] = (), wraps: Sequence[str] = ()) -> Table:
    """An empty table; columns in ``right`` hold numbers, those in ``wraps`` may be broken into lines."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", no_wrap=column not in wraps)
    return table


def plain(text: Any) -> str:
    """A cell as it is: square brackets are not markup, and the quotes of docstrings are left out."""
    from rich.markup import escape

    return escape(one_line(str(text).replace("``", "")))


def in_words(value: Any) -> str:
    """A part or settings in one piece: ``adam(lr=0.003)``, ``rank=2, std=0.1``, or the value itself."""
    from ..plain import plain as as_plain

    value = as_plain(value, finite=True)
    if not isinstance(value, Mapping):
        return "none" if value is None else str(value)
    settings = ", ".join(f"{key}={part!r}" for key, part in value.items() if key != "name")
    return f"{value['name']}({settings})" if "name" in value else settings


def show_scores(record: Mapping[str, Any], title: str) -> None:
    """The scores of one model, with their standard errors over test examples."""
    table = new_table("score", "value", "± over examples", right=("value", "± over examples"))
    for part in ("test", "ood"):
        scores = record.get(part)
        if scores is None:
            continue
        errors = scores["standard_errors_over_examples"]
        for name, heading in SCORES:
            if name in scores["values"]:
                error = "" if errors[name] is None else f"{errors[name]:.4f}"
                table.add_row(heading, f"{scores['values'][name]:.4f}", error)
    held_out = record.get("validation") if record.get("test") is None else None
    for name, value in (held_out or {}).items():  # all that a run of `fit` has been measured on
        table.add_row(f"validation {dict(SCORES).get(name, name)}", f"{value:.4f}", "")
    if table.row_count:
        show(table, title)
    else:
        typer.echo(one_line(title))


def show_corruptions(record: Mapping[str, Any]) -> None:
    """Scores on corrupted images: each corruption, each family, and all of them."""
    names = list(record["mean"])
    table = new_table("corrupted by", *names, right=names)
    rows = {**record["by_corruption"], **{f"all {family}": one for family, one in record["by_family"].items()}}
    rows |= {f"severity {severity}": one for severity, one in record["by_severity"].items()}
    for name, scores in {**rows, "all": record["mean"]}.items():
        table.add_row(plain(name), *(f"{scores[score]:.4f}" for score in names))
    severities = ", ".join(str(one) for one in record["severities"])
    show(table, f"{counted(record['images'], 'image')}, mean over severities {severities}")


def show_verdict(verdict: Any) -> None:
    """What was gained over ordinary training, in lines that fit a terminal."""
    import shutil
    import textwrap

    width = min(max(shutil.get_terminal_size((100, 24)).columns, 40), 120)
    typer.echo(f"\nWhat was gained on {one_line(verdict.data)}, and at what price:\n")
    for line in (verdict.control, *verdict.lines):
        typer.echo(textwrap.fill(one_line(line), width, initial_indent="- ", subsequent_indent="  "))
    typer.echo("\n" + textwrap.fill(one_line(verdict.meaning), width))
    typer.echo("\n" + textwrap.fill(one_line(verdict.closing), width))


def show_result(record: Mapping[str, Any], where: str) -> None:
    """The result of a run."""
    title = f"{record['method']} · {record['model']} ({record['parameters']:,} parameters) on {record['data']}"
    how = record.get("prediction", "sampled")
    said = "" if how == "sampled" else f" ({how})"
    show_scores(record, f"{title}, seed {record['seed']}, {counted(record['draws'], 'draw')}{said}")
    cost, spent = record["cost"], record["time"]
    resumed = " (since it was resumed)" if spent["resumed"] else ""
    lines = [record["plan"]] if record.get("plan") else []
    if record.get("temperature") is not None:
        lines.append(f"temperature {record['temperature']:.3g} (1 is Bayes' rule)")
    lines += [
        f"std/prior {record['std_ratio']:.4f} · {spent['train_seconds']:.1f} s of training{resumed} · {_cost(cost)}",
    ]
    if record["chains"] is not None:
        chains = record["chains"]
        one = chains["chains"] == 1
        if chains["converged"]:
            sense = "agrees with itself" if one else "agree"
        else:
            sense = f"{'does' if one else 'do'} not agree{' with itself' if one else ''}: train longer, or more chains"
            sense += " (members)"
        numbers = f"R-hat {chains['r_hat']}, ESS {chains['ess']}"
        lines.append(f"{counted(chains['chains'], 'chain')} {sense} ({numbers})")
    lines += [_bound(record["elbo"])] if record.get("elbo") else []
    if record.get("calibration") is not None:
        lines.append(f"calibration: {record['calibration']['text']}")
    if record["stopped"]:
        lines.append(f"stopped early: {record['stopped']}")
    lines += [f"not to be trusted: {line}" for line in (record.get("trust") or {}).get("warnings", ())]
    typer.echo("\n".join(one_line(line) for line in [*lines, f"in {where}"]))


def _cost(cost: Mapping[str, Any]) -> str:
    """Members, their steps and what a step costs: numbers that multiply to the whole (calibration's folds apart)."""
    members, steps = cost.get("members", 1), cost["steps"]
    each = f"{cost['per_step'] / members:g} forward passes"
    total = f"{cost['total']:,.0f} in all"
    if members == 1:
        return f"{counted(steps, 'step')} of {each}, {total}"
    return f"{members} members, {steps / members:,.10g} steps each of {each}, {total}"


def _bound(elbo: Mapping[str, Any]) -> str:
    """The bound of a run, or the log joint of a point."""
    name = "ELBO" if elbo["kind"] == "elbo" else "log joint"
    value, error, at_one = (
        float("nan") if elbo[key] is None else elbo[key] for key in ("elbo", "error", "elbo_at_one")
    )
    at = f"at temperature {elbo['temperature']:g} ({at_one:,.0f} at 1)"
    return f"{name} {value:,.0f} ± {error:,.0f} nats {at}"
