"""1-sdk.md: one test for each scenario of the helpers, named after it. Packs and calls are in files of their own."""

import json
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest

from onetool.core.spec import Requirement
from onetool.sdk import requirements
from onetool.sdk.batch import batch_execute, normalize_items
from onetool.sdk.http import api_headers, lazy_client, safe_request
from onetool.sdk.requirements import check_deps, requirements_of, requires_cli, requires_lib

pack = "ripgrep"  # of the functions that are decorated here


@pytest.fixture(autouse=True)
def only_what_is_decorated_here(monkeypatch):
    """Packs that other tests of this process have loaded may have the same names."""
    own = {key: function for key, function in requirements._decorated.items() if key[0] == __name__}
    monkeypatch.setattr(requirements, "_decorated", own)


# Requirement: Batch Execution


def test_execute_batch_with_default_formatting():
    together = threading.Barrier(3)

    def processor_func(item):
        together.wait(5)  # passes only if all three run at once
        return item.upper()

    output = batch_execute(["a", "b", "c"], processor_func)
    assert output == "=== a ===\nA\n\n=== b ===\nB\n\n=== c ===\nC"


def test_execute_batch_with_labels():
    def fetch_func(url):
        time.sleep(0.05 if url == "url1" else 0)  # the first one ends last
        return f"body of {url}"

    output = batch_execute([("url1", "Site A"), ("url2", "Site B")], fetch_func)
    assert output == "=== Site A ===\nbody of url1\n\n=== Site B ===\nbody of url2"


def test_control_concurrency():
    running, peak, lock, together = 0, 0, threading.Lock(), threading.Barrier(3)

    def func(item):
        nonlocal running, peak
        with lock:
            running += 1
            peak = max(peak, running)
        together.wait(10)  # passes in groups of three
        with lock:
            running -= 1
        return item

    items = [str(number) for number in range(12)]
    assert batch_execute(items, func, max_workers=3, as_dict=True) == {item: item for item in items}
    assert peak == 3


# Requirement: Item Normalization


def test_normalize_strings():
    assert normalize_items(["a", "b"]) == [("a", "a"), ("b", "b")]


def test_preserve_tuples():
    assert normalize_items([("a", "Label A"), ("b", "Label B")]) == [("a", "Label A"), ("b", "Label B")]


# Requirement: Safe HTTP Requests


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        status = int(self.path.strip("/"))
        body = json.dumps({"status": status}).encode() if status < 400 else b"e" * 500
        self.send_response(status)
        self.send_header("content-type", "application/json" if status < 400 else "text/plain")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def client():
    with httpx.Client(verify=False, trust_env=False) as client:
        yield client


def test_successful_request(server, client):
    assert safe_request(client, "GET", f"{server}/200") == (True, {"status": 200})


@pytest.mark.parametrize("status", [400, 404, 429, 500, 503])
def test_http_error(server, client, status):
    assert safe_request(client, "GET", f"{server}/{status}") == (False, f"HTTP error ({status}): {'e' * 200}")


def test_connection_error(client):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    ok, message = safe_request(client, "GET", f"http://127.0.0.1:{port}/")
    assert ok is False
    assert message.startswith("Request failed: ")
    assert "refused" in message


# Requirement: API Headers


def test_bearer_token_header(monkeypatch):
    monkeypatch.setenv("MY_API_KEY", "s3cret")
    assert api_headers("MY_API_KEY") == {"Authorization": "Bearer s3cret"}


def test_custom_header_name(monkeypatch):
    monkeypatch.setenv("BRAVE_API_KEY", "s3cret")
    headers = api_headers("BRAVE_API_KEY", header_name="X-Subscription-Token", prefix="")
    assert headers == {"X-Subscription-Token": "s3cret"}


def test_missing_secret(monkeypatch):
    monkeypatch.delenv("MISSING_KEY", raising=False)
    assert api_headers("MISSING_KEY") == {}


# Requirement: Lazy Client Factory


class ExpensiveClient:
    made = 0

    def __init__(self):
        time.sleep(0.02)
        ExpensiveClient.made += 1


def test_create_lazy_getter(monkeypatch):
    monkeypatch.setattr(ExpensiveClient, "made", 0)
    get_client = lazy_client(lambda: ExpensiveClient())
    assert ExpensiveClient.made == 0
    assert isinstance(get_client(), ExpensiveClient)
    assert get_client() is get_client()
    assert ExpensiveClient.made == 1


def test_thread_safe_initialization(monkeypatch):
    monkeypatch.setattr(ExpensiveClient, "made", 0)
    get_client = lazy_client(ExpensiveClient)
    clients = batch_execute(range(100), lambda _: get_client(), max_workers=100, as_dict=True)
    assert ExpensiveClient.made == 1
    assert len(clients) == 100
    assert set(clients.values()) == {get_client()}


def test_conditional_initialization_with_secret(monkeypatch):
    monkeypatch.delenv("API_KEY", raising=False)
    called = []
    get_client = lazy_client(lambda: called.append(1), secret_name="API_KEY")
    assert get_client() is None
    assert called == []


# Requirement: CLI Dependency Declaration


@requires_cli("nonexistent")
def search():
    """Search."""


def test_declare_single_cli_dependency():
    @requires_cli("rg")
    def find():
        """Find."""

    assert requirements_of(find) == (Requirement(kind="cli", name="rg"),)
    assert [found["name"] for found in check_deps()["ripgrep.find"]] == ["rg"]


def test_declare_cli_with_version_check(tmp_path, monkeypatch):
    command = tmp_path / "ffmpeg"
    command.write_text('#!/bin/sh\ntest "$1" = --version && echo "ffmpeg version 6.1.1 Copyright (c) 2000-2023"\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    @requires_cli("ffmpeg", version_flag="--version")
    def convert():
        """Convert."""

    [found] = check_deps("ripgrep.convert")["ripgrep.convert"]
    assert (found["status"], found["version"]) == ("ok", "6.1.1")


# Requirement: Library Dependency Declaration


def test_declare_library_dependency():
    @requires_lib("pandas")
    def frame():
        """Frame."""

    assert requirements_of(frame) == (Requirement(kind="lib", name="pandas"),)
    [found] = check_deps()["ripgrep.frame"]
    assert (found["kind"], found["name"]) == ("lib", "pandas")
    assert found["status"] in ("ok", "missing")


# Requirement: Dependency Checking


@requires_lib("json")
def parse():
    """Parse."""


def test_check_all_tools():
    report = check_deps()
    assert report["ripgrep.search"][0]["status"] == "missing"
    assert report["ripgrep.parse"][0]["status"] == "ok"


def test_check_specific_tool(monkeypatch):
    module = type(sys)("another_pack")
    exec("def tool(): pass", module.__dict__)
    module.tool.__module__ = "another_pack"
    monkeypatch.setitem(sys.modules, "another_pack", module)
    requires_cli("nonexistent")(module.tool)
    assert "another_pack.tool" in check_deps()
    assert {name.partition(".")[0] for name in check_deps(tool="ripgrep")} == {"ripgrep"}
    assert list(check_deps(tool="ripgrep.search")) == ["ripgrep.search"]


def test_cli_not_installed():
    [found] = check_deps()["ripgrep.search"]
    assert (found["kind"], found["name"], found["status"]) == ("cli", "nonexistent", "missing")
