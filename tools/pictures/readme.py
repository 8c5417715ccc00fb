"""The picture of README.md: an ordinary network, and the same network after ``bw.laplace(net, data)``.

    python tools/pictures/readme.py      writes docs/pictures/readme-light.svg and readme-dark.svg, prints its numbers

Two networks are trained as one trains them without this library: Adam and a loss, no weight decay. The upper row asks
one for a curve with a gap in its training inputs (the bundled set ``gap``), with a band that should hold 90 % of new
targets. The lower row asks the other for handwritten digits and for noise that shows none. On the right each has a
Kronecker-factored Laplace posterior at temperature 1, its prior chosen by the marginal likelihood: no weight was
trained on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

import bayeswell as bw
from bayeswell.datasets import Scaling, digits, load_data, noise_like
from bayeswell.plots import figure_to_svg
from bayeswell.plots.theme import THEMES, Theme

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
SIZE, TEXT = (4.6, 4.5), 10.5
"""Inches and points: shown 360 pixels wide, letters are 11 pixels high."""
SURE = 0.9


@dataclass(frozen=True)
class Curve:
    """A prediction along the line, in the units of the targets: mean and the ends of 90 % intervals of new targets."""

    mean: Tensor
    low: Tensor
    high: Tensor
    coverage: float


@dataclass(frozen=True)
class Sureness:
    """How probable the most probable digit is, for test digits and for noise; and what it costs on the digits."""

    digits: Tensor
    noise: Tensor
    auroc: float
    nll: float
    accuracy: float

    @property
    def sure_of_noise(self) -> float:
        """The share of noise that is called a digit with a probability above ``SURE``."""
        return float((self.noise > SURE).double().mean())


def ordinary(net: nn.Sequential, data: tuple[Tensor, Tensor], loss: Callable[..., Tensor], epochs: int) -> nn.Module:
    """Adam and a loss, as everybody does it."""
    optimizer = torch.optim.Adam(net.parameters(), 5e-3)
    for _ in range(epochs):
        for rows in torch.randperm(len(data[1])).split(50):
            optimizer.zero_grad()
            loss(net(data[0][rows]), data[1][rows]).backward()
            optimizer.step()
    return net.eval()


def curves() -> tuple[Tensor, tuple[Tensor, Tensor], list[Curve]]:
    """Places, training data, and what both say, all in the units of ``gap``."""
    torch.manual_seed(0)
    data = load_data("gap")
    net = nn.Sequential(nn.Linear(1, 50), nn.Tanh(), nn.Linear(50, 50), nn.Tanh(), nn.Linear(50, 1))
    ordinary(net, data.train, nn.functional.mse_loss, epochs=400)
    places = torch.linspace(-3, 3, 101, dtype=torch.float64)[:, None]
    inputs = data.scaling.inputs(places).float()
    found = []
    for result in (
        bw.fit(net, data.train, "map", "gaussian", epochs=0),
        bw.laplace(net, data.train, likelihood="gaussian"),
    ):
        said = result.predict(inputs, draws=400)
        assert isinstance(said, bw.RealPrediction)
        low, high = (_back(data.scaling, end) for end in said.interval(0.9))
        coverage = float(result.evaluate(*data.test, draws=400)["coverage_90"])
        found.append(Curve(_back(data.scaling, said.mean), low, high, coverage))
    assert data.scaling.input_scale is not None
    assert data.scaling.input_shift is not None
    train = data.train[0] * data.scaling.input_scale + data.scaling.input_shift, _back(data.scaling, data.train[1])
    return places[:, 0], train, found


def _back(scaling: Scaling, scaled: Tensor) -> Tensor:
    assert scaling.target_scale is not None
    assert scaling.target_shift is not None
    return (scaled * scaling.target_scale + scaling.target_shift)[:, 0]


def sureness() -> list[Sureness]:
    """Of both, on test digits and noise."""
    torch.manual_seed(0)
    data = digits()
    noise = noise_like(data.test_inputs)
    train = data.train_inputs, data.train_targets
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 10))
    ordinary(net, train, nn.functional.cross_entropy, epochs=20)
    found = []
    for result in (bw.fit(net, train, "map", epochs=0), bw.laplace(net, train)):
        told, unsure = (result.predict(inputs, draws=200) for inputs in (data.test_inputs, noise))
        assert isinstance(told, bw.ClassPrediction)
        assert isinstance(unsure, bw.ClassPrediction)
        scores = result.evaluate(data.test_inputs, data.test_targets, draws=200)
        told_apart = float(bw.metrics.auroc(told.entropy, unsure.entropy))
        found.append(
            Sureness(told.confidence, unsure.confidence, told_apart, float(scores["nll"]), float(scores["accuracy"]))
        )
    return found


def draw(theme: Theme, places: Tensor, train: tuple[Tensor, Tensor], both: list[Curve], sure: list[Sureness]) -> Figure:
    """Two rows, two columns: ordinary on the left, Bayesian on the right."""
    figure = Figure(figsize=SIZE, layout="constrained")
    axes = figure.subplots(2, 2, sharex="row", sharey="row")
    for panel in axes.flat:
        theme.dress(panel)
        panel.tick_params(labelsize=TEXT - 1.5, length=2)
    for column, title in enumerate(("an ordinary network", "the same, Bayesian")):
        axes[0, column].set_title(title, fontsize=TEXT + 0.5, color=theme.ink)
    for panel, one in zip(axes[0], both, strict=True):
        _curve(panel, theme, places, train, one)
    for panel, those in zip(axes[1], sure, strict=True):
        _histograms(panel, theme, those)
    axes[0, 0].set_ylabel("y", fontsize=TEXT)
    axes[1, 0].set_ylabel("share of images", fontsize=TEXT)
    for panel in axes[0]:
        panel.set_xlabel("x", fontsize=TEXT, labelpad=1)
    for panel in axes[1]:
        panel.set_xlabel("confidence", fontsize=TEXT)
    figure.patch.set_alpha(0.0)
    for panel in axes.flat:
        panel.patch.set_alpha(0.0)
    return figure


def _curve(panel: Any, theme: Theme, places: Tensor, train: tuple[Tensor, Tensor], one: Curve) -> None:
    blue, red = theme.colour(0), theme.colour(1)
    panel.fill_between(places, one.low, one.high, color=blue, alpha=0.3, linewidth=0)
    panel.plot(places, one.mean, color=blue, linewidth=1.8)
    panel.plot(places, (2 * places).sin(), color=theme.ink, linewidth=1.1, linestyle=(0, (3, 2)))
    panel.plot(train[0][:, 0], train[1], color=red, marker="o", markersize=2.4, linestyle="none", alpha=0.8)
    panel.set_ylim(-2.3, 2.6)
    _note(panel, theme, 0.5, 0.97, f"90 % band holds {100 * one.coverage:.0f} %")


def _histograms(panel: Any, theme: Theme, one: Sureness) -> None:
    edges = np.linspace(0.1, 1.0, 19)
    for index, values in enumerate((one.digits, one.noise)):
        shares = np.histogram(values.numpy(), edges)[0] / len(values)
        panel.stairs(shares, edges, fill=True, color=theme.colour(index), alpha=0.3)
        panel.stairs(shares, edges, color=theme.colour(index), linewidth=1.4)
    panel.set_xlim(0.1, 1.0)
    panel.set_xticks([0.2, 0.4, 0.6, 0.8, 1.0])
    panel.set_ylim(0, 1.25)
    panel.set_yticks([0, 0.5, 1.0])
    panel.text(0.93, 0.6, "digits", color=theme.colour(0), fontsize=TEXT, ha="right", va="center")
    panel.text(0.32, 0.27, "noise", color=theme.colour(1), fontsize=TEXT, ha="center", va="center")
    _note(panel, theme, 0.5, 0.97, f"sure of {100 * one.sure_of_noise:.2g} % of noise")


def _note(panel: Any, theme: Theme, x: float, y: float, text: str) -> None:
    place = {"transform": panel.transAxes, "ha": "center", "va": "top", "fontsize": TEXT - 0.5}
    panel.text(x, y, text, color=theme.ink, **place)


def main() -> None:
    """Train both, draw both themes, print what is shown."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    places, train, both = curves()
    sure = sureness()
    for name, curve, one in zip(("ordinary", "laplace"), both, sure, strict=True):
        print(
            f"{name:9} gap: 90 % intervals hold {curve.coverage:.1%} of test targets; digits: accuracy "
            f"{one.accuracy:.3f}, NLL {one.nll:.3f}; noise: {one.sure_of_noise:.1%} above {SURE}, AUROC {one.auroc:.3f}"
        )
    alt = (
        "Above, a curve with a gap between its training data: the ordinary network's band is as narrow in the gap as "
        "elsewhere and misses the truth, the Bayesian one's opens and holds it. Below, confidence on digits and on "
        "noise: the ordinary network is often sure of noise, the Bayesian one hardly ever."
    )
    FOLDER.mkdir(parents=True, exist_ok=True)
    for theme in THEMES.values():
        svg = figure_to_svg(draw(theme, places, train, both, sure), name=f"readme-{theme.name}", alt=alt)
        (FOLDER / f"readme-{theme.name}.svg").write_text(svg + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
