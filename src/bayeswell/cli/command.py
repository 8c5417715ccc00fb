"""A command: a function whose signature is its options. ``app`` puts them together; no command knows the others."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from ..experiments.schema import SETTINGS, WHAT
from ..experiments.setting import Setting

OURS = "run_"
"""Before the name of a setting in a command's signature: the command may have an option of that name itself."""


@dataclass(frozen=True)
class Command:
    """A command by its name, with the text and the examples of its help."""

    name: str
    help: str
    examples: Sequence[str]
    function: Callable[..., None]


def command(name: str, help: str, examples: Sequence[str]) -> Callable[[Callable[..., None]], Command]:
    """Make a command of a function."""
    return lambda function: Command(name, help, examples, function)


def with_settings(
    *only: str, without: Sequence[str] = (), trains: bool = True, **changes: Mapping[str, Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command an option for each setting of a run, and ``--config``, where its argument ``given`` stands.

    ``given`` is what was said of them: values by name (None: nothing was said), ``NAME_set`` for the settings of what
    is chosen by name, and ``config``. ``only`` some settings, or all ``without`` a few; ``changes`` to how one is said
    here, by its name: ``workers={"option": "--data-workers"}``. A command that does not train (``trains`` False) has no
    ``--config``, and no headings between its options.
    """
    chosen = [SETTINGS[name] for name in only or SETTINGS if name not in without]
    settings = [option for one in chosen for option in _options(one, trains, **changes.get(one.name, {}))]
    options = [*settings, _CONFIG] if trains else settings

    def wrap(function: Callable[..., None]) -> Callable[..., None]:
        def run(**values: Any) -> None:
            given = {option.name.removeprefix(OURS): values.pop(option.name) for option in options}
            function(given=given, **values)

        own = inspect.signature(function, eval_str=True).parameters
        parameters = [one for name in own for one in (options if name == "given" else [own[name]])]
        parameters = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # typer reads it
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        return run

    return wrap


def _options(
    setting: Setting, trains: bool, option: str | None = None, settings: str | None = None, **words: Any
) -> list[inspect.Parameter]:
    """The option of a setting, and that for the settings of what it chooses by name."""
    panel = setting.panel if trains else None
    names = [f"{option or setting.option}{f'/{setting.off}' if setting.off else ''}", *filter(None, [setting.short])]
    said: dict[str, Any] = {"show_default": setting.shown or str(setting.default), "help": setting.help}
    found = [_parameter(setting.name, setting.kind, names, panel, **{**said, "metavar": setting.metavar, **words})]
    if setting.settings is not None:
        said = {"help": settings or setting.settings, "metavar": "KEY=VALUE", "show_default": False}
        found.append(_parameter(f"{setting.name}_set", list[str], [setting.settings_option], panel, **said))
    return found


def _parameter(name: str, kind: Any, names: Sequence[str], panel: str | None, **words: Any) -> inspect.Parameter:
    annotation = Annotated[kind | None, typer.Option(*names, rich_help_panel=panel, **words)]
    return inspect.Parameter(f"{OURS}{name}", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


_CONFIG = _parameter(
    "config", Path, ["--config", "-c"], WHAT,
    metavar="FILE.toml", help="Settings from a file; what the command line says wins.", show_default=False,
)  # fmt: skip
