"""Bayesian adapters in a frozen language model, saved without the base.

A tiny BERT is made from a configuration, so nothing is downloaded; with ``from_pretrained`` all else stays the same.
``peft`` adds adapters, and ``where="lora"`` makes them Bayesian.
"""

from __future__ import annotations

import os
import random
import tempfile
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn
from transformers import BertConfig, BertForSequenceClassification

import bayeswell as bw

SMOKE = bool(os.environ.get("BAYESWELL_SMOKE"))
EPOCHS, SENTENCES, DRAWS = (2, 60, 5) if SMOKE else (12, 400, 50)
PARTS = (("film", "book", "play", "music"), ("was", "is", "seemed"), ("very", "quite", "so"))
MOODS = (("dull", "bad", "weak", "boring", "awful"), ("good", "great", "lovely", "moving", "superb"))
UNKNOWN = ("zebra", "seven", "blue", "under", "fork", "quark")
VOCABULARY = ["[PAD]", *sorted({word for part in (*PARTS, *MOODS, UNKNOWN) for word in part})]


def reviews(count: int, seed: int) -> tuple[dict[str, Tensor], Tensor]:
    """Return sentences such as "film was very good" as tokens, and whether their last word is kind."""
    dice = random.Random(seed)
    labels = [dice.randrange(2) for _ in range(count)]
    return tokens([[dice.choice(part) for part in (*PARTS, MOODS[label])] for label in labels]), torch.tensor(labels)


def tokens(sentences: list[list[str]]) -> dict[str, Tensor]:
    """Return what a tokenizer of Hugging Face returns."""
    ids = torch.tensor([[VOCABULARY.index(word) for word in words] for words in sentences])
    return {"input_ids": ids, "attention_mask": (ids != 0).long()}


def network() -> nn.Module:
    """Return a classifier with adapters; each call makes the same base."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(VOCABULARY), hidden_size=64, num_hidden_layers=2, num_attention_heads=2, num_labels=2,
        intermediate_size=128, max_position_embeddings=4, initializer_range=0.15,
    )  # fmt: skip
    adapters = LoraConfig(task_type="SEQ_CLS", r=4, target_modules=["query", "value", "dense"])
    return get_peft_model(BertForSequenceClassification(config), adapters)


def main() -> None:
    torch.set_num_threads(1)
    train, labels = reviews(SENTENCES, seed=1)
    new, truth = reviews(100, seed=2)
    dice = random.Random(3)
    unknown = tokens([[dice.choice(UNKNOWN) for _ in range(4)] for _ in range(100)])
    result = bw.fit(network(), {**train, "labels": labels}, "bbb", where="lora", epochs=EPOCHS, progress=False)
    with tempfile.TemporaryDirectory() as folder:
        result.save_adapter(Path(folder) / "adapter")
        loaded = bw.load(Path(folder) / "adapter", network())
        size = sum(file.stat().st_size for file in (Path(folder) / "adapter").iterdir())
    print(f"the saved adapters take {size / 1e3:.0f} kB")
    found = loaded.predict(new, draws=DRAWS)
    print(f"right for {(found.labels == truth).double().mean():.0%} of new reviews, entropy {found.entropy.mean():.3f}")
    print(f"entropy on unknown words {loaded.predict(unknown, draws=DRAWS).entropy.mean():.3f} nats")


if __name__ == "__main__":
    main()
