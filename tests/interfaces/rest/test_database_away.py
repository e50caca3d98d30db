"""Whatever a route does with the database: when it is away, or an end is unknown, REST says so in one form."""

import asyncio
import json

import httpx
import pytest
from helpers import until
from interfaces.rest.served import problem, read_events, with_head

from onetool.app import App
from onetool.database import ChangeUnknownError, DatabaseAwayError, DatabaseError
from onetool.interfaces.rest.app import CallApp, RestApp
from onetool.interfaces.rest.route import RestRoute
from onetool.interfaces.rest.routing import RouteTable
from onetool.services.access_tokens import token_hash

HELLO = {"type": "script", "scriptImpl": {"code": "'hello'"}}
ADA = {"Authorization": "Bearer ada-sesame"}
EXAMPLES = {"examples": [{"name": "hi", "args": {}}]}


@pytest.mark.long
def test_own_examples_of_replicas_and_while_the_database_is_away(start, tmp_path, database_url, postgres):
    config = {
        "database": database_url,
        "http": {"tokens": [{"name": "ada", "hash": token_hash("ada-sesame"), "role": "edit"}]},
    }
    apis = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir(mode=0o700)
        (tmp_path / name / "onetool.yaml").write_text(json.dumps(config))
        apis.append(start(real=tmp_path / name, args=["--config", str(tmp_path / name / "onetool.yaml")]))
        apis[-1].client.headers.update(ADA)
    one, two = apis
    place = f"{one.bundle(slug='birds')}/tools/hello/version/1"
    assert one.ask("PUT", place, HELLO).status_code == 201
    assert one.ask("PUT", f"{place}/examples", EXAMPLES).status_code == 200
    assert two.get(f"{place}/examples").json()["own"] == ["hi"]
    postgres.stop()
    try:
        for reply in (two.get(f"{place}/examples"), two.ask("PUT", f"{place}/examples", EXAMPLES)):
            assert "the database can't be reached" in problem(reply, 503, "database_away")["detail"]
            assert reply.headers["retry-after"] == "1"
    finally:
        assert postgres.start_again()
    until(lambda: two.ask("PUT", f"{place}/examples", {"examples": []}).status_code == 200)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (DatabaseAwayError("gone"), "database_away"),
        (ChangeUnknownError(), "change_unknown"),
        (DatabaseError("it was refused"), "database_refused"),
    ],
)
def test_what_any_route_meets_is_told(tmp_path, error, code):
    async def meet(request):
        raise error

    class MeetingApp(RestApp):
        routes = RouteTable([RestRoute("GET", "/meet")(meet)])

    async def asked(app):
        transport = httpx.ASGITransport(with_head(MeetingApp(app)))
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            return await client.get("/meet")

    (tmp_path / "onetool.yaml").write_text("{}")
    with App.open(tmp_path / "onetool.yaml") as app:
        reply = asyncio.run(asked(app))
    assert problem(reply, 503, code)["detail"] == f"{error}."
    assert reply.headers["retry-after"] == "1"


@pytest.mark.parametrize(("path", "body", "last"), [("/call/time.now", {}, "result"), ("/run", {"code": "1"}, "error")])
def test_what_a_stream_meets_is_its_last_event(tmp_path, monkeypatch, path, body, last):
    async def away(*_args, **_options):
        await asyncio.sleep(0.4)  # the stream has begun
        raise DatabaseAwayError("gone")

    async def asked(app):
        kind = CallApp if path.startswith("/call") else RestApp
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(with_head(kind(app))), base_url="http://x"
        ) as client:
            return await client.post(path, json=body, headers={"Accept": "text/event-stream"})

    monkeypatch.setattr(App, "call", away)
    monkeypatch.setattr(App, "run", away)
    (tmp_path / "onetool.yaml").write_text("{}")
    with App.open(tmp_path / "onetool.yaml") as app:
        reply = asyncio.run(asked(app))
    assert reply.status_code == 200
    *_, (name, data) = read_events(reply.text)
    told = data if name == "error" else data["error"]
    assert (name, told["code"]) == (last, "database_away")
    assert told["message"].startswith("the database can't be reached")
