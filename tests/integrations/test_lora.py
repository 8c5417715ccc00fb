"""Adapters of peft in networks of transformers: only they are Bayesian, and they are saved without their base."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from torch import Tensor, nn

import bayeswell as bw
from bayeswell.lifting.where import select

from .tiny import bert, gpt, sentences, walks

pytestmark = pytest.mark.skipif(find_spec("peft") is None, reason="peft is not installed")

METHODS: dict[str, dict[str, Any]] = {
    "bbb": {}, "k-tied": {}, "low-rank": {}, "ivon": {}, "laplace": {},
    "swag": {"collector": {"name": "swag", "start": 0.5}},
}  # fmt: skip
QUIET = pytest.mark.filterwarnings("ignore::bayeswell.errors.BayeswellWarning")  # short runs say that they are short


def inputs_of(columns: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: column for name, column in columns.items() if name != "labels"}


def contents(folder: Path) -> dict[str, Tensor]:
    with safe_open(folder / "tensors.safetensors", "pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 -- no mapping


def probabilities(result: Any, columns: dict[str, Tensor], **settings: Any) -> Tensor:
    found = result.predict(inputs_of(columns), draws=4, **settings)
    assert isinstance(found, bw.ClassPrediction)
    return found.probabilities


def test_only_adapters_are_bayesian_and_describe_says_what_else_is_trained() -> None:
    net = bert()
    trained = {name for name, parameter in net.named_parameters() if parameter.requires_grad}
    model = bw.bayesian(net, where="lora")
    rows = {row.name: row for row in model.describe().rows}
    bayesian = {name for name, row in rows.items() if row.posterior != "deterministic"}
    assert bayesian == {name for name in trained if ".lora_" in name}
    head = {name for name in trained if "modules_to_save" in name}
    assert len(bayesian) == 12
    assert trained == bayesian | head
    assert {rows[name].note for name in head} == {
        "trained, not Bayesian: one of modules_to_save; name it in where to give it a posterior"
    }
    frozen = {row.note for name, row in rows.items() if name not in trained}
    assert frozen == {"frozen (requires_grad=False)"}
    both = bw.bayesian(net, where=["*lora_*", "*modules_to_save*"]).describe()
    assert {row.name for row in both.rows if row.posterior != "deterministic"} == trained


def test_the_base_has_no_gradient_and_no_state_in_the_optimizer() -> None:
    columns = sentences(8)
    model = bw.bayesian(bert(), where="lora")
    before = {name: parameter.clone() for name, parameter in model.net.named_parameters()}
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    bw.ELBO("categorical", 8)(model, inputs_of(columns), columns["labels"]).total.backward()
    optimizer.step()
    held = {name for name, parameter in model.net.named_parameters() if not parameter.requires_grad}
    moved = {name for name, parameter in model.net.named_parameters() if not torch.equal(parameter, before[name])}
    assert moved == {name for name in before if "modules_to_save" in name} == before.keys() - held
    assert all(model.net.get_parameter(name).grad is None for name in held)
    assert len(optimizer.state) == 2 + len(moved)  # means, stds, and the head


def test_magnitudes_of_dora_and_biases_are_trained_and_tables_are_wired_as_tables() -> None:
    settings = {"target_modules": ["c_attn", "wte"], "use_dora": True, "bias": "lora_only"}
    model = bw.bayesian(gpt(**settings), where="lora", estimator="flipout")
    rows = {row.name: row for row in model.describe().rows}
    magnitude = next(name for name in rows if "attn.c_attn.lora_magnitude" in name)
    assert rows[magnitude].posterior == "deterministic"
    assert "DoRA's magnitude is a norm" in rows[magnitude].note
    bias = next(name for name in rows if name.endswith("c_attn.base_layer.bias"))
    assert rows[bias].note == "trained, not Bayesian: not frozen, and no adapter"
    # DoRA reads its adapters a second time, so that noise by layer would not be one network.
    assert "weight_sampling" in rows[next(name for name in rows if "c_attn.lora_A" in name)].estimator
    table = next(site for site in model.layout.sites if "lora_embedding_A" in site.name)
    assert (table.fan_in, table.fan_out) == (1, 4)
    columns = walks(6)
    bw.ELBO("next_token", 6)(model, inputs_of(columns), columns["labels"]).total.backward()


def test_adapters_are_found_by_name_in_any_network() -> None:
    class Low(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base = nn.Linear(4, 4).requires_grad_(False)
            self.lora_a, self.lora_b = nn.Linear(4, 2, bias=False), nn.Linear(2, 4, bias=False)

    chosen = select(nn.Sequential(Low(), nn.Linear(4, 2)), "lora")
    assert [site.name for site in chosen.layout.sites] == ["0.lora_a.weight", "0.lora_b.weight"]
    with pytest.raises(bw.SettingError, match="no parameter has 'lora_' in its name: put adapters into the network"):
        bw.bayesian(nn.Linear(2, 2), where="lora")


@QUIET
@pytest.mark.parametrize("method", METHODS)
def test_a_classifier_comes_back_onto_a_fresh_base(method: str, tmp_path: Path) -> None:
    """Trained, saved without the base, loaded onto a new base with another head: the same predictions bit for bit."""
    columns = sentences(32)
    result = bw.fit(bert(), columns, method, where="lora", epochs=4, batch_size=16, progress=False, **METHODS[method])
    result.save_adapter(tmp_path / "adapter")
    loaded = bw.load(tmp_path / "adapter", bert(head=5))
    assert torch.equal(probabilities(loaded, columns), probabilities(result, columns))
    assert torch.equal(probabilities(loaded, columns, batch_size=10), probabilities(result, columns, batch_size=10))
    _require_no_base(tmp_path / "adapter", result.model)


@QUIET
@pytest.mark.parametrize("method", ["bbb", "ivon"])
def test_a_language_model_comes_back_onto_a_fresh_base(method: str, tmp_path: Path) -> None:
    columns = walks(32)
    result = bw.fit(gpt(), columns, method, "next_token", where="lora", epochs=3, batch_size=16, progress=False)
    result.save_adapter(tmp_path / "adapter")
    loaded = bw.load(tmp_path / "adapter", gpt())
    assert torch.equal(probabilities(loaded, columns), probabilities(result, columns))
    assert probabilities(loaded, columns).shape == (32, 8, 40)
    _require_no_base(tmp_path / "adapter", result.model)


@QUIET
def test_members_of_an_ensemble_share_their_base(tmp_path: Path) -> None:
    columns = sentences(48)
    result = bw.fit(bert(), columns, "deep-ensemble", where="lora", epochs=1, members=2, progress=False)
    result.save_adapter(tmp_path / "adapter")
    _require_no_base(tmp_path / "adapter", result.model)
    loaded = bw.load(tmp_path / "adapter", bert(head=5))
    assert torch.equal(probabilities(loaded, columns), probabilities(result, columns))


def _require_no_base(folder: Path, model: bw.BayesianModule) -> None:
    """No tensor of the file has the name or the numbers of a frozen weight; all together are a fraction of the base."""
    found = contents(folder)
    frozen = {name: p.detach() for name, p in model.net.named_parameters() if not p.requires_grad}
    assert frozen
    for name, tensor in found.items():
        assert not any(name.endswith(held) for held in frozen), name
        same = [held for held, value in frozen.items() if value.shape == tensor.shape and torch.equal(value, tensor)]
        assert not same, (name, same)
    sites = model.layout.size
    assert all(name.startswith(("model.posterior.", "model.prior.", "model.net.")) for name in found)
    own = sum(t.numel() for name, t in found.items() if name.startswith("model.net."))
    assert own == sum(p.numel() for p in model.net.parameters() if p.requires_grad)
    record = json.loads((folder / "record.json").read_text())
    assert (
        record["base"]["numbers"] >= sum(p.numel() for p in frozen.values()) - 99
    )  # but for the head that is replaced
    assert sites == sum(torch.Size(site["shape"]).numel() for site in record["sites"])


def test_another_base_is_refused_in_one_line(tmp_path: Path) -> None:
    model = bw.bayesian(bert(), where="lora")
    bw.save_adapter(tmp_path / "adapter", model, "categorical")
    refusals = {
        "numbers are not .SHA-256 differs": bert(seed=1),
        r"was saved with shape \[4, 32\], the network given has \[2, 32\]": bert(r=2),
        "the adapter belongs to another base, of .* frozen tensors": bert(target_modules=["query", "value", "dense"]),
    }
    last = refusals["the adapter belongs to another base, of .* frozen tensors"]
    last.base_model.model.bert.extra = nn.Linear(3, 3).requires_grad_(False)  # type: ignore[union-attr]
    for line, net in refusals.items():
        with pytest.raises(bw.NetworkError, match=line) as refused:
            bw.load(tmp_path / "adapter", net)
        assert "\n" not in str(refused.value)
    with pytest.raises(bw.FileError, match="an adapter without its base: pass a network with the same base"):
        bw.load(tmp_path / "adapter")
    with pytest.raises(bw.SettingError, match="nothing in the network is frozen"):
        bw.save_adapter(tmp_path / "none", bw.bayesian(nn.Linear(2, 2)), "gaussian")
    bw.save_adapter(tmp_path / "unchecked", model, "categorical", checksum=False)
    bw.load(tmp_path / "unchecked", bert(seed=1))


def test_the_loss_of_a_language_model_is_that_of_transformers_and_padding_is_masked() -> None:
    """Their loss is a mean over tokens: times the tokens that count it is our NLL, summed over sequences."""
    columns, net = walks(6), gpt().eval()
    model = bw.bayesian(net, where="lora").eval()
    logits = model(**inputs_of(columns)).logits
    tokens = int((columns["labels"][:, 1:] != -100).sum())
    assert 0 < tokens < 6 * 7
    found = bw.NextToken().nll(logits, columns["labels"]).sum()
    torch.testing.assert_close(found, net(**columns).loss * tokens)
    # What stands under the mask is not looked at.
    other = {**inputs_of(columns)}
    other["input_ids"] = torch.where(other["attention_mask"] == 0, 7, other["input_ids"])
    kept = columns["attention_mask"].bool()
    torch.testing.assert_close(model(**other).logits[kept], logits[kept])


def test_draws_share_the_weights_of_the_base() -> None:
    """While a draw is called the frozen parameters are the very objects of the network."""
    model = bw.bayesian(bert(), where="lora").eval()
    before = {name: parameter.data_ptr() for name, parameter in model.net.named_parameters()}
    seen: list[dict[str, int]] = []
    frozen = model.net.get_submodule("base_model.model.bert.pooler")
    hook = frozen.register_forward_hook(
        lambda *_: seen.append({name: p.data_ptr() for name, p in model.net.named_parameters() if "lora_" not in name})
    )
    bw.predict(model, inputs_of(sentences(4)), "categorical", draws=3, seed=0)
    hook.remove()
    assert seen
    assert all(found == before for found in seen)


def test_dropout_is_on_in_training_and_off_in_predictions() -> None:
    columns = sentences(6)
    model = bw.bayesian(bert(lora_dropout=0.5), "delta", where="lora").train()
    first, second = (model(**inputs_of(columns)).logits for _ in range(2))
    assert not torch.equal(first, second)
    settings: dict[str, Any] = {"draws": 1, "seed": 0}
    found = [bw.predict(model, inputs_of(columns), "categorical", **settings).probabilities for _ in range(2)]
    assert torch.equal(*found)
    assert model.training
