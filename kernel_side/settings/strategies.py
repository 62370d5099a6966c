"""The strategies: one class each, with all of its settings in it, flat.

A new strategy is a new class in :data:`Settings`; its JSON Schema draws the controls and no JavaScript changes. What
runs it is told by :meth:`~.parts.Common.generate_kwargs` and, for loops of our own, by the engine.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict

from ..problems import Problem
from .families import BeamSettings, DraftSettings, Several, SometimesSampling
from .parts import DYNAMIC_CACHE, Penalties, Sampling, setting

__all__ = [
    "Assisted",
    "Beam",
    "BeamSample",
    "Contrastive",
    "DiverseBeam",
    "Dola",
    "EarlyExit",
    "Greedy",
    "Guidance",
    "PromptLookup",
    "Sample",
    "Settings",
]


class Greedy(Penalties):
    """Takes the most probable token at every step."""

    model_config = ConfigDict(title="Greedy")

    strategy: Literal["greedy"] = "greedy"


class Sample(Sampling, Penalties, Several):
    """Draws each token from the distribution, after the settings below have reshaped it."""

    model_config = ConfigDict(title="Sampling")

    strategy: Literal["sample"] = "sample"


class Beam(BeamSettings, Penalties):
    """Follows the most probable hypotheses at once, and returns the best that finished."""

    model_config = ConfigDict(title="Beam search")

    strategy: Literal["beam"] = "beam"


class BeamSample(BeamSettings, Sampling, Penalties):
    """Beam search that draws its candidates instead of taking the most probable ones."""

    model_config = ConfigDict(title="Beam sampling")

    strategy: Literal["beam_sample"] = "beam_sample"


class DiverseBeam(BeamSettings, Penalties):
    """Beam search in groups, each kept from saying what the groups before it say (arXiv:1610.02424)."""

    model_config = ConfigDict(title="Diverse beam search")

    strategy: Literal["diverse_beam"] = "diverse_beam"
    num_beam_groups: int = setting(
        2,
        ge=1,
        le=64,
        group="strategy",
        title="Groups",
        description="Into how many groups the beams are divided, equally.",
        way_out="Use a whole number that divides num_beams.",
    )
    diversity_penalty: float = setting(
        0.5,
        ge=0,
        le=100,
        step=0.1,
        group="strategy",
        title="Diversity penalty",
        description="Lowers a token's log-probability for each beam of an earlier group that took it in this step.",
        way_out="Use a number from 0 to 100; 0.2 to 0.8 are usual.",
    )

    def problems(self) -> list[Problem]:
        """See :meth:`~.parts.Common.problems`."""
        problems = super().problems()
        if self.num_beams % self.num_beam_groups:
            message = f"{self.num_beam_groups} groups cannot share {self.num_beams} beams equally"
            way_out = "Use a number that divides num_beams, or change num_beams."
            problems.append(Problem("num_beam_groups", self.num_beam_groups, message, way_out))
        return problems

    def generate_kwargs(self) -> dict[str, Any]:
        """See :meth:`~.parts.Common.generate_kwargs`."""
        return super().generate_kwargs() | DYNAMIC_CACHE


class Contrastive(Penalties):
    """Weighs a token's probability against its likeness to what came before (arXiv:2202.06417)."""

    model_config = ConfigDict(title="Contrastive search")

    strategy: Literal["contrastive"] = "contrastive"
    penalty_alpha: float = setting(
        0.6,
        ge=0,
        le=1,
        step=0.05,
        group="strategy",
        title="Degeneration penalty",
        description="Weight of the likeness to earlier tokens, against that of the probability; 0 is greedy.",
        way_out="Use a number from 0 to 1; 0.6 is usual.",
    )
    contrastive_top_k: int = setting(
        4,
        ge=1,
        le=100,
        group="strategy",
        title="Candidates",
        description="How many of the most probable tokens are weighed; each costs a row of a forward pass.",
        way_out="Use a whole number from 1 to 100; 4 to 8 are usual.",
    )

    def generate_kwargs(self) -> dict[str, Any]:
        """See :meth:`~.parts.Common.generate_kwargs`."""
        return super().generate_kwargs() | DYNAMIC_CACHE


class Dola(SometimesSampling, Penalties):
    """Contrasts the last layer with an earlier one, which brings out what the late layers know (arXiv:2309.03883)."""

    model_config = ConfigDict(title="DoLa")

    strategy: Literal["dola"] = "dola"
    dola_layers: Literal["low", "high"] = setting(
        "high",
        group="strategy",
        title="Contrast with",
        description="Layers of the lower or of the upper half; high for short answers, low for reasoning.",
        way_out="Use 'low' or 'high'.",
    )
    plausibility: float = setting(
        0.1,
        ge=0,
        le=1,
        step=0.05,
        group="strategy",
        title="Plausibility",
        description="A token's least probability, relative to the most probable one: 0 allows all, 1 is greedy.",
        way_out="Use a number from 0 to 1; 0.1 is usual.",
    )


class Guidance(SometimesSampling, Penalties):
    """Classifier-free guidance: away from what the model would say without the prompt (arXiv:2306.17806)."""

    model_config = ConfigDict(title="Guidance (CFG)")

    strategy: Literal["guidance"] = "guidance"
    guidance_scale: float = setting(
        1.5,
        gt=0,
        le=100,
        step=0.1,
        group="strategy",
        title="Guidance scale",
        description="How far to go from the unconditional distribution: 1 changes nothing. Costs a second pass.",
        way_out="Use a number above 0; 1.5 is usual, 1 switches it off.",
    )
    negative_prompt: str = setting(
        "",
        max_length=100_000,
        group="strategy",
        title="Negative prompt",
        description="What to move away from; empty is the last token of the prompt alone.",
        way_out="Use a text, or leave it empty.",
    )

    def generate_kwargs(self) -> dict[str, Any]:
        """See :meth:`~.parts.Common.generate_kwargs`; the negative prompt is tokenized by the engine."""
        return super().generate_kwargs() | {"guidance_scale": self.guidance_scale}


class _ModelDrafts(DraftSettings):
    """Settings of drafts that a model makes."""

    num_assistant_tokens: int = setting(
        5,
        ge=1,
        le=100,
        group="strategy",
        title="Drafted tokens",
        description="How many tokens a round drafts, at most.",
        way_out="Use a whole number from 1 to 100.",
    )
    assistant_confidence_threshold: float = setting(
        0.0,
        ge=0,
        le=1,
        step=0.05,
        group="strategy",
        title="Confidence to go on",
        description="Drafting pauses at a token that the draft model finds less probable than this; 0 never pauses.",
        way_out="Use a number from 0 to 1; 0.4 is usual, 0 switches it off.",
    )


class Assisted(_ModelDrafts):
    """A small model drafts tokens, this one checks several with one forward pass (arXiv:2211.17192)."""

    model_config = ConfigDict(title="Assisted (draft model)")

    strategy: Literal["assisted"] = "assisted"


class PromptLookup(DraftSettings):
    """Drafts are copied from the text so far, where it holds the last few tokens already."""

    model_config = ConfigDict(title="Prompt lookup")

    strategy: Literal["prompt_lookup"] = "prompt_lookup"
    prompt_lookup_num_tokens: int = setting(
        10,
        ge=1,
        le=100,
        group="strategy",
        title="Drafted tokens",
        description="How many tokens a round copies, at most.",
        way_out="Use a whole number from 1 to 100.",
    )
    max_matching_ngram_size: int = setting(
        2,
        ge=1,
        le=100,
        group="strategy",
        title="Longest match",
        description="How many of the last tokens are looked for in the text so far, at most.",
        way_out="Use a whole number from 1 to 100; 2 or 3 are usual.",
    )

    def generate_kwargs(self) -> dict[str, Any]:
        """See :meth:`~.parts.Common.generate_kwargs`."""
        return super().generate_kwargs() | {
            "prompt_lookup_num_tokens": self.prompt_lookup_num_tokens,
            "max_matching_ngram_size": self.max_matching_ngram_size,
        }


class EarlyExit(_ModelDrafts):
    """The model's own first layers draft, all of its layers check (arXiv:2404.16710)."""

    model_config = ConfigDict(title="Early exit")

    strategy: Literal["early_exit"] = "early_exit"
    assistant_early_exit: int = setting(
        4,
        ge=1,
        le=1000,
        group="strategy",
        title="Layers that draft",
        description="How many of the model's layers, from the first on, make the drafts.",
        way_out="Use a whole number below the model's number of layers.",
    )

    def generate_kwargs(self) -> dict[str, Any]:
        """See :meth:`~.parts.Common.generate_kwargs`."""
        return super().generate_kwargs() | {"assistant_early_exit": self.assistant_early_exit}


Settings = (
    Greedy
    | Sample
    | Beam
    | BeamSample
    | DiverseBeam
    | Contrastive
    | Dola
    | Guidance
    | Assisted
    | PromptLookup
    | EarlyExit
)
"""Settings of a run: one class a strategy. Validate with :func:`~genscope.kernel_side.request.make_settings`."""
