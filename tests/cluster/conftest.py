"""Replicas in processes of their own. Those that tests leave as they were are started once."""

from contextlib import ExitStack

import pytest
from cluster.members import Balancer, Member
from interfaces.mcp.peers import HttpPeer
from postgres import database, database_url, postgres

from onetool.database.sqlite import SqliteDatabase

__all__ = ["database", "database_url", "postgres"]


def shared_file(folder):
    """The state.db of a home that several servers share."""
    (folder / "home").mkdir(mode=0o700)
    made = SqliteDatabase(folder / "home" / "state.db")
    made.write(lambda work: None)  # makes the tables
    made.close()
    return made.file


@pytest.fixture(params=["sqlite", "postgres"])
def shared(request, tmp_path):
    """The database of replicas, and that of workers."""
    if request.param == "postgres":
        yield request.getfixturevalue("database")
        return
    found = SqliteDatabase(shared_file(tmp_path))
    yield found
    found.close()


def started(folder, ends):
    """Two replicas."""
    file = shared_file(folder)
    pair = [Member(folder / name, file) for name in "ab"]
    for one in pair:
        ends.callback(one.stop)
    return Balancer(*pair)


@pytest.fixture(scope="session")
def pair(tmp_path_factory):
    """Two replicas, for tests that leave them as they were."""
    with ExitStack() as ends:
        balancer = started(tmp_path_factory.mktemp("pair"), ends)
        yield balancer
    for one in balancer.servers:
        assert one.process.returncode == 0, one.log()
        assert "Traceback" not in one.log()


@pytest.fixture
def own_pair(tmp_path):
    """Two replicas of this test alone."""
    with ExitStack() as ends:
        yield started(tmp_path, ends)


@pytest.fixture
def peer(pair):
    """Make clients whose every request goes to the next replica."""
    with ExitStack() as ends:

        def make(era="old", **options):
            made = HttpPeer(pair, era, **options)
            ends.callback(made.close)
            return made

        yield make
