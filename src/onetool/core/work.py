"""Blocking work in threads that ends with its caller."""

from collections.abc import Callable
from contextvars import ContextVar, copy_context
from threading import Event
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_unwanted: ContextVar[Event | None] = ContextVar("unwanted", default=None)


def check_wanted() -> None:
    """Raise CancelledError if the caller of the running work has been cancelled. Call it where nothing is half done."""
    unwanted = _unwanted.get()
    if unwanted is not None and unwanted.is_set():
        from asyncio import CancelledError  # listing tools doesn't need it

        raise CancelledError


async def run_in_thread(work: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
    """Run blocking work in a thread. If cancelled, still wait until the work ends, at the next `check_wanted`.

    So what the caller holds (a lock, a slot) is held until then.
    """
    return await run_or_undo(lambda: work(*args, **named), lambda _: None)


async def run_or_undo(work: Callable[[], T], undo: Callable[[T], None]) -> T:
    """Run work as `run_in_thread` does. If cancelled, undo the result that it still had."""
    import asyncio

    context, unwanted = copy_context(), Event()
    context.run(_unwanted.set, unwanted)
    running = asyncio.get_running_loop().run_in_executor(None, context.run, work)
    cancelled: asyncio.CancelledError | None = None
    while not running.done():
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError as error:
            cancelled = error
            unwanted.set()
    if cancelled is None:
        return running.result()
    if running.exception() is None:
        undo(running.result())
    raise cancelled
