"""What the reader of a run gets: prints, then the value; or where a large result is kept and how to read on."""

import pytest

from onetool import App
from onetool.core.call import ToolError
from onetool.core.errors import ToolFailure
from onetool.script.render import _beginning, in_code, run_reply, shape_text
from onetool.script.run_result import RunResult


def answer(data=None, printed="", error=None, store=None):
    return run_reply(RunResult(ok=error is None, data=data, printed=printed, error=error), 100, store, in_code, 4096)


def test_prints_come_before_the_value():
    assert answer({"a": [1, 2]}, "one\ntwo\n").text == "one\ntwo\n{a: [1, 2]}"
    assert answer(None, "one\n").text == "one"
    assert answer("text").text == "text"
    assert answer().text == ""
    assert answer([{"a": 1}, {"a": 2}]).text == "- {a: 1}\n- {a: 2}"


def test_data_goes_along_for_those_who_take_it():
    assert answer({"a": 1}).structured == {"a": 1}


def test_an_error_says_what_where_and_how():
    error = ToolError(code="execution_error", message="ValueError: no", hints=("line 1: f()", "do better"))
    told = answer(printed="before\n", error=error)
    assert told.text == "before\nError: ValueError: no\n  line 1: f()\n  do better"
    assert told.is_error


@pytest.fixture
def app():
    with App.open() as app:
        yield app


def test_a_large_result_is_stored_and_can_be_read_on(app):
    result = app.run_sync("[{'number': i, 'name': f'item {i}'} for i in range(2000)]")
    told = app.reply(result)
    assert 4000 < len(told.preview.encode()) <= 4096
    assert len(told.text.encode()) < 4500
    assert told.structured.keys() == {"handle", "size", "lines", "next"}  # the preview is not repeated
    assert told.structured["lines"] == 2000
    assert told.structured["size"] > 16384
    shape, first, *_, last = told.preview.splitlines()
    assert (shape, first) == ("Shape: list[{number: int, name: str}], 2,000 items", "- {number: 0, name: item 0}")
    assert f"{told.preview}\nRead on with: {told.structured['next']}" in told.text
    page = app.run_sync(told.structured["next"]).data
    number = int(last.partition(",")[0].rpartition(" ")[2]) + 1
    assert page["lines"][0] == f"- {{number: {number}, name: item {number}}}"
    assert page["total_lines"] == 2000
    found = app.run_sync(f'ot.result(handle="{told.structured["handle"]}", search="item 777")["lines"]').data
    assert found == ["- {number: 777, name: item 777}"]


def test_one_long_line_is_read_on_too(app):
    told = app.reply(app.run_sync("'x' * 50000"))
    assert told.structured["size"] == 50000
    assert told.preview == "x" * 4096 + "…"
    page = app.run_sync(told.structured["next"])
    reply = app.reply(page)  # a page is cut, never stored in its turn
    sent = reply.structured
    assert (len(page.data["lines"][0]), reply.stored) == (50000, None)
    assert set(sent["lines"][0]) == {"x"}
    assert sent["next"] == {"offset": 1, "column": len(sent["lines"][0]) + 1}


def test_wanted_whole_it_is_whole(app):
    assert app.reply(app.run_sync("'x' * 50000"), whole=True).text == "x" * 50000


def test_what_cannot_be_stored_is_not_lost_in_silence():
    def full(_text, _value):
        raise ToolFailure("no space left on the device")

    told = answer("x\n" * 500, store=full)
    assert told.is_error
    assert "no space left" in told.text
    assert told.text.startswith("x\nx\n")


def test_what_was_printed_before_an_error_is_stored_too(app):
    told = app.reply(app.run_sync("print('x\\n' * 20000)\n1 / 0"))
    assert told.is_error
    assert len(told.text) < 4500
    assert told.text.endswith("Error: ZeroDivisionError: division by zero\n  line 2: 1 / 0")
    assert "ot.result(handle=" in told.text


@pytest.mark.parametrize(
    ("value", "shape"),
    [
        ([1, 2.5], "list[float], 2 items"),
        ({"n": 3, "rows": [{"id": 1}]}, "{n: int, rows: list[{id: int}]}, rows: 1 items"),
        ({f"{n}@example.com": n for n in range(99)}, "dict[str, int], 99 keys"),
        ([], "list, 0 items"),
    ],
)
def test_the_shape_of_data(value, shape):
    assert shape_text(value) == shape


@pytest.mark.parametrize(
    ("text", "most", "beginning"),
    [
        ("a\nb\nc", 5, ("a\nb\nc", 3)),
        ("a\nb\nc", 4, ("a\nb", 2)),
        ("é\né\n", 5, ("é", 1)),
        ("ééé", 5, ("éé…", 0)),
    ],
)
def test_a_preview_has_whole_lines(text, most, beginning):
    assert _beginning(text, most) == beginning


@pytest.mark.parametrize("message", ["Error executing tool add: no", "Error: no such file", "error: no"])
def test_that_it_is_an_error_is_said_once(message):
    assert answer(error=ToolError(code="execution_error", message=message)).text == message
    assert answer(error=ToolError(code="execution_error", message="errors.txt: no")).text == "Error: errors.txt: no"
