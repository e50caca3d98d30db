"""4-registry.md: one test for each scenario, named after it. The provider formats are in test_4_registry_formats.py."""

import pytest
from helpers import calls, definition, each, run

from onetool import App, Executor, Registry
from onetool.core.errors import DefinitionError, DuplicateToolError


def config_with(tmp_path, tools):
    import json

    file = tmp_path / "onetool.yaml"
    file.write_text(json.dumps({"tools": tools}))  # JSON is YAML
    return file


# Requirement: Tool Registration


def test_register_tool_from_configuration(tmp_path, caplog):
    tools = [definition("good"), definition("bad", description=None), definition("also_good")]
    app = App.open(config_with(tmp_path, tools))
    names = [spec.name for spec in app.tools()]
    assert "good" in names
    assert "also_good" in names
    assert "bad" not in names
    errors = [record for record in caplog.records if record.levelname == "ERROR"]
    assert len(errors) == 1
    assert "bad" in errors[0].getMessage()
    assert "description" in errors[0].getMessage()


def test_reject_duplicate_tool_names(tmp_path, caplog):
    registry = Registry()
    registry.register(definition("twin", description="The first twin."))
    with pytest.raises(DuplicateToolError, match=r"The first twin.*The second twin"):
        registry.register(definition("twin", description="The second twin."))
    assert registry.get("twin").description == "The first twin."
    assert len(registry) == 1

    twins = [definition("twin", description="The first twin."), definition("twin", description="The second twin.")]
    app = App.open(config_with(tmp_path, twins))
    assert app.catalog.registry.get("twin").description == "The first twin."
    assert "The second twin" in caplog.text


@each(
    ("change", "told"),
    [
        ({"name": None}, "name"),
        ({"name": ""}, "name"),
        ({"name": 7}, "name"),
        ({"name": "bell\a"}, "name"),
        ({"description": None}, "description"),
        ({"description": "  "}, "description"),
        ({"parameters": None}, "parameters"),
        ({"parameters": []}, "parameters"),
        ({"parameters": {"type": "objekt"}}, "parameters.type"),
        ({"parameters": {"type": "string"}}, "parameters.type"),
        ({"parameters": {}}, "parameters.type"),
        ({"parameters": {"type": ["object"]}}, "parameters.type"),
        ({"parameters": {"type": "object", "properties": []}}, "properties"),
        ({"parameters": {"type": "object", "properties": {"a": {"type": "integr"}}}}, "properties.a.type"),
        ({"parameters": {"type": "object", "required": "a"}}, "required"),
        ({"parameters": {"type": "object", "properties": {"a": {"pattern": "("}}}}, "properties.a.pattern"),
    ],
)
def test_validate_tool_definition(change, told):
    registry = Registry()
    with pytest.raises(DefinitionError) as refused:
        registry.register(definition(**change))
    assert told in str(refused.value)
    assert len(registry) == 0


# Requirement: Tool Lookup


def test_get_tool_by_name():
    registry = Registry()
    registry.register(definition("weather"))
    assert registry.get("weather").name == "weather"
    assert registry.get("weather").parameters["type"] == "object"

    # O(1): a lookup among many is no more work than among few.
    many = Registry()
    for number in range(1_000):
        many.register(definition(f"tool{number}"))
    with calls() as among_few:
        registry.get("weather")
    with calls() as among_many:
        many.get("tool999")
    assert among_many() == among_few()


def test_tool_not_found():
    registry = Registry()
    assert registry.get("nothing") is None


def test_list_all_tools():
    registry = Registry()
    for name in ("zebra", "ant", "mole"):
        registry.register(definition(name))
    assert [spec.name for spec in registry.list()] == ["zebra", "ant", "mole"]


# Requirement: Tool Definition Schema


@each("missing", ["name", "description", "type", "handler", "parameters", "implementation"])
def test_tool_definition_structure(missing):
    Registry().register(definition())
    with pytest.raises(DefinitionError, match=missing):
        Registry().register(definition(**{missing: None}))


def test_tool_definition_structure_needs_type_function_and_an_implementation_with_a_type():
    for wrong in ({"type": "procedure"}, {"handler": 5}, {"implementation": {}}, {"implementation": "mock"}):
        with pytest.raises(DefinitionError):
            Registry().register(definition(**wrong))


@each("response", [None, 0, "", False, [], {"c": 21}, [1, {"a": None}], "text", 1.5])
def test_mock_tool_implementation(response):
    registry = Registry()
    registry.register({**definition(), "implementation": {"type": "mock", "mock_response": response}})
    result = run(Executor(registry), "weather")
    assert result.ok
    assert result.data == response


def test_mock_tool_implementation_must_have_a_response():
    with pytest.raises(DefinitionError, match="mock_response"):
        Registry().register(definition(implementation={"type": "mock"}))


def test_builtin_tool_implementation():
    schema = {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]}
    registry = Registry(builtins={"shout": lambda message: message.upper()})
    registry.register(definition("loud", parameters=schema, implementation={"type": "builtin", "handler": "shout"}))
    registry.register(
        definition("back", parameters=schema, implementation={"type": "builtin", "handler": "tools.echo"})
    )
    assert run(Executor(registry), "loud", message="hi").data == "HI"
    assert run(Executor(registry), "back", message="hi").data == "hi"
    with pytest.raises(DefinitionError, match=r"handler"):
        registry.register(definition("none", implementation={"type": "builtin"}))
    with pytest.raises(DefinitionError, match=r"'shoot'.*shout"):
        registry.register(definition("typo", implementation={"type": "builtin", "handler": "shoot"}))
    with pytest.raises(DefinitionError, match=r"time\.now"):
        registry.register(definition("typo", implementation={"type": "builtin", "handler": "tim.now"}))


def test_internal_tool_implementation(tmp_path):
    query = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
    tools = [
        definition("find", parameters=query, implementation={"type": "internal", "handler": "search"}),
        definition("state", implementation={"type": "internal", "handler": "health"}),
        definition("usage", implementation={"type": "internal", "handler": "stats"}),
        definition("typo", implementation={"type": "internal", "handler": "serach"}),
        definition("none", implementation={"type": "internal"}),
    ]
    app = App.open(config_with(tmp_path, tools))
    found = run(app.runtime.executor, "find", query="read a file")
    assert "fs.read_file" in [item["name"] for item in found.data]
    assert run(app.runtime.executor, "state").data["registry"]["tool_count"] == len(app.tools())
    assert run(app.runtime.executor, "usage").data["calls"] == 2
    messages = [str(mistake) for mistake in app.mistakes]
    assert len(messages) == 2
    assert "search" in messages[0]
    assert "handler" in messages[1]


def test_internal_tool_implementation_given_to_a_registry():
    registry = Registry(internals={"clock": lambda: "noon"})
    registry.register(definition("when", implementation={"type": "internal", "handler": "clock"}))
    assert run(Executor(registry), "when").data == "noon"


def test_http_tool_implementation_validation(tmp_path, caplog):
    registry = Registry()
    http = definition("fetch", implementation={"type": "http", "url": "https://example.com"})
    with pytest.raises(DefinitionError) as refused:
        registry.register(http)
    assert str(refused.value) == "HTTP tools not yet supported (coming in v2)"
    assert refused.value.hint == "HTTP tools live in bundles, not in the config"
    assert registry.get("fetch") is None

    app = App.open(config_with(tmp_path, [http]))
    assert app.catalog.registry.get("fetch") is None
    assert "HTTP tools not yet supported (coming in v2)" in caplog.text
    assert "bundles" in caplog.text
