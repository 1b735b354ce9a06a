"""Claims about the capture: its rows are eager attention's, and the model does not notice it."""

import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from core_attention import (
    HEADS,
    KINDS,
    LAYERS,
    Kept,
    captured,
    eager,
    engine,
    farthest,
    make_folder,
    masked,
    tokens,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AttentionInterface, AutoModelForCausalLM
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from harness.attention import capture
from harness.attention.capture import Hidden, Rows, Watch, register, watching
from harness.attention.sinks import SinkFinder
from harness.attention.takers import BinTaker, Both, RowTaker, Wanted
from harness.errors import AttentionError
from harness.models.forward import Engine
from harness.template import ChatTemplate

WITHIN = 1e-4
Folders = Callable[[str], Path]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    made: dict[str, Path] = {}

    def folder(kind: str) -> Path:
        if kind not in made:
            made[kind] = make_folder(kind, tmp_path_factory.mktemp(kind))
        return made[kind]

    return folder


# -- the rows ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_captured_rows_are_eager_attentions_however_the_passes_and_blocks_are_cut(
    folders: Folders, kind: str
) -> None:
    ids, rows = tokens(40), [0, 3, 10, 11, 12, 21, 22, 38, 39]
    reference = eager(folders(kind), ids)
    spread = reference.weights[:, :, 39].std()
    assert spread > 0.02, "rows that are nearly even could be anything's"
    for chunk, block in ((64, 64), (11, 64), (11, 1), (7, 2)):
        kept, logits = captured(engine(folders(kind), chunk=chunk), ids, rows, block=block)
        assert kept.rows.keys() == {(layer, row) for layer in range(LAYERS) for row in rows}
        assert max(kept.blocks) <= block
        assert farthest(kept, reference.weights) < WITHIN, (chunk, block)
        assert (logits - reference.logits[-1]).abs().max() < WITHIN * reference.logits.abs().max()
        for row in kept.rows.values():
            assert row.dtype == torch.float32 and (row >= 0).all()
            assert (row.sum(-1) - 1).abs().max() < 1e-6


@pytest.mark.parametrize("kind", ["qwen2-sliding", "mistral", "gemma2", "gemma3"])
def test_a_sliding_layer_sees_its_window_and_no_more(folders: Folders, kind: str) -> None:
    model = engine(folders(kind), chunk=11)
    windows = KINDS[kind][2]
    assert model.windows == windows
    kept, _ = captured(model, tokens(40), range(40))
    for (layer, position), row in kept.rows.items():
        window = windows[layer] or 40
        first = max(0, position - window + 1)
        assert (row[:, :first] == 0).all() and (row[:, position + 1 :] == 0).all()
        assert (row[:, first : position + 1] > 0).all(), (layer, position)


@pytest.mark.parametrize("kind", KINDS)
def test_our_reference_with_masks_of_its_own_is_transformers_eager(folders: Folders, kind: str) -> None:
    """What the claims about hidden keys are held against."""
    ids = tokens(24, seed=2)
    own, theirs = eager(folders(kind), ids, windows=KINDS[kind][2]), eager(folders(kind), ids)
    assert (own.weights - theirs.weights).abs().max() < 1e-6
    assert (own.logits - theirs.logits).abs().max() < 1e-4


@pytest.mark.parametrize("kind", ["qwen2", "qwen2-sliding", "gemma3"])
def test_in_bfloat16_the_rows_are_still_softmaxed_in_float32(
    folders: Folders, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given the model's own queries and keys, rows are exact to 1e-5; eager's are rounded to 8 bits. Against eager,
    whose scores are products in bfloat16, the first layer agrees within 0.05 (later ones read other inputs)."""
    ids = tokens(40, seed=1)
    states = []

    def recorded(module: Any, query: torch.Tensor, key: torch.Tensor, *rest: Any, **options: Any) -> Any:
        states.append((query[0].double(), key[0].double(), options["scaling"]))
        return sdpa_attention_forward(module, query, key, *rest, **options)

    monkeypatch.setattr(capture, "sdpa_attention_forward", recorded)
    kept, _ = captured(engine(folders(kind), dtype="bfloat16"), ids, range(40), block=5)
    for layer, (query, key, scaling) in enumerate(states):
        assert query.shape[:2] == (HEADS, 40)
        scores = query @ key.repeat_interleave(HEADS // len(key), dim=0).transpose(1, 2) * scaling
        scores += masked(40, KINDS[kind][2][layer], None, layer)[0]
        exact = torch.softmax(scores, dim=-1).float()
        for row in range(40):
            found = kept.rows[layer, row]
            assert found.dtype == torch.float32 and (found.sum(-1) - 1).abs().max() < 1e-6
            assert (found - exact[:, row]).abs().max() < 1e-5
    assert len(states) == LAYERS
    reference = eager(folders(kind), ids, dtype=torch.bfloat16)
    assert (reference.weights.sum(-1) - 1).abs().max() > 1e-4, "rounded rows do not sum to one"
    first = Kept()
    first.rows = {at: row for at, row in kept.rows.items() if at[0] == 0}
    assert farthest(first, reference.weights) < 0.05


def test_only_the_wanted_layers_are_captured_and_nothing_outside_the_watch(folders: Folders) -> None:
    model, kept = engine(folders("qwen3")), Kept()
    model.extend(tokens(9))
    with watching(Watch([10, 11, 30], kept, layers=frozenset({0, 2}))):
        model.extend(tokens(6, seed=1))
    assert kept.rows.keys() == {(layer, row) for layer in (0, 2) for row in (10, 11)}
    model.extend(tokens(20, seed=2))  # has a row 30
    assert len(kept.rows) == 4
    with pytest.raises(ZeroDivisionError), watching(Watch([40], kept)):
        raise ZeroDivisionError
    model.extend(tokens(20, seed=3))  # has a row 40
    assert len(kept.rows) == 4, "a watch ends with its block, however that ends"
    with watching(Watch([], kept)):
        model.extend(tokens(2))
    assert len(kept.rows) == 4


def test_a_batch_cannot_be_captured(folders: Folders) -> None:
    model = _loaded(folders("qwen2"), register())
    ids = torch.tensor([tokens(6), tokens(6, seed=1)])
    with torch.no_grad(), watching(Watch([5], Kept())), pytest.raises(AttentionError, match="one sequence"):
        model(ids)


def test_a_model_with_learned_sinks_is_refused_in_one_line(tmp_path: Path) -> None:
    config = transformers.GptOssConfig(
        vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, num_local_experts=2, num_experts_per_tok=1, sliding_window=8,
        max_position_embeddings=256, rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        pad_token_id=0, eos_token_id=2,
    )  # fmt: skip
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    model = engine(tmp_path)
    with pytest.raises(AttentionError, match="learned sinks") as error:
        model.extend([5, 6, 7])
    assert "\n" not in str(error.value) and "choose a model" in str(error.value)


# -- the model does not notice -----------------------------------------------------------------------------


def _loaded(folder: Path, attention: str) -> Any:
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation=attention, dtype=torch.float32)
    model.eval()
    return model


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "gemma2"])
def test_outputs_are_those_of_plain_sdpa_to_the_bit(folders: Folders, kind: str) -> None:
    ids = tokens(40)
    for chunk in (64, 11):
        plain = engine(folders(kind), chunk=chunk, attention="sdpa").extend(ids)
        _, watched = captured(engine(folders(kind), chunk=chunk), ids, range(40), block=3)
        alone = engine(folders(kind), chunk=chunk).extend(ids)
        assert torch.equal(plain[-1], watched) and torch.equal(plain, alone)


@pytest.mark.parametrize("kind", KINDS)
def test_generated_ids_are_the_models_own_with_and_without_a_watch(folders: Folders, kind: str) -> None:
    # SDPA leaves out Gemma 2's soft cap; its own attention is eager's.
    plain = _loaded(folders(kind), "eager" if kind == "gemma2" else "sdpa")
    ours = _loaded(folders(kind), register())
    ids = torch.tensor([tokens(20, seed=4)])
    options = {"attention_mask": torch.ones_like(ids), "max_new_tokens": 12, "do_sample": False}
    expected = plain.generate(ids, **options).tolist()
    assert len(expected[0]) > 24
    assert ours.generate(ids, **options).tolist() == expected
    kept = Kept()
    with watching(Watch(range(18, 28), kept, block=3)):
        assert ours.generate(ids, **options).tolist() == expected
    if set(KINDS[kind][2]) != {None}:
        return  # the cache of `generate` drops keys behind a window, and with them the rows' positions
    assert kept.rows.keys() == {(layer, row) for layer in range(LAYERS) for row in range(18, 28)}
    # What was captured while it decoded is what one pass over the generated ids has.
    replayed = eager(folders(kind), expected[0])
    assert farthest(kept, replayed.weights) < WITHIN


@pytest.mark.parametrize("kind", ["qwen2", "mistral", "gemma3"])
def test_without_the_registered_mask_padding_and_windows_would_be_lost(folders: Folders, kind: str) -> None:
    AttentionInterface.register("tailgauge_without_mask", capture._attend)
    padded = torch.tensor([tokens(20), [0] * 5 + tokens(15, seed=1)])
    seen = torch.ones_like(padded)
    seen[1, :5] = 0
    logits = {}
    with torch.no_grad():
        for name in ("sdpa", register(), "tailgauge_without_mask"):
            output = _loaded(folders(kind), name)(padded, attention_mask=seen).logits
            logits[name] = output[1, 5:]
    assert torch.equal(logits[capture.NAME], logits["sdpa"])
    assert (logits["tailgauge_without_mask"] - logits["sdpa"]).abs().max() > 0.01, "this test shows nothing"


class _Largest(TorchDispatchMode):
    """The most numbers that any tensor held which was made inside."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for each in made if isinstance(made, tuple | list) else (made,):
            if isinstance(each, torch.Tensor):
                self.numbers = max(self.numbers, each.numel())
        return made


@pytest.mark.parametrize("kind", ["qwen2", "gemma2"])
@pytest.mark.parametrize("whole", [True, False], ids=["one pass, last rows", "chunks, all rows"])
def test_no_tensor_grows_with_the_square_of_the_length(
    folders: Folders, kind: str, whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "gemma2" and whole:
        pytest.skip("a sliding layer's own mask is S × S in one pass, whoever computes it")
    monkeypatch.setattr(capture, "_BLOCK_NUMBERS", 2**14)
    largest = {}
    for size in (512, 1024):
        model = engine(folders(kind), chunk=size if whole else 64)
        rows = range(size - 8, size) if whole else range(size)
        wanted = _wanted(size, rows=tuple(rows))
        with _Largest() as mode, watching(Watch(rows, RowTaker(wanted, torch.device("cpu")), block=8)):
            model.extend(tokens(size))
        largest[size] = mode.numbers
    assert largest[512] >= 512 * 8, "the mode saw nothing"
    assert largest[1024] <= 2.01 * largest[512] and largest[1024] < 1024**2 / 2, largest


# -- hidden keys -------------------------------------------------------------------------------------------

SPANS = ((5, 9), (15, 18))
HIDDEN = {
    "later": Hidden(SPANS),
    "from a row on": Hidden(SPANS, from_row=25),
    "in one layer": Hidden(SPANS, layers=frozenset({1})),
    "in no layer": Hidden(SPANS, layers=frozenset()),
    "last row": Hidden(((0, 39),), from_row=39),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", HIDDEN)
def test_hidden_keys_are_masked_keys(folders: Folders, kind: str, how: str) -> None:
    ids, hidden, windows = tokens(40, seed=5), HIDDEN[how], KINDS[kind][2]
    expected = eager(folders(kind), ids, windows=windows, hidden=hidden)
    plain = eager(folders(kind), ids, windows=windows)
    for chunk in (64, 7):
        kept, logits = captured(engine(folders(kind), chunk=chunk), ids, range(40), block=5, hidden=hidden)
        assert farthest(kept, expected.weights) < WITHIN
        assert (logits - expected.logits[-1]).abs().max() < WITHIN * expected.logits.abs().max()
        behind = 0
        for (layer, position), row in kept.rows.items():
            for start, end in hidden.spans:
                first = max(end, hidden.from_row)
                if position >= first and (hidden.layers is None or layer in hidden.layers):
                    assert (row[:, start:end] == 0).all()
                    behind += 1
        assert behind or how == "in no layer"
        before = min(max(end, hidden.from_row) for _, end in hidden.spans)
        unchanged = Kept()
        unchanged.rows = {at: row for at, row in kept.rows.items() if at[1] < before}
        assert farthest(unchanged, plain.weights) < WITHIN, "rows before and inside see what they saw"
    moved = (expected.logits - plain.logits).abs().max()
    # A row from 25 on of a model whose every layer slides does not see the spans anyhow.
    nothing = how == "in no layer" or (how, kind) == ("from a row on", "mistral")
    assert moved == 0 if nothing else moved > 1e-3, "this test shows nothing"


@pytest.mark.parametrize("kind", ["qwen2", "qwen2-sliding", "mistral", "gemma2", "gemma3"])
def test_hidden_keys_stay_hidden_in_a_pack_of_branches(folders: Folders, kind: str) -> None:
    stem, branches = tokens(18, seed=6), ([30, 31, 32], [30, 41], [50])
    hidden = Hidden(((4, 8), (13, 15)), from_row=16)
    model = engine(folders(kind), chunk=5)
    with watching(Watch(hidden=hidden)):
        model.extend(stem)
        # One pass of 30, 31, 32, 41 (behind 30), 50.
        logits = model.compute([30, 31, 32, 41, 50], [18, 19, 20, 19, 18], [-1, 0, 1, 0, -1], range(5))
    for branch, number in zip(branches, (2, 3, 4), strict=True):
        expected = eager(folders(kind), stem + branch, windows=KINDS[kind][2], hidden=hidden)
        assert (logits[number] - expected.logits[-1]).abs().max() < WITHIN * expected.logits.abs().max()
        seen = eager(folders(kind), stem + branch)
        if kind != "mistral":  # every layer there slides past the second span soon
            assert (expected.logits[-1] - seen.logits[-1]).abs().max() > 1e-3, "this test shows nothing"


# -- what becomes of rows ----------------------------------------------------------------------------------


def _wanted(size: int, **options: Any) -> Wanted:
    given = {
        "regions": np.arange(size) % 5,
        "count": 5,
        "sinks": (),
        "layers": tuple(range(LAYERS)),
        "heads": tuple(range(HEADS)),
        "rows": (),
    }
    return Wanted(**{**given, **options})


@st.composite
def _captures(draw: st.DrawFn) -> dict[str, Any]:
    """Rows of a made-up layer pair, and what is wanted of them."""
    size, heads = draw(st.integers(3, 14)), 4
    some = st.sets(st.integers(0, size - 1), max_size=size)
    rows, path, browse = draw(some), draw(some), draw(some)
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    scores = generator.normal(0, draw(st.sampled_from([0.1, 2.0, 8.0])), (2, heads, size, size))
    scores[..., ~np.tri(size, dtype=bool)] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    if draw(st.booleans()):
        weights[..., 0, 0] = 1.0  # as it is
        weights[:, :, 1:, 1:2] = 0.0  # a hidden key
        weights[:, :, 1, 0] = 1.0
    weights /= weights.sum(-1, keepdims=True)
    return {
        "weights": weights.astype(np.float32),
        "values": generator.normal(size=(2, 2, size, 3)).astype(np.float32),
        "projection": generator.normal(size=(7, heads * 3)).astype(np.float32),
        "cuts": draw(st.lists(st.integers(1, 5), min_size=size, max_size=size)),
        "wanted": Wanted(
            regions=np.array(draw(st.lists(st.integers(0, 3), min_size=size, max_size=size))),
            count=5,
            sinks=tuple(sorted(draw(st.sets(st.integers(0, size - 1), max_size=2)))),
            layers=(4, 9),
            heads=tuple(sorted(draw(st.sets(st.integers(0, heads - 1), min_size=1)))),
            rows=tuple(sorted(rows)),
            path=tuple(sorted(path)),
            path_heads=draw(st.booleans()),
            browsable=tuple(sorted(browse)),
            top=draw(st.integers(1, 16)),
            browsable_top=draw(st.integers(1, 6)),
            token_rows=True,
            norm_weighted=True,
        ),
    }


def _feed(case: dict[str, Any], taker: Any, positions: list[int]) -> None:
    """Hands the positions over in blocks, as passes of growing length would."""
    for slot, layer in enumerate((4, 9)):
        module = SimpleNamespace(o_proj=SimpleNamespace(weight=torch.from_numpy(case["projection"])))
        left, cuts = list(positions), iter(case["cuts"])
        while left:
            step = next(cuts)
            block, left = left[:step], left[step:]
            seen = block[-1] + 1  # keys that the pass of this block has
            taker.take(
                Rows(
                    layer,
                    torch.tensor(block),
                    torch.from_numpy(case["weights"][slot][:, block, :seen]),
                    torch.from_numpy(case["values"][slot][:, :seen]),
                    module,
                )
            )


def _entropy(weights: np.ndarray) -> float:
    total = weights.sum()
    shares = [w / total for w in weights.astype(float) if w > 0] if total > 0 else []
    return -sum(share * math.log2(share) for share in shares)


@settings(max_examples=60, deadline=None)
@given(_captures())
def test_what_is_kept_of_rows_is_what_a_plain_computation_says(case: dict[str, Any]) -> None:
    wanted: Wanted = case["wanted"]
    taker = RowTaker(wanted, torch.device("cpu"))
    _feed(case, taker, wanted.positions)
    free = np.array([key not in wanted.sinks for key in range(len(wanted.regions))])
    for layer in range(2):
        values = case["values"][layer]
        for slot, row in enumerate(wanted.rows):
            for number, head in enumerate(wanted.heads):
                alpha = case["weights"][layer, head, row].astype(float)
                at = (layer, number, slot)
                mass = np.bincount(wanted.regions, weights=alpha, minlength=5)
                assert taker.mass[at] == pytest.approx(mass, abs=1e-6)
                assert taker.mass[at].sum() == pytest.approx(1, abs=1e-6)
                assert taker.entropy[at] == pytest.approx(_entropy(alpha), abs=1e-5)
                assert -1e-6 <= taker.entropy[at] <= math.log2(row + 1) + 1e-5
                assert taker.entropy_rest[at] == pytest.approx(_entropy(alpha * free), abs=1e-4)
                top = np.sort(alpha * free)[::-1][: wanted.top].sum()
                assert taker.top_mass[at] == pytest.approx(top, abs=1e-6)
                part = case["projection"][:, head * 3 : head * 3 + 3].astype(float)
                norms = [
                    np.linalg.norm(a * (part @ v)) for a, v in zip(alpha, values[head // 2], strict=True)
                ]
                shares = np.bincount(wanted.regions, weights=norms, minlength=5) / sum(norms)
                assert taker.norm_mass is not None
                assert taker.norm_mass[at] == pytest.approx(shares, abs=1e-4)
            mean = case["weights"][layer, list(wanted.heads), row].mean(0)
            assert taker.token_rows is not None
            assert taker.token_rows[layer, slot] == pytest.approx(mean, abs=1e-6)
        for slot, row in enumerate(wanted.path):
            alphas = case["weights"][layer, list(wanted.heads), row].astype(float)
            masses = [np.bincount(wanted.regions, weights=alpha, minlength=5) for alpha in alphas]
            if wanted.path_heads:
                assert taker.path_mass[layer][:, slot] == pytest.approx(np.array(masses), abs=1e-6)
            else:
                assert taker.path_mass[layer, slot] == pytest.approx(np.mean(masses, 0), abs=1e-6)
            rest = np.mean([_entropy(alpha * free) for alpha in alphas])
            assert taker.path_entropy[layer, slot] == pytest.approx(rest, abs=1e-4)


@settings(max_examples=40, deadline=None)
@given(_captures())
def test_the_browsable_keys_are_the_largest_weights_in_order(case: dict[str, Any]) -> None:
    wanted: Wanted = case["wanted"]
    taker = RowTaker(wanted, torch.device("cpu"))
    _feed(case, taker, wanted.positions)
    kept = taker.browsable
    assert (kept is None) == (not wanted.browsable)
    if kept is None:
        return
    assert kept.positions.tolist() == list(wanted.browsable)
    for slot, row in enumerate(wanted.browsable):
        for layer in range(2):
            for number, head in enumerate(wanted.heads):
                alpha = case["weights"][layer, head, row]
                keys, found = kept.keys[slot, layer, number], kept.weights[slot, layer, number]
                best = np.sort(alpha)[::-1][: wanted.browsable_top]
                assert found[: len(best)] == pytest.approx(best)
                assert (found[len(best) :] == 0).all()
                real = found > 0
                assert found[real] == pytest.approx(alpha[keys[real]])
                assert len(set(keys[real])) == real.sum()


@settings(max_examples=40, deadline=None)
@given(_captures(), st.integers(2, 20))
def test_bins_are_means_over_rows_and_heads_and_sums_over_keys(case: dict[str, Any], count: int) -> None:
    size = len(case["wanted"].regions)
    heads = case["wanted"].heads
    taker = BinTaker(size, count, (4, 9), heads, torch.device("cpu"))
    _feed(case, Both(RowTaker(case["wanted"], torch.device("cpu")), taker), list(range(size)))
    bins = taker.bins
    edges = bins.row_edges.tolist()
    assert edges == bins.key_edges.tolist() == sorted(set(edges)) and (edges[0], edges[-1]) == (0, size)
    assert len(edges) - 1 == min(count, size)
    assert bins.mass.sum(-1) == pytest.approx(1, abs=1e-5), "each bin of rows spreads one"
    mean = case["weights"].astype(float)[:, list(heads)].mean(1)
    for i in range(len(edges) - 1):
        for j in range(len(edges) - 1):
            part = mean[:, edges[i] : edges[i + 1], edges[j] : edges[j + 1]]
            assert bins.mass[:, i, j] == pytest.approx(part.sum(-1).mean(-1), abs=1e-6)


def test_the_norm_weighted_masses_of_a_real_layer_are_those_of_what_it_adds(folders: Folders) -> None:
    """Held against the layer's own output: the head's contributions, key by key, sum to what it puts out."""
    ids = tokens(16, seed=8)
    model, rows = engine(folders("llama")), (9, 15)
    wanted = _wanted(16, rows=rows, norm_weighted=True, layers=(0,))
    taker = RowTaker(wanted, torch.device("cpu"))
    got: dict[str, torch.Tensor] = {}
    attention = model.model.model.layers[0].self_attn
    attention.v_proj.register_forward_hook(lambda module, args, out: got.__setitem__("v", out.detach()))
    attention.register_forward_hook(lambda module, args, out: got.__setitem__("o", out[0].detach()))
    with watching(Watch(rows, taker, layers=frozenset({0}))):
        model.extend(ids)
    weights = eager(folders("llama"), ids).weights[0]
    value = got["v"][0].reshape(16, 2, 8)
    matrix = attention.o_proj.weight.detach()
    for slot, row in enumerate(rows):
        total = torch.zeros(64)
        for head in range(HEADS):
            added = weights[head, row][:, None] * (value[:, head // 4] @ matrix[:, head * 8 : head * 8 + 8].T)
            total += added.sum(0)
            norms = added.norm(dim=-1).numpy()
            shares = np.bincount(wanted.regions, weights=norms, minlength=5) / norms.sum()
            assert taker.norm_mass is not None
            assert taker.norm_mass[0, head, slot] == pytest.approx(shares, abs=1e-4)
        assert (total - got["o"][0, row]).abs().max() < 1e-3


def test_a_sink_is_much_read_and_says_little() -> None:
    """Four made-up positions: 0 is both, 1 is much read alone, 2 has a short value alone, the rest is even."""
    size, heads = 30, 2
    score = torch.zeros(heads, size, size)
    score[:, :, 0], score[:, :, 1] = 5.0, 4.5
    score.masked_fill_(~torch.ones(size, size).tril().bool(), -torch.inf)
    values = torch.ones(1, size, 4)
    values[:, 0], values[:, 2] = 0.05, 0.05
    for blocks in ((30,), (7, 7, 7, 7, 2)):
        finder, start = SinkFinder(size, (None,) * 99), 0
        for step in blocks:
            rows = torch.arange(start, start + step)
            start += step
            for layer in (0, 1):
                weights = torch.softmax(score, -1)[:, rows, :start]
                finder.take(Rows(layer, rows, weights, values[:, :start], None))
        assert finder.found() == (0,)
    assert SinkFinder(5, ()).found() == ()


# -- real weights ------------------------------------------------------------------------------------------


@pytest.mark.weights
def test_on_the_real_model_the_rows_are_eagers_and_the_logits_sdpas(
    weights_05b: Path, qwen: ChatTemplate
) -> None:
    text = "You settle matters with merchants. Call each at most three times. " * 20
    ids = qwen.tokenizer(text, add_special_tokens=False)["input_ids"][:260]
    rows = [0, 1, 63, 64, 200, len(ids) - 1]
    model = Engine(weights_05b, dtype="float32", device="cpu", threads=None, chunk=64, attention=register())
    kept, watched = captured(model, ids, rows, block=4)
    layers = model.model.config.num_hidden_layers
    assert kept.rows.keys() == {(layer, row) for layer in range(layers) for row in rows}
    with torch.no_grad():
        model.model.set_attn_implementation("sdpa")
        model.reset()
        assert torch.equal(model.extend(ids)[-1], watched)
        model.model.set_attn_implementation("eager")
        output = model.model(torch.tensor([ids]), output_attentions=True, use_cache=False, logits_to_keep=1)
    assert farthest(kept, torch.cat(output.attentions)) < WITHIN
    assert (output.logits[0, -1] - watched).abs().max() < 1e-2
    model.close()
