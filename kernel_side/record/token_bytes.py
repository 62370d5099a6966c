"""The exact bytes of each token of a tokenizer, from the rules of its decoder.

A token's bytes are worked out once, from the rules in ``decoder_rules``, and looked up from then on. Not here: what
depends on more than one token, see ``detokenize``. A tokenizer whose rules are not understood is said to be inexact,
never guessed at.
"""

from __future__ import annotations

import codecs
import weakref
from typing import NamedTuple

from transformers import PreTrainedTokenizerBase
from transformers.tokenization_utils_tokenizers import TokenizersBackend

from .decoder_rules import byte_level_bytes, decoder_state, fallback_byte, rules_of

__all__ = ["TokenBytes", "Unit", "literal", "token_bytes_of"]

_LITERAL = "genscope.literal"
"""Name of the error handler for ``bytes.decode`` that shows a byte outside any character as ``\\xE2``."""


def _show_bytes(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return "".join(f"\\x{byte:02X}" for byte in error.object[error.start : error.end]), error.end


codecs.register_error(_LITERAL, _show_bytes)


def literal(data: bytes) -> str:
    r"""Return bytes as text for display, bytes outside any character as ``\xE2``.

    Examples
    --------
    >>> literal("é".encode() + b"\xe2\x80")
    'é\\xE2\\x80'
    """
    return data.decode("utf-8", _LITERAL)


class Unit(NamedTuple):
    """What one token adds: its bytes, how they are drawn, and their text where it does not depend on the neighbours."""

    raw: bytes
    shown: str
    text: str | None
    is_byte: bool


class TokenBytes:
    """Looks up what each token of a tokenizer adds to the decoded text. Get one with :func:`token_bytes_of`.

    Parameters
    ----------
    tokenizer : PreTrainedTokenizerBase
        Is not kept: tokens added to it later are not seen.

    Attributes
    ----------
    exact : bool
        Whether the tokenizer's bytes are known. False for tokenizers written in Python, and for decoders or classes
        with rules of their own.
    rules : Rules or None
        None when not exact.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.rules = rules_of(tokenizer)
        self.exact = self.rules is not None
        self._special_ids = frozenset(getattr(tokenizer, "all_special_ids", ()))
        added = getattr(tokenizer, "added_tokens_decoder", {})
        self._special_tokens = frozenset(token.content for token in added.values() if token.special)
        self._special_ids |= {index for index, token in added.items() if token.special}
        self._backend = tokenizer.backend_tokenizer if isinstance(tokenizer, TokenizersBackend) else None
        self._units: dict[int, Unit | None] = {}
        self._first_units: dict[int, Unit | None] = {}
        self._skipped: dict[int, bool] = {}

    def bytes_of(self, token_id: int) -> bytes | None:
        """Return the bytes that a token adds in the middle of a text.

        None when the tokenizer is not exact, or does not have the token (vocabularies of models are often padded).
        """
        unit = self.unit(token_id)
        return None if unit is None else unit.raw

    def is_special(self, token_id: int) -> bool:
        """Return whether the tokenizer marks the token as special (end of sequence, roles, ...)."""
        return token_id in self._special_ids

    def is_skipped(self, token_id: int) -> bool:
        """Return whether ``skip_special_tokens=True`` leaves the token out. By content, as the library decides."""
        skipped = self._skipped.get(token_id)
        if skipped is None:
            skipped = self._skipped[token_id] = self._token(token_id) in self._special_tokens
        return skipped

    def unit(self, token_id: int, *, first: bool = False) -> Unit | None:
        """Return what a token adds; None when it is not in the vocabulary or nothing is known."""
        units = self._first_units if first else self._units
        try:
            return units[token_id]
        except KeyError:
            unit = units[token_id] = self._make_unit(token_id, first)
            return unit

    def _token(self, token_id: int) -> str | None:
        # The backend raises OverflowError outside of 32 bits.
        if self._backend is None or not 0 <= token_id < 2**32:
            return None
        token: str | None = self._backend.id_to_token(token_id)
        return token

    def _make_unit(self, token_id: int, first: bool) -> Unit | None:
        token = self._token(token_id)
        if self.rules is None or token is None:
            return None
        for step in self.rules.steps:
            token = step(token, first)
        if self.rules.sink == "byte_level":
            raw = byte_level_bytes(token)
            try:
                text = raw.decode()
            except UnicodeDecodeError:
                text = None
            return Unit(raw, literal(raw), text, is_byte=False)
        byte = fallback_byte(token) if self.rules.sink == "byte_fallback" else None
        if byte is not None:
            return Unit(byte, literal(byte), None, is_byte=True)
        return Unit(token.encode(), token, token, is_byte=False)


_cache: weakref.WeakKeyDictionary[PreTrainedTokenizerBase, tuple[tuple[object, ...], TokenBytes]] = (
    weakref.WeakKeyDictionary()
)


def token_bytes_of(tokenizer: PreTrainedTokenizerBase) -> TokenBytes:
    """Return the tokenizer's :class:`TokenBytes`, made once; again when its tokens or its decoder changed."""
    state = (decoder_state(tokenizer), len(tokenizer), *getattr(tokenizer, "all_special_ids", ()))
    known = _cache.get(tokenizer)
    if known is None or known[0] != state:
        known = _cache[tokenizer] = (state, TokenBytes(tokenizer))
    return known[1]
