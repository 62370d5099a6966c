"""Runs of small models with and without a prefix cache, and the models that ``tiny`` does not have.

A run gives its new tokens and the raw logits behind each, so that cold and warm ones can be compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from transformers import (
    JambaConfig,
    JambaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

from genscope.kernel_side.caching.lease import Lease
from genscope.kernel_side.caching.prefix_cache import PrefixCache
from genscope.kernel_side.decoding.observe import observe
from genscope.kernel_side.streaming.base import OutputStreamer
from tiny import BOS, EOS, PAD, SLIDING_WINDOW, VOCABULARY, AnyKind, tiny_model

TOLERANCE = 1e-4
_TOKENS: dict[str, Any] = {"vocab_size": VOCABULARY, "eos_token_id": EOS, "bos_token_id": BOS, "pad_token_id": PAD}


def model_of(name: str, attn: str = "sdpa", **changes: Any) -> Any:
    """Make a model of ``tiny``, or a calmer ``t5``, ``mistral`` (sliding window of 8), ``mamba``, ``jamba`` (hybrid)."""
    if name not in ("t5", "mistral", "mamba", "jamba"):
        return tiny_model(cast("AnyKind", name), attn, **changes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = _build(name, attn, changes)
    model.generation_config.eos_token_id = EOS
    model.generation_config.pad_token_id = PAD
    return model.eval()


def _build(name: str, attn: str, changes: dict[str, Any]) -> Any:
    if name == "t5":
        # That of `tiny` has logits of hundreds, with rounding errors of hundredths.
        sizes: dict[str, Any] = {
            "d_model": 32,
            "d_kv": 8,
            "d_ff": 64,
            "num_layers": 2,
            "num_heads": 4,
            "initializer_factor": 1.0,
        }
        tokens = {**_TOKENS, "decoder_start_token_id": PAD, "tie_word_embeddings": False}
        return T5ForConditionalGeneration(T5Config(**tokens, **sizes, **changes))
    common: dict[str, Any] = {**_TOKENS, "hidden_size": 32, "num_hidden_layers": 2, "tie_word_embeddings": False}
    attention: dict[str, Any] = {
        "intermediate_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "attn_implementation": attn,
        "initializer_range": 0.3,
    }
    settings: dict[str, Any]
    if name == "mistral":
        settings = {"sliding_window": SLIDING_WINDOW, "max_position_embeddings": 512, **changes}
        return MistralForCausalLM(MistralConfig(**common, **attention, **settings))
    if name == "mamba":
        return MambaForCausalLM(MambaConfig(**common, state_size=8, initializer_range=0.3, **changes))
    settings = {
        "num_experts": 2,
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
        "mamba_d_state": 8,
        "mamba_dt_rank": 4,
        "use_mamba_kernels": False,
        **changes,
    }
    return JambaForCausalLM(JambaConfig(**common, **attention, **settings))


@dataclass
class Ran:
    """What a run gave.

    Attributes
    ----------
    sequences : list of list of int
        By row of the cache: prompt and new tokens, without padding in front.
    logits : torch.Tensor
        Shape ``(steps, rows, vocabulary)``: raw; steps are as many as there were.
    lease : Lease or None
        Closed.
    """

    sequences: list[list[int]]
    logits: torch.Tensor
    lease: Lease | None


def ids_of(length: int, seed: int = 0) -> list[int]:
    """Draw token ids that are no special ones."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, VOCABULARY, (length,), generator=generator).tolist()


def run(
    model: Any,
    prompts: Sequence[Sequence[int]],
    prefixes: PrefixCache | None = None,
    *,
    new: int = 6,
    kind: str = "dynamic",
    sources: Sequence[Sequence[int]] | None = None,
    stop: Any = None,
    assistant: Any = None,
    store: bool = True,
    loop: Any = None,
    only_store: str | None = None,
    **kwargs: Any,
) -> Ran:
    """Generate behind prompts (of a decoder, where there are sources), greedily unless told otherwise."""
    beams = kwargs.get("num_beams", 1)
    returned = kwargs.get("num_return_sequences", 1)
    copies = max(beams, returned)
    width = max(map(len, prompts))
    ids = torch.tensor([[PAD] * (width - len(row)) + list(row) for row in prompts])
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in prompts])
    inputs: dict[str, Any] = {"input_ids": ids, "attention_mask": mask}
    if sources is not None:
        read = max(map(len, sources))
        inputs = {
            "input_ids": torch.tensor([list(row) + [PAD] * (read - len(row)) for row in sources]),
            "attention_mask": torch.tensor([[1] * len(row) + [0] * (read - len(row)) for row in sources]),
            "decoder_input_ids": ids,
        }
    settings: dict[str, Any] = {
        "max_new_tokens": new,
        "do_sample": False,
        "eos_token_id": None,
        "pad_token_id": PAD,
        **kwargs,
    }
    steps: list[Any] = []
    lease = None
    if prefixes is not None:
        lease = prefixes.lease(
            model, prompts, copies=copies, kind=kind, length=width + new, sources=sources, only_store=only_store
        )
        fork = lease.fork()
        if fork is not None:
            settings["cache"] = fork
        if sources is not None:
            known = lease.encoder_outputs()
            settings["encoder_outputs"] = (
                model.get_encoder()(inputs["input_ids"], attention_mask=inputs["attention_mask"], return_dict=True)
                if known is None
                else known
            )
    elif kind != "dynamic":
        settings["cache_implementation"] = kind
    held = 0 if lease is None else lease.columns
    streamer = OutputStreamer(steps.append, fields=["logits"])
    observing = observe(streamer, stop=stop, assistant_model=assistant, loop=loop, held=held)
    with torch.no_grad():
        output = model.generate(**inputs, **settings, disable_compile=True, **observing)
    rows = output.tolist()
    if lease is not None:
        per_row = [row[width - len(prompts[index // max(returned, 1)]) :] for index, row in enumerate(rows)]
        hidden = None if sources is None else settings["encoder_outputs"].last_hidden_state
        if store:
            lease.store(None if beams > 1 else per_row, encoder_hidden=hidden)
        lease.close()
    flat = [one for step in steps for one in (step.logits if isinstance(step.logits, tuple) else (step.logits,))]
    pads = [width - len(prompts[index // max(returned, 1)]) for index in range(len(rows))]
    return Ran([row[pad:] for row, pad in zip(rows, pads, strict=True)], _stacked(flat), lease)


def _stacked(logits: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack([one.clone() for one in logits]) if logits else torch.empty(0)


def assert_same(cold: Ran, warm: Ran) -> None:
    """Compare tokens, and logits within the tolerance."""
    assert warm.sequences == cold.sequences
    assert warm.logits.shape == cold.logits.shape
    assert float((warm.logits - cold.logits).abs().max()) <= TOLERANCE
