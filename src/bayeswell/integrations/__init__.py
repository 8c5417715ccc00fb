"""Averagers in custom loops and in Lightning's Trainer; posteriors as models of BoTorch.

``bayeswell.integrations.lightning`` is imported by name, as it needs Lightning. Networks of transformers and adapters
of peft need nothing from here: ``fit(net, dataset, where="lora")``.
"""

from __future__ import annotations

from .botorch import botorch_model
from .collecting import Collector, find_model

__all__ = ["Collector", "botorch_model", "find_model"]
