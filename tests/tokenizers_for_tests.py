"""Tiny tokenizers of every family, built in code: nothing is downloaded and nothing is saved.

They are trained on a few lines that have what goes wrong elsewhere: emoji, scripts without spaces, combining marks,
markup, line ends. Slow tokenizers are written here, in Python, as users' own may be.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

TEXTS = (
    "The quick brown fox jumps over the lazy dog. It's not what they'd do, is it? No , they do not !",
    "def f(x):\r\n\tif x <= 3:\n\t\treturn [x ** 2, 'a\\n']\n    else:  # comment\n        pass\n\n\n",
    "家族は👨‍👩‍👧‍👦と🏳️‍🌈、日本語の文章と中文字符。안녕하세요 세계",
    "e\u0301a\u0308 naïve café — “quotes” … ภาษาไทย हिन्दी 😀😃🎉",
    "<script>alert(1)</script> <s> </s> &amp; \"double\" 'single' <|im_end|> <0xE2> ▁ ##x Ġ",
    "   leading and  double   spaces  \t\ttabs \n",
)
SPECIAL = ["<unk>", "<s>", "</s>", "<pad>"]
_NAMES = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}


def _wrap(backend: Tokenizer) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(tokenizer_object=backend, **_NAMES)


def byte_level() -> PreTrainedTokenizerFast:
    """Like GPT-2, Llama 3, Qwen, SmolLM2; with added tokens that are, and are not, in the byte alphabet."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(TEXTS, trainer)
    backend.add_tokens([AddedToken("日本", normalized=False), AddedToken("ß", normalized=False), "two words"])
    backend.add_special_tokens(["<|im_end|>", "<|ü|>"])
    return _wrap(backend)


def _with_byte_fallback(decoder: decoders.Decoder) -> PreTrainedTokenizerFast:
    backend = Tokenizer(models.BPE(unk_token="<unk>"))
    backend.normalizer = normalizers.Replace(" ", "▁")
    trainer = trainers.BpeTrainer(
        vocab_size=250, special_tokens=SPECIAL, limit_alphabet=60, max_token_length=6, show_progress=False
    )
    backend.train_from_iterator(TEXTS[:2], trainer)
    model = json.loads(backend.to_str())["model"]
    vocabulary = dict(model["vocab"])
    for byte in range(256):
        vocabulary[f"<0x{byte:02X}>"] = len(vocabulary)
    for text in ("▁▁", "▁", " ", "", "▁<", "\ufffd"):
        vocabulary.setdefault(text, len(vocabulary))
    merges = [tuple(pair) for pair in model["merges"]]
    backend.model = models.BPE(vocab=vocabulary, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    backend.decoder = decoder
    backend.add_special_tokens(SPECIAL)
    return _wrap(backend)


def llama() -> PreTrainedTokenizerFast:
    """Like Llama 2, Mistral 7B: byte fallback, and one leading space goes."""
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    return _with_byte_fallback(decoders.Sequence(parts))


def gemma() -> PreTrainedTokenizerFast:
    """Like Gemma: byte fallback, spaces stay."""
    return _with_byte_fallback(
        decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    )


def metaspace_bytes() -> PreTrainedTokenizerFast:
    """Like TIPS v2: Metaspace and byte fallback."""
    return _with_byte_fallback(decoders.Sequence([decoders.Metaspace(), decoders.ByteFallback(), decoders.Fuse()]))


def fused_replace() -> PreTrainedTokenizerFast:
    """Replaces only after the tokens were joined, across their borders."""
    parts = [decoders.ByteFallback(), decoders.Fuse(), decoders.Replace("▁▁", "=="), decoders.Replace("▁", " ")]
    return _with_byte_fallback(decoders.Sequence(parts))


def unigram() -> PreTrainedTokenizerFast:
    """Like T5: Unigram with Metaspace."""
    backend = Tokenizer(models.Unigram())
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=300, special_tokens=SPECIAL, unk_token="<unk>", show_progress=False)
    backend.train_from_iterator(TEXTS, trainer)
    backend.add_tokens(["▁▁", "▁"])
    return _wrap(backend)


def word_piece() -> PreTrainedTokenizerFast:
    """Like BERT, cleaning up included."""
    backend = Tokenizer(models.WordPiece(unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(vocab_size=300, special_tokens=SPECIAL, show_progress=False)
    backend.train_from_iterator(TEXTS, trainer)
    backend.add_tokens(["n't", " do not", "'", "##", "."])
    return _wrap(backend)


def word_suffix() -> PreTrainedTokenizerFast:
    """Like the first GPT: ``</w>`` ends a word. Its decoder is not one that genscope knows."""
    backend = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.BPEDecoder(suffix="</w>")
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=SPECIAL, end_of_word_suffix="</w>", show_progress=False
    )
    backend.train_from_iterator(TEXTS[:2], trainer)
    return _wrap(backend)


def no_decoder() -> PreTrainedTokenizerFast:
    """A tokenizer without a decoder: tokens are joined with spaces."""
    backend = Tokenizer(models.WordLevel(unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.WordLevelTrainer(vocab_size=100, special_tokens=SPECIAL, show_progress=False)
    backend.train_from_iterator(TEXTS, trainer)
    return _wrap(backend)


class _Slow(PreTrainedTokenizer):
    """A tokenizer in Python over a given list of tokens."""

    def __init__(self, tokens: list[str], **kwargs: object) -> None:
        self._tokens = tokens
        self._ids = {token: index for index, token in enumerate(tokens)}
        super().__init__(**{**_NAMES, **kwargs})  # type: ignore[no-untyped-call]  # transformers' own

    @property
    def vocab_size(self) -> int:
        return len(self._tokens)

    def get_vocab(self) -> dict[str, int]:
        return {**self._ids, **self.added_tokens_encoder}

    def _tokenize(self, text: str, **kwargs: object) -> list[str]:
        return text.split()

    def _convert_token_to_id(self, token: str) -> int:
        return self._ids.get(token, 0)

    def _convert_id_to_token(self, index: int) -> str:
        return self._tokens[index] if 0 <= index < len(self._tokens) else ""


class SlowWords(_Slow):
    """Joins its tokens with spaces, the library's default."""

    def __init__(self, **kwargs: object) -> None:
        super().__init__([*SPECIAL, *" ".join(TEXTS[:2]).split()], **kwargs)


class SlowBytes(_Slow):
    """Byte-level, in Python, as GPT-2's once was; every byte, and some of several."""

    def __init__(self, **kwargs: object) -> None:
        self._bytes = [bytes([byte]) for byte in range(256)]
        self._bytes += [text.encode()[start : start + 5] for text in TEXTS for start in range(0, len(text), 7)]
        super().__init__([*SPECIAL, *(f"b{index}" for index in range(len(self._bytes)))], **kwargs)

    def convert_tokens_to_string(self, tokens: list[str]) -> str:
        parts = [self._bytes[int(token[1:])] if token.startswith("b") else token.encode() for token in tokens]
        return b"".join(parts).decode("utf-8", "replace")


class SlowPieces(_Slow):
    """SentencePiece-like, in Python: ``▁`` is a space and leading spaces go."""

    def __init__(self, **kwargs: object) -> None:
        words = [f"▁{word}" for word in TEXTS[0].split()]
        super().__init__([*SPECIAL, *words, *"abc.,▁", "▁▁", "é", "日", "\ufffd"], **kwargs)

    def convert_tokens_to_string(self, tokens: list[str]) -> str:
        return "".join(tokens).replace("▁", " ").lstrip(" ")


EXACT: dict[str, Callable[[], PreTrainedTokenizerBase]] = {
    "byte_level": byte_level,
    "llama": llama,
    "gemma": gemma,
    "metaspace_bytes": metaspace_bytes,
    "fused_replace": fused_replace,
    "unigram": unigram,
    "word_piece": word_piece,
    "no_decoder": no_decoder,
}
INEXACT: dict[str, Callable[[], PreTrainedTokenizerBase]] = {
    "word_suffix": word_suffix,
    "slow_words": SlowWords,
    "slow_bytes": SlowBytes,
    "slow_pieces": SlowPieces,
}


@functools.cache
def tokenizer_named(name: str) -> PreTrainedTokenizerBase:
    """Return one of the tokenizers, built once a session."""
    return (EXACT | INEXACT)[name]()
