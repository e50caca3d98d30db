"""`LogSpan`: a piece of work that has a name, as one structured log event when it has ended.

    with LogSpan("fetch", url=url) as span:
        span.add(bytes=len(body))

The event goes to the logger `onetool.span`, at level info. Whoever wants it elsewhere adds a handler there.
"""

from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from functools import cache, wraps
from inspect import iscoroutinefunction
from time import perf_counter
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from onetool.core.context import current_call
from onetool.core.json_data import plain
from onetool.core.redaction import mask_arguments
from onetool.sdk.context import report_progress

if TYPE_CHECKING:
    from logging import Logger

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
        """The function in a span of its own for every call."""
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
    """The data with the app's secrets masked, inside of an app.

    What goes `for_caller` into the call's result keeps what the caller sent itself.
    """
    context = current_call.get()
    if context is None or context.environment is None:
        return data
    return context.environment.redact(data, context.call.args if for_caller else None)


def _plain(value: Any) -> Any:
    """As data, so that a secret inside of a model is found by its name, too."""
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
    """What a log record has of its own, and refuses to have overwritten."""
    import logging

    return frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
