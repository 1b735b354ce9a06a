"""The tables of a capture say what is in its files: recomputed here by hand, and robust to what a run lacks."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import attention_data as made_up
import numpy as np
import pandas as pd
import pytest

from harness.analysis import statistics as st
from harness.analysis.attention import report
from harness.analysis.attention.differences import differences, spread_differences
from harness.analysis.attention.frames import AttentionData, arms, cluster_values, load, summarise
from harness.analysis.attention.lines import lines
from harness.analysis.attention.masking import masking, masking_differences
from harness.analysis.attention.regions import regions, spread
from harness.analysis.attention.sentences import sentences
from harness.analysis.attention.tables import build_tables, masking_frame, summary_frame
from harness.analysis.attention.tables import captured as captured_table
from harness.attention.store import GROUPS, CellAttention, Masked, read_cells, write_cell
from harness.errors import AttentionError

BAR, BOTH = GROUPS.index("bar"), ("forbidden", "due")


def folder_of(folder: Path, cells: Sequence[CellAttention]) -> Path:
    """An attention folder of these cells."""
    for cell in cells:
        write_cell(folder, cell)
    manifest = {"cells": [cell.cell.cell_id for cell in cells], "top_k": 10, "model": "made-up", "config": {}}
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    return folder


def some_cells(clusters: int, conditions: Sequence[str] = tuple(made_up.CONDITIONS)) -> list[CellAttention]:
    return [
        made_up.make_cell(cluster, side, name, thinking=3)
        for cluster in range(clusters)
        for side in BOTH
        for name in conditions
    ]


def as_probe(captured: CellAttention, probe: str, **changes: object) -> CellAttention:
    cell = replace(captured.cell, probe=probe, cell_id=f"{captured.cell.cell_id}|{probe}")
    return replace(captured, cell=cell, **changes)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_up.make_folder(tmp_path_factory.mktemp("attention"), 10, thinking=3)


@pytest.fixture(scope="module")
def data(folder: Path) -> AttentionData:
    return load(folder)


def only(table: pd.DataFrame, **where: object) -> dict[str, object]:
    for key, value in where.items():
        table = table[table[key] == value]
    assert len(table) == 1, f"{len(table)} rows for {where}"
    return {str(key): value for key, value in table.iloc[0].to_dict().items()}


def share_by_hand(cell: CellAttention, row: int, group: str) -> float:
    """Mean over layers and heads of the group's mass ÷ all mass that is not in the sinks."""
    shares = []
    for layer in range(len(cell.layers)):
        for head in range(len(cell.heads)):
            mass = {"rest": 0.0, group: 0.0}
            for i, region in enumerate(cell.regions):
                weight = float(cell.mass[layer, head, row, i])
                mass["rest"] += weight * (region.group != "sinks")
                mass[group] += weight * (region.group == group)
            shares.append(mass[group] / mass["rest"])
    return float(np.mean(shares))


def test_the_share_of_a_region_is_the_mean_over_heads_then_sides_then_clusters(
    folder: Path, data: AttentionData
) -> None:
    by_cluster: dict[str, list[float]] = {}
    for cell in read_cells(folder):
        if cell.cell.condition == "agent_status":
            by_cluster.setdefault(cell.cell.cluster, []).append(share_by_hand(cell, 0, "bar"))
    row = only(regions(data).data, condition="agent_status", row="decision", group="bar")
    expected = st.share_interval([np.mean(sides) for sides in by_cluster.values()])
    assert row["share"] == pytest.approx(expected.value)
    assert (row["share_low"], row["share_high"]) == pytest.approx((expected.low, expected.high))
    assert row["clusters"] == 10 and row["tokens"] == 40
    # 40 of the tokens that the row sees and that are no sinks: `bar` is in reach of every layer.
    seen = next(c for c in read_cells(folder) if c.cell.condition == "agent_status")
    visible = seen.rows[0].position + 1 - len(made_up.SINK_POSITIONS)
    assert row["lift"] == pytest.approx(float(str(row["share"])) / (40 / visible))


def test_shares_sum_to_one_and_the_sinks_have_a_mass_but_no_share(data: AttentionData) -> None:
    table = regions(data).data
    for _, part in table.groupby(["condition", "row"]):
        assert part["share"].sum() == pytest.approx(1, abs=1e-3)
        assert part["mass"].sum() == pytest.approx(1, abs=2e-3)
        sinks = part[part["group"] == "sinks"].iloc[0]
        assert sinks["mass"] > 0.2 and pd.isna(sinks["share"]) and pd.isna(sinks["lift"])


def test_a_region_that_a_condition_lacks_has_no_row_instead_of_a_zero(data: AttentionData) -> None:
    table = regions(data).data
    assert set(table[table["group"] == "bar"]["condition"]) == {"placebo", "agent_status"}
    against = differences(data).data
    assert set(against[against["group"] == "bar"]["comparison"]) == {"bar - placebo"}


def test_cells_of_one_side_do_not_outweigh_the_other_side(tmp_path: Path) -> None:
    forbidden, due = (made_up.make_cell(0, side, "control", thinking=1) for side in BOTH)
    again = replace(due, cell=replace(due.cell, epoch=1, cell_id="again"))
    data = load(folder_of(tmp_path, [forbidden, due, again]))
    value = {"forbidden": 0.0, "due": 1.0}
    _, found = cluster_values(
        data, "control", "choose", "decision", lambda c, _: np.array(value[c.cell.side])
    )
    assert found.tolist() == [0.5]


def test_a_matched_cluster_without_both_sides_is_in_no_mean(tmp_path: Path) -> None:
    cells = [c for c in some_cells(3) if (c.cell.cluster[-1], c.cell.side) != ("1", "due")]
    table = regions(load(folder_of(tmp_path, cells))).data
    assert set(table["clusters"]) == {2}


def test_a_difference_is_taken_where_both_conditions_have_the_decision_point(tmp_path: Path) -> None:
    cells = [c for c in some_cells(4) if (c.cell.cluster[-1], c.cell.condition) != ("2", "placebo")]
    table = differences(load(folder_of(tmp_path, cells))).data
    counts = table.groupby("comparison")["clusters"].unique()
    assert {kind: list(n) for kind, n in counts.items()} == {
        "bar - placebo": [3],
        "bar - control": [4],
        "placebo - control": [3],
    }


def test_the_difference_between_bar_and_placebo_is_paired_and_tested_by_cluster(
    folder: Path, data: AttentionData
) -> None:
    shares: dict[tuple[str, str], list[float]] = {}
    for cell in read_cells(folder):
        shares.setdefault((cell.cell.condition, cell.cell.cluster), []).append(share_by_hand(cell, 0, "bar"))
    names = sorted({cluster for _, cluster in shares})
    d = [np.mean(shares["agent_status", n]) - np.mean(shares["placebo", n]) for n in names]
    row = only(differences(data).data, row="decision", comparison="bar - placebo", group="bar")
    assert row["estimate"] == pytest.approx(np.mean(d))
    assert (row["boot_low"], row["boot_high"]) == pytest.approx(st.bootstrap_interval(d), rel=1e-4)
    assert row["p"] == st.sign_flip_p(d) == 2 / 2**10
    assert float(str(row["low"])) > 0, "the made-up readers look at the bar and not at the placebo"


def test_holm_corrects_over_the_regions_of_bar_minus_placebo_of_one_row_alone(data: AttentionData) -> None:
    table = differences(data).data
    family = table[(table["comparison"] == "bar - placebo") & (table["row"] == "value")]
    assert list(family["p_holm"]) == pytest.approx(st.holm(list(family["p"])))
    assert (family["p_holm"] > family["p"]).any()
    assert table[table["comparison"] != "bar - placebo"]["p_holm"].isna().all()
    assert set(table["label"]) == {"exploratory"}


def test_a_text_without_readers_differs_from_nothing(tmp_path: Path) -> None:
    table = spread_differences(load(made_up.make_folder(tmp_path, 10, thinking=1, effect=0.0))).data
    assert (table[table["comparison"] == "bar - placebo"]["p_holm"] > 0.05).all()


def test_spread_is_the_mean_of_the_rows_own_entropies(folder: Path, data: AttentionData) -> None:
    bits = [
        np.exp2(cell.entropy_rest[:, :, 0].astype(float)).mean()
        for cell in read_cells(folder)
        if cell.cell.condition == "control"
    ]
    row = only(spread(data).data, condition="control", row="decision")
    assert row["effective"] == pytest.approx(np.mean(bits))
    assert 0.9 < float(str(row["entropy"])) < 1


def test_the_line_that_is_read_stands_out_from_the_placebos_line(data: AttentionData) -> None:
    table = lines(data).data
    rows = table[table["row"] == "decision"].set_index("line")
    assert list(rows.index) == [1, 2, 3, 4, 5]
    assert rows["estimate"].idxmax() == 4 and rows["low"].min() > 0
    assert rows.loc[4, "lift"] - rows.loc[4, "placebo_lift"] == pytest.approx(rows.loc[4, "estimate"])
    assert rows.loc[4, "text"] == made_up.LINES[3]


def test_a_tag_in_a_line_is_shown_as_code_and_a_long_line_is_cut(tmp_path: Path) -> None:
    cells = []
    for cell in some_cells(1):
        texts = {1: "<agent_status> `x` | y", 3: "word " * 40}
        named = tuple(replace(r, text=texts.get(r.line or 0, r.text)) for r in cell.regions)
        cells.append(replace(cell, regions=named))
    table = lines(load(folder_of(tmp_path, cells)))
    assert "`<agent_status> 'x' \\| y`" in table.to_markdown()
    assert max(len(text) for text in table.data["text"]) == 60


def test_a_line_that_the_placebo_lacks_has_a_lift_and_no_difference(tmp_path: Path) -> None:
    cells = []
    for cell in some_cells(2):
        shorter = cell.cell.bar == "placebo"
        cut = tuple(replace(r, line=None) if shorter and r.line == 5 else r for r in cell.regions)
        cells.append(replace(cell, regions=cut))
    row = only(lines(load(folder_of(tmp_path, cells))).data, row="decision", line=5)
    assert row["note"] == "the placebo has no such line"
    assert pd.notna(row["lift"]) and pd.isna(row["estimate"]) and pd.isna(row["placebo_lift"])


def logits(cells: Sequence[CellAttention], condition: str, side: str, mask: str, scope: str) -> list[float]:
    chosen = sorted(
        (c for c in cells if (c.cell.condition, c.cell.side) == (condition, side)),
        key=lambda c: c.cell.cluster,
    )
    return [next(m.logit_act for m in c.masking if (m.mask, m.scope) == (mask, scope)) for c in chosen]


def test_masking_changes_sensitivity_by_the_difference_of_log_odds_per_cluster(
    folder: Path, data: AttentionData
) -> None:
    cells = list(read_cells(folder))

    def change(
        condition: str, mask: str, scope: str, of: Callable[[np.ndarray, np.ndarray], np.ndarray]
    ) -> np.ndarray:
        values = {
            (side, m): np.array(logits(cells, condition, side, m, s))
            for side in BOTH
            for m, s in ((mask, scope), ("none", "later"))
        }
        return of(values["due", mask], values["forbidden", mask]) - of(
            values["due", "none"], values["forbidden", "none"]
        )

    def sensitivity(due: np.ndarray, forbidden: np.ndarray) -> np.ndarray:
        return due - forbidden

    def bias(due: np.ndarray, forbidden: np.ndarray) -> np.ndarray:
        return -(due + forbidden) / 2

    row = only(masking(data).data, condition="agent_status", mask="bar", scope="later")
    lost = change("agent_status", "bar", "later", sensitivity)
    assert row["sensitivity_change"] == pytest.approx(lost.mean())
    assert row["sensitivity_change_p"] == st.sign_flip_p(lost)
    assert row["bias_change"] == pytest.approx(change("agent_status", "bar", "later", bias).mean())
    assert float(str(row["sensitivity_masked"])) - float(str(row["sensitivity"])) == pytest.approx(
        lost.mean()
    )
    p = [
        m.p_act_norm
        for c in cells
        if (c.cell.condition, c.cell.side) == ("agent_status", "due")
        for m in c.masking[:1]
    ]
    assert row["p_due"] == pytest.approx(np.mean(p)) and float(str(row["p_due_change_high"])) < 0

    compared = only(masking_differences(data).data, mask="bar", scope="decision", measure="sensitivity")
    content = change("agent_status", "bar", "decision", sensitivity) - change(
        "placebo", "bar", "decision", sensitivity
    )
    assert compared["estimate"] == pytest.approx(content.mean())
    assert compared["p"] == st.sign_flip_p(content)


def test_masks_of_chosen_layers_are_kept_apart(tmp_path: Path) -> None:
    cells = []
    for cell in some_cells(2, ["placebo", "agent_status"]):
        one = Masked("bar", "later", "1-2", 40, {"reply": -1.0}, 0.2, 0.3, -1.5)
        cells.append(replace(cell, masking=(*cell.masking, one)))
    rows = masking(load(folder_of(tmp_path, cells))).data
    part = rows[(rows["mask"] == "bar") & (rows["scope"] == "later")]
    assert sorted(zip(part["condition"], part["layers"], strict=True)) == [
        ("agent_status", "1-2"), ("agent_status", "all"), ("placebo", "1-2"), ("placebo", "all"),
    ]  # fmt: skip


def test_a_group_out_of_a_windows_reach_counts_as_unread_in_that_layer(tmp_path: Path) -> None:
    whole = made_up.make_cell(0, "due", "control", thinking=1)
    captured = replace(whole, windows=(30, None, None, None))
    cell = summarise(captured)
    system, position = GROUPS.index("system"), captured.rows[0].position
    assert cell.seen[:, 0, system].tolist() == [0, 40, 40, 40]
    assert np.isnan(cell.lift[0, :, 0, system]).all() and np.isfinite(cell.lift[1:, :, 0, system]).all()
    other = made_up.make_cell(0, "forbidden", "control", thinking=1)
    pair = [captured, replace(other, windows=captured.windows)]
    row = only(regions(load(folder_of(tmp_path, pair))).data, row="decision", group="system")
    assert row["uniform"] == pytest.approx((0 + 3 * 40 / (position + 1 - 2)) / 4)
    assert row["lift"] == pytest.approx(float(str(row["share"])) / float(str(row["uniform"])))


def test_shares_along_the_reply_are_of_the_heads_mean_whether_or_not_each_head_was_kept() -> None:
    captured = made_up.make_cell(0, "due", "agent_status", thinking=4)
    apart = 0.5 * captured.path_mass[..., ::-1]
    each = np.stack([captured.path_mass + apart, captured.path_mass - apart], axis=1)
    assert summarise(replace(captured, path_mass=each)).path_share == pytest.approx(
        summarise(captured).path_share, nan_ok=True
    )
    assert np.nansum(summarise(captured).path_share, axis=-1) == pytest.approx(1, abs=1e-5)


def test_arms_are_told_by_bar_and_placement_and_the_control_comes_first(tmp_path: Path) -> None:
    found = arms(load(folder_of(tmp_path, some_cells(1, ["agent_status", "placebo", "control"]))))
    assert [(arm.name, arm.role) for arm in found] == [
        ("control", "control"), ("agent_status", "bar"), ("placebo", "placebo"),
    ]  # fmt: skip


def test_nothing_captured_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(AttentionError, match="no finished capture there"):
        load(tmp_path)
    with pytest.raises(AttentionError, match="holds no cells"):
        load(folder_of(tmp_path, []))


def act_only(cells: list[CellAttention]) -> list[CellAttention]:
    return [as_probe(c, "act", masking=(), replay_error=None) for c in cells]


def without_value_row(cells: list[CellAttention]) -> list[CellAttention]:
    arrays = ("mass", "entropy", "entropy_rest", "top_mass", "token_rows")
    cut = {name: lambda c, name=name: getattr(c, name)[:, :1] if name == "token_rows" else getattr(c, name)[:, :, :1]
           for name in arrays}  # fmt: skip
    return [replace(c, rows=c.rows[:1], **{name: take(c) for name, take in cut.items()}) for c in cells]


def bare(cells: list[CellAttention]) -> list[CellAttention]:
    """Without a path, token rows, bins, masks or a replay's error; and not from matched pairs."""
    return [
        replace(
            c, cell=replace(c.cell, series="prior_calls", side="due"), path=(), path_mass=np.zeros((0, 0, 0), np.float32),
            path_entropy=np.zeros((0, 0), np.float32), token_rows=None, bins=None, masking=(), replay_error=None,
        )
        for c in cells if c.cell.side == "due"
    ]  # fmt: skip


def both_probes(cells: list[CellAttention]) -> list[CellAttention]:
    return cells + act_only(cells)


SHAPES: dict[str, list[CellAttention]] = {
    "one cluster": some_cells(1),
    "control alone": some_cells(2, ["control"]),
    "bar alone": some_cells(2, ["agent_status"]),
    "no placebo": some_cells(2, ["control", "agent_status"]),
    "act alone": act_only(some_cells(2)),
    "both probes": both_probes(some_cells(2)),
    "no value row": without_value_row(some_cells(2)),
    "value row in half of the cells": without_value_row(some_cells(2)[:6]) + some_cells(2)[6:],
    "one side": [c for c in some_cells(2) if c.cell.side == "due"],
    "bare": bare(some_cells(2)),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.filterwarnings("error")
def test_whatever_a_capture_lacks_every_table_is_made_and_says_so(shape: str, tmp_path: Path) -> None:
    data = load(folder_of(tmp_path, SHAPES[shape]))
    tables = build_tables(data)
    said = "\n".join(sentences(data, tables))
    assert "exploratory" in said and f"{len(data.cells)} cells" in said
    for table in tables.values():
        text = table.to_markdown()
        assert "nan" not in text.replace("finance", "") and "None" not in text
        assert "nan" not in table.to_csv().replace("finance", "")
        assert not table.data.empty or "Not measured (n = 0): " in text
    assert "nan" not in said and "None" not in said
    expected = {
        "control alone": "No bar was captured together with a placebo",
        "no placebo": "No bar was captured together with a placebo",
        "act alone": "nothing here speaks of cause",
        "one cluster": "undecided (too few clusters",
    }
    assert expected.get(shape, "") in said
    if shape == "act alone":
        assert tables["masking"].data.empty
    if shape == "bare":
        assert "Not from matched pairs: choose: prior_calls." in tables["regions"].to_markdown()


def test_the_sentences_give_the_verdict_that_the_tests_give(data: AttentionData, tmp_path: Path) -> None:
    said = sentences(data, build_tables(data))
    assert any("its content draws attention" in line and "n = 10 clusters" in line for line in said)
    hidden = [line for line in said if line.startswith("Hiding the bar (or the placebo) from ")]
    assert len(hidden) == 2
    assert hidden[0].endswith("a check of the mask, not a finding."), (
        "later, all layers: one and the same prompt"
    )
    assert "the choice's rows alone" in hidden[1] and hidden[1].endswith("more is lost with the bar.")
    assert any("pass on the other (n = 5): " in line and "layer 2 head 1" in line for line in said)
    none = load(made_up.make_folder(tmp_path, 10, thinking=1, effect=0.0))
    assert any(
        "a share of" in line and line.endswith(": undecided.") for line in sentences(none, build_tables(none))
    )


def test_the_data_files_hold_every_cell_row_and_group_with_unknown_as_null(
    folder: Path, data: AttentionData
) -> None:
    frame = summary_frame(data)
    captured = next(c for c in read_cells(folder) if c.cell.condition == "agent_status")
    row = only(frame, cell_id=captured.cell.cell_id, row="value", group="bar")
    assert row["share"] == pytest.approx(share_by_hand(captured, 1, "bar"))
    assert row["position"] == captured.rows[1].position and row["tokens"] == 40
    assert frame[frame["group"] == "sinks"]["share"].isna().all()
    assert frame["norm_share"].isna().all()
    masks = masking_frame(data)
    assert len(masks) == sum(len(cell.masking) for cell in data.cells)
    assert set(masks["mask"]) == {"none", "bar", "target_calls"}


def test_norm_weighted_shares_are_shown_beside_the_plain_ones_where_they_were_captured(
    tmp_path: Path,
) -> None:
    cells = [replace(c, norm_mass=c.mass**2) for c in some_cells(1)]
    table = regions(load(folder_of(tmp_path, cells)))
    row = only(table.data, condition="agent_status", row="decision", group="bar")
    weighted = [replace(c, mass=c.mass**2) for c in cells if c.cell.condition == "agent_status"]
    expected = np.mean([share_by_hand(cell, 0, "bar") for cell in weighted])
    assert row["norm_share"] == pytest.approx(expected, rel=2e-3)
    assert "Kobayashi" in table.to_markdown()


def test_a_report_is_rebuilt_from_the_files_to_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Figures and the page have tests of their own, and take far longer than the rest.
    monkeypatch.setattr(report, "build_figures", lambda data, tables, folder: [])
    monkeypatch.setattr(report, "build_page", lambda folder: None)
    folder = made_up.make_folder(tmp_path / "attention", 3, ["placebo", "agent_status"], thinking=1)
    first = report.build(folder)
    names = [*first.tables, first.summary, *first.data]
    before = [path.read_bytes() for path in names]
    assert report.build(folder) == first
    assert [path.read_bytes() for path in names] == before
    text = first.summary.read_text(encoding="utf-8")
    assert text.startswith("# Attention of made-up-0.1b\n") and f"- {first.sentences[0]}" in text
    assert "12 cells in" in text and "kB a cell" in text
    back = pd.read_parquet(first.data[0])
    assert back["norm_share"].isna().all() and back["cell_id"].nunique() == 12


def test_cells_that_could_not_be_replayed_are_counted_per_condition(tmp_path: Path) -> None:
    folder = made_up.make_folder(tmp_path, 2, thinking=1)
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    manifest["skipped"] = {
        f"xfinity/matched/c9/{side}|placebo|choose|0": "cut" for side in ("due", "forbidden")
    }
    path.write_text(json.dumps(manifest), encoding="utf-8")
    table = captured_table(load(folder)).data
    assert dict(zip(table["condition"], table["skipped"], strict=True)) == {
        "control": 0, "placebo": 2, "agent_status": 0,
    }  # fmt: skip
