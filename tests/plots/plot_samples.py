"""A record for every plot, with numbers of no special kind."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from bayeswell.plots import heat_map_record

RNG = np.random.default_rng(7)


def epochs(count: int, start: float, end: float, *, member: int = 0, classes: bool = True) -> list[dict[str, Any]]:
    rows = []
    for epoch in range(count):
        share = 1 - math.exp(-4 * epoch / max(1, count - 1))
        nll = start + (end - start) * share
        row: dict[str, Any] = {
            "member": member,
            "epoch": epoch,
            "step": 29 * (epoch + 1),
            "total": nll + 1.7,
            "nll": nll,
        }
        row |= {"kl": 4570.0 - 900 * share, "std_ratio": 0.05 + 0.1 * share}
        row |= {"accuracy": 0.21 + 0.75 * share} if classes else {"rmse": 3.1 * nll}
        row |= {"lr.means": 3e-3 * (1 + math.cos(math.pi * epoch / count)) / 2 + 1e-6}
        row |= {"lr.stds": 10 * row["lr.means"], "validation.nll": nll * 1.12}
        rows.append(row | ({"validation.accuracy": row["accuracy"] - 0.03} if classes else {}))
    return rows


def with_test(rows: list[dict[str, Any]], start: int = 7) -> list[dict[str, Any]]:
    """With scores on a test set, from some epoch on also of an average."""
    tested = [row | {"test.nll": 1.2 * row["nll"], "test.accuracy": row["accuracy"] - 0.04} for row in rows]
    return [row | ({"test.average.nll": 1.1 * row["nll"]} if row["epoch"] >= start else {}) for row in tested]


def bins(sharpness: float) -> dict[str, Any]:
    low = np.arange(3, 15) / 15
    confidence = low + 0.031
    accuracy = np.clip(confidence - sharpness * (confidence - 0.2), 0, 1)
    count = (40 * np.exp(4 * low)).round()
    gap = float((count * np.abs(accuracy - confidence)).sum() / count.sum())
    return {
        "low": low.tolist(),
        "high": (low + 1 / 15).tolist(),
        "count": count.tolist(),
        "confidence": confidence.tolist(),
        "accuracy": accuracy.tolist(),
        "ece": gap,
    }


def curve(power: float, top: float) -> dict[str, Any]:
    coverage = np.arange(1, 501) / 500
    return {"coverage": coverage.tolist(), "risk": (top * coverage**power).tolist(), "aurc": top / (power + 1)}


def spectrum(layer: str, first: float) -> dict[str, Any]:
    stds = np.array([first, *((1 - first) * 0.5 ** np.arange(1, 20))])
    means = 0.85 ** np.arange(20) * 0.15
    return {
        "layer": layer,
        "rows": 100,
        "columns": 64,
        "stds": stds.tolist(),
        "means": means.tolist(),
        "centred_stds": (0.6 * 0.6 ** np.arange(20)).tolist(),
        "centred_log_stds": (0.5 * 0.5 ** np.arange(20)).tolist(),
    }


def windows(level: float) -> list[dict[str, Any]]:
    found = []
    for index, step in enumerate(range(100, 1100, 100)):
        rows = []
        for group, factor in (("means", 1.0), ("stds", level)):
            value = 0.4 + factor * 50 * math.exp(-0.6 * index)
            rows.append(
                {"group": group, "layer": "all", "parameters": 650, "constant": 3, "second_moment_mean": 1 + value}
                | {"second_moment_median": 1 + value / 3, "mean_square_mean": value, "mean_square_median": value / 3}
            )
        found.append({"step": step, "member": 0, "batches": 10, "rows": rows})
    return found


def line(curvature: float, std: float | None) -> dict[str, Any]:
    places = np.linspace(-1, 1, 21)
    losses = 0.12 + curvature * places**2
    return {"distances": places.tolist(), "losses": losses.tolist(), "posterior_std": std, "examples": 500, "seed": 0}


def plane() -> dict[str, Any]:
    places = np.linspace(-1, 1, 21)
    losses = 0.1 + 2.5 * places[:, None] ** 2 + 0.8 * (places[None, :] - 0.15) ** 2
    return {"distances": places.tolist(), "losses": losses.tolist(), "posterior_stds": [0.1, 0.25], "examples": 500}


def momentum_grid() -> dict[str, Any]:
    rates, momenta = np.geomspace(0.01, 3, 14), np.linspace(0, 0.95, 12)
    reach = rates[None, :] / (1 - momenta[:, None])
    accuracies = 0.1 + 0.87 * np.exp(-((np.log(reach) - 0.2) ** 2) / 3)
    cells = [
        [float(a) if r < 6 else None for a, r in zip(*pair, strict=True)]
        for pair in zip(accuracies, reach, strict=True)
    ]
    return {
        "rates": rates.tolist(),
        "momenta": momenta.tolist(),
        "accuracies": cells,
        "robust": [{"curvature_min": 1.5, "curvature_max": 1.5, "label": "robust, h = 1.5"}],
        "stability": 1.9,
    }


def images(classes: int = 10, kept: tuple[int, ...] = (0, 1, 2, 3, 4, 5)) -> dict[str, Any]:
    examples = []
    for kind, peak, label in (
        ("most certain", 40.0, 3), ("most certain", 30.0, 7), ("most uncertain", 1.2, 5), ("most uncertain", 0.9, 8),
        ("noise", 0.3, None), ("noise", 0.2, None),
    ):  # fmt: skip
        concentration = np.full(classes, 0.25)
        concentration[label if label is not None else 2] += peak
        draws = RNG.dirichlet(concentration, 40)
        mean = draws.mean(0)
        grid = np.add.outer(np.arange(8), np.arange(8)) % (3 + (label or 0))
        image = RNG.random((8, 8)) if kind == "noise" else grid / grid.max()
        examples.append(
            {"kind": kind, "image": image.tolist(), "probabilities": mean.tolist(), "samples": draws.tolist()}
            | {"label": label, "entropy": float(-(mean * np.log(mean + 1e-12)).sum())}
        )
    return {"classes": [str(index) for index in range(classes)], "examples": [examples[index] for index in kept]}


def comparison() -> dict[str, Any]:
    rows = []
    for index, method in enumerate(("map", "bbb", "k-tied", "hwa", "swag", "deep-ensemble", "vl", "f-swag")):
        scores = {}
        for metric, value, step in (("accuracy", 0.95, 0.004), ("nll", 0.22, -0.012), ("ece", 0.04, -0.003)):
            shift = step * ((5 * index) % 8)
            scores[metric] = {"mean": value + shift, "standard_error_over_seeds": abs(step) * 0.8}
            scores[metric] |= {"standard_error_over_examples": abs(step) * 2, "values": []}
        scores["brier"] = {
            "mean": 0.1 - 0.003 * index,
            "standard_error_over_seeds": None,
            "standard_error_over_examples": 0.01,
        }
        scores["auroc"] = {"mean": 0.9 + 0.01 * index, "standard_error_over_seeds": 0.004}
        scores["std_ratio"] = {"mean": 0.1, "standard_error_over_seeds": 0.01}
        rows.append({"method": method, "runs": [], "scores": scores, "cost": {}})
    return {"format": 1, "seeds": [0, 1, 2], "rows": rows}


def band() -> dict[str, Any]:
    x = np.linspace(-4, 4, 120)
    train = RNG.uniform(-2, 2, 40)
    return {
        "x": x.tolist(),
        "mean": np.sin(x).tolist(),
        "epistemic_std": (0.05 + 0.06 * np.maximum(0, np.abs(x) - 1.5) ** 2).tolist(),
        "aleatoric_std": 0.2,
        "truth": (np.sin(x) + 0.1).tolist(),
        "train_x": train.tolist(),
        "train_y": (np.sin(train) + 0.2 * RNG.standard_normal(40)).tolist(),
        "x_label": "temperature (°C)",
        "y_label": "yield (kg)",
    }


LEVELS = [number / 20 for number in range(1, 20)]


def shares(power: float, count: int) -> dict[str, Any]:
    return {"levels": LEVELS, "observed": [level**power for level in LEVELS], "count": count}


def residuals() -> dict[str, Any]:
    std = 0.5 + RNG.random(150)
    return {
        "predicted": RNG.normal(3, 2, 150).tolist(),
        "residual": (1.2 * std * RNG.standard_normal(150)).tolist(),
        "std": std.tolist(),
    }


STDS = np.exp(np.outer(RNG.normal(-1, 0.3, 40), np.ones(64)) + np.outer(np.ones(40), RNG.normal(-2, 0.4, 64)))
STDS = STDS * np.exp(0.1 * RNG.standard_normal(STDS.shape))
RATES = np.geomspace(1e-5, 1, 80)

SAMPLES: dict[str, Any] = {
    "training_curves": {
        "bbb": epochs(20, 2.2, 0.31),
        "deep-ensemble": epochs(20, 2.4, 0.12) + epochs(20, 2.5, 0.15, member=1),
    },
    "seed_curves": {
        "bbb": [epochs(12, 2.2, 0.31), epochs(12, 2.0, 0.37), epochs(12, 2.3, 0.28)],
        "hwa": [with_test(epochs(12, 2.4, 0.12)), with_test(epochs(12, 2.1, 0.19))],
    },
    "reliability": bins(0.21),
    "calibration": {"map": bins(0.21), "bbb": bins(-0.1), "hwa": bins(0.02)},
    "risk_coverage": {"map": curve(1.5, 0.13), "bbb": curve(3.0, 0.11)},
    "ood_scores": {
        "inside": RNG.gamma(1.2, 0.2, 900).tolist(),
        "outside": RNG.normal(1.6, 0.3, 400).clip(0).tolist(),
        "score": "entropy",
        "auroc": 0.973,
        "inside_label": "digits",
        "outside_label": "noise",
    },
    "entropy": {
        "correct": RNG.gamma(1, 0.15, 860).tolist(),
        "wrong": RNG.gamma(6, 0.15, 40).tolist(),
        "ood": RNG.normal(1.7, 0.2, 400).clip(0).tolist(),
        "classes": 10,
    },
    "std_heat_maps": heat_map_record("layers.0.weight", STDS),
    "spectra": [
        {"step": 0, "member": 0, "layers": [spectrum(f"layers.{n}.weight", 0.999) for n in (0, 2, 4)]},
        {"step": 900, "member": 0, "layers": [spectrum(f"layers.{n}.weight", 0.93) for n in (0, 2, 4)]},
    ],
    "snr": {"bbb": windows(0.05), "k-tied": windows(7.0)},
    "std_paths": {
        "member": 0,
        "rates": [1e-3] * 20,
        "layers": {
            f"layers.{n}.weight": (0.01 * (n + 1) + 0.3 * (1 - np.exp(-np.arange(21) / 6))).tolist() for n in (0, 2, 4)
        },
    },
    "layers": {
        "layers": [
            {
                "layer": f"layers.{n // 2}.{'weight' if n % 2 == 0 else 'bias'}",
                "shape": [100, 64],
                "weights": 6400,
                "std_ratio_mean": 0.31,
                "std_ratio_median": 0.1 * (n + 2),
                "std_ratio_min": 0.03 * (n + 1),
                "std_ratio_max": 0.15 * (n + 3),
                "kl": 700.0 * (n + 1),
                "kl_per_weight": 0.11 * (7 - n),
            }
            for n in range(6)
        ],
        "kl": 14700.0,
        "correlation": 0.0,
        "kl_by": "analytic",
    },
    "loss_line": {"sharp": line(9.0, 0.03), "flat": line(1.3, 0.11)},
    "loss_plane": plane(),
    "sharpness": {
        label: {
            "rho": 0.05,
            "adaptive": False,
            "steps": 20,
            "loss": 0.2,
            "one_step": a,
            "one_step_error": 0.01,
            "ascent": b,
        }
        | {"ascent_error": 0.013}
        for label, a, b in (("swag", 0.31, 0.37), ("f-swag", 0.12, 0.13), ("deep-ensemble", 0.22, 0.25))
    },
    "momentum_landscape": momentum_grid(),
    "beta_landscape": {
        "beta1": [0.0, 0.5, 0.8, 0.9, 0.99],
        "beta2": [0.5, 0.9, 0.99, 0.999, 0.9999],
        "accuracies": (0.55 - 0.04 * np.add.outer(np.arange(5) ** 1.5, 1.7 * np.arange(5))).clip(0.1).tolist(),
    },
    "step_times": {
        "point": {"seconds": 0.002, "error": 0.0001},
        "mean field": {"seconds": 0.00717, "error": 0.0004},
        "2-tied": {"seconds": 0.00614},
    },
    "regression_band": band(),
    "examples": images(kept=(0, 2, 3, 4)),  # each takes two panels, which are slow to draw
    "comparison": comparison(),
    "rate_range": {
        "rates": RATES.tolist(),
        "objectives": (2.3 - 1.8 * np.exp(-((np.log10(RATES) + 1.5) ** 2)) + 3 * RATES**2).tolist(),
        "suggestion": 0.0031,
        "broke_at": 0.83,
    },
    "trial_bands": {
        "score": "validation.nll",
        "direction": "minimize",
        "epochs": list(range(8)),
        "lower": [2.1 * 0.7**epoch + 0.2 for epoch in range(8)],
        "median": [2.2 * 0.8**epoch + 0.3 for epoch in range(8)],
        "upper": [*(2.3 * 0.9**epoch + 0.4 for epoch in range(5)), None, None, None],
        "trials": [20] * 8,
        "failed": 6,
        "elsewhere": 0,
    },
    "robust_region": {
        "flat": {"curvature_min": 2.0, "curvature_max": 2.0},
        "steep": {"curvature_min": 0.5, "curvature_max": 8.0},
    },
    "schedules": {
        "cosine": {"steps": [0.0, 10.0, 20.0], "values": [1.0, 0.5, 0.02]},
        "constant": {"steps": [0.0, 20.0], "values": [1.0, 1.0]},
    },
    "interval_coverage": {"map": shares(1.7, 120), "bbb": shares(0.9, 120)},
    "quantile_calibration": {"map": shares(1.4, 90), "bbb": shares(1.05, 90)},
    "residuals": residuals(),
}
