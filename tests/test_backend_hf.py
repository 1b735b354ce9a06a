"""Claims about the transformers backend: prefix tree, forks and batches change no number."""

import json
import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from core_models import KINDS, batch, close, make_folder, plain_generate, plain_logprobs, prompt, reference
from core_samples import arms, xfinity
from core_tokens import tiny_tokenizer

from harness.choices import ChoiceBuilder
from harness.dataset import expand
from harness.errors import ModelError, ProviderError
from harness.models.hf import TransformersModel
from harness.prompt import render_arms
from harness.template import ChatTemplate
from harness.types import Decoding, ModelOutput, Request

TOKENIZER = tiny_tokenizer()
Load = Callable[..., TransformersModel]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {kind: make_folder(kind, tmp_path_factory.mktemp(kind)) for kind in KINDS}


def load(folder: Path, *, pack: int = 64, tokenizer: Any = TOKENIZER) -> TransformersModel:
    return TransformersModel(folder, tokenizer, dtype="float32", device="cpu", threads=1, pack_tokens=pack)


def run(model: TransformersModel, requests: list[Request], trunk: int = 12) -> dict[str, ModelOutput]:
    model.share_prefix(requests[0].prompt.ids[:trunk])
    outputs = list(model.run(requests))
    assert len(outputs) == len(requests), "each cell comes out once"
    return dict(outputs)


def logprobs(output: ModelOutput) -> dict[str, float]:
    assert output.choice_logprobs is not None and output.finish_reason == "choice"
    return dict(output.choice_logprobs)


# -- the same numbers as without any of it -----------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_probabilities_equal_one_uncached_forward_per_choice(folders: dict[str, Path], kind: str) -> None:
    requests, plain = batch(), reference(folders[kind])
    outputs = run(load(folders[kind]), requests)
    spread = set()
    for request in requests:
        if request.probe == "choose":
            expected = plain_logprobs(plain, request)
            found = logprobs(outputs[request.cell_id])
            assert close(found, expected), request.cell_id
            assert all(abs(found[k] - expected[k]) < 2e-3 for k in found)
            spread.add(round(found["reply"], 3))
    assert len(spread) > 3, "the arms must differ, or this test shows nothing"


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_replies_equal_transformers_own_for_each_prompt_alone(
    folders: dict[str, Path], kind: str
) -> None:
    requests, plain = batch(), reference(folders[kind])
    outputs = run(load(folders[kind]), requests)
    replies = {r.cell_id: outputs[r.cell_id].token_ids for r in requests if r.probe == "act"}
    assert replies == {r.cell_id: plain_generate(plain, r) for r in requests if r.probe == "act"}
    assert len(set(replies.values())) > 2, "the arms must differ, or this test shows nothing"


@pytest.mark.parametrize("kind", ["qwen2", "gemma3", "mistral"])
def test_results_do_not_depend_on_the_packing_or_the_shared_trunk(
    folders: dict[str, Path], kind: str
) -> None:
    requests = batch(seed=3)
    whole = run(load(folders[kind], pack=1024), requests)
    for pack, trunk in ((16, 12), (16, 0), (64, 25), (1024, 0), (1024, 29)):
        again = run(load(folders[kind], pack=pack), requests, trunk)
        for cell, output in whole.items():
            assert again[cell].token_ids == output.token_ids
            if output.choice_logprobs is not None:
                assert close(logprobs(again[cell]), logprobs(output))


def test_a_batch_gives_the_same_numbers_whatever_ran_before_it(folders: dict[str, Path]) -> None:
    first, second = batch(seed=1), [replace(r, cell_id="b|" + r.cell_id) for r in batch(seed=2)]
    used = load(folders["qwen3"])
    run(used, first)
    after = dict(used.run(second))
    fresh = run(load(folders["qwen3"]), second)
    assert {k: (o.token_ids, o.choice_logprobs) for k, o in after.items()} == {
        k: (o.token_ids, o.choice_logprobs) for k, o in fresh.items()
    }


@pytest.mark.parametrize("kind", ["llama", "gemma3"])
def test_one_request_alone_gives_the_batchs_reply(folders: dict[str, Path], kind: str) -> None:
    requests, model = batch(), load(folders[kind], pack=16)
    outputs = run(model, requests)
    for request in requests:
        if request.probe == "act":
            alone = model.run_alone(request)
            assert alone.token_ids == outputs[request.cell_id].token_ids
            assert (alone.usage.cached_tokens, alone.timing.cache) == (0, "cold")
            assert model.run_alone(request, "warm", 2).timing.cache == "warm"
            timing = alone.timing
            assert timing.total is not None and timing.first_token is not None
            assert 0 < timing.first_token < timing.total
            batched = outputs[request.cell_id].timing
            assert batched.total is None and batched.cache is None, "a batched run measures no latency"
    assert run(model, requests) == outputs or {k: o.token_ids for k, o in run(model, requests).items()} == {
        k: o.token_ids for k, o in outputs.items()
    }


def test_a_prompt_that_is_anothers_prefix_and_a_prompt_that_comes_twice(folders: dict[str, Path]) -> None:
    base = next(r for r in batch() if r.probe == "act")
    longer = replace(base, cell_id="longer", prompt=prompt([*base.prompt.ids, 9, 10, 11]))
    twin = replace(base, cell_id="twin")
    plain = reference(folders["qwen2"])
    outputs = run(load(folders["qwen2"]), [longer, base, twin])
    for request in (longer, base, twin):
        assert outputs[request.cell_id].token_ids == plain_generate(plain, request)
    assert outputs["twin"].usage.cached_tokens == len(base.prompt.ids)


# -- decoding ----------------------------------------------------------------------------------------------

SAMPLED = Decoding(10, temperature=0.9, top_p=0.9, top_k=50, repetition_penalty=1.1)


def test_a_seed_gives_the_same_draws_and_another_seed_others(folders: dict[str, Path]) -> None:
    requests = [r for r in batch(decoding=SAMPLED) if r.probe == "act"]
    model = load(folders["qwen2"])
    one, two = run(model, requests), run(model, requests)
    assert {k: o.token_ids for k, o in one.items()} == {k: o.token_ids for k, o in two.items()}
    other = run(model, [replace(r, seed=r.seed + 1) for r in requests])
    assert sum(other[k].token_ids != one[k].token_ids for k in one) >= len(one) - 1


def test_a_row_does_not_depend_on_its_neighbours_draws(folders: dict[str, Path]) -> None:
    requests = [r for r in batch(decoding=SAMPLED) if r.probe == "act"]
    model = load(folders["qwen2"])
    together = run(model, requests)
    for request in requests[::2]:
        assert run(model, [request])[request.cell_id].token_ids == together[request.cell_id].token_ids
    # Same prompt and seed twice in a batch: the same draws, not the next ones.
    twins = run(model, [requests[0], replace(requests[0], cell_id="twin")])
    assert twins["twin"].token_ids == twins[requests[0].cell_id].token_ids


def test_sampling_at_a_low_temperature_or_from_one_token_is_greedy(folders: dict[str, Path]) -> None:
    greedy = [r for r in batch() if r.probe == "act"]
    model = load(folders["llama"])
    expected = {k: o.token_ids for k, o in run(model, greedy).items()}
    for decoding in (
        Decoding(8, temperature=1e-4),
        Decoding(8, temperature=1.0, top_k=1),
        Decoding(8, 1.0, 1e-9),
    ):
        found = run(model, [replace(r, decoding=decoding) for r in greedy])
        assert {k: o.token_ids for k, o in found.items()} == expected


def test_the_repetition_penalty_is_transformers_own_prompt_included(folders: dict[str, Path]) -> None:
    requests = [r for r in batch(decoding=Decoding(12, repetition_penalty=1.8)) if r.probe == "act"]
    plain = reference(folders["qwen2"])
    outputs = run(load(folders["qwen2"]), requests)
    for request in requests:
        assert outputs[request.cell_id].token_ids == plain_generate(plain, request)
    unpunished = run(load(folders["qwen2"]), [replace(r, decoding=Decoding(12)) for r in requests])
    assert any(unpunished[k].token_ids != outputs[k].token_ids for k in outputs)


def test_drawn_tokens_follow_the_models_distribution(folders: dict[str, Path]) -> None:
    request = [r for r in batch(decoding=Decoding(1, temperature=1.0)) if r.probe == "act"][1]
    draws = [replace(request, cell_id=f"d{i}", seed=i) for i in range(300)]
    outputs = run(load(folders["llama"]), draws)
    with torch.inference_mode():
        logits = reference(folders["llama"])(torch.tensor([request.prompt.ids])).logits[0, -1]
    expected = torch.softmax(logits.float(), dim=-1)
    top = int(expected.argmax())
    share = sum(o.token_ids == (top,) for o in outputs.values()) / 300
    p = float(expected[top])
    assert 0.05 < p < 0.95, "pick another prompt: this one shows nothing"
    assert abs(share - p) < 4.5 * math.sqrt(p * (1 - p) / 300)


def test_a_reply_stops_at_the_models_own_end_token_and_its_row_alone(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    requests = [r for r in batch() if r.probe == "act"]
    before = run(load(folders["qwen2"]), requests)
    stop = before[requests[1].cell_id].token_ids[3]
    folder = tmp_path / "stopping"
    shutil.copytree(folders["qwen2"], folder)
    own = json.loads((folder / "generation_config.json").read_text())
    (folder / "generation_config.json").write_text(json.dumps({**own, "eos_token_id": [2, stop]}))
    after = run(load(folder), requests)
    for request in requests:
        full = before[request.cell_id].token_ids
        expected = full[: full.index(stop) + 1] if stop in full else full
        output = after[request.cell_id]
        assert output.token_ids == expected
        assert output.finish_reason == ("stop" if stop in full else "length")
        assert output.usage.completion_tokens == len(expected)
        said = expected[:-1] if stop in full else expected
        assert output.text == TOKENIZER.decode(said, clean_up_tokenization_spaces=False)
    assert {o.finish_reason for o in after.values()} == {"stop", "length"}, "both kinds must occur"


# -- accounts ----------------------------------------------------------------------------------------------


def test_usage_says_what_was_not_computed_for_this_cell(folders: dict[str, Path]) -> None:
    requests = batch()
    model = load(folders["qwen2"])
    outputs = run(model, requests)
    done: list[tuple[int, ...]] = [requests[0].prompt.ids[:12]]
    for request in requests:
        ids = request.prompt.ids
        shared = max(
            next(
                (i for i, (a, b) in enumerate(zip(ids, other, strict=False)) if a != b),
                min(len(ids), len(other)),
            )
            for other in done
        )
        assert outputs[request.cell_id].usage.cached_tokens == shared
        assert outputs[request.cell_id].usage.prompt_tokens == len(ids)
        done.append(ids)
    prefixes = {tuple(r.prompt.ids[: i + 1]) for r in requests for i in range(len(r.prompt.ids))}
    chosen = {
        r.prompt.ids + r.forced_ids + choice[:i]
        for r in requests
        for choice in r.choices.values()
        for i in range(len(choice))
    } | {r.prompt.ids + r.forced_ids[:i] for r in requests for i in range(len(r.forced_ids))}
    assert model.computed_tokens == len(prefixes | {ids for ids in chosen if ids not in prefixes})


def test_a_prompt_without_the_runs_prefix_is_refused(folders: dict[str, Path]) -> None:
    model = load(folders["qwen2"])
    model.share_prefix([5, 6, 7])
    with pytest.raises(ValueError, match="shared prefix"):
        list(model.run(batch()))


def test_running_out_of_memory_is_a_provider_error_and_the_next_batch_goes_on(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load(folders["qwen2"])
    requests = batch()
    before = run(model, requests)
    with monkeypatch.context() as patch:
        # torch's own refusal, in its own words: no machine has an exbibyte.
        patch.setattr(model._engine, "model", lambda **_: torch.empty(2**60, dtype=torch.uint8))
        with pytest.raises(ProviderError, match=r"out of memory; lower model\.batch_clusters"):
            list(model.run(requests))
        patch.setattr(model._engine, "model", lambda **_: torch.ones(2) @ torch.ones(3))
        with pytest.raises(RuntimeError, match=r"inconsistent|size"):
            list(model.run(requests))
    after = dict(model.run(requests))
    assert {cell: logprobs(o) for cell, o in before.items() if o.choice_logprobs} == {
        cell: logprobs(o) for cell, o in after.items() if o.choice_logprobs
    }


def test_the_facts_name_engine_device_and_type(folders: dict[str, Path]) -> None:
    facts = load(folders["qwen2"]).facts
    assert (facts["engine"], facts["device"], facts["dtype"]) == ("transformers", "cpu", "float32")
    assert facts["engine_version"] == transformers.__version__


# -- what cannot be done -----------------------------------------------------------------------------------


def one_line(error: pytest.ExceptionInfo[ModelError]) -> str:
    text = str(error.value)
    assert "\n" not in text and text
    return text


def test_a_missing_folder_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ModelError) as error:
        load(tmp_path / "nowhere")
    assert "nowhere" in one_line(error)


def test_a_folder_without_a_model_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelError) as error:
        load(tmp_path)
    assert str(tmp_path) in one_line(error)


def test_a_gpu_that_is_not_there_is_one_line(folders: dict[str, Path]) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(ModelError, match=r"model\.device"):
        TransformersModel(folders["qwen2"], TOKENIZER, device="cuda")


UNFORKABLE = {
    "Lfm2Config": {
        "vocab_size": 64,
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "layer_types": ["conv", "full_attention"],
    },
    "MambaConfig": {"vocab_size": 64, "hidden_size": 16, "num_hidden_layers": 1, "state_size": 4},
    "RwkvConfig": {"vocab_size": 64, "hidden_size": 16, "num_hidden_layers": 2},
    "BloomConfig": {"vocab_size": 64, "hidden_size": 16, "n_layer": 1, "n_head": 2},
}


@pytest.mark.parametrize("name", UNFORKABLE)
def test_a_model_whose_state_cannot_be_forked_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    config = getattr(transformers, name)(**UNFORKABLE[name])
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    with pytest.raises(ModelError) as error:
        load(tmp_path)
    assert "attention" in one_line(error)


# -- real weights ------------------------------------------------------------------------------------------


@pytest.mark.weights
def test_on_the_real_model_probabilities_and_greedy_ids_are_the_plain_ones(
    weights_05b: Path, qwen: ChatTemplate
) -> None:
    """One cluster × two conditions; the plain side, a whole forward for each choice, is held to two choices."""
    pair = expand(xfinity(), series="matched", clusters=1, seed=7)
    conditions = [c for c in arms() if c.name in ("control", "agent_status")]
    requests = []
    for each in pair:
        built = ChoiceBuilder(qwen).build(each)
        for name, arm in render_arms(qwen, each, conditions).items():
            cell = f"{each.id}|{name}"
            requests.append(
                Request(f"{cell}|choose", "choose", arm.prompt, Decoding(1), 0, built.forced, built.choices)
            )
            requests.append(Request(f"{cell}|act", "act", arm.prompt, Decoding(12), 0))
    model = TransformersModel(weights_05b, qwen.tokenizer, dtype="float32", device="cpu")
    outputs = run(model, requests, trunk=300)
    model.close()
    plain = reference(weights_05b)
    eos = plain.generation_config.eos_token_id
    plain.generation_config = transformers.GenerationConfig(eos_token_id=eos)
    for request in requests[:4]:
        output = outputs[request.cell_id]
        if request.probe == "act":
            assert output.token_ids == plain_generate(plain, request)
            continue
        mass = sum(math.exp(value) for value in logprobs(output).values())
        assert 0.01 < mass <= 1.0001
        two = {
            label: request.choices[label] for label in (f"phone_call:{pair[0].expectation.target}", "reply")
        }
        found = {label: logprobs(output)[label] for label in two}
        assert close(found, plain_logprobs(plain, replace(request, choices=two)))
