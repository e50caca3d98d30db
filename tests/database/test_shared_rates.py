"""Rates that several processes count together: one suite over memory, SQLite and PostgreSQL."""

import asyncio
import threading
from unittest.mock import patch

import pytest

from onetool.core.principal import Principal, Rate
from onetool.database.shared_rates import SharedWindows
from onetool.database.sqlite import SqliteDatabase
from onetool.services.request_rates import RequestRates, SharedRates


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def replicas(request, tmp_path):
    """What two replicas count with."""
    if request.param == "memory":
        rates = RequestRates()
        yield rates, rates
        return
    if request.param == "sqlite":
        database = SqliteDatabase(tmp_path / "shared.db")
        database.write(lambda work: None)  # makes the tables
    else:
        database = request.getfixturevalue("database")
    yield tuple(SharedRates(SharedWindows(database)) for _ in range(2))
    if request.param == "sqlite":
        database.close()


def caller(count, seconds=60, name="ci"):
    return Principal(name=name, owner=name, rate=Rate(count, seconds))


def test_all_together_make_no_more_than_the_rate(replicas):
    taken = []
    work = [
        threading.Thread(target=lambda one=one: taken.extend(one.check(caller(25)) is None for _ in range(10)))
        for one in (*replicas, *replicas)
    ]
    for thread in work:
        thread.start()
    for thread in work:
        thread.join()
    assert (sum(taken), len(taken)) == (25, 40)
    assert 0 < replicas[1].check(caller(25)) <= 61
    assert replicas[0].check(caller(1, name="other")) is None
    assert replicas[0].check(Principal(name="none")) is None


def test_the_same_on_an_event_loop(replicas):
    async def ask():
        return await asyncio.gather(*(one.check_async(caller(5)) for one in replicas * 5))

    assert [wait is None for wait in asyncio.run(ask())].count(True) == 5


@pytest.mark.long
def test_while_the_database_is_away_each_counts_its_share(postgres, database):
    rates = SharedRates(SharedWindows(database, lambda: 2))
    assert rates.check(caller(10)) is None
    postgres.stop()
    try:
        assert [rates.check(caller(10)) is None for _ in range(10)].count(True) == 4  # of five, one was used before
    finally:
        assert postgres.start_again()


@pytest.mark.parametrize("parts", ["garbage", "[[99999999999999999999,5]]", "[[-5,-1000000]]", "[]", "{}"])
@pytest.mark.attack("forged rows")
def test_a_row_that_nobody_can_have_counted_locks_nobody_out(database, parts):
    windows = SharedWindows(database, lambda: 1)
    assert windows.take("ada", 2, 60).wait is None
    database.write(lambda work: work.execute("UPDATE rates SET parts = %s", (parts,)))
    assert windows.take("ada", 2, 60).wait is None
    assert windows.take("ada", 1, 60).wait <= 61


@pytest.mark.attack("limits")
def test_refused_callers_get_no_more_by_making_the_database_slow(tmp_path):
    database = SqliteDatabase(tmp_path / "shared.db")
    one, other = (SharedWindows(database, lambda: 2) for _ in range(2))
    assert [one.take("ada", 4, 60).wait is None for _ in range(5)].count(True) == 4
    assert 0 < other.take("ada", 4, 60).wait <= 61
    with patch.object(database, "write", side_effect=AssertionError("the database was asked")):
        assert 0 < other.take("ada", 4, 60).wait <= 61
        assert 0 < asyncio.run(other.take_async("ada", 3, 60)).wait <= 61
    assert other.take("ada", 5, 60).wait is None  # the limit was raised
    database.close()
