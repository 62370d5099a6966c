"""How an execution stands in for a model's forward: what it leaves alone, when it falls back, what it counts."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import DynamicCache

from cached_runs import model_of
from compare import EVERYTHING
from execution_checks import check_streamed, generate, prompt
from genscope.kernel_side.tracing.execution import PreparationError
from genscope.kernel_side.tracing.graphs import Graph, GraphExecution, difference_of, tolerance
from genscope.kernel_side.tracing.situation import Call
from genscope.kernel_side.tracing.step import Step
from genscope.kernel_side.tracing.trace import EXECUTIONS, make_execution, trace
from genscope.kernel_side.tracing.use import Use


class Plain(GraphExecution):
    """Runs the step as it is: a graph that costs nothing to make."""

    name = "plain"
    change: Callable[[Step], Graph] = staticmethod(lambda step: step)

    def make(self, step: Step, call: Call, stage: Callable[[str], None]) -> Graph:
        stage("doing nothing")
        return self.change(step)


def attached(model: Any, change: Callable[[Step], Graph] | None = None) -> Any:
    execution = Plain(model)
    if change is not None:
        execution.change = change  # type: ignore[method-assign]
    view = execution.attach(model)
    view.execution = execution
    return view


def test_the_model_is_left_as_it_is() -> None:
    model = model_of("llama")
    before = {name: dict(vars(module)) for name, module in model.named_modules()}
    view = trace(model)
    generate(view, prompt())
    assert type(view) is type(model)
    assert "forward" not in vars(model)
    assert model.generation_config.disable_compile is None
    assert view.generation_config.disable_compile is True
    after = {name: dict(vars(module)) for name, module in model.named_modules()}
    assert after == before
    assert all(ours is theirs for ours, theirs in zip(view.parameters(), model.parameters(), strict=True))


def test_generate_sees_the_signature_of_the_model() -> None:
    model = model_of("llama")
    assert list(inspect.signature(trace(model).forward).parameters)[:3] == [
        "input_ids",
        "attention_mask",
        "position_ids",
    ]
    assert trace(model)._supports_logits_to_keep()


def test_arguments_may_be_given_by_position() -> None:
    model = model_of("llama")
    view = attached(model)
    ids = prompt()["input_ids"]
    with torch.no_grad():
        assert torch.equal(view(ids).logits, model(ids).logits)
    assert view.execution.fallbacks == {"there is no cache": 1}


def test_gradients_are_left_to_the_model() -> None:
    model = model_of("llama")
    view = attached(model)
    ids = prompt()["input_ids"]
    view(input_ids=ids).logits.sum().backward()
    assert model.lm_head.weight.grad is not None
    assert view.execution.fallbacks == {"gradients are wanted": 1}


def test_autocast_is_left_to_the_model() -> None:
    view = attached(model_of("llama"))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        generate(view, prompt(), max_new_tokens=2)
    assert view.execution.fallbacks == {"autocast is on": 2}


def test_a_model_in_training_falls_back() -> None:
    model = model_of("gpt2")
    model.train()
    view = attached(model)
    generate(view, prompt(), max_new_tokens=2)
    [reason] = view.execution.fallbacks
    assert reason.startswith("the model is in training mode")


def test_a_replaced_forward_is_still_called() -> None:
    model, seen = model_of("llama"), []
    own = model.forward

    def hooked(*args: Any, **inputs: Any) -> Any:
        seen.append(len(inputs))
        return own(*args, **inputs)

    model.forward = hooked
    view = attached(model)
    generate(view, prompt(), max_new_tokens=3)
    assert len(seen) == 3
    [reason] = view.execution.fallbacks
    assert reason.startswith("forward() of the model was replaced")


def test_what_is_looked_at_falls_back_openly() -> None:
    model = model_of("llama", "eager")
    view = attached(model)
    inputs = prompt()
    torch.manual_seed(7)
    plain = model.generate(**inputs, max_new_tokens=5, eos_token_id=None, **EVERYTHING)
    ours = view.generate(**inputs, max_new_tokens=5, eos_token_id=None, **EVERYTHING)
    assert torch.equal(ours.attentions[2][1], plain.attentions[2][1])
    assert view.execution.fallbacks == {"attentions are asked for": 5}


@pytest.mark.parametrize("execution", ["traced", "optimised"])
@pytest.mark.parametrize("kind", ["llama", "gemma3", "t5"])
@pytest.mark.parametrize("arguments", [{}, {"do_sample": True}, {"num_beams": 3}])
def test_streamed_steps_are_what_generate_returns(kind: str, execution: str, arguments: dict[str, Any]) -> None:
    check_streamed(trace(model_of(kind), execution), rows=2, **arguments)


def test_a_graph_that_is_wrong_is_dropped_and_nothing_of_it_is_used() -> None:
    model = model_of("llama")

    def wrong(step: Step) -> Graph:
        return lambda *tensors: tuple(tensor + 0.5 for tensor in step(*tensors))

    view = attached(model, wrong)
    plain = generate(model, prompt())
    ours = generate(view, prompt())
    assert torch.equal(ours.sequences, plain.sequences)
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(ours.logits, plain.logits, strict=True))
    assert view.execution.passes == 0
    assert view.execution.fallbacks == {"its logits differ from eager ones by 0.5": 10}
    assert view.execution.cost.compared == 2


def test_a_graph_that_is_right_in_one_size_only_is_found_out() -> None:
    model = model_of("llama")

    def frozen(step: Step) -> Graph:
        lengths: list[int] = []

        def graph(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            lengths.append(tensors[-1].shape[-2])
            logits, *others = step(*tensors)
            return (logits + (lengths[-1] - lengths[0]), *others)

        return graph

    view = attached(model, frozen)
    assert torch.equal(generate(view, prompt()).sequences, generate(model, prompt()).sequences)
    assert view.execution.fallbacks == {"its logits differ from eager ones by 1": 9}


def test_a_graph_that_fails_later_is_given_up_in_time() -> None:
    model, count = model_of("llama"), 0

    def failing(step: Step) -> Graph:
        def graph(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            nonlocal count
            count += 1
            if count > 6:
                raise RuntimeError("guard on the length\nmore")
            return step(*tensors)

        return graph

    view = attached(model, failing)
    assert torch.equal(generate(view, prompt()).sequences, generate(model, prompt()).sequences)
    assert view.execution.fallbacks == {"the graph failed: RuntimeError: guard on the length": 6}


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (PreparationError("install a compiler"), "install a compiler"),
        (RuntimeError("no\nmore"), "plain failed: RuntimeError: no"),
    ],
)
def test_what_cannot_be_made_leaves_eager_running(error: Exception, reason: str) -> None:
    model = model_of("llama")

    def failing(_: Step) -> Graph:
        raise error

    view = attached(model, failing)
    assert torch.equal(generate(view, prompt()).sequences, generate(model, prompt()).sequences)
    assert view.execution.fallbacks == {reason: 12}


def test_cancelled_preparation_is_tried_again_by_the_next_run() -> None:
    model, wanted = model_of("llama"), [False]
    view = trace(model)
    use = Use("traced", cancelled=lambda: not wanted[0])
    with view.execution.used(use):
        generate(view, prompt(), max_new_tokens=3)
        assert use.status().fallbacks == {"preparing was cancelled": 3}
        wanted[0] = True
        generate(view, prompt(), max_new_tokens=6)
    assert use.status().graphs == 2


def test_a_trace_is_cancelled_in_its_midst() -> None:
    asked = 0

    def cancelled() -> bool:
        nonlocal asked
        asked += 1
        return asked == 3  # the second layer: the first question comes before the trace

    view = trace(model_of("llama"))
    use = Use("traced", cancelled=cancelled)
    with view.execution.used(use):
        generate(view, prompt(), max_new_tokens=1)
    assert use.status().fallbacks == {"preparing was cancelled": 1}
    assert asked == 3


def test_a_cache_that_makes_its_layers_as_they_come_is_written_to() -> None:
    model = model_of("llama")
    view, cache = attached(model), DynamicCache()
    assert torch.equal(generate(view, prompt()).sequences, generate(model, prompt()).sequences)
    ours = generate(view, prompt(), cache=cache)  # graphs only
    assert torch.equal(ours.sequences, generate(model, prompt()).sequences)
    assert [layer.keys.shape[2] for layer in cache.layers] == [22, 22]
    assert not view.execution.fallbacks


def test_a_preparation_is_none_of_the_generations_time() -> None:
    events: list[str] = []
    use = Use("traced", pause=lambda: events.append("pause"), resume=lambda: events.append("resume"))
    view = trace(model_of("llama"))
    with view.execution.used(use):
        generate(view, prompt())
    # Two graphs, and the second size of the one that is used again.
    assert events == ["pause", "resume"] * 3
    status = use.status()
    assert (status.passes, status.compared, status.graphs) == (9, 3, 2)
    assert status.prepared > 0
    assert status.prepared == pytest.approx(view.execution.cost.seconds)
    assert status.preparing is None


def test_what_is_being_prepared_is_told() -> None:
    told: list[Any] = []
    use = Use("plain")
    use.differed(0.25)
    use.differed(0.125)
    assert use.status().largest_difference == 0.25

    def telling(step: Step) -> Graph:
        told.append(use.status().preparing)
        return step

    view = attached(model_of("llama"), telling)
    with view.execution.used(use):
        generate(view, prompt())
    assert [(one.what, one.stage) for one in told] == [
        ("several tokens from the start", "doing nothing"),
        ("one token on a cache", "doing nothing"),
    ]


def test_fewer_layers_are_never_taken_for_all() -> None:
    model = model_of("llama")
    view = attached(model)
    generate(view, prompt(), assistant_early_exit=1, max_new_tokens=8)
    assert view.execution.fallbacks["fewer layers are run"] > 0
    assert view.execution.passes > 0


def test_an_execution_is_prepared_ahead() -> None:
    model = model_of("llama")
    execution = make_execution(model, "traced")
    execution.prepare(prompt()["input_ids"])
    assert execution.cost.graphs == ("several tokens from the start", "one token on a cache")
    seconds = execution.cost.seconds
    generate(execution.attach(model), prompt())
    assert execution.cost.seconds == seconds


def test_an_unknown_execution_is_named() -> None:
    with pytest.raises(ValueError, match="execution is 'turbo'; it can be one of 'eager', 'traced'"):
        trace(model_of("llama"), "turbo")
    assert list(EXECUTIONS)[:3] == ["eager", "traced", "optimised"]


def test_eager_runs_the_models_own_code() -> None:
    model = model_of("llama")
    view = trace(model, "eager")
    assert torch.equal(generate(view, prompt()).sequences, generate(model, prompt()).sequences)
    assert (view.execution.passes, dict(view.execution.fallbacks)) == (12, {})


def test_differences_of_logits() -> None:
    infinite = torch.tensor([[1.0, -torch.inf]])
    assert difference_of(infinite, infinite) == 0.0
    assert difference_of(infinite, torch.tensor([[1.0, 2.0]])) == float("inf")
    assert difference_of(torch.tensor([[float("nan")]]), torch.tensor([[1.0]])) == float("inf")
    assert difference_of(torch.zeros(1, 2), torch.zeros(1, 3)) == float("inf")
    assert tolerance(torch.tensor([[-40.0, 3.0]])) == pytest.approx(40 * 2e-4)
    assert tolerance(torch.tensor([[1.0]], dtype=torch.bfloat16)) == pytest.approx(2e-4 * 2**16)
