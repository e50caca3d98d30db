"""Ollama's own API: checked with the official client's types."""

import json
import warnings
from pathlib import Path
from typing import Any

import msgspec
import pytest
from ask.providers.recorded import CITY, TOOLS

from onetool import ToolSpec
from onetool.ask.errors import ModelError
from onetool.ask.messages import (
    Assistant,
    Call,
    File,
    ModelPrompt,
    ModelReply,
    Result,
    TextDelta,
    ThoughtDelta,
    Toolset,
    Usage,
    User,
)
from onetool.ask.providers import adapter

DATA = Path(__file__).parent / "data" / "ollama"
OLLAMA = adapter("ollama")
REFUSALS = json.loads((DATA / "refusals.json").read_text())
HISTORY = (
    User(text="What?", files=(File(name="a.txt", text="one"), File(name="b.png", kind="image/png", data="aGk="))),
    Assistant(
        text="I look.", calls=(Call(id="c1", name="time.now"), Call(id="c2", name="weather", args={"city": "Ü"}))
    ),
    Result(call="c1", name="time.now", content="12:00"),
    Result(call="c2", name="weather", content="rain \ud800", ok=False),
    Assistant(text="Rain."),
    User(text="And then?"),
)


def prompt(*messages: Any, **more: Any) -> ModelPrompt:
    return ModelPrompt(messages=messages or (User(text="Hello"),), **{"model": "qwen3:8b", "tools": TOOLS, **more})


def body(given: ModelPrompt, stream: bool = False) -> dict[str, Any]:
    return json.loads(msgspec.json.encode(OLLAMA.request(given, stream).body))


def whole(name: str) -> Any:
    return json.loads((DATA / f"{name}.json").read_text())


def lines(name: str) -> list[Any]:
    return [json.loads(line) for line in (DATA / f"{name}.ndjson").read_text().splitlines()]


def streamed(given: list[Any]) -> tuple[list[Any], ModelReply]:
    reader = OLLAMA.reader(prompt())
    deltas = [delta for event in given for delta in reader.feed(event)]
    assert reader.is_complete
    return deltas, reader.reply()


def answered(**message: Any) -> ModelReply:
    return OLLAMA.reply({"message": {"role": "assistant", **message}, "done": True, "done_reason": "stop"}, prompt())


@pytest.fixture(scope="module")
def official() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import ollama._types

        return ollama._types


class TestRequest:
    @pytest.mark.long
    @pytest.mark.parametrize("stream", [False, True])
    def test_official_types(self, official: Any, stream: bool) -> None:
        sent = body(prompt(*HISTORY, system="Be brief.", temperature=0.5, max_tokens=100), stream)
        read = official.ChatRequest.model_validate(sent).model_dump(exclude_none=True)
        assert read == sent
        for message in sent["messages"]:
            pictures = {"images": [{"value": data} for data in message["images"]]} if "images" in message else {}
            shown = official.Message.model_validate({**message, **pictures}).model_dump(exclude_none=True)
            assert shown == without_ids(message)
        assert official.Options.model_validate(sent["options"]).model_dump(exclude_none=True) == sent["options"]

    def test_messages(self) -> None:
        sent = body(prompt(*HISTORY, system="Be brief."))["messages"]
        assert [message["role"] for message in sent] == [
            "system",
            "user",
            "assistant",
            "tool",
            "tool",
            "assistant",
            "user",
        ]
        assert sent[1] == {
            "role": "user",
            "content": "What?\n\nFile a.txt:\n```\none\n```\n\nAttached pictures: b.png",
            "images": ["aGk="],
        }
        assert sent[2]["tool_calls"] == [
            {"id": "c1", "function": {"name": "time__now", "arguments": {}}},
            {"id": "c2", "function": {"name": "weather", "arguments": {"city": "Ü"}}},
        ]
        assert sent[3] == {"role": "tool", "content": "12:00", "tool_name": "time__now", "tool_call_id": "c1"}
        assert sent[4]["content"] == "rain �"

    def test_nobody_speaks_twice_in_a_row(self) -> None:
        picture = File(name="b.png", kind="image/png", data="aGk=")
        again = User(text="Two", files=(picture,))
        sent = body(prompt(User(text="One", files=(picture,)), again, Assistant(text=" "), User(text="Three")))
        assert sent["messages"] == [
            {
                "role": "user",
                "content": "One\n\nTwo\n\nThree\n\nAttached pictures: b.png, b.png",
                "images": ["aGk=", "aGk="],
            }
        ]

    def test_settings(self) -> None:
        sent = body(prompt(temperature=0.0, max_tokens=5, context_tokens=1234))
        assert sent["options"] == {"num_ctx": 1234, "temperature": 0.0, "num_predict": 5}
        assert sent["stream"] is False
        assert set(body(prompt())["options"]) == {"num_ctx"}

    def test_no_more_calls(self) -> None:
        assert "tools" in body(prompt())
        assert "tools" not in body(prompt(may_call=False))
        assert "tools" not in body(prompt(tools=Toolset()))

    def test_malformed_arguments_go_back_as_none(self) -> None:
        said = Assistant(calls=(Call(id="c1", name="weather", malformed='{"city": '),))
        assert body(prompt(said))["messages"][0]["tool_calls"][0]["function"]["arguments"] == {}

    def test_arguments_that_are_hard_to_write(self) -> None:
        said = Assistant(calls=(Call(id="c1", name="weather", args={"city": "\ud800", "n": 2**80}),))
        assert body(prompt(said))["messages"][0]["tool_calls"][0]["function"]["arguments"]["n"] == 2**80


def without_ids(message: dict[str, Any]) -> dict[str, Any]:
    """The server takes ids, the official client does not know them yet."""
    calls = [{"function": call["function"]} for call in message.get("tool_calls", [])]
    known = {key: value for key, value in message.items() if key != "tool_call_id"}
    return {**known, "tool_calls": calls} if calls else known


class TestWindow:
    """Powers of two that hold the prompt and an answer: each other size has the model loaded anew."""

    def window(self, *messages: Any, **more: Any) -> int:
        return body(prompt(*messages, **more))["options"]["num_ctx"]

    @pytest.mark.parametrize(("tokens", "window"), [(1, 8192), (4096, 8192), (4097, 16384), (30_000, 65536)])
    def test_grows_by_powers_of_two(self, tokens: int, window: int) -> None:
        assert self.window(tokens=tokens) == window
        assert self.window(User(text="word " * 50_000), tokens=tokens) == window  # whoever counted is right

    def test_the_answer_counts(self) -> None:
        assert self.window(tokens=1, max_tokens=9000) == 16384

    def test_nobody_has_counted(self) -> None:
        assert self.window() == 8192
        assert self.window(User(text="word " * 5_000)) == self.window(system="word " * 5_000) == 16384

    def test_same_with_and_without_calls(self) -> None:
        many = Toolset(ToolSpec(name=f"t{n}", description="word " * 50, input_schema=CITY) for n in range(100))
        assert self.window(tools=many) == self.window(tools=many, may_call=False) == 16384


class TestReply:
    @pytest.mark.long
    @pytest.mark.parametrize(
        "name", sorted(path.stem for path in DATA.glob("*.*json") if path.stem not in ("tags", "refusals"))
    )
    def test_fixtures_are_what_they_say(self, official: Any, name: str) -> None:
        every = (lines(name) if (DATA / f"{name}.ndjson").exists() else []) + (
            [whole(name)] if (DATA / f"{name}.json").exists() else []
        )
        for one in every:
            if "error" not in one:
                official.ChatResponse.model_validate(one)

    def test_answer(self) -> None:
        expected = ModelReply(text="Hello! It is noon.", usage=Usage(input=26, output=282))
        assert OLLAMA.reply(whole("answer"), prompt()) == expected
        assert streamed(lines("answer")) == ([TextDelta("Hello"), TextDelta("! It is noon.")], expected)

    def test_calls(self) -> None:
        reply = OLLAMA.reply(whole("calls"), prompt())
        assert reply.calls == (
            Call(id="", name="time.now"),
            Call(id="", name="weather", args={"city": "Paris", "days": 2}),
        )
        assert reply.stop == "tools"

    def test_calls_and_thoughts_in_a_stream(self) -> None:
        deltas, reply = streamed(lines("calls"))
        assert deltas == [ThoughtDelta("I need the time"), ThoughtDelta(" and the weather.")]
        assert [(call.id, call.name) for call in reply.calls] == [
            ("call_9xw2k3ab", "time.now"),
            ("call_1f0c8d2e", "weather"),
        ]
        said = Assistant(calls=reply.calls, provider="ollama", kept=reply.kept)
        assert body(prompt(said))["messages"][0]["thinking"] == "I need the time and the weather."
        assert "thinking" not in body(prompt(said, model="other"))["messages"][0]
        assert "thinking" not in body(prompt(msgspec.structs.replace(said, provider="openai")))["messages"][0]

    def test_stops(self) -> None:
        assert OLLAMA.reply(whole("length"), prompt()).stop == "length"
        odd = OLLAMA.reply({"message": {"content": "x"}, "done": True, "done_reason": "unload"}, prompt())
        assert (odd.stop, odd.why) == ("other", "unload")

    @pytest.mark.parametrize("args", [None, "", {}, "{}"])
    def test_no_arguments(self, args: Any) -> None:
        reply = answered(tool_calls=[{"function": {"name": "time__now", "arguments": args}}])
        assert reply.calls == (Call(id="", name="time.now"),)

    @pytest.mark.parametrize("args", ['{"city": ', [1], 5])
    def test_malformed(self, args: Any) -> None:
        (call,) = answered(tool_calls=[{"function": {"name": "weather", "arguments": args}}]).calls
        assert call.malformed

    def test_error_in_a_stream(self) -> None:
        reader = OLLAMA.reader(prompt())
        first, second = lines("error")
        assert list(reader.feed(first)) == [TextDelta("Hel")]
        with pytest.raises(ModelError, match="CUDA error"):
            reader.feed(second)
        assert not reader.is_complete

    @pytest.mark.parametrize("wrong", [None, 5, "x", [], {}, {"message": None}, {"message": 5}, {"models": []}])
    def test_no_answer(self, wrong: Any) -> None:
        with pytest.raises(ModelError) as caught:
            OLLAMA.reply(wrong, prompt())
        assert caught.value.reason == "garbled"


class TestRefusals:
    @pytest.mark.parametrize("name", REFUSALS)
    def test_what_they_mean(self, name: str) -> None:
        status, given, expected = (REFUSALS[name][key] for key in ("status", "body", "expected"))
        error = OLLAMA.failure(status, given)
        assert error.reason == expected["reason"]
        assert error.status == status
        assert error.again == expected.get("again", False)
        assert expected.get("says", "") in str(error)
        assert "<" not in str(error)
        assert bool(error.hints) == ("hint" in expected)
        assert expected.get("hint", "") in " ".join(error.hints)

    def test_a_name_that_is_no_name_gets_no_command(self) -> None:
        error = OLLAMA.failure(404, {"error": "model 'x; rm -rf /' not found"})
        assert error.reason == "model_not_found"
        assert "rm" not in " ".join(error.hints)


class TestModels:
    def test_those_that_chat(self) -> None:
        assert OLLAMA.models(whole("tags")) == ["qwen3:8b", "gemma3:4b"]

    @pytest.mark.long
    def test_official_types(self, official: Any) -> None:
        assert len(official.ListResponse.model_validate(whole("tags")).models) == 3

    def test_capabilities(self) -> None:
        listed = [
            {"name": "a", "capabilities": ["completion"]},
            {"name": "b", "capabilities": ["embedding"]},
            {"name": 5},
            6,
        ]
        assert OLLAMA.models({"models": listed}) == ["a"]
        assert OLLAMA.models({"models": None}) == []

    @pytest.mark.parametrize("wrong", [{}, 5, "Ollama is running", [], {"models": 5}])
    def test_no_list(self, wrong: Any) -> None:
        with pytest.raises(ModelError):
            OLLAMA.models(wrong)
