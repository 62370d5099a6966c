"""The model's own way of calling tools, through the chat template of its tokenizer.

Tools are described to the template as JSON Schema. A call is written as Hermes, Qwen and SmolLM3 do it,
``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``; several in one segment are answered together. The template
is asked only for what is new: how it writes an answer behind any model's text. What is there is not rendered again.
"""

from __future__ import annotations

import inspect
import json
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase
from transformers.utils.chat_template_utils import get_json_schema

from .history import TextHistory
from .new_tokens import ids_of_parts, text_after
from .tools import Call

__all__ = ["Chat", "schema_of"]

_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
_MODEL = "genscope-model-text"
"""Stands for the model's text in a rendered conversation."""


class Chat:
    """How a model calls tools and is answered; the same methods as :class:`~.tags.Tags`.

    Parameters
    ----------
    tokenizer : PreTrainedTokenizerBase
        With a chat template.
    prompt : str
        The system's message; none where it is empty.
    tools : mapping of str to callable

    Raises
    ------
    ValueError
        Where there is no chat template, or it has no place for the answer of a tool.
    """

    stop_strings: Sequence[str] = ()

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, prompt: str, tools: Mapping[str, Callable[..., Any]]
    ) -> None:
        if not tokenizer.chat_template:
            msg = "the tokenizer has no chat template; use tool_format='tags'"
            raise ValueError(msg)
        self.tokenizer = tokenizer
        self._prompt = prompt
        self._schemas: Any = [schema_of(name, tool) for name, tool in tools.items()] or None
        if tools:
            self._behind(list(tools)[:1])
            self._warn()

    def _warn(self) -> None:
        """Say so where the template drops the tools without a word."""
        message = [{"role": "user", "content": "?"}]
        with_tools, without = (
            self.tokenizer.apply_chat_template(message, tools=tools, tokenize=False) for tools in (self._schemas, None)
        )
        if with_tools == without:
            text = "the chat template does not tell the model of the tools; describe them and their calls in prompt="
            warnings.warn(text, stacklevel=4)

    def begin(self, query: str | Sequence[Mapping[str, Any]]) -> TextHistory:
        """Return a history of a query, or of a conversation that ends in one."""
        messages: list[Any] = [{"role": "system", "content": self._prompt}] if self._prompt else []
        messages += [{"role": "user", "content": query}] if isinstance(query, str) else list(query)
        encoded: Any = self.tokenizer.apply_chat_template(
            messages, tools=self._schemas, add_generation_prompt=True, return_dict=True
        )
        ids = list(encoded["input_ids"])
        return TextHistory(text_after(self.tokenizer, (), ids), torch.tensor(ids, dtype=torch.int64))

    def end(self, text: str, *, eos: bool) -> str | None:
        """Return why the interaction ends with a model's segment; None where it goes on."""
        if _CALL.search(text):
            return None
        return "eos" if eos else "no call"

    def calls(self, text: str) -> list[Call]:
        """Return the calls that a model's segment makes; one that cannot be read has no tool."""
        return [_read(match[1]) for match in _CALL.finditer(text)] or [Call(None, (), {}, text)]

    def parse(self, text: str) -> tuple[str | None, str | None]:
        """Return the tool and the arguments, as JSON, of the first call; two None where there is none."""
        match = _CALL.search(text)
        call = None if match is None else _read(match[1])
        if call is None or call.tool is None:
            return None, None
        return call.tool, json.dumps(call.keywords, ensure_ascii=False)

    def answer(self, last: int, calls: Sequence[Call], answers: Sequence[str]) -> tuple[str, list[int]]:
        """Return the segment that answers calls, as text and as ids, up to where the model is to write again.

        Parameters
        ----------
        last : int
            The last token of the model's segment. Where it is the one with which the template ends a message, the
            answer begins behind it.
        calls : sequence of Call
        answers : sequence of str
            Special tokens that they name are plain text.
        """
        pieces = self._behind([call.tool or "unknown" for call in calls])
        ended = str(self.tokenizer.decode([last]))
        if ended and pieces[0].startswith(ended):
            pieces[0] = pieces[0][len(ended) :]
        parts = [(pieces[0], False)]
        for answer, piece in zip(answers, pieces[1:], strict=True):
            parts += [(answer, True), (piece, False)]
        return "".join(text for text, _ in parts), ids_of_parts(self.tokenizer, parts)

    def _behind(self, names: Sequence[str]) -> list[str]:
        """Return what the template writes behind a model's text: before, between and behind answers of these tools."""
        marks = [f"genscope-answer-{index}-" for index in range(len(names))]
        messages: list[dict[str, Any]] = [
            {"role": "user", "content": "?"},
            {"role": "assistant", "content": _MODEL},
            *({"role": "tool", "name": name, "content": mark} for name, mark in zip(names, marks, strict=True)),
        ]
        try:
            rendered: Any = self.tokenizer.apply_chat_template(
                messages, tools=self._schemas, add_generation_prompt=True, tokenize=False
            )
        except Exception as error:  # a template is a program of the model's author and may raise anything
            msg = f"the chat template takes no answer of a tool ({error}); use tool_format='tags'"
            raise ValueError(msg) from error
        found = re.search("(.*)".join(map(re.escape, [_MODEL, *marks])) + "(.*)", rendered, re.DOTALL)
        if found is None:
            msg = "the chat template leaves out the answer of a tool; use tool_format='tags'"
            raise ValueError(msg)
        return list(found.groups())


def _read(text: str) -> Call:
    """Read a call; the arguments may be an object or, as some models write them, JSON in a text."""
    nothing = Call(None, (), {}, text.strip())
    try:
        call = json.loads(text)
        arguments = call.get("arguments", call.get("parameters", {}))
        arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
    except (ValueError, AttributeError, RecursionError):
        return nothing
    if not isinstance(call.get("name"), str) or not isinstance(arguments, dict):
        return nothing
    return Call(call["name"], (), arguments, text.strip())


def schema_of(name: str, tool: Callable[..., Any]) -> dict[str, Any]:
    """Return the description of a tool for a chat template.

    From its docstring (Google style) and type hints where they say all; otherwise from its signature, with parameters
    that may be anything.
    """
    method: Any = getattr(tool, "__call__")  # noqa: B004, B009 - of an object its docstring is there
    try:
        schema: dict[str, Any] = get_json_schema(tool if inspect.isroutine(tool) else method)
    except Exception:  # noqa: BLE001 - the library raises errors of many kinds for what it cannot describe
        parameters = _parameters(tool)
        described = (inspect.getdoc(tool) or name).strip().splitlines()[0]
        properties: dict[str, Any] = {parameter.name: {} for parameter in parameters}
        required = [one.name for one in parameters if one.default is inspect.Parameter.empty]
        schema = {
            "type": "function",
            "function": {
                "description": described,
                "parameters": {"type": "object", "properties": properties, "required": required},
            },
        }
    schema["function"] = {**schema["function"], "name": name}
    return schema


def _parameters(tool: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        found = inspect.signature(tool).parameters.values()
    except (TypeError, ValueError):  # written in C
        return []
    return [one for one in found if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD, one.POSITIONAL_ONLY)]
