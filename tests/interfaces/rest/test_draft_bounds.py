"""Checks and previews take little from others: they end with the client and with their time, few run code at once."""

import asyncio
import json

import pytest

from onetool import App
from onetool.interfaces.rest.app import RestApp
from onetool.interfaces.rest.request import MAX_WAITING
from onetool.sources.bundles import drafts

LOOP = {
    "type": "python",
    "pythonImpl": {"func": "tools.echo"},
    "argSchema": {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]},
    "preProcessors": [{"type": "script", "code": "while True: pass"}],
}
PREVIEW = {"tool": LOOP, "args": {"message": "hi"}}
BUNDLE = "01890a5d-ac96-774b-bcce-000000000001"
TOOL = f"/tools/bundles/{BUNDLE}/tools/echo/version/1"
PATIENCE = 20  # seconds; less than a run may take


@pytest.fixture
def app(tmp_path):
    (tmp_path / "onetool.yaml").write_text("{run: {timeout_s: 120}}\n")
    with App.open(tmp_path / "onetool.yaml") as app:
        app.bundles.put_bundle(BUNDLE, {"slug": "mine"})
        app.bundles.put_tool(BUNDLE, "echo", "1", LOOP)
        yield app


async def ask(asgi_client, path, body, goes=False, method="POST"):
    """What the server sends; nothing where the client `goes`."""
    sent = []
    messages = [{"type": "http.request", "body": json.dumps(body).encode()}]

    async def receive():
        if messages:
            return messages.pop()
        if not goes:
            await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    async def take(message):
        sent.append(message)

    head = {"type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": b""}
    head["onetool.head"] = {b"content-type": b"application/json"}
    await asgi_client({**head, "headers": [*head["onetool.head"].items()]}, receive, take)
    return sent


def said(sent):
    return sent[0]["status"], json.loads(b"".join(one.get("body", b"") for one in sent))


REQUESTS = pytest.mark.parametrize(
    ("path", "body"),
    [("/tools/preview", PREVIEW), (f"{TOOL}/preview", {}), (f"{TOOL}/validate", {})],
    ids=["draft", "preview", "validate"],
)


@REQUESTS
def test_it_ends_with_the_client(app, monkeypatch, path, body):
    monkeypatch.setattr(drafts, "PRE_PROCESSORS_S", 120)
    asgi_client = RestApp(app)
    assert asyncio.run(asyncio.wait_for(ask(asgi_client, path, body, goes=True), PATIENCE)) == []


@REQUESTS
def test_it_has_little_time(app, monkeypatch, path, body):
    monkeypatch.setattr(drafts, "PRE_PROCESSORS_S", 0.3)
    status, report = said(asyncio.run(asyncio.wait_for(ask(RestApp(app), path, body), PATIENCE)))
    assert (status, ["0.3 s" in one["message"] for one in report["errors"]]) == (200, [True])


def test_an_import_ends_with_the_client(app):
    server = {"url": "https://example.com/{a}", "variables": {"a": {"default": "a" * 60_000}}}
    paths = {f"/{number}": {"get": {}} for number in range(5_000)}  # more than PATIENCE
    body = {"openapi": "3.1.0", "info": {"title": "Large"}, "servers": [server], "paths": paths}
    assert asyncio.run(asyncio.wait_for(ask(RestApp(app), "/tools/imports/openapi", body, goes=True), PATIENCE)) == []
    assert "large" not in [bundle["slug"] for bundle in app.bundles.bundles()[0]]


@pytest.mark.parametrize("path", ["/run/check", "/tools/validate", f"{TOOL}/validate"])
def test_checks_take_turns_and_other_requests_do_not_wait(app, monkeypatch, path):
    """Of callers who can't be told apart, a few work at once; further ones wait, and too many are refused."""
    monkeypatch.setattr(drafts, "PRE_PROCESSORS_S", 120)
    body = {"code": "1"} if path == "/run/check" else {"tool": LOOP} if path == "/tools/validate" else {}

    async def several():
        asgi_client = RestApp(app)
        loops = [asyncio.create_task(ask(asgi_client, "/tools/preview", PREVIEW)) for _ in range(MAX_WAITING - 1)]
        await asyncio.sleep(0)
        waiting = asyncio.create_task(ask(asgi_client, path, body))
        await asyncio.sleep(0.5)
        assert not any(one.done() for one in (*loops, waiting))
        refused = await ask(asgi_client, path, body)
        assert (said(refused)[0], dict(refused[0]["headers"])[b"retry-after"]) == (503, b"2")
        assert said(await ask(asgi_client, "/tools/bundles", None, method="GET"))[0] == 200
        for one in loops:
            one.cancel()
        monkeypatch.setattr(drafts, "PRE_PROCESSORS_S", 0.1)
        assert said(await waiting)[0] == 200

    asyncio.run(asyncio.wait_for(several(), PATIENCE))
