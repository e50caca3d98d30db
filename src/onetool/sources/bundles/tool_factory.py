"""`ToolFactory` makes a ToolSpec with its handler out of a stored tool.

What costs time (templates, selectors, schemas) is made at the first call; when a tool is stored, all of it is made once
to see that it can be.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from keyword import iskeyword
from typing import TYPE_CHECKING, Any, Literal, Protocol

from msgspec.structs import replace

from onetool.core.context import current_call
from onetool.core.errors import BadArguments, ToolFailure
from onetool.core.principal import current_principal
from onetool.core.signature import call_text
from onetool.core.spec import NO_PARAMETERS, Handler, ToolSpec, effect_of
from onetool.core.text import did_you_mean
from onetool.http.definition import HttpImpl, Request, ToolLimits, is_idempotent, total_seconds
from onetool.sources.bundles.errors import ForbiddenError, InvalidError
from onetool.sources.bundles.model import (
    PreProcessor,
    Tool,
    ToolContent,
    code_of,
    function_name,
    function_of,
    http_of,
    inherited,
    limits_of,
)
from onetool.sources.bundles.rate_limits import RateLimiter, is_counted
from onetool.sources.bundles.validation import check_schemas, refuse_secrets

if TYPE_CHECKING:
    from onetool.http.preview import PreviewRequest
    from onetool.http.upstream import OnResponse

# The factory: a stored tool becomes a ToolSpec with a handler


SAFE = {"GET", "HEAD", "OPTIONS"}  # methods that change nothing …
CHANGING = {"PUT", "PATCH", "DELETE"}  # … and those that do; a POST may be a question
SCRIPT = "script"

SecretHosts = Mapping[str, tuple[str, ...]]
"""The hosts that secrets are bound to, by the names of the secrets."""
NO_SECRETS: SecretHosts = {}


Health = Literal["ok", "off", "down", "changed"]
"""off: it, or its bundle, is switched off. Of an MCP server: down: can't be reached; changed: waits for approval."""


class BundleRuntime(Protocol):
    """What bundles and their tools need of the app, which is above this package."""

    async def refresh(self) -> None:
        """Reload the registry if tools have changed."""
        ...

    def signature(self, name: str) -> str | None:
        """Return the signature of the tool of that name, as code writes it: also of one of no bundle."""
        ...

    def server_health(self) -> Mapping[str, Health]: ...

    def function(self, name: str) -> ToolSpec | None:
        """Return the registered function of that name, if it is there and switched on."""
        ...

    def functions(self) -> list[str]:
        """Return the names of all functions, for hints on mistyped ones."""
        ...

    def learn_returns(self, spec: ToolSpec, tool: Tool) -> None:
        """Let the tool learn from its results what it returns, where it doesn't say."""
        ...

    async def run_script(self, code: str, variables: Mapping[str, Any]) -> Any:
        """Run the code and return its value. Raises ToolFailure."""
        ...

    def check_script(self, code: str, variables: tuple[str, ...]) -> str | None:
        """Return what is wrong with the code, if anything is."""
        ...

    async def run_pre_processor(self, code: str, args: Mapping[str, Any]) -> Any:
        """Run code that finds the arguments as `args`, and no tools. Raises ToolFailure."""
        ...

    def check_pre_processor(self, code: str) -> str | None:
        """Return what is wrong with such code, if anything is."""
        ...

    def http_tool(
        self,
        impl: HttpImpl,
        arg_schema: Mapping[str, Any],
        limits: ToolLimits,
        bundle: str | None = None,
        on_response: "OnResponse | None" = None,
    ) -> Callable[..., Awaitable[Any]]:
        """Return the handler. Raises ValueError with a `pointer` for what can never work. `bundle` is an id."""
        ...

    def preview_http(self, tool: Tool, args: Mapping[str, Any]) -> "list[PreviewRequest]":
        """Return what a call would send. ToolFailure where an argument does not fit, else as `http_tool`."""
        ...

    def why_not_called(self, impl: HttpImpl, arg_schema: Mapping[str, Any]) -> str | None:
        """Return why no request of this template would be sent, as `allowedHosts` is now."""
        ...

    def why_unbound(self, impl: HttpImpl, arg_schema: Mapping[str, Any], new: SecretHosts) -> str | None:
        """Return why a caller who is not an admin can't store this: a secret in it is not bound to its host."""
        ...

    @property
    def script_seconds(self) -> float: ...

    @property
    def default_retries(self) -> int:
        """Of HTTP tools that do not say; their requests are repeated only if they may be."""
        ...


class ToolFactory:
    """Makes ToolSpecs. `rates` limits the calls of each tool."""

    def __init__(self, runtime: BundleRuntime, rates: RateLimiter | None = None) -> None:
        self._runtime = runtime
        self._rates = rates or RateLimiter()

    def spec(self, tool: Tool, name: str, off: str | None = None, on_response: "OnResponse | None" = None) -> ToolSpec:
        """Under a name; `off` says why it must not be called. Nothing is checked here: it was, when it was put.

        `on_response` sees the responses that an HTTP tool gets.
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
            prepare = _Preparation(tool.pre_processors, self._runtime)
            shared["prepare"] = ToolSpec(name=name, description="Prepares the arguments.", handler=prepare)
        if tool.type == "http":
            spec = ToolSpec(**shared, **self._http(tool, on_response))
        elif tool.type == SCRIPT:
            handler = self._limited(_ScriptHandler(tool, self._runtime), tool, True)
            spec = ToolSpec(**shared, handler=handler, timeout=self._runtime.script_seconds)
        else:
            spec = ToolSpec(**shared | self._function(tool))
        self._runtime.learn_returns(spec, tool)
        return spec

    def inherited(self, tool: Tool) -> dict[str, Any]:
        """Return what the tool leaves to its function, if that is there. See `model.inherited`."""
        name = function_name(tool)
        return {} if name is None else inherited(tool, self._runtime.function(name))

    def why_disabled(self, tool: Tool) -> str | None:
        """Return why it can't run though it is switched on. Its file stays: it comes back with its function."""
        return self.why_gone(function_name(tool))

    def why_gone(self, function: str | None) -> str | None:
        """Return why a function, and with it all its tools, is missing; None for tools that stand for no function."""
        if function is None or self._runtime.function(function) is not None:
            return None
        return f"its function {function} is not there, or is switched off"

    def basis(self, functions: Iterable[str]) -> tuple[Any, dict[str, ToolSpec | None]]:
        """Return what specs need beside their tools: the config's retries and time for scripts, and the functions."""
        shared = (self._runtime.default_retries, self._runtime.script_seconds)
        return shared, {name: self._runtime.function(name) for name in functions}

    def check(self, tool: ToolContent) -> None:
        """Raises InvalidError for what could never run."""
        if tool.arg_schema.get("type", "object") != "object":
            raise InvalidError('/argSchema/type: arguments are an object: write "object"', "/argSchema/type")
        check_schemas(tool)
        for number, one in enumerate(tool.pre_processors):
            if wrong := self._runtime.check_pre_processor(one.code):
                pointer = f"/preProcessors/{number}/code"
                raise InvalidError(f"{pointer}: {wrong}", pointer)
        if tool.type == "http":
            try:
                self._runtime.http_tool(http_of(tool), tool.arg_schema, limits_of(tool))
            except ValueError as error:
                pointer = f"/httpImpl{getattr(error, 'pointer', None) or ''}"
                raise InvalidError(f"{pointer}: {error}", pointer) from None
        elif tool.type == SCRIPT:
            self._check_script(tool)
        else:
            self._check_function(tool)
        function = (
            None if tool.arg_schema or tool.type in ("http", SCRIPT) else self._runtime.function(function_of(tool))
        )
        refuse_secrets(tool.examples, tool.arg_schema if function is None else function.input_schema)

    def require_bound(self, tool: ToolContent, new: SecretHosts = NO_SECRETS) -> None:
        """Raise ForbiddenError if the caller needs the role admin to store this tool, because of a secret in it.

        Only callers with a name are held to this: without a credential, everybody is the operator.
        """
        caller = current_principal.get()
        if tool.type != "http" or not caller.name or caller.may("admin"):
            return
        if why := self._runtime.why_unbound(http_of(tool), tool.arg_schema, new):
            raise ForbiddenError(why, "secret_not_bound")

    def warnings(self, tool: ToolContent) -> list[str]:
        """Return what keeps a valid tool from being called for now."""
        why = self._runtime.why_not_called(http_of(tool), tool.arg_schema) if tool.type == "http" else None
        return [] if why is None else [why]

    def effect(self, tool: Tool) -> str:
        """Return the mark of a tool: `reads`, `changes` …"""
        if tool.type == "http":
            try:
                return effect_of(**_http_marks([step.request for step in http_of(tool).steps]))
            except ValueError:  # a file that somebody has edited
                return ""
        function = None if tool.type == SCRIPT else self._runtime.function(function_of(tool))
        return "" if function is None else function.effect

    def preview(self, tool: Tool, args: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a call would do: `requests`, `code` or `call`. ToolFailure where an argument does not fit."""
        if tool.type == SCRIPT:
            variables = {name: schema.get("default") for name, schema in _schemas(tool)} | dict(args)
            return {"code": "".join(f"{name} = {value!r}\n" for name, value in variables.items()) + code_of(tool)}
        if tool.type != "http":
            return {"call": call_text(function_of(tool), args)}
        defaults = {name: schema["default"] for name, schema in _schemas(tool) if "default" in schema}
        try:
            return {"requests": tuple(self._runtime.preview_http(tool, {**defaults, **args}))}
        except ValueError as error:  # a file that somebody has edited
            pointer = getattr(error, "pointer", None) or ""
            raise ToolFailure(f"its template can't be used: httpImpl{pointer}: {error}") from None

    # Each type

    def _http(self, tool: Tool, on_response: "OnResponse | None") -> dict[str, Any]:
        impl, limits = self._with_retries(tool), limits_of(tool)
        requests = [step.request for step in impl.steps]
        return {
            "handler": self._limited(_HttpHandler(tool, impl, self._runtime, on_response), tool, True),
            "timeout": total_seconds(impl, limits),
            "retries": 0,  # it repeats its requests itself, those that may be repeated
            **_http_marks(requests),
        }

    def _with_retries(self, tool: Tool) -> HttpImpl:
        """Return its httpImpl, with the config's number of retries where it has none."""
        impl, default, written = http_of(tool), self._runtime.default_retries, tool.http_impl or {}
        if not default:
            return impl
        if impl.request is not None:
            return replace(impl, request=_with_default(impl.request, written["request"], default))
        steps = zip(impl.steps, written["requests"], strict=True)
        return replace(
            impl,
            requests=tuple(
                replace(step, request=_with_default(step.request, one["request"], default)) for step, one in steps
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
        most = limits_of(tool).max_calls_per_minute if tool.limits else None
        if most is None:
            return handler
        rates, place = self._rates, _place(tool)

        async def run_async(**args: Any) -> Any:
            if not is_counted():
                await rates.take_async(place, most)
            return await handler(**args)

        def run(**args: Any) -> Any:  # in a thread, which may wait
            if not is_counted():
                rates.take(place, most)
            return handler(**args)

        return run_async if is_async else run

    # What could never run

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


def _http_marks(requests: Sequence[Request]) -> dict[str, Any]:
    """Return whether requests may be repeated, and whether they change nothing; None if that isn't known."""
    methods = {request.method for request in requests}
    read_only = True if SAFE.issuperset(methods) else None if CHANGING.isdisjoint(methods) else False
    return {"idempotent": all(map(is_idempotent, requests)), "read_only": read_only}


def _place(tool: Tool) -> str:
    """Return the name under which its calls are counted: unlike its id, it survives deleting and putting again."""
    return f"{tool.bundle_id}/{tool.slug}@{tool.version}"


def _only_if_allowed(target: ToolSpec, handler: Handler) -> Handler:
    """Return a handler that refuses where the function behind it isn't allowed: else a tool could stand for anything.

    A call that is refused doesn't count for the tool's limit.
    """
    name = target.name

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


def _with_default(request: Request, written: Mapping[str, Any], retries: int) -> Request:
    """Set the request's number of retries, unless its definition has one."""
    return request if "retries" in written else replace(request, retries=retries)


class _HttpHandler:
    """Made of its template at the first call. An argument that is not given and has a default is sent as that."""

    def __init__(
        self, tool: Tool, impl: HttpImpl, runtime: BundleRuntime, on_response: "OnResponse | None" = None
    ) -> None:
        self._on_response = on_response
        self._defaults = {name: schema["default"] for name, schema in _schemas(tool) if "default" in schema}
        self._tool = tool
        self._impl = impl
        self._runtime = runtime
        self._made: Callable[..., Awaitable[Any]] | None = None

    async def __call__(self, **args: Any) -> Any:
        made = self._made
        if made is None:
            tool = self._tool
            try:
                made = self._runtime.http_tool(
                    self._impl, tool.arg_schema, limits_of(tool), tool.bundle_id, self._on_response
                )
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


class _Preparation:
    """Changes arguments before they are validated: one pre-processor after the other."""

    def __init__(self, steps: tuple[PreProcessor, ...], ways: BundleRuntime) -> None:
        self._codes = [step.code for step in steps]
        self._run = ways.run_pre_processor

    async def __call__(self, args: Mapping[str, Any]) -> Mapping[str, Any]:
        for number, code in enumerate(self._codes):
            try:
                value = await self._run(code, args)
                if not isinstance(value, dict):
                    what = "nothing" if value is None else f"a value of type {type(value).__name__}"
                    hint = "end the code with the arguments, as an expression: args"
                    raise ToolFailure(f"gave {what}, and has to give an object with the arguments", hints=(hint,))
            except ToolFailure as failure:
                wrong = BadArguments(str(failure), failure.reason, failure.hints)
                wrong.argument = f"preProcessors[{number}]"
                raise wrong from None
            args = value
        return args


def _properties(tool: ToolContent) -> tuple[str, ...]:
    return tuple(tool.arg_schema.get("properties") or ())


def _schemas(tool: ToolContent) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield its arguments, each with its schema."""
    for name, schema in (tool.arg_schema.get("properties") or {}).items():
        yield name, schema if isinstance(schema, Mapping) else {}
