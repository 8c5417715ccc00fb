"""Write docs/methods.md from the registries, or check that it is up to date (``--check``)."""

from __future__ import annotations

import sys
from pathlib import Path

import bayeswell as bw
from bayeswell.cli.parts import part_records
from bayeswell.methods import METHODS, Method

PAGE = Path(__file__).parents[1] / "docs" / "methods.md"


def parts_of(method: Method) -> str:
    """The choices in which a method differs from plain mean-field, in one cell."""
    chosen = {
        "posterior": method.posterior,
        "estimator": method.estimator,
        "stepper": method.stepper,
        "collector": method.collector,
        "post_hoc": method.post_hoc,
        "dropout": method.dropout,
        "members": method.members if method.members > 1 else None,
        "prediction": method.prediction if method.prediction != "sampled" else None,
    }
    return ", ".join(f"{axis} {_shown(choice)}" for axis, choice in chosen.items() if choice is not None)


def _shown(choice: object) -> str:
    if isinstance(choice, dict):
        settings = ", ".join(f"{key}={value}" for key, value in choice.items() if key != "name")
        return f"`{choice['name']}({settings})`"
    return f"`{choice}`"


AXES = {
    "Posteriors": "posterior",
    "Priors": "prior",
    "Likelihoods": "likelihood",
    "Estimators": "estimator",
    "Divergences": "divergence",
    "KL weights": "kl_weight",
    "Optimizers": "stepper",
    "Samplers": "stepper",
    "Rates": "rate",
    "Plateaus": "plateau",
    "Sharpness": "sharpness",
    "Collectors": "collector",
    "Post-hoc": "post_hoc",
}
_NAMES = {"Optimizers": tuple(bw.OPTIMIZERS), "Samplers": tuple(bw.SAMPLERS)}


def _value(value: object) -> str:
    return "none" if value is None else f"{value}".lower() if isinstance(value, bool) else f"{value}".replace("'", '"')


def _method_settings() -> list[str]:
    """What ``bbb`` has for every setting that a method may be given."""
    usual = METHODS["bbb"]
    own = [name for name in Method.settings() if name != "lr"]
    cells = ", ".join(f"`{name}` {_value(getattr(usual, name))}" for name in own)
    return [
        "Of `bbb`; others differ where the table above says so. `--set NAME=VALUE` on the command line, a key of the",
        "table `[method]` in a file, an argument of `fit`; a setting of a part is `posterior.rank=3`. `lr` is short",
        "for the stepper's. `bayeswell methods NAME` shows those of one method, `bayeswell parts` what follows below.",
        "",
        f"{cells}.",
    ]


def page() -> str:
    """The whole page."""
    lines = [
        "# Methods",
        "",
        "Made from the registries by `tools/write_method_page.py`. Cost is that of a training step in forward passes,",
        "of all members together; ordinary training has 3 (a backward pass counts two). `f-` before a name adds",
        "sharpness and doubles the cost; `-geometry` behind it (where stds are trained) measures by |mean| / std.",
        "",
        "| method | what it is | parts | cost | paper |",
        "|---|---|---|---|---|",
    ]
    for name, method in METHODS.items():
        lines.append(f"| `{name}` | {method.summary} | {parts_of(method)} | {method.cost:g} | {method.paper} |")
    lines += ["", "## Settings of a method", "", *_method_settings()]
    for title, axis in AXES.items():
        lines += ["", f"## {title}", "", "| name | what it is | settings | paper |", "|---|---|---|---|"]
        for record in part_records():
            if record["part"] == axis and (title not in _NAMES or record["name"] in _NAMES[title]):
                summary = record["summary"].replace("|", "\\|")
                settings = ", ".join(f"`{name}` {_value(value)}" for name, value in record["settings"].items())
                lines.append(f"| `{record['name']}` | {summary} | {settings} | {record['paper']} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write, or check."""
    if "--check" in sys.argv[1:]:
        same = PAGE.exists() and PAGE.read_text(encoding="utf-8") == page()
        print("docs/methods.md is up to date" if same else "docs/methods.md is old: run tools/write_method_page.py")
        return 0 if same else 1
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
