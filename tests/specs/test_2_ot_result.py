"""2-ot-pack.md: one test for each scenario of `ot.result`, named after it."""

from unittest.mock import AsyncMock

import pytest
from helpers import run

from onetool import Executor, Registry
from onetool.packs.ot import ot_tools
from onetool.services.results import Results


class Store:
    """An executor with the tool, and a clock that a test can set."""

    def __init__(self, folder):
        self.now = 1_700_000_000.0
        self.results = Results(folder, ttl_s=3600, max_total_mb=1, now=lambda: self.now)
        registry = Registry()
        for spec in ot_tools(self.results, 8192, words=lambda _: {}, look_after=AsyncMock()):
            registry.register(spec)
        self.executor = Executor(registry)
        self.spec = registry.get("ot.result")

    def put(self, *lines):
        return self.results.put("\n".join(lines)).handle

    def numbered(self, count):
        return self.put(*(f"line {number}" for number in range(1, count + 1)))

    def query(self, **args):
        result = run(self.executor, "ot.result", **args)
        assert result.ok, result.error
        return result.data

    def error(self, **args):
        result = run(self.executor, "ot.result", **args)
        assert not result.ok
        return result.error


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "results")


# Requirement: Query Stored Results


def test_basic_query_with_defaults(store):
    page = store.query(handle=store.numbered(250))
    assert page["lines"] == [f"line {number}" for number in range(1, 101)]


def test_query_with_offset_and_limit(store):
    page = store.query(handle=store.numbered(500), offset=101, limit=50)
    assert page["lines"] == [f"line {number}" for number in range(101, 151)]


def test_query_with_search_filter(store):
    handle = store.put(*(f"{kind} {number}" for number in range(1, 4) for kind in ("error", "fine")))
    assert store.query(handle=handle, search="error")["lines"] == ["error 1", "error 2", "error 3"]
    assert store.query(handle=handle, search="^err.r [23]$")["lines"] == ["error 2", "error 3"]
    page = store.query(handle=handle, search="error", offset=2, limit=1)
    assert (page["lines"], page["has_more"]) == (["error 2"], True)


def test_query_with_fuzzy_matching(store):
    handle = store.put("unrelated", "a confi_g is near", "the configuration")
    page = store.query(handle=handle, search="config", fuzzy=True)
    assert page["lines"] == ["the configuration", "a confi_g is near"]


def test_invalid_handle(store):
    error = store.error(handle="nonexistent")
    assert (error.code, error.reason) == ("execution_error", "not_found")
    assert error.message == "Handle not found: nonexistent"


def test_expired_handle(store):
    handle = store.put("x")
    store.now += 3601
    error = store.error(handle=handle)
    assert (error.code, error.reason) == ("execution_error", "expired")
    assert error.message.startswith(f"Result has expired: {handle}")


def test_query_response_format(store):
    page = store.query(handle=store.put("a", "b", "c"), limit=2)
    assert page == {"lines": ["a", "b"], "total_lines": 3, "returned": 2, "offset": 1, "has_more": True}


def test_1_indexed_offset(store):
    assert store.query(handle=store.put("a", "b"), offset=1)["lines"] == ["a", "b"]


@pytest.mark.parametrize("offset", [0, -5])
def test_offset_validation(store, offset):
    handle = store.put("x")
    message = f"offset must be >= 1 (1-indexed), got {offset}"
    error = store.error(handle=handle, offset=offset)
    assert error.code == "invalid_args"
    assert error.message == f"Invalid arguments for ot.result: {message}"
    spec = store.spec
    with pytest.raises(ValueError, match="offset") as caught:
        spec.handler(handle=handle, offset=offset)
    assert str(caught.value) == message


def test_limit_validation(store):
    handle = store.put("x")
    error = store.error(handle=handle, limit=0)
    assert error.message == "Invalid arguments for ot.result: limit must be >= 1, got 0"
    spec = store.spec
    with pytest.raises(ValueError, match="limit") as caught:
        spec.handler(handle=handle, limit=0)
    assert str(caught.value) == "limit must be >= 1, got 0"


# Requirement: Result Query Logging


def test_span_naming(store, caplog):
    caplog.set_level("INFO", "onetool.span")
    handle = store.put("a", "b")
    store.query(handle=handle)
    store.query(handle=handle, offset=2, limit=5, search="b")
    store.error(handle="nonexistent")
    plain, searched, failed = (vars(record) for record in caplog.records if record.name == "onetool.span")
    assert {event["span"] for event in (plain, searched, failed)} == {"ot.result"}
    assert (plain["handle"], plain["offset"], plain["limit"]) == (handle, 1, 100)
    assert "search" not in plain
    assert (searched["offset"], searched["limit"], searched["search"]) == (2, 5, "b")
    assert (failed["handle"], failed["outcome"]) == ("nonexistent", "error")


# What models see of it


def test_the_tool_is_described(store):
    spec = store.spec
    assert (spec.name, spec.read_only, spec.pure) == ("ot.result", True, False)
    assert list(spec.input_schema["properties"]) == ["handle", "offset", "limit", "search", "fuzzy"]
    assert list(spec.input_schema["required"]) == ["handle"]
    assert all("description" in schema for schema in spec.input_schema["properties"].values())


def test_a_hostile_pattern_neither_hangs_nor_breaks_the_call(store):
    handle = store.put("a" * 5000 + "!")
    assert store.query(handle=handle, search="(a+)+$")["total_lines"] == 3
    error = store.error(handle=handle, search="(a")
    assert error.code == "invalid_args"
    assert "regular expression" in error.message
