"""Every call is one row, whatever it was given and whatever it gave; and no argument or value is in the file."""

import math
from collections import UserDict

from helpers import calls, each, examples
from hypothesis import given, settings
from hypothesis import strategies as some
from services.journals import Counted
from stats_database import BOTH, asked, place

from onetool.core.call import ToolCall, ToolError
from onetool.core.context import CallEvent, RunEvent
from onetool.core.json_data import size_of
from onetool.core.spec import ToolSpec
from onetool.database.sqlite import SqliteDatabase

__all__ = ["place"]

FIELDS = "tool, source, via, client, run, outcome, reason, ms, bytes_in, bytes_out, what, who, id, args"


def rows(stats, place, what=FIELDS):
    stats.flush()
    return asked(place, f"SELECT {what} FROM events WHERE kind = 'call' ORDER BY at, number")


@BOTH
def test_a_call_that_went_well(place):
    stats = Counted(place)
    spec = ToolSpec(name="a.b", description="d", source="proxy:x")
    call = ToolCall("1", "a.b", {"q": "é"}, "mcp")
    stats.record(CallEvent.of(call=call, spec=spec, duration_ms=1.5, value=[1, 2], client="claude", run="r-1"))
    # {"q":"é"} takes 10 bytes, [1,2] takes 5; without an audit log, nobody is named
    expected = ("a.b", "proxy:x", "mcp", "claude", "r-1", "ok", None, 1.5, 10, 5, None, None, None, None)
    assert rows(stats, place) == [expected]


def test_a_call_that_failed(place):
    stats = Counted(place)
    error = ToolError(code="execution_error", message="no", reason="timeout")
    stats.record(CallEvent.of(call=ToolCall("1", "a.b"), duration_ms=1.0, error=error))
    size = len('{"code":"execution_error","message":"no","reason":"timeout"}')
    assert rows(stats, place, "source, outcome, reason, bytes_out") == [("", "execution_error", "timeout", size)]


def test_nothing_that_was_said_is_in_the_file(place, tmp_path):
    stats = Counted(place)
    error = ToolError(code="execution_error", message="SECRET-M", reason="could not read SECRET-R", hints=("SECRET-H",))
    stats.record(CallEvent.of(call=ToolCall("SECRET-I", "a.b", {"x": "SECRET-A"}), duration_ms=1.0, value="SECRET-V"))
    stats.record(CallEvent.of(call=ToolCall("1", "a.b", {"x": "SECRET-A"}), duration_ms=1.0, error=error))
    stats.record_run(RunEvent(id="r", source="mcp", duration_ms=1.0, code_bytes=9, error=error))
    stats.flush()
    place.shrink()  # everything is in the file itself
    content = (tmp_path / "state.db").read_bytes()
    assert b"execution_error" in content
    assert b"SECRET" not in content


@BOTH
def test_names_from_outside_are_cut_and_printable(place):
    stats = Counted(place)
    for client in ("x" * 5000, "a\0b\n\x1b[31m", "\udcff", "naïve ☃"):
        stats.record(CallEvent.of(call=ToolCall("1", "a.b"), duration_ms=1.0, client=client))
    found = [client for (client,) in rows(stats, place, "client")]
    assert found == [
        "x" * 99 + "…",
        "a\N{REPLACEMENT CHARACTER}b" + "\N{REPLACEMENT CHARACTER}" * 2 + "[31m",
        "\ufffd",
        "naïve ☃",
    ]


@each(
    ("value", "size"),
    [
        ("", 0),
        ("abc", 3),
        ("é☃", 5),
        ("\ud800", 1),  # as the question mark that it becomes
        (None, 4),
        (math.nan, 4),
        ({"a": [1, 2.5, True]}, 18),
        ({"a": "\ud800"}, 9),
        ([10**5000], 5003),
        ({"deep": {"er": 2**70}}, len('{"deep":{"er":1180591620717411303424}}')),
        ({1: "x", None: "y"}, len('{1:"x",null:"y"}')),
        (UserDict(a=1), 7),
        (b"abc", 6),
        (object(), 4),
    ],
)
def test_sizes_are_those_of_the_json(value, size):
    assert size_of(value) == size


def test_many_parts_beside_half_a_surrogate_pair_are_measured_at_once():
    value = ["\ud800", *({"a": 0} for _ in range(10_000))]
    with calls(1000):
        assert size_of(value) > 80_000


def test_what_contains_itself_has_a_size():
    endless = [1, 2]
    endless.append(endless)
    assert 0 < size_of(endless) < 100


odd = (
    some.none()
    | some.booleans()
    | some.integers()
    | some.floats()
    | some.binary(max_size=20)
    | some.integers(4400, 4500).map(lambda digits: 10**digits)
)
words = some.text(some.characters(exclude_categories=()), max_size=20)  # with half surrogates
data = some.recursive(
    odd | words,
    lambda inner: some.lists(inner, max_size=4) | some.dictionaries(words | odd, inner, max_size=4),
    max_leaves=12,
)


class Hostile(dict):
    def __iter__(self):
        raise RuntimeError("no")

    items = keys = values = __len__ = __repr__ = __str__ = __iter__


@settings(max_examples=examples(60), deadline=None)
@given(calls=some.lists(some.tuples(words, data, data), max_size=8), hostile=some.booleans())
def test_every_call_gives_exactly_one_row(tmp_path_factory, calls, hostile):
    place = SqliteDatabase(tmp_path_factory.mktemp("stats") / "state.db")
    stats = Counted(place)
    if hostile:
        calls = [*calls, ("t", Hostile(a=1), Hostile(b=2))]
    for name, args, value in calls:
        stats.record(CallEvent.of(call=ToolCall("1", name, args, name), duration_ms=1.0, value=value, client=name))
    stats.flush()
    if calls:
        found = rows(stats, place, "bytes_in, bytes_out")
        assert len(found) == len(calls)
        assert all(isinstance(size, int) and size >= 0 for row in found for size in row)
    assert stats.summary()["total_calls"] == len(calls)
    place.close()
