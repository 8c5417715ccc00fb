"""``compare``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import BayeswellError, SettingError
from ..experiments.schema import HOW, RUN, WHAT
from .command import command, with_settings
from .comparison_screen import show_comparison, show_failures, told
from .imports import kept_imports
from .options import Folds, Json, Quiet, Threads, Workers, experiment_from, use_threads, with_code
from .report import WriteReport, make_page
from .screen import one_line, show_json

if TYPE_CHECKING:
    from ..experiments import Experiment
    from ..experiments.given import Given

HELP = """Train several methods on one problem, each with several seeds, and show one table.

Every run has its folder OUT/LABEL-seedN: runs that are finished are not run again, those that were stopped go on. The
table, with both standard errors, is also in OUT/comparison.json, and all there is to see in OUT/report.html. With map
among the methods it ends by saying in words what the others gained over it, and at what price. With --workers several
runs are trained at a time, each as it would be alone (give each one thread: --threads 1)."""
EXAMPLES = (
    "[bold]Examples[/bold]",
    "  bayeswell compare --methods map,bbb,swag --data digits --ood noise --epochs 40 --seeds 3 --out runs/digits",
    "  bayeswell compare --methods map,bbb -d table.csv -n net.py:Net --folds 5 --workers 2 --threads 1 -o runs/own",
    "  bayeswell compare --methods bbb,sgld -d wine --set temperature=1 --set sgld:lr=0.05 --out runs/wine",
    '  bayeswell compare --methods "slow=bbb:lr=0.001,fast=bbb:lr=0.01:temperature=1" -d digits --out runs/rates',
)
EXTRA = ("methods", "seeds", "folds")
"""What a settings file may say of a comparison, besides what is said of an experiment."""


@command("compare", HELP, EXAMPLES)
@with_settings(
    without=("method", "seed", "devices", "fold"),
    workers={"option": "--data-workers", "help": "Processes of each run that read the data."},
)
def compare(
    *,
    methods: Annotated[
        str | None,
        typer.Option(
            "--methods",
            "-m",
            metavar="A,B,C",
            help="Which methods; one several times by labels: slow=bbb:lr=0.001.",
            show_default=False,
            rich_help_panel=WHAT,
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="[LABEL:]KEY=VALUE",
            help="A setting of every method, or of one (its label is its name, unless you gave it another).",
            show_default=False,
            rich_help_panel=WHAT,
        ),
    ] = None,
    given: Mapping[str, Any],
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", metavar="DIR", help="The folder of all runs.", show_default=False, rich_help_panel=RUN
        ),
    ],
    seeds: Annotated[
        int | None,
        typer.Option("--seeds", "-k", min=1, help="How many seeds, from 0 on.", show_default="1", rich_help_panel=HOW),
    ] = None,
    folds: Folds = None,
    workers: Workers = 1,
    threads: Threads = None,
    csv: Annotated[
        Path | None,
        typer.Option(
            "--csv", metavar="FILE.csv", help="Also write the table there.", show_default="no", rich_help_panel=RUN
        ),
    ] = None,
    report: WriteReport = True,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Train several methods on one problem and show one table."""
    with kept_imports():
        from ..experiments import compare as compared
        from ..experiments.comparison_table import comparison_rows, write_table

    given, own = with_code(given)
    _, others = experiment_from(given, EXTRA)
    chosen = _methods(methods, others)
    count = _seeds(seeds, others)
    pairs = _settings_of(list(chosen), settings or [])
    experiments = {label: _experiment(given, method, pairs[label]) for label, method in chosen.items()}
    use_threads(threads)
    folds = folds if folds is not None else others.get("folds")
    record = compared(
        experiments, range(count), out, folds=folds, workers=workers, progress=False, told=None if quiet else told,
        given=own,
    )  # fmt: skip
    if csv is not None:
        write_table(csv, comparison_rows(record))
    if json:
        show_json(record)
    else:
        show_comparison(record, out)
    if report:
        _report(out, quiet, json, own)
    show_failures(record)


def _report(out: Path, quiet: bool, json: bool, own: Given) -> None:
    """The page; the comparison is done and stays so whatever becomes of it."""
    try:
        page, _ = make_page([out], None, quiet=quiet, json=json, own=own)
    except BayeswellError as error:
        typer.echo(f"warning: no report: {one_line(str(error))}", err=True)
        return
    typer.echo(f"the page is {page}", err=json)


def _methods(said: str | None, others: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """A table for each label: ``map``, ``fast=bbb``, ``fast=bbb:lr=0.01:temperature=1``; in a file also tables.

    ``methods = ["map", "fast=bbb:lr=0.01"]``, or ``[methods.fast]`` with ``name = "bbb"`` and its settings.
    """
    from ..experiments.config_parsing import as_choice
    from ..methods import find_method

    given = said.split(",") if said is not None else others.get("methods")
    if isinstance(given, Mapping):
        found = [(label, as_choice(f"methods.{label}", table)) for label, table in given.items()]
    elif isinstance(given, list) and all(isinstance(one, str) for one in given):
        found = [_labelled(one.strip()) for one in given if one.strip()]
    else:
        raise SettingError("which methods? --methods map,bbb,swag (`bayeswell methods` lists them)")
    for _, table in found:
        find_method(table["name"])
    labels = [label for label, _ in found]
    if not labels or len(set(labels)) < len(labels):
        raise SettingError(
            f"--methods {','.join(labels)}: at least one, and each method once, or with a label of its own: again=bbb"
        )
    return dict(found)


def _labelled(text: str) -> tuple[str, dict[str, Any]]:
    """``LABEL=METHOD:KEY=VALUE:KEY=VALUE``, of which the method alone is needed."""
    from ..experiments import parse_settings

    head, *pairs = text.split(":")
    label, sign, method = head.partition("=")
    if not label.strip() or (sign and not method.strip()):
        raise SettingError(f"--methods {text}: write METHOD, LABEL=METHOD, or LABEL=METHOD:KEY=VALUE")
    if pairs and not sign:
        raise SettingError(f"--methods {text}: give it a label: LABEL={text} (or --set {text})")
    return label.strip(), {"name": (method if sign else label).strip(), **parse_settings(pairs, "--methods")}


def _experiment(given: Mapping[str, Any], method: Mapping[str, Any], pairs: Sequence[str]) -> Experiment:
    """What is said of all methods, then of this one where it is named, then by --set."""
    from ..experiments import parse_settings
    from ..experiments.config_parsing import lr_to_stepper

    found = experiment_from({**given, "method": method["name"]}, EXTRA)[0]
    for own in (dict(method), parse_settings(pairs, "--set")):
        found = found.changed({"method": lr_to_stepper(own)}) if own else found
    return found


def _seeds(seeds: int | None, others: Mapping[str, Any]) -> int:
    count = seeds if seeds is not None else others.get("seeds", 1)
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise SettingError(f"seeds = {count!r}; how many, a whole number of at least 1")
    return count


def _settings_of(names: Sequence[str], settings: Sequence[str]) -> dict[str, list[str]]:
    """``KEY=VALUE`` for each method: those given for all, then those for it alone (``METHOD:KEY=VALUE``)."""
    common = [pair for pair in settings if ":" not in pair.partition("=")[0]]
    found = {name: list(common) for name in names}
    for pair in settings:
        if pair not in common:
            label, own = pair.split(":", 1)
            if label not in found:
                raise SettingError(f"--set {pair}: '{label}' is not among the methods {', '.join(names)}")
            found[label].append(own)
    return found
