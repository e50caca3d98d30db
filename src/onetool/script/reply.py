"""Makes the reply to a run: its output and value as text, and as structured data for clients that take it.

A text that is too long to send is stored; the reply then has its handle, its size, its beginning and the call that
reads on.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from onetool.core.call import ToolError
from onetool.core.errors import ToolFailure
from onetool.script.render import render
from onetool.script.run_result import RunResult
from onetool.services.results import Page, StoredResult, fitting, is_page

PREVIEW_CHARACTERS = 1000
PREVIEW_LINES = 20

ReadOn = Callable[[str, int], str]
"""What to call, to read what is behind a handle from that line on."""


class RunReply(msgspec.Struct, frozen=True, kw_only=True):
    """`text` is for models and people, `structured` for clients that take data: the value, or where it is kept."""

    text: str
    structured: Any = None
    is_error: bool = False
    stored: StoredResult | None = None  # where the whole of it is kept, if it is


def in_code(handle: str, offset: int) -> str:
    """How code reads on."""
    return f'ot.result(handle="{handle}", offset={offset})'


def run_reply(
    result: RunResult, inline_bytes: int, store: Callable[[str], StoredResult] | None, read_on: ReadOn = in_code
) -> RunReply:
    """The reply to a run. `store` keeps a text and says where; without one nothing is cut."""
    failed = "" if result.error is None else error_text(result.error)
    shown = "" if result.data is None else render(result.data)
    text = _joined(result.printed, failed or shown)
    if store is not None and (page := sendable(result.data, len(text.encode(errors="replace")), inline_bytes)):
        return run_reply(msgspec.structs.replace(result, data=page), inline_bytes, store, read_on)
    if store is None or len(text.encode(errors="replace")) <= inline_bytes:
        return RunReply(text=text, structured=result.data, is_error=bool(failed))
    try:
        whole = stored_reply(text, store(text), read_on)
    except ToolFailure as failure:
        note = f"The result is large, and the rest of it is lost: {failure}. Return a smaller part."
        return RunReply(text=_joined(f"{_beginning(text)[0]}\n{note}", failed), is_error=True)
    return msgspec.structs.replace(whole, text=_joined(whole.text, failed), is_error=True) if failed else whole


def sendable(value: Any, size: int, inline_bytes: int) -> Page | None:
    """What is sent of a page of a stored result that has too many bytes: it is cut, since it is stored already.

    None where it can go as it is, or is no page. Half of the bytes are for what the lines are wrapped in.
    """
    if size <= inline_bytes or not is_page(value):
        return None
    shorter = fitting(value, inline_bytes // 2)
    return None if shorter is value else shorter


def error_text(error: ToolError) -> str:
    """An error in a few lines: what, where, and how to repair it."""
    said = error.message.lower().startswith(("error:", "error "))  # servers say it, too
    return "\n".join((error.message if said else f"Error: {error.message}", *(f"  {hint}" for hint in error.hints)))


def _joined(printed: str, value: str) -> str:
    if not printed:
        return value
    return f"{printed.removesuffix(chr(10))}\n{value}" if value else printed.removesuffix("\n")


def stored_reply(text: str, stored: StoredResult, read_on: ReadOn = in_code) -> RunReply:
    """For a text that was stored: where it is, how it begins, and how to read on."""
    preview, whole_lines = _beginning(text)
    call = read_on(stored.handle, whole_lines + 1)
    facts = {"handle": stored.handle, "size": stored.size, "lines": stored.lines}
    note = f"The result is large and was stored. {render(facts)}\nIt begins:"
    return RunReply(
        text=f"{note}\n{preview}\nRead on with: {call}",
        structured={**facts, "preview": preview, "next": call},
        stored=stored,
    )


def _beginning(text: str) -> tuple[str, int]:
    """The first lines, as many as a glance takes, and how many of them are whole."""
    cut = text[:PREVIEW_CHARACTERS]
    lines = cut.split("\n")[:-1][:PREVIEW_LINES]
    return ("\n".join(lines), len(lines)) if lines else (f"{cut}…", 0)
