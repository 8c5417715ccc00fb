"""What is measured of a finished run agrees with what was measured when it ended, and with slower ways to get it."""

from __future__ import annotations

import base64
import math
from pathlib import Path
from typing import Any

import pytest
import torch

import bayeswell.experiments as experiments
from bayeswell.diagnostics import SpectrumTrace
from bayeswell.errors import FileError
from bayeswell.experiments import Experiment, inspect_run, inspection_of, load_problem, run
from bayeswell.experiments.inspection import INSPECTION
from bayeswell.experiments.inspection.examples import _pixels
from bayeswell.experiments.inspection.predictions import _scores
from bayeswell.persistence import read_document

# A run of seconds does not get far, and says so.
pytestmark = pytest.mark.filterwarnings("ignore::bayeswell.errors.BayeswellWarning")


@pytest.fixture(scope="module")
def inspected(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], dict[str, Any], SpectrumTrace]:
    """A run of digits with noise from outside: its folder, its result, its inspection, and spectra on the way."""
    folder = tmp_path_factory.mktemp("inspected") / "run"
    trace = SpectrumTrace(most=20)
    experiment = Experiment(
        method="bbb",
        data="digits",
        model={"name": "mlp", "hidden": [12]},
        epochs=2,
        batch_size=300,
        draws=7,
        ood="noise",
    )
    result = run(experiment, folder, loggers=[trace], progress=False)
    return folder, result, inspect_run(folder), trace


def test_metrics_are_those_of_the_result(inspected: Any) -> None:
    _, result, record, _ = inspected
    found, test = record["metrics"], result["test"]
    for name in ("accuracy", "nll", "ece", "brier"):
        assert found[name] == pytest.approx(test["values"][name], rel=1e-5)
        assert found[f"{name}_error"] == pytest.approx(test["standard_errors_over_examples"][name], rel=1e-5)
    assert found["ood_auroc_entropy"] == pytest.approx(result["ood"]["values"]["auroc"], rel=1e-5)
    assert found["expected_nll"] > found["nll"]
    assert found["negative_elbo"] > found["kl_per_example"] > 0


def test_records_agree_with_the_metrics(inspected: Any) -> None:
    _, result, record, _ = inspected
    records, metrics = record["records"], record["metrics"]
    bins = records["reliability"]
    examples = result["examples"]["test"]
    assert sum(bins["count"]) == examples
    gaps = zip(bins["count"], bins["accuracy"], bins["confidence"], strict=True)
    assert sum(n * abs(a - c) for n, a, c in gaps) / examples == pytest.approx(metrics["ece_quantile"], rel=1e-4)
    assert bins["ece"] == pytest.approx(metrics["ece_quantile"], rel=1e-4)
    assert max(bins["count"]) - min(bins["count"]) <= 1, "bins of equally many examples"
    entropies = records["entropy"]
    right = len(entropies["correct"]) / examples
    assert right == pytest.approx(metrics["accuracy"])
    everything = [*entropies["correct"], *entropies["wrong"]]
    assert sum(everything) / examples == pytest.approx(metrics["predictive_entropy"], rel=1e-4)
    assert sum(entropies["ood"]) / len(entropies["ood"]) == pytest.approx(metrics["ood_predictive_entropy"], rel=1e-4)
    assert records["risk_coverage"]["risk"][-1] == pytest.approx(1 - metrics["accuracy"], rel=1e-4)
    assert [scores["score"] for scores in records["ood_scores"]] == ["entropy", "max_probability", "mutual_information"]


def test_the_spectrum_before_training_is_that_of_the_run(inspected: Any) -> None:
    """It is made again from the seed; a callback saw the real one."""
    *_, record, trace = inspected
    before, after = record["records"]["spectra"]
    for made, seen in ((before, trace.taken[0]), (after, trace.taken[1])):
        for mine, real in zip(made["layers"], seen.layers, strict=True):
            assert mine["layer"] == real.layer
            assert mine["means"] == pytest.approx(real.means, rel=1e-4)
            assert mine["stds"] == pytest.approx(real.stds, rel=1e-4, abs=1e-12)


def test_the_heat_map_is_the_best_approximation(inspected: Any) -> None:
    """12 x 64 in blocks of 12 x 32: the mean of two neighbours, of the matrix and of its approximation of rank 2."""
    folder, _, record, _ = inspected
    model = experiments.load_model(folder).model
    part = model.layout.slices["dense1.weight"]
    stds = model.posterior.std_vector().detach()[part].view(12, 64).double()
    left, values, right = torch.linalg.svd(stds, full_matrices=False)
    second = (left[:, :2] * values[:2]) @ right[:2]
    found = record["records"]["std_heat_maps"]
    assert found["layer"] == "dense1.weight"
    for shown, whole in ((found["stds"], stds), (found["approximations"]["2"], second)):
        torch.testing.assert_close(
            torch.tensor(shown, dtype=torch.float64), whole.view(12, 32, 2).mean(2), rtol=1e-5, atol=0
        )


def test_examples_are_what_they_say(inspected: Any) -> None:
    folder, _, record, _ = inspected
    data = load_problem(experiments.experiment_of(folder)).data
    rows = record["records"]["examples"]["examples"]
    sure = [row["entropy"] for row in rows if row["kind"] == "most certain"]
    unsure = [row["entropy"] for row in rows if row["kind"] == "most uncertain"]
    assert sure == sorted(sure)
    assert unsure == sorted(unsure, reverse=True)
    assert max(sure) < min(unsure)
    for row in rows:
        p = torch.tensor(row["probabilities"], dtype=torch.float64)
        assert float(-(p * p.clamp_min(1e-30).log()).sum()) == pytest.approx(row["entropy"], abs=2e-4)
        assert row["predicted"] == int(p.argmax())
        assert len(row["samples"]) == 7
        if row["kind"] == "outside":
            continue
        assert row["label"] == int(data.test[1][row["number"]])
        assert (row["kind"] == "wrong") <= (row["label"] != row["predicted"])
        raw = data.scaling.raw_inputs(data.test[0][row["number"]][None])[0]
        pixels = base64.b64decode(row["image"]["pixels"])
        assert list(pixels) == (raw.clamp(0, 1) * 255).round().int().flatten().tolist()


def test_large_images_are_made_small() -> None:
    image = torch.rand(3, 70, 50, generator=torch.Generator().manual_seed(0)) * 4 - 1
    found = _pixels(image)
    assert found["shape"] == [3, 17, 12]
    assert len(base64.b64decode(found["pixels"])) == 3 * 17 * 12


def test_very_many_scores_keep_their_number_and_mean() -> None:
    scores = torch.rand(30_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64) ** 3
    found = _scores(scores)
    assert isinstance(found, dict)
    assert len(found["values"]) <= 500
    assert sum(found["counts"]) == 30_000
    total = sum(value * count for value, count in zip(found["values"], found["counts"], strict=True))
    assert total / 30_000 == pytest.approx(float(scores.mean()), rel=1e-12)
    assert _scores(torch.full((2000,), 0.3)) == {"values": [pytest.approx(0.3)], "counts": [2000]}


def test_it_is_done_once(inspected: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, _, record, _ = inspected
    assert (folder / INSPECTION).stat().st_size < 1e6
    assert read_document(folder / INSPECTION) == record
    monkeypatch.setattr("bayeswell.experiments.inspection.run._look", lambda *_: pytest.fail("measured again"))
    assert inspect_run(folder) == record
    assert inspection_of(folder, full=True) is None


def test_real_targets_have_bands_and_examples_in_raw_units(tmp_path: Path) -> None:
    x = torch.linspace(-2, 2, 60)
    table = "\n".join(f"{10 + 5 * a},{1000 + 100 * math.sin(2 * a)}" for a in x.tolist())
    (tmp_path / "line.csv").write_text(f"height,weight\n{table}\n")
    experiment = Experiment(method="bbb", data=str(tmp_path / "line.csv"), epochs=3, draws=5)
    run(experiment, tmp_path / "run", progress=False)
    record = inspect_run(tmp_path / "run", full=True)
    band = record["records"]["regression_band"]
    assert min(band["x"]) == pytest.approx(10 - 10 - 5, abs=2.0)  # a quarter of the range beyond the data
    assert max(band["x"]) == pytest.approx(10 + 10 + 5, abs=2.0)
    assert all(890 < y < 1110 for y in band["train_y"])
    assert all(700 < y < 1300 for y in band["mean"])
    rows = record["records"]["examples"]["examples"]
    assert {row["kind"] for row in rows} == {"most certain", "most uncertain", "furthest off"}
    for row in rows:
        assert 890 < row["target"] < 1110
        assert row["target"] == pytest.approx(1000 + 100 * math.sin(2 * (row["features"][0] - 10) / 5), rel=1e-4)
        assert sum(row["samples"]) / 5 == pytest.approx(row["mean"], rel=1e-4)
    assert record["columns"] == ["height"]
    assert [row["rank"] for row in record["records"]["truncation"]["rows"]] == [None, 1, 2, 3]
    assert record["left_out"] == {}
    assert 0 <= record["metrics"]["coverage_90"] <= 1


def test_the_elbo_is_in_the_units_of_the_targets(tmp_path: Path) -> None:
    """Grams for kilograms: standardised the data are the same, and the density of each target is 1000 times less."""
    found = []
    for unit in (1, 1000):
        x = torch.linspace(-2, 2, 60).tolist()
        table = "\n".join(f"{a},{unit * (70 + 12 * math.sin(2 * a))}" for a in x)
        (tmp_path / f"{unit}.csv").write_text(f"height,weight\n{table}\n")
        experiment = Experiment(method="bbb", data=str(tmp_path / f"{unit}.csv"), epochs=3, draws=5)
        run(experiment, tmp_path / f"run{unit}", progress=False)
        found.append(inspect_run(tmp_path / f"run{unit}")["metrics"])
    for name in ("negative_elbo", "nll"):
        assert found[1][name] - found[0][name] == pytest.approx(math.log(1000), rel=1e-3)
    assert found[1]["kl_per_example"] == pytest.approx(found[0]["kl_per_example"], rel=1e-3)


def test_a_bank_of_networks_and_a_point_go_as_far_as_they_can(tmp_path: Path) -> None:
    common: dict[str, Any] = {"data": "wine", "epochs": 1, "draws": 5}
    for method, absent in (("map", {"spectra", "std_heat_maps", "elbo"}), ("deep-ensemble", {"elbo"})):
        run(Experiment(method=method, **common), tmp_path / method, progress=False)
        record = inspect_run(tmp_path / method)
        assert set(record["left_out"]) == absent
        assert {"loss_line", "loss_plane", "sharpness", "layers", "examples", "reliability"} <= set(record["records"])


def test_a_run_that_is_not_finished(tmp_path: Path) -> None:
    run(Experiment(data="wine", epochs=1, draws=2), tmp_path / "run", progress=False)
    (tmp_path / "run" / "data.json").unlink()
    with pytest.raises(FileError, match="not finished"):
        inspect_run(tmp_path / "run")
