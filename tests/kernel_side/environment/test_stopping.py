"""The criterion under the library's loops: where rows end, what is counted, what it never looks at."""

from __future__ import annotations

import pytest
import torch
from transformers import LogitsProcessorList, StoppingCriteriaList

from genscope.kernel_side.environment.stopping import StringStoppingCriteria
from scripted import TOKENIZER, Says, ids_of, turn
from tiny import EOS, PAD, tiny_model

PAD_ROW = torch.tensor([[PAD]])


def asked(criterion: StringStoppingCriteria, *rows: list[int]) -> list[bool]:
    return criterion(torch.tensor(rows), None).tolist()


def generated(criterion: StringStoppingCriteria, scripts: dict[str, list], **kwargs) -> torch.Tensor:
    """Generate for the prompts of scripts, all of one length; return the new columns."""
    ids = torch.tensor([ids_of(prompt) for prompt in scripts])
    output = tiny_model("llama").generate(
        ids,
        attention_mask=torch.ones_like(ids),
        logits_processor=LogitsProcessorList([Says(scripts)]),
        stopping_criteria=StoppingCriteriaList([criterion]),
        max_new_tokens=24,
        **kwargs,
    )
    return output[:, ids.shape[1] :]


def test_a_string_across_tokens_ends_the_row_with_its_last_token() -> None:
    criterion = StringStoppingCriteria(["<call>", "<submit>"], TOKENIZER)
    output = generated(criterion, {"q": [turn("ab<call>cd")]})
    assert TOKENIZER.decode(output[0]) == "ab<call>"
    assert criterion.generated_tokens == [output.shape[1]] == [len(ids_of("ab<call>"))]


def test_each_row_of_a_batch_has_its_own_end_and_count() -> None:
    criterion = StringStoppingCriteria(["<call>", "<submit>"], TOKENIZER)
    scripts = {"q": [turn("ab<call>never")], "w": [turn("a longer row<submit>")], "z": [turn("eos", eos=True)]}
    output = generated(criterion, scripts)
    texts = ["ab<call>", "a longer row<submit>", "eos<eos>"]
    assert [
        TOKENIZER.decode(row[:count]) for row, count in zip(output, criterion.generated_tokens, strict=True)
    ] == texts
    assert criterion.generated_tokens == [len(ids_of(text)) for text in texts]  # padding is no token of the model's
    assert output[0, criterion.generated_tokens[0] :].tolist() == [PAD] * (output.shape[1] - len(ids_of(texts[0])))


def test_a_row_that_does_not_end_is_counted_right() -> None:
    criterion = StringStoppingCriteria(["never"], TOKENIZER)
    output = generated(criterion, {"q": [[None] * 30]})
    assert output.shape[1] == 24
    assert criterion.generated_tokens == [24]


def test_a_string_that_the_prompt_holds_or_begins_does_not_end_a_row() -> None:
    criterion = StringStoppingCriteria(["<call>"], TOKENIZER)
    output = generated(criterion, {"say <call> and <ca": [turn("ll> x<call>")]})
    assert TOKENIZER.decode(output[0]) == "ll> x<call>"


def test_eos_in_the_prompt_ends_nothing() -> None:
    criterion = StringStoppingCriteria(["stop"], TOKENIZER)
    assert asked(criterion, [*ids_of("a"), EOS, *ids_of("b"), 50]) == [False]
    assert criterion.generated_tokens == [1]


def test_eos_ids_may_be_given() -> None:
    [a, b] = ids_of("xy")
    for eos in (b, [b, 7]):
        criterion = StringStoppingCriteria(["stop"], TOKENIZER, eos_token_id=eos, prompt_length=1)
        assert asked(criterion, [5, a, EOS]) == [False]
        assert asked(criterion, [5, a, b, a]) == [True]
        assert criterion.generated_tokens == [2]


def test_one_object_serves_one_generation_after_the_other() -> None:
    criterion = StringStoppingCriteria(["<call>"], TOKENIZER)
    for text in ("one <call>", "two, a longer <call>", "3<call>", "3<call>"):
        output = generated(criterion, {"q": [turn(text)]})
        assert TOKENIZER.decode(output[0]) == text
        assert criterion.generated_tokens == [len(ids_of(text))]
    assert TOKENIZER.decode(generated(criterion, {"another": [turn("4<call>")]})[0]) == "4<call>"
    assert criterion.generated_tokens == [len(ids_of("4<call>"))]


def test_several_tokens_a_step_are_right_where_the_prompt_is_known() -> None:
    new = ids_of("ab<call>cd")
    criterion = StringStoppingCriteria(["<call>"], TOKENIZER, prompt_length=2)
    assert asked(criterion, [5, 6, *new[:3]]) == [False]
    assert asked(criterion, [5, 6, *new]) == [True]
    assert criterion.generated_tokens == [len(ids_of("ab<call>"))]
    criterion.reset(3)
    assert asked(criterion, [5, 6, 7, *new[:1]]) == [False]
    assert criterion.generated_tokens == [1]


def test_hypotheses_may_change_rows() -> None:
    criterion = StringStoppingCriteria(["stop"], TOKENIZER)
    first, second = ids_of("st"), ids_of("go")
    assert len(first) == 1
    assert asked(criterion, [5, *first], [5, second[0]]) == [False, False]
    assert asked(criterion, [5, second[0], second[1]], [5, *first, *ids_of("o")]) == [False, False]
    assert asked(criterion, [5, *first, *ids_of("op")], [5, *second, 50]) == [True, False]


def test_a_beam_search_ends_with_it() -> None:
    free = generated(StringStoppingCriteria(["never"], TOKENIZER), {"q": [[None] * 30]}, num_beams=3)
    string = TOKENIZER.decode(free[0, 2:4])
    criterion = StringStoppingCriteria([string], TOKENIZER)
    output = generated(criterion, {"q": [[None] * 30]}, num_beams=3, length_penalty=-5.0)
    count = criterion.count(output[0].tolist())
    assert string in TOKENIZER.decode(output[0, :count])
    assert string not in TOKENIZER.decode(output[0, : count - 1])


def test_counting_after_the_fact() -> None:
    criterion = StringStoppingCriteria(["<call>"], TOKENIZER)
    assert criterion.count(ids_of("ab<call>cd")) == len(ids_of("ab<call>"))
    assert criterion.count([*ids_of("ab"), EOS, PAD, PAD]) == 3
    assert criterion.count(ids_of("ab")) == 2
    assert criterion.count(ids_of("ll>"), ids_of("<ca")) == 3
    assert criterion.count([EOS, *ids_of("<call>")]) == 1


@pytest.mark.parametrize("strings", [[""], ["a", ""]])
def test_an_empty_string_is_refused(strings: list[str]) -> None:
    with pytest.raises(ValueError, match="give texts that are not empty"):
        StringStoppingCriteria(strings, TOKENIZER)


def test_one_string_may_come_without_a_list() -> None:
    assert StringStoppingCriteria("stop", TOKENIZER).stop_strings == ["stop"]
