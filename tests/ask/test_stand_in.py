"""The stand-in is right: the providers' own clients read it, and it refuses what the real APIs refuse.

One test for each client, with all that it is tried with: their imports take seconds, and each worker would pay anew.
"""

import http.client
import json
from typing import Any

import pytest
from ask.stand_in import Breaks, Fails, Hangs, Raw, Says, StandIn, Wants
from ask.stand_in.official import DRIVERS, Driver, driven

LONG = "It is noon, дорогой друг, 正午です, and the sun is out."
TWO = Says(
    "Both, then.", calls=[Wants("weather", {"city": "Zürich"}), Wants("weather", {"city": "Oslo", "n": [1, {}]})]
)
WANTED = [("weather", {"city": "Zürich"}), ("weather", {"city": "Oslo", "n": [1, {}]})]
STOPS = {
    "openai": ("stop", "tool_calls", "length", "content_filter"),
    "anthropic": ("end_turn", "tool_use", "max_tokens", "refusal"),
    "gemini": ("STOP", "STOP", "MAX_TOKENS", "SAFETY"),
    "ollama": ("stop", "stop", "length", "stop"),
}


@pytest.mark.long
@pytest.mark.parametrize("provider", DRIVERS)
def test_the_official_client_reads_it(provider: str) -> None:
    with StandIn(strict=True) as model, driven(provider, model) as client:
        for stream, model.cut in ((False, None), (True, None), (True, 7)):
            reads_an_answer(client, model, stream, provider)
            reads_stops(client, model, stream, STOPS[provider])
            goes_round(client, model, stream, STOPS[provider])
            meets_failures(client, model, stream)
        breaks_off(client, model)
        lists_models(client, provider)
        assert not model.refused
        meets_refusals(client, model, provider)


def reads_an_answer(client: Driver, model: StandIn, stream: bool, provider: str) -> None:
    thinking = "What time is it? Noon."
    model.will(Says(LONG, thinking=thinking, usage=(40, 9)))
    client.begin()
    client.say("What time is it?")
    assert client.hear(stream) == (LONG, [], STOPS[provider][0], (40, 9), thinking, 3 if stream else 1)
    seen = model.seen[-1]
    assert (seen.provider, seen.stream, seen.tools, seen.model) == (provider, stream, [], "stand-in")


def reads_stops(client: Driver, model: StandIn, stream: bool, stops: tuple[str, ...]) -> None:
    for stop, word in zip(("length", "refused"), stops[2:], strict=True):
        model.will(Says("Well,", stop=stop))
        client.begin()
        client.say("Tell me all.")
        assert client.hear(stream).stop == word


def goes_round(client: Driver, model: StandIn, stream: bool, stops: tuple[str, ...]) -> None:
    """Two calls at once, one without words or arguments, then the answer."""
    model.will(TWO, Says(calls=[Wants("weather", {})]), Says("Rain everywhere."))
    client.begin("weather", "time")
    client.say("Where does it rain?")
    first = client.hear(stream)
    assert (first.text, first.calls, first.stop) == ("Both, then.", WANTED, stops[1])
    client.answer("rain", "more rain")
    assert client.hear(stream).calls == [("weather", {})]
    client.answer("rain")
    assert client.hear(stream).text == "Rain everywhere."
    assert [seen.tools for seen in model.seen[-3:]] == [["weather", "time"]] * 3


def meets_failures(client: Driver, model: StandIn, stream: bool) -> None:
    for fails in (Fails(401, "No such key."), Fails(429, "Slow down.", retry_after=7)):
        model.will(fails)
        client.begin()
        client.say("Hello?")
        with pytest.raises(client.refusals[fails.status], match=fails.message):
            client.hear(stream)


def breaks_off(client: Driver, model: StandIn) -> None:
    """In the middle of a stream: without a word, and with the provider's own."""
    words = r"(?i)peer closed|incomplete|connection error"
    for breaks, said in ((Breaks(after=3), words), (Breaks(after=3, error=Fails(503, "Too much.")), "Too much")):
        model.will(breaks)
        client.begin()
        client.say("Hello?")
        with pytest.raises(Exception, match=said):
            client.hear(stream=True)


def lists_models(client: Driver, provider: str) -> None:
    names = ["stand-in", "stand-in-small"]
    if provider == "gemini":
        names = [f"models/{name}" for name in (*names, "stand-in-embedding")]
    assert client.models() == names


def meets_refusals(client: Driver, model: StandIn, provider: str) -> None:
    """A call that nobody answered. Ollama does not mind."""
    model.will(TWO, Says("Never mind."))
    client.begin("weather")
    client.say("Where does it rain?")
    client.hear(False)
    client.say("Never mind.")
    if provider == "ollama":
        assert client.hear(False).text == "Never mind."
        return
    with pytest.raises(client.refusals[400]):
        client.hear(False)
    assert len(model.refused) == 1


def test_the_parameters_that_it_knows_are_those_of_the_clients() -> None:
    """Read from their sources: importing them takes seconds."""
    from ask.stand_in import anthropic, openai

    assert keys_of("openai/types/chat/completion_create_params.py", "CompletionCreateParamsBase") <= openai.PARAMETERS
    assert keys_of("anthropic/types/message_create_params.py", "MessageCreateParamsBase") <= anthropic.PARAMETERS


def keys_of(file: str, name: str) -> set[str]:
    import ast
    from importlib.util import find_spec
    from pathlib import Path

    package, _, rest = file.partition("/")
    origin = find_spec(package).origin
    tree = ast.parse((Path(origin).parent / rest).read_text(encoding="utf-8"))
    found = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
    return {node.target.id for node in found.body if isinstance(node, ast.AnnAssign)}


# What follows needs no client: only what goes over the wire.

PATHS = {
    "openai": "/v1/chat/completions",
    "ollama": "/api/chat",
    "gemini": "/v1beta/models/m:generateContent",
    "anthropic": "/v1/messages",
}
KEYS = {
    "openai": {"Authorization": "Bearer k"},
    "ollama": {},
    "gemini": {"X-Goog-Api-Key": "k"},
    "anthropic": {"X-Api-Key": "k", "Anthropic-Version": "2026-10-21"},
}
USER = {"role": "user", "content": "Hi"}


def post(model: StandIn, provider: str, body: Any, headers: Any = None, path: str | None = None) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(model.url.removeprefix("http://"), timeout=20)
    headers = {"Content-Type": "application/json", **(KEYS[provider] if headers is None else headers)}
    try:
        connection.request("POST", path or PATHS[provider], json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def call(id: str = "a", arguments: Any = "{}", name: str = "f") -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def assistant(*calls: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


def result(id: str = "a") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": "1"}


def function(name: str = "f") -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}


OPENAI = [
    ({}, "you must provide a model parameter"),
    ({"model": "m"}, "Missing required parameter: 'messages'"),
    ({"top_k": 1}, "Unrecognized request argument supplied: top_k"),
    ({"messages": [USER, result()]}, "must be a response to a preceeding message with 'tool_calls'"),
    ({"messages": [USER, assistant(call()), USER]}, "did not have response messages: a"),
    ({"messages": [USER, assistant(call(), call("b")), result("b")]}, "did not have response messages: a"),
    ({"messages": [USER, assistant(call()), result(), result()]}, "must be a response to a preceeding message"),
    ({"messages": [USER, assistant(call(arguments={})), result()]}, "expected a string"),
    ({"messages": [USER, assistant(call(name="a.b")), result()]}, "does not match pattern"),
    ({"messages": [USER, assistant(), USER]}, "empty array"),
    ({"messages": [{"role": "user", "content": None}]}, "expected a string, got null"),
    ({"messages": [USER, assistant(call()), result(), USER]}, "Unexpected role 'user' after role 'tool'"),
    ({"messages": [USER, USER]}, "roles must alternate"),
    ({"messages": [USER, {"role": "assistant", "content": "Hi"}, assistant(call()), result()]}, "must alternate"),
    ({"messages": [USER], "tools": []}, "empty array"),
    ({"messages": [USER], "tool_choice": "none"}, "only allowed when 'tools' are specified"),
    ({"messages": [USER], "tools": [function("a.b")]}, "does not match pattern"),
    ({"messages": [USER], "tools": [function()] * 129}, "array too long"),
    ({"messages": [USER], "stream_options": {}}, "only allowed when 'stream' is enabled"),
]


def use(id: str = "a", input: Any = None) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": "f", "input": {} if input is None else input}


def gave(id: str = "a") -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id, "content": "1"}


def turn(role: str, *blocks: Any) -> dict[str, Any]:
    return {"role": role, "content": list(blocks)}


TEXT = {"type": "text", "text": "Hi"}
TOOL = {"name": "f", "input_schema": {"type": "object"}}
ANTHROPIC = [
    ({"messages": [USER], "max_tokens": None}, "max_tokens: Field required"),
    ({"messages": [USER], "foo": 1}, "foo: Extra inputs are not permitted"),
    ({"messages": [USER], "temperature": 1}, "temperature: Extra inputs are not permitted"),
    ({"messages": [USER, USER]}, "roles must alternate"),
    ({"messages": [{"role": "assistant", "content": "Hi"}, USER]}, "first message must use"),
    ({"messages": [{"role": "system", "content": "Hi"}, USER]}, "Unexpected role"),
    ({"messages": [{"role": "user", "content": ""}]}, "non-empty content"),
    ({"messages": [turn("user", {"type": "text", "text": ""})]}, "text content blocks must be non-empty"),
    ({"messages": [USER, turn("assistant", use()), USER]}, "without `tool_result` blocks immediately after: a"),
    ({"messages": [USER, turn("assistant", use()), turn("user", TEXT, gave())]}, "without `tool_result`"),
    ({"messages": [USER, turn("assistant", use(), use("b")), turn("user", gave())]}, "immediately after: b"),
    ({"messages": [turn("user", gave())]}, "unexpected `tool_use_id`"),
    ({"messages": [USER, turn("assistant", use()), turn("user", gave(), gave())]}, "single result"),
    ({"messages": [USER, turn("assistant", use(input="{}")), turn("user", gave())]}, "valid dictionary"),
    ({"messages": [USER, turn("assistant", use("a.b")), turn("user", gave("a.b"))]}, "should match pattern"),
    ({"messages": [USER, turn("assistant", use())]}, "prefill"),
    ({"messages": [USER, turn("assistant", use()), turn("user", gave())]}, "must define tools"),
    ({"messages": [USER], "tools": [TOOL, TOOL]}, "Tool names must be unique"),
    ({"messages": [USER], "tools": [{"name": "f"}]}, "input_schema: Field required"),
]


def content(role: str, *parts: Any) -> dict[str, Any]:
    return {"role": role, "parts": list(parts)}


PART, CALLED, GIVEN = {"text": "Hi"}, {"functionCall": {"name": "f"}}, {"functionResponse": {"name": "f"}}
SIGNED = {**CALLED, "thoughtSignature": "x"}
GEMINI = [
    ({}, "contents is not specified"),
    ({"contents": [content("user", PART)], "stream": True}, 'Unknown name "stream"'),
    ({"contents": [content("assistant", PART)]}, "valid role"),
    ({"contents": [content("user")]}, "must not be empty"),
    ({"contents": [content("user", {"text": ""})]}, "one initialized field"),
    ({"contents": [content("user", PART), content("model", CALLED), content("user", PART)]}, "equal to the number"),
    ({"contents": [content("user", PART), content("model", SIGNED, CALLED), content("user", GIVEN)]}, "equal to the"),
    ({"contents": [content("user", GIVEN)]}, "immediately after a function call turn"),
    ({"contents": [content("model", SIGNED), content("user", GIVEN)]}, "after a user turn"),
    ({"contents": [content("user", PART), content("model", PART)]}, "end with a user role"),
    ({"contents": [content("user", PART), content("model", CALLED), content("user", GIVEN)]}, "thought_signature"),
    ({"contents": [content("user", {"functionResponse": {"name": "f", "response": "1"}})]}, "protobuf.Struct"),
    (
        {"contents": [content("user", PART)], "tools": [{"functionDeclarations": [{"name": "a b"}]}]},
        "Invalid function name",
    ),
]
OLLAMA = [
    ({"model": ""}, "model is required"),
    ({"messages": [USER, assistant(call())]}, "tool_calls.function.arguments of type api.ToolCallFunctionArguments"),
    ({"messages": [{"role": "user", "content": [TEXT]}]}, "messages.content of type string"),
]
DEFAULTS = {
    "openai": {"model": "m"},
    "ollama": {"model": "m"},
    "anthropic": {"model": "m", "max_tokens": 9},
    "gemini": {},
}


@pytest.mark.parametrize(
    ("provider", "cases"), [("openai", OPENAI), ("anthropic", ANTHROPIC), ("gemini", GEMINI), ("ollama", OLLAMA)]
)
def test_what_it_refuses(provider: str, cases: list[tuple[dict[str, Any], str]]) -> None:
    with StandIn(strict=True) as model:
        for body, words in cases:
            full = {**(DEFAULTS[provider] if body else {}), **body}
            status, said = post(model, provider, {name: value for name, value in full.items() if value is not None})
            assert (status, words in str(said["error"])) == (400, True), (body, said)
        assert len(model.refused) == len(model.seen) == len(cases)


def test_without_a_key() -> None:
    with StandIn() as model:
        assert post(model, "openai", {}, {})[0] == 401
        status, said = post(model, "anthropic", {}, {})
        assert (status, said["error"]["type"]) == (401, "authentication_error")
        status, said = post(model, "gemini", {}, {})
        assert (status, said["error"]["status"]) == (403, "PERMISSION_DENIED")
        assert post(model, "ollama", {"model": "m", "stream": False}, {})[0] == 200
        assert [one.why.status for one in model.refused] == [401, 401, 403]
    with StandIn(keys=False) as model:
        assert post(model, "openai", {"model": "m", "messages": [USER]}, {})[0] == 200


def test_a_model_or_a_path_that_is_not_there() -> None:
    with StandIn(models=["there"]) as model:
        assert post(model, "openai", {"model": "not"})[1]["error"]["code"] == "model_not_found"
        assert post(model, "ollama", {"model": "not"}) == (404, {"error": "model 'not' not found"})
        assert post(model, "openai", {}, path="/v1/v1/chat/completions")[0] == 404
        assert len(model.refused) == 3


def test_the_script() -> None:
    """One for each, the last one for all that follow; a function gets what was seen."""
    with StandIn() as model:
        model.will("One.", lambda seen: f"You said {seen.messages[-1]['content']}.", Raw(418, {}, {"a": 1}))
        body = {"model": "m", "messages": [USER]}
        assert post(model, "openai", body)[1]["choices"][0]["message"]["content"] == "One."
        assert post(model, "openai", body)[1]["choices"][0]["message"]["content"] == "You said Hi."
        assert post(model, "openai", body) == post(model, "openai", body) == (418, {"a": 1})


def test_malformed_arguments() -> None:
    with StandIn() as model:
        model.will(Says(calls=[Wants("f", raw='{"a": ')]))
        said = post(model, "openai", {"model": "m", "messages": [USER]})[1]["choices"][0]["message"]
        assert said["tool_calls"][0]["function"]["arguments"] == '{"a": '
        assert post(model, "ollama", {"model": "m", "stream": False})[0] == 500
        said = post(model, "gemini", {"contents": [content("user", PART)]})[1]["candidates"][0]
        assert said["finishReason"] == "MALFORMED_FUNCTION_CALL"


@pytest.mark.parametrize("act", [Breaks(after=None), Hangs(0.05)])
def test_nothing_comes(act: Any) -> None:
    with StandIn() as model:
        model.will(act)
        with pytest.raises(http.client.RemoteDisconnected):
            post(model, "openai", {"model": "m", "messages": [USER]})


def test_half_an_answer() -> None:
    with StandIn() as model:
        model.will(Breaks())
        with pytest.raises(http.client.IncompleteRead):
            post(model, "openai", {"model": "m", "messages": [USER]})


def test_a_stream_that_ends_too_soon() -> None:
    """As if that were all: only the words are missing that say so."""
    with StandIn() as model:
        model.will(Breaks(after=2, tidy=True))
        connection = http.client.HTTPConnection(model.url.removeprefix("http://"), timeout=20)
        body = json.dumps({"model": "m", "messages": [USER], "stream": True})
        connection.request("POST", PATHS["openai"], body, {"Content-Type": "application/json", **KEYS["openai"]})
        said = connection.getresponse().read()
        connection.close()
    assert said.count(b"data: ") == 2
    assert b"[DONE]" not in said
