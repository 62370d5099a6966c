"""Settings that families of strategies share: that draw when told to, give several sequences, search, or draft."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, ConfigDict

from ..problems import Problem
from .parts import DYNAMIC_CACHE, Common, Penalties, Sampling, setting

__all__ = ["BeamSettings", "DraftSettings", "Several", "SometimesSampling"]


class SometimesSampling(Sampling):
    """A strategy that chooses greedily unless it is told to draw."""

    # Before the fields of the base in the form: those only count while this is on.
    do_sample: bool = setting(
        False,
        group="strategy",
        title="Sampling",
        description="Draws each token from the distribution instead of taking the most probable one.",
        way_out="Use true or false.",
    )

    model_config = ConfigDict(
        json_schema_extra={
            "when": {name: "do_sample" for name in Sampling.model_fields if name not in Common.model_fields}
        }
    )

    def generate_kwargs(self) -> dict[str, Any]:
        """See :meth:`Common.generate_kwargs`."""
        return super().generate_kwargs() if self.do_sample else super(Sampling, self).generate_kwargs()


class Several(Common):
    """Settings of strategies that can give several sequences for each prompt."""

    num_return_sequences: int = setting(
        1,
        ge=1,
        le=64,
        group="strategy",
        title="Sequences",
        description="How many sequences each prompt gets.",
        way_out="Use a whole number from 1 to 64; of a beam search at most num_beams.",
    )

    @property
    def sequences(self) -> int:
        """How many sequences a prompt gets."""
        return self.num_return_sequences


def _named_stopping(value: object) -> object:
    """Accept the library's names too."""
    return {False: "estimate", True: "first"}.get(value, value) if isinstance(value, bool) else value


class BeamSettings(Several):
    """Settings of searches that follow several hypotheses at once."""

    searches: ClassVar[bool] = True

    num_beams: int = setting(
        4,
        ge=2,
        le=64,
        group="strategy",
        title="Beams",
        description="How many hypotheses are followed at once; each costs a row of every forward pass.",
        way_out="Use a whole number from 2 to 64; for one hypothesis choose the strategy 'greedy'.",
    )
    length_penalty: float = setting(
        1.0,
        ge=-1,  # from steeper ones long hypotheses fall below the -1e9 that the library fills pools with
        le=10,
        step=0.1,
        group="strategy",
        title="Length penalty",
        description="A finished hypothesis counts its log-probability over length to this power: above 0 favours long.",
        way_out="Use a number from -1 to 10; 1 is usual, 0 takes length out of it.",
    )
    early_stopping: Annotated[Literal["estimate", "first", "never"], BeforeValidator(_named_stopping)] = setting(
        "estimate",
        group="strategy",
        title="Stop the search",
        description="estimate: when a better hypothesis is unlikely; first: once enough have finished; never: when "
        "none can be better.",
        way_out="Use 'estimate', 'first' or 'never'.",
    )

    def problems(self) -> list[Problem]:
        """See :meth:`Common.problems`."""
        problems = super().problems()
        if self.num_return_sequences > self.num_beams:
            message = f"{self.num_return_sequences} sequences are more than there are beams ({self.num_beams})"
            way_out = "Ask for at most num_beams sequences, or raise num_beams."
            problems.append(Problem("num_return_sequences", self.num_return_sequences, message, way_out))
        return problems

    def generate_kwargs(self) -> dict[str, Any]:
        """See :meth:`Common.generate_kwargs`."""
        return super().generate_kwargs() | {
            "num_beams": self.num_beams,
            "length_penalty": self.length_penalty,
            "early_stopping": {"estimate": False, "first": True, "never": "never"}[self.early_stopping],
        }


class DraftSettings(SometimesSampling, Penalties):
    """Settings of strategies that draft some tokens and check them with one forward pass."""

    drafts: ClassVar[bool] = True

    def generate_kwargs(self) -> dict[str, Any]:
        """See :meth:`~.parts.Common.generate_kwargs`."""
        return super().generate_kwargs() | DYNAMIC_CACHE
