"""After a failure it is known what was done: which calls of a run were done, which failed, and which may have been."""

import asyncio
import logging
import threading

import pytest
from helpers import until_async

from onetool.core.call import ToolCall, ToolError, ToolResult
from onetool.script.run_result import CallLog
from onetool.services.journal.row import ArgumentHasher, RowMaker

TEXT = {"type": "string"}


@pytest.fixture
def shop(scripts):
    def fail(id="", password=""):
        raise LookupError(f"no customer {id}")

    scripts.tool("crm.set_tier", lambda **args: args["id"], id=TEXT)
    scripts.tool("crm.remind", fail, id=TEXT, password={"type": "string", "writeOnly": True})
    scripts.register("crm.count", {"type": "object", "properties": {}}, lambda: 3, read_only=True)
    return scripts


def lines(app, result):
    return [line.strip() for line in app.reply(result).text.splitlines()]


def test_an_exception_tells_what_was_done_before_it(shop):
    result = shop.run("crm.count()\nfor n in range(12):\n    crm.set_tier(id=str(n))\nprint('so far')\n1 / 0")
    assert result.meta["made"] == {"done": "crm.set_tier ×12, crm.count ×1"}  # what changes something comes first
    told = lines(shop.app, result)
    assert told[:2] == ["so far", "Error: ZeroDivisionError: division by zero"]
    assert told[-1] == "done: crm.set_tier ×12, crm.count ×1"


def test_failed_calls_have_their_arguments_masked_and_short(shop):
    code = "try:\n    crm.remind(id='x' * 500, password='open sesame')\nexcept Exception:\n    pass\ncrm.remind(id='7')"
    made = shop.run(code).meta["made"]
    first, second = made["failed"].split(", crm.remind")
    assert first.startswith("crm.remind(id='xxx")
    assert "password='***'" in first
    assert len(first) < 300
    assert second == "(id='7'): LookupError: no customer 7"
    assert made.keys() == {"failed"}


def test_a_run_that_made_no_calls_or_went_well_has_no_lists(shop):
    assert "made" not in shop.run("1 / 0").meta
    assert "made" not in shop.run("crm.no()").meta
    assert "made" not in shop.run("crm.count()").meta


@pytest.mark.parametrize(
    "code", ["mail.send(to='ann')", "import asyncio\nawait asyncio.gather(mail.send(to='ann'), mail.note(to='x'))"]
)
def test_a_timeout_tells_which_call_was_under_way(scripts, tmp_path, code):
    over, impatient = threading.Event(), type(scripts)(tmp_path, timeout_s=3)
    impatient.tool("mail.send", lambda to: over.wait(30), to=TEXT)
    impatient.tool("mail.note", lambda to: to, to=TEXT)
    try:
        assert impatient.value("mail.note(to='first')") == "first"  # the worker has started
        result = impatient.run(f"mail.note(to='bob')\n{code}")
    finally:
        over.set()
        impatient.app.close()
    assert result.error.reason == "timeout"
    assert result.meta["made"]["not known"] == "mail.send(to='ann')"
    assert result.meta["made"]["done"].startswith("mail.note ×")


def test_a_call_without_an_answer_may_have_been_done(shop):
    over = threading.Event()
    shop.register("mail.send", {"type": "object", "properties": {"to": TEXT}}, lambda to: over.wait(30), timeout=0.1)
    try:
        made = shop.run("try:\n    mail.send(to='ann')\nexcept Exception:\n    pass\ncrm.remind(id='7')").meta["made"]
    finally:
        over.set()
    assert made == {
        "failed": "crm.remind(id='7'): LookupError: no customer 7",
        "not known": "mail.send(to='ann'): mail.send did not respond within 0.1 s",
    }


def test_a_limit_tells_it_too(shop):
    result = shop.run("while True:\n    crm.count()")
    assert (result.error.reason, result.meta["made"]) == ("calls", {"done": "crm.count ×1000"})


def test_a_cancelled_run_leaves_it_in_the_log_and_in_the_audit_line(shop, caplog):
    events, over = [], threading.Event()
    shop.app.runtime.engine._recorders = (events.append,)
    began = threading.Event()

    def send(to):
        began.set()
        over.wait(30)

    shop.tool("mail.send", send, to=TEXT)

    async def cancel():
        running = asyncio.create_task(shop.app.run("crm.count()\nmail.send(to='ann')"))
        await until_async(began.is_set)
        running.cancel()
        with pytest.raises(asyncio.CancelledError) as stopped:
            await running
        return stopped.value

    try:
        with caplog.at_level(logging.WARNING, "onetool.run"):
            stopped = asyncio.run(cancel())
    finally:
        over.set()
    assert "was cancelled; done: crm.count ×1; not known: mail.send ×1" in caplog.text
    row = RowMaker(hasher=ArgumentHasher(b"key")).of_run(events[-1], 0.0)
    assert row.made == "done: crm.count ×1; not known: mail.send ×1"  # without values
    assert stopped.__notes__ == ["done: crm.count ×1", "not known: mail.send(to='ann')"]


class Nothing:
    def get(self, name):
        return None

    def names(self):
        return ()


def test_counts_and_names_tell_of_calls_without_an_answer():
    made = CallLog(Nothing())
    errors = {"done": None, "failed": ToolError(code="execution_error", message="no")}
    errors["late"] = ToolError(code="execution_error", message="no answer", reason="timeout")
    for name, error in {**errors, "running": None}.items():
        call = ToolCall(name, f"mail.{name}", {}, "test")
        made.began(call)
        if name != "running":
            made.ended(call, ToolResult(ok=error is None, error=error))
    assert made.counts() == "calls done: 1, failed: 1, not known: 2"
    assert made.names() == "done: mail.done ×1; failed: mail.failed ×1; not known: mail.running ×1, mail.late ×1"


def test_all_lists_together_have_under_2_kb():
    made = CallLog(Nothing())
    error = ToolError(code="execution_error", message="é" * 500)
    for number in range(1000):
        call = ToolCall(f"{number}", f"pack_{number}.a_long_name_of_a_tool", {"x": "é" * 500}, "test")
        made.began(call)
        if number % 3:
            made.ended(call, ToolResult(ok=number % 3 == 1, error=None if number % 3 == 1 else error))
    told = made.summary()
    assert sum(len(part.encode()) for part in told.values()) < 2048
    assert [part.rpartition(" … and ")[2].endswith(" more") for part in told.values()] == [True] * 3
