"""The call that is running now, for code that a handler calls without passing anything on.

The executor sets it around every handler; the SDK's `get_config` and `get_secret` read it. A context variable and not
a global: two calls at once each see their own, also in threads, and code outside of any call sees none.
"""

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, Protocol

import msgspec

from onetool.core.call import ToolCall
from onetool.core.spec import ToolSpec


class Environment(Protocol):
    """What the app lends to running tools."""

    def settings(self, pack: str) -> Mapping[str, Any]: ...

    def secret(self, name: str) -> str | None: ...


class CallContext(msgspec.Struct, frozen=True):
    """One call under way: which tool, asked by whom, and what it may reach."""

    spec: ToolSpec
    call: ToolCall
    environment: Environment | None = None


current_call: ContextVar[CallContext | None] = ContextVar("onetool_current_call", default=None)
