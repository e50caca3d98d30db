"""What becomes of an answer: a value, or a failure that says what the server said."""

import asyncio
import base64
import gzip

import msgspec
import pytest
from helpers import Checkpoint
from http_harness import harness, run
from upstream import Reply, Upstream

from onetool.core import json_data
from onetool.core.errors import ToolFailure
from onetool.http.placeholders import TemplateError


@pytest.fixture
def upstream():
    with Upstream() as upstream:
        yield upstream


def value(upstream, answer, response=None, **more):
    upstream.say(answer)
    return harness(upstream, response=response or {}, **more)()


def failure(upstream, answer, response=None, **more):
    with pytest.raises(ToolFailure) as caught:
        value(upstream, answer, response, **more)
    return caught.value


@pytest.mark.parametrize(
    ("body", "data"),
    [
        (b'{"a": [1, 2.5, null, true, "\xd0\xba"]}', {"a": [1, 2.5, None, True, "к"]}),
        (b"", None),
        (b" \r\n", None),
        (b"null", None),
        (b"5", 5),
        (b'\xef\xbb\xbf{"a": 1}', {"a": 1}),
        (b"12345678901234567890123", 12345678901234567890123),
    ],
)
def test_json(upstream, body, data):
    assert value(upstream, Reply(body=body)) == data


def test_json_in_other_encodings(upstream):
    headers = {"Content-Type": "application/json; charset=iso-8859-1"}
    assert value(upstream, Reply(headers=headers, body='"ü"'.encode("latin-1"))) == "ü"
    headers = {"Content-Type": 'application/json; charset="utf-16"'}
    assert value(upstream, Reply(headers=headers, body='["ü"]'.encode("utf-16"))) == ["ü"]


@pytest.mark.parametrize(
    "body",
    [b"{", b"not json", b"[1,]", b"NaN", b"1e999", b'"\\ud800"', b'"\xff"', b"{}{}"],
)
def test_what_is_not_json(upstream, body):
    error = failure(upstream, Reply(body=body))
    assert "is not JSON" in str(error)
    assert error.reason == "upstream_error"
    assert len(str(error)) < 700


@pytest.mark.parametrize("depth", [201, 490, 900, 100_000])
def test_json_that_is_nested_too_deep(upstream, depth):
    """Those after us who walk through it would fail without a word about what is wrong."""
    body = b'[{"a":' * (depth // 2) + (b"[]" if depth % 2 else b"0") + b"}]" * (depth // 2)
    error = failure(upstream, Reply(body=body))
    assert str(error) == f"the response of {upstream.netloc} is nested too deep: more than 200 levels"
    assert error.reason == "output_invalid"
    assert value(upstream, Reply(500, body=body), {"errorMode": "return"}) == {"status": 500, "body": body.decode()}


def test_json_that_is_deep_enough(upstream):
    assert msgspec.json.encode(value(upstream, Reply(body=b"[" * 200 + b"]" * 200))) == b"[" * 200 + b"]" * 200
    assert value(upstream, Reply(body=b"[" + b"{}," * 300 + b"[[]]]"))[-1] == [[]]


def test_a_large_answer_is_read_by_a_thread(upstream, monkeypatch):
    from onetool.http import response

    loop_runs = Checkpoint()

    def decoded(answer):
        loop_runs.pause_thread()
        return len(answer.body)

    monkeypatch.setattr(response, "_decoded", decoded)
    upstream.say(Reply(body=b"[" + b"1," * 200_000 + b"1]"))
    tool = harness(upstream)

    async def main():
        call = asyncio.ensure_future(tool.call())
        await loop_runs.arrival()
        loop_runs.open()
        return await call

    assert run(main()) == 400_003


def test_a_page_instead_of_json(upstream):
    page = b"<html><head><title>Log in</title></head>\n<body>Please <b>log in</b></body></html>"
    answer = Reply(headers={"Content-Type": "text/html; charset=utf-8"}, body=page)
    error = failure(upstream, answer, {"encoding": "json"})
    assert "is not JSON (text/html)" in str(error)
    assert "Log in Please log in" in str(error)
    assert error.hints == ("for other data, set response.encoding to text or binary",)


@pytest.mark.parametrize(
    ("kind", "body", "expected"),
    [
        ("application/json", b"5", 5),
        ("text/json; charset=utf-8", b"5", 5),
        ("application/hal+json", b'"a"', "a"),
        ("", b"5", 5),
        ("text/plain", b' {"a": 1}', {"a": 1}),
        ("text/html", b"[1, 2]", [1, 2]),
        ("application/octet-stream", b"\xef\xbb\xbf[1]", [1]),
        ("text/plain", b"5", "5"),
        ("text/plain", b"[1, 2", "[1, 2"),
        ("text/plain", b"[" * 300 + b"]" * 300, "[" * 300 + "]" * 300),
        ("text/csv; charset=iso-8859-1", b"\xfc;b", "ü;b"),
        ("image/svg+xml", b"<svg/>", "<svg/>"),
        ("application/yaml", b"a: 1", "a: 1"),
        ("image/png", b"", None),
        ("text/plain", b"", None),
    ],
)
def test_how_an_answer_is_read_where_the_tool_does_not_say(upstream, kind, body, expected):
    assert value(upstream, Reply(headers={"Content-Type": kind} if kind else {}, body=body)) == expected


def test_bytes_are_stored_where_the_tool_does_not_say(upstream):
    upstream.say(Reply(headers={"Content-Type": "image/png"}, body=b"\x89PNG"))
    tool = harness(upstream, response={})
    assert tool() == {"type": "blob", "mimeType": "image/png", "handle": "0" * 32, "size": 4}
    assert tool.kept == ["data:image/png;base64,iVBORw=="]


@pytest.mark.parametrize("response", [{"encoding": "json"}, {"selector": "a"}])
def test_a_stated_encoding_and_a_selector_rule(upstream, response):
    answer = Reply(headers={"Content-Type": "text/plain"}, body=b"not json")
    assert "is not JSON (text/plain)" in str(failure(upstream, answer, response))
    as_text = Reply(headers={"Content-Type": "application/json"}, body=b"[1]")
    assert value(upstream, as_text, {"encoding": "text"}) == "[1]"


def test_json_with_too_many_parts(upstream, monkeypatch):
    monkeypatch.setattr(json_data, "MAX_PARTS", 1000)
    error = failure(upstream, Reply(body=b"[" + b"[]," * 1000 + b"1]"))
    assert (str(error), error.reason) == (f"the response of {upstream.netloc} has more than 1,000 parts", "too_large")
    assert len(value(upstream, Reply(body=b'["' + b"a," * 5000 + b'"]'))[0]) == 10_000


def test_json_with_endless_numbers(upstream):
    error = failure(upstream, Reply(body=b"9" * 5000))
    assert str(error) == f"the response of {upstream.netloc} has a number of more than 1,000 digits"
    assert value(upstream, Reply(body=b"9" * 1000)) == int("9" * 1000)


@pytest.mark.parametrize(
    ("kind", "body", "text"),
    [
        ("text/plain", "Київ\n".encode(), "Київ\n"),
        ("text/plain; charset=ISO-8859-1", b"\xfc", "ü"),
        ('text/plain; charset="windows-1251"', "Київ".encode("cp1251"), "Київ"),
        ("text/plain; charset=nonsense", b"a\xff", "a\ufffd"),
        ("text/plain; charset=zlib", b"a", "a"),
        ("text/plain; charset=punycode", b"a-b", "a-b"),
        ("text/plain; charset=", b"a", "a"),
        ("text/plain; charset=" + "x" * 900, b"a", "a"),
        ("text/csv", b"\xef\xbb\xbfa,b", "a,b"),
        ("", b"", ""),
    ],
)
def test_text(upstream, kind, body, text):
    assert value(upstream, Reply(headers={"Content-Type": kind}, body=body), {"encoding": "text"}) == text


def test_binary_is_stored(upstream):
    for size in (0, 5, 400_000):
        data = bytes(range(256)) * (size // 256) + b"\0" * (size % 256)
        upstream.say(Reply(headers={"Content-Type": "image/png; x=y"}, body=data))
        tool = harness(upstream, response={"encoding": "binary"})
        assert tool() == {"type": "blob", "mimeType": "image/png", "handle": "0" * 32, "size": size}
        assert tool.kept == [f"data:image/png;base64,{base64.b64encode(data).decode()}"]


def test_binary_is_stored_by_a_thread_however_small_it_is(upstream, monkeypatch):
    """Another process may have locked the database."""
    from onetool.http import response

    loop_runs = Checkpoint()
    monkeypatch.setattr(response, "blob_record", lambda *_: loop_runs.pause_thread())
    upstream.say(Reply(headers={"Content-Type": "image/png"}, body=b"tiny"))
    tool = harness(upstream, response={"encoding": "binary"})

    async def main():
        call = asyncio.ensure_future(tool.call())
        await loop_runs.arrival()
        loop_runs.open()
        await call

    run(main())


def test_which_codes_are_a_success(upstream):
    assert value(upstream, Reply(201, body=b"1")) == 1
    assert value(upstream, Reply(404, body=b"1"), {"successCodes": [200, 404]}) == 1
    assert value(upstream, Reply(304), {"successCodes": [304]}) is None
    assert "201 Created" in str(failure(upstream, Reply(201, body=b"1"), {"successCodes": [200]}))


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Reply(404, body=b'{"message": "no such city"}'), '404 Not Found: {"message": "no such city"}'),
        (Reply(404, reason="Nope, sorry"), "404 Nope, sorry"),
        (Reply(599), "answered 599"),
        (Reply(500, body=b"a\r\n\tb\x00\x1b[31m   c"), "500 Internal Server Error: a b [31m c"),
        (Reply(500, body=b"x" * 10_000), "x" * 299 + "…"),
        (Reply(500, body=gzip.compress(b"zipped"), headers={"Content-Encoding": "gzip"}), "zipped"),
        (Reply(502, body=b"<h1>Bad <i>Gateway</i></h1>", headers={"Content-Type": "text/html"}), ": Bad Gateway"),
    ],
)
def test_failures_say_what_the_server_said(upstream, answer, words):
    error = failure(upstream, answer)
    assert str(error).startswith(f"{upstream.netloc} answered ")
    assert str(error).endswith(words)
    assert error.reason == "upstream_error"


def test_secrets_are_masked_before_the_text_is_cut(upstream):
    body = b"x" * 290 + b" s3cret-number-one"
    error = failure(upstream, Reply(500, body=body), secrets={"S": "s3cret-number-one"})
    assert "s3cr" not in str(error)


KEY = "sk-LIVE-0123456789abcdefghijklmnopqrstuvwxyz"
OTHER_KEY = "sk-LIVE-9876543210"
TYPE = "Content-Type"


@pytest.mark.parametrize(
    ("answer", "response"),
    [
        (Reply(500, body=b" " * (16 * 1024 - 20) + KEY.encode()), {}),
        (Reply(500, body=b" " * (48 * 1024 - 20) + KEY.encode()), {}),
        (Reply(500, {TYPE: "text/plain; charset=utf-16"}, (" " * (24 * 1024 - 20) + KEY).encode("utf-16")), {}),
        (Reply(500, reason="r" * 40 + KEY), {}),
        (Reply(500, {TYPE: "text/html"}, f"<p>{KEY[:10]}<b>{KEY[10:]}</b>".encode()), {}),
        (Reply(headers={TYPE: "x" * 40 + KEY}, body=b"no"), {}),
        (Reply(headers={TYPE: KEY}, body=b"no"), {"encoding": "sse"}),
        (Reply(headers={TYPE: f"application/{KEY}"}, body=b"no"), {"encoding": "binary"}),
        (Reply(headers={"Content-Encoding": KEY}, body=b"no"), {}),
        (Reply(302, {"Location": "/" + "x" * 180 + KEY}), {}),
        (Reply(302, {"Location": f"https://{KEY}.example.com/"}), {"follow": True}),
        (Reply(body=msgspec.json.encode({"v": "w" * 240 + KEY})), {"selector": "abs(v)"}),
    ],
)  # fmt: skip
def test_no_part_of_a_secret_is_shown(upstream, answer, response):
    """Not where a text is cut, put in lower case, or stripped of its tags."""
    upstream.say(answer)
    tool = harness(
        upstream,
        {"headers": {"X-Key": "${KEY}"}, "followRedirects": response.get("follow", False)},
        {name: value for name, value in response.items() if name != "follow"},
        secrets={"KEY": KEY},
    )
    try:
        said = str(tool())
    except ToolFailure as failure:
        said = " ".join([str(failure), *failure.hints])
    said = tool.environment.redact(said).lower()
    assert not [start for start in range(len(KEY) - 6) if KEY[start : start + 6].lower() in said]


def test_a_secret_in_a_host(upstream):
    tool = harness(upstream, {"urlTemplate": "https://${KEY}.example.com/"}, secrets={"KEY": KEY})
    with pytest.raises(ToolFailure, match="allowedHosts") as caught:
        tool()
    said = tool.environment.redact(" ".join([str(caught.value), *caught.value.hints]))
    assert "0123" not in said
    assert "***.example.com" in said


def test_error_modes(upstream):
    bad = Reply(422, body=b'{"why": "no"}', headers={"Content-Type": "application/json"})
    assert value(upstream, bad, {"errorMode": "empty"}) is None
    assert value(upstream, bad, {"errorMode": "return"}) == {"status": 422, "body": {"why": "no"}}
    assert value(upstream, Reply(500, body=b"oh no"), {"errorMode": "return"}) == {"status": 500, "body": "oh no"}
    assert value(upstream, Reply(500), {"errorMode": "return"}) == {"status": 500, "body": None}
    assert value(upstream, Reply(body=b"5"), {"errorMode": "return"}) == 5
    upstream.say(bad)
    assert harness(upstream, response={"errorMode": "return", "encoding": "sse"})() == {
        "status": 422,
        "body": {"why": "no"},
    }


def test_selectors(upstream):
    body = b'{"daily": [{"c": 21}, {"c": 19}]}'
    assert value(upstream, Reply(body=body), {"selector": "daily[0]"}) == {"c": 21}
    assert value(upstream, Reply(body=b""), {"selector": "daily[0]"}) is None
    assert value(upstream, Reply(404, body=body), {"selector": "daily", "errorMode": "return"})["status"] == 404


@pytest.mark.parametrize(
    "response", [{"selector": "a["}, {"selector": "nope(@)"}, {"selector": "a", "encoding": "text"}]
)
def test_a_selector_that_is_none_is_told_at_definition(upstream, response):
    with pytest.raises(TemplateError) as caught:
        harness(upstream, response=response)
    assert caught.value.pointer == "/response/selector"


SECRETS = {"A": "sesame-open-now"}


@pytest.mark.parametrize(
    ("selector", "found"), [("a", "***"), ("[a][?starts_with(@, 'sesame')] | length(@)", 0), ("reverse(a)", "***")]
)
def test_secrets_are_masked_before_a_selector_can_take_them_apart(upstream, selector, found):
    assert value(upstream, Reply(body=b'{"a": "sesame-open-now"}'), {"selector": selector}, secrets=SECRETS) == found


def test_secrets_are_masked_before_an_encoding_hides_them(upstream):
    upstream.say(Reply(body=b"\x00sesame-open-now\xff"))
    tool = harness(upstream, response={"encoding": "binary"}, secrets=SECRETS)
    tool()
    assert tool.kept[0].endswith(base64.b64encode(b"\x00***\xff").decode())


def test_what_the_caller_sent_is_not_masked(upstream):
    """A server that sends an argument back would else tell the caller that it is a secret of ours."""
    schema = {"type": "object", "properties": {"q": {"type": "string"}}}
    answer = Reply(body=msgspec.json.encode({"q": KEY, "more": OTHER_KEY}))
    upstream.say(answer, answer)
    tool = harness(
        upstream, {"query": {"q": "${q}"}}, {"selector": "@"}, schema=schema, secrets={"KEY": KEY, "OTHER": OTHER_KEY}
    )
    assert tool(q=KEY) == {"q": KEY, "more": "***"}
    assert tool(q="x") == {"q": "***", "more": "***"}
