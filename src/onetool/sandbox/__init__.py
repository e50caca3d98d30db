"""The sandbox: runs code in Monty's worker processes, never in this process. Its exceptions:

SandboxError
├── CodeError                 the code raised an exception and did not catch it
│   └── CodeSyntaxError       the parser refused the code; nothing ran
├── TypeCheckError            the type checker refused the code; nothing ran
└── WorkerError               the worker process has ended
    ├── WorkerStartError      the worker could not be started
    ├── OutOfMemoryError      the worker ran out of memory
    ├── ProtocolError         the worker violated the protocol
    └── MessageTooLargeError  the worker sent a message over the limit

ValueTransferError            a value can't leave the sandbox; the worker is still usable
├── TooLargeError
├── TooManyDigitsError
└── NeverAwaitedError
"""

from typing import NamedTuple


class TraceLine(NamedTuple):
    """One line of a traceback. Lines are numbered from 1."""

    filename: str
    line: int
    function: str  # empty for errors of the parser


class SandboxError(Exception):
    """An error that prevented code from returning a value."""


class CodeError(SandboxError):
    def __init__(self, kind: str, message: str | None = None, trace: tuple[TraceLine, ...] = ()) -> None:
        super().__init__(kind if message is None else f"{kind}: {message}")
        self.kind = kind  # the name of the exception class
        self.message = message or ""
        self.trace = trace  # the outermost call first


class CodeSyntaxError(CodeError): ...


class TypeCheckError(SandboxError):
    def __init__(self, diagnostics: str) -> None:
        super().__init__("the type checker refused the code")
        self.diagnostics = diagnostics  # as JSON


class WorkerError(SandboxError):
    def __init__(self, message: str = "the worker has ended") -> None:
        super().__init__(message)


class WorkerStartError(WorkerError): ...


class OutOfMemoryError(WorkerError): ...


class ProtocolError(WorkerError): ...


class MessageTooLargeError(WorkerError):
    def __init__(self, what: str, limit: int) -> None:
        super().__init__(f"{what} is larger than {limit} bytes")
        self.what = what
        self.limit = limit


class ValueTransferError(ValueError):
    """A value can't leave the sandbox. Code can catch this if it passes the value to a tool."""


class TooLargeError(ValueTransferError):
    """The value is larger than the budget, or nested too deep for its readers."""


class TooManyDigitsError(ValueTransferError):
    def __init__(self) -> None:
        super().__init__("an integer of more than 4300 digits")


class NeverAwaitedError(ValueTransferError):
    def __init__(self) -> None:
        super().__init__("a coroutine that was never awaited: put await before it")
