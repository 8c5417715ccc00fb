"""The command line: nine commands, each of which parses its options and calls a Python function.

Exit codes: 0 done; 1 a run failed, or a file has changed; 2 bad input; 128 + number after a signal (130 after Ctrl-C).
"""

from __future__ import annotations

import json
import os
import re
import sys
import typing
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jsonargparse import ArgumentError, ArgumentParser, DefaultHelpFormatter

from ..core.errors import BayeswellError, DivergenceError, SettingError, nearest
from ..version import __version__
from . import listing
from .compare import compare
from .overrides import with_settings
from .runs import evaluate, predict_file, resume, train, verify
from .settings import Code, RunSettings
from .summary import evaluation_text, prediction_text, printable_frame, run_summary
from .sweep import SAMPLERS, sweep
from .terminal import json_text, one_line, safe_streams, terminal_width

DEBUG = "--debug"
FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130
OVERVIEW = """usage: bayeswell COMMAND [options]

Train any PyTorch network as a Bayesian one.

{commands}

bayeswell COMMAND --help shows the options of a command.
Begin with: bayeswell train --data digits --method bbb
"""
_TABLES = ("data_settings", "settings", "model_settings", "augment")
"""Tables of settings, which --set changes."""
Option = tuple[str, dict[str, Any]]
"""A name, and the arguments of ``add_argument``."""


class Command(typing.NamedTuple):
    """A command: its line of help, the function that runs it and returns an exit code, and its options.

    ``without`` names settings of a run that are no options; None: none of them are.
    """

    summary: str
    run: Callable[[Any], int]
    example: str
    options: tuple[Option, ...]
    without: tuple[str, ...] | None = None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = DEBUG in given
    with safe_streams() as out, warnings.catch_warnings():
        _show_warnings_in_one_line()
        code = _run_safely([one for one in given if one != DEBUG], debug)
        out.flush()
        if out.lost_output:
            code = _say(f"the output could not be written: {out.error.strerror}", code or FAILED)
    return code


def _run_safely(arguments: list[str], debug: bool) -> int:
    try:
        return _run(arguments)
    except KeyboardInterrupt as stop:
        text = str(stop).replace("resume=True", "`bayeswell resume FOLDER`")
        return _say(f"interrupted{f': {text}' if text else ''}", INTERRUPTED)
    except SystemExit as leave:
        return leave.code if isinstance(leave.code, int) else 0
    except Exception as error:
        if debug:
            raise
        return _say(*_explained(error))


def _explained(error: Exception) -> tuple[str, int]:
    text = one_line(str(error))
    if isinstance(error, BayeswellError):
        return text, FAILED if isinstance(error, DivergenceError) else BAD_INPUT
    if isinstance(error, MemoryError) or re.search("out of memory|allocate memory", text):
        return f"out of memory ({text:.150}); use a smaller batch_size or network", FAILED
    if isinstance(error, OSError):
        return f"{error.strerror or text}{f': {error.filename!r}' if error.filename else ''}", FAILED
    return f"{type(error).__name__}: {text:.300} ({DEBUG} shows where)", FAILED


def _say(message: str, code: int) -> int:
    sys.stderr.write(f"bayeswell: {message}\n")
    return code


def _show_warnings_in_one_line() -> None:
    seen: set[str] = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        text = one_line(str(message))
        if text not in seen:
            seen.add(text)
            sys.stderr.write(f"warning: {text}\n")

    for category in (DeprecationWarning, FutureWarning, PendingDeprecationWarning):
        warnings.simplefilter("ignore", category)
    warnings.simplefilter("always", UserWarning)
    warnings.showwarning = show


def _run(arguments: list[str]) -> int:
    name, *rest = arguments or ["--help"]
    if name in ("-h", "--help"):
        lines = [f"  {name:<10}{command.summary}" for name, command in COMMANDS.items()]
        sys.stdout.write(OVERVIEW.format(commands="\n".join(lines)))
        return 0
    if name == "--version":
        sys.stdout.write(f"bayeswell {__version__}\n")
        return 0
    if name not in COMMANDS:
        raise SettingError(f"unknown command {name!r}; {nearest(name, COMMANDS)}")
    return COMMANDS[name].run(_parsed(name, rest))


class _Help(DefaultHelpFormatter):
    """Help without types: the texts say what a value may be."""

    def _get_help_string(self, action: Any) -> str:
        return action.help or ""


def _parsed(name: str, arguments: Sequence[str]) -> Any:
    command = COMMANDS[name]
    parser = ArgumentParser(
        prog=f"bayeswell {name}",
        description=command.summary,
        epilog=f"Example: {command.example}",
        formatter_class=_Help,
        exit_on_error=False,
        allow_abbrev=False,
    )
    settings = () if command.without is None else _run_options(command.without)
    for option, details in (
        *settings,
        *command.options,
        _flag("--quiet", "no progress"),
        _flag("--json", "print JSON"),
    ):
        parser.add_argument(option, **details)
    options = {option for action in parser._actions for option in action.option_strings}
    given = [_known_option(name, one, options) for one in arguments]
    try:
        return parser.parse_args(given)
    except ArgumentError as error:
        raise SettingError(f"{_argument_error(str(error))} (see: bayeswell {name} --help)") from error


def _known_option(command: str, argument: str, options: set[str]) -> str:
    option, equals, value = argument.partition("=")
    if not re.fullmatch(r"--[A-Za-z][\w-]*", option):
        return argument
    option = option.replace("_", "-")
    if option not in options:
        close = nearest(option, options)
        raise SettingError(f"{command} has no option {option}; {close} (settings of the method: --set NAME=VALUE)")
    return option + equals + value


def _argument_error(text: str) -> str:
    key = re.search(r'Parser key "([\w.]+)"', text)
    if key is None:
        return one_line(text)
    kinds = [kind for kind in re.findall(r"Expected an? <class '(\w+)'>", text) if kind != "NoneType"]
    value = re.search(r"(?:Given value|Got value): (.*)", text)
    shown = f", got {value[1].strip()!r}" if value else ""
    return f"--{key[1].replace('_', '-')} must be {' or '.join(dict.fromkeys(kinds)) or 'another value'}{shown}"


def _option(name: str, metavar: str, text: str, kind: Any = str | None, **details: Any) -> Option:
    return name, {"metavar": metavar, "help": text, "type": kind, **details}


def _flag(name: str, text: str) -> Option:
    return name, {"action": "store_true", "help": text}


def _run_options(without: Sequence[str]) -> list[Option]:
    hints, texts, default = typing.get_type_hints(RunSettings), RunSettings.descriptions(), RunSettings()
    found = [_option("--config", "FILE", "TOML file of settings; options override it")]
    for name in RunSettings.names():
        if name in (*_TABLES, *without):
            continue
        value = getattr(default, name)
        text = texts[name].replace("``", "").replace("%", "%%").rstrip(".")
        text += "" if value in (None, [], False) else f" ({value})"
        option = f"--{name.replace('_', '-')}"
        if name == "ood":
            found.append(_option(option, "NAME", text, str, nargs="+"))
        elif name in ("data", "model", "likelihood"):
            found.append(_option(option, "NAME", text))
        else:
            metavar = "FOLDER" if name == "init" else name.rpartition("_")[2].upper()
            found.append(_option(option, metavar, text, hints[name] | None))
    text = "settings of method, network or data: temperature=1, posterior.rank=3, model.hidden=[100,100]"
    return [*found, _option("--set", "KEY=VALUE", text, str, nargs="+", action="append", default=[])]


def _settings(options: Any) -> RunSettings:
    settings = RunSettings() if options.config is None else RunSettings.from_toml(options.config)
    given = {name: getattr(options, name, None) for name in RunSettings.names()}
    settings = settings.changed(**{name: value for name, value in given.items() if value is not None})
    return with_settings(settings, _assignments("--set", options.set))


def _assignments(option: str, groups: Sequence[Sequence[str]]) -> dict[str, Any]:
    found = {}
    for text in (one for group in groups for one in group):
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise SettingError(f"{option} {text!r}: write NAME=VALUE")
        found[key] = _value(value)
    return found


def _value(text: str) -> Any:
    try:
        return json.loads({"True": "true", "False": "false", "None": "null"}.get(text, text))
    except ValueError:
        return text


def _values(value: Any) -> list[Any]:
    if isinstance(value, list):
        return value
    return [_value(part) for part in value.split(",")] if isinstance(value, str) else [value]


def _names(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _code(option: str, text: str | None) -> Code | None:
    found = None if text is None else Code.parse(text)
    if text is not None and found is None:
        raise SettingError(f"--{option} {text!r}: the run knows it, unless it is your own code: FILE.py:NAME")
    return found


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def _train(options: Any) -> int:
    settings = _settings(options)
    folder = settings.folder or os.path.join("runs", settings.title)
    record = train(settings.changed(folder=folder), progress=not options.quiet)
    _print(json_text(record.to_json()) if options.json else run_summary(record, folder))
    return 0


def _resume(options: Any) -> int:
    data, net = _code("data", options.data), _code("model", options.model)
    record = resume(options.run, data=data, net=net, progress=not options.quiet)
    _print(json_text(record.to_json()) if options.json else run_summary(record, options.run))
    return 0


def _evaluate(options: Any) -> int:
    given = {name: getattr(options, name) for name in ("ood", "draws", "seed", "prediction")}
    data = None if options.data is None else Code.parse(options.data) or options.data
    found = evaluate(options.run, data=data, net=_code("model", options.model), **given)
    record = {name: getattr(found, name) for name in ("examples", "draws", "prediction", "likelihood")}
    record |= {"run": options.run, "scores": dict(found.scores)}
    _print(json_text(record) if options.json else evaluation_text(found, options.run))
    return 0


def _predict(options: Any) -> int:
    given = {name: getattr(options, name) for name in ("draws", "seed", "prediction")}
    given = {name: value for name, value in given.items() if value is not None}
    found = predict_file(options.run, options.input, net=_code("model", options.model), **given)
    frame = printable_frame(found, options.interval)
    if options.out is not None:
        frame.to_csv(options.out, index=False, float_format="%.6g")
    if options.json:
        rows = frame.to_dict("records")
        _print(json_text({"run": options.run, "examples": len(frame), "draws": found.draws, "predictions": rows}))
    elif options.out is not None:
        _print(f"{len(frame):,} predictions in {options.out}")
    elif sys.stdout.isatty():
        _print(prediction_text(frame, terminal_width()))
    else:
        _print(frame.to_csv(index=False, float_format="%.6g").rstrip("\n"))
    return 0


def _compare(options: Any) -> int:
    base = _settings(options)
    found = compare(
        _names(options.methods),
        {name: Code.parse(name) or name for name in _names(options.data)},
        folder=base.folder or "runs/compare",
        progress=not options.quiet,
        **{name: getattr(options, name) for name in ("seeds", "folds", "workers", "reference")},
        **{name: value for name, value in base.changes().items() if name != "folder"},
    )
    if options.json:
        _print(json_text(found.to_json()))
    else:
        _print(f"{found.text(terminal_width())}\nruns in {found.folder}; bayeswell report {found.folder} makes a page")
    return FAILED if found.failed else 0


def _sweep(options: Any) -> int:
    base = _settings(options)
    folder = base.folder or os.path.join("runs", f"sweep-{base.title}")
    names = ("trials", "score", "sampler", "prune", "name", "storage", "workers")
    found = sweep(
        {key: _values(value) for key, value in _assignments("--space", options.space).items()},
        base.data,
        base.method,
        folder=folder,
        progress=not options.quiet,
        **{name: getattr(options, name) for name in names},
        **{name: value for name, value in base.changes().items() if name not in ("data", "method", "folder")},
    )
    _print(json_text(found.to_json()) if options.json else f"{found.text(terminal_width())}\ntrials in {folder}")
    return 0 if found.trials else FAILED


def _report(options: Any) -> int:
    from .report import write_report

    page = write_report(options.paths, options.out)
    _print(json_text({"report": page}) if options.json else f"report in {page}")
    return 0


def _list(options: Any) -> int:
    rows = listing.rows_of(options.kind)
    _print(json_text(rows) if options.json else listing.text_of(options.kind, rows, terminal_width()))
    return 0


def _verify(options: Any) -> int:
    found = verify(options.folder)
    faults = [one_line(one.fault) for one in found if one.fault]
    lines = [*faults, f"{len(found) - len(faults)} of {len(found)} as written"]
    rows = [{"path": one.path, "fault": one.fault or None} for one in found]
    _print(json_text(rows) if options.json else "\n".join(lines))
    return FAILED if faults else 0


_RUN = _option("run", "RUN", "folder of the run", str)
_NET = _option("--model", "FILE.py:NAME", "the network, if it is your own code")
_DRAWS = (
    _option("--draws", "N", "number of networks (as in the run)", int | None),
    _option("--seed", "N", "of the draws (0)", int, default=0),
    _option("--prediction", "KIND", "sampled, linearized or mean"),
    _NET,
)
_SPACE = "lr=log,1e-4,1e-1 or dropout=linear,0,0.5 or members=int,1,8 or posterior.rank=1,2,3"
_STORAGE = "of a database for several machines (a journal file in --folder); the same command joins the sweep"
COMMANDS: Mapping[str, Command] = {
    "train": Command(
        "Train and measure a network.",
        _train,
        "bayeswell train --data digits --method k-tied --set posterior.rank=3 --epochs 40",
        (),
        without=(),
    ),
    "resume": Command(
        "Continue a run that was stopped.",
        _resume,
        "bayeswell resume runs/digits-bbb-seed0",
        (_RUN, _NET, _option("--data", "FILE.py:NAME", "the data, if they are your own code")),
    ),
    "evaluate": Command(
        "Show the scores of a run, or measure it on other data.",
        _evaluate,
        "bayeswell evaluate runs/digits-bbb-seed0 --ood noise --draws 500",
        (
            _RUN,
            _option("--data", "NAME", "other data of the same kind"),
            _option("--ood", "NAME", "out-of-distribution data", str, nargs="+"),
            *_DRAWS,
        ),
    ),
    "predict": Command(
        "Predict new inputs with their uncertainty.",
        _predict,
        "bayeswell predict runs/price --input new.csv --out predictions.csv",
        (
            _option("run", "RUN", "folder of the run, or of a saved model", str),
            _option("--input", "FILE", "a table, an .npz file with x, or images", str, required=True),
            _option("--out", "FILE.csv", "where the predictions go (stdout)"),
            _option("--interval", "LEVEL", "of real targets (0.9)", float, default=0.9),
            *_DRAWS,
        ),
    ),
    "compare": Command(
        "Compare methods on problems over several seeds.",
        _compare,
        "bayeswell compare --methods map,bbb,laplace --data digits,wine --seeds 5",
        (
            _option("--methods", "NAME,...", "such as map,bbb,laplace", str, required=True),
            _option("--data", "NAME,...", "problems (digits)", str, default="digits"),
            _option("--seeds", "N", "runs of each method (3)", int, default=3),
            _option("--folds", "K", "test on each of K parts of the data", int | None),
            _option("--reference", "NAME", "compared with the others (map)", str, default="map"),
            _option("--workers", "N", "runs trained at a time (1)", int, default=1),
        ),
        without=("data", "method", "seed", "fold", "workers"),
    ),
    "sweep": Command(
        "Search for the best settings on validation data.",
        _sweep,
        "bayeswell sweep --data wine --method k-tied --space lr=log,1e-4,1e-1 posterior.rank=1,2,3",
        (
            _option("--space", "KEY=VALUES", _SPACE, str, nargs="+", action="append", required=True),
            _option("--trials", "N", "finished trials in all (20)", int, default=20),
            _option("--score", "KEY", "on validation data (nll)", str, default="nll"),
            _option("--sampler", "NAME", f"{', '.join(SAMPLERS)} (tpe)", str, default="tpe"),
            _flag("--prune", "stop trials that are worse than the median"),
            _option("--name", "NAME", "of the sweep in its storage (sweep)", str, default="sweep"),
            _option("--storage", "URL", _STORAGE),
            _option("--workers", "N", "processes (1)", int, default=1),
        ),
        without=("workers",),
    ),
    "report": Command(
        "Write a page about runs and comparisons.",
        _report,
        "bayeswell report runs/compare",
        (
            _option("paths", "FOLDER", "runs, comparisons, or folders of them", str, nargs="+"),
            _option("--out", "FILE", "the page (report.html)", str, default="report.html"),
        ),
    ),
    "list": Command(
        "List methods, data, models, parts or runs.",
        _list,
        "bayeswell list methods",
        (_option("kind", "KIND", f"{', '.join(listing.kinds())}, or a folder of runs", str, nargs="?", default=""),),
    ),
    "verify": Command(
        "Check that the files of a run are as they were written.",
        _verify,
        "bayeswell verify runs",
        (_option("folder", "FOLDER", "of a run, a comparison or a saved model", str),),
    ),
}
