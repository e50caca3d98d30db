"""Calls of the past: they decide between tools that fit alike, for their caller only, and are few."""

import asyncio

from onetool import App, ToolCall
from onetool.app.call_evidence import MAX_CALLERS, MAX_EVIDENCE, MAX_TOOLS, CallEvidence
from onetool.config import load_config
from onetool.core.context import CallEvent
from onetool.core.principal import Principal


def test_calls_count_a_little_and_never_much():
    evidence = CallEvidence()
    evidence.record("ann", "a.b")
    once = evidence.of("ann")["a.b"]
    for _ in range(1000):
        evidence.record("ann", "a.b")
    assert 0 < once < evidence.of("ann")["a.b"] == MAX_EVIDENCE
    assert evidence.of("bob") == {}


def test_it_is_bounded():
    evidence = CallEvidence()
    for number in range(MAX_CALLERS + 10):
        evidence.record(f"caller {number}", "a.b")
    for number in range(MAX_TOOLS + 10):
        evidence.record("last", f"a.tool_{number}")
    assert evidence.of("caller 0") == {}
    assert len(evidence.of("last")) == MAX_TOOLS
    assert "a.tool_0" not in evidence.of("last")


def test_a_call_counts_for_its_caller_wherever_it_ends(tmp_path):
    ann = Principal(name="ann", owner="ann")
    with App.open(None) as app:
        catalog = app.catalog
        spec = catalog.registry.get("time.now")
        call = ToolCall("1", spec.name, {})
        catalog.count_call(CallEvent.of(call=call, spec=spec, duration_ms=1.0, principal=ann))
        assert spec.name in catalog._evidence.of("ann")
        assert catalog._evidence.of("") == {}


def test_what_was_called_with_success_comes_before_its_twin(tmp_path):
    config = tmp_path / "onetool.yaml"
    tools = "\n".join(
        f"- {{name: {name}, description: Ring the bell, type: function, handler: x, parameters: {{type: object}}, "
        f"implementation: {{type: mock, mock_response: {{done: 1}}}}}}"
        for name in ("do_a", "do_b")
    )
    config.write_text(f"tools:\n{tools}\n")
    with App(load_config(config)) as app:
        before = [spec.name for spec, _ in app.search("ring the bell", 2)]
        assert asyncio.run(app.call(ToolCall("1", before[1], {"wrong": 1}))).error is not None
        assert [spec.name for spec, _ in app.search("ring the bell", 2)] == before
        assert asyncio.run(app.call(ToolCall("2", before[1], {}))).ok
        assert asyncio.run(app.call(ToolCall("3", before[1], {}))).ok
        assert [spec.name for spec, _ in app.search("ring the bell", 2)] == before[::-1]
