"""The learning-rate range test as a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..training import RateRange

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_rate_range(found: RateRange, axes: Axes | None = None) -> Axes:
    """The smoothed objective against the learning rate, with the suggested rate marked."""
    # Imported here: who does not plot does not wait for it.
    from matplotlib import pyplot

    chosen = pyplot.subplots(figsize=(6, 3.5), layout="constrained")[1] if axes is None else axes
    chosen.plot(found.rates, found.objectives, color="#0072B2", label="objective, smoothed")
    chosen.axvline(found.suggestion, color="#D55E00", linestyle="--", label=f"suggested: {found.suggestion:.2g}")
    if found.broke_at is not None:
        chosen.axvline(found.broke_at, color="#666666", linestyle=":", label=f"broke at {found.broke_at:.2g}")
    chosen.set_xscale("log")
    chosen.set_xlabel("learning rate of the means")
    chosen.set_ylabel("nats per example")
    chosen.set_title("Learning-rate range test")
    chosen.legend(frameon=False)
    return chosen
