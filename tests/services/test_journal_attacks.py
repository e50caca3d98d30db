"""Attacks on the journal: floods, losses, order, and events that can't be written.

No event stops another one, and no line of the audit log is missing without a gap line that says so.
"""

import gc
import os
import signal
import subprocess
import sys
import threading
import weakref
from pathlib import Path

import msgspec
import pytest
from services.journals import Audited, Flaky, lines, lines_in
from services.test_audit import CI, SPEC, event

from onetool.config.model import AuditConfig
from onetool.core.call import ToolCall, ToolError
from onetool.core.context import CallEvent, RunEvent
from onetool.core.principal import Principal
from onetool.database.sqlite import SqliteDatabase
from onetool.interfaces.http.request_log import AccessHandler, LoggedRequest
from onetool.services import journal
from onetool.services.journal import AuditUnavailableError
from onetool.services.journal.audit import AuditFilter
from onetool.services.journal.recorder import Recorder
from onetool.services.journal.row import RowMaker

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
    log = Audited(place, AuditConfig())
    yield log
    log.close()


def whats(place) -> list[str]:
    return [line["what"] for line in lines(place)]


def of(principal: Principal, name: str = "web.get", **more) -> CallEvent:
    return CallEvent.of(ToolCall("c-1", name, {}, "mcp"), spec=SPEC, principal=principal, **more)


# A flood


def test_what_a_flood_has_pushed_out_is_told_by_a_gap(log, place, monkeypatch) -> None:
    monkeypatch.setattr(journal, "MAX_WAITING", 50)
    log.flush()
    place.is_away = True
    for _ in range(60):
        log.record(of(CI))
    log.record(of(CI, "shell.run"))
    log.flush()
    place.is_away = False
    log.flush()
    assert whats(place) == ["web.get"] * 50 + ["11 lines lost"]
    assert lines(place)[-1]["kind"] == "gap"
    log.record(of(OTHER, "web.hers"))
    log.flush()
    assert whats(place)[-1] == "web.hers"


def test_a_flood_of_required_lines_lets_nothing_run(place, monkeypatch) -> None:
    monkeypatch.setattr(journal, "MAX_WAITING", 5)
    log = Audited(place, AuditConfig(mode="required"))
    place.is_away = True
    for _ in range(50):
        log.record(of(CI))
    with pytest.raises(AuditUnavailableError):
        log.require(log.begun(ToolCall("c-2", "shell.run", {}, "mcp")))
    place.is_away = False
    log.flush()
    assert "shell.run" not in whats(place)
    log.close()


def test_lines_that_are_lost_while_the_gap_is_written(log, place, monkeypatch) -> None:
    """The count changes in other threads at the same time."""
    monkeypatch.setattr(journal, "MAX_WAITING", 10)

    def lose() -> None:
        for _ in range(3_000):
            log.add(of(OTHER))

    threads = [threading.Thread(target=lose) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(30):
        log.flush()
    for thread in threads:
        thread.join()
    log.flush()
    counted = sum(int(line["what"].split()[0]) for line in lines(place) if line["kind"] == "gap")
    assert counted == log.lost
    assert len([line for line in lines(place) if line["kind"] == "call"]) + log.lost == 12_000


# Events that can't be written


class Poison(str):
    """A text that fails whenever somebody looks at it."""

    def isprintable(self) -> bool:
        raise ValueError("poison")

    __len__ = __hash__ = isprintable  # pyright: ignore[reportAssignmentType]


def poisoned(kind: str) -> CallEvent | RunEvent:
    if kind == "run":
        return RunEvent(
            id="r-1", source="mcp", duration_ms=1.0, code_bytes=1, principal=CI, client=Poison("x"), calls=0
        )
    return of(CI, **{kind: Poison("x")})


@pytest.mark.parametrize("kind", ["client", "address", "run"])
def test_one_event_that_can_not_be_written_stops_no_other(log, place, kind) -> None:
    for number in range(MANY):
        log.record(poisoned(kind) if number == 700 else of(OTHER, f"web.{number}"))
    log.flush()
    found = whats(place)
    assert [one for one in found if one.startswith("web.")] == [f"web.{n}" for n in range(MANY) if n != 700]
    assert found[-1] == "1 line lost"


@pytest.mark.parametrize("error", [ValueError, MemoryError, RecursionError, UnicodeError])
def test_whatever_a_line_raises_stops_no_other(log, place, error, monkeypatch) -> None:
    made = RowMaker.of_entry

    def row(maker, entry):
        if entry.what == "odd":
            raise error("odd")
        return made(maker, entry)

    monkeypatch.setattr(RowMaker, "of_entry", row)
    for what in ("one", "odd", "two"):
        log.note("admin", what, principal=OTHER)
    log.flush()
    assert whats(place) == ["one", "two", "1 line lost"]


def test_where_the_log_is_required_a_line_that_can_not_be_written_refuses_the_call(place) -> None:
    log = Audited(place, AuditConfig(mode="required"))
    log.write("admin", "before")
    with pytest.raises(ValueError, match="poison"):
        log.write("call", "shell.run", client=Poison("x"))
    log.write("call", "after")
    assert whats(place) == ["before", "after"]
    log.close()


ODD = ["\ud800", "\x00", "\x1b[2J", "\u202e", "\u2028", "x" * 2_000_000, '"}\n{"kind":"admin"}', "\U0010ffff", ""]


@pytest.mark.parametrize("field", ["id", "name", "client", "address", "run", "who"])
def test_odd_texts_make_one_line_each(log, place, field) -> None:
    for odd in ODD:
        if field in ("id", "name"):
            call = ToolCall(**{"id": "c", "name": "web.get", "args": {}, "source": "mcp", field: odd})
            log.record(CallEvent.of(call, principal=CI))
        elif field == "who":
            log.record(of(Principal(name=odd, owner=odd)))
        else:
            log.record(of(CI, **{field: odd}))
    log.flush()
    found = lines(place)
    assert len(found) == len(ODD)
    assert {line["kind"] for line in found} <= {"call", "refusal"}


@pytest.mark.parametrize("field", ["code", "reason"])
def test_odd_errors_make_one_line_each(log, place, field) -> None:
    for odd in ODD:
        log.record(of(CI, error=msgspec.structs.replace(ToolError(code="x", message="m"), **{field: odd})))
    log.flush()
    assert len(lines(place)) == len(ODD)


# Memory


class Value(dict):
    """A dict that can be watched."""


def test_waiting_rows_hold_no_value_of_a_call(log, place) -> None:
    """A tool's first values are kept with their event, to learn from them. Ten thousand of them would be gigabytes."""

    class Observed:
        def learns_from(self, owner: str) -> bool:
            return True

    value = Value(x=1)
    spec = msgspec.structs.replace(SPEC)
    msgspec.structs.force_setattr(spec, "observed", Observed())
    place.is_away = True
    made = CallEvent.of(ToolCall("c", "web.get", {}, "mcp"), value=value, spec=spec, principal=CI)
    assert made.value is value
    log.record(made)
    is_there = weakref.ref(value)
    del value, made
    log.flush()
    gc.collect()
    assert is_there() is None
    place.is_away = False
    log.flush()
    assert whats(place) == ["web.get"]


def test_waiting_rows_hold_no_large_arguments(log, place) -> None:
    log.flush()
    place.is_away = True
    for _ in range(100):
        log.record(event({"x": "x" * 1_000_000}))
        log.flush()
    assert sum(sys.getsizeof(cell) for row in log._writer.rows for cell in row) < 500_000
    place.is_away = False
    log.flush()
    assert len(lines(place)) == 100


# Order


def test_lines_of_each_thread_are_in_their_order(log, place) -> None:
    def call(name: str) -> None:
        for number in range(300):
            log.record(of(Principal(name=name, owner=name), f"{name}.{number}"))

    threads = [threading.Thread(target=call, args=(name,)) for name in "abcdefgh"]
    for thread in threads:
        thread.start()
    for _ in range(20):
        log.flush()
    for thread in threads:
        thread.join()
    log.flush()
    found = whats(place)
    for name in "abcdefgh":
        assert [one for one in found if one.startswith(name)] == [f"{name}.{number}" for number in range(300)]


def test_a_required_line_comes_after_the_lines_before_it(place) -> None:
    log = Audited(place, AuditConfig(mode="required"))
    for number in range(MANY):
        log.record(of(CI, f"web.{number}"))
    log.write("call", "shell.run")
    log.flush()
    found = [record.what for record in log.log.page(AuditFilter(), 2000).records]  # by time
    assert found == ["shell.run", *(f"web.{number}" for number in range(MANY - 1, -1, -1))]
    log.close()


# The end of the process


KILLED = """
import asyncio, json, os, signal, sys
from pathlib import Path
home = Path(sys.argv[1])
from onetool import App
from onetool.core.call import ToolCall
app = App.open(home / "onetool.yaml")
app.journal.open()
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
