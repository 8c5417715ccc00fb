"""Runs in folders: resumed, evaluated, predicted and verified."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from bayeswell.core.errors import BayeswellError, DataWarning, FileError, SettingError
from bayeswell.lab.data import load_data
from bayeswell.lab.inputs import read_file
from bayeswell.lab.overrides import with_settings
from bayeswell.lab.runs import default_threads, evaluate, load_run, predict_file, resume, train, verify
from bayeswell.lab.settings import Code, RunSettings
from bayeswell.training import Callback

SMALL: dict[str, Any] = {"data": "wine", "method": "bbb", "epochs": 3, "draws": 5, "threads": 1}


class Stop(Callback):
    """End the process, as it were, after an epoch."""

    def after_epoch(self, run: Any, record: Any) -> None:
        if record.epoch == 1:
            raise KeyboardInterrupt


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("runs") / "wine"
    train(RunSettings(**SMALL, folder=str(place)))
    return place


def test_resumed_run_equals_an_uninterrupted_one(folder: Path, tmp_path: Path) -> None:
    settings = RunSettings(**SMALL, folder=str(tmp_path / "stopped"))
    with pytest.raises(KeyboardInterrupt):
        train(settings, callbacks=[Stop()])
    again = resume(tmp_path / "stopped")
    whole = train(RunSettings(**SMALL))
    assert again.scores == whole.scores
    assert torch.equal(again.per_example["nll"], whole.per_example["nll"])


def test_finished_run_is_not_run_again(folder: Path) -> None:
    changed = (folder / "result.json").stat().st_mtime_ns
    record = train(RunSettings(**SMALL, folder=str(folder)), resume=True)
    assert (folder / "result.json").stat().st_mtime_ns == changed
    assert record.scores == resume(folder).scores


def test_unknown_data_make_no_folder(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="did you mean 'wine'"):
        train(RunSettings(**{**SMALL, "data": "wines"}, folder=str(tmp_path / "run")))
    assert not (tmp_path / "run").exists()


def test_a_folder_holds_one_run(folder: Path) -> None:
    with pytest.raises(SettingError, match="has a run already"):
        train(RunSettings(**SMALL, folder=str(folder)))
    with pytest.raises(SettingError, match="epochs was 3, is 4"):
        train(RunSettings(**{**SMALL, "epochs": 4}, folder=str(folder)), resume=True)


def test_run_that_never_began_leaves_its_folder_free(tmp_path: Path) -> None:
    with pytest.raises(BayeswellError):
        train(RunSettings(**{**SMALL, "batch_size": 1, "method": "map", "epochs": 0, "calibrate": 0.1},
                          folder=str(tmp_path / "run")))  # fmt: skip
    train(RunSettings(**{**SMALL, "method": "map"}, folder=str(tmp_path / "run")))


def test_other_objects_are_not_taken_for_the_same_run(tmp_path: Path) -> None:
    data = load_data("wine")
    settings = RunSettings(**{**SMALL, "method": "map", "epochs": 1}, folder=str(tmp_path / "run"))
    nets = [nn.Sequential(nn.Linear(13, width), nn.ReLU(), nn.Linear(width, 3)) for width in (4, 5)]
    train(settings, data=data, net=nets[0])
    train(settings, data=data, net=nets[0], resume=True)
    with pytest.raises(SettingError, match="net"):
        train(settings, data=data, net=nets[1], resume=True)


def test_evaluation_reads_the_record_unless_asked_for_more(folder: Path) -> None:
    record = resume(folder)
    assert evaluate(folder)["nll"] == record.scores["nll"]
    # The same draws of the same model, measured again.
    assert evaluate(folder, draws=5)["nll"].value == pytest.approx(record.scores["nll"].value, rel=1e-6)
    assert "ood_auroc_entropy" in evaluate(folder, ood="noise")


def test_predictions_of_files_equal_those_of_the_model(folder: Path, tmp_path: Path) -> None:
    data, model = load_data("wine"), load_run(folder)
    raw = data.raw_inputs(data.test[0])[:9].numpy()
    expected = model.predict(raw, draws=4).probabilities
    np.savetxt(tmp_path / "x.csv", raw, delimiter=",")
    np.savetxt(tmp_path / "named.csv", raw, delimiter=",", header=",".join("abcdefghijklm"), comments="")
    np.savez(tmp_path / "x.npz", x=raw)
    for name in ("x.csv", "named.csv", "x.npz"):
        found = predict_file(folder, tmp_path / name, draws=4).probabilities
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


def test_inputs_in_other_units_are_warned_of(folder: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.full((3, 13), 1e4))
    with pytest.warns(DataWarning, match="same units"):
        predict_file(folder, tmp_path / "x.npz", draws=2)


def test_images_become_inputs_of_the_shape_of_the_run(tmp_path: Path) -> None:
    Image.new("RGB", (7, 5), (255, 0, 0)).save(tmp_path / "a.png")
    found = read_file(tmp_path, (3, 4, 4), by_name=False)
    assert found.shape == (1, 3, 4, 4)
    assert found[0].mean((1, 2)).tolist() == [1, 0, 0]
    assert read_file(tmp_path / "a.png", (1, 4, 4), by_name=False).shape == (1, 1, 4, 4)
    (tmp_path / "b.png").write_bytes(b"no image")
    with pytest.raises(FileError, match=r"b\.png cannot be read as an image"):
        read_file(tmp_path, (3, 4, 4), by_name=False)


def test_tables_are_predicted_by_the_names_of_their_columns(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = {"size": rng.normal(size=60), "color": rng.choice(["red", "blue"], 60)}
    rows = [f"{s},{c},{'big' if s > 0 else 'small'}" for s, c in zip(*table.values(), strict=True)]
    (tmp_path / "t.csv").write_text("\n".join(["size,color,kind", *rows]))
    (tmp_path / "new.csv").write_text("color,extra,size\nred,1,2.5\nblue,1,-2.5\n")
    train(RunSettings(data=f"table:{tmp_path / 't.csv'}", method="map", epochs=30, folder=str(tmp_path / "run")))
    assert predict_file(tmp_path / "run", tmp_path / "new.csv").label_names == ["big", "small"]


def test_own_network_is_given_again(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from torch import nn\n\n\nclass Net(nn.Module):\n"
        "    def __init__(self, outputs, width=3):\n        super().__init__()\n"
        "        self.a, self.b = nn.Linear(13, width), nn.Linear(width, outputs)\n"
        "    def forward(self, x):\n        return self.b(self.a(x).tanh())\n"
    )
    code = f"{tmp_path / 'mine.py'}:Net"
    settings = {**SMALL, "method": "map", "epochs": 1, "model": code, "model_settings": {"width": 6}}
    train(RunSettings(**settings, folder=str(tmp_path / "run")))
    with pytest.raises(FileError, match="code"):
        load_run(tmp_path / "run")
    model = load_run(tmp_path / "run", Code.parse(code))
    assert model.model.net.a.out_features == 6
    assert resume(tmp_path / "run", net=Code.parse(code)).scores == evaluate(tmp_path / "run").scores
    (tmp_path / "mine.py").write_text((tmp_path / "mine.py").read_text() + "# changed\n")
    with pytest.raises(SettingError, match="has changed"):
        load_run(tmp_path / "run", Code.parse(code))


def test_start_is_a_trained_run(folder: Path, tmp_path: Path) -> None:
    record = train(RunSettings(**{**SMALL, "method": "laplace", "epochs": 1}, init=_map_run(tmp_path)))
    assert record.posterior["name"] != "delta"
    assert record.scores["nll"].value < record.baseline["nll"]


def _map_run(tmp_path: Path) -> str:
    train(RunSettings(**{**SMALL, "method": "map", "epochs": 10}, folder=str(tmp_path / "map")))
    return str(tmp_path / "map")


def test_verify_names_what_has_changed(tmp_path: Path) -> None:
    train(RunSettings(**{**SMALL, "method": "map", "epochs": 1}, folder=str(tmp_path / "run")))
    assert not [one for one in verify(tmp_path) if one.fault]
    for name in ("metrics-0.csv", "settings.json", "model/tensors.safetensors", "checkpoints/member-0/state.json"):
        path = tmp_path / "run" / name
        before = path.read_bytes()
        path.write_bytes(before[:-3] + bytes([before[-3] ^ 1]) + before[-2:])
        assert [one for one in verify(tmp_path) if one.fault], name
        path.write_bytes(before)
    with pytest.raises(FileError, match="no run"):
        verify(_empty(tmp_path))


def _empty(tmp_path: Path) -> Path:
    (tmp_path / "empty").mkdir()
    return tmp_path / "empty"


def test_small_networks_use_one_thread() -> None:
    assert default_threads(nn.Linear(10, 10)) == 1
    assert default_threads(nn.Linear(1000, 1000)) == torch.get_num_threads()
    assert default_threads(nn.Conv2d(1, 2, 3)) == torch.get_num_threads()


def test_settings_change_by_dotted_names() -> None:
    base = RunSettings(method="k-tied")
    found = with_settings(base, {"lr": 0.1, "rank": 3, "temperature": 1.0, "model.hidden": [7], "posterior.rank": 4})
    assert found.lr == 0.1
    assert found.model_settings == {"hidden": [7]}
    assert found.method_part.posterior.rank == 4
    assert found.method_part.temperature == 1.0
    low_rank = with_settings(base, {"posterior": "low_rank", "posterior.rank": 5}).method_part
    assert (low_rank.posterior.name, low_rank.posterior.rank) == ("low_rank", 5)
    with pytest.raises(SettingError, match="rnk"):
        with_settings(base, {"rnk": 3})
