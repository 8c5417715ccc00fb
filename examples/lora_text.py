"""Bayesian adapters in a frozen language model: how sure is it of a review, and of the same words garbled?

BERT-tiny and GPT-tiny are made from configurations, so nothing is downloaded; with ``from_pretrained`` all else stays
as it is. ``peft`` puts adapters into them, ``where="lora"`` makes those Bayesian, and their posterior is saved without
the base: kilobytes here, megabytes for a model of billions of weights.
"""

from __future__ import annotations

import os
import random
import tempfile
import warnings
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn
from transformers import BertConfig, BertForSequenceClassification, GPT2Config, GPT2LMHeadModel

import bayeswell as bw

SMOKE = bool(os.environ.get("BAYESWELL_SMOKE"))
EPOCHS, SENTENCES, DRAWS = (2, 60, 5) if SMOKE else (12, 400, 50)
OPENING = ("the film", "this book", "that play", "the music", "her story")
LINK = ("was", "is", "seemed", "felt")
DEGREE = ("very", "quite", "so", "rather")
WORDS = (("dull", "bad", "weak", "boring", "awful"), ("good", "great", "lovely", "moving", "superb"))
NOISE = ("zebra", "seven", "blue", "under", "fork", "quark", "lamp", "moss")
VOCABULARY = [
    "[PAD]",
    *sorted({word for part in (OPENING, LINK, DEGREE, *WORDS, NOISE) for p in part for word in p.split()}),
]
LENGTH = 6


def reviews(count: int, seed: int) -> tuple[list[str], Tensor]:
    """Sentences such as "the film was very good", and whether the word at their end is a kind one."""
    chance = random.Random(seed)
    kind = [chance.randrange(2) for _ in range(count)]
    texts = [" ".join(chance.choice(part) for part in (OPENING, LINK, DEGREE, WORDS[label])) for label in kind]
    return texts, torch.tensor(kind)


def garbled(texts: list[str], seed: int) -> list[str]:
    """As many words, of which training has seen none."""
    chance = random.Random(seed)
    return [" ".join(chance.choice(NOISE) for _ in text.split()) for text in texts]


def tokens(texts: list[str]) -> dict[str, Tensor]:
    """What a tokenizer of Hugging Face would give: padded, with the mask that says where."""
    rows = [[VOCABULARY.index(word) for word in text.split()] for text in texts]
    ids = torch.tensor([row + [0] * (LENGTH - len(row)) for row in rows])
    return {"input_ids": ids, "attention_mask": (ids != 0).long()}


def bert() -> nn.Module:
    """A classifier with adapters. Each call is a fresh copy of one and the same base."""
    torch.manual_seed(0)
    base = BertForSequenceClassification(
        BertConfig(
            vocab_size=len(VOCABULARY), hidden_size=64, num_hidden_layers=2, num_attention_heads=2, num_labels=2,
            intermediate_size=128, max_position_embeddings=LENGTH, initializer_range=0.15,
        )
    )  # fmt: skip
    return get_peft_model(base, LoraConfig(task_type="SEQ_CLS", r=4, target_modules=["query", "value", "dense"]))


def gpt() -> nn.Module:
    """A causal language model with adapters."""
    torch.manual_seed(0)
    base = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=len(VOCABULARY), n_embd=64, n_layer=2, n_head=2, n_positions=LENGTH, initializer_range=0.15,
            bos_token_id=0, eos_token_id=0,
        )
    )  # fmt: skip
    adapters = LoraConfig(task_type="CAUSAL_LM", r=4, target_modules=["c_attn", "c_fc", "c_proj"], fan_in_fan_out=True)
    return get_peft_model(base, adapters)


def saved_and_loaded(result: bw.Result, fresh: nn.Module, inputs: dict[str, Tensor]) -> bw.Predictor:
    """Through a folder that holds the adapters alone, onto a fresh base; the predictions are the same, bit for bit."""
    with tempfile.TemporaryDirectory() as folder:
        result.save_adapter(Path(folder) / "adapter")
        loaded = bw.load(Path(folder) / "adapter", fresh)
        size = sum(file.stat().st_size for file in (Path(folder) / "adapter").iterdir())
    frozen = sum(4 * p.numel() for p in fresh.parameters() if not p.requires_grad)
    one, other = (each.predict(inputs, draws=DRAWS) for each in (result, loaded))
    assert isinstance(one, bw.ClassPrediction)
    assert isinstance(other, bw.ClassPrediction)
    same = torch.equal(one.probabilities, other.probabilities)
    print(f"  saved {size / 1e3:.0f} kB without the base's {frozen / 1e3:.0f} kB; loaded, it predicts the same: {same}")
    return loaded


def main() -> None:
    """Train, save, load, and ask both for reviews and for garbled text."""
    warnings.simplefilter("ignore" if SMOKE else "default", bw.BayeswellWarning)
    torch.set_num_threads(1)
    texts, labels = reviews(SENTENCES, seed=1)
    new, truth = reviews(100, seed=2)
    nonsense = garbled(new, seed=3)

    print("BERT-tiny, a classifier:")
    result = bw.fit(bert(), {**tokens(texts), "labels": labels}, "bbb", where="lora", epochs=EPOCHS)
    loaded = saved_and_loaded(result, bert(), tokens(new))
    for name, sentences in (("reviews", new), ("garbled", nonsense)):
        found = loaded.predict(tokens(sentences), draws=DRAWS)
        assert isinstance(found, bw.ClassPrediction)
        right = (
            f", {100 * (found.probabilities.argmax(1) == truth).float().mean():.0f}% right" if sentences is new else ""
        )
        print(
            f"  {name}: entropy {found.entropy.mean():.3f} nats, of which epistemic {found.epistemic.mean():.3f}{right}"
        )

    print("GPT-tiny, a language model:")
    columns = tokens(texts)
    columns["labels"] = columns["input_ids"].masked_fill(columns["attention_mask"] == 0, -100)
    result = bw.fit(gpt(), columns, "bbb", "next_token", where="lora", epochs=EPOCHS)
    loaded = saved_and_loaded(result, gpt(), tokens(new))
    for name, sentences in (("reviews", new), ("garbled", nonsense)):
        inputs = tokens(sentences)
        found = loaded.predict(inputs, draws=DRAWS)
        assert isinstance(found, bw.ClassPrediction)
        counts = inputs["attention_mask"][:, 1:].bool()
        following = found.probabilities[:, :-1].gather(2, inputs["input_ids"][:, 1:, None])[..., 0]
        surprise, unsure = -following[counts].log().mean(), found.epistemic[:, :-1][counts].mean()
        print(f"  {name}: {surprise:.2f} nats a token, epistemic uncertainty of the next token {unsure:.3f} nats")
    first = loaded.predict(tokens(["the film was very"]), draws=DRAWS)
    assert isinstance(first, bw.ClassPrediction)
    likely = first.probabilities[0, 3].topk(3)
    words = ", ".join(f"{VOCABULARY[i]} {p:.2f}" for p, i in zip(likely.values, likely.indices.tolist(), strict=True))
    print(f"  the film was very ... {words}")


if __name__ == "__main__":
    main()
