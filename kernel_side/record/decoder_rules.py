"""How a fast tokenizer turns tokens into text, read off its decoder.

Fast tokenizers carry their decoder as data. The usual ones (byte-level BPE, SentencePiece with byte fallback,
Metaspace, WordPiece) work token by token up to a point; that part, and what is done to the joined text, is made into
rules here (as in the sources of the ``tokenizers`` crate, ``src/decoders``, ``src/pre_tokenizers/byte_level.rs``).
Applying them is the matter of ``token_bytes`` and ``detokenize``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from transformers import PreTrainedTokenizerBase
from transformers.tokenization_utils_tokenizers import TokenizersBackend

from .text_stages import Replacer, Stage, StartStripper

__all__ = ["Rules", "byte_level_bytes", "decoder_state", "fallback_byte", "rules_of"]


def _byte_level_alphabet() -> dict[str, int]:
    """Return which character stands for which byte in a byte-level vocabulary (GPT-2's ``bytes_to_unicode``)."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    alphabet = {chr(byte): byte for byte in printable}
    return alphabet | {chr(256 + place): byte for place, byte in enumerate(others)}


_ALPHABET = _byte_level_alphabet()

Step = Callable[[str, bool], str]
"""Maps a token's string, and whether it is the first one of its sequence, to what it adds."""


@dataclass(frozen=True, slots=True)
class Rules:
    """How a tokenizer turns tokens into text.

    Attributes
    ----------
    steps : tuple of callable
        Applied to each token's string.
    sink : {"plain", "byte_level", "byte_fallback"}
        How the results are joined: as they are; as bytes in GPT-2's alphabet; with tokens such as ``<0xE2>`` as bytes.
    stages : tuple of Stage
        Applied to the joined text; to be copied, they have state.
    positional : bool
        Whether the first token is treated otherwise.
    """

    steps: tuple[Step, ...]
    sink: Literal["plain", "byte_level", "byte_fallback"]
    stages: tuple[Stage, ...]
    positional: bool


def byte_level_bytes(token: str) -> bytes:
    """Return a byte-level token's bytes; as the library does, one with any other character stands for itself."""
    try:
        return bytes([_ALPHABET[char] for char in token])
    except KeyError:
        return token.encode()


def fallback_byte(token: str) -> bytes | None:
    """Return the byte of a token such as ``<0xE2>``."""
    if len(token) == 6 and token.isascii() and token.startswith("<0x") and token.endswith(">"):
        try:
            return bytes.fromhex(token[3:5])
        except ValueError:
            return None
    return None


def decoder_state(tokenizer: PreTrainedTokenizerBase) -> bytes | None:
    """Return the decoder as JSON. Of the decoder alone: the whole backend's takes seconds for a large vocabulary."""
    decoder = tokenizer.backend_tokenizer.decoder if isinstance(tokenizer, TokenizersBackend) else None
    state: bytes | None = None if decoder is None else decoder.__getstate__()
    return state


def rules_of(tokenizer: PreTrainedTokenizerBase) -> Rules | None:
    """Return a tokenizer's rules; None when it is not a fast one, or its class or decoder is not understood."""
    cls = type(tokenizer)
    plain = (
        isinstance(tokenizer, TokenizersBackend)
        and cls.decode is PreTrainedTokenizerBase.decode
        and cls._decode is TokenizersBackend._decode  # noqa: SLF001 - an override decodes by rules of its own
        and cls.clean_up_tokenization is PreTrainedTokenizerBase.clean_up_tokenization
    )
    if not plain:
        return None
    state = decoder_state(tokenizer)
    if state is None:
        return Rules((lambda token, first: token if first else " " + token,), "plain", (), positional=True)
    return _compile(_flatten(json.loads(state)))


def _flatten(decoder: dict[str, Any]) -> list[dict[str, Any]]:
    if decoder["type"] == "Sequence":
        return [part for inner in decoder["decoders"] for part in _flatten(inner)]
    return [decoder]


def _compile(decoders: list[dict[str, Any]]) -> Rules | None:
    """Turn a decoder's parts into rules; None when one of them is not understood where it stands."""
    steps: list[Step] = []
    stages: list[Stage] = []
    sink: Literal["plain", "byte_level", "byte_fallback"] = "plain"
    positional = joined = False
    for part in decoders:
        kind = part["type"]
        if kind == "Fuse":
            joined = True
        elif joined:
            stage = _stage(part)
            if stage is None:
                return None
            stages.append(stage)
        elif sink != "plain":  # runs of bytes that are not fused become tokens of their own
            return None
        elif kind == "ByteLevel":
            sink, joined = "byte_level", True
        elif kind == "ByteFallback":
            sink = "byte_fallback"
        else:
            step = _step(part)
            if step is None:
                return None
            steps.append(step)
            positional |= kind in ("Metaspace", "WordPiece")
    return Rules(tuple(steps), sink, tuple(stages), positional)


def _stage(part: dict[str, Any]) -> Stage | None:
    if part["type"] == "Strip" and part["stop"] == 0:
        return StartStripper(part["content"], part["start"])
    if part["type"] == "Replace" and part["pattern"].get("String"):
        return Replacer(part["pattern"]["String"], part["content"])
    return None


def _step(part: dict[str, Any]) -> Step | None:
    kind = part["type"]
    if kind == "Replace" and part["pattern"].get("String"):
        pattern, content = part["pattern"]["String"], part["content"]
        return lambda token, _: token.replace(pattern, content)
    if kind == "Metaspace":
        mark, keeps_first = part["replacement"], part["prepend_scheme"] == "never"
        return lambda token, first: token.replace(mark, "" if first and not keeps_first else " ")
    if kind == "WordPiece":
        return _word_piece(part["prefix"], part["cleanup"])
    return None


# The crate's own list, which is not quite the library's.
_WORD_PIECE_CLEANUP = (
    (" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'"), (" n't", "n't"), (" 'm", "'m"),
    (" do not", " don't"), (" 's", "'s"), (" 've", "'ve"), (" 're", "'re"),
)  # fmt: skip


def _word_piece(prefix: str, cleanup: bool) -> Step:
    def step(token: str, first: bool) -> str:
        if not first:
            token = token[len(prefix) :] if token.startswith(prefix) else " " + token
        if cleanup:
            for pattern, content in _WORD_PIECE_CLEANUP:
                token = token.replace(pattern, content)
        return token

    return step
