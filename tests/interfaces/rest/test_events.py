"""GET /events: what happens, as it happens."""

import asyncio
import json
from contextlib import contextmanager
from threading import Thread

import pytest
from interfaces.rest.served import TOKEN, Api, problem
from interfaces.rest.test_event_loop import is_on_loop

from onetool import App, ToolCall
from onetool._version import __version__
from onetool.interfaces.rest import events
from onetool.interfaces.rest.events import EventsApp
from onetool.sources.bundles.model import built_in_id
from onetool.sources.bundles.store.store import BundleStore

ACCEPT = {"Accept": "text/event-stream"}
MESSAGE = {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]}
ECHO = {"type": "python", "pythonImpl": {"func": "tools.echo"}, "argSchema": MESSAGE}


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    api = Api(real=tmp_path_factory.mktemp("home"))
    yield api
    assert api.stop() == 0


@contextmanager
def reading(api, **headers):
    """Gives a function that waits for the next event of a name that a check likes."""
    with api.client.stream("GET", "/events", headers={**ACCEPT, **headers}) as reply:
        assert reply.status_code == 200, reply.read()
        assert reply.headers["content-type"] == "text/event-stream"
        lines = reply.iter_lines()

        def wait_for(name, check=lambda _data: True):
            for line in lines:
                if line == f"event: {name}" and check(data := json.loads(next(lines).removeprefix("data: "))):
                    return data
            return None

        yield wait_for


def test_it_begins_with_hello(real):
    with reading(real) as wait_for:
        hello = wait_for("hello")
    with reading(real) as wait_for:
        assert wait_for("hello") == hello
    assert hello["version"] == __version__
    assert hello["instance"]


def test_calls_are_told_with_their_place(real):
    bundle = real.bundle(slug="told")
    id = bundle.rpartition("/")[2]
    for version in ("1", "2"):
        real.tool(bundle, "echo-it", version, **ECHO)
    with reading(real) as wait_for:
        wait_for("hello")
        for path, body in (
            (f"{bundle}/tools/echo-it/version/1/invoke", {"args": {"message": "secret words"}}),
            ("/call/told.echo_it", {"message": "hi"}),
            ("/call/time.now", {"timezone": 1}),
        ):
            real.ask("POST", path, body)
        found = [wait_for("call") for _ in range(3)]
    assert [(one["bundleID"], one["toolSlug"], one["version"], one["name"], one["ok"]) for one in found] == [
        (id, "echo-it", "1", "told.echo_it@1", True),
        (id, "echo-it", "2", "told.echo_it", True),
        (built_in_id("time"), "now", "1", "time.now", False),
    ]
    assert set(found[0]) == {"bundleID", "toolSlug", "version", "name", "ok", "durationMs", "source", "at"}
    assert found[0]["source"] == "rest"
    assert found[0]["at"].endswith("Z")


def test_a_bundle_without_a_name_in_code_has_its_place_too(real):
    for _ in range(2):
        bundle = real.bundle(slug="twins")
        real.tool(bundle, "echo", **ECHO)
    with reading(real) as wait_for:
        wait_for("hello")
        real.ask("POST", f"{bundle}/tools/echo/version/1/invoke", {"args": {"message": "hi"}})
        found = wait_for("call")
    assert (found["bundleID"], found["toolSlug"], found["version"]) == (bundle.rpartition("/")[2], "echo", "1")


def test_changes_are_told(real):
    bundle = real.bundle(slug="changes")
    tool = real.tool(bundle, "echo", **ECHO)
    with reading(real) as wait_for:
        wait_for("hello")
        for body in ({"isEnabled": False}, {"isEnabled": True}):
            assert real.ask("PATCH", tool, body).status_code == 200
            assert wait_for("changed") == {"tools": True}


def test_a_changed_pack_is_told(start, tmp_path):
    pack = tmp_path / "dice.py"
    pack.write_text("def roll() -> int:\n    'Roll.'\n    return 4\n")
    tmp_path.joinpath("onetool.yaml").write_text("packs: [dice.py]\n")
    api = start(real=tmp_path, args=["--config", str(tmp_path / "onetool.yaml")])
    with reading(api) as wait_for:
        wait_for("hello")
        assert api.get("/status").json()["pending"] == 0
        pack.write_text("def roll() -> int:\n    'Roll a die.'\n    return 5\n")
        assert wait_for("changed") == {"tools": True}
        assert api.get("/status").json()["pending"] == 1


def test_it_is_for_those_who_take_events(real):
    problem(real.get("/events"), 406, "not_acceptable")
    problem(real.get("/events", headers={"Accept": "application/json"}), 406, "not_acceptable")
    assert real.ask("POST", "/events", {}).status_code == 405


def test_it_needs_the_token(start, tmp_path):
    tmp_path.joinpath("onetool.yaml").write_text(json.dumps({"http": {"token": TOKEN}}))
    api = start(real=tmp_path, args=["--config", str(tmp_path / "onetool.yaml")])
    problem(api.get("/events", headers=ACCEPT), 401, "unauthorized")
    with reading(api, Authorization=f"Bearer {TOKEN}") as wait_for:
        assert wait_for("hello")


def test_under_an_allow_list_other_calls_are_not_told(start, tmp_path):
    api = start(real=tmp_path, args=["--tool-allow", "time.now"])
    with reading(api) as wait_for:
        wait_for("hello")
        assert api.ask("POST", "/call/tools.echo", {"message": "hi"}).status_code == 403
        api.ask("POST", "/call/time.now", {})
        assert wait_for("call")["name"] == "time.now"


def test_it_ends_with_the_server(tmp_path):
    api = Api(real=tmp_path)
    codes = []
    with reading(api) as wait_for:
        wait_for("hello")
        ending = Thread(target=lambda: codes.append((api.process.terminate(), api.process.wait(20))[1]))
        ending.start()
        assert wait_for("nothing") is None  # the stream has its end
        ending.join()
    api.stop()
    assert codes == [0]


# Without a server


class Client:
    """Reads the stream in this process; `holds` keeps it from reading."""

    def __init__(self, asgi_client):
        self.sent, self.gone, self.holds = [], asyncio.Event(), asyncio.Event()
        self.holds.set()
        scope = {"type": "http", "method": "GET", "path": "/events", "raw_path": b"/events", "query_string": b""}
        head = {b"accept": b"text/event-stream"}
        self.task = asyncio.create_task(asgi_client({**scope, "onetool.head": head}, self._receive, self._send))

    async def _receive(self):
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message):
        await self.holds.wait()
        self.sent.append(message)

    @property
    def text(self):
        return b"".join(one.get("body", b"") for one in self.sent).decode()

    async def until(self, word):
        async with asyncio.timeout(20):
            while word not in self.text:
                await asyncio.sleep(0.01)


@pytest.fixture
def app(tmp_path):
    (tmp_path / "onetool.yaml").write_text("{}\n")
    (tmp_path / "bundles").mkdir()
    with App.open(tmp_path / "onetool.yaml") as app:
        yield app


async def echo(app):
    return await app.call(ToolCall("1", "tools.echo", {"message": "words of mine"}))


def test_the_sixty_fifth_reader_is_refused_until_one_leaves(app):
    async def go():
        asgi_client = EventsApp(app)
        clients = [Client(asgi_client) for _ in range(events.MAX_READERS)]
        await clients[-1].until("hello")
        late = Client(asgi_client)
        await late.task
        assert late.sent[0]["status"] == 503
        assert "close another page" in late.text
        clients[0].gone.set()
        await clients[0].task
        again = Client(asgi_client)
        await again.until("hello")
        await asgi_client.stop()
        await asyncio.gather(again.task, *(one.task for one in clients))

    asyncio.run(go())


def test_a_reader_that_is_slow_is_told_how_many_it_has_missed(app, monkeypatch):
    monkeypatch.setattr(events, "MAX_UNREAD", 3)

    async def go():
        asgi_client = EventsApp(app)
        slow, quick = Client(asgi_client), Client(asgi_client)
        await slow.until("hello")
        slow.holds.clear()
        for number in range(6):
            await echo(app)
            async with asyncio.timeout(20):
                while quick.text.count("tools.echo") <= number:
                    await asyncio.sleep(0.01)
        slow.holds.set()
        await slow.until("dropped")
        await asgi_client.stop()
        await asyncio.gather(slow.task, quick.task)
        return slow.text, quick.text

    slow, quick = asyncio.run(go())
    assert quick.count("tools.echo") == 6
    assert "dropped" not in quick
    dropped = json.loads(slow.partition('data: {"dropped"')[2].partition("\n")[0].strip(": }"))
    assert slow.count("tools.echo") + dropped == 6
    assert "words of mine" not in quick


def test_comments_keep_the_stream_open(app, monkeypatch):
    monkeypatch.setattr(events, "KEEP_ALIVE_S", 0.01)

    async def go():
        asgi_client = EventsApp(app)
        client = Client(asgi_client)
        await client.until(": still here\n\n")
        await asgi_client.stop()
        await client.task

    asyncio.run(go())


def test_nothing_asks_the_store_on_the_event_loop_and_nobody_is_left(app, monkeypatch):
    asked, real = [], BundleStore.contents

    def read(self, *args, **options):
        asked.append(is_on_loop())
        return real(self, *args, **options)

    monkeypatch.setattr(BundleStore, "contents", read)

    async def go():
        asgi_client = EventsApp(app)
        client = Client(asgi_client)
        await client.until("hello")
        await asyncio.to_thread(app.bundles.put_bundle, "01890a5d-ac96-774b-bcce-000000000001", {"slug": "mine"})
        await client.until("changed")
        await echo(app)
        await client.until("tools.echo")
        client.gone.set()
        await client.task
        return asgi_client

    asgi_client = asyncio.run(go())
    assert not any(asked)
    assert asgi_client._watch is None
    assert app._on_call == []


def test_a_stream_ends_with_the_session_that_it_was_opened_with(start, tmp_path):
    tmp_path.joinpath("onetool.yaml").write_text(json.dumps({"http": {"token": TOKEN}}))
    api = start(real=tmp_path, args=["--config", str(tmp_path / "onetool.yaml")])
    session = api.ask("POST", "/login", {"token": TOKEN}).json()["session"]
    bearer = {"Authorization": f"Bearer {session}"}
    with reading(api, **bearer) as wait_for:
        assert wait_for("hello")
        assert api.ask("DELETE", "/login", headers=bearer).status_code == 204
        called = api.ask("POST", "/call/time.now", {}, headers={"Authorization": f"Bearer {TOKEN}"})
        assert called.status_code == 200
        assert wait_for("call") is None, "nothing more is told"
