"""Leases in both databases: who may take one that another replica holds."""

import pytest

from onetool.cluster.leases import LEASE_S, REFUSED_S, Leases


class Member:
    is_settling = False

    def __init__(self, id):
        self.id = id

    def on_beat(self, call):
        pass


def seen(database, id, seconds_ago):
    """The last heartbeat of a replica was that long ago."""
    values = f"%s, '', '', 0, {database.clock} - %s, %s"
    insert = (
        "INSERT INTO replicas (id, address, version, since, seen_at, is_draining) "
        f"VALUES ({values}) ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at"
    )
    database.write(lambda work: work.execute(insert, (id, seconds_ago, False)))


@pytest.fixture
def leases(shared):
    """Those of two replicas; the first one holds `ok`."""
    first, second = (Leases(shared, Member(id), "server:") for id in "ab")
    seen(shared, "a", 0)
    assert first.take("ok") == "a"
    return first, second


def test_one_that_is_held_is_not_taken(shared, leases):
    seen(shared, "a", REFUSED_S * 1.5)  # it may be slow
    assert leases[1].take("ok") == "a"


def test_that_its_holder_refuses_connections_is_not_enough(leases):
    assert leases[1].take("ok", "a") == "a"


def test_one_whose_holder_refuses_connections_and_sends_no_heartbeat_is_taken(shared, leases):
    seen(shared, "a", REFUSED_S * 1.5)
    assert leases[1].take("ok", "c") == "a"  # another one refuses
    assert leases[1].take("ok", "a") == "b"
    leases[0].renew()
    assert not leases[0].is_own("ok")


def test_one_whose_holder_is_gone_is_taken(shared, leases):
    seen(shared, "a", LEASE_S * 1.5)
    assert leases[1].take("ok") == "b"


def test_one_who_has_closed_takes_none_and_gives_up_what_it_has(shared, leases):
    leases[0].close()
    assert leases[0].take("other") is None
    assert leases[0].is_own("ok")
    leases[0].release(["ok"])
    assert leases[0].take("ok") is None
    assert leases[1].take("ok") == "b"


def test_after_an_outage_none_is_taken_whose_holder_is_known(shared, leases):
    first, second = leases
    second.renew()
    shared.write(lambda work: work.execute("UPDATE leases SET until = 0"))  # as after an outage
    seen(shared, "a", LEASE_S * 2)
    second._members.is_settling = True
    second.renew()
    assert (second.holder("ok"), second.take("ok")) == ("a", "a")
    first.renew()
    second._members.is_settling = False
    second.renew()
    assert second.holder("ok") == "a"
    second._members.is_settling = True
    shared.write(lambda work: work.execute("UPDATE leases SET until = 0"))
    assert second.take("ok", "a") == "b"  # it refuses connections
