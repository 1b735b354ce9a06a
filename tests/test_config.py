"""Claims about configuration: what composes, what is refused, and in which words."""

import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest
from core_config import REMOVE, plain

from harness.compose import GROUPS, build_conditions, compose, options, sweep
from harness.config import RunConfig
from harness.config_checks import resolve
from harness.errors import ConfigError
from harness.paths import packaged_dir
from harness.statusbar import AgentStatus, BeforeFollowUp, Placebo, Tail

CONF = packaged_dir("conf")
KNOWN = frozenset(path.stem for path in (CONF / "condition").glob("*.yaml"))


def refused(match: str, data: dict[str, Any] | None = None, overrides: list[str] | None = None) -> str:
    with pytest.raises(ConfigError, match=match) as error:
        resolve(data, KNOWN) if data is not None else compose(overrides or [])
    text = str(error.value)
    assert "\n" not in text and len(text) < 400
    return text


def named(group: str) -> list[str]:
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


# -- everything that is offered works ----------------------------------------------------------------------


@pytest.mark.parametrize("name", named("experiment"))
def test_every_experiment_composes_and_validates(name: str) -> None:
    config = compose([f"experiment={name}"])
    assert config.experiment == name
    conditions = build_conditions(config.condition)
    assert conditions[0].bar is None and {c.name for c in conditions} >= {
        "control",
        "placebo",
        "agent_status",
    }


@pytest.mark.parametrize("name", named("model"))
def test_every_model_composes(name: str) -> None:
    more = ["model.path=/some/folder"] if name == "local" else ["probe=[act]"]
    config = compose([f"model={name}", *more])
    if config.model.api is not None:  # named after the provider's model, not after the file
        assert config.model.target == "harness.models.api.engine.ApiModel"
        assert config.model.api.model.endswith(config.model.name.removeprefix("openrouter-")) or (
            config.model.api.model.startswith(config.model.name)
        )
        return
    engine = "vllm_engine.VllmModel" if name.endswith("-vllm") else "hf.TransformersModel"
    if config.model.server is not None:
        engine = "server.ServerModel"
    assert config.model.target == f"harness.models.{engine}"
    assert config.model.name == ("folder" if name == "local" and config.model.name != "local" else name)


@pytest.mark.parametrize("name", named("probe"))
def test_every_probe_composes(name: str) -> None:
    thinks = ["model.thinking=native", "model.decoding.temperature=0.6"] if "thinking" in name else []
    assert len(compose([f"probe=[{name}]", *thinks]).probe) == 1


def test_choose_on_a_thinking_model_draws_thoughts_first() -> None:
    thinks = ["model.thinking=native", "model.decoding.temperature=0.6", "probe=[choose]"]
    with pytest.raises(ConfigError, match=r"probe\.choose\.thoughts=4"):
        compose(thinks)
    assert compose([*thinks, "probe.choose.thoughts=5"]).probe["choose"].thoughts == 5
    with pytest.raises(ConfigError, match="thoughts"):
        compose([*thinks, "probe.choose.thoughts=3"])
    with pytest.raises(ConfigError, match="same thought again"):
        compose([*thinks, "probe.choose.thoughts=4", "model.decoding.temperature=0"])
    with pytest.raises(ConfigError, match="does not think"):
        compose(["probe=[choose]", "probe.choose.thoughts=4"])
    with pytest.raises(ConfigError, match="a reply has one thought"):
        compose(["probe=[act]", "probe.act.thoughts=4"])


def test_keys_that_came_later_do_not_rename_old_runs() -> None:
    plain = compose([]).digested()
    assert "engine" not in plain["model"] and "warmups" not in plain["latency"]
    assert "thoughts" not in plain["probe"]["choose"]
    assert compose(["model.engine.block_size=32"]).digested() != plain
    assert compose(["latency.warmups=2"]).digested() != plain


def test_where_a_server_listens_is_no_part_of_the_experiment() -> None:
    there = ["model=server", "probe=[act]", "model.server.address=http://a:1/v1"]
    elsewhere = [
        *("model=server", "probe=[act]", "model.server.address=http://b:2/v1"),
        *("model.server.port=99", "model.server.timeout_s=7", "model.server.retries=1"),
    ]
    assert compose(there).digested() == compose(elsewhere).digested()
    assert compose([*there, "model.server.api=completions"]).digested() != compose(there).digested()
    engine = ["model=qwen2.5-coder-0.5b-vllm"]
    assert compose([*engine, "model.engine.max_num_seqs=4"]).digested() == compose(engine).digested()
    assert compose([*engine, "model.engine.block_size=64"]).digested() != compose(engine).digested()


def test_a_server_is_refused_for_choose_before_anything_is_fetched() -> None:
    with pytest.raises(ConfigError, match=r"probe=\[act\]"):
        compose(["model=vllm-server"])


def test_the_default_is_the_main_job() -> None:
    config = compose([])
    assert config == compose(["experiment=xfinity"])
    assert list(config.condition) == [
        "control", "placebo", "mismatched", "agent_status", "placebo_before", "agent_status_before",
    ]  # fmt: skip
    assert config.probe["choose"].series["matched"].clusters >= 16
    act = config.probe["act"]
    assert act.max_new_tokens == 64 and act.series["matched"].clusters >= 8
    assert len(act.series["matched"].conditions or ()) == 3
    assert config.probe["choose"].series["prior_calls"].prior_calls == (1, 2, 3, 4, 5, 6)


def test_options_are_the_files_and_every_group_offers_a_choice() -> None:
    offered = options()
    assert set(offered) == set(GROUPS)
    for group in GROUPS:
        assert set(offered[group]) >= set(named(group)), group


def test_conditions_become_objects_in_the_configurations_order() -> None:
    built = build_conditions(
        compose(["condition=[agent_status_before,placebo,control]", "probe=[choose]"]).condition
    )
    assert [c.name for c in built] == ["agent_status_before", "placebo", "control"]
    assert built[0].bar == AgentStatus() and built[0].placement == BeforeFollowUp()
    assert built[1].bar == Placebo(AgentStatus()) and built[1].placement == Tail()


def test_the_resolved_configuration_cannot_be_changed() -> None:
    config = resolve(plain())
    with pytest.raises(Exception, match="frozen"):
        config.seed = 8  # type: ignore[misc]


# -- overrides and sweeps ----------------------------------------------------------------------------------


def test_an_override_sets_any_key_also_one_that_no_file_mentions() -> None:
    config = compose(
        [
            "model.threads=2",
            "seed=11",
            "model.decoding.temperature=0.7",
            "epochs=3",
            "probe.act.max_new_tokens=5",
        ]
    )
    assert (config.model.threads, config.seed, config.model.decoding.temperature) == (2, 11, 0.7)
    assert (config.epochs, config.probe["act"].max_new_tokens) == (3, 5)


def test_a_sweep_is_the_product_of_its_choices_in_order() -> None:
    combos = sweep(["model=a,b", "seed=1,2", "experiment=xfinity_small"])
    assert combos == [
        [f"model={m}", f"seed={s}", "experiment=xfinity_small"] for m in ("a", "b") for s in (1, 2)
    ]


def test_a_list_is_one_value_of_a_sweep_and_quoted_commas_do_not_split() -> None:
    assert sweep(["condition=[control,placebo]"]) == [["condition=[control,placebo]"]]
    assert len(sweep(["condition=[control],[control,placebo]"])) == 2
    assert sweep(["results='a,b'"]) == [["results='a,b'"]]
    lists = sweep(["condition=[control],[control,placebo]", "probe=[choose]"])
    assert [list(compose(each).condition) for each in lists] == [["control"], ["control", "placebo"]]


def test_every_combination_of_a_sweep_composes() -> None:
    combos = sweep(
        ["model=qwen2.5-coder-0.5b,qwen2.5-coder-1.5b", "seed=range(1,4)", "experiment=xfinity_small"]
    )
    configs = [compose(each) for each in combos]
    assert [(c.model.name[-4:], c.seed) for c in configs] == [
        (m, s) for m in ("0.5b", "1.5b") for s in (1, 2, 3)
    ]


def test_a_sweep_that_cannot_be_read_is_one_line() -> None:
    with pytest.raises(ConfigError) as error:
        sweep(["model=[a,"])
    assert "\n" not in str(error.value)


# -- what is refused ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"sede": 3}, r"^sede: unknown key"),
        ({"model__thinkin": "off"}, r"^model\.thinkin: unknown key"),
        ({"probe__act__series__matched__cluster": 3}, r"^probe\.act\.series\.matched\.cluster: unknown key"),
        ({"seed": "seven"}, r"^seed: .*\(got 'seven'\)"),
        ({"seed": 1.5}, r"^seed: "),
        ({"epochs": 0}, r"^epochs: "),
        ({"model__name": REMOVE}, r"^model\.name: missing"),
        ({"experiment": REMOVE}, r"^experiment: missing"),
        ({"measure": "speed"}, r"^measure: .*'throughput' or 'latency'"),
        ({"model__thinking": "on"}, r"^model\.thinking: "),
        ({"model__keep_reasoning": "perhaps"}, r"^model\.keep_reasoning: "),
        ({"model__threads": 0}, r"^model\.threads: "),
        ({"model__pack_tokens": 1}, r"^model\.pack_tokens: "),
        ({"model__decoding": {"temperature": -1}}, r"^model\.decoding\.temperature: "),
        ({"model__decoding": {"top_p": 0}}, r"^model\.decoding\.top_p: "),
        ({"model__path": None}, r"model\.path=.*model\.hub="),
        ({"probe__act__series__matched__clusters": 0}, r"^probe\.act\.series\.matched\.clusters: "),
        ({"probe__act__series__other": {"clusters": 1}}, r"^probe\.act\.series\.other"),
        ({"probe__guess": {"series": {"matched": {"clusters": 1}}}}, r"^probe\.guess"),
        ({"condition__odd": {"bars": None}}, r"^condition\.odd\.bars: unknown key"),
        ({"condition": {}}, r"^condition: no arm"),
        ({"probe": {}}, r"^probe: no probe"),
    ],
    ids=str,
)
def test_an_unknown_key_or_a_wrong_value_is_one_line_that_names_the_key(
    changes: dict[str, Any], match: str
) -> None:
    refused(match, plain(**changes))


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"epochs": 2}, r"epochs > 1 with greedy"),
        ({"model__thinking": "native"}, r"probe=choose with model\.thinking=native"),
        ({"model__thinking": "prompted"}, r"probe=choose with model\.thinking=prompted"),
        ({"measure": "latency", "probe__act": REMOVE}, r"measure=latency .*add probe=\[act\]"),
        ({"condition__control": REMOVE}, r"^condition: .*add control"),
        (
            {"probe__act__series__matched__conditions": ["control", "agent_statsu"]},
            r"^probe\.act\.series\.matched\.conditions: unknown condition 'agent_statsu'; known are ",
        ),
        (
            {"probe__act__series__matched__conditions": ["mismatched"]},
            r"^probe\.act\.series\.matched\.conditions: none of mismatched",
        ),
        (
            {"measure": "latency", "latency__conditions": ["contorl"]},
            r"^latency\.conditions: unknown condition",
        ),
        (
            {"probe__choose__series__filler": {"clusters": 1}},
            r"^probe\.choose\.series\.filler\.filler_tokens: ",
        ),
        (
            {"probe__choose__series__filler": {"clusters": 1, "filler_tokens": []}},
            r"^probe\.choose\.series\.filler\.filler_tokens: ",
        ),
        (
            {"probe__choose__series__matched__filler_tokens": [100]},
            r"^probe\.choose\.series\.matched\.filler_tokens: only the series filler",
        ),
        (
            {"probe__choose__series__matched__prior_calls": [1]},
            r"^probe\.choose\.series\.matched\.prior_calls: only the series prior_calls",
        ),
    ],
    ids=str,
)
def test_an_impossible_combination_is_one_line_that_names_the_key(
    changes: dict[str, Any], match: str
) -> None:
    refused(match, plain(**changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"epochs": 2, "model__decoding": {"temperature": 0.7}},
        {"epochs": 2, "model__decoding": {"source": "model"}},
        {"model__thinking": "native", "probe__choose": REMOVE},
        {"measure": "latency", "probe__choose": REMOVE},
        {"probe__act__series__matched__conditions": ["control", "mismatched"]},
        {"probe__choose__series__filler": {"clusters": 1, "filler_tokens": [0, 100]}},
        {"latency__conditions": ["nonsense"]},
    ],
    ids=str,
)
def test_its_possible_neighbour_is_accepted(changes: dict[str, Any]) -> None:
    assert isinstance(resolve(plain(**changes), KNOWN), RunConfig)


@pytest.mark.parametrize(
    ("overrides", "match"),
    [
        (["model=nonsense"], "nonsense"),
        (["experiment=nonsense"], "nonsense"),
        (["probe=[nonsense]"], "nonsense"),
        (["condition=[control,nonsense]"], "nonsense"),
        (["scenario=nonsense"], "nonsense"),
        (["modle.threads=2"], r"^modle: unknown key"),
        (["model.thread=2"], r"^model\.thread: unknown key"),
        (["seed=seven"], r"^seed: "),
        (["epochs=2"], "greedy"),
        (["condition=[agent_status]"], "add control"),
        (["model=local"], r"model\.path="),
        (["seed"], "seed"),
        (["model.threads=${nothing}"], "nothing"),
    ],
    ids=str,
)
def test_a_mistake_on_the_command_line_is_one_line(overrides: list[str], match: str) -> None:
    refused(match, overrides=overrides)


# -- weights -----------------------------------------------------------------------------------------------


def test_a_path_or_hub_id_on_top_of_a_model_replaces_its_weights_and_its_name() -> None:
    local = compose(["model=qwen2.5-coder-0.5b", "model.path=/models/mine"]).model
    assert (local.path, local.embedded, local.name) == ("/models/mine", None, "mine")
    hub = compose(["model=qwen2.5-coder-0.5b", "model.hub=owner/theirs"]).model
    assert (hub.hub, hub.embedded, hub.name) == ("owner/theirs", None, "theirs")


# -- where files are looked for and written ----------------------------------------------------------------


def test_the_working_folders_conf_comes_first_file_by_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for group in ("condition", "experiment"):
        (tmp_path / "conf" / group).mkdir(parents=True)
    (tmp_path / "conf/condition/control.yaml").write_text("control: {bar: null, placement: null}\n")
    (tmp_path / "conf/condition/mine.yaml").write_text(
        "mine:\n  bar: {_target_: harness.statusbar.AgentStatus, tag: gauge}\n"
        "  placement: {_target_: harness.statusbar.Tail}\n"
    )
    (tmp_path / "conf/experiment/xfinity_small.yaml").write_text(
        "# @package _global_\ndefaults:\n  - override /probe: [choose_small]\n"
        "  - override /condition: [control, mine]\nexperiment: mine_instead\nseed: 99\n"
    )
    monkeypatch.chdir(tmp_path)
    config = compose(["experiment=xfinity_small"])
    assert (config.experiment, config.seed, list(config.condition)) == (
        "mine_instead",
        99,
        ["control", "mine"],
    )
    assert build_conditions(config.condition)[1].bar == AgentStatus(tag="gauge")
    assert "mine" in options()["condition"] and "placebo" in options()["condition"]
    assert compose(["experiment=xfinity_latency"]).measure == "latency", "the rest comes from the package"


def test_composing_writes_nothing_and_stays_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    compose(["experiment=xfinity_small"])
    for each in sweep(["seed=1,2"]):
        compose(each)
    options()
    with pytest.raises(ConfigError):
        compose(["model=nonsense"])
    assert os.listdir(tmp_path) == [] and Path.cwd() == tmp_path


# -- the digest's subject ----------------------------------------------------------------------------------


def test_what_cannot_change_a_result_is_not_digested_and_everything_else_is() -> None:
    base = resolve(plain()).digested()
    assert resolve(plain(results="elsewhere")).digested() == base
    assert resolve(plain(model__mirror="https://mirror")).digested() == base
    for change in (
        {"seed": 8},
        {"model__pack_tokens": 64},
        {"model__dtype": "float32"},
        {"epochs": 1, "experiment": "x"},
    ):
        assert resolve(plain(**change)).digested() != base
    assert base["model"]["_target_"] == plain()["model"]["_target_"]


def test_the_digested_configuration_resolves_to_itself() -> None:
    config = compose(["experiment=xfinity_small"])
    again = resolve({**config.digested(), "results": config.results})
    assert again.digested() == config.digested()
    assert not dataclasses.is_dataclass(config)
