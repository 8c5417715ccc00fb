"""What several commands share: a few options, and the experiment that a command line and a settings file describe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import SettingError, require_count
from ..experiments.schema import HOW, RUN, SETTINGS
from ..experiments.setting import Setting

if TYPE_CHECKING:
    from ..experiments import Experiment

Threads = Annotated[
    int | None,
    typer.Option(
        "--threads", help="Threads of the CPU; one is best for small networks.", show_default="torch's",
        rich_help_panel=HOW,
    ),
]  # fmt: skip
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]
Force = Annotated[bool, typer.Option("--force", help="Go on even though settings, data or versions differ.")]
CheckpointSteps = Annotated[
    int | None,
    typer.Option(
        "--checkpoint-steps", min=1, help="Save the state every so many steps.", show_default="every 30 s",
        rich_help_panel=RUN,
    ),
]  # fmt: skip


def experiment_from(given: Mapping[str, Any], extra: Sequence[str] = ()) -> tuple[Experiment, dict[str, Any]]:
    """The experiment of a file and a command line, which wins; and what the file says of ``extra`` keys.

    ``given`` as ``with_settings`` gives it: None where nothing was said.
    """
    from ..experiments import Experiment, read_config
    from ..experiments.config_parsing import lr_to_stepper

    config = given.get("config")
    record = {} if config is None else read_config(config, [*SETTINGS, *extra])
    others = {key: record.pop(key) for key in extra if key in record}
    record |= {"method": lr_to_stepper(record["method"])} if "method" in record else {}
    for name, setting in SETTINGS.items():
        value = given.get(name)
        if setting.settings is not None:
            record = with_choice(record, given, setting, setting.default)
        elif value is not None:
            table = setting.kind is bool and setting.default is None  # a switch for a table with its usual settings
            record[name] = ({} if value else None) if table else value
    return Experiment.from_json(record), others


def with_choice(
    record: Mapping[str, Any], given: Mapping[str, Any], setting: Setting, default: Any = None
) -> dict[str, Any]:
    """The record with what was chosen by name and its settings, which belong to ``default`` if nothing was chosen."""
    from ..experiments import merged, parse_settings

    name, chosen = setting.name, given.get(setting.name)
    found = dict(record) if chosen is None else merged(record, {name: {"name": chosen}})
    pairs = given.get(f"{name}_set") or []
    if name == "method":  # the stepper's, under which it is merged with what the file says
        pairs = [f"stepper.{pair}" if pair.partition("=")[0].strip() == "lr" else pair for pair in pairs]
    own = parse_settings(pairs, setting.settings_option)
    if own and found.get(name) is None:
        if default is None:
            raise SettingError(f"{setting.settings_option}: say which {name} with {setting.option}")
        found[name] = default
    return merged(found, {name: own}) if own else found


def use_threads(threads: int | None) -> None:
    """Let torch compute with so many threads."""
    if threads is None:
        return
    import torch

    require_count("--threads", "threads", threads)
    torch.set_num_threads(threads)
