"""provider_tools: the shape for each provider, the choice of tools, and that the result is the caller's own."""

import json
import subprocess
import sys
from typing import Any

import pytest
from helpers import each

from onetool.core.errors import UnknownProviderError
from onetool.core.schema import CompiledSchema
from onetool.core.spec import ToolSpec
from onetool.formats import PROVIDERS, ProviderNames, provider_tools

PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Bern", "Rome"]}},
    "required": ["city"],
}
WEATHER = ToolSpec(name="weather.now", description="The weather", input_schema=PARAMETERS)
CLOCK = ToolSpec(name="clock", description="The time")
NOTES = ToolSpec(name="notes.list", description="All notes")


def only(provider: str, spec: ToolSpec = WEATHER) -> dict[str, Any]:
    [tool] = provider_tools([spec], provider)
    return tool


@pytest.mark.parametrize("provider", ["openai", "ollama"])
def test_function_shape(provider: str) -> None:
    function = {"name": "weather__now", "description": "The weather", "parameters": PARAMETERS}
    assert only(provider) == {"type": "function", "function": function}


def test_gemini_shape() -> None:
    declaration = {"name": "weather__now", "description": "The weather", "parameters": PARAMETERS}
    assert only("gemini") == {"functionDeclarations": [declaration]}


def test_anthropic_shape() -> None:
    assert only("anthropic") == {"name": "weather__now", "description": "The weather", "input_schema": PARAMETERS}


def test_mcp_shape() -> None:
    assert only("mcp") == {"name": "weather__now", "description": "The weather", "inputSchema": PARAMETERS}


def test_mcp_tells_the_output_and_how_the_tool_behaves() -> None:
    output = {"type": "object", "properties": {"c": {"type": "number"}}}
    spec = ToolSpec(name="t", description="", output_schema=output, read_only=True, idempotent=True)
    assert only("mcp", spec)["outputSchema"] == output
    assert only("mcp", spec)["annotations"] == {"readOnlyHint": True, "idempotentHint": True}
    assert only("mcp", ToolSpec(name="t", description="", idempotent=True))["annotations"] == {"idempotentHint": True}
    assert only("mcp", ToolSpec(name="t", description="", pure=True))["annotations"]["readOnlyHint"]


ROWS = {"type": "array", "items": {"$ref": "#/$defs/Row"}, "$defs": {"Row": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        (ROWS, [1], ["x"]),
        ({"type": ["integer", "null"]}, None, 0.5),
        ({"anyOf": [{"type": "object", "properties": {"a": {}}}, {"type": "string"}]}, "x", 0.5),
        ({"type": "array", "items": {"type": "object", "additionalProperties": {"type": "integer"}}}, [{"a": 1}], [1]),
    ],
)
def test_mcp_wraps_an_output_that_is_no_object(schema: dict[str, Any], right: Any, wrong: Any) -> None:
    output = only("mcp", ToolSpec(name="t", description="", output_schema=schema))["outputSchema"]
    assert output["type"] == "object"
    check = CompiledSchema(output).check
    assert check({"result": right}) == []
    assert check({"result": wrong}) != []


@pytest.mark.parametrize("schema", [{}, {"description": "anything"}, {"type": ["string", "null"]}, {"enum": ["a"]}])
def test_mcp_leaves_out_an_output_that_is_text_or_not_known(schema: dict[str, Any]) -> None:
    assert "outputSchema" not in only("mcp", ToolSpec(name="t", description="", output_schema=schema))


NODE = {"$ref": "#/$defs/Node", "$defs": {"Node": {"type": "array", "items": {"$ref": "#/$defs/Node"}}}}


@each(
    "schema",
    [
        {"type": "object"},
        {"type": "object", "additionalProperties": {"type": "string"}},
        {"type": "array"},
        {"type": ["array", "object"], "items": {"type": "integer"}},
        {"type": "array", "items": {"type": "object"}},
        {"type": "array", "prefixItems": [{"type": "object"}, {"type": "string"}], "items": False},
        {"anyOf": [{"type": "object"}, {"type": "null"}]},
    ],
)
def test_mcp_leaves_out_an_output_that_content_would_fit(schema: dict[str, Any]) -> None:
    assert "outputSchema" not in only("mcp", ToolSpec(name="t", description="", output_schema=schema))
    server_tool = ToolSpec(name="t", description="", output_schema=schema, source="proxy:other")
    assert "outputSchema" in only("mcp", server_tool)


def test_mcp_lists_an_output_that_refers_to_itself() -> None:
    assert "outputSchema" in only("mcp", ToolSpec(name="t", description="", output_schema=NODE))


def test_mcp_leaves_out_an_output_that_is_no_object() -> None:
    assert "outputSchema" not in only("mcp", ToolSpec(name="t", description="", output_schema={"type": "string"}))


def test_mcp_keeps_the_full_schema() -> None:
    schema = {"anyOf": [{"required": ["a"]}, {"required": ["b"]}], "properties": {"a": {}, "b": {}}}
    assert only("mcp", ToolSpec(name="t", description="", input_schema=schema))["inputSchema"] == {
        **schema,
        "type": "object",
    }


def test_gemini_merged() -> None:
    [tool] = provider_tools([WEATHER, CLOCK], "gemini", merge=True)
    assert [declaration["name"] for declaration in tool["functionDeclarations"]] == ["weather__now", "clock"]
    assert len(provider_tools([WEATHER, CLOCK], "gemini")) == 2
    assert provider_tools([], "gemini", merge=True) == []


def test_merge_changes_nothing_for_the_others() -> None:
    assert provider_tools([WEATHER, CLOCK], "openai", merge=True) == provider_tools([WEATHER, CLOCK], "openai")


@pytest.mark.parametrize(
    ("allowed", "names"),
    [
        (None, ["weather__now", "clock", "notes__list"]),
        (["notes.list", "weather.now"], ["weather__now", "notes__list"]),
        (["clock", "unknown"], ["clock"]),
        ([], []),
    ],
)
def test_allowed(allowed: list[str] | None, names: list[str]) -> None:
    tools = provider_tools(iter([WEATHER, CLOCK, NOTES]), "mcp", allowed=allowed)
    assert [tool["name"] for tool in tools] == names


def test_leaving_tools_out_renames_none() -> None:
    specs = [ToolSpec(name=name, description="") for name in ("a.b", "a__b")]
    [tool] = provider_tools(specs, "anthropic", allowed=["a.b"])
    assert ProviderNames(specs, "anthropic").from_provider(tool["name"]) == "a.b"


@each("provider", PROVIDERS)
def test_the_result_is_the_callers_own(provider: str) -> None:
    spec = ToolSpec(name="t", description="", input_schema=PARAMETERS, output_schema=PARAMETERS)
    before = json.dumps(provider_tools([spec], provider))
    spoil(provider_tools([spec], provider))
    assert json.dumps(provider_tools([spec], provider)) == before
    assert spec.input_schema == PARAMETERS


def spoil(value: Any) -> None:
    """Change every container, after making sure that it is a plain one."""
    assert type(value) in (dict, list, str, bool)
    for item in list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []:
        spoil(item)
    if isinstance(value, dict | list):
        value.clear()


@each("provider", PROVIDERS)
@each("schema", [{}, True, False, {"$ref": "#"}, {"type": "string"}, {"type": ["object", "null"]}])
def test_there_is_always_an_object_to_fill(provider: str, schema: Any) -> None:
    spec = ToolSpec(name="t", description="", input_schema=schema)
    text = json.dumps(provider_tools([spec], provider))
    assert '"type": "object"' in text


def test_anthropic_tells_arguments_with_keys_it_would_refuse() -> None:
    schema = {
        "type": "object",
        "properties": {"limit": {"type": "integer"}, "filter[id]": {"type": "string"}},
        "required": ["limit", "filter[id]"],
    }
    given = only("anthropic", ToolSpec(name="t", description="", input_schema=schema))["input_schema"]
    assert list(given["properties"]) == given["required"] == ["limit"]
    assert "filter[id]" in given["description"]


def test_unknown_provider_names_the_known_and_the_nearest() -> None:
    with pytest.raises(UnknownProviderError) as caught:
        provider_tools([WEATHER], "antropic")
    message = str(caught.value)
    assert "'antropic'" in message
    assert all(provider in message for provider in PROVIDERS)
    assert "did you mean anthropic?" in message


def test_unknown_provider_that_is_near_to_none() -> None:
    with pytest.raises(UnknownProviderError) as caught:
        provider_tools([], "xyz")
    assert "did you mean" not in str(caught.value)


def test_importing_it_loads_nothing_heavy() -> None:
    code = "import sys, onetool.formats; print(*{name.partition('.')[0] for name in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"rapidfuzz", "pydantic", "openai", "ollama", "google", "anthropic", "jsonschema_rs"} & set(loaded)
