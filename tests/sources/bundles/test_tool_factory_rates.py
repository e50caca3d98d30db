"""So many calls in any minute, and what is said to the one too many."""

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from onetool.core.errors import ToolFailure
from onetool.database import shared_rates
from onetool.database.shared_rates import SharedWindows
from onetool.sources.bundles.rate_limits import RateLimiter


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(shared_rates, "monotonic", clock)
    return clock


def allowed(rates, tool, limit):
    try:
        rates.take(tool, limit)
    except ToolFailure:
        return False
    return True


def test_the_window_slides(clock):
    """By whole seconds: no more than allowed ever happens in a minute, and a second later there is room again."""
    rates = RateLimiter()
    for at, fits in (
        (0, True),
        (20, True),
        (40, True),
        (59.9, False),
        (61, True),
        (80, False),
        (81, True),
        (81, False),
    ):
        clock.now = 1000.0 + at
        assert allowed(rates, "a", 3) is fits, at


def test_callers_that_are_refused_are_told_when(clock):
    rates = RateLimiter()
    rates.take("a", 1)
    clock.now += 17.5
    with pytest.raises(ToolFailure, match="once a minute") as caught:
        rates.take("a", 1)
    assert caught.value.reason == "rate_limited"
    assert caught.value.hints == ("try again in 44 s",)
    clock.now += 43.5
    rates.take("a", 1)


def test_a_refused_call_does_not_count(clock):
    rates = RateLimiter()
    rates.take("a", 1)
    for _ in range(50):
        clock.now += 1
        assert not allowed(rates, "a", 1)
    clock.now += 11
    rates.take("a", 1)


def test_tools_do_not_share(clock):
    rates = RateLimiter()
    rates.take("a", 1)
    rates.take("b", 1)


def test_large_limits_are_exact_in_number(clock):
    rates, limit, done = RateLimiter(), 20_000, 0
    for step in range(40 * 60):
        clock.now = 1000.0 + step / 40
        done += sum(allowed(rates, "a", limit) for _ in range(10))
    assert done == limit
    clock.now = 1000.0 + 61
    assert allowed(rates, "a", limit)


def test_tools_that_nobody_calls_are_forgotten(clock, monkeypatch):
    monkeypatch.setattr(shared_rates, "MAX_OWN", 100)
    windows = SharedWindows(None)
    rates = RateLimiter(lambda: windows)
    for number in range(500):
        rates.take(f"tool-{number}", 5)
    assert len(windows._own) == 100


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
