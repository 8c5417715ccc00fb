"""Write docs/methods.md from the registries, or check that it is up to date (``--check``)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import bayeswell as bw
from bayeswell.methods import METHODS, Method
from bayeswell.registry import Registry

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
    registries: dict[str, Registry[Any]] = {
        "Posteriors": bw.POSTERIORS,
        "Priors": bw.PRIORS,
        "Likelihoods": bw.LIKELIHOODS,
        "Estimators": bw.ESTIMATORS,
        "Divergences": bw.DIVERGENCES,
        "KL weights": bw.KL_WEIGHTS,
        "Optimizers": bw.OPTIMIZERS,
        "Samplers": bw.SAMPLERS,
        "Rates": bw.RATES,
        "Collectors": bw.AVERAGING,
        "Post-hoc": bw.POST_HOC,
    }
    for title, registry in registries.items():
        lines += ["", f"## {title}", "", "| name | what it is | paper |", "|---|---|---|"]
        for name, (summary, paper) in registry.summaries().items():
            cell = summary.replace("|", "\\|")
            lines.append(f"| `{name}` | {cell} | {paper} |")
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
