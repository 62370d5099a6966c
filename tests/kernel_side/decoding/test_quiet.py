"""The warning that the library's drafters cause is kept back, and no other."""

from __future__ import annotations

import logging

import pytest

from genscope.kernel_side.decoding.observe import observe
from genscope.kernel_side.decoding.quiet import drafting_quietly
from tiny import PAD, tiny_model

LOGGER = logging.getLogger("transformers.generation.utils")
MESSAGE = "Passing `generation_config` together with generation-related arguments=({'x'}) is deprecated"


def test_the_message_is_kept_back_while_drafting_only(caplog: pytest.LogCaptureFixture) -> None:
    with drafting_quietly():
        LOGGER.warning(MESSAGE)
        LOGGER.warning("another")
    assert caplog.messages == ["another"]
    LOGGER.warning(MESSAGE)
    assert caplog.messages == ["another", MESSAGE]


def test_the_library_still_says_it_by_these_words(caplog: pytest.LogCaptureFixture) -> None:
    # It says so once a process for the same arguments: these are used here only.
    model = tiny_model("llama")
    ids = model.dummy_inputs["input_ids"][:1]
    model.generate(ids, generation_config=model.generation_config, max_new_tokens=2, min_p=0.25, do_sample=True)
    assert any(text.startswith(MESSAGE.partition("=")[0]) for text in caplog.messages)


def test_drafts_come_without_it(caplog: pytest.LogCaptureFixture) -> None:
    model = tiny_model("llama")
    ids = model.dummy_inputs["input_ids"][:1]
    model.generate(
        ids, max_new_tokens=4, pad_token_id=PAD, eos_token_id=None, **observe(assistant_model=tiny_model("llama"))
    )
    assert not any("Passing" in text for text in caplog.messages)
