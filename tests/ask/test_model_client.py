"""A prompt goes out, an answer comes in: framing, retries, time, what is never called, and what errors say."""

import asyncio
import json
import socket
import time
from contextlib import aclosing

import pytest
from ask.fake import KEY, PROMPT, Fake, Pauses, heard, listen, model_at, run
from helpers import each, forever, until, until_async
from upstream import CLOSE, Reply, Upstream

from onetool.ask import model_client
from onetool.ask.errors import ModelError, NoModelError
from onetool.ask.messages import ModelReply as Whole
from onetool.ask.messages import TextDelta, ThoughtDelta, User
from onetool.ask.model_client import Retrying
from onetool.ask.providers import adapter
from onetool.http.client import HttpClient

JSON = {"Content-Type": "application/json"}
SSE = {"Content-Type": "text/event-stream; charset=utf-8"}
NDJSON = {"Content-Type": "application/x-ndjson"}
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
DONE = {"done": True}


def events(*values):
    texts = [one if isinstance(one, str) else json.dumps(one) for one in values]
    return Reply(headers=SSE, body="".join(f"data: {text}\n\n" for text in texts).encode())


def chunk(*values):
    body = events(*values).body
    return f"{len(body):x}\r\n".encode() + body + b"\r\n"


def answer(status=200, headers=JSON, **body):
    return Reply(status, headers, json.dumps(body).encode())


def failed(model, stream=True):
    """The error, and what was heard before."""

    async def main():
        said = []
        try:
            async for one in model.ask(PROMPT, stream):
                said.append(one)
        except ModelError as error:
            return error, said
        pytest.fail(f"it did not fail: {said}")

    return run(main())


@pytest.fixture
def upstream():
    with Upstream() as upstream:
        yield upstream


# What is sent, and what is read


def test_a_stream(upstream):
    upstream.say(events({"think": "hm"}, {"say": "Hel"}, {"say": "lo"}, DONE, "[DONE]"))
    fake = Fake()
    assert heard(model_at(f"{upstream.url}/v1/", fake)) == [
        ThoughtDelta("hm"),
        TextDelta("Hel"),
        TextDelta("lo"),
        Whole(text="Hello"),
    ]
    assert fake.readers[0].fed[-1] == "[DONE]"
    seen = upstream.seen[0]
    assert (seen.method, seen.target) == ("POST", "/v1/chat")
    assert json.loads(seen.body) == {"model": "m1", "text": "hi", "stream": True}
    assert seen.headers["authorization"] == f"Bearer {KEY}"
    assert seen.headers["content-type"] == "application/json"
    assert seen.headers["accept-encoding"] == "identity"


def test_a_stream_of_lines(upstream):
    body = b'{"say": "a"}\r\n\n{"say": "\xd0\x96"}\n{"done": true}'
    upstream.say(Reply(headers=NDJSON, body=body))
    assert heard(model_at(upstream.url, Fake(stream="lines"))) == [TextDelta("a"), TextDelta("Ж"), Whole(text="aЖ")]


def test_lines_wherever_they_are_cut():
    data = '{"a": "Ж€"}\n\n  \n[1]\r\nno JSON\nlast'.encode()
    for size in (1, 2, 3, 7, 100):
        frames = model_client.JsonLines()
        found = [one for at in range(0, len(data), size) for one in frames.feed(data[at : at + size])]
        assert [one.strip() for one in found + frames.end()] == ['{"a": "Ж€"}', "[1]", "no JSON", "last"]


def test_all_at_once(upstream):
    upstream.say(answer(say="yes"))
    assert heard(model_at(upstream.url), stream=False) == [Whole(text="yes")]
    assert json.loads(upstream.seen[0].body)["stream"] is False


def test_a_server_that_does_not_stream(upstream):
    upstream.say(answer(headers={"Content-Type": "application/json; charset=utf-8"}, say="yes"))
    assert heard(model_at(upstream.url)) == [Whole(text="yes")]


def test_pieces_come_as_they_are_said(upstream):
    upstream.say([HEAD, chunk({"say": "a"}), 60.0])

    async def main():
        async with aclosing(model_at(upstream.url).ask(PROMPT)) as coming:
            return await anext(coming)

    assert run(main()) == TextDelta("a")  # the server says nothing more for a minute, which nobody waits for


def test_steps_share_a_connection_and_one_that_was_closed_is_made_anew(upstream):
    upstream.say(events({"say": "a"}, DONE))

    async def main():
        model = model_at(upstream.url)
        await listen(model)
        await listen(model)
        upstream.hang_up()
        return await listen(model)

    assert run(main()) == [TextDelta("a"), Whole(text="a")]
    assert [one.connection for one in upstream.seen] == [0, 0, 1]


def test_half_a_character_does_not_stop_a_question(upstream):
    upstream.say(answer(say="ok"))
    prompt = type(PROMPT)(model="m1", messages=(User(text="a\ud83d b"),))
    heard(model_at(upstream.url), prompt=prompt)
    assert json.loads(upstream.seen[0].body)["text"] == "a� b"


def test_what_follows_a_complete_answer_is_not_waited_for_long(upstream, monkeypatch):
    monkeypatch.setattr(model_client, "AFTERWARDS", 0.05)
    upstream.say([HEAD, chunk({"say": "a"}, DONE), 60.0])
    assert heard(model_at(upstream.url)) == [TextDelta("a"), Whole(text="a")]
    upstream.say([HEAD, chunk({"say": "a"}, DONE), CLOSE])
    assert heard(model_at(upstream.url)) == [TextDelta("a"), Whole(text="a")]


PING = b"8\r\n: alive\n\r\n"


@pytest.mark.parametrize("coming", [PING, chunk({}), chunk(DONE), PING * 5000], ids=["ping", "event", "end", "many"])
@pytest.mark.parametrize("ending", [(DONE,), (DONE, "[DONE]")], ids=["complete", "ended"])
def test_nor_for_what_comes_for_ever(upstream, monkeypatch, ending, coming):
    monkeypatch.setattr(model_client, "AFTERWARDS", 0.2)

    def endless(_):
        yield from (HEAD, chunk({"say": "a"}, *ending))
        while True:
            yield from (coming, 0.01)

    upstream.say(endless)
    assert heard(model_at(upstream.url)) == [TextDelta("a"), Whole(text="a")]  # else: that it took too long


def test_after_its_end_nothing_is_read(upstream):
    upstream.say(events({"say": "a"}, DONE, "[DONE]", {"say": "b"}, {"error": "full"}))
    assert heard(model_at(upstream.url)) == [TextDelta("a"), Whole(text="a")]


def test_more_of_an_answer_has_its_time(upstream, monkeypatch):
    """Some servers say with each piece that this is all."""
    monkeypatch.setattr(model_client, "AFTERWARDS", 0.6)
    upstream.say([HEAD, *[step for _ in range(9) for step in (chunk({"say": "a", **DONE}), 0.1)], b"0\r\n\r\n"])
    assert heard(model_at(upstream.url))[-1] == Whole(text="aaaaaaaaa")


# Once more


@pytest.mark.parametrize("status", [429, 500, 502, 503, 529])
@pytest.mark.parametrize("stream", [True, False])
def test_what_may_do_better_is_tried_again(upstream, status, stream):
    upstream.say(answer(status, error="busy"), answer(status, error="busy"), answer(say="yes"))
    pauses = Pauses()
    found = heard(model_at(upstream.url, sleep=pauses), stream)
    why = f"it answered {status}: busy"
    assert found == [Retrying(0.5, why), Retrying(1.0, why), Whole(text="yes")]
    assert pauses == [0.5, 1.0]


def test_pauses_are_not_all_the_same(upstream):
    upstream.say(answer(503, error="busy"), answer(say="yes"))
    assert heard(model_at(upstream.url, chance=lambda: 0.0))[0].seconds == 0.25


def test_so_often_and_no_more(upstream):
    upstream.say(answer(503, error="busy"))
    error, said = failed(model_at(upstream.url, tries=3))
    assert (error.reason, error.status, len(said), len(upstream.seen)) == ("overloaded", 503, 2, 3)
    assert str(error) == "it answered 503: busy (tried 3 times)"


@pytest.mark.parametrize("status", [400, 401, 402, 404, 413])
def test_what_will_not_do_better_is_not(upstream, status):
    upstream.say(answer(status, error="no", models=[]))
    error, said = failed(model_at(upstream.url))
    assert (error.status, said) == (status, [])
    assert sum(one.method == "POST" for one in upstream.seen) == 1


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [({"Retry-After": "7"}, 7.0), ({"retry-after-ms": "1500"}, 1.5), ({"Retry-After": "soon"}, 0.5)],
)
def test_a_provider_says_how_long_to_wait(upstream, headers, seconds):
    upstream.say(answer(429, headers, error="slowly"), answer(say="yes"))
    assert heard(model_at(upstream.url))[0].seconds == seconds


def test_nobody_waits_for_ever(upstream):
    upstream.say(answer(429, {"Retry-After": "3600"}, error="slowly"))
    error, said = failed(model_at(upstream.url))
    assert (error.reason, error.wait, said) == ("rate_limited", 3600.0, [])
    assert any("60 min, at " in hint for hint in error.hints)


def test_nor_longer_than_there_is_time(upstream):
    upstream.say(answer(429, {"Retry-After": "30"}, error="slowly"))
    error, said = failed(model_at(upstream.url, timeout=10.0))
    assert (error.reason, said) == ("rate_limited", [])
    assert "the provider asks to wait 30 s" in error.hints


def test_a_server_that_says_no_means_it(upstream):
    upstream.say(answer(500, {"x-should-retry": "false"}, error="no"))
    assert failed(model_at(upstream.url))[1] == []


def test_a_connection_that_breaks(upstream):
    upstream.say([CLOSE], [HEAD, CLOSE], [HEAD, chunk(), CLOSE], events({"say": "a"}, DONE))
    found = heard(model_at(upstream.url))
    assert [type(one) for one in found] == [Retrying, Retrying, Retrying, TextDelta, Whole]


def test_an_error_in_a_stream_before_anything_was_said(upstream):
    upstream.say(events({"error": "full", "wait": 2.0}), events({"say": "a"}, DONE))
    assert heard(model_at(upstream.url)) == [Retrying(2.0, "full"), TextDelta("a"), Whole(text="a")]


def test_what_was_shown_is_not_said_twice(upstream):
    upstream.say(events({"say": "a"}, {"error": "full"}))
    error, said = failed(model_at(upstream.url))
    assert (said, error.reason, str(error)) == ([TextDelta("a")], "overloaded", "the response was interrupted: full")
    assert len(upstream.seen) == 1


@pytest.mark.parametrize("answers", [events({"say": "a"}), [HEAD, chunk({"say": "a"}), CLOSE]])
def test_an_answer_that_breaks_off(upstream, answers):
    upstream.say(answers)
    error, said = failed(model_at(upstream.url))
    assert (said, error.reason) == ([TextDelta("a")], "unreachable")
    assert "the response was interrupted" in str(error)
    assert error.hints == ()


def test_a_stream_that_ends_before_its_end_is_tried_again(upstream):
    upstream.say(events())
    error, said = failed(model_at(upstream.url, tries=2))
    assert [type(one) for one in said] == [Retrying]
    assert (error.reason, str(error)) == (
        "unreachable",
        f"{upstream.netloc} closed the connection in the middle of its response (tried 2 times)",
    )


# Time


@pytest.mark.parametrize("stream", [True, False])
def test_a_server_that_does_not_answer(upstream, stream):
    upstream.say([60.0])
    error, said = failed(model_at(upstream.url, timeout=0.2), stream)
    assert (error.reason, said) == ("timeout", [])
    assert "did not answer within 0.2 s" in str(error)
    assert "ask.timeout_s in the config sets how long a model may take for one step" in error.hints


def test_a_stream_that_falls_silent(upstream):
    upstream.say([HEAD, chunk({}), 60.0])
    error, said = failed(model_at(upstream.url, silence=0.1))
    assert (error.reason, said) == ("timeout", [])
    assert "did not continue its response within 0.1 s" in str(error)


def test_a_model_may_think_before_it_says_anything(upstream):
    upstream.say([HEAD, 0.3, chunk({"say": "a"}, DONE), b"0\r\n\r\n"])
    assert heard(model_at(upstream.url, silence=0.1))[-1] == Whole(text="a")


def test_a_sign_of_life_is_no_silence(upstream):
    alive = [b"8\r\n: alive\n\r\n", 0.3] * 4
    upstream.say([HEAD, chunk({}), *alive, chunk({"say": "a"}, DONE), b"0\r\n\r\n"])
    assert heard(model_at(upstream.url, silence=1))[-1] == Whole(text="a")


def test_a_stream_without_end_ends_in_time(upstream):
    upstream.say([HEAD, *[step for _ in range(200) for step in (chunk({"say": "a"}), 0.02)]])
    error, said = failed(model_at(upstream.url, timeout=0.3))
    assert error.reason == "timeout"
    assert said


def test_time_passes_also_where_there_is_always_something_at_hand():
    """Nobody waits then, so nobody would be told that it is too late."""

    class Busy(Fake):
        def reader(self, prompt):
            reader = super().reader(prompt)
            feed = reader.feed

            def slowly(event):
                time.sleep(0.02)
                return feed(event)

            reader.feed = slowly
            return reader

    fake = Busy()
    with Upstream() as upstream:
        upstream.say(events(*[{"say": "a"}] * 1000, DONE))
        error, _ = failed(model_at(upstream.url, fake, timeout=0.3))
    assert error.reason == "timeout"
    assert "did not finish its response within 0.3 s" in str(error)
    assert len(fake.readers[0].fed) < 100


def test_there_is_little_time_for_a_connection(monkeypatch):
    monkeypatch.setattr(model_client, "CONNECT", 0.1)

    async def never(*_, **__):
        await forever()

    error, said = failed(model_at("http://127.0.0.1:9", client=HttpClient(connect=never), tries=2))
    assert (error.reason, len(said)) == ("unreachable", 1)
    assert "no connection to 127.0.0.1:9 within 0.1 s" in str(error)


# Who stops listening


def watched(told):
    """A server's side of a stream: it goes on until it sees that nobody listens."""

    def endless(_):
        yield HEAD
        try:
            for _ in range(2000):
                yield chunk({"say": "a"})
                yield 0.005
            told.append("all of it was sent")
        finally:
            told.append("it ended")

    return endless


@pytest.mark.parametrize("how", ["break", "aclose", "cancel"])
def test_whoever_stops_listening_ends_the_connection(upstream, how):
    told = []
    upstream.say(watched(told))

    async def main():
        model = model_at(upstream.url)
        first = asyncio.Event()

        async def listening():
            async for _ in model.ask(PROMPT):
                first.set()
                if how == "break":
                    break

        if how == "aclose":
            coming = model.ask(PROMPT)
            await anext(coming)
            await coming.aclose()
        else:
            task = asyncio.create_task(listening())
            await first.wait()
            task.cancel()
            await asyncio.wait([task])
        await until_async(lambda: not upstream.open)  # with the loop still running

    run(main())
    until(lambda: told)
    assert told == ["it ended"]


def test_also_before_the_first_byte(upstream):
    upstream.say(lambda _: [60.0])

    async def main():
        task = asyncio.create_task(listen(model_at(upstream.url)))
        await until_async(lambda: upstream.seen)
        task.cancel()
        await asyncio.wait([task])

    run(main())


# Sizes


def test_an_answer_has_an_end(upstream, monkeypatch):
    monkeypatch.setattr(model_client, "MAX_BYTES", 10_000)
    upstream.say(events(*[{"say": "x" * 1000}] * 20))
    error = failed(model_at(upstream.url))[0]
    assert error.reason == "garbled"
    assert "limits." not in f"{error} {error.hints}"
    upstream.say(answer(say="x" * 20_000))
    assert failed(model_at(upstream.url), stream=False)[0].reason == "garbled"
    assert failed(model_at(upstream.url))[0].reason == "garbled"


def test_so_many_events_and_no_more(upstream, monkeypatch):
    monkeypatch.setattr(model_client, "MAX_EVENTS", 10)
    upstream.say(events(*[{}] * 20, DONE))
    error, said = failed(model_at(upstream.url))
    assert (error.reason, said) == ("garbled", [])
    assert "more than 10 events" in str(error)


@pytest.mark.parametrize("stream", [True, False])
def test_an_answer_that_is_too_long_is_not_asked_for_again(upstream, stream):
    text = "x" * (4 * 1024 * 1024 + 1)
    whole = answer(choices=[{"message": {"content": text}}])
    upstream.say(events({"choices": [{"delta": {"content": text}}]}) if stream else whole)
    error, said = failed(model_at(upstream.url, adapter("openai")), stream)
    assert (error.reason, said, len(upstream.seen)) == ("garbled", [], 1)
    assert str(error) == "the model's API sent an answer of more than 4 MiB"


@pytest.mark.parametrize("framing", ["events", "lines"])
def test_an_event_has_an_end(upstream, monkeypatch, framing):
    monkeypatch.setattr(model_client, "MAX_BYTES", 50_000)
    begins = "data: " if framing == "events" else ""
    upstream.say(Reply(headers=SSE, body=f'{begins}{{"say": "{"x" * 200_000}"}}\n\n'.encode()))
    error, said = failed(model_at(upstream.url, Fake(stream=framing)))
    assert (error.reason, said) == ("garbled", [])


# What is never called


def test_redirects_are_not_followed(upstream):
    with Upstream() as other:
        upstream.say(Reply(308, {"Location": f"{other.url}/v2/chat"}))
        error, said = failed(model_at(f"{upstream.url}/v1"))
        assert not other.seen
    assert (error.reason, error.status, said) == ("unreachable", 308, [])
    assert f"{other.url}/v2/chat" in str(error)
    assert f"set ask.base_url to {other.url}/v2" in error.hints[0]


@pytest.mark.parametrize("location", ["", "http://[", "/elsewhere"])
def test_redirects_to_wherever(upstream, location):
    upstream.say(Reply(302, {"Location": location} if location else {}))
    assert failed(model_at(upstream.url))[0].status == 302


@each(
    "base_url",
    [
        "",
        "localhost:8000/v1",
        "ftp://x/v1",
        "http://",
        "http://a b/",
        "http://me:secret@x/v1",
        "http://x/v1?a=b",
        "http://x/#v1",
        "http://127.1/v1",
        "http://x:99999/v1",
    ],
)
def test_a_base_url_that_is_none(base_url):
    with pytest.raises(NoModelError) as caught:
        model_at(base_url)
    assert "ask.base_url" in str(caught.value)
    assert "secret" not in f"{caught.value} {caught.value.hints}"


def public(resolved="93.184.215.14"):
    """A client for which every name leads to one address, and that dials nowhere."""
    dialled = []

    async def resolve(host, port):
        return [resolved]

    async def connect(factory, address, port, **_):
        dialled.append(address)
        raise ConnectionRefusedError(111, "refused")

    return HttpClient(resolve, connect), dialled


@pytest.mark.parametrize("host", ["llm.example.com", "93.184.215.14"])
def test_a_key_does_not_travel_readable(host):
    client, dialled = public()
    error, said = failed(model_at(f"http://{host}/v1", client=client))
    assert (dialled, said, error.reason) == ([], [], "unreachable")
    assert "the key is not sent" in str(error)
    assert "https://" in error.hints[0]


def test_without_a_key_there_is_nothing_to_read():
    client, dialled = public()
    failed(model_at("http://llm.example.com/v1", client=client, key=None, tries=1))
    assert dialled == ["93.184.215.14"]


@pytest.mark.parametrize("address", ["192.168.1.7", "127.0.0.1", "fd00::7"])
def test_nor_within_ones_own_network(address):
    client, dialled = public(address)
    failed(model_at("http://gpu.example.com:8000/v1", client=client, tries=1))
    assert dialled == [address]


def test_a_connection_made_without_a_key_is_not_used_for_one(upstream):
    """The name led to the outside then: the rule that let it pass is another one."""
    upstream.say(answer(say="ok"))

    async def resolve(host, port):
        return ["93.184.215.14"]

    async def connect(factory, address, port, **_):
        return await asyncio.get_running_loop().create_connection(factory, "127.0.0.1", upstream.port)

    async def main():
        client = HttpClient(resolve, connect)
        await listen(model_at("http://llm.example.com/v1", client=client, key=None))
        with pytest.raises(ModelError):
            await listen(model_at("http://llm.example.com/v1", client=client))

    run(main())
    assert len(upstream.seen) == 1


# What errors say


def test_a_key_that_is_not_accepted(upstream):
    upstream.say(answer(401, error="bad key"))
    error = failed(model_at(upstream.url))[0]
    assert error.reason == "unauthorized"
    assert error.hints == ("the key sent was OPENAI_API_KEY: `onetool auth set openai` replaces it",)
    error = failed(model_at(upstream.url, key=None))[0]
    assert error.hints == ("OPENAI_API_KEY is not set: `onetool auth set openai` stores a key",)


def test_a_key_that_can_be_none():
    for key in ("two words", "a\nb-secret", "ключ"):
        with pytest.raises(NoModelError, match="OPENAI_API_KEY") as caught:
            model_at("http://127.0.0.1:9", key=key)
        assert key not in f"{caught.value} {caught.value.hints}"


def test_a_key_may_end_with_a_line(upstream):
    upstream.say(answer(say="ok"))
    heard(model_at(upstream.url, key=f"{KEY}\n"))
    assert upstream.seen[0].headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize(
    "said",
    [
        answer(400, error=f"what is {KEY}?"),
        answer(400, error="x" * 470 + KEY),  # where the adapter cuts
        answer(503, error=f"what is {KEY}?"),
        Reply(500, {}, f"<p>{KEY}".encode()),
        Reply(200, {"Content-Type": "text/html"}, b" " * 150 + KEY.encode()),
        Reply(301, {"Location": f"/{KEY}"}),
        events({"error": KEY}),
        events({"say": "a"}, {"error": KEY}),
    ],
)
def test_the_key_is_in_no_message(upstream, said):
    upstream.say(said)
    model = model_at(upstream.url, tries=2)
    error, before = failed(model)
    told = f"{error!r} {error.hints} {before!r} {model!r} {vars(error)}"
    assert KEY[:12] not in told


def test_a_word_that_a_local_server_takes_for_a_key_is_not_masked(upstream):
    upstream.say(answer(400, error="ollama has no such thing"))
    assert "ollama has no" in str(failed(model_at(upstream.url, key="ollama"))[0])


def missing_model(*names, status=404):
    def say(seen):
        return answer(models=list(names)) if seen.method == "GET" else answer(status, error="no such model")

    return say


def test_a_model_that_is_not_there(upstream):
    upstream.say(missing_model("llama-4", "qwen3:8b", "mistral"))
    error = failed(model_at(upstream.url, name="qwen3:4b"))[0]
    assert (error.reason, error.hints) == (
        "model_not_found",
        ("choose another with --model: did you mean qwen3:8b?",),
    )
    upstream.say(missing_model("llama-4", "mistral"))
    error = failed(model_at(upstream.url, name="xyz"))[0]
    assert error.hints == ("choose another with --model: llama-4, mistral",)


def test_a_list_that_does_not_come_is_done_without(upstream, monkeypatch):
    monkeypatch.setattr(model_client, "LISTING_FOR_HINT", 0.1)
    upstream.say(lambda seen: [60.0] if seen.method == "GET" else answer(404, error="no such model"))
    error = failed(model_at(upstream.url))[0]
    assert error.hints == ("choose another with --model, or ask.model in the config",)


def test_another_providers_model(upstream):
    upstream.say(missing_model())
    error = failed(model_at(upstream.url, Fake(base_url=upstream.url), name="claude-x"))[0]
    assert "claude-x is a model of another provider: --provider anthropic" in error.hints


def test_nobody_is_there():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    error, said = failed(model_at(f"http://127.0.0.1:{port}/v1"))
    assert (error.reason, said) == ("unreachable", [])
    assert str(error) == f"no connection to 127.0.0.1:{port}: Connection refused"
    assert error.hints == (f"is it running? openai is expected at http://127.0.0.1:{port}/v1",)


def test_elsewhere_somebody_may_come_back():
    client, dialled = public("192.168.1.7")
    error, said = failed(model_at("http://gpu.example.com:8000/v1", client=client, tries=2))
    assert [type(one) for one in said] == [Retrying]
    assert (len(dialled), "Connection refused (tried 2 times)" in str(error)) == (2, True)


def test_no_way_to_a_provider():
    client, _ = public()
    error = failed(model_at("https://own.example/v1", client=client, tries=1))[0]
    assert error.hints[0].startswith("is own.example reachable from here?")
    error = failed(model_at("https://other.example/v1", client=client, tries=1))[0]
    assert error.hints == ("ask.base_url is https://other.example/v1",)


@pytest.mark.parametrize(("status", "word"), [(402, "billing"), (413, "--new-session")])
def test_what_can_be_done(upstream, status, word):
    upstream.say(answer(status, error="no"))
    assert word in failed(model_at(upstream.url))[0].hints[0]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("body", [b"<html>Welcome", b"", b"[" * 1000, b'{"say": "\xff'])
def test_what_is_no_answer_at_all(upstream, body, stream):
    upstream.say(Reply(headers={"Content-Type": "text/html"}, body=body))
    error, said = failed(model_at(f"{upstream.url}/v1"), stream)
    assert (error.reason, said) == ("garbled", [])
    assert f"{upstream.url}/v1" in error.hints[0]


def test_what_an_adapter_stumbles_over_is_no_traceback(upstream):
    upstream.say(answer(something="else"))
    error = failed(model_at(upstream.url), stream=False)[0]
    assert (error.reason, str(error)) == ("garbled", f"{upstream.netloc} sent an unreadable response (KeyError: 'say')")
    upstream.say(events(17))
    assert failed(model_at(upstream.url))[0].reason == "garbled"


# The list of models


def test_names(upstream):
    upstream.say(answer(models=["b", "a"]))
    assert run(model_at(f"{upstream.url}/v1").names()) == ["b", "a"]
    seen = upstream.seen[0]
    assert (seen.method, seen.target, seen.body) == ("GET", "/v1/models", b"")
    assert "content-type" not in seen.headers


def test_no_names(upstream):
    upstream.say(answer(401, error=f"bad {KEY}"))
    with pytest.raises(ModelError, match=r"it answered 401: bad \*\*\*") as caught:
        run(model_at(upstream.url).names())
    assert "onetool auth set openai" in caught.value.hints[0]
