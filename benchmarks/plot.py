"""The record as one picture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import ours, peers
from .nets import NETS
from .record import ratio

_OURS, _PEERS = "#1f5fa8", "#b0b0b0"
_SHOWN = (*ours.MAIN, ours.CHEAPER_VL, "f-bbb", "ivon")


def draw(record: Mapping[str, Any], path: Path) -> None:
    """Steps of each network as bars of their ratio, and growth as lines; nothing if there is nothing to show."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    parts = record["parts"]
    nets = [name for name in NETS if f"step/{name}" in parts]
    growths = [(n, a) for n, a in (("growth/width", "width"), ("growth/batch", "batch")) if n in parts]
    count = len(nets) + len(growths)
    if count == 0:
        return
    columns = min(count, 2)
    rows = -(-count // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(6.2 * columns, 4.6 * rows), squeeze=False, layout="constrained")
    places = list(axes.flat)
    for net, place in zip(nets, places, strict=False):
        _bars(place, parts[f"step/{net}"], NETS[net].title)
    for (name, axis), place in zip(growths, places[len(nets) :], strict=False):
        _lines(place, parts[name]["points"], axis)
    for place in places[count:]:
        place.set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def _bars(place: Any, part: Mapping[str, Any], title: str) -> None:
    cases = [case for case in part["seconds"] if case in _SHOWN or case.startswith(peers.PREFIX)]
    found = {case: summary for case in cases if (summary := ratio(part, case)) is not None}
    ordered = sorted(found, key=lambda case: -found[case].median)
    values = [found[case].median for case in ordered]
    colours = [_PEERS if case.startswith(peers.PREFIX) else _OURS for case in ordered]
    ranges = [[found[c].median - found[c].low for c in ordered], [found[c].high - found[c].median for c in ordered]]
    place.barh(range(len(ordered)), values, color=colours, xerr=ranges, error_kw={"lw": 0.8, "ecolor": "#404040"})
    place.set_yticks(range(len(ordered)), [case.removeprefix(peers.PREFIX) for case in ordered], fontsize=8)
    place.axvline(1, color="black", lw=0.8)
    if values and max(values) > 10 * min(values):
        place.set_xscale("log")
    place.set_xlabel("time of a training step / ordinary step (bars to quartiles)")
    place.set_title(f"{title}\nblue: bayeswell, grey: other libraries", fontsize=9)


def _lines(place: Any, points: Mapping[str, Any], axis: str) -> None:
    cases = dict.fromkeys(case for point in points.values() for case in point["seconds"] if case != ours.PLAIN)
    for case in cases:
        known = {int(at): found.median for at, point in points.items() if (found := ratio(point, case)) is not None}
        style = "--" if case.startswith(peers.PREFIX) else "-"
        place.plot(list(known), list(known.values()), style, marker="o", ms=3, label=case)
    place.axhline(1, color="black", lw=0.8)
    place.set_xscale("log")
    place.set_xlabel(f"{axis} (MLP)")
    place.set_ylabel("time / ordinary step")
    place.set_ylim(bottom=0)
    place.legend(fontsize=7)
    place.set_title(f"growth with the {axis}", fontsize=9)
