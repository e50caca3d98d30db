"""Lines of a file, and what becomes of odd ones."""

import msgspec
import pytest
from helpers import each
from msgspec import UNSET

from onetool.ask.errors import SessionError
from onetool.ask.messages import Assistant, Call, File, Result, User
from onetool.ask.sessions.records import Row, SessionHeader, TurnEnded, message_row, read_timed, title_of


@each(
    "message",
    [
        User(
            text="Grüße 🎉\n\u2028",
            files=(File(name="a.txt", text="x"), File(name="b.png", kind="image/png", data="AA==")),
        ),
        Assistant(
            text="", calls=(Call(id="1", name="a.b", args={"n": 2**70, "x": [1.5, None, True]}, kept={"s": "t"}),)
        ),
        Assistant(calls=(Call(id="", name="?", malformed="{"),), provider="gemini", kept={"a": 1}, broken_off=True),
        Result(call="1", name="a.b", content="", ok=False),
        Result(call="1", name="a.b", content="null", value=None),
        Result(call="1", name="a.b", content="", value={"a": [1, "x"]}),
    ],
)
def test_a_message_comes_back_as_it_was(message):
    written, same = message_row(message, 12.3456)
    assert same is message
    assert written.body.endswith(b',"at":12.346}')
    assert f'"type":"{written.kind}"'.encode() in written.body
    assert read_timed(written.body) == (message, 12.346)


def test_records_come_back_as_they_were():
    for record in (SessionHeader(id="a", created=1.5, title="x"), TurnEnded(at=2.0, model="m", steps=3)):
        assert read_timed(Row.of(record).body)[0] == record


def test_half_a_surrogate_pair_is_replaced():
    message = Assistant(text="a\ud800b", calls=(Call(id="1", name="x", args={"k\udfff": ["\ud801"]}),))
    written, cleaned = message_row(message, 0)
    assert cleaned == Assistant(text="a�b", calls=(Call(id="1", name="x", args={"k�": ["�"]}),))
    assert read_timed(written.body)[0] == cleaned


def deep(levels):
    value = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value", [object(), deep(20_000), {(1, 2): 3}, "\ud800"], ids=["object", "deep", "key", "text"]
)
def test_a_value_that_json_cannot_say_is_not_kept(value):
    written, cleaned = message_row(Result(call="1", name="x", content="text", value=value), 0)
    assert cleaned == Result(call="1", name="x", content="text")
    assert cleaned.value is UNSET
    assert read_timed(written.body)[0] == cleaned


def test_arguments_that_json_cannot_say_are_an_error_in_words():
    with pytest.raises(SessionError, match="can't be stored"):
        message_row(Assistant(calls=(Call(id="1", name="x", args={"a": object()}),)), 0)


def test_a_later_kind_of_line_is_passed_over():
    assert read_timed(b'{"type":"summary","at":1,"text":"x"}') is None


@each(
    "text",
    [
        b"{",
        b"[]",
        b"\0\0",
        b"\xff",
        b'{"type":1}',
        b'{"no":"type"}',
        b'{"type":"user"}',
        b'{"type":"user","text":"\xff"}',
        b'{"type":"user","text":"x","at":"noon"}',
        b'{"type":"new","a":' + b"[" * 20_000 + b"]" * 20_000 + b"}",
    ],
)
def test_what_no_line_says(text):
    with pytest.raises((msgspec.DecodeError, UnicodeDecodeError, RecursionError)):
        read_timed(text)


def test_titles():
    assert title_of(User(text="  What\n is\x1b[31m  it? ")) == "What is [31m it?"
    assert title_of(User(text="word " * 1000)) == ("word " * 16)[:79].rstrip() + "…"
    assert title_of(User(text="", files=(File(name="a.png", data=""), File(name="b")))) == "a.png, b"
    assert title_of(Assistant(text="x")) == ""
