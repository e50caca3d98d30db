"""Logging: one line of JSON for a program, plain words for a person."""

import io
import json
import logging

from onetool.core.call import ToolCall, ToolError
from onetool.core.context import CallEvent
from onetool.core.spec import ToolSpec
from onetool.services.logs import log_call, set_up_logging


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_one_json_object_a_line():
    stream = io.StringIO()
    set_up_logging("info", stream)
    error = ToolError(code="execution_error", message="line one\nline two", reason="timeout")
    spec = ToolSpec(name="a.b", description="d", input_schema={"type": "object", "properties": {"x": {}}})
    event = CallEvent.of(call=ToolCall("7", "a.b", {"x": 1}, "cli"), spec=spec, duration_ms=1.5, error=error)
    log_call(event, lambda value: value)
    (line,) = stream.getvalue().splitlines()
    event = json.loads(line)
    assert event["span"] == "a.b"
    assert (event["code"], event["reason"], event["error"]) == ("execution_error", "timeout", "line one\nline two")
    assert (event["call_args"], event["level"], event["logger"]) == ({"x": 1}, "info", "onetool.call")


def test_half_of_a_surrogate_pair_is_logged_like_other_arguments():
    stream = io.StringIO()
    set_up_logging("info", stream)
    spec = ToolSpec(name="a.b", description="d", input_schema={"type": "object", "properties": {"x": {}}})
    log_call(CallEvent.of(call=ToolCall("7", "a.b", {"x": "\ud800"}), spec=spec), lambda value: value)
    assert json.loads(stream.getvalue())["call_args"] == {"x": "\ud800"}


def test_below_the_level_nothing_is_said():
    stream = io.StringIO()
    set_up_logging("warning", stream)
    log_call(CallEvent.of(call=ToolCall("7", "a.b"), duration_ms=1.5), lambda value: value)
    assert stream.getvalue() == ""


def test_plain_words_on_a_terminal():
    stream = Terminal()
    set_up_logging("warning", stream)
    logging.getLogger("onetool").error("it broke", extra={"hint": "mend it"})
    assert stream.getvalue() == "error: it broke\n  hint: mend it\n"


def test_an_exception_is_part_of_the_line():
    stream = io.StringIO()
    set_up_logging("debug", stream)
    try:
        raise ValueError("deep inside")
    except ValueError:
        logging.getLogger("onetool.x").exception("failed")
    (line,) = stream.getvalue().splitlines()
    assert "deep inside" in json.loads(line)["exception"]


def test_other_loggers_are_left_alone():
    stream = io.StringIO()
    set_up_logging("debug", stream)
    logging.getLogger("somebody.else").error("not ours")
    assert stream.getvalue() == ""
