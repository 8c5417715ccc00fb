"""Every command does what its help says, for people and for machines."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bayeswell.cli import app
from bayeswell.cli.screen import counted
from bayeswell.datasets import DATASETS
from bayeswell.experiments import Experiment, run
from bayeswell.methods import METHODS, find_method, method_names
from bayeswell.models import MODELS
from bayeswell.persistence import read_document
from bayeswell.plots import PLOTS

SMALL = ["--model", "mlp", "--model-set", "hidden=[12]", "--epochs", "2", "--batch-size", "300", "--draws", "5"]
COMMANDS = (
    "train",
    "resume",
    "evaluate",
    "fidelity",
    "predict",
    "compare",
    "report",
    "sweep",
    "study",
    "methods",
    "parts",
    "models",
    "data",
    "lr-range",
    "verify",
)


def result_of(folder: Path) -> dict[str, Any]:
    """Everything in a result but the time."""
    record = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    del record["time"]
    return dict(record)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples_that_are_commands(bayeswell: Any, command: str) -> None:
    said = bayeswell(command, "--help")
    assert said.code == 0
    examples = [
        line.split() for line in said.out.splitlines() if f"bayeswell {command}" in line and "Usage" not in line
    ]
    assert examples
    # Every option that an example uses is one that the help lists.
    listed = said.out.split("\n Example")[0]
    for words in examples:
        for word in words:
            if word.startswith("--"):
                assert word in listed


def test_help_lists_every_command(bayeswell: Any) -> None:
    said = bayeswell("--help")
    assert said.code == 0
    assert all(command in said.out for command in COMMANDS)
    registered = {command.name for command in app.registered_commands}
    assert set(COMMANDS) <= registered


def test_the_defaults_in_the_help_are_those_of_an_experiment(bayeswell: Any) -> None:
    text = " ".join(bayeswell("train", "--help").out.replace("│", " ").split())
    for option in ("method", "data", "epochs", "seed", "draws", "accumulate", "precision", "accelerator"):
        shown = text.split(f"--{option} ", 1)[1].split("[default: (", 1)[1].split(")", 1)[0]
        assert shown == str(getattr(Experiment, option.replace("-", "_")))
    assert Experiment.batch_size is None
    assert "100, or a fiftieth of fewer data" in text
    assert [Experiment().batch_size_of(examples) for examples in (100_000, 5_000, 2_000)] == [100, 100, 40]


def test_train_keeps_everything_in_its_folder(bayeswell: Any, tmp_path: Path) -> None:
    said = bayeswell("train", "--method", "map", *SMALL, "--ood", "noise", "--csv", "--out", tmp_path / "run")
    assert said.code == 0
    assert "accuracy" in said.out
    assert "AUROC" in said.out
    assert said.err.count("epoch") == 2  # plain lines, where there is no terminal
    files = {path.name for path in (tmp_path / "run").iterdir()}
    assert {"config.json", "metrics.jsonl", "metrics.csv", "checkpoints", "model", "result.json"} <= files
    record = json.loads((tmp_path / "run" / "result.json").read_text())
    assert record["test"]["values"].keys() >= {"accuracy", "nll", "ece", "brier", "mutual_information"}
    assert record["ood"]["values"].keys() == {"auroc", "entropy", "ood_entropy"}


def test_each_warning_is_one_line(bayeswell: Any, tmp_path: Path) -> None:
    said = bayeswell("train", "--method", "sgld", *SMALL, "--quiet", "--out", tmp_path / "run")
    assert said.code == 0
    lines = said.err.splitlines()
    assert any("R-hat" in line for line in lines)
    assert all(line.startswith("warning: ") and ".py" not in line for line in lines)


def test_settings_reach_the_run_and_the_command_line_wins_over_the_file(bayeswell: Any, tmp_path: Path) -> None:
    settings = tmp_path / "settings.toml"
    settings.write_text(
        "epochs = 9\nbatch_size = 300\ndraws = 5\n[method]\nname = 'map'\ntemperature = 0.3\nstepper.lr = 0.01\n"
        "[model]\nname = 'mlp'\nhidden = [12]\n",
        encoding="utf-8",
    )
    said = bayeswell(
        "train", "--config", settings, "--epochs", "1", "--set", "stepper.lr=0.02", "--data-set", "split=3", "--seed",
        "4", "--json", "--quiet", "--root", tmp_path / "runs", "--name", "mine",
    )  # fmt: skip
    assert said.code == 0
    assert said.err == ""
    assert json.loads(said.out)["seed"] == 4
    chosen = json.loads((tmp_path / "runs" / "mine" / "config.json").read_text())["problem"]["experiment"]
    assert chosen["method"] == {"name": "map", "temperature": 0.3, "stepper": {"lr": 0.02}}
    assert (chosen["epochs"], chosen["batch_size"], chosen["data"]) == (1, 300, {"name": "digits", "split": 3})


def test_resume_of_a_finished_run_says_so(bayeswell: Any, finished: Path) -> None:
    before = (finished / "result.json").read_bytes()
    said = bayeswell("resume", finished)
    assert said.code == 0
    assert "finished" in said.out
    assert (finished / "result.json").read_bytes() == before
    record = json.loads(bayeswell("resume", finished, "--json").out)
    assert record["test"] == json.loads(before)["test"]


def test_train_with_resume_goes_on_or_begins(bayeswell: Any, tmp_path: Path) -> None:
    first = bayeswell("train", "-m", "map", *SMALL, "-q", "--json", "--resume", "--out", tmp_path / "run")
    again = bayeswell("train", "-m", "map", *SMALL, "-q", "--json", "--resume", "--out", tmp_path / "run")
    assert (first.code, again.code) == (0, 0)
    assert first.out == again.out  # the time too: it is the one result


def test_evaluate_measures_what_the_run_measured(bayeswell: Any, finished: Path) -> None:
    record = json.loads(bayeswell("evaluate", finished, "--draws", "5", "--ood", "noise", "--json").out)
    assert record["test"] == result_of(finished)["test"]
    assert record["ood"] == result_of(finished)["ood"]
    said = bayeswell("evaluate", finished, "--data", "corrupted", "--data-set", "severity=5")
    assert said.code == 0
    assert "Brier" in said.out


def test_a_model_alone_is_measured_on_data_that_are_named(bayeswell: Any, finished: Path) -> None:
    record = json.loads(bayeswell("evaluate", finished / "model", "--data", "digits", "--draws", "5", "--json").out)
    assert record["test"] == result_of(finished)["test"]
    assert bayeswell("evaluate", finished / "model").code == 2


def test_predict_writes_a_table(bayeswell: Any, finished: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.random.default_rng(0).random((3, 8, 8)))
    said = bayeswell("predict", finished, "--input", tmp_path / "x.npz", "--out", tmp_path / "p.csv")
    assert said.code == 0
    lines = (tmp_path / "p.csv").read_text().splitlines()
    assert lines[0] == "label," + ",".join(f"p_{digit}" for digit in range(10)) + ",entropy,epistemic,aleatoric"
    assert len(lines) == 4
    assert sum(map(float, lines[1].split(",")[1:11])) == pytest.approx(1, abs=1e-5)
    printed = bayeswell("predict", finished, "--input", tmp_path / "x.npz")
    assert printed.out.splitlines() == lines
    record = json.loads(bayeswell("predict", finished, "--input", tmp_path / "x.npz", "--json").out)
    assert [row["label"] for row in record["predictions"]] == [line.split(",")[0] for line in lines[1:]]


def test_compare_shows_one_table_and_trains_once(bayeswell: Any, tmp_path: Path) -> None:
    arguments = ["compare", "--methods", "map,deep-ensemble", *SMALL, "--ood", "noise", "--seeds", "2"]
    arguments += ["--set", "deep-ensemble:members=2", "--out", str(tmp_path / "out"), "--no-report"]
    said = bayeswell(*arguments)
    assert said.code == 0
    assert [line.split()[0] for line in said.out.splitlines() if line.startswith(("map", "deep"))] == [
        "map",
        "deep-ensemble",
    ]
    assert said.err.count("begun") == 4
    record = read_document(tmp_path / "out" / "comparison.json")
    assert record["rows"][1]["cost"]["per_step"] == 6
    again = bayeswell(*arguments)
    assert again.err.count("finished") == 4
    assert again.out == said.out
    assert json.loads(bayeswell(*arguments, "--json", "--quiet").out) == record


def test_one_method_is_compared_with_itself_by_labels(bayeswell: Any, tmp_path: Path) -> None:
    methods = "cold=bbb:temperature=0.02:lr=0.003,hot=bbb,bbb"
    arguments = [*SMALL, "--set", "hot:temperature=2", "--set", "stepper.eps=1e-7", "--no-report", "--quiet"]
    assert bayeswell("compare", "--methods", methods, *arguments, "--out", tmp_path / "out").code == 0
    record = read_document(tmp_path / "out" / "comparison.json")
    said = {label: one["method"] for label, one in record["experiments"].items()}
    stepper = {"eps": 1e-7}
    assert said == {
        "cold": {"name": "bbb", "temperature": 0.02, "stepper": {"lr": 0.003, **stepper}},
        "hot": {"name": "bbb", "temperature": 2, "stepper": stepper},
        "bbb": {"name": "bbb", "stepper": stepper},
    }
    assert len({row["scores"]["nll"]["mean"] for row in record["rows"]}) == 3
    # The same from a file, as tables; --set still wins.
    tables = (
        '[methods.cold]\nname = "bbb"\ntemperature = 0.02\nlr = 0.003\n[methods.hot]\nname = "bbb"\ntemperature = 7\n'
    )
    (tmp_path / "three.toml").write_text(tables + '[methods.bbb]\nname = "bbb"\n')
    again = bayeswell("compare", "--config", tmp_path / "three.toml", *arguments, "--out", tmp_path / "out", "--json")
    assert again.code == 0
    assert json.loads(again.out) == record


def test_a_run_that_diverges_leaves_with_one(bayeswell: Any, tmp_path: Path) -> None:
    wild = ["--set", "stepper=sgd", "--set", "stepper.lr=1e30", "--quiet"]
    said = bayeswell("train", "--method", "map", *wild, *SMALL, "--out", tmp_path / "run")
    assert said.code == 1
    assert said.out == ""
    assert len(said.err.splitlines()) == 1
    assert "step" in said.err
    # In a comparison the others go on; it still says so, and with what code it leaves.
    said = bayeswell("compare", "--methods", "map", *wild[:-1], *SMALL, "--out", tmp_path / "out", "--quiet")
    assert said.code == 1
    assert "(failed)" in said.out
    assert "map-seed0" in said.err


def test_a_method_with_a_fault_does_not_stop_the_others(
    bayeswell: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(experiment: Experiment, *arguments: Any, **options: Any) -> dict[str, Any]:
        if experiment.method_part.name == "map":
            raise RuntimeError("no kernel image")
        return run(experiment, *arguments, **options)

    monkeypatch.setattr("bayeswell.experiments.side_by_side.run", broken)
    said = bayeswell("compare", "-m", "map,deep-ensemble", *SMALL, "--out", tmp_path / "out", "-q", "--no-report")
    assert said.code == 1
    assert "bayeswell: map-seed0: RuntimeError: no kernel image" in said.err
    record = read_document(tmp_path / "out" / "comparison.json")
    assert [row["finished"] for row in record["rows"]] == [0, 1]


def test_one_of_a_thing_is_one(bayeswell: Any, tmp_path: Path) -> None:
    assert [counted(count, "draw") for count in (0, 1, 2, 1000)] == ["0 draws", "1 draw", "2 draws", "1,000 draws"]
    one = ["--model", "mlp", "--model-set", "hidden=[12]", "-e", "1", "-b", "300", "--draws", "1", "-q", "--no-report"]
    said = bayeswell("compare", "-m", "map", *one, "--out", tmp_path / "out")
    assert said.out.splitlines()[0] == "digits, 1 epoch, 1 seed, 1 draw"
    said = bayeswell("train", "-m", "sgld", *SMALL, "-q", "--out", tmp_path / "run")
    assert "1 chains" not in said.out
    assert "1 chain does" in said.out


def test_tabs_go_from_training_to_prediction(bayeswell: Any, tmp_path: Path) -> None:
    rows = [f"{x}\t{x % 7}\t{'high' if x > 20 else 'low'}" for x in range(40)]
    (tmp_path / "t.csv").write_text("\n".join(["a\tb\tkind", *rows]), encoding="utf-8")
    small = ["-m", "map", "-n", "mlp", "--model-set", "hidden=[4]", "-e", "1", "-q"]
    for number, given in enumerate(("\\t", "tab", "\t")):
        run = tmp_path / f"run{number}"
        assert (
            bayeswell("train", "-d", tmp_path / "t.csv", "--data-set", f"delimiter={given}", *small, "-o", run).code
            == 0
        )
        said = bayeswell("predict", run, "--input", tmp_path / "t.csv", "--json")
        assert len(json.loads(said.out)["predictions"]) == 40
        assert json.loads(bayeswell("evaluate", run, "-d", tmp_path / "t.csv", "--json").out)["examples"] == 10
    assert bayeswell("train", "-d", tmp_path / "t.csv", "--data-set", "delimiter=ab", *small, "-o", "x").code == 2


def test_methods_are_all_listed(bayeswell: Any) -> None:
    said = bayeswell("methods")
    assert said.code == 0
    assert {line.split()[0] for line in said.out.splitlines() if line.strip()} >= set(METHODS)
    records = json.loads(bayeswell("methods", "--json").out)
    assert [record["name"] for record in records] == method_names()
    assert all(record["cost"] == find_method(record["name"]).cost and record["paper"] for record in records)
    one = bayeswell("methods", "k-tied")
    assert "rank=2" in one.out
    sharp = json.loads(bayeswell("methods", "f-bbb", "--json").out)
    assert sharp["parts"]["sharpness"]["rho"] == 0.05


def test_models_are_listed_with_the_parameters_of_the_papers(bayeswell: Any) -> None:
    records = {record["name"]: record for record in json.loads(bayeswell("models", "--json").out)}
    assert list(records) == list(MODELS)
    assert records["mlp"]["parameters"] == 784 * 400 + 400 + 400 * 400 + 400 + 400 * 10 + 10
    assert records["lenet5"]["parameters"] == 61_706
    assert records["resnet18"]["parameters"] == 11_173_962
    assert "61,706" in bayeswell("models", "lenet5").out
    on_digits = {record["name"]: record for record in json.loads(bayeswell("models", "-d", "digits", "--json").out)}
    assert on_digits["mlp"]["parameters"] == 64 * 400 + 400 + 400 * 400 + 400 + 400 * 10 + 10
    assert on_digits["lstm"]["parameters"] is None  # it takes tokens


def test_data_are_listed_with_what_is_there(bayeswell: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAYESWELL_DATA", str(tmp_path))
    found = json.loads(bayeswell("data", "--json").out)
    assert found["folders"] == [str(tmp_path)]
    records = {record["name"]: record for record in found["data"]}
    assert list(records) == list(DATASETS)
    assert records["digits"]["status"] == "bundled"
    assert records["mnist"]["status"] == "absent"
    for file in records["mnist"]["releases"][0]["files"]:
        (tmp_path / file["path"]).parent.mkdir(exist_ok=True)
        (tmp_path / file["path"]).touch()
    assert json.loads(bayeswell("data", "mnist", "--json").out)["data"][0]["status"] == "present"
    said = bayeswell("data", "mnist")
    assert str(tmp_path) in said.out
    assert "train-images-idx3-ubyte.gz" in said.out
    assert bayeswell("data").code == 0
    assert bayeswell("data", "uci_boston").code == 0


def test_lr_range_suggests_and_draws(bayeswell: Any, tmp_path: Path) -> None:
    small = ["--model", "mlp", "--model-set", "hidden=[12]", "--steps", "20", "-b", "300"]
    arguments = ["lr-range", "-m", "map", *small, "--plot", str(tmp_path / "r.png")]
    said = bayeswell(*arguments)
    assert said.code == 0
    assert "suggested learning rate" in said.out
    head = (tmp_path / "r.png").read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", head[16:24]) > (300, 200)
    record = json.loads(bayeswell(*arguments, "--json").out)
    assert record["suggestion"] in [pytest.approx(rate / 10) for rate in record["rates"]]


def test_the_version_is_told(bayeswell: Any) -> None:
    from bayeswell import __version__

    assert bayeswell("--version").out == f"bayeswell {__version__}\n"


def test_what_was_seen_in_training_is_kept_for_the_report(
    bayeswell: Any, tmp_path: Path, few_pictures: Callable[..., None]
) -> None:
    """And it changes nothing of what is learned."""
    few_pictures("snr", "std_paths")
    small = ["--method", "bbb", "--model", "mlp", "--model-set", "hidden=[12]", "--epochs", "2", "--draws", "5"]
    for name, more in (("plain", []), ("seen", ["--diagnose"])):
        assert bayeswell("train", *small, *more, "--quiet", "--out", tmp_path / name).code == 0
    assert result_of(tmp_path / "plain") == result_of(tmp_path / "seen")
    records = json.loads((tmp_path / "seen" / "records.json").read_text())
    lines = (tmp_path / "seen" / "metrics.jsonl").read_text().splitlines()
    assert [window["step"] for window in records["snr"]] == list(range(10, 105, 10))
    assert all(len(path) == 1 + len(lines) for path in records["std_paths"]["layers"].values())
    said = bayeswell("report", tmp_path / "seen", "--quiet", "--out", tmp_path / "page.html")
    assert said.code == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    for name in ("snr", "std_paths"):
        assert PLOTS[name].title in page
