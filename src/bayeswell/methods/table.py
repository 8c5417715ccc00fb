"""The named methods."""

from __future__ import annotations

from typing import Any

from ..core.errors import SettingError, nearest
from ..core.protocols import FACTORIZED, LINEARIZED
from .checks import check_parts
from .method import OWN_DROPOUT, Method
from .temperature import AUTO

_TAIL = {"name": "cosine", "final": 0.1}
"""Averages need steps that still move, and learned noise that is not that of large steps."""
_IVON = {
    "name": "ivon",
    "lr": 1.0,
    "beta2": None,
    "hess_init": None,
    "rescale_lr": False,
    "other_lr": "auto",
    "adam_lr": "auto",
}
"""A damped Newton step; stds start at a twentieth of the prior's and are found within the run."""


def _sampler(name: str, summary: str, paper: str, sampler: str, **settings: Any) -> Method:
    """Return a sampler that finds its own step size; of the second half of a run at most 200 draws are kept."""
    return Method(
        name,
        summary,
        paper,
        posterior="delta",
        optimizer={"name": sampler, "lr": None, **settings},
        schedule="constant",
        std_multiplier=1.0,
        averaging={"name": "bank", "max_draws": 200},
    )


_TABLE = (
    Method(
        "auto",
        "the default: averaged mean-field posteriors, as many as the length of the run allows",
        "Hyperparameters Weight Averaging (HWA); Lakshminarayanan et al. 2017",
        averaging="hwa",
        schedule=_TAIL,
        budget=AUTO,
    ),
    Method("map", "one weight vector, the prior as weight decay", "MacKay 1992", posterior="delta"),
    Method("bbb", "mean-field variational inference, one weight draw a batch", "Blundell et al. 2015"),
    Method("sgvb", "another name for bbb", "Kingma & Welling 2014"),
    Method(
        "sgvb-lrt",
        "mean-field with local reparameterization",
        "Kingma et al. 2015",
        estimator="local_reparameterization",
    ),
    Method("flipout", "mean-field with flipout", "Wen et al. 2018", estimator="flipout"),
    Method(
        "k-tied",
        "stds of each weight matrix as a rank-2 product",
        "Swiatkowski et al. 2020",
        posterior={"name": "k_tied", "rank": 2},
    ),
    Method(
        "low-rank",
        "diagonal plus rank-2 covariance over the whole network",
        "Ong et al. 2018",
        posterior={"name": "low_rank", "rank": 2},
    ),
    Method(
        "vl",
        "variational Laplace: a curvature penalty at the mean in place of weight draws",
        "Unlu & Aitchison 2021",
        estimator="variational_laplace",
        prediction=LINEARIZED,
    ),
    Method(
        "vl-lazy",
        "variational Laplace with its penalty in every fourth step, four times as strong",
        "Unlu & Aitchison 2021",
        estimator={"name": "variational_laplace", "every": 4},
        prediction=LINEARIZED,
    ),
    Method(
        "hwa",
        "means and variances of a mean-field posterior averaged along training",
        "Hyperparameters Weight Averaging (HWA)",
        estimator="flipout",
        averaging="hwa",
        schedule=_TAIL,
    ),
    Method(
        "swa",
        "the average of the last weights of Adam",
        "Izmailov et al. 2018",
        posterior="delta",
        averaging="swa",
        schedule=_TAIL,
    ),
    Method(
        "swag-diag",
        "a diagonal Gaussian around the path of Adam",
        "Maddox et al. 2019",
        posterior="delta",
        averaging="swag_diag",
        schedule=_TAIL,
    ),
    Method(
        "swag",
        "a low-rank Gaussian around the path of Adam",
        "Maddox et al. 2019",
        posterior="delta",
        averaging="swag",
        schedule=_TAIL,
    ),
    _sampler("sgld", "stochastic gradient Langevin dynamics", "Welling & Teh 2011", "sgld"),
    _sampler("sghmc", "stochastic gradient Hamiltonian Monte Carlo", "Chen et al. 2014", "sghmc"),
    _sampler("psgld", "Langevin dynamics with an RMSprop preconditioner", "Li et al. 2016", "psgld"),
    _sampler(
        "csgld", "Langevin dynamics in cycles of the learning rate", "Zhang et al. 2020", "cyclical_sgld", cycles=None
    ),
    Method(
        "mc-dropout",
        "dropout kept on: each draw is a set of masks",
        "Gal & Ghahramani 2016",
        posterior="delta",
        dropout=OWN_DROPOUT,
    ),
    Method(
        "deep-ensemble",
        "independently trained networks",
        "Lakshminarayanan et al. 2017",
        posterior="delta",
        members=5,
    ),
    Method(
        "snapshot-ensemble",
        "networks at the ends of the last cycles of the learning rate, in one run",
        "Huang et al. 2017",
        posterior="delta",
        schedule={"name": "cyclic", "cycles": 5},
        averaging={"name": "cycle_ends", "cycles": 5, "keep": 3},
    ),
    Method(
        "laplace",
        "a Gaussian at the optimum from the curvature there",
        "MacKay 1992; Ritter et al. 2018",
        posterior="delta",
        post_hoc="laplace",
        prediction=LINEARIZED,
    ),
    Method(
        "ivon",
        "natural-gradient mean-field, curvature from pairs of draws",
        "Shen et al. 2024",
        # The noise of a batch cancels in the difference of the two gradients of an antithetic pair.
        estimator={"name": "weight_sampling", "draws": 2, "antithetic": True},
        optimizer=_IVON,
    ),
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
    """Every name that ``find_method`` knows."""
    factorized = [name for name, method in METHODS.items() if FACTORIZED in method.posterior.provides]
    return [*METHODS, *(f"f-{name}" for name in METHODS), *(f"f-{name}-geometry" for name in factorized)]
