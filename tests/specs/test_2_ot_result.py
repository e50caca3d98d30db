"""2-ot-pack.md: one test for each scenario of `ot.result`, named after it."""

import json
import os
import re
from time import time

import pytest
from specs.ot import Agent

CATCHING = """
try:
    {}
except ValueError as error:
    said = str(error)
said
"""


class Reader(Agent):
    """An agent that has handles, and reads what is behind them."""

    def put(self, *lines):
        return self.app.results.put("\n".join(lines)).handle

    def numbered(self, count):
        return self.put(*(f"line {number}" for number in range(1, count + 1)))

    def age(self, seconds):
        """As if everything had been put so much earlier."""
        for file in (self.app.config.home / "results").glob("*.txt"):
            os.utime(file, (time() - seconds, time() - seconds))

    def query(self, **args):
        return self.value(call(args))

    def failure(self, **args):
        return self.error(call(args))


def call(args):
    return f"ot.result({', '.join(f'{name}={value!r}' for name, value in args.items())})"


@pytest.fixture
def reader(tmp_path):
    with Reader(tmp_path, stats={"enabled": False}) as reader:
        yield reader


# Requirement: Query Stored Results


def test_basic_query_with_defaults(reader):
    page = reader.query(handle=reader.numbered(250))
    assert page["lines"] == [f"line {number}" for number in range(1, 101)]


def test_query_with_offset_and_limit(reader):
    page = reader.query(handle=reader.numbered(500), offset=101, limit=50)
    assert page["lines"] == [f"line {number}" for number in range(101, 151)]


def test_query_with_search_filter(reader):
    handle = reader.put(*(f"{kind} {number}" for number in range(1, 4) for kind in ("error", "fine")))
    assert reader.query(handle=handle, search="error")["lines"] == ["error 1", "error 2", "error 3"]
    assert reader.query(handle=handle, search="^err.r [23]$")["lines"] == ["error 2", "error 3"]
    page = reader.query(handle=handle, search="error", offset=2, limit=1)
    assert (page["lines"], page["has_more"]) == (["error 2"], True)


def test_query_with_fuzzy_matching(reader):
    handle = reader.put("unrelated", "a confi_g is near", "the configuration")
    page = reader.query(handle=handle, search="config", fuzzy=True)
    assert page["lines"] == ["the configuration", "a confi_g is near"]


def test_invalid_handle(reader):
    error = reader.failure(handle="nonexistent")
    assert (error.code, error.reason) == ("execution_error", "not_found")
    assert error.message == "Handle not found: nonexistent"


def test_expired_handle(reader):
    handle = reader.put("x")
    reader.age(3601)
    error = reader.failure(handle=handle)
    assert (error.code, error.reason) == ("execution_error", "expired")
    assert error.message.startswith(f"Result has expired: {handle}")


def test_query_response_format(reader):
    page = reader.query(handle=reader.put("a", "b", "c"), limit=2)
    assert page == {"lines": ["a", "b"], "total_lines": 3, "returned": 2, "offset": 1, "has_more": True}


def test_1_indexed_offset(reader):
    assert reader.query(handle=reader.put("a", "b"), offset=1)["lines"] == ["a", "b"]


@pytest.mark.parametrize("offset", [0, -5])
def test_offset_validation(reader, offset):
    handle = reader.put("x")
    message = f"offset must be >= 1 (1-indexed), got {offset}"
    assert reader.failure(handle=handle, offset=offset).message == f"Invalid arguments for ot.result: {message}"
    assert reader.value(CATCHING.format(call({"handle": handle, "offset": offset}))).endswith(message)
    with pytest.raises(ValueError, match="offset") as raised:
        reader.app.registry.get("ot.result").handler(handle=handle, offset=offset)
    assert str(raised.value) == message


def test_limit_validation(reader):
    handle = reader.put("x")
    message = "limit must be >= 1, got 0"
    assert reader.failure(handle=handle, limit=0).message == f"Invalid arguments for ot.result: {message}"
    assert reader.value(CATCHING.format(call({"handle": handle, "limit": 0}))).endswith(message)
    with pytest.raises(ValueError, match="limit") as raised:
        reader.app.registry.get("ot.result").handler(handle=handle, limit=0)
    assert str(raised.value) == message


# Requirement: Result Query Logging


def test_span_naming(reader, caplog):
    caplog.set_level("INFO", "onetool.span")
    handle = reader.put("a", "b")
    reader.query(handle=handle)
    reader.query(handle=handle, offset=2, limit=5, search="b")
    reader.failure(handle="nonexistent")
    spans = [vars(record) for record in caplog.records if record.name == "onetool.span"]
    plain, searched, failed = (span for span in spans if span["span"] == "ot.result")
    assert (plain["handle"], plain["offset"], plain["limit"]) == (handle, 1, 100)
    assert "search" not in plain
    assert (searched["offset"], searched["limit"], searched["search"]) == (2, 5, "b")
    assert (failed["handle"], failed["outcome"]) == ("nonexistent", "error")


# What models see of it


def test_the_tool_is_described(reader):
    spec = reader.app.registry.get("ot.result")
    assert (spec.name, spec.read_only, spec.pure) == ("ot.result", True, False)
    assert list(spec.input_schema["properties"]) == ["handle", "offset", "limit", "search", "fuzzy"]
    assert list(spec.input_schema["required"]) == ["handle"]
    assert all("description" in schema for schema in spec.input_schema["properties"].values())


def test_a_hostile_pattern_neither_hangs_nor_breaks_the_call(reader):
    handle = reader.put("a" * 5000 + "!")
    assert reader.query(handle=handle, search="(a+)+$")["total_lines"] == 3
    assert "search is not a regular expression" in reader.failure(handle=handle, search="(a").message


def test_what_is_too_large_to_be_read_at_once_is_read_in_parts_to_its_end(reader):
    text = reader.reads("'\\n'.join(f'line {number}' for number in range(1, 5001))")
    handle = re.search(r'handle="(\w+)"', text)[1]
    code = f"""
lines, more = [], True
while more:
    page = ot.result(handle={handle!r}, offset=len(lines) + 1, limit=1000)
    lines += page["lines"]
    more = page["has_more"]
[len(lines), lines[0], lines[-1]]
"""
    assert reader.value(code) == [5000, "line 1", "line 5000"]


def test_a_page_of_a_large_result_is_small_enough_to_be_sent(reader):
    handle = reader.put(*(f"{number} " + "é" * 1500 for number in range(1, 2001)))
    for offset in (1, 1990):
        page = reader.query(handle=handle, offset=offset)
        assert page["lines"][0].startswith(f"{offset} ")
        assert page["total_lines"] == 2000
        assert 0 < page["returned"] < 10
        assert len(json.dumps(page, ensure_ascii=False).encode()) < reader.app.config.results.inline_bytes
