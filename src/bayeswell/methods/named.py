"""The named methods: a table."""

from __future__ import annotations

from ..errors import SettingError, nearest
from ..gradients import Sharpness
from ..registry import label_of
from ..types import FACTORISED, LINEARISED
from .method import Method
from .resolved import resolve
from .tempering import AUTO

# Samplers fit their rate to the problem (lr None). Of the second half of a run 200 draws would be kept, but they offer
# its last part alone: 15 percent of up to 1500 steps, half of 5300 or more. So about 50 to 60 are kept of 400 to 1500
# steps, fewer of fewer, and up to 200 of long runs.
_BANK = {"name": "bank", "max_draws": 200}
_TAIL = {"name": "cosine", "final": 0.1}
"""Averages need steps that still move, and learned noise that is not that of large steps."""
# The Newton step, damped to less than a step of Adam; stds from a twentieth of the prior's, found within the run.
_IVON = {
    "name": "ivon",
    "lr": 1.0,
    "beta2": None,
    "hess_init": None,
    "rescale_lr": False,
    "rest_lr": "auto",
    "adam_lr": "auto",
}
_PAIRS = {"name": "weight_sampling", "draws": 2, "antithetic": True}
"""The noise of a batch cancels in the difference of two gradients: what is left is curvature, at any temperature."""

_TABLE = (
    Method(
        "auto",
        "what to take without a reason for another: averaged mean-field posteriors, as many as the length allows",
        "Hyperparameters Weight Averaging (HWA); Lakshminarayanan et al. 2017",
        collector="hwa",
        rate=_TAIL,
        budget=AUTO,
    ),
    Method("map", "one weight vector, the prior as weight decay", "MacKay 1992", "delta"),
    Method("bbb", "mean-field variational inference, a weight draw a batch", "Blundell et al. 2015"),
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
        {"name": "k_tied", "rank": 2},
    ),
    Method(
        "low-rank",
        "diagonal plus rank-2 covariance over the whole network",
        "Ong et al. 2018",
        {"name": "low_rank", "rank": 2},
    ),
    Method(
        "vl",
        "variational Laplace: no weight sampling, a curvature penalty at the mean",
        "Unlu & Aitchison 2021",
        estimator="variational_laplace",
        prediction=LINEARISED,
    ),
    Method(
        "vl-lazy",
        "variational Laplace with its penalty in every fourth step, four times as strong",
        "Unlu & Aitchison 2021",
        estimator={"name": "variational_laplace", "every": 4},
        prediction=LINEARISED,
    ),
    Method(
        "hwa",
        "means and variances of a mean-field posterior averaged along training",
        "Hyperparameters Weight Averaging (HWA)",
        estimator="flipout",
        collector="hwa",
        rate=_TAIL,
    ),
    Method("swa", "the average of the last weights of Adam", "Izmailov et al. 2018", "delta",
           rate=_TAIL, collector="swa"),
    Method("swag-diag", "a diagonal Gaussian around Adam's path", "Maddox et al. 2019", "delta",
           rate=_TAIL, collector="swag_diag"),
    Method("swag", "a low-rank Gaussian around Adam's path", "Maddox et al. 2019", "delta",
           rate=_TAIL, collector="swag"),
    Method("sgld", "stochastic gradient Langevin dynamics", "Welling & Teh 2011", "delta",
           stepper={"name": "sgld", "lr": None}, rate="constant", std_multiplier=1.0, collector=_BANK),
    Method("sghmc", "stochastic gradient Hamiltonian Monte Carlo", "Chen et al. 2014", "delta",
           stepper={"name": "sghmc", "lr": None}, rate="constant", std_multiplier=1.0, collector=_BANK),
    Method("psgld", "Langevin dynamics with an RMSprop preconditioner", "Li et al. 2016", "delta",
           stepper={"name": "psgld", "lr": None}, rate="constant", std_multiplier=1.0, collector=_BANK),
    Method("csgld", "Langevin dynamics in cycles of the learning rate", "Zhang et al. 2020", "delta",
           stepper={"name": "cyclical_sgld", "lr": None, "cycles": None}, rate="constant", std_multiplier=1.0,
           collector=_BANK),
    Method("mc-dropout", "dropout kept on: each draw is a set of masks", "Gal & Ghahramani 2016", "delta",
           dropout="own"),
    Method("deep-ensemble", "independently trained networks", "Lakshminarayanan et al. 2017", "delta",
           members=5),
    Method("snapshot-ensemble", "networks at the ends of the last cycles of the learning rate, in one run",
           "Huang et al. 2017", "delta", rate={"name": "cyclic", "cycles": 5},
           collector={"name": "cycle_ends", "cycles": 5, "keep": 3}),
    Method("laplace", "a Gaussian at the optimum from the curvature there", "MacKay 1992; Ritter et al. 2018", "delta",
           post_hoc="laplace", prediction=LINEARISED),
    Method("ivon", "natural-gradient mean-field, curvature from pairs of draws", "Shen et al. 2024", estimator=_PAIRS,
           stepper=_IVON),
)  # fmt: skip

METHODS: dict[str, Method] = {method.name: method for method in _TABLE}
"""Named methods; ``find_method`` knows their sharpness-aware forms, ``f-`` before a name, too."""

_FLAT = "f-"
_GEOMETRY = "-geometry"


def add_method(method: Method) -> Method:
    """Give a method its name: for ``find_method``, commands and files."""
    if not isinstance(method, Method):
        raise SettingError(f"method {label_of(method)} cannot be registered; give a bayeswell.Method")
    if METHODS.get(method.name, method) != method:
        raise SettingError(f"method '{method.name}' is taken; choose another name")
    resolve(method)
    METHODS[method.name] = method
    return method


def find_method(name: str | Method) -> Method:
    """A method by name, or as it is; ``f-X`` is X with sharpness, ``f-X-geometry`` with the geometry |mean| / std."""
    if isinstance(name, Method):
        return name
    if not isinstance(name, str):
        raise SettingError(f"method = {name!r}; give a name or a Method")
    if name in METHODS:
        return METHODS[name]
    base = name.removeprefix(_FLAT).removesuffix(_GEOMETRY)
    geometric = name.endswith(_GEOMETRY)
    if name.startswith(_FLAT) and base in METHODS:
        found = METHODS[base]
        if geometric and base not in geometric_bases():
            raise SettingError(f"method '{name}': the geometry |mean| / std needs stds, which '{base}' does not train")
        sharpness = Sharpness(geometry="mean_over_std" if geometric else "identity")
        return found.changed(
            name=name, summary=f"{found.summary}, sharpness-aware", paper=f"Nguyen et al. 2023; {found.paper}",
            sharpness=sharpness,
        )  # fmt: skip
    raise SettingError(f"unknown method '{name}'; {nearest(name, method_names())}")


def geometric_bases() -> list[str]:
    """Methods whose posterior has stds of its own for every weight while it is trained."""
    return [name for name, method in METHODS.items() if FACTORISED in resolve(method).posterior.provides]


def method_names() -> list[str]:
    """Every name that ``find_method`` knows."""
    names = list(METHODS)
    names += [f"{_FLAT}{name}" for name in METHODS]
    return names + [f"{_FLAT}{name}{_GEOMETRY}" for name in geometric_bases()]
