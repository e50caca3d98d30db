"""The errors of stored results: unknown, expired or too large handles, and wrong queries."""

import re
from typing import TypeGuard

from onetool.core.errors import BadArguments, ToolFailure

_HANDLE = re.compile(r"[0-9a-f]{32}")
LONGEST_SHOWN_HANDLE = 60  # characters of a handle that came from outside


def is_handle(value: object) -> TypeGuard[str]:
    """Whether it looks like a handle: it may come from anybody."""
    return isinstance(value, str) and _HANDLE.fullmatch(value) is not None


class HandleNotFoundError(ToolFailure):
    """The handle is unknown: never issued, another owner's, or forgotten."""

    def __init__(self, handle: object) -> None:
        hint = "a handle comes with the result that was too large; use it as it is"
        super().__init__(f"Handle not found: {handle_shown(handle)}", reason="not_found", hints=[hint])


class ResultExpiredError(ToolFailure):
    """The result has expired, or was removed to make room."""

    def __init__(self, handle: str, removed: bool) -> None:
        why = "it was removed to make room for newer ones" if removed else "its time is up"
        super().__init__(
            f"Result has expired: {handle_shown(handle)} ({why})",
            reason="expired",
            hints=["run again what gave the result"],
        )


class ResultTooLargeError(ToolFailure):
    """It is there, but more than can be had at once."""

    def __init__(self, handle: str, size: int, most: int) -> None:
        super().__init__(
            f"the result has {size:,} bytes, more than the {most:,} that can be read at once: "
            f'read it in parts, with ot.result(handle="{handle}", offset=1, limit=100)',
            reason="too_large",
        )


class NotStoredError(ToolFailure):
    """The result could not be stored: too large, or a disk error."""

    def __init__(self, message: str) -> None:
        super().__init__(message, reason="not_stored")


class BadQueryError(BadArguments, ValueError):
    """An offset, limit or search that can't be used."""


def handle_shown(handle: object) -> str:
    """A handle inside a message: whatever it holds, it stays short and on its line."""
    text = handle if isinstance(handle, str) else f"a {type(handle).__name__}"
    text = text if len(text) <= LONGEST_SHOWN_HANDLE else f"{text[:LONGEST_SHOWN_HANDLE]}…"
    return text if text.isprintable() else ascii(text)


def unreadable_error(error: Exception) -> ToolFailure:
    return ToolFailure(f"the result can't be read: {error}", reason="source_unavailable")
