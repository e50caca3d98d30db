"""Spans: one event each, nested, masked, and never in the way."""

import asyncio
import inspect
import io
import json
import logging
import threading
import time
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import pytest
from helpers import executor_for, forever, run

from onetool.sdk.batch import batch_execute
from onetool.sdk.context import LogSpan
from onetool.services.logs import JsonFormatter
from onetool.services.secrets import Secrets

STANDARD = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


@pytest.fixture
def events(caplog):
    """The events so far, each as its own fields."""
    caplog.set_level("INFO", "onetool.span")

    def told():
        return [
            {key: value for key, value in vars(record).items() if key not in STANDARD}
            for record in caplog.records
            if record.name == "onetool.span"
        ]

    return told


def test_one_event_when_it_ends(events, caplog):
    with LogSpan("fetch", url="http://a/") as span:
        time.sleep(0.01)
        span.add(status=200, url="http://b/")
        assert events() == []
    [event] = events()
    assert event.pop("duration_ms") >= 9
    assert event == {"span": "fetch", "outcome": "ok", "parent": None, "url": "http://b/", "status": 200}
    [record] = caplog.records
    assert (record.getMessage(), record.levelname) == ("fetch", "INFO")


def test_an_exception_is_told_and_passes_through(events):
    with pytest.raises(ValueError, match="no"), LogSpan("fetch"):
        raise ValueError("no")
    [event] = events()
    assert (event["outcome"], event["error_type"], event["error"]) == ("error", "ValueError", "no")


def test_an_error_whose_text_is_broken_passes_through(events):
    class BrokenError(Exception):
        def __str__(self):
            raise RuntimeError

    with pytest.raises(BrokenError), LogSpan("fetch"):
        raise BrokenError
    assert events()[0]["error_type"] == "BrokenError"


def test_nested_spans_know_the_one_around_them(events):
    with LogSpan("outer"):
        with LogSpan("first"):
            pass
        with LogSpan("second"), LogSpan("third"):
            pass
    assert [(event["span"], event["parent"]) for event in events()] == [
        ("first", "outer"),
        ("third", "second"),
        ("second", "outer"),
        ("outer", None),
    ]


def test_an_error_restores_the_span_around_it(events):
    with LogSpan("outer"):
        with pytest.raises(ValueError, match="no"), LogSpan("fails"):
            raise ValueError("no")
        with LogSpan("next"):
            pass
    assert [event["parent"] for event in events()] == ["outer", "outer", None]


def test_many_tasks_at_once_do_not_mix(events):
    async def work(number):
        with LogSpan(f"outer {number}"):
            await asyncio.sleep(0.001 * (number % 3))
            with LogSpan(f"inner {number}"):
                await asyncio.sleep(0)

    async def main():
        await asyncio.gather(*map(work, range(50)))

    asyncio.run(main())
    parents = {event["span"]: event["parent"] for event in events()}
    assert parents == {f"outer {n}": None for n in range(50)} | {f"inner {n}": f"outer {n}" for n in range(50)}


def test_spans_in_the_workers_of_a_batch_are_nested(events):
    def work(item):
        with LogSpan(item):
            return item

    with LogSpan("batch"):
        batch_execute(["a", "b"], work)
    assert {event["span"]: event["parent"] for event in events()} == {"a": "batch", "b": "batch", "batch": None}


def test_a_span_that_ends_in_another_context(events):
    async def numbers():
        with LogSpan("numbers"):
            yield 1

    async def main():
        generator = numbers()
        await anext(generator)
        await asyncio.create_task(generator.aclose())

    asyncio.run(main())
    assert events()[0]["error_type"] == "GeneratorExit"


# As a decorator


def test_as_a_decorator_each_call_is_a_span_of_its_own(events):
    @LogSpan("double", kind="sum")
    def double(number: int) -> int:
        """Twice."""
        return 2 * number

    assert [double(1), double(number=2)] == [2, 4]
    assert [(event["span"], event["kind"]) for event in events()] == [("double", "sum")] * 2
    assert double.__doc__ == "Twice."
    assert str(inspect.signature(double)) == "(number: int) -> int"


def test_as_a_decorator_of_an_async_function(events):
    @LogSpan("work")
    async def work(number):
        await asyncio.sleep(0.01)
        if number == 2:
            raise ValueError("two")
        return number

    assert inspect.iscoroutinefunction(work)

    async def main():
        return await asyncio.gather(*map(work, range(3)), return_exceptions=True)

    results = asyncio.run(main())
    assert results[:2] == [0, 1]
    assert sorted(event["outcome"] for event in events()) == ["error", "ok", "ok"]
    assert all(event["duration_ms"] >= 9 for event in events())
    assert all(event["parent"] is None for event in events())


def test_a_cancelled_span_is_an_error(events):
    async def main():
        with LogSpan("slow"):
            await forever()

    with pytest.raises(TimeoutError):
        asyncio.run(asyncio.wait_for(main(), 0.01))
    assert events()[0]["error_type"] == "CancelledError"


# What is shown


def test_fields_with_secret_names_are_masked_however_deep(events):
    @dataclass
    class Login:
        user: str
        password: str

    fields = {
        "api_key": "a1",
        "accessToken": "a2",
        "headers": {"Authorization": "a3", "Accept": "json"},
        "logins": [Login("ann", "a4")],
    }
    with LogSpan("login", **fields) as span:
        span.add(secret="a5")
    event = events()[0]
    assert event["headers"] == {"Authorization": "***", "Accept": "json"}
    assert event["logins"] == [{"user": "ann", "password": "***"}]
    assert (event["api_key"], event["accessToken"], event["secret"]) == ("***", "***", "***")


class Environment:
    calls = None

    def settings(self, pack):
        return {}

    def secret(self, name):
        return None

    def redact(self, data, sent=None):
        return Secrets({"KEY": "hunter2"}).redact_data(data)


def test_the_secrets_of_the_app_are_masked_wherever_they_stand(events):
    def work():
        with (
            LogSpan("around hunter2"),
            LogSpan("ask hunter2", url="http://a/?k=hunter2", parts=["hunter2", {"x": ("hunter2",)}]),
        ):
            raise ValueError("bad key hunter2")

    run(executor_for(work, environment=Environment()))
    event = events()[0]
    assert "hunter2" not in str(events())
    assert event["url"] == "http://a/?k=***"
    assert event["error"] == "bad key ***"
    assert event["call_id"] == "1"


def test_fields_whose_names_are_taken_get_an_underscore(events):
    with LogSpan("x", name="n", args=1, message="m", span="s", outcome="o", self="me") as span:
        span.add(error="a handled one")
    event = events()[0]
    assert (event["name_"], event["args_"], event["message_"], event["span_"], event["outcome_"]) == (
        ("n", 1, "m", "s", "o")
    )
    assert (event["span"], event["outcome"], event["self"], event["error"]) == ("x", "ok", "me", "a handled one")


def test_values_are_plain_data_and_what_is_none_is_named_by_its_type(events):
    loop = []
    loop.append(loop)
    with LogSpan("x", day=date(2024, 5, 1), path=Path("a/b"), lock=threading.Lock(), loop=loop, none=None, n=1.5):
        pass
    event = events()[0]
    assert (event["day"], event["path"], event["none"], event["n"]) == ("2024-05-01", "a/b", None, 1.5)
    assert (event["lock"], event["loop"]) == ("<lock>", "<list>")


def test_it_is_one_line_of_json_in_our_log():
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    log = logging.getLogger("onetool")
    log.handlers, log.propagate = [handler], False
    log.setLevel("INFO")
    with LogSpan("fetch", url="http://a/"):
        pass
    line = json.loads(stream.getvalue())
    assert (line["logger"], line["span"], line["outcome"], line["url"]) == ("onetool.span", "fetch", "ok", "http://a/")


def test_nothing_is_done_when_nobody_listens(caplog):
    class Watched:
        def model_dump(self, **_):
            raise AssertionError("was looked at")

    caplog.set_level("WARNING", "onetool.span")
    with LogSpan("x", value=Watched()):
        pass
    assert caplog.records == []


def test_a_span_reports_progress_under_its_name():
    from types import ModuleType

    from onetool.sdk.testing import packs

    def work() -> str:
        """Work in two steps."""
        with LogSpan("copying") as span:
            span.progress(1, 2)
            span.progress(2, 2, "done")
        return "ok"

    pack = ModuleType("pack")
    work.__module__ = "pack"
    pack.work = work
    with packs(pack) as tools:
        assert tools.call("pack.work") == "ok"
        assert tools.progress == [(1, 2, "copying"), (2, 2, "done")]
