"""Our reader and writer of Monty's messages, held against Monty's own schema.

The schema is read here by a few lines of its own, so that nothing of ours is held against itself.
"""

import re
import struct
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from helpers import each, sandboxed

from onetool.sandbox import CodeError, ProtocolError, TraceLine, TypeCheckError, messages
from onetool.sandbox.decode import SCALARS
from onetool.sandbox.messages import NotHandled, Pending, Raised, Returned, SourceRange, WorkerLimits, read_event
from onetool.sandbox.wire import HOST, Function, HostObject

ROOT = Path(__file__).parents[2]
PROTO = ROOT / "tests" / "data" / "monty" / "monty.proto"
WORDS = re.compile(r"(message|enum|oneof) (\w+) \{|(\})|(?:(repeated|optional) )?(\w+) (\w+) = (\d+);|(\w+) = (\d+);")
NUMBERS = {"uint32", "uint64", "int32", "int64", "bool"}
BYTES = {"string", "bytes"}
BUDGET = 10_000

# Events that a worker of ours never sends, and why.
NOT_FOR_US = {
    "dump_result": "we never ask for a dump",
    "shutdown": "only a relay sends it, never a worker",
}


# The schema


def read_schema(text):
    """Each message's fields by name: tag, type, whether repeated; each enum's numbers by name."""
    found, inside = {}, []
    for kind, name, end, label, type, field, tag, constant, number in WORDS.findall(re.sub(r"//.*", "", text)):
        if end:
            inside.pop()
        elif kind:
            inside.append(inside[-1] if kind == "oneof" else name)
            found.setdefault(inside[-1], {})
        elif constant:
            found[inside[-1]][constant] = int(number)
        else:
            found[inside[-1]][field] = (int(tag), type, label == "repeated")
    return found


SCHEMA = read_schema(PROTO.read_text())
ENUMS = {name for name, fields in SCHEMA.items() if any(isinstance(field, int) for field in fields.values())}
KINDS = {name: tag for name, (tag, _, _) in SCHEMA["MontyNode"].items()}
CALLS = [name for name, (tag, _, _) in SCHEMA["OsCall"].items() if 1 < tag < 50]


def varint(number):
    return bytes((number,)) if number < 128 else bytes((number & 127 | 128,)) + varint(number >> 7)


def written(type, content):
    """A message of the schema, from its fields by name."""
    out = b""
    for name, value in content.items():
        tag, kind, repeated = SCHEMA[type][name]
        for part in value if repeated else [value]:
            out += _field(tag, kind, part)
    return out


def _field(tag, kind, value):
    if kind in NUMBERS or kind in ENUMS:
        return varint(tag << 3) + varint(value & (1 << 64) - 1)
    if kind == "sint64":
        return varint(tag << 3) + varint(value << 1 if value >= 0 else (-value << 1) - 1)
    if kind == "double":
        return varint(tag << 3 | 1) + struct.pack("<d", value)
    body = value.encode() if kind == "string" else value if kind == "bytes" else written(kind, value)
    return varint(tag << 3 | 2) + varint(len(body)) + body


def parsed(type, data):
    """The fields of a message by the schema's names. KeyError where it has one that the schema does not have."""
    names = {tag: (name, kind, repeated) for name, (tag, kind, repeated) in SCHEMA[type].items()}
    out = {}
    while data:
        key, data = _number(data)
        name, kind, repeated = names[key >> 3]
        if key & 7 == 0:
            value, data = _number(data)
            value = (value >> 1 ^ -(value & 1)) if kind == "sint64" else bool(value) if kind == "bool" else value
        elif key & 7 == 1:
            value, data = struct.unpack("<d", data[:8])[0], data[8:]
        else:
            size, data = _number(data)
            value, data = _content(kind, data[:size]), data[size:]
        if repeated:
            out.setdefault(name, []).extend(value if isinstance(value, list) else [value])
        else:
            assert name not in out, f"{name} twice"
            out[name] = value
    return out


def _content(kind, data):
    if kind in BYTES:
        return data.decode() if kind == "string" else data
    if kind not in NUMBERS:
        return parsed(kind, data)
    found = []  # numbers, packed
    while data:
        number, data = _number(data)
        found.append(number)
    return found


def _number(data):
    end = next(at for at, byte in enumerate(data) if byte < 128) + 1
    return sum((byte & 127) << 7 * at for at, byte in enumerate(data[:end])), data[end:]


def event(**kind):
    return written("ChildEvent", kind)


def request(data):
    return parsed("ParentRequest", data)


def arena(*nodes):
    return {"node_count": len(nodes), "nodes": list(nodes)}


def value_of(arena, index):
    """The value that the schema says a node is."""
    ((kind, content),) = arena["nodes"][index].items()
    if kind in ("list", "tuple"):
        parts = [value_of(arena, item) for item in content.get("items", [])]
        return parts if kind == "list" else tuple(parts)
    if kind == "dict":
        pairs = content.get("pairs", [])
        return {value_of(arena, pair.get("key", 0)): value_of(arena, pair.get("value", 0)) for pair in pairs}
    if kind == "bigint":
        return int.from_bytes(content["magnitude"]) * (-1 if content.get("negative") else 1)
    return None if kind == "none" else content


def test_the_schema_is_read_whole():
    # A line that the pattern above does not know would be left out without a word.
    text = re.sub(r"//.*", "", PROTO.read_text())
    assert len(re.findall(r"(?:message|enum) \w+ \{", text)) == len(SCHEMA)
    assert len(re.findall(r"= \d+;", text)) == sum(map(len, SCHEMA.values()))


# Nodes

UUID = bytes(range(16))
BEFORE = [{"str": "name"}, {"type": {"name": "Point", "id": {"data": UUID}, "origin": 2}}]
PAIR = {"pairs": [{"key": 0, "value": 0}]}
NODES = {
    "ellipsis": ({}, "Ellipsis"),
    "none": ({}, None),
    "not_implemented": ({}, "NotImplemented"),
    "boolean": (True, True),
    "int": (-3, -3),
    "bigint": ({"negative": True, "magnitude": b"\x01" + bytes(8)}, -(2**64)),
    "float": (1.5, 1.5),
    "str": ("text", "text"),
    "bytes": (b"\xff", "/w=="),
    "uuid": ({"data": UUID}, "00010203-0405-0607-0809-0a0b0c0d0e0f"),
    "list": ({"items": [0, 0]}, ["name", "name"]),
    "tuple": ({"items": [0]}, ["name"]),
    "named_tuple": ({"type_name": "P", "field_names": ["x"], "values": [0]}, {"x": "name"}),
    "dict": (PAIR, {"name": "name"}),
    "set": ({"items": [0]}, ["name"]),
    "frozen_set": ({"items": [0]}, ["name"]),
    "date": ({"year": 2026, "month": 1, "day": 2}, "2026-01-02"),
    "time": (
        {"hour": 1, "minute": 2, "second": 3, "microsecond": 4, "offset_seconds": -3600, "timezone_name": "X"},
        "01:02:03.000004-01:00",
    ),
    "datetime": (
        {"year": 2026, "month": 1, "day": 2, "hour": 3, "minute": 4, "second": 5, "microsecond": 6}
        | {"offset_seconds": 5400, "timezone_name": "X"},
        "2026-01-02T03:04:05.000006+01:30",
    ),
    "timedelta": ({"days": -1, "seconds": 2, "microseconds": 500_000}, -86397.5),
    "timezone": ({"offset_seconds": -3600, "name": "X"}, "X"),
    "exception": ({"exc_type": "json.JSONDecodeError", "arg": "no"}, "JSONDecodeError: no"),
    "type": ({"name": "int", "origin": 1}, "<class 'int'>"),
    "class_instance": ({"class_type": 1, "instance_id": {"data": UUID}, "attrs": PAIR}, {"name": "name"}),
    "function": ({"name": "f", "docstring": "d"}, "f"),
    "builtin_function": ("len", "<built-in function len>"),
    "path": ("/a", "/a"),
    "file_handle": ({"path": "/a", "mode": "r", "position": 3}, "/a"),
    "repr": ("<x>", "<x>"),
    "cycle": ("[...]", "[...]"),
    "complex": ({"real": 1.5, "imag": -2.0}, "(1.5-2j)"),
    "module": ({"name": "m", "id": {"data": UUID}, "attrs": PAIR}, "m"),
    "decimal": ("1.20", "1.20"),
}  # fmt: skip


@each("kind", KINDS)
def test_every_kind_of_node_has_a_reader(kind):
    content, expected = NODES[kind]
    values = arena(*BEFORE, {kind: content})
    value = read_event(event(complete={"value": len(BEFORE), "values": values})).value(BUDGET)
    assert value == expected
    assert type(value) is type(expected)


def test_there_is_no_reader_for_a_kind_that_the_schema_does_not_have():
    assert set(SCALARS) <= set(KINDS.values())


@pytest.mark.parametrize("tag", [max(KINDS.values()) + 1, 99, 100_000])
def test_an_unknown_kind_of_node_is_named_by_its_number(tag):
    node = _field(tag, "string", "new")
    frame = _field(6, "bytes", _field(2, "bytes", _field(2, "bytes", node)))
    with pytest.raises(ProtocolError, match=rf"\b{tag}\b"):
        read_event(frame).value(BUDGET)


# Events

EVENTS = {
    "print": ({"segments": []}, messages.Print),
    "function_call": ({}, messages.FunctionCall),
    "os_call": ({"call_id": 1, "exists": "/"}, messages.OsCall),
    "name_lookup": ({}, messages.NameLookup),
    "resolve_futures": ({}, messages.ResolveFutures),
    "complete": ({}, messages.Complete),
    "error": ({"exception": {"exc_type": "ValueError"}}, CodeError),
    "typing_error": ({"diagnostics": "[]"}, TypeCheckError),
    "ok": ({}, messages.Ok),
    "fatal_error": ({"message": "out of order"}, ProtocolError),
}


@each("kind", [name for name, (tag, _, _) in SCHEMA["ChildEvent"].items() if tag < 20])
def test_every_event_is_read_or_is_not_for_us(kind):
    tag, _, _ = SCHEMA["ChildEvent"][kind]
    if kind in NOT_FOR_US:
        with pytest.raises(ProtocolError, match=rf"event {tag}\b"):
            read_event(event(**{kind: {}}))
        return
    content, expected = EVENTS[kind]
    try:
        found = read_event(event(**{kind: content}))
    except Exception as error:
        found = error
    assert type(found) is expected
    assert "unknown" not in str(found)


def test_an_unknown_event_is_named_by_its_number():
    with pytest.raises(ProtocolError, match="event 19"):
        read_event(_field(19, "bytes", b""))


def test_a_call_is_read_by_the_tags_of_the_schema():
    call = read_event(
        event(
            function_call={
                "function_name": "tool",
                "args": [2, 0],
                "kwargs": [{"key": 0, "value": 1}],
                "call_id": 300,
                "object_id": {"data": UUID},
                "allow_eager_await": True,
                "values": arena({"str": "k"}, {"int": 5}, {"none": {}}),
                "position": {"filename": "<python-input-0>", "start": 3, "end": 400},
            }
        )
    )
    assert (call.name, call.call_id, call.object_id) == ("tool", 300, UUID)
    assert call.position == SourceRange("<python-input-0>", 3, 400)
    assert call.arguments(BUDGET) == ([None, "k"], {"k": 5})


def test_a_lookup_is_read_by_the_tags_of_the_schema():
    lookup = read_event(event(name_lookup={"name": "n", "object_id": {"data": UUID}, "position": {"filename": "f"}}))
    assert (lookup.name, lookup.object_id) == ("n", UUID)


def test_futures_are_read_by_the_tags_of_the_schema():
    futures = read_event(event(resolve_futures={"pending_call_ids": [1, 300, 2], "position": {"filename": "f"}}))
    assert futures.call_ids == [1, 300, 2]


def test_a_result_is_read_by_the_tags_of_the_schema():
    result = read_event(event(complete={"value": 1, "values": arena({"int": 1}, {"int": 2}, {"int": 3})}))
    assert result.value(BUDGET) == 2


def test_prints_are_read_by_the_tags_of_the_schema():
    streams = SCHEMA["PrintStream"]
    segments = [
        {"stream": streams["PRINT_STREAM_STDERR"], "text": "e"},
        {"stream": streams["PRINT_STREAM_STDOUT"], "text": "o"},
    ]
    assert read_event(event(print={"segments": segments})).segments == [("stderr", "e"), ("stdout", "o")]


def test_an_error_is_read_by_the_tags_of_the_schema():
    frame = {"filename": "f", "start": {"line": 3, "column": 4}, "end": {"line": 5, "column": 6}, "frame_name": "g"}
    raised = {"exc_type": "KeyError", "message": "m", "traceback": [frame, frame], "data": {"json": {"msg": "x"}}}
    with pytest.raises(CodeError) as found:
        read_event(event(error={"exception": raised}))
    assert (found.value.kind, found.value.message) == ("KeyError", "m")
    assert found.value.trace == (TraceLine("f", 3, "g"), TraceLine("f", 3, "g"))


def test_diagnostics_and_last_words_are_read_by_the_tags_of_the_schema():
    with pytest.raises(TypeCheckError) as refused:
        read_event(event(typing_error={"diagnostics": "[1]"}))
    assert refused.value.diagnostics == "[1]"
    with pytest.raises(ProtocolError, match="out of order"):
        read_event(event(fatal_error={"message": "out of order"}))


@each("call", CALLS)
def test_only_sleeps_are_taken_for_sleeps(call):
    kind = SCHEMA["OsCall"][call][1]
    content = {"string": "/", "Sleep": {"seconds": 2.5}, "AsyncSleep": {"delay": 2.5}}.get(kind, {})
    read = read_event(event(os_call={"call_id": 7, call: content}))
    assert read.call_id == 7
    assert read.is_sleep == (call in ("sleep", "async_sleep", "system_sleep", "async_system_sleep"))
    assert read.is_async == (call in ("async_sleep", "async_system_sleep"))
    assert read.seconds == (2.5 if read.is_sleep else 0.0)


# Requests


def test_configure_says_what_is_meant():
    limits = WorkerLimits(seconds=2.5, memory_mb=3, depth=400)
    meant = {
        "script_name": "main.py",
        "limits": {
            "max_memory_bytes": 3 * 1024 * 1024,
            "max_recursion_depth": 400,
            "max_suspensions": messages.UNBOUNDED,
            "max_feed_duration_micros": 2_500_000,
        },
        "monty_version": messages.MONTY_VERSION,
        "protocol_version": messages.PROTOCOL_VERSION,
        "print_flush_interval_ms": messages.FLUSH_MS,
        "os_policy": {"sleep": {"system": {"max_micros": messages.ANY_LENGTH}}},
    }
    checks = {
        "type_check": True,
        "type_check_stubs": "x: int",
        "type_check_format": SCHEMA["TypeCheckFormat"]["TYPE_CHECK_FORMAT_JSON"],
    }
    assert request(messages.configure(limits)) == {"configure": meant}
    assert request(messages.configure(limits, "x: int")) == {"configure": meant | checks}


def test_feed_says_what_is_meant():
    inputs = {"a": [None, True, False, 1, -1, 70, 8191, 8192, 2**40, -(2**63), 2**70, -(2**70)], "b": {"k": (1.5, "é")}}
    fed = request(messages.feed("code", inputs, check_types=False))["feed"]
    values = fed.pop("values")
    assert {named["name"]: value_of(values, named["value"]) for named in fed.pop("inputs")} == inputs
    assert values["node_count"] == len(values["nodes"])
    assert fed == {"code": "code", "skip_type_check": True, "cwd": "/"}


def test_a_feed_without_inputs_has_no_values():
    assert request(messages.feed("c", {})) == {"feed": {"code": "c", "skip_type_check": False, "cwd": "/"}}


def test_an_answer_to_a_call_says_what_is_meant():
    def resumed(answer):
        return request(messages.resume_call(9, answer))["resume_call"]

    assert resumed(Returned(5)) == {"call_id": 9, "result": {"return_value": 0}, "values": arena({"int": 5})}
    raised = {"exc_type": "KeyError", "message": "m"}
    assert resumed(Raised("KeyError", "m")) == {"call_id": 9, "result": {"error": raised}}
    assert resumed(Pending()) == {"call_id": 9, "result": {"future": 9}}
    assert resumed(NotHandled()) == {"call_id": 9, "result": {"not_handled": {}}}


def test_answers_to_futures_say_what_is_meant():
    resumed = request(messages.resume_futures({4: Returned("v"), 5: Raised("KeyError", "m")}))["resume_futures"]
    raised = {"exc_type": "KeyError", "message": "m"}
    assert resumed == {
        "results": [{"call_id": 4, "result": {"return_value": 0}}, {"call_id": 5, "result": {"error": raised}}],
        "values": arena({"str": "v"}),
    }


def test_an_answer_to_a_lookup_says_what_is_meant():
    function = {"values": arena({"function": {"name": "tool"}}), "value": 0}
    assert request(messages.resume_name(Function("tool"))) == {"resume_name_lookup": function}
    assert request(messages.NAME_UNDEFINED) == {"resume_name_lookup": {"undefined": {}}}


def test_an_object_of_ours_is_one_of_a_host_class():
    box = HostObject("Box")
    resumed = request(messages.resume_name(box))["resume_name_lookup"]
    made_of, instance = resumed["values"]["nodes"]
    assert resumed["value"] == 1
    assert made_of["type"]["name"] == "Box"
    assert made_of["type"]["origin"] == HOST == SCHEMA["TypeOrigin"]["TYPE_ORIGIN_HOST"]
    assert len(made_of["type"]["id"]["data"]) == 16
    assert instance == {"class_instance": {"class_type": 0, "instance_id": {"data": box.id}, "attrs": {}}}


def test_reset_says_what_is_meant():
    assert request(messages.RESET) == {"reset": {}}


# The runtime


def test_the_runtime_that_is_pinned_is_the_one_whose_schema_this_is():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = messages.MONTY_VERSION
    assert version("pydantic-monty-runtime") == wanted
    assert f"pydantic-monty-runtime =={wanted}" in project["project"]["dependencies"]
    assert f"pydantic-monty =={wanted}" in project["dependency-groups"]["dev"]
    assert f"`pydantic-monty-runtime` {wanted}" in (ROOT / "tests" / "data" / "README.md").read_text()


def test_the_worker_speaks_our_version_of_the_protocol():
    with sandboxed() as evaluate:
        assert evaluate("1 + 1") == 2


def test_the_worker_refuses_a_version_that_it_does_not_speak(monkeypatch):
    monkeypatch.setattr(messages, "PROTOCOL_VERSION", messages.PROTOCOL_VERSION + 1)
    with sandboxed() as evaluate, pytest.raises(ProtocolError, match="version"):
        evaluate("1 + 1")
