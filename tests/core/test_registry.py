"""The registry: frozen snapshots, whole swaps, and definitions that nobody can change afterwards."""

import copy
import json
import pickle
import threading

import pytest
from helpers import definition, each, run
from hypothesis import given
from hypothesis import strategies as st

from onetool import Executor, Registry, ToolSpec
from onetool.core.errors import DefinitionError, DuplicateToolError


def test_a_snapshot_does_not_change():
    registry = Registry()
    registry.register(definition("one"))
    before = registry.snapshot()
    assert registry.snapshot() is before
    registry.register(definition("two"))
    assert [spec.name for spec in before.list()] == ["one"]
    assert before.get("two") is None
    assert [spec.name for spec in registry.snapshot()] == ["one", "two"]


def test_a_reader_never_sees_half_a_reload():
    """One thread swaps between two sets of tools, others read: each sees the whole of one or the whole of the other."""
    sets = [[ToolSpec(name=f"{letter}{n}", description="d") for n in range(50)] for letter in "ab"]
    registry = Registry()
    registry.replace(sets[0])
    seen, done = set(), threading.Event()

    def read():
        while not done.is_set():
            seen.add(frozenset(spec.name for spec in registry.snapshot()))
            seen.add(frozenset(spec.name for spec in registry.list()))

    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    for turn in range(300):
        registry.replace(sets[turn % 2])
    done.set()
    for reader in readers:
        reader.join()
    assert seen <= {frozenset(spec.name for spec in one) for one in sets}


def test_a_swap_with_a_duplicate_changes_nothing():
    registry = Registry()
    registry.register(definition("kept"))
    with pytest.raises(DuplicateToolError):
        registry.replace([ToolSpec(name="x", description="first"), ToolSpec(name="x", description="second")])
    assert [spec.name for spec in registry] == ["kept"]


def test_a_call_runs_on_the_snapshot_that_it_was_given():
    registry = Registry()
    registry.register(definition("t", implementation={"type": "mock", "mock_response": "old"}))
    executor = Executor(registry.snapshot())
    registry.replace([])
    assert run(executor).data == "old"
    assert run(Executor(registry)).error.code == "tool_not_found"


def test_changing_what_was_registered_changes_nothing():
    given_definition = definition("t", parameters={"type": "object", "properties": {"a": {"enum": [1]}}})
    registry = Registry()
    spec = registry.register(given_definition)
    given_definition["parameters"]["properties"]["a"]["enum"].append(2)
    assert spec.parameters["properties"]["a"]["enum"] == [1]
    with pytest.raises(TypeError):
        spec.parameters["properties"]["a"]["enum"].append(2)
    own = copy.deepcopy(spec.parameters)
    own["properties"]["a"]["enum"].append(2)
    assert type(own) is dict
    assert json.loads(json.dumps(spec.parameters)) == pickle.loads(pickle.dumps(spec.parameters)) == spec.parameters


def test_changing_a_mocks_answer_does_not_change_the_next():
    registry = Registry()
    registry.register(definition("t", implementation={"type": "mock", "mock_response": {"list": [1]}}))
    run(Executor(registry)).data["list"].append(2)
    assert run(Executor(registry)).data == {"list": [1]}


def test_all_faults_of_a_definition_are_told_at_once():
    with pytest.raises(DefinitionError) as refused:
        Registry().register({"name": "", "descripton": "typo", "type": "function", "parameters": {"type": "array"}})
    message = str(refused.value)
    for part in ("name: expected a string", "description: required", "handler: required", "implementation: required"):
        assert part in message
    assert "descripton: unknown key (did you mean description?)" in message
    assert 'parameters.type: expected "object"' in message


@pytest.mark.parametrize("wrong", [None, [], "tool", 5])
def test_what_is_not_a_mapping_is_not_a_definition(wrong):
    with pytest.raises(DefinitionError, match="mapping"):
        Registry().register(wrong)


@each(
    ("change", "told"),
    [
        ({"timeout": "fast"}, "timeout"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": True}, "timeout"),
        ({"pure": "yes"}, "pure"),
        ({"tags": "a"}, "tags"),
        ({"output_schema": {"type": "nonsense"}}, "type"),
        ({"implementation": {"type": "mok", "mock_response": 1}}, "did you mean mock"),
        ({"implementation": {"type": "mock", "mock_respons": 1}}, "did you mean mock_response"),
        ({"implementation": {"type": "builtin", "handler": 5}}, "implementation.handler"),
        ({"parameters": {"type": "object", "$ref": "https://example.com/s"}}, "only references inside"),
    ],
)
def test_wrong_options_are_told(change, told):
    with pytest.raises(DefinitionError) as refused:
        Registry().register(definition(**change))
    assert told in str(refused.value)
    assert refused.value.tool == "weather"


def test_options_of_a_definition_reach_the_tool():
    registry = Registry()
    spec = registry.register(
        definition(timeout=2.5, pure=True, tags=["a"], hidden=True, enabled=False, output_schema={"type": "object"})
    )
    assert (spec.timeout, spec.pure, spec.tags, spec.hidden, spec.enabled) == (2.5, True, ("a",), True, False)
    error = run(Executor(registry), "weather").error
    assert (error.code, error.reason) == ("tool_not_found", "denied")


@given(st.text(min_size=1).filter(lambda text: text.isprintable() and text.strip()))
def test_any_printable_name_is_taken_as_it_is(name):
    registry = Registry()
    registry.register(definition(name))
    assert registry.get(name).name == name


def test_names_are_case_sensitive():
    registry = Registry()
    registry.register(definition("a"))
    registry.register(definition("A"))
    assert len(registry) == 2


def test_all_real_tools_can_be_registered(live_tools):
    registry = Registry()
    for tool in live_tools:
        registry.register(
            definition(tool["name"], description=tool["description"] or "(none)", parameters=tool["inputSchema"])
        )
    assert len(registry) == 527
    assert [spec.name for spec in registry.list()] == [tool["name"] for tool in live_tools]


@each(
    "odd",
    [
        definition(parameters={"type": "object", "patternProperties": 5}),
        definition(implementation={"type": ["mock"]}),
        definition(parameters={"type": "object", "properties": {5: {}}}),
        definition(parameters={"type": "object", "properties": {b"x": {}}}),
        definition(timeout=-(10**5000)),
        definition(timeout=float("nan")),
        definition(timeout=float("inf")),
        ToolSpec(name=5, description="d"),
        ToolSpec(name="t", description=None),
        ToolSpec(name="t", description="d", input_schema=None),
        ToolSpec(name="t", description="d", input_schema=["x"]),
        ToolSpec(name="t", description="d", input_schema=True),
        ToolSpec(name="t", description="d", output_schema=True),
        ToolSpec(name="t", description="d", timeout="5"),
        ToolSpec(name="t", description="d", timeout=-1),
        ToolSpec(name="t", description="d", handler=5),
        ToolSpec(name="t", description="d", tags=[5]),
    ],
)
def test_whatever_is_odd_is_refused_as_a_definition(odd):
    with pytest.raises(DefinitionError):
        Registry().register(odd)


def test_odd_definitions_in_a_config_stop_nothing(tmp_path):
    from onetool import App

    fine = {"description": "d", "type": "function", "handler": "h", "parameters": {"type": "object"}}
    mock = {"implementation": {"type": "mock", "mock_response": 1}}
    tools = [
        {**fine, **mock, "name": "a", "parameters": {"type": "object", "patternProperties": 5}},
        {**fine, "name": "b", "implementation": {"type": ["mock"]}},
        {**fine, **mock, "name": "c", "timeout": "NOT A NUMBER"},
        {**fine, **mock, "name": "good"},
    ]
    text = json.dumps({"tools": tools}).replace('"NOT A NUMBER"', ".nan")
    (tmp_path / "onetool.yaml").write_text(text)
    app = App.open(tmp_path / "onetool.yaml")
    assert [spec.name for spec in app.tools()][-1] == "good"
    assert len(app.mistakes) == 3


def test_a_borrowed_function_keeps_the_settings_of_its_pack(tmp_path, monkeypatch):
    from onetool import App

    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "open.txt").write_text("open")
    (tmp_path / "private.txt").write_text("private")
    parameters = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    reader = definition("reader", parameters=parameters, implementation={"type": "builtin", "handler": "fs.read_file"})
    (tmp_path / "onetool.yaml").write_text(json.dumps({"fs": {"roots": ["docs"]}, "tools": [reader]}))
    executor = App.open(tmp_path / "onetool.yaml").runtime.executor
    assert run(executor, "reader", path="open.txt").data == "open"
    assert run(executor, "reader", path="../private.txt").error.reason == "denied"
    assert run(executor, "reader", path=str(tmp_path / "private.txt")).error.reason == "denied"


def test_older_spellings_are_exported_as_todays(live_tools):
    from onetool import provider_tools

    registry = Registry()
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "exclusiveMinimum": True}}}
    spec = registry.register(definition(parameters=schema))
    assert spec.parameters["properties"]["n"] == {"type": "integer", "exclusiveMinimum": 0}
    assert provider_tools([spec], "openai")[0]["function"]["parameters"]["properties"]["n"]["exclusiveMinimum"] == 0


def test_changing_a_mocks_response_after_registration_changes_nothing():
    response = {"list": [1]}
    registry = Registry()
    registry.register(definition("t", implementation={"type": "mock", "mock_response": response}))
    response["list"].append(2)
    assert run(Executor(registry)).data == {"list": [1]}


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        (
            {"type": "object", "properties": {"folder": {}, "path": {}}, "required": ["path"]},
            "folder: the handler takes no such",
        ),
        ({"type": "object", "properties": {"path": {}}}, "needs path"),
    ],
)
def test_parameters_that_do_not_fit_the_function_are_refused(parameters, told):
    with pytest.raises(DefinitionError, match=told):
        Registry().register(
            definition(parameters=parameters, implementation={"type": "builtin", "handler": "fs.read_file"})
        )


def test_a_mock_that_its_output_schema_forbids_is_refused():
    with pytest.raises(DefinitionError, match="mock_response"):
        Registry().register(definition(output_schema={"type": "string"}))


class Lazy:
    def __init__(self, name, enabled=True):
        self.name, self.enabled, self.kept_as, self.made = name, enabled, f"id of {name}", 0

    def spec(self):
        self.made += 1
        return ToolSpec(name=self.name, description="d", enabled=self.enabled, kept_as=self.kept_as)


def test_lazy_tools_are_listed_behind_the_others_and_made_when_they_are_needed():
    lazy = {"p": {"a": Lazy("p.a"), "b": Lazy("p.b", enabled=False)}, "q": {"c.d": Lazy("q.c.d")}}
    registry = Registry()
    registry.replace([ToolSpec(name="own", description="d"), ToolSpec(name="p.x", description="d")], None, lazy)
    before = registry.snapshot()
    assert list(registry.names()) == ["own", "p.x", "p.a", "p.b", "q.c.d"]
    assert len(before) == 5
    assert "p.a" in before
    assert "p.z" not in before
    assert before.unmatched(["q.c.d", "q.c"]) == ["q.c"]
    assert {pack: list(tools) for pack, tools in before.packs().items()} == {
        "config": ["own"],
        "p": ["x", "a", "b"],
        "q": ["c.d"],
    }
    assert not any(tool.made for tools in lazy.values() for tool in tools.values())
    assert before.get("p.a").kept_as == "id of p.a"
    assert before.get("p.z") is None
    assert before.packs()["q"]["c.d"].name == "q.c.d"
    assert [spec.name for spec in before.list(["q.c.d", "p.b", "own", "gone"])] == ["own", "p.b", "q.c.d"]
    assert [spec.name for spec in before] == list(registry.names())
    with pytest.raises(DuplicateToolError):
        registry.add(ToolSpec(name="p.a", description="another one"))
    registry.replace([])
    assert registry.get("p.a") is None
    assert before.get("p.a") is not None
