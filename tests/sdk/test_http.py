"""Requests against a real server, and everything that can be wrong with one."""

import asyncio
import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
from helpers import executor_for, run

from onetool.sdk.http import api_headers, safe_request

ANSWERS = {
    "/json": (200, "application/json", b'{"a": [1, "\xc3\xa9"]}'),
    "/json-charset": (200, "Application/JSON; charset=utf-8", b"[1]"),
    "/problem": (200, "application/problem+json", b'{"title": "none"}'),
    "/text": (200, "text/plain; charset=utf-8", "Grüße".encode()),
    "/json-as-text": (200, "text/plain", b'{"a": 1}'),
    "/no-type": (200, None, b"plain"),
    "/empty-json": (200, "application/json", b""),
    "/empty-text": (200, "text/plain", b""),
    "/no-content": (204, None, b""),
    "/bad-json": (200, "application/json", b"<html>"),
    "/bad-bytes": (200, "application/json", b'"\xff\xfe\xfd"'),
    "/deep-json": (200, "application/json", b"[" * 200_000),
    "/missing": (404, "text/plain", b"nothing here"),
    "/long-error": (500, "text/plain", b"x" * 1_000),
    "/empty-error": (503, None, b""),
    "/bad-json-error": (400, "application/json", b"<html>"),
    "/secret-error": (403, "text/plain", b"x" * 195 + b"hunter2"),
    "/loop": (302, None, b""),
    "/elsewhere": (301, None, b""),
    "/not-modified": (304, None, b""),
}
TO = {"/loop": "/loop", "/elsewhere": "/json"}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/slow":
            self.server.stop.wait(30)
            return
        if self.path == "/breaks":
            self.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf")
            return
        status, kind, body = ANSWERS[self.path]
        self.send_response(status)
        for name, value in (("content-type", kind), ("location", TO.get(self.path))):
            if value:
                self.send_header(name, value)
        if status not in (204, 304):
            self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_HEAD(self):
        self.do_GET()

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        answer = json.dumps({"sent": json.loads(body), "auth": self.headers["Authorization"]}).encode()
        self.send_response(201)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.stop = threading.Event()

    def handle_error(self, *_):
        pass  # clients that hang up are what these tests are about


@pytest.fixture(scope="module")
def server():
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.stop.set()
        server.shutdown()
        thread.join()


@pytest.fixture(params=["sync", "async"])
def get(request):
    """`get(url)` with a client of either kind."""

    def now(url, method="GET", client=None, **kw):
        with httpx.Client(verify=False, trust_env=False, timeout=10, **(client or {})) as opened:
            return safe_request(opened, method, url, **kw)

    def later(url, method="GET", client=None, **kw):
        async def main():
            async with httpx.AsyncClient(verify=False, trust_env=False, timeout=10, **(client or {})) as opened:
                return await safe_request(opened, method, url, **kw)

        return asyncio.run(main())

    return now if request.param == "sync" else later


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("/json", {"a": [1, "é"]}),
        ("/json-charset", [1]),
        ("/problem", {"title": "none"}),
        ("/text", "Grüße"),
        ("/json-as-text", '{"a": 1}'),
        ("/no-type", "plain"),
        ("/empty-json", None),
        ("/empty-text", ""),
        ("/no-content", None),
    ],
)
def test_data_is_decoded_by_its_content_type(server, get, path, data):
    assert get(server + path) == (True, data)


def test_a_body_and_headers_go_out(server, get):
    ok, data = get(server + "/", "POST", json={"q": 1}, headers={"Authorization": "Bearer x"})
    assert ok
    assert data == {"sent": {"q": 1}, "auth": "Bearer x"}


def test_an_answer_to_head_has_no_data(server, get):
    assert get(server + "/json", "HEAD") == (True, None)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/missing", "HTTP error (404): nothing here"),
        ("/long-error", f"HTTP error (500): {'x' * 200}"),
        ("/empty-error", "HTTP error (503): Service Unavailable"),
        ("/bad-json-error", "HTTP error (400): <html>"),
        ("/elsewhere", "HTTP error (301): redirects to /json; pass follow_redirects=True to follow"),
    ],
)
def test_http_errors(server, get, path, message):
    assert get(server + path) == (False, message)


def test_redirects_are_followed_by_a_client_that_does(server, get):
    assert get(server + "/elsewhere", follow_redirects=True) == (True, {"a": [1, "é"]})


def test_not_modified_is_no_error(server, get):
    assert get(server + "/not-modified") == (True, "")


@pytest.mark.parametrize("path", ["/bad-json", "/bad-bytes"])
def test_bad_json(server, get, path):
    ok, message = get(server + path)
    assert not ok
    assert message.startswith("Request failed: the response is not valid JSON: ")


def test_json_that_is_too_deep(server, get):
    ok, message = get(server + "/deep-json")
    assert not ok
    assert message.startswith("Request failed: ")


def test_too_slow(server, get):
    ok, message = get(server + "/slow", timeout=0.2)
    assert not ok
    assert message in ("Request failed: timed out", "Request failed: ReadTimeout")


def test_an_answer_that_breaks_off(server, get):
    ok, message = get(server + "/breaks")
    assert not ok
    assert message.startswith("Request failed: ")


def test_too_many_redirects(server, get):
    ok, message = get(server + "/loop", client={"max_redirects": 3, "follow_redirects": True})
    assert (ok, message) == (False, "Request failed: Exceeded maximum allowed redirects.")


def test_nobody_listens(get):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    ok, message = get(f"http://127.0.0.1:{port}/")
    assert not ok
    assert message.startswith("Request failed: ")
    assert len(message) > len("Request failed: ")


def test_no_such_host(get):
    ok, message = get("http://nobody.invalid/")
    assert not ok
    assert message.startswith("Request failed: ")


def test_no_tls_there(server, get):
    ok, message = get(server.replace("http:", "https:") + "/json")
    assert not ok
    assert "SSL" in message


@pytest.mark.parametrize("url", ["", "no scheme", "http://", "ftp://127.0.0.1/", "http://[::1", "http://a\nb/", "/x"])
def test_invalid_urls(get, url):
    ok, message = get(url)
    assert not ok
    assert message.startswith("Request failed: ")


def test_an_argument_that_the_client_does_not_know(server, get):
    ok, message = get(server + "/json", colour="red")
    assert not ok
    assert "colour" in message


def test_a_closed_client(server):
    client = httpx.Client()
    client.close()
    ok, message = safe_request(client, "GET", server + "/json")
    assert not ok
    assert "closed" in message


def test_no_client_at_all(server):
    ok, message = safe_request(None, "GET", server)
    assert not ok
    assert "secret" in message


def test_an_error_without_words_is_told_by_its_type():
    class Client:
        def request(self, *_, **__):
            raise ConnectionResetError

    assert safe_request(Client(), "GET", "http://a/") == (False, "Request failed: ConnectionResetError")


def test_a_plain_method_around_an_async_one(server):
    class Wrapped(httpx.AsyncClient):
        def request(self, *args, **kw):
            return super().request(*args, **kw)

    async def main():
        async with Wrapped(verify=False, trust_env=False) as client:
            return await safe_request(client, "GET", server + "/json"), await safe_request(client, "GET", "nowhere")

    (ok, _), (failed, message) = asyncio.run(main())
    assert ok
    assert not failed
    assert message.startswith("Request failed: ")


def test_being_cancelled_is_no_failed_request(server):
    async def main():
        async with httpx.AsyncClient(verify=False, trust_env=False) as client:
            await asyncio.wait_for(safe_request(client, "GET", server + "/slow"), 0.1)

    with pytest.raises(TimeoutError):
        asyncio.run(main())


class Environment:
    calls = None

    def settings(self, pack):
        return {}

    def secret(self, name):
        return "hunter2" if name == "KEY" else None

    def redact(self, text, sent=None):
        return text.replace("hunter2", "***")


def test_secrets_in_an_error_are_masked_also_where_the_cut_would_split_them(server):
    def ask():
        with httpx.Client(verify=False, trust_env=False) as client:
            return safe_request(client, "GET", server + "/secret-error")

    result = run(executor_for(ask, environment=Environment()))
    assert tuple(result.data) == (False, f"HTTP error (403): {'x' * 195}***")


# Headers


def test_the_secret_is_that_of_the_app(monkeypatch):
    monkeypatch.setenv("KEY", "from the environment")
    assert run(executor_for(lambda: api_headers("KEY"), environment=Environment())).data == {
        "Authorization": "Bearer hunter2"
    }


@pytest.mark.parametrize(
    ("prefix", "value"),
    [("Bearer", "Bearer abc"), ("Token ", "Token abc"), ("key=", "key=abc"), ("", "abc")],
)
def test_a_word_before_the_secret_gets_a_space(monkeypatch, prefix, value):
    monkeypatch.setenv("KEY", "abc")
    assert api_headers("KEY", prefix=prefix) == {"Authorization": value}


def test_an_empty_secret_is_none(monkeypatch):
    monkeypatch.setenv("KEY", "")
    assert api_headers("KEY") == {}


@pytest.mark.parametrize("secret", ["hunter2\n", "hunter2\r\nX-Admin: 1", "hun\tter2", "hunter2\x7f", "hünter2"])
def test_a_secret_that_no_header_can_carry(monkeypatch, secret):
    monkeypatch.setenv("KEY", secret)
    with pytest.raises(ValueError, match="The secret KEY can't be sent") as raised:
        api_headers("KEY")
    assert "ter2" not in str(raised.value)
