"""The site without a server: what every request passes, the routes, errors, and the line in the log."""

import asyncio
import gc
import json
import logging
import sys

import pytest

from onetool.config.model import HttpConfig
from onetool.core.principal import Principal
from onetool.http.asgi import respond
from onetool.interfaces.http import request_log
from onetool.interfaces.http.guard import Guard, Route
from onetool.interfaces.http.listen import BoundAddress
from onetool.interfaces.http.rules import AccessRules
from onetool.interfaces.http.site import READ
from onetool.services.journal import recorder as event_queue
from onetool.services.logs import NonBlockingHandler, make_log_non_blocking, set_up_logging

JSON = (b"content-type", b"application/json")
RULES = AccessRules(HttpConfig(), BoundAddress("127.0.0.1", 8765, ("127.0.0.1",)))


def site(*routes, **options):
    return Guard(routes, RULES, 1024, **options)


def ask(site, path="/x", method="GET", headers=(), body=b"", **scope):
    """Give a request to the site; gives (status, headers, body)."""
    sent = []

    async def receive():
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message):
        sent.append(message)

    head = [(b"host", b"localhost:8765"), *headers]
    whole = {"type": "http", "method": method, "path": path, "raw_path": path.encode(), "headers": head}
    whole |= {"client": ("127.0.0.1", 1), **scope}
    asyncio.run(site(whole, receive, send))
    if not sent:
        return 0, {}, b""
    return sent[0]["status"], dict(sent[0]["headers"]), b"".join(one.get("body", b"") for one in sent[1:])


def error_of(reply):
    error = json.loads(reply[2])["error"]
    assert error.pop("request_id") == reply[1][b"x-request-id"].decode()
    return error


def telling(word):
    async def app(scope, _receive, send):
        await respond(send, 200, f"{word} {scope['path']}".encode(), b"text/plain")

    return app


async def failing(_scope, _receive, _send):
    raise RuntimeError("secret-of-the-house\nand more")


@pytest.fixture
def lines(caplog):
    """What the access log was told."""
    caplog.set_level(logging.INFO, "onetool.access")
    return lambda: [record.fields for record in caplog.records if record.name == "onetool.access"]


# Routes


def test_a_route_is_one_address_and_with_or_without_a_slash():
    one = site(Route("/x", telling("x")), Route("/", telling("root")))
    assert ask(one, "/x")[2] == b"x /x"
    assert ask(one, "/x/")[2] == b"x /x/"
    assert ask(one, "/")[2] == b"root /"
    for path in ("/x/y", "/xy", "/X", "x"):
        assert ask(one, path)[0] == 404, path


def test_a_route_can_have_everything_below_it():
    one = site(Route("/tools", telling("t"), below=True))
    assert ask(one, "/tools")[2] == b"t /tools"
    assert ask(one, "/tools/a/b")[2] == b"t /tools/a/b"
    assert ask(one, "/toolsx")[0] == 404


def test_what_is_not_there_names_what_is_near():
    one = site(Route("/mcp", telling("m")), Route("/healthz", telling("h")), Route("/", telling("r")))
    status, headers, _ = reply = ask(one, "/mpc")
    assert (status, headers[b"content-type"]) == (404, b"application/json")
    assert error_of(reply) == {"code": "not_found", "message": "Unknown path '/mpc'; did you mean /mcp?"}
    assert "did you mean /healthz?" in error_of(ask(one, "/health"))["message"]
    assert "use one of /mcp, /healthz, /" in error_of(ask(one, "/wp-admin.php"))["message"]
    assert len(ask(one, "/" + "x" * 100_000)[2]) < 500


def test_a_method_that_a_route_does_not_take():
    one = site(Route("/x", telling("x"), methods=READ))
    status, headers, _ = reply = ask(one, method="POST")
    assert (status, headers[b"allow"]) == (405, b"GET, HEAD")
    assert error_of(reply) == {"code": "method_not_allowed", "message": "/x takes GET, HEAD, not POST."}


def test_what_a_protected_route_learns():
    seen = {}

    async def app(scope, _receive, send):
        seen.update(scope)
        await respond(send, 200, b"{}")

    ask(site(Route("/x", app)))
    assert (seen["principal"], seen["log"]) == (Principal(role="edit", owner="(local)"), {})


# What goes wrong


def test_an_exception_is_a_500_without_insides_and_is_logged_without_secrets(caplog):
    one = site(Route("/x", failing), redact=lambda text: text.replace("secret-of-the-house", "***"))
    reply = ask(one)
    assert reply[0] == 500
    assert error_of(reply)["code"] == "internal"
    assert b"secret" not in reply[2] + b"RuntimeError"
    assert b"RuntimeError" not in reply[2]
    (told,) = [record for record in caplog.records if record.name == "onetool"]
    assert "RuntimeError: ***" in told.getMessage()
    assert "failing" in told.getMessage()
    assert "secret-of-the-house" not in told.getMessage()


def test_an_exception_after_the_answer_began_sends_no_second_answer():
    async def app(_scope, _receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise RuntimeError

    sent = []

    async def send(message):
        sent.append(message)

    async def receive():
        return {"type": "http.disconnect"}

    scope = {"type": "http", "method": "GET", "path": "/x", "headers": [(b"host", b"localhost")]}
    scope["client"] = ("127.0.0.1", 1)
    asyncio.run(site(Route("/x", app))(scope, receive, send))
    assert [message["type"] for message in sent] == ["http.response.start"]


def test_a_length_that_is_no_number():
    one = site(Route("/x", telling("x")))
    for length in (b"x", b"-1", b"", b"1, 1", b"1e3"):
        assert ask(one, headers=[(b"content-length", length)])[0] == 400, length
    assert ask(one, headers=[(b"content-length", b"1"), (b"content-length", b"1")])[0] == 400
    assert ask(one, headers=[(b"content-length", b"9" * 5000)])[0] == 413


def test_it_knows_no_websockets_and_answers_the_start_and_the_end_of_a_server():
    stopped = []

    class Stream:
        async def __call__(self, *_): ...

        async def stop(self):
            stopped.append(True)

    one, sent = site(Route("/x", Stream())), []
    asked = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])

    async def receive():
        return next(asked)

    async def send(message):
        sent.append(message["type"])

    asyncio.run(one({"type": "lifespan"}, receive, send))
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert stopped == [True]
    with pytest.raises(RuntimeError, match="websocket"):
        asyncio.run(one({"type": "websocket"}, receive, send))


# The log


def test_every_request_has_one_line(lines):
    async def app(scope, _receive, send):
        scope["log"]["mcp"] = "tools/call"
        await respond(send, 201, b"12345")

    one = site(Route("/x", app, protected=False), Route("/bad", failing))
    ask(one, "/x", "POST", [JSON], client=("10.1.2.3", 4567), query_string=b"token=sesame")
    ask(one, "/none", "PUT")
    ask(one, "/bad")
    ask(one, headers=[(b"host", b"evil")])
    first, *others = lines()
    assert first.pop("duration_ms") < 1000
    assert (len(first.pop("request_id")), len(first.pop("trace_id"))) == (24, 32)
    assert first == {
        "method": "POST", "path": "/x", "status": 201, "bytes": 5, "client": "10.1.2.3", "mcp": "tools/call",
    }  # fmt: skip
    assert [line["status"] for line in others] == [404, 500, 421]
    assert others[2]["error"] == "bad_host"


def test_a_client_that_left_before_the_answer_is_told_apart(lines):
    async def app(*_):
        return

    ask(site(Route("/x", app)))
    assert lines()[0]["status"] == 499


def written_now():
    """A server writes its lines together, after a moment."""
    for handler in logging.getLogger("onetool").handlers:
        handler.recorder.flush()
        handler.flush()


HOSTILE = ["/a\nlevel: error", "/a\r\n{}", "/\x1b[2J", "/\x85", "/\u2028", "/\x9b31m", "/\x00", "/\u202e", "/\ud800"]


def _request(path, more):
    return request_log.LoggedRequest(method="GET", path=path, status=200, seconds=0.001, size=1, client=None, more=more)


@pytest.mark.parametrize("text", HOSTILE)
def test_nobody_can_forge_a_line(text, tmp_path):
    with (tmp_path / "log").open("w") as stream:
        set_up_logging("info", stream)
        make_log_non_blocking(request_log.AccessHandler)
        more = {"mcp": text, "deep": [text]}
        request_log.write_entry(_request(text, more))
        written_now()
    (line,) = (tmp_path / "log").read_text().splitlines()
    entry = json.loads(line)
    assert entry["path"].isprintable()
    assert entry["mcp"].isprintable()


def test_what_is_long_is_cut(lines):
    ask(site(Route("/x", telling("x"))), "/" + "y" * 5000)
    assert len(lines()[0]["path"]) == 201


def test_long_paths_that_wait_are_limited_by_their_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(event_queue, "MAX_BYTES", 10_000)
    recorder = event_queue.Recorder()
    with (tmp_path / "log").open("w") as stream:
        set_up_logging("info", stream)
        make_log_non_blocking(lambda fd, formatter: request_log.AccessHandler(fd, formatter, recorder))
        with recorder._handling:  # the thread is held up
            for _ in range(5):
                request_log.write_entry(_request("/" + "y" * 4_000, {}))
        written_now()
    assert recorder.lost == 3


def test_a_route_can_not_replace_what_the_line_says(lines, tmp_path):
    async def app(scope, _receive, send):
        scope["log"] |= {"status": 1, "name": "n", "msg": "m", "exc_info": "e", "levelno": "l", "odd": {1, 2}}
        await respond(send, 200, b"")

    ask(site(Route("/x", app)))
    assert lines()[0]["status"] == 200
    assert lines()[0]["name"] == "n"
    with (tmp_path / "log").open("w") as stream:
        set_up_logging("info", stream)
        make_log_non_blocking(request_log.AccessHandler)
        ask(site(Route("/x", app)))
        written_now()
    assert json.loads((tmp_path / "log").read_text())["odd"] in ("{1, 2}", [1, 2])


def test_a_line_of_the_log_looks_like_every_other(tmp_path):
    with (tmp_path / "log").open("w") as stream:
        set_up_logging("info", stream)
        logging.getLogger("onetool").warning("before")
        make_log_non_blocking(request_log.AccessHandler)
        logging.getLogger("onetool").warning("after")
        ask(site(Route("/x", telling("x"))))
        written_now()
    before, after, line = map(json.loads, (tmp_path / "log").read_text().splitlines())
    assert before.keys() == after.keys()
    assert list(line)[:4] == list(after)[:4] == ["time", "level", "logger", "message"]
    assert len(line["time"]) == len(after["time"])
    assert (line["logger"], line["level"], line["message"]) == ("onetool.access", "info", "GET /x")


@pytest.mark.parametrize("path", ["/x/the-secret", "/x/the%2Dsecret", "/x/%74he-secret"])
def test_a_secret_in_a_path_is_masked_however_it_is_written(caplog, path):
    caplog.set_level(logging.INFO, "onetool.access")
    scope = {"method": "GET", "path": "/x", "raw_path": path.encode(), "log": {}}
    request_log.log_request(scope, 404, 0.001, 1, lambda text: text.replace("the-secret", "***"))
    (told,) = [record.getMessage() for record in caplog.records if record.name == "onetool.access"]
    assert told.startswith("GET /x/*** 404")


def test_a_line_is_cheap(tmp_path):
    """Counted in calls of functions, since a clock depends on what else a machine has to do."""
    scope = {"method": "POST", "path": "/mcp", "raw_path": b"/mcp", "client": ("127.0.0.1", 1), "log": {"mcp": "x"}}
    with (tmp_path / "log").open("w") as stream:
        set_up_logging("info", stream)
        make_log_non_blocking(request_log.AccessHandler)
        assert calls_of(lambda: request_log.log_request(scope, 200, 0.001, 345, str)) < 20
        written_now()
    assert (tmp_path / "log").read_text().count("\n") == 2


def calls_of(work):
    """How many functions a second time of this calls, those in C included."""
    work()
    seen = []
    sys.setprofile(lambda frame, event, arg: seen.append(event) if event in ("call", "c_call") else None)
    try:
        work()
    finally:
        sys.setprofile(None)
    return len(seen)


@pytest.mark.long
def test_a_request_that_has_ended_leaves_nothing_for_the_garbage_collector():
    """Else its memory is free only when cycles are looked for, and the next requests find none that is warm."""
    here = site(Route("/x", telling("x")))

    async def answered():
        async def receive():
            return {"type": "http.request"}

        async def send(_message):
            pass

        scope = {"type": "http", "method": "GET", "path": "/x", "raw_path": b"/x", "headers": [(b"host", b"localhost")]}
        scope["client"] = ("127.0.0.1", 1)
        await asyncio.create_task(here(scope, receive, send))

    async def garbage():
        await answered()
        gc.collect()
        gc.disable()
        try:
            await answered()
            await asyncio.sleep(0)
            return gc.collect()
        finally:
            gc.enable()

    assert 0 in [asyncio.run(garbage()) for _ in range(5)]  # threads of other tests may leave some of their own


# A log that nobody reads


@pytest.fixture
def pipe():
    import os

    read, write = os.pipe()
    handler = NonBlockingHandler(write)
    yield read, handler, lambda text: handler.handle(logging.LogRecord("onetool", 30, "", 0, text, None, None))
    handler.close()
    os.close(write)


def test_a_pipe_that_nobody_reads_holds_up_nobody(pipe):
    import os

    read, _, tell = pipe
    for number in range(5000):
        tell(f"{number:05} " + "x" * 100)
    received = b""
    for _ in range(3):  # what was kept comes with the next line
        while len(piece := os.read(read, 65536)) == 65536:
            received += piece
        received += piece
        tell("next")
    lines = received.decode().splitlines()
    assert lines[0].startswith("00000")
    assert any("log lines were lost: they were not read in time" in line for line in lines)
    assert any(line.startswith("04999") for line in lines)
    assert all(len(line) == 106 or "lost" in line or line == "next" for line in lines)
    os.close(read)
    tell("nobody is there any more")


def test_a_line_longer_than_a_pipe_takes_at_once(pipe):
    import os

    read, _, tell = pipe
    tell("x" * 100_000)
    received = b""
    while not received.endswith(b"\n"):
        received += os.read(read, 65536)
        tell("")
    assert received.rstrip(b"\n") == b"x" * 100_000
    os.close(read)


def test_a_record_that_can_not_be_told_is_told_so(pipe, capsys):
    import os

    read, handler, _ = pipe
    handler.handle(logging.LogRecord("onetool", 30, "", 0, "%d", ("x",), None))
    assert "Logging error" in capsys.readouterr().err
    os.close(read)
