from __future__ import annotations

import inspect
from xml.etree import ElementTree

import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from bayeswell.core.errors import SettingError
from bayeswell.lab.plots import PLOTS, THEMES, plot_forest, plot_shift, plot_training, to_svg
from bayeswell.lab.plots.theme import LONGEST, shorten
from bayeswell.metrics import Estimate
from made_runs import made_comparison, made_record

COMPARISON = made_comparison({"digits": {"map": [0.30, 0.34, 0.31], "a": [0.20, 0.23, 0.21]}})


def luminance(color: str) -> float:
    """WCAG 2 relative luminance."""
    parts = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: str, second: str) -> float:
    low, high = sorted([luminance(first), luminance(second)])
    return (high + 0.05) / (low + 0.05)


def test_every_plot_takes_axes_and_a_theme():
    assert len(PLOTS) == 12
    for name, plot in PLOTS.items():
        parameters = inspect.signature(plot).parameters
        assert plot.__name__ == f"plot_{name}"
        assert parameters["ax"].default is None
        assert parameters["theme"].default == "light"


@pytest.mark.parametrize("theme", THEMES)
def test_figures_have_the_background_of_their_theme(theme: str):
    figure = plot_forest(COMPARISON, theme=theme)
    assert to_hex(figure.get_facecolor()) == THEMES[theme].background


@pytest.mark.parametrize("theme", THEMES)
def test_text_has_a_contrast_of_at_least_4_5(theme: str):
    chosen = THEMES[theme]
    assert contrast(chosen.ink, chosen.background) >= 7
    assert contrast(chosen.muted, chosen.background) >= 4.5


def test_given_axes_are_drawn_in():
    figure = Figure()
    axes = figure.subplots(1, 2)
    assert plot_forest(COMPARISON, ax=axes[1]) is figure
    assert axes[1].lines
    assert not axes[0].lines


def test_plots_leave_pyplot_alone():
    from matplotlib import pyplot

    plot_forest(COMPARISON)
    assert pyplot.get_fignums() == []


def test_labels_are_shown_as_they_are():
    label = "$x_1$ <b> & \x07"
    figure = plot_shift({label: {0: {"nll": Estimate(1.0)}}})
    svg = ElementTree.fromstring(to_svg(figure, "a", label.replace("\x07", "")))
    assert any(text.endswith("$x_1$ <b> & ") or "$x_1$ <b> &" in text for text in svg.itertext())


def test_svg_has_variables_in_place_of_colors_and_no_ids_in_common():
    figures = [to_svg(plot_training(made_record("digits", "map", 0, 0.5)), key, "label") for key in ("a", "b")]
    ids = [{element.get("id") for element in ElementTree.fromstring(svg).iter()} - {None} for svg in figures]
    assert not ids[0] & ids[1]
    theme = THEMES["light"]
    for color in (theme.background, theme.ink, theme.grid, *theme.palette):
        assert color not in figures[0]
    assert "var(--line-0)" in figures[0]
    assert "<style" not in figures[0]


def test_themes_use_each_color_once():
    for theme in THEMES.values():
        colors = [theme.background, theme.ink, theme.muted, theme.grid, *theme.palette]
        assert len(set(colors)) == len(colors)


def test_unknown_themes_are_refused():
    with pytest.raises(SettingError, match="'drak'; did you mean 'dark'"):
        plot_forest(COMPARISON, theme="drak")


def test_long_names_keep_both_ends():
    name = shorten("a" * 50 + "b" * 50)
    assert len(name) <= LONGEST
    assert name.startswith("aaa")
    assert name.endswith("bbb")
