"""Checks and previews take little from others: they end with the client and with their time, few run code at once."""

import asyncio
import json

import pytest

from onetool import App
from onetool.interfaces.rest.app import RestApp
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


async def ask(asgi_client, path, body, goes=False):
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

    head = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b""}
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


def test_few_run_code_at_once_and_others_need_not_wait_for_them(app, monkeypatch):
    monkeypatch.setattr(drafts, "PRE_PROCESSORS_S", 120)
    monkeypatch.setattr(drafts, "TURN_TIMEOUT_S", 0.1)
    plain = {"tool": {**LOOP, "preProcessors": []}, "args": {"message": "hi"}}

    async def several():
        asgi_client = RestApp(app)
        loops = [
            asyncio.create_task(ask(asgi_client, "/tools/preview", PREVIEW)) for _ in range(drafts.MAX_AT_ONCE + 2)
        ]
        ended, running = await asyncio.wait(loops, timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
        refused = [said(one.result())[0] for one in ended]
        other = said(await ask(asgi_client, "/tools/preview", plain))
        for one in running:
            one.cancel()
        await asyncio.wait(running)
        return refused, other

    refused, (status, report) = asyncio.run(several())
    assert set(refused) == {503}
    assert (status, report) == (200, {"call": "tools.echo(message='hi')"})
