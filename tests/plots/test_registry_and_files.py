"""Every plot by name: both themes, texts that stay texts, files that hold what they should."""

from __future__ import annotations

import base64
import functools
import io
import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from typing import Any

import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.markers import MarkerStyle
from matplotlib.text import Text

import bayeswell as bw
from bayeswell import plots
from bayeswell.plots.canvas import WIDTH
from plots.plot_samples import SAMPLES, bins, epochs, images
from plots.quick_drawing import OWN_LAYOUT, OWN_MARKER

HOSTILE = "<script>alert('x')</script> $\\frac{$ & \"]]> --> \x00\x1b _{"
NAMES = list(plots.PLOTS)
WITHOUT_TEXTS = {"entropy", "loss_plane", "beta_landscape", "reliability", "rate_range", "residuals"}
"""They show no text of a record."""


def unarranged(figure: Figure) -> Figure:
    """Without the search for a good layout, which takes most of the time of drawing."""
    figure.set_layout_engine(None)  # not "none": with that one it would be drawn twice when it is saved
    return figure


def arranged(name: str) -> Figure:
    """A sample in the light theme with its layout done, which is then left as it is."""
    figure = plots.PLOTS[name].draw(SAMPLES[name])
    engine = figure.get_layout_engine()
    assert engine is not None
    engine.execute(figure)
    return unarranged(figure)


arranged_once = functools.cache(arranged)
"""For tests that look at a figure and change nothing of it."""


def test_every_plot_has_a_sample_and_a_name_in_the_package() -> None:
    assert set(SAMPLES) == set(NAMES)
    for plot in plots.PLOTS.values():
        assert getattr(plots, plot.function.__name__) is plot.function


def test_an_unknown_plot_is_refused_with_the_nearest() -> None:
    with pytest.raises(bw.SettingError, match=r"no plot 'realiability'; did you mean 'reliability'\?"):
        plots.PLOTS["realiability"]
    assert "realiability" not in plots.PLOTS
    assert plots.PLOTS.get("realiability") is None


def svg_of(name: str, figure: Figure) -> str:
    return plots.figure_to_svg(figure, name="f-1", alt=plots.PLOTS[name].describe(SAMPLES[name]))


@functools.cache
def drawn_once(name: str) -> str:
    return svg_of(name, arranged_once(name))


@pytest.mark.parametrize("name", NAMES)
def test_a_svg_is_small_and_whole(name: str) -> None:
    alt = plots.PLOTS[name].describe(SAMPLES[name])
    text = drawn_once(name)
    root = ElementTree.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert root.get("aria-label") == alt
    assert len(text) < 100_000
    kinds = {part.tag.rpartition("}")[2] for part in root.iter()}
    assert kinds <= {"svg", "g", "path", "use", "text", "tspan", "defs", "clipPath", "rect", "image", "pattern"}
    ids = [part.get("id") for part in root.iter() if part.get("id")]
    assert len(set(ids)) == len(ids)
    assert all(each.startswith("f-1-") for each in ids)
    links = [value for part in root.iter() for key, value in part.attrib.items() if key.endswith("href")]
    assert all(link.startswith("data:image/png;base64,") or link[1:] in ids for link in links)


@pytest.mark.parametrize("name", ["reliability", "examples", "loss_plane", "momentum_landscape", "std_heat_maps"])
def test_a_svg_is_the_same_every_time(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also without the shortcuts that these tests take."""
    once = drawn_once(name)
    monkeypatch.setattr(Text, "_get_layout", OWN_LAYOUT)
    monkeypatch.setattr(MarkerStyle, "_set_marker", OWN_MARKER)
    assert once == svg_of(name, arranged(name))


@pytest.mark.parametrize("name", NAMES)
def test_both_themes_colour_the_background_and_the_texts(name: str) -> None:
    for theme in ("light", "dark", "auto"):
        figure = arranged_once(name) if theme == "light" else plots.PLOTS[name].draw(SAMPLES[name], theme)
        wanted = plots.THEMES[theme]
        assert figure.get_facecolor()[:3] == pytest.approx(to_rgb(wanted.background))
        for axes in figure.axes:
            for text in (axes.xaxis.label, axes.yaxis.label):
                assert not text.get_text() or to_rgb(text.get_color()) == pytest.approx(to_rgb(wanted.ink))
            for text in [*axes.get_xticklabels(), *axes.get_yticklabels()]:
                assert to_rgb(text.get_color()) == pytest.approx(to_rgb(wanted.ink))
                assert text.get_fontsize() >= 9


def test_the_first_colours_stand_out_from_the_background() -> None:
    def luminance(colour: str) -> float:
        parts = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
        return float(np.dot(parts, [0.2126, 0.7152, 0.0722]))

    def contrast(one: str, other: str) -> float:
        low, high = sorted((luminance(one), luminance(other)))
        return (high + 0.05) / (low + 0.05)

    for theme in plots.THEMES.values():
        assert all(contrast(colour, theme.background) > 3 for colour in theme.palette[:5])
        assert contrast(theme.ink, theme.background) > 7
        assert contrast(theme.muted, theme.background) > 4.5
        looks = {(str(theme.line(n)["color"]), str(theme.line(n)["linestyle"])) for n in range(28)}
        assert len(looks) == 28


def test_an_unknown_theme_is_refused() -> None:
    with pytest.raises(bw.SettingError, match=r"theme = 'drak'; did you mean 'dark'\? allowed: auto, dark, light"):
        plots.plot_rate_range(SAMPLES["rate_range"], theme="drak")  # type: ignore[arg-type]
    with pytest.raises(bw.SettingError, match="theme = 'drak'"):
        plots.PLOTS["snr"].draw(SAMPLES["snr"], "drak")  # type: ignore[arg-type]


def hostile(name: str) -> Any:
    """The sample with every text that a user can choose replaced."""
    sample = json.loads(json.dumps(SAMPLES[name]))
    if plots.PLOTS[name].needs.startswith("runs"):
        return {HOSTILE: next(iter(sample.values())), "_" + HOSTILE: list(sample.values())[-1]}
    if name == "std_paths":
        return sample | {"layers": {HOSTILE: next(iter(sample["layers"].values()))}}
    for part in (sample, *sample["layers"]) if name == "layers" else (sample,):
        if isinstance(part, dict) and isinstance(part.get("layer"), str):
            part["layer"] = HOSTILE
    if name == "spectra":
        for taken in sample:
            taken["layers"] = [layer | {"layer": HOSTILE + str(n)} for n, layer in enumerate(taken["layers"])]
    if name == "comparison":
        sample["rows"] = [row | {"method": HOSTILE + str(n)} for n, row in enumerate(sample["rows"])]
    if name == "examples":
        sample["classes"] = [HOSTILE] * 10
        sample["examples"] = [example | {"kind": HOSTILE} for example in sample["examples"]]
    if name == "ood_scores":
        sample |= {"inside_label": HOSTILE, "outside_label": HOSTILE, "score": HOSTILE}
    if name == "trial_bands":
        sample["score"] = HOSTILE
    if name == "regression_band":
        sample |= {"x_label": HOSTILE, "y_label": HOSTILE}
    if name == "momentum_landscape":
        sample["robust"][0]["label"] = HOSTILE
    return sample


@pytest.mark.parametrize("name", [name for name in NAMES if name not in WITHOUT_TEXTS])
def test_texts_of_a_user_are_shown_as_they_stand(name: str) -> None:
    record, plot = hostile(name), plots.PLOTS[name]
    figure = unarranged(plot.draw(record))
    root = ElementTree.fromstring(plots.figure_to_svg(figure, alt=plot.describe(record)))
    texts = ["".join(part.itertext()) for part in root.iter("{http://www.w3.org/2000/svg}text")]
    shown = [text for text in texts if text.startswith(("<", "_<"))]
    assert shown, texts
    # Cut in the middle where it is long, else letter by letter; what XML cannot hold is replaced.
    clean = HOSTILE.replace("\x00", "\ufffd").replace("\x1b", "\ufffd")
    for text in shown:
        head = text.split("…")[0].removeprefix("_")
        assert clean.startswith(head[:20].rstrip()) or head in clean


def test_short_texts_with_dollars_and_markup_are_whole() -> None:
    label = "$a_1$ <b>&amp;</b>"
    figure = plots.PLOTS["step_times"].draw({label: {"seconds": 0.1}, "_b": {"seconds": 0.2}})
    svg = plots.figure_to_svg(unarranged(figure))
    texts = [part.text for part in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]
    assert label in texts
    assert "_b" in texts
    assert "<b>" not in svg
    legend = plots.PLOTS["loss_line"].draw(
        {"_hidden": SAMPLES["loss_line"]["flat"], 'id="x" url(#y)': SAMPLES["loss_line"]["sharp"]}
    )
    texts = [
        part.text
        for part in ElementTree.fromstring(plots.figure_to_svg(unarranged(legend))).iter(
            "{http://www.w3.org/2000/svg}text"
        )
    ]
    assert {"_hidden", 'id="x" url(#y)'} <= set(texts)


def test_the_alternative_text_cannot_break_out() -> None:
    figure = unarranged(plots.PLOTS["step_times"].draw(SAMPLES["step_times"]))
    text = plots.figure_to_svg(figure, alt='"><script>alert(1)</script>\x00')
    assert ElementTree.fromstring(text).get("aria-label") == '"><script>alert(1)</script>\ufffd'
    assert "<script" not in text
    with pytest.raises(bw.SettingError, match="name = 'a b'"):
        plots.figure_to_svg(figure, name="a b")


def test_a_png_is_a_data_address_of_the_figure() -> None:
    figure = plots.PLOTS["sharpness"].draw(SAMPLES["sharpness"])
    uri = plots.figure_to_png_data_uri(figure, dpi=50)
    head, _, data = uri.partition(",")
    assert head == "data:image/png;base64"
    width, height = figure.get_size_inches()
    assert imread(io.BytesIO(base64.b64decode(data))).shape[:2] == (int(height * 50 + 1e-6), int(width * 50 + 1e-6))
    # Drawn again, not shown again: a layout that was made once starts the next one from where it ended.
    assert uri == plots.figure_to_png_data_uri(plots.PLOTS["sharpness"].draw(SAMPLES["sharpness"]), dpi=50)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("training_curves", ["bbb over 20 epochs", "nll 2.2 to 0.345", "kl 4570 to 3686", "validation accuracy 0.18"]),
        ("seed_curves", ["bbb (3 runs): Training NLL 0.354 ± 0.0422", "hwa (2 runs)",
                         "Test set NLL 0.232 ± 0.0536, Test set NLL of the average 0.213 ± 0.0492"]),
        ("reliability", ["ECE 0.122", "accuracy 0.658", "confidence 0.78", "gap -0.161"]),
        ("calibration", ["map: ECE 0.122", "bbb: ECE 0.0481"]),
        ("risk_coverage", ["map: AURC 0.052", "risk 0.046 at coverage 0.5", "0.13 at 1"]),
        ("ood_scores", ["900 digits", "400 noise", "AUROC 0.973", "mean 1.6"]),
        ("entropy", ["860 right with mean 0.152", "40 wrong with mean 0.928", "400 out of distribution"]),
        ("std_heat_maps", ["40 x 64", "layers.0.weight", "0.00948 to 0.177", "rank 1 is 0.0939 away"]),
        ("spectra", ["layers.2.weight: stds 0.93, means 0.15, stds before training 0.999"]),
        ("snr", ["k-tied", "stds 351 at step 100 to 2.98 at step 1000"]),
        ("std_paths", ["layers.0.weight 0.01 to 0.299"]),
        ("layers", ["layers.0.weight: std ratio 0.2, KL 0.77 nats per weight"]),
        ("loss_line", ["sharp: 9.12 at -1, lowest 0.12 at 0"]),
        ("loss_plane", ["0.118 in the middle", "0.102 to 3.66", "within 1"]),
        ("sharpness", ["f-swag: one step 0.12, ascent 0.13"]),
        ("momentum_landscape", ["best 0.97 at learning rate 0.804 and momentum 0.345", "15 failed"]),
        ("beta_landscape", ["best 0.55 at beta2 0.5 and beta1 0", "0 failed"]),
        ("step_times", ["point 2", "mean field 7.17", "2-tied 6.14"]),
        ("regression_band", ["epistemic std 0.05 to 0.425", "aleatoric std 0.2"]),
        ("examples", ["most certain: 3 with 0.943, true class 3, entropy 0.345", "noise"]),
        ("comparison", ["8 methods", "accuracy: best hwa with 0.978 ± 0.0032", "nll: best hwa with 0.136"]),
        ("trial_bands", ["validation.nll over 20 trials, of which 6 failed: median 2.5 (quartiles 2.3 and 2.7) at",
                         "0.761 (quartiles 0.373 and failed) at epoch 7."]),
        ("interval_coverage", ["map: 0.308 at 0.5, 0.836 at 0.9", "bbb: 0.536 at 0.5"]),
        ("quantile_calibration", ["map: 0.0398 at 0.1, 0.379 at 0.5, 0.863 at 0.9"]),
        ("residuals", ["150 residuals", "% beyond 1.96 either way (5 % expected)"]),
        ("robust_region", ["flat: from momentum 0 on", "steep: from momentum 0.36 on, at 0.9 rates 0.00527 to 0.475"]),
        ("schedules", ["cosine: 1 to 0.02, between 0.02 and 1", "constant: 1 to 1"]),
        ("rate_range", ["1e-05 to 1", "0.503 at 0.0303", "suggested rate 0.0031", "broke at 0.83"]),
    ],
)  # fmt: skip
def test_the_alternative_text_has_the_numbers_in_one_sentence(name: str, parts: list[str]) -> None:
    text = plots.PLOTS[name].describe(SAMPLES[name])
    for part in parts:
        assert part in text
    assert text.endswith(".")
    assert "\n" not in text


def test_many_runs_fit_and_alternative_texts_stay_short() -> None:
    runs = {f"method-{index}": epochs(50, 2 + 0.1 * index, 0.1) for index in range(20)}
    figure = plots.PLOTS["training_curves"].draw(runs)
    text = plots.PLOTS["training_curves"].describe(runs)
    assert "and 12 more" in text
    many = plots.PLOTS["calibration"].draw({f"m{index}": bins(0.02 * index) for index in range(20)})
    assert len(plots.figure_to_svg(unarranged(figure))) < 250_000
    many.draw_without_rendering()  # a layout that collapses is a warning, and a warning an error here
    for axes in many.axes:
        assert axes.get_window_extent().height > 0.35 * many.bbox.height


def test_drawing_leaves_no_figure_in_pyplot_and_no_setting_changed() -> None:
    from matplotlib import rcParams

    before, kept = pyplot.get_fignums(), dict(rcParams)
    figure = plots.PLOTS["reliability"].draw(SAMPLES["reliability"], "dark")
    plots.figure_to_svg(figure)
    assert pyplot.get_fignums() == before
    assert dict(rcParams) == kept


def test_without_axes_a_figure_of_pyplot_is_made() -> None:
    axes = plots.plot_rate_range(SAMPLES["rate_range"])
    assert axes.figure.number in pyplot.get_fignums()
    panels = plots.plot_examples(images())
    assert panels[0].figure.number in pyplot.get_fignums()
    pyplot.close("all")


def test_matplotlib_is_imported_by_drawing_alone_and_missed_in_one_line() -> None:
    program = (
        "import sys, bayeswell, bayeswell.plots as plots\n"
        "assert not any(name.split('.')[0] == 'matplotlib' for name in sys.modules), 'imported'\n"
        "sys.modules['matplotlib'] = None\n"
        "record = {'rates': [0.1, 0.2], 'objectives': [1.0, 2.0]}\n"
        "for act in (lambda: plots.plot_rate_range(record), lambda: plots.PLOTS['rate_range'].draw(record),\n"
        "            lambda: plots.plot_layers({'layers': []})):\n"
        "    try:\n        act()\n"
        "    except bayeswell.SettingError as error:\n        print(error)\n"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert (
        found.stdout.splitlines()
        == ["a plot needs the extra 'lab' (matplotlib is not installed): pip install 'bayeswell[lab]'"] * 3
    )


def test_a_figure_of_the_theme_auto_takes_the_colours_of_its_page() -> None:
    """Every colour of the theme is a variable; what is drawn in plain black or white, as on a heat map, stays so."""
    for name in ("comparison", "loss_plane", "momentum_landscape"):
        svg = plots.figure_to_svg(unarranged(plots.PLOTS[name].draw(SAMPLES[name], "auto")))
        auto = plots.THEMES["auto"]
        for colour in (auto.background, auto.ink, auto.muted, auto.grid, *auto.palette):
            assert colour.lower() not in svg
        assert "fill: var(--plot-background, #ffffff)" in svg
        assert "var(--plot-ink, #1f2328)" in svg
        plain = drawn_once(name)
        assert "var(" not in plain
        # With the light theme's colours in their places it is the light figure.
        assert re.sub(r"var\([^,]+, (#[0-9a-f]{6})\)", r"\1", svg).count("#ffffff") >= plain.count("#ffffff")
    assert "stroke: #ffffff" in svg
    assert "--plot-ink: #e8eaed;" in plots.style_variables("dark")
    assert plots.style_variables("dark").count("--plot-") == plots.style_variables("light").count("--plot-") == 11


def test_a_label_that_looks_like_a_colour_is_not_changed() -> None:
    label = "fill: #fffffe"
    svg = plots.figure_to_svg(unarranged(plots.PLOTS["step_times"].draw({label: {"seconds": 0.1}}, "auto")))
    assert label in [part.text for part in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.parametrize("name", NAMES)
def test_at_the_width_of_a_phone_every_text_can_be_read_and_none_is_cut(name: str) -> None:
    """Shown 340 pixels wide, letters are 9 pixels high; texts stay within the figure."""
    figure = arranged_once(name)
    figure.draw_without_rendering()  # it may have been saved, at another resolution
    assert figure.get_figwidth() == pytest.approx(WIDTH)
    whole, inside = figure.bbox, figure.bbox.padded(1)
    ticks = {tick for axes in figure.axes for tick in (*axes.get_xticklabels(), *axes.get_yticklabels())}
    for text in figure.findobj(Text):
        box = text.get_window_extent()
        if not text.get_visible() or not text.get_text().strip() or not box.overlaps(whole):
            continue
        assert text.get_fontsize() * 340 / (72 * WIDTH) >= 9, text.get_text()
        if text not in ticks:  # those beyond the limits of an axis are not drawn
            assert inside.x0 <= box.x0 <= box.x1 <= inside.x1, text.get_text()
            assert inside.y0 <= box.y0 <= box.y1 <= inside.y1, text.get_text()
