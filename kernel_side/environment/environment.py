"""An environment: a model that writes, calls tools, reads their answers and goes on, for a batch of queries.

Follows the ``TextEnvironment`` that TRL had up to version 0.20, by its names, arguments, results and grammar; written
anew. How a batch is generated is in ``turn``, what calls look like in ``tags`` and ``chat``, calling in ``tools``.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Literal, cast

import torch
from transformers import PreTrainedTokenizerBase

from ..caching.prefix_cache import PrefixCache
from .answering import answer_last
from .batches import Watch, generate_rows, write_segments
from .chat import Chat
from .ending import Ending
from .history import TextHistory
from .playing import Results, play, results_of
from .rewards import give_rewards
from .segments import Segment, SegmentLog
from .stopping import StringStoppingCriteria
from .tags import Tags
from .tools import tools_by_name
from .turn import Turns

__all__ = ["Results", "TextEnvironment"]


class TextEnvironment:
    """Lets a model interact with tools, and rewards what comes of it.

    Each turn the model writes a segment; a call in it is answered by the tool, and the model goes on. A history ends
    when the model submits, ends without a call or with an EOS token, or when its turns or its length are used up.

    Parameters
    ----------
    model : PreTrainedModel
        Decoder-only, or an encoder-decoder model: its encoder reads the whole history in each turn, and its decoder
        writes the next segment, beginning anew. A wrapper with a ``pretrained_model`` (TRL's value heads) is taken off.
        Never changed.
    tokenizer : PreTrainedTokenizerBase
        Never changed.
    tools : sequence or mapping of callable, optional
        Called with the query as their one argument (``tool_format="tags"``) or with keyword arguments (``"chat"``).
        Tools of a sequence are named by their function, or by their class where they are other objects.
    reward_fn : callable, optional
        Gets the list of the last segments' texts, and `rewards_kwargs`; returns a reward for each. None: they
        stay 0.0.
    prompt : str
        Stands before each query; with ``tool_format="chat"`` the system's message.
    max_turns : int
        Segments of the model a history. A call in the last one is still answered.
    max_tool_reponse : int
        Characters of an answer, ``<response>`` not counted. What is longer is cut and ends in three dots.
    max_length : int, optional
        Tokens of a history, prompt included, padding not counted. Never passed, except by the prompt; nor is the
        context of the model.
    generation_kwargs : mapping, optional
        Arguments of ``generate``. Not changed.
    use_cache : bool
        Keep KV from one turn to the next. The tokens are the same. Costs the memory of all histories, until the run
        ends. Where nothing can be reused, it is computed anew, and ``history.reuses`` says why.
    prefix_cache : PrefixCache, optional
        Where it is kept, also from run to run and for other users of the model. Implies `use_cache`.
    keep_logits : bool
        Keep the logits of the model's tokens in ``history.logits``.
    seed : int, optional
        Makes runs that sample reproducible, also beside others, and leaves the global generator alone. None: draws from
        that. Rows of a batch share a generator: the same query alone draws otherwise.
    tool_timeout : float, optional
        Seconds that a tool may take. One that takes longer is answered for, and left behind in its thread.
    tool_format : {"tags", "chat"}
        The tag grammar, or the model's own format, through the chat template of the tokenizer; then queries may be
        conversations.
    stop : threading.Event or callable, optional
        Once it is set, or returns True, a run ends after the step, and keeps what came.
    on_segment : callable, optional
        Gets each :class:`~genscope.kernel_side.environment.segments.Segment` as it comes, in the
        thread of the run.
    watch : callable, optional
        Gets the indices of the queries of a batch that is about to be generated; returns a
        :class:`~genscope.kernel_side.streaming.base.StepStreamer` that sees its steps, or None.
    reward_each : bool
        Call the reward function with one text at a time, and distribute lists among `rewards_kwargs`, one entry each.
    batch_size : int
        Histories that are generated together.
    max_tool_response : int, optional
        Another spelling of `max_tool_reponse`, as TRL had later.

    Raises
    ------
    ValueError, TypeError
        For arguments that do not go together; the message says what to do.

    Examples
    --------
    >>> environment = TextEnvironment(model, tokenizer, {"Add": lambda query: sum(map(int, query.split("+")))})
    >>> queries, responses, masks, rewards, histories = environment.run(["What is 2 + 3?"])
    """

    def __init__(
        self,
        model: Any,
        tokenizer: PreTrainedTokenizerBase,
        tools: Sequence[Callable[..., Any]] | Mapping[str, Callable[..., Any]] | None = None,
        reward_fn: Callable[..., Any] | None = None,
        prompt: str | None = "",
        max_turns: int = 4,
        max_tool_reponse: int = 100,
        max_length: int | None = None,
        generation_kwargs: Mapping[str, Any] | None = None,
        *,
        use_cache: bool = False,
        prefix_cache: PrefixCache | None = None,
        keep_logits: bool = False,
        seed: int | None = None,
        tool_timeout: float | None = None,
        tool_format: Literal["tags", "chat"] = "tags",
        stop: threading.Event | Callable[[], bool] | None = None,
        on_segment: Callable[[Segment], object] | None = None,
        watch: Watch | None = None,
        reward_each: bool = False,
        batch_size: int = 16,
        max_tool_response: int | None = None,
    ) -> None:
        self.model, self.tokenizer = getattr(model, "pretrained_model", model), tokenizer
        self.tools = tools_by_name(tools)
        self.reward_fn = reward_fn
        self.prompt = prompt or ""
        self.max_turns, self.max_length = max_turns, max_length
        self.max_tool_reponse = max_tool_reponse if max_tool_response is None else max_tool_response
        self.generation_kwargs = dict(generation_kwargs or {})
        self.request_token, self.call_token = "<request>", "<call>"
        self.response_token, self.submit_token = "<response>", "<submit>"
        self.seed, self.tool_timeout = seed, tool_timeout
        self.reward_each, self.batch_size = reward_each, batch_size
        self._use_cache, self._prefix_cache, self._keep_logits = use_cache, prefix_cache, keep_logits
        self._on_segment, self._watch = on_segment, watch
        self._stop = stop.is_set if isinstance(stop, threading.Event) else stop
        if tool_format not in ("tags", "chat"):
            msg = f"tool_format is {tool_format!r}; use 'tags' or 'chat'"
            raise ValueError(msg)
        if min(max_turns, batch_size, self.max_tool_reponse + 1) < 1:
            msg = f"max_turns={max_turns}, batch_size={batch_size}, max_tool_reponse={self.max_tool_reponse}: "
            raise ValueError(msg + "use at least 1, 1 and 0")
        self._chat = Chat(tokenizer, self.prompt, self.tools) if tool_format == "chat" else None
        self._turns = self._make_turns()

    def _make_turns(self) -> Turns:
        prefixes = PrefixCache(sys.maxsize) if self._use_cache and self._prefix_cache is None else self._prefix_cache
        return Turns(
            self.model, self.tokenizer, self.generation_kwargs, prefixes=prefixes, keep_logits=self._keep_logits
        )

    @property
    def max_tool_response(self) -> int:
        """The other spelling of ``max_tool_reponse``."""
        return self.max_tool_reponse

    @max_tool_response.setter
    def max_tool_response(self, value: int) -> None:
        self.max_tool_reponse = value

    def run(self, queries: Sequence[Any], **rewards_kwargs: Any) -> Results:
        """Run the environment on queries.

        Parameters
        ----------
        queries : sequence of str or TextHistory
            With ``tool_format="chat"`` each may be a conversation, a list of messages. Histories go on where they are.
        **rewards_kwargs
            For the reward function.

        Returns
        -------
        queries, responses, masks, rewards, histories : list
            Of each the tokens of its prompt, those behind, which of these are the model's (1), its reward, and itself.
        """
        steps = self.stream(queries, **rewards_kwargs)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return cast("Results", end.value)

    def stream(self, queries: Sequence[Any], **rewards_kwargs: Any) -> Generator[Segment, None, Results]:
        """Run, and yield each segment as it comes; arguments, and the value at the end, are those of `run`."""
        self._turns = self._make_turns()  # `generation_kwargs` may have been changed since the last run
        histories = [query if isinstance(query, TextHistory) else self.begin(query) for query in queries]
        log = SegmentLog(histories)
        try:
            for _ in play(self, histories, rewards_kwargs):
                for segment in log.new():
                    if self._on_segment is not None:
                        self._on_segment(segment)
                    yield segment
        finally:
            self._let_go()
        return results_of(histories)

    def begin(self, query: Any) -> TextHistory:
        """Return the history of a query that has no turn yet."""
        return self._format.begin(query)

    def _let_go(self) -> None:
        if self._prefix_cache is None and self._turns.prefixes is not None:
            self._turns.prefixes.clear()

    def stopped(self) -> bool:
        """Return whether whoever may stop a run did."""
        return self._stop is not None and self._stop()

    @property
    def _format(self) -> Tags | Chat:
        if self._chat is not None:
            return self._chat
        tags = self.request_token, self.call_token, self.response_token, self.submit_token
        return Tags(self.tokenizer, self.prompt, self._turns.closing, *tags)

    def generate(self, histories: list[TextHistory]) -> list[TextHistory]:
        """Let the model write the next segment of each history that is not complete.

        One that has no room for another token is completed instead.
        """
        write_segments(
            self._turns,
            histories,
            self._make_stopping(),
            max_length=self.max_length,
            batch_size=self.batch_size,
            seed=self.seed,
            stop=self._stop,
            watch=self._watch,
        )
        return histories

    def _generate_batched(self, query_tensors: Sequence[torch.Tensor], batch_size: int = 16) -> list[torch.Tensor]:
        """Generate for rows of tokens that are no histories; tests written for TRL's class know it by this name."""
        return generate_rows(self._turns, query_tensors, self._make_stopping(), batch_size)

    def _make_stopping(self) -> StringStoppingCriteria:
        strings = [*self._format.stop_strings, *self._turns.stop_strings]
        return StringStoppingCriteria(strings, self.tokenizer, eos_token_id=self._turns.eos_ids)

    def step(self, history: TextHistory) -> TextHistory:
        """Answer the call in the last segment of a history; complete it where there is nothing to answer."""
        self.tasks_end_check([history])
        if history.completed:
            return history
        limit, _ = self._turns.limit(self.max_length)
        room = None if limit is None else limit - len(history.tokens)
        answer_last(history, self._format, self.tools, self.max_tool_reponse, room, self.tool_timeout, self._stop)
        return history

    def parse_tool_call(self, text: str) -> tuple[str | None, str | None]:
        """Return the tool and the query of the first call in a text; two None where there is none."""
        return self._format.parse(text)

    def compute_reward(self, histories: list[TextHistory], **reward_kwargs: Any) -> list[TextHistory]:
        """Set the reward of each history."""
        if self.reward_fn is not None and histories:
            give_rewards(self.reward_fn, histories, reward_kwargs, each=self.reward_each)
        return histories

    def tasks_end_check(self, histories: list[TextHistory], model_turn: bool = True) -> list[TextHistory]:
        """Complete the histories that are over."""
        for history in histories:
            why, truncated = self._end(history, model_turn)
            if why is not None:
                history.complete(truncated=truncated, why=why)
        return histories

    def task_end_check(self, history: TextHistory, model_turn: bool = True) -> tuple[bool, bool]:
        """Return whether a history is cut short, and whether it is over; two False where it was complete before."""
        why, truncated = self._end(history, model_turn)
        return truncated, why is not None

    def _end(self, history: TextHistory, model_turn: bool) -> tuple[str | None, bool]:
        if history.completed:
            return None, False
        ending = Ending(self._format, *self._turns.limit(self.max_length), self._turns.eos_ids, self.stopped)
        return ending.of(history, model_turn=model_turn)
