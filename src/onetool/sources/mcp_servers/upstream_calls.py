"""Calls that are pending on a connection: whose they are, and why a transport or a login failed for one of them.

Older servers do not say to which call a question, a progress or a message belongs. Where only one caller has pending
calls it is clear; where several have, it is dropped: no client sees what is another's. The SDK only says that a request
failed, so the transport notes the reason here. Nothing here ever holds a token.
"""

import asyncio
import shlex
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar, copy_context
from time import monotonic
from typing import Any, TypeVar

from onetool.core.call import Caller, current_caller
from onetool.core.context import Progress, begin_span, current_call
from onetool.core.errors import ToolFailure
from onetool.core.trace import Span
from onetool.http.errors import AuthError as AuthError
from onetool.sdk.context import report_progress


class TransportFailure:
    """The last transport failure of one call, or of a connection without pending calls."""

    def __init__(self) -> None:
        self.words: str | None = None
        self.status: int | None = None
        self.body_text = ""  # the first line of the answer, where it says why
        self.was_not_received = False  # before a byte of the request had left

    def failed(self, error: Exception, was_not_received: bool) -> None:
        self.status, self.body_text = None, ""
        self.was_not_received = was_not_received
        what = "it can not be reached" if was_not_received else "the connection broke"
        self.words = f"{what}: {str(error) or type(error).__name__}"

    def answered(self, status: int, reason: str, body_text: str = "") -> None:
        self.was_not_received = False
        self.status, self.body_text = status, body_text
        told = f"it answers {status} {reason}".strip()
        self.words = None if status < 400 else f"{told}: {body_text}" if body_text else told

    def refused(self, what: str) -> None:
        """Note why its answer was not taken."""
        self.words = f"its answer {what}"


# Pending calls of a connection


T = TypeVar("T")

LATE_SECONDS = 10.0  # seconds for which a call that was given up may still be meant


class UpstreamCall:
    """One pending call. Made on the caller's loop, used on the servers' loop."""

    def __init__(self, progress: Progress | None = None) -> None:
        """`progress` takes the place of that of the running call."""
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()  # with the call that is running
        self._limit: asyncio.Timeout | None = None
        call = current_call.get()
        self.caller: Caller | None = current_caller.get()
        self.peer: object = getattr(self.caller, "peer", self.caller)  # where it calls from, where that is known
        self.progress = progress or (None if call is None or call.progress is None else self._report)
        self.is_retry = False
        self.failure = TransportFailure()
        self._questions = 0  # that wait for an answer
        self._left = 0.0  # seconds, while the clock stands still

    @asynccontextmanager
    async def within(self, seconds: float) -> AsyncGenerator[None]:
        """Raise TimeoutError when the server takes longer; the time that its caller takes to answer does not count."""
        async with asyncio.timeout(seconds) as self._limit:
            try:
                yield
            finally:
                self._limit = None

    async def on_caller_loop(self, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run `ask` on the caller's loop; the call's timeout is paused meanwhile."""
        if self._limit is None:
            raise ToolFailure("the call is over, and nobody is there to be asked")
        with self._paused():
            done = self._context.copy().run(asyncio.run_coroutine_threadsafe, ask(), self._loop)
            return await asyncio.wrap_future(done)

    @contextmanager
    def _paused(self) -> Generator[None]:
        here = asyncio.get_running_loop()
        if self._questions == 0 and self._limit is not None and (until := self._limit.when()) is not None:
            self._left = until - here.time()
            self._limit.reschedule(None)
        self._questions += 1
        try:
            yield
        finally:
            self._questions -= 1
            if self._questions == 0 and self._limit is not None:  # else the call has ended meanwhile
                self._limit.reschedule(here.time() + self._left)

    def _report(self, done: float, total: float | None, message: str | None) -> None:
        self.run_in_context(report_progress, done, total, message)  # which masks secrets

    def begin_span(self, name: str) -> Span | None:
        """Begin the span of a request of the caller; None where no spans are exported."""
        return self._context.copy().run(begin_span, name)

    def run_in_context(self, notify: Callable[..., None], *what: Any) -> None:
        self._context.copy().run(notify, *what)


class UpstreamCalls:
    def __init__(self) -> None:
        self._calls: list[UpstreamCall] = []
        # The server may go on with what was given up all the same: who did, and until when something may be theirs.
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
        """Return the call that a message without a call id belongs to, if it is clear."""
        calls, now = self._calls, monotonic()
        self._abandoned = {key: (peer, until) for key, (peer, until) in self._abandoned.items() if until > now}
        peers = [*(call.peer for call in calls), *(peer for peer, _ in self._abandoned.values())]
        if not calls or any(peer is not peers[0] for peer in peers):
            return None
        return calls[-1]


current_upstream_call: ContextVar[UpstreamCall | None] = ContextVar("onetool_current_flight", default=None)
"""Where a question comes as part of an answer, or on the stream of a request, it is known whose it is."""


# Authentication errors


class LoginRequiredError(AuthError):
    """A person has to log in. Raised in the background instead of asking."""

    def __init__(self, name: str, why: str = "wants a login", scopes: str = "") -> None:
        self.server = name
        self.scopes = tuple(scopes.split())
        self.command = f"onetool servers login {shlex.quote(name)}"
        super().__init__(f"the server {name} {why}: {self.command}")


class AuthWatch:
    """Collects the authentication error of requests sent within `watching_auth`."""

    error: AuthError | None = None


_auth_watch: ContextVar[AuthWatch | None] = ContextVar("onetool_auth_watch", default=None)


@contextmanager
def watching_auth() -> Iterator[AuthWatch]:
    """Collect in a watch why requests that are sent in here were not let through.

    A connection is of no use without a login, and ends with the error itself. A single call that wants more rights than
    the others must not end them: it gets a response that says nothing, and the reason stands here.
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
    """Return the authentication error that ended a connection: task groups wrap what was raised in them."""
    if isinstance(error, AuthError):
        return error
    if isinstance(error, BaseExceptionGroup):
        return next((found for inner in error.exceptions if (found := auth_error_in(inner)) is not None), None)
    return None
