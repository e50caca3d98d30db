"""OpenAI's chat completions: checked with the official client's types, and with what servers really send."""

import json
import warnings
from pathlib import Path
from typing import Any

import msgspec
import pytest
from ask.providers.recorded import TOOLS

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
from onetool.http.body import EventDecoder, event_value

DATA = Path(__file__).parent / "data" / "openai"
OPENAI = adapter("openai")
REFUSALS = json.loads((DATA / "refusals.json").read_text())


def prompt(*messages: Any, **more: Any) -> ModelPrompt:
    settings = {"model": "gpt-5.4-mini", "tools": TOOLS, **more}
    return ModelPrompt(messages=messages or (User(text="Hello"),), **settings)


def body(given: ModelPrompt, stream: bool = False) -> dict[str, Any]:
    """As it goes over the wire."""
    return json.loads(msgspec.json.encode(OPENAI.request(given, stream).body))


def whole(name: str) -> Any:
    return json.loads((DATA / f"{name}.json").read_text())


def events(name: str) -> list[Any]:
    reader = EventDecoder()
    return [event_value(data) for data in (*reader.feed((DATA / f"{name}.sse").read_bytes()), *reader.end())]


def streamed(given: list[Any], asked: ModelPrompt | None = None) -> tuple[list[Any], ModelReply]:
    reader = OPENAI.reader(asked or prompt())
    deltas = [delta for event in given for delta in reader.feed(event)]
    assert reader.is_complete
    return deltas, reader.reply()


def chunk(*calls: dict[str, Any], finish: str | None = None, **delta: Any) -> dict[str, Any]:
    said = {**delta, **({"tool_calls": list(calls)} if calls else {})}
    return {"choices": [{"index": 0, "delta": said, "finish_reason": finish}]}


def piece(index: int | None = None, id: str | None = None, name: str | None = None, args: Any = None) -> dict[str, Any]:
    given = {"index": index, "id": id, "function": {"name": name, "arguments": args}}
    return {key: value for key, value in given.items() if value is not None}


def calls_of(*chunks: Any) -> list[tuple[str, str, Any]]:
    _, reply = streamed([*chunks, chunk(finish="tool_calls"), "[DONE]"])
    return [(call.id, call.name, call.malformed or dict(call.args)) for call in reply.calls]


@pytest.fixture(scope="module")
def official() -> dict[str, Any]:
    """What the official client says of requests and answers. Its import is slow, so tests that use it are long.

    What it deprecates is not our matter.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from openai.types.chat import ChatCompletion, ChatCompletionChunk
        from openai.types.chat.completion_create_params import (
            CompletionCreateParamsNonStreaming,
            CompletionCreateParamsStreaming,
        )
        from pydantic import TypeAdapter

        return {
            "whole": TypeAdapter(CompletionCreateParamsNonStreaming),
            "stream": TypeAdapter(CompletionCreateParamsStreaming),
            "answer": ChatCompletion.model_validate,
            "chunk": ChatCompletionChunk.model_validate,
        }


HISTORY = (
    User(
        text="What is it like?",
        files=(File(name="a.txt", text="one"), File(name="b.png", kind="image/png", data="aGk=")),
    ),
    Assistant(
        text="I look.", calls=(Call(id="c1", name="time.now"), Call(id="c2", name="weather", args={"city": "Ü"}))
    ),
    Result(call="c1", name="time.now", content="12:00"),
    Result(call="c2", name="weather", content="rain \ud800", ok=False),
    Assistant(text="Rain."),
    User(text="And then?"),
)


class TestRequest:
    @pytest.mark.long
    @pytest.mark.parametrize("stream", [False, True])
    @pytest.mark.parametrize("may_call", [False, True])
    @pytest.mark.parametrize("model", ["gpt-5.4-mini", "gpt-6-luna", "qwen3", "mistral-small-latest"])
    def test_official_types(self, official: dict[str, Any], stream: bool, may_call: bool, model: str) -> None:
        asked = prompt(*HISTORY, model=model, system="Be brief.", may_call=may_call, temperature=0.5, max_tokens=100)
        sent = body(asked, stream)
        read = official["stream" if stream else "whole"].validate_python(sent)
        read["messages"] = list(map(plain, read["messages"]))
        if may_call:
            read["tools"] = list(read["tools"])
        assert read == sent  # a key that the type does not know would be gone

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
        assert sent[1]["content"] == [
            {"type": "text", "text": "What is it like?\n\nFile a.txt:\n```\none\n```\n\nAttached pictures: b.png"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
        ]
        assert sent[2]["tool_calls"] == [
            {"id": "c1", "type": "function", "function": {"name": "time__now", "arguments": "{}"}},
            {"id": "c2", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Ü"}'}},
        ]
        assert sent[3] == {"role": "tool", "tool_call_id": "c1", "content": "12:00"}
        assert sent[4]["content"] == "rain �"
        assert sent[6] == {"role": "user", "content": "And then?"}

    def test_no_tools_no_settings(self) -> None:
        assert body(prompt(tools=Toolset())) == {
            "model": "gpt-5.4-mini",
            "messages": [{"role": "user", "content": "Hello"}],
        }

    def test_no_more_calls(self) -> None:
        assert "tools" in body(prompt())
        for without in (prompt(may_call=False), prompt(may_call=False, tools=Toolset())):
            assert not {"tools", "tool_choice"} & body(without).keys()

    @pytest.mark.parametrize(
        ("model", "key"),
        [
            ("gpt-5.4-mini", "max_completion_tokens"),
            ("o4-mini", "max_completion_tokens"),
            ("ft:gpt-4.1-mini:org", "max_completion_tokens"),
            ("gpt-oss-20b", "max_tokens"),
            ("openai/gpt-5.4", "max_tokens"),
            ("qwen3", "max_tokens"),
        ],
    )
    def test_limit(self, model: str, key: str) -> None:
        sent = body(prompt(model=model, max_tokens=7))
        assert {name: value for name, value in sent.items() if name.startswith("max")} == {key: 7}

    @pytest.mark.parametrize(
        ("model", "effort"),
        [
            ("gpt-5.4", None),
            ("gpt-5", None),
            ("gpt-5.6-luna", "none"),
            ("gpt-6-sol", "none"),
            ("gpt-10.1", "none"),
            ("x", None),
        ],
    )
    def test_models_that_think_or_call(self, model: str, effort: str | None) -> None:
        assert body(prompt(model=model)).get("reasoning_effort") == effort
        assert "reasoning_effort" not in body(prompt(model=model, tools=Toolset()))

    def test_usage_of_streams(self) -> None:
        assert body(prompt(), stream=True)["stream_options"] == {"include_usage": True}
        sent = body(prompt(model="mistral-small-latest"), stream=True)
        assert sent["stream"] is True
        assert "stream_options" not in sent

    def test_malformed_arguments_go_back_as_none(self) -> None:
        said = Assistant(calls=(Call(id="c1", name="weather", malformed='{"city": '),))
        sent = body(prompt(User(text="?"), said, Result(call="c1", name="weather", content="no")))["messages"][1]
        assert sent["tool_calls"][0]["function"]["arguments"] == "{}"
        assert sent["content"] is None

    @pytest.mark.parametrize("model", ["gpt-5.4-mini", "mistral-small-latest", "mistralai/Devstral", "local"])
    def test_nobody_speaks_out_of_turn(self, model: str) -> None:
        """What a session has after turns that failed, and what the loop says at the limit of steps."""
        picture = File(name="b.png", kind="image/png", data="aGk=")
        called = Assistant(calls=(Call(id="c1", name="time.now"),))
        messages = (
            User(text="One", files=(picture, File(name="a.txt", text="a"))),
            User(text="Two"),
            Assistant(text=" "),
            User(text="", files=(picture,)),
            called,
            Result(call="c1", name="time.now", content="12:00"),
            User(text="Three"),
            Assistant(broken_off=True),
            User(text="Four"),
        )
        question, _, _, bridge, last = body(prompt(*messages, model=model))["messages"]
        assert [part.get("text", "picture") for part in question["content"]] == [
            "One\n\nFile a.txt:\n```\na\n```\n\nTwo\n\nAttached pictures: b.png, b.png",
            "picture",
            "picture",
        ]
        assert (bridge["role"], bool(bridge["content"].strip())) == ("assistant", True)
        assert last == {"role": "user", "content": "Three\n\nFour"}

    def test_fences_hold(self) -> None:
        sent = body(prompt(User(text="", files=(File(name="x.md", text="```\nhi\n```"),))))
        assert sent["messages"][0]["content"] == "File x.md:\n````\n```\nhi\n```\n````"

    def test_tools_that_are_gone_keep_their_names(self) -> None:
        said = Assistant(calls=(Call(id="c1", name="old.tool.ü"),))
        name = body(prompt(User(text="?"), said))["messages"][1]["tool_calls"][0]["function"]["name"]
        assert name.isascii()
        assert "." not in name

    def test_headers(self) -> None:
        assert OPENAI.headers("k") == [("Authorization", "Bearer k")]
        assert OPENAI.headers(None) == []


def plain(message: Any) -> Any:
    """What the official types hold as an iterator, as a list."""
    return {key: value if isinstance(value, str | dict | None) else list(value) for key, value in message.items()}


TWO_CALLS = (
    Call(id="call_abc123", name="time.now"),
    Call(id="call_def456", name="weather", args={"city": "Paris", "days": 2}),
)


@pytest.mark.long
class TestFixtures:
    @pytest.mark.parametrize(
        "name", sorted(path.stem for path in DATA.glob("*.json") if path.stem not in ("models", "refusals"))
    )
    def test_wholes_are_what_they_say(self, name: str, official: dict[str, Any]) -> None:
        official["answer"](whole(name))

    @pytest.mark.parametrize("name", sorted(path.stem for path in DATA.glob("*.sse")))
    def test_chunks_are_what_they_say(self, name: str, official: dict[str, Any]) -> None:
        for event in events(name):
            if isinstance(event, dict) and "error" not in event:
                official["chunk"](event)


class TestReply:
    @pytest.mark.parametrize("how", ["json", "sse"])
    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            ("answer", ModelReply(text="Hello! It is noon.", usage=Usage(input=1019, output=10, cached=1000))),
            ("calls", ModelReply(calls=TWO_CALLS, stop="tools", usage=Usage(input=82, output=17))),
            (
                "refusal",
                ModelReply(
                    stop="refused",
                    why="I'm sorry, I cannot assist with that request.",
                    usage=Usage(input=81, output=11),
                ),
            ),
        ],
    )
    def test_whole_and_streamed_are_the_same(self, name: str, expected: ModelReply, how: str) -> None:
        reply = OPENAI.reply(whole(name), prompt()) if how == "json" else streamed(events(name))[1]
        assert reply == expected

    def test_deltas(self) -> None:
        assert streamed(events("answer"))[0] == [TextDelta("Hello"), TextDelta("! It is "), TextDelta("noon.")]

    @pytest.mark.parametrize(("name", "stop"), [("length", "length"), ("content_filter", "refused")])
    def test_stops(self, name: str, stop: str) -> None:
        reply = OPENAI.reply(whole(name), prompt())
        assert reply.stop == stop
        assert reply.why == ("content_filter" if stop == "refused" else "")

    @pytest.mark.parametrize("how", ["json", "sse"])
    def test_older_form_of_calls(self, how: str) -> None:
        reply = (
            OPENAI.reply(whole("function_call"), prompt()) if how == "json" else streamed(events("function_call"))[1]
        )
        assert reply.calls == (Call(id="", name="weather", args={"city": "Oslo"}),)
        assert reply.stop == "tools"

    @pytest.mark.parametrize("how", ["json", "sse"])
    def test_thoughts_go_back_to_the_same_model_only(self, how: str) -> None:
        asked = prompt(model="deepseek-flash")
        deltas, reply = [], None
        if how == "json":
            reply = OPENAI.reply(whole("reasoning_content"), asked)
        else:
            deltas, reply = streamed(events("reasoning_content"), asked)
            assert deltas[:2] == [ThoughtDelta("9.8 = 9.80"), ThoughtDelta(" > 9.11")]
        assert reply.text == "9.8 is greater."
        assert reply.usage.cached == 8
        said = Assistant(text=reply.text, provider="openai", kept=reply.kept)
        back = body(prompt(User(text="?"), said, model="deepseek-flash"))["messages"][1]
        assert back["reasoning_content"] == "9.8 = 9.80 > 9.11"
        assert "model" not in back
        for other in (prompt(said, model="gpt-5.4-mini"), prompt(msgspec.structs.replace(said, provider="gemini"))):
            assert body(other)["messages"][0] == {"role": "assistant", "content": "9.8 is greater."}

    @pytest.mark.parametrize("how", ["json", "sse"])
    def test_signatures_of_calls(self, how: str) -> None:
        asked = prompt(model="gemini-3.8-flash")
        reply = (
            OPENAI.reply(whole("gemini_calls"), asked) if how == "json" else streamed(events("gemini_calls"), asked)[1]
        )
        assert [(call.id, call.args["city"]) for call in reply.calls] == [
            ("function-call-1", "Paris"),
            ("function-call-2", "London"),
        ]
        assert reply.stop == "tools"
        said = Assistant(calls=reply.calls, provider="openai", kept=reply.kept)
        first, second = body(prompt(said, model="gemini-3.8-flash"))["messages"][0]["tool_calls"]
        assert first["extra_content"]["google"]["thought_signature"] == "c2lnbmF0dXJlLUE="
        assert "extra_content" not in second
        assert "extra_content" not in json.dumps(body(prompt(said)))

    def test_blocks_of_thoughts_are_put_together(self) -> None:
        deltas, reply = streamed(events("openrouter"))
        assert deltas == [ThoughtDelta("Let me"), ThoughtDelta(" see."), TextDelta("Paris.")]
        assert reply.kept["reasoning_details"] == [
            {
                "type": "reasoning.text",
                "text": "Let me see.",
                "index": 0,
                "format": "anthropic-claude-v1",
                "signature": "c2ln",
            }
        ]

    def test_content_in_parts(self) -> None:
        parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}, {"type": "text", "text": "Yes."}]
        deltas, reply = streamed([chunk(content=parts, finish="stop"), "[DONE]"])
        assert deltas == [ThoughtDelta("Hm."), TextDelta("Yes.")]
        assert reply.text == "Yes."

    def test_error_in_a_stream(self) -> None:
        reader = OPENAI.reader(prompt())
        first, second = events("error")
        assert list(reader.feed(first)) == [TextDelta("Hel")]
        with pytest.raises(ModelError, match="Provider disconnected") as caught:
            reader.feed(second)
        assert (caught.value.reason, caught.value.again, caught.value.status) == ("overloaded", True, 502)
        assert not reader.is_complete
        assert reader.reply().text == "Hel"

    def test_error_as_an_answer(self) -> None:
        with pytest.raises(ModelError) as caught:
            OPENAI.reply({"error": {"message": "Rate limited", "code": 429}}, prompt())
        assert str(caught.value) == "the model's API reported an error: Rate limited"
        assert caught.value.reason == "rate_limited"
        assert caught.value.again

    def test_a_whole_answer_in_a_stream(self) -> None:
        assert streamed([whole("calls")])[1].calls == TWO_CALLS

    def test_noise_in_a_stream(self) -> None:
        noise = [
            {"choices": [], "prompt_filter_results": []},
            "",
            None,
            {"type": "ping"},
            {"choices": None, "usage": {}},
        ]
        assert streamed([*noise, *events("answer"), "more"])[1].text == "Hello! It is noon."

    @pytest.mark.parametrize(
        "wrong", [None, 5, "x", [], {}, {"choices": []}, {"choices": [None]}, {"choices": [{"message": None}]}]
    )
    def test_no_answer(self, wrong: Any) -> None:
        with pytest.raises(ModelError) as caught:
            OPENAI.reply(wrong, prompt())
        assert caught.value.reason == "garbled"


class TestCalls:
    """Pieces of calls, as all kinds of servers send them."""

    A, B = {"city": "A"}, {"city": "B"}
    TEXT_A, TEXT_B = json.dumps(A), json.dumps(B)

    def test_each_whole_with_an_index(self) -> None:
        given = chunk(piece(0, "a", "weather", self.TEXT_A), piece(1, "b", "weather", self.TEXT_B))
        assert calls_of(given) == [("a", "weather", self.A), ("b", "weather", self.B)]

    def test_pieces_of_two_in_turns(self) -> None:
        begun = chunk(piece(0, "a", "weather", ""), piece(1, "b", "weather", ""))
        rest = [chunk(piece(0, args=a), piece(1, args=b)) for a, b in zip(self.TEXT_A, self.TEXT_B, strict=True)]
        assert calls_of(begun, *rest) == [("a", "weather", self.A), ("b", "weather", self.B)]

    def test_no_index(self) -> None:
        given = [chunk(piece(None, "a", "weather", self.TEXT_A)), chunk(piece(None, "b", "weather", self.TEXT_B))]
        assert calls_of(*given) == [("a", "weather", self.A), ("b", "weather", self.B)]

    def test_no_index_in_pieces(self) -> None:
        given = [
            chunk(piece(None, "a", "weather", '{"city"')),
            chunk(piece(args=': "A"}')),
            chunk(piece(None, "b", "time__now")),
        ]
        assert calls_of(*given) == [("a", "weather", self.A), ("b", "time.now", {})]

    def test_same_index_for_all(self) -> None:
        given = [chunk(piece(0, "a", "weather", self.TEXT_A)), chunk(piece(0, "b", "weather", self.TEXT_B))]
        assert calls_of(*given) == [("a", "weather", self.A), ("b", "weather", self.B)]

    def test_same_index_and_no_ids(self) -> None:
        given = [chunk(piece(0, "", "weather", self.TEXT_A)), chunk(piece(0, "", "weather", self.TEXT_B))]
        assert calls_of(*given) == [("", "weather", self.A), ("", "weather", self.B)]

    def test_same_id_for_all(self) -> None:
        given = [chunk(piece(0, "x", "weather", self.TEXT_A)), chunk(piece(1, "x", "weather", self.TEXT_B))]
        assert calls_of(*given) == [("x", "weather", self.A), ("x", "weather", self.B)]

    def test_id_and_name_with_every_piece(self) -> None:
        given = [chunk(piece(0, "a", "weather", part)) for part in self.TEXT_A]
        assert calls_of(*given) == [("a", "weather", self.A)]

    def test_name_with_every_piece_and_no_id(self) -> None:
        given = [chunk(piece(0, "", "weather", part)) for part in self.TEXT_A]
        assert calls_of(*given) == [("", "weather", self.A)]

    def test_id_after_the_name(self) -> None:
        assert calls_of(chunk(piece(0, None, "weather")), chunk(piece(0, "a", None, self.TEXT_A))) == [
            ("a", "weather", self.A)
        ]

    def test_different_names_without_arguments(self) -> None:
        assert calls_of(chunk(piece(0, "", "time__now")), chunk(piece(0, "", "weather", self.TEXT_A))) == [
            ("", "time.now", {}),
            ("", "weather", self.A),
        ]

    @pytest.mark.parametrize("args", ["", None, {}, "{}", " "])
    def test_no_arguments(self, args: Any) -> None:
        assert calls_of(chunk(piece(0, "a", "time__now", args))) == [("a", "time.now", {})]

    @pytest.mark.parametrize("args", [{"city": "A"}, '"{\\"city\\": \\"A\\"}"'])
    def test_arguments_in_other_forms(self, args: Any) -> None:
        assert calls_of(chunk(piece(0, "a", "weather", args))) == [("a", "weather", self.A)]

    @pytest.mark.parametrize(
        "args", ['{"city": ', "[1]", "5", "city=A", "NaN", '{"a": "\\ud800"}', "[" * 1000, [1], 5, True]
    )
    def test_malformed(self, args: Any) -> None:
        ((_, _, malformed),) = calls_of(chunk(piece(0, "a", "weather", args)))
        assert malformed == (args if isinstance(args, str) else json.dumps(args))

    def test_unknown_name(self) -> None:
        assert calls_of(chunk(piece(0, "a", "nothing", "{}"))) == [("a", "nothing", {})]

    def test_stops(self) -> None:
        a = piece(0, "a", "time__now", "{}")
        for finish, stop in [("stop", "tools"), ("tool_calls", "tools"), ("odd", "tools"), ("length", "length")]:
            assert streamed([chunk(a, finish=finish)])[1].stop == stop
        assert streamed([chunk(finish="tool_calls")])[1].stop == "other"

    @pytest.mark.long
    def test_many_pieces_take_no_long_time(self) -> None:
        given = [chunk(piece(0, "a", "weather", '{"city": "'))]
        given += [chunk(piece(0, "a", "weather", "x" * 20))] * 20_000
        given += [chunk(piece(0, "a", "weather", '"}')), *(chunk(piece(0, f"{n}", "time__now")) for n in range(5000))]
        assert len(calls_of(*given)) == 5001


class TestRefusals:
    @pytest.mark.parametrize("name", REFUSALS)
    def test_what_they_mean(self, name: str) -> None:
        status, given, expected = (REFUSALS[name][key] for key in ("status", "body", "expected"))
        error = OPENAI.failure(status, given)
        assert error.reason == expected["reason"]
        assert error.status == status
        assert error.again == expected.get("again", False)
        assert error.wait == expected.get("wait")
        assert error.window == expected.get("window")
        assert expected.get("says", "") in str(error)
        assert str(status) in str(error)
        assert "\n" not in str(error)
        assert expected.get("not", "<h") not in str(error)
        assert bool(error.hints) == ("hint" in expected)
        assert expected.get("hint", "") in " ".join(error.hints)

    @pytest.mark.parametrize(
        ("said", "wait"), [("20s", 20), ("340ms", 0.34), ("6m0s", 360), ("1h2m3.5s", 3723.5), ("a bit", None)]
    )
    def test_how_long_to_wait(self, said: str, wait: float | None) -> None:
        assert OPENAI.failure(429, {"error": {"message": f"Please try again in {said}."}}).wait == wait


class TestModels:
    def test_newest_first_and_those_that_chat(self) -> None:
        assert OPENAI.models(whole("models")) == ["gpt-5.4-mini", "gpt-4.1-mini"]

    def test_other_forms(self) -> None:
        listed = [
            {"id": "a"},
            {"id": "b", "capabilities": {"completion_chat": False}},
            {"id": "c", "architecture": {"output_modalities": ["image"]}},
            {"id": 5},
            None,
        ]
        assert OPENAI.models(listed) == ["a"]
        assert OPENAI.models({"data": None}) == []

    @pytest.mark.parametrize("wrong", [{}, 5, "x", {"data": 5}, {"error": "no"}])
    def test_no_list(self, wrong: Any) -> None:
        with pytest.raises(ModelError):
            OPENAI.models(wrong)

    def test_the_request(self) -> None:
        assert OPENAI.models_path == "/models"


def test_ids_of_calls_are_such_as_mistral_takes():
    call = Call(id="toolu_01A09q90qw90lq917835lq9", name="time.now")
    said = (User(text="?"), Assistant(calls=(call,)), Result(call=call.id, name="time.now", content="noon"))
    for model, is_short in (("mistral-large-latest", True), ("gpt-5.4-mini", False)):
        body = OPENAI.request(ModelPrompt(model=model, messages=said), stream=False).body
        asked, given = body["messages"][1]["tool_calls"][0]["id"], body["messages"][2]["tool_call_id"]
        assert asked == given
        assert (len(asked) == 9 and asked.isalnum()) is is_short
