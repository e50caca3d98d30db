"""What is told of every call when it has ended. Observability is an attachment: the executor knows only this shape."""

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


Recorder = Callable[[CallEvent], None]
"""Called once for every call, on the event loop: it must be quick and must not raise."""
