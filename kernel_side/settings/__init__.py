"""The settings of a run: a class a strategy in ``strategies``, what they share in ``parts`` and ``families``.

The same names work as keyword arguments, as options of ``%%generate``, as fields of the form and as keys of a trait.
Errors in our own words, and prompts, are in ``request``; what depends on a model is checked by the engine.
"""

from .parts import Common, Observable
from .strategies import (
    Assisted,
    Beam,
    BeamSample,
    Contrastive,
    DiverseBeam,
    Dola,
    EarlyExit,
    Greedy,
    Guidance,
    PromptLookup,
    Sample,
    Settings,
)

__all__ = [
    "Assisted",
    "Beam",
    "BeamSample",
    "Common",
    "Contrastive",
    "DiverseBeam",
    "Dola",
    "EarlyExit",
    "Greedy",
    "Guidance",
    "Observable",
    "PromptLookup",
    "Sample",
    "Settings",
]
