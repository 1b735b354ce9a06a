"""The proof that a server computed the prompt that the preflight proved.

vLLM renders a conversation for us before anything is generated, token by token. Elsewhere the prompt's length as the
server reports it is held against the proved one. Knows no reply and nothing of how requests are made.
"""

from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Any

from harness.errors import ConfoundError, ModelError, ProviderError
from harness.models.server_client import Connection
from harness.types import Request

MOST_SURPLUS = 2
"""Tokens that a server may count beyond a conversation's own (a begin mark and the like), always as many."""


class PromptProof:
    """Proofs of one run. `chat`: the server renders the conversation; else it was given the token ids."""

    def __init__(
        self, connection: Connection, model: str, *, chat: bool, decode: Callable[[Sequence[int]], str]
    ):
        self._connection = connection
        self._model = model
        self._chat = chat
        self._decode = decode
        self._lock = Lock()
        self._surplus: int | None = None
        self._rendered = False
        self._proved: bool | None = None

    @property
    def facts(self) -> dict[str, Any]:
        """For the manifest. `chat_prompt_proved`: False once a reply was kept without a proof of its prompt,
        None before there is anything to prove."""
        if not self._chat:
            return {}
        surplus = {} if self._surplus is None else {"chat_prompt_surplus": self._surplus}
        return {"chat_prompt_proved": self._proved, **surplus}

    def rendering(self, request: Request, conversation: Mapping[str, Any]) -> None:
        """vLLM only: the ids that its own template makes of the conversation. Raises ConfoundError."""
        body = {"model": self._model, "add_generation_prompt": True, **conversation}
        tokenize = f"{self._connection.root}/tokenize"
        try:
            answer = self._connection.post(tokenize, body)
        except ProviderError as error:
            raise ModelError(f"{tokenize}: the prompt cannot be proved ({error})") from None
        tokens = answer.get("tokens") if isinstance(answer, dict) else None
        if not isinstance(tokens, list):
            raise ModelError(f"{tokenize}: no token ids in the answer; use model.server.api=completions")
        ours, theirs = request.prompt.ids, tuple(tokens)
        if ours != theirs:
            same = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), None)
            at = min(len(ours), len(theirs)) if same is None else same
            raise ConfoundError(
                f"cell {request.cell_id}: the server renders another prompt than the proved one, first at token {at} "
                f"({self._shown(theirs, at)} instead of {self._shown(ours, at)}); use model.server.api=completions "
                "or serve the model with its own chat template"
            )
        self._rendered = self._proved = True

    def _shown(self, ids: Sequence[int], at: int) -> str:
        return f"{ids[at]} {self._decode([ids[at]])!r}" if at < len(ids) else "the end"

    def length(self, request: Request, reported: int | None) -> None:
        """The server's own count against the proved prompt: equal for token ids, for a conversation more by
        the run's constant of at most `MOST_SURPLUS`. A reply without a count is kept, and told in `facts`.

        Raises ConfoundError when the first count of the run does not fit (nothing else would), ProviderError
        for a later one.
        """
        proved = len(request.prompt.ids)
        if not reported:  # 0: what a server reports of a prompt that it has cached and did not count
            if not self._rendered:
                self._proved = False
            return
        expected = proved
        if self._chat:
            with self._lock:
                if self._surplus is None:
                    self._surplus = self._first_surplus(request, reported)
                if self._proved is None:
                    self._proved = True
                expected = proved + self._surplus
        if reported != expected:
            otherwise = ": tools or thinking are rendered otherwise" if self._chat else ""
            raise ProviderError(
                f"the server renders another prompt than the proved one ({reported} tokens instead of {expected})"
                f"{otherwise}"
            )

    def _first_surplus(self, request: Request, reported: int) -> int:
        surplus = reported - len(request.prompt.ids)
        if not 0 <= surplus <= MOST_SURPLUS:
            raise ConfoundError(
                f"cell {request.cell_id}: the server renders tools or thinking otherwise than the proved prompt "
                f"({reported} tokens instead of {len(request.prompt.ids)}); use model.server.api=completions where it "
                "takes token ids, or have it take `tools` and `chat_template_kwargs` into the model's own chat template"
            )
        return surplus
