"""The table of scores on corrupted images: our own corruptions, and the same images as published files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bayeswell.cli.app import main
from bayeswell.datasets import Data, corrupt, load_data
from bayeswell.experiments import Experiment, evaluate, load_model, run
from bayeswell.experiments.corrupted_scores import corrupted_scores, published_scores
from bayeswell.predictive import ClassPrediction

COUNT = 40
NAMES = {"gaussian_noise": "gaussian_noise", "contrast": "contrast", "elastic": "elastic_transform"}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corrupted") / "run"
    run(Experiment(method="map", data="digits", model={"name": "mlp", "hidden": [12]}, epochs=3), folder)
    return folder


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``corrupt`` makes of the first test images, rounded to bytes; a fourth file is the reverse of an image."""
    folder = tmp_path_factory.mktemp("digits-c")
    images, labels = (tensor[:COUNT] for tensor in load_data("digits", standardise=False).test)
    for ours, theirs in NAMES.items():
        at = [corrupt(images, ours, severity) for severity in (1, 2, 3, 4, 5)]
        stored = np.concatenate([(one * 255).round().byte().permute(0, 2, 3, 1).numpy() for one in at])
        np.save(folder / f"{theirs}.npy", stored)
    np.save(folder / "reverse.npy", 255 - np.load(folder / "contrast.npy"))
    np.save(folder / "labels.npy", np.tile(labels.numpy(), 5))
    return folder


def test_published_files_give_the_table_of_the_same_images(trained: Path, published: Path) -> None:
    predictor, data = load_model(trained), load_data("digits")
    ours = corrupted_scores(predictor, data, list(NAMES), images=COUNT)
    theirs = published_scores(predictor, data, published)
    assert theirs["images"] == COUNT
    for name, stored in NAMES.items():
        for score, value in ours["by_corruption"][name].items():
            # Bytes round the pixels by at most 0.002: of forty images none or one changes its class.
            assert theirs["by_corruption"][stored][score] == pytest.approx(value, abs=0.03), (name, score)
    for table in ("by_family", "by_severity"):
        for row, scores in ours[table].items():
            assert theirs[table][row] == pytest.approx(scores, abs=0.03)
    assert theirs["mean"] == pytest.approx(ours["mean"], abs=0.03), "files beside the fifteen have no part in it"
    assert theirs["by_family"]["extra"] == theirs["by_corruption"]["reverse"]
    assert theirs["by_family"]["extra"]["accuracy"] < ours["mean"]["accuracy"] - 0.2


def test_means_are_over_severities_then_over_corruptions(trained: Path, published: Path) -> None:
    predictor, data = load_model(trained), load_data("digits")
    found = published_scores(predictor, data, published, images=7)
    labels = np.load(published / "labels.npy")[:7]
    shift, scale = data.scaling.input_shift, data.scaling.input_scale
    assert shift is not None
    assert scale is not None
    right = np.zeros((3, 5))
    for row, name in enumerate(NAMES.values()):
        stored = np.load(published / f"{name}.npy")
        for place in range(5):
            pixels = stored[COUNT * place : COUNT * place + 7].astype(np.float32).transpose(0, 3, 1, 2) / 255
            inputs = (data.test[0].new_tensor(pixels) - shift) / scale
            prediction = predictor.predict(inputs)
            assert isinstance(prediction, ClassPrediction)
            right[row, place] = (prediction.probabilities.argmax(-1).numpy() == labels).mean()
    assert found["images"] == 7
    assert found["mean"]["accuracy"] == pytest.approx(right.mean())
    assert [found["by_severity"][str(one)]["accuracy"] for one in range(1, 6)] == pytest.approx(right.mean(0))
    assert found["by_family"]["digital"]["accuracy"] == pytest.approx(right[1:].mean())


def test_evaluate_takes_the_folder(trained: Path, published: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = evaluate(trained, corruptions=str(published), corrupted_images=None)["corruptions"]
    assert found["images"] == COUNT
    assert set(found["by_corruption"]) == {*NAMES.values(), "reverse"}
    assert main(["evaluate", str(trained), "--corruptions", str(published), "--corrupted-images", "9"]) == 0
    said = capsys.readouterr().out
    assert "elastic_transform" in said
    assert "all extra" in said
    assert "severity 5" in said
    assert "9 images" in said


def test_a_folder_that_is_not_there_is_one_line(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(trained), "--corruptions", "no/such/folder"]) != 0
    said = capsys.readouterr().err
    assert "corruptions: there is no folder 'no/such/folder'" in said
    assert said.strip().count("\n") == 0


def test_data_without_images_are_refused(published: Path, trained: Path) -> None:
    wine: Data = load_data("wine")
    with pytest.raises(Exception, match="is not a set of images with classes"):
        published_scores(load_model(trained), wine, published)
