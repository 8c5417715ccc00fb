"""What only an extra brings, and the one line that is said where it is not installed.

``pip install bayeswell`` is the core; ``bayeswell[lab]`` adds the command line, data sets, plots, reports and sweeps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from .errors import MissingExtra

EXTRAS: Mapping[str, tuple[str, ...]] = {
    "lab": (
        "PIL",
        "jinja2",
        "joblib",
        "markupsafe",
        "matplotlib",
        "optuna",
        "pandas",
        "pooch",
        "rich",
        "scipy",
        "sklearn",
        "sqlalchemy",
        "typer",
    ),
    "sklearn": ("sklearn",),
    "huggingface": ("transformers", "peft"),
    "lightning": ("lightning", "accelerate"),
    "tensorboard": ("tensorboard",),
}
"""The modules that may be imported because an extra is installed. ``pyproject.toml`` names the distributions."""


@contextmanager
def needs_extra(extra: str, what: str) -> Iterator[None]:
    """Around imports: if a module of the extra is not there, ``MissingExtra`` says what needs it and how to get it.

    Any other failure is passed on as it is: a library that is installed but broken is not a missing one.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").split(".")[0]
        if missing not in EXTRAS[extra]:
            raise
        remedy = f"pip install 'bayeswell[{extra}]'"
        raise MissingExtra(f"{what} needs the extra '{extra}' ({missing} is not installed): {remedy}") from error
