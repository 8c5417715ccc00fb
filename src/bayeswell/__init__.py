"""bayeswell: train any PyTorch network as a Bayesian one, well.

``fit(net, data, method=...)`` does it in one call. In a loop of your own: ``bayesian(net)`` lifts any network, ``ELBO``
is the objective, ``predict`` averages over posterior draws. The public names stand in ``__init__.pyi``.
"""

from .lazy import attach as _attach

__getattr__, __dir__, __all__ = _attach(__name__, __file__)
