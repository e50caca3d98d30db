"""Sessions of the page: judged by the database's time, and kept over an outage. Audit and stats have that time, too."""

import httpx
import psycopg
from helpers import until

from replicas.harness import TOKEN


def signed_in(url):
    return httpx.post(f"{url}/login", json={"token": TOKEN}, timeout=30).json()["session"]


def status(url, session):
    return httpx.get(f"{url}/status", headers={"Authorization": f"Bearer {session}"}, timeout=30).status_code


def test_a_replica_ten_minutes_ahead_takes_the_sessions_of_the_others(replicas):
    (one,), (ahead,) = replicas(1), replicas(1, skew=600)
    there, here = signed_in(ahead.url), signed_in(one.url)
    for url in (one.url, ahead.url):
        until(lambda url=url: (status(url, there), status(url, here)) == (200, 200), 10)


def test_audit_and_stats_of_a_replica_with_another_clock_have_the_databases_time(replicas, database_url):
    (ahead,) = replicas(1, skew=600)
    httpx.post(f"{ahead.url}/call/probe.pid", json={}, timeout=30).raise_for_status()
    since = "date_part('epoch', clock_timestamp()) - at"
    with psycopg.connect(database_url, autocommit=True) as admin:
        sql = f"SELECT {since} FROM events WHERE tool = 'probe.pid' AND what = tool"
        ((age,),) = until(lambda: admin.execute(sql).fetchall())
        assert -1 < age < 120, age


def test_who_signs_out_during_an_outage_is_told_that_it_failed(replicas, postgres):
    one, other = replicas(2)
    before, stays = signed_in(one.url), signed_in(one.url)
    until(lambda: status(other.url, before) == status(other.url, stays) == 200, 10)
    postgres.stop()
    sign_out = {"url": f"{one.url}/login", "headers": {"Authorization": f"Bearer {before}"}, "timeout": 30}
    try:
        until(lambda: httpx.get(f"{one.url}/readyz").json()["database"] == "away", 30)
        refused = httpx.delete(**sign_out)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert [status(url, session) for url in (one.url, other.url) for session in (before, stays)] == [200] * 4
    finally:
        assert postgres.start_again()
    until(lambda: httpx.delete(**sign_out).status_code == 204, 30)
    until(lambda: [status(url, before) for url in (one.url, other.url)] == [401, 401], 30)
    assert [status(url, stays) for url in (one.url, other.url)] == [200, 200]
