"""The running call as a tool sees it: settings, secrets, progress, other tools, the caller, and spans.

Calls of other tools go through the executor like all calls: they are validated, limited and recorded, and have the
settings and secrets of the called pack. Secrets in the value are not masked until the calling tool returns. In async
code, await the call; in sync code, it returns the value.

A tool can ask the caller's user or model, and send messages to the caller. Only async tools can ask. Waiting for the
answer does not count towards the tool's deadline.

A `LogSpan` is a named piece of work, logged as one structured event at the end:

    with LogSpan("fetch", url=url) as span:
        span.add(bytes=len(body))

The event goes to the logger `onetool.span` at level info. Add a handler to that logger to process events elsewhere.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from functools import cache, wraps
from inspect import iscoroutinefunction
from time import perf_counter
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast, get_args

from onetool.core.call import Caller, CannotAsk, ForModel, ForPerson, ForRoots, Level, ToolCall, current_caller
from onetool.core.context import current_call
from onetool.core.json_data import plain
from onetool.core.redaction import mask_arguments
from onetool.core.registry import Snapshot
from onetool.core.signature import arguments_by_name, signature
from onetool.core.spec import ToolSpec
from onetool.core.text import nearest

if TYPE_CHECKING:
    from logging import Logger


def get_config() -> Mapping[str, Any]:
    """Return the running pack's settings (`settings: {<pack>: …}` in the config), or an empty dict."""
    context = current_call.get()
    if context is None or context.environment is None:
        return {}
    return context.environment.settings(context.spec.settings_of or context.spec.pack)


def get_secret(name: str) -> str | None:
    """Return a secret by name, from the app's secrets or the environment; None if it is not set."""
    context = current_call.get()
    if context is None or context.environment is None:
        return os.environ.get(name)
    return context.environment.secret(name)


def report_progress(done: float, total: float | None = None, message: str | None = None) -> None:
    """Report the progress of the running tool to the caller. Does nothing without a listener."""
    context = current_call.get()
    if context is None or context.progress is None:
        return
    if message is not None and context.environment is not None:
        message = context.environment.redact(message)
    context.progress(done, total, message)


# Calling other tools


def get_pack(name: str) -> "Pack | None":
    """Return a pack with its tools as methods: `get_pack("llm").transform(input=…)`; None for an unknown pack."""
    tools = _tools().packs().get(name)
    return None if tools is None else Pack(name, tools)


def call_tool(name: str, /, **kwargs: Any) -> Any:
    """Call a tool by its full name and return its value.

    Raises ToolFailure if the tool fails, and ValueError for an unknown pack or tool and for wrong arguments.
    """
    snapshot = _tools()
    spec = snapshot.get(name)
    pack, _, tool = name.partition(".")
    if spec is None:
        spec = snapshot.packs().get(pack, {}).get(tool)  # a tool whose name has no dot, listed under `config`
    if spec is not None:
        return _call(spec, kwargs)
    if pack not in snapshot.packs():
        raise ValueError(f"Pack not found: {pack}")
    raise ValueError(f"Tool not found: {name}{_near(tool, snapshot.packs()[pack], f'{pack}.')}")


class Pack:
    """A pack with callable tools: `pack.tool(argument=value)`. `dir(pack)` lists them."""

    def __init__(self, name: str, tools: Mapping[str, ToolSpec]) -> None:
        self._name = name
        self._tools = tools

    def __getattr__(self, name: str) -> "PackMethod":
        spec = self._tools.get(name)
        if spec is None:
            raise AttributeError(f"pack {self._name!r} has no tool {name!r}{_near(name, self._tools)}")
        return PackMethod(spec)

    def __dir__(self) -> list[str]:
        return sorted(self._tools)

    def __repr__(self) -> str:
        return f"<pack {self._name}: {', '.join(self._tools)}>"


class PackMethod:
    """A callable tool of a pack. Arguments may be positional, in the order of the signature."""

    def __init__(self, spec: ToolSpec) -> None:
        self._spec = spec
        self.__name__ = spec.name
        self.__doc__ = spec.description

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return _call(self._spec, arguments_by_name(self._spec, args, kwargs))

    def __repr__(self) -> str:
        return f"<tool {signature(self._spec)}>"


def _call(spec: ToolSpec, args: dict[str, Any]) -> Any:
    context = current_call.get()
    if context is None or context.environment is None:
        raise RuntimeError(f"{spec.name} belongs to a call that has ended: only running tools can call tools")
    call = ToolCall(f"{context.call.id}/{spec.name}", spec.name, args, f"tool:{context.spec.name}")
    environment = context.environment
    if is_on_event_loop():

        async def call_later() -> Any:
            return (await environment.call_tool(call)).value()

        return call_later()
    from onetool.core.threads import run_blocking  # imports asyncio, which importing a pack does not need

    return run_blocking(environment.call_tool(call)).value()


def is_on_event_loop() -> bool:
    from asyncio import _get_running_loop  # the public function raises, which is slow

    return _get_running_loop() is not None


def _near(name: str, known: Mapping[str, ToolSpec], prefix: str = "") -> str:
    if names := nearest(name, known):
        return f"; did you mean {' or '.join(prefix + similar for similar in names)}?"
    return f"; it has {', '.join(prefix + tool for tool in list(known)[:10])}"


def _tools() -> Snapshot:
    """Return the tools that the running tool may call; empty outside of calls. For tests, see onetool.sdk.testing."""
    context = current_call.get()
    if context is None or context.environment is None:
        return Snapshot({})
    return context.environment.snapshot()


# The caller


async def ask_person(message: str, fields: Mapping[str, Any], *, key: str | None = None) -> dict[str, Any]:
    """Ask the user to fill in a form, and return the values.

    Args:
        message: The question, with the reason for asking.
        fields: A JSON schema of type object, or only its `properties`: {"name": {"type": "string"}}. With only
            properties, those without a default are required.
        key: A name for the question, for tools that ask several times; must be unique.

    Raises:
        Declined: The user declined, or closed the form.
        CannotAsk: The caller can't ask a user.
    """
    from onetool.core.schema import CompiledSchema  # rarely needed

    if fields.get("type") == "object" and isinstance(fields.get("properties"), Mapping):
        schema = dict(fields)
    else:
        required = [name for name, field in fields.items() if "default" not in field]
        schema = {"type": "object", "properties": dict(fields)} | ({"required": required} if required else {})
    CompiledSchema(schema, closed=False)  # report an invalid form as this tool's failure
    question = ForPerson(key=key or _key(message), message=redacted(message), schema=redacted(schema))
    return await _caller("elicitation", "a person").ask(question)


async def ask_model(
    prompt: str | Sequence[Mapping[str, Any]],
    *,
    max_tokens: int = 1000,
    system: str | None = None,
    key: str | None = None,
) -> str:
    """Ask the client's model, at the client's expense, and return its text.

    Args:
        prompt: A string, or messages: [{"role": "user", "content": "…"}, …].
        max_tokens: The maximum length of the answer.
        system: The system prompt.
        key: A name for the question, for tools that ask several times; must be unique.
    """
    messages: list[dict[str, Any]] = []
    for message in [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt:
        content = message["content"]
        block = {"type": "text", "text": content} if isinstance(content, str) else content
        messages.append({"role": message["role"], "content": block})
    question = ForModel(
        key=key or _key(prompt), messages=tuple(redacted(messages)), max_tokens=max_tokens, system=redacted(system)
    )
    return await _caller("sampling", "a model").ask(question)


async def client_roots(*, key: str | None = None) -> list[dict[str, Any]]:
    """Return the folders and files that the client works on: [{"uri": "file:///…", "name": …}, …]."""
    return await _caller("roots", "for its folders").ask(ForRoots(key=key or "roots"))


def client_can(what: str) -> bool:
    """Return whether the caller has a capability: "elicitation", "sampling", "roots", or the ID of an extension."""
    caller = current_caller.get()
    return caller is not None and caller.can(what)


def log_message(data: Any, level: Level = "info", logger: str | None = None) -> None:
    """Send a log message to the caller, if the caller listens to this level. Secrets are masked."""
    if level not in get_args(Level):
        raise ValueError(f"level: expected one of {', '.join(get_args(Level))}, got {level!r}")
    caller, context = current_caller.get(), current_call.get()
    if caller is None:
        return
    caller.log(level, redacted(data), logger or (context.spec.pack if context else None))


def _caller(capability: str, whom: str) -> Caller:
    caller, context = current_caller.get(), current_call.get()
    if caller is not None and caller.can(capability):
        return caller
    tool = context.spec.name if context else "this tool"
    where = "from here" if caller is None else "through this client"
    error = CannotAsk(
        capability, f"{tool} needs to ask {whom}, which can't be done {where}: {capability} is not supported"
    )
    if caller is not None:
        caller.lacks(error)
    raise error


def _key(about: Any) -> str:
    """Return a key that is equal for equal questions, even in other processes."""
    from hashlib import blake2b

    return f"q{blake2b(repr(about).encode(), digest_size=6).hexdigest()}"


# Spans

F = TypeVar("F", bound=Callable[..., Any])
INFO = 20  # as in `logging`, which importing a pack does not need

# Every task and thread has its own current span.
_current: "ContextVar[LogSpan | None]" = ContextVar("onetool_current_span", default=None)


class LogSpan:
    """A span: a context manager, and a decorator for sync and async functions: `@LogSpan("fetch")`.

    The event has `span`, `outcome` (ok or error), `duration_ms`, `parent` (the enclosing span), `call_id` inside of a
    tool, `error` and `error_type` of an exception, and the fields. Secrets are masked. Fields with a reserved name get
    a trailing underscore. Exceptions are not caught.
    """

    def __init__(self, name: str, /, **fields: Any) -> None:
        self.name = name
        self.fields = fields
        self._parent: LogSpan | None = None
        self._started = 0.0

    def add(self, /, **fields: Any) -> None:
        """Add fields to the event."""
        self.fields.update(fields)

    def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Report the progress of this span to the caller, under its name."""
        report_progress(done, total, message or self.name)

    def __enter__(self) -> Self:
        self._parent = _current.get()
        _current.set(self)
        self._started = perf_counter()
        return self

    def __exit__(self, _kind: Any, error: BaseException | None, _trace: Any) -> None:
        elapsed = perf_counter() - self._started
        _current.set(self._parent)  # by value, not by token: a generator may end in a different context
        log = _log()
        if log.isEnabledFor(INFO):
            with suppress(Exception):  # a span that can't be logged must not break the work
                event = self._event(elapsed, error)
                log.info(event["span"], extra=event)

    def __call__(self, function: F) -> F:
        """Wrap the function so that every call has a new span."""
        if iscoroutinefunction(function):

            @wraps(function)
            async def call_async(*args: Any, **kw: Any) -> Any:
                with LogSpan(self.name, **self.fields):
                    return await function(*args, **kw)

            return cast(F, call_async)

        @wraps(function)
        def call(*args: Any, **kw: Any) -> Any:
            with LogSpan(self.name, **self.fields):
                return function(*args, **kw)

        return cast(F, call)

    def _event(self, elapsed: float, error: BaseException | None) -> dict[str, Any]:
        context = current_call.get()
        event: dict[str, Any] = {
            "span": self.name,
            "outcome": "ok" if error is None else "error",
            "duration_ms": round(elapsed * 1000, 3),
            "parent": self._parent.name if self._parent else None,
        }
        if context is not None:
            event["call_id"] = context.call.id
        if error is not None:
            event |= {"error_type": type(error).__name__, "error": ""}
            with suppress(Exception):  # a broken __str__ must not hide that there was an error
                event["error"] = str(error)
        reserved = event.keys() | _record_attributes()
        fields = mask_arguments({name: _plain(value) for name, value in self.fields.items()})
        return redacted(event | {f"{name}_" if name in reserved else name: value for name, value in fields.items()})


def redacted(data: Any, for_caller: bool = False) -> Any:
    """Mask the app's secrets in the data.

    With `for_caller`, secrets that the caller sent stay visible.
    """
    context = current_call.get()
    if context is None or context.environment is None:
        return data
    return context.environment.redact(data, context.call.args if for_caller else None)


def _plain(value: Any) -> Any:
    """Convert the value to plain data, so that secrets in models are found by name, too."""
    try:
        return plain(value)
    except Exception:  # noqa: BLE001 - not data; show the type, because the text could contain secrets
        return f"<{type(value).__name__}>"


@cache
def _log() -> "Logger":
    import logging

    return logging.getLogger("onetool.span")


@cache
def _record_attributes() -> frozenset[str]:
    """Return the attributes of log records, which must not be overwritten."""
    import logging

    return frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
