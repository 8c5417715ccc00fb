"""The named methods."""

from __future__ import annotations

from typing import Any

from ..core.errors import SettingError, nearest
from ..core.protocols import FACTORIZED, LINEARIZED
from .checks import check_parts
from .method import OWN_DROPOUT, Method
from .temperature import AUTO

_POINT: dict[str, Any] = {"posterior": "delta"}
# Averages need steps that still move, and learned noise that is not that of large steps.
_AVERAGED: dict[str, Any] = {"schedule": {"name": "cosine", "final": 0.1}}
_POINT_AVERAGED = {**_POINT, **_AVERAGED}
_VL: dict[str, Any] = {"estimator": "variational_laplace", "prediction": LINEARIZED}
_SNAPSHOTS: dict[str, Any] = {
    "schedule": {"name": "cyclic", "cycles": 5},
    "averaging": {"name": "cycle_ends", "cycles": 5, "keep": 3},
}
# The samplers find their own step size; of the second half of a run at most 200 draws are kept.
_CHAIN: dict[str, Any] = {
    **_POINT,
    "schedule": "constant",
    "std_multiplier": 1.0,
    "averaging": {"name": "bank", "max_draws": 200},
}
# A damped Newton step; stds start at a twentieth of the prior's and are found within the run. The noise of a batch
# cancels in the difference of the two gradients of an antithetic pair.
_IVON: dict[str, Any] = {
    "estimator": {"name": "weight_sampling", "draws": 2, "antithetic": True},
    "optimizer": {
        "name": "ivon",
        "lr": 1.0,
        "beta2": None,
        "hess_init": None,
        "rescale_lr": False,
        "other_lr": "auto",
        "adam_lr": "auto",
    },
}
_HWA = "Hyperparameters Weight Averaging (HWA)"
_ENSEMBLES = "Lakshminarayanan et al. 2017"
_SWAG = "Maddox et al. 2019"


def _sampler(name: str, summary: str, paper: str, part: str, **settings: Any) -> Method:
    return Method(name, summary, paper, optimizer={"name": part, "lr": None, **settings}, **_CHAIN)


_TABLE = (
    Method(
        "auto", "averaged mean-field posteriors", f"{_HWA}; {_ENSEMBLES}", averaging="hwa", budget=AUTO, **_AVERAGED
    ),
    Method("map", "one weight vector, the prior as weight decay", "MacKay 1992", **_POINT),
    Method("bbb", "mean-field variational inference, one weight draw a batch", "Blundell et al. 2015"),
    Method("sgvb", "another name for bbb", "Kingma & Welling 2014"),
    Method("sgvb-lrt", "mean-field, activations are drawn", "Kingma et al. 2015", estimator="local_reparameterization"),
    Method("flipout", "mean-field with flipout", "Wen et al. 2018", estimator="flipout"),
    Method("k-tied", "rank-2 stds of each matrix", "Swiatkowski et al. 2020", posterior={"name": "k_tied", "rank": 2}),
    Method("low-rank", "diagonal plus rank-2 covariance", "Ong et al. 2018", posterior={"name": "low_rank", "rank": 2}),
    Method("vl", "variational Laplace: a curvature penalty at the mean", "Unlu & Aitchison 2021", **_VL),
    Method("vl-lazy", "variational Laplace, its penalty in every fourth step", "Unlu & Aitchison 2021", **_VL).changed(
        estimator={"every": 4}
    ),
    Method(
        "hwa", "averages of means and variances along training", _HWA, estimator="flipout", averaging="hwa", **_AVERAGED
    ),
    Method("swa", "the average of the last weights", "Izmailov et al. 2018", averaging="swa", **_POINT_AVERAGED),
    Method("swag-diag", "a diagonal Gaussian around the path", _SWAG, averaging="swag_diag", **_POINT_AVERAGED),
    Method("swag", "a low-rank Gaussian around the path", _SWAG, averaging="swag", **_POINT_AVERAGED),
    _sampler("sgld", "stochastic gradient Langevin dynamics", "Welling & Teh 2011", "sgld"),
    _sampler("sghmc", "stochastic gradient Hamiltonian Monte Carlo", "Chen et al. 2014", "sghmc"),
    _sampler("psgld", "Langevin dynamics with an RMSprop preconditioner", "Li et al. 2016", "psgld"),
    _sampler("csgld", "Langevin dynamics in cycles", "Zhang et al. 2020", "cyclical_sgld", cycles=None),
    Method("mc-dropout", "each draw is a set of masks", "Gal & Ghahramani 2016", dropout=OWN_DROPOUT, **_POINT),
    Method("deep-ensemble", "independently trained networks", _ENSEMBLES, members=5, **_POINT),
    Method("snapshot-ensemble", "networks at the ends of cycles", "Huang et al. 2017", **_POINT, **_SNAPSHOTS),
    Method(
        "laplace",
        "a Gaussian at the optimum from the curvature there",
        "MacKay 1992; Ritter et al. 2018",
        post_hoc="laplace",
        prediction=LINEARIZED,
        **_POINT,
    ),
    Method("ivon", "natural-gradient mean-field, curvature from pairs of draws", "Shen et al. 2024", **_IVON),
)

METHODS: dict[str, Method] = {method.name: method for method in _TABLE}
"""Named methods; ``find_method`` also knows their sharpness-aware forms."""


def register_method(method: Method) -> Method:
    """Give a method its name for ``find_method``, the command line and saved files."""
    if not isinstance(method, Method):
        raise SettingError(f"a bayeswell.Method is needed, got {method!r}")
    if METHODS.get(method.name, method) != method:
        raise SettingError(f"method '{method.name}' exists already; choose another name")
    check_parts(method)
    METHODS[method.name] = method
    return method


def find_method(name: str | Method) -> Method:
    """Return a method by name; ``f-X`` is X with sharpness, ``f-X-geometry`` with the geometry |mean| / std."""
    if isinstance(name, Method):
        return name
    if not isinstance(name, str):
        raise SettingError(f"`method` must be a name or a Method, got {name!r}")
    if name in METHODS:
        return METHODS[name]
    if name not in method_names():
        raise SettingError(f"unknown method {name!r}; {nearest(name, method_names())}")
    base = METHODS[name.removeprefix("f-").removesuffix("-geometry")]
    geometry = "mean_over_std" if name.endswith("-geometry") else "identity"
    return base.changed(
        name=name,
        summary=f"{base.summary}, sharpness-aware",
        paper=f"Nguyen et al. 2023; {base.paper}",
        sharpness={"geometry": geometry},
    )


def method_names() -> list[str]:
    """Return every name that ``find_method`` knows."""
    factorized = [name for name, method in METHODS.items() if FACTORIZED in method.posterior.provides]
    return [*METHODS, *(f"f-{name}" for name in METHODS), *(f"f-{name}-geometry" for name in factorized)]
