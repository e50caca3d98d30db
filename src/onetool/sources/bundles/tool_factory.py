"""`ToolFactory`, which creates ToolSpecs with handlers from stored tools.

Slow parts (templates, selectors, schemas) are compiled at the first call. When a tool is stored, all parts are compiled
once to validate them.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from keyword import iskeyword
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from onetool.core.context import current_call
from onetool.core.errors import BadArguments, ToolFailure
from onetool.core.mismatch import place_of
from onetool.core.principal import current_principal
from onetool.core.signature import call_text
from onetool.core.spec import NO_PARAMETERS, Handler, ToolSpec, effect_of
from onetool.core.text import did_you_mean
from onetool.http.definition import HttpImpl, Request, ToolLimits, is_idempotent, total_seconds
from onetool.sources.bundles.errors import ForbiddenError, invalid_at
from onetool.sources.bundles.model import (
    IMPLS,
    PreProcessor,
    Tool,
    ToolContent,
    code_of,
    function_name,
    function_of,
    http_of,
    impl_of,
    inherited,
    limits_of,
)
from onetool.sources.bundles.rate_limits import RateLimiter, is_counted
from onetool.sources.bundles.validation import Faults, ReadTool, refuse_secrets, schema_faults

if TYPE_CHECKING:
    from onetool.http.preview import PreviewRequest
    from onetool.http.tool import HttpTool
    from onetool.http.upstream import OnResponse

# The factory

SAFE = {"GET", "HEAD", "OPTIONS"}  # methods that change nothing
CHANGING = {"PUT", "PATCH", "DELETE"}  # without POST, which may be a query
SCRIPT = "script"

SecretHosts = Mapping[str, tuple[str, ...]]
"""The hosts that secrets are bound to, by name of the secret."""
NO_SECRETS: SecretHosts = {}

Health = Literal["ok", "off", "down", "changed"]
"""off: the tool or its bundle is disabled. For MCP servers: down: unreachable; changed: waiting for approval."""


class BundleRuntime(Protocol):
    """The interface of the app, which is above this package, for bundles and their tools."""

    async def refresh(self) -> None:
        """Reload the registry if tools have changed, and wait for a reload in another thread."""

    def signature(self, name: str) -> str | None:
        """Return the signature in code of the tool with this name, including tools without a bundle."""
        ...

    def server_health(self) -> Mapping[str, Health]: ...

    def function(self, name: str) -> ToolSpec | None:
        """Return the registered function with this name, if it exists and is enabled."""
        ...

    def functions(self) -> list[str]:
        """Return the names of all functions, for hints on mistyped ones."""
        ...

    def learn_returns(self, spec: ToolSpec, tool: Tool) -> None:
        """Let a tool without an output schema learn the shape of its results."""

    async def run_script(self, code: str, variables: Mapping[str, Any]) -> Any:
        """Run the code and return its value. Raises ToolFailure."""
        ...

    def check_script(self, code: str, variables: tuple[str, ...]) -> str | None:
        """Return the first mistake in the code, or None."""
        ...

    async def run_pre_processor(self, code: str, args: Mapping[str, Any]) -> Any:
        """Run code with the variable `args` and without tools. Raises ToolFailure."""
        ...

    def check_pre_processor(self, code: str) -> str | None:
        """Return the first mistake in a pre-processor's code, or None."""
        ...

    def http_tool(
        self,
        impl: HttpImpl,
        arg_schema: Mapping[str, Any],
        limits: ToolLimits,
        bundle: str | None = None,
        on_response: "OnResponse | None" = None,
    ) -> "HttpTool":
        """Return the handler. Raises TemplateError for invalid tools. `bundle` is an id."""
        ...

    def preview_http(self, tool: Tool, args: Mapping[str, Any]) -> "list[PreviewRequest]":
        """Return the requests of a call. Raises ToolFailure for invalid arguments, or the errors of `http_tool`."""
        ...

    def why_not_called(self, made: "HttpTool") -> str | None:
        """Return why the current `allowedHosts` refuse a request of this tool, or None."""
        ...

    def why_unbound(self, made: "HttpTool", new: SecretHosts) -> str | None:
        """Return why only an admin may store this tool (a secret is not bound to its host), or None."""
        ...

    @property
    def script_seconds(self) -> float: ...

    @property
    def default_retries(self) -> int:
        """The number of retries for HTTP tools that don't set it. Only safe requests are repeated."""
        ...


class CheckedTool(NamedTuple):
    """A tool with all its mistakes. With mistakes, `content` lacks some parts, or is None."""

    content: ToolContent | None
    made: "HttpTool | None"  # an HTTP tool as it was built
    faults: Faults


class ToolFactory:
    """A factory of ToolSpecs. `rates` limits the calls of each tool."""

    def __init__(self, runtime: BundleRuntime, rates: RateLimiter | None = None) -> None:
        self._runtime = runtime
        self._rates = rates or RateLimiter()

    def spec(self, tool: Tool, name: str, off: str | None = None, on_response: "OnResponse | None" = None) -> ToolSpec:
        """Return the spec of a tool under a name, without validation, which was done when the tool was stored.

        `off` tells why the tool is disabled. `on_response` gets the responses of an HTTP tool.
        """
        shared: dict[str, Any] = {
            "name": name,
            "description": tool.description or tool.display_name or tool.slug,
            "input_schema": tool.arg_schema or NO_PARAMETERS,
            "output_schema": tool.output_schema or None,
            "tags": tool.tags,
            "examples": tuple(call_text(name, example.args) for example in tool.examples),
            "parallel": tool.parallel,
            "enabled": off is None,
            "off": off,
            "kept_as": tool.id,
        }
        if tool.pre_processors:
            prepare = _preparation(tool.pre_processors, self._runtime)
            shared["prepare"] = ToolSpec(name=name, description="Prepares the arguments.", handler=prepare)
        if tool.type == "http":
            impl = self._with_retries(tool)
            spec = ToolSpec(
                **shared,
                handler=self._limited(_http_handler(tool, impl, self._runtime, on_response), tool, True),
                timeout=total_seconds(impl, limits_of(tool)),
                retries=0,  # the handler itself repeats requests that may be repeated
                **_http_hints([step.request for step in impl.steps]),
            )
        elif tool.type == SCRIPT:
            handler = self._limited(_script_handler(tool, self._runtime), tool, True)
            spec = ToolSpec(**shared, handler=handler, timeout=self._runtime.script_seconds)
        else:
            spec = ToolSpec(**shared | self._function(tool))
        self._runtime.learn_returns(spec, tool)
        return spec

    def inherited(self, tool: ToolContent) -> dict[str, Any]:
        """Return the fields that the tool inherits from its function, if that exists. See `model.inherited`."""
        name = function_name(tool)
        return {} if name is None else inherited(tool, self._runtime.function(name))

    def why_disabled(self, tool: Tool) -> str | None:
        """Return why an enabled tool can't run: its function is missing. The tool works again with the function."""
        return self.why_gone(function_name(tool))

    def why_gone(self, function: str | None) -> str | None:
        """Return why a function, and with it all its tools, is missing, or None."""
        if function is None or self._runtime.function(function) is not None:
            return None
        return f"its function {function} does not exist or is disabled"

    def basis(self, functions: Iterable[str]) -> tuple[Any, dict[str, ToolSpec | None]]:
        """Return the inputs of specs other than their tools: settings of the config, and the functions."""
        shared = (self._runtime.default_retries, self._runtime.script_seconds)
        return shared, {name: self._runtime.function(name) for name in functions}

    def check_tool(self, data: Any, slug: str, version: str) -> "CheckedTool":
        """Read a tool and build it, and return it with all its mistakes."""
        faults = Faults()
        read = faults.read_tool(data, slug, version)
        made = None if read is None else self._build(read, faults)
        return CheckedTool(None if read is None else read.content, made, faults)

    def check(self, tool: ToolContent) -> "HttpTool | None":
        """Raise InvalidError for a tool that could never run; return an HTTP tool as it was built."""
        faults = Faults()
        shape = IMPLS[tool.type][1]
        read = ReadTool(tool, msgspec.convert(impl_of(tool), shape), limits_of(tool))
        made = self._build(read, faults)
        faults.raise_first()
        return made

    def _build(self, read: ReadTool, faults: Faults) -> "HttpTool | None":
        """Check the parts of a tool that work together, and build an HTTP tool. Parts with mistakes are left out."""
        tool, made = read.content, None
        if not faults.has_any("/argSchema"):
            if tool.arg_schema.get("type", "object") != "object":
                faults.add("/argSchema/type", 'expected "object"')
            schema_faults(tool, faults)
        if not faults.has_any("/preProcessors"):
            for number, step in enumerate(tool.pre_processors):
                if mistake := self._runtime.check_pre_processor(step.code):
                    faults.add(f"/preProcessors/{number}/code", mistake)
        is_declared = not faults.has_any("/argSchema")
        if tool.type == "http" and read.impl is not None:
            from onetool.http.placeholders import TemplateError

            schema = tool.arg_schema if is_declared else _names_only(tool.arg_schema)
            try:
                made = self._runtime.http_tool(read.impl, schema, read.limits)
            except TemplateError as error:
                for one in error.all:
                    faults.add(f"/httpImpl{one.pointer}", str(one))
        elif tool.type == SCRIPT and read.impl is not None and is_declared:
            self._check_script(tool, read.impl.code, faults)
        elif read.impl is not None and is_declared:
            with faults.at(""):
                self._check_function(tool)
        if is_declared and read.impl is not None and not faults.has_any("/examples"):
            with faults.at(""):
                refuse_secrets(tool.examples, self.inherited(tool).get("arg_schema") or tool.arg_schema)
        return made

    def _check_script(self, tool: ToolContent, code: str, faults: Faults) -> None:
        names = _properties(tool)
        for name in names:
            if not name.isidentifier() or iskeyword(name):
                faults.add("/argSchema/properties", f"{name!r} is not a variable name, as scripts need")
                return
        if mistake := self._runtime.check_script(code, names):
            faults.add("/scriptImpl/code", mistake)

    def require_bound(self, tool: ToolContent, new: SecretHosts = NO_SECRETS, made: "HttpTool | None" = None) -> None:
        """Raise ForbiddenError if only an admin may store this tool, because of a secret in it.

        This applies only to authenticated callers: without authentication, every caller is the operator. `made` is the
        tool as `check` built it.
        """
        caller = current_principal.get()
        if tool.type != "http" or not caller.name or caller.may("admin"):
            return
        made = made or self._runtime.http_tool(http_of(tool), tool.arg_schema, limits_of(tool))
        if why := self._runtime.why_unbound(made, new):
            raise ForbiddenError(why, "secret_not_bound")

    def warnings(self, made: "HttpTool | None") -> list[str]:
        """Return why a valid tool can't be called for now. `made` is the tool as `check` built it."""
        why = None if made is None else self._runtime.why_not_called(made)
        return [] if why is None else [why]

    def effect(self, tool: Tool) -> str:
        """Return the effect of a tool: `reads`, `changes` …"""
        if tool.type == "http":
            try:
                return effect_of(**_http_hints([step.request for step in http_of(tool).steps]))
            except ValueError:  # edited by hand
                return ""
        function = None if tool.type == SCRIPT else self._runtime.function(function_of(tool))
        return "" if function is None else function.effect

    def preview(self, tool: Tool, args: Mapping[str, Any]) -> dict[str, Any]:
        """Return a preview of a call: `requests`, `code` or `call`. Raises ToolFailure for invalid arguments."""
        if tool.type == SCRIPT:
            variables = {name: schema.get("default") for name, schema in _schemas(tool)} | dict(args)
            return {"code": "".join(f"{name} = {value!r}\n" for name, value in variables.items()) + code_of(tool)}
        if tool.type != "http":
            return {"call": call_text(function_of(tool), args)}
        defaults = {name: schema["default"] for name, schema in _schemas(tool) if "default" in schema}
        try:
            return {"requests": tuple(self._runtime.preview_http(tool, {**defaults, **args}))}
        except ValueError as error:  # edited by hand
            raise _invalid_template(error) from None

    # Each type

    def _with_retries(self, tool: Tool) -> HttpImpl:
        """Return the tool's httpImpl, with the config's number of retries as default."""
        impl, default, data = http_of(tool), self._runtime.default_retries, tool.http_impl or {}
        if not default:
            return impl
        if impl.request is not None:
            return replace(impl, request=_with_default(impl.request, data["request"], default))
        steps = zip(impl.steps, data["requests"], strict=True)
        return replace(
            impl,
            requests=tuple(
                replace(step, request=_with_default(step.request, step_data["request"], default))
                for step, step_data in steps
            ),
        )

    def _function(self, tool: Tool) -> dict[str, Any]:
        target = self._runtime.function(function_of(tool))
        if target is None or target.handler is None:
            return {"handler": None}
        spec = inherited(tool, target)
        if "arg_schema" in spec:
            spec["input_schema"] = spec.pop("arg_schema")
        return {
            **spec,
            "handler": _only_if_allowed(target, self._limited(target.handler, tool, target.is_async)),
            "settings_of": target.settings_of or target.pack,
            "timeout": target.timeout,
            "retries": target.retries,
            "requires": target.requires,
            "documented_schema": target.documented_schema,
            "parallel": tool.parallel or target.parallel,
            "pure": target.pure and not tool.pre_processors,
            **{flag: getattr(target, flag) for flag in ("idempotent", "read_only")},
        }

    def _limited(self, handler: Handler, tool: Tool, is_async: bool) -> Handler:
        limit = limits_of(tool).max_calls_per_minute if tool.limits else None
        if limit is None:
            return handler
        rates = self._rates
        # Unlike the id, this name survives deleting and storing the tool again.
        place = f"{tool.bundle_id}/{tool.slug}@{tool.version}"

        async def run_async(**args: Any) -> Any:
            if not is_counted():
                await rates.take_async(place, limit)
            return await handler(**args)

        def run(**args: Any) -> Any:  # runs in a thread, so it may block
            if not is_counted():
                rates.take(place, limit)
            return handler(**args)

        return run_async if is_async else run

    # Validation

    def _check_function(self, tool: ToolContent) -> None:
        name, pointer = function_of(tool), "/goImpl/func" if tool.type == "go" else "/pythonImpl/func"
        target = self._runtime.function(name)
        if target is None:
            near = did_you_mean(name, self._runtime.functions()) or "`onetool tools list` shows all functions"
            raise invalid_at(pointer, f"unknown function {name!r}; {near}")
        known, required = target.order, set(target.input_schema.get("required") or ())
        if not tool.arg_schema:
            return  # the schema is inherited from the function
        for arg in _properties(tool):
            if arg not in known and not target.input_schema.get("additionalProperties"):
                near = did_you_mean(arg, known) or f"its arguments are {', '.join(known) or 'none'}"
                raise invalid_at("/argSchema/properties", f"{name} has no argument {arg!r}; {near}")
        if missing := sorted(required - set(tool.arg_schema.get("required") or ())):
            raise invalid_at("/argSchema/required", f"{name} requires {', '.join(missing)}; declare these as required")


def _http_hints(requests: Sequence[Request]) -> dict[str, Any]:
    """Return the hints of requests: whether they may be repeated, and whether they change nothing (None: unknown)."""
    methods = {request.method for request in requests}
    read_only = True if SAFE.issuperset(methods) else None if CHANGING.isdisjoint(methods) else False
    return {"idempotent": all(map(is_idempotent, requests)), "read_only": read_only}


def _only_if_allowed(target: ToolSpec, handler: Handler) -> Handler:
    """Return a handler that refuses calls if the function isn't allowed, so that a tool can't bypass the allow-list.

    Refused calls don't count for the tool's limit.
    """
    name = target.name

    def check() -> None:
        context = current_call.get()
        if context is not None and context.allowed is not None and name not in context.allowed:
            hint = f"also allow {name}, the function of this tool"
            raise ToolFailure(f"Tool not allowed here: {name}", reason="denied", hints=[hint])

    async def run_async(**args: Any) -> Any:
        check()
        return await handler(**args)

    def run(**args: Any) -> Any:
        check()
        return handler(**args)

    return run_async if target.is_async else run


def _with_default(request: Request, data: Mapping[str, Any], retries: int) -> Request:
    """Set the request's number of retries, unless its definition has one."""
    return request if "retries" in data else replace(request, retries=retries)


def _http_handler(tool: Tool, impl: HttpImpl, runtime: BundleRuntime, on_response: "OnResponse | None") -> Handler:
    """Return the handler of an HTTP tool, compiled from its template at the first call. It fills in defaults."""
    defaults = {name: schema["default"] for name, schema in _schemas(tool) if "default" in schema}
    made: Callable[..., Awaitable[Any]] | None = None

    async def run(**args: Any) -> Any:
        nonlocal made
        if made is None:
            try:
                made = runtime.http_tool(impl, tool.arg_schema, limits_of(tool), tool.bundle_id, on_response)
            except ValueError as error:  # edited by hand
                raise _invalid_template(error) from None
        return await made(**{**defaults, **args}) if defaults else await made(**args)

    return run


def _invalid_template(error: ValueError) -> ToolFailure:
    return ToolFailure(f"invalid template: {place_of('/httpImpl' + (getattr(error, 'pointer', None) or ''))}: {error}")


def _script_handler(tool: Tool, runtime: BundleRuntime) -> Handler:
    """Return the handler of a script, with the arguments as variables. Missing arguments are their default or None."""
    code, defaults = code_of(tool), {name: schema.get("default") for name, schema in _schemas(tool)}

    async def run(**args: Any) -> Any:
        return await runtime.run_script(code, {**defaults, **args})

    return run


def _preparation(steps: tuple[PreProcessor, ...], runtime: BundleRuntime) -> Handler:
    """Return a function that prepares arguments before validation, by one pre-processor after the other."""

    async def run(args: Mapping[str, Any]) -> Mapping[str, Any]:
        for number, step in enumerate(steps):
            try:
                value = await runtime.run_pre_processor(step.code, args)
                if not isinstance(value, dict):
                    result = "nothing" if value is None else f"a value of type {type(value).__name__}"
                    hint = "end the code with the arguments, as an expression: args"
                    raise ToolFailure(f"returned {result}, expected an object with the arguments", hints=(hint,))
            except ToolFailure as failure:
                error = BadArguments(str(failure), failure.reason, failure.hints)
                error.argument = f"preProcessors[{number}]"
                raise error from None
            args = value
        return args

    return run


def _names_only(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema with the names of a wrong one, so that the template can be checked."""
    names = schema.get("properties")
    known = names if isinstance(names, dict) else {}
    return {"properties": {name: {} for name in known}, "additionalProperties": True}


def _properties(tool: ToolContent) -> tuple[str, ...]:
    return tuple(tool.arg_schema.get("properties") or ())


def _schemas(tool: ToolContent) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the tool's arguments, each with its schema."""
    for name, schema in (tool.arg_schema.get("properties") or {}).items():
        yield name, schema if isinstance(schema, Mapping) else {}
