"""What a handler raised, in words: one line for the caller, and the place in the author's file."""

import os
from typing import cast

OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MOST_GROUPED = 5
LONGEST = 2_000


def words_for(error: BaseException, depth: int = 0) -> str:
    """An exception as one line. Its own text may be missing, huge or broken, and it may hold others without end."""
    text, name = text_of(error), type(error).__name__
    if isinstance(error, SystemExit):
        return f"the tool tried to end the process (SystemExit: {text})"
    if isinstance(error, BaseExceptionGroup) and depth == 0:
        inner = cast(tuple[BaseException, ...], error.exceptions)  # pyright: ignore[reportUnknownMemberType]
        text += ": " + "; ".join(words_for(one, depth + 1) for one in inner[:MOST_GROUPED])
    return f"{name}: {text}" if text else name


def text_of(error: BaseException) -> str:
    """Its own text, whatever that takes."""
    try:
        return str(error)[:LONGEST]
    except BaseException:  # noqa: BLE001 - a broken __str__ must not hide the failure, nor end the process
        return ""


def place_of(error: BaseException) -> tuple[str, ...]:
    """Where it was raised, for the author: the last line on the way that is not ours."""
    place, trace = None, error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith(OURS):
            place = f"raised at {os.path.basename(file)}:{trace.tb_lineno}"
        trace = trace.tb_next
    return (place,) if place else ()


def cut(text: str, most: int) -> str:
    """At most so many characters of a text; an ellipsis says that there were more."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
