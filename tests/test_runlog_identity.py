"""Names that stay inside results/, digests that mean the configuration, and secrets that stay out."""

import json
import string
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import RunLogError
from harness.runlog import (
    config_digest,
    differences,
    provenance,
    read_manifest,
    redact,
    run_folder,
    run_id,
    safe_name,
    update_manifest,
)
from harness.runlog.manifest import write_manifest
from harness.runlog.redact import MASK

HOSTILE = st.text(
    st.characters() | st.sampled_from("/\\.\0\n~- \u202e\u2028"), max_size=20
) | st.sampled_from(
    ["../../x", "..", ".", "", "/etc/passwd", "a/b", "a\\b", "a\0b", "x" * 121, "..\u200b", "-rf", "~root"]
)


@given(HOSTILE)
def test_a_name_either_stays_one_folder_inside_results_or_is_refused(name: str) -> None:
    results = Path("/somewhere/results")
    try:
        folder = results / safe_name(name)
    except RunLogError as error:
        assert "\n" not in str(error) and str(error).isprintable()
        return
    assert folder.parent == results and folder.name == name
    assert Path(*folder.resolve().parts).is_relative_to(results) and folder.resolve() != results
    assert name.isprintable() and len(name.encode()) <= 120


@given(st.text(string.ascii_letters + string.digits + "_", min_size=1, max_size=40))
def test_an_ordinary_name_passes_as_it_is(name: str) -> None:
    assert safe_name(name) == name


@pytest.mark.parametrize("name", ["../../x", "..", ".", "", ".git", "/x", "a/../b", "a\nb", "a\u202eb", " a"])
def test_an_experiment_with_a_dangerous_name_makes_no_folder(name: str) -> None:
    with pytest.raises(RunLogError, match="cannot be a folder"):
        run_folder(Path("results"), name, "ablate", {})
    with pytest.raises(RunLogError, match="cannot be a folder"):
        run_id(name, {})


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(string.ascii_lowercase, max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcdef"), inner, max_size=4),
)


@given(st.dictionaries(st.sampled_from("abcdef"), PLAIN), st.randoms(use_true_random=False))
def test_the_digest_depends_on_the_content_and_not_on_the_order(config, random) -> None:  # type: ignore[no-untyped-def]
    keys = list(config)
    random.shuffle(keys)
    assert config_digest({key: config[key] for key in keys}) == config_digest(config)
    assert config_digest({**config, "more": 1}) != config_digest(config)
    assert len(config_digest(config)) == 10 and int(config_digest(config), 16) >= 0


@given(PLAIN, PLAIN)
def test_two_configurations_differ_exactly_when_a_key_is_named(old: object, new: object) -> None:
    same = json.dumps(old, sort_keys=True) == json.dumps(new, sort_keys=True)
    assert (differences({"k": old}, {"k": new}) == {}) == same


def test_differences_name_dotted_keys_with_old_and_new() -> None:
    old = {"model": {"name": "a", "layers": [1, 2]}, "gone": 1, "same": 0}
    new = {"model": {"name": "b", "layers": [1, 3]}, "same": 0, "come": {"x": 1}}
    assert differences(old, new) == {
        "model.name": ("a", "b"),
        "model.layers[1]": (2, 3),
        "gone": (1, "(absent)"),
        "come": ("(absent)", {"x": 1}),
    }


def test_true_one_and_one_point_zero_are_three_settings() -> None:
    for old, new in ((1, True), (1, 1.0), (0, False), ("1", 1), (None, "")):
        assert differences({"a": old}, {"a": new}) == {"a": (old, new)}
        assert config_digest({"a": old}) != config_digest({"a": new})


def test_a_new_api_key_is_no_new_experiment() -> None:
    assert config_digest({"m": {"api_key": "one"}}) == config_digest({"m": {"api_key": "two"}})
    assert config_digest({"rule": {"key": "merchant"}}) != config_digest({"rule": {"key": "city"}})


def test_a_configuration_that_is_no_plain_data_is_refused_with_its_key() -> None:
    with pytest.raises(RunLogError, match=r"model\.lr cannot be written"):
        config_digest({"model": {"lr": float("nan")}})
    with pytest.raises(RunLogError, match=r"model\.path cannot be written"):
        config_digest({"model": {"path": Path("x")}})


@pytest.mark.parametrize(
    "key",
    [
        "api_key", "apiKey", "OPENAI_API_KEY", "apikey", "hf_token", "token", "auth-token", "accessToken",
        "secret", "client_secret", "password", "db.password", "passwd", "Authorization", "private_key",
        "api_keys", "key",
    ],
)  # fmt: skip
def test_a_value_under_a_secret_name_never_reaches_the_manifest(key: str) -> None:
    value = "Hunter2-Pa55"
    for config in ({key: value}, {"a": [{key: value}]}, {key: [value]}, {key: {"value": value}}):
        assert value not in json.dumps(redact(config))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("max_new_tokens", 64), ("token_ids", [1, 2]), ("tokens", "many"), ("eos_token", "<|im_end|>"),
        ("pad_token", "<pad>"), ("key", "merchant"), ("api_key_env", "OPENAI_API_KEY"), ("tokenizer", "qwen"),
        ("prompt_tokens", 3), ("keys", ["a", "b"]), ("monkey", "ape"), ("skip_special_tokens", True),
        ("cached_tokens", None), ("cache_key", "abc"), ("sk", "task-with-a-long-name-inside"),
        ("secretary", "Ann"), ("text", "the bearer of it"), ("state", "key=Xfinity, token=12"),
        ("args", ["run", "probe.max_new_tokens=64", "model.eos=x"]),
    ],
)  # fmt: skip
def test_words_of_the_field_that_sound_secret_stay_readable(key: str, value: object) -> None:
    assert redact({key: value}) == {key: value}


@pytest.mark.parametrize(
    "secret",
    [
        "sk-abcdEFGH1234ijkl5678", "sk-ant-api03-AbC_dEf-123456789", "hf_AbCdEfGhIjKlMnOpQr",
        "AKIAIOSFODNN7EXAMPLE", "Bearer abc.DEF-123456", "ghp_abcdefghijklmnopqrst123456",
        "AIzaSyA1234567890abcdefghijklmnop",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc123",
    ],
)  # fmt: skip
def test_what_looks_like_a_key_is_masked_wherever_it_stands(secret: str) -> None:
    hidden = secret.removeprefix("Bearer ")
    for config in ({"note": secret}, {"args": ["run", f"x={secret}"]}, {"a": {"b": f"use ({secret}) now"}}):
        masked = json.dumps(redact(config))
        assert hidden not in masked and MASK in masked


def test_a_key_on_the_command_line_or_in_an_address_is_masked() -> None:
    given_ = ["model.api_key=abc", "https://me:pa55@host/v1?token=xyz9&n=3", "password=x"]
    assert redact(given_) == ["model.api_key=***", "https://***@host/v1?token=***&n=3", "password=***"]


@given(
    st.dictionaries(
        st.sampled_from(["api_key", "note", "password", "n"]), st.text(max_size=12) | st.integers()
    )
)
def test_masking_twice_changes_nothing_more(config: dict[str, object]) -> None:
    assert redact(redact(config)) == redact(config)


def test_a_manifest_is_updated_field_by_field_and_never_holds_a_secret(tmp_path: Path) -> None:
    write_manifest(tmp_path, {"a": 1, "b": {"c": "ü\udc80"}})
    update_manifest(tmp_path, end="now", argv=["model.api_key=abc123"])
    assert read_manifest(tmp_path) == {
        "a": 1, "b": {"c": "ü\udc80"}, "end": "now", "argv": ["model.api_key=***"],
    }  # fmt: skip
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]


def test_a_broken_or_missing_manifest_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(RunLogError, match=r"manifest\.json: no such file"):
        read_manifest(tmp_path)
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(RunLogError, match=r"manifest\.json: not valid JSON"):
        read_manifest(tmp_path)


def test_provenance_says_what_there_is_and_loads_nothing_heavy() -> None:
    had_torch = "torch" in sys.modules
    told = provenance()
    assert ("torch" in sys.modules) == had_torch
    assert json.loads(json.dumps(told)) == told
    assert told["python"].startswith("3.") and told["cpu"]["count"] >= 1 and told["memory_bytes"] > 2**20
    assert told["packages"]["pyarrow"]
    if not had_torch:
        assert told["gpus"] is None
