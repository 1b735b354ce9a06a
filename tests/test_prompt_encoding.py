"""Claims about encoding: what is cached, and where a character stands among the tokens."""

import pytest
from core_tokens import SPECIAL, tiny_template, tiny_tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import TemplateError
from harness.template import THINK_CLOSE, THINK_OPEN, ChatTemplate

TEXT = st.lists(
    st.one_of(
        st.sampled_from(
            [*SPECIAL, "<|im_", "end|>", "<tool", "\n\n", "  ", " ", "'s", "Xfinity", "é", "漢字", "👩‍👩‍👧"]
        ),
        st.text(max_size=12).filter(lambda text: text.isprintable() or text.isspace()),
    ),
    max_size=12,
).map("".join)


@settings(max_examples=200, deadline=None)
@given(texts=st.lists(TEXT, min_size=1, max_size=3), trim=st.booleans())
def test_cached_encoding_is_the_tokenizers_own_on_any_text(texts: list[str], trim: bool) -> None:
    tokenizer = tiny_tokenizer(trim_offsets=trim)
    template = ChatTemplate(tokenizer)
    for text in [*texts, "".join(texts), *texts]:
        raw = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        encoded = template.encode(text)
        assert encoded.ids == tuple(raw["input_ids"])
        template.check_exact(text)
        assert template.count(text) == len(encoded.ids)
        assert template.decode(encoded.ids) == text


@settings(max_examples=200, deadline=None)
@given(text=TEXT, data=st.data())
def test_a_token_range_is_exactly_the_tokens_that_overlap_the_characters(text: str, data) -> None:
    tokenizer = tiny_tokenizer()
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    offsets = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    overlapping = [i for i, (a, b) in enumerate(offsets) if a < end and b > start]
    first, last = ChatTemplate(tokenizer).encode(text).token_range(start, end)
    if start < end:
        assert list(range(first, last)) == overlapping
    else:
        assert last - first <= len(overlapping)


def test_a_tokenizer_that_does_not_split_at_its_added_tokens_is_refused() -> None:
    tokenizer = tiny_tokenizer()

    class Odd:
        """Encodes a whole text otherwise than its parts."""

        chat_template = tokenizer.chat_template
        added_tokens_decoder = tokenizer.added_tokens_decoder

        def __call__(self, text: str, **options: object):
            whole = "<|im_end|>" in text and text != "<|im_end|>"
            return tokenizer(text.upper() if whole else text, **options)

    with pytest.raises(TemplateError, match="not supported"):
        ChatTemplate(Odd()).check_exact("abc<|im_end|>def")


def test_an_added_token_that_begins_another_is_found_as_the_tokenizer_finds_it() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im", "<|im_end|>", "<|im_end|>!"]}, False)
    ChatTemplate(tokenizer).check_exact("a<|im_end|>! b<|im_end|> c<|im d<|im_start|>")


@pytest.mark.weights
@settings(max_examples=60, deadline=None)
@given(text=TEXT)
def test_cached_encoding_is_exact_on_the_real_tokenizer_too(qwen: ChatTemplate, text: str) -> None:
    assert qwen.encode(text).ids == tuple(qwen.tokenizer(text, add_special_tokens=False)["input_ids"])


def test_think_delimiters_are_not_confused_with_an_opened_block() -> None:
    template = tiny_template()
    assert template.opens_thinking(f"x{THINK_OPEN}\n") and not template.opens_thinking(
        f"{THINK_OPEN}{THINK_CLOSE}\n"
    )
