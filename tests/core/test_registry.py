"""The registry: frozen snapshots, whole swaps, and definitions that nobody can change afterwards."""

import copy
import json
import pickle
import threading

import pytest
from helpers import definition, run
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
    for part in ("name: expected text", "description: required", "handler: required", "implementation: required"):
        assert part in message
    assert "descripton: unknown key (did you mean description?)" in message
    assert 'parameters.type: expected "object"' in message


@pytest.mark.parametrize("wrong", [None, [], "tool", 5])
def test_what_is_not_a_mapping_is_not_a_definition(wrong):
    with pytest.raises(DefinitionError, match="mapping"):
        Registry().register(wrong)


@pytest.mark.parametrize(
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
    ids=str,
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
