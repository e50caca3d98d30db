"""Stores results that are too large to send. Callers read them page by page, by handle.

store     ResultStore: results in the database
paging    pages of a text: some of its lines, or of the lines that match a search

This module has the values and errors for callers.
"""

import re
from typing import TypeGuard

import msgspec

from onetool.core.call import Page as Page
from onetool.core.errors import ToolFailure
from onetool.services.results.paging import is_page as is_page
from onetool.services.results.paging import sendable_page as sendable_page

MAX_SHOWN_HANDLE = 60  # characters of an untrusted handle
_HANDLE = re.compile(r"[0-9a-f]{32}")


class StoredResult(msgspec.Struct, frozen=True):
    """A stored result: its handle, its size in bytes of UTF-8, and its number of lines."""

    handle: str
    size: int
    lines: int


class KeptResult(msgspec.Struct, frozen=True, kw_only=True):
    """A stored result in a list, with its time and, if known, its tool."""

    handle: str
    name: str | None
    at: float
    size: int
    lines: int
    head: str


class HandleNotFoundError(ToolFailure):
    """A handle that was never issued, belongs to another owner, or was forgotten."""

    def __init__(self, handle: object) -> None:
        hint = "copy the handle exactly as it came with the result"
        super().__init__(f"Handle not found: {_short_handle(handle)}", reason="not_found", hints=[hint])


class ResultExpiredError(ToolFailure):
    """A result that has expired, or was removed to make room."""

    def __init__(self, handle: str, removed: bool) -> None:
        why = "it was removed to make room for newer results" if removed else "its retention time has passed"
        super().__init__(
            f"Result has expired: {_short_handle(handle)} ({why})",
            reason="expired",
            hints=["repeat the call or the code that returned the result"],
        )


class ResultTooLargeError(ToolFailure):
    """A result that is too large to read at once."""

    def __init__(self, handle: str, size: int, limit: int) -> None:
        super().__init__(
            f"the result has {size:,} bytes, more than the {limit:,} that can be read at once: "
            f'read it in parts, with ot.result(handle="{handle}", offset=1, limit=100)',
            reason="too_large",
        )


class NotStoredError(ToolFailure):
    """A result that was not stored: it is too large, or the database can't be written. The call has had its effect."""

    def __init__(self, why: str) -> None:
        hint = "ask for a smaller part, but don't repeat a call that changes something"
        super().__init__(f"The call was made, but its result {why}", reason="not_stored", hints=[hint])


def is_handle(value: object) -> TypeGuard[str]:
    """Return whether an untrusted value looks like a handle."""
    return isinstance(value, str) and _HANDLE.fullmatch(value) is not None


def _short_handle(handle: object) -> str:
    """Return an untrusted handle for a message: short, and on one line."""
    text = handle if isinstance(handle, str) else f"a {type(handle).__name__}"
    text = text if len(text) <= MAX_SHOWN_HANDLE else f"{text[:MAX_SHOWN_HANDLE]}…"
    return text if text.isprintable() else ascii(text)
