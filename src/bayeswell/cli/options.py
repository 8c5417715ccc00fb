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
    from ..experiments.given import Given

CODE = "code_sha256"
"""Beside ``model`` in what was said: that it is code, which was run, and which."""
OwnCode = Annotated[
    str | None,
    typer.Option(
        "--model", "-n", metavar="FILE.py:NET", help="The code of the network, where that is your own.",
        show_default=False,
    ),
]  # fmt: skip
Workers = Annotated[
    int, typer.Option("--workers", "-w", min=1, help="Runs at a time, each in a process.", rich_help_panel=RUN)
]
Folds = Annotated[
    int | None,
    typer.Option(
        "--folds", min=2, help="Cut all examples into so many parts; each tests what the others train.",
        show_default="the test set", rich_help_panel=HOW,
    ),
]  # fmt: skip

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

    ``given`` as ``with_settings`` gives it: None where nothing was said; ``with_code`` has looked at it.
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
    _refuse_code_of_a_file(record, given)
    return Experiment.from_json(record), others


def with_code(given: Mapping[str, Any]) -> tuple[dict[str, Any], Given]:
    """What was said, with the name and SHA-256 of code in the place of where it is, and the network itself.

    This runs the user's code, which ``--model file.py:Net`` asks for; no file of settings can.
    """
    own = own_code(given.get("model"))
    if own.network is None:
        return dict(given), own
    return {**given, "model": own.network.name, CODE: own.network.sha256}, own


def own_code(spec: str | None) -> Given:
    """The network that ``--model`` of a command names, which runs its code; a name of ``bayeswell.models`` is none."""
    from ..experiments.given import NOTHING, given_code
    from ..experiments.network_code import is_code

    return given_code(spec) if is_code(spec) and spec is not None else NOTHING


def own_code_only(spec: str | None) -> Given:
    """The same for commands about runs that there are: they know their networks, but for code."""
    own = own_code(spec)
    if spec is not None and own.network is None:
        raise SettingError(f"--model {spec}: write file.py:Net or package.module:Net; all other networks the run knows")
    return own


def _refuse_code_of_a_file(record: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    from ..experiments.network_code import is_code

    model = record.get("model")
    name = model.get("name") if isinstance(model, Mapping) else model
    if is_code(name) and CODE not in given:
        raise SettingError(
            f"{given.get('config')}: the model '{name}' is code, which no settings file has run: if it is yours, say "
            f"--model {name} on the command line"
        )


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
    if name == "model" and CODE in given:
        own = {**own, "sha256": given[CODE]}
    default = setting.unnamed if default is None else default
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
