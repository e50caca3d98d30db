"""Frames that no worker sends, read as if one had sent them. `python -m tests.sandbox.fuzz --seconds 300 --seed 7`.

Real frames are recorded from a real worker, then broken: bytes and bits changed, parts cut out, put in twice, or taken
from another frame, lengths and numbers made wrong, with and without the lengths around them made right again.
"""

import argparse
import json
import random
import sys
import time
import traceback
from contextlib import suppress
from math import isfinite

from onetool.sandbox import CodeError, SandboxError, ValueTransferError, messages, wire
from onetool.sandbox.messages import (
    Complete,
    FunctionCall,
    NameLookup,
    NotHandled,
    OsCall,
    Pending,
    Print,
    ResolveFutures,
    Returned,
    WorkerLimits,
    read_event,
)
from onetool.sandbox.pool import WorkerProcess, binary
from onetool.sandbox.wire import Function, HostObject

BUDGETS = (100, 65_536, 1_048_576)
STRETCH = 5  # a key that is not text is written out, with escapes: so much longer than it weighs, at most
DEEPEST = 60
EDGES = (0, 1, 2, 7, 8, 127, 128, 255, 16_383, 16_384, 2**21, 2**31, 2**32 - 1, 2**63, 2**64 - 1, 2**70 - 1)

PROGRAMS = [
    "1",
    "[None, True, False, 0, -1, 63, 64, -65, 8192, 2**20, 2**40, -2**63, 1.5, 'text', 'é' * 100]",
    "[2**64, -2**200, 3**2000]",
    "{'a': 1, 'b': [1, 2, {'c': None}], 3: 'three', (1, 'x'): 2.5, None: 0, True: 1}",
    "[{'id': i, 'name': 'row ' + str(i), 'tags': ['a', 'b']} for i in range(40)]",
    "list(range(300)) + [list(range(200))]",
    "first = 'a' + str(2)\n[first, list(range(17_000)), {first: 1.5}]",
    "[{1, 2, 3}, frozenset(('a', 'b')), (1, (2, (3,))), b'bytes', bytes(200)]",
    "x = []\nx.append(x)\ny = {}\ny['me'] = y\n[x, y]",
    "x = [1]\nfor _ in range(12):\n    x = [x, x]\nx",
    "x = [1]\nfor _ in range(70):\n    x = [x]\nx",
    "[..., NotImplemented, 1 + 2j, -0.0j, len, int, ValueError]",
    "import datetime as d\n[d.date(2026, 1, 2), d.time(3, 4, 5, 6), d.datetime(2026, 1, 2, 3), d.timedelta(-3, 4, 5)]",
    "import datetime as d\nz = d.timezone(d.timedelta(hours=-5), 'EST')\n"
    "[z, d.timezone.utc, d.datetime(1, 1, 1, tzinfo=z), d.time(1, tzinfo=z)]",
    "from decimal import Decimal\nfrom pathlib import Path\n"
    "[Decimal('1.20'), Path('/a/b.txt'), ValueError('no'), KeyError()]",
    "from collections import namedtuple\nP = namedtuple('P', 'x y')\n[P(1, [2]), P]",
    "from dataclasses import dataclass\n@dataclass\nclass A:\n    x: int\n    y: list\n[A(1, [2]), A(3, []), A]",
    "class UUID:\n    def __init__(self):\n        self.hex = '0123456789abcdef' * 2\n[UUID(), UUID]",
    "def f():\n    pass\n[f, f.__name__, lambda: 1, iter([1])]",
    "async def f():\n    pass\nf()",
    "import json\ntry:\n    json.loads('{')\nexcept ValueError as e:\n    found = e\nfound",
    "print('out', 1, end='')\nprint('é' * 300)\n2",
    "import sys\nprint('one')\nprint('two', file=sys.stderr)\nprint('three')",
    "tool()",
    "tool(1, 'two', [3, {'four': 5}], name='n', other={'x': (1, 2)}, none=None)",
    "rows = [{'a': i} for i in range(150)]\ntool(rows, rows, again=rows)",
    "box.method(1, x=2)",
    "box.method",
    "import asyncio\nasync def main():\n    return await asyncio.gather(later(1), later(2), later(3))\nawait main()",
    "import time\ntime.sleep(0.25)",
    "import asyncio\nawait asyncio.sleep(0.5)",
    "from pathlib import Path\nPath('/nothing').read_text()",
    "import os\nos.getenv('HOME', [1, {'a': 2}])",
    "import nothing_of_that_name",
    "no_such_name",
    "def f(n):\n    return 1 // n if n == 0 else f(n - 1)\nf(30)",
    "def f():\n    f()\nf()",
    "b'\\xff'.decode()",
    "raise ValueError('é' * 200)",
    "1 +",
]  # fmt: skip
STUBS = "def tool(x: int) -> int: ..."


# Frames of a real worker


def recorded():
    """What a worker says to all programs, and about the types of one."""
    worker = WorkerProcess(binary(), 1 << 25)
    try:
        worker.send(messages.configure(WorkerLimits(seconds=5.0)))
        frames = [worker.receive()]
        for code in PROGRAMS:
            frames += _turns(worker, code)
        worker.send(messages.RESET, messages.configure(WorkerLimits(), STUBS), messages.feed("tool('x')", {}))
        return frames + [worker.receive() for _ in range(3)]
    finally:
        worker.close()


def _turns(worker, code):
    """What the worker says while this code runs. All that it asks for is answered."""
    frames = []
    request = messages.feed(code, {"box": HostObject("Box")})
    while request is not None:
        worker.send(request)
        frames.append(worker.receive())
        while frames[-1][0] == 0x0A:  # prints come before what ends the turn
            frames.append(worker.receive())
        request = _answer(frames[-1])
    return frames


def _answer(frame):
    try:
        question = read_event(frame)
    except SandboxError:
        return None
    match question:
        case FunctionCall():
            return messages.resume_call(question.call_id, Pending() if question.name == "later" else Returned([1]))
        case OsCall():
            return messages.resume_call(question.call_id, Returned(None) if question.is_sleep else NotHandled())
        case NameLookup():
            known = question.name in ("tool", "later")
            return messages.resume_name(Function(question.name)) if known else messages.NAME_UNDEFINED
        case ResolveFutures():
            return messages.resume_futures({call_id: Returned(call_id) for call_id in question.call_ids})
    return None


# Broken frames


def broken(frames, rng):
    """One of the frames, broken in one to four ways."""
    frame = rng.choice(frames)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4))):
        frame = rng.choice(WAYS)(frame, frames, rng)
    return frame


def _flip(frame, _frames, rng):
    at = rng.randrange(len(frame) * 8 or 1)
    return _with(frame, at // 8, bytes((frame[at // 8] ^ 1 << at % 8,))) if frame else frame


def _change(frame, _frames, rng):
    return _with(frame, _place(frame, rng), bytes((rng.choice((0, 1, 2, 10, 18, 127, 128, 255, rng.randrange(256))),)))


def _truncate(frame, _frames, rng):
    return frame[: _place(frame, rng)]


def _cut(frame, _frames, rng):
    at = _place(frame, rng)
    return frame[:at] + frame[at + rng.randrange(1, 9) :]


def _insert(frame, _frames, rng):
    at = _place(frame, rng)
    return frame[:at] + rng.randbytes(rng.randrange(1, 9)) + frame[at:]


def _repeat(frame, _frames, rng):
    at = _place(frame, rng)
    return frame[:at] + frame[at : at + rng.randrange(1, 65)] * rng.choice((2, 2, 3, 50)) + frame[at:]


def _splice(frame, frames, rng):
    other = rng.choice(frames)
    return frame[: _place(frame, rng)] + other[_place(other, rng) :]


def _number(frame, _frames, rng):
    """Whatever stands there, as a number of one or more bytes, becomes another number."""
    at = _place(frame, rng)
    with suppress(IndexError, SandboxError):
        _, end = wire.read_varint(frame, at)
        return frame[:at] + wire.varint(rng.choice(EDGES)) + frame[end:]
    return frame


def _graft(frame, frames, rng):
    """One field somewhere inside becomes another; the lengths around it are right again."""
    parts = _fields(frame)
    if not parts:
        return frame
    at = rng.randrange(len(parts))
    tag, content = parts[at]
    if isinstance(content, bytes) and content and rng.random() < 0.8:
        way = _graft if _fields(content) and rng.random() < 0.9 else rng.choice(WAYS)
        parts[at] = (tag, way(content, frames, rng))
    else:
        parts[at : at + 1] = rng.choice(GRAFTS)(tag, content, frames, rng)
    return b"".join(_field(*part) for part in parts)


GRAFTS = [
    lambda tag, content, _frames, _rng: [],
    lambda tag, content, _frames, rng: [(tag, content)] * rng.choice((2, 3, 100)),
    lambda tag, content, _frames, rng: [(tag, rng.choice(EDGES))],
    lambda tag, content, _frames, rng: [(rng.randrange(1, 36), content)],
    lambda tag, content, _frames, rng: [(tag, rng.randbytes(rng.randrange(12)))],
    lambda tag, content, frames, rng: [(tag, _some_field(rng.choice(frames), rng))],
    lambda tag, content, frames, rng: [(tag, content), (rng.randrange(1, 36), _some_field(rng.choice(frames), rng))],
]
WAYS = [_flip, _change, _truncate, _cut, _insert, _repeat, _splice, _number, _graft, _graft, _graft, _graft]


def _fields(data):
    """The fields of a message: tags with numbers or bytes. Empty where the data are no message."""
    try:
        return [(tag, at if stop == 0 else data[at:stop]) for tag, at, stop in wire.fields(data, 0, len(data))]
    except (IndexError, SandboxError):
        return []


def _field(tag, content):
    return wire.message(tag, content) if isinstance(content, bytes) else wire.number(tag, content)


def _some_field(frame, rng):
    """What one field holds, anywhere inside."""
    content = frame
    while isinstance(content, bytes) and (parts := _fields(content)) and rng.random() < 0.9:
        content = rng.choice(parts)[1]
    return content


def _place(frame, rng):
    return rng.randrange(len(frame) or 1)


def _with(frame, at, byte):
    return frame[:at] + byte + frame[at + 1 :]


# What reading one must come to


def read(frame, budget):
    """Read a frame and all that it holds. AssertionError where that gives anything but plain data or our own errors."""
    try:
        _read(frame, budget)
    except CodeError as error:
        json.dumps([error.kind, error.message, error.trace])
    except (SandboxError, ValueTransferError):
        pass


def _read(frame, budget):
    event = read_event(frame)
    match event:
        case Complete():
            check_plain([event.value(budget)], budget)
        case FunctionCall():
            args, named = event.arguments(budget)
            assert type(event.name) is str
            assert type(event.object_id) is bytes
            json.dumps([event.call_id, event.position])
            check_plain([*args, *named.values()], budget)
            assert all(type(name) is str for name in named)
        case OsCall():
            assert isfinite(event.seconds)
            json.dumps(event.call_id)
        case NameLookup():
            assert type(event.name) is str
            assert type(event.object_id) is bytes
        case ResolveFutures():
            assert all(type(call_id) is int for call_id in event.call_ids)
        case Print():
            assert all(stream in ("stdout", "stderr") and type(text) is str for stream, text in event.segments)


def check_plain(roots, budget):
    """They are JSON types, no deeper and no larger than is allowed, and no two parts are the same list or dict."""
    size, seen = 0, set()
    level, depth = roots, 0
    while level:
        inside = []
        for value in level:
            size += 2
            if type(value) is dict:
                assert all(type(key) is str for key in value)
                size += sum(map(len, value))
                inside += value.values()
            elif type(value) is list:
                inside += value
            elif type(value) is str:
                size += len(value)
            else:
                assert value is None or type(value) in (bool, int, float), type(value)
            if type(value) in (dict, list):
                assert id(value) not in seen, "two parts are the same"
                seen.add(id(value))
        level, depth = inside, depth + 1
        assert depth <= DEEPEST + 1, "too deep"
    json.dumps(roots).encode()
    assert size <= STRETCH * budget, f"{size} bytes of {budget}"


# The run


def fuzz(frames, seed, *, count=None, seconds=None, report=None):
    """So many broken frames, or for so long. How many it were; the first that is read wrong raises BrokenFrameError."""
    rng = random.Random(seed)
    until = None if seconds is None else time.monotonic() + seconds
    done = 0
    while (count is None or done < count) and (until is None or time.monotonic() < until):
        frame, budget = broken(frames, rng), rng.choice(BUDGETS)
        try:
            read(frame, budget)
        except Exception as error:
            raise BrokenFrameError(frame, budget) from error
        done += 1
        if report and done % 20_000 == 0:
            report(done)
    return done


class BrokenFrameError(Exception):
    """Names the frame, for a test of its own."""

    def __init__(self, frame, budget):
        super().__init__(f"budget {budget}, frame {frame.hex()}")


def main():
    parser = argparse.ArgumentParser(description="Broken frames for the reader of the sandbox's messages.")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args()
    seed = random.randrange(2**32) if options.seed is None else options.seed
    frames = recorded()
    print(f"{len(frames)} frames of a real worker, seed {seed}", flush=True)
    try:
        done = fuzz(frames, seed, seconds=options.seconds, report=lambda done: print(f"{done:,} frames", flush=True))
    except BrokenFrameError:
        traceback.print_exc()
        sys.exit(1)
    print(f"{done:,} frames, nothing found")


if __name__ == "__main__":
    main()
