"""Incremental text equals the full decode, bytes are exact, and tokens that share a character are one group."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders
from transformers import PreTrainedTokenizerFast

from genscope.kernel_side.record.detokenize import Detokenizer, Piece, literal, token_bytes_of
from genscope.kernel_side.record.text_stages import CLEAN_UP, Replacer, StartStripper
from tokenizers_for_tests import EXACT, INEXACT, TEXTS, tokenizer_named

FAMILY = "👨‍👩‍👧‍👦"


def pieces_of(detokenizer, ids) -> list[Piece]:
    return [detokenizer.push(token) for token in ids]


def joined(detokenizer, ids) -> str:
    return "".join(piece.text for piece in pieces_of(detokenizer, ids)) + detokenizer.tail()


def ids_of(tokenizer, *tokens: str) -> list[int]:
    ids = tokenizer.convert_tokens_to_ids(list(tokens))
    assert [tokenizer.convert_ids_to_tokens(index) for index in ids] == list(tokens)
    return ids


def byte_ids(tokenizer, data: bytes) -> list[int]:
    """Tokens of one byte each."""
    known = token_bytes_of(tokenizer)
    single = {known.bytes_of(index): index for index in range(len(tokenizer)) if not known.is_special(index)}
    if known.rules.sink == "byte_fallback":
        return ids_of(tokenizer, *(f"<0x{byte:02X}>" for byte in data))
    return [single[bytes([byte])] for byte in data]


@pytest.mark.parametrize("name", [*EXACT, *INEXACT])
@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_texts_concatenate_to_the_full_decode_for_any_ids(name, data):
    tokenizer = tokenizer_named(name)
    # Beyond the vocabulary too, as models are padded; small ids are single bytes and special tokens in most.
    some_id = st.one_of(st.integers(0, len(tokenizer) + 3), st.integers(0, 150))
    ids = data.draw(st.lists(some_id, max_size=40))
    skip = data.draw(st.booleans())
    detokenizer = Detokenizer(tokenizer, skip_special_tokens=skip)
    want = tokenizer.decode(ids, skip_special_tokens=skip, clean_up_tokenization_spaces=False)
    assert joined(detokenizer, ids) == want


@pytest.mark.parametrize("name", ["byte_level", "llama", "gemma", "metaspace_bytes"])
@settings(deadline=None, max_examples=200)
@given(data=st.one_of(st.binary(max_size=24), st.text(max_size=12).map(lambda text: text.encode()[:-1])))
def test_random_bytes_decode_as_the_crate_decodes_them(name, data):
    tokenizer = tokenizer_named(name)
    ids = byte_ids(tokenizer, data)
    detokenizer = Detokenizer(tokenizer)
    pieces = pieces_of(detokenizer, ids)
    want = tokenizer.decode(ids, clean_up_tokenization_spaces=False)
    assert "".join(piece.text for piece in pieces) + detokenizer.tail() == want
    assert b"".join(piece.bytes for piece in pieces) == data


@pytest.mark.parametrize("name", [*EXACT, *INEXACT])
@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_real_text_survives_and_every_prefix_is_right(name, text):
    tokenizer = tokenizer_named(name)
    ids = tokenizer.encode(text)
    detokenizer = Detokenizer(tokenizer)
    given_out = ""
    for count, token in enumerate(ids, start=1):
        given_out += detokenizer.push(token).text
        assert given_out + detokenizer.tail() == tokenizer.decode(ids[:count], clean_up_tokenization_spaces=False)
    if name == "byte_level":
        assert given_out == text


@pytest.mark.parametrize("name", [name for name in EXACT if name != "word_piece"])
@settings(deadline=None, max_examples=100)
@given(data=st.data(), cleaning=st.sampled_from([None, True]))
def test_cleaned_up_text_concatenates_too(name, data, cleaning):
    tokenizer = tokenizer_named(name)
    ids = data.draw(st.lists(st.integers(0, len(tokenizer) - 1), max_size=40))
    detokenizer = Detokenizer(tokenizer, clean_up_tokenization_spaces=cleaning)
    assert joined(detokenizer, ids) == tokenizer.decode(ids, clean_up_tokenization_spaces=cleaning)


def test_cleaning_up_does_clean():
    tokenizer = tokenizer_named("no_decoder")
    ids = tokenizer.encode("what they do not !")
    assert joined(Detokenizer(tokenizer, clean_up_tokenization_spaces=True), ids) == "what they do not!"
    assert joined(Detokenizer(tokenizer), ids) == "what they do not !"


def test_bytes_of_each_family():
    def bytes_of(name, *tokens):
        tokenizer = tokenizer_named(name)
        known = token_bytes_of(tokenizer)
        assert known.exact
        return [known.bytes_of(index) for index in ids_of(tokenizer, *tokens)]

    assert bytes_of("byte_level", "Ġ", "Ċ", "Ā", "ð", "<|im_end|>") == [b" ", b"\n", b"\0", b"\xf0", b"<|im_end|>"]
    # Added tokens go through the byte alphabet if all their characters are in it (a quirk of the crate).
    assert bytes_of("byte_level", "日本", "ß", "two words") == ["日本".encode(), b"\xdf", b"two words"]
    assert bytes_of("llama", "<0xE2>", "▁▁", "<s>", "") == [b"\xe2", b"  ", b"<s>", b""]
    assert bytes_of("unigram", "▁", "</s>") == [b" ", b"</s>"]
    assert bytes_of("word_piece", "the", "##e", "n't", "##") == [b" the", b"e", b"n't", b""]


@pytest.mark.parametrize("name", list(INEXACT))
def test_where_the_rules_are_unknown_no_bytes_are_guessed(name):
    tokenizer = tokenizer_named(name)
    known = token_bytes_of(tokenizer)
    assert not known.exact
    assert known.bytes_of(5) is None
    assert Detokenizer(tokenizer).push(5).bytes is None
    assert known.is_special(tokenizer.eos_token_id)


@pytest.mark.parametrize("name", ["byte_level", "gemma", "word_piece"])
@pytest.mark.parametrize("token", [1000, 2**31, 2**40, -1])
def test_an_id_that_the_tokenizer_does_not_have_adds_nothing(name, token):
    tokenizer = tokenizer_named(name)
    detokenizer = Detokenizer(tokenizer)
    assert detokenizer.peek(token) == ""
    piece = detokenizer.push(token)
    assert piece == Piece("", None, 0, special=False, shown="")
    # And the next token is still the first one.
    first = tokenizer.encode("the", add_special_tokens=False)[0]
    assert detokenizer.push(first).text == tokenizer.decode([first])


def test_unknown_ids_inside_a_character_leave_it_whole():
    tokenizer = tokenizer_named("byte_level")
    first, second = byte_ids(tokenizer, "é".encode())
    pieces = pieces_of(Detokenizer(tokenizer), [first, 10_000, second])
    assert [(piece.text, piece.group) for piece in pieces] == [("", 0), ("", 0), ("é", 0)]


@pytest.mark.parametrize("name", ["byte_level", "gemma"])
def test_tokens_of_one_character_are_one_group(name):
    tokenizer = tokenizer_named(name)
    ids = [*byte_ids(tokenizer, "😀é".encode()), *byte_ids(tokenizer, b"a")]
    pieces = pieces_of(Detokenizer(tokenizer), ids)
    assert [piece.group for piece in pieces] == [0, 0, 0, 0, 4, 4, 6]
    assert [piece.shown for piece in pieces] == ["", "", "", "😀", "", "é", "a"]


def test_chains_of_shared_characters_are_one_group():
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokenizer_named("byte_level").backend_tokenizer)
    alphabet = {
        bytes([byte]): tokenizer.convert_ids_to_tokens(byte_ids(tokenizer, bytes([byte]))[0]) for byte in range(256)
    }
    parts = [b"a", b"b\xc3", b"\xa9\xe2", b"\x82", b"\xac", b"c"]
    tokens = ["".join(alphabet[bytes([byte])] for byte in part) for part in parts]
    tokenizer.add_tokens([token for token in tokens if len(token) > 1])
    detokenizer = Detokenizer(tokenizer)
    pieces = pieces_of(detokenizer, ids_of(tokenizer, *tokens))
    assert [piece.bytes for piece in pieces] == parts
    assert [piece.text for piece in pieces] == ["a", "b", "é", "", "€", "c"]
    assert [piece.group for piece in pieces] == [0, 1, 1, 1, 1, 5]


def test_a_broken_character_is_not_shared_with_what_follows():
    tokenizer = tokenizer_named("byte_level")
    ids = byte_ids(tokenizer, b"\xe2\x98a\xf0b")
    pieces = pieces_of(Detokenizer(tokenizer), ids)
    assert [piece.group for piece in pieces] == [0, 0, 2, 3, 4]
    assert [piece.text for piece in pieces] == ["", "", "\ufffda", "", "\ufffdb"]
    assert [piece.shown for piece in pieces] == ["", "", "a", "", "b"]


def test_an_encoded_surrogate_is_no_start_of_a_character():
    # Python's incremental decoder waits for its third byte; the crate, and Python's plain decoder, do not.
    tokenizer = tokenizer_named("byte_level")
    pieces = pieces_of(Detokenizer(tokenizer), byte_ids(tokenizer, b"\xed\xb4a"))
    assert [piece.text for piece in pieces] == ["", "\ufffd\ufffd", "a"]
    assert [piece.group for piece in pieces] == [0, 1, 2]


def test_a_legitimate_replacement_character_is_text():
    tokenizer = tokenizer_named("byte_level")
    pieces = pieces_of(Detokenizer(tokenizer), byte_ids(tokenizer, "\ufffda".encode()))
    assert [(piece.text, piece.shown, piece.group) for piece in pieces] == [
        ("", "", 0), ("", "", 0), ("\ufffd", "\ufffd", 0), ("a", "a", 3),
    ]  # fmt: skip
    slow = tokenizer_named("slow_pieces")
    assert joined(Detokenizer(slow), ids_of(slow, "\ufffd", "a", "\ufffd")) == "\ufffda\ufffd"


def test_a_run_of_byte_tokens_is_final_when_it_ends_but_shows_at_once():
    tokenizer = tokenizer_named("gemma")
    smile, broken = byte_ids(tokenizer, "😀".encode()), byte_ids(tokenizer, b"\xff")
    after = ids_of(tokenizer, "▁", "a")
    good = pieces_of(Detokenizer(tokenizer), smile + after)
    assert [piece.text for piece in good] == ["", "", "", "", "😀 ", "a"]
    assert [piece.shown for piece in good] == ["", "", "", "😀", " ", "a"]
    bad = pieces_of(Detokenizer(tokenizer), smile + broken + after)
    assert bad[5].text == "\ufffd" * 5 + " " == tokenizer.decode((smile + broken + after)[:6])
    assert bad[4].shown == "\\xFF"


def test_an_emoji_of_several_code_points_never_comes_by_half_a_code_point():
    tokenizer = tokenizer_named("byte_level")
    pieces = pieces_of(Detokenizer(tokenizer), byte_ids(tokenizer, FAMILY.encode()))
    assert [piece.text for piece in pieces if piece.text] == list(FAMILY)


@pytest.mark.parametrize(
    ("name", "text"),
    [("byte_level", " x"), ("llama", "x"), ("gemma", " x"), ("metaspace_bytes", "x")],
)
def test_the_first_token_keeps_or_loses_its_space_as_in_decode(name, text):
    tokenizer = tokenizer_named(name)
    ids = ids_of(tokenizer, "Ġ" if name == "byte_level" else "▁", "x")
    detokenizer = Detokenizer(tokenizer)
    assert detokenizer.peek(ids[0]) + "x" == text
    pieces = pieces_of(detokenizer, ids)
    assert "".join(piece.text for piece in pieces) == text
    assert b"".join(piece.bytes for piece in pieces) == text.encode()
    assert detokenizer.peek(ids[0]) == " "  # no longer first


def test_markup_and_special_tokens_are_literal():
    tokenizer = tokenizer_named("byte_level")
    text = '<script>alert(1)</script> & " <s> <|im_end|>'
    pieces = pieces_of(Detokenizer(tokenizer), tokenizer.encode(text))
    assert "".join(piece.text for piece in pieces) == text
    assert [piece.text for piece in pieces if piece.special] == ["<s>", "<|im_end|>"]


def test_skipped_special_tokens_keep_their_place():
    tokenizer = tokenizer_named("byte_level")
    ids = tokenizer.encode("a<|im_end|>b")
    pieces = pieces_of(Detokenizer(tokenizer, skip_special_tokens=True), ids)
    assert [(piece.text, piece.bytes, piece.group, piece.special) for piece in pieces] == [
        ("a", b"a", 0, False), ("", b"", 1, True), ("b", b"b", 2, False),
    ]  # fmt: skip
    assert Detokenizer(tokenizer, skip_special_tokens=True).peek(ids[1]) == ""


@pytest.mark.parametrize("name", ["byte_level", "gemma"])
def test_peek_shows_what_a_candidate_would_complete_and_changes_nothing(name):
    tokenizer = tokenizer_named(name)
    lead, middle, last = byte_ids(tokenizer, "☃".encode())
    letter = byte_ids(tokenizer, b"a")[0]
    detokenizer = Detokenizer(tokenizer)
    assert [detokenizer.peek(token) for token in (lead, last, letter)] == ["\\xE2", "\\x83", "a"]
    detokenizer.push(lead)
    assert [detokenizer.peek(token) for token in (middle, lead, letter)] == ["\\x98", "\\xE2", "a"]
    detokenizer.push(middle)
    assert [detokenizer.peek(token) for token in (last, lead, letter)] == ["☃", "\\xE2", "a"]
    assert detokenizer.push(last).shown == "☃"


def test_peek_of_an_inexact_tokenizer():
    tokenizer = tokenizer_named("slow_words")
    the, fox = ids_of(tokenizer, "The", "fox")
    detokenizer = Detokenizer(tokenizer)
    assert detokenizer.peek(fox) == "fox"
    detokenizer.push(the)
    assert [detokenizer.peek(fox), detokenizer.peek(the), detokenizer.push(fox).text] == [" fox", " The", " fox"]


def test_a_slow_tokenizer_holds_an_unfinished_character_back():
    tokenizer = tokenizer_named("slow_bytes")
    data = "a😀b".encode()
    ids = ids_of(tokenizer, *(f"b{byte}" for byte in data))
    pieces = pieces_of(Detokenizer(tokenizer), ids)
    assert [piece.text for piece in pieces] == ["a", "", "", "", "😀", "b"]
    assert [piece.group for piece in pieces] == [0, 1, 1, 1, 1, 5]


@pytest.mark.parametrize("name", ["byte_level", "llama", "slow_bytes", "slow_pieces"])
def test_a_fork_goes_on_alone(name):
    tokenizer = tokenizer_named(name)
    generator = random.Random(7)
    ids = [generator.randrange(len(tokenizer)) for _ in range(60)]
    for at in range(0, 30, 3):
        one = Detokenizer(tokenizer)
        start = "".join(piece.text for piece in pieces_of(one, ids[:at]))
        other = one.fork()
        assert start + joined(other, ids[30:]) == tokenizer.decode(ids[:at] + ids[30:])
        assert start + joined(one, ids[at:30]) == tokenizer.decode(ids[:30])


@pytest.mark.parametrize("kwargs", [{}, {"clean_up_tokenization_spaces": True}])
def test_a_fork_shares_no_state_of_the_decoder(kwargs):
    tokenizer = tokenizer_named("no_decoder" if kwargs else "llama")
    ids = tokenizer.encode("is it ? it !") if kwargs else ids_of(tokenizer, "▁", "x")
    one = Detokenizer(tokenizer, **kwargs)
    other = one.fork()
    assert joined(one, ids) == joined(other, ids) == tokenizer.decode(ids, **kwargs)


def test_legitimate_replacement_characters_are_not_held_for_ever():
    tokenizer = tokenizer_named("slow_pieces")
    detokenizer = Detokenizer(tokenizer)
    pieces = pieces_of(detokenizer, ids_of(tokenizer, "a") + ids_of(tokenizer, "\ufffd") * 600)
    text = "".join(piece.text for piece in pieces)
    assert [piece.text for piece in pieces[:6]] == ["a", "", "", "", "\ufffd", "\ufffd"]
    assert text + detokenizer.tail() == "a" + 600 * "\ufffd"
    assert len(detokenizer._way._windowed._window) < 300


def test_a_window_stays_short_when_nothing_shows():
    tokenizer = tokenizer_named("slow_pieces")
    detokenizer = Detokenizer(tokenizer, skip_special_tokens=True)
    pieces = pieces_of(detokenizer, ids_of(tokenizer, "a") + [tokenizer.eos_token_id] * 600)
    assert len(detokenizer._way._windowed._window) < 300
    pieces += pieces_of(detokenizer, ids_of(tokenizer, "b"))
    assert "".join(piece.text for piece in pieces) == "ab"


def test_a_window_never_begins_inside_a_character():
    class Own(PreTrainedTokenizerFast):
        def _decode(self, *args, **kwargs):
            return super()._decode(*args, **kwargs)

    fast = tokenizer_named("gemma")
    tokenizer = Own(tokenizer_object=fast.backend_tokenizer)
    assert not token_bytes_of(tokenizer).exact
    # The decoder replaces whole runs of bytes: half a character at their start would spoil the next one.
    assert joined(Detokenizer(tokenizer), byte_ids(fast, "😀😃🎉".encode())) == "😀😃🎉"
    # What became invalid after it was given out cannot be taken back, and holds nothing up for long.
    pieces = pieces_of(Detokenizer(tokenizer), byte_ids(fast, "😀".encode() + b"\xff") + ids_of(fast, "x") * 6)
    assert [piece.text for piece in pieces[3:]] == ["😀", "", "", "", "\ufffd" * 4 + "xxx", "x", "x", "x"]


def test_tokens_added_later_are_seen():
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokenizer_named("byte_level").backend_tokenizer)
    known = token_bytes_of(tokenizer)
    assert token_bytes_of(tokenizer) is known
    new = len(tokenizer)
    assert Detokenizer(tokenizer).push(new).text == ""
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|later|>"]})
    assert Detokenizer(tokenizer).push(new) == Piece("<|later|>", b"<|later|>", 0, special=True, shown="<|later|>")


def test_a_changed_decoder_is_seen():
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokenizer_named("byte_level").backend_tokenizer)
    ids = byte_ids(tokenizer, b" ")
    assert Detokenizer(tokenizer).push(ids[0]).text == " "
    before = tokenizer.backend_tokenizer.decoder
    tokenizer.backend_tokenizer.decoder = decoders.Replace("Ġ", "_")
    try:
        assert Detokenizer(tokenizer).push(ids[0]).text == "_"
    finally:
        tokenizer.backend_tokenizer.decoder = before  # shared with the cached tokenizer


def test_a_class_with_a_decode_of_its_own_is_asked_itself():
    class Shouting(PreTrainedTokenizerFast):
        def _decode(self, token_ids, skip_special_tokens=False, clean_up_tokenization_spaces=None, **kwargs):
            return super()._decode(token_ids, skip_special_tokens, clean_up_tokenization_spaces).upper()

    tokenizer = Shouting(tokenizer_object=tokenizer_named("byte_level").backend_tokenizer)
    assert joined(Detokenizer(tokenizer), tokenizer.encode("the fox é")) == "THE FOX É"
    assert not token_bytes_of(tokenizer).exact


def test_exact_tokenizers_are_not_asked_to_decode(monkeypatch):
    tokenizer = tokenizer_named("byte_level")
    ids = tokenizer.encode(TEXTS[2])
    detokenizer = Detokenizer(tokenizer)

    def fail(*args, **kwargs):
        raise AssertionError("decoded")

    monkeypatch.setattr(tokenizer, "decode", fail)
    assert joined(detokenizer, ids) == TEXTS[2]
    detokenizer.peek(ids[0])


def test_a_window_stays_short():
    tokenizer = tokenizer_named("slow_words")
    longest = 0
    decode = tokenizer._decode

    def measured(token_ids, **kwargs):
        nonlocal longest
        longest = max(longest, len(token_ids))
        return decode(token_ids, **kwargs)

    detokenizer = Detokenizer(tokenizer)
    tokenizer._decode = measured
    try:
        text = "".join(detokenizer.push(4 + index % 30).text for index in range(300))
    finally:
        del tokenizer._decode
    assert len(text) > 1000
    assert longest <= 3


@settings(deadline=None)
@given(st.lists(st.text(" .?!,'nmtsvre", max_size=4), max_size=12))
def test_replacing_in_parts_equals_replacing_in_whole(parts):
    want = "".join(parts)
    stages = [Replacer(pattern, content) for pattern, content in (*CLEAN_UP, ("..", "."), ("''", ""))]
    for pattern, content in (*CLEAN_UP, ("..", "."), ("''", "")):
        want = want.replace(pattern, content)
    got = ""
    for part in parts:
        text = part
        for stage in stages:
            text = stage.push(text)
        got += text
    text = ""
    for stage in stages:
        text = stage.push(text) + stage.flush()
    assert got + text == want


def test_the_library_cleans_up_what_we_think_it_does():
    tokenizer = tokenizer_named("no_decoder")
    text = "".join(f"x{pattern}y" for pattern, _ in CLEAN_UP) + " do not"
    want = text
    for pattern, content in CLEAN_UP:
        want = want.replace(pattern, content)
    assert tokenizer.clean_up_tokenization(text) == want != text


def test_stripping_in_parts():
    stage = StartStripper(" ", 3)
    assert [stage.push(text) for text in (" ", "", "  ", " x ", " ")] == ["", "", "", " x ", " "]
    stage = StartStripper(" ", 3)
    assert [stage.push(text) for text in (" x", " y")] == ["x", " y"]


def test_literal():
    assert literal("é😀".encode() + b"\xe2\x80 \xff") == "é😀\\xE2\\x80 \\xFF"


def test_the_demo_model_speaks_in_exact_bytes(demo):
    tokenizer = demo.tokenizer
    assert token_bytes_of(tokenizer).exact
    generator = random.Random(0)
    size = len(tokenizer)
    rare = tokenizer.encode(FAMILY + TEXTS[2] + TEXTS[3])
    for _ in range(300):
        ids = [generator.choice((generator.randrange(size + 50), generator.choice(rare))) for _ in range(40)]
        assert joined(Detokenizer(tokenizer), ids) == tokenizer.decode(ids, clean_up_tokenization_spaces=False)
    for text in TEXTS:
        pieces = pieces_of(Detokenizer(tokenizer), tokenizer.encode(text))
        assert "".join(piece.text for piece in pieces) == text
        assert b"".join(piece.bytes for piece in pieces) == text.encode()


def test_a_token_costs_the_same_after_a_long_text(demo):
    ids = demo.tokenizer.encode(TEXTS[0]) * 2000
    detokenizer = Detokenizer(demo.tokenizer)

    def seconds(part):
        began = time.perf_counter()
        for token in part:
            detokenizer.push(token)
        return time.perf_counter() - began

    seconds(ids[:2000])  # fills the table
    early = min(seconds(ids[:2000]) for _ in range(5))
    seconds(ids)
    assert min(seconds(ids[:2000]) for _ in range(5)) < 3 * early


def test_a_space_stripped_from_a_run_of_byte_tokens_is_not_taken_from_the_token_behind():
    tokenizer = tokenizer_named("llama")
    detokenizer = Detokenizer(tokenizer)
    tokens = ["<0x20>", "<0xC3>", "<0xA9>", "a"]
    pieces = [detokenizer.push(tokenizer.convert_tokens_to_ids(token)) for token in tokens]
    assert [piece.text for piece in pieces] == ["", "", "", "éa"]
    assert (pieces[-1].shown, pieces[-1].bytes) == ("a", b"a")
