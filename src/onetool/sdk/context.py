"""The running call as a tool sees it: settings, secrets, progress; other tools; whoever called; spans of its work.

A call of another tool goes through the executor like any other: validated, within limits, recorded, with the settings
and secrets of the pack that it calls. Secrets in its value are not masked: that happens where the calling tool returns.
In async code it is awaited, elsewhere it returns the value.

A tool can ask the person or the model behind its caller, and send messages there. Asking is for async tools. The time
that an answer takes does not count against the tool's deadline.

A `LogSpan` is a piece of work that has a name. It becomes one structured log event when it has ended:

    with LogSpan("fetch", url=url) as span:
        span.add(bytes=len(body))

The event goes to the logger `onetool.span`, at level info. Whoever wants it elsewhere adds a handler there.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from functools import cache, wraps
from inspect import iscoroutinefunction
from time import perf_counter
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast, get_args

from onetool.core.call import (
    Caller,
    CannotAsk,
    ForModel,
    ForPerson,
    ForRoots,
    Level,
    ToolCall,
    current_caller,
)
from onetool.core.context import Environment, current_call
from onetool.core.json_data import plain
from onetool.core.redaction import mask_arguments
from onetool.core.registry import Snapshot
from onetool.core.signature import arguments_by_name, signature
from onetool.core.spec import ToolSpec
from onetool.core.text import nearest

if TYPE_CHECKING:
    from logging import Logger


def get_config() -> Mapping[str, Any]:
    """Return the settings of the running pack: `settings: {<pack>: …}` in the config. Empty if there are none."""
    context = current_call.get()
    if context is None or context.environment is None:
        return {}
    return context.environment.settings(context.spec.settings_of or context.spec.pack)


def get_secret(name: str) -> str | None:
    """Return a secret by name, from the app's secrets or the environment; None when there is none."""
    context = current_call.get()
    if context is None or context.environment is None:
        return os.environ.get(name)
    return context.environment.secret(name)


def report_progress(done: float, total: float | None = None, message: str | None = None) -> None:
    """Report to the caller how far the running tool has come. Does nothing without a listener."""
    context = current_call.get()
    if context is None or context.progress is None:
        return
    if message is not None and context.environment is not None:
        message = context.environment.redact(message)
    context.progress(done, total, message)


# Calling other tools


def get_pack(name: str) -> "Pack | None":
    """Return a pack's tools as methods: `get_pack("llm").transform(input=…)`; None when there is no such pack."""
    tools = _tools().packs().get(name)
    return None if tools is None else Pack(name, tools)


def call_tool(name: str, /, **kwargs: Any) -> Any:
    """Call a tool by its full name and get its value; a tool that fails raises ToolFailure with its message.

    ValueError when there is no such pack, or no such tool in it, or where the arguments are wrong.
    """
    snapshot = _tools()
    spec = snapshot.get(name)
    pack, _, tool = name.partition(".")
    if spec is None:
        spec = snapshot.packs().get(pack, {}).get(tool)  # one without a dot, under the pack that it is listed in
    if spec is not None:
        return _call(spec, kwargs)
    if pack not in snapshot.packs():
        raise ValueError(f"Pack not found: {pack}")
    raise ValueError(f"Tool not found: {name}{_near(tool, snapshot.packs()[pack], f'{pack}.')}")


class Pack:
    """A pack that can be called: `pack.tool(argument=value)`. `dir(pack)` lists its tools."""

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
    """One tool of a pack, to be called. Arguments may also be given in the order of the signature."""

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
        raise RuntimeError(f"{spec.name} was kept from a call that has ended: a tool can be called only from a tool")
    call = ToolCall(f"{context.call.id}/{spec.name}", spec.name, args, f"tool:{context.spec.name}")
    if is_on_event_loop():
        return _value_later(context.environment, call)
    from onetool.core.threads import run_blocking  # brings asyncio, which importing a pack does not need

    return run_blocking(context.environment.call_tool(call)).value()


async def _value_later(environment: Environment, call: ToolCall) -> Any:
    return (await environment.call_tool(call)).value()


def is_on_event_loop() -> bool:
    from asyncio import _get_running_loop  # the public one raises, which costs more than the rest of this

    return _get_running_loop() is not None


def _near(name: str, known: Mapping[str, ToolSpec], prefix: str = "") -> str:
    names = nearest(name, known)
    if names:
        return f"; did you mean {' or '.join(prefix + one for one in names)}?"
    return f"; it has {', '.join(prefix + one for one in list(known)[:10])}"


def _tools() -> Snapshot:
    """Return the tools that the running tool may call; none outside of a call (onetool.sdk.testing provides some)."""
    context = current_call.get()
    if context is None or context.environment is None:
        return Snapshot({})
    return context.environment.snapshot()


# Whoever called


async def ask_person(message: str, fields: Mapping[str, Any], *, key: str | None = None) -> dict[str, Any]:
    """Ask the person at the other end to fill in a form; what they filled in.

    Args:
        message: What is asked, and why.
        fields: A JSON schema of type object, or only its `properties`: {"name": {"type": "string"}}. All of these
            are required, unless they have a default.
        key: What the question is called, where a tool asks several times; two questions must not share one.

    Raises:
        Declined: They said no, or closed the form.
        CannotAsk: Whoever called has no way to ask a person.
    """
    from onetool.core.schema import CompiledSchema  # most packs ask nobody

    if fields.get("type") == "object" and isinstance(fields.get("properties"), Mapping):
        schema = dict(fields)
    else:
        required = [name for name, field in fields.items() if "default" not in field]
        schema = {"type": "object", "properties": dict(fields)} | ({"required": required} if required else {})
    CompiledSchema(schema, closed=False)  # a form that nobody could fill in is this tool's failure, told at once
    return await _caller("elicitation", "a person").ask(
        ForPerson(key=key or _key(message), message=_clean(message), schema=_clean(schema))
    )


async def ask_model(
    prompt: str | Sequence[Mapping[str, Any]],
    *,
    max_tokens: int = 1000,
    system: str | None = None,
    key: str | None = None,
) -> str:
    """Ask the model behind the client, at the client's expense; its text.

    Args:
        prompt: A text, or messages: [{"role": "user", "content": "…"}, …].
        max_tokens: How long the answer may be.
        system: How the model should behave.
        key: What the question is called, where a tool asks several times; two questions must not share one.
    """
    messages: list[dict[str, Any]] = []
    for one in [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt:
        content = one["content"]
        block = {"type": "text", "text": content} if isinstance(content, str) else content
        messages.append({"role": one["role"], "content": block})
    question = ForModel(
        key=key or _key(prompt), messages=tuple(_clean(messages)), max_tokens=max_tokens, system=_clean(system)
    )
    return await _caller("sampling", "a model").ask(question)


async def client_roots(*, key: str | None = None) -> list[dict[str, Any]]:
    """Return the folders and files that the client works on: [{"uri": "file:///…", "name": …}, …]."""
    return await _caller("roots", "for its folders").ask(ForRoots(key=key or "roots"))


def client_can(what: str) -> bool:
    """Return whether the caller has a capability: "elicitation", "sampling", "roots", or an extension by its id."""
    caller = current_caller.get()
    return caller is not None and caller.can(what)


def log_message(data: Any, level: Level = "info", logger: str | None = None) -> None:
    """Tell the caller something while the tool runs, if it listens to this level. Secrets are masked."""
    if level not in get_args(Level):
        raise ValueError(f"level: expected one of {', '.join(get_args(Level))}, got {level!r}")
    caller, context = current_caller.get(), current_call.get()
    if caller is None:
        return
    caller.log(level, _clean(data), logger or (context.spec.pack if context else None))


def _caller(capability: str, whom: str) -> Caller:
    caller, context = current_caller.get(), current_call.get()
    if caller is not None and caller.can(capability):
        return caller
    tool = context.spec.name if context else "this tool"
    where = "from here" if caller is None else "through this client"
    error = CannotAsk(capability, f"{tool} needs to ask {whom}, which can't be done {where}: it takes {capability}")
    if caller is not None:
        caller.lacks(error)
    raise error


def _clean(value: Any) -> Any:
    """Return the value with the app's secrets masked, since questions are sent to the client."""
    context = current_call.get()
    return value if context is None or context.environment is None else context.environment.redact(value)


def _key(about: Any) -> str:
    """Return a key that is the same for the same question, whichever process asks it."""
    from hashlib import blake2b

    return f"q{blake2b(repr(about).encode(), digest_size=6).hexdigest()}"


# Spans

F = TypeVar("F", bound=Callable[..., Any])

INFO = 20  # as in `logging`, which is not for those who only import a pack

# A context variable: every task and thread has its own idea of what it is in the middle of.
_current: "ContextVar[LogSpan | None]" = ContextVar("onetool_current_span", default=None)


class LogSpan:
    """A context manager, in async code too, and a decorator for functions of both kinds: `@LogSpan("fetch")`.

    The event has `span`, `outcome` (ok or error), `duration_ms`, `parent` (the span around it), `call_id` inside of a
    tool, `error` and `error_type` of what was raised, and the fields. Secrets are masked. A field whose name is taken
    gets an underscore after it. What is raised passes through.
    """

    def __init__(self, name: str, /, **fields: Any) -> None:
        self.name = name
        self.fields = fields
        self._parent: LogSpan | None = None
        self._started = 0.0

    def add(self, /, **fields: Any) -> None:
        """Tell more, as it becomes known."""
        self.fields.update(fields)

    def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Report to the caller how far this piece of work has come, under its name."""
        report_progress(done, total, message or self.name)

    def __enter__(self) -> Self:
        self._parent = _current.get()
        _current.set(self)
        self._started = perf_counter()
        return self

    def __exit__(self, _kind: Any, error: BaseException | None, _trace: Any) -> None:
        elapsed = perf_counter() - self._started
        _current.set(self._parent)  # by value, not by token: a generator may end in another context than it began in
        log = _log()
        if log.isEnabledFor(INFO):
            with suppress(Exception):  # a span that can't be told must not change what happens
                event = self._event(elapsed, error)
                log.info(event["span"], extra=event)

    def __call__(self, function: F) -> F:
        """Wrap the function in a span of its own for every call."""
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
            event |= {"error_type": type(error).__name__, "error": _text(error)}
        taken = event.keys() | _names_of_logging()
        fields = mask_arguments({name: _plain(value) for name, value in self.fields.items()})
        return redacted(event | {f"{name}_" if name in taken else name: value for name, value in fields.items()})


def redacted(data: Any, for_caller: bool = False) -> Any:
    """Return the data with the app's secrets masked, inside of an app.

    What goes `for_caller` into the call's result keeps what the caller sent itself.
    """
    context = current_call.get()
    if context is None or context.environment is None:
        return data
    return context.environment.redact(data, context.call.args if for_caller else None)


def _plain(value: Any) -> Any:
    """Return the value as data, so that a secret inside of a model is found by its name, too."""
    try:
        return plain(value)
    except Exception:  # noqa: BLE001 - no data; its text could hold anything, so that its type has to do
        return f"<{type(value).__name__}>"


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - a broken __str__ must not hide that there was an error
        return ""


@cache
def _log() -> "Logger":
    import logging

    return logging.getLogger("onetool.span")


@cache
def _names_of_logging() -> frozenset[str]:
    """Return what a log record has of its own, and refuses to have overwritten."""
    import logging

    return frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
