"""Bayesian networks among scikit-learn's own: a raw table, a grid over methods, intervals, and MAPIE's guarantee.

The patients come with scikit-learn, so nothing is downloaded: how far diabetes had gone a year later, from ten numbers.
One of them, the sex, is made a text again, and some blood values are taken away, as they are missing in real tables.
"""

from __future__ import annotations

import os
import warnings

import numpy as np
import torch
from mapie.regression import SplitConformalRegressor
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_diabetes
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import bayeswell as bw
from bayeswell.sklearn import BayesianRegressor

SMOKE = bool(os.environ.get("BAYESWELL_SMOKE"))
EPOCHS = 3 if SMOKE else 30
METHODS = ["map", "bbb"] if SMOKE else ["map", "bbb", "k-tied"]
TEMPERATURES = [0.1] if SMOKE else [0.1, 1.0]


def patients():
    """A table as people have it: a text, missing cells, and the target apart."""
    frame, target = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    frame["sex"] = np.where(frame["sex"] == 1, "female", "male")
    missing = np.random.default_rng(0).uniform(size=len(frame)) < 0.1
    return frame.assign(s5=frame["s5"].mask(missing)), target.to_numpy()


def covered(lower, upper, truth) -> str:
    """The share of targets inside, and the width that it costs."""
    inside = (lower <= truth) & (truth <= upper)
    error = np.sqrt(inside.mean() * (1 - inside.mean()) / len(truth))
    return f"{inside.mean():.2f} +- {error:.2f} covered, mean width {(upper - lower).mean():.0f}"


def main() -> None:
    """Train, search, conformalise, print."""
    warnings.simplefilter("ignore" if SMOKE else "default", bw.BayeswellWarning)  # short runs say that they are short
    torch.set_num_threads(1)  # matrices this small are done before a second thread is awake
    frame, target = patients()
    x, x_test, y, y_test = train_test_split(frame, target, test_size=0.3, random_state=0)

    print("A raw table: texts and missing cells are prepared, units are kept")
    model = BayesianRegressor(epochs=EPOCHS, random_state=0).fit(x, y)
    mean, std = model.predict(x_test, return_std=True)
    print(f"  R^2 {model.score(x_test, y_test):.3f} on new patients")
    print(f"  the first of them: {mean[0]:.0f} +- {std[0]:.0f}, and was {y_test[0]:.0f}")
    print(f"  90 % intervals: {covered(*model.predict_interval(x_test, 0.9), y_test)}")
    split = model.predict_distribution(x_test)
    noise, unknown = float(split.aleatoric_std.mean()), float(split.epistemic_std.mean())
    print(f"  mean std of the noise {noise:.1f}, of what the model does not know {unknown:.1f}")

    print("\nA pipeline of your own, and a grid over methods and temperatures")
    others = [name for name in x.columns if name != "sex"]
    columns = make_column_transformer((OneHotEncoder(), ["sex"]), (SimpleImputer(), others))
    pipeline = make_pipeline(columns, BayesianRegressor(epochs=EPOCHS, random_state=0))
    choices = {"bayesianregressor__method": METHODS, "bayesianregressor__temperature": TEMPERATURES}
    grid = GridSearchCV(pipeline, choices, cv=3, n_jobs=2).fit(x, y)
    best = {name.removeprefix("bayesianregressor__"): value for name, value in grid.best_params_.items()}
    print(f"  best of {len(grid.cv_results_['params'])}: {best}; R^2 {grid.score(x_test, y_test):.3f} on new patients")

    print("\nMAPIE on top: intervals of the promised coverage, whatever the model")
    x_train, x_held_out, y_train, y_held_out = train_test_split(x, y, test_size=0.4, random_state=1)
    model = BayesianRegressor("bbb", epochs=EPOCHS, random_state=0).fit(columns.fit_transform(x_train), y_train)
    conformal = SplitConformalRegressor(model, confidence_level=0.9, prefit=True)
    conformal.conformalize(columns.transform(x_held_out), y_held_out)
    _, ends = conformal.predict_interval(columns.transform(x_test))
    print(f"  its own 90 % intervals: {covered(*model.predict_interval(columns.transform(x_test), 0.9), y_test)}")
    print(f"  MAPIE's:                {covered(ends[:, 0, 0], ends[:, 1, 0], y_test)}")


if __name__ == "__main__":
    main()
