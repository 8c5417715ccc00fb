"""Options that several commands share, and the experiment that they and a settings file describe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from ..experiments import Experiment

WHAT, HOW, LOOK, RUN = "What to train", "How to train", "What to measure", "The run"

Method = Annotated[
    str | None,
    typer.Option(
        "--method", "-m", help="Which method: see `bayeswell methods`.", show_default="bbb", rich_help_panel=WHAT
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE",
        help="A setting of the method: temperature=1, stepper.lr=0.01, posterior.rank=3, stepper=sgd. May be repeated.",
        show_default=False, rich_help_panel=WHAT,
    ),
]  # fmt: skip
Data = Annotated[
    str | None,
    typer.Option(
        "--data", "-d", help="A data set (`bayeswell data`), or the path of a .csv or .npz file or folder of pictures.",
        show_default="digits", rich_help_panel=WHAT,
    ),
]  # fmt: skip
DataSet = Annotated[
    list[str] | None,
    typer.Option(
        "--data-set", metavar="KEY=VALUE", help="A setting of the data: split=3, target=price, header=false.",
        show_default=False, rich_help_panel=WHAT,
    ),
]  # fmt: skip
Model = Annotated[
    str | None,
    typer.Option(
        "--model", "-n", help="Which network: see `bayeswell models`.", show_default="one that suits the data",
        rich_help_panel=WHAT,
    ),
]  # fmt: skip
ModelSet = Annotated[
    list[str] | None,
    typer.Option(
        "--model-set", metavar="KEY=VALUE", help="A setting of the model: width=8, hidden=[100,100], activation=silu.",
        show_default=False, rich_help_panel=WHAT,
    ),
]  # fmt: skip
Likelihood = Annotated[
    str | None,
    typer.Option("--likelihood", help="Which likelihood.", show_default="that of the data", rich_help_panel=WHAT),
]
LikelihoodSet = Annotated[
    list[str] | None,
    typer.Option(
        "--likelihood-set", metavar="KEY=VALUE", help="A setting of the likelihood.", show_default=False,
        rich_help_panel=WHAT,
    ),
]  # fmt: skip
Config = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", metavar="FILE.toml", help="Settings from a file; what the command line says wins.",
        show_default=False, rich_help_panel=WHAT,
    ),
]  # fmt: skip
Epochs = Annotated[
    int | None, typer.Option("--epochs", "-e", help="Passes over the data.", show_default="20", rich_help_panel=HOW)
]
BatchSize = Annotated[
    int | None,
    typer.Option(
        "--batch-size",
        "-b",
        help="Examples in a step.",
        show_default="100, or a fiftieth of fewer data",
        rich_help_panel=HOW,
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        "--seed", "-s", help="Decides starts, order, noise and dropout.", show_default="0", rich_help_panel=HOW
    ),
]
Validation = Annotated[
    float | None,
    typer.Option(
        "--validation", help="Hold out so many training examples, or (below 1) such a share of them.",
        show_default="none", rich_help_panel=HOW,
    ),
]  # fmt: skip
ValidationRule = Annotated[
    str | None,
    typer.Option(
        "--validation-rule", help="Held out: drawn by the seed, or the last of the training set (last).",
        show_default="seed", rich_help_panel=HOW,
    ),
]  # fmt: skip
EarlyStopping = Annotated[
    int | None,
    typer.Option(
        "--early-stopping", metavar="EPOCHS",
        help="Stop after so many epochs without a better validation score, and keep the best weights.",
        show_default="off", rich_help_panel=HOW,
    ),
]  # fmt: skip
EarlyStoppingMetric = Annotated[
    str | None,
    typer.Option(
        "--early-stopping-metric", help="Which score: nll, accuracy, ece, brier or rmse.", show_default="nll",
        rich_help_panel=HOW,
    ),
]  # fmt: skip
Augment = Annotated[
    bool | None,
    typer.Option(
        "--augment/--no-augment", help="Shift images by up to 4 pixels and mirror them.", show_default="off",
        rich_help_panel=HOW,
    ),
]  # fmt: skip
Diagnose = Annotated[
    bool | None,
    typer.Option(
        "--diagnose/--no-diagnose", show_default="off", rich_help_panel=RUN,
        help="Keep the signal-to-noise of gradients and the stds along training, for the report.",
    ),
]  # fmt: skip
Standardise = Annotated[
    bool | None,
    typer.Option(
        "--standardise/--raw", help="Scale inputs and real targets by the training data.", show_default="on",
        rich_help_panel=HOW,
    ),
]  # fmt: skip
Accumulate = Annotated[
    int | None,
    typer.Option(
        "--accumulate", help="Cut each batch into so many pieces: the same step in less memory.", show_default="1",
        rich_help_panel=HOW,
    ),
]  # fmt: skip
Workers = Annotated[
    int | None,
    typer.Option("--workers", help="Processes that read the data.", show_default="0: none", rich_help_panel=HOW),
]
Accelerator = Annotated[
    str | None, typer.Option("--accelerator", help="auto, cpu, cuda or mps.", show_default="auto", rich_help_panel=HOW)
]
DeviceCount = Annotated[
    int | None,
    typer.Option("--devices", help="How many devices share each step.", show_default="1", rich_help_panel=HOW),
]
Precision = Annotated[
    str | None,
    typer.Option("--precision", help="32, bf16-mixed or 16-mixed.", show_default="32", rich_help_panel=HOW),
]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads", help="Threads of the CPU; one is best for small networks.", show_default="torch's",
        rich_help_panel=HOW,
    ),
]  # fmt: skip
Draws = Annotated[
    int | None,
    typer.Option("--draws", help="Networks drawn for a prediction.", show_default="100", rich_help_panel=LOOK),
]
Ood = Annotated[
    str | None,
    typer.Option(
        "--ood", help="Data outside the distribution (noise, corrupted, notmnist, ...): AUROC by entropy.",
        show_default="none", rich_help_panel=LOOK,
    ),
]  # fmt: skip
OodSet = Annotated[
    list[str] | None,
    typer.Option(
        "--ood-set", metavar="KEY=VALUE", help="A setting of it: severity=5.", show_default=False, rich_help_panel=LOOK
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

NAMED = ("method", "data", "model", "likelihood", "ood")
"""What has a name and settings of its own."""


def experiment_from(config: Path | None, extra: Sequence[str] = (), **given: Any) -> tuple[Experiment, dict[str, Any]]:
    """The experiment of a file and a command line, which wins; and what the file says of ``extra`` keys.

    ``given`` has an option by the name of the experiment's setting, None where it was not given, and ``NAME_set`` for
    the settings of each named part.
    """
    from ..experiments import Experiment, experiment_settings, merged, parse_settings, read_config

    record = {} if config is None else read_config(config, [*experiment_settings(), *extra])
    others = {key: record.pop(key) for key in extra if key in record}
    for name in NAMED:
        chosen, pairs = given.pop(name, None), given.pop(f"{name}_set", None) or []
        if chosen is not None:
            record = merged(record, {name: {"name": chosen}})
        settings = parse_settings(pairs, "--set" if name == "method" else f"--{name}-set")
        if settings:
            record = merged(_with_default(record, name), {name: settings})
    augment = given.pop("augment", None)
    if augment is not None:
        record["augment"] = {} if augment else None
    record |= {name: value for name, value in given.items() if value is not None}
    if isinstance(record.get("validation"), float) and record["validation"] >= 1:
        record["validation"] = _whole("validation", record["validation"])
    return Experiment.from_json(record), others


def _with_default(record: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Settings of a part that was not named belong to the one that stands by default."""
    from ..errors import SettingError
    from ..experiments import Experiment

    if record.get(name) is not None:
        return dict(record)
    default = getattr(Experiment, name)
    if default is None:
        raise SettingError(f"--{name}-set: say which {name} with --{name}")
    return {**record, name: {"name": default}}


def _whole(name: str, value: float) -> int:
    from ..errors import SettingError

    if value != int(value):
        raise SettingError(f"{name} = {value:g}; a whole number of examples, or a share below 1")
    return int(value)


def use_threads(threads: int | None) -> None:
    """Let torch compute with so many threads."""
    if threads is None:
        return
    import torch

    from ..errors import require_count

    require_count("--threads", "threads", threads)
    torch.set_num_threads(threads)
