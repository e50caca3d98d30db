"""One connection of a caller who knows where responses end, and whose rights end between two of its requests.

The strict client of this module reads responses as RFC 9112 has it: a byte too many is the next response.
"""

import json
import re
import threading
import time
from contextlib import suppress

import pytest
from document_stores import stored_tokens
from helpers import until
from interfaces.http.conftest import Served
from interfaces.http.matrix import ID
from interfaces.http.test_remembered_callers import added_again, edited, expired, gone, renamed, with_fewer_rights

PACK = '''
"""Waits."""
import time
from pathlib import Path


def wait(path: str, seconds: float = 60.0) -> str:
    """Wait until the file is there."""
    Path(path + ".began").touch()
    end = time.monotonic() + seconds
    while not Path(path).exists() and time.monotonic() < end:
        time.sleep(0.01)
    return "secret of slow"
'''
BUNDLE = {"slug": "framed", "displayName": "Framed"}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("framing")
    (folder / "packs").mkdir()
    (folder / "packs" / "slow.py").write_text(PACK)
    config = {"packs": ["packs/slow.py"], "http": {"tokens": [], "max_body_mb": 1}, "defaults": {"timeout_s": 90}}
    running = Served(folder, "--port", "0", config=config, real=True)
    running.store = stored_tokens(folder / "home")
    running.admin = running.store.add("boss", role="admin")
    yield running
    assert running.stop() == 0


class Site:
    """The stored tokens, as `edited` of other tests has them."""

    def __init__(self, store):
        self.store = store


class Strict:
    """A connection that reads each response to its end, and nothing more."""

    def __init__(self, server):
        self.server = server
        self.socket = server.connect(30)
        self._left = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, method, path, *headers, body=None, token=None):
        lines = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{self.server.port}", *headers]
        lines.append(f"Authorization: Bearer {token or self.server.admin}")
        data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        if body is not None:
            lines += ["Content-Type: application/json", f"Content-Length: {len(data)}"]
        self.socket.sendall("\r\n".join([*lines, "", ""]).encode("latin-1") + data)

    def read(self, method="GET"):
        """Return status, headers and body. The body of HEAD, 204 and 304 is empty, whatever the headers say."""
        while b"\r\n\r\n" not in self._left:
            self._receive()
        head, _, self._left = self._left.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        version, status, _ = first.split(" ", 2)
        assert version == "HTTP/1.1", head
        headers = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]
        status, found = int(status), dict(headers)
        assert len([name for name, _ in headers if name in ("content-length", "transfer-encoding")]) <= 1, headers
        if method == "HEAD" or status in (204, 304):
            assert "transfer-encoding" not in found or method == "HEAD"
            assert not (status == 204 and "content-length" in found)
            return status, found, b""
        if found.get("transfer-encoding") == "chunked":
            return status, found, self._chunks()
        while len(self._left) < int(found["content-length"]):
            self._receive()
        body, self._left = self._left[: int(found["content-length"])], self._left[int(found["content-length"]) :]
        return status, found, body

    def _chunks(self):
        body = b""
        while True:
            while b"\r\n" not in self._left:
                self._receive()
            size, _, self._left = self._left.partition(b"\r\n")
            while len(self._left) < int(size, 16) + 2:
                self._receive()
            body, self._left = body + self._left[: int(size, 16)], self._left[int(size, 16) + 2 :]
            if not int(size, 16):
                return body

    def _receive(self):
        piece = self.socket.recv(65536)
        if not piece:
            raise ConnectionError("closed")
        self._left += piece

    def is_at_end(self):
        """Whether nothing is left, and nothing more comes."""
        self.socket.settimeout(0.3)
        with suppress(TimeoutError):
            self._left += self.socket.recv(65536)
        return self._left == b""


def is_next(client, method="GET"):
    """The next response on the connection is the one of the next request."""
    client.send(method, "/healthz")
    status, found, _ = client.read(method)
    assert status == 200
    assert "x-request-id" in found
    assert client.is_at_end()


# Responses without a body


EMPTY = {
    "a page's preflight": ("OPTIONS", "/tools/tools", 204),
    "OPTIONS of a call": ("OPTIONS", "/call/time.now", 204),
    "OPTIONS of an action": ("OPTIONS", f"/tools/bundles/{ID}", 204),
    "an unchanged list": ("GET", "/tools/bundles", 304),
    "HEAD of a list": ("HEAD", "/tools/tools", 200),
    "HEAD of nothing": ("HEAD", "/nothing", 404),
    "HEAD of a page": ("HEAD", "/", 200),
    "HEAD of an unchanged list": ("HEAD", "/tools/bundles", 304),
}


@pytest.mark.attack("wire")
@pytest.mark.parametrize("kind", EMPTY)
def test_a_response_without_a_body_has_none(server, kind):
    method, path, expected = EMPTY[kind]
    with Strict(server) as client:
        headers = []
        if expected == 304:
            client.send("GET", path)
            headers = [f"If-None-Match: {client.read()[1]['etag']}"]
        client.send(method, path, *headers)
        status, _, _ = client.read(method)
        assert status == expected
        is_next(client)


@pytest.mark.attack("wire", 4)
def test_responses_without_a_body_in_a_pipeline(server):
    path = f"/tools/bundles/{ID}"
    with Strict(server) as client:
        client.send("PUT", path, body=BUNDLE)
        assert client.read()[0] == 201
        client.send("GET", path)
        tag = client.read()[1]["etag"]
        client.send("GET", path, f"If-None-Match: {tag}")
        client.send("DELETE", path)
        client.send("DELETE", path)
        client.send("HEAD", "/tools/tools")
        client.send("GET", "/healthz")
        found = [client.read(method)[0] for method in ("GET", "DELETE", "DELETE", "HEAD", "GET")]
        assert found == [304, 204, 204, 200, 200] or found == [304, 204, 404, 200, 200]
        assert client.is_at_end()


TAGS = ['"x"' * 5_000, "*", '"x", ' * 3_000, 'W/"', '"\xff"', "\x7f", '"a\tb"', ",,,,", '"unclosed']


@pytest.mark.attack("wire")
@pytest.mark.parametrize("tag", TAGS, ids=range(len(TAGS)))
def test_a_tag_that_is_none_changes_no_framing(server, tag):
    with Strict(server) as client:
        client.send("GET", "/tools/bundles", f"If-None-Match: {tag}")
        status, found, _ = client.read()
        assert status in (200, 304, 400)
        if found.get("connection") != "close":
            is_next(client)


# A body that is not read is no request


SMUGGLED = b"GET /status HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Request-Id: smuggled\r\n\r\n"
UNREAD = {
    "another host": ("POST", "/run", ["Host: evil.example"]),
    "another origin": ("POST", "/run", ["Origin: https://evil.example"]),
    "another site": ("POST", "/run", ["Sec-Fetch-Site: cross-site"]),
    "no token": ("POST", "/run", ["Authorization: Bearer wrong"]),
    "another type": ("POST", "/run", ["Content-Type: text/plain"]),
    "another method": ("PUT", "/run", []),
    "nowhere": ("POST", "/nothing", []),
    "a read with a body": ("GET", "/status", []),
    "HEAD with a body": ("HEAD", "/status", []),
    "OPTIONS with a body": ("OPTIONS", "/run", []),
    "DELETE with a body": ("DELETE", f"/tools/bundles/{ID}", []),
    "a null character": ("POST", "/run?x=%00", []),
    "an expectation": ("POST", "/nothing", ["Expect: 100-continue"]),
    "two expectations": ("POST", "/nothing", ["Expect: 100-continue", "Expect: 100-continue"]),
    "an unknown expectation": ("POST", "/nothing", ["Expect: 200-maybe"]),
    "an upgrade": ("POST", "/nothing", ["Connection: upgrade", "Upgrade: websocket"]),
    "an upgrade to HTTP/2": ("POST", "/nothing", ["Connection: upgrade, http2-settings", "Upgrade: h2c"]),
}


@pytest.mark.attack("wire")
@pytest.mark.parametrize("kind", UNREAD)
@pytest.mark.parametrize("form", ["length", "chunks"])
def test_a_body_that_nobody_reads_is_no_request(server, kind, form):
    method, path, headers = UNREAD[kind]
    own = {one.partition(":")[0] for one in headers}
    usual = {
        "Host": f"127.0.0.1:{server.port}",
        "Authorization": f"Bearer {server.admin}",
        "Content-Type": "application/json",
    }
    lines = [
        f"{method} {path} HTTP/1.1",
        *headers,
        *(f"{name}: {value}" for name, value in usual.items() if name not in own),
    ]
    if form == "length":
        lines.append(f"Content-Length: {len(SMUGGLED)}")
        data = SMUGGLED
    else:
        lines.append("Transfer-Encoding: chunked")
        data = b"%x\r\n%b\r\n0\r\n\r\n" % (len(SMUGGLED), SMUGGLED)
    with server.connect(30) as client:
        client.sendall("\r\n".join([*lines, "", ""]).encode() + data)
        said = client.recv(65536)
        client.settimeout(0.6)  # in which a second response would come
        while piece := _received(client):
            said += piece
    assert said.startswith(b"HTTP/1.1 "), said
    assert b"smuggled" not in said
    finals = [one for one in said.split(b"HTTP/1.1 ")[1:] if not one.startswith(b"100 ")]
    assert len(finals) == 1, said


def _received(client):
    try:
        return client.recv(65536)
    except (ConnectionError, TimeoutError):
        return b""


LENGTHS = ["+3", "-3", "0x3", "3 3", "3, 3", "3;x", "03 ", "3.0", "", "\u0663", "9" * 30, "1e1", '"3"']


@pytest.mark.attack("wire")
@pytest.mark.parametrize("length", LENGTHS)
def test_a_length_that_is_none_ends_the_connection(server, length):
    head = f"POST /run HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nAuthorization: Bearer {server.admin}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    with server.connect(30) as client:
        client.sendall(head.encode() + b"{}x" + SMUGGLED)
        said = b""
        while piece := _received(client):
            said += piece
    assert b"smuggled" not in said
    if length != "03 ":
        assert said.startswith((b"HTTP/1.1 400", b"HTTP/1.1 413")), said


REPEATED = {
    "two hosts": "Host: evil.example",
    "the same host twice": "Host: 127.0.0.1:{port}",
    "two tokens": "Authorization: Bearer other",
    "the same token twice": "Authorization: Bearer {token}",
    "two types": "Content-Type: text/plain",
    "the same type twice": "Content-Type: application/json",
    "two lengths": "Content-Length: 4",
    "the same length twice": "Content-Length: 2",
    "an own host after a folded line": "X: a\r\n Host: evil.example",
    "an underscore": "Content_Length: 50",
    "a length in a trailer": "Trailer: Content-Length",
}


@pytest.mark.attack("wire")
@pytest.mark.parametrize("kind", REPEATED)
def test_a_header_that_stands_there_twice(server, kind):
    line = REPEATED[kind].format(port=server.port, token=server.admin)
    head = f"POST /call/time.now HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nAuthorization: Bearer {server.admin}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: 2\r\n{line}\r\n\r\n"
    with server.connect(30) as client:
        client.sendall(head.encode() + b"{}")
        reply = server.read(client)
    if kind in ("an underscore", "a length in a trailer"):
        assert reply.status == 200
    else:
        assert reply.status in (400, 401, 415, 421), reply


SPLIT = ["x\r\nSet-Cookie: a=b", "x%0d%0aSet-Cookie:a=b", "x\u010d\u010aSet-Cookie: a=b", "\x85x", "x\x00y", "a b"]


@pytest.mark.attack("wire")
@pytest.mark.parametrize("text", SPLIT, ids=range(len(SPLIT)))
@pytest.mark.parametrize("place", ["id", "trace", "origin", "path", "query", "preflight"])
def test_no_text_of_a_client_makes_a_header(server, text, place):
    headers = {
        "id": [f"X-Request-Id: {text}"],
        "trace": [f"traceparent: 00-{'a' * 32}-{'b' * 16}-01{text}", f"tracestate: {text}"],
        "origin": [f"Origin: https://evil.example{text}"],
        "preflight": ["Access-Control-Request-Method: PUT", f"Access-Control-Request-Headers: {text}"],
    }.get(place, [])
    path = {"path": f"/call/{text}", "query": f"/tools/tools?q={text}"}.get(place, "/tools/tools")
    lines = [
        f"GET {path} HTTP/1.1",
        f"Host: 127.0.0.1:{server.port}",
        f"Authorization: Bearer {server.admin}",
        *headers,
    ]
    with server.connect(30) as client:
        client.sendall("\r\n".join([*lines, "Connection: close", "", ""]).encode("utf-8"))
        said = b""
        while piece := _received(client):
            said += piece
    head = said.partition(b"\r\n\r\n")[0].lower()
    assert b"\r\nset-cookie" not in head
    assert said.startswith(b"HTTP/1.1 ")
    assert len(re.findall(rb"HTTP/1\.1 \d{3} ", said)) == 1


# Rights that end between two requests of one connection


CHANGES = [added_again, edited, expired, gone, renamed, with_fewer_rights]


def changed(site, token, change):
    if change is edited:
        site.store.revoke("ci")
    else:
        change(site, token)


@pytest.mark.attack("the one store")
@pytest.mark.parametrize("change", CHANGES, ids=[*(one.__name__ for one in CHANGES)])
def test_rights_that_end_between_two_pipelined_requests(server, tmp_path, change):
    """The second request waits behind the first one, whose caller has lost its rights meanwhile."""
    name = f"ci-{change.__name__.replace('_', '-')}"
    site = Site(Renaming(server.store, name))
    token, path = server.store.add(name, role="edit"), tmp_path / "go"
    try:
        with Strict(server) as client:
            client.send("POST", "/call/slow.wait", body={"path": str(path)}, token=token)
            client.send("PUT", f"/tools/bundles/{ID}", body=BUNDLE, token=token)
            client.send("GET", "/servers", token=token)
            until(path.with_name("go.began").exists)
            changed(site, token, change)
            began = time.monotonic()
            status, _, body = client.read()
            assert (status, b"secret of slow" in body) == (401, False)
            assert time.monotonic() - began < 30
            if change in (renamed, with_fewer_rights):
                assert client.read()[0] == 403  # it may call, but not edit
            else:
                assert client.read()[0] == 401
                assert client.read()[0] == 401
    finally:
        path.touch()


class Renaming:
    """The stored tokens of a server, where `ci` is the token of this test."""

    def __init__(self, store, name):
        self._store, self._name = store, name
        self._documents = Documents(store._documents, name)

    def revoke(self, _):
        self._store.revoke(self._name)

    def add(self, _, **more):
        return self._store.add(self._name, **more)


class Documents:
    def __init__(self, documents, name):
        self._documents, self._name = documents, name

    def load(self, kind):
        version, body = self._documents.load(kind)
        return version, body.replace(f'"{self._name}"'.encode(), b'"ci"')

    def write(self, kind, body):
        self._documents.write(kind, body.replace(b'"ci"', f'"{self._name}"'.encode()))


@pytest.mark.attack("the one store")
def test_a_session_that_signs_out_while_its_calls_run(server, tmp_path):
    """The calls end, also on other connections; what they would have answered is not sent; the token goes on."""
    token = server.store.add("walker", role="edit")
    made = server.ask("/login", "POST", body=json.dumps({"token": token}).encode()).json["session"]
    paths = [tmp_path / f"go-{number}" for number in range(3)]
    clients = [Strict(server) for _ in paths]
    try:
        for client, path, shown in zip(clients, paths, (made, made, token), strict=True):
            client.send("POST", "/call/slow.wait", body={"path": str(path)}, token=shown)
            client.send("GET", "/status", token=shown)
        until(lambda: all(path.with_name(f"{path.name}.began").exists() for path in paths))
        assert server.ask("/login", "DELETE", [("Authorization", f"Bearer {made}")]).status == 204
        for client in clients[:2]:
            status, _, body = client.read()
            assert (status, b"secret of slow" in body) == (401, False)
            assert client.read()[0] == 401
        paths[2].touch()
        assert clients[2].read()[0] == 200
        assert clients[2].read()[0] == 200
    finally:
        for client, path in zip(clients, paths, strict=True):
            path.touch()
            client.socket.close()


@pytest.mark.attack("the one store")
def test_a_session_that_signs_itself_out_in_a_pipeline(server):
    token = server.store.add("runner", role="edit")
    made = server.ask("/login", "POST", body=json.dumps({"token": token}).encode()).json["session"]
    with Strict(server) as client:
        client.send("GET", "/status", token=made)
        client.send("DELETE", "/login", token=made)
        client.send("GET", "/status", token=made)
        client.send("POST", "/call/time.now", body={}, token=made)
        assert [client.read()[0] for _ in range(4)] == [200, 204, 401, 401]
        assert client.is_at_end()


@pytest.mark.attack("the one store")
def test_a_token_that_is_revoked_while_a_body_arrives(server):
    """The rights are those of the moment at which the request is done, not of its head."""
    token = server.store.add("slow-sender", role="edit")
    body = json.dumps(BUNDLE).encode()
    with Strict(server) as client:
        head = f"PUT /tools/bundles/{ID} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nAuthorization: Bearer {token}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        client.socket.sendall(head.encode() + body[:5])
        time.sleep(0.2)
        server.store.revoke("slow-sender")
        time.sleep(1)
        client.socket.sendall(body[5:])
        assert client.read()[0] == 401


@pytest.mark.attack("wire")
def test_slow_bodies_hold_up_nobody_else(server):
    """Bodies that routes read themselves, a byte at a time, from many connections."""
    clients = []
    try:
        for number in range(60):
            client = server.connect(10)
            path = ("/run", "/call/time.now", f"/tools/bundles/{ID}", "/login")[number % 4]
            method = "PUT" if "bundles" in path else "POST"
            head = (
                f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nAuthorization: Bearer {server.admin}\r\n"
            )
            client.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{{".encode())
            clients.append(client)
        is_over = threading.Event()

        def drip():
            while not is_over.wait(0.05):
                for one in clients:
                    one.send(b" ")

        thread = threading.Thread(target=drip)
        thread.start()
        try:
            for _ in range(20):
                began = time.monotonic()
                assert server.ask("/status", headers=[("Authorization", f"Bearer {server.admin}")]).status == 200
                assert time.monotonic() - began < 5
        finally:
            is_over.set()
            thread.join()
    finally:
        for client in clients:
            client.close()
