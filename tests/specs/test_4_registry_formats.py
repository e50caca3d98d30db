"""4-registry: Provider Format Conversion, one test for each scenario."""

import warnings
from typing import Any

import pytest

from onetool import ToolSpec, provider_tools
from onetool.core.errors import UnknownProviderError

PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string", "description": "Where"}, "days": {"type": "integer"}},
    "required": ["city"],
}
SPECS = [
    ToolSpec(name="weather", description="The weather", input_schema=PARAMETERS),
    ToolSpec(name="clock", description="The time"),
    ToolSpec(name="search", description="Search the web", input_schema=PARAMETERS),
]


@pytest.fixture(scope="module")
def clients() -> dict[str, Any]:
    """What the providers' own clients take a tool as."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        import ollama
        from google.genai import types as gemini
        from openai.types.chat import ChatCompletionFunctionToolParam
        from pydantic import TypeAdapter

        openai = TypeAdapter(ChatCompletionFunctionToolParam).validate_python
        return {"openai": openai, "ollama": ollama.Tool.model_validate, "gemini": gemini.Tool.model_validate}


def test_convert_to_openai_format(clients: dict[str, Any]) -> None:
    tools = provider_tools(SPECS, "openai")
    function = {"name": "weather", "description": "The weather", "parameters": PARAMETERS}
    assert tools[0] == {"type": "function", "function": function}
    assert [tool["function"]["name"] for tool in tools] == ["weather", "clock", "search"]
    assert [clients["openai"](tool) for tool in tools] == tools


def test_convert_to_ollama_format(clients: dict[str, Any]) -> None:
    tools = provider_tools(SPECS, "ollama")
    assert tools == provider_tools(SPECS, "openai")
    assert [clients["ollama"](tool).function.name for tool in tools] == ["weather", "clock", "search"]


def test_convert_to_gemini_format(clients: dict[str, Any]) -> None:
    tools = provider_tools(SPECS, "gemini")
    declaration = {"name": "weather", "description": "The weather", "parameters": PARAMETERS}
    assert tools[0] == {"functionDeclarations": [declaration]}
    assert len(tools) == len(SPECS)
    names = [read.name for tool in tools for read in clients["gemini"](tool).function_declarations]
    assert names == ["weather", "clock", "search"]


def test_filter_by_allowed_tools() -> None:
    tools = provider_tools(SPECS, "openai", allowed=["search", "weather"])
    assert [tool["function"]["name"] for tool in tools] == ["weather", "search"]
    assert provider_tools(SPECS, "openai", allowed=[]) == []


def test_unknown_provider_format() -> None:
    with pytest.raises(UnknownProviderError, match="provider 'acme' is not supported"):
        provider_tools(SPECS, "acme")
