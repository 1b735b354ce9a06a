"""A program that behaves like `vllm serve` seen from outside: slow, dying, stubborn, with a worker process.

Run as a script by the tests; takes `vllm serve`'s arguments and ignores those that it does not know.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int, required=True)
parser.add_argument("--served-model-name", default="fake")
parser.add_argument("--slow", type=float, default=0)
parser.add_argument("--die", default="")
parser.add_argument("--child", default="")
parser.add_argument("--stubborn", action="store_true")
options, _ = parser.parse_known_args()

CHUNK = {"index": 0, "text": "Hello.", "finish_reason": "stop", "token_ids": [3]}


class Handler(BaseHTTPRequestHandler):
    def answer(self, code: int, data: object, kind: str = "application/json") -> None:
        body = data.encode() if isinstance(data, str) else json.dumps(data).encode()
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        key = os.environ.get("VLLM_API_KEY") or ("unknown" if os.environ.get("FAKE_WANTS_KEY") else "")
        if self.path == "/health":
            self.answer(200, {})
        elif key and self.headers["Authorization"] != f"Bearer {key}":
            self.answer(401, {"error": "Unauthorized"})
        else:
            self.answer(200, {"data": [{"id": options.served_model_name}]})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        chunk = json.dumps({"id": "1", "object": "text_completion", "choices": [CHUNK]})
        self.answer(200, f"data: {chunk}\n\ndata: [DONE]\n\n", "text/event-stream")

    def log_message(self, format: str, *args: object) -> None: ...


if options.stubborn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if options.child:
    worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(120)"])
    Path(options.child).write_text(f"{os.getpid()} {worker.pid}")
if options.die:
    print(f"Traceback (most recent call last):\n{options.die}\nshutting down", flush=True)
    sys.exit(3)
time.sleep(options.slow)
print(f"listening, pid {os.getpid()} ", flush=True)
ThreadingHTTPServer(("127.0.0.1", options.port), Handler).serve_forever()
