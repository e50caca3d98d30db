"""What keeps a call from being carried out, before any handler runs: there is no such tool, or it may not be called."""

from collections.abc import Collection
from typing import Any

from onetool.core.call import Code, ToolError
from onetool.core.nearest import nearest
from onetool.core.spec import ToolSpec


class Fails(Exception):  # noqa: N818 - carries a result, is never seen outside of the executor
    def __init__(self, code: Code, message: str, **more: Any) -> None:
        super().__init__(message)
        self.error = ToolError(code=code, message=message, **more)


def not_found(name: str, known: Collection[str], allowed: Collection[str] | None) -> Fails:
    near = nearest(name, known if allowed is None else [one for one in known if one in allowed])
    suffix = f"; did you mean {' or '.join(near)}?" if near else ""
    return Fails("tool_not_found", f"Tool not found: {name:.200}{suffix}", hints=tuple(near))


def permit(spec: ToolSpec, allowed: Collection[str] | None) -> None:
    """Raises where it may not be called."""
    if allowed is not None and spec.name not in allowed:
        raise Fails("tool_not_found", f"Tool not allowed here: {spec.name}", reason="denied")
    if not spec.enabled:
        hints = (spec.off,) if spec.off else ()
        raise Fails("tool_not_found", f"Tool is switched off: {spec.name}", reason="denied", hints=hints)
