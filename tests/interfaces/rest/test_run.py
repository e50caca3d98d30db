"""POST /run, /run/check and GET /run/names: code over all tools."""

import asyncio
import json
import socket
import threading
import time
from contextlib import ExitStack
from types import SimpleNamespace

import httpx
import pytest
from helpers import BUILT_IN_PACKS, until
from interfaces.rest.served import TOKEN, Api, problem

from onetool import App
from onetool.interfaces.rest import run as handlers
from onetool.interfaces.rest.app import RestApp
from onetool.interfaces.rest.request import RestContext

ACCEPT = {"Accept": "text/event-stream"}
SLEEPY = '''
"""slow: tools that take their time."""
import asyncio
import time
from pathlib import Path
from onetool.sdk import report_progress

def wait(seconds: float, mark: str = "") -> str:
    """Wait."""
    report_progress(1, 2, "half")
    time.sleep(seconds)
    if mark:
        Path(mark).write_text("done")
    return "waited"

async def wait_for(mark: str) -> bool:
    """Wait until a file is there; say whether it came. Beside it are files that say `begun` and `stopped`."""
    try:
        Path(mark).with_name("begun").touch()
        for _ in range(2000):
            if Path(mark).exists():
                return True
            await asyncio.sleep(0.01)
    except asyncio.CancelledError:
        Path(mark).with_name("stopped").touch()
        raise
    return False

def login(password: str) -> str:
    """Log in."""
    return "in"

def repeat(name: str, password: str) -> dict:
    """Say the password again."""
    return {"said": f"{name} has {password}"}
'''


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("home")
    (folder / "slow.py").write_text(SLEEPY)
    config = {
        "packs": ["slow.py"],
        "aliases": {"echo": "tools.echo"},
        "snippets": {"hi": {"description": "Greets.", "params": {"who": {"default": "you"}}, "body": "'hi {{ who }}'"}},
        "results": {"inline_bytes": 2000},
        "run": {"workers": 20},  # more than there may be runs over REST: nobody waits for one
    }
    (folder / "onetool.yaml").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="module")
def real(home):
    api = Api(real=home, args=["--config", str(home / "onetool.yaml")])
    yield api
    assert api.stop() == 0


def run(api, code, **more):
    reply = api.ask("POST", "/run", {"code": code, **more})
    assert reply.status_code == 200, reply.text
    return reply.json()


def stream(api, code, **more):
    reply = api.ask("POST", "/run", {"code": code, **more}, headers=ACCEPT)
    assert reply.headers["content-type"] == "text/event-stream"
    parts = [part.split("\n") for part in reply.text.split("\n\n") if part and not part.startswith(":")]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in parts]


def test_it_gives_the_value_the_prints_and_the_calls(real):
    found = run(real, "print('a')\nprint('b')\nx = tools.echo(message=word)\n[x, 1]", variables={"word": "hello"})
    assert (found["ok"], found["value"], found["type"], found["prints"]) == (True, ["hello", 1], "array", "a\nb\n")
    assert found["durationMs"] > 0
    (call,) = found["calls"]
    assert (call["name"], call["args"], call["ok"], call["preview"]) == (
        "tools.echo",
        {"message": "hello"},
        True,
        "hello",
    )
    assert call["at"].endswith("Z")


def test_an_error_says_what_was_done_what_failed_and_what_is_not_known(home):
    """In one body and as a stream, after an exception and after a timeout."""
    config = home / "impatient.yaml"
    config.write_text(json.dumps({"packs": ["slow.py"], "run": {"timeout_s": 4}}))
    failing = "for n in range(3):\n    slow.login(password=f'sesame-{n}')\nslow.wait(seconds=0, mark='/no/such/folder')"
    endless = f"slow.login(password='sesame')\nslow.wait_for(mark={str(home / 'never')!r})"
    api = Api(real=home, args=["--config", str(config)])
    try:
        for code, told in (
            (
                failing,
                ["done: slow.login ×3", "failed: slow.wait(seconds=0, mark='/no/such/folder')"],
            ),
            (endless, ["done: slow.login ×1", f"not known: slow.wait_for(mark={str(home / 'never')!r:.39}"]),
        ):
            whole, (kind, event) = run(api, code)["error"], stream(api, code)[-1]
            assert kind == "error"
            for error in (whole, event):
                lists = error["hints"][-2:]
                assert [line[: len(begin)] for line, begin in zip(lists, told, strict=True)] == told
                assert "sesame" not in str(error)
    finally:
        assert api.stop() == 0


def test_an_error_says_where_in_the_text_that_was_sent(real):
    found = run(real, "```python\nx = 1\nif x:\n    1 / 0\n```\n")
    assert found["ok"] is False
    assert "value" not in found
    assert found["error"]["message"] == "ZeroDivisionError: division by zero"
    assert [found["error"][key] for key in ("line", "column", "endLine", "endColumn")] == [4, 5, 4, 10]
    assert found["error"]["code"] == "execution_error"
    refused = run(real, "1\ntools.echo(massage='x')")["error"]
    assert (refused["line"], refused["reason"], refused["calls"]) == (2, "check", 0)


def test_a_call_that_failed_is_told_as_such(real):
    found = run(real, "try:\n    fs.read_file(path='nothing-here')\nexcept Exception:\n    x = 'caught'\nx")
    assert found["value"] == "caught"
    (call,) = found["calls"]
    assert call["ok"] is False
    assert "nothing-here" in call["error"]


def test_the_stream_tells_what_happens_in_order(real):
    events = stream(real, "print('one')\nslow.wait(seconds=0)\nprint('two')\n{'a': 1}")
    assert [name for name, _ in events] == ["started", "print", "call", "progress", "called", "print", "result"]
    told = dict(events)
    assert told["call"]["name"] == "slow.wait"
    assert told["called"]["id"] == told["call"]["id"]
    assert (told["called"]["ok"], told["called"]["preview"]) == (True, "waited")
    assert told["progress"] == {"progress": 1.0, "total": 2.0, "message": "half"}
    assert (told["result"]["value"], told["result"]["type"], told["result"]["calls"]) == ({"a": 1}, "object", 1)


def test_the_stream_ends_with_the_error(real):
    events = stream(real, "tools.echo(message='a')\nundefined + 1")
    name, error = events[-1]
    assert name == "error"
    assert (error["line"], error["calls"]) == (2, 1)
    assert "undefined" in error["message"]


def test_prints_come_while_the_code_runs(real, tmp_path):
    go = tmp_path / "go"
    code = f"print('first')\nslow.wait_for(mark={str(go)!r})"
    with real.client.stream("POST", "/run", json={"code": code}, headers=ACCEPT) as reply:
        lines = reply.iter_lines()
        assert "event: print" in lines
        go.touch()  # if what is printed came at the end only, the tool would have given up on this by now
        assert "event: result" in lines
        assert json.loads(next(lines).removeprefix("data: "))["value"] is True


@pytest.mark.parametrize("accept", ["text/event-stream", "application/json"])
def test_a_client_that_leaves_stops_the_run(real, tmp_path, accept):
    go, mark = tmp_path / "go", tmp_path / "mark"
    code = f"slow.wait_for(mark={str(go)!r})\nslow.wait(seconds=0, mark={str(mark)!r})"
    body = json.dumps({"code": code}).encode()
    head = f"POST /run HTTP/1.1\r\nHost: {real.client.base_url.netloc.decode()}\r\nAccept: {accept}\r\n"
    with socket.create_connection((real.client.base_url.host, real.client.base_url.port)) as client:
        client.sendall(f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        wait_until((tmp_path / "begun").exists)
    wait_until((tmp_path / "stopped").exists)
    go.touch()
    assert run(real, "1")["value"] == 1
    assert not mark.exists()


def wait_until(check):
    for _ in range(400):
        if check():
            return
        time.sleep(0.05)
    raise AssertionError("it never came")


def test_a_large_value_is_stored_and_its_beginning_sent(real):
    for found in (run(real, "['line'] * 3000"), dict(stream(real, "['line'] * 3000"))["result"]):
        assert (found["type"], found["size"] > 10_000) == ("array", True)
        assert len(found["value"]) <= 4096
        assert found["value"].startswith("Shape: list[str], 3,000 items\n- line\n- line\n")
        page = run(real, f"ot.result(handle={found['stored']!r}, limit=2)")["value"]
        assert page["lines"]


def test_secrets_and_long_arguments_are_not_shown(real):
    (call,) = run(real, "slow.login(password='open sesame')")["calls"]
    assert call["args"] == {"password": "***"}
    (call,) = run(real, "tools.echo(message='x' * 100000)\n1")["calls"]
    assert len(call["args"]["message"]) < 5000
    assert len(call["preview"]) <= 500


def test_a_password_that_a_tool_repeats_is_not_in_the_preview_of_its_call(real):
    code = "slow.repeat(name='Ann', password='open sesame')"
    found = run(real, code)
    assert found["calls"][0]["preview"] == '{"said":"Ann has ***"}'
    assert found["value"] == {"said": "Ann has open sesame"}  # that is the caller's own
    assert dict(stream(real, code))["called"]["preview"] == '{"said":"Ann has ***"}'


def test_what_is_no_request_is_refused(real):
    problem(real.ask("POST", "/run", {}), 400, "invalid")
    problem(real.ask("POST", "/run", {"code": 1}), 400, "invalid")
    problem(real.ask("POST", "/run", {"code": "1", "variables": {"a b": 1}}), 400, "invalid")
    problem(real.ask("POST", "/run", {"code": "1", "session": "x"}), 400, "invalid")
    assert problem(real.get("/run"), 405, "method_not_allowed")
    problem(real.get("/run/nothing"), 404, "not_found")


def test_no_more_than_so_many_run_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(handlers, "MAX_RUNS", 0)
    (tmp_path / "onetool.yaml").write_text("{}")
    with App.open(tmp_path / "onetool.yaml") as app:
        import asyncio

        from interfaces.rest.test_event_loop import send

        status, body = asyncio.run(send(RestApp(app), "POST", "/run", {"code": "1"}))
    assert (status, body["code"]) == (503, "too_many")


# /run/check


def test_code_is_checked_and_nothing_runs(real, home):
    mark = home / "checked"
    code = f"slow.wait(seconds=0, mark={str(mark)!r})\necho(message='x')\ntools.ecko()\nfs.read_file(nothing=1)\n"
    reply = real.ask("POST", "/run/check", {"code": code})
    assert reply.status_code == 200
    found = reply.json()
    assert found["calls"] == ["slow.wait", "tools.echo", "fs.read_file"]
    assert [(one["line"], one["column"]) for one in found["errors"]] == [(3, 1), (4, 1), (4, 1)]
    assert "did you mean tools.echo" in found["errors"][0]["message"]
    assert found["errors"][0]["endColumn"] == len("tools.ecko") + 1
    assert not mark.exists()


def test_syntax_errors_have_their_place(real):
    (error,) = real.ask("POST", "/run/check", {"code": "x = 1\ny = (2\n"}).json()["errors"]
    assert (error["line"], error["column"]) == (2, 5)
    assert "never closed" in error["message"]
    assert real.ask("POST", "/run/check", {"code": "x", "variables": {"x": 1}}).json() == {"errors": [], "calls": []}
    assert real.ask("POST", "/run/check", {"code": "$nothing"}).json()["errors"][0]["line"] == 1


# /run/names


def test_names_are_those_that_code_can_say(real):
    reply = real.get("/run/names")
    found = reply.json()
    packs = {pack["name"]: pack for pack in found["packs"]}
    assert BUILT_IN_PACKS | {"slow"} <= set(packs)
    (wait,) = [tool for tool in packs["slow"]["tools"] if tool["name"] == "wait"]
    assert wait["tool"] == "slow.wait"
    assert wait["signature"].startswith("slow.wait(seconds: float")
    assert wait["summary"] == "Wait."
    assert wait["parameters"][0] | {"description": ""} == {
        "name": "seconds",
        "type": "float",
        "required": True,
        "description": "",
    }
    assert wait["parameters"][1]["default"] == ""
    assert {"len", "sorted"} <= set(found["builtins"])
    assert "open" not in found["builtins"]
    assert "json" in found["modules"]
    assert found["snippets"][0]["name"] == "hi"
    assert found["aliases"] == {"echo": "tools.echo"}
    tag = reply.headers["etag"]
    assert real.get("/run/names", headers={"If-None-Match": tag}).status_code == 304


# Who may


def test_under_an_allow_list_only_that_runs_and_is_named(home, start):
    api = start(real=home, args=["--config", str(home / "onetool.yaml"), "--tool-allow", "time.now,tools.echo"])
    assert run(api, "tools.echo(message='a')")["value"] == "a"
    refused = run(api, "slow.wait(seconds=0)")
    assert refused["ok"] is False
    assert "not allowed" in refused["error"]["message"]
    assert api.ask("POST", "/run/check", {"code": "slow.wait(seconds=0)"}).json()["errors"]
    found = api.get("/run/names").json()
    assert {tool["tool"] for pack in found["packs"] for tool in pack["tools"]} == {"time.now", "tools.echo"}


def test_it_needs_the_token_and_results_belong_to_it(start, tmp_path):
    config = {"http": {"token": TOKEN}, "results": {"inline_bytes": 1000}}
    tmp_path.joinpath("onetool.yaml").write_text(json.dumps(config))
    api = start(real=tmp_path, args=["--config", str(tmp_path / "onetool.yaml")])
    for method, path in (("POST", "/run"), ("POST", "/run/check"), ("GET", "/run/names")):
        problem(api.ask(method, path, {"code": "1"} if method == "POST" else None), 401, "unauthorized")
    api.client.headers["Authorization"] = f"Bearer {TOKEN}"
    handle = run(api, "['x'] * 2000")["stored"]
    assert run(api, f"ot.result(handle={handle!r})")["ok"]


def test_runs_beside_each_other(real):
    found = []

    def one():
        found.append(httpx.post(f"{real.url}/run", json={"code": "slow.wait(seconds=0.2)"}, timeout=20).json()["ok"])

    threads = [threading.Thread(target=one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 4


def unread(api, code):
    """A stream of events that its client does not read."""
    body = json.dumps({"code": code}).encode()
    head = f"POST /run HTTP/1.1\r\nHost: {api.url.removeprefix('http://')}\r\nContent-Type: application/json\r\n"
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    client.connect(("127.0.0.1", int(api.url.rpartition(":")[2])))
    client.sendall(f"{head}Accept: text/event-stream\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    return client


def test_clients_that_do_not_read_hold_no_place_when_their_runs_are_over(real, tmp_path):
    code = f"slow.wait_for(mark={str(tmp_path / 'go')!r})\ns = 'y' * 50_000\n"
    code += "for i in range(100):\n    print(s)\n'z' * 900_000"
    clients = [unread(real, code) for _ in range(handlers.MAX_RUNS)]

    def refused():
        try:  # one that came before the last of them has a place, and would wait for a worker
            return httpx.post(f"{real.url}/run", json={"code": "1"}, timeout=1).status_code == 503
        except httpx.TimeoutException:
            return False

    try:
        until(refused)
        (tmp_path / "go").touch()
        until(lambda: real.ask("POST", "/run", {"code": "1"}).status_code == 200, within=90)
    finally:
        for client in clients:
            client.close()


def test_a_large_value_that_can_not_be_stored_is_an_error(tmp_path, start):
    (tmp_path / "onetool.yaml").write_text(
        json.dumps({"results": {"max_total_mb": 1}, "run": {"max_output_bytes": 8_000_000}})
    )
    api = start(real=tmp_path, args=["--config", str(tmp_path / "onetool.yaml")])
    found = run(api, "['x' * 1000] * 2000")
    assert found["ok"] is False
    assert "The call was made, but its result" in found["error"]["message"]


def test_names_are_made_once_for_each_catalogue(home, monkeypatch):
    with App.open(str(home / "onetool.yaml")) as app:
        context, made = RestContext(app, None), []
        monkeypatch.setattr(app, "code_names", lambda allowed: made.append(allowed) or {"n": len(made)})
        assert [handlers._names_of(context) for _ in range(3)] == [b'{"n":1}'] * 3
        app.reload()
        assert handlers._names_of(context) == b'{"n":2}'


def test_checks_are_counted_apart_from_runs():
    """Where all places for runs are taken, code is still checked."""
    context = RestContext(SimpleNamespace(catalog=SimpleNamespace(registry=None)), None)

    async def turn():
        async with context.turn():
            pass

    with ExitStack() as taken:
        for _ in range(handlers.MAX_RUNS):
            taken.enter_context(context.admitted(handlers.MAX_RUNS, handlers.TOO_MANY, 1))
        asyncio.run(turn())
