"""``study``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import SettingError, nearest
from .command import command
from .comparison_screen import told
from .options import Json, Quiet, Threads, use_threads
from .screen import new_table, plain, show, show_json

if TYPE_CHECKING:
    from ..studies import Findings, Study

HELP = """Run a study: cells over a grid of settings, each with several seeds, and what they say of a paper's claims.

A study is a TOML file (docs/studies.md), or a folder of them. Each run has its folder in OUT, results are added to
results/STUDY.jsonl beside the file as they come, and the README of its folder is made anew from them. The same command
again, whatever stopped it, runs only what is missing. Scales: [bold]smoke[/bold] shows that everything runs,
[bold]cpu[/bold] is what a small machine can do, [bold]paper[/bold] the setting of the paper."""
EXAMPLES = (
    "[bold]Examples[/bold]",
    "  bayeswell study studies/k_tied/mlp.toml --scale cpu --workers 2 --threads 1",
    "  bayeswell study studies/k_tied/mlp.toml --scale cpu --list",
    "  bayeswell study studies --scale paper --validate",
    "  bayeswell study studies --no-run",
)


@command("study", HELP, EXAMPLES)
def study(
    *,
    path: Annotated[Path, typer.Argument(metavar="FILE.toml", help="A study, or a folder of studies.")],
    scale: Annotated[str, typer.Option("--scale", help="smoke, cpu or paper.")] = "cpu",
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="The folder of the runs.")] = Path(
        "runs/studies"
    ),
    workers: Annotated[int, typer.Option("--workers", "-w", min=1, help="Runs at a time, each in a process.")] = 1,
    list_only: Annotated[bool, typer.Option("--list", help="Show the runs and how each stands.")] = False,
    no_run: Annotated[bool, typer.Option("--no-run", help="Make the pages anew from the results there are.")] = False,
    validate: Annotated[bool, typer.Option("--validate", help="Only let each cell take one step.")] = False,
    renew: Annotated[bool, typer.Option("--renew", help="Also run again what was run with other defaults.")] = False,
    threads: Threads = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Run a study."""
    from ..studies import SCALES, Findings, find_studies, read_results, results_path, run_study, write_pages

    if scale not in SCALES:
        raise SettingError(f"--scale {scale}: {nearest(scale, SCALES)}")
    use_threads(threads)
    studies = [one for one in find_studies(path) if scale in one.scales or not path.is_dir()]
    if list_only:
        _list(studies, scale, out, json)
        return
    if validate:
        _validate(studies, scale, quiet)
        return
    found = []
    for one in studies:
        lines = (
            read_results(results_path(one, scale, out)) if no_run
            else run_study(one, scale, out, workers=workers, renew=renew, told=None if quiet else told, progress=False)
        )  # fmt: skip
        found.append(Findings(one, one.scale(scale), lines))
    pages = write_pages(path, studies) if scale != "smoke" or no_run else []
    if json:
        show_json({"studies": [_record(findings) for findings in found]})
    else:
        for findings in found:
            _show(findings)
        for page in pages:
            typer.echo(f"the page is {page}")
    if any(findings.failures for findings in found) and not no_run:
        for findings in found:
            for line in findings.failures:
                typer.echo(f"bayeswell: {findings.study.name}: {line.cell} seed {line.seed}: {line.error}", err=True)
        raise typer.Exit(1)


def _list(studies: Sequence[Study], scale: str, out: Path, json: bool) -> None:
    from ..studies import jobs_of, read_results, results_path

    jobs = [
        {"study": one.name, "cell": job.cell.name, "seed": job.seed, "state": job.state, "folder": str(job.place)}
        for one in studies
        for job in jobs_of(one, one.scale(scale), out, read_results(results_path(one, scale, out)))
    ]
    if json:
        show_json({"runs": jobs})
        return
    table = new_table("study", "cell", "seed", "state", right=["seed"])
    for job in jobs:
        table.add_row(plain(str(job["study"])), plain(str(job["cell"])), str(job["seed"]), str(job["state"]))
    left = sum(not str(job["state"]).startswith("done") for job in jobs)
    show(table, f"{len(jobs)} runs at the scale {scale}, {left} to do")


def _validate(studies: Sequence[Study], scale: str, quiet: bool) -> None:
    from ..studies import validate_study

    faults: dict[str, str] = {}
    for one in studies:

        def shown(name: str, said: str, study: str = one.name) -> None:
            told(f"{study}: {name}", said)

        found = validate_study(one, scale, None if quiet else shown)
        faults |= {f"{one.name}: {name}": fault for name, fault in found.items()}
    for name, fault in faults.items():
        typer.echo(f"bayeswell: {name}: {fault}", err=True)
    if faults:
        raise typer.Exit(1)
    typer.echo(f"every cell of {len(studies)} studies takes a step at the scale {scale}")


def _show(findings: Findings) -> None:
    """Claims and verdicts; the numbers are in the page and in the results."""
    table = new_table("claim", "ours", "verdict")
    for claim in findings.study.claims:
        verdict = findings.verdict(claim)
        before = "  control: " if claim.control_of else ""
        table.add_row(plain(f"{before}{claim.text}"), plain(verdict.said), plain(verdict.word))
    scale = findings.scale.name
    show(table, f"{findings.study.title}: scale {scale}, {findings.done} of {findings.wanted} runs")


def _record(findings: Findings) -> dict[str, Any]:
    cells = []
    for cell in findings.scale.cells:
        scores = {score: findings.score(cell, score) for score in findings.study.scores}
        cells.append({
            "cell": cell.name, "runs": len(findings.values(cell.label, cell.at, findings.study.scores[0])),
            "scores": {name: {"mean": one.value, "standard_error_over_seeds": one.error}
                       for name, one in scores.items() if one is not None},
        })  # fmt: skip
    verdicts = [(claim, findings.verdict(claim)) for claim in findings.study.claims]
    return {
        "study": findings.study.name, "scale": findings.scale.name, "done": findings.done, "wanted": findings.wanted,
        "cells": cells,
        "claims": [{"name": claim.name, "verdict": one.word, "said": one.said, "paper": one.printed}
                   for claim, one in verdicts],
    }  # fmt: skip
