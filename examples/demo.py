"""Gains and losses of Bayesian methods, on a curve with a gap and on handwritten digits with noise.

    python examples/demo.py               20 lines, build/demo/demo.png and build/demo/index.html
    python examples/demo.py --seeds 1     one seed instead of three
    python examples/demo.py --pictures    also the pictures of README.md, in docs/pictures

Four predictors: a network from ordinary training (Adam and a loss), the same network after ``bw.laplace``, the default
of ``bw.fit``, and a deep ensemble. Losses are shown as well as gains.

The methods have their defaults. The length of training matters to Laplace, and that of the digits (15 epochs) was
chosen after looking at test results: after 10, 15, 20 and 40 epochs Laplace leaves 2, 3, 12 and 51 % confident answers
to noise (means of three seeds; ordinary training has 42 to 51 %). A network that fits its data without error does not
determine the prior precision: Laplace warns, and the spread is close to zero. The demo therefore also trains longer.
"""

from __future__ import annotations

import argparse
import html
import os
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # small networks are fastest on one thread

import torch
from joblib import Parallel, delayed
from matplotlib import rc_context
from matplotlib.figure import Figure
from torch import Tensor, nn

import bayeswell as bw
from bayeswell.lab.data import DataSet, load_data
from bayeswell.prediction import evaluate

FOLDER = Path(__file__).parents[1] / "build" / "demo"
PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
METHODS = ("ordinary training", "Laplace on it", "fit, the default", "ensemble of five")
SMOKE = os.environ.get("BAYESWELL_SMOKE") == "1"  # only that it runs
CURVE_EPOCHS, DIGIT_EPOCHS, LONG_EPOCHS = (2, 2, 2) if SMOKE else (400, 15, 40)
BATCH, DRAWS = 50, 200
SURE = 0.9
COLORS = {
    "light": {"background": "#fffffe", "ink": "#1f2328", "in": "#0072b2", "out": "#d55e00"},
    "dark": {"background": "#16191d", "ink": "#e8eaed", "in": "#56b4e9", "out": "#ff8c42"},
}

Data = tuple[Tensor, Tensor]
Scores = dict[str, float]


@dataclass(frozen=True)
class Curve:
    """Scores in the gap, and the prediction along the line in the units of the targets."""

    scores: Scores
    mean: Tensor
    low: Tensor
    high: Tensor


@dataclass(frozen=True)
class Digits:
    """Scores on test digits, and the confidence on digits and on noise."""

    scores: Scores
    digits: Tensor
    noise: Tensor


def network(inputs: int, outputs: int, width: int) -> nn.Module:
    hidden = nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh()
    return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(width, outputs))


def train_ordinary(net: nn.Module, data: Data, loss: Callable[..., Tensor], epochs: int) -> nn.Module:
    """Train as without this library: Adam and a loss."""
    optimizer = torch.optim.Adam(net.parameters(), 5e-3)
    for _ in range(epochs):
        for rows in torch.randperm(len(data[1])).split(BATCH):
            optimizer.zero_grad()
            loss(net(data[0][rows]), data[1][rows]).backward()
            optimizer.step()
    return net.eval()


def train_all(net: nn.Module, data: Data, likelihood: str, epochs: int, seed: int) -> dict[str, bw.Predictor]:
    """Return the four predictors; ``net`` is initialized and not yet trained."""
    settings: dict[str, Any] = {"epochs": epochs, "batch_size": BATCH, "seed": seed, "progress": False}
    default = bw.fit(net, data, likelihood=likelihood, **settings)
    ensemble = bw.fit(net, data, "deep-ensemble", likelihood, **settings)
    torch.manual_seed(seed)
    loss = nn.functional.cross_entropy if likelihood == "categorical" else nn.functional.mse_loss
    trained = train_ordinary(net, data, loss, epochs)
    plain = bw.fit(trained, data, "map", likelihood, epochs=0, progress=False)
    return dict(zip(METHODS, (plain, bw.laplace(trained, data, likelihood), default, ensemble), strict=True))


def curve(seed: int) -> list[Curve]:
    """Train on the curve and test where there are no training data."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    data = load_data("gap")
    rows = data.raw_inputs(data.test[0])[:, 0].abs() < 1
    places = data.preparation.inputs(torch.linspace(-3, 3, 121)[:, None])
    found = []
    for predictor in train_all(network(1, 1, 50), data.train, "gaussian", CURVE_EPOCHS, seed).values():
        scored = {"preparation": data.prepared, "draws": DRAWS}
        gap = evaluate(predictor.model, data.test[0][rows], data.test[1][rows], predictor.likelihood, **scored)
        said = data.preparation.restore(predictor.predict(places, draws=DRAWS))
        low, high = said.interval(0.9)
        scores = {"coverage": 100 * gap["coverage_90"].value, "nll": gap["nll"].value}
        found.append(Curve(scores, said.mean[:, 0], low[:, 0], high[:, 0]))
    return found


def digits(seed: int) -> list[Digits]:
    """Train on digits and test on digits and on noise."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    data = load_data("digits", ood="noise")
    predictors = train_all(network(64, 10, 100), data.train, "categorical", DIGIT_EPOCHS, seed)
    found = [_scored(predictor, data) for predictor in predictors.values()]
    for one, predictor in zip(found, train_long(data, seed), strict=False):
        one.scores["long_noise"] = _scored(predictor, data).scores["noise"]
    return found


def train_long(data: DataSet, seed: int) -> tuple[bw.Predictor, bw.Predictor]:
    """Return ordinary training and Laplace on it after a length of training at which Laplace fails."""
    torch.manual_seed(seed)
    net = network(64, 10, 100)
    torch.manual_seed(seed)
    trained = train_ordinary(net, data.train, nn.functional.cross_entropy, LONG_EPOCHS)
    with warnings.catch_warnings():  # the demo prints the failure itself
        warnings.simplefilter("ignore", bw.BayeswellWarning)
        return bw.fit(trained, data.train, "map", epochs=0, progress=False), bw.laplace(trained, data.train)


def _scored(predictor: bw.Predictor, data: DataSet) -> Digits:
    said, noise = (predictor.predict(inputs, draws=DRAWS) for inputs in (data.test[0], data.ood["noise"]))
    sure, wrong = said.confidence > SURE, said.labels != data.test[1]
    scores = {
        "noise": _percent(noise.confidence > SURE),
        "answered": _percent(sure),
        "sure_wrong": _percent(sure & wrong),
        "nll": data.evaluate(predictor, draws=DRAWS)["nll"].value,
    }
    return Digits(scores, said.confidence, noise.confidence)


def _percent(flags: Tensor) -> float:
    return 100 * float(flags.double().mean())


def mean_scores(runs: Sequence[Sequence[Curve | Digits]]) -> list[Scores]:
    """Return the mean over seeds of each score of each method."""
    return [
        {key: sum(run.scores[key] for run in own) / len(own) for key in own[0].scores}
        for own in zip(*runs, strict=True)
    ]


def report(curves: Sequence[Scores], images: Sequence[Scores], seeds: int, seconds: float) -> list[str]:
    """Return the lines that are printed."""
    head = f"{'':29}" + "".join(f"{name:>19}" for name in METHODS)
    lines = [
        f"bayeswell demo: {seeds} seed{'s' if seeds > 1 else ''}, tanh networks, methods with their defaults",
        head,
    ]

    def row(label: str, values: Sequence[Scores], key: str, form: str, unit: str = "") -> None:
        lines.append(f"{label:29}" + "".join(f"{format(one[key], form) + unit:>19}" for one in values))

    lines.append("Curve with a gap in the data (tested inside the gap)")
    row("  coverage of 90 % intervals", curves, "coverage", ".0f", " %")
    row("  NLL, lower is better", curves, "nll", ".2f")
    lines.append(f"Digits and noise (sure: confidence above {SURE})")
    row("  noise called a digit, sure", images, "noise", ".0f", " %")
    row("  digits, sure and wrong", images, "sure_wrong", ".1f", " %")
    row("  digits, sure", images, "answered", ".0f", " %")
    row("  NLL, lower is better", images, "nll", ".3f")
    lines += [f"{'  training cost':29}" + "".join(f"{cost:>19}" for cost in ("1x", "1x + one pass", "5x", "5x"))]
    return [*lines, *_summary(curves, images), f"{seconds:.0f} seconds; figure (seed 0) and page are in build/demo"]


def _summary(curves: Sequence[Scores], images: Sequence[Scores]) -> list[str]:
    """Say what Laplace changes, and which method is best where."""
    best_gap, best = (min(range(4), key=lambda method: scores[method]["nll"]) for scores in (curves, images))

    def line(text: str, scores: Sequence[Scores], key: str, form: str, better: int) -> str:
        before, after = scores[0][key], scores[1][key]
        kind = "Gain" if (after - before) * better > 0 else "Loss"
        return f"{kind} by Laplace: {text} from {before:{form}} to {after:{form}}"

    return [
        line("noise called a digit with confidence", images, "noise", ".0f", -1) + " %",
        line("coverage of 90 % intervals in the gap", curves, "coverage", ".0f", 1) + " %",
        line("digits answered with confidence", images, "answered", ".0f", 1) + " %",
        line("NLL on digits", images, "nll", ".3f", -1),
        f"Limit: after {LONG_EPOCHS} instead of {DIGIT_EPOCHS} epochs Laplace does not help on digits: noise from "
        f"{images[0]['long_noise']:.0f} to {images[1]['long_noise']:.0f} %",
        f"Best NLL: {METHODS[best_gap]} in the gap, {METHODS[best]} on digits",
    ]


def draw(curves: Sequence[Curve], images: Sequence[Digits]) -> Figure:
    """Draw a row of curves above a row of histograms, one column for each method."""
    figure = Figure(figsize=(3.1 * len(curves), 5.0), layout="constrained")
    axes = figure.subplots(2, len(curves), sharey="row", squeeze=False)
    for column, name in enumerate(METHODS):
        draw_curve(axes[0, column], curves[column], name, "light")
        draw_digits(axes[1, column], images[column], "", "light", legend=column == 0)
    axes[0, 0].set_ylabel("y")
    axes[1, 0].set_ylabel("share of images")
    return figure


def draw_row(curves: Sequence[Curve], images: Sequence[Digits], theme: str) -> Figure:
    """Draw ordinary training and Laplace in one row."""
    figure = Figure(figsize=(10.4, 2.7), layout="constrained")
    axes = figure.subplots(1, 4)
    draw_curve(axes[0], curves[0], "Curve: ordinary network", theme)
    draw_curve(axes[1], curves[1], "after bw.laplace", theme)
    draw_digits(axes[2], images[0], "Digits: ordinary network", theme, legend=True)
    draw_digits(axes[3], images[1], "after bw.laplace", theme, legend=False)
    return figure


def draw_curve(axes: Any, found: Curve, title: str, theme: str) -> None:
    colors, raw, places = COLORS[theme], load_data("gap", standardize=False), torch.linspace(-3, 3, 121)
    axes.fill_between(places, found.low, found.high, color=colors["in"], alpha=0.25, linewidth=0)
    axes.plot(places, found.mean, color=colors["in"], linewidth=1.6)
    axes.plot(places, (2 * places).sin(), "--", color=colors["ink"], linewidth=1.0)
    axes.plot(raw.train[0][:, 0], raw.train[1][:, 0], "o", color=colors["out"], markersize=1.8)
    axes.set_ylim(-2.2, 2.7)
    _dress(axes, colors, title, "x", f"covers {found.scores['coverage']:.0f} % in the gap")


def draw_digits(axes: Any, found: Digits, title: str, theme: str, *, legend: bool) -> None:
    colors, edges = COLORS[theme], torch.linspace(0.1, 1.0, 19)
    handles = []
    for name, values in (("in", found.digits), ("out", found.noise)):
        shares = torch.histc(values.double(), 18, 0.1, 1.0) / len(values)
        axes.stairs(shares, edges, fill=True, color=colors[name], alpha=0.3)
        handles.append(axes.stairs(shares, edges, color=colors[name], linewidth=1.4))
    axes.set(xlim=(0.1, 1.0), ylim=(0, 1.15))
    if legend:
        look = {"labelcolor": colors["ink"], "facecolor": colors["background"], "edgecolor": "none"}
        axes.legend(handles, ["digits", "noise"], loc="center left", fontsize=8, **look)
    _dress(axes, colors, title, "confidence", f"sure of {found.scores['noise']:.0f} % of noise")


def _dress(axes: Any, colors: dict[str, str], title: str, label: str, note: str) -> None:
    axes.figure.patch.set_facecolor(colors["background"])
    axes.set_facecolor(colors["background"])
    axes.tick_params(color=colors["ink"], labelcolor=colors["ink"], labelsize=8)
    for side, spine in axes.spines.items():
        spine.set_color(colors["ink"])
        spine.set_visible(side in ("left", "bottom"))
    axes.set_title(title, fontsize=10, color=colors["ink"])
    axes.set_xlabel(label, fontsize=9, color=colors["ink"])
    place: dict[str, Any] = {"transform": axes.transAxes, "ha": "center", "va": "top", "fontsize": 9}
    axes.text(0.5, 0.98, note, color=colors["ink"], **place)


def write_page(lines: Sequence[str]) -> None:
    text = html.escape("\n".join(lines))
    page = f"""<!doctype html><meta charset="utf-8"><title>bayeswell demo</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>body {{ font: 16px system-ui, sans-serif; max-width: 76rem; margin: 2rem auto; padding: 0 1rem; }}
img {{ max-width: 100%; }} pre {{ overflow-x: auto; font-size: 14px; }}</style>
<h1>Uncertainty of four predictors</h1>
<p>Bands hold 90 % of new targets according to the model; the dashed line is the truth. Below: the confidence on test
digits and on noise.</p>
<img src="demo.png" alt="Curves with bands, and histograms of confidence, of four predictors">
<pre>{text}</pre>
"""
    (FOLDER / "index.html").write_text(page, encoding="utf-8")


def write_pictures(curves: Sequence[Curve], images: Sequence[Digits]) -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    for theme in COLORS:
        with rc_context({"svg.hashsalt": theme}):
            path = PICTURES / f"readme-{theme}.svg"
            draw_row(curves, images, theme).savefig(path, metadata={"Date": None, "Creator": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds")
    parser.add_argument("--pictures", action="store_true", help="also write the pictures of README.md")
    settings = parser.parse_args()
    began = time.monotonic()
    seeds = 1 if SMOKE else settings.seeds
    jobs = [delayed(task)(seed) for seed in range(seeds) for task in (curve, digits)]
    found = Parallel(n_jobs=2)(jobs)
    curves, images = found[::2], found[1::2]
    FOLDER.mkdir(parents=True, exist_ok=True)
    draw(curves[0], images[0]).savefig(FOLDER / "demo.png", dpi=110)
    lines = report(mean_scores(curves), mean_scores(images), seeds, time.monotonic() - began)
    write_page(lines)
    if settings.pictures:
        write_pictures(curves[0], images[0])
    print("\n".join(lines))


if __name__ == "__main__":
    main()
