"""The ids of a request: what is taken of a client, and what is made."""

import asyncio
import os
import random
import subprocess
import sys

import pytest
from helpers import each

from onetool.core.call import ToolCall
from onetool.core.executor import Executor
from onetool.core.registry import ToolRegistry
from onetool.core.spec import ToolSpec
from onetool.core.trace import begin_trace, current_trace

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.mark.parametrize("id", ["a", "A-b_c.9", "x" * 64])
def test_a_clients_request_id_is_taken(id):
    trace = begin_trace(id.encode())
    assert trace.request_id == id
    assert trace.own_id not in ("", id)


@each("id", [None, b"", b"x" * 65, b"a b", b"a\n", b"\xc3\xa4", b"a/b", b"a, b", b"\0"])
def test_another_one_is_made(id):
    trace = begin_trace(id)
    assert trace.request_id == trace.own_id
    assert len(trace.own_id) == 24


def test_own_ids_differ_whatever_clients_send():
    assert begin_trace(b"same").own_id != begin_trace(b"same").own_id


@pytest.mark.parametrize("flags", ["00", "01"])
def test_a_trace_goes_on(flags):
    trace = begin_trace(None, f"00-{TRACE}-{SPAN}-{flags}".encode(), b"vendor=1")
    assert (trace.trace_id, trace.parent_id, trace.flags, trace.state) == (TRACE, SPAN, flags, "vendor=1")
    assert trace.span_id != SPAN
    assert trace.traceparent() == f"00-{TRACE}-{trace.span_id}-{flags}"
    assert trace.traceparent("b" * 16) == f"00-{TRACE}-{'b' * 16}-{flags}"


def test_a_later_version_of_the_header_is_read_as_far_as_it_is_known():
    assert begin_trace(None, f"cc-{TRACE}-{SPAN}-09-more".encode()).traceparent().startswith(f"00-{TRACE}-")


@each(
    "header",
    [
        "",
        "nonsense",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-01-more",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01, 00-{TRACE}-{SPAN}-01",
    ],
)
def test_an_invalid_trace_is_not_taken(header):
    trace = begin_trace(None, header.encode(), b"vendor=1")
    assert trace.trace_id != TRACE
    assert (trace.parent_id, trace.state) == ("", "")


@pytest.mark.parametrize("state", [b"a=1\nb", b"x" * 513, b"\xff"])
def test_an_invalid_state_is_dropped(state):
    assert begin_trace(None, f"00-{TRACE}-{SPAN}-01".encode(), state).state == ""


def test_ids_do_not_repeat_if_a_pack_seeds_the_generator():
    def made():
        random.seed(1)
        return begin_trace().own_id

    assert made() != made()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_makes_other_ids():
    code = (
        "import os\nfrom onetool.core.trace import begin_trace\nbegin_trace()\n"
        "child = os.fork()\nif child: os.waitpid(child, 0)\nprint(begin_trace().own_id, flush=True)"
    )
    ids = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert len(set(ids)) == 2


@pytest.mark.parametrize("is_exported", [True, False])
def test_a_call_has_a_span_where_somebody_exports_it(is_exported):
    registry, events = ToolRegistry(), []
    registry.register(ToolSpec(name="a.b", description="Count.", handler=lambda: 1))
    token = current_trace.set(begin_trace(record_span=print if is_exported else None))
    try:
        result = asyncio.run(Executor(registry, recorders=[events.append]).execute(ToolCall("1", "a.b")))
    finally:
        current_trace.reset(token)
    assert result.ok
    assert len(events[0].span) == (16 if is_exported else 0)
