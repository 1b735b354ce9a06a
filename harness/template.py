"""A tokenizer's chat template as a pure function: messages → text → token ids.

Knows how a conversation is put to Hugging Face's `apply_chat_template`; knows no bar, no condition and
no model. The tokenizer object is handed in, so this room imports no heavy package.
"""

import hashlib
import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from harness.errors import TemplateError
from harness.types import Message, ThinkingMode, ToolSpec

THINK_OPEN, THINK_CLOSE = "<think>", "</think>"
PROMPTED_INSTRUCTION = (
    f"Before you answer, think step by step between {THINK_OPEN} and {THINK_CLOSE}, then act."
)
_CHUNKS_KEPT = 8192
_BYTE_TOKEN = re.compile(r"<0x[0-9A-F]{2}>")


def _byte_characters() -> dict[str, int]:
    """Byte-level BPE writes each byte as one printable character: Latin-1's own where that prints, else the
    next one from U+0100 on (Radford et al. 2019)."""
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in own]
    return {chr(byte): byte for byte in own} | {chr(0x100 + i): byte for i, byte in enumerate(others)}


_BYTES = _byte_characters()


class Chunk(NamedTuple):
    """Token ids of a stretch of text and, for each, its character range [start, end) in the stretch."""

    ids: tuple[int, ...]
    offsets: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Encoded:
    """Token ids of a text, and where each stretch of it begins: `starts[i]` is the (first character,
    first token) of `chunks[i]`."""

    ids: tuple[int, ...]
    chunks: tuple[Chunk, ...]
    starts: tuple[tuple[int, int], ...]

    def token_range(self, start: int, end: int) -> tuple[int, int]:
        """Tokens that overlap the characters [start, end), as [first, last)."""
        first = self._first(start, lambda span, at: span[1] > at)
        last = self._first(end, lambda span, at: span[0] >= at)
        return first, max(first, last)

    def _first(self, position: int, reached: Callable[[tuple[int, int], int], bool]) -> int:
        """Number of the first token whose character range has `reached` the position."""
        which = max(bisect_right(self.starts, (position, -1)) - 1, 0)
        # The stretch before may hold the token when the position is a boundary, the one after may begin it.
        for index in range(max(which - 1, 0), len(self.chunks)):
            character, token = self.starts[index]
            offsets = self.chunks[index].offsets
            if not offsets or not reached(offsets[-1], position - character):
                continue
            for number, span in enumerate(offsets):
                if reached(span, position - character):
                    return token + number
        return len(self.ids)


class ChatTemplate:
    """Renders and encodes. Encoding is cached by the stretches between added tokens, which a
    tokenizer splits off before anything else: a cell then costs what is new in it. `check_exact`
    holds that shortcut against the tokenizer itself."""

    def __init__(self, tokenizer: Any, thinking: ThinkingMode = "off", keep_reasoning: bool = True) -> None:
        """`keep_reasoning` False drops the history's reasoning in every arm alike."""
        if not getattr(tokenizer, "chat_template", None):
            raise TemplateError(
                "the model's tokenizer has no chat template; choose an instruct model or give its folder one"
            )
        self.tokenizer = tokenizer
        self.thinking = thinking
        self.keep_reasoning = keep_reasoning
        self.hash = hashlib.sha256(str(tokenizer.chat_template).encode()).hexdigest()[:16]
        self._chunks: dict[str, Chunk] = {}
        self._tools: tuple[Sequence[ToolSpec], list[dict[str, Any]]] = ((), [])
        whole = [
            t.content
            for t in tokenizer.added_tokens_decoder.values()
            if not (t.lstrip or t.rstrip or t.normalized or t.single_word)
        ]
        # The longest first: a tokenizer prefers it where one added token begins another.
        pattern = "|".join(re.escape(content) for content in sorted(whole, key=len, reverse=True))
        self._added = re.compile(f"({pattern})") if whole else None

    # -- text ----------------------------------------------------------------------------------------

    def text(self, messages: Sequence[Message], tools: Sequence[ToolSpec], *, reply: bool = True) -> str:
        """The prompt's text; with `reply` it ends where the assistant's reply begins.

        Raises TemplateError with the template's own words when it refuses the conversation.
        """
        if self.thinking == "prompted":
            messages = _with_instruction(messages)
        try:
            text: str = self.tokenizer.apply_chat_template(
                [self._plain(message) for message in messages],
                tools=self._plain_tools(tools) or None,
                tokenize=False,
                add_generation_prompt=reply,
                # Always explicit: templates and servers disagree about the default.
                enable_thinking=self.thinking == "native",
            )
        except Exception as error:
            raise TemplateError(f"the chat template refuses this conversation: {error}") from error
        if reply and self.thinking == "prompted":
            if text.rstrip().endswith(THINK_CLOSE):
                raise TemplateError(
                    "thinking=prompted on a model whose template thinks natively; use thinking=native"
                )
            text += THINK_OPEN + "\n"
        return text

    def opens_thinking(self, text: str) -> bool:
        """Does the prompt itself end inside a thinking block?"""
        return text.rstrip().endswith(THINK_OPEN)

    def _plain(self, message: Message) -> dict[str, Any]:
        plain: dict[str, Any] = {"role": message.role, "content": message.content}
        if message.tool_calls:
            plain["tool_calls"] = [
                {"type": "function", "id": c.id, "function": {"name": c.name, "arguments": dict(c.arguments)}}
                for c in message.tool_calls
            ]
        if message.reasoning is not None and self.keep_reasoning:
            plain["reasoning_content"] = message.reasoning
        if message.role == "tool":
            plain["name"] = message.name
            plain["tool_call_id"] = message.tool_call_id
        return plain

    def _plain_tools(self, tools: Sequence[ToolSpec]) -> list[dict[str, Any]]:
        # The conversations of a run share one tools tuple: remember the last one by identity.
        if self._tools[0] is not tools:
            self._tools = (tools, [_plain_tool(tool) for tool in tools])
        return self._tools[1]

    # -- tokens --------------------------------------------------------------------------------------

    def encode(self, text: str) -> Encoded:
        """Token ids of `text`; added tokens in it are recognised, none is put in front."""
        pieces = self._added.split(text) if self._added else [text]
        ids: list[int] = []
        chunks: list[Chunk] = []
        starts: list[tuple[int, int]] = []
        position = 0
        for piece in pieces:
            if piece:
                chunk = self._chunk(piece)
                starts.append((position, len(ids)))
                chunks.append(chunk)
                ids.extend(chunk.ids)
                position += len(piece)
        return Encoded(tuple(ids), tuple(chunks), tuple(starts))

    def count(self, text: str) -> int:
        """Tokens of `text` on its own."""
        return len(self._chunk(text).ids)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids, special tokens included and no clean-up."""
        text: str = self.tokenizer.decode(
            list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return text

    def piece(self, token: int) -> bytes:
        """The bytes that a token adds to a text: also of one that holds part of a character only."""
        raw: str = self.tokenizer.convert_ids_to_tokens(token) or ""
        if _BYTE_TOKEN.fullmatch(raw):  # SentencePiece's fallback
            return bytes([int(raw[3:5], 16)])
        if raw.startswith("▁"):  # its space, which decoding a lone token drops
            return raw.replace("▁", " ").encode()
        text = self.decode([token])
        if "\ufffd" in text and all(character in _BYTES for character in raw):
            return bytes(_BYTES[character] for character in raw)
        return text.encode()

    def check_exact(self, text: str) -> None:
        """Raises TemplateError when cached encoding and the tokenizer disagree about `text`."""
        whole = tuple(self.tokenizer(text, add_special_tokens=False)["input_ids"])
        if self.encode(text).ids != whole:
            raise TemplateError(
                "the tokenizer does not split at its added tokens; this tokenizer is not supported, report its id"
            )

    def _chunk(self, piece: str) -> Chunk:
        known = self._chunks.get(piece)
        if known is not None:
            return known
        raw = self.tokenizer(piece, add_special_tokens=False, return_offsets_mapping=True)
        encoded = Chunk(tuple(raw["input_ids"]), tuple(tuple(pair) for pair in raw["offset_mapping"]))
        if len(self._chunks) >= _CHUNKS_KEPT:
            self._chunks.clear()
        self._chunks[piece] = encoded
        return encoded


def _plain_tool(tool: ToolSpec) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", "function": function}


def _with_instruction(messages: Sequence[Message]) -> list[Message]:
    first, *rest = messages
    if first.role != "system":
        return [Message(role="system", content=PROMPTED_INSTRUCTION), first, *rest]
    return [replace(first, content=f"{first.content}\n{PROMPTED_INSTRUCTION}"), *rest]
