"""What a streamer is, and the one that calls back.

A streamer gets the prompt, then each step, then the end, in the generating thread. Reading from another thread or from
a coroutine: ``iterate``. Text instead of tensors: ``text``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar, cast

from .beam_outputs import BeamResult
from .outputs import ALL_FIELDS, Field, Output, PromptOutput, Step

__all__ = ["OutputStreamer", "StepStreamer", "check_fields"]

AnyStep = TypeVar("AnyStep", bound=Step)


class StepStreamer:
    """What :func:`~genscope.kernel_side.decoding.observe.observe` hands step outputs to.

    Attributes
    ----------
    fields : frozenset of str
        What this streamer wants beside the tokens; the rest may arrive as None and costs nothing.
    """

    fields: frozenset[Field] = frozenset()

    @property
    def closed(self) -> bool:
        """Whether the reader is gone, so that generating on has no point."""
        return False

    def put(self, output: Output) -> None:
        """Take the prompt (first, once), a step, or what a beam search chose (last, once)."""
        raise NotImplementedError  # abstract; an ABC would clash with the library's own base of text streamers

    def end(self, error: BaseException | None = None) -> None:
        """Take the end; ``error`` is the exception that ended the generation, if one did.

        Called once by an observed generation, whatever happens.
        """
        raise NotImplementedError  # abstract, see put


class OutputStreamer(StepStreamer):
    """Calls back at each step, in the generating thread.

    An exception in a callback aborts the generation and comes out of ``generate``.

    Parameters
    ----------
    on_step : callable
        Gets each step: a :class:`StepOutput`, :class:`BeamStepOutput` or :class:`AssistedStepOutput`, depending on the
        strategy.
    on_prompt : callable, optional
        Gets the :class:`PromptOutput`.
    on_result : callable, optional
        Gets the :class:`BeamResult` of a beam search, whose tokens are not final before.
    on_end : callable, optional
        Gets the exception that ended the generation, or None.
    fields : iterable of str
        Any of ``"scores"``, ``"logits"``, ``"attentions"``, ``"hidden_states"``, ``"prompt_logits"``.

    Raises
    ------
    ValueError
        For an unknown field.

    Examples
    --------
    >>> streamer = OutputStreamer(lambda step: print(step.step, step.tokens.tolist()))
    >>> model.generate(**inputs, **observe(streamer), max_new_tokens=3)  # doctest: +SKIP
    """

    def __init__(
        self,
        on_step: Callable[[AnyStep], object],
        *,
        on_prompt: Callable[[PromptOutput], object] | None = None,
        on_result: Callable[[BeamResult], object] | None = None,
        on_end: Callable[[BaseException | None], object] | None = None,
        fields: Iterable[Field] = ("scores", "logits"),
    ) -> None:
        self.fields = check_fields(fields)
        # Whoever takes one kind of step only says so, and uses it with that strategy.
        self._on_step = cast("Callable[[Step], object]", on_step)
        self._on_prompt = on_prompt
        self._on_result = on_result
        self._on_end = on_end

    def put(self, output: Output) -> None:
        """Call back with the output."""
        if isinstance(output, PromptOutput):
            if self._on_prompt is not None:
                self._on_prompt(output)
        elif isinstance(output, BeamResult):
            if self._on_result is not None:
                self._on_result(output)
        else:
            self._on_step(output)

    def end(self, error: BaseException | None = None) -> None:
        """Call back with the end."""
        if self._on_end is not None:
            self._on_end(error)


def check_fields(fields: Iterable[Field]) -> frozenset[Field]:
    """Return the fields as a set.

    Raises
    ------
    ValueError
        For a name that is not a field.
    """
    # One name alone is meant as one name, not as its letters.
    chosen = frozenset(cast("Iterable[Field]", [fields] if isinstance(fields, str) else fields))
    if unknown := chosen - ALL_FIELDS:
        msg = f"unknown fields {sorted(unknown)}; choose from {sorted(ALL_FIELDS)}"
        raise ValueError(msg)
    return chosen
