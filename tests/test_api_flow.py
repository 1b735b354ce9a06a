"""The gate opens for as many requests as the provider bears; the purse lets none out that might not be paid for."""

import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.models.api.faults import Limits, limits_of, span
from harness.models.api.flow import Gate
from harness.models.api.purse import Purse, SpentError
from harness.models.server_faults import TransportError


def never() -> bool:
    return False


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_refusal_halves_the_limit_and_a_storm_of_them_counts_once() -> None:
    clock = Clock()
    gate = Gate(64, clock)
    for _ in range(20):
        gate.refused(None)
    assert gate.limit == 32
    clock.now += 2
    gate.refused(None)
    assert gate.limit == 16 and gate.least == 16


def test_the_limit_never_falls_below_one_request() -> None:
    clock = Clock()
    gate = Gate(4, clock)
    for _ in range(10):
        clock.now += 5
        gate.refused(None)
    assert gate.limit == 1
    with gate.slot(never):
        assert gate.in_flight == 1


def test_good_answers_open_the_gate_again_by_one_a_round_and_never_beyond_what_was_allowed() -> None:
    clock = Clock()
    gate = Gate(8, clock)
    gate.refused(None)
    assert gate.limit == 4
    for _ in range(4):
        gate.answered(Limits())
    assert 4.8 < gate.limit <= 5
    for _ in range(200):
        gate.answered(Limits())
    assert gate.limit == 8


def test_a_wait_that_the_provider_asks_for_holds_for_every_request() -> None:
    gate = Gate(8)
    gate.refused(0.3)
    begun = time.monotonic()
    with gate.slot(never):
        assert time.monotonic() - begun >= 0.29


def test_an_answer_that_says_nothing_is_left_closes_the_gate_until_there_is_more() -> None:
    gate = Gate(8)
    gate.answered(Limits(remaining=0, reset=0.25))
    begun = time.monotonic()
    with gate.slot(never):
        assert time.monotonic() - begun >= 0.24


def test_no_more_are_in_flight_than_the_limit_says() -> None:
    gate, most, now, lock = Gate(5), 0, 0, threading.Lock()

    def work() -> None:
        nonlocal most, now
        for _ in range(10):
            with gate.slot(never):
                with lock:
                    now += 1
                    most = max(most, now)
                time.sleep(0.001)
                with lock:
                    now -= 1

    threads = [threading.Thread(target=work) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 5 and gate.in_flight == 0


def test_a_request_that_waits_at_the_gate_leaves_when_the_run_is_stopped() -> None:
    gate, stopped = Gate(1), threading.Event()
    threading.Timer(0.1, stopped.set).start()
    with gate.slot(never), pytest.raises(TransportError, match="stopped"), gate.slot(stopped.is_set):
        pass


# -- money -----------------------------------------------------------------------------------------------


def test_a_request_that_might_pass_the_cap_is_not_sent() -> None:
    purse = Purse(1.0, 0.7)
    purse.set_aside(0.3, never)
    purse.settle(0.3, 0.05)
    assert purse.spent == pytest.approx(0.75)
    with pytest.raises(SpentError):
        purse.set_aside(0.3, never)


def test_a_request_waits_while_only_what_is_set_aside_stands_in_its_way() -> None:
    purse = Purse(1.0)
    purse.set_aside(0.9, never)
    threading.Timer(0.1, lambda: purse.settle(0.9, 0.1)).start()
    begun = time.monotonic()
    purse.set_aside(0.5, never)
    assert time.monotonic() - begun >= 0.09


def test_an_unknown_cost_counts_as_the_most_it_can_have_been() -> None:
    purse = Purse(1.0)
    purse.set_aside(0.4, never)
    purse.settle(0.4, None)
    assert purse.spent == pytest.approx(0.4)


@given(st.lists(st.tuples(st.floats(0.01, 2.0), st.floats(0, 1)), max_size=40), st.floats(0.1, 10))
def test_the_cap_is_never_passed(requests: list[tuple[float, float]], cap: float) -> None:
    purse = Purse(cap)
    for most, share in requests:
        try:
            purse.set_aside(most, never)
        except SpentError:
            continue
        purse.settle(most, most * share)
        assert purse.spent <= cap * (1 + 1e-9)


def test_without_a_cap_nothing_is_held_back() -> None:
    purse = Purse(None)
    for _ in range(5):
        purse.set_aside(1e9, never)


# -- what headers say ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1s", 1), ("6m0s", 360), ("20ms", 0.02), ("34.5s", 34.5), ("1h2m3s", 3723), ("2d", 172800)],
)
def test_spans_are_read_in_every_unit(text: str, seconds: float) -> None:
    assert span(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "soon", "5 apples", "12"])
def test_what_is_no_span_is_none(text: str) -> None:
    assert span(text) is None


def test_retry_after_is_read_as_seconds_milliseconds_and_date() -> None:
    assert limits_of({"retry-after": "7"}).retry_after == 7
    assert limits_of({"retry-after-ms": "1500", "retry-after": "7"}).retry_after == 1.5
    headers = {"retry-after": "Wed, 21 Oct 2026 07:28:30 GMT", "date": "Wed, 21 Oct 2026 07:28:00 GMT"}
    assert limits_of(headers).retry_after == 30


def test_a_clock_that_is_a_day_off_does_not_change_a_wait() -> None:
    """The moment is held against the response's own date, here a day in the future."""
    headers = {
        "date": "Thu, 22 Oct 2026 07:28:00 GMT",
        "anthropic-ratelimit-requests-remaining": "0",
        "anthropic-ratelimit-requests-reset": "2026-10-22T07:28:12Z",
    }
    assert limits_of(headers) == Limits(None, 0, 12.0)


def test_the_window_that_is_nearest_its_end_counts() -> None:
    headers = {
        "x-ratelimit-remaining-requests": "50",
        "x-ratelimit-reset-requests": "1s",
        "x-ratelimit-remaining-tokens": "0",
        "x-ratelimit-reset-tokens": "6m0s",
    }
    assert limits_of(headers) == Limits(None, 0, 360.0)


@pytest.mark.parametrize("value", ["", "soon", "-3", "nan", "1e400", "Wed, 99 Foo 2026"])
def test_headers_that_say_nothing_sensible_do_no_harm(value: str) -> None:
    told = limits_of({"retry-after": value, "x-ratelimit-remaining-requests": value, "date": value})
    assert told.retry_after is None or told.retry_after >= 0
