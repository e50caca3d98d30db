"""No REST request asks the store of the bundles on the event loop: it may read files, and others would wait with it."""

import asyncio
import base64
import json
import time

import pytest

from onetool import App
from onetool.core import schema
from onetool.interfaces.rest import imports
from onetool.interfaces.rest.app import RestApp
from onetool.sources.bundles.model import built_in_id
from onetool.sources.bundles.names import new_id
from onetool.sources.bundles.store.store import BundleStore

ECHO = {
    "type": "python",
    "argSchema": {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]},
    "pythonImpl": {"func": "tools.echo"},
}


@pytest.fixture
def app(tmp_path):
    (tmp_path / "onetool.yaml").write_text("{}\n")
    (tmp_path / "bundles").mkdir()
    with App.open(tmp_path / "onetool.yaml") as app:
        yield app


@pytest.fixture
def asked(monkeypatch):
    """Where the store was asked: True on an event loop, False in a thread."""
    found = []

    def watched(name):
        real = getattr(BundleStore, name)

        def method(self, *args, **options):
            found.append(is_on_loop())
            return real(self, *args, **options)

        monkeypatch.setattr(BundleStore, name, method)

    for name in ("contents", "change"):
        watched(name)
    return found


def is_on_loop():
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def send(asgi_client, method, path, body=None, query=b""):
    """One request to the ASGI app; its status and what its body says."""
    sent = []
    messages = [{"type": "http.request", "body": b"" if body is None else json.dumps(body).encode()}]
    headers = [(b"content-type", b"application/json")] if body is not None else []
    scope = {"type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": query}
    scope["onetool.head"] = dict(headers)

    async def receive():
        if not messages:
            await asyncio.Event().wait()  # the client stays
        return messages.pop()

    async def take(message):
        sent.append(message)

    await asgi_client({**scope, "headers": headers}, receive, take)
    text = b"".join(one.get("body", b"") for one in sent)
    return sent[0]["status"], json.loads(text) if text else None


def test_no_route_asks_the_store_on_the_event_loop(app, asked):
    bundle, asgi_client = f"/tools/bundles/{new_id(time.time())}", RestApp(app)
    tool, built_in = f"{bundle}/tools/say/version/1", f"/tools/bundles/{built_in_id('tools')}/tools/echo/version/1"

    async def all_routes():
        requests = [
            ("PUT", bundle, {"slug": "mine"}, 201),
            ("PUT", tool, ECHO, 201),
            ("POST", f"{tool}/invoke", {"args": {"message": "hi"}}, 200),
            ("POST", f"{tool}/invoke", {"args": {"message": "hi"}}, 200),
            ("POST", f"{built_in}/invoke", {"args": {"message": "hi"}}, 200),
            ("POST", f"{bundle}/tools/none/version/1/invoke", {}, 404),
            ("PATCH", tool, {"isEnabled": False}, 200),
            ("POST", f"{tool}/invoke", {"args": {"message": "hi"}}, 403),
            ("GET", "/tools/bundles", None, 200),
            ("GET", "/tools/tools", None, 200),
            ("GET", "/tools/tools/search", None, 200),
            ("GET", bundle, None, 200),
            ("GET", tool, None, 200),
            ("GET", f"{bundle}/tools/say/versions", None, 200),
            ("GET", f"{tool}/usage", None, 200),
            ("GET", f"{tool}/examples", None, 200),
            ("POST", f"{tool}/preview", {"args": {"message": "hi"}}, 200),
            ("POST", "/tools/preview", {"tool": ECHO, "args": {"message": "hi"}}, 200),
            ("PUT", f"{built_in}/examples", {"examples": []}, 200),
            ("POST", "/tools/validate", {"tool": ECHO, "bundleID": bundle.rpartition("/")[2]}, 200),
            ("POST", f"{tool}/validate", {"args": {"message": 1}}, 200),
            ("DELETE", tool, None, 204),
            ("DELETE", bundle, None, 204),
        ]
        for method, path, body, status in requests:
            assert (await send(asgi_client, method, path, body))[0] == status, (method, path)

    asyncio.run(all_routes())
    assert asked, "the index was asked by nobody: this test watches the wrong thing"
    assert not any(asked)


@pytest.fixture
def compiled(monkeypatch):
    """Where schemas were compiled, and where arguments were checked: True on an event loop, False in a thread."""
    found = {"compiled": [], "checked": []}

    class Watched(schema.CompiledSchema):
        def __init__(self, *args, **options):
            found["compiled"].append(is_on_loop())
            super().__init__(*args, **options)

        def check(self, value):
            found["checked"].append(is_on_loop())
            return super().check(value)

    monkeypatch.setattr(schema, "CompiledSchema", Watched)
    return found


@pytest.mark.parametrize("route", ["draft", "validate", "preview", "invoke"])
def test_no_schema_is_compiled_on_the_event_loop(app, compiled, route):
    bundle, asgi_client, args = new_id(time.time()), RestApp(app), {"message": "hi"}
    app.bundles.put_bundle(bundle, {"slug": "mine"})
    app.bundles.put_tool(bundle, "say", "1", ECHO)
    path = "/tools/preview" if route == "draft" else f"/tools/bundles/{bundle}/tools/say/version/1/{route}"
    body = {"args": args, **({"tool": ECHO} if route == "draft" else {})}
    assert asyncio.run(send(asgi_client, "POST", path, body))[0] == 200
    assert (set(compiled["compiled"]), set(compiled["checked"])) == ({False}, {route == "invoke"})


def test_no_list_under_an_allow_list_asks_the_store_on_the_event_loop(app, asked):
    asgi_client = RestApp(app, allowed=["tools.echo", "time.now"])
    paths = ("/tools/bundles", "/tools/tools", "/tools/tools/search", f"/tools/bundles/{built_in_id('tools')}")

    async def lists():
        return [(await send(asgi_client, "GET", path))[0] for path in paths]

    assert asyncio.run(lists()) == [200] * len(paths)
    assert asked
    assert not any(asked)


def test_calls_ask_the_index_nothing_while_nothing_changes(app, asked):
    id = new_id(time.time())
    app.bundles.put_bundle(id, {"slug": "mine"})
    app.bundles.put_tool(id, "say", "1", ECHO)

    async def calls():
        await app.bundles.invoke(id, "say", "1", {"message": "hi"})
        while not app.bundles.loading.is_unchanged(at_once=True):  # its file has only just been written
            await asyncio.sleep(0.005)
            await app.bundles.invoke(id, "say", "1", {"message": "hi"})
        asked.clear()
        return [(await app.bundles.invoke(id, "say", "1", {"message": "hi"})).data for _ in range(50)]

    assert asyncio.run(calls()) == ["hi"] * 50
    assert asked == []


def test_an_archive_is_not_decoded_on_the_event_loop(app, monkeypatch):
    """It may have megabytes."""
    decoded = []

    def watched(*args, **options):
        decoded.append(is_on_loop())
        return base64.b64decode(*args, **options)

    monkeypatch.setattr(imports, "b64decode", watched)
    for text, status in ((base64.b64encode(b"no archive").decode(), 400), ("no Base64!", 400)):
        assert asyncio.run(send(RestApp(app), "POST", "/tools/imports/zip", {"archive": text}))[0] == status
    assert decoded == [False, False]


def test_what_another_app_switches_off_is_off_with_the_next_call(app, tmp_path):
    """Another process writes into the same files: each of its changes counts at once."""
    id = new_id(time.time())
    app.bundles.put_bundle(id, {"slug": "mine"})
    app.bundles.put_tool(id, "say", "1", ECHO)
    asgi_client, path = RestApp(app), f"/tools/bundles/{id}/tools/say/version/1/invoke"
    with App.open(tmp_path / "onetool.yaml") as other:
        for number in range(20):
            is_on = bool(number % 2)
            other.bundles.patch_tool(id, "say", "1", {"isEnabled": is_on})
            status, _ = asyncio.run(send(asgi_client, "POST", path, {"args": {"message": "hi"}}))
            assert status == (200 if is_on else 403), number
