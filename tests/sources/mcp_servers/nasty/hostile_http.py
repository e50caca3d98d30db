"""A server over HTTP whose tool `do` answers as `how` names it: wrongly, without end, or for somebody else."""

import gzip
import json
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from sources.mcp_servers.nasty.http_server import TOOLS, Handler, HttpServer, tool

EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
JSON = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
MB = 1_000_000


def hostile() -> HttpServer:
    return HttpServer(handler=Hostile)


def event(message: Any) -> bytes:
    return b"data: " + json.dumps(message).encode() + b"\n\n"


class Hostile(Handler):
    """`stream` as the way of the address: it also opens streams, which end at once."""

    def do_GET(self) -> None:
        if self._noted() == "streams" or "last-event-id" in {name.lower() for name in self.headers}:
            self.raw(EVENTS, b"id: 1\nretry: 0\ndata: \n\n")
        else:
            self._plain(405, "no stream here")

    def _take(self, way: str, message: dict[str, Any]) -> None:
        if message.get("method") == "tools/list":
            self._result(way, message, {"tools": [*TOOLS, tool("do", how={"type": "string"})]})
        elif "method" not in message:  # an answer to a request of ours
            self.state.ending.wait(60)
        else:
            super()._take(way, message)

    def _call(self, way: str, message: dict[str, Any]) -> None:
        if message["params"]["name"] != "do":
            super()._call(way, message)
            return
        fine = {"jsonrpc": "2.0", "id": message["id"], "result": {"content": [{"type": "text", "text": "done"}]}}
        getattr(self, message["params"]["arguments"]["how"])(fine)

    def raw(self, *parts: bytes) -> None:
        self.sent(parts)
        self.close_connection = True

    def sent(self, parts: Iterable[bytes]) -> None:
        with suppress(OSError):  # the client has had enough
            for part in parts:
                self.wfile.write(part)

    # Streams of events

    def comments_without_end(self, fine: Any) -> None:
        self.raw(EVENTS, *(b": nothing\n" * 100_000 for _ in range(45)), event(fine))

    def one_line_without_end(self, fine: Any) -> None:
        self.raw(EVENTS, b"data: ", *(b"x" * MB for _ in range(40)), b"\n\n")

    def fields_without_end(self, fine: Any) -> None:
        self.raw(EVENTS, *(b"id: 1\nevent: x\n" * 70_000 for _ in range(45)))

    def streams_that_are_resumed_at_once(self, fine: Any) -> None:
        self.raw(EVENTS, b"id: 1\nretry: 0\ndata: \n\n")

    def a_pause_of_a_thousand_years(self, fine: Any) -> None:
        self.raw(EVENTS, b"id: 1\nretry: 99999999999999\ndata: \n\n")

    def a_pause_that_is_no_number(self, fine: Any) -> None:
        self.raw(EVENTS, b"id: 1\nretry: " + b"9" * 400 + b"\ndata: \n\n")

    def rubbish_events(self, fine: Any) -> None:
        self.raw(EVENTS, b"data: {rubbish\n\n" * 3_000, event(fine))

    def events_of_other_kinds(self, fine: Any) -> None:
        self.raw(EVENTS, b"event: endpoint\ndata: http://127.0.0.1:9/\n\n" * 100, event(fine))

    def pings(self, fine: Any) -> None:
        asked = (event({"jsonrpc": "2.0", "id": n, "method": "ping"}) for n in range(5_000))
        self.raw(EVENTS, *asked, event(fine))

    def changes(self, fine: Any) -> None:
        told = event({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        self.raw(EVENTS, told * 2_000, event(fine))

    def answers_of_others(self, fine: Any) -> None:
        self.raw(EVENTS, *(event({**fine, "id": id}) for id in (*range(200), "1", None, True)), event(fine))

    def two_answers(self, fine: Any) -> None:
        self.raw(EVENTS, event(fine), event({**fine, "result": {"content": []}}))

    def an_answer_of_too_many_parts(self, fine: Any) -> None:
        self.raw(EVENTS, b'data: {"jsonrpc": "2.0", "id": 1, "result": [' + b"[]," * 600_000 + b"[]]}\n\n")

    def parts_in_several_lines(self, fine: Any) -> None:
        self.raw(EVENTS, b"data: [\n", b"data: [1],[1],\n" * 300_000, b"data: []]\n\n")

    def half_a_stream(self, fine: Any) -> None:
        self.raw(EVENTS, event(fine)[:-20])

    def another_encoding(self, fine: Any) -> None:
        head = EVENTS.replace(b"event-stream", b"event-stream; charset=utf-16")
        self.raw(head, event(fine).decode().encode("utf-16"))

    # Answers

    def drops(self, fine: Any) -> None:
        body = json.dumps(fine).encode()
        self.sent([JSON + b"Content-Length: %d\r\n\r\n" % len(body)])
        for n in range(len(body)):
            self.sent([body[n : n + 1]])
            time.sleep(0.002)

    def a_body_of_forty_megabytes(self, fine: Any) -> None:
        self.raw(JSON + b"Content-Length: %d\r\n\r\n" % (40 * MB), *(b" " * MB for _ in range(40)))

    def a_body_without_an_end(self, fine: Any) -> None:
        self.raw(JSON + b"Connection: close\r\n\r\n", *(b" " * MB for _ in range(45)))

    def too_short(self, fine: Any) -> None:
        self.raw(JSON + b"Content-Length: 100000\r\n\r\n", json.dumps(fine).encode())

    def too_long(self, fine: Any) -> None:
        body = json.dumps(fine).encode()
        self.raw(JSON + b"Content-Length: %d\r\n\r\n" % len(body), body, JSON + b"Content-Length: 2\r\n\r\n{}")

    def two_lengths(self, fine: Any) -> None:
        self.raw(JSON + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}")

    def a_negative_length(self, fine: Any) -> None:
        self.raw(JSON + b"Content-Length: -1\r\n\r\n{}")

    def length_and_chunks(self, fine: Any) -> None:
        self.raw(JSON + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n", b"5\r\nabcde\r\n0\r\n\r\n")

    def a_chunk_of_2_to_the_80(self, fine: Any) -> None:
        self.raw(JSON + b"Transfer-Encoding: chunked\r\n\r\n", b"F" * 20 + b"\r\n", b"x" * 1_000)

    def a_chunk_with_a_long_name(self, fine: Any) -> None:
        self.raw(JSON + b"Transfer-Encoding: chunked\r\n\r\n", b"1;", *(b"x" * MB for _ in range(20)))

    def trailers(self, fine: Any) -> None:
        self.raw(JSON + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", *(b"X: y\r\n" * 10_000 for _ in range(20)))

    def many_headers(self, fine: Any) -> None:
        self.raw(JSON, *(b"X-%d: y\r\n" % n for n in range(50_000)), b"\r\n{}")

    def a_long_header(self, fine: Any) -> None:
        self.raw(JSON + b"X: " + b"y" * (5 * MB) + b"\r\n\r\n{}")

    def cookies(self, fine: Any) -> None:
        body = json.dumps(fine).encode()
        cookies = b"".join(b"Set-Cookie: c%d=%s; Domain=localhost\r\n" % (n, b"x" * 500) for n in range(100))
        self.raw(JSON + cookies + b"Content-Length: %d\r\n\r\n" % len(body), body)

    def interim_answers(self, fine: Any) -> None:
        self.raw(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 50_000, JSON + b"\r\n{}")

    def another_protocol(self, fine: Any) -> None:
        self.raw(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n", b"x" * 10_000)

    def no_http(self, fine: Any) -> None:
        self.raw(b"\x16\x03\x01" + b"\x00" * 10_000)

    def status_999(self, fine: Any) -> None:
        self.raw(b"HTTP/1.1 999 " + b"x" * 10_000 + b"\r\n\r\n")

    def nothing(self, fine: Any) -> None:
        self.raw(b"")

    def packed(self, fine: Any) -> None:
        body = gzip.compress(b" " * 60 * MB)
        self.raw(JSON + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body), body)

    def packed_twice(self, fine: Any) -> None:
        self.raw(JSON + b"Content-Encoding: identity, gzip\r\n\r\n", gzip.compress(b" " * 60 * MB))

    # Refusals

    def accepted(self, fine: Any) -> None:
        self._plain(202, "")

    def no_type(self, fine: Any) -> None:
        self.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    def a_page(self, fine: Any) -> None:
        self._plain(200, "<script>alert(1)</script>", {"Content-Type": "text/html"})

    def a_refusal_without_end(self, fine: Any) -> None:
        self.raw(b"HTTP/1.1 403 Forbidden\r\n\r\n", *(b"\x1b[2Jno " * 100_000 for _ in range(20)))

    def a_lost_session(self, fine: Any) -> None:
        self._plain(404, "which session?")

    def a_login(self, fine: Any) -> None:
        self._plain(401, "", {"WWW-Authenticate": "Bearer " + 'a="b", ' * 5_000})

    def a_redirect_to_itself(self, fine: Any) -> None:
        self._plain(307, "", {"Location": self.path})

    def a_redirect_elsewhere(self, fine: Any) -> None:
        self._plain(307, "", {"Location": self.state.target})

    def a_redirect_to_a_file(self, fine: Any) -> None:
        self._plain(307, "", {"Location": "file:///etc/passwd"})

    def a_redirect_with_another_method(self, fine: Any) -> None:
        self._plain(303, "", {"Location": self.state.target})


HOW = sorted(name for name in vars(Hostile) if not name.startswith(("_", "do_")) and name not in ("raw", "sent"))
