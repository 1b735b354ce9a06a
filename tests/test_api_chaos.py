"""Whatever happens on the way to a provider: no cell is lost, none is paid twice, and the table is that of a quiet run."""

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from api_faults import Cut, Duplicates, Fault, Malformed, Reset, Silence, Skewed, Status, Trickle, WrongType
from api_runs import KEY, VARIABLE, bench, compute, serve, told
from api_server import Seen

from harness.errors import ModelError
from harness.models import server_faults

PROVIDERS = ["openai-chat", "openai-responses", "anthropic", "gemini"]
Plan = Callable[[Seen], Fault | None]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits between tries are shortened, not left out."""
    monkeypatch.setenv(VARIABLE, KEY)
    monkeypatch.setattr(server_faults, "FIRST_WAIT_S", 0.01)
    monkeypatch.setattr(server_faults, "MAX_WAIT_S", 0.2)


def first_try(*faults: Fault | None) -> Plan:
    """One of the faults for the first try of each request, in turn; the tries after it are answered."""
    tried: set[str] = set()
    turn = iter(range(10**6))

    def plan(seen: Seen) -> Fault | None:
        if seen.mark in tried:
            return None
        tried.add(seen.mark)
        return faults[next(turn) % len(faults)]

    return plan


def storm(share: float, seed: int, *faults: Fault) -> Plan:
    """Each try is hit with this probability, so that some requests are hit several times."""
    chance = random.Random(seed)
    return lambda seen: chance.choice(faults) if chance.random() < share else None


SLOW = {"retry-after": "0.05"}
CHAOS: dict[str, Callable[[], Plan]] = {
    "429 storm": lambda: storm(0.5, 1, Status(429, "slow down", tuple(SLOW.items()))),
    "5xx": lambda: storm(0.4, 2, Status(500), Status(502), Status(503), Status(504)),
    "overloaded": lambda: first_try(Status(529, "Overloaded"), None),
    "resets in the stream": lambda: first_try(Reset(2), Reset(0), None),
    "early ends": lambda: first_try(Cut(1), Cut(3), None),
    "slow trickle": lambda: first_try(Trickle(), None, None, None),
    "malformed JSON": lambda: first_try(Malformed(1), Malformed(2), None),
    "wrong content type": lambda: first_try(WrongType(), None),
    "clock skew": lambda: first_try(
        Skewed(86_400), Skewed(-86_400), Status(429, "slow down", (("retry-after", "0"),))
    ),
    "all at once": lambda: storm(
        0.5,
        3,
        Status(429),
        Status(503),
        Reset(2),
        Cut(2),
        Malformed(1),
        WrongType(),
        Trickle(64),
        Skewed(-1e6),
    ),
}


@pytest.fixture(scope="session")
def quiet(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, object]]:
    """The table of an undisturbed run, once per provider."""
    known: dict[str, dict[str, object]] = {}

    def of(provider: str) -> dict[str, object]:
        if provider not in known:
            folder = tmp_path_factory.mktemp(provider)
            with serve(provider) as server:
                made = bench(provider, server.address, tiny_model)
                tally = compute(made, folder)
                assert server.refused == [] and tally.failed == 0
                assert len(server.seen) == tally.cells == len(made.preflight.cell_order)
            known[provider] = told(folder)
        return known[provider]

    return of


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("chaos", CHAOS)
def test_a_run_through_chaos_ends_with_the_table_of_a_quiet_one(
    provider: str, chaos: str, quiet: Callable[[str], dict[str, object]], tiny_model: Path, tmp_path: Path
) -> None:
    expected = quiet(provider)
    with serve(provider, faults=CHAOS[chaos]()) as server:
        made = bench(provider, server.address, tiny_model, "model.api.retries=12")
        tally = compute(made, tmp_path)
        assert server.refused == []
        answered = Counter(server.answered)
        assert len(server.seen) > tally.cells or chaos in ("slow trickle", "clock skew")
    assert told(tmp_path) == expected  # no cell is lost, and every one is what it was
    assert tally.cells == len(expected)  # one row each: nothing is counted, and so billed, twice
    # A provider that heeds the idempotency key bills these once; each is answered in full at most once.
    assert len(answered) == tally.cells and set(answered.values()) == {1}


@pytest.mark.parametrize("provider", ["openai-responses", "anthropic"])
def test_events_that_come_twice_count_once(
    provider: str, quiet: Callable[[str], dict[str, object]], tiny_model: Path, tmp_path: Path
) -> None:
    """APIs that number their events, or say where a block begins and ends."""
    expected = quiet(provider)
    with serve(provider, faults=lambda seen: Duplicates()) as server:
        compute(bench(provider, server.address, tiny_model), tmp_path)
    assert told(tmp_path) == expected


def test_a_silent_provider_is_given_up_and_asked_again(
    quiet: Callable[[str], dict[str, object]], tiny_model: Path, tmp_path: Path
) -> None:
    with serve("openai-chat", faults=[Silence(1, 8.0), Silence(2, 8.0)]) as server:
        made = bench("openai-chat", server.address, tiny_model, "model.api.timeout_s=0.4")
        tally = compute(made, tmp_path)
    assert tally.failed == 0 and told(tmp_path) == quiet("openai-chat")


def test_an_outage_leaves_a_run_that_goes_on_from_where_it_was(tiny_model: Path, tmp_path: Path) -> None:
    def gone_after(seen: Seen) -> Fault | None:
        return Status(503, "down for maintenance") if seen.number >= 6 else None

    given = ("probe.act.series.matched.clusters=6", "model.api.retries=1", "model.api.concurrency=2")
    with serve("openai-chat") as server:
        compute(bench("openai-chat", server.address, tiny_model, *given), tmp_path / "quiet")
    with serve("openai-chat", faults=gone_after) as server:
        made = bench("openai-chat", server.address, tiny_model, *given)
        with pytest.raises(ModelError, match=r"12 cells in a row.*maintenance.*same command"):
            compute(made, tmp_path / "run")
        good = len(server.answered)
    assert 0 < good < len(made.preflight.cell_order)
    with serve("openai-chat") as server:
        compute(bench("openai-chat", server.address, tiny_model, *given), tmp_path / "run")
        again = len(server.seen)
    assert told(tmp_path / "run") == told(tmp_path / "quiet")
    assert good + again == len(made.preflight.cell_order)  # what was answered is not asked, nor paid, again


def test_a_request_that_the_provider_refuses_is_not_tried_again(tiny_model: Path, tmp_path: Path) -> None:
    with serve(
        "openai-chat", faults=lambda seen: Status(400, "context too long") if seen.number == 0 else None
    ) as server:
        made = bench("openai-chat", server.address, tiny_model)
        tally = compute(made, tmp_path)
        assert len(server.seen) == tally.cells and tally.failed == 1


def test_a_key_that_is_not_taken_ends_the_run_with_the_first_request(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve(
        "openai-chat", faults=lambda seen: Status(401, "Incorrect API key provided: sk-te***a63")
    ) as server:
        made = bench("openai-chat", server.address, tiny_model, "model.api.concurrency=1")
        with pytest.raises(ModelError, match="HTTP 401"):
            compute(made, tmp_path)
        assert len(server.seen) == 1
    assert told(tmp_path) == {}


def test_while_the_provider_refuses_fewer_requests_are_in_flight(tiny_model: Path, tmp_path: Path) -> None:
    with serve("openai-chat", delay=0.02, faults=[Status(429)] * 8) as server:
        made = bench(
            "openai-chat", server.address, tiny_model, "model.api.concurrency=16", "model.api.retries=12"
        )
        compute(made, tmp_path)
        late = [seen.at for seen in server.seen]
    assert late and server.most_at_once <= 16
