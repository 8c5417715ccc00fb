"""Tiny networks of transformers with adapters of peft, made from configurations: nothing is downloaded.

Both are imported by the first network: most workers of `make test` never make one.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

VOCABULARY, LENGTH, CLASSES, PAD = 40, 8, 3, 0


def bert(seed: int = 0, head: int = 0, **settings: Any) -> nn.Module:
    """A classifier. ``head`` draws its head, which a new one has anew wherever the base is loaded."""
    from peft import LoraConfig, get_peft_model
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(seed)
    net = BertForSequenceClassification(
        BertConfig(
            vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64,
            max_position_embeddings=LENGTH, num_labels=CLASSES, initializer_range=0.2, pad_token_id=PAD,
        )
    )  # fmt: skip
    torch.manual_seed(head)
    net.classifier.reset_parameters()
    chosen = {"r": 4, "target_modules": ["query", "value", "dense"], "task_type": "SEQ_CLS", **settings}
    return get_peft_model(net, LoraConfig(**chosen))  # type: ignore[no-any-return]


def gpt(seed: int = 0, **settings: Any) -> nn.Module:
    """A causal language model, its output tied to its embedding."""
    from peft import LoraConfig, get_peft_model
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(seed)
    net = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=VOCABULARY, n_embd=32, n_layer=1, n_head=2, n_positions=LENGTH, bos_token_id=PAD,
            eos_token_id=PAD, pad_token_id=PAD, initializer_range=0.2,
        )
    )  # fmt: skip
    chosen = {
        "r": 4,
        "target_modules": ["c_attn", "c_fc"],
        "task_type": "CAUSAL_LM",
        "fan_in_fan_out": True,
        **settings,
    }
    return get_peft_model(net, LoraConfig(**chosen))  # type: ignore[no-any-return]


def masked(tokens: Tensor) -> dict[str, Tensor]:
    """Every second sequence ends in padding."""
    mask = torch.ones_like(tokens)
    mask[::2, -2:] = 0
    return {"input_ids": tokens.masked_fill(mask == 0, PAD), "attention_mask": mask}


def sentences(count: int, seed: int = 1) -> dict[str, Tensor]:
    """Random tokens, one of which (1, 2 or 3) tells the class."""
    torch.manual_seed(seed)
    tokens, labels = torch.randint(4, VOCABULARY, (count, LENGTH)), torch.randint(0, CLASSES, (count,))
    tokens[torch.arange(count), torch.randint(0, LENGTH - 2, (count,))] = 1 + labels
    return {**masked(tokens), "labels": labels}


def walks(count: int, seed: int = 1) -> dict[str, Tensor]:
    """Each token is the last plus one; labels are the tokens, -100 where there is padding."""
    torch.manual_seed(seed)
    tokens = (torch.randint(0, VOCABULARY, (count, 1)) + torch.arange(LENGTH)) % (VOCABULARY - 1) + 1
    columns = masked(tokens)
    return {**columns, "labels": tokens.masked_fill(columns["attention_mask"] == 0, -100)}
