"""Events: however the bytes come, the same events; and those of a tool are passed on as they come."""

import asyncio
import gzip
import threading
import tracemalloc

import pytest
from helpers import each, until_async
from http_harness import harness, run
from hypothesis import given
from hypothesis import strategies as st
from upstream import CLOSE, Reply, Upstream

from onetool.core.errors import ToolFailure
from onetool.http.body import SLICE, EventDecoder, StreamedText
from onetool.http.client import HttpClient

STREAM = {"Content-Type": "text/event-stream"}
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"


def events_of(data, *cuts):
    events, found, start = EventDecoder(), [], 0
    for cut in (*sorted(cuts), len(data)):
        found += events.feed(data[start:cut])
        start = cut
    return found + events.end()


TEXTS = [
    (b"data: a\n\ndata: b\n\n", ["a", "b"]),
    (b"data: a\r\n\r\ndata: b\r\n\r\n", ["a", "b"]),
    (b"data: a\r\rdata: b\r\r", ["a", "b"]),
    (b"data: a\ndata: b\n\n", ["a\nb"]),
    (b"data:a\ndata:  b\n\n", ["a\n b"]),
    (b"data\n\n", [""]),
    (b"\xef\xbb\xbfdata: a\n\n", ["a"]),
    (b": a comment\nevent: x\nid: 7\nretry: 5\ndata: a\nother: b\n\n\n\n", ["a"]),
    (b"event: nothing\n\n", []),
    (b"data: cut off", ["cut off"]),
    (b"data: a\n", ["a"]),
    ("data: Київ €\n\n".encode(), ["Київ €"]),
    (b"data: \xff\n\n", ["\ufffd"]),
    (b"", []),
]


@each(("data", "events"), TEXTS)
def test_events(data, events):
    assert events_of(data) == events
    assert events_of(data, *range(len(data))) == events


@given(st.sampled_from(TEXTS), st.lists(st.integers(0, 80)))
def test_wherever_it_is_cut(text, cuts):
    data, events = text
    assert events_of(data, *[cut for cut in cuts if cut <= len(data)]) == events


def test_a_long_line_in_small_pieces_takes_no_square_of_time():
    """What a piece costs does not grow with the line: the line so far is not copied for it."""
    events = EventDecoder()
    tracemalloc.start()
    try:
        costs = []
        for _ in range(20_000):
            before, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            events.feed(b"data: a;")
            costs.append(tracemalloc.get_traced_memory()[1] - before)
    finally:
        tracemalloc.stop()
    assert min(costs[-1000:]) < 2_000  # bytes, where the line has 160,000; other threads may take some meanwhile
    assert len(events.end()[0]) == 8 * 20_000 - 6


@pytest.fixture
def upstream():
    with Upstream() as upstream:
        yield upstream


def test_a_tool_passes_them_on_as_they_come(upstream):
    go_on = threading.Event()
    upstream.say(
        [HEAD + b"\r\n", b'data: {"token": "Hel"}\n\n', go_on, b'data: "lo"\n\ndata: 5\n\ndata: [DONE]\n\n', CLOSE]
    )
    tool = harness(upstream, response={"encoding": "sse"})

    async def main():
        call = asyncio.ensure_future(tool.call())
        await until_async(lambda: tool.told or call.done())
        assert not call.done()
        early = list(tool.told)
        go_on.set()
        return early, await call

    early, value = run(main())
    assert early == [(1, None, '{"token": "Hel"}')]
    assert value == [{"token": "Hel"}, "lo", 5, "[DONE]"]
    assert [(number, text) for number, _, text in tool.told][1:] == [(2, '"lo"'), (3, "5"), (4, "[DONE]")]
    assert all(isinstance(text, StreamedText) for _, _, text in tool.told)
    assert upstream.seen[0].headers["accept"] == "text/event-stream"


def test_secrets_are_not_in_what_is_passed_on(upstream):
    upstream.say(Reply(headers=STREAM, body=b"data: your key is top-secret-1\n\n"))
    tool = harness(upstream, {"query": {"k": "${KEY}"}}, {"encoding": "sse"}, secrets={"KEY": "top-secret-1"})
    tool()
    assert tool.told[0][2] == "your key is ***"


def test_a_selector_chooses_from_the_list(upstream):
    upstream.say(Reply(headers=STREAM, body=b'data: {"t": "a"}\n\ndata: {"t": "b"}\n\n'))
    assert harness(upstream, response={"encoding": "sse", "selector": "join('', [].t)"})() == "ab"


def test_streams_that_go_wrong(upstream):
    tool = harness(upstream, {"timeoutMs": 300}, {"encoding": "sse"}, limits={"maxResponseBytes": 1000})
    for answer, words, reason in (
        (Reply(500, body=b"out of tokens"), "500 Internal Server Error: out of tokens", "upstream_error"),
        (Reply(headers={"Content-Type": "application/json"}, body=b"{}"), "instead of a stream", "upstream_error"),
        (
            [HEAD + b"Content-Length: 99\r\n\r\ndata: a\n\n", CLOSE],
            "middle of its response",
            "source_unavailable",
        ),
        ([HEAD + b"\r\ndata: a\n\n", 2.0], "within 0.3 s", "timeout"),
        ([HEAD + b"\r\n" + b"data: a\n\n" * 300, CLOSE], "1,000 bytes", "too_large"),
    ):
        upstream.say(answer)
        with pytest.raises(ToolFailure, match=words) as caught:
            tool()
        assert caught.value.reason == reason


def test_a_reader_that_is_slow_holds_the_server_up_and_loses_nothing(upstream):
    """Much more than what is kept in memory."""
    upstream.say([HEAD + b"\r\n", *[b"data: " + b"a" * 10_000 + b"\n\n"] * 300, CLOSE])
    tool = harness(upstream, response={"encoding": "sse"})
    value = tool()
    assert [len(one) for one in value] == [10_000] * 300


@pytest.mark.parametrize("zipped", [False, True])
def test_a_connection_is_never_given_back_deaf(upstream, zipped):
    """What came at last was more than is kept for a reader, so nothing was read on: the next call has to be heard."""
    body = (b"data: " + b"a" * 1_000 + b"\n\n") * 1_000
    packed = Reply(headers={**STREAM, "Content-Encoding": "gzip"}, body=gzip.compress(body))
    upstream.say(packed if zipped else Reply(headers=STREAM, body=body))
    tool = harness(upstream, {"timeoutMs": 3_000}, {"encoding": "sse"})

    async def main():
        return [len(await tool.call()) for _ in range(4)]

    assert run(main()) == [1_000] * 4
    assert {one.connection for one in upstream.seen} == {0}


def test_a_connection_is_not_deaf_either_when_its_stream_was_left(upstream, monkeypatch):
    from onetool.http import response

    monkeypatch.setattr(response, "MAX_EVENTS", 10)
    body = gzip.compress((b"data: " + b"a" * 1_000 + b"\n\n") * 1_000)
    upstream.say(Reply(headers={**STREAM, "Content-Encoding": "gzip"}, body=body), Reply(headers=STREAM, body=b""))
    tool = harness(upstream, {"timeoutMs": 2_000}, {"encoding": "sse"})

    async def main():
        with pytest.raises(ToolFailure, match=r"sends more than 10 events") as caught:
            await tool.call()
        return caught.value.reason, await tool.call()

    assert run(main()) == ("too_large", [])


@pytest.mark.long
def test_many_events_do_not_hold_up_the_loop(upstream):
    body = gzip.compress(b"data:1\n\n" * 90_000)
    upstream.say(Reply(headers={**STREAM, "Content-Encoding": "gzip"}, body=body))
    tool = harness(upstream, response={"encoding": "sse"})

    async def main():
        call, at_once = asyncio.ensure_future(tool.call()), 0
        while not call.done():
            before = len(tool.told)
            await asyncio.sleep(0)
            at_once = max(at_once, len(tool.told) - before)
        return len(call.result()), at_once

    number, at_once = run(main())
    assert number == 90_000
    assert at_once <= 2 * SLICE // len(b"data:1\n\n")


def test_a_deep_event_is_a_text(upstream):
    deep = "[" * 600 + "]" * 600
    upstream.say(Reply(headers=STREAM, body=f"data: {deep}\n\n".encode()))
    assert harness(upstream, response={"encoding": "sse"})() == [deep]


def test_a_stream_that_redirects_to_nowhere_keeps_no_connection(upstream):
    upstream.say([b"HTTP/1.1 302 Found\r\nLocation: ftp://a/\r\nContent-Length: 9\r\n\r\n", 3.0])
    tool = harness(
        upstream, {"followRedirects": True, "timeoutMs": 500}, {"encoding": "sse"}, client=HttpClient(max_per_origin=1)
    )

    async def main():
        for _ in range(2):
            with pytest.raises(ToolFailure, match="can't be called"):
                await tool.call()

    run(main())


def test_the_connection_of_a_stream_is_used_again_and_one_that_was_left_is_not(upstream):
    body = b"data: a\n\n"
    upstream.say(
        Reply(headers=STREAM, body=body),
        Reply(headers=STREAM, body=body),
        [HEAD + b"Content-Length: 99\r\n\r\ndata: a\n\n", 5.0],
        Reply(headers=STREAM, body=body),
    )
    tool = harness(upstream, response={"encoding": "sse"})

    async def main():
        await tool.call()
        await tool.call()
        left = asyncio.ensure_future(tool.call())
        await until_async(lambda: len(tool.told) >= 3 or left.done())
        left.cancel()
        await asyncio.gather(left, return_exceptions=True)
        return await tool.call()

    assert run(main()) == ["a"]
    assert [one.connection for one in upstream.seen] == [0, 0, 0, 1]
