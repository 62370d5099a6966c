"""The engine that runs a model of this process in an environment with tools: each query is a conversation with them.

It says what of a request goes with an environment, and what of its settings becomes what. Running is in
``environment_job``, the environment itself in ``environment``.
"""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from ..decoding.model_view import view_of
from ..environment.environment import TextEnvironment
from ..problems import Problem
from ..record.record import Token
from ..request import Prompt, Request, SettingsError
from ..settings import Guidance
from .base import Job
from .environment_job import EnvironmentJob
from .in_process import InProcessEngine
from .plan import Plan, make_plan

__all__ = ["EnvironmentEngine"]


class EnvironmentEngine:
    """Executes requests in an environment: their prompts are the queries, and each is a lane.

    What is generated, what tools answer and what became of each query is recorded as it comes; ``run.output`` is what
    :meth:`.TextEnvironment.run` returns. A run can be stopped, also while a tool works, paused and stepped, and keeps
    what came. Tools and the reward function are called in the run's thread or one of its own, while the model is held.

    Parameters
    ----------
    engine : InProcessEngine
        Whose model, draft model and prefix cache serve.
    tools, reward_fn, prompt, max_turns, max_tool_reponse, max_length, tool_timeout, tool_format, reward_each
        As of :class:`~genscope.kernel_side.environment.environment.TextEnvironment`.
    batch_size : int
        Histories that are generated together.
    rewards_kwargs : mapping, optional
        For the reward function.

    Attributes
    ----------
    turnstile : Turnstile
        The other engine's.

    Examples
    --------
    >>> engine = EnvironmentEngine(InProcessEngine(model, tokenizer), tools=[add], prompt=prompt)  # doctest: +SKIP
    >>> run = Run(engine, Request.make(["What is 2 + 3?"], max_new_tokens=30))  # doctest: +SKIP
    """

    def __init__(
        self,
        engine: InProcessEngine,
        tools: Sequence[Callable[..., Any]] | Mapping[str, Callable[..., Any]] | None = None,
        reward_fn: Callable[..., Any] | None = None,
        prompt: str = "",
        *,
        max_turns: int = 4,
        max_tool_reponse: int = 100,
        max_length: int | None = None,
        tool_timeout: float | None = None,
        tool_format: Literal["tags", "chat"] = "tags",
        reward_each: bool = False,
        batch_size: int = 16,
        rewards_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        self.engine = engine
        self.turnstile = engine.turnstile
        if not engine.model.config.is_encoder_decoder:  # of such a model the lanes are not what its decoder wrote
            self.beginning, self.ids_behind, self.next_turn = engine.beginning, engine.ids_behind, _no_reply
        self.rewards_kwargs = dict(rewards_kwargs or {})
        self._options: dict[str, Any] = {
            "tools": tools,
            "reward_fn": reward_fn,
            "prompt": prompt,
            "max_turns": max_turns,
            "max_tool_reponse": max_tool_reponse,
            "max_length": max_length,
            "tool_timeout": tool_timeout,
            "tool_format": tool_format,
            "reward_each": reward_each,
            "batch_size": batch_size,
        }
        # What does not go together is told here, not when a run is to begin.
        TextEnvironment(engine.model, engine.tokenizer, **self._options)

    def prepare(self, request: Request) -> Job:
        """Check a request against the model and the environment, and begin the history of each query.

        A request that goes on from the tokens of a run is no query: it is the other engine's, without tools.

        Raises
        ------
        SettingsError
            Naming field, value and way out.
        """
        if request.ids is not None:
            return self.engine.prepare(request)
        problems = list(_problems(request, self._options["tool_format"]))
        if problems:
            raise SettingsError(problems)
        plan = make_plan(request, self.engine.model, self.engine.draft)
        settings = request.settings
        if settings.seed is None:
            settings = settings.model_copy(update={"seed": secrets.randbits(32)})
            request = dataclasses.replace(request, settings=settings)
        return EnvironmentJob(self, request, plan)

    def make_environment(self, request: Request, plan: Plan, **hooks: Any) -> TextEnvironment:
        """Make the environment of one run.

        Parameters
        ----------
        request : Request
        plan : Plan
        **hooks
            ``stop``, ``watch`` and ``on_segment``.
        """
        engine, settings = self.engine, request.settings
        return TextEnvironment(
            engine.model if plan.view is None else view_of(engine.model, **plan.view),
            engine.tokenizer,
            generation_kwargs=_arguments(request, plan),
            prefix_cache=engine.prefix_cache if settings.prefix_cache else None,
            seed=settings.seed,
            **self._options,
            **hooks,
        )


def _no_reply(tokens: Sequence[Token], messages: Prompt) -> tuple[int, list[int]]:  # noqa: ARG001 - of all engines
    message = "the run had tools, whose answers are no turns of the conversation"
    raise SettingsError([Problem("run", None, message, "Branch at its end, or play with a query that goes on.")])


def _arguments(request: Request, plan: Plan) -> dict[str, Any]:
    arguments = {**request.settings.generate_kwargs(), "stop_strings": request.settings.stop_strings}
    if plan.loop is not None:
        arguments["custom_generate"] = plan.loop
    if plan.draft is not None:
        arguments["assistant_model"] = view_of(plan.draft.model, **plan.draft_view)
        if plan.draft.tokenizer is not None:
            arguments["assistant_tokenizer"] = plan.draft.tokenizer
    return arguments


def _problems(request: Request, tool_format: str) -> Iterator[Problem]:
    """Say what of a request does not go with an environment."""
    settings = request.settings
    if settings.execution != "eager":
        problem = "the turns of an environment run eagerly"
        yield Problem("execution", settings.execution, problem, "Use 'eager'.")
    if settings.sequences > 1:
        message = f"a history goes on in one way, and {settings.sequences} sequences were asked for"
        yield Problem("num_return_sequences", settings.sequences, message, "Use 1, and give a query several times.")
    if not settings.stop_at_eos:
        yield Problem("stop_at_eos", False, "in an environment the end of sequence ends a history", "Switch it on.")
    observed: dict[str, Any] = {
        name: getattr(settings, name) for name in ("attention", "logit_lens", "prompt_probabilities", "keep")
    }
    if settings.prefix_cache:
        observed["verify_cache"] = settings.verify_cache
    for name, value in observed.items():
        if value:
            yield Problem(name, value, "it is not there for the turns of an environment", "Switch it off.")
    if isinstance(settings, Guidance) and settings.negative_prompt:
        message = "it would have to grow with each history"
        yield Problem("negative_prompt", settings.negative_prompt, message, "Leave it empty, or use another strategy.")
    if tool_format != "chat" and not all(isinstance(prompt, str) for prompt in request.prompts):
        message = "a conversation goes through the chat template, and the tools are called in tags"
        yield Problem("prompt", request.plain_prompt(), message, "Give texts, or tool_format='chat'.")
