"""Answers without end: what a server may send, and how much work it may make of it."""

import json
from collections.abc import Iterator
from typing import Any, ClassVar
from urllib.parse import parse_qsl, urlsplit

import pytest
from ask.stand_in import Says, Seen
from ask.stand_in.server import WIRES
from helpers import each
from hypothesis import given
from hypothesis import strategies as st

from onetool.ask.errors import ModelError
from onetool.ask.messages import ModelPrompt, ModelReply, User
from onetool.ask.model_client import JsonLines
from onetool.ask.providers import _reading, adapter
from onetool.ask.providers._openai_replies import JsonBalance
from onetool.core.model_providers import PROVIDERS
from onetool.http.body import EventDecoder, event_value

MIB = 1024 * 1024
PROMPT = ModelPrompt(model="m", messages=(User(text="?"),))
EVERY = pytest.mark.parametrize("name", PROVIDERS)


def openai(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"delta": delta, "finish_reason": finish}]}


def gemini(*parts: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"candidates": [{"content": {"parts": list(parts)}, **({"finishReason": finish} if finish else {})}]}


def block(index: int, **delta: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": delta}


def call(args: Any, **more: Any) -> dict[str, Any]:
    return {"index": 0, "function": {"name": "t", "arguments": args}, **more}


BEGIN = {
    "anthropic": [
        {"type": "content_block_start", "index": index, "content_block": {"type": kind}}
        for index, kind in enumerate(("text", "thinking", "tool_use"))
    ]
}
TEXT = {
    "openai": lambda text: openai(content=text),
    "anthropic": lambda text: block(0, type="text_delta", text=text),
    "gemini": lambda text: gemini({"text": text}),
    "ollama": lambda text: {"message": {"content": text}},
}
THOUGHTS = {
    "openai": lambda text: openai(reasoning_content=text),
    "openai reasoning": lambda text: openai(reasoning=text),
    "openai details": lambda text: openai(reasoning_details=[{"type": "t", "index": 0, "text": text}]),
    "openai blocks": lambda text: openai(reasoning_details=[{"type": "t", "text": text}]),
    "openai others": lambda text: openai(reasoning_details=[text]),
    "openai extra": lambda text: openai(extra_content={"google": text}),
    "openai call": lambda text: openai(tool_calls=[call("{}", extra_content={"google": text})]),
    "anthropic": lambda text: block(1, type="thinking_delta", thinking=text),
    "anthropic signature": lambda text: block(1, type="signature_delta", signature=text),
    "gemini": lambda text: gemini({"text": text, "thought": True}),
    "gemini signature": lambda text: gemini({"text": "a", "thoughtSignature": text}),
    "gemini call": lambda text: gemini({"functionCall": {"name": "t"}, "thoughtSignature": text}),
    "ollama": lambda text: {"message": {"thinking": text}},
}
ARGUMENTS = {
    "openai": lambda text: openai(tool_calls=[call(text)]),
    "openai old": lambda text: openai(function_call={"name": "t", "arguments": text}),
    "anthropic": lambda text: block(2, type="input_json_delta", partial_json=text),
}
NAMED = {
    "openai": lambda text: openai(tool_calls=[{"index": 0, "function": {"name": text}}]),
    "gemini": lambda text: gemini({"functionCall": {"name": text}}),
    "ollama": lambda text: {"message": {"tool_calls": [{"function": {"name": text}}]}},
}


def read(name: str, *events: Any) -> ModelReply:
    name = name.split(" ")[0]
    reader = adapter(name).reader(PROMPT)
    for event in (*BEGIN.get(name, ()), *events):
        list(reader.feed(event))
    return reader.reply()


def streamed(name: str, text: str) -> Iterator[Any]:
    """Yield the events of an answer, as the provider's stand-in sends them."""
    asked = adapter(name)
    request = asked.request(PROMPT, True)
    parts = urlsplit(request.path)
    seen = Seen(name, "POST", parts.path, dict(parse_qsl(parts.query)), {}, request.body, 1)
    frames = EventDecoder() if asked.stream == "events" else JsonLines()
    for sent in WIRES[name].events(Says(text), seen):
        yield from map(event_value, frames.feed(sent))


def refused(name: str, *events: Any) -> str:
    with pytest.raises(ModelError) as caught:
        read(name, *events)
    assert (caught.value.reason, caught.value.again) == ("garbled", False)
    return str(caught.value)


# How much there may be


@EVERY
def test_an_answer_has_an_end(name: str) -> None:
    text = "я" * (2 * MIB)
    assert len(read(name, *streamed(name, text)).text.encode()) == 4 * MIB
    assert refused(name, *streamed(name, text + "x")) == "the model's API sent an answer of more than 4 MiB"


@each("name", THOUGHTS)
def test_thoughts_have_an_end(name: str) -> None:
    read(name, *[THOUGHTS[name]("x" * (MIB // 4))] * 7)
    assert "thoughts of more than 2 MiB" in refused(name, *[THOUGHTS[name]("x" * (MIB // 4))] * 9)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments_have_an_end(name: str) -> None:
    read(name, *[ARGUMENTS[name]("x" * (MIB // 4))] * 3)
    assert "arguments of a call of more than 1 MiB" in refused(name, *[ARGUMENTS[name]("x" * (MIB // 4))] * 5)


@pytest.mark.parametrize("name", NAMED)
def test_names_have_an_end(name: str) -> None:
    assert "name of a tool of more than 1 KiB" in refused(name, NAMED[name]("x" * 2000))


def test_nor_do_they_grow_without_end() -> None:
    pieces = [{"index": 0, "id": "c", "function": {"name": name}} for name in ("x" * 600, "y" * 600)]
    assert "name of a tool" in refused("openai", *(openai(tool_calls=[piece]) for piece in pieces))


@each(
    ("name", "body"),
    [
        ("openai", {"choices": [{"message": {"tool_calls": [call({"x": "x" * MIB})]}}]}),
        ("anthropic", {"content": [{"type": "tool_use", "input": {"x": "x" * MIB}}]}),
        ("anthropic", {"content": [{"type": "text", "text": "x" * MIB}] * 5}),
        ("anthropic", {"content": [{"type": "redacted_thinking", "data": "x" * MIB}] * 3}),
        ("gemini", gemini({"functionCall": {"name": "t", "args": {"x": "x" * MIB}}}, finish="STOP")),
        ("ollama", {"message": {"tool_calls": [call({"x": "x" * MIB})]}, "done": True}),
    ],
)
def test_also_of_a_whole_answer(name: str, body: Any) -> None:
    with pytest.raises(ModelError, match="of more than"):
        adapter(name).reply(body, PROMPT)


# How much work it may make


def test_a_name_that_comes_with_every_piece_is_no_reason_to_read_it_all(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[int] = []

    def counting(text: bytes, real: Any = _reading.json_of) -> Any:
        parsed.append(len(text))
        return real(text)

    monkeypatch.setattr(_reading, "json_of", counting)
    pieces = ['{"x": "', *"y" * 2000, '"}']
    reply = read("openai", *(openai(tool_calls=[call(piece)]) for piece in pieces))
    assert reply.calls[0].args == {"x": "y" * 2000}
    assert len(parsed) <= 2


class Counted(str):
    """A text that counts how often something is added to it: each time all of it is copied."""

    __slots__ = ()
    added: ClassVar[list[int]] = []

    def __add__(self, other: str) -> "Counted":
        self.added.append(len(self))
        return Counted(str(self) + other)


@pytest.mark.parametrize("kind", ["TEXT", "THOUGHTS", "ARGUMENTS"])
def test_pieces_are_put_together_once(kind: str) -> None:
    for name, piece in globals()[kind].items():
        Counted.added.clear()
        read(name, *(piece(Counted("z")) for _ in range(200)))
        assert len(Counted.added) <= 1, name


def test_pieces_of_a_detail() -> None:
    pieces = [{"type": "t", "index": 0, "text": "a", "x": 1}, {"type": "t", "index": 0, "text": "b", "data": "c"}]
    pieces += [{"type": "t", "index": 0, "text": None, "data": "d", "x": 2}, {"type": "u", "index": 0, "text": "e"}]
    reply = read("openai", *(openai(reasoning_details=[piece]) for piece in pieces))
    assert reply.kept["reasoning_details"] == [
        {"type": "t", "index": 0, "text": "ab", "data": "cd", "x": 2},
        {"type": "u", "index": 0, "text": "e"},
    ]


JSON = st.recursive(
    st.none() | st.integers() | st.text(alphabet='a\\"{}[]:, \n', max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(alphabet='\\"{}', max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.text(alphabet='\\"{}', max_size=4), JSON, max_size=3), st.booleans(), st.integers(1, 5))
def test_where_an_object_ends(value: dict[str, Any], in_a_text: bool, size: int) -> None:
    text = json.dumps(json.dumps(value) if in_a_text else value)
    balance = JsonBalance()
    assert not balance.is_even
    for at in range(0, len(text), size):
        balance.feed(text[at : at + size])
        assert balance.is_even is (at + size >= len(text))


# After the end


@EVERY
def test_what_comes_after_the_end_is_not_part_of_it(name: str) -> None:
    reader, other = adapter(name).reader(PROMPT), adapter(name).reader(PROMPT)
    events = streamed(name, "aaa")
    while not reader.is_complete:
        list(reader.feed(next(events)))
    late = next(event for event in streamed(name, "bbb") if list(other.feed(event)))
    assert list(reader.feed(late)) == []
    assert reader.reply().text == "aaa"


@pytest.mark.parametrize(
    ("name", "events"),
    [
        ("openai", [openai("stop", content="a"), openai("stop", content="b")]),
        ("openai", [openai("stop", content=""), openai(content="ab"), openai("stop")]),
        ("gemini", [gemini({"text": "a"}, finish="STOP"), gemini({"text": "b"}, finish="STOP")]),
        ("gemini", [gemini(finish="STOP"), gemini({"text": "ab"}), gemini(finish="STOP")]),
    ],
)
def test_an_end_that_is_none(name: str, events: list[Any]) -> None:
    """Some servers say with each piece that this is all, or before they begin."""
    assert read(name, *events).text == "ab"


def test_there_are_words_after_which_nothing_follows() -> None:
    for name in ("openai", "anthropic", "ollama"):
        reader = adapter(name).reader(PROMPT)
        *events, last = streamed(name, "a")
        for event in events:
            list(reader.feed(event))
        assert not reader.has_ended
        list(reader.feed(last))
        assert reader.has_ended
        assert list(reader.feed({"error": "full", "type": "error"})) == []
