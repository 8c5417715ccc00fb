"""Parts of one's own in saved files: by name and settings, given again at loading, or refused when saving."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

import bayeswell as bw
from bayeswell.methods import resolve
from bayeswell.registry import AXES
from bayeswell.types import Estimator, ExpectedNLL, PriorPart, Step

pytestmark = pytest.mark.filterwarnings("ignore::bayeswell.BayeswellWarning")


@pytest.fixture(autouse=True)
def kept_registries() -> Iterator[None]:
    """Names that a test gives do not outlive it."""
    kept = {axis: dict(registry._parts) for axis, registry in AXES.items()}
    yield
    for axis, parts in kept.items():
        AXES[axis]._parts = parts


@dataclass(eq=False)
class Counts(bw.Gaussian):
    """A Gaussian of square roots: of one's own, with a name and a setting."""

    shift: float = 0.0

    name: ClassVar[str] = "counts"

    def nll(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return super().nll(outputs + self.shift, targets)


class Nameless(bw.Gaussian):
    """It would be read as a Gaussian."""


@dataclass(frozen=True)
class Flat(PriorPart):
    """A wide Gaussian by another name."""

    width: float = 5.0

    name: ClassVar[str] = "flat"
    density: ClassVar[Any] = bw.Normal.density

    def parameters(self, site: Any) -> tuple[float, ...]:
        return (self.width,)


@dataclass(frozen=True)
class AtTheMean(Estimator):
    """No noise at all."""

    name: ClassVar[str] = "at_the_mean"

    def expected_nll(self, model: Any, weights: Tensor | None, step: Step) -> ExpectedNLL:
        outputs = self.forward(model, None, step)
        return ExpectedNLL(step.nll(outputs), outputs)


def poisson_counts(outputs: Tensor) -> torch.distributions.Distribution:
    return torch.distributions.Poisson(outputs.exp())


DATA = torch.randn(30, 2, generator=bw.make_generator(1)), torch.rand(30, 1, generator=bw.make_generator(2)).round()


def trained(likelihood: Any, **settings: Any) -> bw.Result:
    torch.manual_seed(0)
    return bw.fit(nn.Linear(2, 1), DATA, "bbb", likelihood, epochs=1, **settings)


def same(first: Any, second: Any) -> bool:
    return all(
        torch.equal(a.predict(DATA[0], draws=4).mean, b.predict(DATA[0], draws=4).mean) for a, b in [(first, second)]
    )


def test_registered_parts_come_back_by_name(tmp_path: Path) -> None:
    for axis, part in (("likelihood", Counts), ("prior", Flat), ("estimator", AtTheMean)):
        assert bw.register(axis, part) is part
        assert bw.register(axis, part) is part  # once more does no harm
    result = trained({"name": "counts", "shift": 0.7}, prior={"name": "flat", "width": 2.0}, estimator="at_the_mean")
    result.save(tmp_path / "model")
    back = bw.load(tmp_path / "model")
    assert same(back, result)
    assert (type(back.likelihood), back.likelihood.shift) == (Counts, 0.7)
    assert isinstance(back.model.estimator, AtTheMean)
    assert back.model.prior.parts[0] == Flat(2.0)


def test_parts_that_are_not_registered_are_given_again(tmp_path: Path) -> None:
    result = trained(Counts(shift=0.7), prior=Flat(2.0), estimator=AtTheMean())
    result.save(tmp_path / "model")
    with pytest.raises(bw.FileError, match=r"unknown prior 'flat'.*parts=\[Class\]"):
        bw.load(tmp_path / "model")
    back = bw.load(tmp_path / "model", parts=[Counts, Flat, AtTheMean])
    assert same(back, result)
    assert back.likelihood.shift == 0.7
    with pytest.raises(bw.SettingError, match="unknown likelihood 'counts'"):
        bw.LIKELIHOODS.resolve("counts")


def test_a_function_is_given_again_by_its_name(tmp_path: Path) -> None:
    result = trained(poisson_counts)
    result.save(tmp_path / "model")
    with pytest.raises(bw.FileError, match="the likelihood is `poisson_counts` of your own"):
        bw.load(tmp_path / "model")
    assert same(bw.load(tmp_path / "model", parts=[poisson_counts]), result)


@pytest.mark.parametrize(
    ("likelihood", "words"),
    [
        (lambda f: torch.distributions.Poisson(f.exp()), ["lambda", "no name", "register"]),
        (Nameless(), ["Nameless", "'gaussian'", "name"]),
    ],
)
def test_what_would_not_come_back_is_refused_when_saving(likelihood: Any, words: list[str], tmp_path: Path) -> None:
    result = trained(likelihood)
    with pytest.raises(bw.SettingError) as caught:
        result.save(tmp_path / "model")
    assert "\n" not in str(caught.value)
    assert all(word in str(caught.value) for word in words), caught.value
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("axis", "part", "words"),
    [
        ("likelihood", Flat, ["lacks `nll`"]),
        ("priors", Flat, ["did you mean 'prior'"]),
        ("prior", Flat(), ["give a class"]),
        ("likelihood", Nameless, ["'gaussian' is taken by"]),
        ("method", Flat, ["bayeswell.Method"]),
        ("method", bw.Method("bbb", "mine", "me", temperature=0.5), ["'bbb' is taken"]),
    ],
)
def test_what_cannot_be_registered_is_refused(axis: str, part: Any, words: list[str]) -> None:
    with pytest.raises(bw.SettingError) as caught:
        bw.register(axis, part)
    assert all(word in str(caught.value) for word in words), caught.value


def test_a_method_of_ones_own_has_a_name() -> None:
    own = bw.Method("warm", "mean-field at temperature 2", "none", temperature=2.0)
    try:
        bw.register("method", own)
        assert bw.find_method("warm") == own
        assert bw.find_method("f-warm").sharpness is not None
        assert trained("gaussian").method.name == "bbb"
        assert bw.fit(nn.Linear(2, 1), DATA, "warm", "gaussian", epochs=1).method.temperature == 2.0
    finally:
        bw.METHODS.pop("warm", None)


def test_other_installed_packages_bring_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry point ``axis.name`` of the group ``bayeswell.parts``, found when the name is first asked for."""
    (tmp_path / "elsewhere.py").write_text(
        "from dataclasses import dataclass\nfrom typing import ClassVar\nimport bayeswell as bw\n"
        "@dataclass(frozen=True)\nclass Wide(bw.Normal):\n"
        '    """A wide Gaussian."""\n    std: float = 9.0\n    name: ClassVar[str] = "wide"\n'
        "class Slow:\n    name, lr = 'slow', 1e-5\n    def build(self, groups):\n        return None\n"
    )
    found = tmp_path / "elsewhere-1.0.dist-info"
    found.mkdir()
    (found / "METADATA").write_text("Metadata-Version: 2.1\nName: elsewhere\nVersion: 1.0\n")
    (found / "entry_points.txt").write_text(
        "[bayeswell.parts]\nprior.wide = elsewhere:Wide\n"
        "prior.broken = elsewhere:Absent\nstepper.slow = elsewhere:Slow\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert float(bw.bayesian(nn.Linear(2, 1), prior="wide").prior.std_vector()[0]) == 9.0
    assert bw.PRIORS.knows("wide")
    with pytest.warns(bw.BayeswellWarning, match="prior 'broken' of elsewhere:Absent cannot be used"):
        assert not bw.PRIORS.knows("broken")
    assert resolve(bw.find_method("map").changed(stepper="slow")).stepper.lr == 1e-5


def test_what_is_installed_is_read_again_only_when_it_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every fit asks whether its optimizer is a sampler of another package."""
    monkeypatch.syspath_prepend(str(tmp_path))
    asked: list[str] = []

    def read(group: str) -> Any:
        asked.append(group)
        return entry_points(group=group)

    monkeypatch.setattr("bayeswell.registry.entry_points", read)
    for _ in range(3):
        assert not bw.PRIORS.knows("installed_later")
    assert len(asked) == 1
    (tmp_path / "later.py").write_text(
        "import bayeswell as bw\nclass Later(bw.Normal):\n    name = 'installed_later'\n"
    )
    found = tmp_path / "later-1.0.dist-info"
    found.mkdir()
    (found / "METADATA").write_text("Metadata-Version: 2.1\nName: later\nVersion: 1.0\n")
    (found / "entry_points.txt").write_text("[bayeswell.parts]\nprior.installed_later = later:Later\n")
    assert bw.PRIORS.knows("installed_later")
    assert len(asked) == 2
