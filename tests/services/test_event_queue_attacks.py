"""Attacks on the queues of events: floods, losses, order, and events that can't be written.

Nobody's line hides the line of another caller, and no line is missing without a gap line that says so.
"""

import gc
import os
import signal
import subprocess
import sys
import threading
import weakref
from pathlib import Path

import pytest
from helpers import until
from services.audit_places import Flaky, lines, lines_in
from services.test_audit import CI, SPEC, event

from onetool.config.model import AuditConfig
from onetool.core.call import ToolCall, ToolError
from onetool.core.context import CallEvent, RunEvent
from onetool.core.principal import Principal
from onetool.database.sqlite import SqliteDatabase
from onetool.interfaces.http.request_log import AccessHandler, LoggedRequest, write_entry
from onetool.services import event_queue
from onetool.services.audit import AuditEntry, AuditLog, AuditUnavailableError
from onetool.services.event_queue import EventQueue, Recorder

pytestmark = pytest.mark.attack("event queue")

MANY = 1_200  # lines: more than one transaction takes
OTHER = Principal(name="ann", owner="ann", role="call")


@pytest.fixture
def place(tmp_path: Path):
    found = Flaky(SqliteDatabase(tmp_path / "state.db"))
    yield found
    found.close()


@pytest.fixture
def log(place):
    log = AuditLog(place, AuditConfig())
    yield log
    log.close()


def whats(place) -> list[str]:
    return [line["what"] for line in lines(place)]


def of(principal: Principal, name: str = "web.get", **more) -> CallEvent:
    return CallEvent.of(ToolCall("c-1", name, {}, "mcp"), spec=SPEC, principal=principal, **more)


def fill(log: AuditLog, place, limit: int, count: int, principal: Principal = CI) -> None:
    """Fill the queue with lines of one caller, while nothing can be written."""
    log.flush()
    place.is_away, log.queue.max_waiting = True, limit
    for _ in range(count):
        log.record_event(of(principal))


def come_back(log: AuditLog, place) -> None:
    place.is_away = False
    log.flush()


# A flood


def test_a_flood_hides_no_line_of_another_caller(log, place) -> None:
    fill(log, place, 50, 500)
    for number in range(10):
        log.record_event(of(OTHER, f"web.{number}"))
    come_back(log, place)
    assert [line["what"] for line in lines(place) if line["who"] == "ann" and line["kind"] == "call"] == [
        f"web.{number}" for number in range(10)
    ]


def test_who_floods_before_a_dangerous_call_is_named_by_the_gap(log, place) -> None:
    fill(log, place, 50, 60)
    log.record_event(of(CI, "shell.run"))
    come_back(log, place)
    assert "shell.run" not in whats(place)
    [gap] = [line for line in lines(place) if line["kind"] == "gap"]
    assert (gap["what"], gap["who"]) == ("11 lines of ci lost", "ci")


def test_a_flood_of_required_lines_lets_nothing_run(place) -> None:
    log = AuditLog(place, AuditConfig(mode="required"))
    fill(log, place, 5, 50)
    with pytest.raises(AuditUnavailableError):
        log.write_entry(log.begun(ToolCall("c-2", "shell.run", {}, "mcp")))
    come_back(log, place)
    assert "shell.run" not in whats(place)
    log.close()


def test_nobody_floods_in_the_name_of_others(log, place) -> None:
    """A caller whose name is that of another one's lines in the queue, or of no caller."""
    names = ["", "(nobody)", "onetool.access", "ann\u200b", "ANN", "ann ", "ann\n", "a" * 300]
    fill(log, place, 100, 0)
    for name in names:
        for _ in range(200):
            log.record_event(of(Principal(name=name, owner=name)))
    log.record_event(of(OTHER, "web.hers"))
    come_back(log, place)
    assert "web.hers" in whats(place)


def test_refusals_without_a_credential_hide_no_known_caller(log, place) -> None:
    nobody = Principal(name="(nobody)")
    fill(log, place, 50, 0)
    for _ in range(500):
        log.record("refusal", "GET /status", principal=nobody)
    log.record("admin", "tokens add", principal=OTHER)
    come_back(log, place)
    assert "tokens add" in whats(place)


def test_very_many_callers_who_lose_lines_are_all_named(log, place) -> None:
    fill(log, place, 1, 1)
    for number in range(40_000):
        log.queue.lost[f"caller-{number}"] += 1
    come_back(log, place)
    gaps = [line for line in lines(place) if line["kind"] == "gap"]
    assert len(gaps) == 40_000
    log.flush()
    assert len(lines(place)) == 40_001


def test_callers_who_lose_lines_while_the_gaps_are_written(log, place) -> None:
    """The counts change in other threads at the same time."""
    fill(log, place, 1, 1)

    def lose() -> None:
        for number in range(3_000):
            log.record_event(of(Principal(name=f"c{number}", owner=f"c{number}")))

    threads = [threading.Thread(target=lose) for _ in range(4)]
    for thread in threads:
        thread.start()
    place.is_away = False
    for _ in range(30):
        log.queue.flush()  # raises what the writer raises
    for thread in threads:
        thread.join()
    log.queue.flush()
    counted = sum(int(line["what"].split()[0]) for line in lines(place) if line["kind"] == "gap")
    assert counted == log.lost


def test_an_access_log_that_is_flooded_keeps_the_requests_of_others(tmp_path: Path) -> None:
    recorder, seen = Recorder(), []
    recorder.observers.append(lambda request: seen.append(request.path))
    recorder.max_waiting = 50

    def request(path: str) -> LoggedRequest:
        return LoggedRequest(
            method="GET", route="", status=200, seconds=0.0, mcp="", trace=None, path=path, size=0, client="", more={}
        )

    with recorder._handling:  # the thread is busy
        for _ in range(500):
            write_entry(request("/flood"), recorder, "ci")
        write_entry(request("/hers"), recorder, "ann")
        write_entry(request("/nobody"), recorder)
    recorder.close()
    assert {"/hers", "/nobody"} <= {*seen}


# Events that can't be written


class Poison(str):
    """A text that fails whenever somebody looks at it, or writes it as JSON, which takes no kinds of `str`."""

    def isprintable(self) -> bool:
        raise ValueError("poison")

    __len__ = __hash__ = isprintable  # pyright: ignore[reportAssignmentType]


def poisoned(kind: str) -> CallEvent | RunEvent:
    if kind == "run":
        return RunEvent(
            id="r-1", source="mcp", duration_ms=1.0, code_bytes=1, principal=CI, client=Poison("x"), calls=0
        )
    if kind == "reason":
        return of(CI, error=ToolError(code="execution_error", message="m", reason=Poison("x")))
    if kind == "time":
        return of(CI, duration_ms="x")
    return of(CI, **{kind: Poison("x")})


KINDS = ["client", "address", "run", "reason", "time"]


@pytest.mark.parametrize("kind", KINDS)
def test_one_event_that_can_not_be_written_stops_no_other(log, place, kind) -> None:
    for number in range(MANY):
        log.record_event(poisoned(kind) if number == 700 else of(OTHER, f"web.{number}"))
    log.record("admin", "after")
    log.queue.flush()
    found = whats(place)
    assert [one for one in found if one.startswith("web.")] == [f"web.{n}" for n in range(MANY) if n != 700]
    assert found[-1] == "after"
    assert found[700] == "1 line of ci lost"


def test_an_event_that_becomes_an_entry_at_once_leaves_a_gap(log, place) -> None:
    args = {"x": "x" * 20_000}
    odd = CallEvent.of(ToolCall("c", "web.get", args, "mcp"), spec=SPEC, principal=CI, client=Poison("x"))
    log.record_event(odd)
    log.queue.flush()
    assert whats(place) == ["1 line of ci lost"]


@pytest.mark.parametrize("error", [ValueError, MemoryError, RecursionError, UnicodeError])
def test_whatever_a_line_raises_stops_no_other(log, place, error, monkeypatch) -> None:
    made = AuditEntry._line

    def line(entry) -> str:
        if entry.what == "odd":
            raise error("odd")
        return made(entry)

    monkeypatch.setattr(AuditEntry, "_line", line)
    for what in ("one", "odd", "two"):
        log.record("admin", what, principal=OTHER)
    log.queue.flush()
    assert whats(place) == ["one", "1 line of ann lost", "two"]


def test_where_the_log_is_required_a_line_that_can_not_be_written_refuses_the_call(place) -> None:
    log = AuditLog(place, AuditConfig(mode="required"))
    log.record("admin", "before")
    with pytest.raises(TypeError, match="Poison"):
        log.write("call", "shell.run", client=Poison("x"))
    log.write("call", "after")
    assert whats(place) == ["before", "after"]
    log.close()


def test_an_event_that_can_not_be_written_is_no_poison_after_an_outage(log, place) -> None:
    fill(log, place, 100, 3)
    log.record_event(poisoned("client"))
    log.flush()
    log.record_event(of(OTHER, "web.hers"))
    log.flush()
    come_back(log, place)
    assert whats(place) == ["web.get"] * 3 + ["1 line of ci lost", "web.hers"]


ODD = ["\ud800", "\x00", "\x1b[2J", "\u202e", "\u2028", "x" * 2_000_000, '"}\n{"kind":"admin"}', "\U0010ffff", ""]


@pytest.mark.parametrize("field", ["id", "name", "client", "address", "run", "who"])
def test_odd_texts_make_one_line_each(log, place, field) -> None:
    for odd in ODD:
        if field in ("id", "name"):
            call = ToolCall(**{"id": "c", "name": "web.get", "args": {}, "source": "mcp", field: odd})
            log.record_event(CallEvent.of(call, principal=CI))
        elif field == "who":
            log.record_event(of(Principal(name=odd, owner=odd)))
        else:
            log.record_event(of(CI, **{field: odd}))
    log.queue.flush()
    found = lines(place)
    assert len(found) == len(ODD)
    assert {line["kind"] for line in found} <= {"call", "refusal"}


@pytest.mark.parametrize("error", [ValueError, SystemExit, MemoryError, RecursionError])
def test_an_event_that_raises_does_not_end_the_thread(error, caplog) -> None:
    recorder, seen = Recorder(), []

    def fail() -> None:
        raise error("odd")

    for _ in range(3):
        recorder.put((fail, ()))
        recorder.put((seen.append, (1,)))
        until(lambda: recorder._thread is not None and not recorder.waiting)
    until(lambda: len(seen) == 3)
    recorder.close()
    assert "could not be recorded" in caplog.text


def test_a_reader_does_not_end_by_an_event_that_exits() -> None:
    recorder, seen = Recorder(), []
    recorder.put((sys.exit, (3,)))
    recorder.put((seen.append, (1,)))
    recorder.flush()
    recorder.close()
    assert seen == [1]


def test_a_writer_that_always_fails_keeps_no_other_from_writing(monkeypatch, caplog) -> None:
    monkeypatch.setattr(event_queue, "RETRY_S", 0.01)
    recorder, written = Recorder(), []
    recorder.writers += [lambda is_last: 1 / 0, lambda is_last: written.append(is_last)]
    recorder.put((int, ()))
    until(lambda: written)
    recorder.close()
    assert written[-1] is True
    assert "events could not be written" in caplog.text


# Memory


class Value(dict):
    """A dict that can be watched."""


def test_waiting_lines_hold_no_value_of_a_call(log, place) -> None:
    """A tool's first values are kept with their event, to learn from them. Ten thousand of them would be gigabytes."""

    class Observed:
        def learns_from(self, owner: str) -> bool:
            return True

    import msgspec

    value = Value(x=1)
    spec = msgspec.structs.replace(SPEC)
    msgspec.structs.force_setattr(spec, "observed", Observed())
    fill(log, place, 100, 0)
    made = CallEvent.of(ToolCall("c", "web.get", {}, "mcp"), value=value, spec=spec, principal=CI)
    assert made.value is value
    log.record_event(made)
    is_there = weakref.ref(value)
    del value, made
    gc.collect()
    assert is_there() is None
    come_back(log, place)
    assert whats(place) == ["web.get"]


def test_waiting_lines_hold_no_large_arguments(log, place) -> None:
    log.record("admin", "first")
    fill(log, place, 10_000, 0)
    for _ in range(200):
        log.record_event(event({"x": "x" * 1_000_000}))
    held = sum(sys.getsizeof(getattr(one, "text", one)) for one, _, _ in log.queue.waiting)
    assert held < 1_000_000
    come_back(log, place)
    assert len(lines(place)) == 201


def test_a_flood_while_nothing_can_be_written_has_a_limit(log, place) -> None:
    fill(log, place, event_queue.MAX_WAITING, 3 * event_queue.MAX_WAITING)
    log.flush()
    assert len(log.queue.waiting) <= event_queue.MAX_WAITING
    come_back(log, place)
    kept = [line for line in lines(place) if line["kind"] == "call"]
    assert len(kept) + log.lost == 3 * event_queue.MAX_WAITING


# Order


def test_lines_of_each_thread_are_in_their_order(log, place) -> None:
    def call(name: str) -> None:
        for number in range(300):
            log.record_event(of(Principal(name=name, owner=name), f"{name}.{number}"))

    threads = [threading.Thread(target=call, args=(name,)) for name in "abcdefgh"]
    for thread in threads:
        thread.start()
    for _ in range(20):
        log.queue.flush()
    for thread in threads:
        thread.join()
    log.queue.flush()
    found = whats(place)
    for name in "abcdefgh":
        assert [one for one in found if one.startswith(name)] == [f"{name}.{number}" for number in range(300)]


def test_a_required_line_comes_after_the_lines_before_it(place) -> None:
    log = AuditLog(place, AuditConfig(mode="required"))
    for number in range(MANY):
        log.record_event(of(CI, f"web.{number}"))
    log.write("call", "shell.run")
    assert whats(place) == [*(f"web.{number}" for number in range(MANY)), "shell.run"]
    log.close()


def test_reading_waits_for_events_that_another_thread_is_writing() -> None:
    seen, can_go_on = [], threading.Event()

    def handle(events) -> None:
        can_go_on.wait(10)
        seen.extend(events)
        events.clear()

    queue = EventQueue("test-events", handle, gather_s=0.0)
    queue.put("earlier")
    until(lambda: not queue.waiting)
    threading.Timer(0.1, can_go_on.set).start()
    queue.flush()
    assert seen == ["earlier"]
    queue.close()


def test_lines_that_may_have_been_written_are_not_written_twice_though_one_is_odd(log, place) -> None:
    log.flush()
    place.loses_commits = True
    log.record_event(poisoned("client"))
    log.record("admin", "one")
    log.flush()
    place.loses_commits = False
    log.record("admin", "two")
    log.flush()
    assert whats(place) == ["1 line of ci lost", "one", "two"]


# The end of the process


KILLED = """
import asyncio, json, os, signal, sys
from pathlib import Path
home = Path(sys.argv[1])
from onetool import App
from onetool.core.call import ToolCall
app = App.open(home / "onetool.yaml")
app.audit.open()
print("open", flush=True)
asyncio.run(app.call(ToolCall("c-1", "evil.kill", {})))
"""


def test_a_call_that_kills_the_process_has_a_line_where_the_log_is_required(tmp_path: Path) -> None:
    (tmp_path / "packs").mkdir()
    (tmp_path / "packs" / "evil.py").write_text(
        '"""Ends it."""\nimport os, signal\n\n\ndef kill() -> str:\n    """Kill this process."""\n'
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    (tmp_path / "onetool.yaml").write_text("audit: required\npacks: [packs/evil.py]\n")
    env = {**os.environ, "ONETOOL_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], env=env, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "open\n"), done.stderr
    assert [(line["what"], line["outcome"]) for line in lines_in(tmp_path)] == [("evil.kill", "begun")]


def test_a_queue_that_is_closed_by_a_caller_in_the_middle_loses_nothing(log, place) -> None:
    for number in range(50):
        log.record("admin", str(number))
        if number == 25:
            log.queue.close()
    log.close()
    until(lambda: whats(place) == [str(number) for number in range(50)])


def test_an_access_line_with_odd_fields_stops_no_other_line() -> None:
    read, write = os.pipe()
    recorder = Recorder()
    handler = AccessHandler(write, recorder=recorder)
    for path in (*ODD, "/after"):
        handler.add(
            LoggedRequest(
                method="GET",
                route="",
                status=200,
                seconds=0.0,
                mcp="",
                trace=None,
                path=path,
                size=0,
                client="",
                more={"x": path},
            )
        )
    recorder.close()
    os.close(write)
    with open(read, "rb") as pipe:
        found = pipe.read().splitlines()
    assert len(found) == len(ODD) + 1
    assert b"/after" in found[-1]
