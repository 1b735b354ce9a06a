"""Claims about a server that fails: what is tried again, what is not, how each ends, and that no key gets out."""

import logging
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from core_config import REMOVE, plain
from core_samples import arms, words, xfinity
from core_tokens import tiny_template
from loopback import DONE, Asked, Comment, Cut, Event, Hang, Loopback, Reset, Status, Step, text
from server_models import good, only, reach, request, serving

from harness.config_checks import resolve
from harness.errors import ModelError, TailgaugeError
from harness.models import server as backend
from harness.models import server_faults
from harness.plan import build_plan
from harness.preflight import prepare
from harness.runlog import RunLog, read_records
from harness.runner import Setting, run_all
from harness.scorers import score_record
from harness.types import Decoding

KEY = "sk-verysecret-0123456789abcdef"
HALF = text("Half a rep")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_faults, "FIRST_WAIT_S", 0.01)


def events(*codes: int) -> list[list[Step]]:
    return [[Status(code, {"error": {"message": f"it is {code}"}})] for code in codes]


PASSING: dict[str, tuple[list[list[Step]], int]] = {
    "500 twice": (events(500, 500), 3),
    "503": (events(503), 2),
    "429 without a date": (events(429), 2),
    "cut in the middle": ([[HALF, Cut()]], 2),
    "an end without a finish reason": ([[HALF, DONE]], 2),
    "reset before the answer": ([[Reset()]], 2),
    "reset in the middle": ([[HALF, Reset()]], 2),
    "a hang before the answer": ([[Hang(1.2)]], 2),
    "a hang in the middle": ([[HALF, Hang(1.2), text("ly.", finish="stop"), DONE]], 2),
    "an error inside the stream": ([[HALF, Event({"error": {"message": "engine died", "code": 500}})]], 2),
    "aborted by the server": ([[HALF, text("", finish="abort"), DONE]], 2),
}


@pytest.mark.parametrize("name", PASSING)
def test_a_fault_of_the_transport_is_tried_again_and_leaves_no_trace(name: str) -> None:
    faults, requests = PASSING[name]
    with serving([*faults, good()], timeout_s=0.8 if "hang" in name else 20) as (model, server):
        output = only(model, request())
        assert (output.text, output.finish_reason, output.error) == ("Done.", "stop", None)
        assert len(server.asked) == requests
        assert all(asked.body == server.asked[0].body for asked in server.asked)


LASTING: dict[str, tuple[list[Step], str]] = {
    "500": (events(500)[0], "HTTP 500 from the server: it is 500"),
    "429": (events(429)[0], "HTTP 429"),
    "cut": ([HALF, Cut()], "the connection broke"),
    "reset": ([HALF, Reset()], "reset"),
    "hang": ([HALF, Hang(0.7)], "silent for 0.3 s"),
    "no end": ([HALF, DONE], "cut before the reply's end"),
}


@pytest.mark.parametrize("name", LASTING)
def test_what_stays_broken_ends_as_one_clear_error_after_a_finite_number_of_tries(name: str) -> None:
    steps, reason = LASTING[name]
    with serving([steps], timeout_s=0.3 if name == "hang" else 20, retries=1) as (model, server):
        output = only(model, request())
        assert output.finish_reason == "error" and output.error is not None
        assert reason in output.error and output.error.endswith("(tried 2 times)")
        assert (output.text, output.token_ids) == ("", ()), "nothing of a broken reply is kept"
        assert (output.usage.prompt_tokens, output.usage.completion_tokens) == (40, None)
        assert len(server.asked) == 2


FINAL: dict[str, tuple[list[Step], str]] = {
    **{
        str(code): (events(code)[0], f"HTTP {code} from the server: it is {code}") for code in (400, 401, 403)
    },
    **{str(code): (events(code)[0], f"HTTP {code}") for code in (404, 408, 409, 413, 422)},
    "malformed JSON": ([HALF, Event('{"choices": [{"te'), text("", finish="stop"), DONE], "malformed stream"),
    **{
        f"{word} as an event": ([Event(word), DONE], "malformed stream")
        for word in ("[1, 2]", "42", "null", '"x"')
    },
    "an empty choice list": ([Event({"choices": []}), Event({"choices": []}), DONE], "holds no choice"),
    "a refusal inside the stream": ([Event({"error": {"message": "too long", "code": 400}})], "too long"),
    "a filter": ([HALF, text("", finish="content_filter"), DONE], "content_filter"),
}


@pytest.mark.parametrize("name", FINAL)
def test_what_the_server_means_is_never_tried_again(name: str) -> None:
    steps, reason = FINAL[name]
    with serving([steps, good()]) as (model, server):
        output = only(model, request())
        assert output.finish_reason == "error" and reason in str(output.error)
        assert "\n" not in str(output.error)
        assert len(server.asked) == 1


def test_a_reply_that_does_not_parse_is_a_reply() -> None:
    broken = '<tool_call>\n{"name": "phone_call", "argum'
    with serving(lambda asked: good(asked, broken)) as (model, server):
        assert only(model, request()).text == broken and len(server.asked) == 1


def test_a_cut_after_the_finish_reason_costs_the_usage_alone() -> None:
    with serving([[text("Done."), text("", finish="stop"), Cut()], good()]) as (model, server):
        output = only(model, request())
        assert (output.text, output.finish_reason, len(server.asked)) == ("Done.", "stop", 1)
        assert output.usage.reported_prompt_tokens is None and output.usage.completion_tokens is None


@pytest.mark.parametrize("code", [429, 503])
def test_a_server_that_names_its_patience_is_left_alone_for_so_long(code: int) -> None:
    wait = Status(code, {}, {"Retry-After": "1"})
    with serving([[wait], good()]) as (model, server):
        assert only(model, request()).text == "Done."
        gap = server.asked[1].at - server.asked[0].at
        assert 1.0 <= gap < 4.0


def test_patience_may_be_a_date_and_is_capped(monkeypatch: pytest.MonkeyPatch) -> None:
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=2), usegmt=True)
    with serving([[Status(429, {}, {"Retry-After": soon})], good()]) as (model, server):
        assert only(model, request()).text == "Done."
        assert server.asked[1].at - server.asked[0].at > 0.5
    monkeypatch.setattr(server_faults, "MAX_RETRY_AFTER_S", 0.2)
    with serving([[Status(429, {}, {"Retry-After": "86400"})], good()]) as (model, server):
        assert only(model, request()).text == "Done."
        assert 0.2 <= server.asked[1].at - server.asked[0].at < 5.0


def test_a_server_that_is_gone_fails_its_cells_and_no_more() -> None:
    with serving([good()], retries=1) as (model, server):
        server.__exit__()
        outputs = dict(model.run([request("a"), request("b")]))
        assert sorted(outputs) == ["a", "b"]
        for output in outputs.values():
            assert output.finish_reason == "error" and "tried 2 times" in str(output.error)


def test_a_cell_that_fails_does_not_touch_its_neighbours() -> None:
    def script(asked: Asked) -> Sequence[Step]:
        return events(400)[0] if asked.body["seed"] == 3 else good(asked, f"Reply {asked.body['seed']}")

    with serving(script, concurrency=4) as (model, server):
        outputs = dict(model.run([request(str(n), seed=n) for n in range(9)]))
    assert len(outputs) == len(server.asked) == 9
    for name, output in outputs.items():
        assert (output.finish_reason == "error") == (name == "3")
        assert output.text == ("" if name == "3" else f"Reply {name}")


def test_a_lone_request_fails_as_an_output_too_and_keeps_the_time_of_the_good_try_alone() -> None:
    script = [[Hang(1.5)], [text("Done.", at=0.1, finish="stop"), DONE], *events(400)]
    with serving(script, timeout_s=1) as (model, _):
        timing = model.run_alone(request(), "natural").timing
        assert timing.total is not None and 0.1 <= timing.total < 0.8
        assert model.run_alone(request(), "natural").finish_reason == "error"


# -- without end -------------------------------------------------------------------------------------------


def drip(step: Step, *, first: Sequence[Step] = (HALF,), seconds: float = 20.0) -> Iterator[Step]:
    """Something that keeps coming, for longer than any test may last."""
    yield from first
    for _ in range(int(seconds / 0.05)):
        yield step
        yield Hang(0.05)


ENDLESS: dict[str, Step] = {
    "keep-alives": Comment(),
    "empty chunks": text(""),
    "chunks without a choice": Event({"choices": []}),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_what_brings_no_text_does_not_keep_a_request_alive(name: str) -> None:
    with serving(lambda asked: drip(ENDLESS[name]), timeout_s=0.4, retries=1) as (model, server):
        begun = time.monotonic()
        output = only(model, request())
        assert time.monotonic() - begun < 5
        assert output.finish_reason == "error" and len(server.asked) == 2
        assert output.error == "the server was silent for 0.4 s (model.server.timeout_s) (tried 2 times)"


def test_keep_alives_after_a_whole_reply_cost_the_usage_alone() -> None:
    whole = [text("Done.", finish="stop")]
    with serving(lambda asked: drip(Comment(), first=whole), timeout_s=0.4) as (model, server):
        begun = time.monotonic()
        output = only(model, request())
        assert (output.text, output.error, len(server.asked)) == ("Done.", None, 1)
        assert time.monotonic() - begun < 5


def test_text_that_comes_slowly_may_take_longer_than_the_allowed_silence() -> None:
    slow = [*(text("ab", at=0.15 * n) for n in range(8)), text("", finish="stop"), DONE]
    with serving([slow], timeout_s=0.6, retries=0) as (model, _):
        assert only(model, request()).text == "ab" * 8


def test_a_server_that_does_not_heed_the_limit_is_left() -> None:
    with serving([[*[text("a")] * 500, text("", finish="stop"), DONE]]) as (model, server):
        output = only(model, request())
        assert "max_tokens" in str(output.error) and len(server.asked) == 1


STILL: dict[str, list[Step]] = {
    "before the answer": [Hang(20)],
    "within the answer": [HALF, Hang(20)],
    "in a pause between tries": [Status(429, {}, {"Retry-After": "20"})],
}


@pytest.mark.parametrize("name", STILL)
@pytest.mark.parametrize("leave", ["batch", "model"])
def test_what_is_in_flight_ends_at_once_when_it_is_left(
    name: str, leave: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "_LEAVE_S", 10)  # so that waiting in vain would show

    def script(asked: Asked) -> Sequence[Step]:
        return good(asked) if asked.body["seed"] == 0 else STILL[name]

    with serving(script, concurrency=2, timeout_s=60) as (model, server):
        outputs = model.run([request(str(n), seed=n) for n in range(4)])
        next(outputs)
        end = time.monotonic() + 5
        while len(server.asked) < 3 and time.monotonic() < end:
            time.sleep(0.01)
        begun = time.monotonic()
        if leave == "model":
            model.close()
        outputs.close()
        while time.monotonic() - begun < 5 and in_flight():
            time.sleep(0.01)
        assert time.monotonic() - begun < 2 and not in_flight()
        assert len(server.asked) == 3, "nothing more is sent"


def in_flight() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("tailgauge-server")]


INTERRUPTED = """
import os, signal, sys, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background is born deaf to it
sys.path.insert(0, {tests!r})
from server_models import reach, request
model = reach({address!r}, timeout_s=60, concurrency=2)
def interrupt():
    while sum(thread.name.startswith("tailgauge-server") for thread in threading.enumerate()) < 2:
        time.sleep(0.05)
    time.sleep(1)
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt, daemon=True).start()
try:
    list(model.run([request("a"), request("b")]))
except KeyboardInterrupt:
    print("left", flush=True)
finally:
    model.close()
"""


def test_ctrl_c_ends_the_interpreter_while_the_server_is_silent() -> None:
    with Loopback([[HALF, Hang(30)]]) as server:
        program = INTERRUPTED.format(tests=str(Path(__file__).parent), address=server.address)
        child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        try:
            assert child.stdout is not None and child.stdout.readline() == "left\n"
            begun = time.monotonic()
            assert child.wait(20) == 0
            assert time.monotonic() - begun < 3
        finally:
            child.kill()
            child.wait()


# -- keys --------------------------------------------------------------------------------------------------

ECHOES: dict[str, list[Step]] = {
    "in a 401": [Status(401, {"error": {"message": f"Incorrect API key provided: {KEY}."}})],
    "in part": [Status(400, {"error": {"message": f"Key {KEY[:14]}… is not known"}})],
    "in a page": [Status(502, f"<html>Authorization: Bearer {KEY}</html>")],
    "in a stream": [HALF, Event({"error": {"message": f"bad key {KEY}", "code": 400}})],
    "in a broken stream": [Event(f'{{"key": "{KEY}')],
}


def everything_about(error: BaseException | None) -> str:
    """A traceback with every exception that hangs behind it, suppressed ones too."""
    told = []
    while error is not None:
        told += [*traceback.format_exception(error, chain=False), repr(vars(error))]
        error = error.__cause__ or error.__context__
    return "".join(told)


@pytest.mark.parametrize("name", ECHOES)
def test_a_key_that_the_server_echoes_gets_nowhere(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SOME_KEY", KEY)
    caplog.set_level(logging.DEBUG)
    for logger in ("openai", "httpx", "httpx2", "httpcore", "httpcore2"):
        caplog.set_level(logging.DEBUG, logger)
    with serving([ECHOES[name]], api_key_env="SOME_KEY", retries=0) as (model, server):
        output = only(model, request())
        assert server.asked[0].headers["authorization"] == f"Bearer {KEY}", "the server itself does get it"
        assert output.finish_reason == "error" and output.error
        told = f"{output!r} {model!r} {model.facts} {vars(model)!r} {model._connection!r}"
    assert KEY[:10] not in told and KEY[-8:] not in told
    assert caplog.records, "the client does log, only not this"
    assert KEY[:10] not in caplog.text


def test_no_key_stands_behind_the_error_of_a_server_that_lets_nobody_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SOME_KEY", KEY)
    refusal = Status(401, {"error": {"message": f"Incorrect API key provided: {KEY}"}})
    with (
        Loopback(models=refusal) as server,
        pytest.raises(ModelError, match=r"check the key in \$SOME_KEY") as error,
    ):
        reach(server.address, api_key_env="SOME_KEY")
    assert KEY[:10] not in everything_about(error.value)


# -- at the start --------------------------------------------------------------------------------------------


def refused(**settings: Any) -> str:
    with pytest.raises(TailgaugeError) as error:
        reach(**settings)
    assert isinstance(error.value, ModelError)
    return str(error.value)


def test_a_dead_address_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_faults, "FIRST_WAIT_S", 30)
    with Loopback() as server:
        address = server.address
    begun = time.monotonic()
    assert "connection refused" in refused(address=address)
    assert time.monotonic() - begun < 5


def test_a_server_that_still_loads_is_waited_for() -> None:
    with Loopback([good()]) as server:
        server.models = Status(503, {"error": {"message": "loading"}}, {"Retry-After": "0.3"})
        timer = threading.Timer(0.15, lambda: setattr(server, "models", ["late"]))
        timer.start()
        model = reach(server.address)
        assert model.facts["model"] == "late"
        model.close()


def test_the_start_says_what_to_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    with Loopback(models=["one", "two"]) as server:
        there = server.address
        assert "model.server.model" in refused(address=there)
        assert "it serves one, two" in refused(address=there, model="three")
        assert "does the address end in /v1" in refused(address=there.removesuffix("/v1"))
        assert "NO_SUCH_KEY" in refused(address=there, api_key_env="NO_SUCH_KEY")
        model = reach(there, model="two")
        assert model.facts == {
            "backend": "server", "kind": "vllm", "api": "completions", "address": there, "model": "two",
            "started": False, "max_model_len": 4096, "version": "9.9",
        }  # fmt: skip
        model.close()
    told = refused(address="http://me:hunter2hunter2@127.0.0.1:1/v1")
    assert "password" in told and "hunter2" not in told
    assert "api=chat" in refused(address="http://127.0.0.1:1/v1", kind="ollama")
    assert "only vllm is started" in refused(address=None, kind="sglang")
    assert "thinking=prompted" in refused(
        address="http://127.0.0.1:1/v1", api="chat", model_thinking="prompted"
    )
    assert "tool_call_parser" in refused(address=None, api="chat")


# -- a whole run -----------------------------------------------------------------------------------------------


def test_a_run_over_a_failing_server_logs_every_cell_and_mends_the_failed_ones(tmp_path: Path) -> None:
    template = tiny_template()
    plan = build_plan(resolve(plain(probe__choose=REMOVE)), xfinity(), words)
    ready = prepare(plan, template, arms(), {"act": Decoding(8)})
    bars = {c.name: (c.bar_name, c.placement_name) for c in arms()}
    setting = Setting("xfinity", "scripted", "off", bars, template, score_record)
    cells = len(ready.cell_order)
    faults = [
        *events(400, 500),
        [HALF, Cut()],
        [Reset()],
        [Event({"choices": []}), DONE],
        [Event("{")],
        *events(429),
    ]
    begun: list[int] = []

    def script(asked: Asked) -> Sequence[Step]:
        begun.append(1)
        # Every third request of the first pass fails, each time in another way.
        if len(begun) % 3 == 0 and len(begun) <= cells:
            return faults[len(begun) // 3 % len(faults)]
        return good(asked, "I will not call.")

    def go() -> list[Any]:
        with (
            serving(script, retries=0, concurrency=3) as (model, _),
            RunLog.open(tmp_path, {}, {"k": 1}) as log,
        ):
            run_all(ready, model, log, setting, alone=None, progress=lambda done, total: None)
        return list(read_records(tmp_path))

    first = go()
    failed = [r for r in first if r.output.finish_reason == "error"]
    assert sorted(r.cell_id for r in first) == sorted(ready.cell_order)
    assert len(failed) == cells // 3
    assert {r.score.outcome for r in failed} == {"provider_error"}
    assert all(r.output.error and r.parsed is None for r in failed)
    second = go()
    assert sorted(r.cell_id for r in second) == sorted(ready.cell_order)
    assert all(r.output.finish_reason == "stop" for r in second)
