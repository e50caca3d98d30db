"""The messages of Monty's protocol: requests as bytes, and the worker's events as objects.

The names are those of the schema (`monty.proto`, package monty.v1). A worker answers a request with prints, then with
one event that ends its turn: a question to be answered, or the end of the code.
"""

from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any, NamedTuple

from onetool.core.limits import MIB
from onetool.sandbox import CodeError, CodeSyntaxError, ProtocolError, TooLargeError, TraceLine, TypeCheckError, wire
from onetool.sandbox.decode import MALFORMED, Check, Values, read_float, read_indexes, read_pair
from onetool.sandbox.wire import Arena, fields, first_text, read_numbers

PROTOCOL_VERSION = 6
MONTY_VERSION = "1.4.0"  # the pinned version; sent to the worker, which does not check it
UNBOUNDED = 2**31 - 1  # suspensions: the host counts them for each piece of code
ANY_LENGTH = 2**64 - 1  # of a sleep: the run's deadline ends it
FLUSH_MS = 100  # milliseconds for which the worker may buffer printed text
JSON_DIAGNOSTICS = 4  # TYPE_CHECK_FORMAT_JSON
MAX_TRACE = 10_000  # lines of a traceback: ten times the limit of nested calls
MAX_CALL_BYTES = MIB  # bytes of call numbers that code waits for
VIOLATION = "protocol violation: "  # the prefix of the worker's errors about invalid requests
SLEEPS = {27: False, 28: True, 29: False, 30: True}  # kinds of OsCall that sleep, and whether code continues


class WorkerLimits(NamedTuple):
    """The limits of one session, enforced by the worker itself."""

    seconds: float = 30.0  # of computing, for each piece of code
    memory_mb: int = 256
    depth: int = 1000  # nested function calls


# Requests


def configure(limits: WorkerLimits, stubs: str | None = None) -> bytes:
    """Return the request that begins a session. With `stubs`, code is type-checked against them before it runs."""
    resource_limits = (
        wire.number(2, limits.memory_mb * MIB)
        + wire.number(4, limits.depth)
        + wire.number(5, UNBOUNDED)
        + wire.number(6, int(limits.seconds * 1_000_000))
    )
    os_policy = wire.message(5, wire.message(1, wire.number(1, ANY_LENGTH)))
    body = wire.text(1, "main.py") + wire.message(2, resource_limits) + wire.text(5, MONTY_VERSION)
    body += wire.number(9, PROTOCOL_VERSION) + wire.number(10, FLUSH_MS) + wire.message(11, os_policy)
    if stubs is not None:
        body += wire.number(3, True) + wire.text(4, stubs) + wire.number(7, JSON_DIAGNOSTICS)
    return wire.message(1, body)


def feed(code: str, inputs: Mapping[str, Any], check_types: bool = True) -> bytes:
    """Return the request to run this code in the session, with these names bound."""
    body = wire.text(1, code)
    if inputs:
        arena = Arena()
        for name, value in inputs.items():
            body += wire.message(2, wire.text(1, name) + wire.number(2, arena.add(value)))
        body = arena.field(3, body)
    return wire.message(3, body + wire.number(4, not check_types) + wire.text(5, "/"))


RESET = wire.message(9, b"")
NAME_UNDEFINED = wire.message(5, wire.message(3, b""))


def resume_name(value: Any) -> bytes:
    """Return the request to bind the looked-up name to this value."""
    arena = Arena()
    index = arena.add(value)
    return wire.message(5, arena.field(1) + wire.number(2, index))


class Returned(NamedTuple):
    """The return value of a call."""

    value: Any


class Raised(NamedTuple):
    """An exception from a call, which code can catch by the name of its class."""

    kind: str
    message: str


class Pending(NamedTuple):
    """A pending call: code gets a future until the answer arrives."""


class NotHandled(NamedTuple):
    """A call that the host does not handle: the worker raises a suitable exception."""


Answer = Returned | Raised | Pending | NotHandled


def resume_call(call_id: int, answer: Answer) -> bytes:
    arena = Arena()
    try:
        body = wire.number(1, call_id) + wire.message(2, _result(call_id, answer, arena))
        return arena.field(3, body, within=4) if isinstance(answer, Returned) else wire.message(4, body)
    except TooLargeError as error:
        return resume_call(call_id, _too_large(error))


def resume_futures(answers: Mapping[int, Answer]) -> bytes:
    arena = Arena()
    try:
        results = [
            wire.message(1, wire.number(1, call_id) + wire.message(2, _result(call_id, answer, arena)))
            for call_id, answer in answers.items()
        ]
        return arena.field(2, *results, within=6)
    except TooLargeError as error:
        return resume_futures(dict.fromkeys(answers, _too_large(error)))


def _too_large(error: TooLargeError) -> Raised:
    """Return the exception that replaces a value too large for the sandbox."""
    return Raised("ValueError", f"the tool's result can't be passed to the sandbox: it is {error}")


def _result(call_id: int, answer: Answer, arena: Arena) -> bytes:
    match answer:
        case Returned(value):
            return wire.number(1, arena.add(value))
        case Raised(kind, message):
            return wire.message(2, wire.text(1, kind) + wire.text(2, message))
        case Pending():
            return wire.number(3, call_id)
        case NotHandled():
            return wire.message(5, b"")


# Events


class SourceRange(NamedTuple):
    """A range in a piece of code, in bytes."""

    filename: str = ""
    start: int = 0
    end: int = 0


class FunctionCall:
    """A call of a host function, or of a method of a host object. `named` has the positions of named arguments."""

    __slots__ = ("_arena", "_args", "_data", "_position", "call_id", "name", "named", "object_id")

    def __init__(self, data: bytes, start: int, end: int) -> None:
        self._data = data
        self._args = bytearray()
        self.named: list[tuple[int, int]] = []
        self._arena = self._position = (0, 0)
        self.call_id, self.name, self.object_id = 0, "", b""
        for tag, at, stop in fields(data, start, end):
            if tag == 1:
                self.name = data[at:stop].decode()
            elif tag == 2:
                self._args += data[at:stop] if stop else wire.varint(at)
            elif tag == 3:
                self.named.append((at, stop))
            elif tag == 4:
                self.call_id = at
            elif tag == 5:
                self.object_id = _uuid(data, at, stop)
            elif tag == 7:
                self._arena = (at, stop)
            elif tag == 8:
                self._position = (at, stop)

    @property
    def position(self) -> SourceRange:
        """The position of the call. Raises ProtocolError."""
        filename, begin, end = SourceRange()
        try:
            for tag, at, stop in fields(self._data, *self._position):
                if tag == 1:
                    filename = self._data[at:stop].decode()
                elif tag == 2:
                    begin = at
                elif tag == 3:
                    end = at
        except MALFORMED as error:
            raise ProtocolError(f"an invalid position of a call: {error}") from None
        return SourceRange(filename, begin, end)

    def arguments(self, budget: int, check: Check | None = None) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments as plain data. Raise ValueTransferError if they can't be transferred, else
        ProtocolError.
        """
        values = Values(budget, check)
        named: dict[str, Any] = {}
        try:
            values.read(self._data, *self._arena)
            args = [values.take(index) for index in read_indexes(bytes(self._args))]
            for start, end in self.named:
                key, value = read_pair(self._data, start, end)
                name = values.take(key)
                if type(name) is not str:
                    raise ProtocolError("an argument whose name is not text")
                named[name] = values.take(value)
        except MALFORMED as error:
            raise ProtocolError(f"an invalid call: {error}") from None
        return args, named


class OsCall:
    """An OS call by the code. Everything but sleeping is refused."""

    __slots__ = ("call_id", "is_async", "is_sleep", "seconds")

    def __init__(self, data: bytes, start: int, end: int) -> None:
        self.call_id, self.is_sleep, self.is_async, self.seconds = 0, False, False, 0.0
        for tag, at, stop in fields(data, start, end):
            if tag == 1:
                self.call_id = at
            elif tag in SLEEPS:
                self.is_sleep, self.is_async = True, SLEEPS[tag]
                self.seconds = next((read_float(data, here)[0] for _, here, _ in fields(data, at, stop)), 0.0)
                if not isfinite(self.seconds):
                    raise ProtocolError("an endless sleep")


class NameLookup:
    """A lookup of an undefined name, or of an attribute of a host object."""

    __slots__ = ("name", "object_id")

    def __init__(self, data: bytes, start: int, end: int) -> None:
        self.name, self.object_id = "", b""
        for tag, at, stop in fields(data, start, end):
            if tag == 1:
                self.name = data[at:stop].decode()
            elif tag == 2:
                self.object_id = _uuid(data, at, stop)


class ResolveFutures:
    """A request for the answers to some of these calls, for which all tasks of the code wait."""

    __slots__ = ("call_ids",)

    def __init__(self, data: bytes, start: int, end: int) -> None:
        self.call_ids: list[int] = []
        if end - start > MAX_CALL_BYTES:
            raise ProtocolError("too many calls")
        for tag, at, stop in fields(data, start, end):
            if tag == 1:
                self.call_ids += read_indexes(data[at:stop]) if stop else [at]


class Complete(NamedTuple):
    """The end of the code."""

    data: bytes
    start: int
    end: int

    def value(self, budget: int, check: Check | None = None) -> Any:
        """Return the value of the last expression as plain data. Raises like `FunctionCall.arguments`."""
        root, values = 0, Values(budget, check)
        try:
            for tag, at, stop in fields(*self):
                if tag == 1:
                    root = at
                elif tag == 2:
                    values.read(self.data, at, stop)
            return values.take(root)
        except MALFORMED as error:
            raise ProtocolError(f"an invalid result: {error}") from None


class Print:
    """Printed text."""

    __slots__ = ("segments",)

    def __init__(self, data: bytes, start: int, end: int) -> None:
        self.segments: list[tuple[str, str]] = []  # stream and text
        for _, at, stop in fields(data, start, end):
            stream, text = 1, ""
            for tag, here, there in fields(data, at, stop):
                if tag == 1:
                    stream = here
                else:
                    text = data[here:there].decode()
            self.segments.append(("stderr" if stream == 2 else "stdout", text))


class Ok(NamedTuple):
    """The answer to a successful request that has no other answer."""

    data: bytes
    start: int
    end: int


WorkerQuestion = FunctionCall | OsCall | NameLookup | ResolveFutures | Complete
WorkerEvent = WorkerQuestion | Print | Ok


def read_event(data: bytes) -> WorkerEvent:
    """Return the worker's event. Raise the exception that the event reports, or ProtocolError for invalid bytes."""
    try:
        tag, start, end = next(fields(data, 0, len(data)), (0, 0, 0))
        if read := EVENTS.get(tag):
            return read(data, start, end)
        raise FAILURES[tag](data, start, end) if tag in FAILURES else ProtocolError(f"event {tag}, unknown here")
    except MALFORMED as error:
        raise ProtocolError(f"an invalid event: {error}") from None


def _error(data: bytes, start: int, end: int) -> Exception:
    """Return the exception of an `Error` event, which contains a `RaisedException`."""
    kind, message, trace = "", None, list[TraceLine]()
    for _, first, last in fields(data, start, end):
        for tag, at, stop in fields(data, first, last):
            if tag == 1:
                kind = data[at:stop].decode()
            elif tag == 2:
                message = data[at:stop].decode()
            elif tag == 3:
                filename, line, function = "", 0, ""
                for part, here, there in fields(data, at, stop):
                    if part == 1:
                        filename = data[here:there].decode()
                    elif part == 2:
                        line = read_numbers(data, here, there).get(1, 0)
                    elif part == 4:
                        function = data[here:there].decode()
                trace.append(TraceLine(filename, line, function))
                if len(trace) > MAX_TRACE:
                    raise ProtocolError("a traceback of too many lines")
    if not trace and (message or "").startswith(VIOLATION):
        return ProtocolError(f"the worker reports: {message}")
    is_parser = kind == "SyntaxError" and not any(line.function for line in trace)
    return (CodeSyntaxError if is_parser else CodeError)(kind, message, tuple(trace))


def _uuid(data: bytes, start: int, end: int) -> bytes:
    return next((data[at:stop] for tag, at, stop in fields(data, start, end) if tag == 1), b"")


EVENTS: dict[int, Callable[[bytes, int, int], WorkerEvent]] = {
    1: Print,
    2: FunctionCall,
    3: OsCall,
    4: NameLookup,
    5: ResolveFutures,
    6: Complete,
    10: Ok,
}
FAILURES: dict[int, Callable[[bytes, int, int], Exception]] = {
    7: _error,
    8: lambda *at: TypeCheckError(first_text(*at)),
    11: lambda *at: ProtocolError(f"the worker gave up: {first_text(*at)[:200]}"),
}
