"""`tailgauge --help` against the interpreter's own start: the price of a typo.

The peer in the same run is `python -c pass`. Each is started several times in turn; the fastest counts, since
other processes can only make it slower. Prints one JSON object as its last line.
"""

import json
import subprocess
import sys
from time import perf_counter

LIMIT_SECONDS = 0.5
ROUNDS = 7


def seconds(*arguments: str) -> float:
    """Wall time of one start of the interpreter with `arguments`."""
    begun = perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return perf_counter() - begun


def main() -> int:
    rounds = [(seconds("-m", "harness.cli", "--help"), seconds("-c", "pass")) for _ in range(ROUNDS)]
    told, peer = (min(times) for times in zip(*rounds, strict=True))
    ok = told < LIMIT_SECONDS
    print(
        json.dumps(
            {
                "name": "help_time",
                "seconds": round(told, 3),
                "peer": "python -c pass",
                "peer_seconds": round(peer, 3),
                "ratio": round(told / peer, 2),
                "limit": {"seconds": LIMIT_SECONDS},
                "ok": ok,
            }
        )
    )
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
