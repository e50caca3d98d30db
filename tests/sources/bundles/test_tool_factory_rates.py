"""So many calls in any minute, and what is said to the one too many."""

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from onetool.core.errors import ToolFailure
from onetool.sources.bundles import rate_limits as rates
from onetool.sources.bundles.rate_limits import RateLimiter


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def allowed(rates, tool, limit):
    try:
        rates.take(tool, limit)
    except ToolFailure:
        return False
    return True


def test_the_window_slides(clock):
    rates = RateLimiter(clock=clock)
    for at, fits in (
        (0, True),
        (20, True),
        (40, True),
        (59.9, False),
        (60, True),
        (79, False),
        (80, True),
        (80, False),
    ):
        clock.now = 1000.0 + at
        assert allowed(rates, "a", 3) is fits, at


def test_whoever_is_refused_is_told_when(clock):
    rates = RateLimiter(clock=clock)
    rates.take("a", 1)
    clock.now += 17.5
    with pytest.raises(ToolFailure, match="once a minute") as caught:
        rates.take("a", 1)
    assert caught.value.reason == "rate_limited"
    assert caught.value.hints == ("try again in 43 s",)
    assert rates.left("a", 1) == (1, 0, 42.5)
    assert rates.left("a", 2) == (2, 1, 42.5)
    assert rates.left("b", 1) == (1, 1, 0)
    clock.now += 42.5
    rates.take("a", 1)


def test_a_refused_call_does_not_count(clock):
    rates = RateLimiter(clock=clock)
    rates.take("a", 1)
    for _ in range(50):
        clock.now += 1
        assert not allowed(rates, "a", 1)
    clock.now += 10
    rates.take("a", 1)


def test_tools_do_not_share(clock):
    rates = RateLimiter(clock=clock)
    rates.take("a", 1)
    rates.take("b", 1)


def test_a_limit_that_was_lowered(clock):
    rates = RateLimiter(clock=clock)
    for _ in range(10):
        rates.take("a", 10)
        clock.now += 1
    assert rates.left("a", 3).reset_s == pytest.approx(57)  # until only two of them are left


def test_large_limits_are_exact_in_number_and_small_in_memory(clock):
    log = RateLimiter(clock=clock)
    limit = 20_000
    done = 0
    for step in range(40 * 60):
        clock.now = 1000.0 + step / 40
        done += sum(allowed(log, "a", limit) for _ in range(10))
    assert done == limit
    assert len(log._logs["a"].slices) <= rates.EXACT_UP_TO + 1
    clock.now = 1000.0 + 60.3
    assert allowed(log, "a", limit)


def test_tools_that_nobody_calls_are_forgotten(clock):
    log = RateLimiter(clock=clock)
    for number in range(5 * rates.MANY_TOOLS):
        log.take(f"tool-{number}", 5)
        clock.now += 1
    assert len(log._logs) <= rates.MANY_TOOLS + 60


def test_threads():
    log = RateLimiter()
    switching = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(8) as pool:
            fits = list(pool.map(lambda _: allowed(log, "a", 100), range(2000)))
    finally:
        sys.setswitchinterval(switching)
    assert sum(fits) == 100
