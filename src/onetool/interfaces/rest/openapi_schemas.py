"""The schemas and examples of the OpenAPI document: made by msgspec, with descriptions and patterns added."""

from copy import deepcopy
from typing import Any

import msgspec

from onetool.ask.events import Answer
from onetool.ask.sessions.records import SESSION_ID
from onetool.core import call
from onetool.http.definition import HttpImpl, ToolLimits
from onetool.interfaces.rest import openapi_ask, openapi_console, openapi_insight, problem
from onetool.interfaces.rest.ask_body import PICTURES, AskProblem, AskQuestion
from onetool.interfaces.rest.openapi_parts import SCHEMA_PREFIX, Part, schema_ref
from onetool.sources.bundles.model import (
    IMPLS,
    UNSAID,
    Bundle,
    BundleContent,
    FunctionImpl,
    ScriptImpl,
    Tool,
    ToolContent,
)
from onetool.sources.bundles.validation import KEPT, SHOWN

EXAMPLE_BUNDLE_ID = "01890a5d-ac96-774b-bcce-b302099a8057"
EXAMPLE_TOOL_SLUG = "forecast"
EXAMPLE_TOOL_VERSION = "1.0"

EXAMPLE_BUNDLE: dict[str, Any] = {
    "slug": "weather",
    "displayName": "Weather",
    "description": "Forecasts.",
    "isEnabled": True,
}
EXAMPLE_TOOL: dict[str, Any] = {
    "type": "http",
    "displayName": "Forecast",
    "description": "The forecast for a city.",
    "tags": ["weather"],
    "isEnabled": True,
    "argSchema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "outputSchema": {},
    "httpImpl": {
        "request": {
            "method": "GET",
            "urlTemplate": "https://api.example.com/v1/${city}",
            "auth": {"type": "bearer", "value": "${WEATHER_TOKEN}"},
            "retries": 2,
        },
        "response": {"selector": "daily[0]"},
    },
    "limits": {"maxCallsPerMinute": 60},
}
EXAMPLE_SWITCH = {"isEnabled": False}
EXAMPLE_CALL = {"args": {"city": "Oslo"}}
EXAMPLE_QUESTION = {"prompt": "What time is it?", "toolAllow": ["time.now"]}


# Schemas of POST /ask


ASK_SHAPES = (AskQuestion, Answer, AskProblem)
ASK_DESCRIPTIONS = {
    "Question.prompt": "The question.",
    "Question.session": "Go on in this session, or begin it; `last` is the one used last. None: a new one.",
    "Question.newSession": "It must be a new one: refused where the session is there already.",
    "Question.withTools": "false: no tool can run. Left out: as the server's config says.",
    "Question.toolAllow": "Only these tools, from here on in this session; an empty list is none.",
    "Question.model": "As the provider calls it.",
    "Question.system": "What the model is told before everything else, in place of the server's own words.",
    "Question.maxSteps": "How often the model may be asked; then it has to answer without tools.",
    "Question.menu": "`direct`: the model sees every tool; `run`: one that runs code over all of them.",
    "Question.approve": "Whether tools that may change something are let run; `ask` needs a stream, which asks.",
    "Question.files": "Attached to the question.",
    "QuestionFile.name": "What the model is told that it is called.",
    "QuestionFile.kind": "Its media type.",
    "Answer.answer": "null where there is none.",
    "Answer.toolCalls": "What the model has called, in order.",
    "Answer.toolResults": "Each call with its result, in the order of the calls.",
    "Answer.toolError": "The first call that failed.",
    "Answer.sessionContextUpdated": "Whether results of tools were written into the session.",
    "Answer.sessionId": "For the next question.",
    "Answer.steps": "How often the model was asked.",
    "Answer.stop": "Why the model stopped: end, length, refused, other.",
    "Answer.limitReached": "maxSteps was reached.",
    "Answer.denied": "Tools that were not let run.",
    "Answer.hints": "What to do about that.",
    "Answer.error": "Why there is no answer: reason, message, hints.",
    "AskProblem.code": "Why, for programs: one word that stays the same, whatever `detail` says.",
    "AskProblem.in": "Which part of the request is wrong, where it is one.",
    "AskProblem.pointer": "JSON pointer (RFC 6901) to what is wrong, in what `in` names.",
    "AskProblem.errors": "Where several things are wrong: each of them.",
    "AskProblem.hints": "What could be done about it.",
    "AskProblem.answer": "What has been done until then, where a session was opened: tools may have run.",
}
_ALWAYS_COMPLETE = ("Answer", "Usage", "Executed", "ToolProblem", "ToolCall", "ToolResult")
_BASE64 = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"


def refine_ask(named: dict[str, Part]) -> None:
    """Add to the schemas of /ask what msgspec does not derive from the types."""
    del named["ToolCall"]["properties"]["timeout"]  # which calls of a model don't have
    for name in _ALWAYS_COMPLETE:
        named[name]["required"] = list(named[name]["properties"])
        for one in named[name]["properties"].values():
            one.pop("default", None)
    asked = named["Question"]["properties"]
    asked["prompt"]["pattern"] = r"[^\s\x1c-\x1f\x85]"  # engines do not agree on what is blank
    next(one for one in asked["session"]["anyOf"] if one["type"] == "string")["pattern"] = f"^{SESSION_ID.pattern}$"
    file = named["QuestionFile"]
    name, kind = file["properties"]["name"], file["properties"]["kind"]
    data = {"type": "string", "contentEncoding": "base64", "minLength": 4, "pattern": _BASE64}
    pictures = {"enum": list(PICTURES), "description": kind["description"]}
    named["QuestionText"] = _file_schema("A text.", {"name": name, "kind": kind, "text": {"type": "string"}}, "text")
    named["QuestionPicture"] = _file_schema(
        "A picture.", {"name": name, "kind": pictures, "data": data}, "kind", "data"
    )
    named["QuestionFile"] = {
        "description": file["description"],
        "oneOf": [schema_ref(name) for name in ("QuestionText", "QuestionPicture")],
    }


def _file_schema(words: str, properties: Part, *required: str) -> Part:
    return {
        "type": "object",
        "description": words,
        "properties": properties,
        "required": ["name", *required],
        "additionalProperties": False,
    }


# All schemas


Schema = dict[str, Any]


ID: Schema = {
    "type": "string",
    "description": "A UUIDv7 in lower case.",
    "pattern": "^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$",
}
SLUG: Schema = {
    "type": "string",
    "description": "Letters, decimal digits and dashes; case matters; in Unicode's normal form NFC.",
    "pattern": "^[\\p{L}\\p{Nd}-]+$",  # with {1,64} it is too large for many an engine
    "minLength": 1,
    "maxLength": 64,
}
VERSION: Schema = {
    "type": "string",
    "description": "A label without an order of its own: letters, decimal digits, dashes and dots, in NFC.",
    "pattern": "^[\\p{L}\\p{Nd}.-]+$",
    "minLength": 1,
    "maxLength": 64,
}
TIME: Schema = {"type": "string", "format": "date-time", "readOnly": True}
ANYTHING: Schema = {"readOnly": True, "description": "Known to the store: not looked at when it is sent."}

_SHAPES = (
    BundleContent,
    Bundle,
    ToolContent,
    Tool,
    HttpImpl,
    FunctionImpl,
    ScriptImpl,
    ToolLimits,
    problem.Problem,
    call.ToolError,
    *ASK_SHAPES,
    *openapi_insight.SHAPES,
    *openapi_ask.SHAPES,
    *openapi_console.SHAPES,
)
_READ_ONLY = {  # of what the store adds
    "id": {**ID, "readOnly": True},
    "bundleID": {**ID, "readOnly": True},
    "isBuiltIn": {
        "type": "boolean",
        "readOnly": True,
        "description": "Part of OneTool, or what `source` says: only isEnabled can change.",
    },
    "createdAt": TIME,
    "modifiedAt": {
        **TIME,
        "description": "The last change of its content, also by an edit of its file; switching it on or off is none.",
    },
    "softDeletedAt": {"type": ["string", "null"], "format": "date-time", "readOnly": True},
    "schemaVersion": {"type": "string", "readOnly": True},
    "source": {
        **schema_ref("BundleSource"),
        "readOnly": True,
        "description": "Only of what is no bundle of its own: the pack, config or MCP server that it comes from.",
    },
    "disabledReason": {
        "type": "string",
        "readOnly": True,
        "description": "Why it can't be called though it is switched on: its function is gone. It may come back.",
    },
    "warnings": {
        "type": "array",
        "items": {"type": "string"},
        "readOnly": True,
        "description": "Only in the answer to PUT: it is kept, but can't be called as the config is now.",
    },
    "callCount": {"type": "integer", "minimum": 0, "readOnly": True},
    "name": {
        "type": ["string", "null"],
        "readOnly": True,
        "description": "Its name in code and for `/call`; null where another bundle has that.",
    },
    "bundleSlug": {"type": ["string", "null"], "readOnly": True},
    "origin": {
        "enum": ["bundle", "built-in", "pack", "config", "server"],
        "readOnly": True,
        "description": "Where it comes from; `bundle`: it is kept here, and can be changed.",
    },
    "health": {
        "enum": ["ok", "off", "down", "changed"],
        "readOnly": True,
        "description": "`off`: it or its bundle is switched off, or its function is gone; `down`: its MCP server can't "
        "be reached; `changed`: the tools of its server have changed and wait for approval.",
    },
    "signature": {
        "type": "string",
        "readOnly": True,
        "description": "Only of a single tool: how code calls it.",
    },
    "inherited": {
        "type": "object",
        "readOnly": True,
        "properties": {
            "argSchema": {"type": "object"},
            "outputSchema": {"type": "object"},
            "description": {"type": "string"},
        },
        "description": "What a tool of type `python` or `go` leaves empty, and has from its function.",
    },
    "lastCalledAt": {"type": ["string", "null"], "format": "date-time", "readOnly": True},
}
_DESCRIPTIONS = {  # by the key alone where it means one thing wherever it stands, else with its shape before it
    "displayName": "What people see. No part of any name.",
    "description": "What it is good for, for people and models.",
    "tags": "Words to find it by, and to list by.",
    "isEnabled": "Switched on. What is switched off can't be called, and a bundle that is takes no changes inside.",
    "parallel": "Whether its calls may run beside others that a model makes in one step. Else they run in order.",
    "argSchema": "JSON Schema (2020-12) of the arguments, an object. Others are refused unless it says otherwise.",
    "outputSchema": "JSON Schema of the value; empty: any.",
    "urlTemplate": "http or https, with `${name}` for arguments and secrets; its host must be in allowedHosts.",
    "requests": "Several requests, in this order. The value of the last one that was sent is the tool's.",
    "when": "Whether it is sent: JMESPath over `{args, steps}`, or one placeholder. Left out: always.",
    "RequestStep.name": "What later requests call its value: `${steps.NAME.…}`.",
    "preProcessors": "They change the arguments before validation, one after the other; a failure is `invalid_args`.",
    "examples": "Arguments to go by. Changing them is no change of the tool.",
    "PreProcessor.code": "In the language of `run`, without tools. It finds `args`; its last value replaces them.",
    "query": "Pairs that are added to the URL's own; a list repeats its name.",
    "headers": "Names and values, with `${name}` in the values.",
    "body": "JSON with `${name}` in its texts, or a text. One that is just a placeholder keeps the value's type.",
    "multipart": 'Fields of multipart/form-data, in place of `body`; a file is `{"file": "${name}"}`.',
    "bodyFile": "`${name}`, in place of `body`: the file that the argument names.",
    "queryEncoding": "By the names of `query`: how lists and objects are written.",
    "bodyEncoding": "The same for the fields of a form or of `multipart`.",
    "timeoutMs": "For each try.",
    "retries": "Further tries after a network error, 429 or 5xx, with growing pauses.",
    "idempotent": "Whether it may be tried again, whatever its method says.",
    "successCodes": "None: all of 200 to 299.",
    "selector": "JMESPath: which part of the answer is the value.",
    "errorMode": "What another status means: a failure, the value null, or `{status, body}` as the value.",
    "maxCallsPerMinute": "More are refused with 429.",
    "func": "The name of a registered function: `pack.tool`.",
    "ScriptImpl.code": "Code in the language of `run`; the arguments are its variables, its last value is the result.",
    "Problem.code": "Why, for programs: one word that stays the same, whatever `detail` says.",
    "Problem.in": "Which part of the request is wrong, where it is one.",
    "Problem.pointer": "JSON pointer (RFC 6901) to what is wrong, in what `in` names.",
    "Problem.errors": "Where several things are wrong: each of them.",
    "Problem.reason": "Of a tool that ran and failed: timeout, source_unavailable … or what the tool itself says.",
    "Problem.hints": "What could be done about it.",
    "BundleSource.name": "Of the pack or the server; of declared tools what is before the dot, or `config`.",
    "Fault.pointer": "JSON pointer (RFC 6901) to what is wrong, in what `in` of the problem names.",
    "ToolError.code": "One of three. The finer cause is in `reason`.",
    "ToolError.reason": "timeout, denied, rate_limited, upstream_error … or what the tool itself says.",
    "ToolError.hints": "What could be done about it.",
    "ToolError.details": "Of `invalid_args`: each wrong argument.",
    "WrongArgument.path": "As a person writes it: `options.limit[0]`.",
    "WrongArgument.pointer": "JSON pointer (RFC 6901) to it in the arguments: `/options/limit/0`.",
    **ASK_DESCRIPTIONS,
    **openapi_insight.DESCRIPTIONS,
    **openapi_ask.DESCRIPTIONS,
    **openapi_console.DESCRIPTIONS,
}
_PATTERNS = {
    "urlTemplate": "^[hH][tT][tT][pP][sS]?://",
}


def components() -> dict[str, Schema]:
    _, found = msgspec.json.schema_components(_SHAPES, ref_template=f"{SCHEMA_PREFIX}{{name}}")
    named = {_component_name(name): _renamed(schema) for name, schema in found.items()}
    content = named.pop("ToolContent")
    shown = named["Tool"]
    for name, schema in (("ToolContent", content), *named.items()):
        _refine(name, schema)
    named["BundleContent"]["properties"] |= dict.fromkeys(sorted(KEPT - {"bundleID"}), ANYTHING)
    named["BundleContent"]["properties"]["slug"] = SLUG
    del named["Bundle"]["properties"]["schemaVersion"]  # stands in its file alone
    for schema in (named["Bundle"], shown):
        _complete(schema)
    shown["properties"] |= {key: _READ_ONLY[key] for key in sorted(SHOWN)}
    left_out = {*UNSAID, *dict(IMPLS.values())}  # where they say nothing
    for schema in (named["Bundle"], shown):
        schema["required"] = [key for key in schema["required"] if key not in left_out]
    for kind, (key, _) in IMPLS.items():
        shown["properties"][key] = schema_ref(_IMPL_NAMES[kind])
    named |= {_content_name(kind): _content(content, kind) for kind in IMPLS}
    named["ToolContent"] = _one_of({kind: _content_name(kind) for kind in IMPLS}, "type")
    named["HttpImpl"] = _one_or_several(named["HttpImpl"])
    refine_ask(named)
    return named | _plain_schemas()


_PUBLIC_NAMES = {
    "AskQuestion": "Question",
    "AttachedFile": "SessionFile",
    "ResponseOptions": "Response",
    "SessionListItem": "SessionSummary",
    "ToolLimits": "Limits",
}
_IMPL_NAMES = {"http": "HttpImpl", "python": "FunctionImpl", "go": "FunctionImpl", "script": "ScriptImpl"}


def _component_name(name: str) -> str:
    """The public name of a struct's schema: it stays when the class is renamed."""
    return _PUBLIC_NAMES.get(name, name)


def _renamed(schema: Any) -> Any:
    """Replace the names in `$ref` by those that we show."""
    if isinstance(schema, dict):
        return {
            key: SCHEMA_PREFIX + _component_name(value.removeprefix(SCHEMA_PREFIX))
            if key == "$ref"
            else _renamed(value)
            for key, value in schema.items()
        }
    return [_renamed(one) for one in schema] if isinstance(schema, list) else schema


def _refine(name: str, schema: Schema) -> None:
    """Add descriptions and patterns to the properties."""
    schema.pop("title", None)
    if "description" in schema:
        schema["description"] = " ".join(schema["description"].split())
    for key, one in schema.get("properties", {}).items():
        if words := _DESCRIPTIONS.get(f"{name}.{key}", _DESCRIPTIONS.get(key)):
            one["description"] = words
        if key in _PATTERNS:
            one["pattern"] = _PATTERNS[key]
        one.pop("default", None) if one.get("default", ...) is None else None


def _complete(schema: Schema) -> None:
    """The schema for responses: all properties are required."""
    for key in schema["properties"]:
        if key in _READ_ONLY:
            schema["properties"][key] = _READ_ONLY[key]
    schema["properties"]["slug"] = {**SLUG}
    if "version" in schema["properties"]:
        schema["properties"]["version"] = {**VERSION}
    for one in schema["properties"].values():
        one.pop("default", None)
    schema["required"] = list(schema["properties"])


def _content(base: Schema, kind: str) -> Schema:
    """The request schema of a tool of one type."""
    schema = deepcopy(base)
    own, _ = IMPLS[kind]
    properties = schema["properties"]
    properties["type"] = {"const": kind}
    for key, _ in IMPLS.values():
        properties[key] = schema_ref(_IMPL_NAMES[kind]) if key == own else {"type": "null"}
    properties["limits"] = schema_ref("Limits")
    properties |= dict.fromkeys(sorted(KEPT | SHOWN | {"slug", "version"}), ANYTHING)
    schema["required"] = ["type", own]
    schema["description"] = _TOOL_TYPES[kind]
    return schema


def _one_or_several(impl: Schema) -> Schema:
    """An HTTP tool has `request` with its `response`, or `requests`: never both."""
    nothing = {"type": "null"}
    properties = impl["properties"]
    requests = {**properties["requests"]["anyOf"][0], "description": properties["requests"]["description"]}
    one = properties | {"request": schema_ref("Request"), "requests": nothing}
    several = {"requests": requests, "request": nothing, "response": nothing}
    shape = {"type": "object", "additionalProperties": False}
    kinds = [shape | {"properties": one, "required": ["request"]}]
    kinds.append(shape | {"properties": several, "required": ["requests"]})
    return {"description": impl["description"], "oneOf": kinds}


_TOOL_TYPES = {
    "http": "A tool that sends an HTTP request, or several.",
    "python": "A tool that calls a function that is registered in this process.",
    "go": "Another word for `python`, given back as it was stored.",
    "script": "A tool that runs code over other tools.",
}


def _content_name(kind: str) -> str:
    return f"{kind.title()}Tool"


def _plain_schemas() -> dict[str, Schema]:
    """Schemas that no class defines."""
    return {
        "Switch": {
            "type": "object",
            "properties": {"isEnabled": {"type": "boolean"}},
            "required": ["isEnabled"],
            "additionalProperties": False,
        },
        "Call": {
            "type": "object",
            "properties": {"args": {"type": "object", "description": "What the tool's argSchema asks for."}},
            "additionalProperties": False,
        },
        "Arguments": {"type": "object", "description": "What the tool's argSchema asks for."},
        "Value": {
            "type": "object",
            "description": "The tool ran, and this is its value.",
            "properties": {"ok": {"const": True}, "value": {"description": "Any JSON."}},
            "required": ["ok", "value"],
            "additionalProperties": False,
        },
        "Failure": {
            "type": "object",
            "description": "The tool ran, and failed.",
            "properties": {"ok": {"const": False}, "error": schema_ref("ToolError")},
            "required": ["ok", "error"],
            "additionalProperties": False,
        },
        "Envelope": {"oneOf": [schema_ref("Value"), schema_ref("Failure")]},
        "BundlePage": _page("bundles", "ListedBundle"),
        "ToolPage": _page("tools", "ListedTool"),
    }


def _page(key: str, name: str) -> Schema:
    token = {"type": ["string", "null"], "description": "pageToken of the next page; null on the last one."}
    return {
        "type": "object",
        "properties": {key: {"type": "array", "items": schema_ref(name)}, "nextPageToken": token},
        "required": [key, "nextPageToken"],
        "additionalProperties": False,
    }


def _one_of(names: dict[str, str], by: str) -> Schema:
    mapping = {value: f"{SCHEMA_PREFIX}{name}" for value, name in names.items()}
    return {
        "oneOf": [schema_ref(name) for name in names.values()],
        "discriminator": {"propertyName": by, "mapping": mapping},
    }
