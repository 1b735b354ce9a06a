"""A run on a provider's API beside the bare vendor's client: what retries, gate, purse, parsing and the run log cost.

A server in a process of its own speaks chat completions on loopback and answers after 100 ms, streamed. 2,000 cells of
real prompts go to it with 64 in flight: once through the whole of a run (engine, scoring, run log), once by the vendor's
client in 64 threads that send the same bodies and read the streams to their end. In turns, three times; the figure is
the median of the three ratios of wall time. Memory is the growth of the process over the first run.

    python benchmarks/api_overhead.py [--cells 2000] [--in-flight 64]

Prints one line of JSON last; exits 1 when a limit is missed.
"""

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

LIMIT = 1.3
LIMIT_MB = 300
DELAY_S = 0.1
ROUNDS = 3
_ROWS = (
    {"delta": {"role": "assistant", "content": ""}, "finish_reason": None},
    *(
        {"delta": {"content": piece}, "finish_reason": None}
        for piece in ("I can", "'t call", " them", " again", ".")
    ),
    {"delta": {}, "finish_reason": "stop"},
)


def reply() -> bytes:
    """One whole response."""
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "loopback"}
    rows = [{**head, "choices": [{"index": 0, **row}]} for row in _ROWS]
    usage = {"prompt_tokens": 900, "completion_tokens": 7, "total_tokens": 907}
    events = [json.dumps(row) for row in (*rows, {**head, "choices": [], "usage": usage})]
    body = "".join(f"data: {event}\n\n" for event in (*events, "[DONE]")).encode()
    lines = f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: {len(body)}\r\n\r\n"
    return lines.encode() + body


async def serve() -> None:
    """Answers every POST after DELAY_S; prints its port first."""
    whole = reply()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.lower().split(b"\r\n")
                length = next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), 0)
                await reader.readexactly(length)
                await asyncio.sleep(DELAY_S)
                writer.write(whole)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0, backlog=512)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextmanager
def served() -> Iterator[str]:
    """The server's address while it runs."""
    with subprocess.Popen(
        [sys.executable, __file__, "--serve"], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        finally:
            process.kill()


def bench_of(address: str, cells: int, in_flight: int) -> Any:
    """A run's bench of so many cells: real prompts, repeated under cell names of their own."""
    from harness.commands.build import Bench, build
    from harness.compose import compose
    from harness.preflight import Preflight, ReadyBatch

    config = compose(
        [
            "model=openai-chat",
            f"model.api.address={address}",
            "probe=[act]",
            f"model.api.concurrency={in_flight}",
        ]
    )
    made = build(config, lambda *_: None)
    there = [ready for batch in made.preflight.batches for ready in batch.cells]
    many = []
    for number in range(cells):
        ready = there[number % len(there)]
        cell = replace(ready.cell, epoch=number // len(there))
        many.append(replace(ready, cell=cell, request=replace(ready.request, cell_id=cell.id)))
    preflight = Preflight((ReadyBatch(0, tuple(many)),), ())
    return Bench(made.config, made.scenario, made.weights, made.template, made.conditions, preflight)


def ours(bench: Any) -> float:
    """Seconds of the whole run."""
    from harness.commands.api_session import open_model
    from harness.lots import run_lots
    from harness.runlog import RunLog
    from harness.runner import Setting, Tally
    from harness.scorers import score_record

    bars = {c.name: (c.bar_name, c.placement_name) for c in bench.conditions}
    setting = Setting(bench.scenario.name, "loopback", "off", bars, bench.template, score_record)
    tally = Tally()
    with tempfile.TemporaryDirectory() as folder, RunLog.open(Path(folder) / "run", {}, {}) as log:
        model = open_model(bench, log)
        begun = perf_counter()
        run_lots(bench.preflight, model, log, setting, progress=lambda *_: None, tally=tally)
        seconds = perf_counter() - begun
        model.close()
    assert tally.failed == 0 and tally.cells == len(bench.preflight.cell_order)
    return seconds


def bare(bodies: Sequence[dict[str, Any]], address: str, in_flight: int) -> float:
    """Seconds of the vendor's client with the same bodies."""
    import openai

    client = openai.OpenAI(
        api_key="none",
        base_url=address,
        max_retries=0,
        http_client=openai.DefaultHttpxClient(limits=openai.DEFAULT_CONNECTION_LIMITS, trust_env=False),
    )

    def ask(body: dict[str, Any]) -> int:
        with client.chat.completions.create(**body) as stream:
            return sum(1 for _ in stream)

    begun = perf_counter()
    with ThreadPoolExecutor(in_flight) as pool:
        chunks = list(pool.map(ask, bodies))
    seconds = perf_counter() - begun
    client.close()
    assert chunks == [len(_ROWS) + 1] * len(bodies)
    return seconds


def bodies_of(bench: Any) -> list[dict[str, Any]]:
    """What the engine sends, cell by cell."""
    from harness.models.api.engine import ApiModel
    from harness.models.api.open import open_session

    session = open_session(bench.config.model.api)
    model = ApiModel(bench.config.model, session)
    requests = [ready.request for batch in bench.preflight.batches for ready in batch.cells]
    bodies = [session.provider.body(model.call_of(request)) for request in requests]
    model.close()
    return bodies


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cells", type=int, default=2000)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--serve", action="store_true")
    given = parser.parse_args()
    if given.serve:
        asyncio.run(serve())
        return 0
    with served() as address:
        bench = bench_of(address, given.cells, given.in_flight)
        bodies = bodies_of(bench)
        bare(bodies[:200], address, given.in_flight)  # both arms find everything imported
        ours(replace(bench, preflight=replace(bench.preflight, batches=(_some(bench, 200),))))
        before = _resident()
        pairs = []
        grown = 0.0
        for number in range(ROUNDS):
            mine = ours(bench)
            if number == 0:
                grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before) / 1e6
            theirs = bare(bodies, address, given.in_flight)
            pairs.append((mine, theirs))
            print(f"round {number + 1}: ours {mine:.2f} s, bare client {theirs:.2f} s", file=sys.stderr)
    ratio = median(mine / theirs for mine, theirs in pairs)
    ok = ratio <= LIMIT and grown < LIMIT_MB
    figures = {
        "name": "api_overhead",
        "cells": given.cells,
        "in_flight": given.in_flight,
        "delay_s": DELAY_S,
        "ours_s": round(median(mine for mine, _ in pairs), 3),
        "peer": "openai client in threads",
        "peer_s": round(median(theirs for _, theirs in pairs), 3),
        "ratio": round(ratio, 3),
        "grown_mb": round(grown, 1),
        "limit": {"ratio": LIMIT, "grown_mb": LIMIT_MB},
        "ok": ok,
    }
    print(json.dumps(figures))
    return 0 if ok else 1


def _some(bench: Any, count: int) -> Any:
    batch = bench.preflight.batches[0]
    return replace(batch, cells=batch.cells[:count])


def _resident() -> float:
    """Bytes in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    raise SystemExit(main())
