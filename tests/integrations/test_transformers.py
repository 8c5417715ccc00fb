"""Tiny networks of transformers with adapters of peft, made from configurations: nothing is downloaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from torch import Tensor, nn

from bayeswell.nn import bayesian
from bayeswell.prediction import load
from bayeswell.training import fit

VOCABULARY, LENGTH, CLASSES, PAD = 40, 8, 3, 0

pytestmark = [
    pytest.mark.slow,  # the import of transformers
    pytest.mark.filterwarnings("ignore::bayeswell.core.errors.BayeswellWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


def bert() -> nn.Module:
    """A classifier with adapters."""
    peft, transformers = pytest.importorskip("peft"), pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=LENGTH, num_labels=CLASSES, initializer_range=0.2, pad_token_id=PAD,
    )  # fmt: skip
    net = transformers.BertForSequenceClassification(config)
    adapters = peft.LoraConfig(r=4, target_modules=["query", "value", "dense"], task_type="SEQ_CLS")
    found: nn.Module = peft.get_peft_model(net, adapters)
    return found


def gpt() -> nn.Module:
    """A causal language model with adapters."""
    peft, transformers = pytest.importorskip("peft"), pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY, n_embd=32, n_layer=1, n_head=2, n_positions=LENGTH, bos_token_id=PAD, eos_token_id=PAD,
        pad_token_id=PAD, initializer_range=0.2,
    )  # fmt: skip
    adapters = peft.LoraConfig(r=4, target_modules=["c_attn", "c_fc"], task_type="CAUSAL_LM", fan_in_fan_out=True)
    found: nn.Module = peft.get_peft_model(transformers.GPT2LMHeadModel(config), adapters)
    return found


def sentences(count: int) -> dict[str, Tensor]:
    """Random tokens, one of which (1, 2 or 3) is the class; every second sequence ends in padding."""
    torch.manual_seed(1)
    tokens, labels = torch.randint(4, VOCABULARY, (count, LENGTH)), torch.randint(0, CLASSES, (count,))
    tokens[:, 1] = labels + 1
    mask = torch.ones_like(tokens)
    mask[::2, -2:] = 0
    return {"input_ids": tokens.masked_fill(mask == 0, PAD), "attention_mask": mask, "labels": labels}


def inputs_of(columns: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: column for name, column in columns.items() if name != "labels"}


def probabilities(result: Any, columns: dict[str, Tensor]) -> Tensor:
    found: Tensor = result.predict(inputs_of(columns), draws=4).probabilities
    return found


def assert_no_base(folder: Path, model: Any) -> None:
    """No saved tensor equals a frozen weight."""
    frozen = [p.detach() for p in model.net.parameters() if not p.requires_grad]
    assert frozen
    with safe_open(folder / "tensors.safetensors", "pt") as file:
        for name in file.keys():  # noqa: SIM118 -- no mapping
            tensor = file.get_tensor(name)
            assert not any(value.shape == tensor.shape and torch.equal(value, tensor) for value in frozen), name


def test_only_adapters_are_bayesian() -> None:
    net = bert()
    trained = {name for name, parameter in net.named_parameters() if parameter.requires_grad}
    model = bayesian(net, where="lora")
    bayesian_names = {site.name for site in model.layout.sites}
    assert bayesian_names == {name for name in trained if ".lora_" in name}
    assert trained - bayesian_names == {name for name in trained if "modules_to_save" in name}


@pytest.mark.parametrize("method", ["bbb", "swag", "laplace"])
def test_saved_adapters_predict_the_same_on_a_new_base(method: str, tmp_path: Path) -> None:
    columns = sentences(32)
    result = fit(bert(), columns, method, where="lora", epochs=8, batch_size=16, progress=False)
    result.save_adapter(tmp_path / "adapter")
    loaded = load(tmp_path / "adapter", bert())
    assert torch.equal(probabilities(loaded, columns), probabilities(result, columns))
    assert_no_base(tmp_path / "adapter", result.model)


def test_language_models_are_trained_on_next_tokens() -> None:
    tokens = (torch.arange(LENGTH) + torch.arange(32)[:, None]) % (VOCABULARY - 4) + 4  # counting: x_t+1 = x_t + 1
    columns = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": tokens}
    result = fit(
        gpt(), columns, "bbb", "next_token", where="lora", epochs=8, batch_size=16, lr=0.01, progress=False,
        temperature=0.1,
    )  # fmt: skip
    losses = [record.nll for record in result.history.epochs]
    assert losses[-1] < losses[0]
    assert probabilities(result, columns).shape == (32, LENGTH, VOCABULARY)


def test_datasets_of_hugging_face_are_training_data() -> None:
    datasets = pytest.importorskip("datasets")
    columns = sentences(32)
    dataset = datasets.Dataset.from_dict({name: column.tolist() for name, column in columns.items()})
    settings: dict[str, Any] = {"where": "lora", "epochs": 1, "batch_size": 16, "progress": False}
    found = fit(bert(), dataset.with_format("torch"), "map", **settings)
    assert probabilities(found, columns).shape == (32, CLASSES)
