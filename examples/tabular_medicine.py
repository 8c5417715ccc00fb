"""A clinical table with missing values and texts: decide where the model is sure, refer the rest to a doctor.

The table is simulated: 900 patients of three hospitals, a third of the lab values never measured.
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


def patients(n: int, seed: int, hospitals: tuple[str, ...] = ("Lake", "Park", "Shore")) -> tuple[pd.DataFrame, list]:
    """Return a table, and whether each patient comes back within a month."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "hospital": rng.choice(hospitals, n),
            "drug": pd.Categorical(rng.choice(["none", "statin", "beta blocker"], n)),
            "age": rng.normal(62, 14, n).round(),
            "smoker": rng.random(n) < 0.3,
            "creatinine": rng.lognormal(4.5, 0.4, n).round(1),
        }
    )
    risk = 0.05 * (table["age"] - 62) + 1.2 * table["smoker"] + 0.02 * (table["creatinine"] - 95)
    risk = 2 * (risk - 1.5 * (table["drug"] == "statin"))
    returned = rng.random(n) < 1 / (1 + np.exp(-risk.astype(float)))
    table.loc[rng.random(n) < 0.35, "creatinine"] = np.nan
    return table, np.where(returned, "returns", "stays well").tolist()


def main() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.LazyLinear(32), nn.ReLU(), nn.LazyLinear(2))  # the width of the prepared table is found out
    result = bw.fit(net, patients(900, seed=1), epochs=EPOCHS, standardize=True, progress=False)
    print("columns of the network:", ", ".join(result.preparation.features))

    new, truth = patients(600, seed=2)
    found = result.predict(new[sorted(new)], draws=DRAWS)  # columns are found by name, in any order
    right = np.array(found.label_names) == np.array(truth)
    order = found.entropy.argsort(descending=True).numpy()
    print(f"right for {right.mean():.0%} of {len(new)} new patients")
    print(f"right for {right[order[200:]].mean():.0%} of the 400 with the lowest entropy")
    print(f"right for {right[order[:200]].mean():.0%} of the 200 that it refers to a doctor")

    print("A hospital that is not in the training data:")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result.predict(patients(50, seed=3, hospitals=("Hill",))[0], draws=DRAWS)
    for warning in caught:
        print(f"  {warning.message}")


if __name__ == "__main__":
    main()
