"""Small random models for the tests: real architectures, fixed weights, a few milliseconds a step.

They have no tokenizer; :func:`tiny_tokenizer` makes a byte-level one of the same vocabulary size where text is needed.
"""

from __future__ import annotations

import functools
from typing import Any, Literal, get_args

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

Kind = Literal["llama", "gpt2", "gemma3"]
KINDS: tuple[Kind, ...] = get_args(Kind)
EncoderDecoder = Literal["t5", "bart"]
ENCODER_DECODERS: tuple[EncoderDecoder, ...] = get_args(EncoderDecoder)
AnyKind = Kind | Literal["qwen3"] | EncoderDecoder

VOCABULARY = 300
EOS, BOS, PAD = 1, 2, 0
SLIDING_WINDOW = 8
_SPECIAL: dict[str, Any] = {"vocab_size": VOCABULARY, "eos_token_id": EOS, "bos_token_id": BOS, "pad_token_id": PAD}


def tiny_model(kind: AnyKind, attn: str = "eager", *, seed: int = 0) -> PreTrainedModel:
    """Make a small model in eval mode, float32 on the CPU.

    The same arguments give the same weights. The global random generator is left as it was. ``gemma3`` mixes layers
    with a sliding window of 8 tokens and layers with full attention, and normal initialisation is widened so that the
    distributions are not flat.

    Parameters
    ----------
    kind : {"llama", "gpt2", "gemma3", "qwen3", "t5", "bart"}
    attn : str
        ``attn_implementation``; attentions are only given by ``"eager"``.
    seed : int
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = _build(kind, attn)
    # Without this, EOS or PAD of the model's own defaults would end runs at random places.
    model.generation_config.eos_token_id = EOS
    model.generation_config.pad_token_id = PAD
    model.eval()
    return model


def _build(kind: AnyKind, attn: str) -> PreTrainedModel:
    common: dict[str, Any] = {**_SPECIAL, "initializer_range": 0.3, "attn_implementation": attn}
    if kind == "llama":
        return LlamaForCausalLM(
            LlamaConfig(
                hidden_size=32,
                intermediate_size=64,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=2,
                max_position_embeddings=512,
                **common,
            )
        )
    if kind == "gpt2":
        return GPT2LMHeadModel(
            GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=512, tie_word_embeddings=False, **common)
        )
    if kind == "gemma3":
        return Gemma3ForCausalLM(
            Gemma3TextConfig(
                hidden_size=32,
                intermediate_size=64,
                num_hidden_layers=4,
                num_attention_heads=4,
                num_key_value_heads=2,
                head_dim=8,
                query_pre_attn_scalar=8,
                max_position_embeddings=512,
                sliding_window=SLIDING_WINDOW,
                layer_types=["sliding_attention", "full_attention"] * 2,
                tie_word_embeddings=False,  # tied random weights would repeat the last token for ever
                **common,
            )
        )
    if kind == "qwen3":
        return Qwen3ForCausalLM(
            Qwen3Config(
                hidden_size=32,
                intermediate_size=64,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=2,
                head_dim=8,
                max_position_embeddings=512,
                tie_word_embeddings=False,
                **common,
            )
        )
    if kind == "t5":
        del common["initializer_range"]
        common |= {"decoder_start_token_id": PAD, "tie_word_embeddings": False}
        return T5ForConditionalGeneration(
            T5Config(
                d_model=32,
                d_kv=8,
                d_ff=64,
                num_layers=2,
                num_heads=4,
                initializer_factor=3.0,
                **common,
            )
        )
    if kind == "bart":
        del common["initializer_range"]
        return BartForConditionalGeneration(
            BartConfig(
                d_model=32,
                encoder_layers=2,
                decoder_layers=2,
                encoder_attention_heads=4,
                decoder_attention_heads=4,
                encoder_ffn_dim=64,
                decoder_ffn_dim=64,
                max_position_embeddings=512,
                init_std=0.3,
                decoder_start_token_id=BOS,
                forced_eos_token_id=None,
                tie_word_embeddings=False,
                **common,
            )
        )
    raise ValueError(f"{kind!r} is not one of {get_args(AnyKind)}")


@functools.cache
def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """Make a byte-level tokenizer: 3 special tokens, 256 bytes, some merges; any text survives a round trip."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    special = ["<pad>", "<eos>", "<bos>"]
    vocabulary = {token: index for index, token in enumerate([*special, *alphabet])}
    pairs = "th in an er on re at en nd ti es or te of ed is it al ar st to nt ng se ha as ou io le ve co me"
    merges = [
        *((pair[0], pair[1]) for pair in pairs.split()),
        ("th", "e"),
        ("Ġ", "the"),
        ("an", "d"),
        ("in", "g"),
        ("Ġ", "a"),
    ]
    merges += [("Ġ", "to"), ("Ġ", "of"), ("Ġ", "in"), ("er", "s")][: VOCABULARY - len(vocabulary) - len(merges)]
    for left, right in merges:
        vocabulary[left + right] = len(vocabulary)
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    assert len(vocabulary) == VOCABULARY
    backend.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="<pad>",
        eos_token="<eos>",
        bos_token="<bos>",
        clean_up_tokenization_spaces=False,
    )
