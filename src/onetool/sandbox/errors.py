"""What can go wrong between us and a worker.

SandboxError
├── CodeError                 the code raised an exception and did not catch it
│   └── CodeSyntaxError       the code could not be parsed
├── TypeCheckError            the type checker refused the code; nothing ran
└── WorkerError               the worker process has ended
    ├── OutOfMemoryError      it was refused memory
    ├── ProtocolError         it sent something that the protocol does not have
    └── FrameTooLargeError    it sent a message over the limit

ValueTransferError            a value can't leave the sandbox; the worker is fine
├── TooLargeError
├── TooManyDigitsError
└── NeverAwaitedError
"""

from typing import NamedTuple


class Frame(NamedTuple):
    """One line of a traceback. Lines and columns begin at 1."""

    filename: str
    line: int
    column: int


class SandboxError(Exception):
    """Code did not end with a value."""


class CodeError(SandboxError):
    def __init__(self, kind: str, message: str | None = None, frames: tuple[Frame, ...] = ()) -> None:
        super().__init__(kind if message is None else f"{kind}: {message}")
        self.kind = kind  # the name of the exception's class
        self.message = message or ""
        self.frames = frames  # the outermost first


class CodeSyntaxError(CodeError): ...


class TypeCheckError(SandboxError):
    def __init__(self, diagnostics: str) -> None:
        super().__init__("the type checker refused the code")
        self.diagnostics = diagnostics  # as JSON


class WorkerError(SandboxError):
    def __init__(self, message: str = "the worker has ended") -> None:
        super().__init__(message)


class OutOfMemoryError(WorkerError): ...


class ProtocolError(WorkerError): ...


class FrameTooLargeError(WorkerError):
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
