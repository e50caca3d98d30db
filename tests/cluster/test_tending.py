"""What each heartbeat sets off for shared servers: it must not hold up the heartbeat, and not pile up."""

import asyncio
from threading import Event
from types import SimpleNamespace

import pytest
from helpers import until
from msgspec.structs import replace

from onetool.cluster import Replica
from onetool.cluster.leases import lease_name
from onetool.cluster.shared_servers import SharedServers
from onetool.sources.mcp_servers.settings import ServerSettings

SETTINGS = ServerSettings(command="one")


class Place:
    """A process in a cluster whose beats the test makes. Tending its servers, and reading states, may take long."""

    def __init__(self):
        self.calls, self.tended, self.asked, self.fails = [], 0, 0, False
        self.may_go_on, self.answer = Event(), asyncio.Event()
        owner = Replica("11111111", "127.0.0.1:1", "0", 0.0, False)
        self.own = Replica("00000000", "127.0.0.1:2", "0", 0.0, False)
        members = SimpleNamespace(id=self.own.id, on_beat=self.calls.append, alive=lambda: [owner, self.own])
        self.settings = SimpleNamespace(database=None, all_stop=lambda: False)
        self.cluster = SimpleNamespace(
            settings=self.settings, members=members, id=members.id, routes={}, forwarder=self
        )
        self.cluster.on_serving, self.cluster.on_close = [], []
        servers = SimpleNamespace(tend_shared=self._tend, names=lambda: ["one"], end_shared=lambda: None)
        servers.proxy = {"one": SimpleNamespace(settings=SETTINGS)}.get
        app = SimpleNamespace(servers=servers, catalog=SimpleNamespace(share_servers=lambda owners: None))
        self.shared = SharedServers(self.cluster, app)
        self.shared._leases._holders = {lease_name("one", SETTINGS): owner.id}
        self.calls.remove(self.shared._leases.renew)  # there is no database

    def beat(self):
        for call in self.calls:
            call()

    def _tend(self):
        self.tended += 1
        assert self.may_go_on.wait(20)
        if self.fails:
            raise RuntimeError("which harms nobody")

    async def post(self, *_):
        self.asked += 1
        await self.answer.wait()
        return b"{}"


@pytest.fixture
def serving():
    """Do something on an event loop that serves."""

    def run(test):
        async def served():
            place = Place()
            for call in place.cluster.on_serving:
                call()
            try:
                await asyncio.wait_for(test(place), 20)
            finally:
                place.may_go_on.set()
                place.answer.set()
                await asyncio.to_thread(lambda: [call() for call in place.cluster.on_close])

        asyncio.run(served())

    return run


def test_a_beat_waits_for_nothing(serving):
    async def test(place):
        place.fails = True
        for _ in range(3):
            await asyncio.wait_for(asyncio.to_thread(place.beat), 5)
            await asyncio.to_thread(until, lambda: place.tended == 1)  # the others wait for it together
        place.may_go_on.set()
        await asyncio.to_thread(until, lambda: place.tended == 2)

    serving(test)


def test_states_are_read_once_at_a_time(serving):
    async def test(place):
        place.may_go_on.set()
        for number in range(1, 4):
            await asyncio.to_thread(place.beat)
            await asyncio.to_thread(until, lambda number=number: place.tended >= number)
            await asyncio.to_thread(until, lambda: place.asked)
        await asyncio.sleep(0.05)
        assert place.asked == 1
        place.answer.set()
        await asyncio.to_thread(until, lambda: place.shared._reading.done())
        await asyncio.to_thread(place.beat)
        await asyncio.to_thread(until, lambda: place.asked == 2)

    serving(test)


@pytest.mark.parametrize("why", ["it drains", "all stop", "it has closed"])
def test_a_process_that_stops_takes_no_server(serving, why):
    async def test(place):
        taken = []
        place.shared._leases.take = lambda name: taken.append(name) or place.own.id
        assert place.shared.take("one")
        assert taken.pop() == lease_name("one", SETTINGS)
        if why == "it drains":
            place.own = replace(place.own, is_draining=True)
        elif why == "all stop":
            place.settings.all_stop = lambda: True
        else:
            await asyncio.to_thread(place.shared.close)
        assert not place.shared.take("one")
        assert taken == []

    serving(test)
