"""Whom should a doctor see? A clinical table with missing values and texts, and a model that says when it is unsure.

The table is made here: 900 patients of three hospitals, a third of the lab values never measured, drugs and hospitals
as texts. The model is sure of some patients and not of others; the third that it is least sure of is referred to a
doctor. A hospital that the training data do not have is told.
"""

from __future__ import annotations

import os
import warnings

import numpy as np
import pandas as pd
import torch
from torch import nn

import bayeswell as bw

SMOKE = bool(os.environ.get("BAYESWELL_SMOKE"))
EPOCHS, DRAWS = (3, 10) if SMOKE else (40, 100)


def patients(
    n: int, seed: int, hospitals: tuple[str, ...] = ("Lake", "Park", "Shore")
) -> tuple[pd.DataFrame, pd.Series]:
    """A table as a clinic keeps it, and whether each patient came back within a month."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "hospital": rng.choice(hospitals, n),
            "drug": pd.Categorical(rng.choice(["none", "statin", "beta blocker"], n)),
            "age": rng.normal(62, 14, n).round(),
            "smoker": rng.random(n) < 0.3,
            "creatinine": rng.lognormal(4.5, 0.4, n).round(1),  # micromol/l
            "visits": pd.array(rng.poisson(2, n), dtype="Int64"),
        }
    )
    risk = (
        0.05 * (table["age"] - 62) + 1.2 * table["smoker"] + 0.02 * (table["creatinine"] - 95) + 0.4 * table["visits"]
    )
    risk = 2 * (risk - 1.5 * (table["drug"] == "statin") - 0.8)
    returned = rng.random(n) < 1 / (1 + np.exp(-risk.astype(float)))
    table.loc[rng.random(n) < 0.35, "creatinine"] = np.nan  # never measured
    table.loc[rng.random(n) < 0.1, "visits"] = pd.NA
    return table, pd.Series(np.where(returned, "returns", "stays well"))


def main() -> None:
    """Train on the table as it is, predict, refer the unsure third."""
    warnings.simplefilter("ignore" if SMOKE else "default", bw.BayeswellWarning)
    torch.manual_seed(0)
    table, outcome = patients(900, seed=1)
    net = nn.Sequential(nn.LazyLinear(32), nn.ReLU(), nn.LazyLinear(2))  # how wide the table is, it finds out itself

    result = bw.fit(net, (table, outcome), epochs=EPOCHS, standardise=True, progress=False)
    assert result.preparation is not None
    print(f"{table.shape[1]} columns became {len(result.preparation.features or ())} numbers:")
    print("  " + ", ".join(result.preparation.features or ()))

    new, truth = patients(600, seed=2)
    found = result.predict(new[sorted(new)], draws=DRAWS)  # columns are matched by name, in any order
    assert isinstance(found, bw.ClassPrediction)
    right = np.array(found.label_names) == truth.to_numpy()
    unsure = found.entropy.argsort(descending=True).numpy()
    referred, decided = unsure[:200], unsure[200:]
    print(f"\nright for {100 * right.mean():.0f} % of all {len(new)} new patients")
    print(f"right for {100 * right[decided].mean():.0f} % of the 400 it decides itself")
    print(f"right for {100 * right[referred].mean():.0f} % of the 200 it refers to a doctor")

    missing = new["creatinine"].isna().to_numpy()
    entropy = found.entropy.numpy()
    known, unknown = entropy[~missing].mean(), entropy[missing].mean()
    print(f"\nmean entropy where creatinine was measured {known:.2f} nats, where it was not {unknown:.2f}")

    print("\nA hospital that it has never seen:")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        result.predict(patients(50, seed=3, hospitals=("Hill",))[0], draws=DRAWS)
    for warning in said:
        print(f"  {warning.message}")


if __name__ == "__main__":
    main()
