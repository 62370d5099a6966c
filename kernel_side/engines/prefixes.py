"""The prefix cache in one run: what the run begins with, what it leaves behind, and what a person is told of it.

Not here: the cache itself (``caching``), and how a run generates (``job``).
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import torch

from ..caching.reuse import PromptReuse, Verified
from ..decoding.tap_prompt import is_recurrent
from ..settings import Contrastive, Greedy, Settings
from ..streaming.base import StepStreamer
from ..streaming.outputs import Field, Output, PromptOutput

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from ..caching.lease import Lease
    from ..caching.prefix_cache import PrefixCache
    from ..caching.savings import PrefillRate
    from ..record.recording import Lane
    from .plan import Plan

__all__ = ["FirstLogits", "PrefixUse", "is_off", "lease_for"]


class PrefixUse:
    """What one run does with the prefix cache; a context manager around its ``generate``.

    Leaving it stores what the run computed, also where it was stopped or failed, and gives back what was in use.

    Parameters
    ----------
    prefixes : PrefixCache
    model : PreTrainedModel
        The one that runs, which may be a view.
    tokenizer : PreTrainedTokenizerBase
    settings : Settings
    plan : Plan
    prompts : sequence of sequence of int
        What the decoder begins with, without padding.
    inputs : dict
        What ``generate`` is given.
    sources : sequence of sequence of int, or None
        What the encoder reads.
    lanes : sequence of Lane
        Whose records hold the ids, when the run is over.
    rate : PrefillRate
        Of runs before.

    Attributes
    ----------
    inputs : dict
        What ``generate`` is given beside.
    held : int
        Columns that its cache holds, for ``observe``.
    reuse : PromptReuse
    price : float
        Seconds that looking and copying took.
    """

    def __init__(
        self,
        prefixes: PrefixCache,
        model: Any,
        tokenizer: PreTrainedTokenizerBase,
        settings: Settings,
        plan: Plan,
        *,
        prompts: Sequence[Sequence[int]],
        inputs: dict[str, Any],
        sources: Sequence[Sequence[int]] | None,
        lanes: Sequence[Lane],
        rate: PrefillRate,
    ) -> None:
        began = time.perf_counter()
        self._model, self._lanes = model, lanes
        self._searches = settings.searches
        copies = getattr(settings, "num_beams", 1) if settings.searches else settings.sequences
        self._lease = lease_for(prefixes, model, settings, plan, prompts, sources, copies)
        self.inputs: dict[str, Any] = {}
        try:
            if not is_off(settings, model):
                # States of the encoder that are kept come from `generate`'s own pass.
                self.inputs = self._lease.arguments(None if _keeps_states(settings) else inputs)
        except BaseException:
            self._lease.close()
            raise
        self.held = self._lease.columns
        self.price = time.perf_counter() - began
        self.reuse = PromptReuse.of(self._lease.rows, tokenizer.decode)
        saved = rate.estimate(self.reuse.reused)
        if saved is not None and self.reuse.reused:
            self.reuse = dataclasses.replace(self.reuse, saved=saved - self.price)

    @property
    def computed(self) -> int:
        """Prompt tokens that were not reused, of all rows of the batch."""
        return (self.reuse.tokens - self.reuse.reused) * self._lease.copies

    def verify(self, first: FirstLogits, inputs: dict[str, Any], warm: float) -> None:
        """Read the prompt once more, without the cache, and compare.

        Parameters
        ----------
        first : FirstLogits
            Saw the run.
        inputs : dict
            What ``generate`` was given, without the cache.
        warm : float
            Seconds that the run took to its first logits, without looking and copying.
        """
        if first.logits is None or not (self.reuse.reused or self.reuse.sources_reused):
            return
        began = time.perf_counter()
        arguments = Greedy(max_new_tokens=1).generate_kwargs()
        read = {name: value for name, value in inputs.items() if not name.startswith("negative_")}
        output = self._model.generate(**read, **arguments, output_logits=True, return_dict_in_generate=True)
        [cold] = output.logits
        seconds = time.perf_counter() - began
        ours = first.logits[:: self._lease.copies].to(cold.device)
        difference = (ours - cold).abs()
        # Minus infinity on both sides is no difference.
        difference[ours == cold] = 0.0
        agrees = bool((ours.argmax(dim=-1) == cold.argmax(dim=-1)).all())
        finite = cold[cold.isfinite()]
        verified = Verified(float(difference.max()), float(finite.abs().max()) if len(finite) else 0.0, agrees)
        saved = seconds - warm - self.price
        self.reuse = dataclasses.replace(self.reuse, verified=verified, saved=saved, saved_measured=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            # The rows of a search are its live hypotheses; only that they begin with the prompt is known of them.
            rows = None if self._searches else [lane.record.ids() for lane in self._lanes]
            if rows is None or all(rows):  # it may have failed before the prompt was recorded
                self._lease.store(rows, failed=error is not None)
        finally:
            self._lease.close()


def lease_for(
    prefixes: PrefixCache,
    model: Any,
    settings: Settings,
    plan: Plan,
    prompts: Sequence[Sequence[int]],
    sources: Sequence[Sequence[int]] | None,
    copies: int,
) -> Lease:
    """Look up what a run begins with: so many copies of each prompt, and of what an encoder reads for it."""
    kind = settings.generate_kwargs().get("cache_implementation", model.generation_config.cache_implementation)
    off = "the model's generation config says use_cache=False" if is_off(settings, model) else None
    return prefixes.lease(
        model,
        prompts,
        copies=copies,
        kind=kind or "dynamic",
        length=max(map(len, prompts)) + settings.max_new_tokens,
        sources=sources,
        execution=settings.execution,
        only_store=off or _why_not(settings, plan, model),
    )


def is_off(settings: Settings, model: Any) -> bool:
    """Return whether a run goes on without any cache of keys and values."""
    return settings.generate_kwargs().get("use_cache", model.generation_config.use_cache) is False


class FirstLogits(StepStreamer):
    """Keeps the logits of a run's first choice: shape ``(rows, vocabulary)``, of all rows of its batch."""

    fields: frozenset[Field] = frozenset({"logits"})

    def __init__(self) -> None:
        self.logits: torch.Tensor | None = None

    def put(self, output: Output) -> None:
        """Take the first step's."""
        if self.logits is None and not isinstance(output, PromptOutput):
            logits = getattr(output, "logits", None)
            # Of a round of drafts there is a tensor a token.
            self.logits = logits[0] if isinstance(logits, tuple) else logits

    def end(self, error: BaseException | None = None) -> None:
        """Nothing waits for it."""


def _keeps_states(settings: Settings) -> bool:
    return bool(
        settings.attention or settings.logit_lens or {"attentions", "hidden_states"}.intersection(settings.keep)
    )


def _why_not(settings: Settings, plan: Plan, model: Any) -> str | None:
    """Return why a run computes its whole prompt, None where it need not."""
    if _keeps_states(settings):
        return "attention or hidden states of the prompt are observed, which are there only while all of it is computed"
    if isinstance(settings, Contrastive):
        return "contrastive search compares hidden states of all tokens, which no cache holds"
    if plan.loop is not None and is_recurrent(model):
        return f"the strategy {settings.strategy!r} begins a recurrent model with the whole prompt"
    return None
