"""What a network returns, as one tensor: with a hook or without, everywhere the same as the bare network."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayeswell as bw
from bayeswell.outputs import tensor_of
from bayeswell.predictive import expected_nll

pytestmark = pytest.mark.filterwarnings("ignore::bayeswell.BayeswellWarning")

X = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
Y = X[:, :3].argmax(1)


class Net(nn.Module):
    """Two layers whose logits are returned as a function says."""

    def __init__(self, returned: Callable[[Tensor], Any] = lambda logits: logits) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first, self.second, self.returned = nn.Linear(4, 6), nn.Linear(6, 3), returned

    def forward(self, x: Tensor) -> Any:
        return self.returned(self.second(torch.tanh(self.first(x))))


KNOWN: dict[str, Callable[[Tensor], Any]] = {
    "logits by attribute": lambda logits: SimpleNamespace(logits=logits, loss=None),
    "logits by name": lambda logits: {"hidden": logits[:, :1], "logits": logits},
    "the first of a tuple": lambda logits: (logits, logits[:, :2], None),
    "the first of a list": lambda logits: [logits, (logits, logits)],
}


def hidden(found: Any) -> Tensor:
    states: Tensor = found["states"]
    return states


METHODS = ["bbb", "sgvb-lrt", "flipout", "vl", "laplace", "sghmc", "deep-ensemble", "f-bbb"]


@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains_and_predicts_as_the_bare_network(method: str) -> None:
    settings: dict[str, Any] = {"epochs": 2, "progress": False, "batch_size": 10, "validation": (X, Y)}
    if method == "deep-ensemble":
        settings["members"] = 2
    wanted = bw.fit(Net(), (X, Y), method, **settings)
    known = bw.fit(Net(KNOWN["logits by attribute"]), (X, Y), method, **settings)
    hooked = bw.fit(Net(lambda logits: {"states": logits}), (X, Y), method, output=hidden, **settings)
    for found in (known, hooked):
        assert torch.equal(found.predict(X, draws=5).probabilities, wanted.predict(X, draws=5).probabilities)
        assert found.elbo == wanted.elbo


@pytest.mark.parametrize("form", KNOWN)
def test_what_needs_no_hook(form: str) -> None:
    model, plain = bw.bayesian(Net(KNOWN[form])), bw.bayesian(Net())
    totals = [bw.ELBO("categorical", 30)(m, X, Y, generator=bw.make_generator(3)).total for m in (model, plain)]
    assert torch.equal(*totals)
    for prediction in ("sampled", "linearised"):
        found, wanted = (
            bw.predict(m, X, "categorical", draws=4, seed=1, prediction=prediction) for m in (model, plain)
        )
        assert torch.equal(found.probabilities, wanted.probabilities)
    assert expected_nll(model, X, Y, "categorical", draws=3, seed=0) == expected_nll(
        plain, X, Y, "categorical", draws=3, seed=0
    )
    # Whoever calls the module gets what the network returns.
    for mode in (True, False):
        assert type(model.train(mode)(X)) is type(Net(KNOWN[form])(X))


def test_halves_of_one_shape_are_not_guessed_at() -> None:
    """(mean, log variance): the first half would be trained on in silence."""
    pair = (X, X.exp())
    assert tensor_of(pair) is pair
    loss = (torch.tensor(1.0), X)
    assert tensor_of(loss) is loss
    assert tensor_of({"hidden": X}) == {"hidden": X}


def test_a_hook_runs_in_stacks_of_convolutions_too() -> None:
    net = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 4))
    model = bw.bayesian(net, output=lambda outputs: outputs[:, :3])
    assert model.stack() is not None
    images = torch.randn(5, 1, 6, 6)
    found = bw.predict(model, images, "categorical", draws=6, seed=1, keep_samples=True)
    assert found.samples.shape == (6, 5, 3)
    draws = list(model.draws(6, bw.make_generator(1)))
    torch.testing.assert_close(found.samples[2], model.returned(model.net, draws[2], images)[:, :3].softmax(1))
    assert model.eval()(images).shape == (5, 3)
    assert bw.predict(model, images, "categorical", draws=2, output=lambda outputs: outputs).probabilities.shape == (
        5,
        4,
    )


def test_a_hook_is_asked_for_when_a_model_is_loaded(tmp_path: Path) -> None:
    net = Net(lambda logits: {"states": logits})
    result = bw.fit(net, (X, Y), "bbb", epochs=1, progress=False, output=hidden)
    result.save(tmp_path / "model")
    with pytest.raises(bw.FileError, match=r"output = 'hidden'.*no code.*load\(path, output=\.\.\.\)"):
        bw.load(tmp_path / "model", net)
    loaded = bw.load(tmp_path / "model", net, output=hidden)
    assert torch.equal(loaded.predict(X).probabilities, result.predict(X).probabilities)
    again = bw.fit(result, (X, Y), epochs=1, progress=False)
    assert again.model.output is hidden


def test_a_hook_is_a_function() -> None:
    for bad in ("logits", 3, nn.Identity()):
        with pytest.raises(bw.SettingError, match="output"):
            bw.bayesian(Net(), output=bad)  # type: ignore[arg-type]
    with pytest.raises(bw.NetworkError, match="hidden returned a"):
        bw.fit(Net(lambda logits: {"states": [logits]}), (X, Y), output=hidden)


def test_a_real_transformer_with_masks_padding_and_labels(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    datasets = pytest.importorskip("datasets")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=30, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=16, num_labels=2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    net = transformers.BertForSequenceClassification(config)
    ids = torch.randint(2, 30, (24, 9), generator=torch.Generator().manual_seed(1))
    lengths = torch.arange(24) % 4 + 5
    mask = (torch.arange(9) < lengths[:, None]).long()
    labels = ids[:, 0] % 2
    batch = {"input_ids": ids * mask, "attention_mask": mask, "labels": labels}
    result = bw.fit(net, batch, "bbb", epochs=1, progress=False)
    wanted = result.predict(batch, draws=3)
    # A data set with labels, and a text that is left out.
    rows = datasets.Dataset.from_dict({**{name: values.tolist() for name, values in batch.items()}, "text": ["a"] * 24})
    assert torch.equal(result.predict(rows, draws=3).probabilities, wanted.probabilities)
    same = bw.fit(net, rows, "bbb", epochs=1, progress=False)
    assert torch.equal(same.predict(batch, draws=3).probabilities, wanted.probabilities)
    # What is behind the mask does not matter: each sentence alone, without padding.
    alone = [
        result.predict({"input_ids": ids[i : i + 1, :n], "attention_mask": mask[i : i + 1, :n]}, draws=3).probabilities
        for i, n in enumerate(lengths[:3].tolist())
    ]
    torch.testing.assert_close(torch.cat(alone), wanted.probabilities[:3], rtol=1e-4, atol=1e-5)
    result.save(tmp_path / "bert")
    assert torch.equal(bw.load(tmp_path / "bert", net).predict(batch, draws=3).probabilities, wanted.probabilities)
