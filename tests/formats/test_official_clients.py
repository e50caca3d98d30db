"""All of the real tools, checked with the types of the providers' own clients."""

import json
import re
import warnings
from pathlib import Path
from typing import Any

import pytest

from onetool.core.spec import ToolSpec
from onetool.formats import PROVIDERS, provider_tools

LIVEMCP = json.loads((Path(__file__).parents[1] / "data" / "livemcp.json").read_text())["tools"]

# Nasty ones beside the real: each is refused by some provider as it stands.
NASTY: list[Any] = [
    {},
    {"$ref": "#/$defs/A", "$defs": {"A": {"type": "object", "properties": {"next": {"$ref": "#/$defs/A"}}}}},
    {"oneOf": [{"properties": {"a": {"const": 1}}}, {"properties": {"a": {"type": ["array", "null"]}, "b": True}}]},
    {"type": "object", "properties": {"a": {"enum": [1, None, "x"]}, "b": {"type": "array", "items": [{}, {}]}}},
    {"type": "object", "properties": {"a": {"exclusiveMinimum": 0}, "b": {"not": {}}}, "required": ["zzz"]},
]


pytestmark = pytest.mark.long  # the imports of four SDKs


@pytest.fixture(scope="module")
def specs() -> list[ToolSpec]:
    real = [
        ToolSpec(name=tool["name"], description=tool["description"], input_schema=tool["inputSchema"])
        for tool in LIVEMCP
    ]
    return real + [ToolSpec(name=f"nasty.{i}", description="", input_schema=s) for i, s in enumerate(NASTY)]


@pytest.fixture(scope="module")
def clients() -> dict[str, Any]:
    """The types that the clients take tools as. Their imports are slow, and what they deprecate is not our matter."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        import ollama
        from anthropic.types import ToolParam
        from google.genai import types as gemini
        from openai.types.chat import ChatCompletionFunctionToolParam
        from pydantic import TypeAdapter

        return {
            "openai": TypeAdapter(ChatCompletionFunctionToolParam).validate_python,
            "anthropic": TypeAdapter(ToolParam).validate_python,
            "ollama": ollama.Tool.model_validate,
            "gemini": gemini.Tool.model_validate,
        }


def test_all_of_them_are_there(specs: list[ToolSpec]) -> None:
    assert len(specs) == 527 + len(NASTY)


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_typed_dicts(provider: str, specs: list[ToolSpec], clients: dict[str, Any]) -> None:
    for tool in provider_tools(specs, provider):
        assert clients[provider](tool) == tool  # a key that the type does not know would be gone


def test_ollama(specs: list[ToolSpec], clients: dict[str, Any]) -> None:
    for tool in provider_tools(specs, "ollama"):
        read = clients["ollama"](tool)
        assert read.function.name == tool["function"]["name"]
        assert set(read.function.parameters.properties) == set(tool["function"]["parameters"]["properties"])


@pytest.mark.parametrize("merge", [False, True])
def test_gemini(merge: bool, specs: list[ToolSpec], clients: dict[str, Any]) -> None:
    tools = provider_tools(specs, "gemini", merge=merge)
    read = [clients["gemini"](tool) for tool in tools]  # unknown fields are errors there
    assert sum(len(tool.function_declarations) for tool in read) == len(specs)
    assert all(declaration.parameters for tool in read for declaration in tool.function_declarations)


def test_mcp(specs: list[ToolSpec]) -> None:
    tools = provider_tools(specs, "mcp")
    for tool in tools:
        assert tool.keys() == {"name", "description", "inputSchema"}
        assert re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", tool["name"])
        assert tool["inputSchema"]["type"] == "object"
    assert len({tool["name"] for tool in tools}) == len(specs)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_all_can_be_sent(provider: str, specs: list[ToolSpec]) -> None:
    tools = provider_tools(specs, provider)
    assert json.loads(json.dumps(tools, allow_nan=False)) == tools
