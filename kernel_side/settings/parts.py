"""Settings that most strategies share: each class here is a group of them, for the strategies to inherit.

A field says in its schema where the form shows it and what to do about a wrong value; each group adds its arguments of
``generate``. Groups of a family of strategies are in ``families``.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from ..problems import Problem

__all__ = ["DYNAMIC_CACHE", "Common", "Execution", "Observable", "Penalties", "Sampling", "setting"]

Observable = Literal["scores", "logits", "hidden_states", "attentions"]
"""Step outputs that a run can keep in its final output, by the library's names."""

Execution = Literal["eager", "traced", "optimised", "compiled", "exported"]
"""How forward passes run; see ``tracing``."""


def setting(
    default: Any,
    *,
    group: str,
    way_out: str,
    step: float | None = None,
    choices: dict[str, str] | None = None,
    **constraints: Any,
) -> Any:
    """Make a field whose schema also says where the form shows it, what its choices mean, and what to do if wrong."""
    extra: dict[str, Any] = {"group": group, "wayOut": way_out}
    if step is not None:
        extra["step"] = step
    if choices is not None:
        extra["choices"] = choices
    return Field(default, json_schema_extra=extra, **constraints)


def _lines_to_list(value: object) -> object:
    """Accept one stop string where a list of them is meant."""
    return [value] if isinstance(value, str) else value


_NEUTRAL: dict[str, Any] = {
    # Each would make it another decoding loop,
    "use_mtp": None,
    "penalty_alpha": None,
    "dola_layers": None,
    "prompt_lookup_num_tokens": None,
    "assistant_early_exit": None,
    "num_beam_groups": None,
    # ask for a second pass of the model,
    "guidance_scale": None,
    # end it at another place,
    "max_time": None,
    "stop_strings": None,
    "exponential_decay_length_penalty": None,
    # change scores by other rules than ours,
    "encoder_repetition_penalty": 1.0,
    "encoder_no_repeat_ngram_size": 0,
    "renormalize_logits": False,
    # or cut candidates.
    "top_h": None,
    "epsilon_cutoff": 0.0,
    "eta_cutoff": 0.0,
}
"""Arguments of ``generate`` that no setting of most strategies stands for, as they are when no config sets them."""

DYNAMIC_CACHE: dict[str, Any] = {"use_cache": True, "cache_implementation": None, "prefill_chunk_size": None}
"""Arguments for strategies that take tokens back or pick rows, which only the default cache can; no other may rule."""

_NO_SAMPLING: dict[str, Any] = {"temperature": 1.0, "top_k": 50, "top_p": 1.0, "typical_p": 1.0, "min_p": None}
"""Arguments of sampling where nothing is drawn: the library's defaults, which it does not warn about."""


class Common(BaseModel):
    """Settings that every strategy has.

    Attributes
    ----------
    searches : bool
        Whether no token is final before the end: a beam search.
    drafts : bool
        Whether several tokens come at once, drafted and checked in rounds.
    """

    searches: ClassVar[bool] = False
    drafts: ClassVar[bool] = False

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, title="Settings")

    max_new_tokens: int = setting(
        128,
        ge=1,
        le=1_000_000,
        group="length",
        title="New tokens, at most",
        description="The run ends after this many generated tokens.",
        way_out="Use a whole number from 1 to 1,000,000.",
    )
    min_new_tokens: int = setting(
        0,
        ge=0,
        le=1_000_000,
        group="length",
        title="New tokens, at least",
        description="The end-of-sequence token is not allowed before this many tokens.",
        way_out="Use 0, or a whole number up to max_new_tokens.",
    )
    stop_at_eos: bool = setting(
        True,
        group="length",
        title="Stop at end of sequence",
        description="Ends the run when the model gives one of its end-of-sequence tokens.",
        way_out="Use true or false.",
    )
    stop_strings: Annotated[list[Annotated[str, StringConstraints(min_length=1)]], BeforeValidator(_lines_to_list)] = (
        setting(
            [],
            max_length=16,
            group="length",
            title="Stop strings",
            description="The run ends when the generated text contains one of them.",
            way_out="Use a list of up to 16 texts that are not empty.",
        )
    )
    seed: int | None = setting(
        None,
        ge=0,
        le=2**53 - 1,  # what JavaScript's numbers hold exactly
        group="randomness",
        title="Seed",
        description="The same seed gives the same tokens; empty draws a new one, which the run reports.",
        way_out="Leave it empty, or use a whole number from 0 to 9007199254740991.",
    )
    prefix_cache: bool = setting(
        True,
        group="cache",
        title="Prefix cache",
        description="Begins with the keys and values that earlier runs computed for the same tokens.",
        way_out="Use true or false.",
    )
    verify_cache: bool = setting(
        False,
        group="cache",
        title="Verify",
        description="Then also reads the prompt without the cache, and shows the largest difference of a logit.",
        way_out="Use true or false.",
    )
    execution: Execution = setting(
        "eager",
        group="execution",
        title="Execution",
        description="How forward passes run.",
        way_out="Use one of 'eager', 'traced', 'optimised', 'compiled', 'exported'.",
        choices={
            "eager": "The model's own code. Nothing to prepare.",
            "traced": "Recorded once as a graph without Python: faster, the same numbers to the bit. "
            "Prepares for seconds.",
            "optimised": "A trace whose weights are laid out anew: faster for one sequence, for a second copy of the "
            "weights. Last digits differ.",
            "compiled": "Layers made into machine code by torch.compile: fast for up to four sequences. Prepares for "
            "many seconds; needs a compiler. Last digits differ.",
            "exported": "The whole step made into machine code and kept on disk: fastest for up to four sequences, "
            "minutes once, seconds in each new process. Needs a compiler. Last digits differ.",
        },
    )
    alternatives: int = setting(
        10,
        ge=0,
        le=100,
        group="observe",
        title="Alternatives a token",
        description="How many of the most probable candidates are recorded at each position.",
        way_out="Use a whole number from 0 to 100.",
    )
    attention: bool = setting(
        False,
        group="observe",
        title="Attention",
        description="Keeps what the model looked at for each token. Runs the model with eager attention.",
        way_out="Use true or false.",
    )
    logit_lens: bool = setting(
        False,
        group="observe",
        title="Logit lens",
        description="Keeps the hidden states of all layers, from which each layer's own next token is told.",
        way_out="Use true or false.",
    )
    prompt_probabilities: bool = setting(
        False,
        group="observe",
        title="Probabilities of the prompt",
        description="Measures the prompt's tokens too; costs one more prefill.",
        way_out="Use true or false.",
    )
    keep: list[Observable] = setting(
        [],
        group="observe",
        title="Keep in run.output",
        description="Step outputs kept for the final output, in full: memory grows with each token.",
        way_out="Use a list of 'scores', 'logits', 'hidden_states', 'attentions'.",
    )

    @property
    def sequences(self) -> int:
        """How many sequences a prompt gets."""
        return 1

    def problems(self) -> list[Problem]:
        """Return what is wrong with settings that are right one by one."""
        if self.min_new_tokens <= self.max_new_tokens:
            return []
        message = f"{self.min_new_tokens} is more than max_new_tokens ({self.max_new_tokens})"
        way_out = "Lower min_new_tokens or raise max_new_tokens."
        return [Problem("min_new_tokens", self.min_new_tokens, message, way_out)]

    def generate_kwargs(self) -> dict[str, Any]:
        """Return the arguments of ``model.generate`` that mean the same as these settings.

        Every setting of ours is passed in full, and what it stands against is switched off, so that a default in the
        model's own generation config cannot change what the form shows. What belongs to the model (tokens it must not
        give or must begin with) stays. Stop strings and seed are not among them: ``generate`` takes no seed, and its
        stop strings also match text of the prompt.

        Returns
        -------
        dict
            Keyword arguments for :meth:`transformers.GenerationMixin.generate`.
        """
        kwargs: dict[str, Any] = {
            "num_beams": 1,
            "num_return_sequences": self.sequences,
            "do_sample": False,
            "max_new_tokens": self.max_new_tokens,
            "min_new_tokens": self.min_new_tokens or None,
            **_NEUTRAL,
            # The library warns of both, and then heeds min_new_tokens.
            "min_length": None if self.min_new_tokens else 0,
            **_NO_SAMPLING,
        }
        if not self.stop_at_eos:
            kwargs["eos_token_id"] = None
        return kwargs


class Sampling(Common):
    """What reshapes a distribution before a draw. Before the penalties in the form: the fields of a base come first."""

    temperature: float = setting(
        1.0,
        gt=0,
        le=100,
        step=0.05,
        group="strategy",
        title="Temperature",
        description="Divides the logits: below 1 sharpens the distribution, above 1 flattens it.",
        way_out="Use a number above 0 and up to 100; for no randomness choose the strategy 'greedy'.",
    )
    top_k: int = setting(
        50,
        ge=0,
        le=1_000_000,
        group="strategy",
        title="Top-k",
        description="Keeps the k most probable tokens; 0 keeps all (arXiv:1805.04833).",
        way_out="Use 0 to keep all, or a whole number up to 1,000,000.",
    )
    top_p: float = setting(
        1.0,
        gt=0,
        le=1,
        step=0.01,
        group="strategy",
        title="Top-p",
        description="Keeps the smallest set of tokens whose probabilities reach p; 1 keeps all (arXiv:1904.09751).",
        way_out="Use a number above 0 and up to 1; 0.9 is usual, 1 switches it off.",
    )
    min_p: float = setting(
        0.0,
        ge=0,
        le=1,
        step=0.01,
        group="strategy",
        title="Min-p",
        description="Cuts tokens below this share of the best one's probability; 0 keeps all (arXiv:2407.01082).",
        way_out="Use a number from 0 to 1; 0.05 is usual, 0 switches it off.",
    )
    typical_p: float = setting(
        1.0,
        gt=0,
        le=1,
        step=0.01,
        group="strategy",
        title="Typical-p",
        description="Keeps tokens whose surprisal is close to the entropy; 1 keeps all (arXiv:2202.00666).",
        way_out="Use a number above 0 and up to 1; 1 switches it off.",
    )

    def generate_kwargs(self) -> dict[str, Any]:
        """See :meth:`Common.generate_kwargs`."""
        return super().generate_kwargs() | {
            "do_sample": True,
            "temperature": self.temperature,
            "top_k": self.top_k,
            "top_p": self.top_p,
            "min_p": self.min_p or None,
            "typical_p": self.typical_p,
        }


class Penalties(Common):
    """What keeps a text from repeating itself."""

    repetition_penalty: float = setting(
        1.0,
        gt=0,
        le=10,
        step=0.05,
        group="strategy",
        title="Repetition penalty",
        description="Divides the logits of tokens that were already used; 1 changes nothing (arXiv:1909.05858).",
        way_out="Use a number above 0 and up to 10; 1 switches it off, 1.1 to 1.3 are usual.",
    )
    no_repeat_ngram_size: int = setting(
        0,
        ge=0,
        le=100,
        group="strategy",
        title="No repeated n-gram",
        description="No n-gram of this size occurs twice, the prompt's included; 0 allows all.",
        way_out="Use 0 to switch it off, or a whole number up to 100; 3 is usual.",
    )

    def generate_kwargs(self) -> dict[str, Any]:
        """See :meth:`Common.generate_kwargs`."""
        return super().generate_kwargs() | {
            "repetition_penalty": self.repetition_penalty,
            "no_repeat_ngram_size": self.no_repeat_ngram_size,
        }
