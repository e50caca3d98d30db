"""What is served besides MCP and the page; and that the docs say what is so."""

import asyncio
import json
import re
import threading
from pathlib import Path

import pytest
import yaml

import onetool
from onetool.config import load_config
from onetool.http.asgi import MAX_HEAD
from onetool.interfaces.http.heads import HEAD_S
from onetool.interfaces.http.server import KEEP_ALIVE_S, STOP_TIMEOUT_S
from onetool.interfaces.http.site import LazyRoute

DOCS = (Path(__file__).parents[3] / "docs" / "operate" / "serve.md").read_text()


def test_health(server):
    reply = server.ask("/healthz")
    assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
    assert reply.json == {"status": "ok", "version": onetool.__version__}
    head = server.ask("/healthz", "HEAD", [("Connection", "close")])
    assert (head.headers["content-length"], head.body) == (str(len(reply.body)), b"")
    refused = server.ask("/healthz", "POST", body=b"x")
    assert (refused.status, refused.headers["allow"]) == (405, "GET, HEAD")


def test_fewer_tools_where_fewer_are_allowed(serve):
    server = serve("--tool-allow", "tools.echo")
    assert " with 1 tool, from the default config. " in server.greeting


def test_the_access_log_can_be_turned_off(serve):
    server = serve(config={"http": {"access_log": False}})
    assert server.ask("/healthz").status == 200
    assert server.ask("/mcp?fail").status == 500
    server.stop()
    ours = [line["logger"] for line in server.log() if line["logger"].startswith("onetool")]  # asyncio may say a line
    assert ours == ["onetool", "onetool.serve"]


def test_what_balancers_ask_every_second_is_not_logged(serve):
    server = serve()
    assert server.ask("/readyz").status == 200
    assert server.ask("/healthz").status == 200
    assert server.ask("/status").status == 200
    server.stop()
    assert [line["path"] for line in server.log() if "path" in line] == ["/status"]


# The docs


def test_the_settings_in_the_docs_are_settings(tmp_path, monkeypatch):
    monkeypatch.setenv("ONETOOL_TOKEN", "sesame")
    for number, block in enumerate(re.findall(r"```yaml\n(.*?)```", DOCS, re.DOTALL)):
        file = tmp_path / f"{number}.yaml"
        file.write_text(block)
        config = load_config(file)
        assert config.warnings == ()
        assert set(yaml.safe_load(block.replace("${ONETOOL_TOKEN}", "x"))["http"]) <= set(config.http.__struct_fields__)
        assert config.http.token == "sesame"
    first = yaml.safe_load(re.search(r"```yaml\n(.*?)```", DOCS, re.DOTALL)[1])["http"]
    assert set(first) == set(config.http.__struct_fields__)


def test_the_log_line_in_the_docs_is_one(serve):
    server = serve()
    server.ask("/mcp", "POST", body=b"x")
    (line,) = server.requests(wait_for="/mcp")
    shown = json.loads(re.search(r'```json\n(\{"time".*?)```', DOCS, re.DOTALL)[1])
    assert list(line) == [*(key for key in shown if key not in ("mcp", "name")), "rpc"]


def test_the_limits_in_the_docs_are_the_limits():
    assert f"| {MAX_HEAD // 1024} KiB | 431" in DOCS
    assert f"from the start of the connection | {HEAD_S:g} s |" in DOCS
    assert f"| a connection between two requests | {KEEP_ALIVE_S} s |" in DOCS
    assert f"have {STOP_TIMEOUT_S} seconds" in DOCS


# Routes that are loaded at their first request


class Loaded:
    """An app that notes who answered, and who was told to stop."""

    answered, stopped = [], []

    async def __call__(self, *_):
        self.answered.append(self)

    async def stop(self):
        self.stopped.append(self)


@pytest.fixture
def loaded(monkeypatch):
    monkeypatch.setattr(Loaded, "answered", [])
    monkeypatch.setattr(Loaded, "stopped", [])
    return Loaded


def test_first_requests_that_come_together_have_one_app(loaded):
    made = []
    route = LazyRoute(lambda: made.append(loaded()) or made[-1])

    async def ask():
        await asyncio.gather(*(route({}, None, None) for _ in range(3)))
        await route.stop()

    asyncio.run(ask())
    assert len(loaded.answered) == 3
    assert len(set(loaded.answered)) == 1
    assert made == loaded.answered[:1]  # an app registers what other processes ask for
    assert loaded.stopped == loaded.answered[:1]


def test_an_app_is_loaded_in_a_thread(loaded):
    threads = []

    def load():
        threads.append(threading.current_thread())
        return loaded()

    asyncio.run(LazyRoute(load)({}, None, None))
    assert threads != [threading.main_thread()]
