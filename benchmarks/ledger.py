"""A ledger of 200 requests under eight policies, against the naive way in the same run.

The peer is what any harness would do first: render each of the 1,600 prompts with the tokenizer's own
`apply_chat_template`, encode it as a whole, and hold its token ids against every earlier prompt of the condition. It is
timed on every 20th request of each condition and counted up.

Needs the 0.5B's tokenizer (fetched on first use). Prints one JSON object as its last line; exit code 1 when a limit is
missed or a number differs from the naive one.
"""

import json
import sys
from collections.abc import Sequence
from time import perf_counter

import numpy as np
import yaml
from hydra.utils import instantiate

from harness.conditions import Condition, unfold
from harness.ledger import Arm, arms_of, bill, totals
from harness.ledger.made_up import made_up
from harness.ledger.rows import Engine, Row
from harness.paths import search_dirs
from harness.statusbar import AgentStatus, Tail
from harness.template import ChatTemplate
from harness.types import Sample
from harness.weights import WeightsSpec, load_tokenizer, resolve

REQUESTS, EVERY = 200, 20
POLICIES = ("never", "replace", "append", "on_change", "every_n", "staleness", "event", "boundary")
LIMIT_SECONDS, LIMIT_RATIO = 5.0, 5.0
ROUNDS = 3


def conditions() -> list[Condition]:
    folder = next(each for each in search_dirs("conf") if (each / "policy").is_dir()) / "policy"
    return [
        Condition(
            name, AgentStatus(), Tail(), instantiate(yaml.safe_load((folder / f"{name}.yaml").read_text()))
        )
        for name in POLICIES
    ]


def naive(sample: Sample, arm: Arm, template: ChatTemplate, rows: Sequence[Row]) -> tuple[float, bool]:
    """Seconds for all requests of the arm, and whether the ledger says the same of the timed ones."""
    delivered = list(unfold(sample, arm.condition, template.count))
    begun, same, seen = perf_counter(), True, []
    chosen = range(EVERY - 1, len(delivered), EVERY)
    for number in chosen:
        text = template.text(delivered[number].messages, sample.tools)
        ids = np.asarray(template.tokenizer(text, add_special_tokens=False)["input_ids"])
        for other in seen:  # one in twenty of the prompts that there are to compare with
            (ids[: len(other)] == other[: len(ids)]).argmin()
        seen.append(ids)
        same &= rows[number].prompt_tokens == len(ids)
    return (perf_counter() - begun) / len(chosen) * len(delivered), same


def main() -> int:
    template = ChatTemplate(load_tokenizer(resolve(WeightsSpec(embedded="qwen2.5-coder-0.5b")).path))
    sample, arms = made_up(REQUESTS), arms_of(conditions())
    template.text(sample.messages[:2], sample.tools)  # compiles the chat template
    times = []
    for _ in range(ROUNDS):
        fresh = ChatTemplate(template.tokenizer)  # nothing encoded yet
        begun = perf_counter()
        made = bill(sample, fresh, arms, Engine(16))
        totals(made, 0.1)
        times.append(perf_counter() - begun)
    seconds = min(times)
    checked = [naive(sample, arm, template, made.of(arm.name)) for arm in arms if arm.name in POLICIES]
    peer = sum(each for each, _ in checked)
    same = all(agree for _, agree in checked) and not made.whole
    ok = seconds < LIMIT_SECONDS and peer / seconds >= LIMIT_RATIO and same
    print(
        json.dumps(
            {
                "name": "ledger",
                "requests": REQUESTS,
                "policies": len(POLICIES),
                "prompts": len(made.rows),
                "seconds": round(seconds, 2),
                "peer": "each prompt rendered and encoded as a whole (apply_chat_template, the same tokenizer)",
                "peer_requests_timed": len(checked) * REQUESTS // EVERY,
                "peer_seconds": round(peer, 1),
                "ratio": round(peer / seconds, 1),
                "same_numbers": same,
                "limit": {"seconds": LIMIT_SECONDS, "ratio": LIMIT_RATIO},
                "ok": ok,
            }
        )
    )
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
