"""The tokenizer inside a GGUF → tokenizer.json, tokenizer_config.json and chat_template.jinja.

Knows the GGUF's tokenizer keys and how Qwen2 splits text. Does not use transformers' own conversion, whose
result depends on its version: from the same file 5.16 takes `<tool_call>` for plain text and another token
for the end of a turn than 5.24 does, and so would measure something else.
"""

import json
from pathlib import Path
from typing import Any

_CONTROL, _USER_DEFINED, _UNUSED = 3, 4, 5
"""Token types of the GGUF format (gguf.TokenType)."""

_QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""How Qwen2 cuts text before merging; from the model's published tokenizer.json."""


def write_tokenizer(gguf_file: Path, folder: Path) -> None:
    """Write the tokenizer of `gguf_file` into `folder`, the same whatever version of transformers loads it.

    Raises:
        ValueError: the file's tokenizer is not of the kind that is known here (byte-level BPE, Qwen2).
    """
    from gguf import GGUFReader

    fields = GGUFReader(str(gguf_file)).fields

    def read(key: str, default: Any = None) -> Any:
        field = fields.get(f"tokenizer.{key}")
        return default if field is None else field.contents()

    kind = (read("ggml.model"), read("ggml.pre"))
    if kind != ("gpt2", "qwen2"):
        raise ValueError(f"its tokenizer is of the kind {kind}, expected ('gpt2', 'qwen2')")
    tokens: list[str] = read("ggml.tokens")
    _build(tokens, read("ggml.token_type"), read("ggml.merges")).save(str(folder / "tokenizer.json"))
    context = fields.get(f"{fields['general.architecture'].contents()}.context_length")
    config = {
        # No model's own class: tokenizer.json says it all.
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_max_length": None if context is None else int(context.contents()),
    }
    for name, key in (("bos_token", "bos"), ("eos_token", "eos"), ("pad_token", "padding")):
        number = read(f"ggml.{key}_token_id")
        config[name] = None if number is None else tokens[number]
    text = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
    (folder / "tokenizer_config.json").write_text(text, encoding="utf-8")
    (folder / "chat_template.jinja").write_text(read("chat_template", ""), encoding="utf-8")


def _build(tokens: list[str], types: list[int], merges: list[str]) -> Any:
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers, processors
    from tokenizers.models import BPE

    vocabulary = {token: n for n, token in enumerate(tokens) if types[n] != _UNUSED}
    pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]
    built = Tokenizer(BPE(vocab=vocabulary, merges=pairs, fuse_unk=False, byte_fallback=False))
    built.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(Regex(_QWEN2_SPLIT), behavior="isolated")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    built.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    built.post_processor = processors.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    built.decoder = decoders.ByteLevel()
    # Whole tokens, never cut by the split; `special` ones are those that decoding may leave out.
    whole = [
        AddedToken(token, special=types[n] == _CONTROL, normalized=False)
        for n, token in enumerate(tokens)
        if types[n] in (_CONTROL, _USER_DEFINED)
    ]
    built.add_tokens(whole)
    return built
