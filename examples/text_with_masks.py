"""Which sentences is it unsure about? A small transformer on sentences of unequal length and rare classes.

Sentences are made of words of three moods, with slips; one in twelve is a complaint, one in four is praise.
A data set of Hugging Face's kind gives columns by name, a loader pads each batch, the mask says what is padding, and
class weights keep the rare class from being forgotten. A few sentences mix two moods: a network should be unsure there.
"""

from __future__ import annotations

import os
import random
import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

import bayeswell as bw

SMOKE = bool(os.environ.get("BAYESWELL_SMOKE"))
EPOCHS, SENTENCES, DRAWS = (2, 240, 5) if SMOKE else (12, 1200, 50)
SLIPS = 0.3
MOODS = ("neutral", "praise", "complaint")
WORDS = {
    "neutral": ["arrived", "on", "monday", "with", "the", "usual", "parcel", "and", "a", "note", "from", "office"],
    "praise": ["lovely", "helpful", "perfect", "quick", "kind", "delighted", "thanks", "superb"],
    "complaint": ["broken", "late", "rude", "refund", "missing", "damaged", "never", "angry"],
}
VOCABULARY = ["<pad>", *sorted({word for words in WORDS.values() for word in words})]


def sentence(dice: random.Random, moods: list[str]) -> dict[str, Any]:
    """Up to a dozen words, a few of them of the mood; of two moods, some of each; now and then a word slips in."""
    words = dice.choices(WORDS["neutral"], k=dice.randint(2, 9))
    words += [dice.choice(WORDS[dice.choice(MOODS)]) for _ in range(2) if dice.random() < SLIPS]
    words += [dice.choice(WORDS[mood]) for mood in moods for _ in range(dice.randint(1, 2))]
    dice.shuffle(words)
    return {"text": " ".join(words), "input_ids": [VOCABULARY.index(w) for w in words], "label": MOODS.index(moods[-1])}


def padded(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """A batch as tokenizers give it: as long as its longest sentence, with a mask."""
    longest = max(len(row["input_ids"]) for row in rows)
    ids = torch.tensor([row["input_ids"] + [0] * (longest - len(row["input_ids"])) for row in rows])
    labels = torch.tensor([row["label"] for row in rows])
    return {"input_ids": ids, "attention_mask": (ids > 0).long(), "labels": labels}


class Reader(nn.Module):
    """An ordinary transformer encoder; it returns a mapping, as many do."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.words = nn.Embedding(len(VOCABULARY), width, padding_idx=0)
        self.encoder = nn.TransformerEncoderLayer(width, 2, 48, dropout=0.0, batch_first=True)
        self.head = nn.Linear(width, len(MOODS))

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> dict[str, Tensor]:
        """Logits from the mean over what is no padding."""
        states = self.encoder(self.words(input_ids), src_key_padding_mask=attention_mask == 0)
        share = attention_mask / attention_mask.sum(1, keepdim=True)
        return {"states": states, "logits": self.head((states * share[..., None]).sum(1))}


def main() -> None:
    """Train, and look at the rare class and at the sentences in doubt."""
    warnings.simplefilter("ignore" if SMOKE else "default", bw.BayeswellWarning)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dice = random.Random(0)
    rows = [
        sentence(dice, dice.choices([["neutral"], ["praise"], ["complaint"]], (8, 3, 1))[0]) for _ in range(SENTENCES)
    ]
    train, test = rows[: SENTENCES * 2 // 3], rows[SENTENCES * 2 // 3 :]
    mixed = [sentence(dice, ["praise", "complaint"]) for _ in range(6)]
    loader = DataLoader(train, batch_size=32, shuffle=True, collate_fn=padded)  # type: ignore[arg-type, var-annotated]
    held_out = DataLoader(test + mixed, batch_size=64, collate_fn=padded)  # type: ignore[arg-type, var-annotated]
    shares = torch.bincount(torch.tensor([row["label"] for row in train]), minlength=3) / len(train)
    weights = [float(weight) for weight in 1 / (3 * shares)]
    print(f"{len(train)} sentences: " + ", ".join(f"{m} {s:.0%}" for m, s in zip(MOODS, shares.tolist(), strict=True)))

    for name, likelihood in (("plain", "categorical"), ("weighted", {"name": "categorical", "class_weights": weights})):
        result = bw.fit(Reader(), loader, "bbb", likelihood, epochs=EPOCHS, validation=held_out, progress=False)
        found = result.predict(held_out, draws=DRAWS)  # in the order of the loader
        assert isinstance(found, bw.ClassPrediction)
        guess, truth = found.probabilities.argmax(1)[: len(test)], torch.tensor([row["label"] for row in test])
        recall = [float((guess[truth == mood] == mood).float().mean()) for mood in range(3)]
        print(f"\n{name}: recall " + ", ".join(f"{m} {r:.2f}" for m, r in zip(MOODS, recall, strict=True)))
        doubt, mixture = found.entropy[: len(test)].mean(), found.entropy[len(test) :].mean()
        print(
            f"mean entropy: {float(doubt):.2f} nats on test sentences, {float(mixture):.2f} where two moods are mixed"
        )
    print("\nmost in doubt (entropy, of which the model does not know):")
    for place in found.entropy.argsort(descending=True)[:5].tolist():
        p = ", ".join(f"{mood} {float(q):.2f}" for mood, q in zip(MOODS, found.probabilities[place], strict=True))
        unsure = f"{float(found.entropy[place]):.2f} ({float(found.mutual_information[place]):.2f})"
        print(f"  {unsure}  {(test + mixed)[place]['text'][:70]}\n      {p}")


if __name__ == "__main__":
    main()
