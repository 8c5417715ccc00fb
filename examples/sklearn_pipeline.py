"""Bayesian networks in scikit-learn: a raw table, a grid search in a pipeline, and conformal intervals of MAPIE.

The data come with scikit-learn: progression of diabetes after a year. Sex becomes a text and some blood values missing.
"""

from __future__ import annotations

import os

import numpy as np
import torch
from mapie.regression import SplitConformalRegressor
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_diabetes
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from bayeswell.sklearn import BayesianRegressor

SMOKE = bool(os.environ.get("BAYESWELL_SMOKE"))
EPOCHS = 3 if SMOKE else 30
METHODS = ["map", "bbb"] if SMOKE else ["map", "bbb", "k-tied", "swag"]


def covered(lower: np.ndarray, upper: np.ndarray, truth: np.ndarray) -> str:
    inside = ((lower <= truth) & (truth <= upper)).mean()
    error = np.sqrt(inside * (1 - inside) / len(truth))
    return f"{inside:.2f} ± {error:.2f} covered, mean width {(upper - lower).mean():.0f}"


def main() -> None:
    torch.set_num_threads(1)
    frame, target = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    missing = np.random.default_rng(0).uniform(size=len(frame)) < 0.1
    frame = frame.assign(sex=np.where(frame["sex"] == 1, "female", "male"), s5=frame["s5"].mask(missing))
    x, x_test, y, y_test = train_test_split(frame, target.to_numpy(), test_size=0.3, random_state=0)

    model = BayesianRegressor(epochs=EPOCHS, random_state=0).fit(x, y)
    mean, std = model.predict(x_test, return_std=True)
    print(f"raw table: R2 {model.score(x_test, y_test):.3f}; first patient {mean[0]:.0f} ± {std[0]:.0f}")
    print(f"90 % intervals: {covered(*model.predict_interval(x_test), y_test)}")

    others = [name for name in x.columns if name != "sex"]
    columns = make_column_transformer((OneHotEncoder(), ["sex"]), (SimpleImputer(), others))
    pipeline = make_pipeline(columns, BayesianRegressor(epochs=EPOCHS, random_state=0))
    grid = GridSearchCV(pipeline, {"bayesianregressor__method": METHODS}, cv=3).fit(x, y)
    print(f"best of {METHODS}: {grid.best_params_}; R2 {grid.score(x_test, y_test):.3f}")

    x_train, x_held_out, y_train, y_held_out = train_test_split(x, y, test_size=0.4, random_state=1)
    model = BayesianRegressor("bbb", epochs=EPOCHS, random_state=0).fit(columns.fit_transform(x_train), y_train)
    conformal = SplitConformalRegressor(model, confidence_level=0.9, prefit=True)
    conformal.conformalize(columns.transform(x_held_out), y_held_out)
    _, ends = conformal.predict_interval(columns.transform(x_test))
    print(f"conformal intervals: {covered(ends[:, 0, 0], ends[:, 1, 0], y_test)}")


if __name__ == "__main__":
    main()
