"""Counts of events, and the text that Prometheus reads."""

from services.exposition import read_exposition

from onetool.core.call import ToolCall, ToolError
from onetool.core.context import CallEvent, RequestEvent, RunEvent
from onetool.core.spec import ToolSpec
from onetool.services.metrics import MAX_TOOLS, Family, Metrics, Sample, exposition


def call(name, error=None, ms=20.0, is_known=True):
    spec = ToolSpec(name=name, description="", handler=print) if is_known else None
    return CallEvent.of(ToolCall("1", name), error=error, spec=spec, duration_ms=ms)


def text_of(metrics):
    return read_exposition(exposition({"": metrics.families()}))


def test_calls_are_counted_by_tool_and_outcome():
    metrics = Metrics()
    metrics.observe(call("a.b"))
    metrics.observe(call("a.b", ms=3_000))
    metrics.observe(call("a.b", ToolError(code="execution_error", message="secret", reason="timeout")))
    metrics.observe(call("a.b", ToolError(code="execution_error", message="secret", reason="of the author")))
    found = text_of(metrics)
    counted = {dict(labels)["outcome"]: value for labels, value in found["onetool_calls_total"].items()}
    assert counted == {"ok": 2, "timeout": 1, "execution_error": 1}
    buckets = {dict(labels)["le"]: value for labels, value in found["onetool_call_duration_seconds_bucket"].items()}
    assert (buckets["0.01"], buckets["0.025"], buckets["2.5"], buckets["5.0"], buckets["+Inf"]) == (0, 3, 3, 4, 4)
    assert [*found["onetool_call_duration_seconds_sum"].values()] == [3.06]


def test_tools_beyond_a_number_and_names_of_callers_are_others():
    metrics = Metrics()
    metrics.observe(call("sk-a-token-in-place-of-a-name", is_known=False))
    for number in range(MAX_TOOLS + 20):
        metrics.observe(call(f"a.t{number}"))
    metrics.observe(call("a.t0"))
    found = {dict(labels)["tool"]: value for labels, value in text_of(metrics)["onetool_calls_total"].items()}
    assert len(found) == MAX_TOOLS + 1
    assert (found["other"], found["a.t0"]) == (21, 2)
    assert "sk-a-token-in-place-of-a-name" not in found


def test_requests_have_our_routes_and_known_methods():
    metrics = Metrics()
    for method, route in (("GET", "/mcp"), ("BREW", ""), ("GET", "/mcp")):
        metrics.observe(RequestEvent(method=method, route=route, status=200, seconds=0.1, ended_at=1.0))
    found = text_of(metrics)["onetool_http_requests_total"]
    assert {(dict(one)["method"], dict(one)["route"]): value for one, value in found.items()} == {
        ("GET", "/mcp"): 2,
        ("other", "other"): 1,
    }


def test_runs_are_counted():
    metrics = Metrics()
    metrics.observe(RunEvent(id="1", source="run", duration_ms=1.0, code_bytes=3))
    assert text_of(metrics)["onetool_runs_total"] == {(("outcome", "ok"),): 1}


def test_lines_of_one_name_stay_together_and_labels_are_escaped():
    family = Family("x", "gauge", "Help.", [Sample(1, (("a", 'q"\\\n'),))])
    text = exposition({"r1": [family], "r2": [family]})
    assert text.count(b"# TYPE x gauge") == 1
    assert {dict(labels)["replica"] for labels in read_exposition(text)["x"]} == {"r1", "r2"}
    assert {dict(labels)["a"] for labels in read_exposition(text)["x"]} == {'q"\\\n'}


def test_half_of_a_surrogate_pair_in_a_name_does_not_cost_the_response():
    text = exposition({"": [Family("a", "gauge", "A.", [Sample(1.0, (("tool", "x.\ud800"),))])]})
    assert read_exposition(text)["a"] == {(("tool", "x.?"),): 1.0}
