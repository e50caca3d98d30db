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
        for rows in ("stats_calls WHERE tool = 'probe.pid'", "audit WHERE line LIKE '%probe.pid%'"):
            sql = f"SELECT {since} FROM {rows}"
            ((age,),) = until(lambda sql=sql: admin.execute(sql).fetchall())
            assert -1 < age < 120, (rows, age)


def test_who_signs_out_and_in_during_an_outage_is_so_everywhere_afterwards(replicas, postgres):
    one, other = replicas(2)
    before, stays = signed_in(one.url), signed_in(one.url)
    until(lambda: status(other.url, before) == status(other.url, stays) == 200, 10)
    postgres.stop()
    try:
        until(lambda: httpx.get(f"{one.url}/readyz").json()["database"] == "away", 30)
        gone = httpx.delete(f"{one.url}/login", headers={"Authorization": f"Bearer {before}"}, timeout=30)
        assert gone.status_code == 503, gone.text  # it has ended here, and will elsewhere
        assert status(one.url, before) == 503
        again = signed_in(one.url)
        assert [status(url, stays) for url in (one.url, other.url)] == [200, 200]
        assert [status(url, again) for url in (one.url, other.url)] == [200, 200]
        assert status(other.url, f"{before[:-4]}AAAA") == 503  # of a key that it may not know yet
    finally:
        assert postgres.start_again()
    until(lambda: [status(url, before) for url in (one.url, other.url)] == [401, 401], 30)
    assert [status(url, session) for url in (one.url, other.url) for session in (stays, again)] == [200] * 4
