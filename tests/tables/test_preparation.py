"""standardise=True against the same by hand; names of classes; saved, loaded in another process, going on."""

from __future__ import annotations

import json
import math
import subprocess
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from torch import Tensor, nn

import bayeswell as bw
from bayeswell.errors import BayeswellWarning, DataError, FileError, SettingError
from bayeswell.metrics import gaussian_nll
from bayeswell.persistence import read_bundle, write_bundle
from bayeswell.tables import Preparation
from quick_python import QUICK_PYTHON

QUICK: dict[str, Any] = {"epochs": 3, "progress": False}


@pytest.fixture(autouse=True)
def short_runs() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bw.VerdictWarning)
        warnings.filterwarnings("ignore", message=".*stds.*")
        yield


def numbers(n: int = 120, outputs: int = 2, seed: int = 4) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 3, generator=generator) * torch.tensor([30.0, 0.02, 5.0]) + torch.tensor([400.0, -3.0, 0.0])
    y = torch.stack([0.3 * x[:, 0] + 40 * x[:, 1], -7 * x[:, 2] + 1000], dim=1)[:, :outputs]
    return x, y + 3 * torch.randn(y.shape, generator=generator)


def by_hand(values: Tensor, like: Tensor) -> Tensor:
    wide = like.double()
    return ((values.double() - wide.mean(0)) / wide.std(0, correction=0)).float()


def net_of(inputs: int, outputs: int) -> nn.Module:
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(inputs, 16), nn.Tanh(), nn.Linear(16, outputs))


@pytest.mark.parametrize("method", ["bbb", "swag"])
@pytest.mark.parametrize("outputs", [1, 2])
def test_standardise_is_the_same_as_by_hand_and_undone(method: str, outputs: int) -> None:
    x, y = numbers(outputs=outputs)
    new = x[:9] * 1.1
    settings = {**QUICK, "epochs": 10}
    ours = bw.fit(net_of(3, outputs), (x, y), method, "gaussian", standardise=True, **settings)
    hand = bw.fit(net_of(3, outputs), (by_hand(x, x), by_hand(y, y)), method, "gaussian", **settings)
    found = ours.predict(new, draws=20, seed=1, keep_samples=True)
    scaled = hand.predict(by_hand(new, x), draws=20, seed=1, keep_samples=True)
    scale, shift = y.double().std(0, correction=0), y.double().mean(0)
    exact: dict[str, Any] = {"rtol": 1e-6, "atol": 0.0}
    torch.testing.assert_close(found.mean.double(), scaled.mean * scale + shift, **exact)
    torch.testing.assert_close(found.std.double(), scaled.std * scale, **exact)
    torch.testing.assert_close(found.variance.double(), scaled.variance * scale.square(), **exact)
    torch.testing.assert_close(found.aleatoric_variance.double(), scaled.aleatoric_variance * scale**2, **exact)
    torch.testing.assert_close(found.samples.double(), scaled.samples * scale + shift, **exact)
    # NLL in the units of the targets: that of the scaled ones plus the sum of log scales.
    assert ours.preparation is not None
    assert ours.preparation.nll_shift == pytest.approx(float(scale.log().sum()), rel=1e-12)
    truth = y[:9]
    raw = float(gaussian_nll(found.mean.double(), found.variance.double(), truth.double()))
    own = float(gaussian_nll(scaled.mean.double(), scaled.variance.double(), by_hand(truth, y).double()))
    assert raw == pytest.approx(own + ours.preparation.nll_shift, rel=1e-5)


def test_targets_of_one_axis_and_a_network_of_one_axis() -> None:
    x, y = numbers(outputs=1)

    class Flat(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = net_of(3, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x).squeeze(-1)

    ours = bw.fit(Flat(), (x, y[:, 0]), "map", "gaussian", standardise=True, epochs=60, progress=False, lr=0.02)
    found = ours.predict(x)
    assert found.mean.shape == (120,)
    assert float((found.mean - y[:, 0]).square().mean()) < 0.3 * float(y.var())


def test_images_are_scaled_by_channel_as_the_command_line_does() -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (40, 2, 5, 5), generator=generator, dtype=torch.uint8)
    images[:, 1] //= 4
    prepared = Preparation.learn(images, standardise=True).inputs(images)
    for channel in range(2):
        raw = images[:, channel].float()
        torch.testing.assert_close(prepared[:, channel], (raw - raw.mean()) / raw.std())
    with pytest.raises(DataError, match=r"inputs of shape \(4, 3, 5, 5\); the model was trained on \(n, 2, ..., ...\)"):
        Preparation.learn(images, standardise=True).inputs(torch.zeros(4, 3, 5, 5))
    with pytest.raises(DataError, match="standardise: inputs of shape"):
        Preparation.learn(torch.zeros(4, 3, 5), standardise=True)


def test_words_of_a_network_with_an_embedding_stay_whole_numbers() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(12, 1))
    words = torch.randint(0, 9, (40, 3))
    y = words.float().sum(1, keepdim=True) * 100
    result = bw.fit(net, (words, y), "map", "gaussian", standardise=True, **QUICK)
    assert result.preparation is not None
    assert result.preparation.scaling.input_shift is None
    assert result.predict(words).mean.mean() == pytest.approx(float(y.mean()), abs=3 * float(y.std()))


def test_known_noise_is_given_in_the_units_of_the_targets() -> None:
    x, y = numbers()
    known = bw.Gaussian(noise="known", std=(2.0, 5.0))
    result = bw.fit(net_of(3, 2), (x, y), "map", known, standardise=True, **QUICK)
    found = result.predict(x[:3])
    torch.testing.assert_close(found.aleatoric_variance, torch.tensor([4.0, 25.0]).expand(3, 2), rtol=1e-5, atol=0)
    with pytest.raises(SettingError, match="one scale for all outputs"):
        bw.fit(net_of(3, 2), (x, y), "map", bw.StudentT(noise="known", scale=2.0), standardise=True, **QUICK)


def test_counts_are_not_scaled() -> None:
    generator = torch.Generator().manual_seed(0)
    x = 50 + 20 * torch.randn(60, 2, generator=generator)
    y = torch.poisson(torch.full((60, 1), 30.0), generator=generator)
    result = bw.fit(net_of(2, 1), (x, y), "map", "poisson", standardise=True, **QUICK)
    assert result.preparation is not None
    assert result.preparation.scaling.target_scale is None
    assert result.preparation.nll_shift == 0


def clinic(n: int = 90) -> tuple[pd.DataFrame, pd.Series]:
    rng = np.random.default_rng(2)
    frame = pd.DataFrame(
        {
            "age": np.where(rng.random(n) < 0.2, np.nan, rng.normal(60, 12, n)),
            "sex": rng.choice(["f", "m"], n),
            "ward": pd.Categorical(rng.choice(["north", "south"], n)),
            "smoker": rng.random(n) < 0.3,
        }
    )
    ill = (frame["age"].fillna(60) + 10 * frame["smoker"] + rng.normal(0, 4, n)) > 62
    return frame, pd.Series(np.where(ill, "ill", "well"))


def lazy() -> nn.Module:
    return nn.Sequential(nn.LazyLinear(12), nn.ReLU(), nn.LazyLinear(2))


def test_a_frame_with_names_for_targets_through_all_doors(tmp_path: Path) -> None:
    frame, y = clinic()
    result = bw.fit(lazy(), (frame, y), "bbb", standardise=True, validation=(frame[:20], y[:20]), **QUICK)
    found = result.predict(frame[["smoker", "ward", "age", "sex"]], draws=10)
    assert isinstance(found, bw.ClassPrediction)
    assert found.class_names == ("ill", "well")
    assert found.label_names == [("ill", "well")[i] for i in found.labels.tolist()]
    from_polars = result.predict(pl.from_pandas(frame), draws=10)
    assert torch.equal(found.probabilities, from_polars.probabilities)
    again = bw.fit(
        lazy(), (pl.from_pandas(frame), pl.Series(y.to_list())), "bbb", standardise=True,
        validation=(pl.from_pandas(frame[:20]), y[:20].to_list()), **QUICK,
    )  # fmt: skip
    assert torch.equal(again.predict(frame, draws=10).probabilities, found.probabilities)

    result.save(tmp_path / "model")
    frame[["ward", "age", "sex", "smoker"]].to_json(tmp_path / "new.json")
    script = (
        "import sys, json, pandas, bayeswell as bw\n"
        "found = bw.load(sys.argv[1]).predict(pandas.read_json(sys.argv[2]), draws=10)\n"
        "print(json.dumps([found.probabilities.tolist(), found.label_names]))\n"
    )
    run = [QUICK_PYTHON, "-c", script, str(tmp_path / "model"), str(tmp_path / "new.json")]
    probabilities, names = json.loads(subprocess.run(run, capture_output=True, check=True, text=True).stdout)
    torch.testing.assert_close(torch.tensor(probabilities), found.probabilities, rtol=1e-5, atol=1e-6)
    assert names == found.label_names


def test_a_forged_preparation_is_refused(tmp_path: Path) -> None:
    frame, y = clinic()
    result = bw.fit(lazy(), (frame, y), "map", standardise=True, **QUICK)
    result.save(tmp_path / "model")
    bundle = read_bundle(tmp_path / "model")
    for change in (
        {"scaling": {**bundle.record["preparation"]["scaling"], "input_scale": {"dtype": "float64", "values": [0.0]}}},
        {"columns": [{"name": "age", "kind": "number", "mean": "x", "missing": False}]},
        {"format": 99},
        {"dtype": "object"},
    ):
        forged = {**bundle.record, "preparation": {**bundle.record["preparation"], **change}}
        write_bundle(tmp_path / "forged", bundle.tensors, forged)
        with pytest.raises(FileError):
            bw.load(tmp_path / "forged")


def test_training_goes_on_with_what_was_learned() -> None:
    frame, y = clinic()
    settings: dict[str, Any] = {"standardise": True, "progress": False, "temperature": 0.5, "rate": "constant"}
    whole = bw.fit(lazy(), (frame, y), "bbb", epochs=4, **settings)
    half = bw.fit(lazy(), (frame, y), "bbb", epochs=2, **settings)
    on = bw.fit(half, (frame, y), epochs=2, progress=False)
    assert on.preparation is half.preparation
    assert torch.equal(on.predict(frame).probabilities, whole.predict(frame).probabilities)
    with pytest.raises(DataError, match="class 'dead' is unknown; allowed: ill, well"):
        bw.fit(half, (frame, y.replace("ill", "dead")), epochs=1, progress=False)


def test_calibration_takes_the_users_units() -> None:
    x, y = numbers(outputs=1)
    result = bw.fit(net_of(3, 1), (x, y), "bbb", "gaussian", standardise=True, **QUICK)
    hand = bw.fit(net_of(3, 1), (by_hand(x, x), by_hand(y, y)), "bbb", "gaussian", **QUICK)
    ours, own = result.calibrate(x, y, draws=5), hand.calibrate(by_hand(x, x), by_hand(y, y), draws=5)
    assert ours.calibration is not None
    assert own.calibration is not None
    assert (ours.calibration.std_scale, ours.calibration.widening) == (
        own.calibration.std_scale, own.calibration.widening
    )  # fmt: skip
    shift = math.log(float(y.double().std(correction=0)))
    assert ours.calibration.nll_after == pytest.approx(own.calibration.nll_after + shift, rel=1e-6)
    assert ours.predict(x[:2]).std[0, 0] > 1  # in the users' units
    fitted = bw.fit(net_of(3, 1), (x, y), "bbb", "gaussian", standardise=True, calibrate=2, **QUICK)
    assert fitted.preparation is not None
    assert float(fitted.predict(x).mean.mean()) == pytest.approx(float(y.mean()), abs=2 * float(y.std()))


@pytest.mark.parametrize(
    ("targets", "names"),
    [
        (pd.Series(["b", "a"] * 45), ("a", "b")),
        (pd.Series(["b", "a"] * 45, dtype="category"), ("a", "b")),
        (pl.Series(["b", "a"] * 45).cast(pl.Categorical), ("a", "b")),
        (np.array(["b", "a"] * 45), ("a", "b")),
        (["b", "a"] * 45, ("a", "b")),
        (pd.Series([True, False] * 45), ("False", "True")),
        (torch.tensor([True, False] * 45), ("False", "True")),
        (pd.Series([10, 9] * 45), ("9", "10")),
        (pd.Series([2**53 + 1, 2**53] * 45), (str(2**53), str(2**53 + 1))),
        (pd.DataFrame({"y": ["b", "a"] * 45}), ("a", "b")),
    ],
)
def test_targets_that_have_names(targets: Any, names: tuple[str, ...]) -> None:
    frame, _ = clinic()
    result = bw.fit(lazy(), (frame[["sex", "smoker"]], targets), "map", **QUICK)
    assert result.preparation is not None
    assert result.preparation.class_names == names
    assert result.preparation.targets(targets)[:2].tolist() == [1, 0]


def test_numbers_of_classes_in_a_series_stay_numbers() -> None:
    x = torch.randn(90, 2)
    result = bw.fit(net_of(2, 3), (x, pd.Series([0, 1, 2] * 30)), "map", **QUICK)
    assert result.preparation is None or result.preparation.class_names is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x, y: (x, y.where(y.index != 3)), "targets: row 3: the target is missing"),
        (lambda x, y: (x, y.replace("ill", "well")), "every one is 'well'; there must be two classes"),
        (lambda x, y: (x, pd.Series(["a", "b", "c"] * 30)), "the network tells 2 classes; the targets have 3: a, b, c"),
        (lambda x, y: x, "a data frame alone has no targets"),
    ],
)
def test_bad_frames_are_refused_before_any_training(change: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        bw.fit(lazy(), change(*clinic()), "map", **QUICK)


def test_a_network_of_another_width_is_told_the_features() -> None:
    frame, y = clinic()
    with pytest.raises(DataError, match=r"does not take the 7 features of the table \(age, age is missing, sex = f"):
        bw.fit(net_of(4, 2), (frame, y), "map", **QUICK)
    with pytest.raises(DataError, match="is a class, but the likelihood is of numbers"):
        bw.fit(net_of(7, 1), (frame, y), "map", "gaussian", **QUICK)
    with pytest.raises(SettingError, match="standardise = 'yes'"):
        bw.fit(net_of(7, 2), (frame, y), "map", standardise="yes", **QUICK)  # type: ignore[arg-type]
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.zeros(4, 2), torch.zeros(4)))
    with pytest.raises(DataError, match="a Dataset or loader scales its examples itself"):
        bw.fit(net_of(2, 1), loader, "map", "gaussian", standardise=True, **QUICK)
    result = bw.fit(net_of(7, 2), (frame, y), "map", standardise=True, **QUICK)
    with pytest.raises(DataError, match="trained on a table with the columns age, sex, ward, smoker"):
        result.predict(torch.zeros(3, 4))
    torch.testing.assert_close(
        result.predict({name: frame[name][:5].to_list() for name in frame}).probabilities,
        result.predict(frame[:5]).probabilities,
    )


def test_columns_and_scales_come_from_training_rows_alone() -> None:
    frame, y = clinic()
    other = frame[:30].assign(age=9999.0, ward="west")
    with pytest.warns(BayeswellWarning, match="'west'"):
        with_validation = bw.fit(lazy(), (frame, y), "map", standardise=True, validation=(other, y[:30]), **QUICK)
    assert with_validation.preparation is not None
    assert with_validation.preparation.as_json() == Preparation.learn(frame, y, standardise=True).as_json()
    shift = with_validation.preparation.scaling.input_shift
    assert shift is not None
    assert float(shift[0]) == pytest.approx(float(frame["age"].mean()))
    made = [i for i, name in enumerate(with_validation.preparation.features or ()) if "=" in name or "missing" in name]
    assert shift[made].abs().sum() == 0  # the 0 and 1 of our own are not scaled


def test_large_targets_keep_finite_stds() -> None:
    x, y = numbers(outputs=1)
    result = bw.fit(net_of(3, 1), (x, y * 1e25), "map", "gaussian", standardise=True, **QUICK)
    assert bool(result.predict(x).std.isfinite().all())


def test_networks_that_learned_of_numbers_take_any_library_s() -> None:
    x, y = torch.randn(40, 2), torch.randint(0, 2, (40,))
    result = bw.fit(net_of(2, 2), (x, y), "map", **QUICK)
    wanted = result.predict(x).probabilities
    frame = pd.DataFrame(x.numpy(), columns=["a", "b"])
    for same in (frame, pl.from_pandas(frame), x.numpy()):
        assert torch.equal(result.predict(same).probabilities, wanted)
    again = bw.fit(
        net_of(2, 2), (x.numpy(), pd.Series(y.numpy())), "map", validation=(x, pl.Series(y.tolist())), **QUICK
    )
    assert torch.equal(again.predict(x).probabilities, wanted)
    bound = result.measure_elbo((x, y), draws=3)
    scaled = bw.fit(net_of(2, 2), (frame, y), "map", standardise=True, **QUICK)
    assert scaled.measure_elbo((frame, y), draws=3).elbo < 0
    assert bound.elbo < 0


def test_words_stay_whole_numbers_where_only_the_targets_have_names() -> None:
    class Own(nn.Module):
        """An embedding that is not torch's."""

        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Parameter(torch.randn(9, 2))

        def forward(self, words: Tensor) -> Tensor:
            return self.table[words].sum(1)

    words = torch.randint(0, 9, (40, 3))
    result = bw.fit(Own(), (words, ["a", "b"] * 20), "map", **QUICK)
    assert result.predict(words).class_names == ("a", "b")
