"""Diverse beam search against a transcription of the paper's algorithm, in lists, without a cache."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest
import torch

from compare import Streamed
from compare import differences as parity
from genscope.kernel_side.decoding.diverse_beam import DiverseBeamSearch
from genscope.kernel_side.decoding.observe import observe
from genscope.kernel_side.decoding.own_loop import LoopSettingsError
from genscope.kernel_side.record.recorder import Recorder
from genscope.kernel_side.streaming.base import OutputStreamer
from genscope.kernel_side.streaming.outputs import ALL_FIELDS
from genscope.kernel_side.streaming.text import TextIteratorStreamer
from loop_checks import EVERYTHING, differences, new_tokens, prompts, row_of, run, untouched
from tiny import KINDS, Kind, tiny_model, tiny_tokenizer

STEPS = 8
MANY_EOS = list(range(1, 40))  # so that hypotheses finish early, and at different lengths


@torch.no_grad()
def log_probabilities(model, sequences: list[list[int]]) -> list[list[float]]:
    return model(torch.tensor(sequences)).logits[:, -1].double().log_softmax(-1).tolist()


def reference(model, prompt, *, beams, groups, penalty, eos=(), length_penalty=1.0, early_stopping=False, best=1):
    """Algorithm 1 of arXiv:1610.02424 for one prompt; how a group ends is the library's rule, in words in `ends`."""
    width, keep = beams // groups, max(2, 1 + len(eos)) * (beams // groups)
    live = [[(0.0, [])] for _ in range(groups)]
    pools: list[list[tuple[float, list[int]]]] = [[] for _ in range(groups)]
    done = [False] * groups

    def ends(g: int, length: int) -> bool:
        if length == STEPS:
            return True
        if len(pools[g]) < width:
            return False
        if early_stopping is True:
            return True
        far = STEPS if early_stopping == "never" and length_penalty > 0 else length
        return live[g][0][0] / far**length_penalty <= min(score for score, _ in pools[g])

    for length in range(1, STEPS + 1):
        taken: Counter[int] = Counter()
        for g in range(groups):
            if done[g]:
                continue
            rows = log_probabilities(model, [prompt + tokens for _, tokens in live[g]])
            candidates = [
                (total + row[token] - penalty * taken[token], [*tokens, token])
                for (total, tokens), row in zip(live[g], rows, strict=True)
                for token in range(len(row))
            ]
            candidates = sorted(candidates, key=lambda candidate: -candidate[0])[:keep]
            finished = [c for c in candidates[:width] if c[1][-1] in eos or length == STEPS]
            pools[g] += [(total / length**length_penalty, tokens) for total, tokens in finished]
            pools[g] = sorted(pools[g], key=lambda hypothesis: -hypothesis[0])[:width]
            live[g] = [c for c in candidates if c[1][-1] not in eos][:width]
            taken.update(tokens[-1] for _, tokens in candidates[:width])
            done[g] = ends(g, length)
        if all(done):
            break
    ranked = sorted(itertools.chain(*pools), key=lambda hypothesis: -hypothesis[0])[:best]
    return [tokens for _, tokens in ranked], [score for score, _ in ranked]


CASES = [
    {"beams": 4, "groups": 2, "penalty": 0.5},
    {"beams": 6, "groups": 3, "penalty": 2.0},
    {"beams": 4, "groups": 4, "penalty": 1.0},
    {"beams": 4, "groups": 2, "penalty": 0.5, "eos": MANY_EOS},
    {"beams": 6, "groups": 3, "penalty": 1.0, "eos": MANY_EOS, "early_stopping": True},
    {"beams": 6, "groups": 2, "penalty": 1.0, "eos": MANY_EOS, "early_stopping": "never", "length_penalty": 0.0},
    {"beams": 4, "groups": 2, "penalty": 0.2, "eos": MANY_EOS, "early_stopping": "never", "length_penalty": 2.0},
    {"beams": 4, "groups": 2, "penalty": 0.2, "eos": MANY_EOS, "length_penalty": -1.0},
    {"beams": 4, "groups": 2, "penalty": 0.0},
]


def search(model, inputs, *, beams, groups, penalty, eos=(), best=1, **kwargs):
    return run(
        model, inputs, DiverseBeamSearch(groups, penalty), num_beams=beams, num_return_sequences=best,
        eos_token_id=list(eos) or None, max_new_tokens=STEPS, **kwargs,
    )  # fmt: skip


def cut(tokens: list[int], eos) -> list[int]:
    """Cut what follows the end of a hypothesis."""
    for index, token in enumerate(tokens):
        if token in eos:
            return tokens[: index + 1]
    return tokens


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_sequences_and_scores_are_those_of_the_algorithm(kind: Kind, case) -> None:
    model, inputs = tiny_model(kind), prompts(1)
    output, _ = search(model, inputs, best=case["beams"], **case)
    wanted, scores = reference(model, inputs["input_ids"][0].tolist(), best=case["beams"], **case)
    assert [cut(tokens, case.get("eos", ())) for tokens in new_tokens(output, inputs)] == wanted
    torch.testing.assert_close(output.sequences_scores.double(), torch.tensor(scores).double(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("early_stopping", [False, True, "never"])
@pytest.mark.parametrize("length_penalty", [1.0, 0.0, -1.0, 2.0])
@pytest.mark.parametrize("processors", [{}, {"repetition_penalty": 1.3, "min_new_tokens": 2}])
def test_one_group_is_the_librarys_beam_search(kind: Kind, early_stopping, length_penalty: float, processors) -> None:
    model, inputs = tiny_model(kind), prompts(2)
    kwargs = {
        "num_beams": 4, "num_return_sequences": 3, "eos_token_id": MANY_EOS, "max_new_tokens": STEPS,
        "early_stopping": early_stopping, "length_penalty": length_penalty, **processors,
    }  # fmt: skip
    ours, _ = run(model, inputs, DiverseBeamSearch(1), **kwargs)
    everything = {f"output_{name}": True for name in ("scores", "logits", "hidden_states", "attentions")}
    theirs = model.generate(**inputs, do_sample=False, return_dict_in_generate=True, **everything, **kwargs)
    assert type(ours) is type(theirs)
    for name in ("sequences", "sequences_scores", "beam_indices"):
        assert torch.equal(getattr(ours, name), getattr(theirs, name)), name
    for name in ("scores", "logits"):
        assert all(torch.equal(*pair) for pair in zip(getattr(ours, name), getattr(theirs, name), strict=True))
    for name in ("hidden_states", "attentions"):
        for step in zip(getattr(ours, name), getattr(theirs, name), strict=True):
            assert all(torch.equal(*pair) for pair in zip(*step, strict=True)), name


@pytest.mark.parametrize("kind", KINDS)
def test_one_beam_is_greedy_search(kind: Kind) -> None:
    model, inputs = tiny_model(kind), prompts(2)
    greedy = model.generate(**inputs, do_sample=False, max_new_tokens=STEPS, eos_token_id=None, pad_token_id=0)
    assert torch.equal(search(model, inputs, beams=1, groups=1, penalty=1.0)[0].sequences, greedy)


def test_groups_differ_with_a_penalty_and_agree_without() -> None:
    model, inputs = tiny_model("llama"), prompts(1)
    same = new_tokens(search(model, inputs, beams=4, groups=4, penalty=0.0, best=4)[0], inputs)
    apart = new_tokens(search(model, inputs, beams=4, groups=4, penalty=100.0, best=4)[0], inputs)
    assert len({str(tokens) for tokens in same}) == 1
    assert all(len(set(column)) == 4 for column in zip(*apart, strict=True))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", CASES[:6], ids=str)
def test_a_batch_gives_what_its_rows_give_alone(kind: Kind, case) -> None:
    model, inputs, eos = tiny_model(kind), prompts(3), case.get("eos", ())
    together, _ = search(model, inputs, best=2, **case)
    tokens = [cut(row, eos) for row in new_tokens(together, inputs)]
    for row in range(3):
        alone = row_of(inputs, row)
        output, _ = search(model, alone, best=2, **case)
        assert [cut(found, eos) for found in new_tokens(output, alone)] == tokens[2 * row : 2 * row + 2]


def test_after_eos_comes_padding() -> None:
    model, inputs = tiny_model("llama"), prompts(2)
    output, _ = search(model, inputs, beams=4, groups=2, penalty=0.5, eos=MANY_EOS, best=4, pad_token_id=299)
    rows = new_tokens(output, inputs)
    assert any(row[-1] == 299 for row in rows)
    for row in rows:
        ended = cut(row, MANY_EOS)
        assert row == ended + [299] * (len(row) - len(ended))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("use_cache", [True, False])
def test_what_is_streamed_is_what_is_returned(kind: Kind, use_cache: bool) -> None:
    case = {"beams": 4, "groups": 2, "penalty": 1.0, "eos": MANY_EOS}
    output, steps = search(tiny_model(kind), prompts(2), use_cache=use_cache, **case)
    assert differences(output, steps) == []
    assert {tuple(step.live.shape) for step in steps} == {(2, 4)}


def test_scores_are_lowered_by_what_earlier_groups_took() -> None:
    _, steps = search(tiny_model("llama"), prompts(1), beams=4, groups=2, penalty=0.5)
    for step in steps:
        lowered = step.logits.log_softmax(-1) - step.scores
        assert torch.count_nonzero(lowered[:2]) == 0
        taken = torch.bincount(step.candidate_tokens[0, :2], minlength=300) * 0.5
        torch.testing.assert_close(lowered[2:], taken.expand(2, -1).float(), rtol=0, atol=1e-5)


def test_beam_indices_lead_from_the_scores_of_each_step_to_the_sequence_score() -> None:
    output, _ = search(tiny_model("gpt2"), prompts(2), beams=6, groups=3, penalty=1.0, best=4)
    for row, indices in enumerate(output.beam_indices.tolist()):
        path = zip(output.scores, indices, output.sequences[row, 11:].tolist(), strict=True)
        total = sum(scores[beam, token].item() for scores, beam, token in path)
        assert total / STEPS == pytest.approx(output.sequences_scores[row].item(), abs=1e-4)


def watched(model, inputs, loop, *, stop=None, **kwargs):
    """Run a search with steps and result streamed."""
    streamed = Streamed()
    streamer = OutputStreamer(
        streamed.steps.append,
        on_prompt=streamed.prompt.append,
        on_result=streamed.result.append,
        fields=ALL_FIELDS - {"prompt_logits"},
    )
    arguments = {"do_sample": False, "max_new_tokens": STEPS} | EVERYTHING | kwargs
    return model.generate(**inputs, **arguments, **observe(streamer, loop=loop, stop=stop)), streamed


ALWAYS = ("length", "candidate_tokens", "candidate_parents", "candidate_scores", "candidate_stops", "live", "live_scores", "finished")  # fmt: skip
WHERE_FINISHED = ("finished_scores", "finished_steps", "finished_candidates")
OF_RESULT = ("prompt_length", "sequences", "lengths", "scores", "beam_indices", "steps", "candidates")


def same(one, other) -> bool:
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


@pytest.mark.parametrize("number", range(16))
def test_the_steps_of_one_group_are_those_of_the_librarys_beam_search(number: int) -> None:
    draw = random.Random(number)
    kind, beams = draw.choice(KINDS), draw.choice([2, 3, 5])
    kwargs = {
        "num_beams": beams, "num_return_sequences": draw.randint(1, beams), "pad_token_id": 0,
        "early_stopping": draw.choice([True, False, "never"]), "length_penalty": draw.choice([-1.0, 0.0, 0.5, 2.0]),
        "eos_token_id": draw.choice([None, 5, MANY_EOS, list(range(3, 200))]), "max_new_tokens": draw.choice([1, 3, STEPS]),
    }  # fmt: skip
    inputs = prompts(draw.choice([1, 3]))
    _, theirs = watched(tiny_model(kind), inputs, None, **kwargs)
    _, ours = watched(tiny_model(kind), inputs, DiverseBeamSearch(1), **kwargs)
    assert len(ours.steps) == len(theirs.steps)
    for one, other in zip(ours.steps, theirs.steps, strict=True):
        assert [name for name in ALWAYS if not same(getattr(one, name), getattr(other, name))] == []
        for name in WHERE_FINISHED:
            assert torch.equal(getattr(one, name)[one.finished], getattr(other, name)[one.finished]), name
    [result], [wanted] = ours.result, theirs.result
    assert [name for name in OF_RESULT if not same(getattr(result, name), getattr(wanted, name))] == []


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("batch", [1, 3])
def test_the_references_between_steps_lead_to_the_returned_sequences(case, batch: int) -> None:
    beams, groups, eos = case["beams"], case["groups"], case.get("eos", ())
    more = {name: case[name] for name in ("early_stopping", "length_penalty") if name in case}
    output, streamed = watched(
        tiny_model("llama"), prompts(batch), DiverseBeamSearch(groups, case["penalty"]), num_beams=beams,
        num_return_sequences=beams, eos_token_id=list(eos) or None, pad_token_id=0, **more,
    )  # fmt: skip
    assert parity(output, streamed) == []  # replays every returned row, and adds up each candidate's score
    width, kept = beams // groups, streamed.steps[0].candidate_tokens.shape[1] // groups
    for step in streamed.steps:
        for group in range(groups):
            rows = torch.arange(batch)[:, None] * beams + group * width
            parents = step.candidate_parents[:, group * kept : (group + 1) * kept]
            assert bool(((parents >= rows) & (parents < rows + width)).all())
            live = step.live[:, group * width : (group + 1) * width]
            assert bool(((live >= group * kept) & (live < (group + 1) * kept)).all())
        for prompt, place in step.finished.nonzero().tolist():
            at, candidate = int(step.finished_steps[prompt, place]), int(step.finished_candidates[prompt, place])
            ended = streamed.steps[at]
            assert bool(ended.candidate_stops[prompt, candidate])
            score = ended.candidate_scores[prompt, candidate] / (at + 1) ** more.get("length_penalty", 1.0)
            assert torch.equal(score, step.finished_scores[prompt, place])


def test_where_there_are_fewer_tokens_than_beams_nothing_is_made_up() -> None:
    output, streamed = watched(
        tiny_model("llama"), prompts(1), DiverseBeamSearch(2, 0.5), num_beams=4, num_return_sequences=4,
        max_new_tokens=2, eos_token_id=None, pad_token_id=299, suppress_tokens=[0, 1, *range(3, 300)],
        length_penalty=2.0,
    )  # fmt: skip
    [result] = streamed.result
    assert result.lengths.tolist() == [2, 2, 0, 0]
    assert result.candidates.tolist()[2:] == result.steps.tolist()[2:] == [-1, -1]
    assert output.sequences[2:, 11:].tolist() == [[-1, -1]] * 2  # what the library has there too, without an EOS
    assert streamed.steps[-1].finished.tolist() == [[True, False, True, False]]


@pytest.mark.parametrize("groups", [1, 2])
def test_stop_returns_the_best_of_what_there_is(groups: int) -> None:
    model, inputs = tiny_model("llama"), prompts(2)
    asked = iter([False, False, True])
    stopped = model.generate(
        **inputs, do_sample=False, num_beams=4, num_return_sequences=2, max_new_tokens=STEPS, eos_token_id=None,
        **observe(loop=DiverseBeamSearch(groups, 0.5), stop=lambda: next(asked)),
    )  # fmt: skip
    short = model.generate(
        **inputs, do_sample=False, num_beams=4, num_return_sequences=2, max_new_tokens=3, eos_token_id=None,
        custom_generate=DiverseBeamSearch(groups, 0.5),
    )  # fmt: skip
    assert torch.equal(stopped, short)


@pytest.mark.parametrize("kind", KINDS)
def test_the_model_is_left_as_it_was(kind: Kind) -> None:
    model = tiny_model(kind)
    with untouched(model):
        search(model, prompts(2), beams=4, groups=2, penalty=0.5)


@pytest.mark.parametrize("kind", KINDS)
def test_bfloat16_runs_with_scores_in_float32(kind: Kind) -> None:
    output, steps = search(tiny_model(kind).to(torch.bfloat16), prompts(2), beams=4, groups=2, penalty=0.5)
    assert output.sequences.shape == (2, 11 + STEPS)
    assert {step.scores.dtype for step in steps} == {step.logits.dtype for step in steps} == {torch.float32}


@pytest.mark.parametrize(
    ("loop", "kwargs", "message"),
    [
        (DiverseBeamSearch(2), {"num_beams": 4, "do_sample": True}, "do_sample is True; pass do_sample=False"),
        (DiverseBeamSearch(3), {"num_beams": 4}, "into 3 equal groups, but num_beams is 4; pass num_beams=3"),
        (DiverseBeamSearch(2), {}, "into 2 equal groups, but num_beams is 1; pass num_beams=2"),
        (DiverseBeamSearch(2), {"num_beams": 2, "cache_implementation": "static"}, "StaticCache; use a dynamic"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(loop: DiverseBeamSearch, kwargs, message: str) -> None:
    with pytest.raises(LoopSettingsError, match=message):
        run(tiny_model("llama"), prompts(1), loop, **kwargs)


@pytest.mark.parametrize(("groups", "penalty"), [(0, 0.5), (2, -1.0), (2, float("inf")), (2, float("nan"))])
def test_settings_out_of_range_are_refused(groups: int, penalty: float) -> None:
    with pytest.raises(ValueError, match=r"num_beam_groups is 0|diversity_penalty is"):
        DiverseBeamSearch(groups, penalty)


def test_a_stopped_search_names_what_it_returns() -> None:
    asked = iter([False, False, True])
    output, streamed = watched(
        tiny_model("llama"), prompts(2), DiverseBeamSearch(2, 0.5), stop=lambda: next(asked), num_beams=4,
        num_return_sequences=4, eos_token_id=MANY_EOS, pad_token_id=0,
    )  # fmt: skip
    assert len(streamed.steps) == 3
    assert parity(output, streamed) == []
    [result] = streamed.result
    for row, (step, candidate) in enumerate(zip(result.steps.tolist(), result.candidates.tolist(), strict=True)):
        assert candidate in streamed.steps[2].live[row // 4] if step == 2 else step >= 0


@pytest.mark.parametrize("eos", [None, MANY_EOS])
def test_recorders_and_text_readers_get_the_sequences_that_are_returned(eos) -> None:
    model, tokenizer = tiny_model("llama"), tiny_tokenizer()
    recorder, texts = Recorder(tokenizer, rows=4, alternatives=3), TextIteratorStreamer(tokenizer, skip_prompt=True)
    output = model.generate(
        **prompts(2), **EVERYTHING, do_sample=False, num_beams=4, num_return_sequences=2, max_new_tokens=STEPS,
        eos_token_id=eos, pad_token_id=0, **observe(recorder, texts, loop=DiverseBeamSearch(2, 0.5)),
    )  # fmt: skip
    read = [""] * 4
    for row, text in texts.rows():
        read[row] += text
    for row, record in enumerate(recorder.records):
        generated = [token for token in record[:] if token.origin == "generated"]
        parents = [parent for parent in output.beam_indices[row].tolist() if parent >= 0]
        tokens = output.sequences[row, 11 : 11 + len(parents)].tolist()
        assert [token.id for token in generated] == tokens
        assert read[row] == tokenizer.decode(tokens)
        for step, (token, parent) in enumerate(zip(generated, parents, strict=True)):
            raw = output.logits[step][parent].double().log_softmax(-1)[token.id]
            assert token.raw_logprob == pytest.approx(float(raw), abs=1e-5)
    assert {len(step.candidates) for step in recorder.beams[:]} == {2 * 4 if eos is None else 40 * 4}
    assert [choice.lane for choice in recorder.choices[:]] == [0, 1, 2, 3]
