"""Pages that are generated while the site is built: reference, cards of methods, scores, verdicts, quality.

mkdocs-gen-files runs this file; nothing that it writes is committed.
"""

from __future__ import annotations

import importlib
import json
import math
import statistics
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import mkdocs_gen_files

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bayeswell.methods import METHODS, Method  # noqa: E402
from bayeswell.metrics import SCORES  # noqa: E402
from bayeswell.metrics.statistics import paired_difference  # noqa: E402

ROOMS = {
    "training": "fit, Result, callbacks, laplace, swag",
    "prediction": "predict, Predictor, predictions, evaluate, calibration",
    "nn": "bayesian, BayesianModule, dropout, BatchNorm",
    "posteriors": "families of q(w)",
    "priors": "p(w)",
    "likelihoods": "p(y | outputs)",
    "objectives": "ELBO, divergences, KL weights, sharpness",
    "estimators": "the expected NLL",
    "optim": "optimizers and schedules",
    "sampling": "samplers",
    "averaging": "averages along training",
    "laplace": "Laplace approximation",
    "methods": "Method and the named methods",
    "metrics": "scores and statistics",
    "tables": "data frames to tensors and back",
    "testing": "check_part",
    "sklearn": "scikit-learn estimators",
    "integrations": "Lightning, BoTorch, custom loops",
    "lab": "compare, sweep, data, plots, report",
}
FAMILIES = {
    "default": ("The default", ["auto"]),
    "point_estimates": ("Point estimates and ensembles", ["map", "deep-ensemble", "snapshot-ensemble"]),
    "mean_field": ("Mean-field variational inference", ["bbb", "sgvb", "sgvb-lrt", "flipout"]),
    "k_tied": ("k-tied and low-rank posteriors", ["k-tied", "low-rank"]),
    "variational_laplace": ("Variational Laplace", ["vl", "vl-lazy"]),
    "hwa": ("HWA", ["hwa"]),
    "swag": ("SWA and SWAG", ["swa", "swag-diag", "swag"]),
    "samplers": ("Samplers", ["sgld", "sghmc", "psgld", "csgld"]),
    "mc_dropout": ("MC dropout", ["mc-dropout"]),
    "laplace": ("Laplace approximation", ["laplace"]),
    "ivon": ("IVON", ["ivon"]),
    "sharpness": ("Sharpness-aware methods", []),
}
PAPERS = {
    "hwa": "hwa",
    "thesis": "thesis",
    "variational_laplace": "variational_laplace",
    "flat": "flat_seeking",
    "k_tied": "k_tied",
}
"""Folder of the studies of each page."""
MARKER = "<!-- verdicts -->"
PROBLEM_ORDER = ("digits", "breast_cancer", "wine", "diabetes", "boston", "concrete", "energy", "yacht", "mnist-2k",
                 "fashion-10k", "imdb-5k")  # fmt: skip


def write(path: str, lines: list[str]) -> None:
    with mkdocs_gen_files.open(path, "w") as file:
        file.write("\n".join(lines) + "\n")


def table(headings: list[str], rows: list[list[str]]) -> list[str]:
    """Return the lines of a Markdown table."""
    cut = "|" + " --- |" * len(headings)
    return [f"| {' | '.join(headings)} |", cut, *(f"| {' | '.join(row)} |" for row in rows), ""]


def write_reference() -> None:
    rows = []
    for room, summary in ROOMS.items():
        module = importlib.import_module(f"bayeswell.{room}")
        lines = [f"# bayeswell.{room}", "", f"::: bayeswell.{room}", "    options:", "      members: false", ""]
        for name in module.__all__:
            if not hasattr(getattr(module, name), "__doc__") or name.isupper():
                continue
            lines += [f"::: bayeswell.{room}.{name}", ""]
        write(f"reference/{room}.md", lines)
        rows.append([f"[bayeswell.{room}]({room}.md)", summary])
    write("reference/index.md", ["# Reference", "", *table(["room", "holds"], rows)])


def part_name(value: Any) -> str:
    return "" if value is None else str(getattr(value, "name", value))


def write_cards() -> None:
    fields = ("posterior", "estimator", "optimizer", "schedule", "averaging", "post_hoc", "prediction", "members")
    rows = []
    for page, (title, names) in FAMILIES.items():
        methods: list[Method] = [METHODS[name] for name in names]
        lines = [f"# {title}", ""]
        if page == "sharpness":
            lines += ["`f-X` is the method X with sharpness-aware gradients, `f-X-geometry` with the geometry"]
            lines += ["|mean| / std. See [Sharpness](../objectives.md). Cost: two passes a step.", ""]
        for method in methods:
            lines += [f"## {method.name}", "", f"{method.summary}.", "", f"Paper: {method.paper}.", ""]
            lines += table(["setting", "default"], [[f, part_name(getattr(method, f))] for f in fields])
            rows.append([f"[{method.name}]({page}.md#{method.name})", method.summary, method.paper])
        write(f"reference/methods/{page}.md", lines)
    rows.append(["[f-X, f-X-geometry](sharpness.md)", "sharpness-aware form of X", "Nguyen et al. 2023"])
    write("reference/methods/index.md", ["# Named methods", "", *table(["method", "summary", "paper"], rows)])


def write_scores() -> None:
    rows = [[f"`{s.key}`", s.heading, s.direction or "neither", s.unit] for s in SCORES.values()]
    intro = "`result.evaluate(x, y)` returns every score that fits the predictions, with standard errors."
    write("reference/scores.md", ["# Scores", "", intro, "", *table(["key", "heading", "better", "unit"], rows)])


def write_verdicts() -> None:
    """Insert the verdicts of the studies into the pages of the papers."""
    from studies.page import verdict_table

    for page, paper in PAPERS.items():
        text = (ROOT / "docs" / "papers" / f"{page}.md").read_text()
        with mkdocs_gen_files.open(f"papers/{page}.md", "w") as file:
            file.write(text.replace(MARKER, verdict_table(paper)))


def quality_rows() -> dict[str, dict[str, dict[int, float]]]:
    """Return the test NLL of the quality record by problem, method and seed."""
    found: dict[str, dict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for line in (ROOT / "benchmarks/results/quality.jsonl").read_text().splitlines():
        record = json.loads(line)
        if "nll" in record:
            found[record["problem"]][record["method"]][record["seed"]] = record["nll"]
    return found


def quality_cell(own: dict[int, float], reference: dict[int, float]) -> str:
    seeds = sorted(own.keys() & reference.keys())
    if len(seeds) < 2 or not all(math.isfinite(own[seed]) for seed in seeds):
        return ""
    differences = [own[seed] - reference[seed] for seed in seeds]
    error = statistics.stdev(differences) / math.sqrt(len(seeds))
    difference = paired_difference([own[s] for s in seeds], [reference[s] for s in seeds])
    text = f"{statistics.mean(differences):+.3f} ± {error:.3f}"
    return f"**{text}**" if difference.p_value < 0.05 and statistics.mean(differences) < 0 else text


def write_quality() -> None:
    found = quality_rows()
    problems = [problem for problem in PROBLEM_ORDER if problem in found]
    rows = [
        [f"`{name}`", *(quality_cell(found[problem][name], found[problem]["map"]) for problem in problems)]
        for name in METHODS
        if name != "map"
    ]
    text = (ROOT / "docs" / "quality.md").read_text()
    with mkdocs_gen_files.open("quality.md", "w") as file:
        file.write(text.replace("<!-- table -->", "\n".join(table(["method", *problems], rows))))


def write_speed() -> None:
    from benchmarks.goals import verdicts

    record = json.loads((ROOT / "benchmarks/results/speed.json").read_text())
    rows = [
        [verdict.title, f"{verdict.measured:.2f}", f"{verdict.limit:.2f}", verdict.word]
        for verdict in verdicts(record)
        if verdict.measured is not None
    ]
    text = (ROOT / "docs" / "speed.md").read_text()
    with mkdocs_gen_files.open("speed.md", "w") as file:
        file.write(text.replace("<!-- table -->", "\n".join(table(["", "measured", "at most", ""], rows))))


write_reference()
write_cards()
write_scores()
write_verdicts()
write_quality()
write_speed()
