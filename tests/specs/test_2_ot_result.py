"""2-ot-pack.md: one test for each scenario of `ot.result`, named after it."""

import re

import pytest
import yaml
from specs.ot import Agent

from onetool.app.database import open_state

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
        return self.app.runtime.results.put("\n".join(lines)).handle

    def numbered(self, count):
        return self.put(*(f"line {number}" for number in range(1, count + 1)))

    def age(self, seconds):
        """As if everything had been put so much earlier."""
        with open_state(self.app.config) as database:
            database.write(lambda work: work.execute("UPDATE results SET at = at - %s", (seconds,)))

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
    assert reader.query(handle="nonexistent") == "Handle not found: nonexistent"


def test_expired_handle(reader):
    handle = reader.put("x")
    reader.age(3601)
    assert reader.query(handle=handle).startswith(f"Result has expired: {handle}")


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
    assert reader.value(CATCHING.format(call({"handle": handle, "offset": offset}))) == message
    assert reader.value(CATCHING.format(call({"handle": "nonexistent", "offset": offset}))) == message
    with pytest.raises(ValueError, match="offset") as raised:
        reader.app.catalog.registry.get("ot.result").handler(handle=handle, offset=offset)
    assert str(raised.value) == message


def test_limit_validation(reader):
    handle = reader.put("x")
    message = "limit must be >= 1, got 0"
    assert reader.failure(handle=handle, limit=0).message == f"Invalid arguments for ot.result: {message}"
    assert reader.value(CATCHING.format(call({"handle": handle, "limit": 0}))) == message
    assert reader.value(CATCHING.format(call({"handle": "nonexistent", "limit": 0}))) == message
    with pytest.raises(ValueError, match="limit") as raised:
        reader.app.catalog.registry.get("ot.result").handler(handle=handle, limit=0)
    assert str(raised.value) == message


# Requirement: Result Query Logging


def test_span_naming(reader, caplog):
    caplog.set_level("INFO", "onetool.span")
    handle = reader.put("a", "b")
    reader.query(handle=handle)
    reader.query(handle=handle, offset=2, limit=5, search="b")
    reader.query(handle="nonexistent")
    spans = [vars(record) for record in caplog.records if record.name == "onetool.span"]
    plain, searched, failed = (span for span in spans if span["span"] == "ot.result")
    assert (plain["handle"], plain["offset"], plain["limit"]) == (handle, 1, 100)
    assert "search" not in plain
    assert (searched["offset"], searched["limit"], searched["search"]) == (2, 5, "b")
    assert (failed["handle"], failed["outcome"]) == ("nonexistent", "error")


# What models see of it


def test_the_tool_is_described(reader):
    spec = reader.app.catalog.registry.get("ot.result")
    assert (spec.name, spec.read_only, spec.pure) == ("ot.result", True, False)
    assert list(spec.input_schema["properties"]) == ["handle", "offset", "limit", "search", "fuzzy", "column"]
    assert list(spec.input_schema["required"]) == ["handle"]
    assert all("description" in schema for schema in spec.input_schema["properties"].values())


def test_a_hostile_pattern_neither_hangs_nor_breaks_the_call(reader):
    handle = reader.put("a" * 5000 + "!")
    assert reader.query(handle=handle, search="(a+)+$")["total_lines"] == 1
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


# Lines are lines; only what is sent is cut


def long_lines(reader, count=120, length=1500):
    return reader.put(*(f"{number} " + "é" * length for number in range(1, count + 1)))


def sent(reader, **args):
    """What a client reads of a page."""
    text = reader.reads(call(args))
    assert len(text.encode()) <= reader.app.config.results.inline_bytes
    return yaml.safe_load(text)


@pytest.mark.parametrize("length", [300, 1500])
def test_code_gets_all_lines_also_long_ones(reader, length):
    handle = long_lines(reader, length=length)
    page = reader.query(handle=handle)
    assert [int(line.partition(" ")[0]) for line in page.pop("lines")] == list(range(1, 101))
    assert page == {"total_lines": 120, "returned": 100, "offset": 1, "has_more": True}
    assert reader.query(handle=handle, search="é")["numbers"] == list(range(1, 101))
    assert sent(reader, handle=handle)["returned"] < 30
    printed = reader.app.reply(reader.app.run_sync(f"print(ot.result(handle={handle!r}))"))
    assert printed.stored is not None
    assert len(printed.text.encode()) <= reader.app.config.results.inline_bytes


def test_a_page_that_is_too_large_to_send_is_cut_where_it_is_sent(reader):
    handle = long_lines(reader, length=500)
    for offset in (1, 90):
        page = sent(reader, handle=handle, offset=offset)
        returned = page["returned"]
        assert 3 < returned < 31
        assert [int(line.partition(" ")[0]) for line in page["lines"]] == list(range(offset, offset + returned))
        assert all(len(line) > 500 for line in page["lines"])
        assert (page["total_lines"], page["offset"], page["has_more"]) == (120, offset, True)
        assert (page["cut"], page["next"]) == (True, {"offset": offset + returned, "column": 1})
    assert "cut" not in sent(reader, handle=handle, offset=120)


@pytest.mark.parametrize("search", [None, "[0-9]"])
def test_what_was_sent_together_is_the_whole_also_inside_of_a_long_line(reader, search):
    lines = ["1 first", "2 " + 'é\t"' * 9_000, "3 last"]
    handle, next, read = reader.put(*lines), {"offset": 1, "column": 1}, {}
    pages = 0
    while next:
        page = sent(reader, handle=handle, **next, **({"search": search} if search else {}))
        assert page.get("column", 1) == next["column"]
        for number, line in enumerate(page["lines"], page["offset"]):
            read[number] = read.get(number, "") + line
        next = page.get("next")
        assert page["has_more"] is page.get("cut", False) is (next is not None)
        pages += 1
    assert (list(read.values()), pages > 3) == (lines, True)


def test_a_column_begins_inside_of_a_line(reader):
    page = reader.query(handle=reader.put("abcdef", "ghi"), column=3)
    assert page == {
        "lines": ["cdef", "ghi"],
        "total_lines": 2,
        "returned": 2,
        "offset": 1,
        "column": 3,
        "has_more": False,
    }
    assert reader.query(handle=reader.put("abc"), column=99)["lines"] == [""]
    assert "column must be >= 1 (1-indexed), got 0" in reader.failure(handle="nonexistent", column=0).message


def test_other_tools_get_whole_pages_and_value_errors(tmp_path):
    pack = '''
from onetool.sdk import call_tool

def first(handle: str) -> int:
    """Read a page, and tell how many lines it has."""
    return len(call_tool("ot.result", handle=handle)["lines"])

def wrong(offset: int = 1, limit: int = 1) -> str:
    """Read a page in vain."""
    try:
        return call_tool("ot.result", handle="nonexistent", offset=offset, limit=limit)
    except ValueError as error:
        return f"ValueError: {error}"
'''
    (tmp_path / "packs").mkdir()
    (tmp_path / "packs" / "reading.py").write_text(pack)
    with Reader(tmp_path, stats={"enabled": False}) as reader:
        assert reader.value(f"reading.first(handle={long_lines(reader)!r})") == 100
        assert reader.value("reading.wrong(offset=0)") == "ValueError: offset must be >= 1 (1-indexed), got 0"
        assert reader.value("reading.wrong(limit=0)") == "ValueError: limit must be >= 1, got 0"
        assert reader.value("reading.wrong()") == "Handle not found: nonexistent"
