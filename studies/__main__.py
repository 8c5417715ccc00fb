"""Run studies, print their verdicts and write their pages: ``python -m studies``."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Sequence
from pathlib import Path

from bayeswell.core.errors import BayeswellError, BayeswellWarning, nearest

from .definition import ROOT, SCALES, Study, read_studies
from .engine import run_study, run_untrained, say
from .page import write_pages
from .results import UNTRAINED
from .verdicts import Findings


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m studies", description=__doc__)
    parser.add_argument("--scale", choices=(*SCALES, UNTRAINED), default="small", help="size of the runs")
    parser.add_argument("--out", type=Path, default=Path("build/studies"), help="folder of the runs")
    parser.add_argument("--only", help="name of one study, or of a paper's folder")
    parser.add_argument("--no-run", action="store_true", help="verdicts and pages from the recorded results alone")
    parser.add_argument("--workers", type=int, default=1, help="runs at a time")
    asked = parser.parse_args(arguments)
    studies = read_studies()
    chosen = [study for study in studies if asked.only in (None, study.name, study.folder.name)]
    if not chosen:
        parser.error(f"no study '{asked.only}'; {nearest(asked.only, [study.name for study in studies])}")
    failed = 0
    for study in chosen:
        if not asked.no_run:
            failed += _run(study, asked)
        if asked.scale != "smoke" or asked.no_run:
            _print_verdicts(study)
    if asked.only is None and (asked.scale != "smoke" or asked.no_run):
        write_pages(ROOT, studies)
    return int(failed > 0)


def _run(study: Study, asked: argparse.Namespace) -> int:
    if asked.scale == UNTRAINED:
        run_untrained(study)
        return 0
    if asked.scale not in study.scales:
        return 0
    if asked.scale == "smoke":
        warnings.simplefilter("ignore", BayeswellWarning)
    try:
        lines = run_study(study, asked.scale, asked.out, workers=asked.workers)
    except BayeswellError as error:
        say(f"{study.folder.name}/{study.name}: {error}")
        return 1
    failures = [line for line in lines if line.error]
    say(f"{study.folder.name}/{study.name}: {len(lines) - len(failures)} of {len(lines)} runs finished")
    for line in failures:
        say(f"  {line.cell} {line.at or ''} seed {line.seed}: {line.error}")
    return len(failures)


def _print_verdicts(study: Study) -> None:
    found = Findings.of(study)
    say(f"{study.folder.name}/{study.name}: {study.title}")
    for claim in study.claims:
        verdict = found.verdict(claim)
        say(f"  {verdict.word:<24} {verdict.number:<20} {claim.text}")


if __name__ == "__main__":
    raise SystemExit(main())
