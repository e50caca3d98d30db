"""No caller keeps others from their share, nor do all clients without a credential; alone, each may use everything."""

import json
import time
from contextlib import ExitStack
from functools import partial

import pytest
from helpers import until
from interfaces.http.conftest import TOKEN, Served
from interfaces.http.matrix import token_entry

from onetool.core.threads import MAX_THREADS
from onetool.interfaces.rest.events import MAX_READERS
from onetool.interfaces.rest.run import MAX_RUNS

ADA, BOB = "ot_ada-0123456789-0123456789", "ot_bob-0123456789-0123456789"
NOBODY = None
PACK = """
import time
from pathlib import Path


def wait(mark: str) -> int:
    'Wait until a file exists.'
    with open("begun", "ab") as file:
        file.write(b".")
    deadline = time.monotonic() + 90
    while not Path(mark).exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    return 1
"""
SOON_S = 20  # the calls above wait longer
pytestmark = pytest.mark.attack("other callers")
CALLERS = pytest.mark.parametrize(("many", "other"), [(NOBODY, ADA), (ADA, NOBODY), (ADA, BOB), (TOKEN, ADA)])


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shares")
    (folder / "slow.py").write_text(PACK)
    tokens = [token_entry("ada", ADA, role="edit"), token_entry("bob", BOB, role="edit")]
    http = {"token": TOKEN, "tokens": tokens, "local": "edit"}
    limits = {"run": {"workers": 2, "timeout_s": 120}, "defaults": {"timeout_s": 60}}
    running = Served(folder, "--port", "0", config={"packs": ["slow.py"], "http": http, **limits}, real=True)
    yield running
    assert running.stop() == 0


@pytest.fixture
def mark(tmp_path):
    """The file that ends waiting tools."""
    file = tmp_path / "mark"
    yield file
    file.touch()


def begin(server, method, path, token, body=None, accept="application/json"):
    """Send a request, and return its socket."""
    data = b"" if body is None else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{server.port}", f"Accept: {accept}"]
    if token is not None:
        lines.append(f"Authorization: Bearer {token}")
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(data)}"]
    client = server.connect(SOON_S)
    client.sendall("\r\n".join([*lines, "", ""]).encode() + data)
    return client


def status(client):
    """The status of a response whose body may be endless; 0 if none comes."""
    data = b""
    try:
        while b"\r\n" not in data and (piece := client.recv(4096)):
            data += piece
    except TimeoutError:
        return 0
    return int(data.split()[1]) if data else 0


@CALLERS
def test_events(server, many, other):
    with ExitStack() as held:

        def read(token):
            return status(held.enter_context(begin(server, "GET", "/events", token, accept="text/event-stream")))

        for _ in range(MAX_READERS):
            until(lambda: read(many) == 200, every=0.05)  # the server may not have dropped all readers of the last test
        assert read(many) == 503
        assert [read(other) for _ in range(MAX_READERS // 2)] == [200] * (MAX_READERS // 2)
        assert (read(many), read(other)) == (503, 503)


@CALLERS
def test_runs(server, mark, many, other):
    run = partial(begin, server, "POST", "/run")
    code = f"slow.wait(mark={str(mark)!r})"
    with ExitStack() as held:

        def waits():
            return status(held.enter_context(run(many, {"code": code}, accept="text/event-stream"))) == 200

        for _ in range(MAX_RUNS):
            until(waits, every=0.05)  # runs of the last test may not have ended
        with run(many, {"code": "1"}) as client:
            assert status(client) == 503
        for _ in range(3):
            with run(other, {"code": "1"}) as client:
                assert status(client) == 200


def test_threads_of_blocking_tools(server, mark):
    begun = server.folder / "begun"
    begun.write_bytes(b"")
    with ExitStack() as held:
        for _ in range(MAX_THREADS + 8):
            held.enter_context(begin(server, "POST", "/call/slow.wait", NOBODY, {"mark": str(mark)}))
        until(lambda: begun.stat().st_size >= MAX_THREADS)
        began = time.monotonic()
        with begin(server, "POST", "/call/slow.wait", ADA, {"mark": "/"}) as client:
            assert status(client) == 200
        assert time.monotonic() - began < 5
