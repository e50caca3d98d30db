"""Gemini: /v1beta/models/{model}:generateContent and :streamGenerateContent?alt=sse, /v1beta/models; or all in /v1."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ask.stand_in.script import Fails, Says
from ask.stand_in.seen import Seen
from ask.stand_in.wire import About, compact, is_object, listed, one_of, twice

STREAM = "text/event-stream"
BASE = ""
WORDS = {"length": "MAX_TOKENS", "refused": "SAFETY"}
STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
NO_KEY = (
    "Method doesn't allow unregistered callers (callers without established identity). Please use API Key or other "
    "form of API consumer identity to call this API."
)
SIGNATURE = "c2lnbmVkIGJ5IHRoZSBzdGFuZC1pbg=="
FIELDS = {
    "request": one_of(
        "contents tools toolConfig safetySettings systemInstruction generationConfig cachedContent serviceTier store"
    ),
    "content": frozenset({"role", "parts"}),
    "part": one_of(
        "text functionCall functionResponse inlineData fileData executableCode codeExecutionResult thought "
        "thoughtSignature videoMetadata mediaResolution partMetadata"
    ),
    "functionCall": frozenset({"id", "name", "args"}),
    "functionResponse": frozenset({"id", "name", "response", "parts", "willContinue", "scheduling"}),
    "tool": one_of(
        "functionDeclarations googleSearch googleSearchRetrieval codeExecution urlContext computerUse googleMaps "
        "fileSearch"
    ),
    "function": one_of(
        "name description parameters parametersJsonSchema response responseJsonSchema behavior "
        "parameters_json_schema"  # any name may be spelled like that; this one is, by the official client
    ),
    "generationConfig": one_of(
        "temperature topP topK candidateCount maxOutputTokens stopSequences responseMimeType responseSchema "
        "responseJsonSchema presencePenalty frequencyPenalty seed responseLogprobs logprobs thinkingConfig "
        "responseModalities speechConfig mediaResolution"
    ),
}


def is_own(path: str, headers: Mapping[str, str]) -> bool:
    return path.startswith("/v1beta") or "x-goog-api-key" in headers


def is_chat(path: str) -> bool:
    return _target(path)[1] in ("generateContent", "streamGenerateContent")


def _target(path: str) -> tuple[str, str]:
    found = re.fullmatch(r"/v1(?:beta)?/models/([^/]+):(\w+)", path)
    return (found[1], found[2]) if found else ("", "")


def about(path: str, body: Mapping[str, Any]) -> About:
    model, verb = _target(path)
    tools = [tool for tool in listed(body.get("tools")) if is_object(tool)]
    names = [one.get("name") for tool in tools for one in listed(tool.get("functionDeclarations"))]
    return About(verb == "streamGenerateContent", model, names, listed(body.get("contents")))


def keyless(seen: Seen) -> Fails | None:
    return None if seen.headers.get("x-goog-api-key") or seen.query.get("key") else Fails(403, NO_KEY)


def unknown(model: str) -> Fails:
    words = f"models/{model} is not found for API version v1beta, or is not supported for generateContent."
    return Fails(404, words)


def other(seen: Seen, models: list[str]) -> Any:
    if seen.method != "GET" or seen.path not in ("/v1beta/models", "/v1/models"):
        return None
    chats = [_model(name, ["generateContent", "countTokens"]) for name in models]
    return {"models": [*chats, _model("stand-in-embedding", ["embedContent"])]}


def _model(name: str, verbs: list[str]) -> dict[str, Any]:
    limits = {"inputTokenLimit": 1_048_576, "outputTokenLimit": 65_536}
    told = {"name": f"models/{name}", "version": "001", "displayName": name, "description": "It stands in."}
    return {**told, **limits, "supportedGenerationMethods": verbs, "temperature": 1, "topP": 0.95, "topK": 64}


def error(fails: Fails, seen: Seen) -> Any:
    told: dict[str, Any] = {"code": fails.status, "message": fails.message}
    told["status"] = fails.kind or STATUS.get(fails.status, "UNKNOWN")
    if fails.retry_after is not None:
        delay = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{fails.retry_after:g}s"}
        told["details"] = [delay]
    return {"error": told}


def error_event(fails: Fails, seen: Seen) -> bytes:
    return b"data: " + compact(error(fails, seen)) + b"\r\n\r\n"


def whole(says: Says, seen: Seen) -> Any:
    thoughts = [{"text": says.thinking, "thought": True}] if says.thinking else []
    texts = [{"text": says.text}] if says.text else []
    return _answer(says, seen, [*thoughts, *texts, *_calls(says)], is_last=True)


def events(says: Says, seen: Seen) -> Iterator[bytes]:
    thoughts = ([{"text": piece, "thought": True}] for piece in says.cut(says.thinking))
    texts = ([{"text": piece}] for piece in says.cut(says.text))
    calls = ([call] for call in _calls(says))
    answers = [_answer(says, seen, parts) for parts in (*thoughts, *texts, *calls)]
    answers.append(_answer(says, seen, [{"text": ""}], is_last=True))
    if seen.query.get("alt") == "sse":
        yield from (b"data: " + compact(answer) + b"\r\n\r\n" for answer in answers)
        return
    yield from (b"%b%b" % (b",\r\n" if i else b"[", compact(answer)) for i, answer in enumerate(answers))
    yield b"\n]\n"


def _answer(says: Says, seen: Seen, parts: list[Any], is_last: bool = False) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"parts": parts, "role": "model"}, "index": 0}
    if is_last:
        candidate["finishReason"] = says.word(WORDS, "STOP", "STOP")
    if is_last and says.malformed is not None:
        said = f"Malformed function call: {says.malformed}"
        candidate |= {"content": {}, "finishReason": "MALFORMED_FUNCTION_CALL", "finishMessage": said}
    told = {"usageMetadata": _usage(says), "modelVersion": seen.model, "responseId": f"resp-{seen.number}"}
    return {"candidates": [candidate], **told}


def _calls(says: Says) -> list[dict[str, Any]]:
    """Only the first one of a step is signed."""
    if says.malformed is not None:
        return []
    parts: list[dict[str, Any]] = []
    for call in says.calls:
        function = {"name": call.name, "args": dict(call.args), **({} if call.id is None else {"id": call.id})}
        parts.append({"functionCall": function, **({} if parts else {"thoughtSignature": SIGNATURE})})
    return parts


def _usage(says: Says) -> dict[str, Any]:
    used: dict[str, Any] = {
        "promptTokenCount": says.input,
        "candidatesTokenCount": says.output,
        "totalTokenCount": says.input + says.output,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": says.input}],
    }
    return used | ({"cachedContentTokenCount": says.cached} if says.cached else {})


def problems(seen: Seen, strict: bool) -> Iterator[Fails]:
    yield from _unknown_fields(seen.body, "request", "")
    yield from _unknown_fields(seen.body.get("generationConfig", {}), "generationConfig", "generation_config")
    yield from _tool_problems(seen.body)
    if not seen.messages:
        yield Fails(400, "* GenerateContentRequest.contents: contents is not specified\n")
        return
    for index, content in enumerate(seen.messages):
        yield from _content_problems(content, f"contents[{index}]")
    if is_object(seen.body.get("systemInstruction")):
        yield from _content_problems({"role": "user", **seen.body["systemInstruction"]}, "system_instruction")
    yield from _order_problems(seen.messages)
    if strict:
        yield from _signature_problems(seen.messages)


def _unknown_fields(value: Any, kind: str, where: str) -> Iterator[Fails]:
    if not is_object(value):
        yield Fails(400, f"Invalid value at '{where}' ({kind})")
        return
    for name in sorted(value.keys() - FIELDS[kind]):
        at = f" at '{where}'" if where else ""
        yield Fails(400, f'Invalid JSON payload received. Unknown name "{name}"{at}: Cannot find field.')


def _tool_problems(body: Mapping[str, Any]) -> Iterator[Fails]:
    names: list[str] = []
    for index, tool in enumerate(listed(body.get("tools"))):
        yield from _unknown_fields(tool, "tool", f"tools[{index}]")
        for at, function in enumerate(listed(tool.get("functionDeclarations"))):
            where = f"tools[{index}].function_declarations[{at}]"
            yield from _unknown_fields(function, "function", where)
            names.append(str(function.get("name", "")))
            if not re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}", names[-1]):
                words = "Invalid function name. Must start with a letter or an underscore."
                yield Fails(400, f"* GenerateContentRequest.{where}.name: {words}\n")
    if (again := twice(names)) is not None:
        yield Fails(400, f"Duplicate function declaration found: {again}")


def _content_problems(content: Any, where: str) -> Iterator[Fails]:
    yield from _unknown_fields(content, "content", where)
    if content.get("role") not in ("user", "model"):
        yield Fails(400, "Please use a valid role: user, model.")
    if not listed(content.get("parts")):
        yield Fails(400, f"* GenerateContentRequest.{where}.parts: contents.parts must not be empty.\n")
    for index, part in enumerate(content["parts"]):
        at = f"{where}.parts[{index}]"
        yield from _unknown_fields(part, "part", at)
        if not part.keys() - {"text", "thought", "thoughtSignature"} and not (
            part.get("text") or part.get("thoughtSignature")
        ):
            said = "required oneof field 'data' must have one initialized field"
            yield Fails(400, f"* GenerateContentRequest.{at}.data: {said}\n")
        for kind, holds in (("functionCall", "args"), ("functionResponse", "response")):
            if kind not in part:
                continue
            yield from _unknown_fields(part[kind], kind, f"{at}.{kind}")
            if not is_object(part[kind].get(holds, {})) or not part[kind].get("name"):
                yield Fails(400, f"Invalid value at '{at}.{kind}.{holds}' (type.googleapis.com/google.protobuf.Struct)")


def _count(content: Any, kind: str) -> int:
    return sum(kind in part for part in content.get("parts", []))


def _order_problems(contents: list[Any]) -> Iterator[Fails]:
    """Whoever calls is answered in the next turn, as often as it called."""
    called = 0
    for index, content in enumerate(contents):
        calls, answers = _count(content, "functionCall"), _count(content, "functionResponse")
        if answers and not called:
            yield _please("function response turn comes immediately after a function call turn.")
        if answers != called:
            words = "the number of function response parts is equal to the number of function call parts of the "
            yield _please(words + "function call turn.")
        if calls and (content.get("role") != "model" or not index or contents[index - 1].get("role") != "user"):
            yield _please("function call turn comes immediately after a user turn or after a function response turn.")
        if answers and content.get("role") != "user":
            yield _please("function response turn has the role user.")
        called = calls
    if contents[-1].get("role") != "user":
        yield _please("multiturn requests end with a user role or a function response.")


def _please(words: str) -> Fails:
    return Fails(400, f"Please ensure that {words}")


def _signature_problems(contents: list[Any]) -> Iterator[Fails]:
    """The first call of each step since a person last said something has to come back signed."""
    said = [i for i, one in enumerate(contents) if one["role"] == "user" and not _count(one, "functionResponse")]
    for content in contents[said[-1] if said else 0 :]:
        calls = [part for part in content["parts"] if "functionCall" in part]
        if calls and not calls[0].get("thoughtSignature"):
            name = calls[0]["functionCall"]["name"]
            words = "Function call is missing a thought_signature in functionCall parts."
            yield Fails(400, f"{words} Additional data, function call `{name}`.")
