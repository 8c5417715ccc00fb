"""bayeswell: train any PyTorch network as a Bayesian one, well.

``fit(net, data, method=...)`` does it in one call. In a loop of your own: ``bayesian(net)`` lifts any network, ``ELBO``
is the objective, ``predict`` averages over posterior draws.

The public names stand in ``__init__.pyi``. Each is imported when it is first asked for, so that the command line
answers before torch is loaded.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
