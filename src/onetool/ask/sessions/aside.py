"""Work that blocks, done in a thread while others go on. It is never left halfway."""

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def aside(work: Callable[[], T], undo: Callable[[T], None] | None = None) -> T:
    """What it gives. Who is cancelled meanwhile waits for its end all the same; then what it gave is undone."""
    import asyncio  # lists of sessions, and their completion, do without

    under_way = asyncio.get_running_loop().run_in_executor(None, work)
    cancelled: asyncio.CancelledError | None = None
    while not under_way.done():
        try:
            await asyncio.wait([under_way])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        return under_way.result()
    if under_way.exception() is None and undo is not None:
        undo(under_way.result())
    raise cancelled
