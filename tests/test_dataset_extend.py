"""A scenario on top of another: what is taken, what is replaced, and which file a mistake is told of."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.dataset import content_hash, load_scenario, scenario_names
from harness.errors import ScenarioError

ROOT = Path(__file__).parent.parent
XFINITY = ROOT / "scenarios" / "xfinity.yaml"
BASE = load_scenario(XFINITY)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a copy of the shipped scenario as `base.yaml`; its scenarios go by name."""
    scenarios = tmp_path / "scenarios"
    scenarios.mkdir()
    (scenarios / "base.yaml").write_text(XFINITY.read_text())
    monkeypatch.chdir(tmp_path)
    return scenarios


def put(folder: Path, text: str, name: str = "mine") -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(text)
    return path


def refused(path: Path) -> str:
    with pytest.raises(ScenarioError) as caught:
        load_scenario(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_draws_of_the_shipped_scenario_are_those_of_the_published_run() -> None:
    """The content hash keys every draw: a change would leave the reference run without its scenario."""
    manifest = json.loads((ROOT / "results/reference/xfinity-cpu/manifest.json").read_text())
    assert content_hash(BASE) == manifest["inputs"]["scenario"]


@pytest.mark.parametrize("named", ["base", "base.yaml", "../scenarios/base.yaml"])
def test_a_file_that_only_extends_is_its_base(folder: Path, named: str) -> None:
    """By name, or by a path that starts at the extending file's folder."""
    mine = load_scenario(put(folder, f"extends: {named}\n"))
    assert mine.spec == BASE.spec and content_hash(mine) == content_hash(BASE)


def test_the_hash_is_of_the_merged_content_and_not_of_how_it_was_written(folder: Path) -> None:
    whole: dict[str, Any] = yaml.safe_load(XFINITY.read_text())
    whole["name"] = "mine"
    whole["pools"]["closings"] = [*whole["pools"]["closings"], "{{ gist }}, says {{ merchant }}."]
    apart = put(
        folder, 'extends: base\nname: mine\npools:\n  closings+: ["{{ gist }}, says {{ merchant }}."]\n'
    )
    alone = put(folder, yaml.safe_dump(whole, sort_keys=False), "alone")
    assert content_hash(load_scenario(apart)) == content_hash(load_scenario(alone)) != content_hash(BASE)


def test_a_stated_key_replaces_the_bases_and_pools_go_key_by_key(folder: Path) -> None:
    mine = load_scenario(
        put(
            folder,
            "extends: base\nname: mine\nrules: [{tool: phone_call, key: merchant, at_most: 2}]\n"
            'pools:\n  closings: ["{{ merchant }}: {{ gist }}."]\n',
        )
    )
    assert (mine.name, mine.rule.limit) == ("mine", 2)
    assert mine.spec.pools.closings == ("{{ merchant }}: {{ gist }}.",)
    kept = BASE.spec.pools.model_dump(exclude={"closings"})
    assert mine.spec.pools.model_dump(exclude={"closings"}) == kept
    assert mine.spec.tools == BASE.spec.tools and mine.spec.system == BASE.spec.system


def test_a_pool_with_a_plus_is_added_to_the_bases(folder: Path) -> None:
    mine = load_scenario(
        put(folder, "extends: base\npools:\n  results+:\n    - {text: They nodded., gist: they nodded}\n")
    )
    assert mine.spec.pools.results[:-1] == BASE.spec.pools.results
    assert mine.spec.pools.results[-1].gist == "they nodded"


def line_of(path: Path, text: str) -> int:
    return next(i for i, line in enumerate(path.read_text().splitlines(), 1) if text in line)


MINE: dict[str, tuple[str, int, str]] = {
    "unknown key": ("extends: base\ncolour: red\n", 2, "colour: unknown key"),
    "wrong value": ("extends: base\nname: ../x\n", 2, "name: "),
    "unknown pool": ("extends: base\npools:\n  shops: [a]\n", 3, "pools.shops: unknown key"),
    "unknown pool added to": ("extends: base\npools:\n  shops+: [a]\n", 3, "pools.shops+: unknown key"),
    "entry of a replaced pool": (
        'extends: base\npools:\n  closings:\n    - "{{ gist }}"\n    - "{{ shop }}"\n',
        5,
        "pools.closings[1]: unknown variable 'shop'",
    ),
    "entry of an added pool": (
        "extends: base\npools:\n  results+:\n    - {text: a, gist: b}\n    - {text: c, gist: '{{ d }}'}\n",
        5,
        "pools.results+[1].gist: unknown variable 'd'",
    ),
    "repeats the base": (
        "extends: base\npools:\n  purposes+:\n    - 'ask about {{ topic }}'\n",
        4,
        "pools.purposes+[0]: repeats an earlier text",
    ),
    "pools as a list": ("extends: base\npools: [a]\n", 2, "pools: expected a mapping"),
    "added text is no list": (
        "extends: base\npools:\n  closings+: x\n",
        3,
        "pools.closings+: expected a list",
    ),
    "added to a mapping": (
        "extends: base\npools:\n  phrasings+: [x]\n",
        3,
        "pools.phrasings+: only a list can be added to",
    ),
    "replaced and added to": (
        "extends: base\npools:\n  closings: [x]\n  closings+: [y]\n",
        4,
        "pools.closings+: 'closings' is stated as well",
    ),
    "no name": ("name: x\nextends: [base]\n", 2, "extends: expected the name or path"),
    "unknown name": ("name: x\nextends: bse\n", 2, "extends: no scenario named 'bse'; did you mean 'base'?"),
    "no such file": ("extends: ./other.yaml\n", 1, "extends: there is no file"),
    "itself": ("extends: mine\n", 1, "extends: 'mine' is this file itself"),
    "a mistake after two bases": (
        "extends: middle\npools:\n  closings+: ['{{ shop }}']\n",
        3,
        "pools.closings+[0]: unknown variable 'shop'",
    ),
}


@pytest.mark.parametrize(("text", "line", "reason"), MINE.values(), ids=MINE.keys())
def test_a_mistake_of_the_extending_file_is_told_of_that_file(
    folder: Path, text: str, line: int, reason: str
) -> None:
    put(folder, "extends: base\n", "middle")
    path = put(folder, text)
    assert refused(path).startswith(f"{path}:{line}: {reason}")


def test_a_base_may_extend_another_and_each_adds_its_own(folder: Path) -> None:
    put(folder, "extends: base\nname: middle\npools:\n  closings+: [That is all from me.]\n", "middle")
    mine = load_scenario(
        put(folder, "extends: middle\nname: mine\npools:\n  closings+: [So much for that.]\n")
    )
    before = load_scenario(folder / "base.yaml").spec.pools.closings
    assert mine.spec.pools.closings == (*before, "That is all from me.", "So much for that.")
    assert (mine.spec.name, mine.spec.system) == ("mine", load_scenario(folder / "base.yaml").spec.system)


def test_a_mistake_in_the_middle_is_told_of_the_middle(folder: Path) -> None:
    middle = put(folder, "extends: base\nname: middle\npools:\n  closings+: ['{{ shop }}']\n", "middle")
    line = refused(put(folder, "extends: middle\nname: mine\npools:\n  closings+: [So much for that.]\n"))
    assert line.startswith(f"{middle}:4: pools.closings+[0]: unknown variable 'shop'")


@pytest.mark.parametrize(("over", "under"), [("mine", "middle"), ("middle", "mine")])
def test_scenarios_that_extend_each_other_are_refused(folder: Path, over: str, under: str) -> None:
    put(folder, f"extends: {under}\n", over)
    put(folder, f"extends: {over}\n", under)
    assert refused(folder / "mine.yaml").endswith(
        "extends: 'mine' extends this file in turn; let one of them stand on its own"
    )


@pytest.mark.parametrize("named", ["bse", "./other.yaml"])
def test_a_missing_base_is_one_line_with_the_known_names(folder: Path, named: str) -> None:
    line = refused(put(folder, f"extends: {named}\n"))
    assert ", ".join(scenario_names()) in line


def test_a_mistake_of_the_base_is_told_of_the_base(folder: Path) -> None:
    base = folder / "base.yaml"
    base.write_text(base.read_text().replace("- Calder Water", "- Calder/Water"))
    mine = put(
        folder, "extends: base\nname: mine\npools:\n  merchants+: [Acme]\n  closings+: ['{{ gist }}']\n"
    )
    line = refused(mine)
    assert line.startswith(f"scenarios/base.yaml:{line_of(base, 'Calder/Water')}: ") or line.startswith(
        f"{base}:{line_of(base, 'Calder/Water')}: "
    )
    base.write_text("pools: [a]\n")
    assert re.search(r"base\.yaml:1: pools: expected a mapping", refused(mine))


def test_a_key_that_neither_file_has_is_told_of_the_base(folder: Path) -> None:
    base = folder / "base.yaml"
    data = yaml.safe_load(base.read_text())
    del data["system"]
    base.write_text(yaml.safe_dump(data))
    assert "base.yaml:1: system: this key is missing" in refused(put(folder, "extends: base\n"))


def test_a_plus_means_nothing_without_a_base(folder: Path) -> None:
    path = put(folder, XFINITY.read_text().replace("  closings:\n", "  closings+:\n"))
    assert "pools.closings" in refused(path)


# --- the limit in the system prompt ------------------------------------------------------------------


def test_a_system_prompt_may_state_the_limit_and_others_stay_as_they_are(folder: Path) -> None:
    mine = load_scenario(
        put(
            folder,
            "extends: base\nsystem: \"Up to {{ limit }} {% if limit == '1' %}call{% else %}calls{% endif %}.\"\n",
        )
    )
    assert [mine.system(n) for n in (1, 2, 21)] == ["Up to 1 call.", "Up to 2 calls.", "Up to 21 calls."]
    assert BASE.system(1) == BASE.system(9) == BASE.spec.system


@pytest.mark.parametrize(
    ("system", "reason"),
    [
        ("At most {{ merchant }}", "unknown variable 'merchant'; this text may use: limit"),
        ("{% for i in limit %}x{% endfor %}", "a loop is not allowed"),
        ("{{ limit", "template line 1"),
        ("{% if limit != '20' %}x{% endif %}", "renders to nothing"),
    ],
)
def test_any_other_template_in_the_system_prompt_is_refused(folder: Path, system: str, reason: str) -> None:
    path = put(folder, f"extends: base\nsystem: {json.dumps(system)}\n")
    line = refused(path)
    assert line.startswith(f"{path}:2: system: ") and reason in line
