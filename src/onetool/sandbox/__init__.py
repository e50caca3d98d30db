"""The sandbox: runs code in Monty's worker processes, over their pipes, never in this process. Its exceptions:

SandboxError
├── CodeError                 the code raised an exception and did not catch it
│   └── CodeSyntaxError       the parser refused the code; nothing ran
├── TypeCheckError            the type checker refused the code; nothing ran
└── WorkerError               the worker process has ended
    ├── WorkerStartError      it could not be started
    ├── OutOfMemoryError      it was refused memory
    ├── ProtocolError         it sent something that the protocol does not have
    └── MessageTooLargeError  it sent a message over the limit

ValueTransferError            a value can't leave the sandbox; the worker is fine
├── TooLargeError
├── TooManyDigitsError
└── NeverAwaitedError
"""

from typing import NamedTuple


class TraceLine(NamedTuple):
    """One line of a traceback. Lines begin at 1."""

    filename: str
    line: int
    function: str  # empty where the parser speaks: nothing has run


class SandboxError(Exception):
    """Code did not end with a value."""


class CodeError(SandboxError):
    def __init__(self, kind: str, message: str | None = None, trace: tuple[TraceLine, ...] = ()) -> None:
        super().__init__(kind if message is None else f"{kind}: {message}")
        self.kind = kind  # the name of the exception's class
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
    """Code can catch this where it passes the value to a tool."""


class TooLargeError(ValueTransferError):
    """More than the budget allows, or nested deeper than any reader would follow."""


class TooManyDigitsError(ValueTransferError):
    def __init__(self) -> None:
        super().__init__("a whole number of more than 4300 digits")


class NeverAwaitedError(ValueTransferError):
    def __init__(self) -> None:
        super().__init__("something that was never awaited: put await before it")
