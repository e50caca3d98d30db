"""Whatever a route does with the database: when it is away, or an end is unknown, REST says so in one form."""

import asyncio

import httpx
import pytest
from interfaces.rest.served import problem, read_events, with_head

from onetool.app import App
from onetool.database import ChangeUnknownError, DatabaseAwayError, DatabaseError
from onetool.interfaces.rest.app import CallApp, RestApp
from onetool.interfaces.rest.route import RestRoute
from onetool.interfaces.rest.routing import RouteTable


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
