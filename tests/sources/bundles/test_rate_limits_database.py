"""A limit of calls a minute over a database: one limit for all replicas, and for the workers of one machine."""

import asyncio
import threading
from contextlib import closing

import pytest
from postgres import database, database_url, postgres

from onetool.core.errors import ToolFailure
from onetool.database.postgres import Postgres
from onetool.database.shared_rates import SharedWindows
from onetool.database.sqlite import SqliteDatabase
from onetool.sources.bundles.rate_limits import RateLimiter

__all__ = ["database", "database_url", "postgres"]


@pytest.fixture(params=["sqlite", "postgres"])
def limiters(request, tmp_path):
    """Of two processes, each with a database of its own: the same one."""
    if request.param == "sqlite":
        both = [SqliteDatabase(tmp_path / "shared.db") for _ in range(2)]
        both[0].write(lambda work: None)  # makes the tables
    else:
        both = [request.getfixturevalue("database"), Postgres(request.getfixturevalue("database_url"))]
    with closing(both[0]), closing(both[1]):
        windows = [SharedWindows(one) for one in both]
        yield [RateLimiter(lambda one=one: one) for one in windows]


def is_taken(limiter, per_minute, tool="a"):
    try:
        limiter.take(tool, per_minute)
    except ToolFailure:
        return False
    return True


def test_never_more_than_the_limit(limiters):
    taken = []
    work = [
        threading.Thread(target=lambda one=one: taken.extend(is_taken(one, 25) for _ in range(5)))
        for one in limiters * 4
    ]
    for thread in work:
        thread.start()
    for thread in work:
        thread.join(60)
    assert (taken.count(True), len(taken)) == (25, 40)
    assert not any(is_taken(one, 25) for one in limiters)
    assert is_taken(limiters[0], 1, "another tool")


def test_the_same_on_event_loops(limiters):
    async def calls(limiter):
        return await asyncio.gather(*(limiter.take_async("a", 9) for _ in range(6)), return_exceptions=True)

    found = []
    work = [threading.Thread(target=lambda one=one: found.extend(asyncio.run(calls(one)))) for one in limiters]
    for thread in work:
        thread.start()
    for thread in work:
        thread.join(60)
    assert (found.count(None), len(found)) == (9, 12)
    assert {one.reason for one in found if one is not None} == {"rate_limited"}
