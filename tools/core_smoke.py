"""What a user of the core does, where nothing but ``pip install bayeswell`` was done; run by tools/try_wheel.py.

    python -I tools/core_smoke.py compiled|plain

Every public way is gone once; ``compiled`` also asks for the compiled formulas, ``plain`` for their absence.
"""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

BROUGHT_BY_TORCH = {"jinja2", "markupsafe"}
METHODS = ("map", "bbb", "k-tied", "vl", "hwa", "swag", "sgld", "mc-dropout", "deep-ensemble", "laplace", "ivon")


def main(kind: str) -> None:
    """Go every way; an ``AssertionError`` or any other error is a fault of the wheel."""
    import bayeswell as bw

    assert "site-packages" in str(bw.__file__), bw.__file__
    assert "torch" not in sys.modules, "`import bayeswell` waits for torch"
    extras = importlib.import_module("bayeswell.extras")
    lab = [name for name in extras.EXTRAS["lab"] if name not in BROUGHT_BY_TORCH]
    there = [name for name in lab if importlib.util.find_spec(name) is not None]
    assert not there, f"this is no environment with the core alone: it has {', '.join(there)}"
    for name in bw.__all__:
        getattr(bw, name)

    from bayeswell import native

    assert native.available() == (kind == "compiled"), f"compiled formulas: {native.available()}"
    with tempfile.TemporaryDirectory() as folder:
        train_and_keep(Path(folder))
    own_loop()
    missing_extras()
    loaded = [name for name in lab if name in sys.modules]
    assert not loaded, loaded
    print(f"core, {kind}: Python {sys.version.split()[0]}, bayeswell {bw.__version__}: all ways gone")


def train_and_keep(folder: Path) -> None:
    """Methods of every kind: train, predict, score, save, load, predict the same."""
    import torch

    import bayeswell as bw

    inputs = torch.randn(90, 4, generator=torch.Generator().manual_seed(0))
    classes, reals = inputs[:, :3].argmax(1), inputs[:, :1] - 0.5 * inputs[:, 1:2]
    for method in METHODS:
        drop = [torch.nn.Dropout(0.2)] if method == "mc-dropout" else []
        net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), *drop, torch.nn.Linear(8, 3))
        result = bw.fit(net, (inputs, classes), method, likelihood="categorical", epochs=10, seed=1, progress=False)
        found = result.predict(inputs, draws=5, seed=2)
        result.save(folder / method)
        again = bw.load(folder / method).predict(inputs, draws=5, seed=2)
        assert isinstance(found, bw.ClassPrediction)
        assert isinstance(again, bw.ClassPrediction)
        assert torch.equal(found.probabilities, again.probabilities), method
        assert 0 <= float(bw.metrics.ece(found.probabilities, classes)) <= 1
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    run = folder / "run"
    result = bw.fit(net, (inputs, reals), "bbb", likelihood="gaussian", epochs=2, folder=run, progress=True)
    real = result.predict(inputs, draws=5)
    assert isinstance(real, bw.RealPrediction)
    assert bool((real.variance > 0).all())
    assert (run / "metrics.jsonl").is_file()
    assert bw.diagnostics.layer_report(result.model).as_json()


def own_loop() -> None:
    """The lifted network as a module, the objective as a loss."""
    import torch

    import bayeswell as bw

    inputs = torch.randn(50, 4)
    model = bw.bayesian(bw.build_model("small_mlp", (4,), 3), posterior="k_tied", estimator="flipout")
    objective = bw.ELBO("categorical", dataset_size=50)
    objective(model, inputs, inputs.argmax(1) % 3).total.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    bw.predict(model, inputs, bw.Categorical(), draws=5)


def missing_extras() -> None:
    """What needs an extra says so in one line."""
    import bayeswell as bw

    assert issubclass(bw.MissingExtra, ImportError)
    asked: dict[str, Callable[[], object]] = {
        "the data set 'digits'": lambda: bw.datasets.load_data("digits"),
        "a plot": lambda: bw.plots.plot_rate_range({"rates": [0.1, 0.2], "objectives": [1.0, 2.0]}),
        "a sweep": lambda: importlib.import_module("bayeswell.sweeps"),
        "the command line": lambda: importlib.import_module("bayeswell.cli"),
    }
    for what, act in asked.items():
        try:
            act()
        except bw.MissingExtra as error:
            said_right(str(error), what)
        else:
            raise AssertionError(f"{what} did not miss its extra")
    script = Path(sys.executable).with_name("bayeswell")
    for command in ([str(script), "--help"], [sys.executable, "-I", "-m", "bayeswell", "train", "--data", "digits"]):
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        assert found.returncode == 2, found
        assert found.stdout == "", found
        assert found.stderr.startswith("bayeswell: the command line"), found
        said_right(found.stderr.rstrip("\n"), "the command line")


def said_right(line: str, what: str) -> None:
    """One line with the thing, the extra and the command."""
    assert "\n" not in line, line
    assert f"{what} needs the extra 'lab'" in line, line
    assert line.endswith("pip install 'bayeswell[lab]'"), line


if __name__ == "__main__":
    main(sys.argv[1])
