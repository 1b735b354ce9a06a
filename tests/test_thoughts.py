"""`choose` after thinking, over a scripted engine: what is drawn, how it is closed, what is averaged."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from harness.models.base import in_passes
from harness.models.thoughts import GAP, Codec, choose_after_thinking, thought_seed
from harness.parsing import count_thinking_pieces
from harness.types import Decoding, ModelOutput, ModelUsage, RenderedPrompt, Request, Timing

PROMPT = (1, 2, 3)
FORCED = (7,)
CHOICES = {"call:a": (50, 51), "reply": (60,)}


def encode(text: str) -> tuple[int, ...]:
    return tuple(1000 + ord(sign) for sign in text)


def decode(ids: Sequence[int]) -> str:
    return "".join(chr(token - 1000) for token in ids if token >= 1000)


CODEC = Codec(
    encode,
    decode,
    lambda output, think_open: count_thinking_pieces(
        [decode([token]) for token in output.token_ids if token >= 1000],
        think_open=think_open,
        finish_reason=output.finish_reason,
    ),
)


class Scripted:
    """Draws the given thoughts in turn; after each, the probability of a call is what the thought says."""

    def __init__(self, thoughts: Sequence[tuple[str, str]], chances: Sequence[float]) -> None:
        self.thoughts, self.chances = list(thoughts), list(chances)
        self.drawn: list[Request] = []
        self.asked: list[Request] = []

    def run(self, requests: Sequence[Request], then: Any = None) -> Iterator[tuple[str, ModelOutput]]:
        yield from in_passes(self.once, requests, then)

    def once(self, requests: Sequence[Request]) -> Iterator[tuple[str, ModelOutput]]:
        for request in reversed(requests):  # any order will do
            number = int(request.cell_id.rsplit(" ", 1)[1])
            usage = ModelUsage(len(request.prompt.ids), None)
            timing = Timing("t")
            if request.probe == "act":
                self.drawn.append(request)
                text, finish = self.thoughts[number % len(self.thoughts)]
                if finish == "error":
                    yield request.cell_id, ModelOutput("", (), "error", usage, timing, error="gone")
                    continue
                ids = encode(text) + ((2,) if finish == "stop" and "</think>" not in text else ())
                yield request.cell_id, ModelOutput(text, ids, finish, usage, timing)  # type: ignore[arg-type]
            else:
                self.asked.append(request)
                chance = self.chances[number % len(self.chances)]
                logprobs = {"call:a": math.log(chance), "reply": math.log(1 - chance)}
                yield request.cell_id, ModelOutput("", (), "choice", usage, timing, choice_logprobs=logprobs)


def request(cell: str = "cell", thoughts: int = 4, think_open: bool = False) -> Request:
    prompt = RenderedPrompt(PROMPT, "", (), "", "", think_open=think_open)
    return Request(
        cell,
        "choose",
        prompt,
        Decoding(40, 0.6),
        11,
        FORCED,
        CHOICES,
        thoughts=thoughts,
        stop_text="</think>",
    )


def go(model: Any, *requests: Request) -> dict[str, ModelOutput]:
    return dict(choose_after_thinking(model, requests, CODEC))


def test_probabilities_are_averaged_not_their_logs() -> None:
    model = Scripted([("<think>a</think>", "stop")], [0.9, 0.1, 0.5, 0.5])
    output = go(model, request())["cell"]
    assert output.choice_logprobs is not None
    assert math.exp(output.choice_logprobs["call:a"]) == pytest.approx(0.5)
    assert [math.exp(thought.logprobs[0]) for thought in output.thoughts] == pytest.approx(
        [0.9, 0.1, 0.5, 0.5]
    )
    assert output.finish_reason == "choice" and output.usage.prompt_tokens == len(PROMPT)


def test_very_small_probabilities_do_not_vanish() -> None:
    class Tiny(Scripted):
        def once(self, requests: Sequence[Request]) -> Iterator[tuple[str, ModelOutput]]:
            for name, output in super().once(requests):
                if output.choice_logprobs:
                    logprobs = {"call:a": -2000.0, "reply": -1e-9}
                    output = ModelOutput(
                        "", (), "choice", output.usage, output.timing, choice_logprobs=logprobs
                    )
                yield name, output

    output = go(Tiny([("<think>a</think>", "stop")], [0.5]), request())["cell"]
    assert output.choice_logprobs is not None and output.choice_logprobs["call:a"] == pytest.approx(-2000.0)


def test_each_thought_has_a_seed_of_its_own_that_all_arms_share() -> None:
    model = Scripted([("<think>a</think>", "stop")], [0.5])
    go(model, request("s|control|choose|0"), request("s|bar|choose|0"))
    seeds = [draw.seed for draw in model.drawn]
    assert sorted(seeds) == sorted(2 * [thought_seed(11, number) for number in range(4)])
    assert len(set(seeds)) == 4


@pytest.mark.parametrize(
    ("text", "finish", "closed", "cut", "censored", "tokens"),
    [
        ("<think>ab</think>", "stop", "<think>ab</think>" + GAP, False, False, 2),
        ("<think>ab</think>", "length", "<think>ab</think>" + GAP, False, False, 2),
        ("<think>ab", "length", "<think>ab\n</think>" + GAP, True, True, 2),
        ("<think>ab\n", "length", "<think>ab\n</think>" + GAP, True, True, 3),
        # Its length is known: it broke off by itself, or never began.
        ("<think>ab", "stop", "<think>ab\n</think>" + GAP, True, False, 2),
        ("no thought at all", "stop", "<think>" + GAP + "</think>" + GAP, True, False, 0),
        ("no thought, cut", "length", "<think>" + GAP + "</think>" + GAP, True, False, 0),
    ],
)
def test_a_thought_is_closed_by_the_stated_rule(
    text: str, finish: str, closed: str, cut: bool, censored: bool, tokens: int
) -> None:
    model = Scripted([(text, finish)], [0.5])
    output = go(model, request())["cell"]
    for ask in model.asked:
        assert ask.prompt.ids == PROMPT + encode(closed)
        assert ask.forced_ids == FORCED and ask.thoughts == 0
    for thought in output.thoughts:
        assert (thought.cut, thought.censored, thought.reasoning_tokens) == (cut, censored, tokens)
        assert decode(thought.token_ids) == text


def test_a_block_that_the_prompt_opened_is_closed_too() -> None:
    model = Scripted([("ab", "length")], [0.5])
    output = go(model, request(think_open=True))["cell"]
    assert model.asked[0].prompt.ids == PROMPT + encode("ab\n</think>" + GAP)
    first = output.thoughts[0]
    assert (first.cut, first.censored, first.reasoning_tokens) == (True, True, 2)


def test_a_last_token_that_holds_more_than_the_mark_is_spelt_anew() -> None:
    model = Scripted([("<think>ab</think>\n", "stop")], [0.5])
    output = go(model, request())["cell"]
    assert model.asked[0].prompt.ids == PROMPT + encode("<think>ab</think>" + GAP)
    assert not output.thoughts[0].cut


def test_one_failed_thought_fails_its_cell_and_no_other() -> None:
    class Faulty(Scripted):
        def once(self, requests: Sequence[Request]) -> Iterator[tuple[str, ModelOutput]]:
            for name, output in super().once(requests):
                if name == "bad|thought 2" and output.finish_reason != "choice":
                    output = ModelOutput("", (), "error", output.usage, output.timing, error="gone")
                yield name, output

    model = Faulty([("<think>a</think>", "stop")], [0.5])
    found = go(model, request("bad"), request("good"))
    assert found["bad"].finish_reason == "error" and found["bad"].error == "gone"
    assert found["good"].finish_reason == "choice"
    assert {ask.cell_id.split("|")[0] for ask in model.asked} == {"good"}
