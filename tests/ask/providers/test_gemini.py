"""Gemini's adapter: against wire fixtures and the official SDK's types."""

import json
import warnings
from typing import Any

import msgspec
import pytest
from ask.providers.recorded import Recorded
from helpers import each

from onetool.ask.errors import ModelError
from onetool.ask.messages import Assistant, Call, File, ModelReply, Result, TextDelta, ThoughtDelta, Usage, User

RECORDED = Recorded("gemini", "gemini-3.6-flash")
GEMINI, PROMPT, WHOLE, STREAMS = RECORDED.adapter, RECORDED.prompt, RECORDED.wholes, RECORDED.streams
TOOLS, QUESTION = PROMPT.tools, PROMPT.messages[0]
SKIP = "skip_thought_signature_validator"
load, events, whole, streamed = RECORDED.load, RECORDED.events, RECORDED.whole, RECORDED.streamed
body, after = RECORDED.body, RECORDED.after


@pytest.fixture(scope="session")
def sdk() -> Any:
    """The official client's types. Their import is slow, and what it deprecates is not our matter."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from google.genai import types

        return types


@pytest.fixture(scope="session")
def takes(sdk: Any) -> Any:
    """Whether the official client's types take a request. They know no members but their own."""

    def check(sent: dict[str, Any]) -> None:
        sent = dict(sent)
        for content in sent.pop("contents"):
            sdk.Content.model_validate(content)
        settings = sent.pop("generationConfig", {})
        sdk.GenerateContentConfig.model_validate({**sent, **settings})

    return check


# The fixtures


@each("name", [*WHOLE, *STREAMS])
def test_the_official_client_reads_the_answers(name: str, sdk: Any) -> None:
    for answer in events(name) if name.endswith(".sse") else [load(name)]:
        if "error" not in answer:
            parsed = sdk.GenerateContentResponse.model_validate(answer)
            reasons = [one.finish_reason for one in parsed.candidates or () if one.finish_reason]
            assert all(reason in sdk.FinishReason.__members__.values() for reason in reasons)


def test_the_official_client_reads_errors_and_models(sdk: Any) -> None:
    from google.genai.errors import APIError

    for case in load("errors.json"):
        error = APIError(case["status"], case["body"])
        assert error.status
        assert error.message
    for model in load("models.json")["models"]:
        model["supportedActions"] = model.pop("supportedGenerationMethods")  # as the client itself does it
        sdk.Model.model_validate(model)


# What goes


@pytest.mark.parametrize(
    ("model", "stream", "path"),
    [
        ("gemini-3.6-flash", True, "/v1beta/models/gemini-3.6-flash:streamGenerateContent?alt=sse"),
        ("models/gemini-3.6-flash", False, "/v1beta/models/gemini-3.6-flash:generateContent"),
        ("../x?key=1#y", False, "/v1beta/models/..%2Fx%3Fkey%3D1%23y:generateContent"),
    ],
)
def test_where_it_goes(model: str, stream: bool, path: str) -> None:
    assert GEMINI.request(msgspec.structs.replace(PROMPT, model=model), stream).path == path


def test_the_key_stands_in_a_header_alone() -> None:
    assert GEMINI.headers("AIza1") == [("x-goog-api-key", "AIza1")]
    assert GEMINI.headers(None) == []
    assert GEMINI.base_url == "https://generativelanguage.googleapis.com"


def test_a_first_request(takes: Any) -> None:
    sent = body(PROMPT)
    takes(sent)
    assert sent["contents"] == [{"role": "user", "parts": [{"text": QUESTION.text}]}]
    assert sent["systemInstruction"] == {"parts": [{"text": "Be brief."}]}
    assert [one["name"] for one in sent["tools"][0]["functionDeclarations"]] == ["weather__now", "time__now"]
    assert sent.keys() == {"contents", "systemInstruction", "tools"}


def test_settings(takes: Any) -> None:
    sent = body(msgspec.structs.replace(PROMPT, temperature=0.0, max_tokens=100, may_call=False, system=""))
    takes(sent)
    assert sent["generationConfig"] == {"temperature": 0.0, "maxOutputTokens": 100}
    assert not {"tools", "toolConfig"} & sent.keys()
    assert "systemInstruction" not in sent


def test_results_stand_alone_behind_their_calls(takes: Any) -> None:
    calls = (Call(id="a", name="weather.now", args={"city": "Lisbon"}), Call(id="b", name="time.now", malformed="{"))
    messages = (
        QUESTION,
        Assistant(text="I'll look.", calls=calls, provider="gemini"),
        Result(call="a", name="weather.now", content="21"),
        Result(call="b", name="time.now", content="no JSON", ok=False),
        User(text="And now?"),
        User(text="Tell me."),
    )
    sent = body(msgspec.structs.replace(PROMPT, messages=messages))
    takes(sent)
    assert [content["role"] for content in sent["contents"]] == ["user", "model", "user", "user"]
    assert sent["contents"][1]["parts"] == [
        {"text": "I'll look."},
        {
            "functionCall": {"id": "a", "name": "weather__now", "args": {"city": "Lisbon"}},
            "thoughtSignature": SKIP,
        },
        {"functionCall": {"id": "b", "name": "time__now", "args": {}}},
    ]
    assert sent["contents"][2]["parts"] == [
        {"functionResponse": {"id": "a", "name": "weather__now", "response": {"output": "21"}}},
        {"functionResponse": {"id": "b", "name": "time__now", "response": {"error": "no JSON"}}},
    ]
    assert sent["contents"][3]["parts"] == [{"text": "And now?"}, {"text": "Tell me."}]


def test_empty_messages_are_left_out_and_a_person_speaks_first(takes: Any) -> None:
    messages = (User(text=" "), Assistant(text="As I said."), Assistant(), User(text="Yes?"))
    sent = body(msgspec.structs.replace(PROMPT, messages=messages))
    takes(sent)
    assert [content["role"] for content in sent["contents"]] == ["user", "model", "user"]
    assert all(part["text"].strip() for content in sent["contents"] for part in content["parts"])


def test_files(takes: Any) -> None:
    files = (
        File(name="cat.png", kind="image/png", data="iVBORw0KGgo="),
        File(name="notes.txt", text="Buy milk."),
    )
    sent = body(msgspec.structs.replace(PROMPT, messages=(User(text="What is this?", files=files),)))
    takes(sent)
    picture, text = sent["contents"][0]["parts"]
    assert picture == {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}
    assert "What is this?" in text["text"]
    assert "Buy milk." in text["text"]


# Signatures


@pytest.mark.parametrize("name", ["tools.json", "tools.sse"])
def test_signatures_go_back_on_their_parts(name: str, takes: Any) -> None:
    reply = whole(name) if name.endswith(".json") else streamed(name)[1]
    reply = msgspec.convert(json.loads(msgspec.json.encode(reply)), ModelReply)  # as it comes out of a session
    sent = body(after(reply))
    takes(sent)
    assert sent["contents"][1]["parts"] == load("tools.json")["candidates"][0]["content"]["parts"][1:]


def test_signatures_of_texts_go_back_too() -> None:
    signed = {"thoughtSignature": "Q2lRQjBlMnRiMQ=="}
    sent = body(after(whole("text.json"), User(text="And now?")))
    assert sent["contents"][1]["parts"] == [{"text": "It is 21 °C in Lisbon.", **signed}]
    sent = body(after(streamed("text.sse")[1], User(text="And now?")))
    assert sent["contents"][1]["parts"] == [{"text": "It is 21 °C in Lisbon."}, {"text": "", **signed}]


def test_a_thought_with_a_signature_goes_back() -> None:
    part = {"text": "Hm.", "thought": True, "thoughtSignature": "QQ=="}
    answer = load("text.json")
    answer["candidates"][0]["content"]["parts"].insert(0, part)
    reply = GEMINI.reply(answer, PROMPT)
    assert reply.text == "It is 21 °C in Lisbon."
    assert body(after(reply))["contents"][1]["parts"][0] == part


@each(
    ("said", "model", "expected"),
    [
        ({}, "gemini-3.6-flash", "Q2hVQjBlMnRiWEQ="),
        ({"provider": "anthropic"}, "gemini-3.6-flash", SKIP),
        ({"text": "I'll not look."}, "gemini-3.6-flash", SKIP),
        ({"kept": {"model": "gemini-3.6-flash", "order": [{"text": -1}, 3]}}, "gemini-3.6-flash", SKIP),
        ({}, "models/gemini-4-pro", SKIP),
        ({}, "gemini-flash-latest", SKIP),
        ({}, "gemini-2.5-flash", None),
        ({}, "gemma-3-27b-it", None),
    ],
)
def test_calls_of_other_models_say_so(said: dict[str, Any], model: str, expected: str | None, takes: Any) -> None:
    prompt = after(whole("tools.json"), model=model)
    question, own, *results = prompt.messages
    messages = (question, msgspec.structs.replace(own, **said), *results)
    sent = body(msgspec.structs.replace(prompt, messages=messages))
    takes(sent)
    first, second = (part for part in sent["contents"][1]["parts"] if "functionCall" in part)
    assert first.get("thoughtSignature") == expected
    assert "thoughtSignature" not in second


# What comes


def test_a_text() -> None:
    deltas, reply = streamed("text.sse")
    assert deltas == [TextDelta("It is 21"), TextDelta(" °C in Lisbon.")]
    assert (reply.text, reply.stop) == ("It is 21 °C in Lisbon.", "end")
    assert reply.usage == whole("text.json").usage == Usage(input=120, output=42, cached=100)


def test_calls() -> None:
    deltas, reply = streamed("tools.sse")
    assert deltas == [
        ThoughtDelta("Two cities: "),
        ThoughtDelta("I ask for both."),
        TextDelta("I'll "),
        TextDelta("look."),
    ]
    assert reply == whole("tools.json")
    assert (reply.text, reply.stop) == ("I'll look.", "tools")
    assert reply.calls == (
        Call(id="f1ab2c3d", name="weather.now", args={"city": "Lisbon"}),
        Call(id="f4ab2c3d", name="weather.now", args={"city": "Porto"}),
    )


def test_calls_without_ids_and_arguments() -> None:
    reply = whole("tools_2_5.json")
    assert [(call.id, call.name, call.args) for call in reply.calls] == [
        ("", "weather.now", {"city": "Lisbon"}),
        ("", "weather.now", {"city": "Porto"}),
        ("", "time.now", {}),
    ]
    assert reply.kept == {}


@each(
    ("name", "stop", "why"),
    [
        ("max_tokens.json", "length", ""),
        ("no_room.json", "length", ""),
        ("safety.json", "refused", "SAFETY"),
        ("malformed_call.json", "other", "MALFORMED_FUNCTION_CALL: Malformed function call: print("),
        ("unexpected_call.json", "other", "UNEXPECTED_TOOL_CALL: Unexpected tool call"),
    ],
)
def test_why_it_stopped(name: str, stop: str, why: str) -> None:
    reply = whole(name)
    assert reply.stop == stop
    assert reply.why.startswith(why)
    assert bool(reply.why) is bool(why)


@pytest.mark.parametrize("reason", ["FUNCTION_CALL", "TOOL_CALLS", "STOP", None])
def test_calls_count_whatever_word_there_is_for_them(reason: str | None) -> None:
    answer = load("tools.json")
    answer["candidates"][0]["finishReason"] = reason
    reply = GEMINI.reply(answer, PROMPT)
    assert (reply.stop, reply.why, len(reply.calls)) == ("tools", "", 2)


@pytest.mark.parametrize("reason", ["RECITATION", "PROHIBITED_CONTENT", "BLOCKLIST", "SPII"])
def test_refusals(reason: str) -> None:
    answer = load("safety.json")
    answer["candidates"][0]["finishReason"] = reason
    assert GEMINI.reply(answer, PROMPT).stop == "refused"


def test_a_refusal_in_a_stream() -> None:
    deltas, reply = streamed("safety.sse")
    assert deltas == [TextDelta("Well")]
    assert (reply.stop, reply.why) == ("refused", "SAFETY")


def test_a_prompt_that_is_blocked() -> None:
    with pytest.raises(ModelError, match="PROHIBITED_CONTENT") as caught:
        whole("blocked.json")
    assert caught.value.reason == "refused"


def test_an_answer_without_candidates() -> None:
    with pytest.raises(ModelError, match="no message") as caught:
        GEMINI.reply({"usageMetadata": {}}, PROMPT)
    assert caught.value.reason == "garbled"


def test_an_error_in_a_stream() -> None:
    for wrapped in (False, True):
        reader = GEMINI.reader(PROMPT)
        first, last = events("unavailable.sse")
        assert list(reader.feed(first)) == [TextDelta("It")]
        with pytest.raises(ModelError, match="overloaded") as caught:
            reader.feed([last] if wrapped else last)
        assert (caught.value.reason, caught.value.again) == ("overloaded", True)


def test_a_stream_that_breaks_off_is_not_complete() -> None:
    reader = GEMINI.reader(PROMPT)
    for event in events("broken_off.sse"):
        reader.feed(event)
    assert not reader.is_complete
    assert reader.reply().text == "It is"


def test_models() -> None:
    assert GEMINI.models_path == "/v1beta/models?pageSize=1000"
    assert GEMINI.models(load("models.json")) == ["gemini-2.5-flash", "gemini-flash-latest"]
    assert GEMINI.models({}) == []


# Refusals


@each("case", load("errors.json"))
def test_errors(case: dict[str, Any]) -> None:
    error = GEMINI.failure(case["status"], case["body"])
    assert (error.reason, error.again) == (case["reason"], case.get("again", False))
    assert (error.wait, error.window) == (case.get("wait"), case.get("window"))
    assert error.status == case["status"]
    said = case["body"][0] if isinstance(case["body"], list) else case["body"]
    assert said["error"]["message"].split("\n")[0] in str(error)
    assert case.get("hint", "") in " ".join(error.hints)


@each(
    ("status", "said", "reason", "again"),
    [
        (404, "<html><h1>Not Found</h1></html>", "bad_request", False),
        (502, "Bad Gateway", "overloaded", True),
        (403, [], "unauthorized", False),
        (429, {"error": "slow down"}, "rate_limited", True),
        (400, {"error": {"status": 1, "message": ["x"], "details": [1, {"violations": 2}]}}, "bad_request", False),
    ],
)
def test_errors_of_others(status: int, said: Any, reason: str, again: bool) -> None:
    error = GEMINI.failure(status, said)
    assert (error.reason, error.again) == (reason, again)
