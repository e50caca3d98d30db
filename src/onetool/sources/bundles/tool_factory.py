"""`ToolFactory` makes a ToolSpec with its handler out of a stored tool; `RateLimiter` counts the calls of each.

What costs time (templates, selectors, schemas) is made at the first call; when a tool is stored, all of it is made once
to see that it can be.
"""

import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from keyword import iskeyword
from threading import Lock
from typing import Any, Protocol

from onetool.core.context import current_call
from onetool.core.errors import SchemaError, ToolFailure
from onetool.core.schema import CompiledSchema
from onetool.core.spec import NO_PARAMETERS, Handler, ToolSpec
from onetool.core.text import did_you_mean
from onetool.http.definition import HttpImpl, ToolLimits, is_idempotent, total_seconds
from onetool.sources.bundles.errors import InvalidError
from onetool.sources.bundles.model import Tool, ToolContent, code_of, function_of, http_of, limits_of

WINDOW = 60.0  # seconds
# Calls a minute up to which each of them is remembered; above that they are counted in slices of the window.
EXACT_UP_TO = 1_000
MANY_TOOLS = 1_000  # tools, after which those that nobody calls are looked for


class _CallLog:
    """The calls of one tool: slices with a time and a number, the oldest first."""

    __slots__ = ("slices", "total")

    def __init__(self) -> None:
        self.slices: deque[list[float]] = deque()
        self.total = 0

    def forget(self, before: float) -> None:
        while self.slices and self.slices[0][0] <= before:
            self.total -= int(self.slices.popleft()[1])

    def add(self, now: float, width: float) -> None:
        """A slice is as young as its last call: no more than allowed ever happens, at most a little less."""
        if self.slices and now - self.slices[-1][2] < width:
            self.slices[-1][0] = now
            self.slices[-1][1] += 1
        else:
            self.slices.append([now, 1, now])
        self.total += 1


class RateLimiter:
    """Limits calls per minute, per tool, in this process. `take` counts a call, or refuses it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._logs: dict[str, _CallLog] = {}
        self._clean_at = MANY_TOOLS

    def take(self, tool_id: str, per_minute: int) -> None:
        """ToolFailure, with reason rate_limited, where it has been called that often in the last minute."""
        with self._lock:
            now = self._clock()
            seconds = self._wait(tool_id, per_minute, now)
            if seconds <= 0:
                log = self._logs.get(tool_id) or self._start_log(tool_id, now)
                log.add(now, WINDOW / EXACT_UP_TO if per_minute > EXACT_UP_TO else 0.0)
                return
        times = "once" if per_minute == 1 else f"{per_minute:,} times"
        raise ToolFailure(
            f"it may be called {times} a minute (limits.maxCallsPerMinute), and has been",
            reason="rate_limited",
            hints=(f"try again in {math.ceil(seconds)} s",),
        )

    def wait(self, tool_id: str, per_minute: int) -> float:
        """Seconds until it can be called; 0 when it can be now."""
        with self._lock:
            return self._wait(tool_id, per_minute, self._clock())

    def _wait(self, tool_id: str, per_minute: int, now: float) -> float:
        log = self._logs.get(tool_id)
        if log is None:
            return 0.0
        log.forget(now - WINDOW)
        over = log.total - per_minute
        if over < 0:
            return 0.0
        for at, number, _ in log.slices:  # the limit may have been lowered: then more than one slice has to go
            over -= number
            if over < 0:
                return at + WINDOW - now
        return WINDOW

    def _start_log(self, tool_id: str, now: float) -> _CallLog:
        if len(self._logs) >= self._clean_at:
            for log in self._logs.values():
                log.forget(now - WINDOW)
            self._logs = {known: log for known, log in self._logs.items() if log.total}
            self._clean_at = max(MANY_TOOLS, 2 * len(self._logs))
        log = self._logs[tool_id] = _CallLog()
        return log


# The factory: a stored tool becomes a ToolSpec with a handler


SAFE = ("GET", "HEAD", "OPTIONS")  # methods that change nothing
SCRIPT = "script"


class BundleRuntime(Protocol):
    """What tools of bundles need of the app."""

    def function(self, name: str) -> ToolSpec | None:
        """The registered function of that name, if it is there and switched on."""
        ...

    def functions(self) -> list[str]:
        """The names of all functions, for hints on mistyped ones."""
        ...

    async def run_script(self, code: str, variables: Mapping[str, Any]) -> Any:
        """The value of the code; ToolFailure where it fails."""
        ...

    def check_script(self, code: str, variables: tuple[str, ...]) -> str | None:
        """What is wrong with the code, if anything is."""
        ...

    def http_tool(
        self, impl: HttpImpl, arg_schema: Mapping[str, Any], limits: ToolLimits
    ) -> Callable[..., Awaitable[Any]]:
        """The handler; raises ValueError with a `pointer` for what can't ever work."""
        ...

    def why_not_called(self, impl: HttpImpl, arg_schema: Mapping[str, Any]) -> str | None:
        """Why no request of this template would be sent, as `allowedHosts` is now."""
        ...

    @property
    def script_seconds(self) -> float: ...


class ToolFactory:
    """Makes ToolSpecs. `rates` limits the calls of each tool."""

    def __init__(self, runtime: BundleRuntime) -> None:
        self._runtime = runtime
        self._rates = RateLimiter()

    def spec(self, tool: Tool, name: str, off: str | None) -> ToolSpec:
        """Under a name; `off` says why it must not be called. Nothing is checked here: it was, when it was put."""
        shared: dict[str, Any] = {
            "name": name,
            "description": tool.description or tool.display_name or tool.slug,
            "input_schema": tool.arg_schema or NO_PARAMETERS,
            "output_schema": tool.output_schema or None,
            "tags": tool.tags,
            "parallel": tool.parallel,
            "enabled": off is None,
            "off": off,
            "kept_as": tool.id,
        }
        if tool.type == "http":
            return ToolSpec(**shared, **self._http(tool))
        if tool.type == SCRIPT:
            handler = _ScriptHandler(tool, self._runtime)
            return ToolSpec(**shared, handler=self._limited(handler, tool, True), timeout=self._runtime.script_seconds)
        return ToolSpec(**shared | self._function(tool))

    def why_disabled(self, tool: Tool) -> str | None:
        """Why it can't run though it is switched on. Its file stays as it is: it comes back when its function does."""
        if tool.type not in ("python", "go") or self._runtime.function(name := function_of(tool)) is not None:
            return None
        return f"its function {name} is not there, or is switched off"

    def basis(self, tool: Tool) -> Any:
        """What a spec depends on beside its tool: the function that it stands for, the time that a script may take."""
        if tool.type == "http":
            return None
        return self._runtime.script_seconds if tool.type == SCRIPT else self._runtime.function(function_of(tool))

    def wait(self, tool: Tool) -> float:
        """Seconds until a tool that has reached its limit may be called again."""
        return self._rates.wait(tool.id, limits_of(tool).max_calls_per_minute or 1)

    def check(self, tool: ToolContent) -> None:
        """Raises InvalidError for what could never run."""
        _check_schemas(tool)
        if tool.type == "http":
            self._check_http(tool)
        elif tool.type == SCRIPT:
            self._check_script(tool)
        else:
            self._check_function(tool)

    def warnings(self, tool: ToolContent) -> list[str]:
        """What keeps a tool that is all right from being called for now."""
        why = self._runtime.why_not_called(http_of(tool), tool.arg_schema) if tool.type == "http" else None
        return [] if why is None else [why]

    # Each type

    def _http(self, tool: Tool) -> dict[str, Any]:
        impl, limits = http_of(tool), limits_of(tool)
        request = impl.request
        return {
            "handler": self._limited(_HttpHandler(tool, self._runtime), tool, True),
            "timeout": total_seconds(impl, limits),
            "idempotent": is_idempotent(request),
            "read_only": request.method in SAFE,
        }

    def _function(self, tool: Tool) -> dict[str, Any]:
        target = self._runtime.function(function_of(tool))
        if target is None or target.handler is None:
            return {"handler": None}
        inherited: dict[str, Any] = {}
        if not tool.arg_schema:
            inherited["input_schema"] = target.input_schema
        if not tool.output_schema:
            inherited["output_schema"] = target.output_schema
        if not tool.description:
            inherited["description"] = target.description
        return {
            **inherited,
            "handler": self._limited(_only_if_allowed(target), tool, target.is_async),
            "settings_of": target.settings_of or target.pack,
            "timeout": target.timeout,
            "requires": target.requires,
            "parallel": tool.parallel or target.parallel,
            **{flag: getattr(target, flag) for flag in ("pure", "idempotent", "read_only")},
        }

    def _limited(self, handler: Handler, tool: Tool, is_async: bool) -> Handler:
        most = limits_of(tool).max_calls_per_minute if tool.limits else None
        if most is None:
            return handler
        take, id = self._rates.take, tool.id

        async def run_async(**args: Any) -> Any:
            take(id, most)
            return await handler(**args)

        def run(**args: Any) -> Any:
            take(id, most)
            return handler(**args)

        return run_async if is_async else run

    # What could never run

    def _check_http(self, tool: ToolContent) -> None:
        try:
            self._runtime.http_tool(http_of(tool), tool.arg_schema, limits_of(tool))
        except ValueError as error:
            pointer = f"/httpImpl{getattr(error, 'pointer', None) or ''}"
            raise InvalidError(f"{pointer}: {error}", pointer) from None

    def _check_function(self, tool: ToolContent) -> None:
        name, pointer = function_of(tool), "/goImpl/func" if tool.type == "go" else "/pythonImpl/func"
        target = self._runtime.function(name)
        if target is None:
            near = did_you_mean(name, self._runtime.functions()) or "`onetool tools list` shows those that there are"
            raise InvalidError(f"{pointer}: there is no function {name!r}; {near}", pointer)
        known, required = target.order, set(target.input_schema.get("required") or ())
        if not tool.arg_schema:
            return  # it takes what the function takes
        for arg in _properties(tool):
            if arg not in known and not target.input_schema.get("additionalProperties"):
                near = did_you_mean(arg, known) or f"it takes {', '.join(known) or 'none'}"
                raise InvalidError(
                    f"/argSchema/properties: {name} takes no argument {arg!r}; {near}", "/argSchema/properties"
                )
        if missing := sorted(required - set(tool.arg_schema.get("required") or ())):
            raise InvalidError(
                f"/argSchema/required: {name} needs {', '.join(missing)}; declare and require what it needs",
                "/argSchema/required",
            )

    def _check_script(self, tool: ToolContent) -> None:
        for name in _properties(tool):
            if not name.isidentifier() or iskeyword(name):
                message = f"/argSchema/properties: {name!r} can't be a variable, and a script's arguments are variables"
                raise InvalidError(message, "/argSchema/properties")
        if wrong := self._runtime.check_script(code_of(tool), _properties(tool)):
            raise InvalidError(f"/scriptImpl/code: {wrong}", "/scriptImpl/code")


def _only_if_allowed(target: ToolSpec) -> Handler:
    """The handler of a function. Under an allow-list it has to be named, too: else a tool could stand for anything."""
    handler, name = target.handler, target.name
    if handler is None:
        raise ValueError(f"{name} has no handler")

    def check() -> None:
        context = current_call.get()
        if context is not None and context.allowed is not None and name not in context.allowed:
            hint = f"allow {name}, too: it is what this tool stands for"
            raise ToolFailure(f"Tool not allowed here: {name}", reason="denied", hints=[hint])

    async def run_async(**args: Any) -> Any:
        check()
        return await handler(**args)

    def run(**args: Any) -> Any:
        check()
        return handler(**args)

    return run_async if target.is_async else run


class _HttpHandler:
    """Made of its template at the first call. An argument that is not given and has a default is sent as that."""

    def __init__(self, tool: Tool, runtime: BundleRuntime) -> None:
        self._defaults = {name: schema["default"] for name, schema in _schemas(tool) if "default" in schema}
        self._tool = tool
        self._runtime = runtime
        self._made: Callable[..., Awaitable[Any]] | None = None

    async def __call__(self, **args: Any) -> Any:
        made = self._made
        if made is None:
            tool = self._tool
            try:
                made = self._runtime.http_tool(http_of(tool), tool.arg_schema, limits_of(tool))
            except ValueError as error:  # a file that somebody has edited
                pointer = getattr(error, "pointer", None) or ""
                raise ToolFailure(f"its template can't be used: httpImpl{pointer}: {error}") from None
            self._made = made
        return await made(**{**self._defaults, **args}) if self._defaults else await made(**args)


class _ScriptHandler:
    """Code with the arguments as variables: those that are not given hold their default, or None."""

    def __init__(self, tool: Tool, runtime: BundleRuntime) -> None:
        self._code = code_of(tool)
        self._run = runtime.run_script
        self._defaults = {name: schema.get("default") for name, schema in _schemas(tool)}

    async def __call__(self, **args: Any) -> Any:
        return await self._run(self._code, {**self._defaults, **args})


def _properties(tool: ToolContent) -> tuple[str, ...]:
    return tuple(tool.arg_schema.get("properties") or ())


def _schemas(tool: ToolContent) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Its arguments, each with what is said of it."""
    for name, schema in (tool.arg_schema.get("properties") or {}).items():
        yield name, schema if isinstance(schema, Mapping) else {}


def _check_schemas(tool: ToolContent) -> None:
    if tool.arg_schema.get("type", "object") != "object":
        raise InvalidError('/argSchema/type: arguments are an object: write "object"', "/argSchema/type")
    for pointer, schema, closed in (
        ("/argSchema", tool.arg_schema, True),
        ("/outputSchema", tool.output_schema, False),
    ):
        try:
            CompiledSchema(schema, closed=closed)
        except SchemaError as error:
            raise InvalidError(f"{pointer}: {error}", pointer) from None
