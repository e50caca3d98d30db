"""What is told of every call when it has ended. Observability is an attachment: the executor knows only this shape."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from onetool.core.call import ToolError


class CallEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One call that ended: a span named after the tool. `args` are masked already."""

    tool: str
    call_id: str
    source: str
    ok: bool
    duration_ms: float
    error: ToolError | None = None
    args: Mapping[str, Any] = msgspec.field(default_factory=dict[str, Any])


Recorder = Callable[[CallEvent], None]
"""Called once for every call, on the event loop: it must be quick and must not raise."""
