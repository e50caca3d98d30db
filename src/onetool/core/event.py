"""What is told of every call, and of every run, when it has ended. Observability is an attachment: whoever carries them
out knows only these shapes."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from onetool.core.call import ToolCall, ToolError
from onetool.core.secrecy import MASK, masked
from onetool.core.spec import ToolSpec


class CallEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One call that ended: a span named after the tool."""

    call: ToolCall
    spec: ToolSpec | None = None
    duration_ms: float
    error: ToolError | None = None
    value: Any = None  # as its caller gets it, who may have sent secrets itself: to be measured, and never to be kept
    client: str = ""  # the program that called, where it has said its name
    run: str | None = None  # the run whose code called; none for what tools call in their turn

    @property
    def tool(self) -> str:
        return self.call.name

    @property
    def ok(self) -> bool:
        return self.error is None

    def shown_args(self) -> Mapping[str, Any]:
        """The arguments as a record may show them. Computed when asked for: most calls are only counted.

        Of an unknown tool or argument nobody knows whether it is secret, so it is not shown.
        """
        args: Any = self.call.args
        if self.spec is None or not isinstance(args, Mapping):
            return {}
        properties: Mapping[str, Any] = self.spec.input_schema.get("properties") or {}
        known = {name: value if name in properties else MASK for name, value in self.call.args.items()}
        return masked(known, self.spec.secrets)


class RunEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One run that ended. Its calls are told each on their own, with its id."""

    id: str
    door: str
    client: str = ""
    duration_ms: float
    code_bytes: int  # of the code, as it was sent
    calls: int = 0
    error: ToolError | None = None  # as its caller gets it: only its code is to be kept


Recorder = Callable[[CallEvent], None]
"""Called once for every call, on the event loop: it must be quick and must not raise."""

RunRecorder = Callable[[RunEvent], None]
"""The same for every run."""
