"""What runs when a declared tool is called: a mock, a builtin function, or an internal service."""

import inspect
from collections.abc import Mapping
from copy import deepcopy
from typing import Any, cast

from onetool.core.errors import DefinitionError
from onetool.core.nearest import did_you_mean
from onetool.core.spec import Handler, ToolSpec

Handlers = Mapping[str, Handler]


def handler_for(implementation: Mapping[str, Any], known: Mapping[str, Handlers], tool: str | None) -> Handler:
    kind = implementation["type"]
    if kind == "mock":
        return _Mock(implementation["mock_response"])
    handlers, name = known[kind], implementation["handler"]
    if name not in handlers:
        near = did_you_mean(name, handlers) or f"known: {', '.join(sorted(handlers)) or 'none'}"
        raise DefinitionError(f"implementation.handler: no {kind} handler {name!r} ({near})", tool=tool)
    return handlers[name]


class _Mock:
    """A handler that always gives the same answer."""

    def __init__(self, response: Any) -> None:
        self.response = deepcopy(response)

    async def __call__(self, **_: Any) -> Any:
        return deepcopy(self.response)  # a caller that changes what it got must not change the next answer


def check_mock(spec: ToolSpec) -> None:
    """A mock's only answer should be one that the tool may give."""
    if isinstance(spec.handler, _Mock) and spec.output is not None:
        problems = spec.output.check(spec.handler.response)
        if problems:
            raise DefinitionError(f"implementation.mock_response: {'; '.join(map(str, problems))}", tool=spec.name)


def misfits(handler: Handler, parameters: Mapping[str, Any]) -> list[str]:
    """Where the declared parameters and the function's own do not go together: such a call could only fail."""
    if isinstance(handler, _Mock):
        return []
    try:
        known = inspect.signature(handler).parameters
    except (TypeError, ValueError):
        return []  # some compiled functions do not tell
    declared = cast(Mapping[str, Any], parameters.get("properties") or {})
    required = cast(list[str], parameters.get("required") or [])
    open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values())
    takes = f"it takes {', '.join(known) or 'none'}"
    faults = [
        f"parameters.properties.{name}: the handler takes no such argument ({did_you_mean(name, known) or takes})"
        for name in declared
        if name not in known and not open_ended
    ]
    return faults + [
        f"parameters: the handler needs {name}, so it must be declared and required"
        for name, parameter in known.items()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        and name not in required
    ]
