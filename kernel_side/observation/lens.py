"""The logit lens: what each layer would have said, had the model ended there.

From nostalgebraist, "interpreting GPT: the logit lens", LessWrong, 2020: the hidden state after a layer goes through
the model's last norm and its output head. What comes out of early layers is a reading, not a belief of the model: the
layers behind may use another basis, and some models' early layers read as noise (Belrose et al., "Eliciting Latent
Predictions from Transformers with the Tuned Lens", 2023, arXiv:2303.08112).

Not here: lenses that are trained (the tuned lens), and models whose head does what is not in :data:`NORMS` and
:class:`_Head`; those are found out and refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedModel

from ..decoding.model_view import view_of
from .unseen import UnseenError

__all__ = ["NORMS", "LensLayer", "LogitLens"]

NORMS = (
    "norm",  # llama and most that came after it: mistral, qwen, gemma, olmo, cohere, granite
    "ln_f",  # gpt2, gptj, bloom, falcon, codegen
    "final_layer_norm",  # t5, opt, gpt_neox, whisper's kin
    "final_layernorm",  # phi, persimmon, jamba
    "norm_f",  # mamba, mpt, nemotron_h
    "layer_norm",  # mbart, m2m_100, blenderbot
    "final_norm",  # modernbert_decoder, recurrent_gemma
    "embedding_norm",  # lfm2
)
"""What the last norm is called on the stack of layers, in transformers 5.24."""

_FIRST_NORMS = ("layernorm_embedding", "word_embeddings_layernorm")
"""Norms in front of the layers: of bart, which has none behind them, and of bloom."""


@dataclass(frozen=True, slots=True)
class LensLayer:
    """What one layer would have said.

    Attributes
    ----------
    layer : int
        0 is the embeddings, the last one the model's own distribution, before all processors.
    candidates : tuple of (int, float)
        Token ids with their natural-log probabilities, the most probable first.
    logprob : float
        Natural-log probability of the token that was asked for.
    rank : int
        Its rank among all tokens, 1 is the most probable; equal ones share the best.
    """

    layer: int
    candidates: tuple[tuple[int, float], ...]
    logprob: float
    rank: int


class LogitLens:
    """Reads the hidden states of one model. The model is not changed.

    How a head is built is not told by the library. So the first :meth:`look` makes sure that the last layer gives the
    model's own distribution (:meth:`probe`), unless :meth:`verify` has.

    Parameters
    ----------
    model : PreTrainedModel

    Raises
    ------
    UnseenError
        For a model without an output head.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self._model: Any = model
        self._head = _Head(model)
        self._ends_with_norm: bool | None = None  # whether the last hidden state has been through the last norm

    def probe(self) -> None:
        """Verify with a forward pass of one token.

        Raises
        ------
        UnseenError
            See :meth:`verify`.
        """
        token = torch.zeros(1, 1, dtype=torch.long, device=self._model.device)
        inputs = {"input_ids": token}
        if self._model.config.is_encoder_decoder:
            inputs["decoder_input_ids"] = token
        # On a view: the library hangs hooks on a model whose hidden states are asked for.
        view: Any = view_of(self._model)
        with torch.inference_mode():
            outputs = view(**inputs, output_hidden_states=True, use_cache=False, return_dict=True)
        states = outputs.get("decoder_hidden_states") or outputs.get("hidden_states")
        if not states or len({layer.shape[-1] for layer in states}) > 1:
            raise UnseenError(f"{self._name} gives no hidden states of one size; choose another model for the lens.")
        self.verify(torch.stack([layer[0, -1] for layer in states]), outputs.logits[0, -1])

    def verify(self, hidden: torch.Tensor, logits: torch.Tensor) -> None:
        """Check that the lens reads the last layer as the model does.

        Parameters
        ----------
        hidden : torch.Tensor
            Shape ``(layers + 1, size)``: of the last position of a forward pass.
        logits : torch.Tensor
            Shape ``(vocabulary,)``: what that pass gave, before all processors.

        Raises
        ------
        UnseenError
            When it does not, so that what this architecture does behind its layers is not understood.
        """
        with torch.inference_mode():
            wanted = logits.float().to(self._model.device)
            # transformers 5.24 returns the last state behind the norm, unless a config says `tie_last_hidden_states`.
            for ends_with_norm in (True, False):
                found = self._head(self._to_device(hidden[-1:]), normed=ends_with_norm)[0]
                if found.shape == wanted.shape and bool((found - wanted).abs().max() <= 0.01 * wanted.abs().max()):
                    self._ends_with_norm = ends_with_norm
                    return
        raise UnseenError(
            f"The lens does not understand the output head of {self._name}: the last layer does not give the model's "
            "own logits. Choose another model for the lens."
        )

    def look(self, hidden: torch.Tensor, token: int, top: int = 5) -> list[LensLayer]:
        """Tell what each layer would have said.

        Parameters
        ----------
        hidden : torch.Tensor
            Shape ``(layers + 1, size)``, see :meth:`.states.States.hidden`; on any device.
        token : int
            Which token to follow through the layers, mostly the chosen one.
        top : int
            How many candidates.

        Returns
        -------
        list of LensLayer
            The embeddings first.

        Raises
        ------
        UnseenError
            When the head is not understood, see :meth:`verify`, or the model does not have this token.
        """
        if self._ends_with_norm is None:
            self.probe()
        with torch.inference_mode():
            states = self._to_device(hidden)
            last = self._head(states[-1:], normed=bool(self._ends_with_norm))
            logits = torch.cat([self._head(states[:-1], normed=False), last])
            if not 0 <= token < logits.shape[1]:
                raise UnseenError(f"{self._name} has no token {token}; choose from 0 to {logits.shape[1] - 1}.")
            logprobs = logits.log_softmax(dim=-1)
            best, ids = (part.tolist() for part in logprobs.topk(min(top, logits.shape[1]), dim=-1))
            chosen = logprobs[:, token].tolist()
            ranks = ((logits > logits[:, token, None]).sum(dim=-1) + 1).tolist()
        return [
            LensLayer(layer, tuple(zip(ids[layer], best[layer], strict=True)), chosen[layer], ranks[layer])
            for layer in range(len(ranks))
        ]

    @property
    def _name(self) -> str:
        return type(self._model).__name__

    def _to_device(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden.to(self._model.device)


class _Head:
    """What a model does behind its layers, as far as it is known: norm, scale, projection, bias, scale, soft cap."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._model: Any = model
        self._config: Any = model.config.get_text_config()
        self._project = model.get_output_embeddings()
        if self._project is None:
            raise UnseenError(f"{type(model).__name__} has no output head, so there is no logit lens on it.")
        self._norm = _last_norm(model)

    def __call__(self, states: torch.Tensor, *, normed: bool) -> torch.Tensor:
        """Return the logits ``(layers, vocabulary)``, float32, of states ``(layers, size)``."""
        if not normed and self._norm is not None:
            states = self._norm(states)
        if getattr(self._config, "scale_decoder_outputs", False):  # t5 with tied embeddings
            states = states * self._config.d_model**-0.5
        logits: torch.Tensor = self._project(states)
        bias = getattr(self._model, "final_logits_bias", None)  # bart and its kin
        if bias is not None:
            logits = logits + bias
        logits = logits * (getattr(self._config, "logit_scale", None) or 1.0)  # cohere
        logits = logits / (getattr(self._config, "logits_scaling", None) or 1.0)  # granite
        cap = getattr(self._config, "final_logit_softcapping", None)  # gemma2, gemma3
        if cap is not None:
            logits = (logits / cap).tanh() * cap
        return logits.float()


def _last_norm(model: PreTrainedModel) -> Any:
    """Find the norm behind the layers; None where there is none.

    The last hidden state has mostly been through it, so :meth:`LogitLens.verify` could not tell a wrong one.
    """
    stack: Any = model.get_decoder()
    norms = {name: module for name, module in stack.named_children() if "norm" in type(module).__name__.lower()}
    known = [norms[name] for name in NORMS if name in norms]
    if len(known) == 1 or not norms.keys() - set(_FIRST_NORMS):
        return known[0] if known else None
    raise UnseenError(
        f"The lens does not know which of {sorted(norms)} is the last norm of {type(model).__name__}. Choose another "
        "model for the lens."
    )
