"""bayeswell inside other people's loops: Lightning's Trainer, accelerate, and any other.

``Collecting`` needs no library; ``bayeswell.integrations.lightning`` is imported by its own name, since it needs one.
Networks of ``transformers`` and adapters of ``peft`` need nothing from here: ``fit(net, data, where="lora")``.
"""

from .collecting import Collecting, lifted_in

__all__ = ["Collecting", "lifted_in"]
