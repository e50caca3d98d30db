"""/results: what was too large to send, for whoever caused it."""

import json

import pytest
from interfaces.rest.served import TOKEN, Api, problem, sign_in_as_admin
from interfaces.rest.test_openapi import checker
from interfaces.rest.test_run import run

from onetool.app.operations.fields import PER_PAGE
from onetool.core.principal import LOCAL_CALLER
from onetool.database.sqlite import SqliteDatabase
from onetool.services.results.store import ResultStore


@pytest.fixture
def real(tmp_path, start):
    (tmp_path / "onetool.yaml").write_text(json.dumps({"results": {"inline_bytes": 1000}}))
    return start(real=tmp_path, args=["--config", str(tmp_path / "onetool.yaml")])


def stored(api, code="[f'line {n}' for n in range(1000)]"):
    return run(api, code)["stored"]


def test_results_are_listed_newest_first_and_searched(real):
    first, second = stored(real), stored(real, "['other'] * 1000")
    found = real.get("/results").json()
    assert [one["handle"] for one in found["results"]] == [second, first]
    assert found["nextPageToken"] is None
    one = found["results"][1]
    assert one["size"] > 5000
    assert one["lines"] == 1000
    assert one["head"].startswith("- line 0")
    assert one["createdAt"] < one["expiresAt"]
    assert [one["handle"] for one in real.get("/results?q=OTHER").json()["results"]] == [second]
    checker(real.get("/openapi.json").json(), "ResultList").validate(found)
    problem(real.get("/results?pageToken=x"), 400, "bad_page_token")
    rest = real.get(f"/results?pageToken={second}").json()
    assert [one["handle"] for one in rest["results"]] == [first]


def test_lines_are_read_in_pages_and_searched(real):
    handle = stored(real)
    page = real.get(f"/results/{handle}?from=3&limit=2").json()
    assert (page["lines"], page["total"], page["from"], page["hasMore"]) == (["- line 2", "- line 3"], 1000, 3, True)
    found = real.get(f"/results/{handle}?q=line 99.$").json()
    assert (len(found["lines"]), found["numbers"][0], found["hasMore"]) == (10, 991, False)
    assert real.get(f"/results/{handle}?limit=1&column=3").json()["lines"] == ["line 0"]
    checker(real.get("/openapi.json").json(), "ResultLines").validate(found)
    problem(real.get(f"/results/{handle}?q=("), 400, "bad_parameter")
    problem(real.get(f"/results/{handle}?from=0"), 400, "bad_parameter")
    problem(real.get("/results/nothing"), 404, "not_found")
    problem(real.get(f"/results/{'0' * 32}"), 404, "not_found")


def test_a_whole_result_is_downloaded(real):
    handle = stored(real, "[f'zeile ü {n}' for n in range(1000)]")
    reply = real.get(f"/results/{handle}", headers={"Accept": "application/octet-stream"})
    assert (reply.status_code, reply.headers["content-type"]) == (200, "application/octet-stream")
    assert reply.headers["content-disposition"] == "attachment; filename*=UTF-8''result.txt"
    assert reply.content.decode().splitlines()[:2] == ["- zeile ü 0", "- zeile ü 1"]
    missing = real.get(f"/results/{'0' * 32}", headers={"Accept": "application/octet-stream"})
    problem(missing, 404, "not_found")


def test_a_result_can_be_deleted(real):
    handle = stored(real)
    assert real.ask("DELETE", f"/results/{handle}").status_code == 204
    problem(real.get(f"/results/{handle}"), 404, "not_found")
    problem(real.ask("DELETE", f"/results/{handle}"), 404, "not_found")
    assert real.get("/results").json()["results"] == []


def test_they_outlive_a_reload(real, tmp_path):
    sign_in_as_admin(real, tmp_path)
    handle = stored(real)
    config = {"results": {"inline_bytes": 1000}, "aliases": {"say": "tools.echo"}}
    (tmp_path / "onetool.yaml").write_text(json.dumps(config))
    said = run(real, "ot.reload()")
    assert said["ok"], said
    assert real.get("/run/names").json()["aliases"] == {"say": "tools.echo"}
    assert [one["handle"] for one in real.get("/results").json()["results"]] == [handle]


def test_another_process_lists_what_was_stored_before(real, tmp_path):
    handle = stored(real)
    real.stop()
    later = Api(real=tmp_path, args=["--config", str(tmp_path / "onetool.yaml")])
    try:
        [one] = later.get("/results").json()["results"]
        assert (one["handle"], one["lines"]) == (handle, 1000)
        assert one["head"].startswith("- line 0")
        assert [one["handle"] for one in later.get("/results?q=LINE 0").json()["results"]] == [handle]
        assert later.get("/results?q=other").json()["results"] == []
        assert later.ask("DELETE", f"/results/{handle}").status_code == 204
        assert later.get("/results").json()["results"] == []
    finally:
        later.stop()


def test_a_long_list_comes_in_pages(real, tmp_path):
    store = ResultStore(SqliteDatabase(tmp_path / "state.db"), 3600, 10)
    put = [store.put(f"text {number}", LOCAL_CALLER).handle for number in range(PER_PAGE + 5)]
    first = real.get("/results").json()
    rest = real.get(f"/results?pageToken={first['nextPageToken']}").json()
    assert [one["handle"] for page in (first, rest) for one in page["results"]] == put[::-1]
    assert (len(first["results"]), rest["nextPageToken"]) == (PER_PAGE, None)


def test_they_are_their_owners_alone(tmp_path, start):
    config = {"http": {"token": TOKEN}, "results": {"inline_bytes": 1000}}
    (tmp_path / "onetool.yaml").write_text(json.dumps(config))
    args = ["--config", str(tmp_path / "onetool.yaml")]
    api = start(real=tmp_path, args=args)
    problem(api.get("/results"), 401, "unauthorized")
    api.client.headers["Authorization"] = f"Bearer {TOKEN}"
    handle = stored(api)
    assert api.get(f"/results/{handle}?limit=1").json()["lines"] == ["- line 0"]
    (tmp_path / "other.yaml").write_text(json.dumps({**config, "http": {"token": f"other-{TOKEN}"}}))
    other = Api(real=tmp_path, args=["--config", str(tmp_path / "other.yaml")])
    other.client.headers["Authorization"] = f"Bearer other-{TOKEN}"
    try:
        problem(other.get(f"/results/{handle}"), 404, "not_found")
        problem(other.ask("DELETE", f"/results/{handle}"), 404, "not_found")
        assert other.get("/results").json()["results"] == []
    finally:
        other.stop()
    assert api.get(f"/results/{handle}").status_code == 200


def test_one_that_may_change_nothing_deletes_its_own(tmp_path, start):
    (tmp_path / "onetool.yaml").write_text(json.dumps({"results": {"inline_bytes": 1000}}))
    args = ["--config", str(tmp_path / "onetool.yaml"), "--tool-allow", "time.now"]
    api = start(real=tmp_path, args=args)
    handle = stored(api)
    assert api.ask("DELETE", f"/results/{handle}").status_code == 204


# With a database


def served_with(start, home, database):
    home.mkdir()
    (home / "onetool.yaml").write_text(json.dumps({"results": {"inline_bytes": 1000}, "database": database}))
    return start(real=home, args=["--config", str(home / "onetool.yaml")])


@pytest.mark.long
def test_what_one_replica_has_stored_another_one_lists_reads_and_deletes(start, tmp_path, database_url):
    one, other = (served_with(start, tmp_path / name, database_url) for name in ("one", "other"))
    handle = stored(one)
    assert [found["handle"] for found in other.get("/results").json()["results"]] == [handle]
    assert other.get(f"/results/{handle}?from=3&limit=1").json()["lines"] == ["- line 2"]
    assert run(other, f"ot.result(handle='{handle}', limit=1)")["value"]["total_lines"] == 1000
    assert other.ask("DELETE", f"/results/{handle}").status_code == 204
    problem(one.get(f"/results/{handle}"), 404, "not_found")
    assert not list((tmp_path / "one").rglob("state.db"))


def test_a_database_that_is_away_is_told(start, tmp_path):
    api = served_with(start, tmp_path / "one", "postgresql://nobody@127.0.0.1:1/nothing")
    for refused in (api.get("/results"), api.get(f"/results/{'0' * 32}"), api.ask("DELETE", f"/results/{'0' * 32}")):
        told = problem(refused, 503, "database_away")
        assert "can't be checked now" in told["detail"]  # nobody knows which tokens there are
        assert refused.headers["retry-after"] == "1"
