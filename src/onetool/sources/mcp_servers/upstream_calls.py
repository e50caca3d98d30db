"""The pending calls of a connection: their callers, and why the transport or the login failed for one of them.

Older servers don't tell which call a request, progress or log message belongs to. If only one caller has pending calls,
the message is passed to that caller; otherwise it is dropped, so that no client sees another's messages. The SDK only
reports that a request failed, so the transport records the reason here. No object here ever contains a token.
"""

import asyncio
import shlex
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar, copy_context
from time import monotonic
from typing import Any, TypeVar

from onetool.core.call import Caller, current_caller
from onetool.core.context import begin_span, current_call
from onetool.core.errors import ToolFailure
from onetool.core.trace import Span
from onetool.http.errors import AuthError as AuthError
from onetool.sdk.context import report_progress


class TransportFailure:
    """The last transport failure of one call, or of a connection without pending calls."""

    def __init__(self) -> None:
        self.words: str | None = None
        self.status: int | None = None
        self.body_text = ""  # the first line of a refusal's body
        self.was_not_received = False  # failed before any byte of the request was sent

    def failed(self, error: Exception, was_not_received: bool) -> None:
        self.status, self.body_text = None, ""
        self.was_not_received = was_not_received
        failure = "it can't be reached" if was_not_received else "the connection broke"
        self.words = f"{failure}: {str(error) or type(error).__name__}"

    def answered(self, status: int, reason: str, body_text: str = "") -> None:
        self.was_not_received = False
        self.status, self.body_text = status, body_text
        answer = f"it answers {status} {reason}".strip()
        self.words = None if status < 400 else f"{answer}: {body_text}" if body_text else answer

    def refused(self, what: str) -> None:
        """Record why the answer was rejected."""
        self.words = f"its response {what}"


# Pending calls of a connection

T = TypeVar("T")
LATE_SECONDS = 10.0  # seconds during which messages may still belong to a cancelled call


class UpstreamCall:
    """A pending call. Created on the caller's loop, used on the servers' loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()  # contains the running call
        self._limit: asyncio.Timeout | None = None
        call = current_call.get()
        self.caller: Caller | None = current_caller.get()
        self.peer: object = getattr(self.caller, "peer", self.caller)  # the client, if known
        self.progress = None if call is None or call.progress is None else self._report
        self.is_retry = False
        self.failure = TransportFailure()
        self._questions = 0  # pending questions to the caller
        self._left = 0.0  # remaining seconds while the timeout is paused

    @asynccontextmanager
    async def within(self, seconds: float) -> AsyncGenerator[None]:
        """Raise TimeoutError if the server takes longer, not counting the time in which it waits for the caller."""
        async with asyncio.timeout(seconds) as self._limit:
            try:
                yield
            finally:
                self._limit = None

    async def on_caller_loop(self, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run `ask` on the caller's loop, with the call's timeout paused."""
        if self._limit is None:
            raise ToolFailure("the call has ended, so its caller can't be asked")
        here = asyncio.get_running_loop()
        if self._questions == 0 and self._limit is not None and (until := self._limit.when()) is not None:
            self._left = until - here.time()
            self._limit.reschedule(None)
        self._questions += 1
        try:
            answer = self._context.copy().run(asyncio.run_coroutine_threadsafe, ask(), self._loop)
            return await asyncio.wrap_future(answer)
        finally:
            self._questions -= 1
            if self._questions == 0 and self._limit is not None:  # None if the call has ended
                self._limit.reschedule(here.time() + self._left)

    def _report(self, done: float, total: float | None, message: str | None) -> None:
        self.run_in_context(report_progress, done, total, message)  # masks secrets

    def begin_span(self, name: str) -> Span | None:
        """Begin a span for a request from the caller. Return None if no spans are exported."""
        return self._context.copy().run(begin_span, name)

    def run_in_context(self, notify: Callable[..., None], *args: Any) -> None:
        self._context.copy().run(notify, *args)


class UpstreamCalls:
    def __init__(self) -> None:
        self._calls: list[UpstreamCall] = []
        # The server may continue cancelled calls: their callers, and how long messages may be for them.
        self._abandoned: dict[int, tuple[object, float]] = {}

    @contextmanager
    def pending(self, call: UpstreamCall) -> Generator[None]:
        self._calls.append(call)
        try:
            yield
        except (asyncio.CancelledError, TimeoutError):
            self._abandoned[id(call.peer)] = call.peer, monotonic() + LATE_SECONDS
            raise
        finally:
            self._calls.remove(call)

    def is_empty(self) -> bool:
        return not self._calls

    def only(self) -> UpstreamCall | None:
        """Return the call that a message without a call id belongs to, or None if that is ambiguous."""
        calls, now = self._calls, monotonic()
        self._abandoned = {key: (peer, until) for key, (peer, until) in self._abandoned.items() if until > now}
        peers = [*(call.peer for call in calls), *(peer for peer, _ in self._abandoned.values())]
        if not calls or any(peer is not peers[0] for peer in peers):
            return None
        return calls[-1]


current_upstream_call: ContextVar[UpstreamCall | None] = ContextVar("onetool_current_flight", default=None)
"""The call that a message belongs to, known for messages in a response or in the stream of a request."""


# Authentication errors


class LoginRequiredError(AuthError):
    """An error for a missing user login, raised in the background instead of a prompt."""

    def __init__(self, name: str, why: str = "requires a login", scopes: str = "") -> None:
        self.server = name
        self.scopes = tuple(scopes.split())
        self.command = f"onetool servers login {shlex.quote(name)}"
        super().__init__(f"the server {name} {why}: {self.command}")


class AuthWatch:
    """A record of the authentication error of requests sent within `watching_auth`."""

    error: AuthError | None = None


_auth_watch: ContextVar[AuthWatch | None] = ContextVar("onetool_auth_watch", default=None)


@contextmanager
def watching_auth() -> Iterator[AuthWatch]:
    """Record why requests within this context were refused.

    Without a login, the connection ends with the error itself. A single call that requires more rights must not end
    other calls: that call gets a bare refusal, and the reason is recorded here.
    """
    watch = AuthWatch()
    before = _auth_watch.set(watch)
    try:
        yield watch
    finally:
        _auth_watch.reset(before)


def note_auth_error(error: AuthError) -> None:
    if (watch := _auth_watch.get()) is not None:
        watch.error = error


def auth_error_in(error: BaseException) -> AuthError | None:
    """Return the authentication error that ended a connection, even from inside the exception groups of tasks."""
    if isinstance(error, AuthError):
        return error
    if isinstance(error, BaseExceptionGroup):
        return next((found for inner in error.exceptions if (found := auth_error_in(inner)) is not None), None)
    return None
